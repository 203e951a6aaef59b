//! [`SavedModelBuilder`]: writes graphs, variables and assets as a SavedModel.

use super::assets::Assets;
use super::{ASSETS_COLLECTION, FILE, MAIN_OP, SCHEMA_VERSION, Signature, VARIABLES, signature_names, tags};
use crate::session::Session;
use crate::train::meta_graph::export_meta_graph;
use crate::train::{Saver, SaverOptions, default_local_init};
use crate::variable::{collections, global_variables};
use graph::{Graph, Operation, Output};
use prost::Message;
use proto::collection_def::{AnyList, Kind, NodeList};
use proto::{AssetFileDef, CollectionDef, MetaGraphDef};
use std::collections::BTreeMap;
use storage::file_system::{FileSystem, FileSystems, path};
use tensor::{Code, Result, Status};

/// The type URL of asset messages in collections.
const TYPE_URL: &str = "type.googleapis.com/tensorflow.AssetFileDef";

/// The most temporary directories that may be left over from interrupted exports.
const MAX_TEMPORARY: u32 = 10_000;

/// Options of an exported graph: its tags, signatures and assets, and the operation to run after loading.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::saved_model::{Export, SavedModelBuilder, Signature, tags};
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path().join("model");
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>(());
/// let signature = Signature::predict().input("x", &x).output("double", &(&x * 2.0));
/// let export = Export::new(&[tags::SERVING]).signature("serving_default", signature);
/// SavedModelBuilder::new(directory.to_str().unwrap())?.add_meta_graph_and_variables(&Session::new(&g)?, export)?.save()?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Default)]
pub struct Export {
    tags: Vec<String>,
    signatures: BTreeMap<String, Signature>,
    assets: Vec<Output>,
    main_op: Option<Operation>,
    clear_devices: bool,
}

impl Export {
    /// Returns options with the tags that identify the graph.
    ///
    /// ```
    /// use ferroflow::saved_model::{Export, tags};
    ///
    /// let export = Export::new(&[tags::SERVING]);
    /// ```
    pub fn new(tags: &[&str]) -> Export {
        Export { tags: tags.iter().map(|tag| (*tag).to_owned()).collect(), ..Export::default() }
    }

    /// Adds a signature.
    ///
    /// ```
    /// use ferroflow::Graph;
    /// use ferroflow::saved_model::{Export, Signature, tags};
    ///
    /// let signature = Signature::predict().output("one", &Graph::new().constant(1f32));
    /// let export = Export::new(&[tags::SERVING]).signature("serving_default", signature);
    /// ```
    pub fn signature(mut self, name: &str, signature: Signature) -> Export {
        self.signatures.insert(name.to_owned(), signature);
        self
    }

    /// Adds an asset: a constant with the path of a file to copy. While the main operation runs, the constant has the path of the
    /// copy. Assets in the collection `asset_filepaths`, such as the vocabularies of [tables](crate::lookup), are added
    /// automatically.
    ///
    /// ```
    /// use ferroflow::Graph;
    /// use ferroflow::saved_model::{Export, tags};
    ///
    /// let export = Export::new(&[tags::SERVING]).asset(&Graph::new().constant("words.txt"));
    /// ```
    pub fn asset(mut self, path: &Output) -> Export {
        self.assets.push(path.clone());
        self
    }

    /// Sets the operation to run after the variables were restored. By default it initializes local variables and tables, if
    /// there are any.
    ///
    /// ```
    /// use ferroflow::Graph;
    /// use ferroflow::saved_model::{Export, tags};
    ///
    /// let g = Graph::new();
    /// let export = Export::new(&[tags::SERVING]).main_op(&g.op("NoOp").build());
    /// ```
    pub fn main_op(mut self, op: &Operation) -> Export {
        self.main_op = Some(op.clone());
        self
    }

    /// Removes the devices of the nodes, so that a graph that was built for a cluster can be loaded anywhere.
    ///
    /// ```
    /// use ferroflow::saved_model::{Export, tags};
    ///
    /// let export = Export::new(&[tags::SERVING]).clear_devices();
    /// ```
    pub fn clear_devices(mut self) -> Export {
        self.clear_devices = true;
        self
    }
}

/// Writes a SavedModel. All files are written to a temporary directory beside the target, which is renamed when it is complete;
/// nothing is ever overwritten.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::saved_model::{Export, SavedModel, SavedModelBuilder, Signature, tags};
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path().join("model");
/// # let directory = directory.to_str().unwrap();
///
/// let g = Graph::new();
/// let one = Signature::predict().output("one", &g.constant(1f32));
/// let session = Session::new(&g)?;
/// SavedModelBuilder::new(directory)?
///     .add_meta_graph_and_variables(&session, Export::new(&[tags::TRAINING]))?
///     .add_meta_graph(&g, Export::new(&[tags::SERVING]).signature("serving_default", one))?
///     .save()?;
/// assert_eq!(SavedModel::open(directory)?.tag_sets(), [["train"], ["serve"]]);
/// assert!(SavedModelBuilder::new(directory).is_err());
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct SavedModelBuilder {
    directory: String,
    /// The temporary directory; it is deleted unless the export completes.
    temporary: String,
    is_saved: bool,
    files: FileSystems,
    assets: Assets,
    meta_graphs: Vec<MetaGraphDef>,
}

