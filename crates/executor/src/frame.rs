//! The bookkeeping of a step: which inputs have arrived, in which iteration of which loop.
//!
//! Everything here is plain single-threaded code under the step's lock.

use crate::plan::{CONTROL_PORT, MERGE_WAITS, OutEdge, Plan, PlanNode};
use foldhash::{HashMap, HashMapExt};
use graph::control_flow::NodeClass;
use kernel::{FrameAndIteration, Outputs, Value, Values};
use std::collections::VecDeque;

/// A node that is ready to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) node: u32,
    /// The dynamic frame and the iteration.
    pub(crate) frame: u32,
    pub(crate) iteration: u64,
    pub(crate) is_dead: bool,
}

/// One iteration of a loop, or the single one of the graph itself.
#[derive(Default)]
struct Iteration {
    slots: Vec<Value>,
    pending: Vec<u32>,
    /// How many inputs of each node are dead.
    dead: Vec<u32>,
    /// Nodes that are ready, running or waiting.
    outstanding: usize,
    /// Loops that this iteration has entered and that haven't ended.
    outstanding_frames: usize,
}

/// A running loop, or the graph itself.
struct Frame {
    static_frame: u32,
    /// The id in rendezvous keys.
    id: u64,
    /// The frame and iteration that entered it.
    parent: Option<(u32, u64)>,
    /// The iterations that are under way; the first is number `first_iteration`.
    iterations: VecDeque<Iteration>,
    first_iteration: u64,
    /// Values that every iteration gets.
    invariants: Vec<(u32, Value)>,
    /// Values for an iteration that may not start yet.
    next_roots: Vec<(u32, Value)>,
    /// Exits that were dead in the last iteration.
    dead_exits: Vec<u32>,
    pending_enters: u32,
}

/// What has happened so far in a step.
pub(crate) struct State {
    frames: Vec<Option<Frame>>,
    free_frames: Vec<u32>,
    children: HashMap<(u32, u64, u32), u32>,
    /// Nodes that are ready.
    pub(crate) ready: VecDeque<Ready>,
    /// Nodes that are ready and expensive.
    pub(crate) expensive: Vec<Ready>,
    /// Nodes that are ready, running or waiting, in all frames.
    pub(crate) outstanding: usize,
    /// Iterations kept for reuse.
    spare: Vec<Iteration>,
}

impl State {
    /// Makes a state for steps of a plan.
    pub(crate) fn new() -> State {
        State {
            frames: Vec::new(),
            free_frames: Vec::new(),
            children: HashMap::new(),
            ready: VecDeque::new(),
            expensive: Vec::new(),
            outstanding: 0,
            spare: Vec::new(),
        }
    }

    /// Starts a step: makes the root frame and its roots ready.
    pub(crate) fn start(&mut self, plan: &Plan) {
        let iteration = self.new_iteration(plan, 0);
        let root = Frame {
            static_frame: 0,
            id: 0,
            parent: None,
            iterations: VecDeque::from([iteration]),
            first_iteration: 0,
            invariants: Vec::new(),
            next_roots: Vec::new(),
            dead_exits: Vec::new(),
            pending_enters: 0,
        };
        self.frames.push(Some(root));
        for &node in &plan.frames[0].roots {
            self.make_ready(Ready { node, frame: 0, iteration: 0, is_dead: false });
        }
    }

    /// Resets the state for another step.
    pub(crate) fn reset(&mut self) {
        let frames = std::mem::take(&mut self.frames);
        for frame in frames.into_iter().flatten() {
            for iteration in frame.iterations {
                if frame.static_frame == 0 {
                    self.spare.push(iteration);
                }
            }
        }
        self.spare.truncate(1);
        if let Some(iteration) = self.spare.first_mut() {
            for slot in &mut iteration.slots {
                *slot = Value::None;
            }
        }
        self.free_frames.clear();
        self.children.clear();
        self.ready.clear();
        self.expensive.clear();
        self.outstanding = 0;
    }

    fn new_iteration(&mut self, plan: &Plan, static_frame: u32) -> Iteration {
        let frame = &plan.frames[static_frame as usize];
        let mut iteration = if static_frame == 0 { self.spare.pop().unwrap_or_default() } else { Iteration::default() };
        iteration.slots.resize_with(frame.num_slots, Value::default);
        iteration.pending.clear();
        iteration.pending.extend_from_slice(&frame.pending);
        iteration.dead.clear();
        iteration.dead.resize(frame.pending.len(), 0);
        iteration.outstanding = 0;
        iteration.outstanding_frames = 0;
        iteration
    }

