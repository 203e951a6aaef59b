//! Function calls: PartitionedCall, StatefulPartitionedCall, RemoteCall, SymbolicGradient.

use super::runner::{Callee, take_args};
use graph::{DeviceName, Output, ShapeContext};
use kernel::{
    AsyncContext, AsyncKernel, BoxedKernel, FunctionCall, FunctionPlace, Gradient, KernelBuilder, KernelDef, Op, OpDef,
    OpFlags, shape,
};
use proto::NameAttrList;
use tensor::{DType, Result, Status};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "PartitionedCall",
            inputs: &["args: Tin"],
            outputs: &["output: Tout"],
            attrs: &[
                "Tin: list(type) >= 0",
                "Tout: list(type) >= 0",
                "f: func",
                "config: string = ''",
                "config_proto: string = ''",
                "executor_type: string = ''",
            ],
            flags: OpFlags::NONE,
        },
        shape: call_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(create_call)],
    },
    Op {
        def: OpDef {
            name: "StatefulPartitionedCall",
            inputs: &["args: Tin"],
            outputs: &["output: Tout"],
            attrs: &[
                "Tin: list(type) >= 0",
                "Tout: list(type) >= 0",
                "f: func",
                "config: string = ''",
                "config_proto: string = ''",
                "executor_type: string = ''",
            ],
            flags: OpFlags::STATEFUL.union(OpFlags::DISTRIBUTED_COMMUNICATION),
        },
        shape: call_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(create_call)],
    },
    Op {
        def: OpDef {
            name: "RemoteCall",
            inputs: &["target: string", "args: Tin"],
            outputs: &["output: Tout"],
            attrs: &["Tin: list(type) >= 1", "Tout: list(type) >= 1", "f: func"],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::unknown,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(RemoteCall::create)],
    },
    Op {
        def: OpDef {
            name: "SymbolicGradient",
            inputs: &["input: Tin"],
            outputs: &["output: Tout"],
            attrs: &["Tin: list(type) >= 1", "Tout: list(type) >= 1", "f: func"],
            flags: OpFlags::NONE,
        },
        shape: symbolic_gradient_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(create_symbolic_gradient)],
    },
];

/// Calls a function of the graph's library.
#[track_caller]
pub fn stateful_partitioned_call(
    graph: &graph::Graph,
    function: &str,
    args: &[Output],
    result_types: &[DType],
) -> Vec<Output> {
    let types: Vec<DType> = args.iter().map(Output::dtype).collect();
    graph
        .op("StatefulPartitionedCall")
        .inputs(args)
        .attr("Tin", &types[..])
        .attr("Tout", result_types)
        .attr("f", NameAttrList { name: function.to_owned(), ..Default::default() })
        .outputs()
}

/// The shapes of results are known only as far as the program declares them.
fn call_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shapes = c.attrs.shapes("_output_shapes").unwrap_or_default();
    for (index, shape) in shapes.into_iter().enumerate() {
        c.set_output(index, shape);
    }
    Ok(())
}

/// The gradients have the shapes of the first inputs, with respect to which they are taken.
fn symbolic_gradient_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    if c.num_inputs() < c.num_outputs() {
        return Err(Status::invalid_argument("len(inputs) < len(outputs)"));
    }
    for index in 0..c.num_outputs() {
        let shape = c.input(index);
        c.set_output(index, shape);
        // The gradient of a resource is that of its value.
        if let Some(value) = c.input_handles.get(index).and_then(|handle| handle.first()) {
            let shape = value.shape.clone();
            c.set_output(index, shape);
        }
    }
    Ok(())
}

fn create_call(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
    let function = builder.attrs().func("f")?;
    BoxedKernel::new_async(FunctionCall::new(&function.name, graph::AttrMap::from(&function.attr)))
}

struct RemoteCall {
    function: Callee,
}

impl RemoteCall {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new_async(RemoteCall { function: Callee::new(builder.attrs().func("f")?) })
    }
}