impl SavedModelBuilder {
    /// Starts a SavedModel in a directory that doesn't exist yet, or is empty. Missing parent directories are created.
    ///
    /// ```
    /// use ferroflow::saved_model::SavedModelBuilder;
    /// # let directory = tempfile::tempdir().unwrap();
    ///
    /// std::fs::write(directory.path().join("file"), "something").unwrap();
    /// assert!(SavedModelBuilder::new(directory.path().to_str().unwrap()).is_err());
    /// ```
    pub fn new(directory: &str) -> Result<SavedModelBuilder> {
        let files = FileSystems::all();
        let directory = match directory.trim_end_matches('/') {
            "" => return Err(Status::invalid_argument(format!("'{directory}' is no directory for a SavedModel"))),
            trimmed => trimmed.to_owned(),
        };
        if files.exists(&directory)? && !(files.stat(&directory)?.is_directory && files.list(&directory)?.is_empty()) {
            return Err(is_taken(&directory));
        }
        let above = path::dirname(&directory);
        if !above.is_empty() {
            files.create_dir_all(above)?;
        }
        // In a store, nothing can be renamed in one step; a SavedModel is complete once its graphs are there, which come last.
        let temporary = match files.appears_whole(&directory) {
            true => directory.clone(),
            false => create_temporary(&files, &directory)?,
        };
        Ok(SavedModelBuilder {
            directory,
            temporary,
            is_saved: false,
            files,
            assets: Assets::default(),
            meta_graphs: Vec::new(),
        })
    }

    /// Adds the graph of a session, and writes the values of its variables. It must be the first graph, and called once.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::saved_model::{Export, SavedModelBuilder, tags};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path().join("model");
    ///
    /// let g = Graph::new();
    /// let w = Variable::new(&g, "w", &g.constant(1f32));
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[w.initializer()])?;
    /// let builder = SavedModelBuilder::new(directory.to_str().unwrap())?;
    /// builder.add_meta_graph_and_variables(&session, Export::new(&[tags::SERVING]))?.save()?;
    /// assert!(directory.join("variables/variables.index").exists());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn add_meta_graph_and_variables(mut self, session: &Session, export: Export) -> Result<SavedModelBuilder> {
        if !self.meta_graphs.is_empty() {
            return Err(Status::failed_precondition(
                "the variables of this SavedModel are written already: add further graphs with add_meta_graph",
            ));
        }
        let (saver, meta) = self.meta_graph(session.graph(), export)?;
        let variables = path::join(&self.temporary, VARIABLES);
        self.files.create_dir(&variables)?;
        if let Some(saver) = saver {
            saver.save_values(session, &path::join(&variables, VARIABLES))?;
        }
        self.meta_graphs.push(meta);
        Ok(self)
    }

    /// Adds another graph, which uses the variables that are already written.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::saved_model::{Export, SavedModelBuilder, tags};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path().join("model");
    ///
    /// let builder = SavedModelBuilder::new(directory.to_str().unwrap())?;
    /// // The variables come first.
    /// assert!(builder.add_meta_graph(&Graph::new(), Export::new(&[tags::SERVING])).is_err());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn add_meta_graph(mut self, graph: &Graph, export: Export) -> Result<SavedModelBuilder> {
        if self.meta_graphs.is_empty() {
            return Err(Status::failed_precondition(
                "the variables of this SavedModel aren't written yet: start with add_meta_graph_and_variables",
            ));
        }
        let (_, meta) = self.meta_graph(graph, export)?;
        self.meta_graphs.push(meta);
        Ok(self)
    }

    /// Writes the graphs, and renames the directory to its final name, which it returns.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::saved_model::{Export, SavedModelBuilder, tags};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path().join("model");
    ///
    /// let builder = SavedModelBuilder::new(directory.to_str().unwrap())?;
    /// let builder = builder.add_meta_graph_and_variables(&Session::new(&Graph::new())?, Export::new(&[tags::SERVING]))?;
    /// assert!(!directory.exists());
    /// builder.save()?;
    /// assert!(directory.join("saved_model.pb").exists());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn save(mut self) -> Result<String> {
        if self.meta_graphs.is_empty() {
            return Err(Status::failed_precondition("a SavedModel without a graph"));
        }
        let meta_graphs = std::mem::take(&mut self.meta_graphs);
        let model = proto::SavedModel { saved_model_schema_version: SCHEMA_VERSION, meta_graphs };
        self.files.write_atomically(&path::join(&self.temporary, FILE), &model.encode_to_vec())?;
        if self.temporary == self.directory {
            self.is_saved = true;
            return Ok(self.directory.clone());
        }
        // An empty directory is replaced; another that has come up meanwhile is not.
        self.files.rename(&self.temporary, &self.directory).map_err(|status| {
            match self.files.list(&self.directory) {
                Ok(names) if !names.is_empty() => is_taken(&self.directory),
                _ => status,
            }
        })?;
        let above = path::dirname(&self.directory);
        self.files.sync_dir(if above.is_empty() { "." } else { above })?;
        Ok(self.directory.clone())
    }

    /// Builds a graph's MetaGraph, and copies its assets.
    fn meta_graph(&mut self, graph: &Graph, export: Export) -> Result<(Option<Saver>, MetaGraphDef)> {
        graph.finish()?;
        if export.tags.is_empty() {
            return Err(Status::invalid_argument("a graph of a SavedModel needs a tag"));
        }
        for (name, signature) in &export.signatures {
            signature.check(graph, name)?;
        }
        let main_op = match export.main_op {
            Some(op) if !op.graph().same(graph) => {
                return Err(Status::invalid_argument(format!(
                    "the main operation '{}' belongs to another graph",
                    op.name()
                )));
            }
            Some(op) => Some(op),
            None if has_local_state(graph) => Some(default_local_init(graph)?),
            None => None,
        };
        let saver = match global_variables(graph)?.is_empty() {
            true => None,
            false => Some(Saver::with_options(graph, SaverOptions { sharded: true, ..SaverOptions::default() })?),
        };
        let meta = export_meta_graph(graph, saver.as_ref());
        let mut meta: MetaGraphDef = if export.clear_devices { meta.clear_devices() } else { meta }.into();
        meta.meta_info_def.get_or_insert_default().tags = export.tags;
        meta.signature_def =
            export.signatures.iter().map(|(name, signature)| (name.clone(), signature.to_def())).collect();
        let mut assets: Vec<Output> = graph.collection(collections::ASSET_FILEPATHS);
        assets.extend(export.assets.into_iter().filter(|asset| asset.graph().same(graph)));
        assets.dedup_by_key(|asset| asset.edge());
        for asset in &assets {
            meta.asset_file_def.push(self.assets.add(&self.files, &self.temporary, asset)?);
        }
        if !assets.is_empty() {
            // TensorFlow 1 reads the collection, and TensorFlow 2 the field.
            let any = |def: &AssetFileDef| proto::google::protobuf::Any {
                type_url: TYPE_URL.to_owned(),
                value: def.encode_to_vec().into(),
            };
            let kind = Kind::AnyList(AnyList { value: meta.asset_file_def.iter().map(any).collect() });
            meta.collection_def.insert(ASSETS_COLLECTION.to_owned(), CollectionDef { kind: Some(kind) });
        }
        if let Some(op) = main_op {
            let kind = Kind::NodeList(NodeList { value: vec![op.name()] });
            meta.collection_def.insert(MAIN_OP.to_owned(), CollectionDef { kind: Some(kind) });
        }
        Ok((saver, meta))
    }
}

