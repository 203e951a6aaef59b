//! [`OpReduction`]: a reduction by the kernels of ordinary ops, as TensorFlow computes it: Add, Mul, Maximum or Minimum for each
//! member, and Div at the end for a mean. Sums and means of floats, such as gradients, are computed in one pass over memory if
//! all values are available at once.

use graph::{Node, OpLookup};
use half::{bf16, f16};
use kernel::{
    AttrMap, BoxedKernel, FrameAndIteration, Kernel, KernelBuilder, OpContext, Outputs, Reduction, ReductionPlan, Step,
    Value, Values,
};
use numeric::combine::combine;
use numeric::denormals::FlushDenormals;
use std::ops::Add;
use std::sync::Arc;
use tensor::{DType, Element, Result, Status, Tensor};

/// A reduction of elements of one type.
struct OpReduction {
    merge: Box<dyn Kernel>,
    is_sum: bool,
    divide: Option<Box<dyn Kernel>>,
}

/// Returns the reduction that a node's attributes name; `merge_attr` is the attribute with the name of the op.
pub(super) fn reduction_plan(builder: &KernelBuilder<'_>, merge_attr: &str) -> Result<ReductionPlan> {
    let attrs = builder.attrs();
    let dtype = attrs.dtype("T")?;
    let merge = attrs.string(merge_attr)?;
    let merge = match merge.as_str() {
        "Max" => "Maximum",
        "Min" => "Minimum",
        other => other,
    };
    // A reduction without the attribute has no final op.
    let divides = attrs.contains_key("final_op") && attrs.string("final_op")? == "Div";
    let reduction = OpReduction {
        merge: kernel_of(merge, dtype, builder.device)?,
        is_sum: merge == "Add",
        divide: if divides { Some(kernel_of("Div", dtype, builder.device)?) } else { None },
    };
    let int32 = |value: i64| {
        i32::try_from(value).map_err(|_| Status::invalid_argument(format!("{value} is out of range for an int32")))
    };
    let has = |name: &str| attrs.contains_key(name);
    Ok(ReductionPlan {
        reduction: Arc::new(reduction),
        subdiv_offsets: match has("subdiv_offsets") {
            true => attrs.ints("subdiv_offsets")?.iter().map(|&offset| int32(offset)).collect::<Result<_>>()?,
            false => Vec::new(),
        },
        max_subdivs_per_device: match has("max_subdivs_per_device") {
            true => int32(attrs.int("max_subdivs_per_device")?)?,
            false => -1,
        },
    })
}

fn kernel_of(op: &str, dtype: DType, device: &str) -> Result<Box<dyn Kernel>> {
    let registry = crate::registry();
    let info = registry.op(op).ok_or_else(|| Status::not_found(format!("Op type not registered '{op}'")))?;
    let mut attrs = AttrMap::default();
    attrs.set("T", dtype);
    let node = Node::new(op.to_owned(), info.schema.clone(), device.to_owned(), attrs)?;
    match registry.create_kernel(&node, device)? {
        BoxedKernel::Sync(kernel) => Ok(kernel),
        BoxedKernel::Async(_) => Err(Status::internal(format!("{op} can't reduce, because it may wait"))),
    }
}

fn compute(kernel: &dyn Kernel, step: &Arc<Step>, left: Tensor, right: Tensor) -> Result<Tensor> {
    let _flush = FlushDenormals::begin();
    let mut inputs: Values = [Value::Tensor(left), Value::Tensor(right)].into_iter().collect();
    let mut outputs: Outputs = std::iter::once(Value::None).collect();
    kernel.compute(&mut OpContext::new(
        &mut inputs,
        &mut outputs,
        step,
        "reduction",
        FrameAndIteration::default(),
        false,
    ))?;
    match outputs.pop() {
        Some(Value::Tensor(tensor)) => Ok(tensor),
        _ => Err(Status::internal("a reduction has no result")),
    }
}

impl Reduction for OpReduction {
    fn merge(&self, step: &Arc<Step>, own: Tensor, received: Tensor) -> Result<Tensor> {
        compute(&*self.merge, step, own, received)
    }

