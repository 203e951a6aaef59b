//! A mistake in variables by name, summaries, input by queues, gradient clipping, learning rates and moving averages is kept in the
//! graph with the line of the program that made it. Nothing panics, and what is built afterwards does nothing.

mod common;

use common::check_mistake;
use ferroflow::input::*;
use ferroflow::prelude::*;
use ferroflow::train::*;
use ferroflow::variable::{Kind, create_global_step};
use ferroflow::variable_scope::{FixedSizePartitioner, Partitioner, Reuse, get_variable, variable_scope};
use ferroflow::{initializers, summary};

/// Checks a mistake that is blamed on a line of this file.
#[track_caller]
fn check(words: &str, code: &str, build: impl FnOnce(&Graph)) {
    let source = include_str!("training_mistakes.rs");
    let (g, mistake) = check_mistake("training_mistakes.rs", source, words, code, build);
    // What makes something of a whole graph returns it too.
    assert_eq!(Supervisor::builder(&g).build().err(), Some(mistake.clone()));
    assert_eq!(Scaffold::new().finalize(&g).err(), Some(mistake));
}

/// Uses an output that does nothing as a program might that goes on building.
fn use_it(output: &Output) {
    let g = output.graph();
    let v = Variable::new(g, "of_a_mistake", output);
    get_variable(g, "another", &[2]).get().assign(output);
    let rate = exponential_decay(output, &create_global_step(g), 10.0, 0.5, true);
    summary::scalar("rate", &rate);
    summary::histogram("output", output);
    summary::merge_all(g);
    let rows = input_producer(output, &InputOptions::default());
    let row = rows.dequeue(&[output.dtype()]).output(0);
    let batches = batch(&[row, output.clone()], &BatchOptions::default());
    assert!(batches.len() == 2 && batches.iter().all(|batch| batch.op.is_mistaken()));
    assert!(clip_by_value(&clip_by_norm(output, 1.0), 0.0, rate).op.is_mistaken());
    let (clipped, norm) = clip_by_global_norm(&[Some(output.clone().into()), None], 1.0);
    assert!(clipped.len() == 2 && norm.op.is_mistaken());
    ExponentialMovingAverage::new(0.9, None).apply(g, &[v]);
    assert!(global_variables_initializer(g).is_mistaken());
    assert!(report_uninitialized_variables(g, None).op.is_mistaken());
}

fn x(g: &Graph, dims: &[i64]) -> Output {
    g.placeholder::<f32>(PartialShape::from_dims(dims))
}

