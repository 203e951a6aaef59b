//! [`Executor`]: runs steps of a compiled graph.

use crate::frame::{Ready, State, no_outputs};
use crate::plan::{Plan, PlanNode};
use crate::serving::{serves_others, stuck_looks, turn, was_stuck};
use graph::NodeGraph;
use graph::control_flow::NodeClass;
use kernel::{
    AsyncContext, BoxedKernel, CancellationToken, Completion, Cost, FrameAndIteration, Kernel, OpContext, OpRegistry,
    Outputs, SessionKernels, Step, Value, Values,
};
use numeric::denormals::FlushDenormals;
use numeric::environment::{elapsed, now, system_time};
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};
use tensor::{Code, Result, Status};

/// A node whose inputs have at most this many bytes runs on the thread that made it ready.
const INLINE_BYTES_MAX: usize = 128 << 10;

/// How many nodes of one step a thread runs before it returns to its caller; the pool runs the rest.
const SLICE_NODES_MAX: usize = 10_000;

/// How long a thread runs a step before it returns. Checked only between pieces of work that are long compared with reading
/// the clock.
const SLICE_TIME_MAX: Duration = Duration::from_millis(20);

/// After how many cheap nodes, at most, a step flushes the tensors that it has sent, and a serving thread checks the clock.
const FLUSH_NODES: usize = 64;

/// After how many woken steps a serving thread checks the clock.
const STEPS_BETWEEN_LOOKS: usize = 16;

/// How long a serving thread runs a step: what takes longer moves to the pool, even if it is a single node.
const SERVING_TIME_MAX: Duration = Duration::from_millis(1);

/// How many woken steps a thread runs before it returns.
const SLICE_STEPS_MAX: usize = 1_000;

/// How many idle states are kept for further steps.
const SPARE_STATES_MAX: usize = 8;

type Done = Box<dyn FnOnce(Result<()>) + Send>;

/// A compiled graph. It can run any number of times, also concurrently.
pub struct Executor {
    plan: Plan,
    spare: Mutex<Vec<State>>,
}

impl Executor {
    /// Compiles a graph for a device. Stateful kernels are the session's.
    pub fn new(
        graph: &NodeGraph,
        registry: &OpRegistry,
        kernels: &SessionKernels,
        device: &str,
    ) -> Result<Arc<Executor>> {
        Executor::with_prefix(graph, registry, kernels, device, "")
    }

    /// As [`new`](Self::new), with a prefix for the names under which the session keeps stateful kernels.
    pub(crate) fn with_prefix(
        graph: &NodeGraph,
        registry: &OpRegistry,
        kernels: &SessionKernels,
        device: &str,
        prefix: &str,
    ) -> Result<Arc<Executor>> {
        let plan = Plan::new(graph, registry, kernels, device, prefix)?;
        Ok(Arc::new(Executor { plan, spare: Mutex::new(Vec::new()) }))
    }

    /// Returns the number of nodes.
    pub fn num_nodes(&self) -> usize {
        self.plan.nodes.len()
    }

    /// Runs a step and calls `done` once, perhaps on this thread before this returns. It returns soon: long work continues in
    /// the step's pool.
    pub fn run(self: &Arc<Self>, step: Arc<Step>, done: impl FnOnce(Result<()>) + Send + 'static) {
        let mut state = self.spare.lock().pop().unwrap_or_else(State::new);
        state.start(&self.plan);
        let run = Arc::new(Run {
            executor: self.clone(),
            step,
            state: Mutex::new(Some(state)),
            arrived: Arrived::default(),
            has_failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            done: Mutex::new(Some(Box::new(done))),
            token: Mutex::new(None),
        });
        let watcher = Arc::downgrade(&run);
        let registered = run.step.cancellation.register(move |status| {
            if let Some(run) = watcher.upgrade() {
                run.fail(status);
                // Waiting nodes are notified separately; this keeps the rest from starting.
                run.wake();
            }
        });
        match registered {
            Ok(token) => *run.token.lock() = Some(token),
            Err(status) => run.fail(status),
        }
        run.wake();
    }
}

