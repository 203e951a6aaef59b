//! Training by all-reduce with changing workers: one is lost, one joins, the chief is replaced. The tests check the curve: every step is
//! applied once, with the mean over the workers that took part in it.

use ferroflow::distributed::{ClusterSpec, Server, ServerConfig, WorkerGroup, start_server_with, stop};
use ferroflow::prelude::*;
use ferroflow::session::Target;
use ferroflow::train::{AllReduceOptimizer, GradientDescentOptimizer, MonitoredSession, RunArgs};
use ferroflow::variable::create_global_step;
use ferroflow::{Code, Result, SessionConfig, Status};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Ends a test that hangs; a slow machine doesn't come near it.
const WATCHDOG: Duration = Duration::from_secs(240);

/// Each worker's gradient of the second variable in a step: the mean tells who took part.
const PULLS: [f32; 3] = [6.0, 60.0, 600.0];

/// The initial value of the first variable, whose gradient is 1 at all workers.
const FIRST: f32 = 1000.0;

/// No step is the last one yet.
const ENDLESS: i64 = i64::MAX;

/// The variables after each step that a worker has seen.
type Curve = BTreeMap<i64, (f32, f32)>;

/// A cluster whose servers are started one by one.
struct Workers {
    cluster: ClusterSpec,
    bounds: (usize, usize),
    /// The step at which all end.
    last: AtomicI64,
}

impl Workers {
    fn new(count: usize, bounds: (usize, usize)) -> Workers {
        let addresses = cluster::unused_addresses(count).unwrap();
        let cluster = ClusterSpec::new().with_job("worker", &addresses).unwrap();
        Workers { cluster, bounds, last: AtomicI64::new(ENDLESS) }
    }

    fn group(&self, task: u32) -> WorkerGroup {
        let (min, max) = self.bounds;
        WorkerGroup::new(&self.cluster, "worker", task).unwrap().elastic(min, max).unwrap()
    }

    fn server(&self, task: u32) -> Server {
        let config = ServerConfig::new(self.cluster.clone(), "worker", task).unwrap();
        start_server_with(self.group(task).server_config(config)).unwrap()
    }

    /// Has all end some steps after the one in which a worker has seen so many. It is called by that worker between two of its steps,
    /// so that nobody is more than a step ahead of it.
    fn ends_after(&self, curve: &Curve, seen: usize, more: i64) -> bool {
        if curve.len() == seen
            && let Some((step, _)) = curve.last_key_value()
        {
            self.last.store(step + more, Ordering::Release);
        }
        false
    }

    /// Trains as a worker, and tells of every step; leaves without a word when `dies` says so.
    fn train(&self, task: u32, server: &Server, dies: impl Fn(&Curve) -> bool, seen: &Sender<i64>) -> Result<Curve> {
        let group = self.group(task);
        let g = Graph::new();
        let optimizer = AllReduceOptimizer::new(GradientDescentOptimizer::new(1.0), &group);
        let (step, w, v, train) = g.device(group.device(), |g| {
            let step = create_global_step(g);
            let (w, v) = (Variable::new(g, "w", &g.constant(FIRST)), Variable::new(g, "v", &g.constant(0f32)));
            let loss = w.value() + v.value() * PULLS[task as usize];
            let train = optimizer.minimize(&loss, Some(&step))?;
            Ok::<_, Status>((step, w, v, train))
        })?;
        let mut session = MonitoredSession::training(&g)
            .target(Target::from(server))
            .config(group.session_config(SessionConfig::new()))
            .hook(optimizer.make_session_run_hook(group.is_chief())?.max_wait_secs(Some(200)))
            .build()?;
        let mut curve = Curve::new();
        loop {
            session.run(&RunArgs::new().target(&train))?;
            let values = session.raw_session()?.run(&[step.value(), w.value(), v.value()])?;
            let number = values[0].to_scalar::<i64>()?;
            curve.insert(number, (values[1].to_scalar()?, values[2].to_scalar()?));
            let _ = seen.send(number);
            if dies(&curve) {
                return Ok(curve);
            }
            if number >= self.last.load(Ordering::Acquire) {
                session.close()?;
                return Ok(curve);
            }
        }
    }
}

/// Ends this process if a test hangs while the returned value exists.
fn watchdog() -> Sender<()> {
    let (alive, over) = channel::<()>();
    std::thread::spawn(move || {
        if over.recv_timeout(WATCHDOG) == Err(RecvTimeoutError::Timeout) {
            eprintln!("a test of elastic training hangs");
            std::process::exit(1);
        }
    });
    alive
}

fn wait_for_step(seen: &Receiver<i64>, step: i64) {
    while seen.recv().unwrap() < step {}
}

/// Returns the mean gradient of some workers.
fn mean(workers: &[usize]) -> f32 {
    workers.iter().map(|&worker| PULLS[worker]).sum::<f32>() / workers.len() as f32
}

/// Adds the values that one worker has seen, which must be those of the others.
fn merge(all: &mut Curve, curve: &Curve) {
    for (step, values) in curve {
        assert_eq!(all.entry(*step).or_insert(*values), values, "step {step}");
    }
}

