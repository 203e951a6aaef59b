//! The largest elements of rows: TopK, TopKV2, InTopK, InTopKV2, NthElement.

use crate::compose::{Gradients, binary, constant, int_vector, reshape, shape_of, ternary, unary};
use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags};
use numeric::parallel;
use std::marker::PhantomData;
use tensor::{DType, Element, PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "TopK",
            inputs: &["input: T"],
            outputs: &["values: T", "indices: int32"],
            attrs: &[
                "k: int >= 0",
                "sorted: bool = true",
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}",
            ],
            flags: OpFlags::NONE,
        },
        shape: top_k_shape,
        gradient: Gradient::Fn(top_k_gradient),
        kernels: TOP_K_KERNELS,
    },
    Op {
        def: OpDef {
            name: "TopKV2",
            inputs: &["input: T", "k: Tk"],
            outputs: &["values: T", "indices: index_type"],
            attrs: &[
                "sorted: bool = true",
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}",
                "Tk: {int16, int32, int64} = DT_INT32",
                "index_type: {int16, int32, int64} = DT_INT32",
            ],
            flags: OpFlags::NONE,
        },
        shape: top_k_v2_shape,
        gradient: Gradient::Fn(top_k_gradient),
        kernels: TOP_K_KERNELS,
    },
    Op {
        def: OpDef {
            name: "InTopK",
            inputs: &["predictions: float", "targets: T"],
            outputs: &["precision: bool"],
            attrs: &["k: int", "T: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: in_top_k_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(InTopK::create)],
    },
    Op {
        def: OpDef {
            name: "InTopKV2",
            inputs: &["predictions: float", "targets: T", "k: T"],
            outputs: &["precision: bool"],
            attrs: &["T: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: in_top_k_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(InTopK::create)],
    },
    Op {
        def: OpDef {
            name: "NthElement",
            inputs: &["input: T", "n: int32"],
            outputs: &["values: T"],
            attrs: &[
                "reverse: bool = false",
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}",
            ],
            flags: OpFlags::NONE,
        },
        shape: nth_element_shape,
        gradient: Gradient::Fn(nth_element_gradient),
        kernels: &[
            nth_element::<f32>(),
            nth_element::<f64>(),
            nth_element::<f16>(),
            nth_element::<bf16>(),
            nth_element::<i8>(),
            nth_element::<i16>(),
            nth_element::<i32>(),
            nth_element::<i64>(),
            nth_element::<u8>(),
            nth_element::<u16>(),
            nth_element::<u32>(),
            nth_element::<u64>(),
        ],
    },
];

const TOP_K_KERNELS: &[KernelDef] = &[
    top_k_kernel::<f32>(),
    top_k_kernel::<f64>(),
    top_k_kernel::<f16>(),
    top_k_kernel::<bf16>(),
    top_k_kernel::<i8>(),
    top_k_kernel::<i16>(),
    top_k_kernel::<i32>(),
    top_k_kernel::<i64>(),
    top_k_kernel::<u8>(),
    top_k_kernel::<u16>(),
    top_k_kernel::<u32>(),
    top_k_kernel::<u64>(),
];

/// Returns the `k` largest elements of each row along the last axis, in descending order, and their positions.
#[track_caller]
pub fn top_k(input: &Output, k: i32) -> (Output, Output) {
    let graph = input.graph();
    let op = graph.op("TopKV2").input(input).input(&graph.constant_tensor(&Tensor::scalar(k))).build();
    (op.output(0), op.output(1))
}

/// Returns whether the prediction for the target of each row is among its `k` largest.
#[track_caller]
pub fn in_top_k(predictions: &Output, targets: &Output, k: i32) -> Output {
    let graph = predictions.graph();
    let k = graph.constant_tensor(&Tensor::scalar(k));
    let k = if targets.dtype() == DType::Int64 { crate::math::cast(&k, DType::Int64) } else { k };
    graph.op("InTopKV2").input(predictions).input(targets).input(&k).output()
}

fn set_top_k(c: &mut ShapeContext<'_>, k: Option<i64>) -> Result<()> {
    let input = c.with_rank_at_least(0, 1)?;
    let Some(rank) = input.rank() else { return Ok(()) };
    if let (Some(last), Some(k)) = (input.dim(rank - 1), k)
        && last < k
    {
        return Err(Status::invalid_argument(format!("input must have last dimension >= k = {k} but is {last}")));
    }
    let output = input.with_dim(rank - 1, k);
    c.set_output(0, output.clone());
    c.set_output(1, output);
    Ok(())
}

fn top_k_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let k = c.attrs.int("k")?;
    set_top_k(c, Some(k))
}

fn top_k_v2_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(1, 0)?;
    let k = match c.constant(1) {
        Some(k) => Some(index_of(&k)?),
        None => None,
    };
    if let Some(k) = k.filter(|&k| k < 0) {
        return Err(Status::invalid_argument(format!("Need k >= 0, got {k}")));
    }
    set_top_k(c, k)
}

