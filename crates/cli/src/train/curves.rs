//! [`Curves`]: a worker's own events besides the model's summaries: its loss, its step rate, and one step in detail.

use ferroflow::session::{RunMetadata, chrome_trace};
use ferroflow::summary::FileWriter;
use ferroflow::{Code, Result, Status};
use std::time::Instant;

/// The number of the worker's step that is recorded in detail: caches are warm by then.
const PROFILED: u64 = 10;

/// The curves of one worker, in `worker-N` below the directory of the model.
pub struct Curves {
    logdir: String,
    directory: String,
    writer: Option<FileWriter>,
    every: u64,
    is_profiled: bool,
    count: u64,
    drawn_at: Option<Instant>,
}

impl Curves {
    /// Writes a point after `every` steps, and records one of the worker's first steps if requested.
    pub fn new(logdir: &str, task: u32, every: i64, is_profiled: bool) -> Curves {
        let logdir = logdir.trim_end_matches('/').to_owned();
        let directory = format!("{logdir}/worker-{task}");
        Curves {
            logdir,
            directory,
            writer: None,
            every: every.unsigned_abs().max(1),
            is_profiled,
            count: 0,
            drawn_at: None,
        }
    }

    /// Returns whether the next step is to be recorded.
    pub fn is_profiled_next(&self) -> bool {
        self.is_profiled && self.count + 1 == PROFILED
    }

    /// Records the results of a step.
    pub fn take(&mut self, step: i64, loss: f32, metadata: Option<&RunMetadata>) -> Result<()> {
        self.count += 1;
        if let Some(metadata) = metadata.filter(|_| self.is_profiled && self.count == PROFILED) {
            self.profile(step, metadata).map_err(not_of_input)?;
        }
        if self.count % self.every != 1 % self.every {
            return Ok(());
        }
        self.draw(step, loss).map_err(not_of_input)
    }

    fn draw(&mut self, step: i64, loss: f32) -> Result<()> {
        let now = Instant::now();
        let since = self.drawn_at.replace(now);
        let writer = self.writer()?;
        writer.add_scalar("loss", loss, step)?;
        if let Some(since) = since {
            let seconds = now.duration_since(since).as_secs_f64().max(1e-9);
            writer.add_scalar("steps_per_second", (self.every as f64 / seconds) as f32, step)?;
        }
        writer.flush()
    }

    /// Writes the record of a step for TensorBoard, with its graph, and for trace viewers.
    fn profile(&self, step: i64, metadata: &RunMetadata) -> Result<()> {
        let writer = FileWriter::with_suffix(&self.logdir, ".profile")?;
        writer.add_run_metadata(metadata, &format!("step {step}"), step)?;
        writer.close()?;
        let path = format!("{}/timeline-{step}.json", self.logdir);
        std::fs::write(&path, chrome_trace(metadata)).map_err(|error| Status::unknown(format!("{path}: {error}")))
    }

    /// Creates the writer when there is something to write: by then the chief has locked the directory.
    fn writer(&mut self) -> Result<FileWriter> {
        if let Some(writer) = &self.writer {
            return Ok(writer.clone());
        }
        let writer = FileWriter::new(&self.directory)?;
        self.writer = Some(writer.clone());
        Ok(writer)
    }
}

/// The system reports a file at its size limit as out of range. As the error of a step, that code would mean the end of the input.
fn not_of_input(status: Status) -> Status {
    match status.code() {
        Code::OutOfRange => Status::resource_exhausted(status.message().to_owned()),
        _ => status,
    }
}