/// A partitioner that says something whatever it is asked for.
struct Always(&'static [i64]);

impl Partitioner for Always {
    fn parts(&self, _shape: &Shape, _dtype: DType) -> Vec<i64> {
        self.0.to_vec()
    }
}

#[track_caller]
fn in_parts(g: &Graph, dims: &[i64], partitioner: &dyn Partitioner) -> Output {
    get_variable(g, "table", dims).get_partitioned(partitioner).as_tensor()
}

/// Input options without an epoch's worth of elements.
fn no_epochs() -> InputOptions {
    InputOptions { num_epochs: Some(0), ..InputOptions::default() }
}

#[track_caller]
fn two_sources(g: &Graph) -> Output {
    let (first, second) = ([x(g, &[2])], [x(g, &[3])]);
    batch_join(&[&first, &second], &BatchOptions::default()).remove(0)
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
    a_variable_of_a_negative_size: "-2", |g| get_variable(g, "w", &[-2]).get().read();
    a_variable_with_a_first_value_that_doesnt_fit: "the first value of variable 'w'", |g| get_variable(g, "w", &[3]).initializer(initializers::tensor(Tensor::vector(&[1f32, 2.0]))).get().read();
    a_resource_variable_of_a_negative_size: "variable w", |g| get_variable(g, "w", &[-2]).kind(Kind::Resource).get().read();
    a_histogram_of_texts: "summary histogram of ", |g| summary::histogram("texts", &g.constant("text"));
    pictures_that_are_texts: "summary image of ", |g| summary::image("pictures", &g.constant("text"), 3);
    a_merge_of_nothing: "summary merge", |g| summary::merge(g, &[]);
    a_merge_of_numbers: "summary merge of ", |g| summary::merge(g, &[x(g, &[])]);
    no_names_of_files: "requires a non-null input tensor", |g| string_input_producer(g, &[], &InputOptions::default()).dequeue(&[DType::Float]).output(0);
    rows_of_a_scalar: "input_producer of Placeholder:0 float []", |g| input_producer(&x(g, &[]), &InputOptions { shuffle: false, ..InputOptions::default() }).size();
    numbers_for_no_epoch: "num_epochs must be > 0 not 0.", |g| range_input_producer(g, 3, &no_epochs()).handle().clone();
    a_limit_of_no_epochs: "limit_epochs of ", |g| limit_epochs(&x(g, &[]), Some(0));
    a_queue_without_room: "a queue without capacity", |g| range_input_producer(g, 3, &InputOptions { capacity: 0, ..InputOptions::default() }).size();
    batches_of_unknown_sizes: "All shapes must be fully defined", |g| batch(&[x(g, &[-1])], &BatchOptions::default()).remove(0);
    batches_without_elements: "must be positive", |g| batch(&[x(g, &[])], &BatchOptions { batch_size: 0, ..BatchOptions::default() }).remove(0);
    batches_of_rows_that_arent_there: "must have rows", |g| batch(&[x(g, &[])], &BatchOptions { enqueue_many: true, ..BatchOptions::default() }).remove(0);
    shuffled_batches_that_are_padded: "shuffled batches can't be padded", |g| shuffle_batch(&[x(g, &[2])], &BatchOptions { dynamic_pad: true, ..BatchOptions::default() }, &ShuffleOptions::default()).remove(0);
    sources_of_different_lengths: "the same number of tensors", |g| shuffle_batch_join(&[&[x(g, &[2])], &[]], &BatchOptions::default(), &ShuffleOptions::default()).remove(0);
    sources_of_different_shapes: "sources with shapes [2] and [3]", |g| two_sources(g);
    a_reader_of_no_queue: "op ReaderReadV2 of ", |g| Reader::whole_file(g).read(&Queue::new(x(g, &[]))).1;
    a_reader_of_many_of_no_queue: "op ReaderReadUpToV2 of ", |g| Reader::text_line(g, 0).read_up_to(&Queue::new(x(g, &[])), 3).1;
    an_element_of_another_type: "op QueueEnqueueV2 of ", |g| Queue::new(x(g, &[])).enqueue(&[]).output(0);
    as_many_elements_as_half: "QueueDequeueManyV2", |g| range_input_producer(g, 3, &InputOptions::default()).dequeue_many(&x(g, &[]), &[DType::Int32], false).output(0);
    a_limit_of_another_shape: "clip_by_value of ", |g| clip_by_value(&x(g, &[2]), 0.0, x(g, &[3]));
    the_norm_of_integers: "clip_by_norm of ", |g| clip_by_norm(&g.placeholder::<i32>([2]), 1.0);
    the_common_norm_of_integers: "global_norm of ", |g| global_norm(&[Some(g.placeholder::<i32>([2]).into())]);
    gradients_that_are_integers: "clip_by_global_norm of ", |g| clip_by_global_norm(&[Some(g.placeholder::<i32>([2]).into())], 1.0).1;
    rates_without_boundaries: "The length of boundaries should be 1 less", |g| piecewise_constant(&create_global_step(g), &[], &[]);
    a_rate_that_is_a_text: "learning rate CosineDecay of ", |g| cosine_decay(g.constant("fast"), &create_global_step(g), 10.0, 0.0);
    a_table_in_too_many_parts: "can't be split into 7 parts", |g| in_parts(g, &[3, 2], &Always(&[7, 1]));
    a_table_cut_along_both_axes: "along one axis only", |g| in_parts(g, &[3, 2], &Always(&[2, 2]));
    a_table_cut_along_axes_that_arent_there: "the partitioner returned 3 axes", |g| in_parts(g, &[3, 2], &Always(&[1, 1, 2]));
    a_number_cut_into_parts: "can't be split into 1 parts", |g| in_parts(g, &[], &FixedSizePartitioner { num_shards: 2, axis: 0 });
}

#[test]
fn a_name_that_is_taken() {
    check("Variable w already exists", "let again", |g| {
        get_variable(g, "w", &[2]).get();
        let again = get_variable(g, "w", &[2]).get();
        use_it(again.value());
    });
}

#[test]
fn a_name_that_isnt_there() {
    check("Variable model/w does not exist", "let reused", |g| {
        variable_scope(g, "model", Reuse::Existing, |g| {
            let reused = get_variable(g, "w", &[2]).get();
            use_it(&reused.read());
        });
    });
}

#[test]
fn a_name_of_another_shape() {
    check("Trying to share variable model/w", "let other", |g| {
        variable_scope(g, "model", Reuse::New, |g| get_variable(g, "w", &[2]).get());
        let other = variable_scope(g, "model", Reuse::Existing, |g| get_variable(g, "w", &[3]).get());
        use_it(&other.read());
    });
}

#[test]
fn batches_of_nothing_spoil_what_uses_them() {
    check("there are no tensors to batch", "batch(&[], &BatchOptions::default())", |g| {
        assert!((x(g, &[]) + &batch(&[], &BatchOptions::default())[0]).op.is_mistaken());
    });
}

#[test]
fn the_norm_of_nothing_spoils_what_uses_it() {
    check("there are no gradients", "global_norm(&[None])", |g| {
        assert!((x(g, &[]) + global_norm(&[None])).op.is_mistaken());
    });
}

#[test]
fn averages_of_integers() {
    check("The variables must be half, float, or double: count", ".apply(g", |g| {
        let count = Variable::new(g, "count", &g.constant(1i32));
        assert!(ExponentialMovingAverage::new(0.9, None).apply(g, &[count]).is_mistaken());
    });
}

#[test]
fn averages_that_are_there() {
    check("Moving average already computed for: w", "let second", |g| {
        let w = [Variable::new(g, "w", &g.constant(1f32))];
        let averages = ExponentialMovingAverage::new(0.9, None);
        assert!(!averages.apply(g, &w).is_mistaken());
        let second = averages.apply(g, &w);
        assert!(second.is_mistaken());
    });
}

#[test]
fn a_runner_of_no_queue() {
    check("op QueueCloseV2 of Placeholder:0 float []", "QueueRunner::new", |g| {
        add_queue_runner(g, QueueRunner::new(&x(g, &[]), &[]));
    });
}
