//! [`GradientReduction`]: how the gradients of a graph are reduced before an optimizer applies them, if workers train as equals. It belongs
//! to the graph, so that it applies to every optimizer of a model function.

use crate::variable::Variable;
use graph::Graph;
use graph::builder::Grad;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use tensor::Result;

type Gradient = (Option<Grad>, Variable);

/// Returns the means of gradients over all workers.
pub(crate) type Reduce = Arc<dyn Fn(&Graph, &[Gradient]) -> Result<Vec<Gradient>> + Send + Sync>;

/// How the gradients of a graph are reduced, if at all, and which of them are means already.
#[derive(Default)]
pub(crate) struct GradientReduction {
    reduce: Mutex<Option<Reduce>>,
    means: Mutex<HashSet<String>>,
}

impl GradientReduction {
    /// Has all gradients of a graph reduced.
    pub(crate) fn set(graph: &Graph, reduce: Reduce) {
        *graph.extension::<GradientReduction>().reduce.lock() = Some(reduce);
    }

    /// Returns whether the gradients of a graph are reduced, whichever optimizer applies them.
    pub(crate) fn is_set(graph: &Graph) -> bool {
        graph.extension::<GradientReduction>().reduce.lock().is_some()
    }

    /// Returns what an optimizer should apply in place of these gradients: their means, or they themselves where nothing is reduced.
    pub(crate) fn of(graph: &Graph, gradients: &[Gradient]) -> Result<Vec<Gradient>> {
        let reduction = graph.extension::<GradientReduction>();
        let reduce = reduction.reduce.lock().clone();
        let Some(reduce) = reduce else { return Ok(gradients.to_vec()) };
        let is_mean = |gradient: &Gradient| {
            gradient.0.as_ref().is_none_or(|gradient| reduction.means.lock().contains(&name_of(gradient)))
        };
        if gradients.iter().all(is_mean) {
            return Ok(gradients.to_vec());
        }
        let means = reduce(graph, gradients)?;
        reduction.means.lock().extend(means.iter().filter_map(|(mean, _)| mean.as_ref()).map(name_of));
        Ok(means)
    }
}

fn name_of(gradient: &Grad) -> String {
    match gradient {
        Grad::Dense(output) => output.name(),
        Grad::Slices(slices) => slices.values.name(),
    }
}
