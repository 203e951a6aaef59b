//! Writes graphs of layers, losses and metrics to a directory, as MetaGraphs, so that a test can compare them with TensorFlow's:
//! `layer_graphs DIRECTORY`. Every case has a variable scope of its own; a node `out_CASE/NAME` is a result, and
//! `grad_CASE/NAME` the gradient of the sum of the case's results with respect to a variable or an input.

use ferroflow::layers::rnn::*;
use ferroflow::layers::*;
use ferroflow::losses::{self, Labels, Logits, Predictions, Reduction};
use ferroflow::metrics::{self, Curve, MetricBuilder, Summation};
use ferroflow::ops::{array, math};
use ferroflow::train::{GradientDescentOptimizer, GradientOptions, Optimizer, Saver, meta_graph::export_meta_graph};
use ferroflow::variable::{global_variables, trainable_variables};
use ferroflow::variable_scope::{Reuse, VariableScope, variable_scope};
use ferroflow::{DType, Grad, Graph, Output, PartialShape, Result, Status, initializers};

fn main() -> Result<()> {
    let directory = std::env::args().nth(1).ok_or_else(|| Status::invalid_argument("usage: layer_graphs DIRECTORY"))?;
    for (name, build) in GRAPHS {
        let graph = Graph::new();
        build(&Cases { graph: graph.clone() })?;
        // Losses and metrics have no global variables, and nothing to save.
        let saver = if global_variables(&graph)?.is_empty() { None } else { Some(Saver::new(&graph)?) };
        let meta = export_meta_graph(&graph, saver.as_ref());
        let path = std::path::Path::new(&directory).join(format!("{name}.meta"));
        std::fs::write(&path, meta.to_bytes())
            .map_err(|error| Status::unavailable(format!("{}: {error}", path.display())))?;
    }
    Ok(())
}

const GRAPHS: &[(&str, fn(&Cases) -> Result<()>)] = &[
    ("layers", layer_cases),
    ("rnn", rnn_cases),
    ("losses", loss_cases),
    ("constraints", constraint_case),
    ("metrics", metric_cases),
];

struct Cases {
    graph: Graph,
}

impl Cases {
    fn placeholder(&self, name: &str, dtype: DType, dims: &[i64]) -> Output {
        let shape = PartialShape::from_dims(dims);
        self.graph.op("Placeholder").name(name).attr("dtype", dtype).attr("shape", shape).output()
    }

    fn out(&self, name: &str, output: &Output) {
        self.graph.op("Identity").name(name).input(output).build();
    }

    /// Builds a case in its scope, and the gradients of its results.
    fn case(&self, name: &str, inputs: &[&Output], build: impl FnOnce() -> Vec<Output>) -> Result<()> {
        let before = trainable_variables(&self.graph)?.len();
        let outputs = variable_scope(&self.graph, name, Reuse::New, |_| build());
        for (index, output) in outputs.iter().enumerate() {
            self.out(&format!("out_{name}/{index}"), output);
        }
        let variables = trainable_variables(&self.graph)?;
        let (mut names, mut targets) = (Vec::new(), Vec::new());
        for variable in &variables[before..] {
            names.push(variable.name());
            targets.push(variable.handle().clone());
        }
        for (index, input) in inputs.iter().enumerate() {
            names.push(format!("input_{index}"));
            targets.push((*input).clone());
        }
        // A sum of squares has a gradient that differs from element to element.
        let sums: Vec<Output> =
            outputs.iter().map(|output| math::reduce_sum(&math::square(output), None, false)).collect();
        let gradients = self.graph.gradients(&sums, &targets)?;
        for (target, gradient) in names.iter().zip(gradients) {
            if let Some(gradient) = gradient {
                let gradient = match gradient {
                    Grad::Dense(output) => output,
                    Grad::Slices(slices) => slices.to_dense(),
                };
                self.out(&format!("grad_{name}/{target}"), &gradient);
            }
        }
        Ok(())
    }

