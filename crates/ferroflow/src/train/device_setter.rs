//! Placement of nodes on tasks: [`ReplicaDeviceSetter`] places variables on parameter servers and everything else on a worker,
//! [`GreedyLoadBalancingStrategy`] balances them by size.

use cluster::ClusterSpec;
use graph::DeviceName;
use graph::{AttrMap, Graph};
use parking_lot::Mutex;
use std::sync::Arc;
use tensor::{PartialShape, Result, Status};

/// The ops that are placed on parameter servers by default.
///
/// ```
/// use ferroflow::train::STANDARD_PS_OPS;
///
/// assert!(STANDARD_PS_OPS.contains(&"VariableV2") && !STANDARD_PS_OPS.contains(&"MatMul"));
/// ```
pub const STANDARD_PS_OPS: &[&str] = &[
    "Variable",
    "VariableV2",
    "AutoReloadVariable",
    "MutableHashTable",
    "MutableHashTableV2",
    "MutableHashTableOfTensors",
    "MutableHashTableOfTensorsV2",
    "MutableDenseHashTable",
    "MutableDenseHashTableV2",
    "VarHandleOp",
    "BoostedTreesEnsembleResourceHandleOp",
    "BoostedTreesQuantileStreamResourceHandleOp",
    "ResourceConditionalAccumulator",
    "DecisionTreeResource",
];

/// The information that a strategy gets about a node for a parameter server.
///
/// ```
/// use ferroflow::train::{PsOp, byte_size_load};
///
/// assert_eq!(byte_size_load(&PsOp { op: "VariableV2", name: "w", bytes: Some(400) })?, 400.0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct PsOp<'a> {
    /// The op.
    pub op: &'a str,
    /// The node's name.
    pub name: &'a str,
    /// The size of its value in bytes, if it is known.
    pub bytes: Option<u64>,
}

/// Chooses a parameter server.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::{PlacementStrategy, PsOp, ReplicaDeviceSetter};
/// use std::sync::Arc;
///
/// /// Embeddings have a task of their own.
/// struct ByName;
///
/// impl PlacementStrategy for ByName {
///     fn choose(&self, op: &PsOp<'_>) -> ferroflow::Result<u32> {
///         Ok(op.name.contains("embedding").into())
///     }
/// }
///
/// let g = Graph::new();
/// let setter = ReplicaDeviceSetter::new(2).strategy(Arc::new(ByName));
/// let table = setter.scope(&g, |g| Variable::new(g, "embedding", &g.constant([0f32; 4])));
/// assert_eq!(table.op().device(), "/job:ps/task:1");
/// ```
pub trait PlacementStrategy: Send + Sync {
    /// Returns the index of the task.
    fn choose(&self, op: &PsOp<'_>) -> Result<u32>;
}

/// Assigns nodes to the parameter servers round-robin.
///
/// ```
/// use ferroflow::train::{PlacementStrategy, PsOp, RoundRobinStrategy};
///
/// let strategy = RoundRobinStrategy::new(2);
/// let op = PsOp { op: "VariableV2", name: "w", bytes: None };
/// let chosen = [strategy.choose(&op)?, strategy.choose(&op)?, strategy.choose(&op)?];
/// assert_eq!(chosen, [0, 1, 0]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct RoundRobinStrategy {
    tasks: u32,
    next: Mutex<u32>,
}

impl RoundRobinStrategy {
    /// Returns a strategy for this many tasks.
    ///
    /// ```
    /// use ferroflow::train::{ReplicaDeviceSetter, RoundRobinStrategy};
    /// use std::sync::Arc;
    ///
    /// // What a setter does unless told otherwise.
    /// let setter = ReplicaDeviceSetter::new(3).strategy(Arc::new(RoundRobinStrategy::new(3)));
    /// ```
    pub fn new(tasks: u32) -> RoundRobinStrategy {
        RoundRobinStrategy { tasks: tasks.max(1), next: Mutex::new(0) }
    }
}

impl PlacementStrategy for RoundRobinStrategy {
    fn choose(&self, _op: &PsOp<'_>) -> Result<u32> {
        let mut next = self.next.lock();
        let task = *next;
        *next = (task + 1) % self.tasks;
        Ok(task)
    }
}

