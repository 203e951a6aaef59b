//! [`SavedModel`] and [`LoadedModel`]: read a SavedModel, and run its signatures.

use super::assets::asset_feeds;
use super::{FILE, INIT_OP_SIGNATURE, LEGACY_INIT_OP, MAIN_OP, Signature, TEXT_FILE, TensorInfo, VARIABLES};
use crate::meta_graph::MetaGraph;
use crate::session::Session;
use crate::train::meta_graph::import_meta_graph;
use graph::Graph;
use prost::Message;
use proto::MetaGraphDef;
use proto::collection_def::Kind;
use proto::tensor_info::Encoding;
use std::collections::{BTreeMap, BTreeSet};
use storage::bundle::meta_filename;
use storage::file_system::{FileSystem, FileSystems, path};
use tensor::{IntoTensor, Result, Status, Tensor};

/// The content of a SavedModel's directory; its graphs are not loaded yet.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::saved_model::{SavedModel, simple_save, tags};
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path().join("model");
/// # let directory = directory.to_str().unwrap();
///
/// let g = Graph::new();
/// simple_save(&Session::new(&g)?, directory, &[], &[("one", &g.constant(1f32))])?;
/// let model = SavedModel::open(directory)?;
/// assert_eq!(model.tag_sets(), [["serve"]]);
/// assert!(model.signatures(&[tags::SERVING])?.contains_key("serving_default"));
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug)]
pub struct SavedModel {
    directory: String,
    meta_graphs: Vec<MetaGraphDef>,
}

impl SavedModel {
    /// Reads a SavedModel from a directory.
    ///
    /// ```
    /// use ferroflow::saved_model::SavedModel;
    ///
    /// let mistake = SavedModel::open("/no/such/model").unwrap_err();
    /// assert!(mistake.message().contains("/no/such/model"));
    /// ```
    pub fn open(directory: &str) -> Result<SavedModel> {
        let files = FileSystems::all();
        let [binary, text] = [FILE, TEXT_FILE].map(|name| path::join(directory, name));
        let broken = |file: &str, why: String| Status::data_loss(format!("{file} is not a SavedModel: {why}"));
        let model = if files.exists(&binary)? {
            let content = files.read(&binary)?;
            proto::SavedModel::decode(&content[..]).map_err(|error| broken(&binary, error.to_string()))?
        } else if files.exists(&text)? {
            let content = files.read(&text)?;
            let content = std::str::from_utf8(&content).map_err(|error| broken(&text, error.to_string()))?;
            proto::text::parse("tensorflow.SavedModel", content).map_err(|error| broken(&text, error.to_string()))?
        } else {
            return Err(Status::not_found(format!("'{directory}' has no {FILE} or {TEXT_FILE}")));
        };
        if model.meta_graphs.is_empty() {
            return Err(broken(directory, "it has no graph".to_owned()));
        }
        Ok(SavedModel { directory: directory.to_owned(), meta_graphs: model.meta_graphs })
    }

