//! One kernel for all optimizers: a [`Recipe`] makes the rule from the node's inputs, and [`Apply`] runs it over whole
//! tensors or over rows, for variables behind ref edges and behind resource handles alike.

use graph::ShapeContext;
use kernel::{BoxedKernel, Kernel, KernelBuilder, OpContext, Value, Variable};
use numeric::float::{Float, WideFloat};
use numeric::optimizer::{self, Rule, Slot};
use std::marker::PhantomData;
use std::sync::Arc;
use tensor::{Element, PartialShape, Result, Status, Tensor};

/// What an optimizer must bring: the names of its variables, and how its rule follows from the inputs.
pub(super) trait Recipe<const N: usize>: Send + Sync + 'static {
    /// What happens to an element.
    type Rule<W: WideFloat>: Rule<W, N>;
    /// The inputs that are changed, the variable first.
    const SLOTS: [&'static str; N];
    /// Makes the rule for one step.
    fn rule<W: WideFloat>(hyper: &Hyper<'_, W>) -> Result<Self::Rule<W>>;
}

/// A node's scalar inputs and flags.
pub(super) struct Hyper<'a, W> {
    names: &'a [String],
    flags: &'a [String],
    context: &'a OpContext<'a>,
    read: fn(&OpContext<'_>, usize, &str) -> Result<W>,
}

impl<W: WideFloat> Hyper<'_, W> {
    /// Returns a scalar input of the variable's type.
    pub(super) fn get(&self, name: &str) -> Result<W> {
        (self.read)(self.context, self.index(name)?, name)
    }

    /// Returns a scalar input that counts steps.
    pub(super) fn step(&self, name: &str) -> Result<W> {
        Ok(W::of(self.context.scalar::<i64>(self.index(name)?, name)? as f64))
    }

    /// Returns whether an attribute is set.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.flags.iter().any(|flag| flag == name)
    }

    fn index(&self, name: &str) -> Result<usize> {
        let index = self.names.iter().position(|input| input == name);
        index.ok_or_else(|| Status::internal(format!("there is no input '{name}'")))
    }
}

/// Applies an optimizer's rule.
pub(super) struct Apply<T, P, const N: usize> {
    /// The names of all inputs.
    names: Vec<String>,
    /// The boolean attributes that are set.
    flags: Vec<String>,
    slots: [usize; N],
    grad: usize,
    /// The input with the rows' numbers, for a sparse gradient.
    indices: Option<usize>,
    recipe: PhantomData<fn(T, P)>,
}

impl<T: Element + Float, P: Recipe<N>, const N: usize> Apply<T, P, N> {
    pub(super) fn boxed(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let names: Vec<String> = builder.node.schema.inputs.iter().map(|arg| arg.name.clone()).collect();
        let position = |name: &str| names.iter().position(|input| input == name);
        let missing = || Status::internal("an optimizer's input is missing");
        let mut slots = [0; N];
        for (slot, name) in slots.iter_mut().zip(P::SLOTS) {
            *slot = position(name).ok_or_else(missing)?;
        }
        let grad = position("grad").or_else(|| position("delta")).ok_or_else(missing)?;
        let attrs = builder.attrs();
        let flags = attrs.keys().filter(|name| attrs.bool(name).unwrap_or(false)).cloned().collect();
        let indices = position("indices");
        BoxedKernel::new(Apply::<T, P, N> { names, flags, slots, grad, indices, recipe: PhantomData })
    }

    fn rule(&self, context: &OpContext<'_>) -> Result<P::Rule<T::Wide>> {
        P::rule(&Hyper {
            names: &self.names,
            flags: &self.flags,
            context,
            read: |context, index, name| context.scalar::<T>(index, name).map(Float::widen),
        })
    }

    fn variables(&self, context: &OpContext<'_>) -> Result<Vec<Arc<Variable>>> {
        let variables = self.slots.iter().map(|&slot| context.variable(slot)).collect::<Result<Vec<_>>>()?;
        for (index, variable) in variables.iter().enumerate() {
            if variable.dtype() != T::DTYPE {
                return Err(Status::invalid_argument(format!("{} is {}", P::SLOTS[index], variable.dtype())));
            }
            if variables[..index].iter().any(|other| Arc::ptr_eq(other, variable)) {
                return Err(Status::invalid_argument(format!("{} is given twice", P::SLOTS[index])));
            }
        }
        Ok(variables)
    }
}

