//! Creation of ragged tensors: RaggedRange, RaggedGather.

use super::splits::{nested_splits, splits_tensor};
use crate::movement::Movable;
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext};
use std::ops::Range;
use tensor::{DType, Element, PartialShape, Result, Shape, Status, Tensor, bf16};

macro_rules! range_kernels {
    ($($dtype:ident),*) => {
        &[$(KernelDef { types: &[("T", DType::$dtype)], create: RaggedRange::create },)*]
    };
}

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "RaggedRange",
            inputs: &["starts: T", "limits: T", "deltas: T"],
            outputs: &["rt_nested_splits: Tsplits", "rt_dense_values: T"],
            attrs: &["T: {bfloat16, float, double, int32, int64} = DT_INT32", "Tsplits: {int32, int64} = DT_INT64"],
            flags: OpFlags::NONE,
        },
        shape: range_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: range_kernels!(BFloat16, Float, Double, Int32, Int64),
    },
    Op {
        def: OpDef {
            name: "RaggedGather",
            inputs: &[
                "params_nested_splits: PARAMS_RAGGED_RANK * Tsplits",
                "params_dense_values: Tvalues",
                "indices: Tindices",
            ],
            outputs: &["output_nested_splits: OUTPUT_RAGGED_RANK * Tsplits", "output_dense_values: Tvalues"],
            attrs: &[
                "Tvalues: type",
                "Tindices: {int32, int64}",
                "Tsplits: {int32, int64} = DT_INT64",
                "PARAMS_RAGGED_RANK: int >= 1",
                "OUTPUT_RAGGED_RANK: int >= 0",
            ],
            flags: OpFlags::NONE,
        },
        shape: gather_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(RaggedGather::create)],
    },
];

fn range_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let mut rows = PartialShape::unknown_of_rank(1);
    let mut scalars = 0;
    for input in 0..3 {
        let shape = c.with_rank_at_most(input, 1)?;
        match shape.rank() {
            Some(0) => scalars += 1,
            Some(_) => rows = rows.merge(&shape)?,
            None => {}
        }
    }
    let rows = if scalars == 3 { Some(1) } else { rows.dim(0) };
    c.set_output(0, PartialShape::new(&[rows.map(|rows| rows + 1)]));
    c.set_output(1, PartialShape::unknown_of_rank(1));
    Ok(())
}

fn gather_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let splits = c.input_range("params_nested_splits")?;
    let values = c.with_rank_at_least(splits.end, 1)?;
    for input in splits.clone() {
        c.with_rank(input, 1)?;
    }
    let last = c.num_outputs() - 1;
    for output in 0..last {
        c.set_output(output, PartialShape::unknown_of_rank(1));
    }
    if let Some(rank) = values.rank() {
        c.set_output(last, PartialShape::new(&[None]).concat(&values.slice(1, rank)));
    }
    Ok(())
}

struct RaggedRange {
    splits: DType,
}

impl RaggedRange {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(RaggedRange { splits: builder.attrs().dtype("Tsplits")? })
    }
}

/// The most numbers that one op creates.
const MAX_NUMBERS: i64 = 1 << 34;

impl Kernel for RaggedRange {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let mut rows = None;
        for (input, name) in ["starts", "limits", "deltas"].iter().enumerate() {
            let shape = context.input(input)?.shape();
            if shape.rank() > 1 {
                return Err(Status::invalid_argument(format!("{name} must be a scalar or vector")));
            }
            if shape.is_vector() && *rows.get_or_insert(shape.size(0)) != shape.size(0) {
                return Err(Status::invalid_argument("starts, limits, and deltas must have the same shape"));
            }
        }
        let rows = rows.unwrap_or(1);
        let (splits, values) = match context.input(0)?.dtype() {
            DType::Int32 => {
                let count = |start: i32, limit: i32, delta: i32| whole_count(start.into(), limit.into(), delta.into());
                ranges::<i32>(context, rows, count, |start, delta, at| {
                    start.wrapping_add(delta.wrapping_mul(at as i32))
                })?
            }
            DType::Int64 => {
                let count = |start: i64, limit: i64, delta: i64| whole_count(start.into(), limit.into(), delta.into());
                ranges::<i64>(context, rows, count, |start, delta, at| start.wrapping_add(delta.wrapping_mul(at)))?
            }
            DType::Float => {
                let count = |start: f32, limit: f32, delta: f32| real_count(start.into(), limit.into(), delta.into());
                ranges::<f32>(context, rows, count, |start, delta, at| start + delta * at as f32)?
            }
            DType::BFloat16 => {
                let count =
                    |start: bf16, limit: bf16, delta: bf16| real_count(start.into(), limit.into(), delta.into());
                ranges::<bf16>(context, rows, count, |start, delta, at| {
                    bf16::from_f32(start.to_f32() + delta.to_f32() * at as f32)
                })?
            }
            _ => ranges::<f64>(context, rows, real_count, |start, delta, at| start + delta * at as f64)?,
        };
        context.set_output(0, splits_tensor(self.splits, &splits)?);
        context.set_output(1, values);
        Ok(())
    }
}

fn whole_count(start: i128, limit: i128, delta: i128) -> f64 {
    let (distance, step) = if delta > 0 { (limit - start, delta) } else { (start - limit, -delta) };
    if distance <= 0 { 0.0 } else { ((distance + step - 1) / step) as f64 }
}

fn real_count(start: f64, limit: f64, delta: f64) -> f64 {
    ((limit - start) / delta).ceil().max(0.0)
}

