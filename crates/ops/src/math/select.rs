//! Element-wise selection from two tensors: Select, SelectV2.

use crate::compose::{Gradients, reduce_broadcast, select, ternary, unary};
use graph::Output;
use kernel::{
    BoxedKernel, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext,
    shape,
};
use numeric::elementwise::{self, Broadcast};
use tensor::{Complex32, Complex64, DType, Element, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Select",
            inputs: &["condition: bool", "t: T", "e: T"],
            outputs: &["output: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: select_shape,
        gradient: Gradient::Fn(select_gradient),
        kernels: &[KernelDef::any(|builder| create(builder, Rule::Rows))],
    },
    Op {
        def: OpDef {
            name: "SelectV2",
            inputs: &["condition: bool", "t: T", "e: T"],
            outputs: &["output: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: select_v2_shape,
        gradient: Gradient::Fn(select_v2_gradient),
        kernels: &[KernelDef::any(|builder| create(builder, Rule::Broadcast))],
    },
];

/// Returns `x` where the condition is true and `y` elsewhere, with broadcasting (`tf.where` of version 2).
#[track_caller]
pub fn where_v2(condition: &Output, x: &Output, y: &Output) -> Output {
    condition.graph().op("SelectV2").input(condition).input(x).input(y).output()
}

/// Returns `x` where the condition is true and `y` elsewhere; a vector chooses whole rows (`tf.where` of version 1).
#[track_caller]
pub fn select_rows(condition: &Output, x: &Output, y: &Output) -> Output {
    condition.graph().op("Select").input(condition).input(x).input(y).output()
}

fn select_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let data = c.merged(1, 2)?;
    let condition = c.input(0);
    match condition.rank() {
        None | Some(0) => {}
        Some(rank) => {
            let Some(data_rank) = data.rank() else {
                c.set_output(0, PartialShape::unknown());
                return Ok(());
            };
            if rank == 1 && data_rank != 1 {
                if data_rank == 0 {
                    return Err(Status::invalid_argument("Shape must be at least rank 1 but is rank 0"));
                }
                condition.merge(&data.slice(0, 1))?;
            } else {
                let merged = condition.merge(&data)?;
                c.set_output(0, merged);
                return Ok(());
            }
        }
    }
    c.set_output(0, data);
    Ok(())
}

fn select_v2_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let data = shape::broadcast(&c.input(1), &c.input(2))?;
    let output = shape::broadcast(&c.input(0), &data)?;
    c.set_output(0, output);
    Ok(())
}

fn select_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 3]) };
    let (condition, x) = (args.input(0), args.input(1));
    let zeros = unary("ZerosLike", &x)?;
    let grad_x = ternary("Select", &condition, &grad, &zeros)?;
    let grad_y = ternary("Select", &condition, &zeros, &grad)?;
    Ok(vec![None, Some(grad_x.into()), Some(grad_y.into())])
}

fn select_v2_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 3]) };
    let (condition, x, y) = (args.input(0), args.input(1), args.input(2));
    let output = args.output(0);
    let zeros = crate::compose::scalar(&grad, 0.0)?;
    let grad_x = select(&condition, &grad, &zeros)?;
    let grad_y = select(&condition, &zeros, &grad)?;
    let (grad_x, _) = reduce_broadcast(&x, &output, Some(grad_x), None)?;
    let (grad_y, _) = reduce_broadcast(&y, &output, Some(grad_y), None)?;
    Ok(vec![None, grad_x.map(Into::into), grad_y.map(Into::into)])
}

/// How the condition matches the operands.
#[derive(Clone, Copy)]
enum Rule {
    /// The same shape, or a scalar, or a vector that selects rows.
    Rows,
    /// All three are broadcast together.
    Broadcast,
}

struct Select {
    rule: Rule,
    choose: fn(&Tensor, &Tensor, &Tensor, &Broadcast<3>, Shape) -> Result<Tensor>,
}

fn create(builder: &KernelBuilder<'_>, rule: Rule) -> Result<BoxedKernel> {
    let choose = match builder.output_dtype(0) {
        DType::Bool => choose_plain::<bool>,
        DType::Complex64 => choose_plain::<Complex32>,
        DType::Complex128 => choose_plain::<Complex64>,
        DType::String | DType::Resource | DType::Variant => choose_other,
        other => match other.size() {
            1 => choose_bits::<u8>,
            2 => choose_bits::<u16>,
            4 => choose_bits::<u32>,
            _ => choose_bits::<u64>,
        },
    };
    BoxedKernel::new(Select { rule, choose })
}

