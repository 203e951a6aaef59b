//! Dense columns of ids: rows of a trained table ([`embedding_column`], [`shared_embedding_columns`]), or a number for each id
//! ([`indicator_column`]).

use super::categorical::CategoricalColumn;
use super::combine::{Combiner, safe_embedding_lookup_sparse};
use super::numeric::ColumnId;
use super::transform::IdsAndWeights;
use crate::initializers::{Initializer, truncated_normal};
use crate::variable::{Variable, collections};
use crate::variable_scope::{VariableRequest, get_variable};
use graph::{Edge, Graph, Output};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tensor::{PartialShape, Result, Status, Tensor};

/// A column of rows of a trained table, one row for each id, as in `tf.feature_column.embedding_column`. Its variable is
/// `embedding_weights`, in a scope with the column's name.
///
/// ```
/// use ferroflow::feature_column::*;
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let job = categorical_column_with_vocabulary_list("job", ["cook", "smith"]);
/// let column = embedding_column(&job, 3);
/// let features = Features::new().with("job", g.constant(["smith"]));
/// assert_eq!(input_layer(&features, &[column.into()]).shape().to_string(), "[?,3]");
/// ```
#[derive(Clone)]
pub struct EmbeddingColumn {
    categorical: CategoricalColumn,
    table: Arc<Table>,
    combiner: Combiner,
    max_norm: Option<f64>,
}

/// The options of a table.
#[derive(Clone)]
struct Table {
    dimension: i64,
    initializer: Option<Initializer>,
    trainable: bool,
    checkpoint: Option<(String, String)>,
    shared: Option<Shared>,
}

/// The common parts of columns that share a table.
#[derive(Clone)]
struct Shared {
    id: ColumnId,
    name: String,
    /// Whether the variable itself has the shared name, or the scope that it is in.
    is_variable_name: bool,
}

/// The shared tables of a graph's columns.
#[derive(Default)]
struct SharedTables(Mutex<HashMap<String, Edge>>);

/// Returns a column of table rows, each of `dimension` numbers.
///
/// ```
/// use ferroflow::feature_column::*;
///
/// let words = categorical_column_with_hash_bucket("words", 1000);
/// assert_eq!(embedding_column(&words, 16).name(), "words_embedding");
/// ```
pub fn embedding_column(categorical: &CategoricalColumn, dimension: i64) -> EmbeddingColumn {
    let table = Table { dimension, initializer: None, trainable: true, checkpoint: None, shared: None };
    EmbeddingColumn {
        categorical: categorical.clone(),
        table: Arc::new(table),
        combiner: Combiner::default(),
        max_norm: None,
    }
}

impl EmbeddingColumn {
    /// Sets how several ids in a row are combined; by default their mean.
    ///
    /// ```
    /// use ferroflow::feature_column::*;
    ///
    /// let words = categorical_column_with_hash_bucket("words", 1000);
    /// let column = embedding_column(&words, 16).combiner(Combiner::Sum);
    /// ```
    pub fn combiner(self, combiner: Combiner) -> EmbeddingColumn {
        EmbeddingColumn { combiner, ..self }
    }

    /// Sets the maximum norm; longer rows are scaled down to it when they are used.
    ///
    /// ```
    /// use ferroflow::feature_column::*;
    ///
    /// let column = embedding_column(&categorical_column_with_hash_bucket("words", 1000), 16).max_norm(1.0);
    /// ```
    pub fn max_norm(self, max_norm: f64) -> EmbeddingColumn {
        EmbeddingColumn { max_norm: Some(max_norm), ..self }
    }

    /// Sets the initializer of the table; by default a normal distribution with a standard deviation of one over the square root
    /// of the dimension, truncated at two standard deviations.
    ///
    /// ```
    /// use ferroflow::feature_column::*;
    /// use ferroflow::initializers::zeros;
    ///
    /// let column = embedding_column(&categorical_column_with_identity("day", 7), 2).initializer(zeros());
    /// ```
    pub fn initializer(self, initializer: Initializer) -> EmbeddingColumn {
        self.with_table(|table| table.initializer = Some(initializer))
    }

