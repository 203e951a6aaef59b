//! Long short-term memory over whole sequences: BlockLSTM, BlockLSTMV2 and their gradients.
//!
//! The two versions differ in the order of the gates in the weights: input, cell, forget, output in the first, and input, forget,
//! cell, output in the second, which has no forget gate bias. Half types are computed as floats.

use crate::compose::Gradients;
use graph::ShapeContext;
use kernel::{
    BoxedKernel, Cost, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags,
};
use numeric::matmul::{KeptPanels, MatMulShape, Operand, matmul, matmul_with};
use std::borrow::Cow;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor, f16};

const TYPES: &str = "T: {half, float}";
const INPUTS: &[&str] =
    &["seq_len_max: int64", "x: T", "cs_prev: T", "h_prev: T", "w: T", "wci: T", "wcf: T", "wco: T", "b: T"];
const OUTPUTS: &[&str] = &["i: T", "cs: T", "f: T", "o: T", "ci: T", "co: T", "h: T"];
const GRAD_INPUTS: &[&str] = &[
    "seq_len_max: int64",
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
    "h: T",
    "cs_grad: T",
    "h_grad: T",
];
const GRAD_OUTPUTS: &[&str] = &[
    "x_grad: T",
    "cs_prev_grad: T",
    "h_prev_grad: T",
    "w_grad: T",
    "wci_grad: T",
    "wcf_grad: T",
    "wco_grad: T",
    "b_grad: T",
];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    op(
        "BlockLSTM",
        &["forget_bias: float = 1.0", "cell_clip: float = 3.0", "use_peephole: bool = false", TYPES],
        &[kernel(DType::Float, Lstm::create), kernel(DType::Half, Lstm::create)],
    ),
    op(
        "BlockLSTMV2",
        &["cell_clip: float = 0.0", "use_peephole: bool = false", TYPES],
        &[kernel(DType::Float, Lstm::create), kernel(DType::Half, Lstm::create)],
    ),
    grad_op("BlockLSTMGrad"),
    grad_op("BlockLSTMGradV2"),
];

pub(super) const fn kernel(dtype: DType, create: fn(&KernelBuilder<'_>) -> Result<BoxedKernel>) -> KernelDef {
    match dtype {
        DType::Half => KernelDef { types: &[("T", DType::Half)], create },
        _ => KernelDef { types: &[("T", DType::Float)], create },
    }
}

const fn op(name: &'static str, attrs: &'static [&'static str], kernels: &'static [KernelDef]) -> Op {
    let def = OpDef { name, inputs: INPUTS, outputs: OUTPUTS, attrs, flags: OpFlags::NONE };
    Op { def, shape: lstm_shape, gradient: Gradient::Fn(lstm_gradient), kernels }
}

const fn grad_op(name: &'static str) -> Op {
    let attrs = &["use_peephole: bool", TYPES];
    let def = OpDef { name, inputs: GRAD_INPUTS, outputs: GRAD_OUTPUTS, attrs, flags: OpFlags::NONE };
    const KERNELS: &[KernelDef] = &[kernel(DType::Float, LstmGrad::create), kernel(DType::Half, LstmGrad::create)];
    Op { def, shape: grad_shape, gradient: Gradient::Unsupported, kernels: KERNELS }
}

fn lstm_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let x = c.with_rank(1, 3)?;
    let b = c.with_rank(8, 1)?;
    let cells = match b.dim(0) {
        Some(len) if len % 4 != 0 => {
            return Err(Status::invalid_argument(format!("b must have a multiple of 4 elements, got {len}")));
        }
        len => len.map(|len| len / 4),
    };
    for output in 0..OUTPUTS.len() {
        c.set_output(output, PartialShape::new(&[x.dim(0), x.dim(1), cells]));
    }
    Ok(())
}

/// Each gradient has the shape of its input.
fn grad_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    for (output, rank) in [3, 2, 2, 2, 1, 1, 1, 1].into_iter().enumerate() {
        let shape = c.with_rank(output + 1, rank)?;
        c.set_output(output, shape);
    }
    Ok(())
}