fn index_of(k: &Tensor) -> Result<i64> {
    if k.dtype() == DType::Int16 { k.to_scalar::<i16>().map(i64::from) } else { k.to_index() }
}

fn in_top_k_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let predictions = c.with_rank(0, 2)?;
    let rows = predictions.slice(0, 1).merge(&c.with_rank(1, 1)?)?;
    c.set_output(0, rows);
    Ok(())
}

fn nth_element_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.with_rank_at_least(0, 1)?;
    c.with_rank(1, 0)?;
    let output = match input.rank() {
        Some(rank) => input.slice(0, rank - 1),
        None => PartialShape::unknown(),
    };
    c.set_output(0, output);
    Ok(())
}

/// Each gradient is added at the position of its element.
fn top_k_gradient(args: &GradientArgs<'_>) -> Gradients {
    let mut grads = vec![None; args.op.num_inputs()];
    let Some(grad) = args.grad(0) else { return Ok(grads) };
    let (input, places) = (args.input(0), args.output(1));
    let graph = input.graph();
    let number = |value: i32| constant(graph, &Tensor::scalar(value));
    let places = crate::compose::cast(&places, DType::Int32)?;
    let (shape, places_shape) = (shape_of(&input)?, shape_of(&places)?);
    let element = |vector: &Output| -> Result<Output> {
        let last = graph.op("StridedSlice").input(vector).input(&int_vector(graph, &[-1])?);
        let last = last.input(&int_vector(graph, &[0])?).input(&int_vector(graph, &[1])?);
        Ok(last.attr("end_mask", 1i64).attr("shrink_axis_mask", 1i64).try_build()?.output(0))
    };
    // Positions in the flat input: the row's start plus the position in the row.
    let (row_len, picked_len) = (element(&shape)?, element(&places_shape)?);
    let matrix = graph.op("Pack").input(&number(-1)?).input(&picked_len).attr("N", 2i64).try_build()?.output(0);
    let rows = reshape(&places, &matrix)?;
    let row_count = {
        let slice = graph.op("StridedSlice").input(&unary("Shape", &rows)?).input(&int_vector(graph, &[0])?);
        let slice = slice.input(&int_vector(graph, &[1])?).input(&int_vector(graph, &[1])?);
        slice.attr("shrink_axis_mask", 1i64).try_build()?.output(0)
    };
    let end = binary("Mul", &row_count, &row_len)?;
    let starts = graph.op("Range").input(&number(0)?).input(&end).input(&row_len).try_build()?.output(0);
    let positions = binary("AddV2", &rows, &binary("ExpandDims", &starts, &number(-1)?)?)?;
    let flat = int_vector(graph, &[-1])?;
    let positions = binary("ExpandDims", &reshape(&positions, &flat)?, &number(-1)?)?;
    let size = binary("ExpandDims", &binary("Prod", &shape, &int_vector(graph, &[0])?)?, &number(0)?)?;
    let scattered = ternary("ScatterNd", &positions, &reshape(&grad, &flat)?, &size)?;
    grads[0] = Some(reshape(&scattered, &shape)?.into());
    Ok(grads)
}