/// Assigns every node to the parameter server with the least load so far.
///
/// ```
/// use ferroflow::train::{GreedyLoadBalancingStrategy, PlacementStrategy, PsOp, byte_size_load};
///
/// let strategy = GreedyLoadBalancingStrategy::new(2, byte_size_load);
/// let variable = |bytes| PsOp { op: "VariableV2", name: "w", bytes: Some(bytes) };
/// let chosen = [strategy.choose(&variable(100))?, strategy.choose(&variable(10))?, strategy.choose(&variable(10))?];
/// assert_eq!(chosen, [0, 1, 1]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct GreedyLoadBalancingStrategy {
    loads: Mutex<Vec<f64>>,
    load: fn(&PsOp<'_>) -> Result<f64>,
}

impl GreedyLoadBalancingStrategy {
    /// Returns a strategy for this many tasks; `load` returns the load of a node, such as [`byte_size_load`].
    ///
    /// ```
    /// use ferroflow::train::{GreedyLoadBalancingStrategy, ReplicaDeviceSetter, byte_size_load};
    /// use std::sync::Arc;
    ///
    /// let strategy = GreedyLoadBalancingStrategy::new(3, byte_size_load);
    /// let setter = ReplicaDeviceSetter::new(3).strategy(Arc::new(strategy));
    /// ```
    pub fn new(tasks: u32, load: fn(&PsOp<'_>) -> Result<f64>) -> GreedyLoadBalancingStrategy {
        GreedyLoadBalancingStrategy { loads: Mutex::new(vec![0.0; tasks.max(1) as usize]), load }
    }
}

impl PlacementStrategy for GreedyLoadBalancingStrategy {
    fn choose(&self, op: &PsOp<'_>) -> Result<u32> {
        let added = (self.load)(op)?;
        let mut loads = self.loads.lock();
        let mut least = 0;
        for (task, load) in loads.iter().enumerate() {
            if *load < loads[least] {
                least = task;
            }
        }
        loads[least] += added;
        Ok(least as u32)
    }
}

/// Returns the size of a variable in bytes; an unknown shape is an error.
///
/// ```
/// use ferroflow::train::{PsOp, byte_size_load};
///
/// assert_eq!(byte_size_load(&PsOp { op: "VariableV2", name: "w", bytes: Some(400) })?, 400.0);
/// assert!(byte_size_load(&PsOp { op: "VariableV2", name: "w", bytes: None }).is_err());
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn byte_size_load(op: &PsOp<'_>) -> Result<f64> {
    let bytes = op.bytes.ok_or_else(|| {
        Status::invalid_argument(format!(
            "the size of '{}' ({}) is unknown, so its load can't be computed",
            op.name, op.op
        ))
    })?;
    Ok(bytes as f64)
}

/// Places variables on the tasks of the job `ps`, and everything else on a worker.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::ReplicaDeviceSetter;
///
/// let g = Graph::new();
/// let setter = ReplicaDeviceSetter::new(2).worker_device("/job:worker/task:3")?;
/// let (w, b, y) = setter.scope(&g, |g| {
///     let w = Variable::new(g, "w", &g.constant(1f32));
///     let b = Variable::new(g, "b", &g.constant(0f32));
///     let y = g.constant(2f32) * w.value() + b.value();
///     (w, b, y)
/// });
/// assert_eq!((w.op().device(), b.op().device()), ("/job:ps/task:0".into(), "/job:ps/task:1".into()));
/// assert_eq!(y.op.device(), "/job:worker/task:3");
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone)]
pub struct ReplicaDeviceSetter {
    ps_tasks: u32,
    ps_device: DeviceName,
    worker_device: DeviceName,
    merge_devices: bool,
    ps_ops: Vec<String>,
    strategy: Arc<dyn PlacementStrategy>,
}

impl ReplicaDeviceSetter {
    /// Returns a setter for this many parameter servers, in round-robin order, and the worker `/job:worker`.
    ///
    /// ```
    /// use ferroflow::DeviceName;
    /// use ferroflow::train::ReplicaDeviceSetter;
    ///
    /// let setter = ReplicaDeviceSetter::new(1);
    /// assert_eq!(setter.device("MatMul", "y", None, &DeviceName::default()), "/job:worker");
    /// ```
    pub fn new(ps_tasks: u32) -> ReplicaDeviceSetter {
        ReplicaDeviceSetter {
            ps_tasks,
            ps_device: DeviceName { job: Some("ps".to_owned()), ..Default::default() },
            worker_device: DeviceName { job: Some("worker".to_owned()), ..Default::default() },
            merge_devices: true,
            ps_ops: STANDARD_PS_OPS.iter().map(|op| (*op).to_owned()).collect(),
            strategy: Arc::new(RoundRobinStrategy::new(ps_tasks)),
        }
    }