    /// Returns the tags of every graph, in the order of the file.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::saved_model::{SavedModel, simple_save};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path().join("model");
    /// # let directory = directory.to_str().unwrap();
    ///
    /// simple_save(&Session::new(&Graph::new())?, directory, &[], &[])?;
    /// assert_eq!(SavedModel::open(directory)?.tag_sets(), [["serve"]]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn tag_sets(&self) -> Vec<Vec<&str>> {
        self.meta_graphs.iter().map(tags_of).collect()
    }

    /// Returns the signatures of the graph with these tags.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::saved_model::{SavedModel, simple_save, tags};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path().join("model");
    /// # let directory = directory.to_str().unwrap();
    ///
    /// let g = Graph::new();
    /// simple_save(&Session::new(&g)?, directory, &[], &[("one", &g.constant(1f32))])?;
    /// let model = SavedModel::open(directory)?;
    /// assert_eq!(model.signatures(&[tags::SERVING])?["serving_default"].outputs()["one"].dtype(), Some(DType::Float));
    /// let mistake = model.signatures(&[tags::TRAINING]).unwrap_err();
    /// assert!(mistake.message().contains("it has {serve}"));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn signatures(&self, tags: &[&str]) -> Result<BTreeMap<String, Signature>> {
        Signature::all_from_defs(&self.meta_graph(tags)?.signature_def)
    }

    /// Returns the assets of the graph with these tags: for each file, the tensor that gets its path, and the path.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::saved_model::{SavedModel, simple_save, tags};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path().join("model");
    /// # let directory = directory.to_str().unwrap();
    ///
    /// simple_save(&Session::new(&Graph::new())?, directory, &[], &[])?;
    /// assert!(SavedModel::open(directory)?.assets(&[tags::SERVING])?.is_empty());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn assets(&self, tags: &[&str]) -> Result<Vec<(String, String)>> {
        asset_feeds(self.meta_graph(tags)?, &self.directory)
    }

    /// Loads the graph with exactly these tags into a session of this process: restores its variables, and runs its main operation.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::saved_model::{SavedModel, simple_save, tags};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path().join("model");
    /// # let directory = directory.to_str().unwrap();
    ///
    /// let g = Graph::new();
    /// let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[w.initializer()])?;
    /// simple_save(&session, directory, &[], &[("w", w.value())])?;
    /// let model = SavedModel::open(directory)?.load(&[tags::SERVING])?;
    /// assert_eq!(model.run("serving_default", [] as [(&str, Tensor); 0])?["w"].to_scalar::<f32>()?, 4.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn load(&self, tags: &[&str]) -> Result<LoadedModel> {
        self.load_in(tags, Session::new)
    }

    /// As [`load`](Self::load), in a session that `connect` creates for the graph, such as one on a server, which then reads the
    /// files.
    ///
    /// ```
    /// use ferroflow::distributed::create_local_server;
    /// use ferroflow::prelude::*;
    /// use ferroflow::saved_model::{SavedModel, simple_save, tags};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path().join("model");
    /// # let directory = directory.to_str().unwrap();
    ///
    /// let g = Graph::new();
    /// simple_save(&Session::new(&g)?, directory, &[], &[("one", &g.constant(1f32))])?;
    /// let server = create_local_server()?;
    /// let model = SavedModel::open(directory)?;
    /// let model = model.load_in(&[tags::SERVING], |graph| Session::connect(graph, &server.target()))?;
    /// assert_eq!(model.run("serving_default", [] as [(&str, Tensor); 0])?["one"].to_scalar::<f32>()?, 1.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn load_in(&self, tags: &[&str], connect: impl FnOnce(&Graph) -> Result<Session>) -> Result<LoadedModel> {
        let meta = self.meta_graph(tags)?;
        let signatures = Signature::all_from_defs(&meta.signature_def)?;
        let feeds = asset_feeds(meta, &self.directory)?;
        let init = init_op(meta)?;
        let graph = Graph::new();
        let saver = import_meta_graph(&graph, &MetaGraph::from(meta.clone()))
            .map_err(|status| status.context(format!("the graph of '{}'", self.directory)))?;
        let session = connect(&graph)?;
        let prefix = path::join(&path::join(&self.directory, VARIABLES), VARIABLES);
        if let Some(saver) = saver
            // A graph without variables may have a saver all the same, and then there are no files.
            && FileSystems::all().exists(&meta_filename(&prefix))?
        {
            saver.restore(&session, &prefix)?;
        }
        if let Some(init) = init {
            let run = session.runner().target_name(&init);
            let run = feeds.into_iter().fold(run, |run, (name, file)| run.feed_name(&name, Tensor::string(file)));
            run.run()
                .map_err(|status| status.context(format!("the main operation '{init}' of '{}'", self.directory)))?;
        }
        Ok(LoadedModel { session, signatures })
    }

    fn meta_graph(&self, tags: &[&str]) -> Result<&MetaGraphDef> {
        let wanted: BTreeSet<&str> = tags.iter().copied().collect();
        let is_wanted = |meta: &&MetaGraphDef| tags_of(meta).into_iter().collect::<BTreeSet<_>>() == wanted;
        self.meta_graphs.iter().find(is_wanted).ok_or_else(|| {
            let there: Vec<String> =
                self.meta_graphs.iter().map(|meta| format!("{{{}}}", tags_of(meta).join(", "))).collect();
            Status::not_found(format!(
                "'{}' has no graph with the tags {{{}}}; it has {}",
                self.directory,
                tags.join(", "),
                there.join(", ")
            ))
        })
    }
}

/// A loaded model: its graph in a session, and its signatures.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::saved_model::{SavedModel, simple_save, tags};
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path().join("model");
/// # let directory = directory.to_str().unwrap();
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>([-1]);
/// simple_save(&Session::new(&g)?, directory, &[("x", &x)], &[("double", &(&x * 2.0))])?;
/// let model = SavedModel::open(directory)?.load(&[tags::SERVING])?;
/// assert_eq!(model.run("serving_default", [("x", [1f32, 2.0])])?["double"].to_vec::<f32>()?, [2.0, 4.0]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct LoadedModel {
    session: Session,
    signatures: BTreeMap<String, Signature>,
}

