//! Gradient descent, plain and proximal: ApplyGradientDescent, ApplyProximalGradientDescent, and their other forms.

use super::apply::Optimizer;
use super::{INDICES, USE_LOCKING};
use crate::arithmetic::Arithmetic;
use kernel::{AttrMap, BoxedKernel, Kernel, KernelBuilder, KernelDef, OpContext};
use numeric::float::WideFloat;
use numeric::optimizer;
use std::marker::PhantomData;
use tensor::{Complex32, Complex64, Element, Result, Status, bf16, f16};

training_ops! {
    /// Subtracts `alpha * delta` from a variable.
    apply_gradient_descent = "ApplyGradientDescent", resource_apply_gradient_descent = "ResourceApplyGradientDescent":
        [var], [alpha: T, delta: T], [USE_LOCKING], DESCENT;
    /// Subtracts `alpha * delta` from a variable, with proximal `l1` and `l2` regularization.
    apply_proximal_gradient_descent = "ApplyProximalGradientDescent",
    resource_apply_proximal_gradient_descent = "ResourceApplyProximalGradientDescent":
        [var], [alpha: T, l1: T, l2: T, delta: T], [USE_LOCKING], dense_kernels!(Proximal, 1);
    /// As the dense op, for the rows in `indices`.
    sparse_apply_proximal_gradient_descent = "SparseApplyProximalGradientDescent",
    resource_sparse_apply_proximal_gradient_descent = "ResourceSparseApplyProximalGradientDescent":
        [var], [alpha: T, l1: T, l2: T, grad: T, indices: Tindices], [INDICES, USE_LOCKING], sparse_kernels!(Proximal, 1);
}

const DESCENT: &[KernelDef] =
    &[dense::<f32>(), dense::<f64>(), dense::<f16>(), dense::<bf16>(), complex::<Complex32>(), complex::<Complex64>()];

const fn dense<T: Element + numeric::float::Float>() -> KernelDef {
    KernelDef {
        types: const { &[("T", T::DTYPE)] },
        create: |builder| super::apply::ApplyDense::<T, Descent, 1>::create(builder),
    }
}

const fn complex<T: Arithmetic>() -> KernelDef {
    KernelDef { types: const { &[("T", T::DTYPE)] }, create: |builder| ComplexDescent::<T>::create(builder) }
}

struct Descent;

impl Optimizer<1> for Descent {
    type Rule<W: WideFloat> = optimizer::GradientDescent<W>;
    const SCALARS: &'static [&'static str] = &["alpha"];

    fn new(_: &AttrMap) -> Result<Self> {
        Ok(Descent)
    }

    fn rule<W: WideFloat>(&self, scalars: &[W]) -> Result<Self::Rule<W>> {
        Ok(optimizer::GradientDescent { lr: scalars[0] })
    }
}

struct Proximal;

impl Optimizer<1> for Proximal {
    type Rule<W: WideFloat> = optimizer::ProximalGradientDescent<W>;
    const SCALARS: &'static [&'static str] = &["alpha", "l1", "l2"];

    fn new(_: &AttrMap) -> Result<Self> {
        Ok(Proximal)
    }

    fn rule<W: WideFloat>(&self, scalars: &[W]) -> Result<Self::Rule<W>> {
        Ok(optimizer::ProximalGradientDescent { lr: scalars[0], l1: scalars[1], l2: scalars[2] })
    }
}

/// Gradient descent on complex numbers.
struct ComplexDescent<T>(PhantomData<fn() -> T>);

impl<T: Arithmetic> ComplexDescent<T> {
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(ComplexDescent::<T>(PhantomData))
    }
}

impl<T: Arithmetic> Kernel for ComplexDescent<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let variable = context.variable(0)?;
        let alpha = context.scalar::<T>(1, "alpha")?;
        let delta = context.input(2)?;
        variable.update(|var| {
            if var.shape() != delta.shape() {
                return Err(Status::invalid_argument(format!(
                    "var and delta do not have the same shape{} {}",
                    var.shape(),
                    delta.shape()
                )));
            }
            let delta = delta.as_slice::<T>()?;
            var.make_mut::<T>()?.iter_mut().zip(delta).for_each(|(var, &delta)| *var = var.minus(alpha.times(delta)));
            Ok(())
        })?;
        context.set_output_ref(0, variable);
        Ok(())
    }
}
