//! What all optimizers share: [`Optimizer`], and the kernels that run its rule over whole variables or over rows.
//!
//! All variables of an op are locked together, in the order of their addresses, so that two ops with the same variables
//! can't wait for each other. A variable that nobody reads is updated in place. For one that somebody reads, new values are
//! written elsewhere in the same pass in which the old ones are read.

use crate::state::handle_shape;
use graph::ArgType;
use kernel::{AttrMap, BoxedKernel, Kernel, KernelBuilder, OpContext, ShapeContext, Variable};
use numeric::float::{Float, WideFloat};
use numeric::optimizer::{Rule, Slot, apply_dense, apply_sparse};
use parking_lot::RwLockWriteGuard;
use std::marker::PhantomData;
use std::sync::Arc;
use tensor::{DType, Element, PartialShape, Result, Status, Tensor};

/// An optimizer with `N` slots, the variable included. The value holds the node's attributes.
pub(super) trait Optimizer<const N: usize>: Sized + Send + Sync + 'static {
    /// What it does with an element.
    type Rule<W: WideFloat>: Rule<W, N>;

    /// The names of its hyper-parameters among the inputs, in the order in which `rule` takes them.
    const SCALARS: &'static [&'static str];

    /// Reads the node's attributes.
    fn new(attrs: &AttrMap) -> Result<Self>;

    /// Makes the rule from the hyper-parameters, or says what is wrong with them.
    fn rule<W: WideFloat>(&self, scalars: &[W]) -> Result<Self::Rule<W>>;
}

/// Updates whole variables.
pub(super) struct ApplyDense<T, O, const N: usize> {
    inputs: Inputs<O>,
    grad: usize,
    grad_name: &'static str,
    element: PhantomData<fn() -> T>,
}

/// Updates the rows of variables that an index tensor names.
pub(super) struct ApplySparse<T, O, const N: usize> {
    inputs: Inputs<O>,
    grad: usize,
    indices: usize,
    /// Whether an index out of range is reported as scatters report it, which only one optimizer does.
    reports_as_scatter: bool,
    element: PhantomData<fn() -> T>,
}

/// Where a node's inputs are.
struct Inputs<O> {
    optimizer: O,
    scalars: Vec<usize>,
    slot_names: Vec<String>,
}