fn lstm_gradient(args: &GradientArgs<'_>) -> Gradients {
    const CELL_STATES: usize = 1;
    const HIDDEN: usize = 6;
    let graph = args.input(1).graph().clone();
    let name = if args.op.op_type() == "BlockLSTM" { "BlockLSTMGrad" } else { "BlockLSTMGradV2" };
    let grad_or_zeros = |index: usize| match args.grad(index) {
        Some(grad) => Ok(grad),
        None => Ok(graph.op("ZerosLike").input(&args.output(index as u32)).try_build()?.output(0)),
    };
    let mut op = graph.op(name);
    for input in 0..INPUTS.len() {
        op = op.input(&args.input(input));
    }
    for output in 0..OUTPUTS.len() {
        op = op.input(&args.output(output as u32));
    }
    let op = op.input(&grad_or_zeros(CELL_STATES)?).input(&grad_or_zeros(HIDDEN)?);
    let op = op.attr("use_peephole", args.op.attrs().bool("use_peephole")?).try_build()?;
    let mut grads = vec![None];
    grads.extend((0..GRAD_OUTPUTS.len()).map(|port| Some(op.output(port as u32).into())));
    Ok(grads)
}

/// The sizes of a sequence, and the positions of the gates.
#[derive(Clone, Copy)]
struct Sizes {
    times: usize,
    batch: usize,
    inputs: usize,
    cells: usize,
    /// The number of time steps that count.
    used: usize,
}

impl Sizes {
    /// Checks the first inputs, which the op and its gradient have in common.
    fn of(context: &OpContext<'_>) -> Result<Sizes> {
        let used = context.input(0)?;
        if !used.shape().is_scalar() {
            return Err(Status::invalid_argument(format!("seq_len_max must be rank 0, got shape {}", used.shape())));
        }
        let used = used.to_scalar::<i64>()?;
        let (x, cs_prev) = (context.input(1)?, context.input(2)?);
        let (&[times, batch, inputs], &[_, cells]) = (x.dims(), cs_prev.dims()) else {
            let name = if x.shape().rank() == 3 { "cs_prev must be 2D" } else { "x must be 3D" };
            return Err(Status::invalid_argument(format!(
                "{name}: x and cs_prev have shapes {} and {}",
                x.shape(),
                cs_prev.shape()
            )));
        };
        let (Some(gates), Some(rows)) = (cells.checked_mul(4), inputs.checked_add(cells)) else {
            return Err(Status::invalid_argument("the sizes of x and cs_prev are too large"));
        };
        for (index, expected) in [
            (2, &[batch, cells][..]),
            (3, &[batch, cells]),
            (4, &[rows, gates]),
            (5, &[cells]),
            (6, &[cells]),
            (7, &[cells]),
            (8, &[gates]),
        ] {
            check_dims(context, index, expected)?;
        }
        if used < 0 || used > times {
            return Err(Status::invalid_argument(format!("seq_len_max must be between 0 and {times} but is {used}")));
        }
        let [times, batch, inputs, cells, used] = [times, batch, inputs, cells, used].map(|size| size as usize);
        Ok(Sizes { times, batch, inputs, cells, used })
    }

    /// Returns the number of elements of one time step's states.
    fn states(self) -> usize {
        self.batch * self.cells
    }

    fn shape(self) -> Result<Shape> {
        Shape::new(&[self.times as i64, self.batch as i64, self.cells as i64])
    }

    /// Writes each row of the inputs, followed by that of the previous state.
    fn join(self, x: &[f32], h_prev: &[f32], joined: &mut [f32]) {
        join_rows(self.batch, x, self.inputs, h_prev, self.cells, joined);
    }
}

/// Writes each row of two matrices, one after the other.
pub(super) fn join_rows(rows: usize, a: &[f32], a_len: usize, b: &[f32], b_len: usize, joined: &mut [f32]) {
    for (row, joined) in joined.chunks_exact_mut((a_len + b_len).max(1)).enumerate().take(rows) {
        joined[..a_len].copy_from_slice(&a[row * a_len..(row + 1) * a_len]);
        joined[a_len..].copy_from_slice(&b[row * b_len..(row + 1) * b_len]);
    }
}

