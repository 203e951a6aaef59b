//! Building blocks of k-means clustering: NearestNeighbors, and the choice of initial centers, KmeansPlusPlusInitialization and
//! KMC2ChainInitialization.

use super::generator::SingleSample;
use graph::Output;
use kernel::{BoxedKernel, Cost, Gradient, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags, shape};
use numeric::matmul::{MatMulShape, Operand, matmul};
use tensor::{PartialShape, Result, Shape, Status, Tensor};

/// The number of points that are compared with all centers between checks for cancellation.
const POINTS_AT_ONCE: usize = 256;

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "KmeansPlusPlusInitialization",
            inputs: &["points: float", "num_to_sample: int64", "seed: int64", "num_retries_per_sample: int64"],
            outputs: &["samples: float"],
            attrs: &[],
            flags: OpFlags::NONE,
        },
        shape: shape::unknown,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(KmeansPlusPlus))],
    },
    Op {
        def: OpDef {
            name: "KMC2ChainInitialization",
            inputs: &["distances: float", "seed: int64"],
            outputs: &["index: int64"],
            attrs: &[],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            c.set_output(0, PartialShape::new(&[]));
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(Chain))],
    },
    Op {
        def: OpDef {
            name: "NearestNeighbors",
            inputs: &["points: float", "centers: float", "k: int64"],
            outputs: &["nearest_center_indices: int64", "nearest_center_distances: float"],
            attrs: &[],
            flags: OpFlags::NONE,
        },
        shape: shape::unknown,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(NearestNeighbors))],
    },
];

/// Returns the indices of the `k` nearest centers of each point, and their squared distances.
#[track_caller]
pub fn nearest_neighbors(points: &Output, centers: &Output, k: &Output) -> Vec<Output> {
    let op = points.graph().op("NearestNeighbors").input(points).input(centers).input(k);
    op.outputs()
}

fn scalar_of(context: &OpContext<'_>, index: usize, name: &str) -> Result<i64> {
    let input = context.input(index)?;
    if !input.shape().is_scalar() {
        return Err(Status::invalid_argument(format!("Input {name} should be a scalar.")));
    }
    input.to_scalar::<i64>()
}

fn look_for_cancellation(context: &OpContext<'_>) -> Result<()> {
    context.step().cancellation.status().map_or(Ok(()), Err)
}

/// Rows of numbers, and half of each row's squared norm.
struct Rows<'a> {
    values: &'a [f32],
    dims: usize,
    half_squares: Vec<f32>,
}

impl<'a> Rows<'a> {
    fn of(context: &'a OpContext<'_>, index: usize, name: &str) -> Result<Rows<'a>> {
        let input = context.input(index)?;
        if !input.shape().is_matrix() {
            return Err(Status::invalid_argument(format!("Input {name} should be a matrix.")));
        }
        let (values, dims) = (input.as_slice::<f32>()?, input.shape().size(1));
        let half_square = |row: &[f32]| 0.5 * row.iter().map(|number| number * number).sum::<f32>();
        let half_squares = match dims {
            0 => vec![0.0; input.shape().size(0)],
            dims => values.chunks_exact(dims).map(half_square).collect(),
        };
        Ok(Rows { values, dims, half_squares })
    }

    fn count(&self) -> usize {
        self.half_squares.len()
    }

    fn row(&self, index: usize) -> &'a [f32] {
        &self.values[index * self.dims..][..self.dims]
    }

    /// Returns half of the squared distance of two rows.
    fn half_distance(&self, from: usize, to: usize) -> f32 {
        let product: f32 = self.row(from).iter().zip(self.row(to)).map(|(a, b)| a * b).sum();
        self.half_squares[from] - product + self.half_squares[to]
    }
}

/// Chooses centers one after the other, each with a probability that grows with its distance from the previous ones.
struct KmeansPlusPlus;

/// The centers chosen so far.
struct Choice<'a> {
    points: &'a Rows<'a>,
    random: SingleSample,
    is_chosen: Vec<bool>,
    chosen: Vec<usize>,
    /// Half of the squared distance of each point to its nearest center.
    distances: Vec<f32>,
    /// The sums of the distances up to each point.
    sums: Vec<f32>,
}

