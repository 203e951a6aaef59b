//! A handful of ops for tests of the executor, which itself knows none.

use graph::{Graph, Output};
use kernel::{
    AsyncContext, AsyncKernel, BoxedKernel, CallFrame, Cost, Gradient, Kernel, KernelDef, Op, OpContext, OpDef,
    OpFlags, OpRegistry, Step, Value, shape,
};
use std::sync::{Arc, LazyLock, mpsc};
use tensor::{Result, Status, Tensor};

struct Closure<F>(F, Cost);

impl<F: Fn(&mut OpContext<'_>) -> Result<()> + Send + Sync> Kernel for Closure<F> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        (self.0)(context)
    }

    fn cost(&self) -> Cost {
        self.1
    }
}

fn boxed(
    cost: Cost,
    function: impl Fn(&mut OpContext<'_>) -> Result<()> + Send + Sync + 'static,
) -> Result<BoxedKernel> {
    BoxedKernel::new(Closure(function, cost))
}

macro_rules! op {
    ($name:literal, [$($input:literal),*] -> [$($output:literal),*], [$($attr:literal),*], $kernel:expr) => {
        Op {
            def: OpDef {
                name: $name,
                inputs: &[$($input),*],
                outputs: &[$($output),*],
                attrs: &[$($attr),*],
                flags: OpFlags::NONE,
            },
            shape: shape::unknown,
            gradient: Gradient::Unsupported,
            kernels: &[KernelDef::any($kernel)],
        }
    };
}

fn pass(_: &kernel::KernelBuilder<'_>) -> Result<BoxedKernel> {
    boxed(Cost::Inline, |c| {
        let value = c.take_value(0);
        c.set_output_value(0, value);
        Ok(())
    })
}

/// An asynchronous op that finishes on another thread.
struct Later;

impl AsyncKernel for Later {
    fn compute(&self, context: AsyncContext) {
        let runner = context.step().runner.clone();
        runner.spawn(Box::new(move || {
            context.finish_with(|c| {
                let value = c.take_value(0);
                c.set_output_value(0, value);
                Ok(())
            });
        }));
    }
}

/// An asynchronous op that only cancellation ends.
struct Never;

impl AsyncKernel for Never {
    fn compute(&self, context: AsyncContext) {
        let cancellation = context.step().cancellation.clone();
        let context = Arc::new(parking_lot::Mutex::new(Some(context)));
        let on_cancel = context.clone();
        let end = move |status: Status| {
            if let Some(context) = on_cancel.lock().take() {
                context.finish(Err(status));
            }
        };
        if let Err(status) = cancellation.register(end)
            && let Some(context) = context.lock().take()
        {
            context.finish(Err(status));
        }
    }
}

/// Keeps whoever comes until it is opened, and knows who came last.
struct Gate {
    state: parking_lot::Mutex<(bool, String)>,
    opened: parking_lot::Condvar,
}

static GATE: Gate =
    Gate { state: parking_lot::Mutex::new((false, String::new())), opened: parking_lot::Condvar::new() };

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock();
        state.1 = std::thread::current().name().unwrap_or("").to_owned();
        while !state.0 {
            self.opened.wait(&mut state);
        }
    }
}

/// Has the next that comes to a gate wait.
#[allow(dead_code)]
pub fn close_gate() {
    GATE.state.lock().0 = false;
}

/// Lets those at a gate pass, and all that come later.
#[allow(dead_code)]
pub fn open_gate() {
    GATE.state.lock().0 = true;
    GATE.opened.notify_all();
}

/// Returns the name of the thread that came to a gate last.
#[allow(dead_code)]
pub fn gate_thread() -> String {
    GATE.state.lock().1.clone()
}

/// A gate in an asynchronous op that keeps its thread all the same.
struct GateAsync;

impl AsyncKernel for GateAsync {
    fn compute(&self, context: AsyncContext) {
        GATE.pass();
        context.finish_with(|c| {
            let value = c.take_value(0);
            c.set_output_value(0, value);
            Ok(())
        });
    }
}

struct Forgetful;

impl AsyncKernel for Forgetful {
    fn compute(&self, context: AsyncContext) {
        drop(context);
    }
}

