//! The scopes of a graph under construction: names, devices, control dependencies, colocation; also collections and seeds.

use super::{Graph, Operation, Output};
use crate::attr::{AttrMap, IntoAttr};
use crate::op_def::{ArgType, OpSchema};
use crate::{DeviceName, Edge, NodeId};
use bytes::Bytes;
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use proto::AttrValue;
use proto::attr_value::{ListValue, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use tensor::{DType, Result, Status};

/// The name of a collection, as in TensorFlow (`variables`, `trainable_variables`, …).
pub type Collection = &'static str;

/// Chooses a node's device from its op, name and attributes, and the device of inner scopes.
pub type DeviceFn = Arc<dyn Fn(&str, &str, &AttrMap, &DeviceName) -> String + Send + Sync>;

#[derive(Default)]
pub(super) struct Scopes {
    name_scope: String,
    /// How often each name was requested; keys are in lower case, as in TensorFlow.
    names: HashMap<String, u32>,
    devices: Vec<DeviceScope>,
    controls: Vec<Option<ControlScope>>,
    colocations: Vec<Option<Colocation>>,
    attrs: Vec<(String, AttrValue)>,
    collections: BTreeMap<String, Vec<Edge>>,
    seed: Option<i64>,
    /// The name scope of the current call of `gradients`.
    gradients: Option<String>,
}

/// The nodes to wait for, and the nodes that wait for them.
struct ControlScope {
    controls: Vec<NodeId>,
    inside: HashSet<NodeId>,
}

/// The colocation groups of an op that others are placed with, and its device.
pub(super) struct Colocation {
    groups: Vec<String>,
    device: String,
}

enum DeviceScope {
    Name(DeviceName),
    Function(DeviceFn),
    Clear,
}

impl Colocation {
    pub(super) fn of(op: &Operation) -> Colocation {
        let mut groups = op.attrs().colocation();
        if groups.is_empty() {
            groups.push(op.name());
        }
        Colocation { groups, device: op.device() }
    }
}

impl Scopes {
    /// Checks that a name is valid in the current scope.
    pub(super) fn check_name(&self, name: &str) -> Result<()> {
        let is_first = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.';
        let is_next = |byte: u8| is_first(byte) || b"_-/\\>".contains(&byte);
        let is_inner = !self.name_scope.is_empty() && !name.ends_with('/');
        let starts_well = name.bytes().next().is_some_and(|byte| is_first(byte) || is_inner);
        if !starts_well || !name.bytes().all(is_next) {
            return Err(Status::invalid_argument(format!("'{name}' is not a valid node name")));
        }
        Ok(())
    }

    /// Returns an unused name in the current scope. A name that ends in `/` is absolute, and is not changed.
    pub(super) fn unique_name(&mut self, name: &str) -> String {
        if let Some(whole) = name.strip_suffix('/') {
            return whole.to_owned();
        }
        let full = if self.name_scope.is_empty() { name.to_owned() } else { format!("{}/{name}", self.name_scope) };
        self.unique_full_name(full)
    }

    fn unique_full_name(&mut self, full: String) -> String {
        let key = full.to_ascii_lowercase();
        let count = self.names.entry(key).or_insert(0);
        let mut number = *count;
        *count += 1;
        if number == 0 {
            return full;
        }
        loop {
            let candidate = format!("{full}_{number}");
            let taken = self.names.entry(candidate.to_ascii_lowercase()).or_insert(0);
            if *taken == 0 {
                *taken = 1;
                return candidate;
            }
            number += 1;
            if let Some(count) = self.names.get_mut(&full.to_ascii_lowercase()) {
                *count = number + 1;
            }
        }
    }

    pub(super) fn reserve_name(&mut self, name: &str) {
        *self.names.entry(name.to_ascii_lowercase()).or_insert(0) += 1;
        for (index, _) in name.match_indices('/') {
            self.names.entry(name[..index].to_ascii_lowercase()).or_insert(1);
        }
    }

    fn active_controls(&self) -> usize {
        self.controls.iter().rposition(Option::is_none).map_or(0, |clear| clear + 1)
    }

    pub(super) fn add_controls(&self, inputs: &[Edge], controls: &mut Vec<NodeId>) {
        for scope in self.controls[self.active_controls()..].iter().flatten() {
            // An input that waits for the controls makes them redundant.
            if inputs.iter().any(|edge| scope.inside.contains(&edge.node)) {
                continue;
            }
            controls.extend(scope.controls.iter().filter(|id| !inputs.iter().any(|edge| edge.node == **id)));
        }
    }

    /// Records a new node in the scopes whose controls it waits for, directly or through its inputs.
    pub(super) fn note_inside(&mut self, id: NodeId) {
        let active = self.active_controls();
        for scope in self.controls[active..].iter_mut().flatten() {
            scope.inside.insert(id);
        }
    }

    /// Returns the device for a new node, and adds the scopes' attributes, such as colocation, to `attrs`. `with` are ops that it
    /// must be placed with, whatever the scopes say.
    pub(super) fn device_for(&self, op: &str, name: &str, with: &[Colocation], attrs: &mut AttrMap) -> Result<String> {
        let active = self.colocations.iter().rposition(Option::is_none).map_or(0, |clear| clear + 1);
        let scopes = self.colocations[active..].iter().flatten();
        let mut groups: Vec<&str> = Vec::new();
        let mut colocated_device = "";
        // The innermost scope with a device decides.
        for colocation in scopes.chain(with).rev() {
            groups.extend(colocation.groups.iter().map(String::as_str));
            if colocated_device.is_empty() {
                colocated_device = &colocation.device;
            }
        }
        if !groups.is_empty() && !attrs.contains_key("_class") {
            groups.sort_unstable();
            groups.dedup();
            let s = groups.iter().map(|group| Bytes::from(format!("loc:@{group}"))).collect();
            attrs.set("_class", ListValue { s, ..Default::default() });
        }
        for (key, value) in &self.attrs {
            attrs.insert_if_absent(key.as_str(), || value.clone());
        }
        if !colocated_device.is_empty() {
            return Ok(colocated_device.to_owned());
        }
        if !with.is_empty() {
            return Ok(String::new());
        }
        // From the innermost scope outwards, since outer scopes do not override inner ones.
        let mut device = DeviceName::default();
        for scope in self.devices.iter().rev() {
            match scope {
                DeviceScope::Clear => break,
                DeviceScope::Name(outer) => device = outer.merged_with(&device),
                DeviceScope::Function(function) => device = DeviceName::parse(&function(op, name, attrs, &device))?,
            }
        }
        Ok(device.to_string())
    }
}

impl Graph {
    /// Runs `body` in a new name scope: the names of the nodes that it adds start with `name`. Returns the result of `body`.
    #[track_caller]
    pub fn name_scope<R>(&self, name: &str, body: impl FnOnce(&Graph) -> R) -> R {
        let checked = self.shared.state.lock().scopes.check_name(name);
        self.kept(checked, || ());
        let previous = {
            let mut state = self.shared.state.lock();
            let scope = state.scopes.unique_name(name);
            std::mem::replace(&mut state.scopes.name_scope, scope)
        };
        let result = self.called_here(body);
        self.shared.state.lock().scopes.name_scope = previous;
        result
    }

    /// Runs `body` in the name scope `scope`, without making it unique; the empty string is the root.
    #[track_caller]
    pub fn in_name_scope<R>(&self, scope: &str, body: impl FnOnce(&Graph) -> R) -> R {
        let scope = scope.trim_end_matches('/').to_owned();
        let previous = std::mem::replace(&mut self.shared.state.lock().scopes.name_scope, scope);
        let result = self.called_here(body);
        self.shared.state.lock().scopes.name_scope = previous;
        result
    }

    /// Returns the current name scope, without a slash at the end.
    pub fn current_name_scope(&self) -> String {
        self.shared.state.lock().scopes.name_scope.clone()
    }

    /// Returns the name scope of the current call of `gradients`, or the current name scope if there is none. Each call has its own
    /// scope, so it identifies the call.
    pub fn gradients_scope(&self) -> String {
        let state = self.shared.state.lock();
        state.scopes.gradients.as_ref().unwrap_or(&state.scopes.name_scope).clone()
    }

    /// Runs `body`, a call of `gradients`, in its own name scope.
    #[track_caller]
    pub(super) fn in_gradients_scope<R>(&self, body: impl FnOnce(&Graph) -> R) -> R {
        self.name_scope("gradients", |graph| {
            let scope = Some(graph.current_name_scope());
            let previous = std::mem::replace(&mut graph.shared.state.lock().scopes.gradients, scope);
            let result = body(graph);
            graph.shared.state.lock().scopes.gradients = previous;
            result
        })
    }

    /// Returns an unused name in the current scope, and reserves it.
    pub fn unique_name(&self, name: &str) -> String {
        self.shared.state.lock().scopes.unique_name(name)
    }

    /// Runs `body` with a device for the nodes that it adds. Inner scopes override it part by part.
    #[track_caller]
    pub fn device<R>(&self, device: &str, body: impl FnOnce(&Graph) -> R) -> R {
        let name = self.kept(DeviceName::parse(device), DeviceName::default);
        self.in_device(DeviceScope::Name(name), body)
    }

    /// Runs `body` with a function that chooses the devices of the nodes that it adds.
    #[track_caller]
    pub fn device_fn<R>(&self, function: DeviceFn, body: impl FnOnce(&Graph) -> R) -> R {
        self.in_device(DeviceScope::Function(function), body)
    }

    /// Runs `body` without the current device scopes.
    #[track_caller]
    pub fn without_device<R>(&self, body: impl FnOnce(&Graph) -> R) -> R {
        self.in_device(DeviceScope::Clear, body)
    }

    #[track_caller]
    fn in_device<R>(&self, scope: DeviceScope, body: impl FnOnce(&Graph) -> R) -> R {
        self.shared.state.lock().scopes.devices.push(scope);
        let result = self.called_here(body);
        self.shared.state.lock().scopes.devices.pop();
        result
    }

    /// Runs `body` so that the nodes that it adds run after `controls`.
    #[track_caller]
    pub fn control_dependencies<R>(&self, controls: &[Operation], body: impl FnOnce(&Graph) -> R) -> R {
        let mut ids = Vec::with_capacity(controls.len());
        for control in controls {
            if self.is_own(control) && !control.is_mistaken() {
                ids.push(control.id());
            }
        }
        self.in_controls(Some(ControlScope { controls: ids, inside: HashSet::new() }), body)
    }

    /// Runs `body` without the current control dependencies.
    #[track_caller]
    pub fn without_control_dependencies<R>(&self, body: impl FnOnce(&Graph) -> R) -> R {
        self.in_controls(None, body)
    }

    #[track_caller]
    fn in_controls<R>(&self, scope: Option<ControlScope>, body: impl FnOnce(&Graph) -> R) -> R {
        self.shared.state.lock().scopes.controls.push(scope);
        let result = self.called_here(body);
        self.shared.state.lock().scopes.controls.pop();
        result
    }

    /// Runs `body` so that the nodes that it adds are placed with `op`.
    #[track_caller]
    pub fn colocate_with<R>(&self, op: &Operation, body: impl FnOnce(&Graph) -> R) -> R {
        self.is_own(op);
        self.in_colocation(Some(Colocation::of(op)), body)
    }

    /// Runs `body` without the current colocation and device scopes.
    #[track_caller]
    pub fn without_colocation<R>(&self, body: impl FnOnce(&Graph) -> R) -> R {
        self.in_colocation(None, body)
    }

    #[track_caller]
    fn in_colocation<R>(&self, colocation: Option<Colocation>, body: impl FnOnce(&Graph) -> R) -> R {
        self.shared.state.lock().scopes.colocations.push(colocation);
        let result = self.without_device(body);
        self.shared.state.lock().scopes.colocations.pop();
        result
    }

    /// Runs `body` with an attribute for the nodes that it adds.
    #[track_caller]
    pub fn with_attr<R>(&self, name: &str, value: impl IntoAttr, body: impl FnOnce(&Graph) -> R) -> R {
        self.shared.state.lock().scopes.attrs.push((name.to_owned(), value.into_attr()));
        let result = self.called_here(body);
        self.shared.state.lock().scopes.attrs.pop();
        result
    }

    /// Adds an output to a collection.
    #[track_caller]
    pub fn add_to_collection(&self, collection: &str, output: &Output) {
        if !self.is_own(&output.op) {
            return;
        }
        let mut state = self.shared.state.lock();
        state.scopes.collections.entry(collection.to_owned()).or_default().push(output.edge());
    }

    /// Adds an operation to a collection, such as one without outputs. [`collection`](Self::collection) returns it as its output 0,
    /// whether or not it has one.
    #[track_caller]
    pub fn add_operation_to_collection(&self, collection: &str, operation: &Operation) {
        self.add_to_collection(collection, &Output { op: operation.clone(), port: 0 });
    }

    /// Returns the names of the collections that are not empty, sorted.
    pub fn collection_names(&self) -> Vec<String> {
        self.shared.state.lock().scopes.collections.keys().cloned().collect()
    }

    /// Returns the outputs of a collection.
    pub fn collection(&self, collection: &str) -> Vec<Output> {
        let edges = self.shared.state.lock().scopes.collections.get(collection).cloned().unwrap_or_default();
        edges.into_iter().map(|edge| self.from_edge(edge)).collect()
    }

    /// Sets the graph's random seed.
    pub fn set_random_seed(&self, seed: i64) {
        self.shared.state.lock().scopes.seed = Some(seed);
    }

    /// Returns `(seed, seed2)` for a random op, as TensorFlow derives them from the graph's and the op's seed.
    pub fn random_seeds(&self, op_seed: Option<i64>) -> (i64, i64) {
        /// TensorFlow's graph seed if only the op has a seed.
        const DEFAULT_GRAPH_SEED: i64 = 87654321;
        let state = self.shared.state.lock();
        let seeds = match (state.scopes.seed, op_seed) {
            (Some(graph), Some(op)) => (graph, op),
            (Some(graph), None) => (graph, state.graph.id_bound() as i64),
            (None, Some(op)) => (DEFAULT_GRAPH_SEED, op),
            (None, None) => return (0, 0),
        };
        // Both zero would mean "no seed" to the op.
        if seeds == (0, 0) { (0, i64::from(i32::MAX)) } else { seeds }
    }
}

/// Sets the type attributes and counts that follow from the inputs.
pub(super) fn infer_attrs(schema: &OpSchema, types: &[DType], attrs: &mut AttrMap) -> Result<()> {
    let mut rest = types;
    let mut known: HashMap<String, DType> = HashMap::new();
    for (position, arg) in schema.inputs.iter().enumerate() {
        // The fewest inputs that later arguments need. Only one argument can have an unknown length.
        let later = schema.inputs.len() - position - 1;
        let set_type = |attrs: &mut AttrMap, known: &mut HashMap<String, DType>, attr: &str, dtype: DType| {
            if let Some(&other) = known.get(attr)
                && other != dtype
            {
                return Err(Status::invalid_argument(format!(
                    "Input '{}' of '{}' Op has type {dtype} that does not match type {other} of argument '{attr}'.",
                    arg.name, schema.name
                )));
            }
            known.insert(attr.to_owned(), dtype);
            if !attrs.contains_key(attr) {
                attrs.set(attr, dtype);
            }
            Ok(())
        };
        let missing = || {
            Status::invalid_argument(format!("Op '{}' needs an input '{}' that was not given", schema.name, arg.name))
        };
        match &arg.ty {
            ArgType::Fixed(_) => rest = rest.get(1..).ok_or_else(missing)?,
            ArgType::Attr(attr) => {
                let (&dtype, tail) = rest.split_first().ok_or_else(missing)?;
                set_type(attrs, &mut known, attr, dtype)?;
                rest = tail;
            }
            ArgType::Repeated { count, ty } => {
                let len = match attrs.int(count) {
                    Ok(len) => usize::try_from(len).map_err(|_| missing())?,
                    Err(_) => rest.len().saturating_sub(later),
                };
                if len > rest.len() {
                    return Err(missing());
                }
                attrs.insert_if_absent(count.as_str(), || AttrValue { value: Some(Value::I(len as i64)) });
                if let ArgType::Attr(attr) = &**ty {
                    for &dtype in &rest[..len] {
                        set_type(attrs, &mut known, attr, dtype)?;
                    }
                }
                rest = &rest[len..];
            }
            ArgType::List(attr) => {
                let len = match attrs.dtypes(attr) {
                    Ok(types) => types.len(),
                    Err(_) => rest.len().saturating_sub(later),
                };
                if len > rest.len() {
                    return Err(missing());
                }
                if !attrs.contains_key(attr) {
                    attrs.set(attr, &rest[..len]);
                }
                rest = &rest[len..];
            }
        }
    }
    Ok(())
}