impl Kernel for Select {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let condition_shape = context.input(0)?.shape().clone();
        if condition_shape.is_scalar() && context.input(1)?.shape() == context.input(2)?.shape() {
            let which = if context.input(0)?.to_scalar::<bool>()? { 1 } else { 2 };
            let chosen = context.take_input(which)?;
            context.set_output(0, chosen);
            return Ok(());
        }
        let (condition, x, y) = (context.input(0)?, context.input(1)?, context.input(2)?);
        let (x_dims, y_dims) = (x.shape().to_usize(), y.shape().to_usize());
        let mut condition_dims = condition_shape.to_usize();
        if let Rule::Rows = self.rule {
            if x.shape() != y.shape() {
                return Err(Status::invalid_argument(format!(
                    "'then' and 'else' must have the same size.  but received: {} vs. {}",
                    x.shape(),
                    y.shape()
                )));
            }
            if condition_shape.is_vector() && x.shape().rank() != 1 {
                if x.shape().rank() == 0 || condition_dims[0] != x_dims[0] {
                    return Err(Status::invalid_argument(format!(
                        "Number of batches of 'then' must match size of 'cond', but saw: {} vs. {}",
                        x_dims.first().copied().unwrap_or(1),
                        condition_dims[0]
                    )));
                }
                condition_dims.resize(x_dims.len(), 1);
            } else if condition.shape() != x.shape() {
                return Err(Status::invalid_argument(format!(
                    "'cond' must be a vector or have the same shape as 'then' and 'else', but saw shapes {condition_shape} and {}",
                    x.shape()
                )));
            }
        }
        let plan = Broadcast::<3>::of([&condition_dims, &x_dims, &y_dims]).ok_or_else(|| {
            Status::invalid_argument(format!(
                "condition {condition_shape}, then {}, and else {} must be broadcastable",
                x.shape(),
                y.shape()
            ))
        })?;
        let shape = Shape::from_usize(plan.out_dims())?;
        let output = (self.choose)(condition, x, y, &plan, shape)?;
        context.set_output(0, output);
        Ok(())
    }
}

fn choose_plain<T: Element>(c: &Tensor, x: &Tensor, y: &Tensor, plan: &Broadcast<3>, shape: Shape) -> Result<Tensor> {
    let (c, x, y) = (c.as_slice::<bool>()?, x.as_slice::<T>()?, y.as_slice::<T>()?);
    Tensor::build(shape, |out: &mut [T]| elementwise::select(c, x, y, out, plan))
}

/// Selects elements by their bits, so that types of the same size share a loop.
fn choose_bits<T: Element>(c: &Tensor, x: &Tensor, y: &Tensor, plan: &Broadcast<3>, shape: Shape) -> Result<Tensor> {
    let dtype = x.dtype();
    let (x, y) = (x.clone().with_dtype(T::DTYPE)?, y.clone().with_dtype(T::DTYPE)?);
    choose_plain::<T>(c, &x, &y, plan, shape)?.with_dtype(dtype)
}

fn choose_other(c: &Tensor, x: &Tensor, y: &Tensor, plan: &Broadcast<3>, shape: Shape) -> Result<Tensor> {
    // Whether the element comes from `x`, and its position.
    let positions = |tensor: &Tensor| -> Vec<usize> { (0..tensor.num_elements()).collect() };
    let mut sources = vec![(false, 0usize); plan.out_len()];
    let conditions = c.as_slice::<bool>()?;
    elementwise::ternary(conditions, &positions(x), &positions(y), &mut sources, plan, |c, x, y| {
        (c, if c { x } else { y })
    });
    fn pick<T: Clone>(sources: &[(bool, usize)], x: &[T], y: &[T]) -> Vec<T> {
        sources.iter().map(|&(first, index)| if first { x[index].clone() } else { y[index].clone() }).collect()
    }
    match x.dtype() {
        DType::String => Tensor::from_strings(shape, pick(&sources, x.strings()?, y.strings()?)),
        DType::Resource => Tensor::from_resources(shape, pick(&sources, x.resources()?, y.resources()?)),
        _ => Tensor::from_variants(shape, pick(&sources, x.variants()?, y.variants()?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, check_shape, run_op};

    #[test]
    fn a_vector_chooses_rows() {
        let condition = Tensor::vector(&[true, false]);
        let x = Tensor::from_slice(&[2, 2], &[1f32, 2., 3., 4.]).unwrap();
        let y = Tensor::from_slice(&[2, 2], &[5f32, 6., 7., 8.]).unwrap();
        let z = run_op("Select", attrs![], &[condition.clone(), x.clone(), y.clone()]).unwrap();
        assert_eq!(z[0].as_slice::<f32>().unwrap(), &[1., 2., 7., 8.]);
        let z = run_op("SelectV2", attrs![], &[condition, x.clone(), y.clone()]).unwrap();
        assert_eq!(z[0].as_slice::<f32>().unwrap(), &[1., 6., 3., 8.]);
        assert!(run_op("Select", attrs![], &[Tensor::vector(&[true; 3]), x, y]).is_err());
    }

    #[test]
    fn strings_and_scalars() {
        let z =
            run_op("SelectV2", attrs![], &[Tensor::vector(&[true, false]), Tensor::string("a"), Tensor::string("b")]);
        assert_eq!(z.unwrap()[0].strings().unwrap(), &["a", "b"]);
        let (x, y) = (Tensor::vector(&[1i64, 2]), Tensor::vector(&[3i64, 4]));
        let z = run_op("Select", attrs![], &[Tensor::scalar(false), x, y]).unwrap();
        assert_eq!(z[0].as_slice::<i64>().unwrap(), &[3, 4]);
    }

    #[test]
    fn shapes() {
        check_shape("Select", attrs![], "[2];[?,3];[2,?]", "[2,3]");
        check_shape("SelectV2", attrs![], "[2,1];[3];[]", "[2,3]");
    }

    #[test]
    fn gradients() {
        let (x, y) = (Tensor::vector(&[1f64, 2.0]), Tensor::scalar(3f64));
        check_gradient(&[Tensor::vector(&[true, false]), x, y], |_, inputs| {
            where_v2(&inputs[0], &inputs[1], &inputs[2])
        });
    }
}
