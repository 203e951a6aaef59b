//! MetaGraphs: a graph with its collections and its saver, as TensorFlow writes it beside checkpoints.

use super::queue_runner::{QueueRunner, add_queue_runner, queue_runners};
use super::saver::Saver;
pub use crate::meta_graph::MetaGraph;

use crate::session::Session;
use crate::variable::{Kind, SaveSlice, Variable, collections};
use graph::{Graph, Output};
use prost::Message;
use proto::collection_def::{BytesList, Kind as CollectionKind, NodeList};
use proto::meta_graph_def::MetaInfoDef;
use proto::{CollectionDef, MetaGraphDef, QueueRunnerDef, SaveSliceInfoDef, VariableDef};
use tensor::{Result, Shape, Status};

/// The collection of queue runners.
const QUEUE_RUNNERS: &str = "queue_runners";

/// The collections whose members are variables.
const VARIABLE_COLLECTIONS: &[&str] = &[
    collections::GLOBAL_VARIABLES,
    collections::TRAINABLE_VARIABLES,
    collections::LOCAL_VARIABLES,
    collections::GLOBAL_STEP,
    collections::MOVING_AVERAGE_VARIABLES,
    "model_variables",
    "metric_variables",
];

/// Returns the MetaGraph of a graph.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::meta_graph::{export_meta_graph, import_meta_graph};
///
/// let g = Graph::new();
/// Variable::new(&g, "w", &g.constant(3f32));
/// let copy = Graph::new();
/// import_meta_graph(&copy, &export_meta_graph(&g, None))?;
/// assert_eq!(copy.num_nodes(), g.num_nodes());
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn export_meta_graph(graph: &Graph, saver: Option<&Saver>) -> MetaGraph {
    let mut meta = MetaGraphDef {
        meta_info_def: Some(MetaInfoDef { tensorflow_version: "1.15.0".to_owned(), ..Default::default() }),
        graph_def: Some(graph.to_graph_def()),
        saver_def: saver.map(Saver::to_def),
        ..Default::default()
    };
    for name in graph.collection_names() {
        let members = graph.collection(&name);
        let variables = VARIABLE_COLLECTIONS.contains(&name.as_str());
        let kind = if variables {
            let value = members.iter().filter_map(|handle| Variable::from_handle(handle).ok());
            CollectionKind::BytesList(BytesList {
                value: value.map(|one| to_def(&one).encode_to_vec().into()).collect(),
            })
        } else {
            CollectionKind::NodeList(NodeList { value: members.iter().map(member_name).collect() })
        };
        meta.collection_def.insert(name, CollectionDef { kind: Some(kind) });
    }
    let runners = queue_runners(graph);
    if !runners.is_empty() {
        let value = runners.iter().map(|runner| runner.to_def().encode_to_vec().into()).collect();
        let kind = Some(CollectionKind::BytesList(BytesList { value }));
        meta.collection_def.insert(QUEUE_RUNNERS.to_owned(), CollectionDef { kind });
    }
    MetaGraph(meta)
}

impl Saver {
    /// Writes a checkpoint and the graph, as `PREFIX-STEP.meta`, beside it.
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
    /// let path = Saver::new(&g)?.save_with_meta_graph(&session, &format!("{logdir}/model"), Some(7))?;
    /// assert!(std::path::Path::new(&format!("{path}.meta")).exists());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn save_with_meta_graph(&self, session: &Session, prefix: &str, global_step: Option<i64>) -> Result<String> {
        let written = self.save(session, prefix, global_step)?;
        let meta = export_meta_graph(session.graph(), Some(self));
        self.files.write_atomically(&format!("{written}.meta"), &meta.to_bytes())?;
        Ok(written)
    }
}

