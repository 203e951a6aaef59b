//! One time step of long short-term memory: LSTMBlockCell, LSTMBlockCellGrad.
//!
//! The gates are in the order of BlockLSTM: input, cell, forget, output.

use super::lstm::{Cell, Element, Weights, floats, join_rows, kernel, tensor_of};
use graph::ShapeContext;
use kernel::{BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, Op, OpContext, OpDef, OpFlags};
use numeric::matmul::{MatMulShape, matmul};
use tensor::{DType, PartialShape, Result, Shape, Status};

const GRAD_INPUTS: &[&str] = &[
    "x: T",
    "cs_prev: T",
    "h_prev: T",
    "w: T",
    "wci: T",
    "wcf: T",
    "wco: T",
    "b: T",
    "i: T",
    "cs: T",
    "f: T",
    "o: T",
    "ci: T",
    "co: T",
    "cs_grad: T",
    "h_grad: T",
];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "LSTMBlockCell",
            inputs: &["x: T", "cs_prev: T", "h_prev: T", "w: T", "wci: T", "wcf: T", "wco: T", "b: T"],
            outputs: &["i: T", "cs: T", "f: T", "o: T", "ci: T", "co: T", "h: T"],
            attrs: &[
                "forget_bias: float = 1.0",
                "cell_clip: float = 3.0",
                "use_peephole: bool = false",
                "T: {half, float}",
            ],
            flags: OpFlags::NONE,
        },
        shape: cell_shape,
        gradient: Gradient::Unsupported,
        kernels: &[kernel(DType::Float, LstmCell::create), kernel(DType::Half, LstmCell::create)],
    },
    Op {
        def: OpDef {
            name: "LSTMBlockCellGrad",
            inputs: GRAD_INPUTS,
            outputs: &["cs_prev_grad: T", "dicfo: T", "wci_grad: T", "wcf_grad: T", "wco_grad: T"],
            attrs: &["use_peephole: bool", "T: {half, float}"],
            flags: OpFlags::NONE,
        },
        shape: grad_shape,
        gradient: Gradient::Unsupported,
        kernels: &[kernel(DType::Float, LstmCellGrad::create), kernel(DType::Half, LstmCellGrad::create)],
    },
];

fn cell_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (x, cs_prev) = (c.with_rank(0, 2)?, c.with_rank(1, 2)?);
    for output in 0..7 {
        c.set_output(output, PartialShape::new(&[x.dim(0), cs_prev.dim(1)]));
    }
    Ok(())
}

fn grad_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (x, cs_prev) = (c.with_rank(0, 2)?, c.with_rank(1, 2)?);
    let (batch, cells) = (x.dim(0), cs_prev.dim(1));
    c.set_output(0, PartialShape::new(&[batch, cells]));
    c.set_output(1, PartialShape::new(&[batch, cells.and_then(|cells| cells.checked_mul(4))]));
    for output in 2..5 {
        c.set_output(output, PartialShape::new(&[cells]));
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    inputs: usize,
    cells: usize,
}

impl Sizes {
    /// Checks the inputs of the op, or of its gradient, which has all of them.
    fn of(context: &OpContext<'_>) -> Result<Sizes> {
        let (x, cs_prev) = (context.input(0)?, context.input(1)?);
        let (&[batch, inputs], &[_, cells]) = (x.dims(), cs_prev.dims()) else {
            return Err(Status::invalid_argument(format!(
                "x and cs_prev must be 2D, got {} and {}",
                x.shape(),
                cs_prev.shape()
            )));
        };
        let (Some(gates), Some(rows)) = (cells.checked_mul(4), inputs.checked_add(cells)) else {
            return Err(Status::invalid_argument("the sizes of x and cs_prev are too large"));
        };
        for index in 1..context.num_inputs() {
            let expected: &[i64] = match index {
                3 => &[rows, gates],
                4..=6 => &[cells],
                7 => &[gates],
                _ => &[batch, cells],
            };
            check_dims(context, index, expected)?;
        }
        Ok(Sizes { batch: batch as usize, inputs: inputs as usize, cells: cells as usize })
    }

    fn shape(self, width: usize) -> Result<Shape> {
        Shape::from_usize(&[self.batch, width])
    }
}