impl Choice<'_> {
    /// Returns a point that isn't chosen yet.
    fn draw(&mut self, context: &OpContext<'_>) -> Result<usize> {
        let count = self.points.count();
        if self.chosen.is_empty() {
            return Ok(self.random.below_u64(count as u64) as usize);
        }
        let total = self.sums[count - 1];
        loop {
            look_for_cancellation(context)?;
            let index = match total > 0.0 {
                true => {
                    let at = self.random.fraction() * total;
                    self.sums.partition_point(|&sum| sum <= at).min(count - 1)
                }
                // All remaining points coincide with centers.
                false => self.random.below_u64(count as u64) as usize,
            };
            if !self.is_chosen[index] {
                return Ok(index);
            }
        }
    }

    /// Returns the distances once a point is a center, too.
    fn distances_with(&self, center: usize) -> Vec<f32> {
        let with = |(point, &distance): (usize, &f32)| distance.min(self.points.half_distance(point, center));
        self.distances.iter().enumerate().map(with).collect()
    }

    /// Chooses the next center: the best of several draws.
    fn choose(&mut self, draws: i64, context: &OpContext<'_>) -> Result<()> {
        let mut sum = 0.0;
        self.sums.clear();
        self.sums.extend(self.distances.iter().map(|distance| {
            sum += distance;
            sum
        }));
        let mut best: Option<(f32, usize, Vec<f32>)> = None;
        for _ in 0..draws {
            let center = self.draw(context)?;
            let distances = self.distances_with(center);
            let potential: f32 = distances.iter().sum();
            if best.as_ref().is_none_or(|(least, _, _)| potential < *least) {
                best = Some((potential, center, distances));
            }
        }
        if let Some((_, center, distances)) = best {
            self.distances = distances;
            self.is_chosen[center] = true;
            self.chosen.push(center);
        }
        Ok(())
    }
}

impl Kernel for KmeansPlusPlus {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let points = Rows::of(context, 0, "points")?;
        let (to_sample, seed) = (scalar_of(context, 1, "num_to_sample")?, scalar_of(context, 2, "seed")?);
        let retries = match scalar_of(context, 3, "num_retries_per_sample")? {
            retries if retries < 0 => 2 + (to_sample.max(1) as f64).ln() as i64,
            retries => retries,
        };
        let count = points.count();
        if count == 0 {
            return Err(Status::invalid_argument("Expected points.rows() > 0."));
        }
        if to_sample <= 0 {
            return Err(Status::invalid_argument("Expected num_to_sample > 0."));
        }
        if to_sample as u64 > count as u64 {
            return Err(Status::invalid_argument(format!(
                "Expected num_to_sample <= points.rows(). {to_sample} vs {count}."
            )));
        }
        let mut choice = Choice {
            points: &points,
            random: SingleSample::of_seed(seed),
            is_chosen: vec![false; count],
            chosen: Vec::new(),
            distances: vec![f32::INFINITY; count],
            sums: Vec::new(),
        };
        for _ in 0..to_sample {
            choice.choose(retries.saturating_add(1), context)?;
        }
        let chosen = choice.chosen;
        let samples = Tensor::build(Shape::new(&[to_sample, points.dims as i64])?, |out: &mut [f32]| {
            for (place, &center) in chosen.iter().enumerate() {
                out[place * points.dims..][..points.dims].copy_from_slice(points.row(center));
            }
        })?;
        context.set_output(0, samples);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

/// Walks over candidates, and moves to each with a probability that grows with its distance from the centers.
struct Chain;

impl Kernel for Chain {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let distances = context.input(0)?;
        if !distances.shape().is_vector() {
            return Err(Status::invalid_argument("Input distances should be a vector."));
        }
        let mut random = SingleSample::of_seed(scalar_of(context, 1, "seed")?);
        let distances = distances.as_slice::<f32>()?;
        let Some(&first) = distances.first() else {
            return Err(Status::invalid_argument("Expected distances_tensor.size() > 0."));
        };
        let mut selected = (0, first);
        for (index, &distance) in distances.iter().enumerate().skip(1) {
            if distance > random.fraction() * selected.1 {
                selected = (index, distance);
            }
        }
        context.set_output(0, Tensor::scalar(selected.0 as i64));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::ByInput
    }
}

struct NearestNeighbors;

