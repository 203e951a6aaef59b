//! Pipelines of `ferroflow::data`, for the tests that compare them with tf.data: writes each as a GraphDef, and what a session of this
//! process draws from it as JSON, to a directory.
//!
//! The directory has the files that the pipelines read: `lines.txt`, `more.txt`, `rows.csv`, `numbers.bin`, `examples.tfrecord`.

use ferroflow::data::{CsvOptions, Dataset, FixedLenFeature, PaddedBatch, RecordOptions};
use ferroflow::ops::array;
use ferroflow::prelude::*;
use ferroflow::{Code, Result};
use prost::Message;
use std::path::Path;

/// No pipeline is longer.
const DRAWN_MAX: usize = 100;

fn main() -> Result<()> {
    let directory = std::env::args().nth(1).ok_or_else(|| Status::invalid_argument("which directory?"))?;
    let file = |name: &str| format!("{directory}/{name}");
    for (name, build) in PIPELINES {
        let graph = Graph::new();
        let dataset = build(&graph, &file);
        let (iterator, once) = (dataset.make_initializable_iterator(), dataset.make_one_shot_iterator());
        let (next, next_once) = (iterator.get_next(), once.get_next());
        let context = |status: Status| status.context(*name);
        let session = Session::new(&graph).map_err(context)?;
        let initializer = iterator.initializer().ok_or_else(|| Status::internal("no initializer"))?;
        session.run_ops(&[initializer]).map_err(context)?;
        let drawn = draw(&session, &next).map_err(context)?;
        let names = |outputs: &[Output]| list(outputs.iter().map(|output| text(&output.name())));
        let json = format!(
            "{{\"initializer\": {}, \"next\": {}, \"next_once\": {}, \"elements\": {}}}",
            text(&initializer.name()),
            names(&next),
            names(&next_once),
            list(drawn.into_iter())
        );
        let write = |path: &str, bytes: &[u8]| {
            std::fs::write(Path::new(&directory).join(path), bytes)
                .map_err(|error| Status::unavailable(format!("{path}: {error}")))
        };
        write(&format!("{name}.json"), json.as_bytes())?;
        write(&format!("{name}.pb"), &graph.to_graph_def().encode_to_vec())?;
    }
    Ok(())
}

