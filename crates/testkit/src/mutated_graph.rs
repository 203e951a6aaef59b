//! Mutates graphs that the real client has built: attributes, inputs, types, shapes, values, nodes. Everything is determined by
//! a seed.

use crate::random_graph::{Chooser, HARMFUL, RandomGraph};
use prost::Message;
use proto::attr_value::Value;
use proto::{AttrValue, CreateSessionRequest, NodeDef, RunStepRequest, TensorProto};
use std::io;
use std::path::Path;
use tensor::{DType, Tensor};

/// Graphs with their feeds and fetches.
pub struct Corpus {
    graphs: Vec<RandomGraph>,
}

/// Numbers at the limits of types and sizes, and just beyond.
const NUMBERS: [i64; 22] = [
    0,
    1,
    -1,
    2,
    3,
    -2,
    7,
    8,
    127,
    128,
    255,
    -128,
    65_535,
    1 << 20,
    i32::MAX as i64,
    i32::MIN as i64,
    i32::MAX as i64 + 1,
    1 << 33,
    1 << 40,
    1 << 62,
    i64::MAX,
    i64::MIN,
];

const FLOATS: [f64; 12] =
    [0.0, -0.0, 1.0, -1.0, 0.5, 1e-40, 1e30, -1e38, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX];

const SIZES: [i64; 12] = [0, 1, 2, 3, 4, 5, 7, 16, -1, 1 << 20, 1 << 40, i64::MAX];

const WORDS: [&str; 14] =
    ["", "NHWC", "NCHW", "SAME", "VALID", "EXPLICIT", "(", "a.*b", "\\9", "ij,jk->ik", "1,,2", "\u{e9}", "GZIP", "min"];

impl Corpus {
    /// Reads a file of pairs of length-prefixed messages: a CreateSessionRequest and a RunStepRequest.
    pub fn read(path: &Path) -> io::Result<Corpus> {
        let contents = std::fs::read(path)?;
        let mut rest = contents.as_slice();
        let mut graphs = Vec::new();
        while !rest.is_empty() {
            let session = CreateSessionRequest::decode_length_delimited(&mut rest).map_err(io::Error::other)?;
            let step = RunStepRequest::decode_length_delimited(&mut rest).map_err(io::Error::other)?;
            let def = session.graph_def.unwrap_or_default();
            if def.node.is_empty() || def.node.iter().any(|node| HARMFUL.contains(&node.op.as_str())) {
                continue;
            }
            let feeds = step.feed.into_iter().filter_map(|feed| Some((feed.name, feed.tensor?)));
            graphs.push(RandomGraph { def, feeds: feeds.collect(), fetches: step.fetch, targets: step.target });
        }
        match graphs.is_empty() {
            true => Err(io::Error::other("the corpus is empty")),
            false => Ok(Corpus { graphs }),
        }
    }

    /// Returns the number of graphs.
    pub fn len(&self) -> usize {
        self.graphs.len()
    }

    /// Returns whether there are none, which never happens.
    pub fn is_empty(&self) -> bool {
        self.graphs.is_empty()
    }

    /// Returns one of the graphs with up to four mutations, occasionally none.
    pub fn mutated(&self, seed: u64) -> RandomGraph {
        let mut chooser = Chooser::new(seed);
        let from = &self.graphs[chooser.below(self.graphs.len())];
        let mut graph = RandomGraph {
            def: from.def.clone(),
            feeds: from.feeds.clone(),
            fetches: from.fetches.clone(),
            targets: from.targets.clone(),
        };
        let changes = if chooser.once_in(50) { 0 } else { 1 + chooser.below(3) };
        for _ in 0..changes {
            Mutation { chooser: &mut chooser, corpus: self }.apply(&mut graph);
        }
        graph
    }
}

struct Mutation<'a> {
    chooser: &'a mut Chooser,
    corpus: &'a Corpus,
}

