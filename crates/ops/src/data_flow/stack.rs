//! Stacks that live for a step, in which loops keep values for their gradients: Stack, StackPush, StackPop, StackClose.

use graph::{Graph, Output};
use kernel::{
    BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, Resource,
    ResourceManager, ShapeContext, Variable, shape,
};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

const STRINGS: &str = "handle: Ref(string)";
const RESOURCE: &str = "handle: resource";

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Stack",
            inputs: &[],
            outputs: &[STRINGS],
            attrs: &["elem_type: type", "stack_name: string = ''"],
            flags: OpFlags::STATEFUL,
        },
        shape: handle_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: MAKE,
    },
    Op {
        def: OpDef {
            name: "StackV2",
            inputs: &["max_size: int32"],
            outputs: &[RESOURCE],
            attrs: &["elem_type: type", "stack_name: string = ''"],
            flags: OpFlags::STATEFUL,
        },
        shape: handle_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: MAKE,
    },
    Op {
        def: OpDef {
            name: "StackPush",
            inputs: &[STRINGS, "elem: T"],
            outputs: &["output: T"],
            attrs: &["T: type", "swap_memory: bool = false"],
            flags: OpFlags::NONE,
        },
        shape: pushed_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: PUSH,
    },
    Op {
        def: OpDef {
            name: "StackPushV2",
            inputs: &[RESOURCE, "elem: T"],
            outputs: &["output: T"],
            attrs: &["T: type", "swap_memory: bool = false"],
            flags: OpFlags::STATEFUL,
        },
        shape: pushed_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: PUSH,
    },
    Op {
        def: OpDef {
            name: "StackPop",
            inputs: &[STRINGS],
            outputs: &["elem: elem_type"],
            attrs: &["elem_type: type"],
            flags: OpFlags::NONE,
        },
        shape: shape::unknown,
        gradient: Gradient::NotDifferentiable,
        kernels: POP,
    },
    Op {
        def: OpDef {
            name: "StackPopV2",
            inputs: &[RESOURCE],
            outputs: &["elem: elem_type"],
            attrs: &["elem_type: type"],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::unknown,
        gradient: Gradient::NotDifferentiable,
        kernels: POP,
    },
    Op {
        def: OpDef { name: "StackClose", inputs: &[STRINGS], outputs: &[], attrs: &[], flags: OpFlags::NONE },
        shape: shape::unknown,
        gradient: Gradient::NotDifferentiable,
        kernels: CLOSE,
    },
    Op {
        def: OpDef { name: "StackCloseV2", inputs: &[RESOURCE], outputs: &[], attrs: &[], flags: OpFlags::STATEFUL },
        shape: shape::unknown,
        gradient: Gradient::NotDifferentiable,
        kernels: CLOSE,
    },
];

const MAKE: &[KernelDef] = &[KernelDef::any(StackOp::create)];
const PUSH: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new(StackPush))];
const POP: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new(StackPop))];
const CLOSE: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new(StackClose))];

/// Returns a stack of at most `max_size` tensors; a negative size means no bound.
#[track_caller]
pub fn stack_v2(graph: &Graph, max_size: &Output, elem_type: DType) -> Output {
    graph.op("StackV2").input(max_size).attr("elem_type", elem_type).output()
}

/// Pushes a tensor, and returns it.
#[track_caller]
pub fn stack_push(stack: &Output, elem: &Output) -> Output {
    stack.graph().op("StackPushV2").input(stack).input(elem).output()
}

/// Pops the tensor that was pushed last.
#[track_caller]
pub fn stack_pop(stack: &Output, elem_type: DType) -> Output {
    stack.graph().op("StackPopV2").input(stack).attr("elem_type", elem_type).output()
}

fn handle_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, PartialShape::from_dims(&[2]));
    Ok(())
}

fn pushed_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.input(1);
    c.set_output(0, shape);
    Ok(())
}

/// The container of stacks among a step's resources.
const STACKS: &str = "_stacks";

struct Stack {
    name: String,
    dtype: DType,
    max_size: usize,
    /// `None` once closed.
    tensors: Mutex<Option<Vec<Tensor>>>,
}

impl Resource for Stack {
    fn type_name(&self) -> &'static str {
        "N10tensorflow5StackE"
    }

    fn describe(&self) -> String {
        format!("stack of {}", self.dtype)
    }
}

impl Stack {
    fn with<R>(&self, f: impl FnOnce(&mut Vec<Tensor>) -> Result<R>) -> Result<R> {
        match &mut *self.tensors.lock() {
            Some(tensors) => f(tensors),
            None => Err(Status::invalid_argument(format!("Stack[{}] has already been closed.", self.name))),
        }
    }
}

struct StackOp {
    name: String,
    elem_type: DType,
    by_ref: bool,
}

