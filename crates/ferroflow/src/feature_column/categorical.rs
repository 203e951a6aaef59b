//! Categorical columns: by identity, vocabulary, hash, buckets, or a cross of others.

use super::numeric::{ColumnId, NumericColumn};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use storage::file_system::{FileSystem, FileSystems};
use tensor::{DType, IntoTensor, Result, Status, Tensor};

/// A categorical column: any number of ids in each row. The function that created the column determines what the ids stand for.
///
/// A linear model takes the column itself. A network takes an [`embedding_column`](super::embedding_column) or
/// [`indicator_column`](super::indicator_column) of it.
///
/// ```
/// use ferroflow::feature_column::{CategoricalColumn, categorical_column_with_identity};
///
/// let month: CategoricalColumn = categorical_column_with_identity("month", 12);
/// assert_eq!(month.name(), "month");
/// assert_eq!(month.num_buckets()?, 12);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone)]
pub struct CategoricalColumn {
    pub(super) id: ColumnId,
    pub(super) kind: Arc<Kind>,
    /// Whether rows are sequences of ids.
    pub(super) is_sequence: bool,
}

pub(super) enum Kind {
    Identity { key: String, num_buckets: i64, default: Option<i64> },
    Vocabulary { key: String, words: Words, options: VocabularyOptions },
    Hashed { key: String, num_buckets: i64, dtype: DType },
    Bucketized { source: NumericColumn, boundaries: Vec<f32> },
    Crossed { keys: Vec<CrossKey>, num_buckets: i64, hash_key: Option<i64> },
    Weighted { column: CategoricalColumn, weights: String, dtype: DType },
}

/// The words of a vocabulary.
pub(super) enum Words {
    List(Result<Tensor>),
    File {
        path: String,
        /// The number of lines of the file, once they were counted.
        counted: OnceLock<Result<i64>>,
    },
}

/// How values outside of a vocabulary are handled, and options of a vocabulary file.
///
/// ```
/// use ferroflow::feature_column::{VocabularyOptions, categorical_column_with_vocabulary_list_and};
///
/// let options = VocabularyOptions { num_oov_buckets: 2, ..VocabularyOptions::default() };
/// let job = categorical_column_with_vocabulary_list_and("job", ["cook", "smith"], options);
/// assert_eq!(job.num_buckets()?, 4);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug)]
pub struct VocabularyOptions {
    /// The id of other values; -1 ignores them.
    pub default_value: i64,
    /// The number of further ids into which other values are hashed instead.
    pub num_oov_buckets: i64,
    /// The number of lines of a file to use; `None` means all of them.
    pub vocabulary_size: Option<i64>,
    /// The type of the values: `string`, or `int64` for integers. For a list it is the type of its elements.
    pub dtype: DType,
}

impl Default for VocabularyOptions {
    fn default() -> VocabularyOptions {
        VocabularyOptions { default_value: -1, num_oov_buckets: 0, vocabulary_size: None, dtype: DType::String }
    }
}

/// An input of a cross: the name of a string feature, or a column.
///
/// ```
/// use ferroflow::feature_column::{CrossKey, categorical_column_with_identity, crossed_column};
///
/// let month = categorical_column_with_identity("month", 12);
/// let cross = crossed_column([CrossKey::from("city"), CrossKey::from(&month)], 1000);
/// assert_eq!(cross.name(), "city_X_month");
/// ```
#[derive(Clone)]
pub enum CrossKey {
    /// A feature.
    Feature(String),
    /// A column.
    Column(CategoricalColumn),
}

impl From<&str> for CrossKey {
    fn from(key: &str) -> CrossKey {
        CrossKey::Feature(key.to_owned())
    }
}

impl From<&CategoricalColumn> for CrossKey {
    fn from(column: &CategoricalColumn) -> CrossKey {
        CrossKey::Column(column.clone())
    }
}

impl From<CategoricalColumn> for CrossKey {
    fn from(column: CategoricalColumn) -> CrossKey {
        CrossKey::Column(column)
    }
}

