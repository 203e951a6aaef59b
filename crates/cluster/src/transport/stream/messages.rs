//! The fields of the frames for requests, such as running a partition, and for their answers.

use super::decoder::InFrame;
use super::frame::{Fields, FrameWriter, Kind, OutFrame, Share, malformed};
use crate::interface::{RunGraphCall, RunGraphReply};
use crate::worker::StepProgress;
use proto::ExecutorOpts;
use std::sync::Arc;
use tensor::{Code, Result, Status};

const CREATE_WORKER_SESSION_CALLED: u64 = 1;
const CLEANS_ITSELF: u64 = 2;
const RECORD_COSTS: u64 = 4;
const RECORD_TIMELINE: u64 = 8;
const RECORD_PARTITION_GRAPHS: u64 = 16;
const REPORT_ALLOCATIONS: u64 = 32;

/// Writes a request to run a partition.
pub(super) fn write_run_graph(id: u64, call: &RunGraphCall, share: Share<'_>) -> Result<OutFrame> {
    let mut writer = FrameWriter::new(Kind::RunGraph, id, call.sends.iter().map(|(_, tensor)| (tensor, false)), share)?;
    let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
    writer.u64(
        flag(call.create_worker_session_called, CREATE_WORKER_SESSION_CALLED)
            | flag(call.cleans_itself, CLEANS_ITSELF)
            | flag(call.options.record_costs, RECORD_COSTS)
            | flag(call.options.record_timeline, RECORD_TIMELINE)
            | flag(call.options.record_partition_graphs, RECORD_PARTITION_GRAPHS)
            | flag(call.options.report_tensor_allocations_upon_oom, REPORT_ALLOCATIONS),
    );
    writer.u64(call.step_id as u64);
    writer.text(call.session_handle.as_bytes());
    writer.text(call.graph_handle.as_bytes());
    for (key, _) in &call.sends {
        writer.text(key.as_bytes());
    }
    writer.u64(call.receives.len() as u64);
    for key in call.receives.iter() {
        writer.text(key.as_bytes());
    }
    writer.finish()
}

/// Reads a request to run a partition.
pub(super) fn read_run_graph(frame: &mut InFrame) -> Result<RunGraphCall> {
    let tensors = std::mem::take(&mut frame.tensors);
    let mut fields = frame.fields();
    let flags = fields.u64()?;
    let step_id = fields.u64()? as i64;
    let session_handle = fields.text()?.into();
    let graph_handle = fields.text()?.into();
    let mut sends = Vec::with_capacity(tensors.len());
    for (tensor, _) in tensors {
        sends.push((fields.text()?.into(), tensor));
    }
    let num_receives = fields.u64()? as usize;
    // Each takes at least the bytes of its length, so a false number can't cost memory.
    if num_receives > fields.len() / size_of::<u32>() {
        return Err(malformed());
    }
    let receives: Vec<Arc<str>> = (0..num_receives).map(|_| fields.text().map(Arc::from)).collect::<Result<_>>()?;
    Ok(RunGraphCall {
        session_handle,
        create_worker_session_called: flags & CREATE_WORKER_SESSION_CALLED != 0,
        graph_handle,
        step_id,
        sends,
        receives: receives.into(),
        options: ExecutorOpts {
            record_costs: flags & RECORD_COSTS != 0,
            record_timeline: flags & RECORD_TIMELINE != 0,
            record_partition_graphs: flags & RECORD_PARTITION_GRAPHS != 0,
            report_tensor_allocations_upon_oom: flags & REPORT_ALLOCATIONS != 0,
        },
        is_partial: false,
        is_last_partial_run: false,
        cleans_itself: flags & CLEANS_ITSELF != 0,
    })
}

/// Writes a request for a part of a collective op's tensor.
pub(super) fn write_recv_part(id: u64, step_id: i64, key: &str) -> Result<OutFrame> {
    let mut writer = FrameWriter::plain(Kind::RecvPart, id);
    writer.u64(step_id as u64);
    writer.text(key.as_bytes());
    writer.finish()
}