impl LoadedModel {
    /// Runs a signature with the given inputs, and returns its outputs by name.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::saved_model::{SavedModel, simple_save, tags};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path().join("model");
    /// # let directory = directory.to_str().unwrap();
    ///
    /// let g = Graph::new();
    /// let x = g.placeholder::<f32>([-1]);
    /// simple_save(&Session::new(&g)?, directory, &[("x", &x)], &[("sum", &x.sum())])?;
    /// let model = SavedModel::open(directory)?.load(&[tags::SERVING])?;
    /// assert_eq!(model.run("serving_default", [("x", [1f32, 2.0])])?["sum"].to_scalar::<f32>()?, 3.0);
    /// let mistake = model.run("serving_default", [("z", [1f32])]).unwrap_err();
    /// assert!(mistake.message().contains("no input 'z'; it has x"));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn run<'a, T: IntoTensor>(
        &self,
        signature: &str,
        inputs: impl IntoIterator<Item = (&'a str, T)>,
    ) -> Result<BTreeMap<String, Tensor>> {
        let described = self.signature(signature)?;
        let mut given = BTreeMap::new();
        for (name, value) in inputs {
            given.insert(name, value.into_tensor().map_err(|status| status.context(format!("input '{name}'")))?);
        }
        let names: Vec<String> = described.inputs().iter().flat_map(|(key, info)| names(key, info)).collect();
        if let Some(unknown) = given.keys().find(|given| names.iter().all(|name| name != *given)) {
            return Err(Status::invalid_argument(format!(
                "the signature '{signature}' has no input '{unknown}'; it has {}",
                listed(&names)
            )));
        }
        let mut run = self.session.runner();
        for (key, info) in described.inputs() {
            for (suffix, tensor) in info.tensors() {
                let name = format!("{key}{suffix}");
                let value = given.remove(name.as_str()).or_else(|| described.default_of(&name).cloned());
                let value = value.ok_or_else(|| Status::invalid_argument(format!("input '{name}' is missing")))?;
                info.check_value(key, &suffix, &value)?;
                run = run.feed_name(&tensor, value);
            }
        }
        let mut outputs = Vec::new();
        for (key, info) in described.outputs() {
            for (suffix, tensor) in info.tensors() {
                outputs.push(format!("{key}{suffix}"));
                run = run.fetch_name(&tensor);
            }
        }
        Ok(outputs.into_iter().zip(run.run()?).collect())
    }

    /// Returns a signature; the error for a missing one lists the existing ones.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::saved_model::{SavedModel, simple_save, tags};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path().join("model");
    /// # let directory = directory.to_str().unwrap();
    ///
    /// simple_save(&Session::new(&Graph::new())?, directory, &[], &[])?;
    /// let model = SavedModel::open(directory)?.load(&[tags::SERVING])?;
    /// assert!(model.signature("serving_default")?.inputs().is_empty());
    /// let mistake = model.signature("predict").unwrap_err();
    /// assert!(mistake.message().contains("it has serving_default"));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn signature(&self, name: &str) -> Result<&Signature> {
        self.signatures.get(name).ok_or_else(|| {
            let there: Vec<String> = self.signatures.keys().cloned().collect();
            Status::not_found(format!("the model has no signature '{name}'; it has {}", listed(&there)))
        })
    }

    /// Returns all signatures by name.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::saved_model::{SavedModel, simple_save, tags};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path().join("model");
    /// # let directory = directory.to_str().unwrap();
    ///
    /// simple_save(&Session::new(&Graph::new())?, directory, &[], &[])?;
    /// assert_eq!(SavedModel::open(directory)?.load(&[tags::SERVING])?.signatures().len(), 1);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn signatures(&self) -> &BTreeMap<String, Signature> {
        &self.signatures
    }

    /// Returns the session, whose graph has the model's nodes under their own names.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::saved_model::{SavedModel, simple_save, tags};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path().join("model");
    /// # let directory = directory.to_str().unwrap();
    ///
    /// let g = Graph::new();
    /// let one = g.constant(1f32);
    /// simple_save(&Session::new(&g)?, directory, &[], &[("one", &one)])?;
    /// let model = SavedModel::open(directory)?.load(&[tags::SERVING])?;
    /// let session = model.session();
    /// assert_eq!(session.eval::<f32>(&session.graph().output(&one.name())?)?, 1.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn session(&self) -> &Session {
        &self.session
    }
}

fn tags_of(meta: &MetaGraphDef) -> Vec<&str> {
    meta.meta_info_def.iter().flat_map(|info| &info.tags).map(String::as_str).collect()
}

/// Returns the names by which a program refers to the tensors of an input.
fn names(key: &str, info: &TensorInfo) -> Vec<String> {
    info.tensors().into_iter().map(|(suffix, _)| format!("{key}{suffix}")).collect()
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Returns the name of the operation that runs after the variables were restored: TensorFlow 2 keeps it in a signature, and
/// TensorFlow 1 in one of two collections.
fn init_op(meta: &MetaGraphDef) -> Result<Option<String>> {
    let in_signature = meta.signature_def.get(INIT_OP_SIGNATURE).and_then(|def| def.outputs.get(INIT_OP_SIGNATURE));
    if let Some(Encoding::Name(name)) = in_signature.and_then(|info| info.encoding.as_ref()) {
        return Ok(Some(node_of(name)));
    }
    for collection in [MAIN_OP, LEGACY_INIT_OP] {
        if let Some(Kind::NodeList(list)) = meta.collection_def.get(collection).and_then(|def| def.kind.as_ref()) {
            return match &list.value[..] {
                [name] => Ok(Some(node_of(name))),
                several => Err(Status::data_loss(format!(
                    "the collection '{collection}' has {} operations, but one is expected",
                    several.len()
                ))),
            };
        }
    }
    Ok(None)
}

/// Returns the node's name in the name of an operation or output.
fn node_of(name: &str) -> String {
    name.split_once(':').map_or(name, |(node, _)| node).to_owned()
}