impl AsyncKernel for RemoteCall {
    fn compute(&self, mut context: AsyncContext) {
        let device = context.step().device.clone();
        let mut prepare = || {
            let mut op = context.op();
            let target = op.input(0)?;
            if !target.shape().is_scalar() {
                return Err(Status::invalid_argument(format!(
                    "target must be a scalar, but has the shape {}",
                    target.shape()
                )));
            }
            let target = target.strings()?.first().cloned().unwrap_or_default();
            let place = place_of(&String::from_utf8_lossy(&target), &device)?;
            let args = take_args(&mut op, 1)?;
            Ok((args, self.function.bind_at(context.step(), place)?))
        };
        match prepare() {
            Ok((args, function)) => function.run_to_finish(args, context),
            Err(status) => context.finish(Err(status)),
        }
    }
}

/// Returns the device on which a function is called; the caller's device completes a partial name.
fn place_of(target: &str, device: &str) -> Result<FunctionPlace> {
    let (wanted, own) = (DeviceName::parse(target)?, DeviceName::parse(device)?);
    let mut whole = own.merged_with(&wanted);
    if whole.task_part().to_string() != own.task_part().to_string() && wanted.id.is_none() {
        whole.id = Some(0);
    }
    let whole = whole.to_string();
    Ok(if whole == own.to_string() { FunctionPlace::Here } else { FunctionPlace::On(whole) })
}

/// The runtime, which knows the library, builds the gradient's body; it recognises it by the op's own name.
fn create_symbolic_gradient(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
    BoxedKernel::new_async(FunctionCall::new(graph::SYMBOLIC_GRADIENT, builder.attrs().clone()))
}

#[cfg(test)]
mod tests {
    use super::super::runner::tests::{Closures, func, run_with_functions};
    use crate::testing::{attrs, check_shape};
    use tensor::{DType, Tensor};

    fn swapping() -> Closures {
        Closures::default().with("swap", |args| Ok(args.into_iter().rev().collect()))
    }

    #[test]
    fn calls() {
        let types = [DType::Int32, DType::Float];
        let back = [DType::Float, DType::Int32];
        let attrs = || attrs![("Tin", &types[..]), ("Tout", &back[..]), ("f", func("swap"))];
        let inputs = [Tensor::scalar(1i32), Tensor::scalar(2f32)];
        let outputs = run_with_functions("StatefulPartitionedCall", attrs(), &inputs, swapping()).unwrap();
        assert_eq!(outputs[0].to_scalar::<f32>().unwrap(), 2.0);
        let elsewhere = swapping().elsewhere();
        assert_eq!(run_with_functions("PartitionedCall", attrs(), &inputs, elsewhere).unwrap().len(), 2);
        let status = run_with_functions("PartitionedCall", attrs(), &inputs, Closures::default()).unwrap_err();
        assert_eq!(status.code(), tensor::Code::NotFound);
    }

    #[test]
    fn a_wrong_number_of_results_is_an_error() {
        let types = [DType::Int32];
        let attrs = attrs![("Tin", &types[..]), ("Tout", &[][..] as &[DType]), ("f", func("swap"))];
        let status = run_with_functions("PartitionedCall", attrs, &[Tensor::scalar(1i32)], swapping()).unwrap_err();
        assert!(status.message().contains("Expecting 0 return values"), "{status}");
    }

    #[test]
    fn remote_calls_stay_here_or_name_the_whole_device() {
        let types = [DType::Int32];
        let call = |target: &'static str| {
            let attrs = attrs![("Tin", &types[..]), ("Tout", &types[..]), ("f", func("swap"))];
            run_with_functions("RemoteCall", attrs, &[Tensor::string(target), Tensor::scalar(1i32)], swapping())
        };
        assert_eq!(call("/cpu:0").unwrap()[0].to_scalar::<i32>().unwrap(), 1);
        assert_eq!(call("/job:localhost/task:0").unwrap().len(), 1);
        assert_eq!(call("/job:ps/task:0").unwrap_err().message(), "/job:ps/replica:0/task:0/device:CPU:0");
        assert_eq!(call("/cpu:1").unwrap_err().message(), "/job:localhost/replica:0/task:0/device:CPU:1");
    }

    #[test]
    fn shapes() {
        let types = [DType::Float, DType::Float];
        let out = [DType::Float];
        let attrs = attrs![("Tin", &types[..]), ("Tout", &out[..]), ("f", func("f"))];
        check_shape("SymbolicGradient", attrs, "[2];[3]", "[2]");
    }
}