fn check_dims(context: &OpContext<'_>, index: usize, expected: &[i64]) -> Result<()> {
    let tensor = context.input(index)?;
    if tensor.dims() == expected {
        return Ok(());
    }
    let name = GRAD_INPUTS[index].trim_end_matches(": T");
    if tensor.shape().rank() == expected.len() {
        // What the sizes are called in TensorFlow's texts.
        let sizes: &[&str] = match name {
            "cs_prev" | "h_prev" => &["batch_size", "cell_size"],
            "w" => &["input_size + cell_size", "cell_size * 4"],
            "b" => &["cell_size * 4"],
            _ => &["cell_size"],
        };
        let method = if matches!(name, "cs_prev" | "h_prev") { "dims" } else { "dim_size" };
        let differs = (0..expected.len()).find(|&axis| tensor.dims()[axis] != expected[axis]);
        if let Some((axis, size)) = differs.and_then(|axis| Some((axis, sizes.get(axis)?))) {
            return Err(Status::invalid_argument(format!(
                "{name}.{method}({axis}) != {size}: {} vs. {}",
                tensor.dims()[axis],
                expected[axis]
            )));
        }
    }
    Err(Status::invalid_argument(format!("{name} must have shape {expected:?}, got {}", tensor.shape())))
}

/// Returns an input's elements as floats.
pub(super) fn floats<'a>(context: &'a OpContext<'_>, index: usize) -> Result<Cow<'a, [f32]>> {
    let tensor = context.input(index)?;
    Ok(match tensor.dtype() {
        DType::Half => Cow::Owned(tensor.as_slice::<f16>()?.iter().map(|value| value.to_f32()).collect()),
        _ => Cow::Borrowed(tensor.as_slice::<f32>()?),
    })
}

/// Returns a tensor of the op's type.
pub(super) fn tensor_of(dtype: DType, shape: Shape, values: &[f32]) -> Result<Tensor> {
    match dtype {
        DType::Half => Tensor::build(shape, |halves: &mut [f16]| {
            halves.iter_mut().zip(values).for_each(|(half, value)| *half = f16::from_f32(*value));
        }),
        _ => Tensor::build(shape, |floats: &mut [f32]| floats.copy_from_slice(values)),
    }
}

/// Tells the panels of a kernel that its weights are the same at all times.
fn same_weights() -> Option<[u64; 3]> {
    Some([0; 3])
}

/// The positions of the gates in a row of the weights, in cells.
#[derive(Clone, Copy)]
struct Layout {
    cell: usize,
    forget: usize,
}

const INPUT_GATE: usize = 0;
const OUTPUT_GATE: usize = 3;

impl Layout {
    fn of(builder: &KernelBuilder<'_>) -> Layout {
        match builder.node.op().ends_with("V2") {
            true => Layout { cell: 2, forget: 1 },
            false => Layout { cell: 1, forget: 2 },
        }
    }
}

pub(super) fn sigmoid(value: f32) -> f32 {
    1.0 / (1.0 + (-value).exp())
}

/// The additions to the gates: a bias, and the peepholes.
pub(super) struct Weights<'a> {
    pub b: &'a [f32],
    pub wci: &'a [f32],
    pub wcf: &'a [f32],
    pub wco: &'a [f32],
}

/// Computes the states of one time step from the gates and the previous states.
pub(super) struct Cell {
    layout: Layout,
    forget_bias: f32,
    cell_clip: f32,
    use_peephole: bool,
}

impl Cell {
    pub(super) fn new(builder: &KernelBuilder<'_>) -> Result<Cell> {
        Ok(Cell {
            layout: Layout::of(builder),
            forget_bias: builder.attrs().float("forget_bias").unwrap_or(0.0),
            cell_clip: builder.attrs().float("cell_clip")?,
            use_peephole: builder.attrs().bool("use_peephole")?,
        })
    }

