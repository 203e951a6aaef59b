//! [`input_layer`]: dense columns, concatenated.

use super::categorical::Kind;
use super::column::{FeatureColumn, check_no_sequence, in_order};
use super::features::Features;
use super::ids::{bucketized, indicators, scope_name};
use super::transform::{Transformations, flat_rows};
use crate::compose::{concat, int, node, scalar};
use crate::kept::kept;
use crate::variable::Variable;
use crate::variable_scope::VariableScope;
use graph::{Graph, Output};
use tensor::{DType, Result, Status};

/// Adds the concatenated numbers of dense columns, in the order of the columns' names, with a row for each row of the batch. It
/// is `tf.compat.v1.feature_column.input_layer`, with its variables: `input_layer/NAME/embedding_weights`.
///
/// ```
/// use ferroflow::feature_column::*;
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let columns = [numeric_column("b").into(), numeric_column("a").shape(&[2]).into()];
/// let features = Features::new().with("a", g.constant([[1f32, 2.0]])).with("b", g.constant([3f32]));
/// let first_layer = input_layer(&features, &columns);
/// assert_eq!(Session::new(&g)?.run(&[&first_layer])?[0].to_vec::<f32>()?, [1.0, 2.0, 3.0]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
///
/// A mistake is kept in the graph, with the line of the program:
///
/// ```
/// use ferroflow::feature_column::*;
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let features = Features::new().with("a", g.constant([1f32]));
/// input_layer(&features, &[numeric_column("age").into()]);
/// assert!(g.finish().unwrap_err().message().starts_with("Feature age is not in features dictionary, which has: a"));
/// ```
#[track_caller]
pub fn input_layer(features: &Features, columns: &[FeatureColumn]) -> Output {
    kept("input_layer", &first(features), || added(features, columns))
}

/// Returns any output of the features, for their graph.
pub(super) fn first(features: &Features) -> Vec<&Output> {
    features.iter().map(|(_, feature)| feature.values()).take(1).collect()
}

/// Returns the graph that features are in.
pub(super) fn graph_of(features: &Features) -> Result<&Graph> {
    features.graph().ok_or_else(|| Status::invalid_argument("there are no features"))
}

fn added(features: &Features, columns: &[FeatureColumn]) -> Result<Output> {
    let (graph, columns) = (graph_of(features)?, in_order(columns)?);
    for column in &columns {
        check_no_sequence(column)?;
        if !column.is_dense() {
            return Err(Status::invalid_argument(format!(
                "Items of feature_columns must be a DenseColumn. You can wrap a categorical column with an \
                 embedding_column or indicator_column. Given: {}",
                column.name()
            )));
        }
    }
    let outside = made_outside(graph, &columns, true)?;
    VariableScope::with_default_name("input_layer").run(graph, |graph| {
        let mut made = Transformations::new(features);
        let mut parts = Vec::new();
        for (column, table) in columns.iter().zip(&outside) {
            let part = in_scope(graph, column, |graph| {
                flat_rows(&dense(&mut made, graph, column, table.as_ref(), true)?, column.num_elements()?)
            })?;
            parts.push(part);
        }
        check_same_batch(&columns, &parts)?;
        match &parts[..] {
            [only] => Ok(only.clone()),
            _ => concat(&parts.iter().collect::<Vec<_>>(), 1),
        }
    })
}

/// Creates the tables whose names don't depend on the layer's.
pub(super) fn made_outside(
    graph: &Graph,
    columns: &[&FeatureColumn],
    trainable: bool,
) -> Result<Vec<Option<Variable>>> {
    let table = |column: &&FeatureColumn| match column {
        FeatureColumn::Embedding(column) if column.is_outside() => column.variable(graph, trainable).map(Some),
        _ => Ok(None),
    };
    columns.iter().map(table).collect()
}

/// Runs `build` in the variable scope of a column.
pub(super) fn in_scope<R>(graph: &Graph, column: &FeatureColumn, build: impl FnOnce(&Graph) -> R) -> R {
    let name = match column {
        FeatureColumn::Embedding(column) => column.scope_name(),
        _ => column.name(),
    };
    VariableScope::with_default_name(&scope_name(&name)).run(graph, build)
}

/// Adds the numbers of a dense column.
pub(super) fn dense(
    made: &mut Transformations<'_>,
    graph: &Graph,
    column: &FeatureColumn,
    table: Option<&Variable>,
    trainable: bool,
) -> Result<Output> {
    match column {
        FeatureColumn::Numeric(column) => made.numbers(column),
        FeatureColumn::Embedding(column) => {
            let ids = made.ids(column.categorical())?;
            let table = match table {
                Some(table) => table.clone(),
                None => column.variable(graph, trainable)?,
            };
            column.looked_up(&table, &ids)
        }
        FeatureColumn::Indicator(column) => {
            indicators(&made.ids(&column.categorical)?, column.categorical.num_buckets()?)
        }
        FeatureColumn::Categorical(column) => match &*column.kind {
            Kind::Bucketized { source, boundaries } => {
                let numbers = made.numbers(source)?;
                let buckets = flat_rows(&bucketized(&numbers, boundaries)?, source.num_elements())?;
                let (on, off) = (scalar(graph, DType::Float, 1.0)?, scalar(graph, DType::Float, 0.0)?);
                node("OneHot", &[&buckets, &int(graph, boundaries.len() as i32 + 1), &on, &off])
            }
            _ => Err(Status::internal(format!("column {} is not dense", column.name()))),
        },
        FeatureColumn::SequenceNumeric(column) => {
            Err(Status::internal(format!("column {} is a sequence column", column.name())))
        }
    }
}

/// Fails if columns are known to have batches of different sizes.
pub(super) fn check_same_batch(columns: &[&FeatureColumn], parts: &[Output]) -> Result<()> {
    let mut known: Option<(String, i64)> = None;
    for (column, part) in columns.iter().zip(parts) {
        let Some(size) = part.shape().dim(0) else { continue };
        match &known {
            Some((name, expected)) if *expected != size => {
                return Err(Status::invalid_argument(format!(
                    "Batch size (first dimension) of each feature must be same. Batch size of columns ({name}, {}): \
                     ({expected}, {size})",
                    column.name()
                )));
            }
            Some(_) => {}
            None => known = Some((column.name(), size)),
        }
    }
    Ok(())
}
