//! A mistake in a layer, a recurrent network, a loss or a metric is kept in the graph with the line of the program that made it.
//! Nothing panics, and what is built afterwards does nothing.

mod common;

use common::check_mistake;
use ferroflow::layers::rnn::*;
use ferroflow::layers::*;
use ferroflow::losses::{self, Logits, Predictions};
use ferroflow::metrics;
use ferroflow::prelude::*;
use ferroflow::variable_scope::{Reuse, VariableScope};

/// Checks a mistake that is blamed on a line of this file.
#[track_caller]
fn check(words: &str, code: &str, build: impl FnOnce(&Graph)) {
    check_mistake("layer_mistakes.rs", include_str!("layer_mistakes.rs"), words, code, build);
}

/// Uses an output that does nothing as a model might: in layers, networks, losses and metrics.
fn use_it(output: &Output) {
    let dense = output.apply(&Flatten::new()).apply(&Dense::new(3)).apply(&Dropout::new(0.5).training(true));
    let normal = BatchNormalization::new().training(true).apply(&dense);
    let _ = Conv2D::new(4, 3).apply(output).apply(&MaxPooling2D::new(2, 2));
    let (outputs, state) = dynamic_rnn(&LstmCell::new(4), output);
    let _ = bidirectional_dynamic_rnn(&GruCell::new(4), &GruCell::new(4), &outputs);
    let loss = losses::mean_squared_error(Labels(&normal), Predictions(&state.tensors()[0])).build();
    let metric = metrics::accuracy(Labels(&dense), Predictions(&loss)).build();
    assert!(metric.value.op.is_mistaken() && metric.update.op.is_mistaken());
    assert!(output.op.is_mistaken() && loss.op.is_mistaken() && normal.op.is_mistaken());
    assert_eq!(dense.dtype(), output.dtype());
}

fn x(g: &Graph, dims: &[i64]) -> Output {
    g.placeholder::<f32>(PartialShape::from_dims(dims))
}

macro_rules! mistakes {
    ($($name:ident: $words:literal, |$g:ident| $call:expr;)*) => {$(
        #[test]
        fn $name() {
            check($words, concat!(stringify!($name), ":"), |$g| use_it(&$call));
        }
    )*};
}

