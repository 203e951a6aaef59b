//! Writes a graph of feature columns to a directory, as `columns.meta`, for the test that compares it with TensorFlow's:
//! `column_graphs DIRECTORY`. The directory has the vocabulary `words.txt`.
//!
//! Every case has a variable scope of its own; a node `out_CASE/NUMBER` is a result, and `grad_CASE/NAME` the gradient of the sum of the
//! squares of the case's results with respect to a variable.

use ferroflow::feature_column::*;
use ferroflow::train::{Saver, meta_graph::export_meta_graph};
use ferroflow::variable::trainable_variables;
use ferroflow::variable_scope::{Reuse, variable_scope};
use ferroflow::{DType, Graph, Output, PartialShape, Result, Status, ops::math};
use std::sync::Arc;

fn main() -> Result<()> {
    let directory = std::env::args().nth(1).ok_or_else(|| Status::invalid_argument("which directory?"))?;
    let cases = Cases::new(&format!("{directory}/words.txt"));
    cases.dense()?;
    cases.linear()?;
    cases.sequences()?;
    cases.parsed()?;
    let meta = export_meta_graph(&cases.graph, Some(&Saver::new(&cases.graph)?));
    let path = format!("{directory}/columns.meta");
    std::fs::write(&path, meta.to_bytes()).map_err(|error| Status::unavailable(format!("{path}: {error}")))
}

struct Cases {
    graph: Graph,
    features: Features,
    vocabulary: String,
}

impl Cases {
    /// Starts a graph with placeholders for the features.
    fn new(vocabulary: &str) -> Cases {
        let graph = Graph::new();
        let placeholder = |name: &str, dtype: DType, dims: &[i64]| {
            let shape = PartialShape::from_dims(dims);
            graph.op("Placeholder").name(name).attr("dtype", dtype).attr("shape", shape).output()
        };
        let sparse = |name: &str, dtype: DType, rank: i64| SparseTensor {
            indices: placeholder(&format!("{name}_indices"), DType::Int64, &[-1, rank]),
            values: placeholder(&format!("{name}_values"), dtype, &[-1]),
            dense_shape: placeholder(&format!("{name}_shape"), DType::Int64, &[rank]),
        };
        let features = Features::new()
            .with("x", placeholder("x", DType::Float, &[-1]))
            .with("xs", placeholder("xs", DType::Int64, &[-1, 2]))
            .with("xss", placeholder("xss", DType::Double, &[-1, 2, 2]))
            .with("id", placeholder("id", DType::Int64, &[-1]))
            .with("ids", placeholder("ids", DType::Int32, &[-1, 3]))
            .with("word", placeholder("word", DType::String, &[-1, 2]))
            .with("words", sparse("words", DType::String, 2))
            .with("numbers", sparse("numbers", DType::Int64, 2))
            .with("weights", sparse("weights", DType::Float, 2))
            .with("nested", sparse("nested", DType::Int64, 3))
            .with("steps", sparse("steps", DType::Float, 2));
        Cases { graph, features, vocabulary: vocabulary.to_owned() }
    }

    /// Builds a case in its scope, and the gradients of its results.
    fn case(&self, name: &str, build: impl FnOnce() -> Vec<Output>) -> Result<()> {
        let before = trainable_variables(&self.graph)?.len();
        let outputs = variable_scope(&self.graph, name, Reuse::New, |_| build());
        let out = |name: &str, output: &Output| drop(self.graph.op("Identity").name(name).input(output).build());
        let mut sums = Vec::new();
        for (index, output) in outputs.iter().enumerate() {
            out(&format!("out_{name}/{index}"), output);
            if output.dtype() == DType::Float {
                sums.push(math::reduce_sum(&math::square(output), None, false));
            }
        }
        let variables = &trainable_variables(&self.graph)?[before..];
        let targets: Vec<Output> = variables.iter().map(|variable| variable.handle().clone()).collect();
        for (variable, gradient) in variables.iter().zip(self.graph.gradients(&sums, &targets)?) {
            if let Some(gradient) = gradient {
                out(&format!("grad_{name}/{}", variable.name()), &gradient.to_dense());
            }
        }
        Ok(())
    }

    fn input(&self, name: &str, columns: &[FeatureColumn]) -> Result<()> {
        self.case(name, || vec![input_layer(&self.features, columns)])
    }

