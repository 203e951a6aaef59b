//! Messages from outside: a `TensorProto`, a `GraphDef` and the text form of one.

use super::{Outcome, Target, magnitude};
use crate::fuzz::{Report, StepRunner};
use crate::random_graph::{Chooser, HARMFUL, RandomGraph, random_graph};
use graph::NodeGraph;
use prost::Message;
use proto::{GraphDef, TensorProto};
use tensor::{DType, Shape, Status, Tensor, tensor_from_proto, tensor_to_proto};

fn decoded<M: Message + Default>(input: &[u8]) -> tensor::Result<M> {
    M::decode(input).map_err(|error| Status::invalid_argument(format!("it is no message: {error}")))
}

/// Tensors, which must survive a round trip.
pub struct TensorMessages;

impl Target for TensorMessages {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let strings = Tensor::from_strings(Shape::vector(3), vec!["".into(), "abc".into(), vec![0xffu8; 40].into()]);
        let made = [
            Tensor::scalar(1.5f32),
            Tensor::from_slice(&[2, 3], &[1i64, -2, 3, 4, 5, i64::MAX]).expect("the sizes fit"),
            Tensor::vector::<f64>(&[]),
            Tensor::vector(&[true, false]),
            strings.expect("the sizes fit"),
        ];
        let mut seeds: Vec<Vec<u8>> =
            made.iter().filter_map(|tensor| Some(tensor_to_proto(tensor).ok()?.encode_to_vec())).collect();
        // The typed lists, in which the last value may stand for the rest.
        let shape = Some(Shape::vector(5).to_proto());
        for dtype in [DType::Float, DType::Half, DType::Complex64, DType::UInt64, DType::Int8, DType::Bool] {
            let message = TensorProto {
                dtype: dtype as i32,
                tensor_shape: shape.clone(),
                float_val: vec![1.0, 2.0],
                half_val: vec![15360, 7],
                scomplex_val: vec![1.0, 2.0, 3.0, 4.0],
                uint64_val: vec![3, u64::MAX],
                int_val: vec![1, 2, 3],
                bool_val: vec![true],
                ..Default::default()
            };
            seeds.push(message.encode_to_vec());
        }
        seeds
    }

    fn take(&mut self, input: &[u8]) -> Outcome {
        let tensor = match decoded(input).and_then(|message: TensorProto| tensor_from_proto(&message)) {
            Ok(tensor) => tensor,
            Err(status) => return Outcome::refused(&status),
        };
        let back = tensor_to_proto(&tensor).and_then(|sent| Ok((tensor_from_proto(&sent)?, sent)));
        match back.and_then(|(again, sent)| Ok(tensor_to_proto(&again)? == sent || tensor.dtype() == DType::Variant)) {
            Ok(true) => Outcome::accepted(format!(
                "{:?} of rank {}, {}",
                tensor.dtype(),
                tensor.dims().len(),
                magnitude(input.len())
            )),
            Ok(false) => Outcome::found(format!("a tensor of {:?} came back as another", tensor.dtype())),
            Err(status) => Outcome::found(format!("a tensor that was taken can't be sent: {status}")),
        }
    }
}

/// Graphs, which are read, written, and run on an embedded server.
pub struct Graphs {
    steps: StepRunner,
    num_run: u64,
}

impl Graphs {
    /// Starts the server.
    pub fn new() -> Graphs {
        Graphs { steps: StepRunner::start(), num_run: 0 }
    }
}

/// Returns encoded graphs made from the definitions of ops.
pub fn graphs(count: usize) -> Vec<Vec<u8>> {
    let names = ops::registry().names();
    let made = (1u64..).map(|seed| random_graph(&mut Chooser::new(seed), &names).def.encode_to_vec());
    made.filter(|bytes| (1..2048).contains(&bytes.len())).take(count).collect()
}

impl Target for Graphs {
    fn seeds(&self) -> Vec<Vec<u8>> {
        graphs(40)
    }

    fn take(&mut self, input: &[u8]) -> Outcome {
        let def: GraphDef = match decoded(input) {
            Ok(def) => def,
            Err(status) => return Outcome::refused(&status),
        };
        let graph = match NodeGraph::from_graph_def(&def, ops::registry()) {
            Ok(graph) => graph,
            Err(status) => return Outcome::refused(&status),
        };
        let written = graph.to_graph_def();
        match NodeGraph::from_graph_def(&written, ops::registry()) {
            Ok(again) if again.to_graph_def().encode_to_vec() == written.encode_to_vec() => {}
            Ok(_) => return Outcome::found("a graph came back as another"),
            Err(status) => return Outcome::found(format!("a graph that was written can't be read: {status}")),
        }
        let functions =
            def.library.iter().flat_map(|library| &library.function).flat_map(|function| &function.node_def);
        if def.node.iter().chain(functions).any(|node| HARMFUL.contains(&node.op.as_str())) {
            return Outcome::accepted("it would write files");
        }
        let targets = def.node.iter().map(|node| node.name.clone()).collect();
        self.num_run += 1;
        let mut report = Report::default();
        let graph = RandomGraph { def, feeds: Vec::new(), fetches: Vec::new(), targets };
        self.steps.execute(&graph, self.num_run, &mut report);
        let text = format!("{} nodes, {:?}", magnitude(graph.def.node.len()), report.failures);
        Outcome { is_accepted: true, text, finding: report.findings.into_keys().next() }
    }
}

/// Graphs as text.
pub struct Texts;

const GRAPH: &str = "tensorflow.GraphDef";

impl Target for Texts {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let graphs = graphs(20).into_iter().filter_map(|bytes| GraphDef::decode(bytes.as_slice()).ok());
        graphs.filter_map(|graph| Some(proto::text::format(GRAPH, &graph).ok()?.into_bytes())).collect()
    }

    fn take(&mut self, input: &[u8]) -> Outcome {
        let text = String::from_utf8_lossy(input);
        let graph: GraphDef = match proto::text::parse(GRAPH, &text) {
            Ok(graph) => graph,
            Err(error) => return Outcome::refused(&Status::invalid_argument(error.to_string())),
        };
        let back = proto::text::format(GRAPH, &graph).and_then(|text| proto::text::parse::<GraphDef>(GRAPH, &text));
        match back {
            // Compares bytes, since NaN does not equal itself.
            Ok(back) if back.encode_to_vec() == graph.encode_to_vec() => {
                Outcome::accepted(format!("{} bytes", magnitude(graph.encoded_len())))
            }
            Ok(_) => Outcome::found("a message came back as another"),
            Err(error) => Outcome::found(format!("a message that was written can't be parsed: {error}")),
        }
    }
}
