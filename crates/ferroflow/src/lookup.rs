//! Tables that are filled once, from a vocabulary: words to ids and back, with the same nodes as TensorFlow's tables.
//!
//! A table is filled by its initializer. [`Supervisor`](crate::train::Supervisor),
//! [`MonitoredSession`](crate::train::MonitoredSession) and a loaded [`SavedModel`](crate::saved_model) run it automatically;
//! with a plain session, the program must run it.

use crate::compose::cast;
use crate::variable::{collections, named_constant};
use graph::{Graph, Operation, Output};
use tensor::{DType, IntoTensor, PartialShape, Result, Status, Tensor};

/// The line number in a vocabulary file, as a key or a value.
const LINE_NUMBER: i64 = -1;

/// The text of a line in a vocabulary file, as a key or a value.
const WHOLE_LINE: i64 = -2;

/// A table that is filled once.
///
/// ```
/// use ferroflow::lookup::LookupTable;
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let table = LookupTable::index_from_list(&g, ["cat", "dog"], 0);
/// let ids = table.lookup(&g.constant(["dog", "cow", "cat"]));
/// let session = Session::new(&g)?;
/// session.run_ops(&[table.initializer()])?;
/// assert_eq!(session.run(&[&ids])?[0].to_vec::<i64>()?, [1, -1, 0]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone)]
pub struct LookupTable {
    handle: Output,
    default_value: Output,
    initializer: Operation,
    num_oov_buckets: i64,
}

