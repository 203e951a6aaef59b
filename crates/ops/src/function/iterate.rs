//! Loops whose condition and body are functions: While, For.

use super::runner::{Callee, Function, is_true, set_outputs, take_args};
use graph::ShapeContext;
use kernel::{
    AsyncContext, AsyncKernel, BoxedKernel, Gradient, KernelBuilder, KernelDef, Op, OpDef, OpFlags, Step, shape,
};
use parking_lot::Mutex;
use std::sync::Arc;
use tensor::{Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "While",
            inputs: &["input: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: list(type) >= 0",
                "cond: func",
                "body: func",
                "output_shapes: list(shape) = []",
                "parallel_iterations: int = 10",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: while_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(While::create)],
    },
    Op {
        def: OpDef {
            name: "StatelessWhile",
            inputs: &["input: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: list(type) >= 0",
                "cond: func",
                "body: func",
                "output_shapes: list(shape) = []",
                "parallel_iterations: int = 10",
            ],
            flags: OpFlags::NONE,
        },
        shape: while_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(While::create)],
    },
    Op {
        def: OpDef {
            name: "_While",
            inputs: &["input: T"],
            outputs: &["output: T"],
            attrs: &["T: list(type) >= 0", "cond: func", "body: func"],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::unknown,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(While::create)],
    },
    Op {
        def: OpDef {
            name: "For",
            inputs: &["start: int32", "limit: int32", "delta: int32", "input: T"],
            outputs: &["output: T"],
            attrs: &["T: list(type) >= 0", "body: func"],
            flags: OpFlags::NONE,
        },
        shape: shape::unknown,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(For::create)],
    },
];

/// Without `output_shapes` the loop variables keep their shapes.
fn while_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shapes = c.attrs.shapes("output_shapes")?;
    if shapes.is_empty() {
        for index in 0..c.num_outputs() {
            let shape = c.input(index);
            c.set_output(index, shape);
        }
        return Ok(());
    }
    if shapes.len() != c.num_outputs() {
        return Err(Status::invalid_argument(format!(
            "`output_shapes` must be the same length as num outputs ({} vs. {})",
            shapes.len(),
            c.num_outputs()
        )));
    }
    for (index, shape) in shapes.into_iter().enumerate() {
        c.set_output(index, shape);
    }
    Ok(())
}

struct While {
    cond: Callee,
    body: Callee,
}

impl While {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let function = |name: &str| Ok(Callee::new(builder.attrs().func(name)?));
        BoxedKernel::new_async(While { cond: function("cond")?, body: function("body")? })
    }
}

impl AsyncKernel for While {
    fn compute(&self, mut context: AsyncContext) {
        let prepared = take_args(&mut context.op(), 0).and_then(|args| {
            Ok((args, self.cond.bind_as_requested(context.step())?, self.body.bind_as_requested(context.step())?))
        });
        match prepared {
            Ok((variables, cond, body)) => {
                let next = Next::Ask;
                drive(Box::new(Loop { context, variables, body, control: Control::While { cond, next } }), None);
            }
            Err(status) => context.finish(Err(status)),
        }
    }
}

struct For {
    body: Callee,
}

impl For {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new_async(For { body: Callee::new(builder.attrs().func("body")?) })
    }
}

impl AsyncKernel for For {
    fn compute(&self, mut context: AsyncContext) {
        let mut prepare = || {
            let mut op = context.op();
            let number = |index: usize, name: &str| {
                let tensor = op.input(index)?;
                if !tensor.shape().is_scalar() {
                    return Err(Status::invalid_argument(format!("{name} must be a scalar, but {}", tensor.shape())));
                }
                tensor.to_scalar::<i32>().map(i64::from)
            };
            let (start, limit, delta) = (number(0, "start")?, number(1, "limit")?, number(2, "delta")?);
            if delta == 0 || (delta > 0 && start > limit) || (delta < 0 && start < limit) {
                return Err(Status::invalid_argument(format!("Invalid start/limit/delta: {start} {limit} {delta}")));
            }
            let variables = take_args(&mut op, 3)?;
            let control = Control::For { next: start, limit, delta, num_variables: variables.len() };
            Ok((variables, control, self.body.bind_as_requested(context.step())?))
        };
        match prepare() {
            Ok((variables, control, body)) => drive(Box::new(Loop { context, variables, body, control }), None),
            Err(status) => context.finish(Err(status)),
        }
    }
}

/// A running loop.
struct Loop {
    context: AsyncContext,
    variables: Vec<Tensor>,
    body: Function,
    control: Control,
}

/// The condition of a loop.
enum Control {
    While { cond: Function, next: Next },
    For { next: i64, limit: i64, delta: i64, num_variables: usize },
}

/// The next action of a while loop: run its condition, run its body, or end.
#[derive(Clone, Copy)]
enum Next {
    Ask,
    Run,
    Stop,
}

/// The next call of a loop.
enum Action {
    Ask(Function, Vec<Tensor>),
    Run(Vec<Tensor>),
    Stop,
}

/// The results of a call, or the loop that waits for them.
enum Slot {
    Running,
    Done(Result<Vec<Tensor>>),
    Waiting(Box<Loop>),
}

