//! [`Batcher`]: the resource that collects rows until there are enough for a batch, or until they have waited long enough.
//!
//! A queue's last batch is open: rows are added as long as they fit. It is closed when it is full, or when its first rows have
//! waited long enough. Closed batches are processed in order, with as many at once as TensorFlow has threads; here nothing that
//! waits holds a thread.

use super::request::{Request, Task};
use super::table_rows::{concat_rows, num_rows, split_rows, without_rows};
use kernel::{JobRunner, Resource};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::{Result, Shape, Status, Tensor};

/// The options of a batcher.
#[derive(Clone, Debug)]
pub(super) struct Options {
    /// The number of batches processed at once.
    pub threads: usize,
    /// The most rows that one request may have.
    pub request_rows_max: usize,
    /// The most rows of a batch.
    pub batch_rows_max: usize,
    /// Whether a request may be split over several batches.
    pub split: bool,
    /// How long rows wait for others.
    pub timeout: Duration,
    /// The most batches that wait, including the open one.
    pub batches_max: usize,
    /// The sizes that batches are padded to, in increasing order.
    pub allowed_sizes: Vec<usize>,
}

/// Batches of rows of many steps.
pub(super) struct Batcher {
    options: Options,
    state: Mutex<State>,
}

struct State {
    queues: BTreeMap<String, Queue>,
    /// The number of batches being processed.
    in_flight: usize,
    /// The time of the next check whether an open batch has waited long enough.
    alarm: Option<Instant>,
}

struct Queue {
    /// The last batch is the open one; there always is one.
    batches: VecDeque<Batch>,
}

#[derive(Default)]
struct Batch {
    tasks: Vec<Task>,
    rows: usize,
    /// The arrival of its first rows.
    since: Option<Instant>,
}

impl Batcher {
    pub(super) fn new(options: Options) -> Batcher {
        Batcher { options, state: Mutex::new(State { queues: BTreeMap::new(), in_flight: 0, alarm: None }) }
    }

    /// Adds the rows of a request to a queue; fails if they are too many, or too many are already waiting.
    pub(super) fn add(self: &Arc<Self>, queue: &str, request: &Arc<Request>, inputs: Vec<Tensor>) -> Result<()> {
        let rows = num_rows(inputs.first().ok_or_else(|| Status::invalid_argument("there is nothing to batch"))?)?;
        if rows > self.options.request_rows_max {
            return Err(Status::invalid_argument(format!(
                "Task size {rows} is larger than maximum input batch size {}",
                self.options.request_rows_max
            )));
        }
        let runner = request.step.runner.clone();
        {
            let mut state = self.state.lock();
            let queue = state.queues.entry(queue.to_owned()).or_insert_with(Queue::new);
            let sizes = queue.part_sizes(rows, &self.options)?;
            request.expect_parts(sizes.len());
            let mut parts = vec![Vec::with_capacity(inputs.len()); sizes.len()];
            for input in &inputs {
                let pieces = if sizes.len() == 1 { vec![input.clone()] } else { split_rows(input, &sizes)? };
                parts.iter_mut().zip(pieces).for_each(|(part, piece)| part.push(piece));
            }
            // The lock is held, so that the callback finds the rows whenever it runs.
            let (batcher, weak_request) = (Arc::downgrade(self), Arc::downgrade(request));
            let registered = request.step.cancellation.register(move |status| {
                if let (Some(batcher), Some(request)) = (batcher.upgrade(), weak_request.upgrade()) {
                    batcher.remove(&request);
                    request.finish(Err(status));
                }
            });
            request.set_token(registered?);
            let now = runner.now();
            for (part, (inputs, rows)) in parts.into_iter().zip(sizes).enumerate() {
                queue.push(Task { request: request.clone(), part, inputs, rows }, &self.options, now);
            }
        }
        self.go_on(&*runner);
        self.set_alarm(&runner);
        Ok(())
    }

    /// Removes the waiting rows of a cancelled request.
    fn remove(&self, request: &Arc<Request>) {
        let mut removed = Vec::new();
        let mut state = self.state.lock();
        for queue in state.queues.values_mut() {
            queue.remove(request, &mut removed);
        }
        drop(state);
    }

    /// Starts to process the batches that are ready, as many as there may be.
    fn go_on(self: &Arc<Self>, runner: &dyn JobRunner) {
        loop {
            let batch = {
                let mut state = self.state.lock();
                if state.in_flight >= self.options.threads {
                    return;
                }
                let now = runner.now();
                let ready = state.queues.values_mut().find_map(|queue| queue.pop_ready(&self.options, now));
                let Some(batch) = ready else { return };
                state.in_flight += 1;
                batch
            };
            self.start(batch);
        }
    }

