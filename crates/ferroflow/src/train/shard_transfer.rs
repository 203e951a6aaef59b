//! [`ShardTransfer`]: sharded checkpoints if the tasks that hold the variables don't share the chief's disk.
//!
//! A sharded saver's nodes write each shard on the task that holds its variables, which needs a file system that all tasks see.
//! To test that, each task reads a file of the chief's. If one doesn't see what the chief sees, copies of the saver's nodes run
//! instead: everything that accesses files is placed on the session's master, and the variables are sent there, one shard after
//! the other. The files are the same in both cases.

use crate::session::Session;
use graph::{DeviceName, Graph, NodeId, Operation, Output};
use proto::SaverDef;
use std::collections::{BTreeSet, HashMap, HashSet};
use tensor::{Code, DType, PartialShape, Result, Status, Tensor};

/// The nodes of a sharded saver that send the shards instead of writing them locally.
#[derive(Clone, Debug)]
pub(super) struct ShardTransfer {
    /// The tensor to fetch for a checkpoint, in place of the saver's own.
    pub(super) save: String,
    /// The operation that restores, in place of the saver's own.
    pub(super) restore: String,
    file: String,
    contents: Vec<String>,
    devices: Vec<String>,
}

impl ShardTransfer {
    /// Adds the nodes; returns `None` if the saver's nodes are on no named task, as in a session of one process.
    pub(super) fn add(graph: &Graph, def: &SaverDef) -> Result<Option<ShardTransfer>> {
        let saved = graph.output(&def.save_tensor_name)?;
        let filename = graph.output(&def.filename_tensor_name)?.edge();
        let restore = graph
            .operation(&def.restore_op_name)
            .ok_or_else(|| Status::not_found(format!("the saver's node '{}' is missing", def.restore_op_name)))?;
        let before = ancestors(&saved.op);
        let devices: BTreeSet<String> =
            before.iter().filter(|op| op.op_type() == "SaveV2").map(Operation::device).collect();
        let is_named = |device: &String| DeviceName::parse(device).is_ok_and(|name| name.job.is_some());
        let devices: Vec<String> = devices.into_iter().filter(is_named).collect();
        if devices.is_empty() {
            return Ok(None);
        }
        let scope = def.filename_tensor_name.rsplit_once('/').map_or("save", |(scope, _)| scope).to_owned();
        graph.in_name_scope("", |graph| {
            graph.name_scope(&format!("{scope}/sent"), |graph| {
                let file = graph.op("Placeholder").attr("dtype", DType::String).attr("shape", PartialShape::scalar());
                let file = file.device("").without_scope_controls().try_build()?.output(0);
                let mut contents = Vec::with_capacity(devices.len());
                for device in &devices {
                    let read = graph.op("ReadFile").input(&file).device(device).without_scope_controls().try_build()?;
                    contents.push(read.output(0).name());
                }
                let takes_filename = |op: &Operation| op.inputs().iter().any(|input| input.edge() == filename);
                let save = copy(graph, &saved.op, &before, &takes_filename, &mut Saving::default())?;
                let reads = |op: &Operation| op.op_type() == "RestoreV2";
                let mut restoring = Restoring::default();
                let restore = copy(graph, &restore, &ancestors(&restore), &reads, &mut restoring)?;
                restoring.one_after_the_other();
                Ok(Some(ShardTransfer {
                    save: save.try_output(saved.port)?.name(),
                    restore: restore.name(),
                    file: file.name(),
                    contents,
                    devices: devices.clone(),
                }))
            })
        })
    }

    /// Returns whether every task that holds a shard reads this content from the file.
    pub(super) fn all_read(&self, session: &Session, path: &str, content: &[u8]) -> Result<bool> {
        let run = session.runner().feed_name(&self.file, Tensor::string(path.to_owned()));
        let run = self.contents.iter().fold(run, |run, name| run.fetch_name(name));
        match run.run() {
            Ok(values) => Ok(values.iter().all(|value| matches!(value.strings(), Ok([found]) if found == content))),
            // A lost task doesn't mean a separate disk.
            Err(status) if is_about_tasks(&status) => Err(status),
            Err(_) => Ok(false),
        }
    }

    /// Returns the devices of the shards.
    pub(super) fn devices(&self) -> &[String] {
        &self.devices
    }
}

fn is_about_tasks(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::Aborted | Code::Cancelled | Code::DeadlineExceeded)
}

/// Returns an operation and everything that it depends on.
fn ancestors(last: &Operation) -> Vec<Operation> {
    let (mut seen, mut found, mut left) = (HashSet::from([last.id()]), Vec::new(), vec![last.clone()]);
    while let Some(op) = left.pop() {
        let inputs = op.inputs().into_iter().map(|input| input.op).chain(op.control_inputs());
        left.extend(inputs.filter(|input| seen.insert(input.id())));
        found.push(op);
    }
    found.sort_by_key(Operation::id);
    found
}

/// How an operation is copied.
trait Copier {
    fn copy(&mut self, graph: &Graph, op: &Operation, inputs: Vec<Output>, controls: &[Operation])
    -> Result<Operation>;
}