/// Refuses an input of another shape, with TensorFlow's message for a wrong size.
fn check_dims(context: &OpContext<'_>, index: usize, expected: &[i64]) -> Result<()> {
    let dims = context.input(index)?.dims();
    if dims == expected {
        return Ok(());
    }
    let name = GRAD_INPUTS[index].trim_end_matches(": T");
    let (shown, said) = match (index, name) {
        (3, _) => (format!("{name}.dim_size"), ["input_size + cell_size", "cell_size * 4"]),
        (7, _) => (format!("{name}.dim_size"), ["cell_size * 4", ""]),
        (4..=6, _) => (format!("{name}.dim_size"), ["cell_size", ""]),
        (1 | 2, _) => (format!("{name}.dims"), ["batch_size", "cell_size"]),
        (14 | 15, _) => (format!("{name}_tensor.dims"), ["batch_size", "cell_size"]),
        // TensorFlow names i if f has the wrong size.
        (_, "f") if dims.first() == expected.first() => ("i.dim_size".to_owned(), ["batch_size", "cell_size"]),
        _ => (format!("{name}.dim_size"), ["batch_size", "cell_size"]),
    };
    let different = (0..expected.len()).find(|&axis| dims.get(axis).is_some_and(|&dim| dim != expected[axis]));
    Err(Status::invalid_argument(match different {
        Some(axis) => {
            format!("{shown}({axis}) != {}: {} vs. {}", said[axis], dims[axis], expected[axis])
        }
        None => format!("{name} must have shape {expected:?}, got {dims:?}"),
    }))
}

struct LstmCell {
    cell: Cell,
    dtype: DType,
}

impl LstmCell {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(LstmCell { cell: Cell::new(builder)?, dtype: builder.output_dtype(0) })
    }
}

impl Kernel for LstmCell {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let sizes = Sizes::of(context)?;
        let shape = sizes.shape(sizes.cells)?;
        let states = shape.num_elements();
        let mut outputs: [Vec<f32>; 7] = std::array::from_fn(|_| vec![0.0; states]);
        if states > 0 {
            let input = |index: usize| floats(context, index);
            let (x, cs_prev, h_prev, w) = (input(0)?, input(1)?, input(2)?, input(3)?);
            let (wci, wcf, wco, b) = (input(4)?, input(5)?, input(6)?, input(7)?);
            let width = sizes.inputs + sizes.cells;
            let mut joined = vec![0.0; sizes.batch * width];
            let mut gates = vec![0.0; 4 * states];
            join_rows(sizes.batch, &x, sizes.inputs, &h_prev, sizes.cells, &mut joined);
            matmul(MatMulShape::new(sizes.batch, width, 4 * sizes.cells), &joined, &w, &mut gates);
            let weights = Weights { b: &b, wci: &wci, wcf: &wcf, wco: &wco };
            for index in 0..states {
                let values = self.cell.values(sizes.cells, index, &gates, &weights, cs_prev[index]);
                outputs.iter_mut().zip(values).for_each(|(output, value)| output[index] = value);
            }
        }
        for (index, output) in outputs.iter().enumerate() {
            context.set_output(index, tensor_of(self.dtype, shape.clone(), output)?);
        }
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

struct LstmCellGrad {
    use_peephole: bool,
    dtype: DType,
}

impl LstmCellGrad {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let use_peephole = builder.attrs().bool("use_peephole")?;
        BoxedKernel::new(LstmCellGrad { use_peephole, dtype: builder.output_dtype(0) })
    }
}

