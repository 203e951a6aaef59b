//! Tensors that are kept in the session between runs: GetSessionHandle, GetSessionTensor, DeleteSessionTensor.

use graph::{Operation, Output};
use kernel::{BoxedKernel, Cost, Gradient, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags, shape};
use tensor::{DType, ResourceHandle, Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "GetSessionHandle",
            inputs: &["value: T"],
            outputs: &["handle: string"],
            attrs: &["T: type"],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::scalar,
        gradient: Gradient::NotDifferentiable,
        kernels: GET_HANDLE,
    },
    Op {
        def: OpDef {
            name: "GetSessionHandleV2",
            inputs: &["value: T"],
            outputs: &["handle: resource"],
            attrs: &["T: type"],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::scalar,
        gradient: Gradient::NotDifferentiable,
        kernels: GET_HANDLE,
    },
    Op {
        def: OpDef {
            name: "GetSessionTensor",
            inputs: &["handle: string"],
            outputs: &["value: dtype"],
            attrs: &["dtype: type"],
            flags: OpFlags::STATEFUL,
        },
        shape: |c| c.with_rank(0, 0).map(drop),
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(GetSessionTensor { dtype: builder.output_dtype(0) }))],
    },
    Op {
        def: OpDef {
            name: "DeleteSessionTensor",
            inputs: &["handle: string"],
            outputs: &[],
            attrs: &[],
            flags: OpFlags::STATEFUL,
        },
        shape: |c| c.with_rank(0, 0).map(drop),
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(DeleteSessionTensor))],
    },
];

const GET_HANDLE: &[KernelDef] = &[KernelDef::any(|builder| {
    BoxedKernel::new(GetSessionHandle { as_resource: builder.output_dtype(0) == DType::Resource })
})];

/// Keeps a tensor in the session and returns its handle, a string.
#[track_caller]
pub fn get_session_handle(value: &Output) -> Output {
    value.graph().op("GetSessionHandle").input(value).output()
}

/// Returns the tensor that a handle stands for.
#[track_caller]
pub fn get_session_tensor(handle: &Output, dtype: DType) -> Output {
    handle.graph().op("GetSessionTensor").input(handle).attr("dtype", dtype).output()
}

/// Drops the tensor of a handle.
#[track_caller]
pub fn delete_session_tensor(handle: &Output) -> Operation {
    handle.graph().op("DeleteSessionTensor").input(handle).build()
}

struct GetSessionHandle {
    as_resource: bool,
}

impl Kernel for GetSessionHandle {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let value = context.take_input(0)?;
        let step = context.step();
        let name = step.session.keep(context.node_name(), &step.device, value);
        let handle = match self.as_resource {
            false => Tensor::string(name),
            true => Tensor::resource(ResourceHandle {
                device: step.device.to_string(),
                container: String::new(),
                name,
                hash_code: 0,
                maybe_type_name: "TensorHandle".to_owned(),
                dtypes_and_shapes: Vec::new(),
                resource: None,
            }),
        };
        context.set_output(0, handle);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

fn handle_text(context: &OpContext<'_>) -> Result<String> {
    match context.input(0)?.strings()? {
        [handle] => Ok(String::from_utf8_lossy(handle).into_owned()),
        _ => Err(Status::invalid_argument("the handle of a session's tensor must be a scalar")),
    }
}

struct GetSessionTensor {
    dtype: DType,
}

impl Kernel for GetSessionTensor {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let tensor = context.step().session.kept(&handle_text(context)?)?;
        if tensor.dtype() != self.dtype {
            return Err(Status::invalid_argument(format!(
                "the session's tensor is {}, but {} was expected",
                tensor.dtype(),
                self.dtype
            )));
        }
        context.set_output(0, tensor);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct DeleteSessionTensor;

impl Kernel for DeleteSessionTensor {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        context.step().session.forget(&handle_text(context)?)
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestSession;

    #[test]
    fn a_tensor_stays_until_it_is_deleted() {
        let session = TestSession::new();
        let value = session.placeholder(DType::Float);
        let keep = get_session_handle(&value);
        let name = session.fetch(&keep, &[(&value, Tensor::scalar(3f32))]).unwrap();
        let handle = session.placeholder(DType::String);
        let get = get_session_tensor(&handle, DType::Float);
        let kept = session.fetch(&get, &[(&handle, name.clone())]).unwrap();
        assert_eq!(kept.to_scalar::<f32>().unwrap(), 3.0);
        let wrong = get_session_tensor(&handle, DType::Int32);
        assert!(session.fetch(&wrong, &[(&handle, name.clone())]).is_err());
        session.run(&delete_session_tensor(&handle), &[(&handle, name.clone())]).unwrap();
        let gone = session.fetch(&get, &[(&handle, name.clone())]).unwrap_err();
        assert!(gone.message().contains("is not in the session store."), "{gone}");
        assert!(session.run(&delete_session_tensor(&handle), &[(&handle, name)]).is_err());
    }
}