/// Runs a loop until it ends or has to wait. After a call that completes at once, the next one is made from here, so that the
/// stack doesn't grow with the iterations.
fn drive(mut state: Box<Loop>, mut answer: Option<Result<Vec<Tensor>>>) {
    loop {
        let step: Arc<Step> = state.context.step().clone();
        if let Some(status) = step.cancellation.status() {
            return state.context.finish(Err(status));
        }
        if let Some(results) = answer.take()
            && let Err(status) = results.and_then(|results| state.accept(results))
        {
            return state.context.finish(Err(status));
        }
        let slot = Arc::new(Mutex::new(Slot::Running));
        let done = {
            let slot = slot.clone();
            Box::new(move |results: Result<Vec<Tensor>>| {
                let mut slot = slot.lock();
                match std::mem::replace(&mut *slot, Slot::Running) {
                    Slot::Waiting(state) => {
                        drop(slot);
                        drive(state, Some(results));
                    }
                    _ => *slot = Slot::Done(results),
                }
            })
        };
        match state.next_action() {
            Action::Ask(cond, args) => cond.run(args, &step, done),
            Action::Run(args) => state.body.clone().run(args, &step, done),
            Action::Stop => {
                let Loop { context, variables, .. } = *state;
                return context.finish_with(|context| set_outputs(context, variables));
            }
        }
        let mut slot = slot.lock();
        match std::mem::replace(&mut *slot, Slot::Running) {
            Slot::Done(results) => answer = Some(results),
            _ => {
                *slot = Slot::Waiting(state);
                return;
            }
        }
    }
}

impl Loop {
    /// Returns the next call; a body takes the variables by value, so that it may overwrite them.
    fn next_action(&mut self) -> Action {
        match &mut self.control {
            Control::While { cond, next: Next::Ask } => Action::Ask(cond.clone(), self.variables.clone()),
            Control::While { next: Next::Run, .. } => Action::Run(std::mem::take(&mut self.variables)),
            Control::While { next: Next::Stop, .. } => Action::Stop,
            Control::For { next, limit, delta, .. } => {
                let goes_on = if *delta > 0 { next < limit } else { next > limit };
                if !goes_on {
                    return Action::Stop;
                }
                let mut args = Vec::with_capacity(1 + self.variables.len());
                args.push(Tensor::scalar(*next as i32));
                args.append(&mut self.variables);
                *next += *delta;
                Action::Run(args)
            }
        }
    }

    /// Takes the results of the last call.
    fn accept(&mut self, results: Vec<Tensor>) -> Result<()> {
        match &mut self.control {
            Control::While { next: next @ Next::Ask, .. } => {
                let [goes_on] = &results[..] else {
                    return Err(Status::invalid_argument(format!(
                        "Expecting one return value from the condition, but got {}",
                        results.len()
                    )));
                };
                *next = if is_true(goes_on)? { Next::Run } else { Next::Stop };
            }
            Control::While { next, .. } => {
                *next = Next::Ask;
                self.variables = results;
            }
            Control::For { num_variables, .. } => {
                if results.len() != *num_variables {
                    return Err(Status::invalid_argument(format!(
                        "For loop body returned {} arguments. Expected: {num_variables}",
                        results.len()
                    )));
                }
                self.variables = results;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::runner::tests::{Closures, func, run_with_functions};
    use crate::testing::{attrs, check_shape};
    use graph::AttrMap;
    use tensor::{DType, PartialShape, Result, Status, Tensor};

    fn number(tensor: &Tensor) -> Result<i32> {
        tensor.to_scalar()
    }

    fn counting(limit: i32) -> Closures {
        Closures::default()
            .with("below", move |args| Ok(vec![Tensor::scalar(number(&args[0])? < limit)]))
            .with("count", |args| Ok(vec![Tensor::scalar(number(&args[0])? + 1)]))
            .with("add", |args| Ok(vec![Tensor::scalar(number(&args[0])? + number(&args[1])?)]))
            .with("fail", |_| Err(Status::out_of_range("over")))
    }

    fn while_attrs(body: &str) -> AttrMap {
        attrs![("T", &[DType::Int32][..]), ("cond", func("below")), ("body", func(body))]
    }

    #[test]
    fn a_long_loop_needs_no_stack() {
        let outputs = run_with_functions("While", while_attrs("count"), &[Tensor::scalar(0i32)], counting(300_000));
        assert_eq!(number(&outputs.unwrap()[0]).unwrap(), 300_000);
    }

    #[test]
    fn a_loop_goes_on_on_other_threads() {
        let functions = counting(100).elsewhere();
        let outputs = run_with_functions("StatelessWhile", while_attrs("count"), &[Tensor::scalar(0i32)], functions);
        assert_eq!(number(&outputs.unwrap()[0]).unwrap(), 100);
    }

    #[test]
    fn errors_end_the_loop() {
        let status = run_with_functions("While", while_attrs("fail"), &[Tensor::scalar(0i32)], counting(1));
        assert_eq!(status.unwrap_err().message(), "over");
        let none = run_with_functions("While", while_attrs("fail"), &[Tensor::scalar(5i32)], counting(1)).unwrap();
        assert_eq!(number(&none[0]).unwrap(), 5);
    }

    #[test]
    fn for_loops() {
        let sum = |start: i32, limit: i32, delta: i32| -> Result<i32> {
            let inputs = [start, limit, delta, 0].map(Tensor::scalar);
            let attrs = attrs![("T", &[DType::Int32][..]), ("body", func("add"))];
            number(&run_with_functions("For", attrs, &inputs, counting(0))?[0])
        };
        assert_eq!(sum(0, 5, 1).unwrap(), 10);
        assert_eq!(sum(5, 0, -2).unwrap(), 9);
        assert_eq!(sum(3, 3, 1).unwrap(), 0);
        assert!(sum(0, 5, 0).is_err());
        assert!(sum(0, 5, -1).is_err());
    }

    #[test]
    fn shapes() {
        check_shape("While", while_attrs("count"), "[2]", "[2]");
        let shapes = [PartialShape::from_dims(&[-1])];
        let mut attrs = while_attrs("count");
        attrs.set("output_shapes", &shapes[..]);
        check_shape("While", attrs, "[2]", "[?]");
    }
}