impl<T: Element + Float, P: Recipe<N>, const N: usize> Kernel for Apply<T, P, N> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let rule = self.rule(context)?;
        let variables = self.variables(context)?;
        if self.indices.is_some() {
            for variable in &variables {
                variable.use_copy_on_read()?;
            }
        }
        // Whoever locks several variables does so in the order of their addresses, so that nobody waits in a circle.
        let mut order: Vec<usize> = (0..N).collect();
        order.sort_by_key(|&index| Arc::as_ptr(&variables[index]).addr());
        let mut guards: Vec<_> = (0..N).map(|_| None).collect();
        for index in order {
            guards[index] = Some(variables[index].lock_for_write());
        }
        let mut tensors: Vec<&mut Tensor> = Vec::with_capacity(N);
        for (guard, variable) in guards.iter_mut().zip(&variables) {
            let value = guard.as_mut().ok_or_else(|| Status::internal("a variable was not locked"))?;
            tensors.push(value.as_mut().ok_or_else(|| variable.uninitialized())?);
        }
        for (tensor, name) in tensors.iter().zip(P::SLOTS).skip(1) {
            if tensor.shape() != tensors[0].shape() {
                return Err(Status::invalid_argument(format!(
                    "var and {name} do not have the same shape{} {}",
                    tensors[0].shape(),
                    tensor.shape()
                )));
            }
        }
        let grad = context.input(self.grad)?;
        match self.indices {
            None => apply_dense::<T, _, N>(&rule, &mut tensors, grad)?,
            Some(indices) => apply_sparse::<T, _, N>(&rule, &mut tensors, grad, context.input(indices)?)?,
        }
        drop(guards);
        if let Value::Ref(variable) = context.value(self.slots[0]) {
            let variable = variable.clone();
            context.set_output_ref(0, variable);
        }
        Ok(())
    }
}

fn apply_dense<T: Element + Float, R: Rule<T::Wide, N>, const N: usize>(
    rule: &R,
    tensors: &mut [&mut Tensor],
    grad: &Tensor,
) -> Result<()> {
    if tensors[0].shape() != grad.shape() {
        return Err(Status::invalid_argument(format!(
            "var and grad do not have the same shape{} {}",
            tensors[0].shape(),
            grad.shape()
        )));
    }
    // A value that a reader still holds is not copied first: the new one is written while the old one is read.
    let mut fresh: Vec<Option<Tensor>> = Vec::with_capacity(N);
    for tensor in tensors.iter() {
        let shared = !tensor.is_unique();
        fresh.push(if shared { Some(Tensor::new(T::DTYPE, tensor.shape().clone())?) } else { None });
    }
    {
        let mut slots: Vec<Slot<'_, T>> = Vec::with_capacity(N);
        for (tensor, new) in tensors.iter_mut().zip(&mut fresh) {
            let not_writable = || Status::internal("a new tensor is not writable");
            slots.push(match new {
                Some(new) => Slot::copied(tensor.as_slice::<T>()?, new.as_mut_slice::<T>().ok_or_else(not_writable)?),
                None => Slot::in_place(tensor.as_mut_slice::<T>().ok_or_else(not_writable)?),
            });
        }
        let slots: [Slot<'_, T>; N] =
            slots.try_into().map_err(|_| Status::internal("the number of slots is not what the rule takes"))?;
        optimizer::apply_dense(rule, slots, grad.as_slice::<T>()?);
    }
    for (tensor, new) in tensors.iter_mut().zip(fresh) {
        if let Some(new) = new {
            **tensor = new;
        }
    }
    Ok(())
}

fn apply_sparse<T: Element + Float, R: Rule<T::Wide, N>, const N: usize>(
    rule: &R,
    tensors: &mut [&mut Tensor],
    grad: &Tensor,
    indices: &Tensor,
) -> Result<()> {
    let shape = tensors[0].shape().clone();
    if shape.is_scalar() {
        return Err(Status::invalid_argument("var must be at least 1 dimensional"));
    }
    if !indices.shape().is_vector() {
        return Err(Status::invalid_argument("indices must be one-dimensional"));
    }
    if grad.shape().first() != indices.shape().first() {
        return Err(Status::invalid_argument("grad must be the same size as indices in the first dimension."));
    }
    if grad.shape()[1..] != shape[1..] {
        return Err(Status::invalid_argument(format!(
            "var and grad must match in all dimensions but the first: {shape} and {}",
            grad.shape()
        )));
    }
    let rows = shape.size(0);
    let numbers = indices.to_indices()?;
    for (offset, &index) in numbers.iter().enumerate() {
        if usize::try_from(index).map_or(true, |index| index >= rows) {
            return Err(Status::invalid_argument(format!(
                "Index {index} at offset {offset} in indices is out of range [0, {rows})"
            )));
        }
    }
    let row_len = shape[1..].iter().product::<i64>() as usize;
    let mut slots: Vec<&mut [T]> = Vec::with_capacity(N);
    for tensor in tensors.iter_mut() {
        slots.push(tensor.make_mut::<T>()?);
    }
    let slots: [&mut [T]; N] =
        slots.try_into().map_err(|_| Status::internal("the number of slots is not what the rule takes"))?;
    optimizer::apply_sparse(rule, slots, row_len, &numbers, grad.as_slice::<T>()?);
    Ok(())
}

/// The output, when there is one, has the shape of the variable.
pub(super) fn apply_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    if c.num_outputs() == 0 {
        return Ok(());
    }
    let mut shape: PartialShape = c.input(0);
    for (index, arg) in c.schema.inputs.iter().enumerate().skip(1) {
        if arg.is_ref {
            shape = shape.merge(&c.input(index))?;
        }
    }
    c.set_output(0, shape);
    Ok(())
}
