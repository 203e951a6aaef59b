//! Candidate sampling: AllCandidateSampler, UniformCandidateSampler, LogUniformCandidateSampler, FixedUnigramCandidateSampler,
//! LearnedUnigramCandidateSampler, ThreadUnsafeUnigramCandidateSampler, and ComputeAccidentalHits.

use super::generator::{Generator, SingleSample};
use super::unigram::{AliasTable, GrowingWeights, Weights};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use graph::Output;
use kernel::{
    BoxedKernel, Cancellation, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags,
    ShapeContext,
};
use parking_lot::Mutex;
use std::sync::OnceLock;
use tensor::{PartialShape, Result, Shape, Status, Tensor};

const OUTPUTS: &[&str] = &["sampled_candidates: int64", "true_expected_count: float", "sampled_expected_count: float"];
const RANGE_ATTRS: &[&str] = &[
    "num_true: int >= 1",
    "num_sampled: int >= 1",
    "unique: bool",
    "range_max: int >= 1",
    "seed: int = 0",
    "seed2: int = 0",
];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "AllCandidateSampler",
            inputs: &["true_classes: int64"],
            outputs: OUTPUTS,
            attrs: &["num_true: int >= 1", "num_sampled: int >= 1", "unique: bool", "seed: int = 0", "seed2: int = 0"],
            flags: OpFlags::STATEFUL,
        },
        shape: sampler_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| Sampler::create(builder, Distribution::All))],
    },
    Op {
        def: OpDef {
            name: "UniformCandidateSampler",
            inputs: &["true_classes: int64"],
            outputs: OUTPUTS,
            attrs: RANGE_ATTRS,
            flags: OpFlags::STATEFUL,
        },
        shape: sampler_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| Sampler::create(builder, Distribution::Uniform))],
    },
    Op {
        def: OpDef {
            name: "LogUniformCandidateSampler",
            inputs: &["true_classes: int64"],
            outputs: OUTPUTS,
            attrs: RANGE_ATTRS,
            flags: OpFlags::STATEFUL,
        },
        shape: sampler_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| Sampler::create(builder, Distribution::LogUniform))],
    },
    Op {
        def: OpDef {
            name: "LearnedUnigramCandidateSampler",
            inputs: &["true_classes: int64"],
            outputs: OUTPUTS,
            attrs: RANGE_ATTRS,
            flags: OpFlags::STATEFUL,
        },
        shape: sampler_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| {
            let weights = GrowingWeights::new(builder.attrs().int("range_max")?)?;
            Sampler::create(builder, Distribution::Growing(Mutex::new(weights)))
        })],
    },
    Op {
        def: OpDef {
            name: "ThreadUnsafeUnigramCandidateSampler",
            inputs: &["true_classes: int64"],
            outputs: OUTPUTS,
            attrs: RANGE_ATTRS,
            flags: OpFlags::STATEFUL,
        },
        shape: sampler_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| {
            let weights = GrowingWeights::new(builder.attrs().int("range_max")?)?;
            Sampler::create(builder, Distribution::Growing(Mutex::new(weights)))
        })],
    },
    Op {
        def: OpDef {
            name: "FixedUnigramCandidateSampler",
            inputs: &["true_classes: int64"],
            outputs: OUTPUTS,
            attrs: &[
                "num_true: int >= 1",
                "num_sampled: int >= 1",
                "unique: bool",
                "range_max: int >= 1",
                "vocab_file: string = ''",
                "distortion: float = 1.0",
                "num_reserved_ids: int = 0",
                "num_shards: int >= 1 = 1",
                "shard: int >= 0 = 0",
                "unigrams: list(float) = []",
                "seed: int = 0",
                "seed2: int = 0",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: sampler_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(create_fixed)],
    },
    Op {
        def: OpDef {
            name: "ComputeAccidentalHits",
            inputs: &["true_classes: int64", "sampled_candidates: int64"],
            outputs: &["indices: int32", "ids: int64", "weights: float"],
            attrs: &["num_true: int", "seed: int = 0", "seed2: int = 0"],
            flags: OpFlags::NONE,
        },
        shape: hits_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| {
            BoxedKernel::new(AccidentalHits { true_count: builder.attrs().int("num_true")? })
        })],
    },
];

/// Returns the positions of true classes among sampled ones: rows, positions, and the logarithm of a zero weight.
#[track_caller]
pub fn compute_accidental_hits(true_classes: &Output, sampled_candidates: &Output, num_true: i64) -> Vec<Output> {
    let op = true_classes.graph().op("ComputeAccidentalHits").input(true_classes).input(sampled_candidates);
    op.attr("num_true", num_true).outputs()
}