/// Returns a column whose feature holds the ids themselves: integers from 0 up to, but excluding, `num_buckets`.
///
/// ```
/// use ferroflow::feature_column::*;
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let month = categorical_column_with_identity("month", 3);
/// let features = Features::new().with("month", g.constant([2i64, 0]));
/// let indicators = input_layer(&features, &[indicator_column(&month).into()]);
/// assert_eq!(Session::new(&g)?.run(&[&indicators])?[0].to_vec::<f32>()?, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn categorical_column_with_identity(key: &str, num_buckets: i64) -> CategoricalColumn {
    CategoricalColumn::new(Kind::Identity { key: key.to_owned(), num_buckets, default: None })
}

/// As [`categorical_column_with_identity`], with `default_value` in place of values outside of the range.
///
/// ```
/// let month = ferroflow::feature_column::categorical_column_with_identity_or("month", 12, 0);
/// ```
pub fn categorical_column_with_identity_or(key: &str, num_buckets: i64, default_value: i64) -> CategoricalColumn {
    CategoricalColumn::new(Kind::Identity { key: key.to_owned(), num_buckets, default: Some(default_value) })
}

/// Returns a column whose ids are the positions of its values in a list of strings or integers. Other values are ignored.
///
/// ```
/// use ferroflow::feature_column::categorical_column_with_vocabulary_list;
///
/// let job = categorical_column_with_vocabulary_list("job", ["cook", "smith"]);
/// assert_eq!(job.num_buckets()?, 2);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn categorical_column_with_vocabulary_list(key: &str, vocabulary: impl IntoTensor) -> CategoricalColumn {
    categorical_column_with_vocabulary_list_and(key, vocabulary, VocabularyOptions::default())
}

/// As [`categorical_column_with_vocabulary_list`], with options for other values.
///
/// ```
/// use ferroflow::feature_column::{VocabularyOptions, categorical_column_with_vocabulary_list_and};
///
/// let options = VocabularyOptions { default_value: 0, ..VocabularyOptions::default() };
/// let year = categorical_column_with_vocabulary_list_and("year", [1990i64, 2000], options);
/// ```
pub fn categorical_column_with_vocabulary_list_and(
    key: &str,
    vocabulary: impl IntoTensor,
    options: VocabularyOptions,
) -> CategoricalColumn {
    let words = Words::List(vocabulary.into_tensor());
    CategoricalColumn::new(Kind::Vocabulary { key: key.to_owned(), words, options })
}

/// Returns a column whose ids are the line numbers of its values in a file.
///
/// ```
/// use ferroflow::feature_column::{VocabularyOptions, categorical_column_with_vocabulary_file};
/// # let directory = tempfile::tempdir().unwrap();
///
/// let path = directory.path().join("jobs.txt");
/// std::fs::write(&path, "cook\nsmith\n").unwrap();
/// let job = categorical_column_with_vocabulary_file("job", path.to_str().unwrap(), VocabularyOptions::default());
/// assert_eq!(job.num_buckets()?, 2);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn categorical_column_with_vocabulary_file(key: &str, path: &str, options: VocabularyOptions) -> CategoricalColumn {
    let words = Words::File { path: path.to_owned(), counted: OnceLock::new() };
    CategoricalColumn::new(Kind::Vocabulary { key: key.to_owned(), words, options })
}

/// Returns a column whose ids are hashes of its values, which are strings.
///
/// ```
/// let city = ferroflow::feature_column::categorical_column_with_hash_bucket("city", 1000);
/// ```
pub fn categorical_column_with_hash_bucket(key: &str, hash_bucket_size: i64) -> CategoricalColumn {
    categorical_column_with_hash_bucket_of(key, hash_bucket_size, DType::String)
}

/// As [`categorical_column_with_hash_bucket`], for strings or integers, which are hashed as strings.
///
/// ```
/// use ferroflow::DType;
/// use ferroflow::feature_column::categorical_column_with_hash_bucket_of;
///
/// let user = categorical_column_with_hash_bucket_of("user", 1000, DType::Int64);
/// ```
pub fn categorical_column_with_hash_bucket_of(key: &str, hash_bucket_size: i64, dtype: DType) -> CategoricalColumn {
    CategoricalColumn::new(Kind::Hashed { key: key.to_owned(), num_buckets: hash_bucket_size, dtype })
}