impl<O> Inputs<O> {
    fn new<const N: usize>(builder: &KernelBuilder<'_>) -> Result<Inputs<O>>
    where
        O: Optimizer<N>,
    {
        let position = |name: &&str| Ok(builder.input_range(name)?.start);
        let slots = builder.node.schema.inputs.iter().take(N);
        Ok(Inputs {
            optimizer: O::new(builder.attrs())?,
            scalars: O::SCALARS.iter().map(position).collect::<Result<_>>()?,
            slot_names: slots.map(|arg| arg.name.clone()).collect(),
        })
    }

    fn variables<const N: usize>(&self, context: &OpContext<'_>) -> Result<[Arc<Variable>; N]> {
        let variables = (0..N).map(|index| context.variable(index)).collect::<Result<Vec<_>>>()?;
        variables.try_into().map_err(|_| Status::internal("an op without its variables"))
    }

    fn rule<W: WideFloat, const N: usize>(&self, context: &OpContext<'_>) -> Result<O::Rule<W>>
    where
        O: Optimizer<N>,
    {
        let mut scalars = [W::of(0.0); MOST_SCALARS];
        for ((value, &index), name) in scalars.iter_mut().zip(&self.scalars).zip(O::SCALARS) {
            *value = W::of(scalar(context.input(index)?, name)?);
        }
        self.optimizer.rule(&scalars[..self.scalars.len()])
    }

    /// Checks that all slots look like the variable.
    fn check_slots<T: Element, const N: usize>(&self, tensors: &[&mut Tensor; N]) -> Result<()> {
        let var = &tensors[0];
        for (tensor, name) in tensors.iter().zip(&self.slot_names) {
            if tensor.dtype() != T::DTYPE {
                return Err(Status::invalid_argument(format!(
                    "{name} is a variable of {}, but the op works on {}",
                    tensor.dtype(),
                    T::DTYPE
                )));
            }
            if tensor.shape() != var.shape() {
                return Err(Status::invalid_argument(format!(
                    "var and {name} do not have the same shape{} {}",
                    var.shape(),
                    tensor.shape()
                )));
            }
        }
        Ok(())
    }
}

/// No optimizer has more hyper-parameters.
const MOST_SCALARS: usize = 8;

fn scalar(tensor: &Tensor, name: &str) -> Result<f64> {
    if !tensor.shape().is_scalar() {
        let name = match name {
            "l1" | "l2" => format!("{name} regularization strength"),
            name => name.to_owned(),
        };
        return Err(Status::invalid_argument(format!("{name} is not a scalar: {}", tensor.shape())));
    }
    Ok(match tensor.dtype() {
        DType::Float => f64::from(tensor.to_scalar::<f32>()?),
        DType::Double => tensor.to_scalar::<f64>()?,
        DType::Half => tensor.to_scalar::<tensor::f16>()?.to_f64(),
        DType::BFloat16 => tensor.to_scalar::<tensor::bf16>()?.to_f64(),
        _ => tensor.to_scalar::<i64>()? as f64,
    })
}

/// Locks all variables and calls `f` with their values.
fn with_locked<R, const N: usize>(
    variables: &[Arc<Variable>; N],
    f: impl FnOnce([&mut Tensor; N]) -> Result<R>,
) -> Result<R> {
    let mut order: [usize; N] = std::array::from_fn(|index| index);
    order.sort_unstable_by_key(|&index| Arc::as_ptr(&variables[index]));
    if order.windows(2).any(|pair| Arc::ptr_eq(&variables[pair[0]], &variables[pair[1]])) {
        return Err(Status::invalid_argument("the variable and its slots must be different variables"));
    }
    let mut guards: [Option<RwLockWriteGuard<'_, Option<Tensor>>>; N] = [const { None }; N];
    for index in order {
        guards[index] = Some(variables[index].lock_for_write());
    }
    let mut tensors = Vec::with_capacity(N);
    for (guard, variable) in guards.iter_mut().flatten().zip(variables) {
        tensors.push(guard.as_mut().ok_or_else(|| variable.uninitialized())?);
    }
    f(tensors.try_into().map_err(|_| Status::internal("a variable was not locked"))?)
}

impl<T: Element + Float, O: Optimizer<N>, const N: usize> ApplyDense<T, O, N> {
    pub(super) fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let (grad, grad_name) = match builder.input_range("grad") {
            Ok(range) => (range.start, "grad"),
            Err(_) => (builder.input_range("delta")?.start, "delta"),
        };
        BoxedKernel::new(ApplyDense::<T, O, N> { inputs: Inputs::new(builder)?, grad, grad_name, element: PhantomData })
    }
}

impl<T: Element + Float, O: Optimizer<N>, const N: usize> Kernel for ApplyDense<T, O, N> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let variables = self.inputs.variables::<N>(context)?;
        let rule = self.inputs.rule::<T::Wide, N>(context)?;
        let grad = context.input(self.grad)?;
        with_locked(&variables, |mut tensors| {
            self.inputs.check_slots::<T, N>(&tensors)?;
            if tensors[0].shape() != grad.shape() {
                return Err(Status::invalid_argument(format!(
                    "var and {} do not have the same shape{} {}",
                    self.grad_name,
                    tensors[0].shape(),
                    grad.shape()
                )));
            }
            // Where somebody holds the old value, the new one goes elsewhere.
            let mut fresh: [Option<Tensor>; N] = [const { None }; N];
            for (fresh, tensor) in fresh.iter_mut().zip(&tensors) {
                if !tensor.is_unique() {
                    *fresh = Some(Tensor::new(T::DTYPE, tensor.shape().clone())?);
                }
            }
            let mut slots = Vec::with_capacity(N);
            for (tensor, fresh) in tensors.iter_mut().zip(&mut fresh) {
                slots.push(match fresh {
                    Some(fresh) => Slot::copied(tensor.as_slice::<T>()?, fresh.make_mut::<T>()?),
                    None => Slot::in_place(tensor.make_mut::<T>()?),
                });
            }
            let slots = slots.try_into().map_err(|_| Status::internal("an op without its slots"))?;
            apply_dense::<T, _, N>(&rule, slots, grad.as_slice::<T>()?);
            for (tensor, fresh) in tensors.into_iter().zip(fresh) {
                if let Some(fresh) = fresh {
                    *tensor = fresh;
                }
            }
            Ok(())
        })?;
        let [var, ..] = variables.as_slice() else { return Ok(()) };
        // Of the two forms only the one by ref has an output, which is the variable.
        context.set_output_ref(0, var.clone());
        Ok(())
    }
}

