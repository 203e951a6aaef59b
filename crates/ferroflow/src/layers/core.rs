//! [`Dense`], [`Dropout`], [`Flatten`] and [`Embedding`].

use super::base::{Base, WeightOptions};
use super::options::{Activation, DataFormat, Training, check_positive, dropout as dropout_op};
use crate::compose::{self, cast, concat, int, ints, known_dim, known_rank, matmul, node, reshape};
use crate::initializers::{self, Initializer};
use crate::train::Number;
use crate::variable::Variable;
use graph::Output;
use tensor::{DType, PartialShape, Result, Status};

/// A fully connected layer: `activation(x · kernel + bias)`, as `tf.layers.Dense`.
///
/// Its variables are `kernel` (inputs, units) and `bias` (units), in the scope `dense`. An input of more than two axes is
/// multiplied along its last one.
///
/// ```
/// use ferroflow::layers::{Activation, Dense};
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 784));
/// let layer = Dense::new(100).activation(Activation::Relu).name("fc1");
/// assert_eq!(layer.apply(&x).shape(), PartialShape::from([-1, 100]));
/// assert_eq!(layer.variables(&g)[0].name(), "fc1/kernel");
/// ```
pub struct Dense {
    base: Base,
    units: i64,
    activation: Activation,
    use_bias: bool,
    kernel: WeightOptions,
    bias: WeightOptions,
}

/// Adds a [`Dense`] layer with default options.
///
/// ```
/// use ferroflow::layers::dense;
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 784));
/// assert_eq!(dense(&x, 10).shape(), PartialShape::from([-1, 10]));
/// ```
#[track_caller]
pub fn dense(x: &Output, units: i64) -> Output {
    Dense::new(units).apply(x)
}

impl Dense {
    /// Returns a layer with this many units.
    ///
    /// ```
    /// let layer = ferroflow::layers::Dense::new(100);
    /// ```
    pub fn new(units: i64) -> Dense {
        Dense {
            base: Base::new("dense"),
            units,
            activation: Activation::Linear,
            use_bias: true,
            kernel: WeightOptions::default(),
            bias: WeightOptions::default(),
        }
    }

    fn add(&self, x: &Output) -> Result<Output> {
        check_positive(&[self.units], "the number of units")?;
        check_floating(x, "a dense layer")?;
        let rank = known_rank(x, "the input of a dense layer")?;
        if rank < 1 {
            return Err(Status::invalid_argument("the input of a dense layer must have at least one axis"));
        }
        let inputs = known_dim(x, rank - 1, "the last dimension of the input of a dense layer")?;
        self.base.apply(x.graph(), |weights| {
            let kernel = weights.get("kernel", &[inputs, self.units], x.dtype(), &self.kernel, None)?;
            let bias = match self.use_bias {
                true => Some(weights.get("bias", &[self.units], x.dtype(), &self.bias, Some(initializers::zeros()))?),
                false => None,
            };
            let mut y = match rank {
                2 => matmul(x, &kernel.read())?,
                _ => along_last_axis(x, &kernel, inputs, self.units, rank)?,
            };
            if let Some(bias) = bias {
                y = node("BiasAdd", &[&y, &bias.read()])?;
            }
            self.activation.apply(&y)
        })
    }
}

fn along_last_axis(x: &Output, kernel: &Variable, inputs: i64, units: i64, rank: usize) -> Result<Output> {
    let rows = matmul(&reshape(x, &[-1, inputs as i32])?, &kernel.read())?;
    let shape = x.shape().with_dim(rank - 1, Some(units));
    let y = match shape.to_shape() {
        Some(shape) => reshape(&rows, &shape.dims().iter().map(|&size| size as i32).collect::<Vec<_>>())?,
        None => {
            let leading = compose::rows(&compose::shape_of(x)?, 0, Some(-1))?;
            let dims = concat(&[&leading, &ints(x.graph(), &[units as i32])], 0)?;
            node("Reshape", &[&rows, &dims])?
        }
    };
    y.set_shape(&shape)?;
    Ok(y)
}

pub(super) fn check_floating(x: &Output, what: &str) -> Result<()> {
    if x.dtype().is_floating() {
        return Ok(());
    }
    Err(Status::invalid_argument(format!("{what} takes floating-point numbers, but {} is {}", x.name(), x.dtype())))
}

base_options!(Dense, "Dense::new(10)");
bias_options!(Dense, "Dense::new(10)");
weight_options!(
    Dense,
    "Dense::new(10)",
    kernel,
    "the kernel",
    kernel_initializer,
    kernel_regularizer,
    kernel_constraint
);
apply_layer!(Dense);

/// A layer that, in training, sets random elements to zero and scales up the others, as `tf.layers.Dropout`.
///
/// ```
/// use ferroflow::layers::Dropout;
/// use ferroflow::ops::array::ones_like;
/// use ferroflow::{Graph, Session, Tensor};
///
/// let g = Graph::new();
/// let ones = ones_like(&g.constant_tensor(&Tensor::vector(&[0f32; 100])));
/// let dropped = Dropout::new(0.5).seed(1).training(true).apply(&ones);
/// let values = &Session::new(&g)?.run(&[&dropped])?[0];
/// assert!(values.as_slice::<f32>()?.iter().all(|&value| value == 0.0 || value == 2.0));
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct Dropout {
    rate: Number,
    noise_shape: Option<Vec<Option<i64>>>,
    seed: Option<i64>,
    training: Training,
}