/// Copies those of `ops`, which are the dependencies of `last`, that are sources or depend on one; returns the copy of `last`.
fn copy(
    graph: &Graph,
    last: &Operation,
    ops: &[Operation],
    is_source: &dyn Fn(&Operation) -> bool,
    copier: &mut dyn Copier,
) -> Result<Operation> {
    let needed = |op: &Operation| -> Vec<NodeId> {
        op.inputs().iter().map(|input| input.op.id()).chain(op.control_inputs().iter().map(Operation::id)).collect()
    };
    let mut copied: HashSet<NodeId> = ops.iter().filter(|op| is_source(op)).map(Operation::id).collect();
    loop {
        let more = ops.iter().filter(|op| needed(op).iter().any(|id| copied.contains(id))).map(Operation::id);
        let more: Vec<NodeId> = more.filter(|id| !copied.contains(id)).collect();
        if more.is_empty() {
            break;
        }
        copied.extend(more);
    }
    let mut copies: HashMap<NodeId, Operation> = HashMap::new();
    let mut left: Vec<&Operation> = ops.iter().filter(|op| copied.contains(&op.id())).collect();
    while !left.is_empty() {
        let mut later = Vec::new();
        let before = left.len();
        for op in left {
            if needed(op).iter().any(|id| copied.contains(id) && !copies.contains_key(id)) {
                later.push(op);
                continue;
            }
            let inputs: Result<Vec<Output>> = op
                .inputs()
                .into_iter()
                .map(|input| match copies.get(&input.op.id()) {
                    Some(copy) => copy.try_output(input.port),
                    None => Ok(input),
                })
                .collect();
            let controls = op.control_inputs();
            let controls: Vec<Operation> =
                controls.into_iter().map(|control| copies.get(&control.id()).cloned().unwrap_or(control)).collect();
            let copy = copier.copy(graph, op, inputs?, &controls)?;
            copies.insert(op.id(), copy);
        }
        if later.len() == before {
            return Err(Status::invalid_argument("the nodes of the saver form a cycle"));
        }
        left = later;
    }
    let copy = copies.remove(&last.id());
    copy.ok_or_else(|| Status::invalid_argument(format!("the saver's node '{}' doesn't access files", last.name())))
}

/// Adds a copy of an operation on another device.
fn like(graph: &Graph, op: &Operation, device: &str, inputs: &[Output], controls: &[Operation]) -> Result<Operation> {
    let name = op.name();
    let mut copy = graph.op(&op.op_type()).name(name.rsplit('/').next().unwrap_or(&name)).inputs(inputs);
    for (name, value) in op.attrs() {
        // Colocation attributes refer to the saver's own nodes.
        if &*name != "_class" {
            copy = copy.attr(&name, value);
        }
    }
    let copy = controls.iter().fold(copy, |copy, control| copy.control(control));
    copy.device(device).without_scope_controls().try_build()
}

/// Copies the save operations, all of them to the master's task.
#[derive(Default)]
struct Saving {
    last: Option<Operation>,
}

impl Copier for Saving {
    fn copy(
        &mut self,
        graph: &Graph,
        op: &Operation,
        mut inputs: Vec<Output>,
        controls: &[Operation],
    ) -> Result<Operation> {
        if op.op_type() != "SaveV2" {
            return like(graph, op, "", &inputs, controls);
        }
        // A shard's values are sent only when the previous shard is written: the chief holds one at a time.
        if let Some(last) = &self.last {
            for value in inputs.iter_mut().skip(3) {
                let gate = graph.op("Identity").name("value").input(value).control(last);
                *value = gate.device(&value.op.device()).without_scope_controls().try_build()?.output(0);
            }
        }
        let copy = like(graph, op, "", &inputs, controls)?;
        self.last = Some(copy.clone());
        Ok(copy)
    }
}

/// Copies the restore operations: the reads to the master's task, the assignments to where they are.
#[derive(Default)]
struct Restoring {
    reads: Vec<Operation>,
    /// The assignments, each with its read.
    assigned: Vec<(usize, Operation)>,
    /// The reads that are copied.
    takes: HashMap<NodeId, usize>,
}

impl Copier for Restoring {
    fn copy(
        &mut self,
        graph: &Graph,
        op: &Operation,
        inputs: Vec<Output>,
        controls: &[Operation],
    ) -> Result<Operation> {
        if op.op_type() == "RestoreV2" {
            let copy = like(graph, op, "", &inputs, controls)?;
            self.takes.insert(copy.id(), self.reads.len());
            self.reads.push(copy.clone());
            return Ok(copy);
        }
        let copy = like(graph, op, &op.device(), &inputs, controls)?;
        if let Some(&read) = inputs.iter().find_map(|input| self.takes.get(&input.op.id())) {
            self.takes.insert(copy.id(), read);
            if copy.op_type() != "Identity" {
                self.assigned.push((read, copy.clone()));
            }
        }
        Ok(copy)
    }
}

