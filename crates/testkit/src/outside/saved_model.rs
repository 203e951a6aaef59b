//! SavedModels as input: opens, inspects, loads and runs a model whose files have the given bytes.

use super::files::Directory;
use super::{Outcome, Target, magnitude};
use crate::random_graph::HARMFUL;
use ferroflow::prelude::*;
use ferroflow::saved_model::{Export, LoadedModel, SavedModel, SavedModelBuilder, Signature, tags};
use ferroflow::train::global_variables_initializer;
use ferroflow::{Result, SessionConfig};
use proto::Message;
use std::time::Duration;

/// The time limit of a step: a mutated graph may wait forever.
const STEP_TIME_MAX: Duration = Duration::from_secs(2);

/// The mark between the files of an input, so that they stay separate when one becomes longer or shorter.
const MARK: &[u8] = b"<<file>>";

/// The first byte of an input whose model is text; any other says that it is binary.
const AS_TEXT: u8 = b't';
const AS_BINARY: u8 = b'b';

const INDEX: &str = "variables/variables.index";
const DATA: &str = "variables/variables.data-00000-of-00001";

/// Models. An input is a first byte, followed by the model, the index of its variables and their data, with a mark between them. If there
/// is no index, there are no files of variables.
pub struct SavedModels(Directory);

impl SavedModels {
    /// Creates a directory for the files.
    pub fn new() -> SavedModels {
        let directory = Directory::new();
        std::fs::create_dir_all(directory.file("read/variables")).expect("a directory can be made");
        SavedModels(directory)
    }

    fn write(&self, input: &[u8]) {
        for name in ["saved_model.pb", "saved_model.pbtxt", INDEX, DATA] {
            let _ = std::fs::remove_file(self.0.file(&format!("read/{name}")));
        }
        let (kind, files) = input.split_first().unwrap_or((&AS_BINARY, input));
        let (model, rest) = cut(files);
        let (index, data) = cut(rest);
        self.0.with(if *kind == AS_TEXT { "read/saved_model.pbtxt" } else { "read/saved_model.pb" }, model);
        if !index.is_empty() {
            self.0.with(&format!("read/{INDEX}"), index);
            self.0.with(&format!("read/{DATA}"), data);
        }
    }

    /// Opens the model, and loads and runs each of its graphs.
    fn read(&self) -> Result<String> {
        let model = SavedModel::open(&self.0.file("read"))?;
        let mut said = String::new();
        for tags in model.tag_sets() {
            let signatures = model.signatures(&tags)?;
            let assets = model.assets(&tags)?;
            if self.is_harmful() {
                return Ok("it would write files".to_owned());
            }
            let connect = |graph: &Graph| {
                let config = SessionConfig::new().operation_timeout(STEP_TIME_MAX);
                ferroflow::session::Target::Local.session(graph, &config)
            };
            let loaded = model.load_in(&tags, connect)?;
            said += &format!("{} signatures, {} assets;", magnitude(signatures.len()), magnitude(assets.len()));
            for name in signatures.keys() {
                run(&loaded, name)?;
                said += " ran";
            }
        }
        Ok(said)
    }

    /// Returns whether a step could write files or connect to other processes.
    fn is_harmful(&self) -> bool {
        let text = std::fs::read_to_string(self.0.file("read/saved_model.pbtxt"));
        let model: proto::SavedModel = match text {
            Ok(text) => proto::text::parse("tensorflow.SavedModel", &text).unwrap_or_default(),
            Err(_) => std::fs::read(self.0.file("read/saved_model.pb"))
                .ok()
                .and_then(|bytes| proto::SavedModel::decode(&bytes[..]).ok())
                .unwrap_or_default(),
        };
        let graphs = model.meta_graphs.iter().filter_map(|meta| meta.graph_def.as_ref());
        graphs.into_iter().any(|graph| {
            let functions = graph.library.iter().flat_map(|library| &library.function);
            let mut nodes = graph.node.iter().chain(functions.flat_map(|function| &function.node_def));
            // A saver has a node that saves, which no signature runs.
            nodes.any(|node| HARMFUL.contains(&node.op.as_str()) && !node.op.starts_with("Save"))
        })
    }
}