/// A step under way.
struct Run {
    executor: Arc<Executor>,
    step: Arc<Step>,
    /// The thread that holds this does the bookkeeping; `None` once the step is over.
    state: Mutex<Option<State>>,
    arrived: Arrived,
    has_failed: AtomicBool,
    failure: Mutex<Option<Status>>,
    done: Mutex<Option<Done>>,
    token: Mutex<Option<CancellationToken>>,
}

/// Results of nodes that finished while another thread held the state.
#[derive(Default)]
struct Arrived {
    /// Whether there may be results: a cheap check after every node. Changed under the lock only.
    any: AtomicBool,
    list: Mutex<Vec<(Ready, Result<Outputs>)>>,
}

impl Arrived {
    fn push(&self, ready: Ready, result: Result<Outputs>) {
        let mut list = self.list.lock();
        list.push((ready, result));
        self.any.store(true, Ordering::Release);
    }

    /// Takes the results; those that arrive concurrently may be left for the next call.
    fn take(&self) -> Vec<(Ready, Result<Outputs>)> {
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut list = self.list.lock();
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut *list)
    }

    /// Returns whether there are certainly no results.
    fn is_empty(&self) -> bool {
        self.list.lock().is_empty()
    }
}

thread_local! {
    /// Whether this thread is inside `drive`.
    static DRIVING: Cell<bool> = const { Cell::new(false) };
    /// Steps woken by the step that this thread drives; they run when that one pauses.
    static WOKEN: RefCell<Vec<Arc<Run>>> = const { RefCell::new(Vec::new()) };
}

impl Run {
    /// Continues the step: at once or, when this thread drives another step, soon after.
    fn wake(self: &Arc<Self>) {
        if DRIVING.get() {
            WOKEN.with_borrow_mut(|woken| woken.push(self.clone()));
            return;
        }
        let driving = Driving::begin();
        self.drive();
        let mut started = None;
        for count in 1..=SLICE_STEPS_MAX {
            let Some(run) = WOKEN.with_borrow_mut(Vec::pop) else { break };
            run.drive();
            if count.is_multiple_of(STEPS_BETWEEN_LOOKS)
                && serves_others()
                && elapsed(*started.get_or_insert_with(now)) >= SLICE_TIME_MAX
            {
                break;
            }
        }
        drop(driving);
        // A function that recurses without end must not hold a serving thread.
        self.hand_over_woken();
    }

    /// Hands the steps that wait for this thread to the pool, before the thread starts something long.
    fn hand_over_woken(&self) {
        let woken = WOKEN.with_borrow_mut(std::mem::take);
        for run in woken {
            self.step.runner.spawn(Box::new(move || run.wake()));
        }
    }

    /// Continues the step in the pool, after `first`.
    fn spawn(self: &Arc<Self>, first: impl FnOnce(&Arc<Run>) + Send + 'static) {
        let run = self.clone();
        self.step.runner.spawn(Box::new(move || {
            run.or_break_off(|| first(&run));
            run.wake();
        }));
    }

    /// Records a failure; only the first counts, except that a root cause replaces a derived one.
    fn fail(&self, status: Status) {
        let mut failure = self.failure.lock();
        let replaces = match &*failure {
            None => true,
            Some(old) => old.is_derived() && !status.is_derived() && status.code() != Code::Cancelled,
        };
        if replaces {
            *failure = Some(status);
        }
        self.has_failed.store(true, Ordering::Release);
    }

    /// Continues the step as far as possible now, and flushes what it has sent.
    fn drive(self: &Arc<Self>) {
        let _account = self.step.session.account().enter();
        self.or_break_off(|| {
            self.keep_books();
            self.step.rendezvous.flush();
        });
    }

