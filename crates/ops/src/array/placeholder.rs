//! Placeholders, which a run must feed.

use graph::{GraphBuilder, Output};
use kernel::{BoxedKernel, Cost, Gradient, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags, shape};
use tensor::{DType, PartialShape, Result, Status};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "Placeholder",
        inputs: &[],
        outputs: &["output: dtype"],
        attrs: &["dtype: type", "shape: shape = { unknown_rank: true }"],
        flags: OpFlags::NONE,
    },
    shape: shape::from_shape_attr,
    gradient: Gradient::NotDifferentiable,
    kernels: &[KernelDef::any(|builder| {
        let (dtype, shape) = (builder.output_dtype(0), builder.attrs().shape("shape")?);
        BoxedKernel::new(Placeholder { name: builder.name().to_owned(), dtype, shape })
    })],
}];

/// Returns a placeholder.
#[track_caller]
pub fn placeholder(graph: &GraphBuilder, dtype: DType, shape: &PartialShape) -> Output {
    graph.op("Placeholder").attr("dtype", dtype).attr("shape", shape.clone()).output()
}

struct Placeholder {
    name: String,
    dtype: DType,
    shape: PartialShape,
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