/// Returns the bytes before the first mark, and those after it.
fn cut(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.windows(MARK.len()).position(|window| window == MARK) {
        Some(at) => (&bytes[..at], &bytes[at + MARK.len()..]),
        None => (bytes, &[]),
    }
}

/// Runs a signature with inputs of the shapes that it names.
fn run(model: &LoadedModel, name: &str) -> Result<()> {
    let mut inputs = Vec::new();
    for (key, info) in model.signature(name)?.inputs() {
        let dims: Option<Vec<i64>> =
            info.shape().dims().map(|dims| dims.iter().map(|dim| dim.map_or(1, |dim| dim.clamp(0, 8))).collect());
        let dims = dims.unwrap_or_default();
        let count = dims.iter().fold(1i64, |count, &size| count.saturating_mul(size)).min(1 << 12);
        let value = Tensor::from_slice(&dims, &vec![0.5f32; count as usize])?;
        inputs.push((key.clone(), value));
    }
    model.run(name, inputs.iter().map(|(key, value)| (key.as_str(), value.clone()))).map(drop)
}

/// Builds a model with variables, two signatures and a graph for training.
fn variables(directory: &str) -> Result<()> {
    let g = Graph::new();
    let x = g.placeholder::<f32>((None, 2));
    let w = Variable::new(&g, "w", &g.constant([[0.5f32, 1.0, -1.0], [2.0, 0.0, 3.0]]));
    let b = Variable::new(&g, "b", &g.constant([1f32, 2.0, 3.0]));
    let (y, names) = (x.matmul(w.value()) + b.value(), g.constant(["a", "b"]));
    let init = global_variables_initializer(&g);
    let session = Session::new(&g)?;
    session.run_ops(&[&init])?;
    let predict = Signature::predict().input("x", &x).output("y", &y);
    let constant = Signature::predict().output("names", &names);
    let export = Export::new(&[tags::SERVING]).signature("serving_default", predict).signature("names", constant);
    SavedModelBuilder::new(directory)?
        .add_meta_graph_and_variables(&session, export)?
        .add_meta_graph(&g, Export::new(&[tags::TRAINING]))?
        .save()
        .map(drop)
}

/// Builds a model without variables, with a main operation.
fn without_variables(directory: &str) -> Result<()> {
    let g = Graph::new();
    let x = g.placeholder::<f32>((None,));
    let (y, init) = (&x * 2.0, g.op("NoOp").build());
    let export = Export::new(&[tags::SERVING, "gpu"]).main_op(&init);
    let signature = Signature::regress().input("x", &x).output("y", &y);
    let session = Session::new(&g)?;
    let export = export.signature("serving_default", signature);
    SavedModelBuilder::new(directory)?.add_meta_graph_and_variables(&session, export)?.save().map(drop)
}

impl Target for SavedModels {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let mut seeds = Vec::new();
        for (name, build) in [("variables", variables as fn(&str) -> Result<()>), ("without", without_variables)] {
            build(&self.0.file(name)).expect("a model can be saved");
            let file = |file: &str| std::fs::read(self.0.file(&format!("{name}/{file}"))).unwrap_or_default();
            let (model, index, data) = (file("saved_model.pb"), file(INDEX), file(DATA));
            let parsed = proto::SavedModel::decode(&model[..]).expect("it was written");
            let text = proto::text::format("tensorflow.SavedModel", &parsed).expect("it was written");
            for (kind, model) in [(AS_BINARY, &model[..]), (AS_TEXT, text.as_bytes())] {
                seeds.push([&[kind], model, MARK, &index, MARK, &data].concat());
            }
        }
        seeds
    }

    fn take(&mut self, input: &[u8]) -> Outcome {
        self.write(input);
        Outcome::of(self.read(), |text| text)
    }
}