/// Adds a [`Dropout`] layer that trains if `training` says so.
///
/// ```
/// use ferroflow::layers::dropout;
/// use ferroflow::{Graph, Tensor};
///
/// let g = Graph::new();
/// let x = g.constant_tensor(&Tensor::vector(&[1f32, 2.0]));
/// assert_eq!(dropout(&x, 0.5, false).shape(), x.shape());
/// ```
#[track_caller]
pub fn dropout(x: &Output, rate: impl Into<Number>, training: impl Into<Training>) -> Output {
    Dropout::new(rate).training(training).apply(x)
}

impl Dropout {
    /// Returns a layer that drops this fraction of the elements.
    ///
    /// ```
    /// let layer = ferroflow::layers::Dropout::new(0.5);
    /// ```
    pub fn new(rate: impl Into<Number>) -> Dropout {
        Dropout { rate: rate.into(), noise_shape: None, seed: None, training: Training::Never }
    }

    /// Sets whether the layer trains; by default it doesn't, and returns its input.
    ///
    /// ```
    /// let layer = ferroflow::layers::Dropout::new(0.5).training(true);
    /// ```
    pub fn training(mut self, training: impl Into<Training>) -> Self {
        self.training = training.into();
        self
    }

    /// Sets the seed of the layer's random numbers.
    ///
    /// ```
    /// let layer = ferroflow::layers::Dropout::new(0.5).seed(7);
    /// ```
    pub fn seed(mut self, seed: i64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets the shape of the random mask: along an axis of size 1 all elements are dropped or kept together. `None` stands for
    /// the input's size.
    ///
    /// ```
    /// let whole_channels = ferroflow::layers::Dropout::new(0.5).noise_shape(&[None, Some(1), Some(1), None]);
    /// ```
    pub fn noise_shape(mut self, dims: &[Option<i64>]) -> Self {
        self.noise_shape = Some(dims.to_vec());
        self
    }

    fn add(&self, x: &Output) -> Result<Output> {
        check_floating(x, "dropout")?;
        if let Number::Value(rate) = self.rate
            && !(0.0..=1.0).contains(&rate)
        {
            return Err(Status::invalid_argument(format!("`rate` must be between 0 and 1, got {rate}")));
        }
        let graph = x.graph();
        graph.name_scope("dropout", |graph| {
            let outputs = self.training.choose(
                graph,
                |graph| {
                    let noise = match &self.noise_shape {
                        None => None,
                        Some(dims) => {
                            let sizes = dims.iter().enumerate().map(|(axis, size)| match size {
                                Some(size) => Ok(int(graph, *size as i32)),
                                None => compose::size_of_axis(x, axis),
                            });
                            let sizes = sizes.collect::<Result<Vec<Output>>>()?;
                            Some(compose::pack(&sizes.iter().collect::<Vec<_>>())?)
                        }
                    };
                    Ok(vec![dropout_op(x, &self.rate, noise.as_ref(), self.seed)?])
                },
                |_| Ok(vec![node("Identity", &[x])?]),
            )?;
            let y = outputs.into_iter().next().ok_or_else(|| Status::internal("dropout without a result"))?;
            y.set_shape(&x.shape())?;
            Ok(y)
        })
    }
}

apply_layer!(Dropout);

/// A layer that flattens all axes except the first into one, as `tf.layers.Flatten`.
///
/// ```
/// use ferroflow::layers::Flatten;
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 28, 28, 3));
/// assert_eq!(Flatten::new().apply(&x).shape(), PartialShape::from([-1, 2352]));
/// ```
#[derive(Default)]
pub struct Flatten {
    data_format: DataFormat,
}

/// Adds a [`Flatten`] layer.
///
/// ```
/// use ferroflow::layers::flatten;
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 28, 28));
/// assert_eq!(flatten(&x).shape(), PartialShape::from([-1, 784]));
/// ```
#[track_caller]
pub fn flatten(x: &Output) -> Output {
    Flatten::new().apply(x)
}

impl Flatten {
    /// Returns the layer.
    ///
    /// ```
    /// let layer = ferroflow::layers::Flatten::new();
    /// ```
    pub fn new() -> Flatten {
        Flatten::default()
    }

    /// Sets the position of the channels: the result has them last, so that weights fit either format.
    ///
    /// ```
    /// use ferroflow::layers::{DataFormat, Flatten};
    ///
    /// let layer = Flatten::new().data_format(DataFormat::ChannelsFirst);
    /// ```
    pub fn data_format(mut self, data_format: DataFormat) -> Self {
        self.data_format = data_format;
        self
    }