    /// Sets whether optimizers change the table.
    ///
    /// ```
    /// use ferroflow::feature_column::*;
    ///
    /// let column = embedding_column(&categorical_column_with_identity("day", 7), 2).trainable(false);
    /// ```
    pub fn trainable(self, trainable: bool) -> EmbeddingColumn {
        self.with_table(|table| table.trainable = trainable)
    }

    /// Sets a checkpoint, and the name in it, from which the table is initialized.
    ///
    /// ```no_run
    /// use ferroflow::feature_column::*;
    ///
    /// let words = categorical_column_with_vocabulary_list("words", ["to", "be"]);
    /// let column = embedding_column(&words, 300).load_from("/models/words/model.ckpt-7", "embeddings");
    /// ```
    pub fn load_from(self, checkpoint: &str, tensor_name: &str) -> EmbeddingColumn {
        let place = (checkpoint.to_owned(), tensor_name.to_owned());
        self.with_table(|table| table.checkpoint = Some(place))
    }

    /// Returns the name: that of the categorical column and `_embedding`, or `_shared_embedding`.
    ///
    /// ```
    /// use ferroflow::feature_column::*;
    ///
    /// assert_eq!(embedding_column(&categorical_column_with_identity("day", 7), 2).name(), "day_embedding");
    /// ```
    pub fn name(&self) -> String {
        let kind = if self.table.shared.is_some() { "shared_embedding" } else { "embedding" };
        format!("{}_{kind}", self.categorical.name())
    }

    fn with_table(mut self, change: impl FnOnce(&mut Table)) -> EmbeddingColumn {
        change(Arc::make_mut(&mut self.table));
        self
    }

    pub(super) fn dimension(&self) -> i64 {
        self.table.dimension
    }

    pub(super) fn categorical(&self) -> &CategoricalColumn {
        &self.categorical
    }

    /// Returns the name of the scope of its variable.
    pub(super) fn scope_name(&self) -> String {
        match &self.table.shared {
            Some(shared) if !shared.is_variable_name => shared.name.clone(),
            _ => self.name(),
        }
    }

    /// Returns whether the table's name is independent of the scopes of columns and layers.
    pub(super) fn is_outside(&self) -> bool {
        self.table.shared.as_ref().is_some_and(|shared| shared.is_variable_name)
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.table.dimension < 1 {
            return Err(Status::invalid_argument(format!(
                "Invalid dimension {} of column {}.",
                self.table.dimension,
                self.name()
            )));
        }
        if let Some(norm) = self.max_norm.filter(|norm| norm.is_nan() || *norm <= 0.0) {
            return Err(Status::invalid_argument(format!("max_norm {norm} of column {} is not positive", self.name())));
        }
        self.categorical.check()
    }

    /// Creates the table, or finds it.
    pub(super) fn variable(&self, graph: &Graph, trainable: bool) -> Result<Variable> {
        let dims = [self.categorical.num_buckets()?, self.table.dimension];
        let Some(shared) = &self.table.shared else { return self.made(graph, "embedding_weights", &dims, trainable) };
        let tables = graph.extension::<SharedTables>();
        let key = match shared.is_variable_name {
            true => format!("{:?}", shared.id),
            false => shared.name.clone(),
        };
        let found = tables.0.lock().get(&key).copied();
        if let Some(edge) = found {
            let variable = Variable::from_handle(&graph.from_edge(edge))?;
            if *variable.shape() != PartialShape::from_dims(&dims) {
                return Err(Status::invalid_argument(format!(
                    "Shared embedding collection {} contains variable {} of unexpected shape {}. Expected shape is \
                     {dims:?}. Choose a unique name for this collection.",
                    shared.name,
                    variable.name(),
                    variable.shape()
                )));
            }
            return Ok(variable);
        }
        let name = if shared.is_variable_name { shared.name.as_str() } else { "embedding_weights" };
        let variable = self.made(graph, name, &dims, trainable)?;
        tables.0.lock().insert(key, variable.handle().edge());
        Ok(variable)
    }

