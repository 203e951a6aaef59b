//! Tests of what must not happen to a thread that runs steps: a panic outside of a kernel, a node that keeps it, loops within
//! loops within loops.

mod common;

use common::{constant, graph, op, registry, run};
use executor::watchdog::{Watched, watch};
use executor::{Executor, ServingThread};
use graph::Graph;
use kernel::{CallFrame, LocalRendezvous, ReceiveDone, Rendezvous, RendezvousKey, SessionKernels, Step};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tensor::{Code, Result, Status, Tensor};

const FAR: Duration = Duration::from_secs(60);

/// Panics when it is told to, where no kernel is to blame.
struct Faulty {
    inner: LocalRendezvous,
    panics: AtomicBool,
}

impl Rendezvous for Faulty {
    fn send(&self, key: &RendezvousKey, tensor: Tensor, is_dead: bool) -> Result<()> {
        self.inner.send(key, tensor, is_dead)
    }

    fn receive(&self, key: &RendezvousKey, done: ReceiveDone) {
        self.inner.receive(key, done);
    }

    fn flush(&self) {
        assert!(!self.panics.load(Ordering::SeqCst), "on purpose");
    }

    fn abort(&self, status: Status) {
        self.inner.abort(status);
    }
}

fn executor_for(graph: &Graph, fetch: &graph::Output) -> Arc<Executor> {
    graph.op("_Retval").input(fetch).attr("index", 0i64).build();
    Executor::new(&graph.graph(), registry(), &SessionKernels::new(), "cpu").unwrap()
}

/// Runs a step, and returns what became of it.
fn run_step(executor: &Arc<Executor>, panics: bool) -> Result<i32> {
    let rendezvous = Faulty { inner: LocalRendezvous::new(), panics: AtomicBool::new(panics) };
    let step = Arc::new(Step {
        frame: CallFrame::new(Vec::new(), 1),
        runner: executor::default_runner(),
        rendezvous: Arc::new(rendezvous),
        ..Step::detached()
    });
    let (sender, receiver) = mpsc::channel();
    executor.run(step.clone(), move |result| sender.send(result).unwrap());
    receiver.recv_timeout(FAR).expect("the step never ended")?;
    step.frame.take_results().remove(0).unwrap().to_scalar()
}

/// A panic in the bookkeeping ends its step, on whatever thread it happens, and the thread drives the next one.
#[test]
fn a_panic_outside_of_a_kernel_ends_the_step_and_not_the_thread() {
    for slow in ["Add", "SlowAdd", "Later"] {
        let g = graph();
        let x = constant(&g, 1);
        let sum = if slow == "Later" { op("Later", &[&x]) } else { op(slow, &[&x, &constant(&g, 2)]) };
        let executor = executor_for(&g, &op("SlowAdd", &[&sum, &sum]));
        for _ in 0..10 {
            let expected = if slow == "Later" { 2 } else { 6 };
            assert_eq!(run_step(&executor, false).unwrap(), expected);
            let result = run_step(&executor, true);
            // The step may be over before the panic.
            if let Err(status) = result {
                assert_eq!(status.code(), Code::Internal, "{status}");
                assert!(status.message().contains("on purpose"), "{status}");
            }
            assert_eq!(run_step(&executor, false).unwrap(), expected);
        }
    }
}

/// Looks at a thread, and opens a gate once it is stuck.
struct OpensGate {
    thread: Arc<ServingThread>,
}

impl Watched for OpensGate {
    fn look(&self) -> bool {
        let (is_active, is_stuck) = self.thread.look();
        if is_stuck {
            common::open_gate();
        }
        is_active
    }
}

/// What has kept a serving thread for too long once is left to the pool from then on.
#[test]
fn a_node_that_kept_a_serving_thread_goes_to_the_pool_the_next_time() {
    for name in ["Gate", "GateAsync"] {
        common::close_gate();
        let body = move || {
            let thread = ServingThread::start();
            let watched = Arc::new(OpensGate { thread });
            watch(&watched);
            let g = graph();
            let executor = executor_for(&g, &op(name, &[&constant(&g, 1)]));
            (0..2)
                .map(|_| {
                    run_step(&executor, false).unwrap();
                    common::gate_thread()
                })
                .collect::<Vec<String>>()
        };
        let threads = std::thread::Builder::new().name("caller".to_owned()).spawn(body).unwrap().join().unwrap();
        assert_eq!(threads[0], "caller", "{name}");
        assert!(threads[1].starts_with("compute-"), "{name}: {threads:?}");
    }
}

/// The end of the innermost loop ends all those around it, however many there are.
#[test]
fn loops_within_loops_end_on_a_short_stack() {
    const DEPTH: usize = 8_000;
    let body = || {
        let g = graph();
        let mut value = constant(&g, 7);
        for level in 0..DEPTH {
            let enter = g.op("Enter").input(&value).attr("frame_name", format!("frame{level}").as_str());
            value = enter.output();
        }
        for _ in 0..DEPTH {
            value = op("Exit", &[&value]);
        }
        run(&g, &[&value], vec![]).unwrap()[0].as_ref().unwrap().to_scalar::<i32>().unwrap()
    };
    let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(body).unwrap();
    assert_eq!(thread.join().unwrap(), 7);
}

/// A chain of very many nodes is compiled and run without a stack to match.
#[test]
fn a_chain_of_very_many_nodes_runs_on_a_short_stack() {
    let body = || {
        let g = graph();
        let mut value = constant(&g, 7);
        for _ in 0..50_000 {
            value = op("Identity", &[&value]);
        }
        run(&g, &[&value], vec![]).unwrap()[0].as_ref().unwrap().to_scalar::<i32>().unwrap()
    };
    let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(body).unwrap();
    assert_eq!(thread.join().unwrap(), 7);
}