const OPS: &[Op] = &[
    op!("_Arg", [] -> ["output: T"], ["T: type", "index: int"], |b| {
        let index = b.attrs().int("index")? as usize;
        boxed(Cost::Inline, move |c| {
            let value = c.step().frame.take_arg(index)?;
            c.set_output(0, value);
            Ok(())
        })
    }),
    op!("_Retval", ["input: T"] -> [], ["T: type", "index: int"], |b| {
        let index = b.attrs().int("index")? as usize;
        boxed(Cost::Inline, move |c| {
            let value = c.take_input(0)?;
            c.step().frame.set_result(index, value)
        })
    }),
    op!("Const", [] -> ["output: dtype"], ["value: tensor", "dtype: type"], |b| {
        let value = b.attrs().tensor("value")?;
        boxed(Cost::Inline, move |c| {
            c.set_output(0, value.clone());
            Ok(())
        })
    }),
    op!("Add", ["x: T", "y: T"] -> ["z: T"], ["T: type"], |_| boxed(Cost::Inline, add)),
    op!("SlowAdd", ["x: T", "y: T"] -> ["z: T"], ["T: type"], |_| boxed(Cost::Expensive, add)),
    op!("Less", ["x: T", "y: T"] -> ["z: bool"], ["T: type"], |_| boxed(Cost::Inline, |c| {
        let less = c.input(0)?.to_scalar::<i32>()? < c.input(1)?.to_scalar::<i32>()?;
        c.set_output(0, Tensor::scalar(less));
        Ok(())
    })),
    op!("Identity", ["input: T"] -> ["output: T"], ["T: type"], pass),
    op!("Enter", ["data: T"] -> ["output: T"],
        ["T: type", "frame_name: string", "is_constant: bool = false", "parallel_iterations: int = 10"], pass),
    op!("Exit", ["data: T"] -> ["output: T"], ["T: type"], pass),
    op!("NextIteration", ["data: T"] -> ["output: T"], ["T: type"], pass),
    op!("LoopCond", ["input: bool"] -> ["output: bool"], [], pass),
    op!("Switch", ["data: T", "pred: bool"] -> ["output_false: T", "output_true: T"], ["T: type"], |_| {
        boxed(Cost::Inline, |c| {
            let port = usize::from(c.input(1)?.to_scalar::<bool>()?);
            let value = c.take_value(0);
            c.set_output_value(port, value);
            Ok(())
        })
    }),
    op!("Merge", ["inputs: N * T"] -> ["output: T", "value_index: int32"], ["T: type", "N: int >= 1"], |_| {
        boxed(Cost::Inline, |c| {
            let live = (0..c.num_inputs()).find(|&index| !matches!(c.value(index), Value::None));
            let index = live.ok_or_else(|| Status::internal("no live input"))?;
            let value = c.take_value(index);
            c.set_output_value(0, value);
            c.set_output(1, Tensor::scalar(index as i32));
            Ok(())
        })
    }),
    op!("SlowThread", ["x: T"] -> ["name: string"], ["T: type"], |_| boxed(Cost::Expensive, |c| {
        let name = std::thread::current().name().unwrap_or("").as_bytes().to_vec();
        c.set_output(0, Tensor::string(name));
        Ok(())
    })),
    op!("Gate", ["x: T"] -> ["y: T"], ["T: type"], |_| boxed(Cost::Inline, |c| {
        GATE.pass();
        let value = c.take_value(0);
        c.set_output_value(0, value);
        Ok(())
    })),
    op!("GateAsync", ["x: T"] -> ["y: T"], ["T: type"], |_| BoxedKernel::new_async(GateAsync)),
    op!("Fail", ["x: T"] -> ["y: T"], ["T: type"], |_| boxed(Cost::Inline, |_| Err(Status::out_of_range("no more")))),
    op!("Panic", ["x: T"] -> ["y: T"], ["T: type"], |_| boxed(Cost::Inline, |_| panic!("on purpose"))),
    op!("Later", ["x: T"] -> ["y: T"], ["T: type"], |_| BoxedKernel::new_async(Later)),
    op!("Never", ["x: T"] -> ["y: T"], ["T: type"], |_| BoxedKernel::new_async(Never)),
    op!("Forgetful", ["x: T"] -> ["y: T"], ["T: type"], |_| BoxedKernel::new_async(Forgetful)),
];

fn add(c: &mut OpContext<'_>) -> Result<()> {
    let mut x = c.take_input(0)?;
    let y = c.input(1)?.to_scalar::<i32>()?;
    x.make_mut::<i32>()?[0] += y;
    c.set_output(0, x);
    Ok(())
}

static REGISTRY: LazyLock<OpRegistry> = LazyLock::new(|| OpRegistry::new([OPS]));

/// Returns the test ops.
pub fn registry() -> &'static OpRegistry {
    &REGISTRY
}

/// Returns an empty graph over the test ops.
pub fn graph() -> Graph {
    Graph::with_ops(registry())
}

/// Returns a constant.
pub fn constant(graph: &Graph, value: i32) -> Output {
    graph.constant_tensor(&Tensor::scalar(value))
}

/// Adds a node with these inputs and returns its first output.
pub fn op(name: &str, inputs: &[&Output]) -> Output {
    inputs[0].graph().op(name).inputs(inputs.iter().copied()).output()
}

/// Compiles a graph and runs it once per list of arguments; returns each run's results.
pub fn run(graph: &Graph, fetches: &[&Output], args: Vec<Tensor>) -> Result<Vec<Option<Tensor>>> {
    let steps = run_steps(graph, fetches, vec![args]);
    steps.into_iter().next().unwrap_or_else(|| Err(Status::internal("no step")))
}

/// As [`run`], with several steps one after the other on one executor.
pub fn run_steps(graph: &Graph, fetches: &[&Output], steps: Vec<Vec<Tensor>>) -> Vec<Result<Vec<Option<Tensor>>>> {
    for (index, fetch) in fetches.iter().enumerate() {
        graph.op("_Retval").input(fetch).attr("index", index as i64).build();
    }
    let kernels = kernel::SessionKernels::new();
    let executor = match executor::Executor::new(&graph.graph(), registry(), &kernels, "cpu") {
        Ok(executor) => executor,
        Err(status) => return vec![Err(status)],
    };
    steps
        .into_iter()
        .map(|args| {
            let step = Arc::new(Step {
                frame: CallFrame::new(args.into_iter().map(Some).collect(), fetches.len()),
                runner: executor::default_runner(),
                ..Step::detached()
            });
            let (sender, receiver) = mpsc::channel();
            executor.run(step.clone(), move |result| sender.send(result).unwrap());
            receiver.recv().unwrap().map(|()| step.frame.take_results())
        })
        .collect()
}