    /// Returns one element of each output: i, cs, f, o, ci, co, h. The gates have rows of four times the cells.
    pub(super) fn values(
        &self,
        cells: usize,
        index: usize,
        gates: &[f32],
        weights: &Weights<'_>,
        before: f32,
    ) -> [f32; 7] {
        let (row, cell) = (index / cells, index % cells);
        let gate = |which: usize| gates[row * 4 * cells + which * cells + cell] + weights.b[which * cells + cell];
        let peep = |weights: &[f32], state: f32| if self.use_peephole { state * weights[cell] } else { 0.0 };
        let i = sigmoid(gate(INPUT_GATE) + peep(weights.wci, before));
        let ci = gate(self.layout.cell).tanh();
        let f = sigmoid(gate(self.layout.forget) + self.forget_bias + peep(weights.wcf, before));
        let mut cs = i * ci + f * before;
        if self.cell_clip > 0.0 {
            cs = cs.max(-self.cell_clip).min(self.cell_clip);
        }
        let co = cs.tanh();
        let o = sigmoid(gate(OUTPUT_GATE) + peep(weights.wco, cs));
        [i, cs, f, o, ci, co, o * co]
    }
}

/// The inputs of one element's gradients.
pub(super) struct Element {
    pub i: f32,
    pub f: f32,
    pub o: f32,
    pub ci: f32,
    pub co: f32,
    pub cs_before: f32,
    /// The gradients of the cell's state and of the output.
    pub cs_grad: f32,
    pub h_grad: f32,
}

/// The gradients of one element: of its gates and of the previous state.
pub(super) struct ElementGrads {
    pub i: f32,
    pub ci: f32,
    pub f: f32,
    pub o: f32,
    pub cs_before: f32,
}

impl Element {
    /// Returns the gradients; `peephole` has wci, wcf and wco of the cell, if there are peepholes.
    pub(super) fn grads(&self, peephole: Option<[f32; 3]>) -> ElementGrads {
        let [wci, wcf, wco] = peephole.unwrap_or_default();
        let Element { i, f, o, ci, co, .. } = *self;
        let o_grad = o * (1.0 - o) * self.h_grad * co;
        let state_grad = (1.0 - co * co) * self.h_grad * o + self.cs_grad + o_grad * wco;
        let ci_grad = (1.0 - ci * ci) * state_grad * i;
        let f_grad = f * (1.0 - f) * state_grad * self.cs_before;
        let i_grad = i * (1.0 - i) * state_grad * ci;
        let cs_before = state_grad * f + i_grad * wci + f_grad * wcf;
        ElementGrads { i: i_grad, ci: ci_grad, f: f_grad, o: o_grad, cs_before }
    }
}

struct Lstm {
    cell: Cell,
    dtype: DType,
}

impl Lstm {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(Lstm { cell: Cell::new(builder)?, dtype: builder.output_dtype(0) })
    }
}

impl Kernel for Lstm {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let sizes = Sizes::of(context)?;
        let shape = sizes.shape()?;
        let states = sizes.states();
        let width = sizes.inputs + sizes.cells;
        let (x, w, b) = (floats(context, 1)?, floats(context, 4)?, floats(context, 8)?);
        let (wci, wcf, wco) = (floats(context, 5)?, floats(context, 6)?, floats(context, 7)?);
        let (mut cs_prev, mut h_prev) = (floats(context, 2)?.into_owned(), floats(context, 3)?.into_owned());
        // In the order of the outputs: i, cs, f, o, ci, co, h. Steps past the sequence's length are zero.
        let mut outputs: [Vec<f32>; 7] = std::array::from_fn(|_| vec![0.0; shape.num_elements()]);
        let mut joined = vec![0.0; sizes.batch * width];
        let mut gates = vec![0.0; 4 * states];
        let panels = KeptPanels::new();
        for time in 0..if states == 0 { 0 } else { sizes.used } {
            let x = &x[time * sizes.batch * sizes.inputs..][..sizes.batch * sizes.inputs];
            sizes.join(x, &h_prev, &mut joined);
            let product = MatMulShape::new(sizes.batch, width, 4 * sizes.cells);
            matmul_with(product, &joined, &w, panels.of(product, &w, same_weights).as_deref(), &mut gates);
            let weights = Weights { b: &b, wci: &wci, wcf: &wcf, wco: &wco };
            for index in 0..states {
                let values = self.cell.values(sizes.cells, index, &gates, &weights, cs_prev[index]);
                outputs.iter_mut().zip(values).for_each(|(output, value)| output[time * states + index] = value);
            }
            cs_prev.copy_from_slice(&outputs[1][time * states..][..states]);
            h_prev.copy_from_slice(&outputs[6][time * states..][..states]);
        }
        drop((x, w, b, wci, wcf, wco));
        for (index, output) in outputs.iter().enumerate() {
            context.set_output(index, tensor_of(self.dtype, shape.clone(), output)?);
        }
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

struct LstmGrad {
    layout: Layout,
    dtype: DType,
    use_peephole: bool,
}

impl LstmGrad {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(LstmGrad {
            layout: Layout::of(builder),
            dtype: builder.output_dtype(0),
            use_peephole: builder.attrs().bool("use_peephole")?,
        })
    }
}