    /// Runs a part of the step. A panic there, outside of any kernel, ends this step alone.
    fn or_break_off(&self, part: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(part)) {
            // Handling it may panic again; then dropping the step ends it.
            let _ = catch_unwind(AssertUnwindSafe(|| self.break_off(&panic_message(&*panic))));
        }
    }

    /// Ends a step whose state is inconsistent.
    #[cold]
    fn break_off(&self, message: &str) {
        let status = Status::internal(format!("the executor panicked: {message}"));
        self.fail(status.clone());
        let state = self.state.lock().take();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let derived = status.derived();
            self.step.rendezvous.abort(derived.clone());
            self.step.cancellation.cancel(derived);
            // The state may be inconsistent, so it is not reused.
            drop(state);
        }));
        self.finish(None);
        drop(ended);
    }

    /// Does the bookkeeping while there is some and no other thread does it, within the bounds above.
    fn keep_books(self: &Arc<Self>) {
        let mut num_nodes: usize = 0;
        let mut started = None;
        let mut looks = stuck_looks();
        loop {
            let Some(mut guard) = self.state.try_lock() else { return };
            let Some(state) = guard.as_mut() else { return };
            let mut pause = None;
            loop {
                self.take_arrived(state);
                let next = state.ready.pop_front();
                if self.has_failed.load(Ordering::Acquire) {
                    if next.is_none() && state.expensive.pop().is_none() {
                        break;
                    }
                    state.dropped();
                    continue;
                }
                num_nodes += 1;
                let Some(ready) = next else {
                    pause = self.start_expensive(state);
                    break;
                };
                pause = self.start(state, ready);
                if looks != stuck_looks() {
                    looks = self.note_stuck(ready);
                }
                if num_nodes.is_multiple_of(FLUSH_NODES) {
                    self.step.rendezvous.flush();
                    if serves_others() && elapsed(*started.get_or_insert_with(now)) >= SLICE_TIME_MAX {
                        num_nodes = SLICE_NODES_MAX;
                    }
                }
                if pause.is_some() || num_nodes >= SLICE_NODES_MAX {
                    break;
                }
            }
            if let Some(work) = pause {
                drop(guard);
                let ready = work.ready;
                let node = &self.executor.plan.nodes[ready.node as usize];
                let is_over = if matches!(&*node.kernel, BoxedKernel::Sync(_)) {
                    self.step.rendezvous.flush();
                    self.hand_over_woken();
                    let used = elapsed(*started.get_or_insert_with(now));
                    match serves_others() {
                        true => used + node.usual_time.get() >= SERVING_TIME_MAX,
                        false => used >= SLICE_TIME_MAX,
                    }
                } else {
                    node.was_stuck.load(Ordering::Relaxed) && serves_others()
                };
                if is_over {
                    self.spawn(move |run| run.work(work));
                    return;
                }
                self.work(work);
                if looks != stuck_looks() {
                    looks = self.note_stuck(ready);
                }
                continue;
            }
            if num_nodes >= SLICE_NODES_MAX {
                drop(guard);
                self.spawn(|_| {});
                return;
            }
            if state.outstanding == 0 {
                let state = guard.take();
                drop(guard);
                self.finish(state);
                return;
            }
            drop(guard);
            if self.arrived.is_empty() {
                return;
            }
        }
    }

    /// Marks the node if it blocked this serving thread.
    #[cold]
    fn note_stuck(&self, ready: Ready) -> u64 {
        if was_stuck() {
            self.executor.plan.nodes[ready.node as usize].was_stuck.store(true, Ordering::Relaxed);
        }
        stuck_looks()
    }

    fn take_arrived(&self, state: &mut State) {
        loop {
            let arrived = self.arrived.take();
            if arrived.is_empty() {
                return;
            }
            for (ready, result) in arrived {
                self.record(state, ready, result);
            }
        }
    }

    fn record(&self, state: &mut State, ready: Ready, result: Result<Outputs>) {
        match result {
            Ok(mut outputs) => state.finished(&self.executor.plan, ready, &mut outputs),
            Err(status) => {
                let node = &self.executor.plan.nodes[ready.node as usize];
                self.node_failed(node, status);
                state.dropped();
            }
        }
    }

    /// Ends the step after a node has failed: cancels everything that waits.
    fn node_failed(&self, node: &PlanNode, status: Status) {
        let status = status.with_node(&node.name);
        let first = !self.has_failed.load(Ordering::Acquire);
        self.fail(status.clone());
        if first {
            let derived = status.derived();
            self.step.rendezvous.abort(derived.clone());
            self.step.cancellation.cancel(derived);
        }
    }

    /// Runs a cheap node on the spot; returns work that must be done without the lock.
    fn start(self: &Arc<Self>, state: &mut State, ready: Ready) -> Option<Box<Work>> {
        let plan = &self.executor.plan;
        let node = &plan.nodes[ready.node as usize];
        if ready.is_dead && !passes_death_on(node.class) {
            drop_values(state.inputs(node, ready));
            let mut outputs = no_outputs(node.num_outputs);
            state.finished(plan, ready, &mut outputs);
            return None;
        }
        let frame = state.frame_and_iteration(ready);
        let inputs = state.inputs(node, ready);
        let readable = if node.forwards_refs { check_refs(node, inputs) } else { Ok(()) };
        let readable = if node.reads_refs { readable.and_then(|()| read_refs(node, inputs)) } else { readable };
        if let Err(status) = readable {
            self.node_failed(node, status);
            state.dropped();
            return None;
        }
        match &*node.kernel {
            BoxedKernel::Async(_) => {
                let inputs = state.take_inputs(node, ready);
                Some(Box::new(Work { ready, inputs, frame }))
            }
            BoxedKernel::Sync(kernel) => {
                let is_cheap = match node.cost {
                    Cost::Inline => true,
                    Cost::ByInput => total_bytes(inputs) <= INLINE_BYTES_MAX,
                    Cost::Expensive => false,
                };
                if !is_cheap || node.was_stuck.load(Ordering::Relaxed) {
                    // After the cheap ones, so that all expensive nodes to share out are known.
                    state.expensive.push(ready);
                    return None;
                }
                let mut outputs = no_outputs(node.num_outputs);
                let result = self.compute(&**kernel, node, inputs, &mut outputs, frame, ready.is_dead);
                drop_values(inputs);
                match result {
                    Ok(()) => state.finished(plan, ready, &mut outputs),
                    Err(status) => {
                        self.node_failed(node, status);
                        state.dropped();
                    }
                }
                None
            }
        }
    }

    /// Keeps one of the expensive nodes for this thread and gives the others to the pool.
    fn start_expensive(self: &Arc<Self>, state: &mut State) -> Option<Box<Work>> {
        let own = state.expensive.pop()?;
        while let Some(ready) = state.expensive.pop() {
            let work = self.take_work(state, ready);
            self.spawn(move |run| run.work(work));
        }
        Some(self.take_work(state, own))
    }

    fn take_work(&self, state: &mut State, ready: Ready) -> Box<Work> {
        let node = &self.executor.plan.nodes[ready.node as usize];
        Box::new(Work { ready, inputs: state.take_inputs(node, ready), frame: state.frame_and_iteration(ready) })
    }

    /// Runs an expensive or asynchronous node; the lock is not held.
    fn work(self: &Arc<Self>, work: Box<Work>) {
        let node = &self.executor.plan.nodes[work.ready.node as usize];
        let mut outputs = no_outputs(node.num_outputs);
        match &*node.kernel {
            BoxedKernel::Sync(kernel) => {
                let mut inputs = work.inputs;
                let start = now();
                let result = self.compute(&**kernel, node, &mut inputs, &mut outputs, work.frame, work.ready.is_dead);
                node.usual_time.note(elapsed(start));
                drop(inputs);
                self.arrived.push(work.ready, result.map(|()| outputs));
            }
            BoxedKernel::Async(kernel) => {
                let completion = Box::new(NodeDone {
                    run: self.clone(),
                    ready: work.ready,
                    started_ns: self.step.trace.as_ref().map(|_| now_ns()),
                });
                let context = AsyncContext::new(
                    work.inputs,
                    outputs,
                    self.step.clone(),
                    node.name.clone(),
                    work.frame,
                    work.ready.is_dead,
                    completion,
                );
                // A kernel that panics drops its context, which completes the node with an error.
                let _ = catch_unwind(AssertUnwindSafe(|| kernel.compute(context)));
            }
        }
    }

    fn compute(
        &self,
        kernel: &dyn Kernel,
        node: &PlanNode,
        inputs: &mut [Value],
        outputs: &mut Outputs,
        frame: FrameAndIteration,
        is_dead: bool,
    ) -> Result<()> {
        let started_ns = self.step.trace.as_ref().map(|_| now_ns());
        let mut context = OpContext::new(inputs, outputs, &self.step, &node.name, frame, is_dead);
        let result = catch_unwind(AssertUnwindSafe(|| kernel.compute(&mut context)))
            .unwrap_or_else(|panic| Err(Status::internal(format!("the kernel panicked: {}", panic_message(&*panic)))));
        if let (Some(trace), Some(started_ns)) = (&self.step.trace, started_ns) {
            let bytes = total_bytes(outputs);
            trace.record(&node.name, &node.op, started_ns, started_ns, now_ns(), bytes);
        }
        result?;
        if node.class == NodeClass::Plain
            && let Some(missing) = outputs.iter().position(|output| matches!(output, Value::None))
        {
            return Err(Status::internal(format!("Missing {missing}-th output")));
        }
        Ok(())
    }

    fn finish(&self, state: Option<State>) {
        if let Some(mut state) = state {
            state.reset();
            let mut spare = self.executor.spare.lock();
            if spare.len() < SPARE_STATES_MAX {
                spare.push(state);
            }
        }
        if let Some(token) = self.token.lock().take() {
            self.step.cancellation.deregister(token);
        }
        let failure = self.failure.lock().take();
        if let Some(done) = self.done.lock().take() {
            done(failure.map_or(Ok(()), Err));
        }
    }
}