    /// Returns the setter for a worker of a cluster with the jobs `ps` and `worker`.
    ///
    /// ```
    /// use ferroflow::distributed::ClusterSpec;
    /// use ferroflow::train::ReplicaDeviceSetter;
    /// use ferroflow::{Graph, Variable};
    ///
    /// let cluster = ClusterSpec::new().with_job("ps", &["a:2222"])?.with_job("worker", &["b:2222", "c:2222"])?;
    /// let g = Graph::new();
    /// let w = ReplicaDeviceSetter::for_worker(&cluster, 1).scope(&g, |g| Variable::new(g, "w", &g.constant(0f32)));
    /// assert_eq!(w.op().device(), "/job:ps/task:0");
    /// assert_eq!(w.initial_value().op.device(), "/job:worker/task:1");
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn for_worker(cluster: &ClusterSpec, task_index: u32) -> ReplicaDeviceSetter {
        let mut setter = ReplicaDeviceSetter::new(u32::try_from(cluster.num_tasks("ps")).unwrap_or(u32::MAX));
        setter.worker_device.task = Some(task_index);
        setter
    }

    /// Sets the job of the parameter servers.
    ///
    /// ```
    /// use ferroflow::DeviceName;
    /// use ferroflow::train::ReplicaDeviceSetter;
    ///
    /// let setter = ReplicaDeviceSetter::new(1).ps_device("/job:parameters")?;
    /// assert_eq!(setter.device("VariableV2", "w", None, &DeviceName::default()), "/job:parameters/task:0");
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn ps_device(mut self, device: &str) -> Result<Self> {
        self.ps_device = DeviceName::parse(device)?;
        Ok(self)
    }

    /// Sets the device of everything else.
    ///
    /// ```
    /// use ferroflow::DeviceName;
    /// use ferroflow::train::ReplicaDeviceSetter;
    ///
    /// let setter = ReplicaDeviceSetter::new(1).worker_device("/job:worker/task:1")?;
    /// assert_eq!(setter.device("MatMul", "y", None, &DeviceName::default()), "/job:worker/task:1");
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn worker_device(mut self, device: &str) -> Result<Self> {
        self.worker_device = DeviceName::parse(device)?;
        Ok(self)
    }

