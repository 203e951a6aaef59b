//! Slots: variables that belong to another variable, such as an optimizer's accumulators, and are placed with it and named after
//! it.

use super::expression::mul;
use super::fill::{filled, filled_constant};
use crate::variable::{SaveSlice, Variable};
use graph::{Graph, Output};
use tensor::{Result, Shape, Status};

/// The initial value of a slot.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::slot::{SlotInitial, create_slot};
///
/// let g = Graph::new();
/// let w = Variable::new(&g, "w", &g.constant([1f32, 2.0]));
/// let slot = create_slot(&w, "accumulator", SlotInitial::Constant(0.1))?;
/// let session = Session::new(&g)?;
/// session.run_ops(&[slot.initializer()])?;
/// assert_eq!(session.run(&[slot.value()])?[0].to_vec::<f32>()?, [0.1, 0.1]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub enum SlotInitial<'a> {
    /// Zeros in the shape of the variable.
    Zeros,
    /// Ones in the shape of the variable.
    Ones,
    /// One number in the shape of the variable.
    Constant(f64),
    /// A function's result, built in the slot's scope.
    Function(&'a dyn Fn(&Graph) -> Result<Output>),
    /// A tensor that exists already.
    Tensor(&'a Output),
}

/// Creates a variable `PRIMARY/NAME` beside its primary.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::slot::{SlotInitial, create_slot};
///
/// let g = Graph::new();
/// let w = Variable::new(&g, "w", &g.constant([1f32, 2.0]));
/// let slot = create_slot(&w, "momentum", SlotInitial::Zeros)?;
/// assert_eq!((slot.name().as_str(), slot.is_trainable()), ("w/momentum", false));
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn create_slot(primary: &Variable, name: &str, initial: SlotInitial<'_>) -> Result<Variable> {
    let graph = primary.graph();
    let wanted = format!("{}/{name}", primary.name());
    let whole = first_free(graph, &wanted);
    // Also reserved in the current scope, as TensorFlow's variable scope does.
    graph.unique_name(&wanted);
    let shape = primary.shape().clone();
    let mut failure = None;
    let mut slot = graph.in_name_scope("", |graph| {
        graph.colocate_with(primary.op(), |graph| {
            let builder = Variable::in_graph(graph, &format!("{whole}/"))
                .trainable(false)
                .kind(primary.kind())
                .validate_shape(shape.is_fully_defined());
            match initial {
                SlotInitial::Tensor(output) => builder.build_from(output),
                other => builder.build(|graph| {
                    let built = match &other {
                        SlotInitial::Zeros => like(graph, primary, "zeros", 0.0),
                        SlotInitial::Ones => like(graph, primary, "ones", 1.0),
                        SlotInitial::Constant(value) => constant_like(graph, primary, *value),
                        SlotInitial::Function(function) => function(graph),
                        SlotInitial::Tensor(output) => Ok((*output).clone()),
                    };
                    built.unwrap_or_else(|status| {
                        failure = Some(status);
                        primary.initial_value().clone()
                    })
                }),
            }
        })
    });
    if let Some(status) = failure {
        return Err(status);
    }
    if let (Some(slice), Some(rank)) = (primary.save_slice(), slot.shape().rank())
        && rank > 0
    {
        let name = &whole[primary.name().len() + 1..];
        let cut = |shape: &Shape| shape.slice(0, rank.min(shape.rank()));
        slot.set_save_slice(SaveSlice {
            full_name: format!("{}/{name}", slice.full_name),
            full_shape: cut(&slice.full_shape),
            offset: slice.offset.iter().take(rank).copied().collect(),
            shape: cut(&slice.shape),
        });
    }
    Ok(slot)
}

fn first_free(graph: &Graph, name: &str) -> String {
    if graph.operation(name).is_none() {
        return name.to_owned();
    }
    (1u32..).map(|number| format!("{name}_{number}")).find(|name| graph.operation(name).is_none()).unwrap_or_default()
}

/// Adds zeros or ones in the shape of a variable.
pub(crate) fn like(graph: &Graph, primary: &Variable, name: &str, value: f64) -> Result<Output> {
    if let Some(shape) = primary.shape().to_shape() {
        return filled(graph, name, value, primary.dtype(), &shape);
    }
    let op = if value == 0.0 { "ZerosLike" } else { "OnesLike" };
    Ok(graph.op(op).name(name).input(primary.initial_value()).try_build()?.output(0))
}

fn constant_like(graph: &Graph, primary: &Variable, value: f64) -> Result<Output> {
    match primary.shape().to_shape() {
        Some(shape) => filled_constant(graph, "Const", value, primary.dtype(), &shape),
        None => mul(graph, &like(graph, primary, "ones", 1.0)?, value),
    }
}

/// Adds a constant in the shape of a variable, colocated with it.
pub(crate) fn constant_beside(graph: &Graph, variable: &Variable, value: f64) -> Result<Output> {
    let shape = variable.shape().to_shape().ok_or_else(|| {
        Status::invalid_argument(format!("the shape of variable '{}' must be known", variable.name()))
    })?;
    let dtype = variable.dtype();
    graph.colocate_with(variable.op(), |graph| filled_constant(graph, "Const", value, dtype, &shape))
}