impl Kernel for NearestNeighbors {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (points, centers) = (Rows::of(context, 0, "points")?, Rows::of(context, 1, "centers")?);
        let k = scalar_of(context, 2, "k")?;
        if points.count() == 0 {
            return Err(Status::invalid_argument("Expected points.rows() > 0."));
        }
        if points.dims != centers.dims {
            return Err(Status::invalid_argument(format!(
                "Expected point_dimensions == center_dimensions: {} vs {}.",
                points.dims, centers.dims
            )));
        }
        if k < 0 {
            return Err(Status::invalid_argument("Expected k >= 0."));
        }
        let k = usize::try_from(k).unwrap_or(usize::MAX).min(centers.count());
        let shape = Shape::new(&[points.count() as i64, k as i64])?;
        let mut indices = Tensor::new(tensor::DType::Int64, shape.clone())?;
        let mut distances = Tensor::new(tensor::DType::Float, shape)?;
        if k > 0 {
            let (indices, distances) = (indices.make_mut::<i64>()?, distances.make_mut::<f32>()?);
            let mut products = vec![0f32; POINTS_AT_ONCE.min(points.count()) * centers.count()];
            let mut order: Vec<(f32, usize)> = Vec::with_capacity(centers.count());
            for first in (0..points.count()).step_by(POINTS_AT_ONCE) {
                look_for_cancellation(context)?;
                let rows = POINTS_AT_ONCE.min(points.count() - first);
                let products = &mut products[..rows * centers.count()];
                let shape = MatMulShape::new(rows, points.dims, centers.count());
                let block = &points.values[first * points.dims..][..rows * points.dims];
                matmul(shape.stored(Operand::Plain, Operand::Transposed), block, centers.values, products);
                for (row, products) in products.chunks_exact(centers.count()).enumerate() {
                    let point = first + row;
                    order.clear();
                    let of_centers =
                        centers.half_squares.iter().zip(products).map(|(square, product)| square - product);
                    order.extend(of_centers.zip(0..));
                    let by_distance = |a: &(f32, usize), b: &(f32, usize)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
                    if k < order.len() {
                        order.select_nth_unstable_by(k - 1, by_distance);
                        order.truncate(k);
                    }
                    order.sort_unstable_by(by_distance);
                    for (place, &(partial, center)) in order.iter().enumerate() {
                        indices[point * k + place] = center as i64;
                        distances[point * k + place] = 2.0 * (points.half_squares[point] + partial);
                    }
                }
            }
        }
        context.set_output(0, indices);
        context.set_output(1, distances);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, run_op};
    use tensor::{Code, Tensor};

    fn grid() -> Tensor {
        Tensor::from_slice(&[4, 2], &[0f32, 0.0, 0.0, 1.0, 5.0, 5.0, 9.0, 9.0]).unwrap()
    }

    #[test]
    fn neighbors_come_nearest_first() {
        let centers = Tensor::from_slice(&[3, 2], &[9f32, 9.0, 0.0, 0.0, 4.0, 5.0]).unwrap();
        let found = run_op("NearestNeighbors", attrs![], &[grid(), centers.clone(), Tensor::scalar(2i64)]).unwrap();
        assert_eq!(found[0].to_vec::<i64>().unwrap(), [1, 2, 1, 2, 2, 0, 0, 2]);
        assert_eq!(found[1].to_vec::<f32>().unwrap(), [0.0, 41.0, 1.0, 32.0, 1.0, 32.0, 0.0, 41.0]);
        // More than there are.
        let found = run_op("NearestNeighbors", attrs![], &[grid(), centers, Tensor::scalar(9i64)]).unwrap();
        assert_eq!(found[0].dims(), [4, 3]);
    }

    #[test]
    fn all_points_are_chosen_once_even_where_they_coincide() {
        for points in [grid(), Tensor::from_slice(&[3, 1], &[1f32; 3]).unwrap()] {
            let count = Tensor::scalar(points.dims()[0]);
            let inputs = [points.clone(), count, Tensor::scalar(7i64), Tensor::scalar(-1i64)];
            let samples = run_op("KmeansPlusPlusInitialization", attrs![], &inputs).unwrap();
            let sorted = |tensor: &Tensor| {
                let mut values = tensor.to_vec::<f32>().unwrap();
                values.sort_by(f32::total_cmp);
                values
            };
            assert_eq!(sorted(&samples[0]), sorted(&points));
        }
    }

    #[test]
    fn the_chain_moves_to_what_is_far() {
        let inputs = [Tensor::vector(&[0f32, 0.0, 3.0, 0.0]), Tensor::scalar(5i64)];
        let index = run_op("KMC2ChainInitialization", attrs![], &inputs).unwrap();
        assert_eq!(index[0].to_scalar::<i64>().unwrap(), 2);
    }

    #[test]
    fn mistakes() {
        let centers = Tensor::from_slice(&[1, 3], &[0f32; 3]).unwrap();
        let two = || Tensor::scalar(2i64);
        let refused = |op: &str, inputs: &[Tensor]| run_op(op, attrs![], inputs).unwrap_err().code();
        assert_eq!(refused("NearestNeighbors", &[grid(), centers, two()]), Code::InvalidArgument);
        assert_eq!(refused("NearestNeighbors", &[grid(), grid(), Tensor::scalar(-1i64)]), Code::InvalidArgument);
        let inputs = [grid(), Tensor::scalar(5i64), two(), two()];
        assert_eq!(refused("KmeansPlusPlusInitialization", &inputs), Code::InvalidArgument);
        assert_eq!(refused("KMC2ChainInitialization", &[Tensor::scalar(1f32), two()]), Code::InvalidArgument);
    }
}