impl LookupTable {
    /// Adds a table from the lines of a file to their line numbers. Words that aren't in the file map to -1, or with
    /// `num_oov_buckets` to one of that many further ids, by their hash.
    ///
    /// The file is an asset: it is copied when the graph is exported as a [`SavedModel`](crate::saved_model).
    ///
    /// ```
    /// use ferroflow::lookup::LookupTable;
    /// use ferroflow::prelude::*;
    /// # let directory = tempfile::tempdir().unwrap();
    ///
    /// let path = directory.path().join("animals.txt");
    /// std::fs::write(&path, "cat\ndog\n").unwrap();
    /// let g = Graph::new();
    /// let table = LookupTable::index_from_file(&g, path.to_str().unwrap(), 1);
    /// let ids = table.lookup(&g.constant(["dog", "cow"]));
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[table.initializer()])?;
    /// assert_eq!(session.run(&[&ids])?[0].to_vec::<i64>()?, [1, 2]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn index_from_file(graph: &Graph, path: &str, num_oov_buckets: usize) -> LookupTable {
        graph.name_scope("string_to_index", |graph| {
            let types = [DType::String, DType::Int64];
            let made = graph.name_scope("hash_table", |graph| {
                LookupTable::from_file(graph, path, types, [WHOLE_LINE, LINE_NUMBER], &Tensor::scalar(-1i64))
            });
            made.with_buckets(num_oov_buckets)
        })
    }

    /// Adds a table from the elements of a list, strings or integers, to their positions. Words that aren't in the list map to
    /// -1, or with `num_oov_buckets` to one of that many further ids, by their hash.
    ///
    /// ```
    /// use ferroflow::lookup::LookupTable;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let table = LookupTable::index_from_list(&g, [1990i64, 2000, 2010], 0);
    /// let ids = table.lookup(&g.constant([2010i64, 1990]));
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[table.initializer()])?;
    /// assert_eq!(session.run(&[&ids])?[0].to_vec::<i64>()?, [2, 0]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn index_from_list(graph: &Graph, vocabulary: impl IntoTensor, num_oov_buckets: usize) -> LookupTable {
        let keys = graph.constant(vocabulary);
        graph.name_scope("string_to_index", |graph| {
            let values = graph.constant(Tensor::vector(&positions(&keys)));
            let made =
                graph.name_scope("hash_table", |graph| from_tensors(graph, &keys, &values, &Tensor::scalar(-1i64)));
            made.with_buckets(num_oov_buckets)
        })
    }

    /// Adds a table from line numbers of a file to the lines; other ids map to `default_value`.
    ///
    /// ```
    /// use ferroflow::lookup::LookupTable;
    /// use ferroflow::prelude::*;
    /// # let directory = tempfile::tempdir().unwrap();
    ///
    /// let path = directory.path().join("animals.txt");
    /// std::fs::write(&path, "cat\ndog\n").unwrap();
    /// let g = Graph::new();
    /// let table = LookupTable::strings_from_file(&g, path.to_str().unwrap(), "UNK");
    /// let names = table.lookup(&g.constant([1i64, 7]));
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[table.initializer()])?;
    /// assert_eq!(session.run(&[&names])?[0].to_strings()?, ["dog", "UNK"]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn strings_from_file(graph: &Graph, path: &str, default_value: &str) -> LookupTable {
        graph.name_scope("index_to_string", |graph| {
            let (types, columns) = ([DType::Int64, DType::String], [LINE_NUMBER, WHOLE_LINE]);
            LookupTable::from_file(graph, path, types, columns, &Tensor::string(default_value.to_owned()))
        })
    }

    /// Adds a table from positions in a list to its elements; other ids map to `default_value`.
    ///
    /// ```
    /// use ferroflow::lookup::LookupTable;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let table = LookupTable::strings_from_list(&g, ["cat", "dog"], "UNK");
    /// let names = table.lookup(&g.constant([0i64, 2]));
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[table.initializer()])?;
    /// assert_eq!(session.run(&[&names])?[0].to_strings()?, ["cat", "UNK"]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn strings_from_list(graph: &Graph, vocabulary: impl IntoTensor, default_value: &str) -> LookupTable {
        let values = graph.constant(vocabulary);
        graph.name_scope("index_to_string", |graph| {
            let keys = graph.constant(Tensor::vector(&positions(&values)));
            from_tensors(graph, &keys, &values, &Tensor::string(default_value.to_owned()))
        })
    }

    /// Adds a lookup of keys.
    ///
    /// ```
    /// use ferroflow::lookup::LookupTable;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let table = LookupTable::index_from_list(&g, ["a", "b"], 0);
    /// let ids = table.lookup(&g.constant([["b"], ["a"]]));
    /// assert_eq!((ids.dtype(), ids.shape()), (DType::Int64, [2, 1].into()));
    /// ```
    #[track_caller]
    pub fn lookup(&self, keys: &Output) -> Output {
        let graph = self.handle.graph();
        let find = |graph: &Graph| {
            let found = ops::lookup::lookup_table_find(&self.handle, keys, &self.default_value);
            // Keys and values have the same shape, which the op can't infer since values could be vectors.
            graph.kept(found.set_shape(&keys.shape()), || ());
            found
        };
        if self.num_oov_buckets == 0 {
            return graph.called_here(find);
        }
        graph.name_scope("hash_table_Lookup", |graph| {
            let text =
                if keys.dtype() == DType::String { keys.clone() } else { graph.op("AsString").input(keys).output() };
            let bucket = graph.op("StringToHashBucketFast").name("hash_bucket").input(&text);
            let bucket = bucket.attr("num_buckets", self.num_oov_buckets).output();
            let ids = find(graph);
            let bucket = &bucket + &ops::lookup::lookup_table_size(&self.handle);
            let is_known = graph.op("NotEqual").input(&ids).input(&self.default_value).output();
            graph.op("SelectV2").input(&is_known).input(&ids).input(&bucket).output()
        })
    }

    /// Adds the number of keys in the table.
    ///
    /// ```
    /// use ferroflow::lookup::LookupTable;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let table = LookupTable::index_from_list(&g, ["a", "b"], 0);
    /// let size = table.size();
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[table.initializer()])?;
    /// assert_eq!(session.eval::<i64>(&size)?, 2);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn size(&self) -> Output {
        ops::lookup::lookup_table_size(&self.handle)
    }

    /// Returns the operation that fills the table. It is in the collection `table_initializer`.
    ///
    /// ```
    /// use ferroflow::lookup::LookupTable;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let table = LookupTable::index_from_list(&g, ["a", "b"], 0);
    /// assert_eq!(g.collection("table_initializer")[0].op.name(), table.initializer().name());
    /// ```
    pub fn initializer(&self) -> &Operation {
        &self.initializer
    }

    fn from_file(
        graph: &Graph,
        path: &str,
        types: [DType; 2],
        columns: [i64; 2],
        default_value: &Tensor,
    ) -> LookupTable {
        let name = named_constant(graph, "asset_path", &Tensor::string(path.to_owned()));
        graph.add_to_collection(collections::ASSET_FILEPATHS, &name);
        let default_value = graph.constant_tensor(default_value);
        // A process has only one table for each file.
        let shared_name = format!("hash_table_{path}_{}_{}", columns[0], columns[1]);
        let handle = ops::lookup::hash_table(graph, types[0], types[1], &shared_name);
        let initializer = graph.name_scope("table_init", |_| {
            ops::lookup::initialize_table_from_text_file(&handle, &name, columns[0], columns[1])
        });
        LookupTable::made(handle, default_value, initializer)
    }

    /// Adds a table from words to their positions. Other words map to `default_value`, or are hashed into further ids.
    pub(crate) fn index_from_words(
        graph: &Graph,
        words: Tensor,
        num_oov_buckets: i64,
        default_value: i64,
    ) -> Result<LookupTable> {
        graph.name_scope("hash_table", |graph| {
            let keys = graph.constant_tensor(&words);
            // Integers are looked up as int64.
            let keys = match words.dtype() {
                DType::Int32 => cast(&keys, DType::Int64)?,
                _ => keys,
            };
            let values = graph.constant(Tensor::vector(&positions(&keys)));
            let table = from_tensors(graph, &keys, &values, &Tensor::scalar(default_value));
            Ok(LookupTable { num_oov_buckets, ..table })
        })
    }

    /// As [`index_from_words`](Self::index_from_words), from the first `vocabulary_size` lines of a file, which must have
    /// that many.
    pub(crate) fn index_from_lines(
        graph: &Graph,
        path: &str,
        vocabulary_size: i64,
        key_dtype: DType,
        num_oov_buckets: i64,
        default_value: i64,
    ) -> Result<LookupTable> {
        graph.name_scope("hash_table", |graph| {
            let name = named_constant(graph, "asset_path", &Tensor::string(path.to_owned()));
            graph.add_to_collection(collections::ASSET_FILEPATHS, &name);
            let default_value = graph.constant(default_value);
            let shared_name = format!("hash_table_{path}_{vocabulary_size}_{WHOLE_LINE}_{LINE_NUMBER}");
            let handle = ops::lookup::hash_table(graph, key_dtype, DType::Int64, &shared_name);
            let initializer = graph.name_scope("table_init", |graph| {
                let op = graph.op("InitializeTableFromTextFileV2").input(&handle).input(&name);
                let op = op.attr("key_index", WHOLE_LINE).attr("value_index", LINE_NUMBER);
                op.attr("vocab_size", vocabulary_size).try_build()
            })?;
            Ok(LookupTable { num_oov_buckets, ..LookupTable::made(handle, default_value, initializer) })
        })
    }

    fn made(handle: Output, default_value: Output, initializer: Operation) -> LookupTable {
        handle.graph().add_operation_to_collection(collections::TABLE_INITIALIZERS, &initializer);
        LookupTable { handle, default_value, initializer, num_oov_buckets: 0 }
    }

    #[track_caller]
    fn with_buckets(mut self, num_oov_buckets: usize) -> LookupTable {
        let count = i64::try_from(num_oov_buckets);
        let too_many = |_| Status::invalid_argument(format!("{num_oov_buckets} buckets are too many"));
        self.num_oov_buckets = self.handle.graph().kept(count.map_err(too_many), || 0);
        self
    }
}

fn from_tensors(graph: &Graph, keys: &Output, values: &Output, default_value: &Tensor) -> LookupTable {
    let default_value = graph.constant_tensor(default_value);
    // Without a shared name, the table is identified by its node's name, and each session has its own.
    let handle = ops::lookup::hash_table(graph, keys.dtype(), values.dtype(), "");
    let initializer = graph.name_scope("table_init", |_| ops::lookup::lookup_table_import(&handle, keys, values));
    LookupTable::made(handle, default_value, initializer)
}

/// Returns the positions of a vector's elements; none if it isn't a vector, which the nodes that take both then refuse.
fn positions(vocabulary: &Output) -> Vec<i64> {
    let len =
        Some(vocabulary.shape()).filter(|shape: &PartialShape| shape.rank() == Some(1)).and_then(|shape| shape.dim(0));
    (0..len.unwrap_or(0)).collect()
}
