//! Writes and runs SavedModels, for tests that compare them with TensorFlow's: `saved_model_files write DIR VOCABULARY`, which
//! prints what the model computes, and `saved_model_files sparse DIR`, which writes one with a sparse input.

use ferroflow::distributed::{ClusterSpec, start_embedded};
use ferroflow::lookup::LookupTable;
use ferroflow::ops::array::placeholder;
use ferroflow::prelude::*;
use ferroflow::saved_model::{Export, SavedModelBuilder, Signature, tags};
use ferroflow::session::Target;
use ferroflow::train::{ReplicaDeviceSetter, global_variables_initializer};
use ferroflow::variable::Kind;
use ferroflow::variable_scope::{FixedSizePartitioner, get_variable};
use ferroflow::{PartialShape, Result, Status, initializers};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [command, directory, vocabulary] if command == "write" => write(directory, vocabulary),
        [command, directory] if command == "sparse" => sparse(directory),
        _ => Err(Status::invalid_argument("write DIR VOCABULARY or sparse DIR")),
    }
}

/// Exports a model from a cluster: variables of all kinds on two parameter servers, and two tables of a file.
fn write(directory: &str, vocabulary: &str) -> Result<()> {
    let cluster = ClusterSpec::new().with_job("ps", &["a:1", "b:1"])?.with_job("worker", &["c:1"])?;
    let running = start_embedded(&cluster)?;
    let g = Graph::new();
    let setter = ReplicaDeviceSetter::new(2).worker_device("/job:worker/task:0")?;
    let (x, words, scores, names) = setter.scope(&g, |g| {
        let x = g.placeholder::<f32>((None, 2));
        let words = placeholder(g, DType::String, &PartialShape::unknown_of_rank(1));
        let index = LookupTable::index_from_file(g, vocabulary, 1);
        let ids = index.lookup(&words);
        let table = get_variable(g, "table", &[4, 3]).initializer(initializers::random_uniform(-1.0, 1.0, Some(7)));
        let table = table.get_partitioned(&FixedSizePartitioner { num_shards: 2, axis: 0 });
        let w = get_variable(g, "w", &[2, 3]).initializer(initializers::constant(0.5)).kind(Kind::Resource).get();
        let b = Variable::new(g, "b", &g.constant([1f32, 2.0, 3.0]));
        let rows = ops::array::gather(&table.as_tensor(), &ids, 0);
        let scores = x.matmul(&w) + rows + &b;
        let names = LookupTable::strings_from_file(g, vocabulary, "none").lookup(&ids);
        Ok::<_, Status>((x, words, scores, names))
    })?;
    let init = global_variables_initializer(&g);
    let session = Target::from(running.master("worker", 0)?).session(&g, &Default::default())?;
    session.run_ops(&[&init])?;
    let signature = Signature::predict().input("x", &x).input("words", &words).output("scores", &scores);
    let serving = Export::new(&[tags::SERVING]).signature("serving_default", signature.output("names", &names));
    let serving = serving.clear_devices();
    SavedModelBuilder::new(directory)?
        .add_meta_graph_and_variables(&session, serving)?
        .add_meta_graph(&g, Export::new(&[tags::TRAINING, "gpu"]).clear_devices())?
        .save()?;
    let tables = g.collection(ferroflow::variable::collections::TABLE_INITIALIZERS);
    session.run_ops(&tables.iter().map(|table| &table.op).collect::<Vec<_>>())?;
    let fed = session.runner().feed(&x, [[1f32, 2.0], [3.0, 4.0], [5.0, 6.0]]).feed(&words, ["b", "nothing", "a"]);
    for value in fed.fetch(&scores).fetch(&names).run()? {
        match value.dtype() {
            DType::String => println!("{}", value.to_strings()?.join(" ")),
            _ => println!("{}", value.to_vec::<f32>()?.iter().map(f32::to_string).collect::<Vec<_>>().join(" ")),
        }
    }
    session.close()
}

/// Exports a model that makes a sparse input dense.
fn sparse(directory: &str) -> Result<()> {
    let g = Graph::new();
    let (indices, values) = (g.placeholder::<i64>((None, 2)), g.placeholder::<f32>([-1]));
    let shape = g.placeholder::<i64>([2]);
    let dense = g.op("SparseToDense").input(&indices).input(&shape).input(&values).input(&g.constant(0f32)).output();
    let signature = Signature::predict().sparse_input("s", &indices, &values, &shape).output("dense", &dense);
    let export = Export::new(&[tags::SERVING]).signature("serving_default", signature);
    SavedModelBuilder::new(directory)?.add_meta_graph_and_variables(&Session::new(&g)?, export)?.save()?;
    Ok(())
}
