//! Synchronous training on a cluster in this process: every step applies the mean of the workers' gradients once.

use cluster::{ClusterSpec, EmbeddedCluster};
use ferroflow::session::runtime;
use ferroflow::train::{
    Coordinator, GradientDescentOptimizer, Optimizer, ReplicaDeviceSetter, SyncReplicasOptimizer,
    global_variables_initializer, local_variables_initializer,
};
use ferroflow::variable::create_global_step;
use ferroflow::{Code, DType, Graph, PartialShape, Result, Session, Status, Tensor, Variable};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::time::Duration;

const STEPS: i64 = 50;
const WORKERS: u32 = 2;

/// Ends a test that hangs; a slow machine doesn't come near it.
const WATCHDOG: Duration = Duration::from_secs(120);

#[test]
fn two_workers_take_steps_together() {
    check(WORKERS as i32);
}

#[test]
fn one_gradient_is_enough_when_the_rest_is_left_out() {
    check(1);
}

#[test]
fn a_step_may_take_several_gradients_of_a_worker() {
    check(2 * WORKERS as i32);
}

/// Trains with two workers, of which each pulls at another weight: together they lose the learning rate in every step,
/// whoever contributed.
fn check(replicas_to_aggregate: i32) {
    let spec = ClusterSpec::new().with_job("ps", &["ps0:1"]).unwrap();
    let spec = spec.with_job("worker", &["worker0:1", "worker1:1"]).unwrap();
    let cluster = Arc::new(EmbeddedCluster::start(&spec, ops::registry(), runtime().unwrap()).unwrap());
    let initialized = Arc::new(Barrier::new(WORKERS as usize));
    let (results, outcomes) = channel();
    for task in 0..WORKERS {
        let (cluster, initialized, results) = (cluster.clone(), initialized.clone(), results.clone());
        std::thread::spawn(move || train(&cluster, task, replicas_to_aggregate, &initialized, &results));
    }
    for _ in 0..WORKERS {
        let (step, weights) = next(&outcomes);
        let expected = 10.0 - step as f32;
        let sum: f32 = weights.iter().sum();
        assert!(step >= STEPS, "ended at step {step}");
        assert!((sum - expected).abs() < 1e-3, "{weights:?} add up to {sum} rather than {expected} after step {step}");
    }
}

fn next(outcomes: &Receiver<Result<(i64, Vec<f32>)>>) -> (i64, Vec<f32>) {
    outcomes.recv_timeout(WATCHDOG).expect("a worker hangs").unwrap()
}

fn train(
    cluster: &EmbeddedCluster,
    task: u32,
    replicas_to_aggregate: i32,
    initialized: &Barrier,
    results: &Sender<Result<(i64, Vec<f32>)>>,
) {
    let _ = results.send(try_train(cluster, task, replicas_to_aggregate, initialized));
}

fn try_train(
    cluster: &EmbeddedCluster,
    task: u32,
    replicas_to_aggregate: i32,
    initialized: &Barrier,
) -> Result<(i64, Vec<f32>)> {
    let graph = Graph::new();
    let setter = ReplicaDeviceSetter::new(1).worker_device(&format!("/job:worker/task:{task}"))?;
    let optimizer =
        SyncReplicasOptimizer::new(GradientDescentOptimizer::new(1.0), replicas_to_aggregate, Some(WORKERS as i32))?;
    let (weights, pull, global_step, train) = setter.scope(&graph, |_| {
        let global_step = create_global_step(&graph);
        let weights = Variable::new(&graph, "weights", &graph.constant_tensor(&Tensor::vector(&[5.0f32, 5.0])));
        let pull = ops::array::placeholder(&graph, DType::Float, &PartialShape::from_dims(&[2]));
        let loss = ops::math::reduce_sum(&ops::math::multiply(weights.value(), &pull), None, false);
        let train = optimizer.minimize(&loss, Some(&global_step))?;
        Ok::<_, Status>((weights, pull, global_step, train))
    })?;
    let is_chief = task == 0;
    let (init, local_init) = (global_variables_initializer(&graph), local_variables_initializer(&graph));
    let (first_tokens, runner) = (optimizer.init_tokens_op(None)?, optimizer.chief_queue_runner()?);
    let session = Session::on_master(&graph, cluster.master("worker", task)?, proto::ConfigProto::default())?;
    let coordinator = Coordinator::new();
    session.run_ops(&[&local_init])?;
    if is_chief {
        session.run_ops(&[&init])?;
        session.run_ops(&[&optimizer.chief_init_op()?])?;
        runner.create_threads(&session, &coordinator)?;
        session.run_ops(&[&first_tokens])?;
    }
    initialized.wait();
    if !is_chief {
        session.run_ops(&[&optimizer.local_step_init_op()?])?;
    }
    let mut gradient = [0.0f32; 2];
    gradient[task as usize] = 1.0;
    let mut step = 0;
    while step < STEPS {
        let run = session.runner().feed(&pull, Tensor::vector(&gradient)).target(&train);
        match run.fetch(global_step.value()).run() {
            Ok(values) => step = values[0].to_scalar()?,
            // The chief ends the queue of tokens when it is done.
            Err(status) if !is_chief && matches!(status.code(), Code::Cancelled | Code::OutOfRange) => break,
            Err(status) => return Err(status),
        }
    }
    coordinator.request_stop(None);
    if is_chief {
        coordinator.join(WATCHDOG)?;
    }
    // Nobody updates any more once the chief's runner has ended; both look at the same state from then on.
    initialized.wait();
    let values = session.run(&[global_step.value(), weights.value()])?;
    Ok((values[0].to_scalar()?, values[1].as_slice::<f32>()?.to_vec()))
}
