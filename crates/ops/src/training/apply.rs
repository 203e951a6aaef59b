//! Common parts of all optimizers: [`Optimizer`], and the kernels that apply its rule to whole variables or to rows.
//!
//! All variables of an op are locked together, in the order of their addresses, so that two ops on the same variables can't
//! deadlock. A variable without readers is updated in place. Otherwise the new values are written to other memory in the same
//! pass that reads the old ones.

use crate::state::handle_shape;
use graph::ArgType;
use kernel::{AttrMap, BoxedKernel, Kernel, KernelBuilder, OpContext, ShapeContext, Variable};
use numeric::float::{Float, WideFloat};
use numeric::optimizer::{Rule, Slot, apply_dense, apply_sparse};
use parking_lot::RwLockWriteGuard;
use smallvec::SmallVec;
use std::marker::PhantomData;
use std::sync::Arc;
use tensor::{DType, Element, PartialShape, Result, Status, Tensor};

/// An optimizer with `N` slots, the variable included. The value holds the node's attributes.
pub(super) trait Optimizer<const N: usize>: Sized + Send + Sync + 'static {
    /// The update of an element.
    type Rule<W: WideFloat>: Rule<W, N>;

    /// The names of its hyper-parameters among the inputs, in the order in which `rule` takes them.
    const SCALARS: &'static [&'static str];

    /// Reads the node's attributes.
    fn new(attrs: &AttrMap) -> Result<Self>;

    /// Returns the rule for the hyper-parameters.
    fn rule<W: WideFloat>(&self, scalars: &[W]) -> Result<Self::Rule<W>>;

    /// Returns an error for invalid hyper-parameters of a sparse update; TensorFlow accepts anything for dense ones.
    fn check_sparse<W: WideFloat>(&self, _scalars: &[W]) -> Result<()> {
        Ok(())
    }
}

/// Updates whole variables.
pub(super) struct ApplyDense<T, O, const N: usize> {
    inputs: Inputs,
    optimizer: O,
    element: PhantomData<fn() -> T>,
}

/// Updates the rows of variables at the indices in a tensor.
pub(super) struct ApplySparse<T, O, const N: usize> {
    inputs: Inputs,
    indices: usize,
    /// Whether an index out of range is reported with the message of scatters, which only one optimizer does.
    reports_as_scatter: bool,
    optimizer: O,
    element: PhantomData<fn() -> T>,
}

/// The positions of a node's inputs. This is independent of the optimizer and the element type, since there are nearly two
/// hundred combinations of both, and dependent code is compiled for each.
struct Inputs {
    dtype: DType,
    scalars: Vec<usize>,
    scalar_names: &'static [&'static str],
    slot_names: Vec<String>,
    grad: usize,
    grad_name: &'static str,
}

/// The most hyper-parameters of an optimizer.
const MOST_SCALARS: usize = 8;

type Variables = SmallVec<[Arc<Variable>; 4]>;

/// A variable's value, and the memory for its new value if the old one still has readers.
struct Place<'a> {
    tensor: &'a mut Tensor,
    fresh: Option<Tensor>,
}

