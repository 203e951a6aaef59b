//! [`StaticRnn`]: runs a cell along time without a loop, with one copy of it for each step; and [`StaticBidirectionalRnn`].

use super::cell::RnnCell;
use super::dynamic::{checked_lengths, initial_state, past_the_end};
use super::state::State;
use crate::compose::{self, concat, int, kept_as, node, pack};
use crate::variable_scope::VariableScope;
use graph::{Graph, Output};
use tensor::{Result, Status};

/// Runs a cell along time, one input (batch, features) for each step, as `tf.nn.static_rnn`.
///
/// ```
/// use ferroflow::layers::rnn::{BasicLstmCell, StaticRnn};
/// use ferroflow::{Graph, Output};
///
/// let g = Graph::new();
/// let steps: Vec<Output> = (0..5).map(|_| g.placeholder::<f32>((None, 3))).collect();
/// let (outputs, _state) = StaticRnn::new(&BasicLstmCell::new(8)).run(&steps);
/// assert_eq!(outputs.len(), 5);
/// ```
#[must_use = "the network is added by `run`"]
pub struct StaticRnn<'a> {
    cell: &'a dyn RnnCell,
    sequence_length: Option<Output>,
    initial_state: Option<State>,
    scope: String,
}

/// Runs a cell along time with a default [`StaticRnn`]; returns the outputs and the last state.
///
/// ```
/// use ferroflow::layers::rnn::{GruCell, static_rnn};
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 3));
/// let (outputs, _state) = static_rnn(&GruCell::new(8), &[x.clone(), x]);
/// assert_eq!(outputs[1].shape(), PartialShape::from([-1, 8]));
/// ```
#[track_caller]
pub fn static_rnn(cell: &dyn RnnCell, inputs: &[Output]) -> (Vec<Output>, State) {
    StaticRnn::new(cell).run(inputs)
}

