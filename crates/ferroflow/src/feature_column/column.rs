//! [`FeatureColumn`]: any kind of column, for functions that take several.

use super::categorical::{CategoricalColumn, Kind};
use super::embedding::{EmbeddingColumn, IndicatorColumn};
use super::numeric::NumericColumn;
use super::sequence_numeric::SequenceNumericColumn;
use std::collections::HashSet;
use tensor::{Result, Status};

/// A column of any kind.
///
/// ```
/// use ferroflow::feature_column::*;
///
/// let job = categorical_column_with_vocabulary_list("job", ["cook", "smith"]);
/// let columns: [FeatureColumn; 3] = [numeric_column("age").into(), embedding_column(&job, 3).into(), (&job).into()];
/// assert_eq!(columns.map(|column| column.name()), ["age", "job_embedding", "job"]);
/// ```
#[derive(Clone)]
pub enum FeatureColumn {
    /// Numbers, unchanged.
    Numeric(NumericColumn),
    /// Ids.
    Categorical(CategoricalColumn),
    /// Rows of an embedding table.
    Embedding(EmbeddingColumn),
    /// A number for every id: its count.
    Indicator(IndicatorColumn),
    /// Sequences of numbers.
    SequenceNumeric(SequenceNumericColumn),
}

macro_rules! from_columns {
    ($($variant:ident: $column:ty),*) => {$(
        impl From<$column> for FeatureColumn {
            fn from(column: $column) -> FeatureColumn {
                FeatureColumn::$variant(column)
            }
        }

        impl From<&$column> for FeatureColumn {
            fn from(column: &$column) -> FeatureColumn {
                FeatureColumn::$variant(column.clone())
            }
        }
    )*};
}

from_columns!(
    Numeric: NumericColumn,
    Categorical: CategoricalColumn,
    Embedding: EmbeddingColumn,
    Indicator: IndicatorColumn,
    SequenceNumeric: SequenceNumericColumn
);

impl FeatureColumn {
    /// Returns the name, which must be unique among the columns that are used together.
    ///
    /// ```
    /// use ferroflow::feature_column::{FeatureColumn, numeric_column};
    ///
    /// assert_eq!(FeatureColumn::from(numeric_column("age")).name(), "age");
    /// ```
    pub fn name(&self) -> String {
        match self {
            FeatureColumn::Numeric(column) => column.name(),
            FeatureColumn::Categorical(column) => column.name(),
            FeatureColumn::Embedding(column) => column.name(),
            FeatureColumn::Indicator(column) => column.name(),
            FeatureColumn::SequenceNumeric(column) => column.name(),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        match self {
            FeatureColumn::Numeric(column) => column.check(),
            FeatureColumn::Categorical(column) => column.check(),
            FeatureColumn::Embedding(column) => column.check(),
            FeatureColumn::Indicator(column) => column.categorical.check(),
            FeatureColumn::SequenceNumeric(column) => column.check(),
        }
    }

    /// Returns the number of values that a dense column has for each row.
    pub(super) fn num_elements(&self) -> Result<i64> {
        match self {
            FeatureColumn::Numeric(column) => Ok(column.num_elements()),
            FeatureColumn::Categorical(column) => column.num_buckets(),
            FeatureColumn::Embedding(column) => Ok(column.dimension()),
            FeatureColumn::Indicator(column) => column.categorical.num_buckets(),
            FeatureColumn::SequenceNumeric(column) => Ok(column.num_elements()),
        }
    }

    /// Returns whether an input layer accepts the column.
    pub(super) fn is_dense(&self) -> bool {
        match self {
            FeatureColumn::Categorical(column) => matches!(*column.kind, Kind::Bucketized { .. }),
            FeatureColumn::SequenceNumeric(_) => false,
            FeatureColumn::Numeric(_) | FeatureColumn::Embedding(_) | FeatureColumn::Indicator(_) => true,
        }
    }

    /// Returns the categorical column that this one is made of, if any.
    pub(super) fn categorical(&self) -> Option<&CategoricalColumn> {
        match self {
            FeatureColumn::Categorical(column) => Some(column),
            FeatureColumn::Embedding(column) => Some(column.categorical()),
            FeatureColumn::Indicator(column) => Some(&column.categorical),
            FeatureColumn::Numeric(_) | FeatureColumn::SequenceNumeric(_) => None,
        }
    }
}

/// Returns the columns sorted by name. Fails if there are none, if one is invalid, or if two have the same name.
pub(super) fn in_order(columns: &[FeatureColumn]) -> Result<Vec<&FeatureColumn>> {
    if columns.is_empty() {
        return Err(Status::invalid_argument("feature_columns must not be empty."));
    }
    let mut names = HashSet::new();
    for column in columns {
        column.check()?;
        let name = column.name();
        if !names.insert(name.clone()) {
            return Err(Status::invalid_argument(format!(
                "Duplicate feature column name found for columns: {name}. This usually means that these columns refer to \
                 same base feature. Either one must be discarded or a duplicated but renamed item must be inserted in \
                 features dict."
            )));
        }
    }
    let mut ordered: Vec<&FeatureColumn> = columns.iter().collect();
    ordered.sort_by_key(|column| column.name());
    Ok(ordered)
}

/// Fails if a column is a sequence column.
pub(super) fn check_no_sequence(column: &FeatureColumn) -> Result<()> {
    let is_sequence = matches!(column, FeatureColumn::SequenceNumeric(_))
        || column.categorical().is_some_and(|column| column.is_sequence);
    match is_sequence {
        false => Ok(()),
        true => Err(Status::invalid_argument(format!(
            "column {} is a sequence column: use it in sequence_input_layer, or use another column here",
            column.name()
        ))),
    }
}