impl Drop for SavedModelBuilder {
    fn drop(&mut self) {
        // After `save` there is nothing of this name, unless it is the SavedModel itself.
        if !self.is_saved {
            let _ = self.files.delete_recursively(&self.temporary);
        }
    }
}

/// Exports a session's graph for serving, with one signature, `serving_default`, of these inputs and outputs.
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
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn simple_save(
    session: &Session,
    directory: &str,
    inputs: &[(&str, &Output)],
    outputs: &[(&str, &Output)],
) -> Result<String> {
    let signature = inputs.iter().fold(Signature::predict(), |signature, (name, output)| signature.input(name, output));
    let signature = outputs.iter().fold(signature, |signature, (name, output)| signature.output(name, output));
    let export = Export::new(&[tags::SERVING]).signature(signature_names::SERVING_DEFAULT, signature);
    SavedModelBuilder::new(directory)?.add_meta_graph_and_variables(session, export)?.save()
}

/// Returns whether the graph has local variables or tables, which every process initializes for itself.
fn has_local_state(graph: &Graph) -> bool {
    let is_there = |collection: &str| !graph.collection(collection).is_empty();
    is_there(collections::TABLE_INITIALIZERS) || is_there(collections::LOCAL_VARIABLES)
}

fn is_taken(directory: &str) -> Status {
    let message =
        format!("'{directory}' exists already; a SavedModel never overwrites anything: choose another directory");
    Status::already_exists(message)
}

/// Creates a directory with an unused name, beside the target.
fn create_temporary(files: &FileSystems, directory: &str) -> Result<String> {
    let process = std::process::id();
    for attempt in 0..MAX_TEMPORARY {
        let temporary = format!("{directory}.temp-{process}-{attempt}");
        match files.create_dir(&temporary) {
            Ok(()) => return Ok(temporary),
            Err(status) if status.code() == Code::AlreadyExists => {}
            Err(status) => return Err(status),
        }
    }
    Err(Status::resource_exhausted(format!("{MAX_TEMPORARY} directories '{directory}.temp-*' are left over")))
}
