//! All-reduce for dense variables and embeddings on a parameter server, in one program: the rows are fetched before the step with the
//! collective ops, and their gradients are applied after it.

use ferroflow::distributed::{ClusterSpec, Server, ServerConfig, WorkerGroup, start_server_with, stop};
use ferroflow::prelude::*;
use ferroflow::session::Target;
use ferroflow::train::{
    AllReduceOptimizer, GradientDescentOptimizer, global_variables_initializer, local_variables_initializer,
};
use ferroflow::variable::collections;
use ferroflow::{Code, Grad, IndexedSlices, Result, SessionConfig, Status, ops};

const STEPS: usize = 8;
const RATE: f32 = 0.1;
const TABLE: [[f32; 2]; 4] = [[0.1, 0.2], [0.3, -0.4], [-0.5, 0.6], [0.7, 0.8]];
const FIRST: [[f32; 1]; 2] = [[0.5], [-0.25]];

/// Returns the rows that a worker looks up in a step, which are never those of the other worker.
fn ids_of(task: u32, number: usize) -> [i32; 2] {
    let first = 2 * task as i32;
    if number.is_multiple_of(2) { [first, first + 1] } else { [first + 1, first + 1] }
}

/// Starts a parameter server and two workers.
fn servers() -> (ClusterSpec, Server, [Server; 2]) {
    let addresses = cluster::unused_addresses(3).unwrap();
    let cluster = ClusterSpec::new().with_job("ps", &addresses[..1]).unwrap();
    let cluster = cluster.with_job("worker", &addresses[1..]).unwrap();
    let ps = start_server_with(ServerConfig::new(cluster.clone(), "ps", 0).unwrap()).unwrap();
    let worker = |task| {
        let config = ServerConfig::new(cluster.clone(), "worker", task).unwrap();
        start_server_with(WorkerGroup::new(&cluster, "worker", task).unwrap().server_config(config)).unwrap()
    };
    let workers = [0, 1].map(worker);
    (cluster, ps, workers)
}

/// Trains; returns the dense weights, and the table's values for this worker.
fn train(group: &WorkerGroup, target: &Target) -> Result<(Vec<f32>, Vec<f32>)> {
    let g = Graph::new();
    let table = g.device("/job:ps/task:0", |g| Variable::new(g, "table", &g.constant(TABLE)));
    let dense = AllReduceOptimizer::new(GradientDescentOptimizer::new(RATE), group);
    let (ids, fetch, step, push, w) = g.device(group.device(), |g| {
        let ids = g.placeholder::<i32>((None,));
        // A worker's rows of the table in a step.
        let local = |name: &str| {
            let zeros = Tensor::zeros(DType::Float, Shape::new(&[2, 2])?)?;
            let local = Variable::builder(g, name).trainable(false).collections(&[collections::LOCAL_VARIABLES]);
            Ok::<_, Status>(local.build_constant(&zeros))
        };
        let (rows, row_gradients) = (local("rows")?, local("row_gradients")?);
        let fetch = rows.assign(&ops::array::gather(table.value(), &ids, 0));
        let w = Variable::new(g, "w", &g.constant(FIRST));
        let loss = rows.value().matmul(w.value()).square().sum();
        let gradient = match g.gradients(&[loss.clone()], &[rows.value().clone()])?.remove(0) {
            Some(Grad::Dense(gradient)) => gradient,
            _ => return Err(Status::internal("the rows have no dense gradient")),
        };
        let kept = row_gradients.assign(&gradient);
        let update = g.control_dependencies(&[kept], |_| dense.minimize(&loss, None))?;
        let share = row_gradients.value() / group.size() as f32;
        let slices = IndexedSlices { values: share, indices: ids.clone(), dense_shape: None };
        let push = [(Some(Grad::Slices(slices)), table.clone())];
        let push = GradientDescentOptimizer::new(RATE).apply_gradients(&push, None, Some("push"))?;
        Ok::<_, Status>((ids, fetch, update, push, w))
    })?;
    let session = target.session(&g, &group.session_config(SessionConfig::new()))?;
    session.run_ops(&[&local_variables_initializer(&g)])?;
    match group.is_chief() {
        true => session.run_ops(&[&global_variables_initializer(&g)])?,
        false => session.run_ops(&[w.initializer()])?,
    }
    let (send, receive) = dense.broadcast()?;
    session.run_ops(&[if group.is_chief() { &send } else { &receive }])?;
    for number in 0..STEPS {
        let given = Tensor::vector(&ids_of(group.rank() as u32, number));
        session.runner().feed(&ids, given.clone()).target(&fetch).run()?;
        session.run_ops(&[&step])?;
        session.runner().feed(&ids, given).target(&push).run()?;
    }
    let values = session.run(&[w.value(), table.value()])?;
    session.close()?;
    Ok((values[0].to_vec()?, values[1].to_vec()?))
}

/// Computes the same results by hand.
fn expected() -> ([f32; 2], [[f32; 2]; 4]) {
    let (mut table, mut w) = (TABLE, FIRST.map(|[weight]| weight));
    for number in 0..STEPS {
        let (before, mut sum) = (table, [0f32; 2]);
        for task in 0..2 {
            for id in ids_of(task, number).map(|id| id as usize) {
                let row = before[id];
                let slope = 2.0 * (row[0] * w[0] + row[1] * w[1]);
                for column in 0..2 {
                    sum[column] += slope * row[column];
                    table[id][column] -= RATE * slope * w[column] / 2.0;
                }
            }
        }
        w = [0, 1].map(|column| w[column] - RATE * sum[column] / 2.0);
    }
    (w, table)
}

#[test]
fn embeddings_on_a_parameter_server_beside_mirrored_weights() {
    let (cluster, ps, servers) = servers();
    let results: Vec<Result<(Vec<f32>, Vec<f32>)>> = std::thread::scope(|scope| {
        let run = |task: u32| {
            let (cluster, target) = (&cluster, Target::from(&servers[task as usize]));
            scope.spawn(move || train(&WorkerGroup::new(cluster, "worker", task)?, &target))
        };
        [0, 1].map(run).into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (w, table) = expected();
    for (task, result) in results.into_iter().enumerate() {
        let (weights, rows) = result.unwrap();
        for (value, expected) in weights.iter().zip(w) {
            assert!((value - expected).abs() < 1e-5, "worker {task}: {weights:?}, expected {w:?}");
        }
        // The other worker may not have applied its last gradients yet.
        for (value, expected) in
            rows.chunks(4).zip(table.as_flattened().chunks(4)).nth(task).map(|(a, b)| a.iter().zip(b)).unwrap()
        {
            assert!((value - expected).abs() < 1e-5, "worker {task}: {rows:?}, expected {table:?}");
        }
    }
    servers.iter().chain([&ps]).for_each(|server| stop(server).unwrap());
}

#[test]
fn gradients_of_a_variable_elsewhere_are_refused_in_a_step_with_collective_ops() {
    let cluster = ClusterSpec::new().with_job("ps", &["a:1"]).unwrap().with_job("worker", &["b:1", "c:1"]).unwrap();
    let g = Graph::new();
    let table = g.device("/job:ps/task:0", |g| Variable::new(g, "table", &g.constant(TABLE)));
    let group = WorkerGroup::new(&cluster, "worker", 0).unwrap();
    let optimizer = AllReduceOptimizer::new(GradientDescentOptimizer::new(RATE), &group);
    let status = optimizer.minimize(&table.value().square().sum(), None).unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("'table' is on /job:ps/task:0"), "{status}");
}