fn sampler_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let classes = c.with_rank(0, 2)?;
    let (sampled, true_count) = (c.attrs.int("num_sampled")?, c.attrs.int("num_true")?);
    c.set_output(0, PartialShape::from_dims(&[sampled]));
    c.set_output(1, PartialShape::new(&[classes.dim(0), Some(true_count)]));
    c.set_output(2, PartialShape::from_dims(&[sampled]));
    Ok(())
}

fn hits_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let true_count = c.attrs.int("num_true")?;
    c.with_rank(0, 2)?.slice(1, 2).merge(&PartialShape::from_dims(&[true_count]))?;
    c.with_rank(1, 1)?;
    for output in 0..3 {
        c.set_output(output, PartialShape::unknown_of_rank(1));
    }
    Ok(())
}

enum Distribution {
    /// Each class once.
    All,
    Uniform,
    /// Small numbers more often, as for words sorted by frequency.
    LogUniform,
    /// By weights, which are read from a file, if there is a path, when the first classes are drawn.
    Fixed(OnceLock<AliasTable>, Option<(Weights, String)>),
    /// By the frequency of each class among the true ones.
    Growing(Mutex<GrowingWeights>),
}

fn create_fixed(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
    let attrs = builder.attrs();
    let (path, counts) = (attrs.string("vocab_file")?, attrs.floats("unigrams")?);
    if path.is_empty() && counts.is_empty() {
        return Err(Status::invalid_argument("Must provide either vocab_file or unigrams."));
    }
    if !path.is_empty() && !counts.is_empty() {
        return Err(Status::invalid_argument("Must only provide one of vocab_file and unigrams."));
    }
    let weights = Weights {
        distortion: attrs.float("distortion")?,
        reserved: attrs.int("num_reserved_ids")?,
        shards: attrs.int("num_shards")?.max(1),
        shard: attrs.int("shard")?,
    };
    let table = OnceLock::new();
    if !path.is_empty() {
        return Sampler::create(builder, Distribution::Fixed(table, Some((weights, path.to_owned()))));
    }
    let made = AliasTable::from_counts(&weights, attrs.int("range_max")?, counts)?;
    table.get_or_init(|| made);
    Sampler::create(builder, Distribution::Fixed(table, None))
}

struct Sampler {
    generator: Generator,
    distribution: Distribution,
    range: i64,
    sampled: usize,
    true_count: i64,
    unique: bool,
}

impl Sampler {
    fn create(builder: &KernelBuilder<'_>, distribution: Distribution) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let sampled = attrs.int("num_sampled")?;
        if !(1..=i64::from(i32::MAX)).contains(&sampled) {
            return Err(Status::invalid_argument(format!("num_sampled must be positive, got {sampled}")));
        }
        let range = if matches!(distribution, Distribution::All) { sampled } else { attrs.int("range_max")? };
        let unique = attrs.bool("unique")?;
        if range < 1 {
            return Err(Status::invalid_argument(format!("range_max must be positive, got {range}")));
        }
        let reads_a_file = matches!(&distribution, Distribution::Fixed(_, Some(_)));
        let sampler = Sampler {
            generator: Generator::new(builder)?,
            distribution,
            range,
            sampled: sampled as usize,
            true_count: attrs.int("num_true")?,
            unique,
        };
        if reads_a_file { BoxedKernel::new_blocking(sampler) } else { BoxedKernel::new(sampler) }
    }

    /// Reads the table of weights from a file, once.
    fn load(&self) -> Result<()> {
        if let Distribution::Fixed(table, Some((weights, path))) = &self.distribution
            && table.get().is_none()
        {
            let made = AliasTable::from_file(weights, self.range, path)?;
            table.get_or_init(|| made);
        }
        Ok(())
    }

    fn sample(&self, random: &mut SingleSample) -> i64 {
        match &self.distribution {
            Distribution::All => 0,
            Distribution::Fixed(table, _) => table.get().map_or(0, |table| table.sample(random)),
            Distribution::Growing(weights) => weights.lock().sample(random),
            Distribution::Uniform => random.below_u64(self.range as u64) as i64,
            Distribution::LogUniform => {
                let value = (random.double_fraction() * (self.range as f64).ln_1p()).exp() as i64 - 1;
                value % self.range
            }
        }
    }