    fn model(&self, name: &str, columns: &[FeatureColumn], options: LinearModelOptions) -> Result<()> {
        self.case(name, || vec![linear_model(&self.features, columns, options)])
    }

    /// Columns of ids, each with a name that no other has.
    fn categorical(&self) -> Vec<(&'static str, CategoricalColumn)> {
        let file = |options| categorical_column_with_vocabulary_file("words", &self.vocabulary, options);
        let list = |options| categorical_column_with_vocabulary_list_and("words", ["to", "be", "or"], options);
        let numbers = VocabularyOptions { dtype: DType::Int64, vocabulary_size: Some(2), ..Default::default() };
        let buckets = bucketized_column(&numeric_column("xs").shape(&[2]), &[0.0, 3.0]);
        let cross = crossed_column(["words", "word"], 7);
        vec![
            ("identity", categorical_column_with_identity("id", 5)),
            ("identities", categorical_column_with_identity("ids", 5)),
            ("identity_or", categorical_column_with_identity_or("numbers", 20, 3)),
            ("nested", categorical_column_with_identity("nested", 9)),
            ("list", list(VocabularyOptions::default())),
            ("list_default", list(VocabularyOptions { default_value: 1, ..Default::default() })),
            ("list_oov", list(VocabularyOptions { num_oov_buckets: 3, ..Default::default() })),
            ("list_dense", categorical_column_with_vocabulary_list("word", ["be", "not"])),
            ("list_integers", categorical_column_with_vocabulary_list("numbers", [11i64, -4, 7])),
            ("file", file(VocabularyOptions::default())),
            (
                "file_size",
                file(VocabularyOptions { vocabulary_size: Some(2), num_oov_buckets: 2, ..Default::default() }),
            ),
            ("file_default", file(VocabularyOptions { default_value: 0, ..Default::default() })),
            ("file_integers", categorical_column_with_vocabulary_file("numbers", &self.integers(), numbers)),
            ("hash", categorical_column_with_hash_bucket("words", 6)),
            ("hash_dense", categorical_column_with_hash_bucket("word", 6)),
            ("hash_integers", categorical_column_with_hash_bucket_of("numbers", 6, DType::Int64)),
            ("hash_small_integers", categorical_column_with_hash_bucket_of("ids", 6, DType::Int32)),
            ("bucketized", buckets.clone()),
            ("crossed", cross.clone()),
            ("crossed_key", crossed_column_with_key(["words", "word"], 7, 5)),
            (
                "crossed_columns",
                crossed_column(
                    [CrossKey::from("numbers"), (&buckets).into(), list(VocabularyOptions::default()).into()],
                    11,
                ),
            ),
            ("crossed_crosses", crossed_column([CrossKey::from(cross), "numbers".into()], 50)),
            ("weighted", weighted_categorical_column(&categorical_column_with_hash_bucket("words", 6), "weights")),
            (
                "weighted_integers",
                weighted_categorical_column_of(
                    &categorical_column_with_hash_bucket("words", 6),
                    "numbers",
                    DType::Int64,
                ),
            ),
        ]
    }

    fn integers(&self) -> String {
        self.vocabulary.replace("words.txt", "integers.txt")
    }