/// Elements equal to the result share its gradient.
fn nth_element_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let input = args.input(0);
    let graph = input.graph();
    let last = constant(graph, &Tensor::scalar(-1i32))?;
    let output = binary("ExpandDims", &args.output(0), &last)?;
    let grad = binary("ExpandDims", &grad, &last)?;
    let indicators = crate::compose::cast(&binary("Equal", &output, &input)?, grad.dtype())?;
    let selected = crate::compose::sum(&indicators, &int_vector(graph, &[-1])?, true)?;
    let share = binary("Mul", &binary("RealDiv", &indicators, &selected)?, &grad)?;
    Ok(vec![Some(share.into()), None])
}

/// An ordered type. Elements of all types are sorted by these numbers, so that sorting is compiled once.
trait Ranked: Element {
    /// Returns a number that increases with the element; NaN is below everything.
    fn rank(self) -> u64;
}

macro_rules! ranked {
    ($([$($scalar:ty),*] => $rank:expr),*) => {$($(
        impl Ranked for $scalar {
            fn rank(self) -> u64 {
                let rank: fn($scalar) -> u64 = $rank;
                rank(self)
            }
        }
    )*)*};
}
ranked!(
    [f32, f64, f16, bf16] => |value| rank_of_float(f64::from(value)),
    [i8, i16, i32, i64] => |value| i64::from(value).cast_unsigned() ^ (1 << 63),
    [u8, u16, u32, u64] => |value| u64::from(value)
);

fn rank_of_float(value: f64) -> u64 {
    const SIGN: u64 = 1 << 63;
    if value.is_nan() {
        return 0;
    }
    // The two zeros are equal.
    let bits = if value == 0.0 { 0 } else { value.to_bits() };
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

/// An element of a row: first its rank in descending order, then its position, which decides between equal elements.
type Place = (u64, u32);

fn places_of<T: Ranked>(row: &[T], order: &mut Vec<Place>) {
    order.clear();
    order.extend(row.iter().zip(0..).map(|(value, place)| (!value.rank(), place)));
}

struct TopK<T> {
    /// The number, if it is an attribute.
    k: Option<i64>,
    sorted: bool,
    positions: DType,
    element: PhantomData<fn(T)>,
}

const fn top_k_kernel<T: Ranked>() -> KernelDef {
    KernelDef {
        types: const { &[("T", T::DTYPE)] },
        create: |builder| {
            let attrs = builder.attrs();
            BoxedKernel::new(TopK::<T> {
                k: attrs.int("k").ok(),
                sorted: attrs.bool("sorted")?,
                positions: builder.output_dtype(1),
                element: PhantomData,
            })
        },
    }
}

impl<T: Ranked> Kernel for TopK<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let k = match self.k {
            Some(k) => k,
            None => {
                let k = context.input(1)?;
                if !k.shape().is_scalar() {
                    return Err(Status::invalid_argument(format!("k must be scalar, got shape {}", k.shape())));
                }
                index_of(k)?
            }
        };
        if k < 0 {
            return Err(Status::invalid_argument(format!("Need k >= 0, got {k}")));
        }
        let shape = input.shape();
        let Some(&columns) = shape.last() else {
            return Err(Status::invalid_argument(format!("input must be >= 1-D, got shape {shape}")));
        };
        if columns < k {
            return Err(Status::invalid_argument(format!(
                "input must have at least k columns. Had {columns}, needed {k}"
            )));
        }
        let (k, columns) = (k as usize, columns as usize);
        let out_shape = shape.with_dim(shape.rank() - 1, k as i64)?;
        let values = input.as_slice::<T>()?;
        let mut places = vec![0u32; out_shape.num_elements()];
        if !places.is_empty() {
            let cost = columns as f64 * 3.0 + k as f64 * 10.0;
            parallel::for_each_chunk_mut(&mut places, k, cost, |first, places| {
                let mut order: Vec<Place> = Vec::with_capacity(columns);
                for (offset, places) in places.chunks_exact_mut(k).enumerate() {
                    places_of(&values[(first + offset) * columns..][..columns], &mut order);
                    largest(&mut order, places, self.sorted);
                }
            });
        }
        let picked = Tensor::build(out_shape.clone(), |out: &mut [T]| {
            for (index, (out, &place)) in out.iter_mut().zip(&places).enumerate() {
                *out = values[index / k * columns + place as usize];
            }
        })?;
        let positions = match self.positions {
            DType::Int16 => Tensor::build(out_shape, |out: &mut [i16]| {
                out.iter_mut().zip(&places).for_each(|(out, &place)| *out = place as i16);
            })?,
            DType::Int64 => Tensor::build(out_shape, |out: &mut [i64]| {
                out.iter_mut().zip(&places).for_each(|(out, &place)| *out = i64::from(place));
            })?,
            _ => Tensor::build(out_shape, |out: &mut [i32]| {
                out.iter_mut().zip(&places).for_each(|(out, &place)| *out = place as i32);
            })?,
        };
        context.set_output(0, picked);
        context.set_output(1, positions);
        Ok(())
    }
}