    fn probability(&self, class: i64) -> f32 {
        match &self.distribution {
            Distribution::All => 1.0,
            Distribution::Fixed(table, _) => table.get().map_or(0.0, |table| table.probability(class)),
            Distribution::Growing(weights) => weights.lock().probability(class),
            Distribution::Uniform => (1.0 / self.range as f64) as f32,
            Distribution::LogUniform => {
                (((class as f64 + 2.0) / (class as f64 + 1.0)).ln() / (self.range as f64).ln_1p()) as f32
            }
        }
    }

    /// Returns the expected count of a class among the sampled ones, given the number of tries.
    fn expected_count(&self, class: i64, tries: usize) -> f32 {
        let probability = self.probability(class);
        if matches!(self.distribution, Distribution::All) {
            return 1.0;
        }
        if tries == self.sampled {
            return probability * self.sampled as f32;
        }
        -(tries as f32 * (-probability).ln_1p()).exp_m1()
    }

    /// Returns the sampled classes, and the number of tries.
    fn classes(&self, cancellation: &Cancellation) -> Result<(Vec<i64>, usize)> {
        if matches!(self.distribution, Distribution::All) {
            return Ok(((0..self.range).collect(), self.sampled));
        }
        let mut random = self.generator.reserve_single_samples(2048 * self.sampled);
        if !self.unique {
            return Ok(((0..self.sampled).map(|_| self.sample(&mut random)).collect(), self.sampled));
        }
        find_different(self.sampled, TRIES_MAX, cancellation, || self.sample(&mut random))
    }
}

/// Draws until there are `count` different classes; returns them, and the number of tries.
fn find_different(
    count: usize,
    tries_max: usize,
    cancellation: &Cancellation,
    mut draw: impl FnMut() -> i64,
) -> Result<(Vec<i64>, usize)> {
    let mut classes = Vec::with_capacity(count);
    let mut used = HashSet::with_capacity(count);
    let mut tries = 0;
    while classes.len() < count {
        tries += 1;
        if tries % TRIES_BETWEEN_LOOKS == 0 {
            if let Some(status) = cancellation.status() {
                return Err(status);
            }
            // TensorFlow counts tries in 32 bits, and stops there.
            if tries > tries_max {
                return Err(Status::resource_exhausted(format!(
                    "found only {} of {count} different classes in {tries} tries",
                    classes.len()
                )));
            }
        }
        let class = draw();
        if used.insert(class) {
            classes.push(class);
        }
    }
    Ok((classes, tries))
}

impl Kernel for Sampler {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let true_classes = context.input(0)?;
        if !true_classes.shape().is_matrix() {
            return Err(Status::invalid_argument("true_classes must be a matrix"));
        }
        if true_classes.dims()[1] != self.true_count {
            return Err(Status::invalid_argument(format!(
                "true_classes must have num_true columns, expected: {} was: {}",
                true_classes.dims()[1],
                self.true_count
            )));
        }
        if self.unique && self.sampled as i64 > self.range {
            return Err(Status::invalid_argument("Sampler's range is too small."));
        }
        if let Distribution::Growing(weights) = &self.distribution {
            weights.lock().check(true_classes.as_slice::<i64>()?)?;
        }
        self.load()?;
        // Refused here if there isn't enough memory.
        drop(Tensor::new(tensor::DType::Int64, Shape::vector(self.sampled))?);
        let (classes, tries) = self.classes(&context.step().cancellation)?;
        let counts =
            |classes: &[i64]| -> Vec<f32> { classes.iter().map(|&class| self.expected_count(class, tries)).collect() };
        let of_true = Tensor::from_slice(true_classes.dims(), &counts(true_classes.as_slice::<i64>()?))?;
        let of_sampled = Tensor::vector(&counts(&classes));
        if let Distribution::Growing(weights) = &self.distribution {
            weights.lock().see(true_classes.as_slice::<i64>()?);
        }
        context.set_output(0, Tensor::vector(&classes));
        context.set_output(1, of_true);
        context.set_output(2, of_sampled);
        Ok(())
    }

    fn cost(&self) -> Cost {
        // Drawing different classes takes more tries the fewer are left, whatever the size of the inputs.
        if self.unique || self.sampled > CHEAP_SAMPLES { Cost::Expensive } else { Cost::ByInput }
    }
}

/// This many samples take next to no time.
const CHEAP_SAMPLES: usize = 1 << 12;

