//! A mistake in a program is kept in the graph, and names this file and the line of the call: building neither panics nor needs `?`,
//! and whatever runs or differentiates the graph returns the mistake.

mod common;

use common::check_mistake;
use ferroflow::ops::{array, math, nn};
use ferroflow::prelude::*;
use ferroflow::train::GradientDescentOptimizer;

/// Checks a mistake that is blamed on a line of this file; that everything after it is harmless; and that everything which returns
/// a `Result` returns the mistake.
#[track_caller]
fn check(words: &str, code: &str, build: impl FnOnce(&Graph)) {
    let source = include_str!("builder_mistakes.rs");
    let (g, mistake) = check_mistake("builder_mistakes.rs", source, words, code, build);
    // A second mistake doesn't replace the first.
    let _ = g.op("AnotherMistake").output();
    assert_eq!(g.finish().unwrap_err(), mistake);
    let x = Variable::builder(&g, "x").build_constant(&Tensor::scalar(1f32));
    let loss = x.value() * 2.0;
    assert_eq!(g.gradients(&[loss.clone()], &[x.value().clone()]).err(), Some(mistake.clone()));
    assert_eq!(GradientDescentOptimizer::new(0.1).minimize(&loss, None).err(), Some(mistake));
}

/// Uses a poisoned output in every way that a program might.
fn use_it(output: &Output) {
    let g = output.graph();
    let sum = output + 1.0;
    let _ = (sum.matmul(output).relu().mean(), sum.name(), sum.dtype(), sum.shape(), sum.constant_value());
    let _ = (output.op.attrs(), output.op.device(), output.op.inputs(), output.op.output(3), output.op.input(2));
    let _ = g.cond(output, |_| vec![sum.clone()], |_| vec![output.clone()])[0].name();
    let _ = g.while_loop(&[sum.clone()], |_, _| output.clone(), |_, inside| inside.to_vec())[0].name();
    let _ = array::concat(&[output.clone(), sum.clone()], 0);
    let _ = Variable::new(g, "of_a_mistake", output);
    g.control_dependencies(&[output.op.clone()], |g| g.constant(1f32));
    g.colocate_with(&output.op, |g| g.constant(1f32));
    g.add_to_collection("mistakes", output);
    assert!(output.set_shape(&PartialShape::from([2])).is_err());
    assert!(output.op.is_mistaken() && sum.op.is_mistaken());
}

fn floats(g: &Graph, dims: &[i64]) -> Output {
    let count = dims.iter().product::<i64>() as usize;
    g.constant(Tensor::from_slice(dims, &vec![1f32; count]))
}

fn int(g: &Graph) -> Output {
    g.constant(1)
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
    addition_of_shapes_that_dont_fit: "Dimensions must be equal, but are 2 and 3", |g| floats(g, &[2]) + floats(g, &[3]);
    addition_of_types_that_dont_fit: "does not match type", |g| floats(g, &[2]) + int(g);
    a_number_that_the_type_doesnt_have: "0.5 is not a value of type int32", |g| int(g) + 0.5;
    a_product_of_matrices_that_dont_fit: "Dimensions must be equal, but are 3 and 2", |g| math::matmul(&floats(g, &[2, 3]), &floats(g, &[2, 3]));
    a_product_as_a_method: "Dimensions must be equal, but are 3 and 2", |g| floats(g, &[2, 3]).matmul(&floats(g, &[2, 3]));
    a_product_of_vectors: "rank 2", |g| math::matmul(&floats(g, &[2]), &floats(g, &[2]));
    a_product_of_integers_and_floats: "does not match type", |g| math::matmul(&floats(g, &[2, 2]), &int(g));
    labels_of_another_rank: "Rank of labels (received 1) should equal rank of logits minus 1 (received 3)", |g| floats(g, &[2, 3, 4]).sparse_softmax_cross_entropy(Labels(&int(g).reshape([-1])));
    a_bias_of_another_length: "4", |g| nn::bias_add(&floats(g, &[2, 3]), &floats(g, &[4]));
    a_reshape_to_another_size: "6", |g| array::reshape(&floats(g, &[2, 3]), &g.constant([4]));
    a_concatenation_of_ranks_that_differ: "Shapes must be equal rank, but are 2 and 1", |g| array::concat(&[floats(g, &[2, 3]), floats(g, &[2])], 0);
    a_sum_over_an_axis_that_isnt_there: "5", |g| math::reduce_sum(&floats(g, &[2, 3]), Some(&[5]), false);
    a_gather_with_float_indices: "attr 'Tindices' of float is not in the list of allowed values", |g| array::gather(&floats(g, &[2, 3]), &floats(g, &[1]), 0);
    relu_of_strings: "attr 'T' of string is not in the list of allowed values", |g| nn::relu(&g.constant("text"));
    dropout_of_everything: "must be in the range [0, 1), got 1", |g| nn::dropout(&floats(g, &[2]), 1.0, None);
    dropout_of_strings: "string", |g| nn::dropout(&g.constant("text"), 0.5, None);
    a_convolution_with_other_channels: "Depth of input (2) is not a multiple of input depth of filter (3)", |g| g.op("Conv2D").input(&floats(g, &[1, 4, 4, 2])).input(&floats(g, &[3, 3, 3, 8])).attr("strides", [1i64, 1, 1, 1].as_slice()).attr("padding", "SAME").output();
    a_padding_that_isnt_one: "padding", |g| g.op("Conv2D").input(&floats(g, &[1, 4, 4, 3])).input(&floats(g, &[3, 3, 3, 8])).attr("strides", [1i64, 1, 1, 1].as_slice()).attr("padding", "MORE").output();
    an_op_that_isnt_there: "Op type not registered 'Nonsense'", |g| g.op("Nonsense").output();
    a_missing_attribute: "dtype", |g| g.op("Placeholder").output();
    a_missing_input: "needs an input", |g| g.op("Add").input(&int(g)).output();
    a_name_that_isnt_one: "'a name' is not a valid node name", |g| g.op("NoOp").name("a name").output();
    an_output_that_isnt_there: "does not have output 7", |g| int(g).op.output(7);
    an_input_that_isnt_there: "has no input 1", |g| int(g).op.input(1);
    a_constant_that_doesnt_fit_its_shape: "1 values don't fill shape [2]", |g| g.constant(Tensor::from_slice(&[2], &[1f32]));
    a_predicate_that_isnt_bool: "not bool", |g| g.cond(&int(g), |g| vec![int(g)], |g| vec![int(g)]).remove(0);
    branches_that_differ: "return 1 and 0 outputs", |g| g.cond(&g.constant(true), |g| vec![int(g)], |_| vec![]).remove(0);
    a_loop_whose_body_forgets_a_variable: "its body returns 0", |g| g.while_loop(&[int(g)], |_, inside| inside[0].less(3), |_, _| vec![]).remove(0);
    an_input_of_another_graph: "belongs to another graph", |g| int(g) + int(&Graph::new());
    a_part_of_a_split_that_fails: "3", |g| array::split(&floats(g, &[3]), 2, 0).remove(1);
}