impl Inputs {
    fn new(
        builder: &KernelBuilder<'_>,
        dtype: DType,
        num_slots: usize,
        scalar_names: &'static [&'static str],
    ) -> Result<Inputs> {
        let position = |name: &&str| Ok(builder.input_range(name)?.start);
        let slots = builder.node.schema.inputs.iter().take(num_slots);
        let (grad, grad_name) = match builder.input_range("grad") {
            Ok(range) => (range.start, "grad"),
            Err(_) => (builder.input_range("delta")?.start, "delta"),
        };
        Ok(Inputs {
            dtype,
            scalars: scalar_names.iter().map(position).collect::<Result<_>>()?,
            scalar_names,
            slot_names: slots.map(|arg| arg.name.clone()).collect(),
            grad,
            grad_name,
        })
    }

    fn variables(&self, context: &OpContext<'_>) -> Result<Variables> {
        (0..self.slot_names.len()).map(|index| context.variable(index)).collect()
    }

    fn scalars(&self, context: &OpContext<'_>) -> Result<[f64; MOST_SCALARS]> {
        let mut scalars = [0.0; MOST_SCALARS];
        for ((value, &index), name) in scalars.iter_mut().zip(&self.scalars).zip(self.scalar_names) {
            *value = scalar(context.input(index)?, name)?;
        }
        Ok(scalars)
    }

    fn rule<W: WideFloat, O: Optimizer<N>, const N: usize>(
        &self,
        optimizer: &O,
        context: &OpContext<'_>,
        is_sparse: bool,
    ) -> Result<O::Rule<W>> {
        let mut scalars = [W::of(0.0); MOST_SCALARS];
        for (value, scalar) in scalars.iter_mut().zip(self.scalars(context)?) {
            *value = W::of(scalar);
        }
        let scalars = &scalars[..self.scalars.len()];
        if is_sparse {
            optimizer.check_sparse(scalars)?;
        }
        optimizer.rule(scalars)
    }

    /// Locks the variables, checks them and the gradient, and calls `update` with the old values and the destinations of the new
    /// ones.
    fn update_dense(
        &self,
        context: &mut OpContext<'_>,
        update: &mut dyn FnMut(&mut [Place<'_>], &Tensor) -> Result<()>,
    ) -> Result<()> {
        let variables = self.variables(context)?;
        let grad = context.input(self.grad)?;
        with_locked(&variables, &mut |tensors| {
            self.check_slots(&tensors)?;
            if tensors[0].shape() != grad.shape() {
                return Err(Status::invalid_argument(format!(
                    "var and {} do not have the same shape{} {}",
                    self.grad_name,
                    tensors[0].shape(),
                    grad.shape()
                )));
            }
            let mut places: SmallVec<[Place<'_>; 4]> = SmallVec::new();
            for tensor in tensors {
                // If the old value has readers, the new one is written to other memory.
                let fresh = match tensor.is_unique() {
                    true => None,
                    false => Some(Tensor::new(self.dtype, tensor.shape().clone())?),
                };
                places.push(Place { tensor, fresh });
            }
            update(&mut places, grad)?;
            for place in places {
                if let Some(fresh) = place.fresh {
                    *place.tensor = fresh;
                }
            }
            Ok(())
        })?;
        self.finish(context, variables)
    }

    /// As `update_dense`, for rows: `update` is called with the rows' numbers and their length.
    fn update_rows(
        &self,
        context: &mut OpContext<'_>,
        indices: usize,
        reports_as_scatter: bool,
        update: &mut dyn FnMut(&mut [Place<'_>], &[usize], usize, &Tensor) -> Result<()>,
    ) -> Result<()> {
        let variables = self.variables(context)?;
        let (grad, indices) = (context.input(self.grad)?, context.input(indices)?);
        for variable in &variables {
            variable.use_copy_on_read()?;
        }
        with_locked(&variables, &mut |tensors| {
            self.check_slots(&tensors)?;
            check_rows(tensors[0], grad, indices)?;
            let rows = match reports_as_scatter {
                true => crate::rows::row_indices(indices, tensors[0].dims()[0] as usize)?,
                false => rows_in_range(indices, tensors[0].dims()[0])?,
            };
            let row_len = grad.num_elements() / rows.len().max(1);
            if rows.is_empty() || row_len == 0 {
                return Ok(());
            }
            let mut places: SmallVec<[Place<'_>; 4]> =
                tensors.into_iter().map(|tensor| Place { tensor, fresh: None }).collect();
            update(&mut places, &rows, row_len, grad)
        })?;
        self.finish(context, variables)
    }

    /// Only the form by ref has an output, which is the variable.
    fn finish(&self, context: &mut OpContext<'_>, variables: Variables) -> Result<()> {
        if let Some(var) = variables.into_iter().next() {
            context.set_output_ref(0, var);
        }
        Ok(())
    }

    /// Checks that all slots have the variable's type and shape.
    fn check_slots(&self, tensors: &[&mut Tensor]) -> Result<()> {
        let var = &tensors[0];
        for (tensor, name) in tensors.iter().zip(&self.slot_names) {
            if tensor.dtype() != self.dtype {
                return Err(Status::invalid_argument(format!(
                    "{name} is a variable of {}, but the op works on {}",
                    tensor.dtype(),
                    self.dtype
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

/// Locks all variables and calls `f` with their values. There is at least one.
fn with_locked(variables: &[Arc<Variable>], f: &mut dyn FnMut(SmallVec<[&mut Tensor; 4]>) -> Result<()>) -> Result<()> {
    let mut order: SmallVec<[usize; 4]> = (0..variables.len()).collect();
    order.sort_unstable_by_key(|&index| Arc::as_ptr(&variables[index]));
    if order.windows(2).any(|pair| Arc::ptr_eq(&variables[pair[0]], &variables[pair[1]])) {
        return Err(Status::invalid_argument("the variable and its slots must be different variables"));
    }
    let mut guards: SmallVec<[Option<RwLockWriteGuard<'_, Option<Tensor>>>; 4]> =
        variables.iter().map(|_| None).collect();
    for index in order {
        guards[index] = Some(variables[index].lock_for_write());
    }
    let mut tensors = SmallVec::new();
    for (guard, variable) in guards.iter_mut().flatten().zip(variables) {
        tensors.push(guard.as_mut().ok_or_else(|| variable.uninitialized())?);
    }
    f(tensors)
}

/// Returns the values as slots for the loops.
fn slots<'a, T: Element>(places: &'a mut [Place<'_>]) -> Result<SmallVec<[Slot<'a, T>; 4]>> {
    let slot = |place: &'a mut Place<'_>| match &mut place.fresh {
        Some(fresh) => Ok(Slot::copied(place.tensor.as_slice::<T>()?, fresh.make_mut::<T>()?)),
        None => Ok(Slot::in_place(place.tensor.make_mut::<T>()?)),
    };
    places.iter_mut().map(slot).collect()
}

impl<T: Element + Float, O: Optimizer<N>, const N: usize> ApplyDense<T, O, N> {
    pub(super) fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(ApplyDense::<T, O, N> {
            inputs: Inputs::new(builder, T::DTYPE, N, O::SCALARS)?,
            optimizer: O::new(builder.attrs())?,
            element: PhantomData,
        })
    }
}

impl<T: Element + Float, O: Optimizer<N>, const N: usize> Kernel for ApplyDense<T, O, N> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let rule = self.inputs.rule::<T::Wide, O, N>(&self.optimizer, context, false)?;
        self.inputs.update_dense(context, &mut |places, grad| {
            apply_dense::<T, _, N>(&rule, &mut slots(places)?, grad.as_slice::<T>()?);
            Ok(())
        })
    }
}

impl<T: Element + Float, O: Optimizer<N>, const N: usize> ApplySparse<T, O, N> {
    pub(super) fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(ApplySparse::<T, O, N> {
            inputs: Inputs::new(builder, T::DTYPE, N, O::SCALARS)?,
            indices: builder.input_range("indices")?.start,
            reports_as_scatter: builder.node.op().ends_with("KerasMomentum"),
            optimizer: O::new(builder.attrs())?,
            element: PhantomData,
        })
    }
}

impl<T: Element + Float, O: Optimizer<N>, const N: usize> Kernel for ApplySparse<T, O, N> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let rule = self.inputs.rule::<T::Wide, O, N>(&self.optimizer, context, true)?;
        self.inputs.update_rows(context, self.indices, self.reports_as_scatter, &mut |places, rows, row_len, grad| {
            apply_sparse::<T, _, N>(&rule, &mut slots(places)?, row_len, rows, grad.as_slice::<T>()?);
            Ok(())
        })
    }
}

fn rows_in_range(indices: &Tensor, rows: i64) -> Result<Vec<usize>> {
    let checked = |(offset, index): (usize, i64)| {
        if (0..rows).contains(&index) {
            return Ok(index as usize);
        }
        Err(Status::invalid_argument(format!("Index {index} at offset {offset} in indices is out of range")))
    };
    indices.to_indices()?.into_iter().enumerate().map(checked).collect()
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

/// The variables, and a dense gradient, have the same shape, which is the output's; hyper-parameters are scalars.
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
