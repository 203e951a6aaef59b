//! Variables by reference edges: Variable, VariableV2, IsVariableInitialized, and temporary ones.

use graph::{Graph, Output};
use kernel::{
    BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ResourceCache,
    ShapeContext, Variable, shape,
};
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Variable",
            inputs: &[],
            outputs: &["ref: Ref(dtype)"],
            attrs: &["shape: shape", "dtype: type", "container: string = ''", "shared_name: string = ''"],
            flags: OpFlags::STATEFUL,
        },
        shape: old_variable_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(VariableOp::create)],
    },
    Op {
        def: OpDef {
            name: "VariableV2",
            inputs: &[],
            outputs: &["ref: Ref(dtype)"],
            attrs: &["shape: shape", "dtype: type", "container: string = ''", "shared_name: string = ''"],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::from_shape_attr,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(VariableOp::create)],
    },
    Op {
        def: OpDef {
            name: "IsVariableInitialized",
            inputs: &["ref: Ref(dtype)"],
            outputs: &["is_initialized: bool"],
            attrs: &["dtype: type"],
            flags: OpFlags::ALLOWS_UNINITIALIZED_INPUT,
        },
        shape: shape::scalar,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(IsVariableInitialized))],
    },
    Op {
        def: OpDef {
            name: "TemporaryVariable",
            inputs: &[],
            outputs: &["ref: Ref(dtype)"],
            attrs: &["shape: shape", "dtype: type", "var_name: string = ''"],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::from_shape_attr,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(TemporaryVariable::create)],
    },
    Op {
        def: OpDef {
            name: "DestroyTemporaryVariable",
            inputs: &["ref: Ref(T)"],
            outputs: &["value: T"],
            attrs: &["T: type", "var_name: string"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| {
            BoxedKernel::new(DestroyTemporaryVariable { name: builder.attrs().string("var_name")? })
        })],
    },
];

/// Returns a variable by reference; `name` is the node's name.
#[track_caller]
pub fn variable_op_v2(graph: &Graph, name: &str, dtype: DType, shape: &PartialShape) -> Output {
    graph.op("VariableV2").name(name).attr("dtype", dtype).attr("shape", shape.clone()).output()
}

/// Returns whether a variable is initialized.
#[track_caller]
pub fn is_variable_initialized(variable: &Output) -> Output {
    variable.graph().op("IsVariableInitialized").input(variable).output()
}

/// Returns a variable that lives until [`destroy_temporary_variable`] is run on it, or the step ends.
#[track_caller]
pub fn temporary_variable(graph: &Graph, dtype: DType, shape: &PartialShape, var_name: &str) -> Output {
    let op = graph.op("TemporaryVariable").attr("dtype", dtype).attr("shape", shape.clone());
    op.attr("var_name", var_name).output()
}

/// Returns the last value of a temporary variable, and destroys it.
#[track_caller]
pub fn destroy_temporary_variable(variable: &Output, var_name: &str) -> Output {
    variable.graph().op("DestroyTemporaryVariable").input(variable).attr("var_name", var_name).output()
}

/// In the first version of the op, a scalar shape also means an unknown one.
fn old_variable_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.attrs.shape("shape")?;
    c.set_output(0, if shape.rank() == Some(0) { PartialShape::unknown() } else { shape });
    Ok(())
}

struct VariableOp {
    container: String,
    name: String,
    dtype: DType,
    shape: PartialShape,
    cache: ResourceCache<Arc<Variable>>,
}

impl VariableOp {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let (container, name) = builder.resource_name();
        BoxedKernel::new(VariableOp {
            container,
            name,
            dtype: builder.output_dtype(0),
            shape: builder.attrs().shape("shape")?,
            cache: ResourceCache::new(),
        })
    }
}

