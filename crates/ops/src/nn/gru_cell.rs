//! One time step of a gated recurrent unit: GRUBlockCell, GRUBlockCellGrad.

use super::lstm::{join_rows, sigmoid};
use graph::ShapeContext;
use kernel::{BoxedKernel, Cost, Gradient, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags};
use numeric::matmul::{MatMulShape, Operand, matmul};
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

const GRAD_INPUTS: &[&str] =
    &["x: T", "h_prev: T", "w_ru: T", "w_c: T", "b_ru: T", "b_c: T", "r: T", "u: T", "c: T", "d_h: T"];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "GRUBlockCell",
            inputs: &["x: T", "h_prev: T", "w_ru: T", "w_c: T", "b_ru: T", "b_c: T"],
            outputs: &["r: T", "u: T", "c: T", "h: T"],
            attrs: &["T: {float}"],
            flags: OpFlags::NONE,
        },
        shape: cell_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef { types: &[("T", DType::Float)], create: |_| BoxedKernel::new(GruCell) }],
    },
    Op {
        def: OpDef {
            name: "GRUBlockCellGrad",
            inputs: GRAD_INPUTS,
            outputs: &["d_x: T", "d_h_prev: T", "d_c_bar: T", "d_r_bar_u_bar: T"],
            attrs: &["T: {float}"],
            flags: OpFlags::NONE,
        },
        shape: grad_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef { types: &[("T", DType::Float)], create: |_| BoxedKernel::new(GruCellGrad) }],
    },
];

fn cell_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (x, h_prev) = (c.with_rank(0, 2)?, c.with_rank(1, 2)?);
    for output in 0..4 {
        c.set_output(output, PartialShape::new(&[x.dim(0), h_prev.dim(1)]));
    }
    Ok(())
}

fn grad_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (x, h_prev, w_ru) = (c.with_rank(0, 2)?, c.with_rank(1, 2)?, c.with_rank(2, 2)?);
    let states = PartialShape::new(&[x.dim(0), h_prev.dim(1)]);
    let twice = PartialShape::new(&[x.dim(0), w_ru.dim(1)]);
    c.set_output(0, x);
    c.set_output(1, states.clone());
    c.set_output(2, states);
    c.set_output(3, twice);
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
        let (x, h_prev) = (context.input(0)?, context.input(1)?);
        let (&[batch, inputs], &[_, cells]) = (x.dims(), h_prev.dims()) else {
            return Err(Status::invalid_argument(format!(
                "x and h_prev must be 2D, got {} and {}",
                x.shape(),
                h_prev.shape()
            )));
        };
        let (Some(twice), Some(rows)) = (cells.checked_mul(2), inputs.checked_add(cells)) else {
            return Err(Status::invalid_argument("the sizes of x and h_prev are too large"));
        };
        for index in 1..context.num_inputs() {
            let (expected, said): (&[i64], _) = match index {
                2 => (&[rows, twice], ["input_size + cell_size", "cell_size * 2"]),
                3 => (&[rows, cells], ["input_size + cell_size", "cell_size"]),
                4 => (&[twice], ["cell_size * 2", ""]),
                5 => (&[cells], ["cell_size", ""]),
                _ => (&[batch, cells], ["batch_size", "cell_size"]),
            };
            let dims = context.input(index)?.dims();
            if dims == expected {
                continue;
            }
            let name = GRAD_INPUTS[index].trim_end_matches(": T");
            let different = (0..expected.len()).find(|&axis| dims.get(axis).is_some_and(|&dim| dim != expected[axis]));
            return Err(Status::invalid_argument(match different {
                Some(axis) => {
                    let word = if (2..6).contains(&index) { "dim_size" } else { "dims" };
                    format!("{name}.{word}({axis}) != {}: {} vs. {}", said[axis], dims[axis], expected[axis])
                }
                None => format!("{name} must have shape {expected:?}, got {dims:?}"),
            }));
        }
        Ok(Sizes { batch: batch as usize, inputs: inputs as usize, cells: cells as usize })
    }

    fn tensor(self, width: usize, values: &[f32]) -> Result<Tensor> {
        Tensor::build(Shape::from_usize(&[self.batch, width])?, |out: &mut [f32]| out.copy_from_slice(values))
    }

    fn states(self) -> usize {
        self.batch * self.cells
    }

    /// Returns the rows of the input concatenated with those of a state, multiplied by weights.
    fn product(self, x: &[f32], state: &[f32], w: &[f32], width: usize) -> Vec<f32> {
        let depth = self.inputs + self.cells;
        let mut joined = vec![0.0; self.batch * depth];
        join_rows(self.batch, x, self.inputs, state, self.cells, &mut joined);
        let mut product = vec![0.0; self.batch * width];
        matmul(MatMulShape::new(self.batch, depth, width), &joined, w, &mut product);
        product
    }
}

struct GruCell;

