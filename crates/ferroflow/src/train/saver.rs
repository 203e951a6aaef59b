//! [`Saver`]: writes the values of variables to checkpoints and restores them, with the nodes that TensorFlow uses.
//!
//! With a sharded saver, every task writes its own variables. That needs a disk that all tasks share with the chief. Whether they
//! share one is checked for every checkpoint; if not, the shards are sent to the chief, which writes and reads the same files. No
//! configuration is needed for either case.

use super::expression::group;
use super::shard_transfer::ShardTransfer;
use crate::saveable::{self, Saveable};
use crate::session::Session;
use crate::variable::{Kind, Variable, global_variables, named_constant};
use bytes::Bytes;
use graph::{DeviceName, Graph, Operation, Output};
use parking_lot::Mutex;
use proto::{CheckpointState, SaverDef};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use storage::bundle::meta_filename;
use storage::checkpoint_state::{self, SavedPaths};
use storage::file_system::{FileSystem, FileSystems, create_temporary, path};
use tensor::{Code, DType, PartialShape, Result, Shape, Status, Tensor};

/// Options of a saver.
///
/// ```
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
/// # let g = Graph::new();
/// # let step = create_global_step(&g);
/// # let w = Variable::new(&g, "w", &g.constant(4f32));
/// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
/// let options = SaverOptions { max_to_keep: 2, variables: Some(vec![("weight".into(), w)]), ..SaverOptions::default() };
/// let saver = Saver::with_options(&g, options)?;
/// assert_eq!(saver.to_def().max_to_keep, 2);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug)]
pub struct SaverOptions {
    /// The variables by their names in checkpoints; the default is all global variables under their own names, and the other
    /// saveable state, such as the positions of iterators.
    pub variables: Option<Vec<(String, Variable)>>,
    /// Whether every task writes its own shard, or sends it to the chief if it doesn't share the chief's disk.
    pub sharded: bool,
    /// The most checkpoints to keep; 0 means all.
    pub max_to_keep: usize,
    /// The interval in hours at which a checkpoint is kept permanently.
    pub keep_checkpoint_every_n_hours: f64,
    /// The name scope of the saver's nodes.
    pub name: String,
    /// Whether restoring gives variables the shape of the restored value.
    pub reshape: bool,
}

impl Default for SaverOptions {
    fn default() -> Self {
        SaverOptions {
            variables: None,
            sharded: false,
            max_to_keep: 5,
            keep_checkpoint_every_n_hours: 10_000.0,
            name: "save".to_owned(),
            reshape: false,
        }
    }
}

/// Saves and restores variables.
///
/// ```
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
/// # let directory = tempfile::tempdir().unwrap();
/// # let logdir = directory.path().to_str().unwrap();
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let w = Variable::new(&g, "w", &g.constant(4f32));
/// let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
/// let saver = Saver::new(&g)?;
/// let session = Session::new(&g)?;
/// session.run_ops(&[&global_variables_initializer(&g)])?;
/// session.run_ops(&[&train])?;
/// let path = saver.save(&session, &format!("{logdir}/model"), Some(1))?;
///
/// let other = Session::new(&g)?;
/// saver.restore(&other, &path)?;
/// assert_eq!(other.eval::<f32>(w.value())?, session.eval::<f32>(w.value())?);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct Saver {
    filename: String,
    save: String,
    restore: String,
    def: SaverDef,
    max_to_keep: usize,
    keep_every_seconds: f64,
    pub(super) files: Arc<dyn FileSystem>,
    kept: Mutex<Kept>,
    /// Held while a checkpoint is written: two of the same step would interfere.
    saving: Mutex<()>,
    /// The nodes that send shards, once it is known whether they are needed.
    transfer: Mutex<Option<Option<ShardTransfer>>>,
}

/// The saver's checkpoints, oldest first, each with the time at which it was written.
#[derive(Default)]
struct Kept {
    checkpoints: Vec<(String, f64)>,
    next_preserved: f64,
}

/// One tensor in a checkpoint.
struct Saved {
    name: String,
    spec: String,
    source: Source,
}