    fn make_ready(&mut self, ready: Ready) {
        self.outstanding += 1;
        if let Some(iteration) = self.iteration_mut(ready.frame, ready.iteration) {
            iteration.outstanding += 1;
        }
        self.ready.push_back(ready);
    }

    fn frame_mut(&mut self, frame: u32) -> Option<&mut Frame> {
        self.frames.get_mut(frame as usize).and_then(Option::as_mut)
    }

    fn iteration_mut(&mut self, frame: u32, iteration: u64) -> Option<&mut Iteration> {
        let frame = self.frame_mut(frame)?;
        let index = iteration.checked_sub(frame.first_iteration)?;
        frame.iterations.get_mut(index as usize)
    }

    /// Returns the input slots of a node that is ready.
    pub(crate) fn inputs(&mut self, node: &PlanNode, ready: Ready) -> &mut [Value] {
        let range = node.first_slot as usize..(node.first_slot + node.num_inputs) as usize;
        match self.iteration_mut(ready.frame, ready.iteration) {
            Some(iteration) => &mut iteration.slots[range],
            None => &mut [],
        }
    }

    /// Takes the inputs of a node that is ready.
    pub(crate) fn take_inputs(&mut self, node: &PlanNode, ready: Ready) -> Values {
        self.inputs(node, ready).iter_mut().map(std::mem::take).collect()
    }

    /// Returns where a node runs, as kernels and rendezvous keys see it.
    pub(crate) fn frame_and_iteration(&mut self, ready: Ready) -> FrameAndIteration {
        if ready.frame == 0 {
            return FrameAndIteration::default();
        }
        let id = self.frame_mut(ready.frame).map_or(0, |frame| frame.id);
        FrameAndIteration { frame: id, iteration: ready.iteration as i64 }
    }

    /// Records that a node has run with these outputs, and makes its consumers ready.
    pub(crate) fn finished(&mut self, plan: &Plan, ready: Ready, outputs: &mut Outputs) {
        let node = &plan.nodes[ready.node as usize];
        match node.class {
            NodeClass::Enter => self.enter(plan, node, ready, outputs),
            NodeClass::Exit => self.exit(plan, node, ready, outputs),
            NodeClass::NextIteration => self.next_iteration(plan, node, ready, outputs),
            _ => self.propagate(plan, node, ready.frame, ready.iteration, ready.is_dead, outputs),
        }
        self.node_done(plan, ready.frame, ready.iteration);
    }

    /// Records that a node won't run any more, since the step has failed.
    pub(crate) fn dropped(&mut self) {
        self.outstanding -= 1;
    }

    /// Hands outputs to their consumers in one iteration of a frame.
    fn propagate(
        &mut self,
        plan: &Plan,
        node: &PlanNode,
        frame: u32,
        iteration: u64,
        is_dead: bool,
        outputs: &mut Outputs,
    ) {
        for edge in plan.out_edges(node) {
            let (output, dead) = if edge.port == CONTROL_PORT {
                (None, is_dead)
            } else {
                let output = &mut outputs[edge.port as usize];
                let dead = is_dead || matches!(output, Value::None);
                (Some(output), dead)
            };
            self.deliver(plan, edge, frame, iteration, output, dead, node.class == NodeClass::Enter);
        }
    }

    /// Delivers one value, and makes its consumer ready if it waited for nothing else. The value is moved or cloned straight into
    /// its slot, without a copy in between.
    #[inline(always)]
    fn deliver(
        &mut self,
        plan: &Plan,
        edge: &OutEdge,
        frame: u32,
        iteration: u64,
        output: Option<&mut Value>,
        is_dead: bool,
        from_enter: bool,
    ) {
        let hand_over = |slot: &mut Value| match output {
            Some(output) if edge.is_last => *slot = std::mem::take(output),
            Some(output) => slot.clone_from(output),
            None => {}
        };
        let consumer = &plan.nodes[edge.node as usize];
        let Some(state) = self.iteration_mut(frame, iteration) else { return };
        let local = consumer.local as usize;
        let ready = if consumer.class == NodeClass::Merge {
            let num_inputs = consumer.num_inputs;
            let pending = &mut state.pending[local];
            if edge.port == CONTROL_PORT {
                *pending -= 2;
                let all_dead = state.dead[local] == num_inputs;
                (*pending == 0 || (*pending == MERGE_WAITS && all_dead)).then_some(*pending != 0)
            } else if !is_dead {
                // Only the first live value counts.
                if *pending & MERGE_WAITS == 0 {
                    None
                } else {
                    *pending &= !MERGE_WAITS;
                    hand_over(&mut state.slots[edge.slot as usize]);
                    (*pending == 0).then_some(false)
                }
            } else {
                state.dead[local] += 1;
                // A dead `Enter` means that the loop is on an untaken branch: no other value will come.
                let all_dead = state.dead[local] == num_inputs || from_enter;
                if all_dead {
                    state.dead[local] = num_inputs;
                }
                (*pending == MERGE_WAITS && all_dead).then_some(true)
            }
        } else {
            let pending = &mut state.pending[local];
            *pending -= 1;
            if is_dead {
                state.dead[local] += 1;
            } else if edge.port != CONTROL_PORT {
                hand_over(&mut state.slots[edge.slot as usize]);
            }
            // A trigger runs even with dead inputs.
            (*pending == 0).then_some(state.dead[local] > 0 && consumer.class != NodeClass::ControlTrigger)
        };
        if let Some(is_dead) = ready {
            self.make_ready(Ready { node: edge.node, frame, iteration, is_dead });
        }
    }

