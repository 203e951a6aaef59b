//! [`RnnCell`], and the cells whose state is one tensor: [`BasicRnnCell`] and [`GruCell`].

use super::state::{State, StateSize};
use crate::compose::{self, concat, kept_as, known_dim, known_rank, matmul, node, split};
use crate::initializers;
use crate::layers::Activation;
use crate::layers::base::{Base, WeightOptions, Weights};
use crate::layers::options::check_positive;
use graph::Output;
use tensor::{DType, Result, Status};

/// A cell of a recurrent network: it computes an output and the next state from an input and the state.
///
/// ```
/// use ferroflow::layers::rnn::{RnnCell, State, StateSize, dynamic_rnn};
/// use ferroflow::{Graph, Output, Result};
///
/// /// Adds up what it is given.
/// struct Sum(i64);
///
/// impl RnnCell for Sum {
///     fn state_size(&self) -> StateSize {
///         StateSize::Tensor(self.0)
///     }
///     fn output_size(&self) -> i64 {
///         self.0
///     }
///     fn try_step(&self, input: &Output, state: &State) -> Result<(Output, State)> {
///         let sum = input + &state.tensors()[0];
///         Ok((sum.clone(), State::Tensor(sum)))
///     }
/// }
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 10, 3));
/// assert_eq!(dynamic_rnn(&Sum(3), &x).0.shape(), x.shape());
/// ```
pub trait RnnCell {
    /// Returns the sizes of the state.
    fn state_size(&self) -> StateSize;

    /// Returns the size of the output.
    fn output_size(&self) -> i64;

    /// Adds one step for an input (batch, features), or returns an error.
    fn try_step(&self, input: &Output, state: &State) -> Result<(Output, State)>;

    /// Adds one step for an input (batch, features).
    ///
    /// ```
    /// use ferroflow::layers::rnn::{GruCell, RnnCell};
    /// use ferroflow::{DType, Graph, PartialShape, Tensor};
    ///
    /// let g = Graph::new();
    /// let x = g.placeholder::<f32>([8, 3]);
    /// let cell = GruCell::new(4);
    /// let state = cell.zero_state(&g.constant_tensor(&Tensor::scalar(8)), DType::Float);
    /// let (output, _state) = cell.step(&x, &state);
    /// assert_eq!(output.shape(), PartialShape::from([8, 4]));
    /// ```
    #[track_caller]
    fn step(&self, input: &Output, state: &State) -> (Output, State) {
        let instead = |nothing: &Output| (nothing.clone(), self.state_size().state_of(nothing));
        kept_as("step of a cell", &[input], || self.try_step(input, state), instead)
    }

    /// Adds a zero state for a batch, whose size is an `int32` scalar.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{GruCell, RnnCell};
    /// use ferroflow::{DType, Graph, Tensor};
    ///
    /// let g = Graph::new();
    /// let state = GruCell::new(4).zero_state(&g.constant_tensor(&Tensor::scalar(8)), DType::Float);
    /// assert_eq!(state.tensors().len(), 1);
    /// ```
    #[track_caller]
    fn zero_state(&self, batch_size: &Output, dtype: DType) -> State {
        let size = self.state_size();
        kept_as("state of zeros", &[batch_size], || size.zeros(batch_size, dtype), |nothing| size.state_of(nothing))
    }
}

/// Returns the number of features of a cell's input.
pub(super) fn input_depth(input: &Output, cell: &str) -> Result<i64> {
    let rank = known_rank(input, &format!("the input of {cell}"))?;
    if rank != 2 {
        let shape = input.shape();
        return Err(Status::invalid_argument(format!("the input of {cell} must be (batch, features), got {shape}")));
    }
    known_dim(input, 1, &format!("the number of features of the input of {cell}"))
}

/// The basic cell, as `tf.nn.rnn_cell.BasicRNNCell`: its output, which is also its state, is `activation([input, state] · kernel
/// + bias)`, in the scope `basic_rnn_cell`.
///
/// ```
/// use ferroflow::layers::rnn::{BasicRnnCell, dynamic_rnn};
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 10, 3));
/// let (outputs, _state) = dynamic_rnn(&BasicRnnCell::new(5), &x);
/// assert_eq!(outputs.shape(), PartialShape::from([-1, 10, 5]));
/// ```
pub struct BasicRnnCell {
    base: Base,
    num_units: i64,
    activation: Activation,
    kernel: WeightOptions,
    bias: WeightOptions,
}

impl BasicRnnCell {
    /// Returns a cell with this many units.
    ///
    /// ```
    /// let cell = ferroflow::layers::rnn::BasicRnnCell::new(32);
    /// ```
    pub fn new(num_units: i64) -> BasicRnnCell {
        BasicRnnCell {
            base: Base::new("basic_rnn_cell"),
            num_units,
            activation: Activation::Tanh,
            kernel: WeightOptions::default(),
            bias: WeightOptions::default(),
        }
    }

    /// Sets the activation; the default is the hyperbolic tangent.
    ///
    /// ```
    /// use ferroflow::layers::{Activation, rnn::BasicRnnCell};
    ///
    /// let cell = BasicRnnCell::new(32).activation(Activation::Relu);
    /// ```
    pub fn activation(mut self, activation: Activation) -> Self {
        self.activation = activation;
        self
    }
}

impl RnnCell for BasicRnnCell {
    fn state_size(&self) -> StateSize {
        StateSize::Tensor(self.num_units)
    }

    fn output_size(&self) -> i64 {
        self.num_units
    }

