//! Variables by resource handle: creating handles, reading, querying the shape, destroying.

use super::handle_shape;
use graph::{Graph, Operation, Output};
use kernel::{
    BoxedKernel, Cost, Grad, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags,
    ResourceCache, ResourceManager, ShapeContext, Variable, shape,
};
use tensor::{Code, DType, DTypeAndShape, PartialShape, ResourceHandle, Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "VarHandleOp",
            inputs: &[],
            outputs: &["resource: resource"],
            attrs: &[
                "container: string = ''",
                "shared_name: string = ''",
                "debug_name: string = ''",
                "dtype: type",
                "shape: shape",
                "allowed_devices: list(string) = []",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: var_handle_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(VarHandles::create_one)],
    },
    Op {
        def: OpDef {
            name: "_VarHandlesOp",
            inputs: &[],
            outputs: &["resources: N * resource"],
            attrs: &[
                "containers: list(string)",
                "shared_names: list(string)",
                "N: int >= 0",
                "dtypes: list(type)",
                "shapes: list(shape)",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: var_handles_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(VarHandles::create_many)],
    },
    Op {
        def: OpDef {
            name: "ReadVariableOp",
            inputs: &["resource: resource"],
            outputs: &["value: dtype"],
            attrs: &["dtype: type"],
            flags: OpFlags::STATEFUL,
        },
        shape: read_variable_shape,
        gradient: Gradient::Fn(read_variable_gradient),
        kernels: &[KernelDef::any(ReadVariables::create)],
    },
    Op {
        def: OpDef {
            name: "_ReadVariablesOp",
            inputs: &["resources: N * resource"],
            outputs: &["values: dtypes"],
            attrs: &["N: int >= 0", "dtypes: list(type) >= 1"],
            flags: OpFlags::STATEFUL,
        },
        shape: read_variable_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(ReadVariables::create)],
    },
    Op {
        def: OpDef {
            name: "VarIsInitializedOp",
            inputs: &["resource: resource"],
            outputs: &["is_initialized: bool"],
            attrs: &[],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::scalar,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(VarIsInitialized))],
    },
    Op {
        def: OpDef {
            name: "VariableShape",
            inputs: &["input: resource"],
            outputs: &["output: out_type"],
            attrs: &["out_type: {int32, int64} = DT_INT32"],
            flags: OpFlags::STATEFUL,
        },
        shape: |c| {
            let (_, shape) = handle_shape(c, 0)?;
            c.set_output(0, PartialShape::new(&[shape.rank().map(|rank| rank as i64)]));
            Ok(())
        },
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(VariableShape { dtype: builder.output_dtype(0) }))],
    },
    Op {
        def: OpDef {
            name: "DestroyResourceOp",
            inputs: &["resource: resource"],
            outputs: &[],
            attrs: &["ignore_lookup_error: bool = true"],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::unknown,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| {
            BoxedKernel::new(DestroyResource { ignores_missing: builder.attrs().bool("ignore_lookup_error")? })
        })],
    },
    Op {
        def: OpDef {
            name: "DisableCopyOnRead",
            inputs: &["resource: resource"],
            outputs: &[],
            attrs: &[],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::unknown,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(DisableCopyOnRead))],
    },
];

/// Returns a handle to the variable `shared_name`, which an assignment creates.
#[track_caller]
pub fn var_handle_op(graph: &Graph, shared_name: &str, dtype: DType, shape: &PartialShape) -> Output {
    let op = graph.op("VarHandleOp").name(shared_name).attr("shared_name", shared_name);
    op.attr("dtype", dtype).attr("shape", shape.clone()).output()
}

/// Returns the value of the variable of a handle.
#[track_caller]
pub fn read_variable_op(handle: &Output, dtype: DType) -> Output {
    handle.graph().op("ReadVariableOp").input(handle).attr("dtype", dtype).output()
}

/// Returns whether the variable of a handle is initialized.
#[track_caller]
pub fn var_is_initialized_op(handle: &Output) -> Output {
    handle.graph().op("VarIsInitializedOp").input(handle).output()
}

/// Returns the shape of the variable of a handle.
#[track_caller]
pub fn variable_shape(handle: &Output, out_type: DType) -> Output {
    handle.graph().op("VariableShape").input(handle).attr("out_type", out_type).output()
}

/// Removes the variable, queue or table of a handle.
#[track_caller]
pub fn destroy_resource_op(handle: &Output, ignore_lookup_error: bool) -> Operation {
    let op = handle.graph().op("DestroyResourceOp").input(handle);
    op.attr("ignore_lookup_error", ignore_lookup_error).build()
}

fn var_handle_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, PartialShape::scalar());
    c.output_handles[0] = vec![DTypeAndShape { dtype: c.attrs.dtype("dtype")?, shape: c.attrs.shape("shape")? }];
    Ok(())
}