impl Kernel for VariableOp {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let variable = self.cache.get(&context.step().resources, |manager| {
            let create = || new_variable(&self.name, self.dtype, &self.shape);
            let variable = manager.lookup_or_create(&self.container, &self.name, create)?;
            if variable.dtype() != self.dtype {
                return Err(Status::invalid_argument(format!(
                    "Variable {} has type {}, but the graph declares it as {}",
                    self.name,
                    variable.dtype(),
                    self.dtype
                )));
            }
            Ok((variable, true))
        })?;
        context.set_output_ref(0, variable);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

/// Creates a variable; one without elements is initialized from the start.
fn new_variable(name: &str, dtype: DType, shape: &PartialShape) -> Result<Variable> {
    let variable = Variable::new(name, dtype, shape.clone());
    if let Some(shape) = shape.to_shape()
        && shape.num_elements() == 0
    {
        variable.assign(Tensor::zeros(dtype, shape)?)?;
    }
    Ok(variable)
}

struct IsVariableInitialized;

impl Kernel for IsVariableInitialized {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let initialized = context.variable(0)?.is_initialized();
        context.set_output(0, Tensor::scalar(initialized));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct TemporaryVariable {
    name: String,
    dtype: DType,
    shape: PartialShape,
}

/// The container of temporary variables among a step's resources.
const TEMPORARY: &str = "tmp";

impl TemporaryVariable {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let name = builder.attrs().string("var_name")?;
        let name = if name.is_empty() { builder.name().to_owned() } else { name };
        let shape = builder.attrs().shape("shape")?;
        BoxedKernel::new(TemporaryVariable { name, dtype: builder.output_dtype(0), shape })
    }
}

/// Returns the name of a temporary variable in the kernel's frame and iteration.
fn temporary_name(context: &OpContext<'_>, name: &str) -> String {
    let frame = context.frame();
    format!("{name}:{}:{}", frame.frame, frame.iteration)
}

impl Kernel for TemporaryVariable {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let shape = self.shape.to_shape().ok_or_else(|| {
            Status::invalid_argument(format!("the shape {} of a temporary variable isn't fully known", self.shape))
        })?;
        let variable = Arc::new(Variable::new(&self.name, self.dtype, self.shape.clone()));
        // TensorFlow allocates the elements without initializing them, so any value is correct.
        variable.assign(Tensor::zeros(self.dtype, shape)?)?;
        let name = temporary_name(context, &self.name);
        context.step().step_resources.create(TEMPORARY, &name, variable.clone())?;
        context.set_output_ref(0, variable);
        Ok(())
    }
}

struct DestroyTemporaryVariable {
    name: String,
}

impl Kernel for DestroyTemporaryVariable {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let variable = context.variable(0)?;
        let value = variable.read()?;
        let name = temporary_name(context, &self.name);
        context.step().step_resources.delete::<Variable>(TEMPORARY, &name)?;
        // The output is the sole owner if nobody else has read the variable.
        variable.clear();
        context.set_output(0, value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{assign, assign_add};
    use crate::testing::{TestSession, attrs, check_shape};
    use tensor::Code;

    #[test]
    fn a_variable_lives_between_runs() {
        let session = TestSession::new();
        let variable = variable_op_v2(&session.graph, "v", DType::Float, &PartialShape::from_dims(&[2]));
        let initialized = is_variable_initialized(&variable);
        let status = session.fetch(&variable, &[]).unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(status.message(), "Attempting to use uninitialized value v");
        assert!(!session.fetch(&initialized, &[]).unwrap().to_scalar::<bool>().unwrap());
        let value = session.placeholder(DType::Float);
        let assigned = assign(&variable, &value);
        session.fetch(&assigned, &[(&value, Tensor::vector(&[1f32, 2.0]))]).unwrap();
        assert!(session.fetch(&initialized, &[]).unwrap().to_scalar::<bool>().unwrap());
        assert_eq!(session.fetch(&variable, &[]).unwrap().as_slice::<f32>().unwrap(), &[1.0, 2.0]);
        session.step.resources.clear();
        assert!(session.fetch(&variable, &[]).is_err(), "a cleared container must forget its variables");
    }

    #[test]
    fn a_name_stands_for_one_type() {
        let session = TestSession::new();
        let shape = PartialShape::scalar();
        let make = |dtype: DType| {
            let op = session.graph.op("VariableV2").attr("dtype", dtype).attr("shape", shape.clone());
            op.attr("shared_name", "shared").output()
        };
        let (first, second) = (make(DType::Float), make(DType::Int32));
        session.fetch(&is_variable_initialized(&first), &[]).unwrap();
        let status = session.fetch(&is_variable_initialized(&second), &[]).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
    }

    #[test]
    fn temporary_variables_end() {
        let session = TestSession::new();
        let temporary = temporary_variable(&session.graph, DType::Float, &PartialShape::from_dims(&[2]), "t");
        let value = session.placeholder(DType::Float);
        let sum = assign_add(&assign(&temporary, &value), &value);
        let last = destroy_temporary_variable(&sum, "t");
        for _ in 0..2 {
            let last = session.fetch(&last, &[(&value, Tensor::vector(&[1f32, 2.0]))]).unwrap();
            assert_eq!(last.as_slice::<f32>().unwrap(), &[2.0, 4.0]);
        }
        assert!(session.step.step_resources.list().is_empty());
    }

    #[test]
    fn shapes() {
        let shape = PartialShape::from_dims(&[2, 3]);
        check_shape("VariableV2", attrs![("shape", shape.clone())], "", "[2,3]");
        check_shape("Variable", attrs![("shape", shape)], "", "[2,3]");
        check_shape("Variable", attrs![("shape", PartialShape::scalar())], "", "?");
        check_shape("VariableV2", attrs![("shape", PartialShape::scalar())], "", "[]");
    }
}