    fn made(&self, graph: &Graph, name: &str, dims: &[i64], trainable: bool) -> Result<Variable> {
        let initializer = match (&self.table.checkpoint, &self.table.initializer) {
            (Some((checkpoint, name)), _) => from_checkpoint(checkpoint, name),
            (None, Some(initializer)) => initializer.clone(),
            (None, None) => truncated_normal(0.0, 1.0 / (self.table.dimension as f64).sqrt(), None),
        };
        let request = get_variable(graph, name, dims).initializer(initializer);
        model_variable(request, trainable && self.table.trainable).try_get()
    }

    /// Adds the lookup of the ids, combined.
    pub(super) fn looked_up(&self, table: &Variable, ids: &IdsAndWeights) -> Result<Output> {
        let name = format!("{}_weights", super::ids::scope_name(&self.name()));
        table.graph().name_scope(&name, |_| safe_embedding_lookup_sparse(table, ids, self.combiner, self.max_norm))
    }
}

/// Adds a model's variable to the collections for such variables.
pub(super) fn model_variable(request: VariableRequest<'_>, trainable: bool) -> VariableRequest<'_> {
    let all = [collections::GLOBAL_VARIABLES, MODEL_VARIABLES, collections::TRAINABLE_VARIABLES];
    request.trainable(trainable).collections(if trainable { &all } else { &all[..2] })
}

/// The collection of the variables that a model's results depend on.
const MODEL_VARIABLES: &str = "model_variables";

/// Initializes from a checkpoint.
fn from_checkpoint(checkpoint: &str, name: &str) -> Initializer {
    let (checkpoint, name) = (checkpoint.to_owned(), name.to_owned());
    Arc::new(move |graph, shape, dtype| {
        let vector = |text: &str| Tensor::try_from([text]);
        let op = graph.op("RestoreV2").input(&graph.constant(checkpoint.as_str()));
        let op = op.input(&graph.constant_tensor(&vector(&name)?)).input(&graph.constant_tensor(&vector("")?));
        let restored = op.attr("dtypes", &[dtype][..]).try_build()?.output(0);
        // The assignment refuses a value of another shape.
        restored.set_shape(&PartialShape::from(shape))?;
        Ok(restored)
    })
}

/// Returns columns that share a table, in the order of the categorical columns. As in `tf.compat.v1.feature_column`, the variable
/// is `embedding_weights` in a scope that is named after all columns.
///
/// ```
/// use ferroflow::feature_column::*;
/// use ferroflow::prelude::*;
/// use ferroflow::variable::global_variables;
///
/// let g = Graph::new();
/// let (bought, seen) = (categorical_column_with_identity("bought", 9), categorical_column_with_identity("seen", 9));
/// let columns = shared_embedding_columns(&[&bought, &seen], 2);
/// let columns: Vec<FeatureColumn> = columns.into_iter().map(FeatureColumn::from).collect();
/// let features = Features::new().with("bought", g.constant([1i64])).with("seen", g.constant([2i64]));
/// assert_eq!(input_layer(&features, &columns).shape().to_string(), "[?,4]");
/// assert_eq!(global_variables(&g)?[0].name(), "input_layer/bought_seen_shared_embedding/embedding_weights");
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn shared_embedding_columns(categorical: &[&CategoricalColumn], dimension: i64) -> Vec<EmbeddingColumn> {
    shared(categorical, dimension, None, false)
}

/// As [`shared_embedding_columns`], named as in `tf.feature_column.shared_embeddings`: the variable itself is named after all
/// columns, in the scope around the layer.
///
/// ```
/// use ferroflow::feature_column::*;
/// use ferroflow::prelude::*;
/// use ferroflow::variable::global_variables;
///
/// let g = Graph::new();
/// let (bought, seen) = (categorical_column_with_identity("bought", 9), categorical_column_with_identity("seen", 9));
/// let columns: Vec<FeatureColumn> = shared_embeddings(&[&bought, &seen], 2).into_iter().map(Into::into).collect();
/// let features = Features::new().with("bought", g.constant([1i64])).with("seen", g.constant([2i64]));
/// input_layer(&features, &columns);
/// assert_eq!(global_variables(&g)?[0].name(), "bought_seen_shared_embedding");
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn shared_embeddings(categorical: &[&CategoricalColumn], dimension: i64) -> Vec<EmbeddingColumn> {
    shared(categorical, dimension, None, true)
}

/// As [`shared_embedding_columns`], with a name and table options: the initializer, combiner and so on of the column `options`
/// apply to all.
///
/// ```
/// use ferroflow::feature_column::*;
///
/// let (bought, seen) = (categorical_column_with_identity("bought", 9), categorical_column_with_identity("seen", 9));
/// let options = embedding_column(&bought, 2).combiner(Combiner::Sum).trainable(false);
/// let columns = shared_embedding_columns_like(&[&bought, &seen], &options, "articles");
/// assert_eq!(columns[1].name(), "seen_shared_embedding");
/// ```
pub fn shared_embedding_columns_like(
    categorical: &[&CategoricalColumn],
    options: &EmbeddingColumn,
    name: &str,
) -> Vec<EmbeddingColumn> {
    let made = shared(categorical, options.dimension(), Some(name), false);
    let like = |column: EmbeddingColumn| {
        let shared = column.table.shared.clone();
        let table = Arc::new(Table { shared, ..(*options.table).clone() });
        EmbeddingColumn { categorical: column.categorical, table, ..options.clone() }
    };
    made.into_iter().map(like).collect()
}

fn shared(
    categorical: &[&CategoricalColumn],
    dimension: i64,
    name: Option<&str>,
    is_variable_name: bool,
) -> Vec<EmbeddingColumn> {
    let mut names: Vec<String> = categorical.iter().map(|column| column.name()).collect();
    names.sort();
    let name = name.map_or_else(|| format!("{}_shared_embedding", names.join("_")), str::to_owned);
    let shared = Shared { id: ColumnId::new(), name, is_variable_name };
    let column = |categorical: &&CategoricalColumn| {
        embedding_column(categorical, dimension).with_table(|table| table.shared = Some(shared.clone()))
    };
    categorical.iter().map(column).collect()
}

/// A column with a number for each id: its count in the row, or its weight, as in `tf.feature_column.indicator_column`.
///
/// ```
/// use ferroflow::feature_column::{IndicatorColumn, categorical_column_with_identity, indicator_column};
///
/// let day: IndicatorColumn = indicator_column(&categorical_column_with_identity("day", 7));
/// assert_eq!(day.name(), "day_indicator");
/// ```
#[derive(Clone)]
pub struct IndicatorColumn {
    pub(super) categorical: CategoricalColumn,
}

/// Returns a column with a number for each id.
///
/// ```
/// use ferroflow::feature_column::*;
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let job = indicator_column(&categorical_column_with_vocabulary_list("job", ["cook", "smith"]));
/// let features = Features::new().with("job", g.constant([["smith", "smith"], ["cook", ""]]));
/// let first_layer = input_layer(&features, &[job.into()]);
/// let session = Session::new(&g)?;
/// session.run_ops(&[&g.collection("table_initializer")[0].op])?;
/// assert_eq!(session.run(&[&first_layer])?[0].to_vec::<f32>()?, [0.0, 2.0, 1.0, 0.0]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn indicator_column(categorical: &CategoricalColumn) -> IndicatorColumn {
    IndicatorColumn { categorical: categorical.clone() }
}

impl IndicatorColumn {
    /// Returns the name: that of the categorical column and `_indicator`.
    ///
    /// ```
    /// use ferroflow::feature_column::*;
    ///
    /// assert_eq!(indicator_column(&categorical_column_with_identity("day", 7)).name(), "day_indicator");
    /// ```
    pub fn name(&self) -> String {
        format!("{}_indicator", self.categorical.name())
    }
}
