//! MapDefun: calls a function for each row of tensors.

use super::base::Element;
use super::functional::CapturedFunctionDef;
use super::sources::row;
use super::task::{or_cancelled, start, turn};
use crate::data_flow::stack;
use kernel::{
    AsyncContext, AsyncKernel, BoxedKernel, Gradient, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags,
    ShapeContext, Step,
};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "MapDefun",
        inputs: &["arguments: Targuments", "captured_inputs: Tcaptured"],
        outputs: &["output: output_types"],
        attrs: &[
            "Targuments: list(type) >= 1",
            "Tcaptured: list(type) >= 0 = []",
            "output_types: list(type) >= 1",
            "output_shapes: list(shape) >= 1",
            "f: func",
            "max_intra_op_parallelism: int = 1",
        ],
        flags: OpFlags::NONE,
    },
    shape: output_shape,
    gradient: Gradient::Unsupported,
    kernels: &[KernelDef::any(MapDefun::create)],
}];

fn output_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shapes = c.attrs.shapes("output_shapes")?;
    if shapes.len() != c.num_outputs() {
        return Err(Status::invalid_argument(format!(
            "`output_shapes` must be the same length as `output_types` ({} vs {})",
            shapes.len(),
            c.num_outputs()
        )));
    }
    let mut rows = None;
    for index in 0..c.attrs.dtypes("Targuments")?.len() {
        let shape = c.input(index);
        if shape.rank() == Some(0) {
            return Err(Status::invalid_argument("Arguments must have rank at least 1. Input is a scalar."));
        }
        if shape.rank().is_none() {
            continue;
        }
        let found = shape.dim(0);
        if let (Some(rows), Some(found)) = (rows, found)
            && rows != found
        {
            return Err(Status::invalid_argument("All inputs must have the same dimension 0."));
        }
        rows = rows.or(found);
    }
    for (index, shape) in shapes.iter().enumerate() {
        c.set_output(index, PartialShape::new(&[rows]).concat(shape));
    }
    Ok(())
}

/// The most parallel calls of a node.
const CALLS_MAX: usize = 64;

struct MapDefun {
    function: CapturedFunctionDef,
    arguments: Range<usize>,
    dtypes: Vec<DType>,
    shapes: Vec<PartialShape>,
}

impl MapDefun {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new_async(MapDefun {
            function: CapturedFunctionDef::with_inputs(builder, "f", "captured_inputs")?,
            arguments: builder.input_range("arguments")?,
            dtypes: builder.attrs().dtypes("output_types")?,
            shapes: builder.attrs().shapes("output_shapes")?,
        })
    }

    fn arguments(&self, context: &OpContext<'_>) -> Result<(Element, usize)> {
        let arguments: Element = context.input_list(self.arguments.clone())?.into_iter().cloned().collect();
        let rows = arguments.first().and_then(|argument| argument.dims().first()).copied();
        let Some(rows) = rows else {
            return Err(Status::invalid_argument("All inputs must have rank at least 1. Input 0 has a rank of 0."));
        };
        if arguments.iter().any(|argument| argument.dims().first() != Some(&rows)) {
            return Err(Status::invalid_argument("All inputs must have the same dimension 0."));
        }
        Ok((arguments, rows as usize))
    }
}

impl AsyncKernel for MapDefun {
    fn compute(&self, mut context: AsyncContext) {
        let step = context.step().clone();
        let prepared = {
            let op = context.op();
            self.arguments(&op).and_then(|arguments| Ok((arguments, self.function.bind(&op)?)))
        };
        let ((arguments, rows), function) = match prepared {
            Ok(prepared) => prepared,
            Err(status) => return context.finish(Err(status)),
        };
        let (dtypes, shapes) = (self.dtypes.clone(), self.shapes.clone());
        start(async move {
            let results = mapped_rows(&arguments, rows, &function, &step).await;
            let outputs = results.and_then(|results| stacked(&results, &dtypes, &shapes));
            context.finish_with(|context| {
                for (index, output) in outputs?.into_iter().enumerate() {
                    context.set_output(index, output);
                }
                Ok(())
            });
        });
    }
}

async fn mapped_rows(
    arguments: &Element,
    rows: usize,
    function: &super::functional::CapturedFunction,
    step: &Arc<Step>,
) -> Result<Vec<Element>> {
    let (mut running, mut results) = (VecDeque::new(), Vec::with_capacity(rows));
    let mut next = 0;
    while results.len() < rows {
        turn(step).await?;
        while next < rows && running.len() < CALLS_MAX {
            let element = arguments.iter().map(|argument| row(argument, next)).collect::<Result<Element>>()?;
            running.push_back(function.call_elsewhere(element, step));
            next += 1;
        }
        let Some(call) = running.pop_front() else { break };
        results.push(or_cancelled(step, call).await??);
    }
    Ok(results)
}

fn stacked(results: &[Element], dtypes: &[DType], shapes: &[PartialShape]) -> Result<Element> {
    dtypes
        .iter()
        .zip(shapes)
        .enumerate()
        .map(|(index, (&dtype, shape))| {
            let parts = results.iter().map(|element| element.get(index)).collect::<Option<Vec<&Tensor>>>();
            let parts = parts.ok_or_else(|| {
                Status::invalid_argument(format!("the function must return {} tensors", dtypes.len()))
            })?;
            for part in &parts {
                if part.dtype() != dtype {
                    return Err(Status::invalid_argument(format!(
                        "output {index} of the function is {}, but should be {dtype}",
                        part.dtype()
                    )));
                }
                if !shape.is_compatible_with(part.shape()) {
                    return Err(Status::invalid_argument(format!(
                        "output {index} of the function has shape {}, but should have {shape}",
                        part.shape()
                    )));
                }
            }
            let Some(first) = parts.first() else {
                let dims = (0..shape.rank().unwrap_or(0)).map(|axis| shape.dim(axis).unwrap_or(0));
                return Tensor::zeros(dtype, Shape::vector(0).concat(&Shape::new(&dims.collect::<Vec<_>>())?)?);
            };
            if let Some(part) = parts.iter().find(|part| part.shape() != first.shape()) {
                return Err(Status::invalid_argument(format!(
                    "output {index} of the function has shapes {} and {} for different rows",
                    first.shape(),
                    part.shape()
                )));
            }
            stack(dtype, first.shape(), &parts)
        })
        .collect()
}