impl Kernel for LstmCellGrad {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let sizes = Sizes::of(context)?;
        let cells = sizes.cells;
        let (shape, gates_shape) = (sizes.shape(cells)?, sizes.shape(4 * cells)?);
        let states = shape.num_elements();
        let (mut cs_prev_grad, mut gate_grads) = (vec![0.0; states], vec![0.0; 4 * states]);
        let mut peephole_grads: [Vec<f32>; 3] = std::array::from_fn(|_| vec![0.0; cells]);
        {
            let input = |index: usize| floats(context, index);
            let (cs_prev, wci, wcf, wco) = (input(1)?, input(4)?, input(5)?, input(6)?);
            let (i, cs, f, o, ci, co) = (input(8)?, input(9)?, input(10)?, input(11)?, input(12)?, input(13)?);
            let (cs_grads, h_grads) = (input(14)?, input(15)?);
            for index in 0..states {
                let (row, cell) = (index / cells, index % cells);
                let element = Element {
                    i: i[index],
                    f: f[index],
                    o: o[index],
                    ci: ci[index],
                    co: co[index],
                    cs_before: cs_prev[index],
                    cs_grad: cs_grads[index],
                    h_grad: h_grads[index],
                };
                let grads = element.grads(self.use_peephole.then(|| [wci[cell], wcf[cell], wco[cell]]));
                cs_prev_grad[index] = grads.cs_before;
                for (gate, grad) in [grads.i, grads.ci, grads.f, grads.o].into_iter().enumerate() {
                    gate_grads[(row * 4 + gate) * cells + cell] = grad;
                }
                if self.use_peephole {
                    let looked_at = [grads.i * cs_prev[index], grads.f * cs_prev[index], grads.o * cs[index]];
                    peephole_grads.iter_mut().zip(looked_at).for_each(|(sum, grad)| sum[cell] += grad);
                }
            }
        }
        context.set_output(0, tensor_of(self.dtype, shape, &cs_prev_grad)?);
        context.set_output(1, tensor_of(self.dtype, gates_shape, &gate_grads)?);
        for (index, grad) in peephole_grads.iter().enumerate() {
            context.set_output(2 + index, tensor_of(self.dtype, Shape::vector(cells), grad)?);
        }
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, run_op};
    use tensor::{Code, Shape, Tensor};

    fn wave(dims: &[i64], phase: f32) -> Tensor {
        let count = dims.iter().product::<i64>();
        let values: Vec<f32> = (0..count).map(|index| (index as f32 * 0.7 + phase).sin()).collect();
        Tensor::from_slice(dims, &values).unwrap()
    }

    /// Two rows, three inputs and two cells.
    fn inputs() -> Vec<Tensor> {
        let shapes: [&[i64]; 8] = [&[2, 3], &[2, 2], &[2, 2], &[5, 8], &[2], &[2], &[2], &[8]];
        shapes.into_iter().enumerate().map(|(index, dims)| wave(dims, index as f32)).collect()
    }

    /// A cell is a sequence with a single time step.
    #[test]
    fn a_cell_does_what_a_sequence_of_one_time_does() {
        for use_peephole in [false, true] {
            let attrs = || attrs![("use_peephole", use_peephole)];
            let cell = run_op("LSTMBlockCell", attrs(), &inputs()).unwrap();
            let mut sequence = inputs();
            sequence[0] = sequence[0].reshape(Shape::new(&[1, 2, 3]).unwrap()).unwrap();
            sequence.insert(0, Tensor::scalar(1i64));
            let whole = run_op("BlockLSTM", attrs(), &sequence).unwrap();
            for (cell, whole) in cell.iter().zip(&whole) {
                assert_eq!(cell.as_slice::<f32>().unwrap(), whole.as_slice::<f32>().unwrap());
            }
            let (cs_grad, h_grad) = (wave(&[2, 2], 0.3), wave(&[2, 2], 0.9));
            let mut given = [inputs(), cell].concat();
            *given.last_mut().unwrap() = cs_grad.clone();
            given.push(h_grad.clone());
            let of_cell = run_op("LSTMBlockCellGrad", attrs(), &given).unwrap();
            let whole = whole.into_iter().chain([cs_grad, h_grad]).enumerate().map(|(index, tensor)| match index {
                7 | 8 => tensor.reshape(Shape::new(&[1, 2, 2]).unwrap()).unwrap(),
                _ => tensor,
            });
            let of_whole =
                run_op("BlockLSTMGrad", attrs(), &sequence.into_iter().chain(whole).collect::<Vec<_>>()).unwrap();
            assert_eq!(of_cell[0].as_slice::<f32>().unwrap(), of_whole[1].as_slice::<f32>().unwrap());
            for peephole in 0..3 {
                let (cell, whole) = (&of_cell[2 + peephole], &of_whole[4 + peephole]);
                assert_eq!(cell.as_slice::<f32>().unwrap(), whole.as_slice::<f32>().unwrap());
            }
            let gates = of_cell[1].as_slice::<f32>().unwrap();
            let bias: Vec<f32> = (0..8).map(|gate| gates[gate] + gates[8 + gate]).collect();
            for (gate, whole) in bias.iter().zip(of_whole[7].as_slice::<f32>().unwrap()) {
                assert!((gate - whole).abs() < 1e-6, "{gate} and {whole}");
            }
        }
    }

    #[test]
    fn mistakes_and_shapes() {
        for index in 0..8 {
            let mut wrong = inputs();
            wrong[index] = Tensor::vector(&[1f32; 7]);
            let status = run_op("LSTMBlockCell", attrs![], &wrong).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{index}");
        }
        check_shape("LSTMBlockCell", attrs![], "[4,3];[4,2];[4,2];[5,8];[2];[2];[2];[8]", &["[4,2]"; 7].join(";"));
    }
}
