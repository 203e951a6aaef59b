//! The roles of ops in control flow and transfers, and the frames of loops.

use crate::{Node, NodeGraph, NodeId};
use foldhash::{HashMap, HashMapExt};
use tensor::{Result, Status};

/// The role of an op for the executor and the passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeClass {
    /// An ordinary op.
    Plain,
    /// `Switch`, `RefSwitch`, `_SwitchN`: makes all outputs but one dead.
    Switch,
    /// `Merge`, `RefMerge`: runs when the first live input arrives.
    Merge,
    /// `Enter`, `RefEnter`: passes its input into a frame.
    Enter,
    /// `Exit`, `RefExit`: passes its input out of a frame.
    Exit,
    /// `NextIteration`, `RefNextIteration`: passes its input to the next iteration.
    NextIteration,
    /// `LoopCond`.
    LoopCond,
    /// `ControlTrigger`: runs even when its inputs are dead.
    ControlTrigger,
    /// `_Send`, `_HostSend`: passes on dead inputs.
    Send,
    /// `_Recv`, `_HostRecv`.
    Recv,
}

impl NodeClass {
    /// Returns the role of an op.
    pub fn of(op: &str) -> NodeClass {
        match op {
            "Switch" | "RefSwitch" | "_SwitchN" => NodeClass::Switch,
            "Merge" | "RefMerge" => NodeClass::Merge,
            "Enter" | "RefEnter" => NodeClass::Enter,
            "Exit" | "RefExit" => NodeClass::Exit,
            "NextIteration" | "RefNextIteration" => NodeClass::NextIteration,
            "LoopCond" => NodeClass::LoopCond,
            "ControlTrigger" => NodeClass::ControlTrigger,
            "_Send" | "_HostSend" => NodeClass::Send,
            "_Recv" | "_HostRecv" => NodeClass::Recv,
            _ => NodeClass::Plain,
        }
    }
}

/// One loop: the frame in which its body runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// The frame's name; empty for the root frame.
    pub name: String,
    /// The enclosing frame; the root frame is its own parent.
    pub parent: usize,
    /// The number of iterations that may run at the same time.
    pub parallel_iterations: i64,
    /// The `LoopCond` of the loop.
    pub loop_cond: Option<NodeId>,
}

/// The frames of a graph, and the frame that each node runs in.
#[derive(Clone, Debug)]
pub struct FrameTable {
    /// The frames, the root frame first.
    pub frames: Vec<Frame>,
    /// The frame of each node, by node index. An `Enter` or `Exit` belongs to the loop that it enters or leaves.
    pub of_node: Vec<usize>,
}

impl FrameTable {
    /// The index of the root frame, which has the nodes outside of all loops.
    pub const ROOT: usize = 0;

    /// Finds the frames. Returns an error if the inputs of a node come from different frames.
    pub fn new(graph: &NodeGraph) -> Result<FrameTable> {
        let root = Frame { name: String::new(), parent: 0, parallel_iterations: 1, loop_cond: None };
        let mut table = FrameTable { frames: vec![root], of_node: vec![FrameTable::ROOT; graph.id_bound()] };
        let mut by_name: HashMap<String, usize> = HashMap::new();
        for id in graph.topological_order()? {
            let node = graph.node(id);
            let class = NodeClass::of(node.op());
            let mut input_frame: Option<(usize, NodeId)> = None;
            for source in sources(graph, node) {
                let frame = table.output_frame(graph, source);
                match input_frame {
                    None => input_frame = Some((frame, source)),
                    Some((first, _)) if first == frame => {}
                    Some((first, other)) => return Err(table.mismatch(graph, node, (source, frame), (other, first))),
                }
            }
            let outer = input_frame.map_or(FrameTable::ROOT, |(frame, _)| frame);
            table.of_node[id.index()] = match class {
                NodeClass::Enter => table.enter(&mut by_name, node, outer)?,
                _ => outer,
            };
            if class == NodeClass::LoopCond {
                // The loop counter that a gradient adds shares the loop's frame; its condition is not the loop's.
                let cond = &mut table.frames[outer].loop_cond;
                if cond.is_none_or(|first| graph.node(first).name.contains("LoopCounter")) {
                    *cond = Some(id);
                } else if !node.name.contains("LoopCounter") {
                    return Err(Status::invalid_argument(format!(
                        "Invalid loop structure: Loop \"{}\" has more than one LoopCond node: {{{{node {}}}}}",
                        table.frames[outer].name, node.name
                    )));
                }
            }
        }
        table.check_back_edges(graph)?;
        Ok(table)
    }