/// Returns a column whose ids are the buckets that another column's numbers fall into, as given by the boundaries. The column is
/// also dense: [`input_layer`] turns it into one-hot vectors.
///
/// ```
/// use ferroflow::feature_column::*;
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let decades = bucketized_column(&numeric_column("age"), &[20.0, 30.0]);
/// let features = Features::new().with("age", g.constant([30f32, 5.0]));
/// let buckets = input_layer(&features, &[decades.into()]);
/// assert_eq!(Session::new(&g)?.run(&[&buckets])?[0].to_vec::<f32>()?, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
///
/// [`input_layer`]: super::input_layer
pub fn bucketized_column(source: &NumericColumn, boundaries: &[f32]) -> CategoricalColumn {
    CategoricalColumn::new(Kind::Bucketized { source: source.clone(), boundaries: boundaries.to_vec() })
}

/// Returns a column whose ids are hashes of the combinations of other columns and features, in `hash_bucket_size` buckets.
///
/// A hash column can't be crossed: use the name of its feature instead.
///
/// ```
/// use ferroflow::feature_column::crossed_column;
///
/// let place = crossed_column(["country", "city"], 1000);
/// assert_eq!(place.name(), "city_X_country");
/// ```
pub fn crossed_column<K: Into<CrossKey>>(
    keys: impl IntoIterator<Item = K>,
    hash_bucket_size: i64,
) -> CategoricalColumn {
    let keys = keys.into_iter().map(Into::into).collect();
    CategoricalColumn::new(Kind::Crossed { keys, num_buckets: hash_bucket_size, hash_key: None })
}

/// As [`crossed_column`], with a hash key.
///
/// ```
/// let place = ferroflow::feature_column::crossed_column_with_key(["country", "city"], 1000, 7);
/// ```
pub fn crossed_column_with_key<K: Into<CrossKey>>(
    keys: impl IntoIterator<Item = K>,
    hash_bucket_size: i64,
    hash_key: i64,
) -> CategoricalColumn {
    let keys = keys.into_iter().map(Into::into).collect();
    CategoricalColumn::new(Kind::Crossed { keys, num_buckets: hash_bucket_size, hash_key: Some(hash_key) })
}

/// Returns a column whose ids are weighted by another feature, which has a `float` for each value.
///
/// ```
/// use ferroflow::feature_column::{categorical_column_with_hash_bucket, weighted_categorical_column};
///
/// let terms = weighted_categorical_column(&categorical_column_with_hash_bucket("terms", 1000), "frequencies");
/// assert_eq!(terms.name(), "terms_weighted_by_frequencies");
/// ```
pub fn weighted_categorical_column(column: &CategoricalColumn, weight_feature_key: &str) -> CategoricalColumn {
    weighted_categorical_column_of(column, weight_feature_key, DType::Float)
}

/// As [`weighted_categorical_column`], with weights of another type.
///
/// ```
/// use ferroflow::DType;
/// use ferroflow::feature_column::{categorical_column_with_hash_bucket, weighted_categorical_column_of};
///
/// let terms = categorical_column_with_hash_bucket("terms", 1000);
/// let counted = weighted_categorical_column_of(&terms, "counts", DType::Int64);
/// ```
pub fn weighted_categorical_column_of(
    column: &CategoricalColumn,
    weight_feature_key: &str,
    dtype: DType,
) -> CategoricalColumn {
    let (column, weights) = (column.clone(), weight_feature_key.to_owned());
    CategoricalColumn::new(Kind::Weighted { column, weights, dtype })
}

impl CategoricalColumn {
    fn new(kind: Kind) -> CategoricalColumn {
        CategoricalColumn { id: ColumnId::new(), kind: Arc::new(kind), is_sequence: false }
    }

    /// Returns the name: that of the feature, or one composed of several features' names.
    ///
    /// ```
    /// use ferroflow::feature_column::{bucketized_column, numeric_column};
    ///
    /// assert_eq!(bucketized_column(&numeric_column("age"), &[20.0]).name(), "age_bucketized");
    /// ```
    pub fn name(&self) -> String {
        match &*self.kind {
            Kind::Identity { key, .. } | Kind::Vocabulary { key, .. } | Kind::Hashed { key, .. } => key.clone(),
            Kind::Bucketized { source, .. } => format!("{}_bucketized", source.name()),
            Kind::Crossed { keys, .. } => {
                let mut names: Vec<String> = leaves(keys).iter().map(|key| key.name()).collect();
                names.sort();
                names.join("_X_")
            }
            Kind::Weighted { column, weights, .. } => format!("{}_weighted_by_{weights}", column.name()),
        }
    }