    fn enter(&mut self, plan: &Plan, node: &PlanNode, ready: Ready, outputs: &mut Outputs) {
        let Some(info) = node.enter else { return };
        let child = self.find_or_create_child(plan, info.frame, ready);
        let is_dead = ready.is_dead;
        if info.is_constant && !is_dead {
            // Every iteration that has started gets the value now, and later ones when they start.
            let value = outputs.first().cloned().unwrap_or_default();
            let (first, count) = match self.frame_mut(child) {
                Some(frame) => {
                    frame.invariants.push((ready.node, value.clone()));
                    (frame.first_iteration, frame.iterations.len() as u64)
                }
                None => return,
            };
            for iteration in first..first + count {
                let mut copy = Outputs::new();
                copy.push(value.clone());
                self.propagate(plan, node, child, iteration, false, &mut copy);
            }
        } else {
            self.propagate(plan, node, child, 0, is_dead, outputs);
        }
        if let Some(frame) = self.frame_mut(child) {
            frame.pending_enters -= 1;
        }
        self.cleanup(plan, child);
    }

    fn exit(&mut self, plan: &Plan, node: &PlanNode, ready: Ready, outputs: &mut Outputs) {
        let Some(frame) = self.frame_mut(ready.frame) else { return };
        if ready.is_dead {
            // An exit that is dead in the last iteration is dead; which iteration is the last is known when the loop ends.
            let last = frame.first_iteration + frame.iterations.len() as u64 - 1;
            if ready.iteration == last {
                frame.dead_exits.push(ready.node);
            }
            return;
        }
        if let Some((parent, iteration)) = frame.parent {
            self.propagate(plan, node, parent, iteration, false, outputs);
        }
    }

    fn next_iteration(&mut self, plan: &Plan, node: &PlanNode, ready: Ready, outputs: &mut Outputs) {
        if ready.is_dead {
            return;
        }
        let Some(frame) = self.frame_mut(ready.frame) else { return };
        let last = frame.first_iteration + frame.iterations.len() as u64 - 1;
        if ready.iteration == last {
            let limit = plan.frames[frame.static_frame as usize].parallel_iterations as usize;
            if frame.iterations.len() >= limit {
                let value = outputs.first_mut().map(std::mem::take).unwrap_or_default();
                frame.next_roots.push((ready.node, value));
                return;
            }
            self.start_iteration(plan, ready.frame);
        }
        self.propagate(plan, node, ready.frame, ready.iteration + 1, false, outputs);
    }

    /// Starts the next iteration of a loop with its invariants and the values that were kept for it.
    fn start_iteration(&mut self, plan: &Plan, frame_index: u32) {
        let Some(frame) = self.frame_mut(frame_index) else { return };
        let static_frame = frame.static_frame;
        frame.dead_exits.clear();
        let roots = std::mem::take(&mut frame.next_roots);
        let invariants = frame.invariants.clone();
        let iteration = self.new_iteration(plan, static_frame);
        let Some(frame) = self.frame_mut(frame_index) else { return };
        frame.iterations.push_back(iteration);
        let number = frame.first_iteration + frame.iterations.len() as u64 - 1;
        for (node, value) in roots.into_iter().chain(invariants) {
            let mut outputs = Outputs::new();
            outputs.push(value);
            self.propagate(plan, &plan.nodes[node as usize], frame_index, number, false, &mut outputs);
        }
    }

