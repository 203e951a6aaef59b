//! The contexts of kernels: [`OpContext`] for synchronous ones, [`AsyncContext`] for asynchronous ones.

use crate::{FrameAndIteration, Resource, ResourceManager, Step, Variable};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use tensor::{DType, Element, Result, Shape, Status, Tensor};

/// The value of an edge.
#[derive(Clone, Default)]
pub enum Value {
    /// No value: not computed yet, dead, or taken.
    #[default]
    None,
    /// A tensor.
    Tensor(Tensor),
    /// A reference to a variable, which is read or written when its consumer runs.
    Ref(Arc<Variable>),
}

/// A node's inputs.
pub type Values = SmallVec<[Value; 4]>;

/// A node's outputs.
pub type Outputs = SmallVec<[Value; 2]>;

/// The context of a kernel that runs.
pub struct OpContext<'a> {
    inputs: &'a mut [Value],
    outputs: &'a mut Outputs,
    step: &'a Arc<Step>,
    node_name: &'a str,
    frame: FrameAndIteration,
    input_is_dead: bool,
}

impl<'a> OpContext<'a> {
    /// Returns a context; `outputs` must have one entry per output.
    pub fn new(
        inputs: &'a mut [Value],
        outputs: &'a mut Outputs,
        step: &'a Arc<Step>,
        node_name: &'a str,
        frame: FrameAndIteration,
        input_is_dead: bool,
    ) -> OpContext<'a> {
        OpContext { inputs, outputs, step, node_name, frame, input_is_dead }
    }

    /// Returns the step.
    pub fn step(&self) -> &'a Arc<Step> {
        self.step
    }

    /// Returns the node's name, for resources and logs. Kernels leave it out of errors, to which the executor adds it.
    pub fn node_name(&self) -> &'a str {
        self.node_name
    }

    /// Returns the loop frame and the iteration in which the node runs.
    pub fn frame(&self) -> FrameAndIteration {
        self.frame
    }

    /// Returns whether an input is dead; only nodes that propagate deadness, such as sends, run then.
    pub fn input_is_dead(&self) -> bool {
        self.input_is_dead
    }

    /// Returns the device's resources.
    pub fn resources(&self) -> &'a ResourceManager {
        &self.step.resources
    }

    /// Returns the number of inputs.
    pub fn num_inputs(&self) -> usize {
        self.inputs.len()
    }

    /// Returns the number of outputs.
    pub fn num_outputs(&self) -> usize {
        self.outputs.len()
    }

    /// Returns an input's value.
    pub fn input(&self, index: usize) -> Result<&Tensor> {
        match self.inputs.get(index) {
            Some(Value::Tensor(tensor)) => Ok(tensor),
            Some(Value::Ref(_)) => {
                Err(Status::internal(format!("input {index} is a reference that has not been read")))
            }
            _ => Err(Status::internal(format!("input {index} is missing"))),
        }
    }

    /// Returns an input's elements.
    pub fn slice<T: Element>(&self, index: usize) -> Result<&[T]> {
        self.input(index)?.as_slice()
    }

    /// Returns the single element of an input that must be a scalar.
    pub fn scalar<T: Element>(&self, index: usize, name: &str) -> Result<T> {
        let tensor = self.input(index)?;
        if tensor.num_elements() != 1 || tensor.shape().rank() > 1 {
            return Err(Status::invalid_argument(format!("{name} must be a scalar, got shape {}", tensor.shape())));
        }
        tensor.to_scalar()
    }

    /// Takes an input, so that a kernel that is its only owner may write into it.
    pub fn take_input(&mut self, index: usize) -> Result<Tensor> {
        match self.inputs.get_mut(index).map(std::mem::take) {
            Some(Value::Tensor(tensor)) => Ok(tensor),
            Some(Value::Ref(variable)) => variable.read(),
            _ => Err(Status::internal(format!("input {index} is missing"))),
        }
    }

    /// Takes an input of any kind.
    pub fn take_value(&mut self, index: usize) -> Value {
        self.inputs.get_mut(index).map(std::mem::take).unwrap_or_default()
    }

    /// Returns an input of any kind.
    pub fn value(&self, index: usize) -> &Value {
        self.inputs.get(index).unwrap_or(&Value::None)
    }

    /// Calls `f` with an input's value. If it is a variable, `f` reads rows of it under its lock.
    pub fn with_rows<R>(&self, index: usize, f: impl FnOnce(&Tensor) -> Result<R>) -> Result<R> {
        match self.value(index) {
            Value::Ref(variable) => variable.read_rows_with(f),
            _ => f(self.input(index)?),
        }
    }

    /// Returns the tensors of an argument that consists of several inputs.
    pub fn input_list(&self, range: Range<usize>) -> Result<SmallVec<[&Tensor; 8]>> {
        range.map(|index| self.input(index)).collect()
    }

    /// Returns the variable that an input refers to, by a ref edge or a resource handle.
    pub fn variable(&self, index: usize) -> Result<Arc<Variable>> {
        match self.value(index) {
            Value::Ref(variable) => Ok(variable.clone()),
            _ => self.resource(index),
        }
    }

    /// Returns the resource that an input's handle names. Also accepts the ref-typed string handles (`[container, name]`) of older
    /// queue and table ops.
    pub fn resource<R: Resource>(&self, index: usize) -> Result<Arc<R>> {
        if let Value::Ref(variable) = self.value(index) {
            return self.resource_by_strings(&variable.read()?);
        }
        let tensor = self.input(index)?;
        if tensor.dtype() == DType::String {
            return self.resource_by_strings(tensor);
        }
        let handle = tensor.resources()?.first().ok_or_else(|| Status::invalid_argument("an empty resource handle"))?;
        let found = self.resources().from_handle(handle);
        found.or_else(|status| self.step.step_resources.from_handle(handle).map_err(|_| status))
    }

    fn resource_by_strings<R: Resource>(&self, handle: &Tensor) -> Result<Arc<R>> {
        match handle.strings()? {
            [container, name] => {
                let (container, name) = (String::from_utf8_lossy(container), String::from_utf8_lossy(name));
                let found = self.resources().lookup(&container, &name);
                found.or_else(|status| self.step.step_resources.lookup(&container, &name).map_err(|_| status))
            }
            _ => Err(Status::invalid_argument("a resource handle must be a vector of two strings")),
        }
    }

    /// Returns a tensor of this type and shape for an output: the input's own, if this kernel is its only owner and it matches, else
    /// a new one. Its elements are unspecified.
    pub fn reuse_or_new(&mut self, index: usize, dtype: DType, shape: &Shape) -> Result<Tensor> {
        if let Some(Value::Tensor(tensor)) = self.inputs.get(index)
            && tensor.dtype() == dtype
            && tensor.is_unique()
            && tensor.num_elements() == shape.num_elements()
        {
            return self.take_input(index)?.into_shape(shape.clone());
        }
        Tensor::new(dtype, shape.clone())
    }

    /// Sets an output.
    pub fn set_output(&mut self, index: usize, tensor: Tensor) {
        if let Some(output) = self.outputs.get_mut(index) {
            *output = Value::Tensor(tensor);
        }
    }

    /// Sets an output to a reference to a variable.
    pub fn set_output_ref(&mut self, index: usize, variable: Arc<Variable>) {
        if let Some(output) = self.outputs.get_mut(index) {
            *output = Value::Ref(variable);
        }
    }

    /// Sets an output of any kind; [`Value::None`] makes it dead.
    pub fn set_output_value(&mut self, index: usize, value: Value) {
        if let Some(output) = self.outputs.get_mut(index) {
            *output = value;
        }
    }

    /// Returns an output that has been set, such as by a kernel that this one wraps.
    pub fn output(&self, index: usize) -> Option<&Tensor> {
        match self.outputs.get(index) {
            Some(Value::Tensor(tensor)) => Some(tensor),
            _ => None,
        }
    }
}

