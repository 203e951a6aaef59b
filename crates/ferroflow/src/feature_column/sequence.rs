//! Sequence columns: [`sequence_input_layer`] turns each row into a sequence of numbers for a recurrent network.

use super::categorical::CategoricalColumn;
use super::column::{FeatureColumn, in_order};
use super::features::Features;
use super::ids::{indicators, sequence_length};
use super::input_layer::{check_same_batch, first, graph_of, in_scope, made_outside};
use super::numeric::ColumnId;
use super::sequence_numeric::by_time;
use super::transform::Transformations;
use crate::compose::{concat, expand_dims, ints, known_rank, node, size_of_axis};
use crate::kept::{kept, kept_as};
use crate::variable_scope::VariableScope;
use graph::{Graph, Output};
use tensor::{DType, Result, Status};

/// Turns a categorical column into a sequence column: the second axis of its feature is time. Use it in an embedding or indicator
/// column.
///
/// ```
/// use ferroflow::feature_column::*;
///
/// let words = categorical_column_with_vocabulary_list("words", ["to", "be"]);
/// let column = embedding_column(&sequence_categorical_column(&words), 8);
/// assert_eq!(column.name(), "words_embedding");
/// ```
pub fn sequence_categorical_column(column: &CategoricalColumn) -> CategoricalColumn {
    CategoricalColumn { id: ColumnId::new(), is_sequence: true, ..column.clone() }
}

/// Adds the numbers of sequence columns: for each row of the batch and each time step the concatenated numbers of all columns,
/// and for each row the length of its sequence. Its variables are `sequence_input_layer/NAME/embedding_weights`.
///
/// ```
/// use ferroflow::feature_column::*;
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let speed = SparseTensor {
///     indices: g.constant([[0i64, 0], [0, 1], [1, 0]]),
///     values: g.constant([1f32, 2.0, 3.0]),
///     dense_shape: g.constant([2i64, 2]),
/// };
/// let columns = [sequence_numeric_column("speed").into()];
/// let (sequences, lengths) = sequence_input_layer(&Features::new().with("speed", speed), &columns);
/// let values = Session::new(&g)?.run(&[&sequences, &lengths])?;
/// assert_eq!(values[0].to_vec::<f32>()?, [1.0, 2.0, 3.0, 0.0]);
/// assert_eq!(values[1].to_vec::<i64>()?, [2, 1]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn sequence_input_layer(features: &Features, columns: &[FeatureColumn]) -> (Output, Output) {
    let instead = |instead: &Output| (instead.clone(), instead.clone());
    kept_as("sequence_input_layer", &first(features), || added(features, columns), instead)
}

fn added(features: &Features, columns: &[FeatureColumn]) -> Result<(Output, Output)> {
    let (graph, columns) = (graph_of(features)?, in_order(columns)?);
    let outside = made_outside(graph, &columns, true)?;
    VariableScope::with_default_name("sequence_input_layer").run(graph, |graph| {
        let mut made = Transformations::new(features);
        let (mut parts, mut lengths) = (Vec::new(), Vec::new());
        for (column, table) in columns.iter().zip(&outside) {
            let (part, length) = in_scope(graph, column, |graph| match column {
                FeatureColumn::SequenceNumeric(column) => column.dense(&mut made),
                FeatureColumn::Embedding(embedding) if embedding.categorical().is_sequence => {
                    let ids = made.ids(embedding.categorical())?;
                    let table = match table {
                        Some(table) => table.clone(),
                        None => embedding.variable(graph, true)?,
                    };
                    let rows = by_time(&embedding.looked_up(&table, &ids)?, embedding.dimension())?;
                    Ok((rows, sequence_length(&ids.ids, 1)?))
                }
                FeatureColumn::Indicator(indicator) if indicator.categorical.is_sequence => {
                    let ids = made.ids(&indicator.categorical)?;
                    let count = indicator.categorical.num_buckets()?;
                    Ok((by_time(&indicators(&ids, count)?, count)?, sequence_length(&ids.ids, 1)?))
                }
                other => Err(Status::invalid_argument(format!(
                    "column {} is not one of sequences: use sequence_numeric_column, or an embedding or indicator column \
                     of a sequence_categorical_column",
                    other.name()
                ))),
            })?;
            parts.push(part);
            lengths.push(length);
        }
        check_same_batch(&columns, &parts)?;
        let sequences = match &parts[..] {
            [only] => only.clone(),
            _ => concat(&parts.iter().collect::<Vec<_>>(), 2)?,
        };
        Ok((sequences, all_equal(graph, &columns, &lengths)?))
    })
}

/// Adds the first of several length vectors, with a check that the others are equal.
fn all_equal(graph: &Graph, columns: &[&FeatureColumn], lengths: &[Output]) -> Result<Output> {
    let [first, others @ ..] = lengths else { return Err(Status::internal("sequences without lengths")) };
    let mut checks = Vec::new();
    for (column, length) in columns.iter().skip(1).zip(others) {
        let same = node("All", &[&node("Equal", &[first, length])?, &ints(graph, &[0])])?;
        let message =
            format!("columns {} and {} have sequences of different lengths", columns[0].name(), column.name());
        checks.push(crate::compose::assert(&same, &message, &[first, length])?);
    }
    match checks.is_empty() {
        true => Ok(first.clone()),
        false => graph.control_dependencies(&checks, |_| node("Identity", &[first])),
    }
}

/// Repeats a row's values at each time step of its sequence.
///
/// ```
/// use ferroflow::feature_column::concatenate_context_input;
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let (context, sequences) = (g.constant([[9f32]]), g.constant([[[1f32], [2.0]]]));
/// let both = concatenate_context_input(&context, &sequences);
/// assert_eq!(Session::new(&g)?.run(&[&both])?[0].to_vec::<f32>()?, [1.0, 9.0, 2.0, 9.0]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn concatenate_context_input(context_input: &Output, sequence_input: &Output) -> Output {
    kept("concatenate_context_input", &[context_input, sequence_input], || {
        let graph = sequence_input.graph();
        for (what, x, rank) in [("context_input", context_input, 2), ("sequence_input", sequence_input, 3)] {
            if known_rank(x, what)? != rank || x.dtype() != DType::Float {
                let (dtype, shape) = (x.dtype(), x.shape());
                return Err(Status::invalid_argument(format!(
                    "{what} must have rank {rank} and dtype float; got {dtype} {shape}"
                )));
            }
        }
        let times = expand_dims(&size_of_axis(sequence_input, 1)?, 0)?;
        let one = ints(graph, &[1]);
        let tiled = node("Tile", &[&expand_dims(context_input, 1)?, &concat(&[&one, &times, &one], 0)?])?;
        concat(&[sequence_input, &tiled], 2)
    })
}
