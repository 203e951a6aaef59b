//! Long short-term memory: [`BasicLstmCell`], and [`LstmCell`], which supports peepholes, clipping and a projection.

use super::cell::{Gates, RnnCell, input_depth};
use super::state::{State, StateSize};
use crate::compose::{self, matmul, node, split, with_number};
use crate::initializers;
use crate::layers::Activation;
use crate::layers::base::{Base, WeightOptions, Weights};
use crate::layers::options::check_positive;
use graph::Output;
use tensor::{Result, Status};

/// The basic LSTM cell, as `tf.nn.rnn_cell.BasicLSTMCell`. Its variables are `kernel` and `bias`, in the scope `basic_lstm_cell`;
/// the order of the gates in them is input, candidate, forget, output.
///
/// ```
/// use ferroflow::layers::rnn::{BasicLstmCell, State, dynamic_rnn};
/// use ferroflow::Graph;
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 10, 3));
/// let (_outputs, state) = dynamic_rnn(&BasicLstmCell::new(5), &x);
/// assert!(matches!(state, State::Lstm { .. }));
/// ```
pub struct BasicLstmCell {
    base: Base,
    num_units: i64,
    forget_bias: f64,
    activation: Activation,
    kernel: WeightOptions,
    bias: WeightOptions,
}

/// The LSTM cell, as `tf.nn.rnn_cell.LSTMCell`. Its variables are `kernel` and `bias`, with peepholes `w_f_diag`, `w_i_diag`
/// and `w_o_diag`, and with a projection `projection/kernel`, in the scope `lstm_cell`.
///
/// ```
/// use ferroflow::layers::rnn::{LstmCell, dynamic_rnn};
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 10, 3));
/// let (outputs, _state) = dynamic_rnn(&LstmCell::new(16).use_peepholes(true).num_proj(4), &x);
/// assert_eq!(outputs.shape(), PartialShape::from([-1, 10, 4]));
/// ```
pub struct LstmCell {
    base: Base,
    num_units: i64,
    use_peepholes: bool,
    cell_clip: Option<f64>,
    num_proj: Option<i64>,
    proj_clip: Option<f64>,
    forget_bias: f64,
    activation: Activation,
    kernel: WeightOptions,
    bias: WeightOptions,
}

impl BasicLstmCell {
    /// Returns a cell with this many units.
    ///
    /// ```
    /// let cell = ferroflow::layers::rnn::BasicLstmCell::new(32);
    /// ```
    pub fn new(num_units: i64) -> BasicLstmCell {
        BasicLstmCell {
            base: Base::new("basic_lstm_cell"),
            num_units,
            forget_bias: 1.0,
            activation: Activation::Tanh,
            kernel: WeightOptions::default(),
            bias: WeightOptions::default(),
        }
    }

    /// Sets the bias of the forget gate, so that little is forgotten at first; 1 by default.
    ///
    /// ```
    /// let cell = ferroflow::layers::rnn::BasicLstmCell::new(32).forget_bias(0.0);
    /// ```
    pub fn forget_bias(mut self, forget_bias: f64) -> Self {
        self.forget_bias = forget_bias;
        self
    }

    /// Sets the activation; the default is the hyperbolic tangent.
    ///
    /// ```
    /// use ferroflow::layers::{Activation, rnn::BasicLstmCell};
    ///
    /// let cell = BasicLstmCell::new(32).activation(Activation::Relu);
    /// ```
    pub fn activation(mut self, activation: Activation) -> Self {
        self.activation = activation;
        self
    }
}

impl LstmCell {
    /// Returns a cell with this many units.
    ///
    /// ```
    /// let cell = ferroflow::layers::rnn::LstmCell::new(32);
    /// ```
    pub fn new(num_units: i64) -> LstmCell {
        LstmCell {
            base: Base::new("lstm_cell"),
            num_units,
            use_peepholes: false,
            cell_clip: None,
            num_proj: None,
            proj_clip: None,
            forget_bias: 1.0,
            activation: Activation::Tanh,
            kernel: WeightOptions::default(),
            bias: WeightOptions::default(),
        }
    }

    /// Sets whether the gates have peepholes to the memory.
    ///
    /// ```
    /// let cell = ferroflow::layers::rnn::LstmCell::new(32).use_peepholes(true);
    /// ```
    pub fn use_peepholes(mut self, use_peepholes: bool) -> Self {
        self.use_peepholes = use_peepholes;
        self
    }

    /// Sets the clipping bound of the memory.
    ///
    /// ```
    /// let cell = ferroflow::layers::rnn::LstmCell::new(32).cell_clip(10.0);
    /// ```
    pub fn cell_clip(mut self, cell_clip: f64) -> Self {
        self.cell_clip = Some(cell_clip);
        self
    }

    /// Sets the size to which the output is projected.
    ///
    /// ```
    /// let cell = ferroflow::layers::rnn::LstmCell::new(32).num_proj(8);
    /// ```
    pub fn num_proj(mut self, num_proj: i64) -> Self {
        self.num_proj = Some(num_proj);
        self
    }

    /// Sets the clipping bound of the projected output.
    ///
    /// ```
    /// let cell = ferroflow::layers::rnn::LstmCell::new(32).num_proj(8).proj_clip(1.0);
    /// ```
    pub fn proj_clip(mut self, proj_clip: f64) -> Self {
        self.proj_clip = Some(proj_clip);
        self
    }

    /// Sets the bias of the forget gate, so that little is forgotten at first; 1 by default.
    ///
    /// ```
    /// let cell = ferroflow::layers::rnn::LstmCell::new(32).forget_bias(0.0);
    /// ```
    pub fn forget_bias(mut self, forget_bias: f64) -> Self {
        self.forget_bias = forget_bias;
        self
    }