impl<'a> StaticRnn<'a> {
    /// Returns a network of this cell.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{GruCell, StaticRnn};
    ///
    /// let cell = GruCell::new(8);
    /// let network = StaticRnn::new(&cell);
    /// ```
    pub fn new(cell: &'a dyn RnnCell) -> StaticRnn<'a> {
        StaticRnn { cell, sequence_length: None, initial_state: None, scope: "rnn".to_owned() }
    }

    /// Sets the number of steps of each example: an integer vector. Later outputs are zeros, and the state stays the same.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{GruCell, StaticRnn};
    /// use ferroflow::{Graph, Tensor};
    ///
    /// let g = Graph::new();
    /// let cell = GruCell::new(8);
    /// let network = StaticRnn::new(&cell).sequence_length(&g.constant_tensor(&Tensor::vector(&[3, 5])));
    /// ```
    pub fn sequence_length(mut self, sequence_length: &Output) -> Self {
        self.sequence_length = Some(sequence_length.clone());
        self
    }

    /// Sets the initial state; the default is zeros.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{GruCell, RnnCell, StaticRnn};
    /// use ferroflow::{DType, Graph, Tensor};
    ///
    /// let g = Graph::new();
    /// let cell = GruCell::new(8);
    /// let zeros = cell.zero_state(&g.constant_tensor(&Tensor::scalar(2)), DType::Float);
    /// let network = StaticRnn::new(&cell).initial_state(&zeros);
    /// ```
    pub fn initial_state(mut self, initial_state: &State) -> Self {
        self.initial_state = Some(initial_state.clone());
        self
    }

    /// Sets the variable scope; the default is `rnn`.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{GruCell, StaticRnn};
    ///
    /// let cell = GruCell::new(8);
    /// let network = StaticRnn::new(&cell).scope("decoder");
    /// ```
    pub fn scope(mut self, scope: &str) -> Self {
        self.scope = scope.to_owned();
        self
    }

    /// Adds the network; returns the outputs and the last state.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{GruCell, StaticRnn};
    /// use ferroflow::Graph;
    ///
    /// let g = Graph::new();
    /// let x = g.placeholder::<f32>((None, 3));
    /// let (outputs, _state) = StaticRnn::new(&GruCell::new(8)).scope("decoder").run(&[x.clone(), x]);
    /// assert_eq!(outputs.len(), 2);
    /// ```
    #[track_caller]
    pub fn run(self, inputs: &[Output]) -> (Vec<Output>, State) {
        let instead =
            |nothing: &Output| (vec![nothing.clone(); inputs.len()], self.cell.state_size().state_of(nothing));
        kept_as("static_rnn", &inputs.iter().collect::<Vec<_>>(), || self.add(inputs), instead)
    }

    fn add(&self, inputs: &[Output]) -> Result<(Vec<Output>, State)> {
        let first = first_of(inputs)?;
        VariableScope::new(&self.scope).run(first.graph(), |graph| self.add_here(graph, inputs))
    }

    fn add_here(&self, graph: &Graph, inputs: &[Output]) -> Result<(Vec<Output>, State)> {
        let first = first_of(inputs)?;
        if let Some(other) = inputs.iter().find(|input| input.shape().rank() != Some(2)) {
            let (name, shape) = (other.name(), other.shape());
            return Err(Status::invalid_argument(format!(
                "each step must be (batch, features), but {name} is {shape}"
            )));
        }
        let batch_size = compose::size_of_axis(first, 0)?;
        let mut state = match &self.initial_state {
            Some(state) => state.clone(),
            None => initial_state(self.cell, first, 0, &batch_size)?,
        };
        let ends = match &self.sequence_length {
            None => None,
            Some(lengths) => {
                let dims = pack(&[&batch_size, &int(graph, self.cell.output_size() as i32)])?;
                let dtype = state.tensors().first().map_or(first.dtype(), Output::dtype);
                Some((checked_lengths(graph, lengths, &batch_size)?, compose::fill(&dims, dtype, 0.0)?))
            }
        };
        let mut outputs = Vec::with_capacity(inputs.len());
        for (step, input) in inputs.iter().enumerate() {
            let (mut output, mut next) = self.cell.try_step(input, &state)?;
            if let Some((lengths, zeros)) = &ends {
                let time = int(graph, step as i32);
                zeros.set_shape(&output.shape())?;
                (output, next) = past_the_end(&time, lengths, zeros, &state, output, next)?;
            }
            outputs.push(output);
            state = next;
        }
        Ok((outputs, state))
    }
}

fn first_of(inputs: &[Output]) -> Result<&Output> {
    inputs.first().ok_or_else(|| Status::invalid_argument("a recurrent network without steps"))
}

/// Runs one cell forward and another one backward along time, as `tf.nn.static_bidirectional_rnn`. Each output is the
/// concatenation of both cells' outputs, the forward cell's first.
///
/// ```
/// use ferroflow::layers::rnn::{GruCell, StaticBidirectionalRnn};
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 3));
/// let (forward, backward) = (GruCell::new(8), GruCell::new(4));
/// let (outputs, _states) = StaticBidirectionalRnn::new(&forward, &backward).run(&[x.clone(), x]);
/// assert_eq!(outputs[0].shape(), PartialShape::from([-1, 12]));
/// ```
#[must_use = "the network is added by `run`"]
pub struct StaticBidirectionalRnn<'a> {
    forward: StaticRnn<'a>,
    backward: StaticRnn<'a>,
    scope: String,
}

/// Runs two cells along time with a default [`StaticBidirectionalRnn`]; returns the outputs and both last states.
///
/// ```
/// use ferroflow::layers::rnn::{GruCell, static_bidirectional_rnn};
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 3));
/// let (outputs, _states) = static_bidirectional_rnn(&GruCell::new(8), &GruCell::new(8), &[x.clone(), x]);
/// assert_eq!(outputs[0].shape(), PartialShape::from([-1, 16]));
/// ```
#[track_caller]
pub fn static_bidirectional_rnn(
    forward: &dyn RnnCell,
    backward: &dyn RnnCell,
    inputs: &[Output],
) -> (Vec<Output>, (State, State)) {
    StaticBidirectionalRnn::new(forward, backward).run(inputs)
}

