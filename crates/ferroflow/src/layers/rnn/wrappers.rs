//! Cells built from others: [`MultiRnnCell`] and [`DropoutWrapper`].

use super::cell::RnnCell;
use super::state::{State, StateSize};
use crate::layers::base::Base;
use crate::layers::dropout_op;
use crate::train::Number;
use crate::variable_scope::VariableScope;
use graph::Output;
use tensor::{Result, Status};

/// A stack of cells, each of which takes the output of the previous one, as `tf.nn.rnn_cell.MultiRNNCell`. Their variables are in
/// the scopes `multi_rnn_cell/cell_0`, `multi_rnn_cell/cell_1` and so on.
///
/// ```
/// use ferroflow::layers::rnn::{GruCell, LstmCell, MultiRnnCell, RnnCell};
///
/// let cell = MultiRnnCell::new().cell(LstmCell::new(64)).cell(GruCell::new(32));
/// assert_eq!(cell.output_size(), 32);
/// ```
pub struct MultiRnnCell<'a> {
    base: Base,
    cells: Vec<Box<dyn RnnCell + 'a>>,
}

impl Default for MultiRnnCell<'_> {
    fn default() -> Self {
        MultiRnnCell::new()
    }
}

impl<'a> MultiRnnCell<'a> {
    /// Returns a stack without cells.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{GruCell, MultiRnnCell};
    ///
    /// let cell = (0..3).fold(MultiRnnCell::new(), |cells, _| cells.cell(GruCell::new(16)));
    /// ```
    pub fn new() -> MultiRnnCell<'a> {
        MultiRnnCell { base: Base::new("multi_rnn_cell"), cells: Vec::new() }
    }

    /// Adds a cell.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{GruCell, MultiRnnCell};
    ///
    /// let cell = MultiRnnCell::new().cell(GruCell::new(64)).cell(GruCell::new(32));
    /// ```
    pub fn cell(mut self, cell: impl RnnCell + 'a) -> Self {
        self.cells.push(Box::new(cell));
        self
    }
}

impl RnnCell for MultiRnnCell<'_> {
    fn state_size(&self) -> StateSize {
        StateSize::Tuple(self.cells.iter().map(|cell| cell.state_size()).collect())
    }

    fn output_size(&self) -> i64 {
        self.cells.last().map_or(0, |cell| cell.output_size())
    }

    fn try_step(&self, input: &Output, state: &State) -> Result<(Output, State)> {
        let State::Tuple(states) = state else {
            return Err(Status::invalid_argument(format!("the state of several cells is a tuple, not {state:?}")));
        };
        if self.cells.is_empty() || states.len() != self.cells.len() {
            let (cells, states) = (self.cells.len(), states.len());
            return Err(Status::invalid_argument(format!("{cells} cells and {states} states")));
        }
        self.base.apply(input.graph(), |weights| {
            let mut output = input.clone();
            let mut next = Vec::with_capacity(states.len());
            for (index, (cell, state)) in self.cells.iter().zip(states).enumerate() {
                let scope = VariableScope::new(&format!("cell_{index}"));
                let (made, state) = scope.run(weights.graph(), |_| cell.try_step(&output, state))?;
                output = made;
                next.push(state);
            }
            Ok((output, State::Tuple(next)))
        })
    }
}

/// A cell with dropout of its inputs, outputs and state, as `tf.nn.rnn_cell.DropoutWrapper`. The memory of an LSTM cell is never
/// dropped. The wrapper adds no scope: the cell's variables keep their names.
///
/// ```
/// use ferroflow::layers::rnn::{DropoutWrapper, LstmCell, RnnCell};
///
/// let cell = DropoutWrapper::new(LstmCell::new(64)).input_keep_prob(0.8).output_keep_prob(0.5);
/// assert_eq!(cell.output_size(), 64);
/// ```
pub struct DropoutWrapper<C> {
    cell: C,
    input_keep_prob: Number,
    output_keep_prob: Number,
    state_keep_prob: Number,
    seed: Option<i64>,
}