/// The source of a tensor, to which it is restored.
enum Source {
    Variable(Box<Variable>),
    /// Other saveable state, and its device.
    Other(Saveable, String),
}

impl Source {
    fn device(&self) -> String {
        match self {
            Source::Variable(variable) => variable.op().device(),
            Source::Other(_, device) => device.clone(),
        }
    }

    fn dtype(&self) -> DType {
        match self {
            Source::Variable(variable) => variable.dtype(),
            Source::Other(saveable, _) => saveable.dtype,
        }
    }

    /// Returns the tensor to save.
    fn value(&self, graph: &Graph) -> Output {
        match self {
            Source::Variable(variable) if variable.kind() == Kind::Ref => variable.handle().clone(),
            Source::Variable(variable) => variable.value().clone(),
            Source::Other(saveable, _) => graph.from_edge(saveable.value),
        }
    }
}

impl Saver {
    /// Adds a saver of all global variables.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let saver = Saver::new(&g)?;
    /// assert!(saver.last_checkpoints().is_empty());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn new(graph: &Graph) -> Result<Saver> {
        Saver::with_options(graph, SaverOptions::default())
    }

    /// Adds a saver.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let saver = Saver::with_options(&g, SaverOptions { max_to_keep: 0, ..SaverOptions::default() })?;
    /// assert_eq!(saver.to_def().max_to_keep, 0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn with_options(graph: &Graph, options: SaverOptions) -> Result<Saver> {
        let saved = saved_tensors(graph, &options)?;
        if saved.is_empty() {
            return Err(Status::invalid_argument("No variables to save"));
        }
        let (filename, save, restore) = graph.name_scope(&options.name, |graph| build(graph, &saved, &options))?;
        let def = SaverDef {
            filename_tensor_name: filename.name(),
            save_tensor_name: save.name(),
            restore_op_name: restore.name(),
            max_to_keep: i32::try_from(options.max_to_keep).unwrap_or(i32::MAX),
            sharded: options.sharded,
            keep_checkpoint_every_n_hours: options.keep_checkpoint_every_n_hours as f32,
            version: proto::saver_def::CheckpointFormatVersion::V2 as i32,
        };
        Ok(Saver::from_def(def))
    }

    /// Returns a saver over existing nodes, such as those of an imported MetaGraph.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let def = Saver::new(&g)?.to_def();
    /// assert_eq!(Saver::from_def(def.clone()).to_def(), def);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn from_def(def: SaverDef) -> Saver {
        let keep_every_seconds = f64::from(def.keep_checkpoint_every_n_hours) * 3600.0;
        Saver {
            filename: def.filename_tensor_name.clone(),
            save: def.save_tensor_name.clone(),
            restore: def.restore_op_name.clone(),
            max_to_keep: usize::try_from(def.max_to_keep).unwrap_or(0),
            keep_every_seconds,
            files: Arc::new(FileSystems::all()),
            kept: Mutex::new(Kept { checkpoints: Vec::new(), next_preserved: now() + keep_every_seconds }),
            saving: Mutex::new(()),
            transfer: Mutex::new(None),
            def,
        }
    }

    /// Returns the saver's definition for a MetaGraph.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let def = Saver::new(&g)?.to_def();
    /// assert_eq!(def.filename_tensor_name, "save/Const:0");
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn to_def(&self) -> SaverDef {
        self.def.clone()
    }

    /// Writes a checkpoint `PREFIX-STEP`, and records it as the directory's newest; returns its name.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[&global_variables_initializer(&g)])?;
    /// let path = Saver::new(&g)?.save(&session, &format!("{logdir}/model"), Some(7))?;
    /// assert_eq!(path, format!("{logdir}/model-7"));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn save(&self, session: &Session, prefix: &str, global_step: Option<i64>) -> Result<String> {
        let directory = path::dirname(prefix);
        let directory = if directory.is_empty() { "." } else { directory };
        if !self.files.exists(directory)? {
            return Err(Status::not_found(format!("Parent directory of {prefix} doesn't exist, can't save.")));
        }
        let _saving = self.saving.lock();
        let wanted = match global_step {
            Some(step) => format!("{prefix}-{step}"),
            None => prefix.to_owned(),
        };
        let values = self.write(session, &wanted).map_err(|status| about_files(status, "saving", &wanted))?;
        let written = match values.first().map(Tensor::strings) {
            Some(Ok([name])) => String::from_utf8_lossy(name).into_owned(),
            _ => wanted,
        };
        let state = {
            let mut kept = self.kept.lock();
            self.remember(&mut kept, &written)
        };
        // The state file is written last, so that it never names an incomplete checkpoint.
        checkpoint_state::update_checkpoint_state(&*self.files, directory, state.0, None, SavedPaths::AsGiven)?;
        for old in state.1 {
            self.delete(&old);
        }
        Ok(written)
    }

    /// Restores a checkpoint.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let saver = Saver::new(&g)?;
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[&global_variables_initializer(&g)])?;
    /// saver.save(&session, &format!("{logdir}/model"), None)?;
    /// session.run_ops(&[&train])?;
    /// saver.restore(&session, &latest_checkpoint(logdir)?.unwrap())?;
    /// assert_eq!(session.eval::<f32>(w.value())?, 4.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn restore(&self, session: &Session, checkpoint: &str) -> Result<()> {
        if !self.files.exists(&meta_filename(checkpoint))? {
            return Err(Status::invalid_argument(format!(
                "The passed save_path is not a valid checkpoint: {checkpoint}"
            )));
        }
        self.read(session, checkpoint).map_err(|status| about_files(status, "restoring", checkpoint))
    }

    /// Writes the variables to files with this prefix and nothing else: no state file names them, and none is deleted later. The
    /// tasks that hold the variables write them, or the chief does.
    pub(crate) fn save_values(&self, session: &Session, prefix: &str) -> Result<()> {
        let _saving = self.saving.lock();
        self.write(session, prefix).map(drop).map_err(|status| about_files(status, "saving", prefix))
    }

    fn write(&self, session: &Session, prefix: &str) -> Result<Vec<Tensor>> {
        let run = |fetch: &str| {
            let run = session.runner().feed_name(&self.filename, Tensor::string(prefix.to_owned()));
            run.fetch_name(fetch).run()
        };
        let Some(transfer) = self.transfer(session.graph())? else { return run(&self.save) };
        if self.is_disk_shared(&transfer, session, prefix)? {
            match run(&self.save) {
                // They see the chief's files, but can't write beside them.
                Err(status) if is_about_access(&status) => tracing::info!("a shard can't be written: {status}"),
                result => return result,
            }
        }
        tracing::info!("{prefix}: the chief writes the shards of {}", transfer.devices().join(", "));
        run(&transfer.save)
    }

    /// Restores a checkpoint, read by the tasks that hold the variables or by the chief.
    fn read(&self, session: &Session, prefix: &str) -> Result<()> {
        let run = |target: &str| {
            let run = session.runner().feed_name(&self.filename, Tensor::string(prefix.to_owned()));
            run.target_name(target).run().map(drop)
        };
        let Some(transfer) = self.transfer(session.graph())? else { return run(&self.restore) };
        // The index has the checksum of every tensor: a task that sees the same index sees the same checkpoint.
        let index = meta_filename(prefix);
        if transfer.all_read(session, &index, &self.files.read(&index)?)? {
            match run(&self.restore) {
                Err(status) if is_about_access(&status) => tracing::info!("a shard can't be read: {status}"),
                result => return result,
            }
        }
        tracing::info!("{prefix}: the chief reads the shards of {}", transfer.devices().join(", "));
        run(&transfer.restore)
    }

    /// Returns the nodes that send shards; `None` if there are no shards, or everything is in one process.
    fn transfer(&self, graph: &Graph) -> Result<Option<ShardTransfer>> {
        if !self.def.sharded {
            return Ok(None);
        }
        let mut transfer = self.transfer.lock();
        // A saver that was created from its definition may be used with another graph now.
        let is_there = |transfer: &ShardTransfer| graph.operation(&transfer.restore).is_some();
        match &*transfer {
            Some(known) if known.as_ref().is_none_or(is_there) => Ok(known.clone()),
            _ => Ok(transfer.insert(ShardTransfer::add(graph, &self.def)?).clone()),
        }
    }

    /// Returns whether all tasks with shards see a file that is written beside the checkpoint.
    fn is_disk_shared(&self, transfer: &ShardTransfer, session: &Session, prefix: &str) -> Result<bool> {
        let (name, mut file) = create_temporary(&*self.files, &format!("{prefix}.shared"))?;
        let content = format!("{} {} {:?}", std::process::id(), session.id(), SystemTime::now());
        let written = file.append(content.as_bytes()).and_then(|()| file.flush());
        let seen = written.and_then(|()| transfer.all_read(session, &name, content.as_bytes()));
        // Until now the file was open, and so locked: otherwise another process could sweep it as a leftover.
        drop(file);
        if let Err(status) = self.files.delete_file(&name) {
            tracing::warn!("can't delete {name}: {status}");
        }
        seen
    }

    /// Returns the kept checkpoints, oldest first.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let saver = Saver::with_options(&g, SaverOptions { max_to_keep: 2, ..SaverOptions::default() })?;
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[&global_variables_initializer(&g)])?;
    /// for step in 1..=3 {
    ///     saver.save(&session, &format!("{logdir}/model"), Some(step))?;
    /// }
    /// assert_eq!(saver.last_checkpoints(), [format!("{logdir}/model-2"), format!("{logdir}/model-3")]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn last_checkpoints(&self) -> Vec<String> {
        self.kept.lock().checkpoints.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Takes over the checkpoints in a directory's state file, after a restart.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[&global_variables_initializer(&g)])?;
    /// let path = Saver::new(&g)?.save(&session, &format!("{logdir}/model"), Some(1))?;
    /// // After a restart.
    /// let saver = Saver::new(&g)?;
    /// saver.recover_last_checkpoints(&[path.clone()])?;
    /// assert_eq!(saver.last_checkpoints(), [path]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn recover_last_checkpoints(&self, checkpoints: &[String]) -> Result<()> {
        let mut kept = self.kept.lock();
        for checkpoint in checkpoints {
            if let Ok(statistics) = self.files.stat(&meta_filename(checkpoint)) {
                let seconds = statistics.modified_nanos as f64 / 1e9;
                kept.checkpoints.push((checkpoint.clone(), seconds));
            }
        }
        Ok(())
    }

    /// Returns the step of the newest checkpoint `PREFIX-STEP` that this saver has written or restored.
    ///
    /// If there is one, training needn't save at its start: that would save the changes that other workers have made since the
    /// restore, even if they have broken the model.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let saver = Saver::new(&g)?;
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[&global_variables_initializer(&g)])?;
    /// let prefix = format!("{logdir}/model");
    /// assert_eq!(saver.newest_step(&prefix), None);
    /// saver.save(&session, &prefix, Some(7))?;
    /// assert_eq!(saver.newest_step(&prefix), Some(7));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn newest_step(&self, prefix: &str) -> Option<i64> {
        let kept = self.kept.lock();
        let (name, _) = kept.checkpoints.last()?;
        name.strip_prefix(prefix)?.strip_prefix('-')?.parse().ok()
    }

    /// Records a new checkpoint; returns the directory's new state and the checkpoints to delete.
    fn remember(&self, kept: &mut Kept, written: &str) -> (CheckpointState, Vec<String>) {
        kept.checkpoints.retain(|(name, _)| name != written);
        kept.checkpoints.push((written.to_owned(), now()));
        let mut deleted = Vec::new();
        while self.max_to_keep > 0 && kept.checkpoints.len() > self.max_to_keep {
            let (name, seconds) = kept.checkpoints.remove(0);
            if seconds > kept.next_preserved {
                kept.next_preserved += self.keep_every_seconds;
            } else {
                deleted.push(name);
            }
        }
        let state = CheckpointState {
            model_checkpoint_path: written.to_owned(),
            all_model_checkpoint_paths: kept.checkpoints.iter().map(|(name, _)| name.clone()).collect(),
            all_model_checkpoint_timestamps: kept.checkpoints.iter().map(|(_, seconds)| *seconds).collect(),
            last_preserved_timestamp: kept.next_preserved - self.keep_every_seconds,
        };
        (state, deleted)
    }

    /// Deletes the files of a checkpoint; missing ones are ignored.
    fn delete(&self, checkpoint: &str) {
        for pattern in
            [format!("{checkpoint}.data-?????-of-?????"), meta_filename(checkpoint), format!("{checkpoint}.meta")]
        {
            for file in self.files.glob(&pattern).unwrap_or_default() {
                if let Err(status) = self.files.delete_file(&file) {
                    tracing::warn!("can't delete the old checkpoint file {file}: {status}");
                }
            }
        }
    }
}