/// Reads a request for a part: the step, and the rendezvous key.
pub(super) fn read_recv_part(mut fields: Fields<'_>) -> Result<(i64, Arc<str>)> {
    let step_id = fields.u64()? as i64;
    Ok((step_id, fields.text()?.into()))
}

/// Writes an answer, or an error in its place.
pub(super) fn write_reply(id: u64, reply: Result<RunGraphReply>, share: Share<'_>) -> Result<OutFrame> {
    let written = reply.and_then(|reply| {
        let mut writer =
            FrameWriter::new(Kind::RunGraphReply, id, reply.received.iter().map(|tensor| (tensor, false)), share)?;
        match &reply.step_stats {
            Some(stats) => writer.text(&prost::Message::encode_to_vec(stats)),
            None => writer.text(b""),
        }
        writer.u64(reply.partition_graphs.len() as u64);
        for graph in &reply.partition_graphs {
            writer.text(&prost::Message::encode_to_vec(graph));
        }
        writer.finish()
    });
    written.or_else(|status| write_error(id, &status))
}

/// Writes an error, as the answer to a call or in place of a greeting.
pub(super) fn write_error(id: u64, status: &Status) -> Result<OutFrame> {
    let mut writer = FrameWriter::plain(Kind::Error, id);
    writer.u64(status.code() as u64);
    writer.u64(u64::from(status.is_derived()));
    writer.text(status.message().as_bytes());
    writer.finish()
}

/// Reads an answer.
pub(super) fn read_reply(frame: &mut InFrame) -> Result<RunGraphReply> {
    let received = std::mem::take(&mut frame.tensors).into_iter().map(|(tensor, _)| tensor).collect();
    let mut fields = frame.fields();
    let stats = fields.bytes()?;
    let step_stats =
        if stats.is_empty() { None } else { Some(prost::Message::decode(stats).map_err(|_| malformed())?) };
    let mut partition_graphs = Vec::new();
    for _ in 0..fields.u64()? {
        partition_graphs.push(prost::Message::decode(fields.bytes()?).map_err(|_| malformed())?);
    }
    Ok(RunGraphReply { received, step_stats, partition_graphs })
}

/// Writes the answer about this task's progress in steps.
pub(super) fn write_progress(
    id: u64,
    mut asked: Fields<'_>,
    progress: impl Fn(i64) -> StepProgress,
) -> Result<OutFrame> {
    let mut writer = FrameWriter::plain(Kind::Progress, id);
    while asked.len() > 0 {
        let step_id = asked.u64()?;
        writer.u64(step_id);
        writer.u64(match progress(step_id as i64) {
            StepProgress::Unknown => 0,
            StepProgress::Running => 1,
            StepProgress::Over => 2,
            StepProgress::Failed => 3,
        });
    }
    writer.finish()
}

/// Reads a peer's progress in steps.
pub(super) fn read_progress(mut fields: Fields<'_>) -> Result<Vec<(i64, StepProgress)>> {
    let mut steps = Vec::with_capacity(fields.len() / (2 * size_of::<u64>()));
    while fields.len() > 0 {
        let step_id = fields.u64()? as i64;
        steps.push((
            step_id,
            match fields.u64()? {
                0 => StepProgress::Unknown,
                1 => StepProgress::Running,
                2 => StepProgress::Over,
                3 => StepProgress::Failed,
                _ => return Err(malformed()),
            },
        ));
    }
    Ok(steps)
}

/// Reads an error.
pub(super) fn read_error(mut fields: Fields<'_>) -> Result<Status> {
    let code = i32::try_from(fields.u64()?).map_err(|_| malformed())?;
    let is_derived = fields.u64()? != 0;
    let status = Status::new(Code::from_i32(code), fields.text()?.to_owned());
    Ok(if is_derived { status.derived() } else { status })
}