/// Adds a MetaGraph's nodes and collections to a graph; returns its saver, if it has one.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::Saver;
/// use ferroflow::train::meta_graph::{export_meta_graph, import_meta_graph};
/// use ferroflow::variable::global_variables;
///
/// let g = Graph::new();
/// Variable::new(&g, "w", &g.constant(3f32));
/// let meta = export_meta_graph(&g, Some(&Saver::new(&g)?));
/// let copy = Graph::new();
/// assert!(import_meta_graph(&copy, &meta)?.is_some());
/// assert_eq!(global_variables(&copy)?[0].name(), "w");
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn import_meta_graph(graph: &Graph, MetaGraph(meta): &MetaGraph) -> Result<Option<Saver>> {
    let def = meta.graph_def.as_ref().ok_or_else(|| Status::invalid_argument("a MetaGraph without a graph"))?;
    graph.import(def)?;
    for (name, collection) in &meta.collection_def {
        match &collection.kind {
            Some(CollectionKind::BytesList(list)) if VARIABLE_COLLECTIONS.contains(&name.as_str()) => {
                for bytes in &list.value {
                    let def = VariableDef::decode(&bytes[..])
                        .map_err(|error| Status::invalid_argument(format!("a broken variable in '{name}': {error}")))?;
                    let handle = graph.output(&def.variable_name)?;
                    graph.add_to_collection(name, &handle);
                    if let Some(slice) = &def.save_slice_info_def {
                        Variable::from_handle(&handle)?.set_save_slice(from_slice_def(slice)?);
                    }
                }
            }
            Some(CollectionKind::BytesList(list)) if name == QUEUE_RUNNERS => {
                for bytes in &list.value {
                    let def = QueueRunnerDef::decode(&bytes[..]);
                    let def =
                        def.map_err(|error| Status::invalid_argument(format!("a broken queue runner: {error}")))?;
                    add_queue_runner(graph, QueueRunner::from_def(def));
                }
            }
            Some(CollectionKind::NodeList(list)) => {
                for member in &list.value {
                    if let Ok(output) = graph.output(member) {
                        graph.add_to_collection(name, &output);
                    } else if let Some(operation) = graph.operation(member) {
                        graph.add_operation_to_collection(name, &operation);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(meta.saver_def.clone().map(Saver::from_def))
}

/// Reads a MetaGraph that was written beside a checkpoint.
///
/// ```
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
/// use ferroflow::train::meta_graph::{import_meta_graph, read_meta_graph};
/// # let directory = tempfile::tempdir().unwrap();
/// # let logdir = directory.path().to_str().unwrap();
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let w = Variable::new(&g, "w", &g.constant(4f32));
/// let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
/// let session = Session::new(&g)?;
/// session.run_ops(&[&global_variables_initializer(&g)])?;
/// let path = Saver::new(&g)?.save_with_meta_graph(&session, &format!("{logdir}/model"), Some(1))?;
///
/// let meta = read_meta_graph(&std::fs::read(format!("{path}.meta")).unwrap())?;
/// let copy = Graph::new();
/// let saver = import_meta_graph(&copy, &meta)?.unwrap();
/// saver.restore(&Session::new(&copy)?, &path)?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn read_meta_graph(content: &[u8]) -> Result<MetaGraph> {
    MetaGraph::from_bytes(content)
}

/// Returns the name of an operation or output in a collection: an operation without outputs has no port.
fn member_name(member: &Output) -> String {
    if (member.port as usize) < member.op.num_outputs() { member.name() } else { member.op.name() }
}

fn to_def(variable: &Variable) -> VariableDef {
    VariableDef {
        variable_name: variable.handle().name(),
        initializer_name: variable.initializer().name(),
        snapshot_name: variable.value().name(),
        save_slice_info_def: variable.save_slice().map(|slice| SaveSliceInfoDef {
            full_name: slice.full_name.clone(),
            full_shape: slice.full_shape.dims().to_vec(),
            var_offset: slice.offset.clone(),
            var_shape: slice.shape.dims().to_vec(),
        }),
        is_resource: variable.kind() == Kind::Resource,
        initial_value_name: variable.initial_value().name(),
        trainable: variable.is_trainable(),
        ..Default::default()
    }
}

fn from_slice_def(def: &SaveSliceInfoDef) -> Result<SaveSlice> {
    Ok(SaveSlice {
        full_name: def.full_name.clone(),
        full_shape: Shape::new(&def.full_shape)?,
        offset: def.var_offset.clone(),
        shape: Shape::new(&def.var_shape)?,
    })
}