impl StackOp {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let name = builder.attrs().string("stack_name")?;
        let name = if name.is_empty() { builder.name().to_owned() } else { name };
        let by_ref = builder.output_dtype(0) == DType::String;
        BoxedKernel::new(StackOp { name, elem_type: builder.attrs().dtype("elem_type")?, by_ref })
    }
}

impl Kernel for StackOp {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let max_size = if context.num_inputs() > 0 { context.scalar::<i32>(0, "Stack size")? } else { -1 };
        let name = format!("{}_{}", self.name, NEXT.fetch_add(1, Ordering::Relaxed));
        let stack = Arc::new(Stack {
            name: name.clone(),
            dtype: self.elem_type,
            max_size: usize::try_from(max_size).unwrap_or(usize::MAX),
            tensors: Mutex::new(Some(Vec::new())),
        });
        context.step().step_resources.create(STACKS, &name, stack.clone())?;
        if self.by_ref {
            let names = vec![STACKS.into(), name.clone().into_bytes().into()];
            let variable = Variable::new(name, DType::String, PartialShape::from_dims(&[2]));
            variable.assign(Tensor::from_strings(Shape::vector(2), names)?)?;
            context.set_output_ref(0, Arc::new(variable));
        } else {
            let handle = ResourceManager::handle_to(&context.step().device, STACKS, &name, stack);
            context.set_output(0, Tensor::resource(handle));
        }
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct StackPush;

impl Kernel for StackPush {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let stack = context.resource::<Stack>(0)?;
        let tensor = context.take_input(1)?;
        if tensor.dtype() != stack.dtype {
            return Err(Status::invalid_argument(format!(
                "Must have type {} but got {}: {} and {}",
                stack.dtype as i32,
                tensor.dtype() as i32,
                stack.dtype,
                tensor.dtype()
            )));
        }
        stack.with(|tensors| {
            if tensors.len() >= stack.max_size {
                return Err(Status::invalid_argument(format!(
                    "Stack[{}] overflowed its max_size ({})",
                    stack.name, stack.max_size
                )));
            }
            tensors.push(tensor.clone());
            Ok(())
        })?;
        context.set_output(0, tensor);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct StackPop;

impl Kernel for StackPop {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let stack = context.resource::<Stack>(0)?;
        let tensor = stack.with(|tensors| {
            tensors
                .pop()
                .ok_or_else(|| Status::invalid_argument(format!("Stack[{}] is empty when calling Pop().", stack.name)))
        })?;
        context.set_output(0, tensor);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct StackClose;

impl Kernel for StackClose {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let stack = context.resource::<Stack>(0)?;
        let tensors = stack.tensors.lock().take();
        drop(tensors);
        Ok(())
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
    fn what_went_in_last_comes_out_first() {
        let session = TestSession::new();
        let max_size = session.placeholder(DType::Int32);
        let stack = stack_v2(&session.graph, &max_size, DType::Float);
        let handle = session.fetch(&stack, &[(&max_size, Tensor::scalar(2i32))]).unwrap();
        let value = session.placeholder(DType::Float);
        let (push, pop) = (stack_push(&stack, &value), stack_pop(&stack, DType::Float));
        let push = |number: f32| session.fetch(&push, &[(&stack, handle.clone()), (&value, Tensor::scalar(number))]);
        let pop = || session.fetch(&pop, &[(&stack, handle.clone())]);
        assert_eq!(push(1.0).unwrap().to_scalar::<f32>().unwrap(), 1.0);
        push(2.0).unwrap();
        assert!(push(3.0).unwrap_err().message().ends_with("overflowed its max_size (2)"));
        assert_eq!(pop().unwrap().to_scalar::<f32>().unwrap(), 2.0);
        assert_eq!(pop().unwrap().to_scalar::<f32>().unwrap(), 1.0);
        assert!(pop().unwrap_err().message().ends_with("is empty when calling Pop()."));
        let close = session.graph.op("StackCloseV2").input(&stack).build();
        session.run(&close, &[(&stack, handle.clone())]).unwrap();
        assert!(pop().unwrap_err().message().ends_with("has already been closed."));
    }

    #[test]
    fn the_first_version_takes_strings() {
        let session = TestSession::new();
        let stack = session.graph.op("Stack").attr("elem_type", DType::Float).output();
        let value = session.placeholder(DType::Float);
        let push = session.graph.op("StackPush").input(&stack).input(&value).output();
        let pop = session.graph.op("StackPop").input(&stack).attr("elem_type", DType::Float).control(&push.op);
        let popped = session.fetch(&pop.output(), &[(&value, Tensor::scalar(4f32))]).unwrap();
        assert_eq!(popped.to_scalar::<f32>().unwrap(), 4.0);
    }
}