    /// Returns the frame that a node's inputs come from.
    pub fn input_frame(&self, graph: &NodeGraph, id: NodeId) -> usize {
        let frame = self.of_node[id.index()];
        if NodeClass::of(graph.node(id).op()) == NodeClass::Enter { self.frames[frame].parent } else { frame }
    }

    /// Returns the frame that a node's outputs go to.
    pub fn output_frame(&self, graph: &NodeGraph, id: NodeId) -> usize {
        let frame = self.of_node[id.index()];
        if NodeClass::of(graph.node(id).op()) == NodeClass::Exit { self.frames[frame].parent } else { frame }
    }

    fn enter(&mut self, by_name: &mut HashMap<String, usize>, node: &Node, parent: usize) -> Result<usize> {
        let name = node.attrs.string("frame_name")?;
        if name.is_empty() {
            return Err(Status::invalid_argument(format!(
                "The Enter {{{{node {}}}}} must have a frame name.",
                node.name
            )));
        }
        if let Some(&frame) = by_name.get(&name) {
            let known = self.frames[frame].parent;
            if known != parent {
                return Err(Status::invalid_argument(format!(
                    "Invalid loop structure: Mismatched parent frames for \"{name}\": \"{}\" vs \"{}\". The node giving \
                     this error: {{{{node {}}}}}.",
                    self.frames[parent].name, self.frames[known].name, node.name
                )));
            }
            return Ok(frame);
        }
        let parallel_iterations = node.attrs.int("parallel_iterations").unwrap_or(10);
        self.frames.push(Frame { name: name.clone(), parent, parallel_iterations, loop_cond: None });
        by_name.insert(name, self.frames.len() - 1);
        Ok(self.frames.len() - 1)
    }

    /// Checks the back edges of loops, which the search skips because their sources come later.
    fn check_back_edges(&self, graph: &NodeGraph) -> Result<()> {
        for (id, node) in graph.iter().filter(|(_, node)| NodeClass::of(node.op()) == NodeClass::Merge) {
            let frame = self.of_node[id.index()];
            for source in node.inputs.iter().map(|edge| edge.node) {
                let from = self.output_frame(graph, source);
                if from != frame {
                    return Err(self.mismatch(graph, node, (source, from), (id, frame)));
                }
            }
        }
        Ok(())
    }

    fn mismatch(&self, graph: &NodeGraph, node: &Node, one: (NodeId, usize), other: (NodeId, usize)) -> Status {
        let name = |id: NodeId| &graph.node(id).name;
        Status::invalid_argument(format!(
            "{{{{node {}}}}} has inputs from different frames. The input {{{{node {}}}}} is in frame '{}'. The input \
             {{{{node {}}}}} is in frame '{}'.",
            node.name,
            name(one.0),
            self.frames[one.1].name,
            name(other.0),
            self.frames[other.1].name
        ))
    }
}

/// Returns the nodes that run before `node` in the same iteration.
fn sources<'a>(graph: &'a NodeGraph, node: &'a Node) -> impl Iterator<Item = NodeId> + 'a {
    let is_merge = NodeClass::of(node.op()) == NodeClass::Merge;
    let is_back = move |id: NodeId| is_merge && NodeClass::of(graph.node(id).op()) == NodeClass::NextIteration;
    let data = node.inputs.iter().map(|edge| edge.node).filter(move |&id| !is_back(id));
    data.chain(node.control_inputs.iter().copied())
}
