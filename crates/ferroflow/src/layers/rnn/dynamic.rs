//! [`DynamicRnn`]: runs a cell along time in a loop of as many steps as the input has, with `TensorArray`s for inputs and
//! outputs, as TensorFlow builds it; and [`BidirectionalDynamicRnn`].

use super::cell::RnnCell;
use super::state::State;
use crate::compose::{self, assert, at, cast, int, ints, kept_as, node, pack, reduce_all, shape_of, with_number};
use crate::variable_scope::VariableScope;
use graph::builder::LoopOptions;
use graph::{Graph, Output};
use tensor::{DType, PartialShape, Result, Status};

/// Runs a cell along time, as `tf.nn.dynamic_rnn`.
///
/// The input is (batch, time, features). Steps beyond an example's `sequence_length` leave its state unchanged, and output zeros.
///
/// ```
/// use ferroflow::layers::rnn::{DynamicRnn, LstmCell};
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>([-1, -1, 3]);
/// let lengths = g.placeholder::<i32>([-1]);
/// let (outputs, state) = DynamicRnn::new(&LstmCell::new(8)).sequence_length(&lengths).scope("encoder").run(&x);
/// assert_eq!(outputs.shape(), PartialShape::from([-1, -1, 8]));
/// assert_eq!(state.tensors().len(), 2);
/// ```
#[must_use = "the network is added by `run`"]
pub struct DynamicRnn<'a> {
    cell: &'a dyn RnnCell,
    sequence_length: Option<Output>,
    initial_state: Option<State>,
    parallel_iterations: i64,
    time_major: bool,
    scope: String,
}

/// Runs a cell along time with a default [`DynamicRnn`]; returns the outputs and the last state.
///
/// ```
/// use ferroflow::layers::rnn::{GruCell, dynamic_rnn};
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 10, 3));
/// let (outputs, _state) = dynamic_rnn(&GruCell::new(8), &x);
/// assert_eq!(outputs.shape(), PartialShape::from([-1, 10, 8]));
/// ```
#[track_caller]
pub fn dynamic_rnn(cell: &dyn RnnCell, inputs: &Output) -> (Output, State) {
    DynamicRnn::new(cell).run(inputs)
}