    fn dense(&self) -> Result<()> {
        self.input("numeric", &[numeric_column("x").into(), numeric_column("xs").shape(&[2]).into()])?;
        self.input("numeric_matrix", &[numeric_column("xss").shape(&[2, 2]).into()])?;
        let normalized = numeric_column("x").normalizer(Arc::new(|x| (x - 3.0) / 4.0));
        self.input("normalized", &[normalized.clone().into(), bucketized_column(&normalized, &[-0.5, 0.25]).into()])?;
        self.input("buckets", &[bucketized_column(&numeric_column("xs").shape(&[2]), &[0.0, 3.0]).into()])?;
        for (name, column) in self.categorical() {
            let indicator = if name == "nested" { None } else { Some(indicator_column(&column).into()) };
            let embedding = (name != "nested").then(|| embedding_column(&column, 3).into());
            let columns: Vec<FeatureColumn> = indicator.into_iter().chain(embedding).collect();
            if !columns.is_empty() {
                self.input(&format!("input_{name}"), &columns)?;
            }
        }
        let words = categorical_column_with_hash_bucket("words", 6);
        let weighted = weighted_categorical_column(&words, "weights");
        for (name, combiner) in [("sum", Combiner::Sum), ("mean", Combiner::Mean), ("sqrtn", Combiner::SqrtN)] {
            let plain = embedding_column(&words, 2).combiner(combiner);
            let columns = [plain.into(), embedding_column(&weighted, 2).combiner(combiner).into()];
            self.input(&format!("combined_{name}"), &columns)?;
        }
        self.input("max_norm", &[embedding_column(&words, 2).max_norm(0.5).into()])?;
        self.input("frozen", &[embedding_column(&words, 2).trainable(false).into()])?;
        let (a, b) =
            (categorical_column_with_identity("id", 20), categorical_column_with_identity_or("numbers", 20, 3));
        let all = |columns: Vec<EmbeddingColumn>| columns.into_iter().map(Into::into).collect::<Vec<FeatureColumn>>();
        self.input("shared", &all(shared_embedding_columns(&[&b, &a], 2)))?;
        self.input("shared_v2", &all(shared_embeddings(&[&b, &a], 2)))?;
        let options = embedding_column(&a, 2).combiner(Combiner::Sum);
        self.input("shared_named", &all(shared_embedding_columns_like(&[&a, &b], &options, "items")))?;
        let odd =
            Features::new().with("_x y/z", self.features.get("id").cloned().ok_or_else(|| Status::internal("id"))?);
        self.case("odd_name", || {
            let id = categorical_column_with_identity("_x y/z", 5);
            vec![linear_model(&odd, &[id.into()], LinearModelOptions::default())]
        })
    }

    fn linear(&self) -> Result<()> {
        for (name, column) in self.categorical() {
            self.model(&format!("linear_{name}"), &[column.into()], LinearModelOptions::default())?;
        }
        let words = categorical_column_with_hash_bucket("words", 6);
        let columns: [FeatureColumn; 4] = [
            numeric_column("x").into(),
            numeric_column("xs").shape(&[2]).into(),
            words.clone().into(),
            embedding_column(&words, 2).into(),
        ];
        self.model("linear_units", &columns, LinearModelOptions { units: 3, ..Default::default() })?;
        self.model("linear_frozen", &columns, LinearModelOptions { trainable: false, ..Default::default() })?;
        for (name, sparse_combiner) in [("mean", Combiner::Mean), ("sqrtn", Combiner::SqrtN)] {
            self.model(
                &format!("linear_{name}"),
                &columns,
                LinearModelOptions { sparse_combiner, ..Default::default() },
            )?;
        }
        Ok(())
    }

    fn sequences(&self) -> Result<()> {
        let run = |name: &str, columns: &[FeatureColumn]| {
            self.case(name, || {
                let (sequences, lengths) = sequence_input_layer(&self.features, columns);
                vec![sequences, lengths]
            })
        };
        run("sequence_numeric", &[sequence_numeric_column("steps").into()])?;
        let pairs = sequence_numeric_column("steps").shape(&[2]).default_value(-1.0);
        run("sequence_pairs", &[pairs.normalizer(Arc::new(|x| x * 2.0)).into()])?;
        let words = sequence_categorical_column(&categorical_column_with_vocabulary_list("words", ["to", "be", "or"]));
        run("sequence_words", &[embedding_column(&words, 2).into(), indicator_column(&words).into()])?;
        let nested = sequence_categorical_column(&categorical_column_with_identity("nested", 9));
        run("sequence_nested", &[embedding_column(&nested, 2).into(), indicator_column(&nested).into()])?;
        self.case("context", || {
            let (sequences, _) = sequence_input_layer(&self.features, &[sequence_numeric_column("steps").into()]);
            let context = input_layer(&self.features, &[numeric_column("xs").shape(&[2]).into()]);
            vec![concatenate_context_input(&context, &sequences)]
        })
    }

    /// Columns of parsed examples.
    fn parsed(&self) -> Result<()> {
        let columns: [FeatureColumn; 3] = [
            numeric_column("age").shape(&[2]).default_value(7.0).into(),
            embedding_column(&categorical_column_with_hash_bucket("tags", 9), 2).into(),
            indicator_column(&categorical_column_with_identity("day", 7)).into(),
        ];
        let spec = make_parse_example_spec(&columns)?;
        let shape = PartialShape::from_dims(&[-1]);
        let op = self.graph.op("Placeholder").name("examples").attr("dtype", DType::String).attr("shape", shape);
        let serialized = op.output();
        self.case("parsed", || vec![input_layer(&parse_example(&serialized, &spec), &columns)])
    }
}