/// Marks this thread as driving steps until it is dropped, also by a panic.
struct Driving {
    _flush: FlushDenormals,
}

impl Driving {
    fn begin() -> Driving {
        DRIVING.set(true);
        turn(true);
        Driving { _flush: FlushDenormals::begin() }
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        DRIVING.set(false);
        turn(false);
    }
}

/// A node to run without the lock. It is boxed, since most nodes run with the lock held, and would otherwise move the room for
/// its inputs.
struct Work {
    ready: Ready,
    inputs: Values,
    frame: FrameAndIteration,
}

/// Tells the step that an asynchronous node has finished.
struct NodeDone {
    run: Arc<Run>,
    ready: Ready,
    started_ns: Option<u64>,
}

impl Completion for NodeDone {
    fn complete(self: Box<Self>, result: Result<Outputs>) {
        if let (Some(trace), Some(started_ns), Ok(outputs)) = (&self.run.step.trace, self.started_ns, &result) {
            let node = &self.run.executor.plan.nodes[self.ready.node as usize];
            let bytes = total_bytes(outputs);
            let record = || trace.record(&node.name, &node.op, started_ns, started_ns, now_ns(), bytes);
            self.run.or_break_off(record);
        }
        self.run.arrived.push(self.ready, result);
        self.run.wake();
    }
}

