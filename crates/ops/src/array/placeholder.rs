//! Placeholders: tensors that a run must feed, or may feed.

use crate::elementwise::PASS_THROUGH;
use graph::{Graph, Output, ShapeContext};
use kernel::{
    BoxedKernel, Cost, Grad, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags,
    shape,
};
use tensor::{DType, PartialShape, Result, Status};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Placeholder",
            inputs: &[],
            outputs: &["output: dtype"],
            attrs: &["dtype: type", "shape: shape = { unknown_rank: true }"],
            flags: OpFlags::NONE,
        },
        shape: shape::from_shape_attr,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(Placeholder::create)],
    },
    Op {
        def: OpDef {
            name: "PlaceholderV2",
            inputs: &[],
            outputs: &["output: dtype"],
            attrs: &["dtype: type", "shape: shape"],
            flags: OpFlags::NONE,
        },
        shape: shape::from_shape_attr,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(Placeholder::create)],
    },
    Op {
        def: OpDef {
            name: "PlaceholderWithDefault",
            inputs: &["input: dtype"],
            outputs: &["output: dtype"],
            attrs: &["dtype: type", "shape: shape"],
            flags: OpFlags::NONE,
        },
        shape: placeholder_with_default_shape,
        gradient: Gradient::Fn(placeholder_with_default_gradient),
        kernels: PASS_THROUGH,
    },
];

/// Returns a placeholder.
#[track_caller]
pub fn placeholder(graph: &Graph, dtype: DType, shape: &PartialShape) -> Output {
    graph.op("Placeholder").attr("dtype", dtype).attr("shape", shape.clone()).output()
}

/// Returns a placeholder whose default is `input`.
#[track_caller]
pub fn placeholder_with_default(input: &Output, shape: &PartialShape) -> Output {
    input.graph().op("PlaceholderWithDefault").input(input).attr("shape", shape.clone()).output()
}

fn placeholder_with_default_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    Ok(vec![args.grads.first().cloned().flatten()])
}

/// The attribute is the shape of feeds, and the default must match it.
fn placeholder_with_default_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.attrs.shape("shape")?;
    c.input(0).merge(&shape)?;
    c.set_output(0, shape);
    Ok(())
}

struct Placeholder {
    name: String,
    dtype: DType,
    shape: PartialShape,
}

impl Placeholder {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let (dtype, shape) = (builder.output_dtype(0), builder.attrs().shape("shape")?);
        BoxedKernel::new(Placeholder { name: builder.name().to_owned(), dtype, shape })
    }
}

impl Kernel for Placeholder {
    fn compute(&self, _: &mut OpContext<'_>) -> Result<()> {
        let shape = match self.shape.rank() {
            Some(rank) if rank > 0 => format!(" and shape {}", self.shape),
            _ => String::new(),
        };
        Err(Status::invalid_argument(format!(
            "You must feed a value for placeholder tensor '{}' with dtype {}{shape}",
            self.name, self.dtype
        )))
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, infer, run_op};
    use tensor::{Code, DType, PartialShape, Tensor};

    #[test]
    fn an_unfed_placeholder_says_so() {
        let shape = PartialShape::from_dims(&[-1, 3]);
        let status = run_op("Placeholder", attrs![("dtype", DType::Float), ("shape", shape)], &[]).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains("with dtype float and shape [?,3]"), "{status}");
    }

    #[test]
    fn a_default_passes_through_and_must_fit() {
        let shape = PartialShape::from_dims(&[-1]);
        let x = Tensor::vector(&[1f32, 2.0]);
        let y = run_op("PlaceholderWithDefault", attrs![("shape", shape.clone())], &[x]).unwrap();
        assert_eq!(y[0].as_slice::<f32>().unwrap(), &[1.0, 2.0]);
        check_shape("PlaceholderWithDefault", attrs![("shape", shape.clone())], "[2]", "[?]");
        assert!(infer("PlaceholderWithDefault", attrs![("shape", shape)], "[2,2]", &[]).is_err());
    }
}
