//! Layers share and name their variables as TensorFlow's do.

use ferroflow::layers::rnn::{GruCell, dynamic_rnn};
use ferroflow::layers::{Apply, Dense, regularizers};
use ferroflow::losses::{self, Labels, Predictions};
use ferroflow::ops::array::placeholder;
use ferroflow::train::{AdamOptimizer, Optimizer, global_variables_initializer};
use ferroflow::variable::{global_variables, trainable_variables};
use ferroflow::variable_scope::{Reuse, VariableScope, variable_scope};
use ferroflow::{DType, Graph, Output, PartialShape, Session, Tensor, initializers};

fn input(g: &Graph, dims: &[i64]) -> Output {
    placeholder(g, DType::Float, &PartialShape::from_dims(dims))
}

fn names(g: &Graph) -> Vec<String> {
    global_variables(g).unwrap().iter().map(|variable| variable.name()).collect()
}

#[test]
fn default_names_are_numbered_in_their_scope() {
    let g = Graph::new();
    let x = input(&g, &[-1, 2]);
    for _ in 0..2 {
        variable_scope(&g, "model", Reuse::Auto, |_| x.apply(&Dense::new(2)).apply(&Dense::new(2)));
    }
    x.apply(&Dense::new(2).use_bias(false));
    let expected =
        ["model/dense/kernel", "model/dense/bias", "model/dense_1/kernel", "model/dense_1/bias", "dense/kernel"];
    assert_eq!(names(&g), expected);
}

#[test]
fn a_layer_applied_twice_has_one_set_of_variables() {
    let g = Graph::new();
    let layer = Dense::new(3).kernel_regularizer(regularizers::l2(0.1));
    let x = input(&g, &[-1, 3]);
    VariableScope::new("first").run(&g, |_| layer.apply(&x));
    VariableScope::new("second").run(&g, |_| layer.apply(&x));
    assert_eq!(names(&g), ["first/dense/kernel", "first/dense/bias"]);
    assert_eq!(losses::get_regularization_losses(&g).len(), 1);
}

#[test]
fn one_layer_has_variables_in_each_graph() {
    let layer = Dense::new(3);
    for _ in 0..2 {
        let g = Graph::new();
        layer.apply(&input(&g, &[-1, 3]));
        assert_eq!(layer.variables(&g).len(), 2);
    }
}

#[test]
fn a_layer_that_is_not_trainable_is_left_alone() {
    let g = Graph::new();
    Dense::new(3).trainable(false).apply(&input(&g, &[-1, 3]));
    assert_eq!(names(&g).len(), 2);
    assert!(trainable_variables(&g).unwrap().is_empty());
}

#[test]
fn weights_that_do_not_fit_fail_the_step() {
    let g = Graph::new();
    let (x, weights) = (input(&g, &[-1, 2]), input(&g, &[-1, 1]));
    let loss = losses::mean_squared_error(Labels(&x), Predictions(&x)).weights(&weights).build();
    let session = Session::new(&g).unwrap();
    let rows = Tensor::from_slice(&[2, 2], &[1f32; 4]).unwrap();
    let wrong = Tensor::from_slice(&[3, 1], &[1f32; 3]).unwrap();
    let failed = session.runner().feed(&x, rows).feed(&weights, wrong).fetch(&loss).run().unwrap_err();
    assert!(failed.to_string().contains("can not be broadcast"), "{failed}");
}

#[test]
fn a_recurrent_network_learns_to_add() {
    let g = Graph::new();
    let x = input(&g, &[-1, 4, 1]);
    let y = input(&g, &[-1, 1]);
    let cell = GruCell::new(8).kernel_initializer(initializers::glorot_uniform(Some(1)));
    let (_, state) = dynamic_rnn(&cell, &x);
    let sum = state.tensors()[0].apply(&Dense::new(1).kernel_initializer(initializers::glorot_uniform(Some(2))));
    let loss = losses::mean_squared_error(Labels(&y), Predictions(&sum)).build();
    let train = AdamOptimizer::new(0.02).minimize(&loss, None).unwrap();
    let session = Session::new(&g).unwrap();
    session.run_ops(&[&global_variables_initializer(&g)]).unwrap();
    let inputs: Vec<f32> = (0..32).map(|k| ((k * 7) % 5) as f32 * 0.5 - 1.0).collect();
    let sums: Vec<f32> = inputs.chunks(4).map(|chunk| chunk.iter().sum()).collect();
    let inputs = Tensor::from_slice(&[8, 4, 1], &inputs).unwrap();
    let sums = Tensor::from_slice(&[8, 1], &sums).unwrap();
    let step = || {
        let runner = session.runner().feed(&x, inputs.clone()).feed(&y, sums.clone());
        runner.fetch(&loss).target(&train).run().unwrap()[0].to_scalar::<f32>().unwrap()
    };
    let first = step();
    for _ in 0..199 {
        step();
    }
    let last = step();
    assert!(last < 0.1 * first, "{first} became {last}");
}
