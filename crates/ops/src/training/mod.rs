//! The updates that optimizers make.

/// Lists the kernels of an optimizer's op, one per type.
macro_rules! apply_kernels {
    ($recipe:ident, $slots:literal) => {
        &[
            kernel::KernelDef {
                types: &[("T", tensor::DType::Float)],
                create: |builder| Apply::<f32, $recipe, $slots>::boxed(builder),
            },
            kernel::KernelDef {
                types: &[("T", tensor::DType::Double)],
                create: |builder| Apply::<f64, $recipe, $slots>::boxed(builder),
            },
            kernel::KernelDef {
                types: &[("T", tensor::DType::Half)],
                create: |builder| Apply::<f16, $recipe, $slots>::boxed(builder),
            },
            kernel::KernelDef {
                types: &[("T", tensor::DType::BFloat16)],
                create: |builder| Apply::<bf16, $recipe, $slots>::boxed(builder),
            },
        ]
    };
}

mod adadelta;
mod adagrad;
mod adam;
mod apply;
mod ftrl;
mod gradient_descent;
mod momentum;
mod rmsprop;
mod sign;
#[cfg(test)]
mod tests;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] =
    &[adadelta::OPS, adagrad::OPS, adam::OPS, ftrl::OPS, gradient_descent::OPS, momentum::OPS, rmsprop::OPS, sign::OPS];