/// Receives the result of an asynchronous kernel.
pub trait Completion: Send {
    /// Called once, with the outputs or the error.
    fn complete(self: Box<Self>, result: Result<Outputs>);
}

/// The context of an asynchronous kernel, which owns it while it works.
pub struct AsyncContext {
    inputs: Values,
    outputs: Outputs,
    step: Arc<Step>,
    node_name: Arc<str>,
    frame: FrameAndIteration,
    input_is_dead: bool,
    completion: Option<Box<dyn Completion>>,
}

impl AsyncContext {
    /// Returns a context; `outputs` must have one entry per output.
    pub fn new(
        inputs: Values,
        outputs: Outputs,
        step: Arc<Step>,
        node_name: Arc<str>,
        frame: FrameAndIteration,
        input_is_dead: bool,
        completion: Box<dyn Completion>,
    ) -> AsyncContext {
        AsyncContext { inputs, outputs, step, node_name, frame, input_is_dead, completion: Some(completion) }
    }

    /// Returns the step.
    pub fn step(&self) -> &Arc<Step> {
        &self.step
    }

    /// Returns the context as synchronous kernels have it.
    pub fn op(&mut self) -> OpContext<'_> {
        OpContext {
            inputs: &mut self.inputs,
            outputs: &mut self.outputs,
            step: &self.step,
            node_name: &self.node_name,
            frame: self.frame,
            input_is_dead: self.input_is_dead,
        }
    }

    /// Takes the inputs, for work that may outlive the node. Returns them and the number of outputs.
    pub(crate) fn take_inputs(&mut self) -> (Values, usize) {
        (std::mem::take(&mut self.inputs), self.outputs.len())
    }

    /// Returns the other parts of a context, for work elsewhere: step, node name, frame and iteration, and whether an input is dead.
    pub(crate) fn parts(&self) -> (Arc<Step>, Arc<str>, FrameAndIteration, bool) {
        (self.step.clone(), self.node_name.clone(), self.frame, self.input_is_dead)
    }

    /// Ends the work with outputs that were computed elsewhere.
    pub(crate) fn finish_as(mut self, outputs: Result<Outputs>) {
        let result = outputs.map(|outputs| self.outputs = outputs);
        self.finish(result);
    }

    /// Ends the work.
    pub fn finish(mut self, result: Result<()>) {
        let outputs = std::mem::take(&mut self.outputs);
        // The inputs are dropped before the consumers run, so that these may be sole owners.
        self.inputs.clear();
        if let Some(completion) = self.completion.take() {
            completion.complete(result.map(|()| outputs));
        }
    }

    /// Runs `f` on the context, and ends the work with its result.
    pub fn finish_with(mut self, f: impl FnOnce(&mut OpContext<'_>) -> Result<()>) {
        let result = f(&mut self.op());
        self.finish(result);
    }
}

impl Drop for AsyncContext {
    fn drop(&mut self) {
        // A kernel that drops its context without finishing must not leave the step waiting forever.
        if let Some(completion) = self.completion.take() {
            completion.complete(Err(Status::internal("an asynchronous kernel ended without a result")));
        }
    }
}
