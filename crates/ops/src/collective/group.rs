//! Creation of groups: CollectiveAssignGroupV2, which computes a device's group, and CollectiveInitializeCommunicator, with which
//! a device joins one.

use super::FLAGS;
use super::communicator::Communicator;
use super::kernel_op::{collectives_of, positive_size, timeout_attr};
use kernel::{
    AsyncContext, AsyncKernel, BoxedKernel, CollectiveGroup, Cost, Gradient, Kernel, KernelDef, Op, OpContext, OpDef,
    ResourceManager, ShapeContext, shape,
};
use std::sync::Arc;
use std::time::Duration;
use tensor::{PartialShape, Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "CollectiveAssignGroupV2",
            inputs: &["group_assignment: int32", "device_index: int32", "base_key: int32"],
            outputs: &["group_size: int32", "group_key: int32"],
            attrs: &[],
            flags: FLAGS,
        },
        shape: two_scalars,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(AssignGroup))],
    },
    Op {
        def: OpDef {
            name: "CollectiveInitializeCommunicator",
            inputs: &["group_key: int32", "rank: int32", "group_size: int32"],
            outputs: &["communicator: resource"],
            attrs: &["communication_hint: string = 'auto'", "timeout_seconds: float = 0.0"],
            flags: FLAGS,
        },
        shape: shape::scalar,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| {
            let timeout = timeout_attr(builder.attrs())?;
            BoxedKernel::new_async(InitializeCommunicator { name: builder.name().to_owned(), timeout })
        })],
    },
];

fn two_scalars(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, PartialShape::scalar());
    c.set_output(1, PartialShape::scalar());
    Ok(())
}

/// The container of communicators.
const CONTAINER: &str = "collective_op_group";

struct InitializeCommunicator {
    name: String,
    timeout: Option<Duration>,
}

impl InitializeCommunicator {
    fn group(&self, op: &OpContext<'_>) -> Result<CollectiveGroup> {
        let scalar = |index: usize, name: &str| {
            let tensor = op.input(index)?;
            if tensor.shape().rank() > 0 {
                return Err(Status::invalid_argument(format!(
                    "Unexpected dimensions on input {name}. It should be a scalar, got tensor with shape {}",
                    tensor.shape()
                )));
            }
            tensor.to_scalar::<i32>()
        };
        let (key, rank, size) = (scalar(0, "group_key")?, scalar(1, "rank")?, scalar(2, "group_size")?);
        let size = positive_size(size)?;
        let rank = usize::try_from(rank)
            .map_err(|_| Status::invalid_argument(format!("rank must be non-negative integer but got {rank}")))?;
        if rank >= size {
            return Err(Status::invalid_argument(format!(
                "rank must be less than group size but got {rank} >= {size}"
            )));
        }
        Ok(CollectiveGroup { key, size, rank: Some(rank), joins: true, timeout: self.timeout })
    }
}

impl AsyncKernel for InitializeCommunicator {
    fn compute(&self, mut context: AsyncContext) {
        let step = context.step().clone();
        let begun = self.group(&context.op()).and_then(|group| {
            let name = format!("{}:r{:04}", group.key, group.rank.unwrap_or_default());
            let communicator = Arc::new(Communicator::new(group.clone()));
            let collectives = collectives_of(&step, &self.name)?;
            step.resources.create(CONTAINER, &name, communicator.clone())?;
            Ok((collectives, group, name, communicator))
        });
        let (collectives, group, name, communicator) = match begun {
            Ok(begun) => begun,
            Err(status) => return context.finish(Err(status)),
        };
        let joining = step.clone();
        let done = move |joined: Result<()>| {
            if joined.is_err() {
                // So that the op can be run again.
                let _ = step.resources.delete::<Communicator>(CONTAINER, &name);
            }
            context.finish_with(|op| {
                joined?;
                let handle = ResourceManager::handle_to(&step.device, CONTAINER, &name, communicator);
                op.set_output(0, Tensor::resource(handle));
                Ok(())
            });
        };
        collectives.join_group(&joining, group, Box::new(done));
    }
}

struct AssignGroup;

impl Kernel for AssignGroup {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let scalar = |index: usize, name: &str| {
            let tensor = context.input(index)?;
            if tensor.shape().rank() > 0 {
                return Err(Status::invalid_argument(format!(
                    "{name} must be a scalar, but received tensor of shape: {}",
                    tensor.shape()
                )));
            }
            tensor.to_scalar::<i32>()
        };
        let device_index = scalar(1, "device_index")?;
        let assignment = context.input(0)?;
        let &[_, columns] = assignment.dims() else {
            return Err(Status::invalid_argument(format!(
                "group_assignment must be a 2-d Tensor, but received tensor of shape: {}",
                assignment.shape()
            )));
        };
        let base_key = scalar(2, "base_key")?;
        let columns = usize::try_from(columns).unwrap_or_default();
        let key = group_key(assignment.as_slice()?, columns, device_index, base_key)?;
        context.set_output(0, Tensor::scalar(columns as i32));
        context.set_output(1, Tensor::scalar(key));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

/// Returns the key of the group whose row contains a device.
fn group_key(assignment: &[i32], columns: usize, device_index: i32, base_key: i32) -> Result<i32> {
    for (group_id, row) in assignment.chunks(columns.max(1)).enumerate() {
        let key = base_key.wrapping_add(group_id as i32);
        if key == 0 {
            return Err(Status::invalid_argument(format!(
                "Using the reserved group_key = 0 is not allowed: group_id = {group_id}, base_key = {base_key}"
            )));
        }
        for &index in row {
            if usize::try_from(index).map_or(true, |index| index >= assignment.len()) {
                return Err(Status::invalid_argument(format!(
                    "Not all items in group_assignment {assignment:?} is within [0, number of devices)"
                )));
            }
            if index == device_index {
                return Ok(key);
            }
        }
    }
    Err(Status::invalid_argument(format!(
        "device_index {device_index} is not found in group_assignment {assignment:?}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_belongs_to_the_group_in_whose_row_it_is() {
        assert_eq!(group_key(&[0, 1, 2, 3], 2, 2, 10).unwrap(), 11);
        assert_eq!(group_key(&[3, 1, 2, 0], 2, 3, 1).unwrap(), 1);
        let message =
            |assignment: &[i32], device, base| group_key(assignment, 2, device, base).unwrap_err().to_string();
        assert!(message(&[0, 1, 2, 3], 2, -1).contains("reserved group_key = 0"));
        assert!(message(&[0, 4, 2, 3], 2, 1).contains("within [0, number of devices)"));
        assert!(message(&[0, 1, 2, 2], 3, 1).contains("is not found"));
    }
}