/// Drops the inputs that a node did not take.
#[inline(always)]
fn drop_values(values: &mut [Value]) {
    for value in values {
        if !matches!(value, Value::None) {
            *value = Value::None;
        }
    }
}

fn passes_death_on(class: NodeClass) -> bool {
    // These run to pass deadness on to other devices, or handle it without running.
    matches!(class, NodeClass::Send)
}

/// Reads the variables among a node's inputs, where its op wants values.
fn read_refs(node: &PlanNode, inputs: &mut [Value]) -> Result<()> {
    for (input, is_ref) in inputs.iter_mut().zip(&node.ref_inputs) {
        if !is_ref && let Value::Ref(variable) = input {
            *input = Value::Tensor(variable.read()?);
        }
    }
    Ok(())
}

/// Fails if a variable that is passed on has no value, so that the error names the node that would have read it.
fn check_refs(node: &PlanNode, inputs: &[Value]) -> Result<()> {
    for (input, is_ref) in inputs.iter().zip(&node.ref_inputs) {
        if !is_ref
            && let Value::Ref(variable) = input
            && !variable.is_initialized()
        {
            return variable.read().map(drop);
        }
    }
    Ok(())
}

fn total_bytes(values: &[Value]) -> usize {
    let bytes = |value: &Value| match value {
        Value::Tensor(tensor) => tensor.buffer().map_or(64 * tensor.num_elements(), |buffer| buffer.len()),
        Value::Ref(variable) => match &*variable.lock_for_read() {
            Some(tensor) => tensor.buffer().map_or(0, |buffer| buffer.len()),
            None => 0,
        },
        Value::None => 0,
    };
    values.iter().map(bytes).sum()
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

fn now_ns() -> u64 {
    system_time().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos() as u64)
}