    /// Sets the activation; the default is the hyperbolic tangent.
    ///
    /// ```
    /// use ferroflow::layers::{Activation, rnn::LstmCell};
    ///
    /// let cell = LstmCell::new(32).activation(Activation::Relu);
    /// ```
    pub fn activation(mut self, activation: Activation) -> Self {
        self.activation = activation;
        self
    }

    /// Adds `gate + diagonal * memory`, or the gate alone without peepholes.
    fn peep(&self, weights: &Weights<'_>, name: &str, gate: &Output, memory: &Output) -> Result<Output> {
        if !self.use_peepholes {
            return Ok(gate.clone());
        }
        let options = WeightOptions { initializer: self.kernel.initializer.clone(), ..Default::default() };
        let diagonal = weights.get(name, &[self.num_units], gate.dtype(), &options, None)?;
        compose::add(gate, &compose::mul(&diagonal.read(), memory)?)
    }
}

impl RnnCell for BasicLstmCell {
    fn state_size(&self) -> StateSize {
        StateSize::Lstm { c: self.num_units, h: self.num_units }
    }

    fn output_size(&self) -> i64 {
        self.num_units
    }

    fn try_step(&self, input: &Output, state: &State) -> Result<(Output, State)> {
        check_positive(&[self.num_units], "the number of units")?;
        let depth = input_depth(input, "an LSTM cell")?;
        let (memory, before) = state.lstm("an LSTM cell")?;
        self.base.apply(input.graph(), |weights| {
            let gates = Gates { input, dtype: input.dtype(), depth: depth + self.num_units };
            let options = (&self.kernel, &self.bias);
            let [i, j, f, o] = four_gates(&gates, weights, before, self.num_units, options)?;
            let forget = node("Sigmoid", &[&with_number("AddV2", &f, self.forget_bias)?])?;
            let new = compose::mul(&node("Sigmoid", &[&i])?, &self.activation.apply(&j)?)?;
            let c = compose::add(&compose::mul(memory, &forget)?, &new)?;
            let h = compose::mul(&self.activation.apply(&c)?, &node("Sigmoid", &[&o])?)?;
            Ok((h.clone(), State::Lstm { c, h }))
        })
    }
}

impl RnnCell for LstmCell {
    fn state_size(&self) -> StateSize {
        StateSize::Lstm { c: self.num_units, h: self.output_size() }
    }

    fn output_size(&self) -> i64 {
        self.num_proj.unwrap_or(self.num_units)
    }

    fn try_step(&self, input: &Output, state: &State) -> Result<(Output, State)> {
        check_positive(&[self.num_units, self.output_size()], "the number of units")?;
        let depth = input_depth(input, "an LSTM cell")?;
        let (memory, before) = state.lstm("an LSTM cell")?;
        self.base.apply(input.graph(), |weights| {
            let gates = Gates { input, dtype: input.dtype(), depth: depth + self.output_size() };
            let options = (&self.kernel, &self.bias);
            let [i, j, f, o] = four_gates(&gates, weights, before, self.num_units, options)?;
            let f = self.peep(weights, "w_f_diag", &with_number("AddV2", &f, self.forget_bias)?, memory)?;
            let i = self.peep(weights, "w_i_diag", &i, memory)?;
            let kept = compose::mul(&node("Sigmoid", &[&f])?, memory)?;
            let new = compose::mul(&node("Sigmoid", &[&i])?, &self.activation.apply(&j)?)?;
            let c = clipped(compose::add(&kept, &new)?, self.cell_clip)?;
            let o = self.peep(weights, "w_o_diag", &o, &c)?;
            let mut h = compose::mul(&node("Sigmoid", &[&o])?, &self.activation.apply(&c)?)?;
            if let Some(num_proj) = self.num_proj {
                let dims = [self.num_units, num_proj];
                let projection = weights.get("projection/kernel", &dims, h.dtype(), &self.kernel, None)?;
                h = clipped(matmul(&h, &projection.read())?, self.proj_clip)?;
            }
            Ok((h.clone(), State::Lstm { c, h }))
        })
    }
}

fn four_gates(
    gates: &Gates<'_>,
    weights: &Weights<'_>,
    before: &Output,
    num_units: i64,
    options: (&WeightOptions, &WeightOptions),
) -> Result<[Output; 4]> {
    let zeros = initializers::zeros();
    let all = gates.add(weights, ("kernel", "bias"), before, 4 * num_units, options, zeros)?;
    split(&all, 4, 1)?.try_into().map_err(|_| Status::internal("a split in four"))
}

fn clipped(x: Output, limit: Option<f64>) -> Result<Output> {
    let Some(limit) = limit else { return Ok(x) };
    with_number("Maximum", &with_number("Minimum", &x, limit)?, -limit)
}

base_options!(BasicLstmCell, "rnn::BasicLstmCell::new(8)");
base_options!(LstmCell, "rnn::LstmCell::new(8)");
weight_options!(
    BasicLstmCell,
    "rnn::BasicLstmCell::new(8)",
    kernel,
    "the kernel",
    kernel_initializer,
    kernel_regularizer,
    kernel_constraint
);
weight_options!(
    BasicLstmCell,
    "rnn::BasicLstmCell::new(8)",
    bias,
    "the bias",
    bias_initializer,
    bias_regularizer,
    bias_constraint
);
weight_options!(
    LstmCell,
    "rnn::LstmCell::new(8)",
    kernel,
    "the kernel and the projection",
    kernel_initializer,
    kernel_regularizer,
    kernel_constraint
);
weight_options!(
    LstmCell,
    "rnn::LstmCell::new(8)",
    bias,
    "the bias",
    bias_initializer,
    bias_regularizer,
    bias_constraint
);