    fn start(self: &Arc<Self>, batch: Batch) {
        let Some(last) = batch.tasks.last() else { return self.done_with_one() };
        let batcher = self.clone();
        let runner = last.request.step.runner.clone();
        let own = runner.clone();
        runner.spawn(Box::new(move || batcher.process(batch, &own)));
    }

    fn done_with_one(&self) {
        self.state.lock().in_flight -= 1;
    }

    fn process(self: &Arc<Self>, batch: Batch, runner: &Arc<dyn JobRunner>) {
        let Batch { tasks, rows, .. } = batch;
        let padded_rows = self.padded_rows(rows);
        let joined = join(&tasks, padded_rows - rows);
        let function = tasks.last().and_then(|task| task.request.function.clone());
        let (joined, function) = match (joined, function) {
            (Ok(joined), Some(function)) => (joined, function),
            (joined, _) => {
                self.done_with_one();
                match joined {
                    Ok(joined) => hand_over(tasks, joined),
                    Err(status) => tasks.into_iter().for_each(|task| task.fail(status.clone())),
                }
                self.go_on(&**runner);
                return self.set_alarm(runner);
            }
        };
        let Some(last) = tasks.last() else { return self.done_with_one() };
        let (step, mut args) = (last.request.step.clone(), joined);
        args.extend(last.request.captured.iter().cloned());
        let (batcher, runner) = (self.clone(), runner.clone());
        let done = Box::new(move |results: Result<Vec<Tensor>>| {
            batcher.done_with_one();
            // The next batch starts before the nodes of this one continue: they may take long.
            batcher.go_on(&*runner);
            batcher.set_alarm(&runner);
            match results.and_then(|results| cut(&tasks, results, padded_rows)) {
                Ok(outputs) => tasks.into_iter().zip(outputs).for_each(|(task, outputs)| answer(task, outputs)),
                Err(status) => tasks.into_iter().for_each(|task| task.fail(status.clone())),
            }
        });
        function.run(args, &step, done);
    }

    /// Sees to it that somebody looks again when an open batch has waited long enough.
    fn set_alarm(self: &Arc<Self>, runner: &Arc<dyn JobRunner>) {
        let delay = {
            let mut state = self.state.lock();
            // An existing alarm is for rows that arrived earlier, so it is due first.
            if state.alarm.is_some() {
                return;
            }
            let since =
                state.queues.values().filter_map(|queue| queue.batches.back().and_then(|open| open.since)).min();
            let Some(due) = since.and_then(|since| since.checked_add(self.options.timeout)) else { return };
            let now = runner.now();
            // A batch that is already due waits for another one to finish, and is checked then.
            if due <= now {
                return;
            }
            state.alarm = Some(due);
            due - now
        };
        let (batcher, own) = (Arc::downgrade(self), runner.clone());
        runner.spawn_after(
            delay,
            Box::new(move || {
                if let Some(batcher) = batcher.upgrade() {
                    batcher.state.lock().alarm = None;
                    batcher.go_on(&*own);
                    batcher.set_alarm(&own);
                }
            }),
        );
    }

    fn padded_rows(&self, rows: usize) -> usize {
        self.options.allowed_sizes.iter().copied().find(|&size| size >= rows).unwrap_or(rows)
    }
}

impl Queue {
    fn new() -> Queue {
        Queue { batches: VecDeque::from([Batch::default()]) }
    }

    fn open_rows(&self) -> usize {
        self.batches.back().map_or(0, |batch| batch.rows)
    }

    /// Returns the sizes of the parts into which a request is split, or an error if there is no room.
    fn part_sizes(&self, rows: usize, options: &Options) -> Result<Vec<usize>> {
        let limit = options.batch_rows_max;
        let room_in_open = limit.saturating_sub(self.open_rows());
        if rows <= room_in_open {
            return Ok(vec![rows]);
        }
        let new_batches_max = options.batches_max.saturating_sub(self.batches.len());
        let room = match options.split {
            true => room_in_open.saturating_add(new_batches_max.saturating_mul(limit)),
            false => new_batches_max.min(1).saturating_mul(limit),
        };
        if rows > room {
            return Err(Status::unavailable(format!(
                "The batch scheduling queue to which this task was submitted is full; task size is {rows}, and {} batches \
                 wait",
                self.batches.len()
            )));
        }
        if !options.split {
            return Ok(vec![rows]);
        }
        let mut sizes = Vec::new();
        let mut left = rows;
        if room_in_open > 0 {
            sizes.push(room_in_open);
            left -= room_in_open;
        }
        while left > 0 {
            sizes.push(left.min(limit));
            left -= left.min(limit);
        }
        Ok(sizes)
    }

    fn push(&mut self, task: Task, options: &Options, now: Instant) {
        if self.open_rows().saturating_add(task.rows) > options.batch_rows_max {
            self.batches.push_back(Batch::default());
        }
        if let Some(open) = self.batches.back_mut() {
            open.since.get_or_insert(now);
            open.rows += task.rows;
            open.tasks.push(task);
        }
    }

