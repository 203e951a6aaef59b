//! The losses that are collected in a graph.

use crate::compose::{self, node};
use graph::{Graph, Output};
use tensor::{DType, Result, Status};

/// The collection of losses.
///
/// ```
/// use ferroflow::losses::{self, LOSSES, Labels, Predictions};
/// use ferroflow::{Graph, Tensor};
///
/// let g = Graph::new();
/// let x = g.constant_tensor(&Tensor::vector(&[1f32, 2.0]));
/// losses::mean_squared_error(Labels(&x), Predictions(&x)).build();
/// assert_eq!(g.collection(LOSSES).len(), 1);
/// ```
pub const LOSSES: &str = "losses";

/// The collection of the losses that regularizers add.
///
/// ```
/// use ferroflow::layers::regularizers;
/// use ferroflow::losses::REGULARIZATION_LOSSES;
/// use ferroflow::variable_scope::get_variable;
///
/// let g = ferroflow::Graph::new();
/// get_variable(&g, "w", &[2]).regularizer(regularizers::l2(0.1)).get();
/// assert_eq!(g.collection(REGULARIZATION_LOSSES).len(), 1);
/// ```
pub const REGULARIZATION_LOSSES: &str = "regularization_losses";

/// Adds a loss to the collection.
///
/// ```
/// use ferroflow::losses::{add_loss, get_losses};
/// use ferroflow::{Graph, Tensor};
///
/// let g = Graph::new();
/// add_loss(&g.constant_tensor(&Tensor::scalar(1f32)));
/// assert_eq!(get_losses(&g).len(), 1);
/// ```
pub fn add_loss(loss: &Output) {
    loss.graph().add_to_collection(LOSSES, loss);
}

/// Returns the losses so far.
///
/// ```
/// assert!(ferroflow::losses::get_losses(&ferroflow::Graph::new()).is_empty());
/// ```
pub fn get_losses(graph: &Graph) -> Vec<Output> {
    graph.collection(LOSSES)
}

/// Returns the losses that regularizers have added.
///
/// ```
/// assert!(ferroflow::losses::get_regularization_losses(&ferroflow::Graph::new()).is_empty());
/// ```
pub fn get_regularization_losses(graph: &Graph) -> Vec<Output> {
    graph.collection(REGULARIZATION_LOSSES)
}

/// Adds the sum of the regularizers' losses: zero if there are none.
///
/// ```
/// use ferroflow::{Graph, Session};
///
/// let g = Graph::new();
/// let loss = ferroflow::losses::get_regularization_loss(&g);
/// assert_eq!(Session::new(&g)?.eval::<f32>(&loss)?, 0.0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn get_regularization_loss(graph: &Graph) -> Output {
    let losses = get_regularization_losses(graph);
    let total = match &losses[..] {
        [] => compose::scalar(graph, DType::Float, 0.0),
        _ => sum(&losses, "total_regularization_loss"),
    };
    match total {
        Ok(total) => total,
        Err(status) => graph.mistaken_output("AddN", status),
    }
}

/// Adds the sum of all losses, including the regularizers' if `add_regularization_losses` is true.
///
/// ```
/// use ferroflow::losses::{add_loss, get_total_loss};
/// use ferroflow::{Graph, Session, Tensor};
///
/// let g = Graph::new();
/// add_loss(&g.constant_tensor(&Tensor::scalar(1f32)));
/// add_loss(&g.constant_tensor(&Tensor::scalar(2f32)));
/// let total = get_total_loss(&g, true);
/// assert_eq!(Session::new(&g)?.eval::<f32>(&total)?, 3.0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn get_total_loss(graph: &Graph, add_regularization_losses: bool) -> Output {
    let mut losses = get_losses(graph);
    if add_regularization_losses {
        losses.extend(get_regularization_losses(graph));
    }
    let total = match losses.is_empty() {
        true => Err(Status::invalid_argument("the graph has no losses to add up")),
        false => sum(&losses, "total_loss"),
    };
    match total {
        Ok(total) => total,
        Err(status) => graph.mistaken_output("AddN", status),
    }
}

fn sum(losses: &[Output], name: &str) -> Result<Output> {
    match losses {
        [one] => node("Identity", &[one]),
        _ => Ok(losses[0].graph().op("AddN").name(name).inputs(losses).try_build()?.output(0)),
    }
}
