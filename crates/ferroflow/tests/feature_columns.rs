//! Feature columns: mistakes are kept in the graph with the line of the program that made them, data that doesn't fit is an error that names
//! the column, and a table starts with what a checkpoint has.

mod common;

use common::check_mistake;
use ferroflow::feature_column::*;
use ferroflow::initializers;
use ferroflow::prelude::*;
use ferroflow::train::{Saver, global_variables_initializer};
use ferroflow::variable::global_variables;
use ferroflow::variable_scope::{Reuse, get_variable, variable_scope};

/// Returns features of every type.
fn features(g: &Graph) -> Features {
    let words = SparseTensor {
        indices: g.constant([[0i64, 0], [1, 0]]),
        values: g.constant(["to", "be"]),
        dense_shape: g.constant([2i64, 1]),
    };
    Features::new()
        .with("x", g.constant([1f32, 2.0]))
        .with("xs", g.constant([[1f32, 2.0], [3.0, 4.0]]))
        .with("id", g.constant([1i64, 2]))
        .with("word", g.constant(["a", "b"]))
        .with("three", g.constant([1f32, 2.0, 3.0]))
        .with("scalar", g.constant(1f32))
        .with("words", words)
}

fn id() -> CategoricalColumn {
    categorical_column_with_identity("id", 5)
}

fn list(words: &'static [&'static str]) -> CategoricalColumn {
    categorical_column_with_vocabulary_list("words", words)
}

/// Uses columns as a model might.
fn layer(g: &Graph, columns: &[FeatureColumn]) {
    let output = input_layer(&features(g), columns);
    assert!(output.op.is_mistaken());
    assert!(output.sum().op.is_mistaken());
}

fn linear(g: &Graph, columns: &[FeatureColumn]) {
    assert!(linear_model(&features(g), columns, LinearModelOptions::default()).op.is_mistaken());
}

fn sequences(g: &Graph, columns: &[FeatureColumn]) {
    assert!(sequence_input_layer(&features(g), columns).1.op.is_mistaken());
}

/// As each macro arm below: what is wrong, and a line that the mistake is blamed on.
macro_rules! mistakes {
    ($($name:ident: $words:literal, |$g:ident| $call:expr;)*) => {$(
        #[test]
        fn $name() {
            check_mistake("feature_columns.rs", include_str!("feature_columns.rs"), $words, "(&features(g), columns", |$g| $call);
        }
    )*};
}