    fn try_step(&self, input: &Output, state: &State) -> Result<(Output, State)> {
        check_positive(&[self.num_units], "the number of units")?;
        let depth = input_depth(input, "a basic RNN cell")?;
        let state = state.tensor("a basic RNN cell")?;
        self.base.apply(input.graph(), |weights| {
            let gates = Gates { input, dtype: input.dtype(), depth: depth + self.num_units };
            let units = self.num_units;
            let zeros = initializers::zeros();
            let sum = gates.add(weights, ("kernel", "bias"), state, units, (&self.kernel, &self.bias), zeros)?;
            let output = self.activation.apply(&sum)?;
            Ok((output.clone(), State::Tensor(output)))
        })
    }
}

/// The common part of a cell's gates: one product of the input and the previous state with their weights.
pub(super) struct Gates<'a> {
    pub(super) input: &'a Output,
    pub(super) dtype: DType,
    /// The number of features of the input plus the size of the state.
    pub(super) depth: i64,
}

impl Gates<'_> {
    /// Adds `[input, state] · kernel + bias`.
    pub(super) fn add(
        &self,
        weights: &Weights<'_>,
        (kernel, bias): (&str, &str),
        state: &Output,
        units: i64,
        (kernel_options, bias_options): (&WeightOptions, &WeightOptions),
        bias_default: initializers::Initializer,
    ) -> Result<Output> {
        let kernel = weights.get(kernel, &[self.depth, units], self.dtype, kernel_options, None)?;
        let bias = weights.get(bias, &[units], self.dtype, bias_options, Some(bias_default))?;
        let product = matmul(&concat(&[self.input, state], 1)?, &kernel.read())?;
        node("BiasAdd", &[&product, &bias.read()])
    }
}

/// The gated recurrent unit, as `tf.nn.rnn_cell.GRUCell`. Its variables are `gates/kernel`, `gates/bias`,
/// `candidate/kernel` and `candidate/bias`, in the scope `gru_cell`.
///
/// ```
/// use ferroflow::layers::rnn::{DynamicRnn, GruCell};
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 10, 3));
/// let lengths = g.placeholder::<i32>([-1]);
/// let (outputs, _state) = DynamicRnn::new(&GruCell::new(5)).sequence_length(&lengths).run(&x);
/// assert_eq!(outputs.shape(), PartialShape::from([-1, 10, 5]));
/// ```
pub struct GruCell {
    base: Base,
    num_units: i64,
    activation: Activation,
    kernel: WeightOptions,
    bias: WeightOptions,
}

impl GruCell {
    /// Returns a cell with this many units.
    ///
    /// ```
    /// let cell = ferroflow::layers::rnn::GruCell::new(32);
    /// ```
    pub fn new(num_units: i64) -> GruCell {
        GruCell {
            base: Base::new("gru_cell"),
            num_units,
            activation: Activation::Tanh,
            kernel: WeightOptions::default(),
            bias: WeightOptions::default(),
        }
    }

    /// Sets the activation; the default is the hyperbolic tangent.
    ///
    /// ```
    /// use ferroflow::layers::{Activation, rnn::GruCell};
    ///
    /// let cell = GruCell::new(32).activation(Activation::Relu);
    /// ```
    pub fn activation(mut self, activation: Activation) -> Self {
        self.activation = activation;
        self
    }
}

impl RnnCell for GruCell {
    fn state_size(&self) -> StateSize {
        StateSize::Tensor(self.num_units)
    }

    fn output_size(&self) -> i64 {
        self.num_units
    }

    fn try_step(&self, input: &Output, state: &State) -> Result<(Output, State)> {
        check_positive(&[self.num_units], "the number of units")?;
        let depth = input_depth(input, "a GRU cell")?;
        let state = state.tensor("a GRU cell")?;
        self.base.apply(input.graph(), |weights| {
            let gates = Gates { input, dtype: input.dtype(), depth: depth + self.num_units };
            let options = (&self.kernel, &self.bias);
            // The gates are initially open.
            let names = ("gates/kernel", "gates/bias");
            let open = initializers::constant(1.0);
            let both = gates.add(weights, names, state, 2 * self.num_units, options, open)?;
            let both = split(&node("Sigmoid", &[&both])?, 2, 1)?;
            let [reset, update] = &both[..] else { return Err(Status::internal("a split in two")) };
            let names = ("candidate/kernel", "candidate/bias");
            let kept_state = compose::mul(reset, state)?;
            let zeros = initializers::zeros();
            let candidate = gates.add(weights, names, &kept_state, self.num_units, options, zeros)?;
            let candidate = self.activation.apply(&candidate)?;
            let rest = compose::number_with("Sub", 1.0, update)?;
            let output = compose::add(&compose::mul(update, state)?, &compose::mul(&rest, &candidate)?)?;
            Ok((output.clone(), State::Tensor(output)))
        })
    }
}

base_options!(BasicRnnCell, "rnn::BasicRnnCell::new(8)");
base_options!(GruCell, "rnn::GruCell::new(8)");
weight_options!(
    BasicRnnCell,
    "rnn::BasicRnnCell::new(8)",
    kernel,
    "the kernel",
    kernel_initializer,
    kernel_regularizer,
    kernel_constraint
);
weight_options!(
    BasicRnnCell,
    "rnn::BasicRnnCell::new(8)",
    bias,
    "the bias",
    bias_initializer,
    bias_regularizer,
    bias_constraint
);
weight_options!(
    GruCell,
    "rnn::GruCell::new(8)",
    kernel,
    "both kernels",
    kernel_initializer,
    kernel_regularizer,
    kernel_constraint
);
weight_options!(
    GruCell,
    "rnn::GruCell::new(8)",
    bias,
    "both biases",
    bias_initializer,
    bias_regularizer,
    bias_constraint
);
