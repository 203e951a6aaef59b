//! Slots: variables that belong to others, such as an optimizer's accumulators, beside them and named after them.

use super::expression::number;
use crate::variable::{SaveSlice, Variable, named_constant};
use graph::{Graph, Output};
use tensor::{DType, Result, Shape, Status, Tensor};

/// The first value of a slot.
pub enum SlotInitial<'a> {
    /// Zeros in the shape of the variable.
    Zeros,
    /// Ones in the shape of the variable.
    Ones,
    /// One number in the shape of the variable.
    Constant(f64),
    /// What a function builds in the slot's scope.
    Function(&'a dyn Fn(&Graph) -> Result<Output>),
    /// A tensor that is in the graph already.
    Tensor(&'a Output),
}

/// Makes a variable `PRIMARY/NAME` beside its primary.
pub fn create_slot(primary: &Variable, name: &str, initial: SlotInitial<'_>) -> Result<Variable> {
    let graph = primary.graph();
    let wanted = format!("{}/{name}", primary.name());
    let whole = first_free(graph, &wanted);
    // Reserved in the current scope as well, as TensorFlow's variable scope does.
    graph.unique_name(&wanted);
    let shape = primary.shape().clone();
    let fill = |graph: &Graph, op_name: &str, value: f64| -> Result<Output> {
        match shape.to_shape() {
            Some(shape) => Ok(named_constant(graph, op_name, &filled(value, primary.dtype(), &shape)?)),
            None => {
                let like = if value == 0.0 { "ZerosLike" } else { "OnesLike" };
                let filled = graph.op(like).name(op_name).input(primary.initial_value()).try_build()?.output(0);
                if value == 0.0 || value == 1.0 {
                    return Ok(filled);
                }
                super::expression::mul(graph, &filled, value)
            }
        }
    };
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
                        SlotInitial::Zeros => fill(graph, "zeros", 0.0),
                        SlotInitial::Ones => fill(graph, "ones", 1.0),
                        SlotInitial::Constant(value) => fill(graph, "Const", *value),
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

/// Returns a tensor with one number everywhere.
pub(crate) fn filled(value: f64, dtype: DType, shape: &Shape) -> Result<Tensor> {
    let scalar = number(value, dtype)?;
    let mut tensor = Tensor::zeros(dtype, shape.clone())?;
    macro_rules! fill {
        ($($ty:ty),*) => {$(
            if let (Ok(value), Ok(elements)) = (scalar.to_scalar::<$ty>(), tensor.make_mut::<$ty>()) {
                elements.fill(value);
            }
        )*};
    }
    fill!(f32, f64, tensor::f16, tensor::bf16, i32, i64);
    Ok(tensor)
}

/// Adds a constant in the shape of a variable, placed with it.
pub(crate) fn constant_beside(graph: &Graph, variable: &Variable, value: f64) -> Result<Output> {
    let shape = variable.shape().to_shape().ok_or_else(|| {
        Status::invalid_argument(format!("the shape of variable '{}' must be known", variable.name()))
    })?;
    let tensor = filled(value, variable.dtype(), &shape)?;
    Ok(graph.colocate_with(variable.op(), |graph| graph.constant_tensor(&tensor)))
}
