//! Variables by name: [`get_variable`] makes one or finds it again, [`variable_scope`] puts names before theirs.

use crate::initializers::{Initializer, glorot_uniform, zeros};
use crate::variable::{Kind, SaveSlice, Variable};
use graph::{Edge, Graph};
use parking_lot::Mutex;
use std::collections::HashMap;
use tensor::{DType, PartialShape, Result, Shape, Status};

/// Whether a scope makes variables or finds those that are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// A name that is taken is an error.
    #[default]
    New,
    /// A name that isn't taken is an error.
    Existing,
    /// Finds what is there and makes the rest.
    Auto,
}

#[derive(Default)]
struct Store {
    scopes: Mutex<Vec<(String, Reuse)>>,
    variables: Mutex<HashMap<String, Edge>>,
}

/// Runs `body` with `name/` before the names of the variables that it gets, and in a name scope of that name.
pub fn variable_scope<R>(graph: &Graph, name: &str, reuse: Reuse, body: impl FnOnce(&Graph) -> R) -> R {
    let store = graph.extension::<Store>();
    let (outer, inherited) = store.scopes.lock().last().cloned().unwrap_or_default();
    let full = if outer.is_empty() { name.to_owned() } else { format!("{outer}/{name}") };
    let reuse = if reuse == Reuse::New { inherited } else { reuse };
    store.scopes.lock().push((full, reuse));
    let result = graph.name_scope(name, body);
    store.scopes.lock().pop();
    result
}

/// A variable about to be made or found.
#[must_use = "the variable is made by `get`"]
pub struct VariableRequest<'a> {
    graph: &'a Graph,
    name: String,
    shape: Shape,
    dtype: DType,
    initializer: Option<Initializer>,
    trainable: bool,
    kind: Kind,
    collections: Option<Vec<&'static str>>,
}

/// Starts a variable of a name in the current variable scope: `float`, trainable, with Glorot's uniform initializer
/// (zeros when it isn't floating), unless told otherwise.
pub fn get_variable<'a>(graph: &'a Graph, name: &str, dims: &[i64]) -> Result<VariableRequest<'a>> {
    Ok(VariableRequest {
        graph,
        name: name.to_owned(),
        shape: Shape::new(dims)?,
        dtype: DType::Float,
        initializer: None,
        trainable: true,
        kind: Kind::Ref,
        collections: None,
    })
}

impl VariableRequest<'_> {
    /// Sets the type of the elements.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = dtype;
        self
    }

    /// Sets the first value.
    pub fn initializer(mut self, initializer: Initializer) -> Self {
        self.initializer = Some(initializer);
        self
    }

    /// Sets whether optimizers change it.
    pub fn trainable(mut self, trainable: bool) -> Self {
        self.trainable = trainable;
        self
    }

    /// Sets how it is kept.
    pub fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Sets the collections.
    pub fn collections(mut self, collections: &[&'static str]) -> Self {
        self.collections = Some(collections.to_vec());
        self
    }

    /// Makes the variable, or finds it.
    pub fn get(self) -> Result<Variable> {
        let store = self.graph.extension::<Store>();
        let (scope, reuse) = store.scopes.lock().last().cloned().unwrap_or_default();
        let full = if scope.is_empty() { self.name.clone() } else { format!("{scope}/{}", self.name) };
        self.get_as(&full, reuse)
    }

    fn get_as(self, full: &str, reuse: Reuse) -> Result<Variable> {
        let store = self.graph.extension::<Store>();
        let found = store.variables.lock().get(full).copied();
        if let Some(edge) = found {
            if reuse == Reuse::New {
                return Err(Status::invalid_argument(format!(
                    "Variable {full} already exists, disallowed. Did you mean to set reuse=True or reuse=tf.AUTO_REUSE \
                     in VarScope?"
                )));
            }
            let variable = Variable::from_handle(&self.graph.from_edge(edge))?;
            if variable.dtype() != self.dtype || *variable.shape() != PartialShape::from(&self.shape) {
                return Err(Status::invalid_argument(format!(
                    "Trying to share variable {full}, but specified shape {} and dtype {} and found shape {} and dtype {}.",
                    self.shape,
                    self.dtype,
                    variable.shape(),
                    variable.dtype()
                )));
            }
            return Ok(variable);
        }
        if reuse == Reuse::Existing {
            return Err(Status::invalid_argument(format!(
                "Variable {full} does not exist, or was not created with tf.get_variable(). Did you mean to set \
                 reuse=tf.AUTO_REUSE in VarScope?"
            )));
        }
        let default = || if self.dtype.is_floating() { glorot_uniform(None) } else { zeros() };
        let initializer = self.initializer.clone().unwrap_or_else(default);
        // The name scope has no part in the name of a variable.
        let variable = self.graph.in_name_scope("", |graph| {
            let mut builder = Variable::in_graph(graph, full).kind(self.kind).trainable(self.trainable);
            if let Some(collections) = &self.collections {
                builder = builder.collections(collections);
            }
            builder.try_build(|graph| initializer(graph, &self.shape, self.dtype))
        });
        let variable = variable.map_err(|status| status.context(format!("the first value of variable '{full}'")))?;
        store.variables.lock().insert(full.to_owned(), variable.handle().edge());
        Ok(variable)
    }

    /// Makes the variable, or finds it, in parts along one axis, as `partitioner` says.
    pub fn get_partitioned(self, partitioner: &dyn Partitioner) -> Result<PartitionedVariable> {
        let counts = partitioner.parts(&self.shape, self.dtype);
        let mut cut: Vec<(usize, i64)> = counts.iter().copied().enumerate().filter(|(_, parts)| *parts > 1).collect();
        let (axis, parts) = match cut.len() {
            0 => (0, 1),
            1 => cut.remove(0),
            _ => return Err(Status::invalid_argument("a variable can be cut along one axis only")),
        };
        if self.shape.rank() == 0 || parts > self.shape.dim(axis) {
            return Err(Status::invalid_argument(format!("{} can't be cut into {parts} parts", self.shape)));
        }
        let store = self.graph.extension::<Store>();
        let (scope, reuse) = store.scopes.lock().last().cloned().unwrap_or_default();
        let full = if scope.is_empty() { self.name.clone() } else { format!("{scope}/{}", self.name) };
        // The first parts are one larger where it doesn't come out even.
        let size = self.shape.dim(axis);
        let (each, extra) = (size / parts, size % parts);
        let mut made = Vec::new();
        let mut start = 0;
        for part in 0..parts {
            let length = each + i64::from(part < extra);
            let shape = self.shape.with_dim(axis, length)?;
            let request = VariableRequest {
                graph: self.graph,
                name: String::new(),
                shape: shape.clone(),
                dtype: self.dtype,
                initializer: self.initializer.clone(),
                trainable: self.trainable,
                kind: self.kind,
                collections: self.collections.clone(),
            };
            let mut variable = request.get_as(&format!("{full}/part_{part}"), reuse)?;
            let mut offset = vec![0; self.shape.rank()];
            offset[axis] = start;
            variable.set_save_slice(SaveSlice {
                full_name: full.clone(),
                full_shape: self.shape.clone(),
                offset,
                shape,
            });
            start += length;
            made.push(variable);
        }
        Ok(PartitionedVariable { parts: made, axis, name: full })
    }
}

