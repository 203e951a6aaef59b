//! [`CollectiveOp`]: the common kernel of all collective ops. They differ in their operation, and in how they name their group:
//! by attributes, by inputs, or by a communicator.

use super::communicator::Communicator;
use kernel::{
    AsyncContext, AsyncKernel, AttrMap, BoxedKernel, CollectiveCall, CollectiveGroup, CollectiveKind, Collectives,
    KernelBuilder, OpContext, Step,
};
use std::sync::Arc;
use std::time::Duration;
use tensor::{DType, Result, Shape, Status, Tensor};

/// Computes a node's request from its inputs: the operation, its input, and the output's shape.
pub(super) type Plan = Box<dyn Fn(&mut OpContext<'_>, usize) -> Result<Planned> + Send + Sync>;

/// A node's request.
pub(super) struct Planned {
    /// The operation.
    pub kind: CollectiveKind,
    /// The member's tensor.
    pub input: Option<Tensor>,
    /// The shape of the output.
    pub shape: Shape,
}

/// The kernel of a collective op.
pub(super) struct CollectiveOp {
    name: String,
    dtype: DType,
    naming: Naming,
    timeout: Option<Duration>,
    plan: Plan,
}

/// How a node names its group and its place in it.
enum Naming {
    /// By attributes.
    Attrs { size: usize, key: i32, instance_key: i32 },
    /// By three inputs: the size, the key and the instance's key.
    Inputs { first: usize },
    /// By a communicator of a group that the device has joined before.
    Communicator { input: usize },
}

impl CollectiveOp {
    /// Returns the kernel of a node whose attributes name the group.
    pub fn by_attrs(builder: &KernelBuilder<'_>, plan: Plan) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let naming = Naming::Attrs {
            size: positive_size(int32_attr(attrs, "group_size")?)?,
            key: int32_attr(attrs, "group_key")?,
            instance_key: int32_attr(attrs, "instance_key")?,
        };
        CollectiveOp::boxed(builder, naming, plan)
    }

    /// Returns the kernel of a node whose inputs from `first` on name the group.
    pub fn by_inputs(builder: &KernelBuilder<'_>, first: usize, plan: Plan) -> Result<BoxedKernel> {
        CollectiveOp::boxed(builder, Naming::Inputs { first }, plan)
    }

    /// Returns the kernel of a node whose second input is a communicator.
    pub fn by_communicator(builder: &KernelBuilder<'_>, plan: Plan) -> Result<BoxedKernel> {
        CollectiveOp::boxed(builder, Naming::Communicator { input: 1 }, plan)
    }

    fn boxed(builder: &KernelBuilder<'_>, naming: Naming, plan: Plan) -> Result<BoxedKernel> {
        BoxedKernel::new_async(CollectiveOp {
            name: builder.name().to_owned(),
            dtype: builder.attrs().dtype("T")?,
            naming,
            timeout: timeout_attr(builder.attrs())?,
            plan,
        })
    }

    fn call(&self, context: &mut AsyncContext) -> Result<(Arc<dyn Collectives>, CollectiveCall)> {
        let step = context.step().clone();
        let collectives = collectives_of(&step, &self.name)?;
        let mut op = context.op();
        let (group, instance_key) = self.group(&op)?;
        let planned = (self.plan)(&mut op, group.size)?;
        let call = CollectiveCall {
            node_name: self.name.clone(),
            group,
            instance_key,
            frame: op.frame(),
            kind: planned.kind,
            dtype: self.dtype,
            input: planned.input,
            shape: planned.shape,
            step,
        };
        Ok((collectives, call))
    }

    fn group(&self, op: &OpContext<'_>) -> Result<(CollectiveGroup, i32)> {
        let joining = |key, size| CollectiveGroup { key, size, rank: None, joins: true, timeout: self.timeout };
        match self.naming {
            Naming::Attrs { size, key, instance_key } => Ok((joining(key, size), instance_key)),
            Naming::Inputs { first } => {
                let size = scalar_input(op, first, "group_size")?;
                let key = scalar_input(op, first + 1, "group_key")?;
                let instance_key = scalar_input(op, first + 2, "instance_key")?;
                Ok((joining(key, positive_size(size)?), instance_key))
            }
            Naming::Communicator { input } => {
                let communicator = op.resource::<Communicator>(input)?;
                if op.input(input + 1)?.num_elements() != 0 {
                    return Err(Status::unimplemented("Group assignments are not supported yet."));
                }
                let timeout = self.timeout.and(communicator.timeout());
                let group = CollectiveGroup { joins: false, timeout, ..communicator.group().clone() };
                Ok((group, communicator.next_instance_key()))
            }
        }
    }
}

impl AsyncKernel for CollectiveOp {
    fn compute(&self, mut context: AsyncContext) {
        match self.call(&mut context) {
            Ok((collectives, call)) => collectives.run(
                call,
                Box::new(move |outcome| {
                    context.finish_with(|op| {
                        op.set_output(0, outcome?);
                        Ok(())
                    });
                }),
            ),
            Err(status) => context.finish(Err(status)),
        }
    }
}

/// Returns the implementation of a step's collective ops.
pub(super) fn collectives_of(step: &Step, node: &str) -> Result<Arc<dyn Collectives>> {
    step.collectives.clone().ok_or_else(|| {
        let what = format!("Failed to get CollectiveExecutor from OpKernelContext for Op {node}");
        Status::unimplemented(format!("{what}: collective ops run on servers, not in a session without one"))
    })
}

/// Returns the value of an input that must be a scalar.
pub(super) fn scalar_input(op: &OpContext<'_>, index: usize, name: &str) -> Result<i32> {
    let tensor = op.input(index)?;
    if tensor.shape().rank() > 0 {
        return Err(Status::invalid_argument(format!("Unexpected dimensions on input {name}, got {}", tensor.shape())));
    }
    tensor.to_scalar()
}

/// Checks a group's size.
pub(super) fn positive_size(size: i32) -> Result<usize> {
    match usize::try_from(size) {
        Ok(size @ 1..) => Ok(size),
        _ => Err(Status::invalid_argument(format!("group_size must be positive integer but got {size}"))),
    }
}

/// Returns a node's `timeout_seconds`, if there is one.
pub(super) fn timeout_attr(attrs: &AttrMap) -> Result<Option<Duration>> {
    let seconds = attrs.float("timeout_seconds")?;
    // One that can't be represented is as good as none.
    Ok(if seconds > 0.0 { Duration::try_from_secs_f32(seconds).ok() } else { None })
}

fn int32_attr(attrs: &AttrMap, name: &str) -> Result<i32> {
    let value = attrs.int(name)?;
    i32::try_from(value)
        .map_err(|_| Status::invalid_argument(format!("Attr {name} has value {value} out of range for an int32")))
}