    /// Returns the number of ids. For a vocabulary file without a size, this counts the lines of the file.
    ///
    /// ```
    /// use ferroflow::feature_column::{bucketized_column, numeric_column};
    ///
    /// // Below, between and above, for each of two numbers.
    /// assert_eq!(bucketized_column(&numeric_column("x").shape(&[2]), &[1.0, 2.0]).num_buckets()?, 6);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn num_buckets(&self) -> Result<i64> {
        match &*self.kind {
            Kind::Identity { num_buckets, .. }
            | Kind::Hashed { num_buckets, .. }
            | Kind::Crossed { num_buckets, .. } => Ok(*num_buckets),
            Kind::Vocabulary { key, words, options } => {
                let size = words.count(key, options)?.checked_add(options.num_oov_buckets);
                size.ok_or_else(|| Status::invalid_argument(format!("Invalid num_oov_buckets in {key}.")))
            }
            Kind::Bucketized { source, boundaries } => {
                Ok((boundaries.len() as i64 + 1).saturating_mul(source.dims.first().copied().unwrap_or(1)))
            }
            Kind::Weighted { column, .. } => column.num_buckets(),
        }
    }

    /// Fails unless the column's options are valid.
    pub(super) fn check(&self) -> Result<()> {
        let invalid = |what: String| Err(Status::invalid_argument(what));
        let name = self.name();
        match &*self.kind {
            Kind::Identity { num_buckets, .. } if *num_buckets < 1 => {
                invalid(format!("num_buckets {num_buckets} < 1, column_name {name}"))
            }
            Kind::Identity { num_buckets, default: Some(default), .. } if !(0..*num_buckets).contains(default) => {
                invalid(format!("default_value {default} not in range [0, {num_buckets}), column_name {name}"))
            }
            Kind::Identity { .. } => Ok(()),
            Kind::Vocabulary { words, options, .. } => check_vocabulary(&name, words, options),
            Kind::Hashed { num_buckets, .. } if *num_buckets < 1 => {
                invalid(format!("hash_bucket_size must be at least 1. hash_bucket_size: {num_buckets}, key: {name}"))
            }
            Kind::Hashed { dtype, .. } => check_string_or_int(*dtype, &name),
            Kind::Bucketized { source, boundaries } => {
                source.check()?;
                if source.dims.len() > 1 {
                    return invalid(format!("source_column must be one-dimensional column. Given: {}", source.name()));
                }
                if boundaries.is_empty() {
                    return invalid(format!("boundaries must not be empty. Given: {name}"));
                }
                match boundaries.windows(2).all(|pair| pair[0] < pair[1]) {
                    true => Ok(()),
                    false => invalid(format!("boundaries must be a sorted list. Given: {boundaries:?} of {name}")),
                }
            }
            Kind::Crossed { num_buckets, .. } if *num_buckets < 1 => {
                invalid(format!("hash_bucket_size must be > 1. hash_bucket_size: {num_buckets}, column {name}"))
            }
            Kind::Crossed { keys, .. } if keys.len() < 2 => {
                invalid(format!("keys must be a list with length > 1. Given: {name}"))
            }
            Kind::Crossed { keys, .. } => keys.iter().try_for_each(CrossKey::check),
            Kind::Weighted { column, dtype, .. } => match dtype.is_floating() || dtype.is_integer() {
                true => column.check(),
                false => invalid(format!("dtype {dtype} is not convertible to float: the weights of {name}")),
            },
        }
    }
}

impl CrossKey {
    fn name(&self) -> String {
        match self {
            CrossKey::Feature(key) => key.clone(),
            CrossKey::Column(column) => column.name(),
        }
    }