fn var_handles_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (dtypes, shapes) = (c.attrs.dtypes("dtypes")?, c.attrs.shapes("shapes")?);
    for (index, (dtype, shape)) in dtypes.into_iter().zip(shapes).enumerate().take(c.num_outputs()) {
        c.set_output(index, PartialShape::scalar());
        c.output_handles[index] = vec![DTypeAndShape { dtype, shape }];
    }
    Ok(())
}

fn read_variable_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    if c.num_inputs() != c.num_outputs() {
        return Err(Status::invalid_argument("Mismatched number of arguments to ReadVariablesOp"));
    }
    for index in 0..c.num_outputs() {
        let (dtype, shape) = handle_shape(c, index)?;
        let declared = c.output_types[index].dtype;
        if let Some(dtype) = dtype
            && dtype != declared
        {
            return Err(Status::invalid_argument(format!(
                "Trying to read variable with wrong dtype. Expected {declared} got {dtype}"
            )));
        }
        c.set_output(index, shape);
    }
    Ok(())
}

fn read_variable_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    Ok(vec![args.grads[0].clone()])
}

struct VarHandles {
    handles: Vec<VarHandle>,
}

struct VarHandle {
    handle: ResourceHandle,
    cache: ResourceCache<Tensor>,
}

impl VarHandles {
    fn create_one(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let (container, name) = builder.resource_name();
        let (dtype, shape) = (builder.attrs().dtype("dtype")?, builder.attrs().shape("shape")?);
        let handle = VarHandle::new(builder.device, &container, name, dtype, shape);
        BoxedKernel::new(VarHandles { handles: vec![handle] })
    }

    fn create_many(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let (containers, names) = (attrs.strings("containers")?, attrs.strings("shared_names")?);
        let (dtypes, shapes) = (attrs.dtypes("dtypes")?, attrs.shapes("shapes")?);
        let count = builder.output_dtypes().len();
        if [containers.len(), names.len(), dtypes.len(), shapes.len()].iter().any(|&len| len != count) {
            return Err(Status::invalid_argument("the lists of names, types and shapes must all have N entries"));
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let handles = containers.iter().zip(names).zip(dtypes.into_iter().zip(shapes));
        let handles = handles.map(|((container, name), (dtype, shape))| {
            VarHandle::new(builder.device, &text(container), text(name), dtype, shape)
        });
        BoxedKernel::new(VarHandles { handles: handles.collect() })
    }
}

impl VarHandle {
    fn new(device: &str, container: &str, name: String, dtype: DType, shape: PartialShape) -> VarHandle {
        let variable = std::sync::Arc::new(Variable::new(&name, dtype, shape.clone()));
        let mut handle = ResourceManager::handle_to(device, container, &name, variable);
        // A handle only names a variable; whether it exists is checked when it is used.
        handle.resource = None;
        handle.dtypes_and_shapes = vec![DTypeAndShape { dtype, shape }];
        VarHandle { handle, cache: ResourceCache::new() }
    }

    /// Returns the handle; once the variable exists, the handle contains it.
    fn tensor(&self, context: &OpContext<'_>) -> Result<Tensor> {
        self.cache.get(&context.step().resources, |manager| {
            let mut handle = self.handle.clone();
            let found = manager.lookup::<Variable>(&handle.container, &handle.name).ok();
            let exists = found.is_some();
            handle.resource = found.map(|variable| variable as _);
            Ok((Tensor::resource(handle), exists))
        })
    }
}

impl Kernel for VarHandles {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        for (index, handle) in self.handles.iter().enumerate() {
            let tensor = handle.tensor(context)?;
            context.set_output(index, tensor);
        }
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct ReadVariables {
    dtypes: Vec<DType>,
}

impl ReadVariables {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let dtypes = builder.output_dtypes();
        if builder.attrs().int("N").is_ok_and(|number| number != dtypes.len() as i64) {
            return Err(Status::invalid_argument("Mismatched number of arguments to ReadVariablesOp"));
        }
        BoxedKernel::new(ReadVariables { dtypes })
    }
}

impl Kernel for ReadVariables {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        for (index, &dtype) in self.dtypes.iter().enumerate() {
            let value = context.variable(index).and_then(|variable| variable.read());
            let value = value.map_err(|status| unreadable(context, index, status))?;
            if value.dtype() != dtype {
                return Err(Status::invalid_argument(format!(
                    "Trying to read variable with wrong dtype. Expected {dtype} got {}",
                    value.dtype()
                )));
            }
            context.set_output(index, value);
        }
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

/// Returns TensorFlow's error for reading a variable that doesn't exist or isn't initialized.
fn unreadable(context: &OpContext<'_>, index: usize, status: Status) -> Status {
    if !matches!(status.code(), Code::NotFound | Code::FailedPrecondition) {
        return status;
    }
    let handle = context.input(index).and_then(|tensor| tensor.resources()).ok().and_then(|handles| handles.first());
    let Some(handle) = handle else { return status };
    Status::failed_precondition(format!(
        "Could not find variable {}. This could mean that the variable has been deleted. In TF1, it can also mean the \
         variable is uninitialized. Debug info: container={}, status error message={}",
        handle.name,
        handle.container,
        status.message()
    ))
}

struct VarIsInitialized;

impl Kernel for VarIsInitialized {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let initialized = context.variable(0).is_ok_and(|variable| variable.is_initialized());
        context.set_output(0, Tensor::scalar(initialized));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct VariableShape {
    dtype: DType,
}

impl Kernel for VariableShape {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let dims = context.variable(0)?.read_with(|tensor| Ok(tensor.shape().clone()))?;
        let output = if self.dtype == DType::Int32 {
            let dims: Result<Vec<i32>, _> = dims.iter().map(|&dim| i32::try_from(dim)).collect();
            let dims =
                dims.map_err(|_| Status::invalid_argument("Shape output type is 32-bit but a dimension exceeds it"))?;
            Tensor::vector(&dims)
        } else {
            Tensor::vector(&dims)
        };
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct DestroyResource {
    ignores_missing: bool,
}

impl Kernel for DestroyResource {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let handle = context.input(0)?.resources()?.first();
        let handle = handle.ok_or_else(|| Status::invalid_argument("an empty resource handle"))?;
        // A handle that contains its variable must not read one that was destroyed.
        if let Ok(variable) = context.resources().from_handle::<Variable>(handle) {
            variable.clear();
        }
        if context.resources().delete_any(&handle.container, &handle.name) || self.ignores_missing {
            return Ok(());
        }
        Err(Status::not_found(format!(
            "Resource {}/{}/{} does not exist.",
            handle.container, handle.name, handle.maybe_type_name
        )))
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

/// Our reads copy only variables that are used by rows, which `Variable` decides itself; the op remains for graphs that contain
/// it.
struct DisableCopyOnRead;

impl Kernel for DisableCopyOnRead {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        context.variable(0).map(drop).map_err(|status| unreadable(context, 0, status))
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::assign_variable_op;
    use crate::testing::TestSession;