    fn layer(&self, name: &str, x: &Output, layer: &dyn Layer) -> Result<()> {
        let inputs: &[&Output] = if x.dtype() == DType::Float { &[x] } else { &[] };
        self.case(name, inputs, || vec![layer.apply(x)])
    }
}

fn layer_cases(cases: &Cases) -> Result<()> {
    let g = &cases.graph;
    let rows = cases.placeholder("rows", DType::Float, &[-1, 6]);
    let times = cases.placeholder("times", DType::Float, &[-1, 9, 4]);
    let images = cases.placeholder("images", DType::Float, &[-1, 8, 7, 3]);
    let volumes = cases.placeholder("volumes", DType::Float, &[-1, 5, 6, 5, 2]);
    let words = cases.placeholder("words", DType::Int32, &[-1, 4]);
    let training = cases.placeholder("training", DType::Bool, &[]);
    cases.layer("dense", &rows, &Dense::new(5).activation(Activation::Relu))?;
    cases.layer("dense_no_bias", &rows, &Dense::new(5).use_bias(false).activation(Activation::Softmax).name("fc"))?;
    cases.layer("dense_rank3", &times, &Dense::new(5).activation(Activation::Tanh))?;
    cases.case("dense_twice", &[&rows], || {
        let hidden = Dense::new(6).activation(Activation::Sigmoid).apply(&rows);
        vec![Dense::new(3).apply(&hidden)]
    })?;
    cases.case("dense_shared", &[&rows], || {
        let layer = Dense::new(6);
        vec![layer.apply(&layer.apply(&rows))]
    })?;
    cases.case("dense_reused", &[&rows], || {
        let hidden = Dense::new(6).name("a").apply(&rows);
        vec![Dense::new(6).name("a").reuse(Reuse::Existing).apply(&hidden)]
    })?;
    cases.case("regularized", &[&rows], || {
        let layer = Dense::new(5).kernel_regularizer(regularizers::l2(0.1)).bias_regularizer(regularizers::l1(0.2));
        vec![layer.trainable(true).apply(&rows)]
    })?;
    cases.case("frozen", &[&rows], || vec![Dense::new(5).trainable(false).apply(&rows)])?;
    cases.layer("conv1d", &times, &Conv1D::new(5, 3).strides(2).activation(Activation::Elu))?;
    cases.layer("conv1d_dilated", &times, &Conv1D::new(5, 3).dilation_rate(2).padding(Padding::Same))?;
    cases.layer("conv2d", &images, &Conv2D::new(4, [3, 2]).strides([2, 1]).padding(Padding::Same))?;
    cases.layer("conv2d_dilated", &images, &Conv2D::new(4, 3).dilation_rate([2, 1]).use_bias(false))?;
    cases.layer("conv3d", &volumes, &Conv3D::new(3, 2).padding(Padding::Same).strides(2))?;
    cases.layer("conv3d_dilated", &volumes, &Conv3D::new(3, 2).dilation_rate([1, 2, 3]))?;
    cases.layer("conv1d_transpose", &times, &Conv1DTranspose::new(5, 3).strides(2))?;
    cases.layer("conv2d_transpose", &images, &Conv2DTranspose::new(4, 3).strides([2, 3]))?;
    let same = Conv2DTranspose::new(4, 3).strides(2).padding(Padding::Same).activation(Activation::Relu);
    cases.layer("conv2d_transpose_same", &images, &same)?;
    cases.layer("conv3d_transpose", &volumes, &Conv3DTranspose::new(3, 2).strides(2))?;
    cases.layer("separable_conv1d", &times, &SeparableConv1D::new(5, 3).strides(2).depth_multiplier(2))?;
    cases.layer("separable_conv2d", &images, &SeparableConv2D::new(5, 3).depth_multiplier(2).padding(Padding::Same))?;
    cases.layer("separable_conv2d_dilated", &images, &SeparableConv2D::new(5, 2).dilation_rate(2))?;
    cases.layer("depthwise_conv1d", &times, &DepthwiseConv1D::new(3).strides(2))?;
    cases.layer("depthwise_conv2d", &images, &DepthwiseConv2D::new(3).depth_multiplier(2).strides(2))?;
    cases.layer("max_pooling1d", &times, &MaxPooling1D::new(2, 2))?;
    cases.layer("max_pooling2d", &images, &MaxPooling2D::new([2, 3], 2).padding(Padding::Same))?;
    cases.layer("max_pooling3d", &volumes, &MaxPooling3D::new(2, 2))?;
    cases.layer("average_pooling1d", &times, &AveragePooling1D::new(3, 2).padding(Padding::Same))?;
    cases.layer("average_pooling2d", &images, &AveragePooling2D::new(2, 2))?;
    cases.layer("average_pooling3d", &volumes, &AveragePooling3D::new(2, 2).padding(Padding::Same))?;
    cases.layer("dropout", &rows, &Dropout::new(0.4).seed(3).training(true))?;
    cases.layer("dropout_off", &rows, &Dropout::new(0.4))?;
    cases.layer(
        "dropout_noise_shape",
        &times,
        &Dropout::new(0.5).seed(4).noise_shape(&[None, Some(1), None]).training(true),
    )?;
    cases.layer("dropout_asked", &rows, &Dropout::new(0.4).seed(5).training(&training))?;
    cases.layer("batch_norm", &rows, &BatchNormalization::new().training(true).momentum(0.8))?;
    cases.layer("batch_norm_used", &rows, &BatchNormalization::new().epsilon(0.01))?;
    cases.layer("batch_norm_asked", &rows, &BatchNormalization::new().training(&training))?;
    cases.layer("batch_norm_axis", &times, &BatchNormalization::new().axis(1).training(true).scale(false))?;
    cases.layer("batch_norm_fused", &images, &BatchNormalization::new().training(true))?;
    cases.layer("batch_norm_fused_used", &images, &BatchNormalization::new().center(false))?;
    cases.layer("batch_norm_fused_asked", &images, &BatchNormalization::new().training(&training).momentum(0.7))?;
    cases.layer("layer_norm", &times, &LayerNormalization::new())?;
    cases.layer("layer_norm_axes", &times, &LayerNormalization::new().axes(&[1, 2]).center(false).name("norm"))?;
    cases.layer("embedding", &words, &Embedding::new(10, 3))?;
    cases.layer("flatten", &images, &Flatten::new())?;
    cases.layer("flatten_first", &images, &Flatten::new().data_format(DataFormat::ChannelsFirst))?;
    cases.case("scope", &[&rows], || {
        let scope =
            VariableScope::new("inner").initializer(initializers::constant(0.5)).regularizer(regularizers::l2(0.3));
        vec![scope.run(g, |_| Dense::new(2).apply(&rows))]
    })?;
    let updates = g.collection(UPDATE_OPS);
    let all = updates.iter().fold(g.op("NoOp").name("updates"), |op, update| op.control(&update.op));
    all.build();
    cases.out("regularization_loss", &losses::get_regularization_loss(g));
    Ok(())
}