mistakes! {
    dense_of_unknown_features: "layer Dense of Placeholder:0 float [?,?]", |g| Dense::new(3).apply(&x(g, &[-1, -1]));
    dense_of_an_unknown_rank: "known rank", |g| Dense::new(3).apply(&g.placeholder::<f32>(PartialShape::unknown()));
    dense_without_units: "the number of units must be at least 1", |g| Dense::new(0).apply(&x(g, &[-1, 4]));
    dense_of_integers: "int32", |g| Dense::new(3).apply(&g.placeholder::<i32>([2, 3]));
    dense_in_a_chain: "the number of units must be at least 1", |g| x(g, &[-1, 4]).apply(&Flatten::new()).apply(&Dense::new(-1));
    dense_as_a_function: "must be known", |g| dense(&x(g, &[-1, -1]), 3);
    a_layer_behind_a_pointer: "must be known", |g| x(g, &[-1, -1]).apply(&*(Box::new(Dense::new(3)) as Box<dyn Layer>));
    conv2d_of_the_wrong_rank: "must have rank 4", |g| Conv2D::new(4, 3).apply(&x(g, &[-1, 4]));
    conv2d_that_is_larger_than_the_image: "layer Conv2D of ", |g| Conv2D::new(4, 5).apply(&x(g, &[-1, 3, 3, 1]));
    conv2d_with_strides_and_dilation: "layer Conv2D of ", |g| Conv2D::new(4, 3).strides(2).dilation_rate(2).apply(&x(g, &[-1, 9, 9, 1]));
    pooling_of_the_wrong_rank: "layer MaxPooling2D of ", |g| MaxPooling2D::new(2, 2).apply(&x(g, &[-1, 4]));
    dropout_of_everything: "`rate` must be", |g| Dropout::new(1.5).training(true).apply(&x(g, &[2]));
    batch_norm_of_unknown_channels: "layer BatchNormalization of ", |g| batch_normalization(&x(g, &[-1, -1]), true);
    embedding_of_no_size: "the size of an embedding", |g| embedding(&x(g, &[2]), 0, 3);
    recurrent_network_of_the_wrong_rank: "three axes", |g| dynamic_rnn(&GruCell::new(4), &x(g, &[-1, 4])).0;
    state_of_a_network_of_the_wrong_rank: "three axes", |g| dynamic_rnn(&LstmCell::new(4), &x(g, &[-1, 4])).1.tensors().remove(1);
    no_cells: "0 cells", |g| dynamic_rnn(&MultiRnnCell::new(), &x(g, &[-1, 5, 2])).0;
    lengths_that_are_floats: "integers", |g| DynamicRnn::new(&GruCell::new(4)).sequence_length(&x(g, &[-1])).run(&x(g, &[-1, 5, 2])).0;
    two_directions_of_the_wrong_rank: "three axes", |g| bidirectional_dynamic_rnn(&GruCell::new(4), &LstmCell::new(4), &x(g, &[2])).0.1;
    steps_of_the_wrong_rank: "each step must be (batch, features)", |g| static_rnn(&GruCell::new(4), &[x(g, &[2, 3, 4])]).0.remove(0);
    a_step_of_the_wrong_rank: "must be (batch, features)", |g| GruCell::new(4).step(&x(g, &[2]), &State::Tensor(x(g, &[2, 4]))).0;
    a_state_of_another_cell: "one tensor", |g| GruCell::new(4).step(&x(g, &[2, 3]), &State::Lstm { c: x(g, &[2, 4]), h: x(g, &[2, 4]) }).0;
    labels_that_dont_fit: "incompatible", |g| losses::mean_squared_error(Labels(&x(g, &[-1, 3])), Predictions(&x(g, &[-1, 4]))).build();
    weights_that_dont_fit: "can not be broadcast", |g| losses::mean_squared_error(Labels(&x(g, &[-1, 4])), Predictions(&x(g, &[-1, 4]))).weights(x(g, &[3])).build();
    logits_that_dont_fit: "loss softmax_cross_entropy_loss of ", |g| losses::softmax_cross_entropy(Labels(&x(g, &[-1, 3])), Logits(&x(g, &[-1, 4]))).build();
    no_losses: "no losses to add up", |g| losses::get_total_loss(g, true);
    a_metric_of_shapes_that_dont_fit: "metric mean_squared_error of ", |g| metrics::mean_squared_error(Labels(&x(g, &[3])), Predictions(&x(g, &[4]))).build().value;
    a_mean_of_tensors_of_unknown_shape: "must be known: it is [?,2]", |g| metrics::mean_tensor(&x(g, &[-1, 2])).build().value;
    average_precision_of_nothing: "k must be at least 1", |g| metrics::average_precision_at_k(Labels(&g.placeholder::<i64>([-1])), Predictions(&x(g, &[-1, 2])), 0).build().value;
}

#[test]
fn a_name_that_is_taken() {
    check("already exists", "let again", |g| {
        Dense::new(3).name("fc").apply(&x(g, &[-1, 4]));
        let again = Dense::new(3).name("fc").apply(&x(g, &[-1, 4]));
        use_it(&again);
    });
}

#[test]
fn reuse_of_what_isnt_there() {
    check("does not exist", "let reused", |g| {
        VariableScope::new("model").reuse(Reuse::Existing).run(g, |g| {
            let reused = Dense::new(3).apply(&x(g, &[-1, 4]));
            use_it(&reused);
        });
    });
}

#[test]
fn reuse_with_another_shape() {
    check("Trying to share variable fc/kernel", "let narrower", |g| {
        Dense::new(3).name("fc").apply(&x(g, &[-1, 4]));
        let narrower = Dense::new(2).name("fc").reuse(Reuse::Existing).apply(&x(g, &[-1, 4]));
        use_it(&narrower);
    });
}

#[test]
fn steps_without_inputs_spoil_what_uses_them() {
    check("a recurrent network without steps", "static_rnn(&GruCell::new(4), &[])", |g| {
        assert!((x(g, &[2, 4]) + &static_rnn(&GruCell::new(4), &[]).1.tensors()[0]).op.is_mistaken());
    });
}

#[test]
fn a_mistake_in_a_layer_of_ones_own_is_blamed_on_its_line() {
    struct Wrong;
    impl Layer for Wrong {
        fn apply(&self, x: &Output) -> Output {
            x + x.graph().constant([1f32, 2.0, 3.0])
        }
    }
    check("Dimensions must be equal", "x + x.graph()", |g| {
        assert!(x(g, &[2]).apply(&Wrong).op.is_mistaken());
    });
}
