//! Common parts of all layers: the variable scope, and weights that are created when the layer is first applied and found later.

use super::constraints::Constraint;
use super::regularizers::Regularizer;
use crate::initializers::Initializer;
use crate::variable::{Kind, Variable};
use crate::variable_scope::{OpenScope, Reuse, VariableScope, get_variable};
use graph::{Edge, Graph};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use tensor::{DType, Result};

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// The part of a layer that manages its variables.
pub(crate) struct Base {
    /// Identifies the layer among those applied in a graph.
    id: u64,
    default_name: &'static str,
    pub(crate) name: Option<String>,
    pub(crate) reuse: Reuse,
    pub(crate) trainable: bool,
    pub(crate) kind: Kind,
}

/// Describes one weight of a layer.
#[derive(Clone, Default)]
pub(crate) struct WeightOptions {
    pub(crate) initializer: Option<Initializer>,
    pub(crate) regularizer: Option<Regularizer>,
    pub(crate) constraint: Option<Constraint>,
}

/// The layers that were applied in a graph.
#[derive(Default)]
struct Applied(Mutex<HashMap<u64, AppliedLayer>>);

#[derive(Clone)]
struct AppliedLayer {
    scope: OpenScope,
    variables: Vec<Edge>,
}

/// Creates and finds a layer's variables while it is applied.
pub(crate) struct Weights<'a> {
    graph: &'a Graph,
    base: &'a Base,
    made: Mutex<Vec<Edge>>,
}

impl Base {
    pub(crate) fn new(default_name: &'static str) -> Base {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Base { id, default_name, name: None, reuse: Reuse::New, trainable: true, kind: Kind::Ref }
    }

    /// Runs `build` in the layer's variable scope: a new one the first time, and the same one later.
    pub(crate) fn apply<R>(&self, graph: &Graph, build: impl FnOnce(&Weights<'_>) -> Result<R>) -> Result<R> {
        let applied = graph.extension::<Applied>();
        let before = applied.0.lock().get(&self.id).cloned();
        if let Some(layer) = before {
            let name = layer.scope.name().rsplit('/').next().unwrap_or(self.default_name).to_owned();
            return graph.name_scope(&name, |graph| {
                layer.scope.again(graph, |graph| build(&Weights { graph, base: self, made: Mutex::default() }))
            });
        }
        let scope = match &self.name {
            Some(name) => VariableScope::new(name).reuse(self.reuse),
            None => VariableScope::with_default_name(self.default_name),
        };
        scope.run(graph, |graph| {
            let scope = OpenScope::current(graph);
            let weights = Weights { graph, base: self, made: Mutex::default() };
            let result = build(&weights)?;
            let variables = std::mem::take(&mut *weights.made.lock());
            applied.0.lock().insert(self.id, AppliedLayer { scope, variables });
            Ok(result)
        })
    }

    /// Returns the layer's variables in a graph.
    pub(crate) fn variables(&self, graph: &Graph) -> Result<Vec<Variable>> {
        let applied = graph.extension::<Applied>();
        let edges = applied.0.lock().get(&self.id).map(|layer| layer.variables.clone()).unwrap_or_default();
        edges.into_iter().map(|edge| Variable::from_handle(&graph.from_edge(edge))).collect()
    }
}

impl Weights<'_> {
    pub(crate) fn graph(&self) -> &Graph {
        self.graph
    }

    /// Creates or finds a weight, which is trainable if the layer is.
    pub(crate) fn get(
        &self,
        name: &str,
        dims: &[i64],
        dtype: DType,
        options: &WeightOptions,
        default: Option<Initializer>,
    ) -> Result<Variable> {
        self.request(name, dims, dtype, options, default, self.base.trainable)
    }

    /// Creates or finds a variable that isn't trainable.
    pub(crate) fn untrained(
        &self,
        name: &str,
        dims: &[i64],
        dtype: DType,
        options: &WeightOptions,
        default: Initializer,
    ) -> Result<Variable> {
        self.request(name, dims, dtype, options, Some(default), false)
    }

    fn request(
        &self,
        name: &str,
        dims: &[i64],
        dtype: DType,
        options: &WeightOptions,
        default: Option<Initializer>,
        trainable: bool,
    ) -> Result<Variable> {
        let mut request = get_variable(self.graph, name, dims).dtype(dtype).trainable(trainable).kind(self.base.kind);
        if let Some(initializer) = options.initializer.clone().or(default) {
            request = request.initializer(initializer);
        }
        if let Some(regularizer) = options.regularizer.clone() {
            request = request.regularizer(regularizer);
        }
        if let Some(constraint) = options.constraint.clone() {
            request = request.constraint(constraint);
        }
        let variable = request.try_get()?;
        self.made.lock().push(variable.handle().edge());
        Ok(variable)
    }
}