    fn reduce_at_once(&self, given: &[Tensor]) -> Option<Result<Tensor>> {
        let first = given.first().filter(|_| self.is_sum && given.len() > 1)?;
        let group_size = self.divide.is_some().then_some(given.len());
        match first.dtype() {
            DType::Float => Some(sum(given, group_size.map(|size| move |sum: f32| sum / size as f32))),
            DType::Double => Some(sum(given, group_size.map(|size| move |sum: f64| sum / size as f64))),
            _ => None,
        }
    }

    fn finish(&self, step: &Arc<Step>, merged: Tensor, group_size: usize) -> Result<Tensor> {
        let Some(divide) = &self.divide else { return Ok(merged) };
        let divisor = match merged.dtype() {
            DType::Float => Tensor::scalar(group_size as f32),
            DType::Double => Tensor::scalar(group_size as f64),
            DType::Half => Tensor::scalar(f16::from_f32(group_size as f32)),
            DType::BFloat16 => Tensor::scalar(bf16::from_f32(group_size as f32)),
            DType::Int32 => Tensor::scalar(group_size as i32),
            DType::Int64 => Tensor::scalar(group_size as i64),
            other => return Err(Status::invalid_argument(format!("a mean of {other} elements is not defined"))),
        };
        compute(&**divide, step, merged, divisor)
    }
}

/// Adds values of the same shape, and divides the sum for a mean.
fn sum<T: Element + Add<Output = T>>(given: &[Tensor], divide: Option<impl Fn(T) -> T + Sync>) -> Result<Tensor> {
    let _flush = FlushDenormals::begin();
    let values: Vec<&[T]> = given.iter().map(Tensor::as_slice).collect::<Result<_>>()?;
    let shape = given[0].shape();
    if given.iter().any(|value| value.shape() != shape) {
        return Err(Status::internal("the members of a reduction give different shapes"));
    }
    Tensor::build(shape.clone(), |sums| combine(&values, sums, |x, y| x + y, divide))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_every_type_are_reduced_as_their_ops_do() {
        let step = Arc::new(Step::detached());
        for dtype in [DType::BFloat16, DType::Float, DType::Half, DType::Double, DType::Int32, DType::Int64] {
            for op in ["Add", "Mul", "Maximum", "Minimum"] {
                kernel_of(op, dtype, &step.device).unwrap();
            }
            kernel_of("Div", dtype, &step.device).unwrap();
        }
        let mean = OpReduction {
            merge: kernel_of("Add", DType::Int32, &step.device).unwrap(),
            is_sum: true,
            divide: Some(kernel_of("Div", DType::Int32, &step.device).unwrap()),
        };
        let merged = mean.merge(&step, Tensor::vector(&[1i32, -4]), Tensor::vector(&[2i32, -1])).unwrap();
        assert_eq!(merged.as_slice::<i32>().unwrap(), [3, -5]);
        let mean = mean.finish(&step, merged, 2).unwrap();
        assert_eq!(mean.as_slice::<i32>().unwrap(), [1, -2], "integers are divided as TensorFlow's Div does");
    }

    #[test]
    fn sums_in_one_pass_are_those_of_the_kernels() {
        let step = Arc::new(Step::detached());
        let reduction = |divides: bool| OpReduction {
            merge: kernel_of("Add", DType::Float, &step.device).unwrap(),
            is_sum: true,
            divide: divides.then(|| kernel_of("Div", DType::Float, &step.device).unwrap()),
        };
        let part = |member: i32| (0..5000).map(|index| (index * member) as f32 / 3.1).collect::<Vec<f32>>();
        let given: Vec<Tensor> = (1..4).map(|member| Tensor::vector(&part(member))).collect();
        for divides in [false, true] {
            let reduction = reduction(divides);
            let at_once = reduction.reduce(&step, given.clone()).unwrap();
            let merged = reduction.merge(&step, given[0].clone(), given[1].clone()).unwrap();
            let merged = reduction.merge(&step, merged, given[2].clone()).unwrap();
            let expected = reduction.finish(&step, merged, 3).unwrap();
            assert_eq!(at_once.as_slice::<f32>().unwrap(), expected.as_slice::<f32>().unwrap());
        }
        let mut other = given;
        other.push(Tensor::vector(&[1f32]));
        assert!(reduction(true).reduce(&step, other).is_err());
    }
}
