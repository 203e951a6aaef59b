//! Writes checkpoints and events, and reads checkpoints, for tests that compare them with TensorFlow's:
//! `train_files write DIR`, `train_files read PREFIX`, and `train_files import PREFIX`, which takes the graph from the
//! checkpoint's MetaGraph.

use ferroflow::distributed::{ClusterSpec, start_embedded};
use ferroflow::session::Target;
use ferroflow::summary::{self, FileWriter};
use ferroflow::train::meta_graph::{import_meta_graph, read_meta_graph};
use ferroflow::train::{ReplicaDeviceSetter, Saver, SaverOptions, global_variables_initializer, write_graph};
use ferroflow::variable::{Kind, global_variables};
use ferroflow::variable_scope::{FixedSizePartitioner, get_variable};
use ferroflow::{Graph, Output, Result, RunOptions, Session, Status, Tensor, initializers};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [command, directory] if command == "write" => write(directory),
        [command, prefix] if command == "read" => read(prefix),
        [command, prefix] if command == "import" => import(prefix),
        _ => Err(Status::invalid_argument("write DIR, read PREFIX or import PREFIX")),
    }
}

/// Adds a variable of each kind, and one in parts.
fn variables(graph: &Graph, is_zero: bool) -> Result<Vec<(String, Output)>> {
    let first = |value: Tensor| if is_zero { initializers::zeros() } else { initializers::tensor(value) };
    let numbers = |count: usize| -> Vec<f32> { (0..count).map(|number| number as f32 / 4.0).collect() };
    let v = get_variable(graph, "v", &[2, 3]).initializer(first(Tensor::from_slice(&[2, 3], &numbers(6))?)).get();
    let w = get_variable(graph, "w", &[3]).initializer(first(Tensor::vector(&[7f32, 8.0, 9.0])));
    let w = w.kind(Kind::Resource).get();
    let table = get_variable(graph, "table", &[5, 2]);
    let value = if is_zero { 0.0 } else { 2.5 };
    let table = table.initializer(initializers::constant(value));
    let table = table.get_partitioned(&FixedSizePartitioner { num_shards: 2, axis: 0 });
    Ok(vec![
        ("v".to_owned(), v.value().clone()),
        ("w".to_owned(), w.value().clone()),
        ("table".to_owned(), table.as_tensor()),
    ])
}

fn write(directory: &str) -> Result<()> {
    for sharded in [false, true] {
        let cluster = ClusterSpec::new().with_job("ps", &["a:1", "b:1"])?.with_job("worker", &["c:1"])?;
        let running = start_embedded(&cluster)?;
        let graph = Graph::new();
        let setter = ReplicaDeviceSetter::new(2).worker_device("/job:worker/task:0")?;
        setter.scope(&graph, |_| variables(&graph, false))?;
        let saver = Saver::with_options(&graph, SaverOptions { sharded, ..Default::default() })?;
        let init = global_variables_initializer(&graph);
        let session = Target::from(running.master("worker", 0)?).session(&graph, &Default::default())?;
        session.run_ops(&[&init])?;
        let prefix = format!("{directory}/{}", if sharded { "sharded" } else { "whole" });
        println!("{}", saver.save_with_meta_graph(&session, &prefix, Some(7))?);
        session.close()?;
        write_graph(&graph, directory, "graph.pbtxt", true)?;
        write_graph(&graph, directory, "graph.pb", false)?;
    }
    events(&format!("{directory}/events"))
}

fn events(directory: &str) -> Result<()> {
    let graph = Graph::new();
    let constant = |value: &Tensor| graph.constant_tensor(value);
    summary::scalar("loss", &constant(&Tensor::scalar(0.5f32)));
    summary::histogram("spread", &constant(&Tensor::vector(&[1f32, 2.0, 2.0, -3.0])));
    let picture: Vec<f32> = (0..2 * 4 * 4).map(|pixel| pixel as f32 / 32.0).collect();
    summary::image("picture", &constant(&Tensor::from_slice(&[2, 4, 4, 1], &picture)?), 3);
    summary::text("words", &constant(&Tensor::string("some *words*")));
    let merged = summary::merge_all(&graph).ok_or_else(|| Status::internal("no summaries"))?;
    let session = Session::new(&graph)?;
    let run = session.runner().fetch(&merged).options(RunOptions::new().full_trace(true));
    let (values, metadata) = run.run_with_metadata()?;
    let writer = FileWriter::new(directory)?;
    writer.add_graph(&graph)?;
    writer.add_summary(&values[0], 3)?;
    if let Some(metadata) = &metadata {
        writer.add_run_metadata(metadata, "step 3", 3)?;
    }
    writer.close()?;
    println!("{}", writer.path());
    Ok(())
}

fn read(prefix: &str) -> Result<()> {
    let graph = Graph::new();
    let values = variables(&graph, true)?;
    let saver = Saver::new(&graph)?;
    let session = Session::new(&graph)?;
    saver.restore(&session, prefix)?;
    print(&session, &values)
}

/// Restores the variables of a MetaGraph with its own saver.
fn import(prefix: &str) -> Result<()> {
    let graph = Graph::new();
    let content = std::fs::read(format!("{prefix}.meta"))
        .map_err(|error| Status::not_found(format!("{prefix}.meta: {error}")))?;
    let saver = import_meta_graph(&graph, &read_meta_graph(&content)?.clear_devices())?;
    let saver = saver.ok_or_else(|| Status::not_found("a MetaGraph without a saver"))?;
    let session = Session::new(&graph)?;
    saver.restore(&session, prefix)?;
    let variables = global_variables(&graph)?;
    let values: Vec<(String, Output)> =
        variables.iter().map(|variable| (variable.name(), variable.value().clone())).collect();
    print(&session, &values)
}

fn print(session: &Session, values: &[(String, Output)]) -> Result<()> {
    for (name, output) in values {
        let value = session.run(&[output])?.remove(0);
        let numbers: Vec<String> = value.as_slice::<f32>()?.iter().map(f32::to_string).collect();
        println!("{name} {}", numbers.join(" "));
    }
    Ok(())
}
