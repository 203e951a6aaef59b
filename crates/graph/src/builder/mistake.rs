//! Mistakes: the first one is kept in the graph with the line that made it, and what was to be built is replaced by an
//! operation that does nothing, so that a program can go on building. The lines of nodes that could be added are kept too: a run
//! may fail at them.

use super::{Graph, Operation, Output};
use crate::attr::AttrMap;
use crate::library::is_in_library;
use crate::op_def::{OpFlags, OpSchema, TypeSlot};
use crate::{Node, NodeId};
use std::panic::Location;
use std::sync::Arc;
use tensor::{DType, Result, Status};

/// The first mistake of a graph, and the stand-ins for the nodes that could not be added.
#[derive(Default)]
pub(super) struct Mistakes {
    first: Option<Status>,
    nodes: Vec<Node>,
    /// The callers that entered the open scopes.
    pub(super) callers: Vec<&'static Location<'static>>,
    /// The line of the program that added each node, by id.
    lines: Vec<Option<&'static Location<'static>>>,
}

/// Returns an inert output in a graph of its own, for functions whose arguments do not name a graph. Whatever uses the output
/// has this mistake too.
#[track_caller]
pub fn mistaken_output(op: &str, status: Status) -> Output {
    Graph::new().mistaken_output(op, status)
}

/// Ids from here on belong to nodes that could not be added.
const FIRST_MISTAKEN_ID: u32 = 1 << 31;

impl Mistakes {
    /// Returns the stand-in for a node that could not be added.
    pub(super) fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0.checked_sub(FIRST_MISTAKEN_ID)? as usize)
    }

    /// Returns the innermost line of the program itself, if there is one.
    fn program_line(&self, caller: &'static Location<'static>) -> Option<&'static Location<'static>> {
        let mut candidates = std::iter::once(caller).chain(self.callers.iter().rev().copied());
        candidates.find(|location| !is_in_library(location))
    }

    /// Notes which line added a node.
    pub(super) fn note_line(&mut self, id: NodeId, caller: &'static Location<'static>) {
        let line = self.program_line(caller);
        let index = id.index();
        if self.lines.len() <= index {
            self.lines.resize(index + 1, None);
        }
        self.lines[index] = line;
    }
}

impl Graph {
    /// Returns the first mistake in building the graph, if there is one, as an error that names what is wrong, the op, its inputs
    /// with their types and shapes, and the line of the program.
    ///
    /// Building needs no `?`: after a mistake, further calls do nothing. `Session::new`, `gradients` and all other functions that
    /// return a `Result` return the mistake.
    ///
    /// ```
    /// # use graph::Graph;
    /// let g = Graph::new();
    /// let nothing = g.op("NoSuchOp").output();
    /// assert!(g.finish().unwrap_err().message().contains("NoSuchOp"));
    /// ```
    pub fn finish(&self) -> Result<()> {
        self.shared.state.lock().mistakes.first.clone().map_or(Ok(()), Err)
    }

    /// Keeps a mistake with the caller's line, unless the graph has one already.
    #[track_caller]
    pub fn mistake(&self, status: Status) {
        self.mistake_in(status, "");
    }

    /// As [`mistake`](Self::mistake); `what` describes what was to be built.
    #[track_caller]
    pub(super) fn mistake_in(&self, status: Status, what: &str) {
        let caller = Location::caller();
        let mut state = self.shared.state.lock();
        if state.mistakes.first.is_some() {
            return;
        }
        let line = state.mistakes.program_line(caller).unwrap_or(caller);
        let what = if what.is_empty() { String::new() } else { format!("{what} ") };
        state.mistakes.first = Some(status.append(format!(" [{what}at {line}]")));
    }

    /// Returns the value, or keeps the mistake and returns the result of `instead`.
    #[track_caller]
    pub fn kept<T>(&self, result: Result<T>, instead: impl FnOnce() -> T) -> T {
        match result {
            Ok(value) => value,
            Err(status) => {
                self.mistake(status);
                instead()
            }
        }
    }

    /// Keeps a mistake, and returns an inert output for the function that made it to return.
    #[track_caller]
    pub fn mistaken_output(&self, op: &str, status: Status) -> Output {
        self.op(op).mistaken(status).output(0)
    }