fn rnn_cases(cases: &Cases) -> Result<()> {
    let x = cases.placeholder("x", DType::Float, &[-1, 5, 3]);
    let by_time = cases.placeholder("by_time", DType::Float, &[-1, -1, 3]);
    let lengths = cases.placeholder("lengths", DType::Int32, &[-1]);
    let steps = array::unstack(&x, 5, 1);
    let all = |(outputs, state): (Output, State)| {
        let mut all = vec![outputs];
        all.extend(state.tensors());
        all
    };
    let both = |((forward, backward), (first, second)): ((Output, Output), (State, State))| {
        let mut all = vec![forward, backward];
        all.extend(first.tensors());
        all.extend(second.tensors());
        all
    };
    let each = |(outputs, state): (Vec<Output>, State)| {
        let mut all = outputs;
        all.extend(state.tensors());
        all
    };
    let with_lengths = |cell: &dyn RnnCell| all(DynamicRnn::new(cell).sequence_length(&lengths).run(&x));
    cases.case("basic", &[&x], || all(dynamic_rnn(&BasicRnnCell::new(4), &x)))?;
    cases.case("basic_lstm", &[&x], || with_lengths(&BasicLstmCell::new(4).forget_bias(0.5)))?;
    cases.case("lstm", &[&x], || all(dynamic_rnn(&LstmCell::new(4), &x)))?;
    cases.case("lstm_all", &[&x], || {
        let cell = LstmCell::new(4).use_peepholes(true).num_proj(2).cell_clip(0.4).proj_clip(0.3);
        with_lengths(&cell)
    })?;
    cases.case("gru", &[&x], || with_lengths(&GruCell::new(4).activation(Activation::Relu)))?;
    cases.case("time_major", &[&by_time], || {
        let cell = GruCell::new(4);
        all(DynamicRnn::new(&cell).time_major(true).sequence_length(&lengths).scope("named").run(&by_time))
    })?;
    cases.case("multi", &[&x], || {
        let wrapped = DropoutWrapper::new(LstmCell::new(4)).output_keep_prob(1.0);
        with_lengths(&MultiRnnCell::new().cell(GruCell::new(3)).cell(wrapped))
    })?;
    cases.case("bidirectional", &[&x], || both(bidirectional_dynamic_rnn(&GruCell::new(4), &LstmCell::new(3), &x)))?;
    cases.case("bidirectional_lengths", &[&x], || {
        let (forward, backward) = (GruCell::new(4), GruCell::new(3));
        both(BidirectionalDynamicRnn::new(&forward, &backward).sequence_length(&lengths).run(&x))
    })?;
    cases.case("static", &[&x], || each(static_rnn(&BasicLstmCell::new(4), &steps)))?;
    cases.case("static_lengths", &[&x], || {
        each(StaticRnn::new(&GruCell::new(4)).sequence_length(&lengths).run(&steps))
    })?;
    cases.case("static_bidirectional", &[&x], || {
        let (forward, backward) = (GruCell::new(4), LstmCell::new(3));
        let network = StaticBidirectionalRnn::new(&forward, &backward).sequence_length(&lengths);
        let (mut outputs, (first, second)) = network.run(&steps);
        outputs.extend(first.tensors());
        outputs.extend(second.tensors());
        outputs
    })
}

