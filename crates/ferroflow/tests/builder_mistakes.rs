//! A mistake in a program fails at the call that makes it: the panic names this file and the line of the call.

use ferroflow::ops::{array, math, nn};
use ferroflow::{DType, Graph, Output, PartialShape, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

/// One hook serves the process, so the checks take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Checks that a call panics, says these words, and is blamed on the line it is on.
#[track_caller]
fn check(words: &str, call: impl FnOnce(&Graph) -> u32) {
    static SEEN: Mutex<Option<(String, u32, String)>> = Mutex::new(None);
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(|info| {
        let location = info.location().unwrap();
        let message = info.payload().downcast_ref::<String>().cloned().unwrap_or_default();
        *SEEN.lock().unwrap() = Some((location.file().to_owned(), location.line(), message));
    }));
    let caller = std::panic::Location::caller().line();
    let g = Graph::new();
    let result = catch_unwind(AssertUnwindSafe(|| call(&g)));
    std::panic::set_hook(previous);
    assert!(result.is_err(), "nothing was found to be wrong");
    let (file, line, message) = SEEN.lock().unwrap().take().unwrap();
    assert!(file.ends_with("builder_mistakes.rs"), "{file}:{line}: {message}");
    assert!((caller..caller + 100).contains(&line), "{file}:{line} for a call at {caller}: {message}");
    assert!(message.contains(words), "{message}");
}

fn floats(g: &Graph, dims: &[i64]) -> Output {
    let count = dims.iter().product::<i64>() as usize;
    g.constant_tensor(&Tensor::from_slice(dims, &vec![1f32; count]).unwrap())
}

fn int(g: &Graph) -> Output {
    g.constant_tensor(&Tensor::scalar(1i32))
}

macro_rules! mistakes {
    ($($name:ident: $words:literal, |$g:ident| $call:expr;)*) => {$(
        #[test]
        fn $name() {
            check($words, |$g| {
                let _ = $call;
                0
            });
        }
    )*};
}

mistakes! {
    addition_of_shapes_that_dont_fit: "Dimensions must be equal, but are 2 and 3", |g| floats(g, &[2]) + floats(g, &[3]);
    addition_of_types_that_dont_fit: "does not match type", |g| floats(g, &[2]) + int(g);
    a_product_of_matrices_that_dont_fit: "Dimensions must be equal, but are 3 and 2", |g| math::matmul(&floats(g, &[2, 3]), &floats(g, &[2, 3]));
    a_product_of_vectors: "rank 2", |g| math::matmul(&floats(g, &[2]), &floats(g, &[2]));
    a_product_of_integers_and_floats: "does not match type", |g| math::matmul(&floats(g, &[2, 2]), &int(g));
    a_bias_of_another_length: "4", |g| nn::bias_add(&floats(g, &[2, 3]), &floats(g, &[4]));
    a_reshape_to_another_size: "6", |g| array::reshape(&floats(g, &[2, 3]), &g.constant_tensor(&Tensor::vector(&[4i32])));
    a_concatenation_of_ranks_that_differ: "Shapes must be equal rank, but are 2 and 1", |g| array::concat(&[floats(g, &[2, 3]), floats(g, &[2])], 0);
    a_sum_over_an_axis_that_isnt_there: "5", |g| math::reduce_sum(&floats(g, &[2, 3]), Some(&[5]), false);
    a_gather_with_float_indices: "attr 'Tindices' of float is not in the list of allowed values", |g| array::gather(&floats(g, &[2, 3]), &floats(g, &[1]), 0);
    relu_of_strings: "attr 'T' of string is not in the list of allowed values", |g| nn::relu(&g.constant_tensor(&Tensor::string("text")));
    a_convolution_with_other_channels: "Depth of input (2) is not a multiple of input depth of filter (3)", |g| g.op("Conv2D").input(&floats(g, &[1, 4, 4, 2])).input(&floats(g, &[3, 3, 3, 8])).attr("strides", [1i64, 1, 1, 1].as_slice()).attr("padding", "SAME").output();
    an_op_that_isnt_there: "Op type not registered 'Nonsense'", |g| g.op("Nonsense").output();
    a_missing_attribute: "dtype", |g| g.op("Placeholder").output();
    a_missing_input: "needs an input", |g| g.op("Add").input(&int(g)).output();
    a_device_that_isnt_one: "Malformed device specification '/nonsense:x:y:z'", |g| g.device("/nonsense:x:y:z", |_| ());
    a_predicate_that_isnt_bool: "not bool", |g| g.cond(&int(g), |_| vec![], |_| vec![]);
    a_shape_that_contradicts: "must be equal, but are 2 and 3", |g| array::placeholder(g, DType::Float, &PartialShape::from_dims(&[2])).set_shape(&PartialShape::from_dims(&[3])).unwrap_or_else(|status| panic!("{status}"));
}