#[test]
fn a_device_that_isnt_one() {
    check("Malformed device specification '/nonsense:x:y:z'", "g.device", |g| {
        g.device("/nonsense:x:y:z", |g| g.constant(1));
    });
}

#[test]
fn a_scope_that_isnt_one() {
    check("'a scope' is not a valid node name", "g.name_scope(\"a scope", |g| {
        g.name_scope("a scope", |g| g.constant(1));
    });
}

#[test]
fn a_control_of_another_graph() {
    let other = Graph::new().constant(1).op;
    check("belongs to another graph", "g.control_dependencies(&[other]", |g| {
        g.control_dependencies(&[other], |g| g.constant(1));
    });
}

#[test]
fn a_mistake_in_a_scope_is_blamed_on_its_own_line() {
    check("Dimensions must be equal", "let _ = floats", |g| {
        g.name_scope("layer", |g| {
            let _ = floats(g, &[2]) + floats(g, &[3]);
        });
    });
}

#[test]
fn nothing_to_concatenate() {
    check("concat needs at least one tensor", "array::concat(&[], 0)", |g| {
        assert!((int(g) + array::concat(&[], 0)).op.is_mistaken());
    });
}

#[test]
fn a_mistake_names_op_inputs_and_shapes() {
    let g = Graph::new();
    let _ = floats(&g, &[2, 3]).matmul(&floats(&g, &[4, 5]));
    let mistake = g.finish().unwrap_err();
    for words in ["op MatMul of ", "Const:0 float [2,3]", "Const_1:0 float [4,5]"] {
        assert!(mistake.message().contains(words), "{mistake}");
    }
}

#[test]
fn a_mistake_after_the_first_run_is_returned_by_the_next() {
    let g = Graph::new();
    let one = int(&g);
    let session = Session::new(&g).unwrap();
    assert_eq!(session.eval::<i32>(&one).unwrap(), 1);
    let wrong = &one + floats(&g, &[2]);
    assert_eq!(session.run(&[&wrong]).err(), g.finish().err());
    assert!(session.run(&[&one]).is_err());
}

#[test]
fn a_session_refuses_what_belongs_to_another_graph() {
    let (g, other) = (Graph::new(), Graph::new());
    let (_, foreign) = (int(&g), int(&other));
    let session = Session::new(&g).unwrap();
    assert!(session.run(&[&foreign]).unwrap_err().message().contains("belongs to another graph"));
    assert!(session.runner().feed(&foreign, 1).run().unwrap_err().message().contains("belongs to another graph"));
    assert!(session.run_ops(&[&foreign.op]).unwrap_err().message().contains("belongs to another graph"));
}

#[test]
fn a_feed_that_is_no_tensor_fails_the_run() {
    let g = Graph::new();
    let x = g.placeholder::<i32>([2, 2]);
    let ragged = vec![vec![1, 2], vec![3]];
    let session = Session::new(&g).unwrap();
    assert!(session.runner().feed(&x, ragged).fetch(&x).run().unwrap_err().message().contains("Placeholder:0"));
}