mistakes! {
    a_feature_that_is_missing: "Feature age is not in features dictionary, which has: id, scalar, three, word, words, x, xs",
        |g| layer(g, &[numeric_column("age").into()]);
    no_columns: "feature_columns must not be empty", |g| layer(g, &[]);
    two_columns_of_a_name: "Duplicate feature column name found for columns: x",
        |g| layer(g, &[numeric_column("x").into(), numeric_column("x").into()]);
    numbers_of_texts: "column word is numeric, but its feature has type string", |g| layer(g, &[numeric_column("word").into()]);
    numbers_that_are_sparse: "SparseTensor is not supported. key: words", |g| layer(g, &[numeric_column("words").into()]);
    numbers_of_another_shape: "column xs has 3 numbers in a row, and its feature has the shape [2,2]",
        |g| layer(g, &[numeric_column("xs").shape(&[3]).into()]);
    a_feature_without_rows: "Feature (key: scalar) cannot have rank 0", |g| layer(g, &[numeric_column("scalar").into()]);
    batches_of_two_sizes: "Batch size of columns (three, x): (3, 2)",
        |g| layer(g, &[numeric_column("x").into(), numeric_column("three").into()]);
    a_shape_of_nothing: "shape dimensions must be greater than 0", |g| layer(g, &[numeric_column("x").shape(&[0]).into()]);
    defaults_of_another_shape: "The shape of default_value must be equal",
        |g| layer(g, &[numeric_column("xs").shape(&[3]).default_values(&[1.0, 2.0]).into()]);
    ids_as_they_are: "You can wrap a categorical column with an embedding_column or indicator_column. Given: id",
        |g| layer(g, &[id().into()]);
    ids_of_texts: "Invalid input, not integer. key: word",
        |g| linear(g, &[categorical_column_with_identity("word", 5).into()]);
    no_ids: "num_buckets 0 < 1", |g| linear(g, &[categorical_column_with_identity("id", 0).into()]);
    a_default_outside: "default_value 7 not in range [0, 5)",
        |g| linear(g, &[categorical_column_with_identity_or("id", 5, 7).into()]);
    words_of_integers: "key: id, column dtype: string, tensor dtype: int64",
        |g| linear(g, &[categorical_column_with_vocabulary_list("id", ["a"]).into()]);
    an_empty_vocabulary: "vocabulary_list must be a vector and not be empty", |g| linear(g, &[list(&[]).into()]);
    a_vocabulary_with_a_word_twice: "Duplicate keys in vocabulary_list", |g| linear(g, &[list(&["a", "a"]).into()]);
    a_vocabulary_with_two_defaults: "Can't specify both num_oov_buckets and default_value in words", |g| {
        let options = VocabularyOptions { num_oov_buckets: 1, default_value: 0, ..Default::default() };
        linear(g, &[categorical_column_with_vocabulary_list_and("words", ["a"], options).into()]);
    };
    a_vocabulary_file_that_is_missing: "vocabulary_file /no/such/file in words can't be read", |g| {
        linear(g, &[categorical_column_with_vocabulary_file("words", "/no/such/file", VocabularyOptions::default()).into()]);
    };
    a_hash_of_floats: "key: x, column dtype: string, tensor dtype: float",
        |g| linear(g, &[categorical_column_with_hash_bucket("x", 5).into()]);
    a_hash_without_buckets: "hash_bucket_size must be at least 1",
        |g| linear(g, &[categorical_column_with_hash_bucket("words", 0).into()]);
    buckets_without_boundaries: "boundaries must not be empty",
        |g| linear(g, &[bucketized_column(&numeric_column("x"), &[]).into()]);
    boundaries_out_of_order: "boundaries must be a sorted list",
        |g| linear(g, &[bucketized_column(&numeric_column("x"), &[2.0, 1.0]).into()]);
    a_cross_of_one: "keys must be a list with length > 1", |g| linear(g, &[crossed_column(["words"], 5).into()]);
    a_cross_of_hashes: "categorical_column_with_hash_bucket is not supported for crossing", |g| {
        let hashed = categorical_column_with_hash_bucket("words", 5);
        linear(g, &[crossed_column([CrossKey::from(hashed), "word".into()], 5).into()]);
    };
    weights_of_another_type: "Bad dtype, expected float, but got int64: the weights id",
        |g| linear(g, &[weighted_categorical_column(&list(&["to"]), "id").into()]);
    an_embedding_without_dimensions: "Invalid dimension 0", |g| layer(g, &[embedding_column(&id(), 0).into()]);
    a_norm_below_zero: "max_norm -1 of column id_embedding", |g| layer(g, &[embedding_column(&id(), 2).max_norm(-1.0).into()]);
    a_shared_table_of_two_sizes: "of unexpected shape [5,2]", |g| {
        let columns = shared_embedding_columns(&[&id(), &list(&["to"])], 2);
        layer(g, &columns.into_iter().map(Into::into).collect::<Vec<_>>());
    };
    a_sequence_in_an_input_layer: "use it in sequence_input_layer",
        |g| layer(g, &[indicator_column(&sequence_categorical_column(&id())).into()]);
    a_sequence_of_what_is_none: "column id_indicator is not one of sequences", |g| sequences(g, &[indicator_column(&id()).into()]);
    a_sequence_of_dense_numbers: "column xs is a sequence column, but its feature is dense",
        |g| sequences(g, &[sequence_numeric_column("xs").into()]);
}

#[test]
fn specifications_that_contradict_each_other_are_refused() {
    let columns = [numeric_column("id").into(), id().into()];
    let status = make_parse_example_spec(&columns).unwrap_err();
    assert!(status.message().contains("different parse_spec for key id"), "{status}");
}

/// Runs an output after the variables and tables have their first values.
fn run(g: &Graph, output: &Output) -> Result<Vec<f32>, Status> {
    let session = Session::new(g)?;
    session.run_ops(&[&global_variables_initializer(g)])?;
    for table in g.collection("table_initializer") {
        session.run_ops(&[&table.op])?;
    }
    session.run(&[output])?[0].to_vec::<f32>()
}