    fn add(&self, x: &Output) -> Result<Output> {
        let graph = x.graph();
        graph.name_scope("flatten", |graph| {
            let shape = x.shape();
            let Some(rank) = shape.rank() else {
                let batch = expand(&compose::size_of_axis(x, 0)?)?;
                return node("Reshape", &[x, &concat(&[&batch, &ints(graph, &[-1])], 0)?]);
            };
            if rank <= 1 {
                return compose::expand_dims(x, -1);
            }
            let last = match self.data_format {
                DataFormat::ChannelsFirst if rank > 2 => {
                    let spatial = 2..rank as i32;
                    let order: Vec<i32> = std::iter::once(0).chain(spatial).chain(std::iter::once(1)).collect();
                    compose::transpose(x, &order)?
                }
                _ => x.clone(),
            };
            let features = shape.slice(1, rank).num_elements();
            match features.and_then(|features| i32::try_from(features).ok()) {
                Some(features) => {
                    // Uses the batch size if it is known: a reshape of empty rows can't infer it.
                    let batch = shape.dim(0).map_or(-1, |batch| batch as i32);
                    let y = reshape(&last, &[batch, features])?;
                    y.set_shape(&PartialShape::new(&[shape.dim(0), Some(i64::from(features))]))?;
                    Ok(y)
                }
                None => {
                    let batch = expand(&compose::size_of_axis(x, 0)?)?;
                    let y = node("Reshape", &[&last, &concat(&[&batch, &ints(graph, &[-1])], 0)?])?;
                    y.set_shape(&PartialShape::new(&[shape.dim(0), None]))?;
                    Ok(y)
                }
            }
        })
    }
}

fn expand(scalar: &Output) -> Result<Output> {
    compose::expand_dims(scalar, 0)
}

apply_layer!(Flatten);

/// A table with a row for each of `input_dim` ids, as `tf.keras.layers.Embedding`: the result has one axis more than the ids, of
/// size `output_dim`. Its variable is `embeddings`, in the scope `embedding`.
///
/// ```
/// use ferroflow::layers::Embedding;
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let words = g.placeholder::<i32>((None, 20));
/// let embedded = Embedding::new(10_000, 64).apply(&words);
/// assert_eq!(embedded.shape(), PartialShape::from([-1, 20, 64]));
/// ```
pub struct Embedding {
    base: Base,
    input_dim: i64,
    output_dim: i64,
    embeddings: WeightOptions,
    dtype: DType,
}

/// Adds an [`Embedding`] layer with default options.
///
/// ```
/// use ferroflow::layers::embedding;
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let words = g.placeholder::<i64>([-1]);
/// assert_eq!(embedding(&words, 1000, 16).shape(), PartialShape::from([-1, 16]));
/// ```
#[track_caller]
pub fn embedding(ids: &Output, input_dim: i64, output_dim: i64) -> Output {
    Embedding::new(input_dim, output_dim).apply(ids)
}

impl Embedding {
    /// Returns a table of `input_dim` rows of `output_dim` numbers.
    ///
    /// ```
    /// let layer = ferroflow::layers::Embedding::new(1000, 16);
    /// ```
    pub fn new(input_dim: i64, output_dim: i64) -> Embedding {
        Embedding {
            base: Base::new("embedding"),
            input_dim,
            output_dim,
            embeddings: WeightOptions::default(),
            dtype: DType::Float,
        }
    }

    /// Sets the type of the embeddings.
    ///
    /// ```
    /// let layer = ferroflow::layers::Embedding::new(1000, 16).dtype(ferroflow::DType::Double);
    /// ```
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = dtype;
        self
    }

    fn add(&self, ids: &Output) -> Result<Output> {
        check_positive(&[self.input_dim, self.output_dim], "the size of an embedding")?;
        self.base.apply(ids.graph(), |weights| {
            let dims = [self.input_dim, self.output_dim];
            let default: Initializer = initializers::random_uniform(-0.05, 0.05, None);
            let table = weights.get("embeddings", &dims, self.dtype, &self.embeddings, Some(default))?;
            let ids = match ids.dtype() {
                DType::Int32 | DType::Int64 => ids.clone(),
                _ => cast(ids, DType::Int32)?,
            };
            let graph = weights.graph();
            graph.name_scope("embedding_lookup", |graph| {
                graph.colocate_with(table.op(), |graph| match table.handle().is_ref() {
                    // The gradient of a gather from the variable itself is sparse: it covers only the rows that were used.
                    true => {
                        let op = graph.op("GatherV2").input(table.value()).input(&ids);
                        Ok(op.input(&int(graph, 0)).try_build()?.output(0))
                    }
                    false => {
                        let op = graph.op("ResourceGather").input(table.handle()).input(&ids);
                        Ok(op.attr("dtype", self.dtype).try_build()?.output(0))
                    }
                })
            })
        })
    }
}

base_options!(Embedding, "Embedding::new(1000, 16)");
weight_options!(
    Embedding,
    "Embedding::new(1000, 16)",
    embeddings,
    "the embeddings",
    embeddings_initializer,
    embeddings_regularizer,
    embeddings_constraint
);
apply_layer!(Embedding);
