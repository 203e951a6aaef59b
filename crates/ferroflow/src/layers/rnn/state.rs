//! A cell's state between steps: [`State`], and its sizes: [`StateSize`].

use crate::compose::{self, int, pack};
use graph::Output;
use tensor::{DType, PartialShape, Result, Status};

/// The state of a cell.
///
/// ```
/// use ferroflow::layers::rnn::{LstmCell, RnnCell, State};
/// use ferroflow::{DType, Graph, Tensor};
///
/// let g = Graph::new();
/// let batch_size = g.constant_tensor(&Tensor::scalar(8));
/// let State::Lstm { c, h } = LstmCell::new(32).zero_state(&batch_size, DType::Float) else { panic!("no LSTM") };
/// assert_eq!(c.shape(), h.shape());
/// ```
#[derive(Clone, Debug)]
pub enum State {
    /// A single tensor, for GRU and basic cells.
    Tensor(Output),
    /// Memory and output of an LSTM cell.
    Lstm {
        /// The memory.
        c: Output,
        /// The output.
        h: Output,
    },
    /// The states of several cells.
    Tuple(Vec<State>),
}

/// The sizes of the tensors of a [`State`], without the batch.
///
/// ```
/// use ferroflow::layers::rnn::{GruCell, RnnCell, StateSize};
///
/// assert_eq!(GruCell::new(16).state_size(), StateSize::Tensor(16));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateSize {
    /// One tensor.
    Tensor(i64),
    /// Memory and output of an LSTM cell.
    Lstm {
        /// The memory.
        c: i64,
        /// The output.
        h: i64,
    },
    /// The states of several cells.
    Tuple(Vec<StateSize>),
}

impl State {
    /// Returns the tensors, in order.
    ///
    /// ```
    /// use ferroflow::layers::rnn::State;
    /// use ferroflow::{Graph, Tensor};
    ///
    /// let zero = Graph::new().constant_tensor(&Tensor::scalar(0f32));
    /// let state = State::Tuple(vec![State::Tensor(zero.clone()), State::Lstm { c: zero.clone(), h: zero }]);
    /// assert_eq!(state.tensors().len(), 3);
    /// ```
    pub fn tensors(&self) -> Vec<Output> {
        match self {
            State::Tensor(output) => vec![output.clone()],
            State::Lstm { c, h } => vec![c.clone(), h.clone()],
            State::Tuple(states) => states.iter().flat_map(State::tensors).collect(),
        }
    }

    /// Returns a state of the same form with other tensors.
    pub(super) fn like(&self, tensors: &[Output]) -> Result<State> {
        let mut rest = tensors.iter();
        let state = self.take(&mut rest)?;
        match rest.next() {
            None => Ok(state),
            Some(_) => Err(Status::internal("a state with too many tensors")),
        }
    }

    fn take(&self, rest: &mut std::slice::Iter<'_, Output>) -> Result<State> {
        let mut next = || rest.next().cloned().ok_or_else(|| Status::internal("a state with too few tensors"));
        Ok(match self {
            State::Tensor(_) => State::Tensor(next()?),
            State::Lstm { .. } => State::Lstm { c: next()?, h: next()? },
            State::Tuple(states) => {
                State::Tuple(states.iter().map(|state| state.take(rest)).collect::<Result<Vec<_>>>()?)
            }
        })
    }

    /// Returns the tensor of a state with a single one.
    pub(super) fn tensor(&self, cell: &str) -> Result<&Output> {
        match self {
            State::Tensor(output) => Ok(output),
            other => Err(Status::invalid_argument(format!("the state of {cell} is one tensor, not {other:?}"))),
        }
    }

    /// Returns memory and output of an LSTM cell's state.
    pub(super) fn lstm(&self, cell: &str) -> Result<(&Output, &Output)> {
        match self {
            State::Lstm { c, h } => Ok((c, h)),
            other => Err(Status::invalid_argument(format!("the state of {cell} is memory and output, not {other:?}"))),
        }
    }
}

impl StateSize {
    /// Returns a state with the same tensor everywhere.
    pub(super) fn state_of(&self, tensor: &Output) -> State {
        match self {
            StateSize::Tensor(_) => State::Tensor(tensor.clone()),
            StateSize::Lstm { .. } => State::Lstm { c: tensor.clone(), h: tensor.clone() },
            StateSize::Tuple(sizes) => State::Tuple(sizes.iter().map(|size| size.state_of(tensor)).collect()),
        }
    }

    /// Adds a zero state.
    pub(super) fn zeros(&self, batch_size: &Output, dtype: DType) -> Result<State> {
        let zeros = |size: i64| {
            let graph = batch_size.graph();
            let dims = pack(&[batch_size, &int(graph, size as i32)])?;
            let zeros = compose::fill(&dims, dtype, 0.0)?;
            zeros.set_shape(&PartialShape::new(&[None, Some(size)]))?;
            Ok::<_, Status>(zeros)
        };
        Ok(match self {
            StateSize::Tensor(size) => State::Tensor(zeros(*size)?),
            StateSize::Lstm { c, h } => State::Lstm { c: zeros(*c)?, h: zeros(*h)? },
            StateSize::Tuple(sizes) => {
                State::Tuple(sizes.iter().map(|size| size.zeros(batch_size, dtype)).collect::<Result<Vec<_>>>()?)
            }
        })
    }
}