impl Restoring {
    /// A shard is read only when the previous one is assigned: the chief holds one at a time.
    fn one_after_the_other(&self) {
        for (read, assigned) in &self.assigned {
            if let Some(next) = self.reads.get(read + 1) {
                next.add_control_input(assigned);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributed::{ClusterSpec, EmbeddedCluster, start_embedded};
    use crate::initializers;
    use crate::session::Target;
    use crate::train::{ReplicaDeviceSetter, Saver, SaverOptions, global_variables_initializer};
    use crate::variable::Kind;
    use crate::variable_scope::{FixedSizePartitioner, get_variable};

    /// Returns a sharded saver of variables on two parameter servers, and a session of a worker.
    struct Sharded {
        _cluster: EmbeddedCluster,
        graph: Graph,
        saver: Saver,
        values: Vec<Output>,
        session: Session,
    }

    fn on_two_tasks(factor: f64) -> Result<Sharded> {
        let cluster = ClusterSpec::new().with_job("ps", &["a:1", "b:1"])?.with_job("worker", &["c:1"])?;
        let cluster = start_embedded(&cluster)?;
        let graph = Graph::new();
        let values = ReplicaDeviceSetter::new(2).worker_device("/job:worker/task:0")?.scope(&graph, |_| {
            let v = get_variable(&graph, "v", &[3]).initializer(initializers::constant(2.0 * factor)).get();
            let w =
                get_variable(&graph, "w", &[2]).initializer(initializers::constant(factor)).kind(Kind::Resource).get();
            let table = get_variable(&graph, "table", &[5, 2]).initializer(initializers::constant(3.0 * factor));
            let table = table.get_partitioned(&FixedSizePartitioner { num_shards: 2, axis: 0 });
            Ok::<_, Status>(vec![v.value().clone(), w.value().clone(), table.as_tensor()])
        })?;
        let saver = Saver::with_options(&graph, SaverOptions { sharded: true, ..Default::default() })?;
        let init = global_variables_initializer(&graph);
        let session = Target::from(cluster.master("worker", 0)?).session(&graph, &Default::default())?;
        session.run_ops(&[&init])?;
        Ok(Sharded { _cluster: cluster, graph, saver, values, session })
    }

    fn files(directory: &std::path::Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn tasks_share_a_disk_when_they_read_what_the_chief_reads() -> Result<()> {
        let directory = tempfile::tempdir().unwrap();
        let sharded = on_two_tasks(1.0)?;
        let transfer = ShardTransfer::add(&sharded.graph, &sharded.saver.to_def())?.unwrap();
        assert_eq!(transfer.devices().len(), 2);
        let file = directory.path().join("file");
        std::fs::write(&file, "content").unwrap();
        let path = file.to_str().unwrap();
        assert!(transfer.all_read(&sharded.session, path, b"content")?);
        // An old file of the same name on a task's own disk.
        assert!(!transfer.all_read(&sharded.session, path, b"other")?);
        assert!(!transfer.all_read(&sharded.session, directory.path().join("none").to_str().unwrap(), b"content")?);
        Ok(())
    }

    #[test]
    fn what_is_sent_has_the_same_files_and_values() -> Result<()> {
        let sharded = on_two_tasks(1.0)?;
        let def = sharded.saver.to_def();
        let transfer = ShardTransfer::add(&sharded.graph, &def)?.unwrap();
        let own = sharded.graph.to_graph_def().node;
        let sent = own.iter().filter(|node| node.name.starts_with("save/sent/"));
        let writers: Vec<_> = sent.filter(|node| ["SaveV2", "MergeV2Checkpoints"].contains(&&*node.op)).collect();
        assert_eq!(writers.len(), 3);
        assert!(writers.iter().all(|node| node.device.is_empty()), "{writers:?}");

        let (by_tasks, by_chief) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let prefix = |directory: &tempfile::TempDir| directory.path().join("model").to_str().unwrap().to_owned();
        for (directory, fetch) in [(&by_tasks, &def.save_tensor_name), (&by_chief, &transfer.save)] {
            let run = sharded.session.runner().feed_name(&def.filename_tensor_name, Tensor::string(prefix(directory)));
            run.fetch_name(fetch).run()?;
        }
        assert_eq!(files(by_tasks.path()), ["model.data-00000-of-00002", "model.data-00001-of-00002", "model.index"]);
        assert_eq!(files(by_tasks.path()), files(by_chief.path()));
        for name in files(by_tasks.path()) {
            let read = |directory: &tempfile::TempDir| std::fs::read(directory.path().join(&name)).unwrap();
            assert_eq!(read(&by_tasks), read(&by_chief), "{name}");
        }

        let values = |sharded: &Sharded| sharded.session.run(&sharded.values.iter().collect::<Vec<_>>());
        let other = on_two_tasks(0.0)?;
        assert_eq!(values(&other)?[0].as_slice::<f32>()?, [0.0; 3]);
        let transfer = ShardTransfer::add(&other.graph, &def)?.unwrap();
        let run = other.session.runner().feed_name(&def.filename_tensor_name, Tensor::string(prefix(&by_chief)));
        run.target_name(&transfer.restore).run()?;
        for (before, after) in values(&sharded)?.iter().zip(&values(&other)?) {
            assert_eq!(before.as_slice::<f32>()?, after.as_slice::<f32>()?);
        }
        Ok(())
    }
}