/// Writes the positions of the largest elements of a row in descending order, equal ones by position; unsorted ones are all in
/// the order of their positions.
fn largest(order: &mut [Place], places: &mut [u32], sorted: bool) {
    let count = places.len();
    if count == 1 {
        places[0] = order.iter().min().map_or(0, |&(_, place)| place);
        return;
    }
    if count < order.len() {
        order.select_nth_unstable(count);
    }
    if sorted {
        order[..count].sort_unstable();
    }
    places.iter_mut().zip(order).for_each(|(to, (_, place))| *to = *place);
    if !sorted {
        places.sort_unstable();
    }
}

struct InTopK {
    k: Option<i64>,
}

impl InTopK {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(InTopK { k: builder.attrs().int("k").ok() })
    }
}

impl Kernel for InTopK {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (predictions, targets) = (context.input(0)?, context.input(1)?);
        let k = match self.k {
            Some(k) => k,
            None => {
                let k = context.input(2)?;
                if !k.shape().is_scalar() {
                    return Err(Status::invalid_argument(format!("k must be 0-D, got shape {}", k.shape())));
                }
                k.to_index()?
            }
        };
        if !predictions.shape().is_matrix() {
            return Err(Status::invalid_argument("predictions must be 2-dimensional"));
        }
        if !targets.shape().is_vector() {
            return Err(Status::invalid_argument("targets must be 1-dimensional"));
        }
        let (rows, classes) = (predictions.shape().size(0), predictions.shape().size(1));
        if rows != targets.num_elements() {
            return Err(Status::invalid_argument(format!(
                "First dimension of predictions {rows} must match length of targets {}",
                targets.num_elements()
            )));
        }
        let (values, targets) = (predictions.as_slice::<f32>()?, targets.to_indices()?);
        let output = Tensor::build(Shape::vector(rows), |out: &mut [bool]| {
            for (index, (out, target)) in out.iter_mut().zip(targets).enumerate() {
                let row = &values[index * classes..][..classes];
                let target = usize::try_from(target).ok().and_then(|target| row.get(target));
                // A row with values that aren't finite has no order.
                *out = target.is_some_and(|target| {
                    row.iter().all(|value| value.is_finite())
                        && (row.iter().filter(|&value| value > target).count() as i64) < k
                });
            }
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

struct NthElement<T> {
    reverse: bool,
    element: PhantomData<fn(T)>,
}

const fn nth_element<T: Ranked>() -> KernelDef {
    KernelDef {
        types: const { &[("T", T::DTYPE)] },
        create: |builder| {
            let reverse = builder.attrs().bool("reverse")?;
            BoxedKernel::new(NthElement::<T> { reverse, element: PhantomData })
        },
    }
}

impl<T: Ranked> Kernel for NthElement<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (input, n) = (context.input(0)?, context.input(1)?);
        if !n.shape().is_scalar() {
            return Err(Status::invalid_argument(format!("N must be scalar but has rank {}", n.shape().rank())));
        }
        let n = n.to_index()?;
        if n < 0 {
            return Err(Status::invalid_argument(format!("n must be non-negative but is {n}")));
        }
        let shape = input.shape();
        let Some(&columns) = shape.last() else {
            return Err(Status::invalid_argument(format!(
                "Input must be at least rank 1 but is rank {}",
                shape.rank()
            )));
        };
        if columns <= n {
            return Err(Status::invalid_argument(format!("Input must have last dimension > n = {n}")));
        }
        let (n, columns) = (n as usize, columns as usize);
        let place = if self.reverse { columns - 1 - n } else { n };
        let values = input.as_slice::<T>()?;
        let output = Tensor::build(shape.slice(0, shape.rank() - 1), |out: &mut [T]| {
            let mut order = Vec::with_capacity(columns);
            for (out, row) in out.iter_mut().zip(values.chunks_exact(columns)) {
                places_of(row, &mut order);
                // The order has the largest first.
                let (_, at) = *order.select_nth_unstable(columns - 1 - place).1;
                *out = row[at as usize];
            }
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, infer, run_op};

    #[test]
    fn largest_elements() {
        let x = Tensor::from_slice(&[2, 4], &[3f32, 1., 4., 3., f32::NAN, 2., 7., 2.]).unwrap();
        let y = run_op("TopKV2", attrs![], &[x.clone(), Tensor::scalar(3i32)]).unwrap();
        assert_eq!(y[0].as_slice::<f32>().unwrap(), &[4., 3., 3., 7., 2., 2.]);
        assert_eq!(y[1].as_slice::<i32>().unwrap(), &[2, 0, 3, 2, 1, 3]);
        let y = run_op("TopK", attrs![("k", 1i64)], &[x.clone()]).unwrap();
        assert_eq!(y[1].as_slice::<i32>().unwrap(), &[2, 2]);
        let status = run_op("TopKV2", attrs![], &[x, Tensor::scalar(5i32)]).unwrap_err();
        assert!(status.message().starts_with("input must have at least k columns. Had 4, needed 5"), "{status}");
        let none = Tensor::from_slice::<f32>(&[0, 4], &[]).unwrap();
        assert_eq!(run_op("TopKV2", attrs![], &[none, Tensor::scalar(2i32)]).unwrap()[0].dims(), &[0, 2]);
    }

    #[test]
    fn targets_among_the_largest() {
        let inf = f32::INFINITY;
        let x = Tensor::from_slice(&[4, 3], &[0.1f32, 0.5, 0.5, 0.2, inf, 0.1, 0.1, 0.5, 0.5, 0.3, 0.2, 0.1]).unwrap();
        let y = run_op("InTopK", attrs![("k", 1i64)], &[x.clone(), Tensor::vector(&[1i32, 1, 7, -1])]).unwrap();
        assert_eq!(y[0].as_slice::<bool>().unwrap(), &[true, false, false, false]);
        let inputs = [x, Tensor::vector(&[0i64, 0, 0, 2]), Tensor::scalar(3i64)];
        let y = run_op("InTopKV2", attrs![], &inputs).unwrap();
        assert_eq!(y[0].as_slice::<bool>().unwrap(), &[true, false, true, true]);
    }

    #[test]
    fn the_nth() {
        let x = Tensor::vector(&[5i32, 1, 9, 3]);
        let run =
            |n: i32, reverse: bool| run_op("NthElement", attrs![("reverse", reverse)], &[x.clone(), Tensor::scalar(n)]);
        assert_eq!(run(1, false).unwrap()[0].to_scalar::<i32>().unwrap(), 3);
        assert_eq!(run(0, true).unwrap()[0].to_scalar::<i32>().unwrap(), 9);
        assert!(run(4, false).is_err());
    }

    #[test]
    fn shapes() {
        let attrs = attrs![("Tk", DType::Int32), ("index_type", DType::Int32)];
        let shapes = infer("TopKV2", attrs, "[2,?];[]", &[(1, Tensor::scalar(3i32))]).unwrap();
        assert_eq!((shapes[0].to_string(), shapes[1].to_string()), ("[2,3]".into(), "[2,3]".into()));
    }
}