impl<C: RnnCell> DropoutWrapper<C> {
    /// Wraps a cell, without dropout yet.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{DropoutWrapper, GruCell};
    ///
    /// let cell = DropoutWrapper::new(GruCell::new(32));
    /// ```
    pub fn new(cell: C) -> DropoutWrapper<C> {
        let keep = || Number::Value(1.0);
        DropoutWrapper { cell, input_keep_prob: keep(), output_keep_prob: keep(), state_keep_prob: keep(), seed: None }
    }

    /// Sets the probability to keep an element of the input: a number, or a scalar in the graph.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{DropoutWrapper, GruCell};
    ///
    /// let cell = DropoutWrapper::new(GruCell::new(32)).input_keep_prob(0.9);
    /// ```
    pub fn input_keep_prob(mut self, keep_prob: impl Into<Number>) -> Self {
        self.input_keep_prob = keep_prob.into();
        self
    }

    /// Sets the probability to keep an element of the output.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{DropoutWrapper, GruCell};
    ///
    /// let cell = DropoutWrapper::new(GruCell::new(32)).output_keep_prob(0.9);
    /// ```
    pub fn output_keep_prob(mut self, keep_prob: impl Into<Number>) -> Self {
        self.output_keep_prob = keep_prob.into();
        self
    }

    /// Sets the probability to keep an element of the state between steps.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{DropoutWrapper, GruCell};
    ///
    /// let cell = DropoutWrapper::new(GruCell::new(32)).state_keep_prob(0.9);
    /// ```
    pub fn state_keep_prob(mut self, keep_prob: impl Into<Number>) -> Self {
        self.state_keep_prob = keep_prob.into();
        self
    }

    /// Sets the seed, from which those of input, outputs and states are derived.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{DropoutWrapper, GruCell};
    ///
    /// let cell = DropoutWrapper::new(GruCell::new(32)).input_keep_prob(0.9).seed(7);
    /// ```
    pub fn seed(mut self, seed: i64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Adds dropout. `salt` makes uses of the same seed drop different elements.
    fn drop(&self, x: &Output, keep_prob: &Number, salt: i64) -> Result<Output> {
        let rate = match keep_prob {
            Number::Value(1.0) => return Ok(x.clone()),
            Number::Value(keep) if !(0.0..=1.0).contains(keep) || *keep == 0.0 => {
                return Err(Status::invalid_argument(format!("a keep probability must be in (0, 1], got {keep}")));
            }
            Number::Value(keep) => Number::Value(1.0 - keep),
            Number::Tensor(keep) => Number::Tensor(crate::compose::number_with("Sub", 1.0, keep)?),
        };
        let seed = self.seed.map(|seed| (seed.wrapping_mul(31).wrapping_add(salt)) & 0x7fff_ffff);
        dropout_op(x, &rate, None, seed)
    }

    fn drop_state(&self, state: &State, salt: &mut i64) -> Result<State> {
        *salt += 1;
        Ok(match state {
            State::Tensor(output) => State::Tensor(self.drop(output, &self.state_keep_prob, *salt)?),
            State::Lstm { c, h } => State::Lstm { c: c.clone(), h: self.drop(h, &self.state_keep_prob, *salt)? },
            State::Tuple(states) => {
                State::Tuple(states.iter().map(|state| self.drop_state(state, salt)).collect::<Result<Vec<_>>>()?)
            }
        })
    }
}

impl<C: RnnCell> RnnCell for DropoutWrapper<C> {
    fn state_size(&self) -> StateSize {
        self.cell.state_size()
    }

    fn output_size(&self) -> i64 {
        self.cell.output_size()
    }

    fn try_step(&self, input: &Output, state: &State) -> Result<(Output, State)> {
        let (output, state) = self.cell.try_step(&self.drop(input, &self.input_keep_prob, 1)?, state)?;
        let state = self.drop_state(&state, &mut 2)?;
        Ok((self.drop(&output, &self.output_keep_prob, 2)?, state))
    }
}