/// Returns the newest checkpoint of a directory, if there is one.
///
/// ```
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
/// # let directory = tempfile::tempdir().unwrap();
/// # let logdir = directory.path().to_str().unwrap();
/// # let g = Graph::new();
/// # let step = create_global_step(&g);
/// # let w = Variable::new(&g, "w", &g.constant(4f32));
/// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
/// assert_eq!(latest_checkpoint(logdir)?, None);
/// let session = Session::new(&g)?;
/// session.run_ops(&[&global_variables_initializer(&g)])?;
/// let path = Saver::new(&g)?.save(&session, &format!("{logdir}/model"), Some(7))?;
/// assert_eq!(latest_checkpoint(logdir)?, Some(path));
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn latest_checkpoint(directory: &str) -> Result<Option<String>> {
    checkpoint_state::latest_checkpoint(&FileSystems::all(), directory, None)
}

/// Returns whether a task can't access files that the chief can.
fn is_about_access(status: &Status) -> bool {
    matches!(status.code(), Code::NotFound | Code::PermissionDenied | Code::FailedPrecondition)
}

/// Names the failed checkpoint. A file that is too short or too long must not be reported as `OutOfRange`, which training loops
/// take for the end of the input.
fn about_files(status: Status, what: &str, checkpoint: &str) -> Status {
    let status = match (status.code(), what) {
        (Code::OutOfRange, "saving") => Status::new(Code::ResourceExhausted, status.message()),
        (Code::OutOfRange, _) => Status::new(Code::DataLoss, status.message()),
        _ => status,
    };
    status.context(format!("{what} '{checkpoint}'"))
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Returns the tensors to save, sorted by name and slice, as in TensorFlow.
fn saved_tensors(graph: &Graph, options: &SaverOptions) -> Result<Vec<Saved>> {
    let named = match &options.variables {
        Some(variables) => variables.clone(),
        None => {
            let all = global_variables(graph)?;
            all.into_iter()
                .map(|variable| {
                    let name = variable.save_slice().map_or_else(|| variable.name(), |slice| slice.full_name.clone());
                    (name, variable)
                })
                .collect()
        }
    };
    let mut by_name: BTreeMap<String, Vec<Variable>> = BTreeMap::new();
    for (name, variable) in named {
        by_name.entry(name).or_default().push(variable);
    }
    let mut saved = Vec::new();
    for (name, variables) in by_name {
        if variables.len() > 1 && variables.iter().any(|variable| variable.save_slice().is_none()) {
            return Err(Status::invalid_argument(format!("At least two variables have the same name: {name}")));
        }
        for variable in variables {
            let spec = variable.save_slice().map(|slice| slice.spec()).unwrap_or_default();
            saved.push(Saved { name: name.clone(), spec, source: Source::Variable(Box::new(variable)) });
        }
    }
    if options.variables.is_none() {
        for saveable in saveable::of(graph) {
            let device = graph.from_edge(saveable.owner).op.device();
            let (name, spec) = (saveable.name.clone(), String::new());
            saved.push(Saved { name, spec, source: Source::Other(saveable, device) });
        }
    }
    Ok(saved)
}

fn build(graph: &Graph, saved: &[Saved], options: &SaverOptions) -> Result<(Output, Output, Operation)> {
    let scalar = PartialShape::scalar();
    let filename = graph.name_scope("filename", |graph| {
        let whole = format!("{}/", graph.current_name_scope());
        let input = named_constant(graph, "input", &Tensor::string("model"));
        graph.op("PlaceholderWithDefault").name(&whole).input(&input).attr("shape", scalar.clone()).try_build()
    })?;
    let filename = graph.op("PlaceholderWithDefault").name("Const").input(&filename.output(0)).attr("shape", scalar);
    let filename = filename.try_build()?.output(0);
    if options.sharded {
        return build_sharded(graph, &filename, saved, options);
    }
    let all: Vec<&Saved> = saved.iter().collect();
    let save = save_op(graph, &filename, &all)?;
    let done = after(graph, &filename, &save)?;
    let assigns = restore_ops(graph, &filename, &all, options, None)?;
    let restore = group(graph, &assigns, "restore_all")?;
    Ok((filename, done, restore))
}

fn build_sharded(
    graph: &Graph,
    filename: &Output,
    saved: &[Saved],
    options: &SaverOptions,
) -> Result<(Output, Output, Operation)> {
    let mut shards: BTreeMap<String, Vec<&Saved>> = BTreeMap::new();
    for one in saved {
        shards.entry(host_cpu(&one.source.device())?).or_default().push(one);
    }
    let shards: Vec<(String, Vec<&Saved>)> = shards.into_iter().collect();
    let text = |graph: &Graph, value: &str| graph.constant_tensor(&Tensor::string(value.to_owned()));
    let temporary = graph.device("/device:CPU:*", |graph| -> Result<Output> {
        let is_s3 = graph.op("StaticRegexFullMatch").input(filename).attr("pattern", "^s3://.*").try_build()?;
        let (part, directory) = (text(graph, ".part"), text(graph, "_temp/part"));
        let suffix = graph.op("Select").input(&is_s3.output(0)).input(&part).input(&directory).try_build()?;
        let join = graph.op("StringJoin").input(filename).input(&suffix.output(0)).attr("N", 2i64).try_build()?;
        Ok(join.output(0))
    })?;
    let count = i32::try_from(shards.len()).unwrap_or(i32::MAX);
    let num_shards = named_constant(graph, "num_shards", &Tensor::scalar(count));
    let (mut names, mut written) = (Vec::new(), Vec::new());
    for (index, (device, members)) in shards.iter().enumerate() {
        let (name, done) = on_device(graph, device, |graph| -> Result<(Output, Output)> {
            let name = graph.name_scope("ShardedFilename", |graph| {
                let whole = format!("{}/", graph.current_name_scope());
                let shard = named_constant(graph, "shard", &Tensor::scalar(index as i32));
                let op = graph.op("ShardedFilename").name(&whole).input(&temporary).input(&shard).input(&num_shards);
                op.try_build().map(|op| op.output(0))
            })?;
            let save = save_op(graph, &name, members)?;
            let done = after(graph, &name, &save)?;
            Ok((name, done))
        })?;
        names.push(name);
        written.push(done.op.clone());
    }
    let last = shards.last().map(|(device, _)| device.as_str()).unwrap_or_default();
    let done = graph.control_dependencies(&written, |graph| {
        on_device(graph, last, |graph| -> Result<Output> {
            let merge = graph.name_scope("MergeV2Checkpoints", |graph| {
                let whole = format!("{}/", graph.current_name_scope());
                let prefixes = graph.op("Pack").name("checkpoint_prefixes").inputs(&names).try_build()?.output(0);
                let op = graph.op("MergeV2Checkpoints").name(&whole).input(&prefixes).input(filename);
                op.try_build()
            })?;
            graph.control_dependencies(&[merge], |graph| {
                graph.op("Identity").input(filename).try_build().map(|op| op.output(0))
            })
        })
    })?;
    let mut restored = Vec::new();
    for (device, members) in &shards {
        let assigns = on_device(graph, device, |graph| restore_ops(graph, filename, members, options, Some(device)))?;
        restored.push(group(graph, &assigns, "restore_shard")?);
    }
    let restore = group(graph, &restored, "restore_all")?;
    Ok((filename.clone(), done, restore))
}

fn on_device<R>(graph: &Graph, device: &str, body: impl FnOnce(&Graph) -> R) -> R {
    if device.is_empty() { body(graph) } else { graph.device(device, body) }
}

/// Returns the CPU of a device's task, which has access to files.
fn host_cpu(device: &str) -> Result<String> {
    if device.is_empty() {
        return Ok(String::new());
    }
    let mut name = DeviceName::parse(device)?;
    name.device_type = Some("CPU".to_owned());
    name.id = Some(0);
    Ok(name.to_string())
}

fn save_op(graph: &Graph, filename: &Output, saved: &[&Saved]) -> Result<Operation> {
    graph.name_scope("SaveV2", |graph| {
        let whole = format!("{}/", graph.current_name_scope());
        let (names, specs) = lists(graph, saved)?;
        let mut op = graph.op("SaveV2").name(&whole).input(filename).input(&names).input(&specs);
        for one in saved {
            op = op.input(&one.source.value(graph));
        }
        op.try_build()
    })
}

fn lists(graph: &Graph, saved: &[&Saved]) -> Result<(Output, Output)> {
    let list = |name: &str, values: Vec<Bytes>| -> Result<Output> {
        Ok(named_constant(graph, name, &Tensor::from_strings(Shape::vector(values.len()), values)?))
    };
    let names = list("tensor_names", saved.iter().map(|one| Bytes::from(one.name.clone())).collect())?;
    let specs = list("shape_and_slices", saved.iter().map(|one| Bytes::from(one.spec.clone())).collect())?;
    Ok((names, specs))
}

/// Passes the name on once the checkpoint is written.
fn after(graph: &Graph, name: &Output, save: &Operation) -> Result<Output> {
    graph.colocate_with(&name.op, |graph| {
        let op = graph.op("Identity").name("control_dependency").input(name).control(save);
        op.try_build().map(|op| op.output(0))
    })
}

fn restore_ops(
    graph: &Graph,
    filename: &Output,
    saved: &[&Saved],
    options: &SaverOptions,
    device: Option<&str>,
) -> Result<Vec<Operation>> {
    let build = |graph: &Graph| {
        graph.name_scope("RestoreV2", |graph| {
            let whole = format!("{}/", graph.current_name_scope());
            let (names, specs) = lists(graph, saved)?;
            let types: Vec<DType> = saved.iter().map(|one| one.source.dtype()).collect();
            let op = graph.op("RestoreV2").name(&whole).input(filename).input(&names).input(&specs);
            op.attr("dtypes", &types[..]).try_build()
        })
    };
    let restored = match device {
        Some(_) => build(graph)?,
        None => graph.device("/device:CPU:0", build)?,
    };
    let mut assigns = Vec::with_capacity(saved.len());
    for (index, one) in saved.iter().enumerate() {
        let value = restored.output(index as u32);
        let variable = match &one.source {
            Source::Variable(variable) => variable,
            Source::Other(saveable, device) => {
                assigns.push(on_exact_device(graph, device, |graph| (saveable.restore)(graph, &value))?);
                continue;
            }
        };
        assigns.push(match variable.kind() {
            Kind::Ref => {
                let validate = !options.reshape && variable.shape().is_fully_defined();
                let op = graph.op("Assign").input(variable.handle()).input(&value);
                op.attr("validate_shape", validate).try_build()?
            }
            Kind::Resource => {
                let device = variable.op().device();
                on_exact_device(graph, &device, |graph| -> Result<Operation> {
                    let value = graph.op("Identity").input(&value).try_build()?.output(0);
                    graph.op("AssignVariableOp").input(variable.handle()).input(&value).try_build()
                })?
            }
        });
    }
    Ok(assigns)
}

fn on_exact_device<R>(graph: &Graph, device: &str, body: impl FnOnce(&Graph) -> R) -> R {
    if device.is_empty() { body(graph) } else { graph.without_device(|graph| graph.device(device, body)) }
}
