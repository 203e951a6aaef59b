//! Common parts of this family's kernels: functions, and truth.

pub(crate) use kernel::{BoundFunction as Function, Callee};
pub(super) use kernel::{set_outputs, take_args};

use tensor::{DType, Element, Result, Status, Tensor};

/// Returns whether a value counts as true: a scalar that isn't zero or empty, or a tensor that has elements.
pub(crate) fn is_true(value: &Tensor) -> Result<bool> {
    if !value.shape().is_scalar() {
        return Ok(value.num_elements() > 0);
    }
    fn nonzero<T: Element>(value: &Tensor) -> Result<bool> {
        Ok(value.to_scalar::<T>()? != T::default())
    }
    match value.dtype() {
        DType::Bool => value.to_scalar::<bool>(),
        DType::Float => nonzero::<f32>(value),
        DType::Double => nonzero::<f64>(value),
        DType::Int32 => nonzero::<i32>(value),
        DType::UInt8 => nonzero::<u8>(value),
        DType::Int16 => nonzero::<i16>(value),
        DType::Int8 => nonzero::<i8>(value),
        DType::Int64 => nonzero::<i64>(value),
        DType::String => Ok(value.strings()?.first().is_some_and(|text| !text.is_empty())),
        other => Err(Status::invalid_argument(format!("{other} can't be converted to a boolean"))),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use graph::{AttrMap, Graph};
    use kernel::{AsyncContext, BoxedKernel, CallFrame, Completion, FunctionDone, FunctionHandle};
    use kernel::{FunctionPlace, FunctionRuntime};
    use kernel::{OpContext, Outputs, Step, Value, Values};
    use proto::NameAttrList;
    use std::sync::Arc;

    /// Runs functions that are closures, on the calling thread.
    #[derive(Default)]
    pub(crate) struct Closures {
        functions: Vec<(&'static str, Box<dyn Fn(Vec<Tensor>) -> Result<Vec<Tensor>> + Send + Sync>)>,
        answers_elsewhere: bool,
    }

    impl Closures {
        /// Answers calls from other threads.
        pub(crate) fn elsewhere(self) -> Closures {
            Closures { answers_elsewhere: true, ..self }
        }

        pub(crate) fn with(
            mut self,
            name: &'static str,
            function: impl Fn(Vec<Tensor>) -> Result<Vec<Tensor>> + Send + Sync + 'static,
        ) -> Closures {
            self.functions.push((name, Box::new(function)));
            self
        }
    }

    impl FunctionRuntime for Closures {
        fn instantiate(&self, name: &str, _: &AttrMap, place: &FunctionPlace) -> Result<FunctionHandle> {
            if let FunctionPlace::On(device) = place {
                return Err(Status::unimplemented(device.clone()));
            }
            let found = self.functions.iter().position(|(known, _)| *known == name);
            found.map(|index| FunctionHandle(index as u64)).ok_or_else(|| Status::not_found(name))
        }

        fn run(&self, handle: FunctionHandle, args: Vec<Tensor>, step: &Arc<Step>, done: FunctionDone) {
            let results = (self.functions[handle.0 as usize].1)(args);
            if let Err(status) = &results {
                // As the executor does when a node fails.
                step.rendezvous.abort(status.clone().derived());
                step.cancellation.cancel(status.clone().derived());
            }
            if self.answers_elsewhere {
                std::thread::spawn(move || done(results));
            } else {
                done(results);
            }
        }
    }

    struct Sender(std::sync::mpsc::Sender<Result<Outputs>>);

    impl Completion for Sender {
        fn complete(self: Box<Self>, result: Result<Outputs>) {
            // The test may have ended already.
            let _ = self.0.send(result);
        }
    }

    /// Runs one op in a step with arguments (`int32` scalars) and room for results.
    pub(crate) fn run_with_frame(
        op: &str,
        attrs: AttrMap,
        inputs: &[Tensor],
        args: &[i32],
        num_results: usize,
    ) -> Result<(Vec<Tensor>, Vec<Option<Tensor>>)> {
        let args = args.iter().map(|&arg| Some(Tensor::scalar(arg))).collect();
        let step = Step::detached().for_function(CallFrame::new(args, num_results), None);
        let step = Arc::new(step);
        let outputs = run(op, attrs, inputs, &step)?;
        Ok((outputs, step.frame.take_results()))
    }

    /// Runs one op that calls functions.
    pub(crate) fn run_with_functions(
        op: &str,
        attrs: AttrMap,
        inputs: &[Tensor],
        functions: Closures,
    ) -> Result<Vec<Tensor>> {
        let step = Step::detached().for_function(CallFrame::default(), Some(Arc::new(functions)));
        run(op, attrs, inputs, &Arc::new(step))
    }

    fn run(op: &str, attrs: AttrMap, inputs: &[Tensor], step: &Arc<Step>) -> Result<Vec<Tensor>> {
        let graph = Graph::with_ops(crate::registry());
        let mut builder = graph.op(op);
        for input in inputs {
            builder = builder.input(&graph.op("Placeholder").attr("dtype", input.dtype()).output());
        }
        for (name, value) in attrs {
            builder = builder.attr(&name, value);
        }
        let id = builder.try_build()?.id();
        let node = graph.graph().node(id).clone();
        let mut values: Values = inputs.iter().cloned().map(Value::Tensor).collect();
        let mut outputs: Outputs = node.output_types.iter().map(|_| Value::None).collect();
        match crate::registry().create_kernel(&node, &step.device)? {
            BoxedKernel::Sync(kernel) => {
                kernel.compute(&mut OpContext::new(&mut values, &mut outputs, step, "n", Default::default(), false))?;
            }
            BoxedKernel::Async(kernel) => {
                let (sender, receiver) = std::sync::mpsc::channel();
                let sender = Box::new(Sender(sender));
                let frame = Default::default();
                kernel.compute(AsyncContext::new(values, outputs, step.clone(), "n".into(), frame, false, sender));
                outputs = receiver.recv().map_err(|_| Status::internal("no answer"))??;
            }
        }
        let tensor = |value: Value| match value {
            Value::Tensor(tensor) => Ok(tensor),
            _ => Err(Status::internal("an output has no value")),
        };
        outputs.into_iter().map(tensor).collect()
    }

    /// A function attribute.
    pub(crate) fn func(name: &str) -> NameAttrList {
        NameAttrList { name: name.to_owned(), ..Default::default() }
    }

    #[test]
    fn truth() {
        for (value, expected) in [
            (Tensor::scalar(true), true),
            (Tensor::scalar(0f32), false),
            (Tensor::scalar(-1i64), true),
            (Tensor::string(""), false),
            (Tensor::string("x"), true),
            (Tensor::vector(&[0i32]), true),
            (Tensor::vector::<i32>(&[]), false),
        ] {
            assert_eq!(is_true(&value).unwrap(), expected, "{value:?}");
        }
    }
}