impl Mutation<'_> {
    fn apply(&mut self, graph: &mut RandomGraph) {
        match self.chooser.below(20) {
            0..=5 if !graph.feeds.is_empty() => {
                let index = self.chooser.below(graph.feeds.len());
                self.tensor(&mut graph.feeds[index].1);
            }
            0..=12 => self.some_attribute(graph),
            13 => self.other_input(graph),
            14 => {
                let index = self.chooser.below(graph.def.node.len());
                graph.def.node.remove(index);
                if graph.def.node.is_empty() {
                    graph.def.node.push(NodeDef { name: "n".into(), op: "NoOp".into(), ..Default::default() });
                }
            }
            15 => {
                let mut copy = self.some_node(graph).clone();
                if !self.chooser.once_in(3) {
                    copy.name.push_str("_copy");
                }
                graph.def.node.push(copy);
            }
            16 => {
                let donor = self.chooser.one_of(&self.corpus.graphs);
                let op = self.chooser.one_of(&donor.def.node).op.clone();
                let index = self.chooser.below(graph.def.node.len());
                if !HARMFUL.contains(&op.as_str()) {
                    graph.def.node[index].op = op;
                }
            }
            17 => self.unfed(graph),
            18 => {
                let node = self.some_node(graph).name.clone();
                graph.fetches.push(format!("{node}:{}", self.chooser.below(2)));
            }
            _ => {
                let index = self.chooser.below(graph.def.node.len());
                let node = &mut graph.def.node[index];
                match self.chooser.below(4) {
                    0 => drop(node.input.pop()),
                    1 => node.input.reverse(),
                    2 => {
                        if let Some(first) = node.input.first().cloned() {
                            node.input.push(first);
                        }
                    }
                    _ => drop(node.attr.keys().next().cloned().and_then(|name| node.attr.remove(&name))),
                }
            }
        }
    }

    fn some_node<'g>(&mut self, graph: &'g RandomGraph) -> &'g NodeDef {
        self.chooser.one_of(&graph.def.node)
    }

    fn some_attribute(&mut self, graph: &mut RandomGraph) {
        // Most nodes are constants, but the others are more interesting.
        let mut index = self.chooser.below(graph.def.node.len());
        for _ in 0..3 {
            if !matches!(graph.def.node[index].op.as_str(), "Placeholder" | "Const") {
                break;
            }
            index = self.chooser.below(graph.def.node.len());
        }
        let node = &mut graph.def.node[index];
        let mut names: Vec<String> = node.attr.keys().filter(|name| !name.starts_with('_')).cloned().collect();
        names.sort();
        if names.is_empty() {
            return;
        }
        let name = self.chooser.one_of(&names).clone();
        if let Some(AttrValue { value: Some(value) }) = node.attr.get_mut(&name) {
            self.value(value);
        }
    }

    fn value(&mut self, value: &mut Value) {
        match value {
            Value::I(number) => *number = self.number(*number),
            Value::F(number) => *number = *self.chooser.one_of(&FLOATS) as f32,
            Value::B(truth) => *truth = !*truth,
            Value::S(text) => *text = self.chooser.one_of(&WORDS).as_bytes().to_vec().into(),
            Value::Type(dtype) => *dtype = 1 + self.chooser.below(23) as i32,
            Value::Shape(shape) => match self.chooser.below(3) {
                0 => shape.unknown_rank = !shape.unknown_rank,
                1 => drop(shape.dim.pop()),
                _ => {
                    let index = self.chooser.below(shape.dim.len());
                    if let Some(dim) = shape.dim.get_mut(index) {
                        dim.size = *self.chooser.one_of(&SIZES);
                    }
                }
            },
            Value::Tensor(tensor) => self.tensor(tensor),
            Value::List(list) => {
                let number = list.i.len();
                if number > 0 {
                    let index = self.chooser.below(number);
                    list.i[index] = self.number(list.i[index]);
                } else if !list.r#type.is_empty() {
                    let index = self.chooser.below(list.r#type.len());
                    list.r#type[index] = 1 + self.chooser.below(23) as i32;
                }
                if self.chooser.once_in(3) {
                    list.i.pop();
                    list.r#type.pop();
                    list.shape.pop();
                    list.s.pop();
                }
            }
            Value::Func(_) | Value::Placeholder(_) => {}
        }
    }

    fn number(&mut self, from: i64) -> i64 {
        match self.chooser.below(3) {
            0 => from.wrapping_add(1),
            1 => from.wrapping_sub(1),
            _ => *self.chooser.one_of(&NUMBERS),
        }
    }

    /// Changes an element, the shape, the type or the length of a tensor.
    fn tensor(&mut self, proto: &mut TensorProto) {
        match self.chooser.below(8) {
            0..=4 => {
                if let Ok(tensor) = tensor::tensor_from_proto(proto)
                    && let Some(changed) = self.changed(&tensor)
                    && let Ok(changed) = tensor::tensor_to_proto(&changed)
                {
                    *proto = changed;
                }
            }
            5 => {
                if let Some(shape) = &mut proto.tensor_shape
                    && !shape.dim.is_empty()
                {
                    let index = self.chooser.below(shape.dim.len());
                    shape.dim[index].size = *self.chooser.one_of(&SIZES);
                }
            }
            6 => {
                // The same elements in another shape.
                let sizes = proto.tensor_shape.iter().flat_map(|shape| &shape.dim).map(|dim| dim.size);
                let count: i64 = sizes.fold(1, i64::wrapping_mul);
                let dim = |size: i64| proto::tensor_shape_proto::Dim { size, ..Default::default() };
                let dims = match self.chooser.below(4) {
                    0 => vec![dim(count)],
                    1 => vec![dim(1), dim(count)],
                    2 => vec![dim(count), dim(1)],
                    _ => vec![dim(1), dim(count), dim(1), dim(1)],
                };
                if let Some(shape) = &mut proto.tensor_shape {
                    shape.dim = dims;
                }
            }
            _ => proto.dtype = 1 + self.chooser.below(23) as i32,
        }
    }

    fn changed(&mut self, tensor: &Tensor) -> Option<Tensor> {
        let count = tensor.num_elements();
        if count == 0 {
            return None;
        }
        let places: Vec<usize> = (0..1 + self.chooser.below(2)).map(|_| self.chooser.below(count)).collect();
        if tensor.dtype() == DType::String {
            let mut texts = tensor.strings().ok()?.to_vec();
            for place in places {
                let mut text = texts[place].to_vec();
                match self.chooser.below(4) {
                    0 => text = self.chooser.one_of(&WORDS).as_bytes().to_vec(),
                    1 => text.truncate(self.chooser.below(text.len() + 1)),
                    2 if !text.is_empty() => {
                        let at = self.chooser.below(text.len());
                        text[at] = self.chooser.draw() as u8;
                    }
                    _ => text.push(self.chooser.draw() as u8),
                }
                texts[place] = text.into();
            }
            return Tensor::from_strings(tensor.shape().clone(), texts).ok();
        }
        let size = tensor.dtype().size();
        let mut bytes = tensor.buffer()?.bytes().to_vec();
        for place in places {
            let element = match tensor.dtype() {
                DType::Float => (*self.chooser.one_of(&FLOATS) as f32).to_le_bytes().to_vec(),
                DType::Double => self.chooser.one_of(&FLOATS).to_le_bytes().to_vec(),
                DType::Bool => vec![u8::from(bytes[place] == 0)],
                dtype if dtype.is_integer() => {
                    self.chooser.one_of(&NUMBERS).to_le_bytes().into_iter().take(size).collect()
                }
                _ => (0..size).map(|_| self.chooser.draw() as u8).collect(),
            };
            bytes.get_mut(place * size..(place + 1) * size)?.iter_mut().zip(element).for_each(|(to, from)| *to = from);
        }
        Tensor::from_buffer(tensor.dtype(), tensor.shape().clone(), tensor::Buffer::foreign(bytes)).ok()
    }

    /// Connects an input with another output.
    fn other_input(&mut self, graph: &mut RandomGraph) {
        let other = self.some_node(graph).name.clone();
        let index = self.chooser.below(graph.def.node.len());
        let node = &mut graph.def.node[index];
        let input = match self.chooser.below(4) {
            0 => format!("^{other}"),
            1 => format!("{other}:{}", self.chooser.below(3)),
            _ => other,
        };
        if node.input.is_empty() || input.starts_with('^') {
            node.input.push(input);
        } else {
            let place = self.chooser.below(node.input.len());
            node.input[place] = input;
        }
    }

    /// Replaces a fed placeholder by a constant, so that the passes see its value.
    fn unfed(&mut self, graph: &mut RandomGraph) {
        if graph.feeds.is_empty() {
            return;
        }
        let (name, value) = graph.feeds.swap_remove(self.chooser.below(graph.feeds.len()));
        let node = name.split(':').next().unwrap_or_default().to_owned();
        if let Some(node) = graph.def.node.iter_mut().find(|one| one.name == node) {
            node.op = "Const".to_owned();
            node.attr.remove("shape");
            node.attr.insert("dtype".to_owned(), AttrValue { value: Some(Value::Type(value.dtype)) });
            node.attr.insert("value".to_owned(), AttrValue { value: Some(Value::Tensor(Box::new(value))) });
        }
    }
}