/// The number of draws between checks for cancellation.
const TRIES_BETWEEN_LOOKS: usize = 1 << 14;

/// The most draws to find different classes.
const TRIES_MAX: usize = i32::MAX as usize;

struct AccidentalHits {
    true_count: i64,
}

impl Kernel for AccidentalHits {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (true_classes, sampled) = (context.input(0)?, context.input(1)?);
        if !true_classes.shape().is_matrix() || true_classes.dims()[1] != self.true_count {
            return Err(Status::invalid_argument("true_candidates must be a batch_size * num_true matrix"));
        }
        if !sampled.shape().is_vector() {
            return Err(Status::invalid_argument(
                "sampled_candidates must be a vector, which is typically an output from CandidateSampler",
            ));
        }
        let mut places: HashMap<i64, i64> = HashMap::with_capacity(sampled.num_elements());
        places.extend(sampled.as_slice::<i64>()?.iter().zip(0..).map(|(&class, place)| (class, place)));
        let (mut rows, mut ids): (Vec<i32>, Vec<i64>) = Default::default();
        for (index, class) in true_classes.as_slice::<i64>()?.iter().enumerate() {
            if let Some(&place) = places.get(class) {
                rows.push((index as i64 / self.true_count) as i32);
                ids.push(place);
            }
        }
        context.set_output(0, Tensor::vector(&rows));
        context.set_output(1, Tensor::vector(&ids));
        context.set_output(2, Tensor::vector(&vec![-f32::MAX; ids.len()]));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_shape, run_op};

    #[test]
    fn hits() {
        let classes = Tensor::from_slice(&[2, 2], &[1i64, 2, 0, 4]).unwrap();
        let sampled = Tensor::vector(&[0i64, 1, 3]);
        let hits = run_op("ComputeAccidentalHits", attrs![("num_true", 2i64)], &[classes, sampled]).unwrap();
        assert_eq!(hits[0].as_slice::<i32>().unwrap(), [0, 1]);
        assert_eq!(hits[1].as_slice::<i64>().unwrap(), [1, 0]);
        assert_eq!(hits[2].as_slice::<f32>().unwrap(), [-f32::MAX; 2]);
    }

    #[test]
    fn unique_samples_differ_and_too_many_are_refused() {
        let classes = Tensor::from_slice(&[1, 1], &[1i64]).unwrap();
        let sample = |count: i64| {
            let attrs = attrs![
                ("num_true", 1i64),
                ("num_sampled", count),
                ("unique", true),
                ("range_max", 5i64),
                ("seed", 3i64)
            ];
            run_op("LogUniformCandidateSampler", attrs, &[classes.clone()])
        };
        let mut drawn = sample(5).unwrap()[0].as_slice::<i64>().unwrap().to_vec();
        drawn.sort_unstable();
        assert_eq!(drawn, [0, 1, 2, 3, 4]);
        assert_eq!(sample(6).unwrap_err().code(), tensor::Code::InvalidArgument);
    }

    /// The last of a million different classes is a rare one.
    #[test]
    fn sampling_ends_with_its_step() {
        let session = crate::testing::TestSession::new();
        let classes = session.graph.constant_tensor(&Tensor::from_slice(&[1, 1], &[1i64]).unwrap());
        let op = session.graph.op("LogUniformCandidateSampler").input(&classes).attr("num_true", 1i64);
        let op = op.attr("num_sampled", 3_000_000i64).attr("range_max", 3_000_000i64).attr("unique", true).build();
        session.step.cancellation.cancel(Status::cancelled("enough"));
        assert_eq!(session.run(&op, &[]).unwrap_err().code(), tensor::Code::Cancelled);
        let kernel = crate::registry().create_kernel(session.graph.graph().node(op.id()), "").unwrap();
        assert!(matches!(kernel, BoxedKernel::Sync(kernel) if kernel.cost() == Cost::Expensive));
    }

    #[test]
    fn a_search_for_a_class_that_never_comes_ends() {
        let status = find_different(2, TRIES_BETWEEN_LOOKS, &Cancellation::new(), || 7).unwrap_err();
        assert_eq!(status.code(), tensor::Code::ResourceExhausted);
        assert!(status.message().starts_with("found only 1 of 2 different classes"), "{status}");
    }

    #[test]
    fn shapes() {
        let attrs = attrs![("num_true", 1i64), ("num_sampled", 4i64), ("unique", true)];
        check_shape("AllCandidateSampler", attrs, "[?,1]", "[4];[?,1];[4]");
    }
}