fn loss_cases(cases: &Cases) -> Result<()> {
    let x = cases.placeholder("x", DType::Float, &[-1, 4]);
    let labels = cases.placeholder("labels", DType::Float, &[-1, 4]);
    let classes = cases.placeholder("classes", DType::Int64, &[-1]);
    let rows = cases.placeholder("row_weights", DType::Float, &[-1, 1]);
    let each = cases.placeholder("weights", DType::Float, &[-1, 4]);
    let vector = cases.placeholder("vector", DType::Float, &[-1]);
    let (y, p, l) = (Labels(&labels), Predictions(&x), Logits(&x));
    let case = |name: &str, loss: losses::Loss| cases.case(name, &[&x], || vec![loss.build()]);
    let probabilities = math::sigmoid(&x);
    case("absolute_difference", losses::absolute_difference(y, p))?;
    case("absolute_difference_weights", losses::absolute_difference(y, p).weights(&rows))?;
    case("cosine_distance", losses::cosine_distance(y, p, 1).weights(&rows))?;
    case("hinge", losses::hinge_loss(y, l).weights(2.0))?;
    case("huber", losses::huber_loss(y, p).delta(0.5).weights(&each))?;
    case("log", losses::log_loss(y, Predictions(&probabilities)).epsilon(1e-3))?;
    case("mean_squared_error", losses::mean_squared_error(y, p).weights(&each))?;
    case("pairwise", losses::mean_pairwise_squared_error(y, p))?;
    case("pairwise_weights", losses::mean_pairwise_squared_error(y, p).weights(&rows))?;
    case("sigmoid", losses::sigmoid_cross_entropy(y, l).label_smoothing(0.2).weights(&each))?;
    case("softmax", losses::softmax_cross_entropy(y, l).label_smoothing(0.1).weights(&vector))?;
    case("sparse_softmax", losses::sparse_softmax_cross_entropy(Labels(&classes), l).weights(&vector))?;
    for (name, reduction) in [
        ("none", Reduction::None),
        ("sum", Reduction::Sum),
        ("mean", Reduction::Mean),
        ("batch", Reduction::SumOverBatchSize),
        ("nonzero", Reduction::SumByNonzeroWeights),
    ] {
        case(name, losses::mean_squared_error(y, p).weights(&each).reduction(reduction).collection("others"))?;
    }
    case("weight_zero", losses::mean_squared_error(y, p).weights(0.0).without_collection())?;
    cases.out("total_loss", &losses::get_total_loss(&cases.graph, true));
    Ok(())
}