    fn find_or_create_child(&mut self, plan: &Plan, static_frame: u32, ready: Ready) -> u32 {
        let key = (ready.frame, ready.iteration, static_frame);
        if let Some(&child) = self.children.get(&key) {
            return child;
        }
        let parent_id = self.frame_mut(ready.frame).map_or(0, |frame| frame.id);
        let info = &plan.frames[static_frame as usize];
        let iteration = self.new_iteration(plan, static_frame);
        let frame = Frame {
            static_frame,
            id: child_frame_id(parent_id, ready.iteration, &info.name),
            parent: Some((ready.frame, ready.iteration)),
            iterations: VecDeque::from([iteration]),
            first_iteration: 0,
            invariants: Vec::new(),
            next_roots: Vec::new(),
            dead_exits: Vec::new(),
            pending_enters: info.num_enters,
        };
        let child = match self.free_frames.pop() {
            Some(index) => {
                self.frames[index as usize] = Some(frame);
                index
            }
            None => {
                self.frames.push(Some(frame));
                self.frames.len() as u32 - 1
            }
        };
        self.children.insert(key, child);
        if let Some(iteration) = self.iteration_mut(ready.frame, ready.iteration) {
            iteration.outstanding_frames += 1;
        }
        child
    }

    fn node_done(&mut self, plan: &Plan, frame: u32, iteration: u64) {
        self.outstanding -= 1;
        if let Some(iteration) = self.iteration_mut(frame, iteration) {
            iteration.outstanding -= 1;
        }
        if frame != 0 {
            self.cleanup(plan, frame);
        }
    }

    /// Drops the finished iterations, and the loop itself when all are finished; then does the same for the enclosing loop.
    fn cleanup(&mut self, plan: &Plan, frame: u32) {
        let mut next = Some(frame);
        while let Some(frame) = next {
            next = self.cleanup_one(plan, frame);
        }
    }

    /// Returns the frame that encloses a loop that has ended.
    fn cleanup_one(&mut self, plan: &Plan, frame_index: u32) -> Option<u32> {
        if frame_index == 0 {
            return None;
        }
        loop {
            let frame = self.frame_mut(frame_index)?;
            // Until every `Enter` has arrived, the first iteration may still receive values.
            let is_first = frame.first_iteration == 0;
            if is_first && frame.pending_enters > 0 {
                return None;
            }
            let Some(iteration) = frame.iterations.front() else { break };
            if iteration.outstanding > 0 || iteration.outstanding_frames > 0 {
                return None;
            }
            if frame.iterations.len() == 1 && !frame.next_roots.is_empty() {
                self.start_iteration(plan, frame_index);
                continue;
            }
            frame.iterations.pop_front();
            frame.first_iteration += 1;
            if !frame.next_roots.is_empty() {
                self.start_iteration(plan, frame_index);
            }
        }
        let frame = self.frames[frame_index as usize].take()?;
        let (parent, parent_iteration) = frame.parent?;
        self.free_frames.push(frame_index);
        self.children.remove(&(parent, parent_iteration, frame.static_frame));
        for node in frame.dead_exits {
            let node = &plan.nodes[node as usize];
            let mut outputs = no_outputs(node.num_outputs);
            self.propagate(plan, node, parent, parent_iteration, true, &mut outputs);
        }
        if let Some(iteration) = self.iteration_mut(parent, parent_iteration) {
            iteration.outstanding_frames -= 1;
        }
        Some(parent)
    }
}

/// Returns a frame's id as TensorFlow computes it, so that keys agree between tasks.
fn child_frame_id(parent: u64, iteration: u64, name: &str) -> u64 {
    combine(parent, combine(iteration, hash64(name.as_bytes())))
}

fn combine(a: u64, b: u64) -> u64 {
    a ^ (b.wrapping_add(0x9e37_79b9_7f4a_7800).wrapping_add(a << 10).wrapping_add(a >> 4))
}

/// TensorFlow's 64-bit hash (MurmurHash64A with its seed).
fn hash64(data: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    const SEED: u64 = 0x00DE_CAFC_AFFE;
    let mut hash = SEED ^ (data.len() as u64).wrapping_mul(MULTIPLIER);
    let mut chunks = data.chunks_exact(8);
    for chunk in &mut chunks {
        let mut word = chunk.iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
        word = word.wrapping_mul(MULTIPLIER);
        word ^= word >> SHIFT;
        word = word.wrapping_mul(MULTIPLIER);
        hash = (hash ^ word).wrapping_mul(MULTIPLIER);
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        let word = rest.iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
        hash = (hash ^ word).wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> SHIFT;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^ (hash >> SHIFT)
}

/// Returns room for this many outputs, inline, since moving them takes longer.
#[inline(always)]
pub(crate) fn no_outputs(count: u32) -> Outputs {
    match count {
        0 => Outputs::new(),
        1 => Outputs::from_buf_and_len([Value::None, Value::None], 1),
        2 => Outputs::from_buf_and_len([Value::None, Value::None], 2),
        _ => (0..count).map(|_| Value::None).collect(),
    }
}