    fn check(&self) -> Result<()> {
        let CrossKey::Column(column) = self else { return Ok(()) };
        match &*column.kind {
            Kind::Hashed { key, .. } => Err(Status::invalid_argument(format!(
                "categorical_column_with_hash_bucket is not supported for crossing. Hashing before crossing will increase \
                 probability of collision. Instead, use the feature name as a string. Given: {key}"
            ))),
            Kind::Weighted { .. } => Err(Status::invalid_argument(format!(
                "crossed_column does not support weight_tensor, but the given column populates weight_tensor. Given \
                 column: {}",
                column.name()
            ))),
            _ => column.check(),
        }
    }
}

/// Returns the leaves of a cross: a cross of crosses is one of all their inputs.
pub(super) fn leaves(keys: &[CrossKey]) -> Vec<&CrossKey> {
    let mut found = Vec::new();
    for key in keys {
        match key {
            CrossKey::Column(CategoricalColumn { kind, .. }) if matches!(**kind, Kind::Crossed { .. }) => {
                if let Kind::Crossed { keys, .. } = &**kind {
                    found.extend(leaves(keys));
                }
            }
            _ => found.push(key),
        }
    }
    found
}

impl Words {
    /// Returns the number of words.
    pub(super) fn count(&self, key: &str, options: &VocabularyOptions) -> Result<i64> {
        match self {
            Words::List(words) => Ok(words.clone()?.num_elements() as i64),
            Words::File { path, counted } => match options.vocabulary_size {
                Some(size) => Ok(size),
                None => counted.get_or_init(|| lines(key, path)).clone(),
            },
        }
    }
}

fn check_vocabulary(name: &str, words: &Words, options: &VocabularyOptions) -> Result<()> {
    let invalid = |what: String| Err(Status::invalid_argument(what));
    if options.num_oov_buckets < 0 {
        return invalid(format!("Invalid num_oov_buckets {} in {name}.", options.num_oov_buckets));
    }
    if options.num_oov_buckets > 0 && options.default_value != -1 {
        return invalid(format!("Can't specify both num_oov_buckets and default_value in {name}."));
    }
    match words {
        Words::List(words) => {
            let words = words.as_ref().map_err(Clone::clone)?;
            if words.shape().rank() != 1 || words.num_elements() == 0 {
                return invalid(format!("vocabulary_list must be a vector and not be empty, column_name: {name}"));
            }
            check_string_or_int(words.dtype(), name)?;
            let count = match words.dtype() {
                DType::String => words.strings()?.iter().collect::<BTreeSet<_>>().len(),
                DType::Int32 => words.as_slice::<i32>()?.iter().collect::<BTreeSet<_>>().len(),
                DType::Int64 => words.as_slice::<i64>()?.iter().collect::<BTreeSet<_>>().len(),
                other => return invalid(format!("a vocabulary of type {other}, column_name: {name}")),
            };
            match count == words.num_elements() {
                true => Ok(()),
                false => invalid(format!("Duplicate keys in vocabulary_list, column_name: {name}")),
            }
        }
        Words::File { path, .. } if path.is_empty() => invalid(format!("Missing vocabulary_file in {name}.")),
        Words::File { path, .. } => {
            check_string_or_int(options.dtype, name)?;
            match words.count(name, options)? {
                size if size < 1 => invalid(format!("Invalid vocabulary_size in {name}: {size} words of {path}")),
                _ => Ok(()),
            }
        }
    }
}

fn check_string_or_int(dtype: DType, name: &str) -> Result<()> {
    match dtype == DType::String || dtype.is_integer() {
        true => Ok(()),
        false => Err(Status::invalid_argument(format!(
            "column_name: {name} dtype must be string or integer. dtype: {dtype}."
        ))),
    }
}

/// Counts the lines of a file.
fn lines(key: &str, path: &str) -> Result<i64> {
    let bytes = FileSystems::all().read(path).map_err(|status| {
        let what = format!("vocabulary_file {path} in {key} can't be read: {}", status.message());
        Status::new(status.code(), what)
    })?;
    let whole = bytes.iter().filter(|&&byte| byte == b'\n').count() as i64;
    // A last line without a line end counts, too.
    Ok(whole + i64::from(bytes.last().is_some_and(|&byte| byte != b'\n')))
}