/// Decides how a variable is cut.
pub trait Partitioner {
    /// Returns the number of parts along each axis; more than one along one axis at most.
    fn parts(&self, shape: &Shape, dtype: DType) -> Vec<i64>;
}

/// Cuts every variable into as many parts along one axis.
pub struct FixedSizePartitioner {
    /// The number of parts.
    pub num_shards: i64,
    /// The axis.
    pub axis: usize,
}

impl Partitioner for FixedSizePartitioner {
    fn parts(&self, shape: &Shape, _dtype: DType) -> Vec<i64> {
        let mut parts = vec![1; shape.rank()];
        if let Some(count) = parts.get_mut(self.axis) {
            *count = self.num_shards.min(shape.dim(self.axis)).max(1);
        }
        parts
    }
}

/// Cuts variables so that no part has more bytes than this.
pub struct VariableAxisSizePartitioner {
    /// The largest size of a part in bytes.
    pub max_shard_bytes: i64,
    /// The axis.
    pub axis: usize,
    /// The largest number of parts, when there is one.
    pub max_shards: Option<i64>,
}

impl Partitioner for VariableAxisSizePartitioner {
    fn parts(&self, shape: &Shape, dtype: DType) -> Vec<i64> {
        let mut parts = vec![1; shape.rank()];
        let Some(count) = parts.get_mut(self.axis) else { return parts };
        // Strings are taken for 16 bytes each, as in TensorFlow.
        let element_bytes = if dtype == DType::String { 16 } else { dtype.size() as i64 };
        let rows = shape.dim(self.axis).max(1);
        let row_bytes = (shape.num_elements() as i64 / rows).saturating_mul(element_bytes).max(1);
        let rows_per_part = (self.max_shard_bytes / row_bytes).max(1);
        let wanted = (rows + rows_per_part - 1) / rows_per_part;
        *count = wanted.min(self.max_shards.unwrap_or(i64::MAX)).max(1);
        parts
    }
}

/// Cuts variables into at most so many parts, none smaller than a number of bytes.
pub struct MinMaxVariablePartitioner {
    /// The largest number of parts.
    pub max_partitions: i64,
    /// The axis.
    pub axis: usize,
    /// The smallest size of a part in bytes.
    pub min_slice_bytes: i64,
}

impl Partitioner for MinMaxVariablePartitioner {
    fn parts(&self, shape: &Shape, dtype: DType) -> Vec<i64> {
        let mut parts = vec![1; shape.rank()];
        let Some(count) = parts.get_mut(self.axis) else { return parts };
        let element_bytes = if dtype == DType::String { 16 } else { dtype.size() as i64 };
        let bytes = (shape.num_elements() as i64).saturating_mul(element_bytes);
        let wanted = (bytes / self.min_slice_bytes.max(1)).max(1);
        *count = wanted.min(self.max_partitions).min(shape.dim(self.axis)).max(1);
        parts
    }
}

/// A variable in parts.
#[derive(Clone, Debug)]
pub struct PartitionedVariable {
    parts: Vec<Variable>,
    axis: usize,
    name: String,
}

impl PartitionedVariable {
    /// Returns the parts.
    pub fn parts(&self) -> &[Variable] {
        &self.parts
    }

    /// Returns the name of the whole.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds the value of the whole.
    #[track_caller]
    pub fn as_tensor(&self) -> graph::Output {
        let values: Vec<graph::Output> = self.parts.iter().map(Variable::read).collect();
        let [first, ..] = &values[..] else {
            let status = Status::invalid_argument(format!("variable '{}' has no parts", self.name));
            return graph::builder::mistaken_output("ConcatV2", status);
        };
        if values.len() == 1 {
            return first.clone();
        }
        let graph = first.graph();
        let axis = graph.constant_tensor(&tensor::Tensor::scalar(self.axis as i32));
        graph.op("ConcatV2").inputs(&values).input(&axis).attr("N", values.len() as i64).output()
    }
}