impl<'a> DynamicRnn<'a> {
    /// Returns a network of this cell.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{DynamicRnn, GruCell};
    ///
    /// let cell = GruCell::new(8);
    /// let network = DynamicRnn::new(&cell);
    /// ```
    pub fn new(cell: &'a dyn RnnCell) -> DynamicRnn<'a> {
        DynamicRnn {
            cell,
            sequence_length: None,
            initial_state: None,
            parallel_iterations: 32,
            time_major: false,
            scope: "rnn".to_owned(),
        }
    }

    /// Sets the number of steps of each example: an integer vector.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{DynamicRnn, GruCell};
    /// use ferroflow::{Graph, Tensor};
    ///
    /// let g = Graph::new();
    /// let cell = GruCell::new(8);
    /// let network = DynamicRnn::new(&cell).sequence_length(&g.constant_tensor(&Tensor::vector(&[3, 5])));
    /// ```
    pub fn sequence_length(mut self, sequence_length: &Output) -> Self {
        self.sequence_length = Some(sequence_length.clone());
        self
    }

    /// Sets the initial state; the default is zeros.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{DynamicRnn, GruCell, RnnCell};
    /// use ferroflow::{DType, Graph, Tensor};
    ///
    /// let g = Graph::new();
    /// let cell = GruCell::new(8);
    /// let zeros = cell.zero_state(&g.constant_tensor(&Tensor::scalar(2)), DType::Float);
    /// let network = DynamicRnn::new(&cell).initial_state(&zeros);
    /// ```
    pub fn initial_state(mut self, initial_state: &State) -> Self {
        self.initial_state = Some(initial_state.clone());
        self
    }

    /// Sets the most steps that may run in parallel.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{DynamicRnn, GruCell};
    ///
    /// let cell = GruCell::new(8);
    /// let network = DynamicRnn::new(&cell).parallel_iterations(1);
    /// ```
    pub fn parallel_iterations(mut self, parallel_iterations: i64) -> Self {
        self.parallel_iterations = parallel_iterations;
        self
    }

    /// Sets whether inputs and outputs are (time, batch, features), which saves a transposition.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{DynamicRnn, GruCell};
    ///
    /// let cell = GruCell::new(8);
    /// let network = DynamicRnn::new(&cell).time_major(true);
    /// ```
    pub fn time_major(mut self, time_major: bool) -> Self {
        self.time_major = time_major;
        self
    }

    /// Sets the variable scope; the default is `rnn`.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{DynamicRnn, GruCell};
    ///
    /// let cell = GruCell::new(8);
    /// let network = DynamicRnn::new(&cell).scope("decoder");
    /// ```
    pub fn scope(mut self, scope: &str) -> Self {
        self.scope = scope.to_owned();
        self
    }

    /// Adds the network; returns the outputs and the last state.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{DynamicRnn, GruCell};
    /// use ferroflow::{Graph, PartialShape};
    ///
    /// let g = Graph::new();
    /// let x = g.placeholder::<f32>((10, None, 3));
    /// let (outputs, _state) = DynamicRnn::new(&GruCell::new(8)).time_major(true).run(&x);
    /// assert_eq!(outputs.shape(), PartialShape::from([10, -1, 8]));
    /// ```
    #[track_caller]
    pub fn run(self, inputs: &Output) -> (Output, State) {
        let instead = |nothing: &Output| (nothing.clone(), self.cell.state_size().state_of(nothing));
        kept_as("dynamic_rnn", &[inputs], || self.add(inputs), instead)
    }

    fn add(&self, inputs: &Output) -> Result<(Output, State)> {
        VariableScope::new(&self.scope).run(inputs.graph(), |graph| self.add_here(graph, inputs))
    }

    /// Adds the network in the current variable scope.
    fn add_here(&self, graph: &Graph, inputs: &Output) -> Result<(Output, State)> {
        if inputs.shape().rank() != Some(3) {
            return Err(Status::invalid_argument(format!(
                "the input of a recurrent network has three axes, got {} of shape {}",
                inputs.name(),
                inputs.shape()
            )));
        }
        let by_time = |x: &Output| if self.time_major { Ok(x.clone()) } else { compose::transpose(x, &[1, 0, 2]) };
        let steps = by_time(inputs)?;
        compose::known_dim(&steps, 2, "the number of features of the input of a recurrent network")?;
        let batch_size = compose::size_of_axis(&steps, 1)?;
        let state = match &self.initial_state {
            Some(state) => state.clone(),
            None => initial_state(self.cell, &steps, 1, &batch_size)?,
        };
        let lengths = match &self.sequence_length {
            Some(lengths) => Some(checked_lengths(graph, lengths, &batch_size)?),
            None => None,
        };
        let (outputs, state) = self.looped(graph, &steps, &batch_size, state, lengths)?;
        Ok((by_time(&outputs)?, state))
    }

    fn looped(
        &self,
        graph: &Graph,
        inputs: &Output,
        batch_size: &Output,
        state: State,
        lengths: Option<Output>,
    ) -> Result<(Output, State)> {
        let shape = inputs.shape();
        let output_size = self.cell.output_size();
        let output_type = state.tensors().first().map_or(inputs.dtype(), Output::dtype);
        let time_steps = at(&shape_of(inputs)?, 0)?;
        let zero_output = compose::fill(&pack(&[batch_size, &int(graph, output_size as i32)])?, output_type, 0.0)?;
        let output_shape = PartialShape::new(&[shape.dim(1), Some(output_size)]);
        zero_output.set_shape(&output_shape)?;
        let longest = match &lengths {
            Some(lengths) => reduce_all("Max", lengths)?,
            None => time_steps.clone(),
        };
        let bound = node("Minimum", &[&time_steps, &with_number("Maximum", &longest, 1.0)?])?;
        let array = |name: &str, dtype: DType, shape: PartialShape| {
            let op = graph.op("TensorArrayV3").name(name).input(&time_steps).attr("dtype", dtype);
            let op = op.attr("element_shape", shape).attr("identical_element_shapes", true);
            let op = op.attr("tensor_array_name", graph.unique_name(&format!("dynamic_rnn/{name}")).as_str());
            let op = op.try_build()?;
            Ok::<_, Status>((op.output(0), op.output(1)))
        };
        let (results, results_flow) = array("output_0", output_type, output_shape.clone())?;
        let (given, given_flow) = array("input_0", inputs.dtype(), shape.slice(1, 3))?;
        let every_step = node("Range", &[&int(graph, 0), &time_steps, &int(graph, 1)])?;
        let given_flow = node("TensorArrayScatterV3", &[&given, &every_step, inputs, &given_flow])?;
        let mut variables = vec![int(graph, 0), results_flow];
        variables.extend(state.tensors());
        let options = LoopOptions { parallel_iterations: self.parallel_iterations, ..Default::default() };
        let after = compose::while_loop(
            graph,
            &variables,
            &options,
            |_, inside| node("Less", &[&inside[0], &bound]),
            |graph, inside| {
                let (time, flow) = (&inside[0], &inside[1]);
                let before = state.like(&inside[2..])?;
                let read = graph.op("TensorArrayReadV3").input(&given).input(time).input(&given_flow);
                let input = read.attr("dtype", inputs.dtype()).try_build()?.output(0);
                input.set_shape(&shape.slice(1, 3))?;
                let (mut output, mut next) = self.cell.try_step(&input, &before)?;
                if let Some(lengths) = &lengths {
                    (output, next) = past_the_end(time, lengths, &zero_output, &before, output, next)?;
                }
                let flow = node("TensorArrayWriteV3", &[&results, time, &output, flow])?;
                let mut all = vec![with_number("AddV2", time, 1.0)?, flow];
                all.extend(next.tensors());
                Ok(all)
            },
        )?;
        let flow = after.get(1).ok_or_else(|| Status::internal("a loop without results"))?;
        let gather = graph.op("TensorArrayGatherV3").input(&results).input(&every_step).input(flow);
        let gather = gather.attr("dtype", output_type).attr("element_shape", output_shape);
        let outputs = gather.try_build()?.output(0);
        outputs.set_shape(&PartialShape::new(&[shape.dim(0), shape.dim(1), Some(output_size)]))?;
        Ok((outputs, state.like(&after[2..])?))
    }
}

/// Adds a cell's zero state for inputs with the batch at the given axis.
pub(super) fn initial_state(
    cell: &dyn RnnCell,
    inputs: &Output,
    batch_axis: usize,
    batch_size: &Output,
) -> Result<State> {
    let state = cell.state_size().zeros(batch_size, inputs.dtype())?;
    for tensor in state.tensors() {
        tensor.set_shape(&PartialShape::new(&[inputs.shape().dim(batch_axis), tensor.shape().dim(1)]))?;
    }
    Ok(state)
}

/// Adds the lengths as `int32`, with a check that there is one for each example.
pub(super) fn checked_lengths(graph: &Graph, lengths: &Output, batch_size: &Output) -> Result<Output> {
    if !matches!(lengths.dtype(), DType::Int32 | DType::Int64) || lengths.shape().rank().is_some_and(|rank| rank != 1) {
        return Err(Status::invalid_argument(format!(
            "sequence_length must be a vector of integers, one for each example: {} is {} of shape {}",
            lengths.name(),
            lengths.dtype(),
            lengths.shape()
        )));
    }
    let lengths = cast(lengths, DType::Int32)?;
    let (found, wanted) = (shape_of(&lengths)?, compose::expand_dims(batch_size, 0)?);
    let is_right = reduce_all("All", &node("Equal", &[&found, &wanted])?)?;
    let message = format!("Expected one sequence length for each example of the batch, shape {}", lengths.name());
    let check = assert(&is_right, &message, &[&wanted, &found])?;
    graph.control_dependencies(&[check], |graph| {
        Ok(graph.op("Identity").name("CheckSeqLen").input(&lengths).try_build()?.output(0))
    })
}

/// Replaces output and state of the examples whose sequence has ended: the output by zeros, the state by the previous one.
pub(super) fn past_the_end(
    time: &Output,
    lengths: &Output,
    zero_output: &Output,
    before: &State,
    output: Output,
    next: State,
) -> Result<(Output, State)> {
    let is_over = node("GreaterEqual", &[time, lengths])?;
    let choose = |old: &Output, new: &Output| {
        if old.shape().rank() == Some(0) {
            return Ok(new.clone());
        }
        let chosen = new.graph().colocate_with(&new.op, |_| node("Select", &[&is_over, old, new]))?;
        chosen.set_shape(&old.shape())?;
        Ok::<_, Status>(chosen)
    };
    let output = choose(zero_output, &output)?;
    let (old, new) = (before.tensors(), next.tensors());
    let tensors = old.iter().zip(&new).map(|(old, new)| choose(old, new)).collect::<Result<Vec<_>>>()?;
    Ok((output, before.like(&tensors)?))
}

/// Runs one cell forward and another one backward along time, as `tf.nn.bidirectional_dynamic_rnn`.
///
/// ```
/// use ferroflow::layers::rnn::{BidirectionalDynamicRnn, GruCell};
/// use ferroflow::variable::trainable_variables;
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 10, 3));
/// let (forward, backward) = (GruCell::new(8), GruCell::new(8));
/// let ((_, outputs), _states) = BidirectionalDynamicRnn::new(&forward, &backward).run(&x);
/// assert_eq!(outputs.shape(), PartialShape::from([-1, 10, 8]));
/// assert_eq!(trainable_variables(&g)?[0].name(), "bidirectional_rnn/fw/gru_cell/gates/kernel");
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[must_use = "the network is added by `run`"]
pub struct BidirectionalDynamicRnn<'a> {
    forward: DynamicRnn<'a>,
    backward: DynamicRnn<'a>,
    scope: String,
}