fn ranges<T: Element + Copy>(
    context: &OpContext<'_>,
    rows: usize,
    count: impl Fn(T, T, T) -> f64,
    value: impl Fn(T, T, i64) -> T,
) -> Result<(Vec<i64>, Tensor)> {
    let (starts, limits, deltas) = (context.slice::<T>(0)?, context.slice::<T>(1)?, context.slice::<T>(2)?);
    let at = |values: &[T], row: usize| if values.len() == 1 { values[0] } else { values[row] };
    let (mut splits, mut values) = (vec![0], Vec::new());
    for row in 0..rows {
        let (start, limit, delta) = (at(starts, row), at(limits, row), at(deltas, row));
        if delta == T::default() {
            return Err(Status::invalid_argument("Requires delta != 0"));
        }
        let count = count(start, limit, delta);
        if count.is_nan() || count + values.len() as f64 > MAX_NUMBERS as f64 {
            return Err(Status::invalid_argument(format!(
                "Requires ((limit - start) / delta) <= {MAX_NUMBERS}, got {count}"
            )));
        }
        tensor::check_elements_fit(values.len() + count as usize, size_of::<T>())?;
        values.extend((0..count as i64).map(|place| value(start, delta, place)));
        splits.push(values.len() as i64);
    }
    Ok((splits, Tensor::vector(&values)))
}

struct RaggedGather {
    splits: Range<usize>,
    outputs: usize,
    splits_type: DType,
}

impl RaggedGather {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(RaggedGather {
            splits: builder.input_range("params_nested_splits")?,
            outputs: builder.output_range("output_nested_splits")?.len(),
            splits_type: builder.attrs().dtype("Tsplits")?,
        })
    }
}

impl Kernel for RaggedGather {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let values = context.input(self.splits.end)?;
        let indices = context.input(self.splits.end + 1)?;
        let splits = nested_splits(context, self.splits.clone(), values)?;
        let rank = indices.shape().rank();
        if rank == 0 || self.outputs != self.splits.len() + rank - 1 {
            return Err(Status::invalid_argument("OUTPUT_RAGGED_RANK must be PARAMS_RAGGED_RANK + indices.rank - 1"));
        }
        let mut outputs: Vec<Vec<i64>> = Vec::with_capacity(self.outputs);
        // The dimensions of the indices are all of one length.
        let mut rows = 1;
        for axis in 0..rank - 1 {
            rows *= indices.dims()[axis];
            let length = indices.dims()[axis + 1];
            outputs.push((0..=rows).map(|row| row * length).collect());
        }
        let count = splits[0].len() as i64 - 1;
        let mut pieces: Vec<Range<i64>> = Vec::new();
        for (at, index) in indices.to_indices()?.into_iter().enumerate() {
            if !(0..count).contains(&index) {
                return Err(Status::invalid_argument(format!("indices[{at}] = {index} is not in [0, {count})")));
            }
            pieces.push(index..index + 1);
        }
        for splits in &splits {
            let mut ends = vec![0];
            let mut next = Vec::with_capacity(pieces.len());
            for piece in pieces {
                for row in piece.clone() {
                    let length = splits[row as usize + 1] - splits[row as usize];
                    ends.push(ends[ends.len() - 1] + length);
                }
                next.push(splits[piece.start as usize]..splits[piece.end as usize]);
            }
            outputs.push(ends);
            pieces = next;
        }
        let width = values.shape().slice(1, values.shape().rank()).num_elements();
        let total: i64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
        let shape = Shape::vector(total as usize).concat(&values.shape().slice(1, values.shape().rank()))?;
        let gathered = with_movable!(values.dtype(), E => {
            let from = E::view(values)?;
            E::build(values.dtype(), shape, |to| {
                let mut at = 0;
                for piece in &pieces {
                    let rows = &from[piece.start as usize * width..piece.end as usize * width];
                    to[at..at + rows.len()].clone_from_slice(rows);
                    at += rows.len();
                }
            })
        })?;
        for (output, splits) in outputs.iter().enumerate() {
            context.set_output(output, splits_tensor(self.splits_type, splits)?);
        }
        context.set_output(self.outputs, gathered);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_shape, run_op};

    #[test]
    fn ranges_of_several_lengths() {
        let inputs = [Tensor::vector(&[0, 5, 8]), Tensor::vector(&[3, 5, 12]), Tensor::scalar(2)];
        let outputs = run_op("RaggedRange", attrs![], &inputs).unwrap();
        assert_eq!(outputs[0].as_slice::<i64>().unwrap(), &[0, 2, 2, 4]);
        assert_eq!(outputs[1].as_slice::<i32>().unwrap(), &[0, 2, 8, 10]);
        let endless = [Tensor::scalar(0f32), Tensor::scalar(f32::INFINITY), Tensor::scalar(1f32)];
        assert!(run_op("RaggedRange", attrs![], &endless).is_err());
        let still = [Tensor::scalar(0), Tensor::scalar(1), Tensor::scalar(0)];
        assert!(run_op("RaggedRange", attrs![], &still).is_err());
        check_shape("RaggedRange", attrs![], "[];[?];[3]", "[4];[?]");
    }

    #[test]
    fn gathering_rows() {
        let attrs = || attrs![("PARAMS_RAGGED_RANK", 1i64), ("OUTPUT_RAGGED_RANK", 1i64)];
        let params = [Tensor::vector(&[0i64, 2, 2, 3]), Tensor::vector(&[5, 6, 7])];
        let run = |indices: &[i64]| {
            run_op("RaggedGather", attrs(), &[params[0].clone(), params[1].clone(), Tensor::vector(indices)])
        };
        let outputs = run(&[2, 0, 1]).unwrap();
        assert_eq!(outputs[0].as_slice::<i64>().unwrap(), &[0, 1, 3, 3]);
        assert_eq!(outputs[1].as_slice::<i32>().unwrap(), &[7, 5, 6]);
        assert!(run(&[3]).is_err());
    }
}
