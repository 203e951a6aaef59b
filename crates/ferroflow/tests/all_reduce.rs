//! Training without parameter servers: workers on their own servers, which reduce their gradients.

use ferroflow::distributed::{ClusterSpec, Server, ServerConfig, WorkerGroup, start_server_with, stop};
use ferroflow::prelude::*;
use ferroflow::session::Target;
use ferroflow::train::{
    AdamOptimizer, AllReduceOptimizer, GradientDescentOptimizer, MomentumOptimizer, MonitoredSession, RunArgs,
    StopAtStepHook, global_variables_initializer, latest_checkpoint,
};
use ferroflow::variable::{create_global_step, global_variables};
use ferroflow::{Code, Result, SessionConfig, Status, ops};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Ends a test that hangs; a slow machine doesn't come near it.
const WATCHDOG: Duration = Duration::from_secs(240);

/// Rows of a batch, which the workers share unevenly.
const ROWS: usize = 12;
const STEPS: usize = 6;

/// Starts the servers of some workers on free ports.
fn servers(workers: usize) -> (ClusterSpec, Vec<Server>) {
    let addresses = cluster::unused_addresses(workers).unwrap();
    let cluster = ClusterSpec::new().with_job("worker", &addresses).unwrap();
    let start = |task| {
        let config = ServerConfig::new(cluster.clone(), "worker", task).unwrap();
        start_server_with(group(&cluster, task).server_config(config)).unwrap()
    };
    let servers = (0..workers as u32).map(start).collect();
    (cluster, servers)
}

fn group(cluster: &ClusterSpec, task: u32) -> WorkerGroup {
    WorkerGroup::new(cluster, "worker", task).unwrap()
}

