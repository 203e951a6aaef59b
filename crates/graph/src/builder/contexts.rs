//! [`Contexts`]: the branches and loop bodies of a graph, and how those of gradients belong to others.

use super::{NodeId, State};
use crate::Edge;
use foldhash::{HashMap, HashMapExt, HashSet};

/// A branch of a conditional or the body of a loop.
pub(super) struct Context {
    pub(super) kind: Kind,
    /// The enclosing context.
    pub(super) outer: Option<usize>,
    /// The node that nodes without inputs wait for.
    pub(super) pivot: Option<NodeId>,
    /// Maps values from outside to the outputs that pass them in.
    pub(super) passed: HashMap<Edge, Edge>,
    /// The context whose gradient this one computes.
    pub(super) forward: Option<usize>,
}

#[derive(Clone)]
pub(super) enum Kind {
    Branch { predicate: Edge, taken: bool },
    Loop(Loop),
}

#[derive(Clone)]
pub(super) struct Loop {
    pub(super) frame_name: String,
    pub(super) parallel_iterations: i64,
    /// The value that decides whether there is another iteration.
    pub(super) condition: Option<Edge>,
    pub(super) variables: Vec<LoopVariable>,
    /// What a gradient loop knows of its forward loop.
    pub(super) gradient: Option<LoopGradient>,
}

/// A loop variable.
#[derive(Clone, Copy)]
pub(super) struct LoopVariable {
    pub(super) enter: NodeId,
    pub(super) merge: NodeId,
    /// Its value in the body.
    pub(super) inside: Edge,
    /// The value that the body computes for the next iteration.
    pub(super) next: Edge,
    pub(super) exit: NodeId,
}

/// What a gradient loop knows of its forward loop and of itself.
#[derive(Clone)]
pub(super) struct LoopGradient {
    /// The loops that push the values popped here: the forward loop, and loops of other gradients.
    pub(super) sources: Vec<Source>,
    /// The number of iterations, available once everything that the loop pops has been pushed.
    pub(super) start: NodeId,
    /// Counts down; the pops of an iteration wait for it.
    pub(super) count: NodeId,
    /// Waits for pops, some of which may not happen.
    pub(super) sync: NodeId,
    /// The context in which the gradient was requested.
    pub(super) base: Option<usize>,
}

/// A loop that pushes values that another one pops.
#[derive(Clone, Copy)]
pub(super) struct Source {
    /// Its context.
    pub(super) context: usize,
    /// Counts its iterations; the pushes of an iteration wait for it.
    pub(super) count: NodeId,
    /// Passes the count to the next iteration, after all pushes of this one.
    pub(super) next: NodeId,
    /// Waits for pushes that may not happen because they are in branches, if there are any.
    pub(super) sync: Option<NodeId>,
}

/// A conditional.
#[derive(Clone)]
pub(super) struct Conditional {
    pub(super) predicate: Edge,
    /// The contexts of its branches: false, then true.
    pub(super) branches: [usize; 2],
    /// The outputs of the branches.
    pub(super) outputs: [Vec<Edge>; 2],
    pub(super) merges: Vec<NodeId>,
}

/// The contexts of a graph.
#[derive(Default)]
pub(super) struct Contexts {
    pub(super) all: Vec<Context>,
    pub(super) current: Option<usize>,
    pub(super) of_node: HashMap<NodeId, usize>,
    pub(super) conditionals: Vec<Conditional>,
    /// Maps each `Merge` that ends a conditional to that conditional.
    pub(super) conditional_of: HashMap<NodeId, usize>,
    /// Maps the context of each branch to its conditional.
    pub(super) conditional_of_branch: HashMap<usize, usize>,
    /// Maps each `Exit` to its loop.
    pub(super) loop_of: HashMap<NodeId, usize>,
    /// The nodes that pass values from outside into a context.
    pub(super) passing: HashSet<NodeId>,
    /// Maps each `StackPopV2` of a gradient to the value that it restores.
    pub(super) recalled: HashMap<NodeId, Edge>,
}

impl Context {
    pub(super) fn new(kind: Kind, pivot: Option<NodeId>) -> Context {
        Context { kind, outer: None, pivot, passed: HashMap::new(), forward: None }
    }
}

impl Contexts {
    pub(super) fn note(&mut self, node: NodeId) {
        if let Some(current) = self.current {
            self.of_node.insert(node, current);
        }
    }

    pub(super) fn pivot(&self) -> Option<NodeId> {
        self.current.and_then(|current| self.all[current].pivot)
    }
}

impl State {
    /// Returns whether a node was added in a context or in one inside it.
    pub(super) fn is_inside(&self, node: NodeId, context: usize) -> bool {
        self.contexts_of(node).any(|index| index == context)
    }

    /// Returns the contexts around a node, innermost first.
    pub(super) fn contexts_of(&self, node: NodeId) -> impl Iterator<Item = usize> + '_ {
        self.outwards(self.contexts.of_node.get(&node).copied())
    }

    /// Returns a context and all enclosing ones, innermost first.
    pub(super) fn outwards(&self, context: Option<usize>) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(context, |&index| self.contexts.all[index].outer)
    }

    /// Returns the outermost context around a node that neither is nor encloses `level`.
    pub(super) fn outermost_below(&self, node: NodeId, level: Option<usize>) -> Option<usize> {
        let is_around = |context: usize| self.outwards(level).any(|around| around == context);
        self.contexts_of(node).take_while(|&context| !is_around(context)).last()
    }

    /// Returns the forward context that a context is a gradient of, of any order.
    pub(super) fn root(&self, context: usize) -> usize {
        std::iter::successors(Some(context), |&at| self.contexts.all[at].forward).last().unwrap_or(context)
    }

    /// Returns the order of the gradient; loops of odd orders run in reverse.
    pub(super) fn order(&self, context: usize) -> usize {
        std::iter::successors(Some(context), |&at| self.contexts.all[at].forward).count() - 1
    }

    /// Returns the context around a node that a context of a gradient corresponds to.
    pub(super) fn counterpart(&self, node: NodeId, context: usize) -> Option<usize> {
        self.contexts.all[context].forward?;
        let root = self.root(context);
        self.contexts_of(node).find(|&around| self.root(around) == root)
    }

    /// Returns the innermost gradient loop that is or encloses a context.
    pub(super) fn gradient_loop_around(&self, context: Option<usize>) -> Option<usize> {
        let mut at = context;
        while let Some(index) = at {
            let context = &self.contexts.all[index];
            context.forward?;
            if matches!(context.kind, Kind::Loop(_)) {
                return Some(index);
            }
            at = context.outer;
        }
        None
    }

    /// Returns what a gradient loop knows of its forward loop.
    pub(super) fn loop_gradient(&self, context: usize) -> Option<LoopGradient> {
        match &self.contexts.all[context].kind {
            Kind::Loop(kind) => kind.gradient.clone(),
            Kind::Branch { .. } => None,
        }
    }

    /// Returns the innermost context that is or encloses the current one and computes no gradient.
    pub(super) fn base_context(&self) -> Option<usize> {
        let mut at = self.contexts.current;
        while let Some(index) = at {
            if self.contexts.all[index].forward.is_none() {
                return at;
            }
            at = self.contexts.all[index].outer;
        }
        None
    }
}