/// Runs two cells along time with a default [`BidirectionalDynamicRnn`]; returns the outputs of both, and both last states.
///
/// ```
/// use ferroflow::layers::rnn::{GruCell, bidirectional_dynamic_rnn};
/// use ferroflow::ops::array::concat;
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 10, 3));
/// let ((forward, backward), _states) = bidirectional_dynamic_rnn(&GruCell::new(8), &GruCell::new(8), &x);
/// assert_eq!(concat(&[forward, backward], 2).shape(), PartialShape::from([-1, 10, 16]));
/// ```
#[track_caller]
pub fn bidirectional_dynamic_rnn(
    forward: &dyn RnnCell,
    backward: &dyn RnnCell,
    inputs: &Output,
) -> ((Output, Output), (State, State)) {
    BidirectionalDynamicRnn::new(forward, backward).run(inputs)
}

impl<'a> BidirectionalDynamicRnn<'a> {
    /// Returns a network of these two cells.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{BidirectionalDynamicRnn, GruCell};
    ///
    /// let (forward, backward) = (GruCell::new(8), GruCell::new(8));
    /// let network = BidirectionalDynamicRnn::new(&forward, &backward);
    /// ```
    pub fn new(forward: &'a dyn RnnCell, backward: &'a dyn RnnCell) -> BidirectionalDynamicRnn<'a> {
        BidirectionalDynamicRnn {
            forward: DynamicRnn::new(forward),
            backward: DynamicRnn::new(backward),
            scope: "bidirectional_rnn".to_owned(),
        }
    }

    /// Sets the number of steps of each example: an integer vector. The backward cell starts at the end of each sequence.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{BidirectionalDynamicRnn, GruCell};
    /// use ferroflow::{Graph, Tensor};
    ///
    /// let g = Graph::new();
    /// let (forward, backward) = (GruCell::new(8), GruCell::new(8));
    /// let lengths = g.constant_tensor(&Tensor::vector(&[3, 5]));
    /// let network = BidirectionalDynamicRnn::new(&forward, &backward).sequence_length(&lengths);
    /// ```
    pub fn sequence_length(mut self, sequence_length: &Output) -> Self {
        self.forward = self.forward.sequence_length(sequence_length);
        self.backward = self.backward.sequence_length(sequence_length);
        self
    }

    /// Sets the initial states.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{BidirectionalDynamicRnn, GruCell, RnnCell};
    /// use ferroflow::{DType, Graph, Tensor};
    ///
    /// let g = Graph::new();
    /// let (forward, backward) = (GruCell::new(8), GruCell::new(8));
    /// let zeros = forward.zero_state(&g.constant_tensor(&Tensor::scalar(2)), DType::Float);
    /// let network = BidirectionalDynamicRnn::new(&forward, &backward).initial_states(&zeros, &zeros);
    /// ```
    pub fn initial_states(mut self, forward: &State, backward: &State) -> Self {
        self.forward = self.forward.initial_state(forward);
        self.backward = self.backward.initial_state(backward);
        self
    }

    /// Sets whether inputs and outputs are (time, batch, features).
    ///
    /// ```
    /// use ferroflow::layers::rnn::{BidirectionalDynamicRnn, GruCell};
    ///
    /// let (forward, backward) = (GruCell::new(8), GruCell::new(8));
    /// let network = BidirectionalDynamicRnn::new(&forward, &backward).time_major(true);
    /// ```
    pub fn time_major(mut self, time_major: bool) -> Self {
        self.forward = self.forward.time_major(time_major);
        self.backward = self.backward.time_major(time_major);
        self
    }

    /// Sets the variable scope; the default is `bidirectional_rnn`.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{BidirectionalDynamicRnn, GruCell};
    ///
    /// let (forward, backward) = (GruCell::new(8), GruCell::new(8));
    /// let network = BidirectionalDynamicRnn::new(&forward, &backward).scope("encoder");
    /// ```
    pub fn scope(mut self, scope: &str) -> Self {
        self.scope = scope.to_owned();
        self
    }

    /// Adds the network; returns the outputs of both directions, and both last states.
    ///
    /// ```
    /// use ferroflow::layers::rnn::{BidirectionalDynamicRnn, GruCell};
    /// use ferroflow::{Graph, PartialShape};
    ///
    /// let g = Graph::new();
    /// let x = g.placeholder::<f32>((None, 10, 3));
    /// let (forward, backward) = (GruCell::new(8), GruCell::new(4));
    /// let ((outputs, reversed), _) = BidirectionalDynamicRnn::new(&forward, &backward).run(&x);
    /// assert_eq!(outputs.shape(), PartialShape::from([-1, 10, 8]));
    /// assert_eq!(reversed.shape(), PartialShape::from([-1, 10, 4]));
    /// ```
    #[track_caller]
    pub fn run(self, inputs: &Output) -> ((Output, Output), (State, State)) {
        let instead = |nothing: &Output| {
            let state = |cell: &dyn RnnCell| cell.state_size().state_of(nothing);
            ((nothing.clone(), nothing.clone()), (state(self.forward.cell), state(self.backward.cell)))
        };
        kept_as("bidirectional_dynamic_rnn", &[inputs], || self.add(inputs), instead)
    }

    fn add(&self, inputs: &Output) -> Result<((Output, Output), (State, State))> {
        let time_axis = if self.forward.time_major { 0 } else { 1 };
        let reverse = |x: &Output| match &self.forward.sequence_length {
            Some(lengths) => {
                let op = x.graph().op("ReverseSequence").input(x).input(lengths).attr("seq_dim", i64::from(time_axis));
                Ok(op.attr("batch_dim", i64::from(1 - time_axis)).try_build()?.output(0))
            }
            None => node("ReverseV2", &[x, &ints(x.graph(), &[time_axis])]),
        };
        VariableScope::new(&self.scope).run(inputs.graph(), |graph| {
            let forward = VariableScope::new("fw").run(graph, |graph| self.forward.add_here(graph, inputs))?;
            let backward = VariableScope::new("bw").run(graph, |graph| {
                let (outputs, state) = self.backward.add_here(graph, &reverse(inputs)?)?;
                Ok::<_, Status>((reverse(&outputs)?, state))
            })?;
            Ok(((forward.0, backward.0), (forward.1, backward.1)))
        })
    }
}