/// Runs every worker on its own thread, and returns their results.
fn on_all<T: Send>(servers: &[Server], work: impl Fn(u32, Target) -> Result<T> + Sync) -> Vec<Result<T>> {
    let (alive, over) = channel::<()>();
    std::thread::spawn(move || {
        if over.recv_timeout(WATCHDOG) == Err(RecvTimeoutError::Timeout) {
            eprintln!("a test of all_reduce hangs");
            std::process::exit(1);
        }
    });
    let results = std::thread::scope(|scope| {
        let work = &work;
        let start = |(task, server): (usize, &Server)| {
            let target = Target::from(server);
            scope.spawn(move || work(task as u32, target))
        };
        let running: Vec<_> = servers.iter().enumerate().map(start).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    drop::<Sender<()>>(alive);
    results
}

/// Returns a worker's rows of a batch: the first worker takes more than the others, which take fewer in every other step.
fn rows_of(rank: usize, workers: usize, step: usize) -> std::ops::Range<usize> {
    let others = 3 - step % 2;
    let first = ROWS - others * (workers - 1);
    match rank {
        0 => 0..first,
        _ => first + others * (rank - 1)..first + others * rank,
    }
}

/// Trains a model with dense layers and an embedding; returns all variables.
fn train(group: &WorkerGroup, target: &Target, is_compressed: bool) -> Result<Vec<Vec<f32>>> {
    let g = Graph::new();
    let rank = group.rank();
    let (ids, labels, share) =
        (g.placeholder::<i32>((None,)), g.placeholder::<f32>((None, 2)), g.placeholder::<f32>(()));
    let optimizer = AllReduceOptimizer::new(AdamOptimizer::new(0.05), group).compress_to_bfloat16(is_compressed);
    let (step, train) = g.device(group.device(), |g| {
        let step = create_global_step(g);
        // The initial values of the others differ from the chief's.
        let first = |dims: [i64; 2], scale: f32| {
            let count = dims[0] * dims[1];
            let values: Vec<f32> = (0..count).map(|i| scale * ((i * 7 % 11) as f32 - 5.0) + rank as f32).collect();
            g.constant_tensor(&Tensor::from_slice(&dims, &values).unwrap())
        };
        let embedding = Variable::new(g, "embedding", &first([8, 4], 0.1));
        let (w, b) = (Variable::new(g, "w", &first([4, 2], 0.05)), Variable::new(g, "b", &first([1, 2], 0.01)));
        let rows = ops::array::gather(embedding.value(), &ids, 0);
        let error = rows.matmul(w.value()) + b.value() - &labels;
        let loss = error.square().sum() * &share;
        Ok::<_, Status>((step.clone(), optimizer.minimize(&loss, Some(&step))?))
    })?;
    let (send, receive) = optimizer.broadcast()?;
    let session = target.session(&g, &group.session_config(SessionConfig::new()))?;
    session.run_ops(&[&global_variables_initializer(&g)])?;
    session.run_ops(&[if group.is_chief() { &send } else { &receive }])?;
    for number in 0..STEPS {
        let rows = rows_of(rank, group.size(), number);
        let given: Vec<i32> = rows.clone().map(|row| ((row * row + number) % 8) as i32).collect();
        let wanted: Vec<f32> = rows.clone().flat_map(|row| [row as f32 / 6.0, 1.0 - number as f32 / 3.0]).collect();
        let run = session.runner().feed(&ids, Tensor::vector(&given));
        let run = run.feed(&labels, Tensor::from_slice(&[rows.len() as i64, 2], &wanted)?);
        run.feed(&share, group.size() as f32 / ROWS as f32).target(&train).run()?;
    }
    assert_eq!(session.eval::<i64>(step.value())?, STEPS as i64);
    let mut all = Vec::new();
    for variable in global_variables(&g)?.iter().filter(|variable| variable.name() != step.name()) {
        all.push(session.run(&[variable.value()])?[0].to_vec::<f32>()?);
    }
    session.close()?;
    Ok(all)
}

#[test]
fn workers_end_with_the_weights_of_one_that_has_the_whole_batch() {
    let alone = train(&WorkerGroup::alone(), &Target::Local, false).unwrap();
    for workers in [2, 3] {
        for is_compressed in [false, true] {
            let (cluster, servers) = servers(workers);
            let results = on_all(&servers, |task, target| train(&group(&cluster, task), &target, is_compressed));
            let results: Vec<Vec<Vec<f32>>> = results.into_iter().map(Result::unwrap).collect();
            for other in &results[1..] {
                assert_eq!(&results[0], other, "{workers} workers have the same weights, to the last bit");
            }
            let bound = if is_compressed { 5e-2 } else { 2e-5 };
            for (variable, expected) in results[0].iter().zip(&alone) {
                for (value, expected) in variable.iter().zip(expected) {
                    assert!((value - expected).abs() < bound, "{workers} workers: {variable:?}, alone {expected:?}");
                }
            }
        }
    }
}

#[test]
fn small_gradients_share_a_reduction_and_large_ones_have_their_own() {
    let reductions = |bucket_bytes| {
        let g = Graph::new();
        let layer = |index: i32, width: i64| {
            let zeros = g.constant_tensor(&Tensor::zeros(DType::Float, Shape::new(&[width]).unwrap()).unwrap());
            Variable::new(&g, &format!("v{index}"), &zeros).value().square().sum()
        };
        let loss = layer(0, 10) + layer(1, 10) + layer(2, 10) + layer(3, 1000);
        let optimizer = AllReduceOptimizer::new(MomentumOptimizer::new(0.1, 0.9), &WorkerGroup::alone());
        optimizer.bucket_bytes(bucket_bytes).minimize(&loss, None).unwrap();
        g.graph().iter().filter(|(_, node)| node.op() == "CollectiveReduceV2").count()
    };
    assert_eq!(reductions(1 << 20), 1);
    assert_eq!(reductions(1000), 2);
    assert_eq!(reductions(90), 3, "two of 40 bytes fit, a third doesn't");
    assert_eq!(reductions(0), 4);
}

#[test]
fn the_chief_alone_saves_and_the_others_follow_what_it_restores() {
    let directory = tempfile::tempdir().unwrap();
    let logdir = directory.path().to_str().unwrap();
    for last in [3, 5] {
        let (cluster, servers) = servers(2);
        let results = on_all(&servers, |task, target| {
            let group = group(&cluster, task);
            let g = Graph::new();
            let optimizer = AllReduceOptimizer::new(GradientDescentOptimizer::new(1.0), &group);
            let (step, w, train) = g.device(group.device(), |g| {
                let (step, w) = (create_global_step(g), Variable::new(g, "w", &g.constant(10f32)));
                let pull = w.value() * (task as f32);
                let train = optimizer.minimize(&pull, Some(&step))?;
                Ok::<_, Status>((step, w, train))
            })?;
            let mut builder = MonitoredSession::training(&g)
                .target(&target)
                .config(group.session_config(SessionConfig::new()))
                .hook(optimizer.make_session_run_hook(group.is_chief())?)
                .hook(StopAtStepHook::at(last));
            if group.is_chief() {
                builder = builder.checkpoint_dir(logdir);
            }
            let mut session = builder.build()?;
            let mut weight = f32::NAN;
            while !session.should_stop() {
                session.run(&RunArgs::new().target(&train))?;
                weight = session.raw_session()?.eval(w.value())?;
            }
            let at = session.raw_session()?.eval::<i64>(step.value())?;
            session.close()?;
            Ok((at, weight))
        });
        for result in results {
            // Half of a gradient of one in every step, also in those before the restart.
            assert_eq!(result.unwrap(), (last, 10.0 - 0.5 * last as f32));
        }
        let saved = latest_checkpoint(logdir).unwrap().unwrap();
        assert!(saved.ends_with(&format!("model.ckpt-{last}")), "{saved}");
    }
}

#[test]
fn a_member_that_is_gone_is_named_by_all_others() {
    let (cluster, servers) = servers(3);
    let results = on_all(&servers, |task, target| {
        let group = group(&cluster, task);
        let g = Graph::new();
        let optimizer = AllReduceOptimizer::new(GradientDescentOptimizer::new(1.0), &group);
        let train = g.device(group.device(), |g| {
            let w = Variable::new(g, "w", &g.constant(10f32));
            optimizer.minimize(&w.value().square(), None)
        })?;
        let session = target.session(&g, &group.session_config(SessionConfig::new()))?;
        session.run_ops(&[&global_variables_initializer(&g)])?;
        for _ in 0..3 {
            session.run_ops(&[&train])?;
        }
        if task == 1 {
            stop(&servers[1])?;
            return Ok(None);
        }
        let status = session.run_ops(&[&train]).unwrap_err();
        assert!(status.message().contains("/job:worker/replica:0/task:1"), "worker {task}: {status}");
        Ok(Some(status.code()))
    });
    let codes: Vec<Option<Code>> = results.into_iter().map(Result::unwrap).collect();
    assert_eq!(codes, [Some(Code::Unavailable), None, Some(Code::Unavailable)]);
}

#[test]
fn what_cant_be_mirrored_is_named() {
    let g = Graph::new();
    let w = Variable::new(&g, "w", &g.constant(1f32));
    let optimizer = AllReduceOptimizer::new(GradientDescentOptimizer::new(1.0), &WorkerGroup::alone());
    assert_eq!(optimizer.broadcast().unwrap_err().code(), Code::FailedPrecondition);
    optimizer.minimize(&w.value().square(), None).unwrap();
    Variable::new(&g, "words", &g.constant_tensor(&Tensor::string("a")));
    let status = optimizer.broadcast().unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("variable 'words' of type string"), "{status}");
}