impl<T: Element + Float, O: Optimizer<N>, const N: usize> ApplySparse<T, O, N> {
    pub(super) fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(ApplySparse::<T, O, N> {
            inputs: Inputs::new(builder)?,
            grad: builder.input_range("grad")?.start,
            indices: builder.input_range("indices")?.start,
            reports_as_scatter: builder.node.op().ends_with("KerasMomentum"),
            element: PhantomData,
        })
    }

    fn rows(&self, indices: &Tensor, rows: i64) -> Result<Vec<usize>> {
        if self.reports_as_scatter {
            return crate::rows::row_indices(indices, rows as usize);
        }
        let checked = |(offset, index): (usize, i64)| {
            if (0..rows).contains(&index) {
                return Ok(index as usize);
            }
            Err(Status::invalid_argument(format!("Index {index} at offset {offset} in indices is out of range")))
        };
        indices.to_indices()?.into_iter().enumerate().map(checked).collect()
    }
}

impl<T: Element + Float, O: Optimizer<N>, const N: usize> Kernel for ApplySparse<T, O, N> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let variables = self.inputs.variables::<N>(context)?;
        let rule = self.inputs.rule::<T::Wide, N>(context)?;
        let (grad, indices) = (context.input(self.grad)?, context.input(self.indices)?);
        for variable in &variables {
            variable.use_copy_on_read()?;
        }
        with_locked(&variables, |mut tensors| {
            self.inputs.check_slots::<T, N>(&tensors)?;
            check_rows(tensors[0], grad, indices)?;
            let rows = self.rows(indices, tensors[0].dims()[0])?;
            let row_len = grad.num_elements() / rows.len().max(1);
            if rows.is_empty() || row_len == 0 {
                return Ok(());
            }
            let mut slots = Vec::with_capacity(N);
            for tensor in &mut tensors {
                slots.push(tensor.make_mut::<T>()?);
            }
            let slots = slots.try_into().map_err(|_| Status::internal("an op without its slots"))?;
            apply_sparse::<T, _, usize, N>(&rule, slots, row_len, &rows, grad.as_slice::<T>()?);
            Ok(())
        })?;
        let [var, ..] = variables.as_slice() else { return Ok(()) };
        context.set_output_ref(0, var.clone());
        Ok(())
    }
}

fn check_rows(var: &Tensor, grad: &Tensor, indices: &Tensor) -> Result<()> {
    let invalid = |text: String| Err(Status::invalid_argument(text));
    if var.shape().is_scalar() {
        return invalid("var must be at least 1 dimensional".to_owned());
    }
    if !indices.shape().is_vector() {
        return invalid("indices must be one-dimensional".to_owned());
    }
    let (Some((&grad_rows, grad_rest)), Some((_, var_rest))) = (grad.dims().split_first(), var.dims().split_first())
    else {
        return invalid("grad must be at least 1 dimensional".to_owned());
    };
    let differs = var_rest.iter().zip(grad_rest).position(|(a, b)| a != b);
    if var_rest.len() != grad_rest.len() || differs.is_some() {
        let dimension = differs.unwrap_or(var_rest.len().min(grad_rest.len())) + 1;
        return invalid(format!("var and grad must match in dimension {dimension}"));
    }
    if grad_rows != indices.dims()[0] {
        return invalid("grad must be the same size as indices in the first dimension.".to_owned());
    }
    Ok(())
}

/// The variables, and the gradient where it is dense, have one shape, which is the output's; hyper-parameters are scalars.
pub(super) fn apply_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let mut var = PartialShape::unknown();
    let sparse = c.schema.inputs.iter().position(|arg| arg.name == "indices");
    for (index, arg) in c.schema.inputs.iter().enumerate() {
        if arg.is_ref {
            var = var.merge(&c.input(index))?;
        } else if arg.ty == ArgType::Fixed(DType::Resource) {
            var = var.merge(&handle_shape(c, index)?.1)?;
        } else if matches!(arg.name.as_str(), "grad" | "delta") {
            match (sparse, var.rank()) {
                (None, _) => var = var.merge(&c.input(index))?,
                (Some(indices), Some(rank @ 1..)) => {
                    let rows = PartialShape::new(&[c.with_rank(indices, 1)?.dim(0)]);
                    c.input(index).merge(&rows.concat(&var.slice(1, rank)))?;
                }
                (Some(indices), _) => drop(c.with_rank(indices, 1)?),
            }
        } else if arg.name != "indices" {
            c.with_rank(index, 0)?;
        }
    }
    c.set_output(0, var);
    Ok(())
}
