//! Recurrent networks, as in `tf.nn.rnn_cell` and `tf.nn.dynamic_rnn`: cells, and networks that run them along time.
//!
//! ```
//! use ferroflow::layers::rnn::{GruCell, LstmCell, MultiRnnCell, dynamic_rnn};
//! use ferroflow::variable::trainable_variables;
//! use ferroflow::{Graph, PartialShape};
//!
//! let g = Graph::new();
//! let words = g.placeholder::<f32>((None, 20, 64));
//! let cell = MultiRnnCell::new().cell(LstmCell::new(128)).cell(GruCell::new(32));
//! let (outputs, _state) = dynamic_rnn(&cell, &words);
//! assert_eq!(outputs.shape(), PartialShape::from([-1, 20, 32]));
//! assert_eq!(trainable_variables(&g)?[0].name(), "rnn/multi_rnn_cell/cell_0/lstm_cell/kernel");
//! # Ok::<(), ferroflow::Status>(())
//! ```

mod cell;
mod dynamic;
mod lstm;
mod state;
mod static_rnn;
mod wrappers;

pub use cell::{BasicRnnCell, GruCell, RnnCell};
pub use dynamic::{BidirectionalDynamicRnn, DynamicRnn, bidirectional_dynamic_rnn, dynamic_rnn};
pub use lstm::{BasicLstmCell, LstmCell};
pub use state::{State, StateSize};
pub use static_rnn::{StaticBidirectionalRnn, StaticRnn, static_bidirectional_rnn, static_rnn};
pub use wrappers::{DropoutWrapper, MultiRnnCell};