impl<'a> StaticBidirectionalRnn<'a> {
    /// Returns a network of these two cells.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{GruCell, StaticBidirectionalRnn};
    ///
    /// let (forward, backward) = (GruCell::new(8), GruCell::new(8));
    /// let network = StaticBidirectionalRnn::new(&forward, &backward);
    /// ```
    pub fn new(forward: &'a dyn RnnCell, backward: &'a dyn RnnCell) -> StaticBidirectionalRnn<'a> {
        StaticBidirectionalRnn {
            forward: StaticRnn::new(forward),
            backward: StaticRnn::new(backward),
            scope: "bidirectional_rnn".to_owned(),
        }
    }

    /// Sets the number of steps of each example: an integer vector. The backward cell starts at the end of each sequence.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{GruCell, StaticBidirectionalRnn};
    /// use ferroflow::{Graph, Tensor};
    ///
    /// let g = Graph::new();
    /// let (forward, backward) = (GruCell::new(8), GruCell::new(8));
    /// let lengths = g.constant_tensor(&Tensor::vector(&[3, 5]));
    /// let network = StaticBidirectionalRnn::new(&forward, &backward).sequence_length(&lengths);
    /// ```
    pub fn sequence_length(mut self, sequence_length: &Output) -> Self {
        self.forward = self.forward.sequence_length(sequence_length);
        self.backward = self.backward.sequence_length(sequence_length);
        self
    }

    /// Sets the variable scope; the default is `bidirectional_rnn`.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{GruCell, StaticBidirectionalRnn};
    ///
    /// let (forward, backward) = (GruCell::new(8), GruCell::new(8));
    /// let network = StaticBidirectionalRnn::new(&forward, &backward).scope("encoder");
    /// ```
    pub fn scope(mut self, scope: &str) -> Self {
        self.scope = scope.to_owned();
        self
    }

    /// Adds the network; returns the outputs and both last states.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{GruCell, StaticBidirectionalRnn};
    /// use ferroflow::Graph;
    ///
    /// let g = Graph::new();
    /// let x = g.placeholder::<f32>((None, 3));
    /// let (forward, backward) = (GruCell::new(8), GruCell::new(8));
    /// let (outputs, _states) = StaticBidirectionalRnn::new(&forward, &backward).run(&[x.clone(), x]);
    /// assert_eq!(outputs.len(), 2);
    /// ```
    #[track_caller]
    pub fn run(self, inputs: &[Output]) -> (Vec<Output>, (State, State)) {
        let instead = |nothing: &Output| {
            let state = |cell: &dyn RnnCell| cell.state_size().state_of(nothing);
            (vec![nothing.clone(); inputs.len()], (state(self.forward.cell), state(self.backward.cell)))
        };
        let all: Vec<&Output> = inputs.iter().collect();
        kept_as("static_bidirectional_rnn", &all, || self.add(inputs), instead)
    }

    fn add(&self, inputs: &[Output]) -> Result<(Vec<Output>, (State, State))> {
        let first = first_of(inputs)?;
        VariableScope::new(&self.scope).run(first.graph(), |graph| {
            let (forward, forward_state) =
                VariableScope::new("fw").run(graph, |graph| self.forward.add_here(graph, inputs))?;
            let (backward, backward_state) = VariableScope::new("bw").run(graph, |graph| {
                let reversed = reverse(inputs, self.backward.sequence_length.as_ref())?;
                let (outputs, state) = self.backward.add_here(graph, &reversed)?;
                Ok::<_, Status>((reverse(&outputs, self.backward.sequence_length.as_ref())?, state))
            })?;
            let both = forward.iter().zip(&backward).map(|(forward, backward)| concat(&[forward, backward], 1));
            Ok((both.collect::<Result<Vec<_>>>()?, (forward_state, backward_state)))
        })
    }
}

/// Returns the steps in reverse order; if lengths are given, each example is reversed only within its length.
fn reverse(steps: &[Output], lengths: Option<&Output>) -> Result<Vec<Output>> {
    let Some(lengths) = lengths else { return Ok(steps.iter().rev().cloned().collect()) };
    let graph = lengths.graph();
    let together = node("Pack", &steps.iter().collect::<Vec<_>>())?;
    let op = graph.op("ReverseSequence").input(&together).input(lengths).attr("seq_dim", 0i64);
    let reversed = op.attr("batch_dim", 1i64).try_build()?.output(0);
    let apart = graph.op("Unpack").input(&reversed).attr("num", steps.len() as i64).attr("axis", 0i64).try_build()?;
    Ok((0..steps.len() as u32).map(|port| apart.output(port)).collect())
}