    /// As [`mistaken_output`](Self::mistaken_output), for functions that add more than one op: the mistake names `what` and its
    /// inputs, such as "layer Dense of x:0". The output has the type of the first input.
    #[track_caller]
    pub fn mistaken_call(&self, what: &str, inputs: &[&Output], status: Status) -> Output {
        let described: Vec<String> = inputs.iter().map(|input| input.described()).collect();
        let of = if described.is_empty() { String::new() } else { format!(" of {}", described.join(", ")) };
        self.mistake_in(status, &format!("{what}{of}"));
        let dtype = inputs.first().map_or(DType::Float, |input| input.dtype());
        let name = what.rsplit(' ').next().unwrap_or(what);
        let types = vec![TypeSlot { dtype, is_ref: false }];
        Output { op: self.mistaken_operation(name, name.to_owned(), types), port: 0 }
    }

    /// Runs `body` so that a mistake in a call of the library itself is blamed on the caller. Libraries need this around closures,
    /// which do not know their caller.
    #[track_caller]
    pub fn called_here<R>(&self, body: impl FnOnce(&Graph) -> R) -> R {
        self.shared.state.lock().mistakes.callers.push(Location::caller());
        let result = body(self);
        self.shared.state.lock().mistakes.callers.pop();
        result
    }

    /// Runs `body` so that what it adds belongs to the line of the program that added `op`.
    pub(super) fn on_behalf_of<R>(&self, op: &Operation, body: impl FnOnce() -> R) -> R {
        let Some(line) = op.line() else { return body() };
        self.shared.state.lock().mistakes.callers.push(line);
        let result = body();
        self.shared.state.lock().mistakes.callers.pop();
        result
    }

    /// Returns an operation that does nothing.
    pub(super) fn mistaken_operation(&self, op: &str, name: String, output_types: Vec<TypeSlot>) -> Operation {
        let schema = self.ops().op(op).map(|info| info.schema.clone()).unwrap_or_else(|| {
            Arc::new(OpSchema {
                name: op.to_owned(),
                inputs: Vec::new(),
                outputs: Vec::new(),
                attrs: Vec::new(),
                attr_names: Vec::new(),
                flags: OpFlags::NONE,
            })
        });
        let node = Node {
            name,
            schema,
            device: String::new(),
            attrs: AttrMap::default(),
            inputs: Vec::new(),
            control_inputs: Vec::new(),
            input_types: Vec::new(),
            output_types,
            debug_info: None,
            full_type: None,
            explicit_attrs: None,
        };
        let mut state = self.shared.state.lock();
        let id = NodeId(FIRST_MISTAKEN_ID + state.mistakes.nodes.len() as u32);
        state.mistakes.nodes.push(node);
        Operation { graph: self.clone(), id }
    }

    /// Returns whether an operation belongs to this graph, and keeps a mistake if not.
    #[track_caller]
    pub(super) fn is_own(&self, op: &Operation) -> bool {
        let is_own = op.graph.same(self);
        if !is_own {
            self.mistake(Status::invalid_argument(format!("'{}' belongs to another graph", op.name())));
        }
        is_own
    }
}

impl Operation {
    /// Returns whether the operation is the stand-in for one that could not be added.
    pub fn is_mistaken(&self) -> bool {
        self.id.0 >= FIRST_MISTAKEN_ID
    }

    /// Returns the line of the program that added the node; none for what was imported.
    pub fn line(&self) -> Option<&'static Location<'static>> {
        self.graph.shared.state.lock().mistakes.lines.get(self.id.index()).copied().flatten()
    }

    /// Returns ` [node NAME at FILE:LINE:COLUMN]` to be appended to a message, and nothing where the line isn't known.
    pub(super) fn with_line(&self) -> String {
        self.line().map_or_else(String::new, |line| format!(" [node {} at {line}]", self.name()))
    }
}

impl Output {
    /// Returns name, type and shape, as messages name an input.
    pub(super) fn described(&self) -> String {
        format!("{} {} {}", self.name(), self.dtype(), self.shape())
    }
}
