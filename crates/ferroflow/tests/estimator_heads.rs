//! Heads: their predictions, losses, metrics and signatures, and what is wrong with labels, features and inputs.

use ferroflow::data::Dataset;
use ferroflow::estimator::*;
use ferroflow::prelude::*;
use ferroflow::train::{GradientDescentOptimizer, SessionRunHook};
use ferroflow::variable::get_global_step;
use ferroflow::{Code, Result};

/// Takes the feature `logits` for the logits, with a bias that can be trained.
fn given(features: &Features, labels: Option<&Output>, mode: Mode, head: &Head) -> Result<EstimatorSpec> {
    let logits = features.dense("logits")?;
    let g = logits.graph();
    let bias = Variable::new(g, "bias", &g.constant(vec![0f32; head.logits_dimension() as usize]));
    let logits = &logits + bias.value();
    head.create_estimator_spec(features, mode, &logits, labels, |loss| {
        GradientDescentOptimizer::new(0.5).minimize(loss, get_global_step(g)?.as_ref())
    })
}

fn evaluated(head: Head, input: impl Fn(&Graph) -> Input) -> Result<Evaluation> {
    let directory = tempfile::tempdir().unwrap();
    Estimator::new(given, head, RunConfig::new(directory.path().to_str().unwrap()))?
        .evaluate(input, EvalOptions::default())
}

#[track_caller]
fn check(measured: &Evaluation, expected: &[(&str, f64)]) {
    let names: Vec<&str> = measured.values.keys().map(String::as_str).filter(|name| *name != "global_step").collect();
    assert_eq!(names, expected.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    for (name, value) in expected {
        assert!((measured.get(name).unwrap() - value).abs() < 1e-4, "{name}: {measured}");
    }
}

#[test]
fn two_classes_with_weights() -> Result<()> {
    let measured = evaluated(Head::binary().weight_column("weight"), |g| {
        let rows = Dataset::from_tensor_slices(g, ([[1f32], [-1.0], [2.0]], [1f32, 1.0, 2.0], [1i64, 0, 0]));
        Input::new(&rows.batch(3, false), &["logits", "weight"]).label()
    })?;
    // The cross entropies are ln(1 + e^-1) twice, and ln(1 + e^2) of weight 2.
    let (right, wrong) = (1f64.exp().recip().ln_1p(), 2f64.exp().ln_1p());
    check(
        &measured,
        &[
            ("accuracy", 0.5),
            ("accuracy_baseline", 0.75),
            ("auc", 1.0 / 3.0),
            ("auc_precision_recall", measured.get("auc_precision_recall")?),
            ("average_loss", (2.0 * right + 2.0 * wrong) / 4.0),
            ("label/mean", 0.25),
            ("loss", 2.0 * right + 2.0 * wrong),
            ("precision", 1.0 / 3.0),
            ("prediction/mean", (0.731_059 + 0.268_941 + 2.0 * 0.880_797) / 4.0),
            ("recall", 1.0),
        ],
    );
    Ok(())
}

#[test]
fn classes_with_names() -> Result<()> {
    let head = Head::multi_class(3).label_vocabulary(&["red", "green", "blue"]);
    let input = |g: &Graph| {
        let rows = Dataset::from_tensor_slices(g, ([[0f32, 1.0, 0.0], [2.0, 0.0, 0.0]], ["green", "blue"]));
        Input::new(&rows.batch(2, false), &["logits"]).label()
    };
    let (right, wrong) = ((1.0 + 2.0 * (-1f64).exp()).ln(), (2f64.exp() + 2.0).ln());
    check(
        &evaluated(head.clone(), input)?,
        &[("accuracy", 0.5), ("average_loss", (right + wrong) / 2.0), ("loss", right + wrong)],
    );
    let model = Estimator::new(given, head, RunConfig::new("/no/such/model"))?;
    let rows = model.predict(input, PredictOptions::default())?.collect::<Result<Vec<_>>>()?;
    let names = ["all_class_ids", "all_classes", "class_ids", "classes", "logits", "probabilities"];
    assert_eq!(rows[0].keys().map(String::as_str).collect::<Vec<_>>(), names);
    assert_eq!(rows.iter().map(|row| row["classes"].to_strings().unwrap()).collect::<Vec<_>>(), [["green"], ["red"]]);
    assert_eq!(rows[1]["all_classes"].to_strings()?, ["red", "green", "blue"]);
    Ok(())
}

#[test]
fn numbers() -> Result<()> {
    let measured = evaluated(Head::regression(1), |g| {
        let rows = Dataset::from_tensor_slices(g, ([[1f32], [4.0]], [2f32, 2.0]));
        Input::new(&rows.batch(2, false), &["logits"]).label()
    })?;
    check(&measured, &[("average_loss", 2.5), ("label/mean", 2.0), ("loss", 5.0), ("prediction/mean", 2.5)]);
    Ok(())
}

/// Trains one step with labels; returns what is wrong.
fn mistake(head: Head, input: impl Fn(&Graph) -> Input) -> Status {
    let directory = tempfile::tempdir().unwrap();
    let model = Estimator::new(given, head, RunConfig::new(directory.path().to_str().unwrap())).unwrap();
    model.train(input, TrainOptions { steps: Some(1), ..TrainOptions::default() }).unwrap_err()
}

fn rows<L: ferroflow::IntoTensor + Clone>(labels: L) -> impl Fn(&Graph) -> Input {
    move |g| {
        let rows = Dataset::from_tensor_slices(g, ([[0f32, 1.0, 2.0], [2.0, 1.0, 0.0]], labels.clone()));
        Input::new(&rows.batch(2, false), &["logits"]).label()
    }
}

#[track_caller]
fn says(status: &Status, parts: &[&str]) {
    assert!(parts.iter().all(|part| status.message().contains(part)), "{status}");
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
}

#[test]
fn labels_that_are_wrong_are_named() {
    says(&mistake(Head::multi_class(3), rows([1i64, 7])), &["labels outside of the classes 0 to 2", "[7]"]);
    says(&mistake(Head::multi_class(3), rows([-1i64, 0])), &["labels outside of the classes 0 to 2", "[-1]"]);
    let colours = Head::multi_class(3).label_vocabulary(&["red", "green", "blue"]);
    says(&mistake(colours.clone(), rows(["red", "pink"])), &["label vocabulary (red, green, blue)", "pink"]);
    says(&mistake(colours, rows([0i64, 1])), &["labels are int64, and must be strings"]);
    says(&mistake(Head::multi_class(3), rows(["red", "blue"])), &["labels are string, and must be numbers"]);
    says(&mistake(Head::multi_class(3), rows([0f32, 1.0])), &["labels are float, and must be integers"]);
    says(
        &mistake(Head::multi_class(3), rows([[0i64, 1], [1, 0]])),
        &["labels of shape [?,2] don't fit logits of shape [?,3]"],
    );
    says(&mistake(Head::multi_class(4), rows([0i64, 1])), &["estimator_heads.rs"]);
}

#[test]
fn features_and_inputs_that_are_wrong_are_named() {
    let head = || Head::multi_class(3);
    says(&mistake(head().weight_column("weight"), rows([0i64, 1])), &["no feature 'weight'; the features are: logits"]);
    let renamed = |g: &Graph| {
        let rows = Dataset::from_tensor_slices(g, ([[0f32, 1.0, 2.0]], [0i64]));
        Input::new(&rows.batch(1, false), &["logit"]).label()
    };
    says(&mistake(head(), renamed), &["no feature 'logits'; the features are: logit"]);
    let unnamed = |g: &Graph| {
        Input::new(&Dataset::from_tensor_slices(g, ([[0f32, 1.0, 2.0]], [0i64])).batch(1, false), &["logits"])
    };
    says(&mistake(head(), unnamed), &["dataset has 2 components, but there are names for 1: logits"]);
    let empty = |g: &Graph| {
        let rows = Dataset::from_tensor_slices(g, ([[0f32, 1.0, 2.0]], [0i64]));
        Input::new(&rows.take(0).batch(1, false), &["logits"]).label()
    };
    says(&mistake(head(), empty), &["the input of this training is empty"]);
    says(&evaluated(head(), empty).unwrap_err(), &["the input of this evaluation is empty"]);
}

#[test]
fn a_model_without_a_checkpoint_or_with_a_taken_directory_is_not_exported() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let model = Estimator::new(given, Head::binary(), RunConfig::new(directory.path().to_str().unwrap()))?;
    let feature = ferroflow::data::FixedLenFeature {
        key: "logits".to_owned(),
        dtype: ferroflow::DType::Float,
        shape: Shape::vector(1),
        default: None,
    };
    let serving = build_parsing_serving_input_receiver_fn(&[feature]);
    let base = directory.path().join("served");
    let status = model.export_saved_model(base.to_str().unwrap(), &serving).unwrap_err();
    assert!(status.code() == Code::NotFound && status.message().contains("isn't trained yet"), "{status}");
    let input = |g: &Graph| {
        let rows = Dataset::from_tensor_slices(g, ([[1f32]], [1i64]));
        Input::new(&rows.batch(1, false), &["logits"]).label()
    };
    model.train(input, TrainOptions::default())?;
    let made = model.export_saved_model(base.to_str().unwrap(), &serving)?;
    let names: Vec<String> =
        ferroflow::saved_model::SavedModel::open(&made)?.load(&["serve"])?.signatures().keys().cloned().collect();
    assert_eq!(names, ["classification", "predict", "regression", "serving_default"]);
    // What is in the way of the directory is said: here a file.
    let file = directory.path().join("file");
    std::fs::write(&file, "taken").unwrap();
    assert!(model.export_saved_model(file.to_str().unwrap(), &serving).is_err());
    Ok(())
}