type File<'a> = &'a dyn Fn(&str) -> String;
type Build = fn(&Graph, File<'_>) -> Dataset;

const PIPELINES: &[(&str, Build)] = &[
    ("range", |g, _| Dataset::range_by(g, 3, 20, 4)),
    ("slices", |g, _| Dataset::from_tensor_slices(g, ([[1f32, 2.0], [3.0, 4.0], [5.0, 6.0]], ["a", "b", "c"]))),
    ("tensors", |g, _| Dataset::from_tensors(g, ([1i64, 2], 7i32))),
    ("take_skip_repeat", |g, _| Dataset::range(g, 10).skip(2).take(3).repeat(2)),
    ("shard", |g, _| Dataset::range(g, 10).shard(3, 1)),
    ("concatenate", |g, _| Dataset::range(g, 3).concatenate(&Dataset::range_by(g, 10, 12, 1))),
    ("zip", |g, _| Dataset::zip(&[&Dataset::range(g, 5), &Dataset::from_tensor_slices(g, [1f32, 2.0, 3.0])])),
    ("enumerate", |g, _| Dataset::from_tensor_slices(g, ["x", "y"]).enumerate(5)),
    ("shuffle", |g, _| Dataset::range(g, 20).shuffle(7, Some(42), true)),
    ("shuffle_again", |g, _| Dataset::range(g, 8).shuffle(8, Some(3), true).repeat(3)),
    ("shuffle_once", |g, _| Dataset::range(g, 8).shuffle(8, Some(3), false).repeat(3)),
    ("shuffle_by_the_graph", |g, _| {
        g.set_random_seed(7);
        Dataset::range(g, 8).shuffle(8, Some(11), true)
    }),
    ("batch", |g, _| Dataset::range(g, 7).batch(3, false)),
    ("batch_whole", |g, _| Dataset::range(g, 7).batch(3, true)),
    ("padded_batch", |g, _| ragged(g, 6).padded_batch(2, &PaddedBatch::default())),
    ("padded_batch_to", |g, _| {
        let options = PaddedBatch {
            shapes: Some(vec![PartialShape::from_dims(&[8])]),
            values: Some(vec![Tensor::scalar(-1i64)]),
            drop_remainder: true,
        };
        ragged(g, 5).padded_batch(2, &options)
    }),
    ("unbatch", |g, _| Dataset::from_tensor_slices(g, [[1i64, 2], [3, 4]]).unbatch()),
    ("window", |g, _| {
        Dataset::range(g, 7).window(3, 2, 1, true).flat_map(|_, window| {
            Dataset::from_variant(&window[0], &[DType::Int64], &[PartialShape::scalar()]).batch(3, false)
        })
    }),
    ("cache", |g, _| Dataset::range(g, 4).cache("").repeat(2)),
    ("prefetch", |g, _| Dataset::range(g, 4).prefetch(2)),
    ("map", |g, _| Dataset::range(g, 5).map(|x| (&x[0] * 2, x[0].square()))),
    ("map_with", |g, _| {
        let factor = g.constant(10i64);
        Dataset::range(g, 5).map_with(&[&factor], |x, outside| &x[0] * &outside[0])
    }),
    ("parallel_map", |g, _| Dataset::range(g, 20).parallel_map(4, |x| &x[0] + 1)),
    ("filter", |g, _| Dataset::range(g, 10).filter(|x| x[0].greater(6))),
    ("flat_map", |g, _| Dataset::range(g, 4).flat_map(|_, x| repeated(&x[0]))),
    ("nested", |g, _| Dataset::range(g, 3).flat_map(|g, _| Dataset::range(g, 2).map(|y| &y[0] + 5)).map(|z| &z[0] * 3)),
    ("interleave", |g, _| Dataset::range(g, 5).interleave(2, 3, |_, x| repeated(&x[0]))),
    ("bucket_by_length", |g, _| {
        ragged(g, 12).bucket_by_length(&[3, 6], &[2, 3, 4], &PaddedBatch::default(), |x| {
            array::reshape_to(&array::shape(&x[0]), &[])
        })
    }),
    ("text_lines", |g, file| {
        Dataset::text_lines(g, &[&file("lines.txt"), &file("more.txt")], &RecordOptions::default())
    }),
    ("csv", |g, file| {
        let defaults = [Tensor::scalar(0i64), Tensor::scalar(0.5f32), Tensor::string("none")];
        let options = CsvOptions { has_header: true, ..Default::default() };
        Dataset::csv(g, &[&file("rows.csv")], &defaults, &options)
    }),
    ("fixed_length_records", |g, file| {
        Dataset::fixed_length_records(g, &[&file("numbers.bin")], 4, 2, 1, &RecordOptions::default())
    }),
    ("examples", |g, file| {
        let feature =
            |key: &str, dtype, shape: Shape, default| FixedLenFeature { key: key.to_owned(), dtype, shape, default };
        let features = [
            feature("label", DType::Int64, Shape::scalar(), None),
            feature("weight", DType::Float, Shape::scalar(), Some(Tensor::scalar(0.25f32))),
            feature("image", DType::String, Shape::scalar(), None),
        ];
        let records = Dataset::tf_records(g, &[&file("examples.tfrecord")], &RecordOptions::default());
        records.batch(3, false).parse_example(&features)
    }),
];

/// Returns vectors of different lengths: those of x mod 8 elements for x from 1 on.
fn ragged(graph: &Graph, count: i64) -> Dataset {
    Dataset::range_by(graph, 1, count + 1, 1).map(|x| {
        let length = &x[0] % 8;
        array::fill(&array::reshape_to(&length, &[1]), &x[0])
    })
}

/// Returns a number x times.
fn repeated(x: &Output) -> Dataset {
    let one = Dataset::from_tensors_of(std::slice::from_ref(x));
    let op = x.graph().op("RepeatDataset").input(one.variant()).input(x);
    let shapes: &[PartialShape] = &[PartialShape::scalar()];
    let types: &[DType] = &[DType::Int64];
    let variant = op.attr("output_types", types).attr("output_shapes", shapes).output();
    Dataset::from_variant(&variant, types, shapes)
}

fn draw(session: &Session, next: &[Output]) -> Result<Vec<String>> {
    let fetches: Vec<&Output> = next.iter().collect();
    let mut drawn = Vec::new();
    while drawn.len() < DRAWN_MAX {
        match session.run(&fetches) {
            Ok(element) => drawn.push(list(element.iter().map(value).collect::<Result<Vec<_>>>()?.into_iter())),
            Err(status) if status.code() == Code::OutOfRange => return Ok(drawn),
            Err(status) => return Err(status),
        }
    }
    Err(Status::internal("a pipeline without an end"))
}

/// Returns a tensor as its shape and its values.
fn value(tensor: &Tensor) -> Result<String> {
    let values: Vec<String> = match tensor.dtype() {
        DType::Int64 => tensor.to_vec::<i64>()?.iter().map(i64::to_string).collect(),
        DType::Int32 => tensor.to_vec::<i32>()?.iter().map(i32::to_string).collect(),
        DType::Float => tensor.to_vec::<f32>()?.iter().map(f32::to_string).collect(),
        _ => tensor.strings()?.iter().map(|bytes| text(&bytes.escape_ascii().to_string())).collect(),
    };
    Ok(format!("[{}, {}]", list(tensor.shape().dims().iter().map(i64::to_string)), list(values.into_iter())))
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

fn text(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