    /// Sets whether a device that a node requests itself is merged with the setter's (the default) or left alone.
    ///
    /// ```
    /// use ferroflow::DeviceName;
    /// use ferroflow::train::ReplicaDeviceSetter;
    ///
    /// let asked = DeviceName::parse("/cpu:0")?;
    /// let merged = ReplicaDeviceSetter::new(1).device("MatMul", "y", None, &asked);
    /// let left_alone = ReplicaDeviceSetter::new(1).merge_devices(false).device("MatMul", "y", None, &asked);
    /// assert_eq!((merged.as_str(), left_alone.as_str()), ("/job:worker/device:CPU:0", "/device:CPU:0"));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn merge_devices(mut self, merge_devices: bool) -> Self {
        self.merge_devices = merge_devices;
        self
    }

    /// Sets the ops that are placed on parameter servers.
    ///
    /// ```
    /// use ferroflow::DeviceName;
    /// use ferroflow::train::ReplicaDeviceSetter;
    ///
    /// let setter = ReplicaDeviceSetter::new(1).ps_ops(&["VariableV2", "FIFOQueueV2"]);
    /// assert_eq!(setter.device("FIFOQueueV2", "tokens", None, &DeviceName::default()), "/job:ps/task:0");
    /// ```
    pub fn ps_ops(mut self, ops: &[&str]) -> Self {
        self.ps_ops = ops.iter().map(|op| (*op).to_owned()).collect();
        self
    }

    /// Sets how a parameter server is chosen.
    ///
    /// ```
    /// use ferroflow::DeviceName;
    /// use ferroflow::train::{GreedyLoadBalancingStrategy, ReplicaDeviceSetter, byte_size_load};
    /// use std::sync::Arc;
    ///
    /// let strategy = GreedyLoadBalancingStrategy::new(2, byte_size_load);
    /// let setter = ReplicaDeviceSetter::new(2).strategy(Arc::new(strategy));
    /// let device = |bytes| setter.device("VariableV2", "w", Some(bytes), &DeviceName::default());
    /// assert_eq!((device(100).as_str(), device(10).as_str()), ("/job:ps/task:0", "/job:ps/task:1"));
    /// ```
    pub fn strategy(mut self, strategy: Arc<dyn PlacementStrategy>) -> Self {
        self.strategy = strategy;
        self
    }

    /// Runs `body`, with the nodes that it adds placed by this setter.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::train::ReplicaDeviceSetter;
    ///
    /// let g = Graph::new();
    /// let w = ReplicaDeviceSetter::new(1).scope(&g, |g| Variable::new(g, "w", &g.constant(1f32)));
    /// assert_eq!(w.op().device(), "/job:ps/task:0");
    /// ```
    pub fn scope<R>(&self, graph: &Graph, body: impl FnOnce(&Graph) -> R) -> R {
        if self.ps_tasks == 0 {
            return body(graph);
        }
        let setter = self.clone();
        let place = move |op: &str, name: &str, attrs: &AttrMap, asked: &DeviceName| {
            let bytes = attrs.shape("shape").ok().zip(attrs.dtype("dtype").ok());
            let bytes = bytes.and_then(|(shape, dtype)| value_bytes(&shape, dtype.size()));
            setter.device(op, name, bytes, asked)
        };
        graph.device_fn(Arc::new(place), body)
    }

    /// Returns the device for a node that requests `asked`; the size of its value in bytes helps some strategies.
    ///
    /// ```
    /// use ferroflow::DeviceName;
    /// use ferroflow::train::ReplicaDeviceSetter;
    ///
    /// let setter = ReplicaDeviceSetter::new(2);
    /// assert_eq!(setter.device("VariableV2", "w", Some(4), &DeviceName::default()), "/job:ps/task:0");
    /// assert_eq!(setter.device("VariableV2", "b", Some(4), &DeviceName::default()), "/job:ps/task:1");
    /// ```
    pub fn device(&self, op: &str, name: &str, bytes: Option<u64>, asked: &DeviceName) -> String {
        if !self.merge_devices && *asked != DeviceName::default() {
            return asked.to_string();
        }
        if self.ps_ops.iter().any(|other| other == op) {
            let mut device = self.ps_device.clone();
            if device.job.is_some() && device.task.is_none() {
                // If a strategy can't decide, the task is left open for the placer.
                device.task = self.strategy.choose(&PsOp { op, name, bytes }).ok();
            }
            return device.merged_with(asked).to_string();
        }
        self.worker_device.merged_with(asked).to_string()
    }
}

/// Returns the size of a value in bytes if its shape is known.
fn value_bytes(shape: &PartialShape, element_bytes: usize) -> Option<u64> {
    u64::try_from(shape.num_elements()?).ok()?.checked_mul(element_bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_go_round_and_the_rest_to_the_worker() {
        let setter = ReplicaDeviceSetter::new(2).worker_device("/job:worker/task:3").unwrap();
        let none = DeviceName::default();
        let place = |op: &str| setter.device(op, "x", None, &none);
        assert_eq!(place("VariableV2"), "/job:ps/task:0");
        assert_eq!(place("MatMul"), "/job:worker/task:3");
        assert_eq!(place("VarHandleOp"), "/job:ps/task:1");
        assert_eq!(place("VariableV2"), "/job:ps/task:0");
        let asked = DeviceName::parse("/device:CPU:0").unwrap();
        assert_eq!(setter.device("MatMul", "x", None, &asked), "/job:worker/task:3/device:CPU:0");
        let setter = setter.merge_devices(false);
        assert_eq!(setter.device("MatMul", "x", None, &asked), "/device:CPU:0");
    }

    #[test]
    fn the_greedy_strategy_balances_bytes() {
        let strategy = GreedyLoadBalancingStrategy::new(2, byte_size_load);
        let choose = |bytes| strategy.choose(&PsOp { op: "VariableV2", name: "v", bytes }).ok();
        assert_eq!(
            [choose(Some(100)), choose(Some(10)), choose(Some(20)), choose(Some(90))].map(Option::unwrap),
            [0, 1, 1, 1]
        );
        assert_eq!(choose(Some(1)), Some(0));
        assert_eq!(choose(None), None);
    }
}