#[test]
fn a_hook_of_the_specification_takes_part() -> Result<()> {
    struct Fails;
    impl SessionRunHook for Fails {
        fn end(&mut self, _session: &Session) -> Result<()> {
            Err(Status::aborted("the hook was asked"))
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let model = |features: &Features, labels: Option<&Output>, mode: Mode, head: &Head| -> Result<EstimatorSpec> {
        Ok(given(features, labels, mode, head)?.training_hook(Fails))
    };
    let model = Estimator::new(model, Head::multi_class(3), RunConfig::new(directory.path().to_str().unwrap()))?;
    let status = model.train(rows([0i64, 1]), TrainOptions::default()).unwrap_err();
    assert!(status.message().contains("the hook was asked"), "{status}");
    Ok(())
}

#[test]
fn a_cluster_in_which_nobody_holds_variables_is_refused() -> Result<()> {
    let told = ferroflow::distributed::TfConfig::parse(
        r#"{"cluster": {"chief": ["localhost:1"], "worker": ["localhost:2"]}, "task": {"type": "chief", "index": 0}}"#,
    )?;
    let directory = tempfile::tempdir().unwrap();
    let config = RunConfig { tf_config: Some(told), ..RunConfig::new(directory.path().to_str().unwrap()) };
    let model = Estimator::new(given, Head::multi_class(3), config)?;
    says(&model.train(rows([0i64, 1]), TrainOptions::default()).unwrap_err(), &["no 'ps'"]);
    Ok(())
}
