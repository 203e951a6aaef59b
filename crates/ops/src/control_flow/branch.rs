//! Conditionals: Switch, Merge, RefSelect and related ops.
//!
//! The outputs of a branch that isn't taken are dead, which the executor propagates.

use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Cost, Gradient, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags, Value, shape};
use tensor::{PartialShape, Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Switch",
            inputs: &["data: T", "pred: bool"],
            outputs: &["output_false: T", "output_true: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: switch_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(Switch))],
    },
    Op {
        def: OpDef {
            name: "RefSwitch",
            inputs: &["data: Ref(T)", "pred: bool"],
            outputs: &["output_false: Ref(T)", "output_true: Ref(T)"],
            attrs: &["T: type"],
            flags: OpFlags::ALLOWS_UNINITIALIZED_INPUT,
        },
        shape: switch_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(Switch))],
    },
    Op {
        def: OpDef {
            name: "_SwitchN",
            inputs: &["data: T", "output_index: int32"],
            outputs: &["outputs: num_outs * T"],
            attrs: &["num_outs: int >= 1", "T: type"],
            flags: OpFlags::NONE,
        },
        shape: switch_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(SwitchN))],
    },
    Op {
        def: OpDef {
            name: "Merge",
            inputs: &["inputs: N * T"],
            outputs: &["output: T", "value_index: int32"],
            attrs: &["T: type", "N: int >= 1"],
            flags: OpFlags::NONE,
        },
        shape: merge_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(Merge))],
    },
    Op {
        def: OpDef {
            name: "RefMerge",
            inputs: &["inputs: Ref(N * T)"],
            outputs: &["output: Ref(T)", "value_index: int32"],
            attrs: &["T: type", "N: int >= 1"],
            flags: OpFlags::NONE,
        },
        shape: merge_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(Merge))],
    },
    Op {
        def: OpDef {
            name: "RefSelect",
            inputs: &["index: int32", "inputs: Ref(N * T)"],
            outputs: &["output: Ref(T)"],
            attrs: &["T: type", "N: int >= 1"],
            flags: OpFlags::NONE,
        },
        shape: ref_select_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(RefSelect))],
    },
];

/// Passes `data` to the second output if `pred` is true and to the first otherwise; the other output is dead.
#[track_caller]
pub fn switch(data: &Output, pred: &Output) -> (Output, Output) {
    let op = data.graph().op(if data.is_ref() { "RefSwitch" } else { "Switch" }).input(data).input(pred).build();
    (op.output(0), op.output(1))
}

/// Returns the input that isn't dead, and its index.
#[track_caller]
pub fn merge(inputs: &[Output]) -> (Output, Output) {
    let Some(first) = inputs.first() else {
        let status = tensor::Status::invalid_argument("merge needs at least one input");
        let nothing = graph::builder::mistaken_output("Merge", status);
        return (nothing.clone(), nothing);
    };
    let all_refs = inputs.iter().all(Output::is_ref);
    let op = first.graph().op(if all_refs { "RefMerge" } else { "Merge" }).inputs(inputs).build();
    (op.output(0), op.output(1))
}

fn switch_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(1, 0)?;
    shape::unchanged(c)
}

/// The value may come from an input of unknown shape; sizes that differ are unknown.
fn merge_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let mut common = c.input(0);
    for index in 1..c.num_inputs() {
        let other = c.input(index);
        common = match (common.dims(), other.dims()) {
            (Some(a), Some(b)) if a.len() == b.len() => {
                let dims: Vec<_> = a.iter().zip(b).map(|(a, b)| if a == b { *a } else { None }).collect();
                PartialShape::new(&dims)
            }
            _ => PartialShape::unknown(),
        };
    }
    c.set_output(0, common);
    c.set_output(1, PartialShape::scalar());
    // Only properties of all inputs' handles hold for the merged one.
    if let Some(first) = c.input_handles.first()
        && c.input_handles.iter().all(|handle| handle == first)
        && let Some(output) = c.output_handles.first_mut()
    {
        output.clone_from(first);
    }
    Ok(())
}

fn ref_select_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, 0)?;
    let first = c.input(1);
    if first.is_fully_defined() && (2..c.num_inputs()).all(|index| c.input(index) == first) {
        c.set_output(0, first);
    }
    Ok(())
}

struct Switch;

