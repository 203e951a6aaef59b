//! [`Broadcast`]: the operations by which one worker sends its variables to all others.

use super::Members;
use super::reduce::{is_mirrored, on};
use crate::train::expression::group as group_operations;
use crate::variable::{Variable, global_variables};
use crate::worker_group::WorkerGroup;
use graph::{Graph, Operation, Output};
use tensor::{DType, Result, Status, Tensor};

/// The operations by which one worker sends its variables to all others.
pub(super) struct Broadcast {
    /// For the sending worker.
    pub send: Operation,
    /// For all others.
    pub receive: Operation,
}

impl Broadcast {
    /// Adds the operations for all mirrored variables that the graph has now.
    pub(super) fn build(graph: &Graph, group: &WorkerGroup, members: &Members) -> Result<Broadcast> {
        let variables: Vec<Variable> =
            global_variables(graph)?.into_iter().filter(|variable| is_mirrored(variable, group)).collect();
        graph.in_name_scope("", |graph| {
            graph.name_scope("all_reduce_broadcast", |graph| {
                on(graph, group.device(), |graph| {
                    let (mut sent, mut received) = (Vec::new(), Vec::new());
                    for variable in &variables {
                        let (send, receive) = pair(graph, variable, members)?;
                        sent.push(send);
                        received.push(receive);
                    }
                    graph.finish()?;
                    Ok(Broadcast {
                        send: group_operations(graph, &sent, "send")?,
                        receive: group_operations(graph, &received, "receive")?,
                    })
                })
            })
        })
    }
}

/// Adds the operations of one variable.
fn pair(graph: &Graph, variable: &Variable, members: &Members) -> Result<(Operation, Operation)> {
    let shape = variable.shape().to_shape().ok_or_else(|| {
        Status::invalid_argument(format!(
            "variable '{}' can't be mirrored on all workers: its shape {} is not known",
            variable.name(),
            variable.shape()
        ))
    })?;
    let travelling = travelling(variable)?;
    let value = travelling.of(graph, &variable.read());
    let send = members.op(graph, "CollectiveBcastSendV2", &[&value]).try_build()?;
    let instance = send.input(3);
    let dims = graph.constant_tensor(&Tensor::from_slice(&[shape.rank() as i64], shape.dims())?);
    let receive = graph.op("CollectiveBcastRecvV2").input(&members.size).input(&members.key).input(&instance);
    let receive = receive.input(&dims).attr("T", travelling.dtype).attr("Tshape", DType::Int64).output();
    let back = travelling.back(graph, &receive, variable.dtype());
    back.set_shape(&(&shape).into())?;
    Ok((send, variable.assign(&back)))
}

/// How the values of a variable are sent, since broadcasts support few types.
struct Travelling {
    dtype: DType,
    op: Option<(&'static str, &'static str)>,
}

impl Travelling {
    fn of(&self, graph: &Graph, value: &Output) -> Output {
        match self.op {
            None => value.clone(),
            Some((op, attr)) => graph.op(op).input(value).attr(attr, self.dtype).output(),
        }
    }

    fn back(&self, graph: &Graph, value: &Output, dtype: DType) -> Output {
        match self.op {
            None => value.clone(),
            Some((op, attr)) => graph.op(op).input(value).attr(attr, dtype).output(),
        }
    }
}

fn travelling(variable: &Variable) -> Result<Travelling> {
    let bits = Some(("Bitcast", "type"));
    let (dtype, op) = match variable.dtype() {
        same @ (DType::Bool | DType::Float | DType::Half | DType::Double | DType::Int32 | DType::Int64) => (same, None),
        DType::BFloat16 => (DType::Half, bits),
        DType::UInt32 => (DType::Int32, bits),
        DType::UInt64 | DType::Complex64 => (DType::Int64, bits),
        DType::Int8 | DType::UInt8 | DType::Int16 | DType::UInt16 => (DType::Int32, Some(("Cast", "DstT"))),
        other => {
            let name = variable.name();
            return Err(Status::invalid_argument(format!("variable '{name}' of type {other} can't be mirrored")));
        }
    };
    Ok(Travelling { dtype, op })
}