#[test]
fn an_id_out_of_range_is_an_error_that_names_the_column() {
    let g = Graph::new();
    let day = categorical_column_with_identity("day", 7);
    let features = Features::new().with("day", g.constant([6i64, 7]));
    let status = run(&g, &input_layer(&features, &[embedding_column(&day, 2).into()])).unwrap_err();
    assert!(
        status.message().contains("= 7 is not in [0, 7)") && status.message().contains("day_embedding"),
        "{status}"
    );
}

#[test]
fn a_vocabulary_file_with_too_few_lines_is_an_error_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("words.txt");
    std::fs::write(&path, "to\nbe").unwrap();
    let options = VocabularyOptions { vocabulary_size: Some(3), ..Default::default() };
    let g = Graph::new();
    let words = categorical_column_with_vocabulary_file("words", path.to_str().unwrap(), options);
    let status = run(&g, &linear_model(&features(&g), &[words.into()], Default::default())).unwrap_err();
    assert!(status.message().contains("words.txt: expected 3 but got 2"), "{status}");
    let all = categorical_column_with_vocabulary_file("words", path.to_str().unwrap(), VocabularyOptions::default());
    assert_eq!(all.num_buckets().unwrap(), 2);
}

#[test]
fn a_table_starts_with_what_a_checkpoint_has() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path().join("model").to_str().unwrap().to_owned();
    let g = Graph::new();
    get_variable(&g, "table", &[5, 2]).initializer(initializers::constant(0.25)).get();
    let session = Session::new(&g).unwrap();
    session.run_ops(&[&global_variables_initializer(&g)]).unwrap();
    let path = Saver::new(&g).unwrap().save(&session, &prefix, None).unwrap();

    let g = Graph::new();
    let columns = [embedding_column(&id(), 2).load_from(&path, "table").into()];
    assert_eq!(run(&g, &input_layer(&features(&g), &columns)).unwrap(), [0.25; 4]);

    let g = Graph::new();
    let columns = [embedding_column(&id(), 2).load_from(&path, "no_table").into()];
    let status = run(&g, &input_layer(&features(&g), &columns)).unwrap_err();
    assert!(status.message().contains("no_table"), "{status}");
}

#[test]
fn variables_have_the_names_of_the_canned_estimators() {
    let g = Graph::new();
    let (words, id) = (categorical_column_with_hash_bucket("words", 4), id());
    let buckets = bucketized_column(&numeric_column("x"), &[1.0, 2.0]);
    let cross = crossed_column([CrossKey::from("word"), (&buckets).into()], 7);
    let deep: Vec<FeatureColumn> = vec![
        numeric_column("x").into(),
        buckets.clone().into(),
        indicator_column(&id).into(),
        embedding_column(&cross, 3).into(),
    ];
    let wide = [id.into(), buckets.into(), cross.into(), embedding_column(&words, 2).into()];
    variable_scope(&g, "dnn", Reuse::New, |g| {
        variable_scope(g, "input_from_feature_columns", Reuse::New, |g| drop(input_layer(&features(g), &deep)));
    });
    variable_scope(&g, "linear", Reuse::New, |g| {
        linear_model(&features(g), &wide, LinearModelOptions { units: 2, ..Default::default() });
    });
    g.finish().unwrap();
    let mut found: Vec<String> = global_variables(&g)
        .unwrap()
        .iter()
        .map(|variable| format!("{} {}", variable.name(), variable.shape()))
        .collect();
    found.sort();
    // As tf.estimator.DNNLinearCombinedClassifier names them.
    let expected = [
        "dnn/input_from_feature_columns/input_layer/word_X_x_bucketized_embedding/embedding_weights [7,3]",
        "linear/linear_model/bias_weights [2]",
        "linear/linear_model/id/weights [5,2]",
        "linear/linear_model/word_X_x_bucketized/weights [7,2]",
        "linear/linear_model/words_embedding/embedding_weights [4,2]",
        "linear/linear_model/words_embedding/weights [2,2]",
        "linear/linear_model/x_bucketized/weights [3,2]",
    ];
    assert_eq!(found, expected);
}
