//! Loops: Enter, Exit, NextIteration, LoopCond, and their forms for reference edges.
//!
//! The kernels pass their input through; the executor moves it between frames and iterations.

use crate::elementwise::PASS_THROUGH;
use graph::{Output, ShapeContext};
use kernel::{Gradient, Op, OpDef, OpFlags, shape};
use tensor::{PartialShape, Result};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Enter",
            inputs: &["data: T"],
            outputs: &["output: T"],
            attrs: &["T: type", "frame_name: string", "is_constant: bool = false", "parallel_iterations: int = 10"],
            flags: OpFlags::NONE,
        },
        shape: enter_shape,
        gradient: Gradient::Unsupported,
        kernels: PASS_THROUGH,
    },
    Op {
        def: OpDef {
            name: "RefEnter",
            inputs: &["data: Ref(T)"],
            outputs: &["output: Ref(T)"],
            attrs: &["T: type", "frame_name: string", "is_constant: bool = false", "parallel_iterations: int = 10"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: PASS_THROUGH,
    },
    Op {
        def: OpDef {
            name: "Exit",
            inputs: &["data: T"],
            outputs: &["output: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: PASS_THROUGH,
    },
    Op {
        def: OpDef {
            name: "RefExit",
            inputs: &["data: Ref(T)"],
            outputs: &["output: Ref(T)"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: PASS_THROUGH,
    },
    Op {
        def: OpDef {
            name: "NextIteration",
            inputs: &["data: T"],
            outputs: &["output: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: PASS_THROUGH,
    },
    Op {
        def: OpDef {
            name: "RefNextIteration",
            inputs: &["data: Ref(T)"],
            outputs: &["output: Ref(T)"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: PASS_THROUGH,
    },
    Op {
        def: OpDef {
            name: "LoopCond",
            inputs: &["input: bool"],
            outputs: &["output: bool"],
            attrs: &[],
            flags: OpFlags::NONE,
        },
        shape: loop_cond_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: PASS_THROUGH,
    },
];

/// Passes `data` into the loop named `frame_name`; a constant is available in every iteration.
#[track_caller]
pub fn enter(data: &Output, frame_name: &str, is_constant: bool, parallel_iterations: i64) -> Output {
    let op = if data.is_ref() { "RefEnter" } else { "Enter" };
    data.graph()
        .op(op)
        .input(data)
        .attr("frame_name", frame_name)
        .attr("is_constant", is_constant)
        .attr("parallel_iterations", parallel_iterations)
        .output()
}

/// Passes `data` out of its loop.
#[track_caller]
pub fn exit(data: &Output) -> Output {
    data.graph().op(if data.is_ref() { "RefExit" } else { "Exit" }).input(data).output()
}

/// Passes `data` to the next iteration of its loop.
#[track_caller]
pub fn next_iteration(data: &Output) -> Output {
    data.graph().op(if data.is_ref() { "RefNextIteration" } else { "NextIteration" }).input(data).output()
}

/// Marks `input` as the condition of a loop.
#[track_caller]
pub fn loop_cond(input: &Output) -> Output {
    input.graph().op("LoopCond").input(input).output()
}

/// A constant keeps its shape in the loop; a loop variable's shape may change between iterations.
fn enter_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    if c.attrs.bool("is_constant")? {
        return shape::unchanged(c);
    }
    c.set_output(0, PartialShape::unknown());
    if let (Some(from), Some(to)) = (c.input_handles.first(), c.output_handles.first_mut()) {
        to.clone_from(from);
    }
    Ok(())
}

fn loop_cond_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.with_rank(0, 0)?;
    c.set_output(0, shape);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, run_op};
    use tensor::Tensor;

    #[test]
    fn values_pass() {
        let x = Tensor::vector(&[1f32]);
        let y = run_op("Enter", attrs![("frame_name", "f")], &[x.clone()]).unwrap();
        assert!(y[0].shares_memory(&x));
        for op in ["Exit", "NextIteration"] {
            assert!(run_op(op, attrs![], &[x.clone()]).unwrap()[0].shares_memory(&x));
        }
    }

    #[test]
    fn shapes() {
        check_shape("Enter", attrs![("frame_name", "f"), ("is_constant", true)], "[2]", "[2]");
        check_shape("Enter", attrs![("frame_name", "f")], "[2]", "?");
        check_shape("LoopCond", attrs![], "?", "[]");
    }
}