/// Checks that every step was applied once, and that the chief took part; returns the mean gradient of each step.
fn pulls_of(curve: &Curve) -> BTreeMap<i64, f32> {
    let allowed = [mean(&[0]), mean(&[0, 1]), mean(&[0, 2]), mean(&[0, 1, 2])];
    let mut before = 0f32;
    let mut pulls = BTreeMap::new();
    for (expected, (&step, &(w, v))) in (1..).zip(curve) {
        assert_eq!(step, expected, "a step is missing: {curve:?}");
        assert_eq!(w, FIRST - step as f32, "as in a training that nothing disturbs");
        let pull = before - v;
        assert!(allowed.contains(&pull), "step {step} pulls {pull}: {curve:?}");
        pulls.insert(step, pull);
        before = v;
    }
    pulls
}

#[test]
fn the_others_go_on_when_a_worker_is_lost_and_take_in_one_that_comes() {
    let _watchdog = watchdog();
    let workers = Workers::new(3, (2, 3));
    let servers: Vec<Server> = (0..3).map(|task| workers.server(task)).collect();
    let (seen, of_chief) = channel();
    let (ignored, _kept) = channel();
    let (curve, lost_at, back) = std::thread::scope(|scope| {
        let (workers, servers) = (&workers, &servers);
        let chief = scope.spawn(move || workers.train(0, &servers[0], |_| false, &seen).unwrap());
        let other = {
            let ignored = ignored.clone();
            scope.spawn(move || workers.train(2, &servers[2], |_| false, &ignored).unwrap())
        };
        let mut lost = workers.train(1, &servers[1], |curve| curve.len() == 10, &ignored).unwrap();
        stop(&servers[1]).unwrap();
        // Its last step may have been lost with it.
        let (lost_at, _) = lost.pop_last().unwrap();
        wait_for_step(&of_chief, lost_at + 4);
        let again = workers.server(1);
        let back = workers.train(1, &again, |curve| workers.ends_after(curve, 5, 20), &ignored).unwrap();
        let mut all = chief.join().unwrap();
        merge(&mut all, &other.join().unwrap());
        merge(&mut all, &lost);
        merge(&mut all, &back);
        stop(&again).unwrap();
        (all, lost_at, back)
    });
    let pulls = pulls_of(&curve);
    let without = [mean(&[0]), mean(&[0, 2])];
    assert!(!without.contains(&pulls[&(lost_at - 1)]), "it took part in what it saw");
    assert!(without.contains(&pulls[&(lost_at + 3)]), "the others went on: {pulls:?}");
    assert!(back.keys().all(|step| !without.contains(&pulls[step])), "it took part again: {pulls:?}");
    assert!(back.len() >= 20, "{back:?}");
}

#[test]
fn a_chief_that_is_replaced_takes_over_what_the_others_have() {
    let _watchdog = watchdog();
    // With a smaller minimum, the restarted chief might begin alone, before the other worker has found it.
    let workers = Workers::new(2, (2, 2));
    let servers: Vec<Server> = (0..2).map(|task| workers.server(task)).collect();
    let (seen, steps) = channel();
    let curve = std::thread::scope(|scope| {
        let (workers, servers) = (&workers, &servers);
        let (ignored, _kept) = channel();
        let other = {
            let seen = seen.clone();
            scope.spawn(move || workers.train(1, &servers[1], |_| false, &seen).unwrap())
        };
        let mut lost = workers.train(0, &servers[0], |_| steps.try_recv().is_ok(), &ignored).unwrap();
        stop(&servers[0]).unwrap();
        let again = workers.server(0);
        // It begins at step 0, without a checkpoint.
        let mut curve = workers.train(0, &again, |curve| workers.ends_after(curve, 3, 27), &ignored).unwrap();
        let first = *curve.first_key_value().unwrap().0;
        assert!(first > 1, "it went on from what the other one has: {curve:?}");
        merge(&mut curve, &other.join().unwrap());
        lost.pop_last();
        merge(&mut curve, &lost);
        stop(&again).unwrap();
        curve
    });
    let pulls = pulls_of(&curve);
    assert_eq!(pulls.last_key_value().unwrap().1, &mean(&[0, 1]));
}

#[test]
fn who_is_waited_for_is_named_when_there_are_too_few() {
    let _watchdog = watchdog();
    let workers = Workers::new(2, (2, 2));
    let server = workers.server(0);
    let group = workers.group(0);
    let g = Graph::new();
    let optimizer = AllReduceOptimizer::new(GradientDescentOptimizer::new(1.0), &group);
    let train = g.device(group.device(), |g| {
        let step = create_global_step(g);
        optimizer.minimize(&Variable::new(g, "w", &g.constant(FIRST)).value().square(), Some(&step))
    });
    let hook = optimizer.make_session_run_hook(true).unwrap().max_wait_secs(Some(0));
    let config = group.session_config(SessionConfig::new());
    let session = MonitoredSession::training(&g).target(Target::from(&server)).config(config).hook(hook).build();
    let status = session.unwrap().run(&RunArgs::new().target(&train.unwrap())).unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let message = status.message();
    assert!(message.contains("1 more worker(s)") && message.contains("/job:worker/task:1"), "{status}");
    stop(&server).unwrap();
}