impl Kernel for GruCell {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let sizes = Sizes::of(context)?;
        let cells = sizes.cells;
        let mut outputs: [Vec<f32>; 4] = std::array::from_fn(|_| vec![0.0; sizes.states()]);
        if sizes.states() > 0 {
            let input = |index: usize| context.slice::<f32>(index);
            let (x, h_prev, w_ru, w_c, b_ru, b_c) = (input(0)?, input(1)?, input(2)?, input(3)?, input(4)?, input(5)?);
            let [r, u, c, h] = &mut outputs;
            let gates = sizes.product(x, h_prev, w_ru, 2 * cells);
            for index in 0..sizes.states() {
                let (row, cell) = (index / cells, index % cells);
                let gate = |which: usize| sigmoid(gates[(row * 2 + which) * cells + cell] + b_ru[which * cells + cell]);
                (r[index], u[index]) = (gate(0), gate(1));
            }
            let kept: Vec<f32> = r.iter().zip(h_prev).map(|(r, h)| r * h).collect();
            let candidates = sizes.product(x, &kept, w_c, cells);
            for index in 0..sizes.states() {
                c[index] = (candidates[index] + b_c[index % cells]).tanh();
                h[index] = u[index] * h_prev[index] + (1.0 - u[index]) * c[index];
            }
        }
        for (index, output) in outputs.iter().enumerate() {
            context.set_output(index, sizes.tensor(cells, output)?);
        }
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

struct GruCellGrad;

impl Kernel for GruCellGrad {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let sizes = Sizes::of(context)?;
        let Sizes { batch, inputs, cells } = sizes;
        let width = inputs + cells;
        let (mut d_x, mut d_h_prev) = (vec![0.0; batch * inputs], vec![0.0; sizes.states()]);
        let (mut d_c_bar, mut d_gates) = (vec![0.0; sizes.states()], vec![0.0; 2 * sizes.states()]);
        if sizes.states() > 0 {
            let input = |index: usize| context.slice::<f32>(index);
            let (h_prev, w_ru, w_c) = (input(1)?, input(2)?, input(3)?);
            let (r, u, c, d_h) = (input(6)?, input(7)?, input(8)?, input(9)?);
            for index in 0..sizes.states() {
                d_c_bar[index] = d_h[index] * (1.0 - u[index]) * (1.0 - c[index] * c[index]);
            }
            let mut of_candidates = vec![0.0; batch * width];
            let product = MatMulShape::new(batch, cells, width).stored(Operand::Plain, Operand::Transposed);
            matmul(product, &d_c_bar, w_c, &mut of_candidates);
            for index in 0..sizes.states() {
                let (row, cell) = (index / cells, index % cells);
                let kept_grad = of_candidates[row * width + inputs + cell];
                d_gates[row * 2 * cells + cell] = kept_grad * h_prev[index] * r[index] * (1.0 - r[index]);
                d_gates[(row * 2 + 1) * cells + cell] =
                    d_h[index] * (h_prev[index] - c[index]) * u[index] * (1.0 - u[index]);
                d_h_prev[index] = kept_grad * r[index] + d_h[index] * u[index];
            }
            let mut of_gates = vec![0.0; batch * width];
            let product = MatMulShape::new(batch, 2 * cells, width).stored(Operand::Plain, Operand::Transposed);
            matmul(product, &d_gates, w_ru, &mut of_gates);
            for row in 0..batch {
                for at in 0..inputs {
                    d_x[row * inputs + at] = of_candidates[row * width + at] + of_gates[row * width + at];
                }
                for cell in 0..cells {
                    d_h_prev[row * cells + cell] += of_gates[row * width + inputs + cell];
                }
            }
        }
        context.set_output(0, sizes.tensor(inputs, &d_x)?);
        context.set_output(1, sizes.tensor(cells, &d_h_prev)?);
        context.set_output(2, sizes.tensor(cells, &d_c_bar)?);
        context.set_output(3, sizes.tensor(2 * cells, &d_gates)?);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, run_op};
    use tensor::{Code, Tensor};

    fn wave(dims: &[i64], phase: f32) -> Tensor {
        let count = dims.iter().product::<i64>();
        let values: Vec<f32> = (0..count).map(|index| (index as f32 * 0.7 + phase).sin()).collect();
        Tensor::from_slice(dims, &values).unwrap()
    }

    /// Two rows, three inputs and two cells.
    fn inputs() -> Vec<Tensor> {
        let shapes: [&[i64]; 6] = [&[2, 3], &[2, 2], &[5, 4], &[5, 2], &[4], &[2]];
        shapes.into_iter().enumerate().map(|(index, dims)| wave(dims, index as f32)).collect()
    }

    #[test]
    fn gradients_agree_with_differences() {
        let inputs = inputs();
        let outputs = run_op("GRUBlockCell", attrs![], &inputs).unwrap();
        let weights = wave(&[2, 2], 0.4);
        let all = [inputs.clone(), outputs[..3].to_vec(), vec![weights.clone()]].concat();
        let grads = run_op("GRUBlockCellGrad", attrs![], &all).unwrap();
        let total = |inputs: &[Tensor]| -> f64 {
            let h = run_op("GRUBlockCell", attrs![], inputs).unwrap().remove(3);
            let pairs = h.as_slice::<f32>().unwrap().iter().zip(weights.as_slice::<f32>().unwrap());
            pairs.map(|(value, weight)| f64::from(*value) * f64::from(*weight)).sum()
        };
        for (index, grad) in grads[..2].iter().enumerate() {
            for (element, &grad) in grad.as_slice::<f32>().unwrap().iter().enumerate() {
                let moved = |delta: f32| {
                    let mut moved = inputs.clone();
                    moved[index] = moved[index].deep_copy().unwrap();
                    moved[index].make_mut::<f32>().unwrap()[element] += delta;
                    total(&moved)
                };
                let expected = (moved(1e-2) - moved(-1e-2)) / 2e-2;
                assert!((f64::from(grad) - expected).abs() < 2e-3, "{index}/{element}: {grad} and {expected}");
            }
        }
    }

    #[test]
    fn mistakes_and_shapes() {
        for index in 0..6 {
            let mut wrong = inputs();
            wrong[index] = Tensor::vector(&[1f32; 7]);
            let status = run_op("GRUBlockCell", attrs![], &wrong).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{index}");
        }
        check_shape("GRUBlockCell", attrs![], "[4,3];[4,2];[5,4];[5,2];[4];[2]", &["[4,2]"; 4].join(";"));
    }
}