impl Kernel for LstmGrad {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let sizes = Sizes::of(context)?;
        let Sizes { times, batch, inputs, cells, used } = sizes;
        for index in 9..18 {
            check_dims(context, index, &[times as i64, batch as i64, cells as i64])?;
        }
        let shapes: Vec<Shape> =
            (1..9).map(|index| Ok(context.input(index)?.shape().clone())).collect::<Result<_>>()?;
        let mut grads: Vec<Vec<f32>> = shapes.iter().map(|shape| vec![0.0; shape.num_elements()]).collect();
        let states = sizes.states();
        let width = inputs + cells;
        {
            let input = |index: usize| floats(context, index);
            let (x, first_cs, first_h, w) = (input(1)?, input(2)?, input(3)?, input(4)?);
            let (wci, wcf, wco) = (input(5)?, input(6)?, input(7)?);
            let (i, cs, f, o, ci, co, h) =
                (input(9)?, input(10)?, input(11)?, input(12)?, input(13)?, input(14)?, input(15)?);
            let (cs_grads, h_grads) = (input(16)?, input(17)?);
            let [x_grad, cs_prev_grad, h_prev_grad, w_grad, wci_grad, wcf_grad, wco_grad, b_grad] = &mut grads[..]
            else {
                return Err(Status::internal("there are eight gradients"));
            };
            let mut joined = vec![0.0; batch * width];
            let mut joined_grad = vec![0.0; batch * width];
            let mut gate_grads = vec![0.0; 4 * states];
            let mut w_part = vec![0.0; w_grad.len()];
            let panels = KeptPanels::new();
            for time in (0..if states == 0 { 0 } else { used }).rev() {
                let now = time * states..(time + 1) * states;
                let cs_before = if time == 0 { &first_cs[..] } else { &cs[now.start - states..now.start] };
                let h_before = if time == 0 { &first_h[..] } else { &h[now.start - states..now.start] };
                for (index, at) in now.enumerate() {
                    let (row, cell) = (index / cells, index % cells);
                    let element = Element {
                        i: i[at],
                        f: f[at],
                        o: o[at],
                        ci: ci[at],
                        co: co[at],
                        cs_before: cs_before[index],
                        cs_grad: cs_grads[at] + cs_prev_grad[index],
                        h_grad: h_grads[at] + h_prev_grad[index],
                    };
                    let grads = element.grads(self.use_peephole.then(|| [wci[cell], wcf[cell], wco[cell]]));
                    cs_prev_grad[index] = grads.cs_before;
                    if self.use_peephole {
                        wci_grad[cell] += grads.i * cs_before[index];
                        wcf_grad[cell] += grads.f * cs_before[index];
                        wco_grad[cell] += grads.o * cs[at];
                    }
                    for (which, grad) in [
                        (INPUT_GATE, grads.i),
                        (self.layout.cell, grads.ci),
                        (self.layout.forget, grads.f),
                        (OUTPUT_GATE, grads.o),
                    ] {
                        gate_grads[row * 4 * cells + which * cells + cell] = grad;
                        b_grad[which * cells + cell] += grad;
                    }
                }
                let product = MatMulShape::new(batch, 4 * cells, width).stored(Operand::Plain, Operand::Transposed);
                let w_panels = panels.of(product, &w, same_weights);
                matmul_with(product, &gate_grads, &w, w_panels.as_deref(), &mut joined_grad);
                for row in 0..batch {
                    let (of_x, of_h) = joined_grad[row * width..(row + 1) * width].split_at(inputs);
                    x_grad[(time * batch + row) * inputs..][..inputs].copy_from_slice(of_x);
                    h_prev_grad[row * cells..(row + 1) * cells].copy_from_slice(of_h);
                }
                sizes.join(&x[time * batch * inputs..][..batch * inputs], h_before, &mut joined);
                let product = MatMulShape::new(width, batch, 4 * cells).stored(Operand::Transposed, Operand::Plain);
                matmul(product, &joined, &gate_grads, &mut w_part);
                w_grad.iter_mut().zip(&w_part).for_each(|(sum, part)| *sum += part);
            }
        }
        for (index, (grad, shape)) in grads.iter().zip(shapes).enumerate() {
            context.set_output(index, tensor_of(self.dtype, shape, grad)?);
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
    use tensor::{Code, Tensor};

    fn wave(dims: &[i64], phase: f32) -> Tensor {
        let count = dims.iter().product::<i64>();
        let values: Vec<f32> = (0..count).map(|index| (index as f32 * 0.7 + phase).sin()).collect();
        Tensor::from_slice(dims, &values).unwrap()
    }

    /// A sequence of three times, two rows, three inputs and two cells.
    fn inputs(used: i64) -> Vec<Tensor> {
        let shapes: [&[i64]; 8] = [&[3, 2, 3], &[2, 2], &[2, 2], &[5, 8], &[2], &[2], &[2], &[8]];
        let waves = shapes.into_iter().enumerate().map(|(index, dims)| wave(dims, index as f32));
        std::iter::once(Tensor::scalar(used)).chain(waves).collect()
    }

    fn total(op: &str, inputs: &[Tensor]) -> f64 {
        let outputs = run_op(op, attrs![("use_peephole", true)], inputs).unwrap();
        // The two outputs with gradients, with different weights.
        let weighted = |index: usize, phase: f32| {
            let weights = wave(outputs[index].dims(), phase);
            let pairs = outputs[index].as_slice::<f32>().unwrap().iter().zip(weights.as_slice::<f32>().unwrap());
            pairs.map(|(value, weight)| f64::from(*value) * f64::from(*weight)).sum::<f64>()
        };
        weighted(1, 0.3) + weighted(6, 0.9)
    }

    #[test]
    fn gradients_agree_with_differences() {
        for (op, grad_op) in [("BlockLSTM", "BlockLSTMGrad"), ("BlockLSTMV2", "BlockLSTMGradV2")] {
            let inputs = inputs(2);
            let outputs = run_op(op, attrs![("use_peephole", true)], &inputs).unwrap();
            let weights = [wave(&[3, 2, 2], 0.3), wave(&[3, 2, 2], 0.9)];
            let all = [inputs.clone(), outputs, weights.to_vec()].concat();
            let grads = run_op(grad_op, attrs![("use_peephole", true)], &all).unwrap();
            for (index, grad) in grads.iter().enumerate() {
                for (element, &grad) in grad.as_slice::<f32>().unwrap().iter().enumerate() {
                    let moved = |delta: f32| {
                        let mut moved = inputs.clone();
                        moved[index + 1] = moved[index + 1].deep_copy().unwrap();
                        moved[index + 1].make_mut::<f32>().unwrap()[element] += delta;
                        total(op, &moved)
                    };
                    let expected = (moved(1e-2) - moved(-1e-2)) / 2e-2;
                    assert!((f64::from(grad) - expected).abs() < 2e-3, "{op} {index}/{element}: {grad} and {expected}");
                }
            }
        }
    }

    #[test]
    fn mistakes_and_shapes() {
        assert_eq!(run_op("BlockLSTM", attrs![], &inputs(4)).unwrap_err().code(), Code::InvalidArgument);
        for index in 1..9 {
            let mut wrong = inputs(1);
            wrong[index] = Tensor::vector(&[1f32; 7]);
            assert_eq!(run_op("BlockLSTM", attrs![], &wrong).unwrap_err().code(), Code::InvalidArgument, "{index}");
        }
        let all = ["[3,2,2]"; 7].join(";");
        check_shape("BlockLSTM", attrs![], "[];[3,2,3];[2,2];[2,2];[5,8];[2];[2];[2];[8]", &all);
    }
}