    #[test]
    fn a_handle_names_a_variable_that_need_not_be_there() {
        let session = TestSession::new();
        let handle = var_handle_op(&session.graph, "v", DType::Float, &PartialShape::from_dims(&[2]));
        let (initialized, read) = (var_is_initialized_op(&handle), read_variable_op(&handle, DType::Float));
        assert!(!session.fetch(&initialized, &[]).unwrap().to_scalar::<bool>().unwrap());
        let status = session.fetch(&read, &[]).unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().starts_with("Could not find variable v. "), "{status}");
        assert!(status.message().contains("uninitialized") && status.message().contains("container=localhost"));
        let value = session.placeholder(DType::Float);
        session.run(&assign_variable_op(&handle, &value), &[(&value, Tensor::vector(&[1f32, 2.0]))]).unwrap();
        assert!(session.fetch(&initialized, &[]).unwrap().to_scalar::<bool>().unwrap());
        assert_eq!(session.fetch(&read, &[]).unwrap().as_slice::<f32>().unwrap(), &[1.0, 2.0]);
        let shape = session.fetch(&variable_shape(&handle, DType::Int32), &[]).unwrap();
        assert_eq!(shape.as_slice::<i32>().unwrap(), &[2]);
        let carried = session.fetch(&handle, &[]).unwrap();
        assert!(carried.resources().unwrap()[0].resource.is_some(), "a handle to what is there carries it");
    }

    #[test]
    fn what_is_destroyed_is_gone() {
        let session = TestSession::new();
        let handle = var_handle_op(&session.graph, "v", DType::Float, &PartialShape::scalar());
        let strict = destroy_resource_op(&handle, false);
        assert_eq!(session.run(&strict, &[]).unwrap_err().code(), Code::NotFound);
        session.run(&destroy_resource_op(&handle, true), &[]).unwrap();
        let value = session.placeholder(DType::Float);
        let assign = assign_variable_op(&handle, &value);
        session.run(&assign, &[(&value, Tensor::scalar(1f32))]).unwrap();
        let old_handle = session.fetch(&handle, &[]).unwrap();
        session.run(&strict, &[]).unwrap();
        let read = read_variable_op(&handle, DType::Float);
        assert_eq!(session.fetch(&read, &[]).unwrap_err().code(), Code::FailedPrecondition);
        let old = session.fetch(&read, &[(&handle, old_handle)]);
        assert_eq!(old.unwrap_err().code(), Code::FailedPrecondition);
        session.run(&assign, &[(&value, Tensor::scalar(2f32))]).unwrap();
        assert_eq!(session.fetch(&read, &[]).unwrap().to_scalar::<f32>().unwrap(), 2.0);
    }

    #[test]
    fn types_and_shapes_follow_the_handle() {
        let session = TestSession::new();
        let handle = var_handle_op(&session.graph, "v", DType::Float, &PartialShape::from_dims(&[2, 3]));
        assert_eq!(read_variable_op(&handle, DType::Float).shape().to_string(), "[2,3]");
        assert_eq!(variable_shape(&handle, DType::Int32).shape().to_string(), "[2]");
        assert!(session.graph.op("ReadVariableOp").input(&handle).attr("dtype", DType::Int32).try_build().is_err());
    }
}