/// One step of training with constraints on the weights.
fn constraint_case(cases: &Cases) -> Result<()> {
    let x = cases.placeholder("x", DType::Float, &[-1, 3]);
    let made = [
        ("max_norm", constraints::max_norm(0.5, &[0])),
        ("unit_norm", constraints::unit_norm(&[0])),
        ("min_max_norm", constraints::min_max_norm(0.7, 0.9, 0.5, &[0])),
        ("non_negative", constraints::non_negative()),
    ];
    let mut y = x;
    for (name, constraint) in made {
        y = Dense::new(3).name(name).kernel_constraint(constraint).apply(&y);
    }
    let loss = math::reduce_sum(&math::square(&y), None, false);
    let optimizer = GradientDescentOptimizer::new(0.1);
    let gradients = optimizer.compute_gradients(&loss, &GradientOptions::default())?;
    let train = optimizer.apply_gradients(&gradients, None, None)?;
    cases.graph.op("NoOp").name("train").control(&train).build();
    Ok(())
}

fn metric_cases(cases: &Cases) -> Result<()> {
    let x = cases.placeholder("x", DType::Float, &[-1, 4]);
    let y = cases.placeholder("y", DType::Float, &[-1, 4]);
    let truths = cases.placeholder("truths", DType::Bool, &[-1, 4]);
    let guesses = cases.placeholder("guesses", DType::Bool, &[-1, 4]);
    let probabilities = cases.placeholder("probabilities", DType::Float, &[-1, 4]);
    let classes = cases.placeholder("classes", DType::Int64, &[-1]);
    let guessed = cases.placeholder("guessed", DType::Int64, &[-1]);
    let several = cases.placeholder("several", DType::Int64, &[-1, 2]);
    let each = cases.placeholder("weights", DType::Float, &[-1, 4]);
    let rows = cases.placeholder("row_weights", DType::Float, &[-1, 1]);
    let vector = cases.placeholder("vector", DType::Float, &[-1]);
    let case = |name: &str, metric: MetricBuilder| {
        let metric = variable_scope(&cases.graph, name, Reuse::New, |_| metric.build());
        cases.out(&format!("out_{name}/value"), &metric.value);
        cases.out(&format!("out_{name}/update"), &metric.update);
    };
    let (l, p) = (Labels(&y), Predictions(&x));
    case("mean", metrics::mean(&x));
    case("mean_weights", metrics::mean(&x).weights(&rows).name("loss"));
    case("percentage", metrics::percentage_below(&x, 0.3).weights(&each));
    case("accuracy", metrics::accuracy(Labels(&classes), Predictions(&guessed)));
    case("accuracy_weights", metrics::accuracy(Labels(&classes), Predictions(&guessed)).weights(&vector));
    let values = cases.placeholder("values", DType::Float, &[4, 2]);
    case("each", metrics::mean_tensor(&values));
    case("each_weights", metrics::mean_tensor(&values).weights(&vector));
    case("relative", metrics::mean_relative_error(l, p, &each));
    case("relative_weights", metrics::mean_relative_error(l, p, &y).weights(&rows));
    case("absolute", metrics::mean_absolute_error(l, p).weights(&each));
    case("squared", metrics::mean_squared_error(l, p));
    case("root", metrics::root_mean_squared_error(l, p).weights(&rows));
    case("cosine", metrics::mean_cosine_distance(l, p, 1));
    let (l, p) = (Labels(&truths), Predictions(&guesses));
    case("tp", metrics::true_positives(l, p).weights(&each));
    case("fp", metrics::false_positives(l, p));
    case("tn", metrics::true_negatives(l, p).weights(&rows));
    case("fn", metrics::false_negatives(l, p));
    case("precision", metrics::precision(l, p));
    case("precision_weights", metrics::precision(l, p).weights(&each));
    case("recall", metrics::recall(l, p).weights(&rows));
    let p = Predictions(&probabilities);
    let thresholds = [0.2, 0.5, 0.9];
    case("tp_at", metrics::true_positives_at_thresholds(l, p, &thresholds));
    case("fp_at", metrics::false_positives_at_thresholds(l, p, &thresholds).weights(&each));
    case("tn_at", metrics::true_negatives_at_thresholds(l, p, &thresholds));
    case("fn_at", metrics::false_negatives_at_thresholds(l, p, &thresholds));
    case("precision_at", metrics::precision_at_thresholds(l, p, &thresholds).weights(&rows));
    case("recall_at", metrics::recall_at_thresholds(l, p, &thresholds));
    case("auc", metrics::auc(l, p));
    case("auc_pr", metrics::auc(l, p).curve(Curve::PrecisionRecall).num_thresholds(20).weights(&each));
    for (name, summation) in [
        ("careful", Summation::CarefulInterpolation),
        ("minoring", Summation::Minoring),
        ("majoring", Summation::Majoring),
    ] {
        for (curve, kind) in [("roc", Curve::Roc), ("pr", Curve::PrecisionRecall)] {
            case(&format!("auc_{curve}_{name}"), metrics::auc(l, p).curve(kind).summation(summation));
        }
    }
    case("sensitivity", metrics::sensitivity_at_specificity(l, p, 0.6));
    case("specificity", metrics::specificity_at_sensitivity(l, p, 0.4).weights(&each).num_thresholds(30));
    let (l, p) = (Labels(&classes), Predictions(&guessed));
    case("per_class", metrics::mean_per_class_accuracy(l, p, 4));
    case("per_class_weights", metrics::mean_per_class_accuracy(l, p, 4).weights(&vector));
    case("iou", metrics::mean_iou(l, p, 4));
    case("iou_weights", metrics::mean_iou(l, p, 4).weights(&vector));
    let (l, p) = (Labels(&several), Predictions(&probabilities));
    case("precision_k", metrics::precision_at_k(l, p, 2));
    case("recall_k", metrics::recall_at_k(l, p, 3).weights(&vector));
    case("recall_k_one", metrics::recall_at_k(Labels(&classes), p, 2));
    case("precision_k_class", metrics::precision_at_k(l, p, 2).class_id(1).weights(&vector));
    case("recall_k_class", metrics::recall_at_k(l, p, 3).class_id(2));
    case("average_precision_k", metrics::average_precision_at_k(l, p, 3));
    case("average_precision_k_one", metrics::average_precision_at_k(Labels(&classes), p, 2).weights(&vector));
    let p = Predictions(&several);
    case("precision_top_k", metrics::precision_at_top_k(Labels(&classes), p));
    case("recall_top_k", metrics::recall_at_top_k(Labels(&classes), p).class_id(3).weights(&vector));
    Ok(())
}
