//! [`linear_model`]: a weighted sum of columns.

use super::categorical::CategoricalColumn;
use super::column::{FeatureColumn, check_no_sequence, in_order};
use super::combine::{Combiner, safe_embedding_lookup_sparse};
use super::embedding::model_variable;
use super::features::Features;
use super::input_layer::{check_same_batch, dense, first, graph_of, in_scope, made_outside};
use super::transform::{Transformations, flat_rows};
use crate::compose::matmul;
use crate::initializers;
use crate::kept::kept;
use crate::variable::Variable;
use crate::variable_scope::{VariableScope, get_variable};
use graph::{Graph, Output};
use tensor::{Result, Status};

/// Options of a linear model.
///
/// ```
/// use ferroflow::feature_column::{Combiner, LinearModelOptions};
///
/// let options = LinearModelOptions { units: 3, sparse_combiner: Combiner::Mean, ..LinearModelOptions::default() };
/// assert!(options.trainable);
/// ```
#[derive(Clone, Debug)]
pub struct LinearModelOptions {
    /// The number of outputs per row.
    pub units: i64,
    /// How the weights of several ids in a row are combined.
    pub sparse_combiner: Combiner,
    /// Whether optimizers change the weights.
    pub trainable: bool,
}

impl Default for LinearModelOptions {
    fn default() -> LinearModelOptions {
        LinearModelOptions { units: 1, sparse_combiner: Combiner::Sum, trainable: true }
    }
}

/// Adds a linear model of columns: a weight for each number and each id, and a bias. It is
/// `tf.compat.v1.feature_column.linear_model`, with its variables: `linear_model/NAME/weights` and `linear_model/bias_weights`.
///
/// ```
/// use ferroflow::feature_column::*;
/// use ferroflow::prelude::*;
/// use ferroflow::train::global_variables_initializer;
///
/// let g = Graph::new();
/// let columns = [numeric_column("age").into(), categorical_column_with_identity("day", 7).into()];
/// let features = Features::new().with("age", g.constant([30f32, 40.0])).with("day", g.constant([0i64, 6]));
/// let logits = linear_model(&features, &columns, LinearModelOptions { units: 3, ..Default::default() });
/// let session = Session::new(&g)?;
/// session.run_ops(&[&global_variables_initializer(&g)])?;
/// assert_eq!(session.run(&[&logits])?[0].dims(), [2, 3]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn linear_model(features: &Features, columns: &[FeatureColumn], options: LinearModelOptions) -> Output {
    kept("linear_model", &first(features), || added(features, columns, &options))
}

fn added(features: &Features, columns: &[FeatureColumn], options: &LinearModelOptions) -> Result<Output> {
    let (graph, columns) = (graph_of(features)?, in_order(columns)?);
    columns.iter().try_for_each(|column| check_no_sequence(column))?;
    if options.units < 1 {
        return Err(Status::invalid_argument(format!("a linear model with {} units", options.units)));
    }
    let outside = made_outside(graph, &columns, options.trainable)?;
    VariableScope::with_default_name("linear_model").run(graph, |graph| {
        let mut made = Transformations::new(features);
        let mut sums = Vec::new();
        for (column, table) in columns.iter().zip(&outside) {
            let sum = in_scope(graph, column, |graph| match column {
                FeatureColumn::Categorical(column) => of_ids(&mut made, graph, column, options),
                _ => of_numbers(&mut made, graph, column, table.as_ref(), options),
            })?;
            sums.push(sum);
        }
        check_same_batch(&columns, &sums)?;
        let op = graph.op("AddN").name("weighted_sum_no_bias").inputs(&sums).attr("N", sums.len() as i64);
        let sum = op.try_build()?.output(0);
        let bias = weights(graph, "bias_weights", &[options.units], options)?;
        Ok(graph.op("BiasAdd").name("weighted_sum").input(&sum).input(&bias.read()).try_build()?.output(0))
    })
}

fn weights(graph: &Graph, name: &str, dims: &[i64], options: &LinearModelOptions) -> Result<Variable> {
    let request = get_variable(graph, name, dims).initializer(initializers::zeros());
    model_variable(request, options.trainable).try_get()
}

/// Adds the sums of the weights of ids.
fn of_ids(
    made: &mut Transformations<'_>,
    graph: &Graph,
    column: &CategoricalColumn,
    options: &LinearModelOptions,
) -> Result<Output> {
    let table = weights(graph, "weights", &[column.num_buckets()?, options.units], options)?;
    let ids = made.ids_as_matrix(column)?;
    graph.name_scope("weighted_sum", |_| safe_embedding_lookup_sparse(&table, &ids, options.sparse_combiner, None))
}

/// Adds the weighted sums of numbers.
fn of_numbers(
    made: &mut Transformations<'_>,
    graph: &Graph,
    column: &FeatureColumn,
    table: Option<&Variable>,
    options: &LinearModelOptions,
) -> Result<Output> {
    let width = column.num_elements()?;
    let numbers = flat_rows(&dense(made, graph, column, table, options.trainable)?, width)?;
    let weights = weights(graph, "weights", &[width, options.units], options)?;
    matmul(&numbers, &weights.read())
}