impl Kernel for Switch {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let pred = context.input(1)?;
        if pred.num_elements() != 1 {
            return Err(Status::invalid_argument(format!(
                "The second input must be a scalar, but it has shape {}",
                pred.shape()
            )));
        }
        let taken = usize::from(pred.to_scalar::<bool>()?);
        let data = context.take_value(0);
        context.set_output_value(taken, data);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct SwitchN;

impl Kernel for SwitchN {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let index = context.scalar::<i32>(1, "The second input")?;
        let last = context.num_outputs().saturating_sub(1);
        // For an index out of range the last branch is taken, as in Case.
        let taken = usize::try_from(index).map_or(last, |index| index.min(last));
        let data = context.take_value(0);
        context.set_output_value(taken, data);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct Merge;

impl Kernel for Merge {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let alive = (0..context.num_inputs()).find(|&index| !matches!(context.value(index), Value::None));
        let Some(index) = alive else {
            return Err(Status::internal("Merge was run without a live input"));
        };
        let value = context.take_value(index);
        context.set_output_value(0, value);
        context.set_output(1, Tensor::scalar(index as i32));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct RefSelect;

impl Kernel for RefSelect {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let index = context.scalar::<i32>(0, "Index")?;
        let count = context.num_inputs() - 1;
        let Some(index) = usize::try_from(index).ok().filter(|&index| index < count) else {
            return Err(Status::invalid_argument(format!("Index must be in the range [0, {count}) but got {index}")));
        };
        let value = context.take_value(1 + index);
        context.set_output_value(0, value);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape};
    use graph::{AttrMap, Graph};
    use kernel::{BoxedKernel, OpContext, Outputs, Step, Value, Values};
    use std::sync::Arc;
    use tensor::{DType, Result, Tensor};

    /// Runs an op on inputs of which some are dead.
    fn run(op: &str, attrs: AttrMap, inputs: &[Option<Tensor>]) -> Result<Outputs> {
        let graph = Graph::with_ops(crate::registry());
        let mut builder = graph.op(op);
        for input in inputs {
            let dtype = input.as_ref().map_or(DType::Float, Tensor::dtype);
            builder = builder.input(&graph.op("Placeholder").attr("dtype", dtype).output());
        }
        for (name, value) in attrs {
            builder = builder.attr(&name, value);
        }
        let id = builder.try_build()?.id();
        let node = graph.graph().node(id).clone();
        let BoxedKernel::Sync(kernel) = crate::registry().create_kernel(&node, "")? else {
            panic!("{op} doesn't wait")
        };
        let mut values: Values = inputs.iter().map(|input| input.clone().map_or(Value::None, Value::Tensor)).collect();
        let mut outputs: Outputs = node.output_types.iter().map(|_| Value::None).collect();
        let step = Arc::new(Step::detached());
        kernel.compute(&mut OpContext::new(&mut values, &mut outputs, &step, "n", Default::default(), false))?;
        Ok(outputs)
    }

    fn is_alive(value: &Value) -> bool {
        !matches!(value, Value::None)
    }

    #[test]
    fn switches() {
        let data = Some(Tensor::vector(&[1f32]));
        for pred in [false, true] {
            let outputs = run("Switch", attrs![], &[data.clone(), Some(Tensor::scalar(pred))]).unwrap();
            assert_eq!((is_alive(&outputs[0]), is_alive(&outputs[1])), (!pred, pred));
        }
        assert!(run("Switch", attrs![], &[data.clone(), Some(Tensor::vector::<bool>(&[]))]).is_err());
        for (index, taken) in [(0, 0), (1, 1), (7, 2), (-1, 2)] {
            let inputs = [data.clone(), Some(Tensor::scalar(index))];
            let outputs = run("_SwitchN", attrs![("num_outs", 3i64)], &inputs).unwrap();
            let alive: Vec<usize> = (0..3).filter(|&index| is_alive(&outputs[index])).collect();
            assert_eq!(alive, [taken]);
        }
    }

    #[test]
    fn merges() {
        let outputs = run("Merge", attrs![], &[None, Some(Tensor::scalar(5f32))]).unwrap();
        let Value::Tensor(index) = &outputs[1] else { panic!("no index") };
        assert_eq!(index.to_scalar::<i32>().unwrap(), 1);
        assert!(is_alive(&outputs[0]));
        assert!(run("Merge", attrs![], &[None, None]).is_err());
    }

    #[test]
    fn shapes() {
        check_shape("Switch", attrs![], "[2,?];[]", "[2,?];[2,?]");
        check_shape("Merge", attrs![("N", 2i64)], "[2,3];[2,4]", "[2,?];[]");
        check_shape("Merge", attrs![("N", 2i64)], "[2,3];[2]", "?;[]");
        check_shape("RefSelect", attrs![("N", 2i64)], "[];[2];[2]", "[2]");
    }
}