    /// Takes the first batch if it is closed, full, or has waited long enough.
    fn pop_ready(&mut self, options: &Options, now: Instant) -> Option<Batch> {
        let first = self.batches.front()?;
        let is_closed = self.batches.len() > 1 || first.rows >= options.batch_rows_max;
        let has_waited = || first.since.is_some_and(|since| now.saturating_duration_since(since) >= options.timeout);
        if !is_closed && !has_waited() {
            return None;
        }
        let batch = self.batches.pop_front();
        if self.batches.is_empty() {
            self.batches.push_back(Batch::default());
        }
        batch
    }

    /// Removes the tasks of a request; the caller drops them when it holds no lock.
    fn remove(&mut self, request: &Arc<Request>, removed: &mut Vec<Task>) {
        for batch in &mut self.batches {
            let found = batch.tasks.extract_if(.., |task| Arc::ptr_eq(&task.request, request));
            removed.extend(found);
            batch.rows = batch.tasks.iter().map(|task| task.rows).sum();
            if batch.tasks.is_empty() {
                batch.since = None;
            }
        }
        let open = self.batches.pop_back();
        self.batches.retain(|batch| !batch.tasks.is_empty());
        self.batches.push_back(open.unwrap_or_default());
    }
}

/// Concatenates each input of all tasks, and repeats the first row at the end as padding.
fn join(tasks: &[Task], padding_rows: usize) -> Result<Vec<Tensor>> {
    let first = tasks.first().ok_or_else(|| Status::invalid_argument("Empty batch."))?;
    if tasks.iter().any(|task| task.inputs.len() != first.inputs.len()) {
        return Err(Status::invalid_argument("Batching inputs must have equal number of edges"));
    }
    (0..first.inputs.len())
        .map(|index| {
            let mut parts: Vec<Tensor> = tasks.iter().map(|task| task.inputs[index].clone()).collect();
            if padding_rows > 0 {
                let row = first.inputs[index].slice_rows(0, 1)?;
                parts.extend(std::iter::repeat_n(row, padding_rows));
            }
            concat_rows(&parts)
        })
        .collect()
}

/// Gives the last task the batch with a table of the rows' owners, and the other tasks empty outputs.
fn hand_over(tasks: Vec<Task>, joined: Vec<Tensor>) {
    let mut index = Vec::with_capacity(tasks.len() * 3);
    let mut start = 0;
    for task in &tasks {
        index.extend([task.request.key, start, start + task.rows as i64]);
        start += task.rows as i64;
    }
    let last = tasks.len().saturating_sub(1);
    let table = Tensor::from_slice(&[tasks.len() as i64, 3], &index);
    for (position, task) in tasks.into_iter().enumerate() {
        let outputs = if position == last {
            table.clone().map(|table| [joined.clone(), vec![table]].concat())
        } else {
            let empty = task.inputs.iter().map(without_rows).collect::<Result<Vec<_>>>();
            empty.and_then(|empty| {
                Ok([empty, vec![Tensor::zeros(tensor::DType::Int64, Shape::new(&[0, 3])?)?]].concat())
            })
        };
        let outputs = outputs.map(|outputs| [outputs, vec![Tensor::scalar(task.request.key)]].concat());
        let request = task.request;
        request.step.runner.clone().spawn(Box::new(move || request.finish(outputs)));
    }
}

/// Splits a function's results by task.
fn cut(tasks: &[Task], results: Vec<Tensor>, rows: usize) -> Result<Vec<Vec<Tensor>>> {
    let sizes: Vec<usize> = tasks.iter().map(|task| task.rows).collect();
    let mut outputs = vec![Vec::with_capacity(results.len()); tasks.len()];
    for result in results {
        if result.shape().is_scalar() {
            return Err(Status::failed_precondition("Batched output tensor has 0 dimensions"));
        }
        if num_rows(&result)? != rows {
            return Err(Status::failed_precondition(
                "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the input \
                 tensors",
            ));
        }
        outputs.iter_mut().zip(split_rows(&result, &sizes)?).for_each(|(output, part)| output.push(part));
    }
    Ok(outputs)
}

fn answer(task: Task, outputs: Vec<Tensor>) {
    let runner = task.request.step.runner.clone();
    runner.spawn(Box::new(move || task.request.answer(task.part, outputs)));
}

impl Resource for Batcher {
    fn type_name(&self) -> &'static str {
        "N10tensorflow13BatchResourceE"
    }

    fn describe(&self) -> String {
        let state = self.state.lock();
        let waiting: usize = state.queues.values().flat_map(|queue| &queue.batches).map(|batch| batch.rows).sum();
        format!("batcher in which {waiting} rows wait and {} batches are processed", state.in_flight)
    }
}
