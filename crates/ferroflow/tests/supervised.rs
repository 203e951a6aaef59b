//! Supervised sessions: the chief initializes and restores, workers wait for it, hooks take part, and a lost task is
//! recovered from.

use cluster::{ClusterSpec, EmbeddedCluster};
use ferroflow::session::{Target, runtime};
use ferroflow::summary::FileWriter;
use ferroflow::train::*;
use ferroflow::variable::create_global_step;
use ferroflow::{Code, Graph, Operation, Output, Result, Session, Status, Tensor, Variable, ops};
use proto::event::What;
use proto::session_log::SessionStatus;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use storage::event::EventsReader;
use storage::file_system::FileSystems;

/// A parabola to roll down.
struct Model {
    graph: Graph,
    step: Variable,
    x: Variable,
    loss: Output,
    train: Operation,
}

fn model(setter: Option<&ReplicaDeviceSetter>) -> Result<Model> {
    let graph = Graph::new();
    let build = || {
        let step = create_global_step(&graph);
        let x = Variable::new(&graph, "x", &graph.constant_tensor(&Tensor::scalar(4f32)));
        let loss = ops::math::square(x.value());
        let train = GradientDescentOptimizer::new(0.1).minimize(&loss, Some(&step))?;
        Ok::<_, Status>((step, x, loss, train))
    };
    let (step, x, loss, train) = match setter {
        Some(setter) => setter.scope(&graph, |_| build())?,
        None => build()?,
    };
    Ok(Model { graph, step, x, loss, train })
}

fn embedded(workers: u32) -> Result<EmbeddedCluster> {
    let addresses = |job: &str, count: u32| (0..count).map(|task| format!("{job}{task}:1")).collect::<Vec<_>>();
    let spec = ClusterSpec::new().with_job("ps", &addresses("ps", 1))?.with_job("worker", &addresses("w", workers))?;
    EmbeddedCluster::start(&spec, ops::registry(), runtime()?)
}

fn session_logs(directory: &std::path::Path) -> Vec<(SessionStatus, i64)> {
    let mut files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_str().unwrap().contains("tfevents"));
    files.sort();
    let mut logs = Vec::new();
    for file in files {
        let mut reader = EventsReader::open(&FileSystems::local(), file.to_str().unwrap()).unwrap();
        while let Some(event) = reader.next_event().unwrap() {
            if let Some(What::SessionLog(log)) = event.what {
                logs.push((log.status(), event.step));
            }
        }
    }
    logs
}

#[test]
fn a_supervisor_saves_and_a_second_one_goes_on() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let logdir = directory.path().to_str().unwrap();
    for (until, from) in [(10, 0), (15, 10)] {
        let model = model(None)?;
        let supervisor = Supervisor::builder(&model.graph).logdir(logdir).recovery_wait_secs(1.0).build()?;
        supervisor.managed_session("", |session| {
            assert_eq!(session.eval::<i64>(model.step.value())?, from);
            while !supervisor.should_stop() && session.eval::<i64>(model.step.value())? < until {
                session.run_ops(&[&model.train])?;
            }
            assert_eq!(supervisor.save(session)?, Some(format!("{logdir}/model.ckpt-{until}")));
            Ok(())
        })?;
        assert_eq!(latest_checkpoint(logdir)?, Some(format!("{logdir}/model.ckpt-{until}")));
    }
    let logs = session_logs(directory.path());
    assert_eq!(logs.first(), Some(&(SessionStatus::Start, 0)));
    assert!(logs.contains(&(SessionStatus::Start, 10)), "{logs:?}");
    assert!(logs.contains(&(SessionStatus::Checkpoint, 15)), "{logs:?}");
    assert_eq!(logs.last(), Some(&(SessionStatus::Stop, 0)));
    Ok(())
}

#[test]
fn a_failure_of_any_thread_is_what_is_returned() -> Result<()> {
    let model = model(None)?;
    let supervisor = Supervisor::builder(&model.graph).build()?;
    let result = supervisor.managed_session("", |_| {
        supervisor.loop_every(Duration::from_secs(60), "fails", || Err(Status::data_loss("broken")))?;
        supervisor.coordinator().wait_for_stop(None);
        Ok(())
    });
    assert_eq!(result.unwrap_err().code(), Code::DataLoss);
    Ok(())
}

#[test]
fn init_functions_run_after_the_init_op_and_only_without_a_checkpoint() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let logdir = directory.path().to_str().unwrap();
    for expected in [7.0, 7.0 * 0.8] {
        let model = model(None)?;
        let set = model.x.assign(&model.graph.constant_tensor(&Tensor::scalar(7f32)));
        let supervisor = Supervisor::builder(&model.graph)
            .logdir(logdir)
            .init_fn(move |session| session.run_ops(&[&set]))
            .build()?;
        supervisor.managed_session("", |session| {
            assert!((session.eval::<f32>(model.x.value())? - expected).abs() < 1e-5);
            session.run_ops(&[&model.train])?;
            supervisor.save(session).map(drop)
        })?;
    }
    Ok(())
}

#[test]
fn a_worker_waits_for_the_chief_and_says_what_for() -> Result<()> {
    let cluster = embedded(2)?;
    let setter = |task: u32| ReplicaDeviceSetter::new(1).worker_device(&format!("/job:worker/task:{task}"));
    let waiting = model(Some(&setter(1)?))?;
    let ready = report_uninitialized_variables(&waiting.graph, None)?;
    let manager = SessionManager::new(&waiting.graph).ready_op(Some(&ready));
    let target = Target::from(cluster.master("worker", 1)?);
    let status = manager.wait_for_session(&target, &Default::default(), Some(Duration::ZERO)).err().unwrap();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(status.message().contains("global_step on /job:ps/task:0, x on /job:ps/task:0"), "{status}");

    let (started, chief_may_start) = channel();
    let worker = std::thread::spawn(move || -> Result<f32> {
        let supervisor = Supervisor::builder(&waiting.graph).is_chief(false).build()?;
        started.send(()).unwrap();
        let session = supervisor.prepare_or_wait_for_session(target)?;
        session.run_ops(&[&waiting.train])?;
        let x = session.eval::<f32>(waiting.x.value());
        supervisor.stop()?;
        x
    });
    chief_may_start.recv().unwrap();
    let chief = model(Some(&setter(0)?))?;
    let supervisor = Supervisor::builder(&chief.graph).build()?;
    let session = supervisor.prepare_or_wait_for_session(cluster.master("worker", 0)?)?;
    let x = worker.join().unwrap()?;
    assert!((x - 3.2).abs() < 1e-5, "{x}");
    session.close()?;
    supervisor.stop()
}

/// Fails once as if a task had been lost, at a step.
struct LoseTask {
    at: i64,
    step: Variable,
    sessions: Arc<parking_lot::Mutex<Vec<i64>>>,
}

impl SessionRunHook for LoseTask {
    fn after_create_session(&mut self, session: &Session, _coordinator: &Coordinator) -> Result<()> {
        self.sessions.lock().push(session.eval(self.step.value())?);
        Ok(())
    }

    fn after_run(&mut self, context: &RunContext<'_>, _values: &RunValues) -> Result<()> {
        if self.sessions.lock().len() == 1 && context.session().eval::<i64>(self.step.value())? == self.at {
            return Err(Status::unavailable("the ps is gone"));
        }
        Ok(())
    }
}

#[test]
fn a_lost_task_is_recovered_from_with_the_last_checkpoint() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let model = model(None)?;
    let sessions = Arc::default();
    let lose = LoseTask { at: 7, step: model.step.clone(), sessions: Arc::clone(&sessions) };
    let (last, values) = FinalOpsHook::new(RunArgs::new().fetch(model.step.value()).fetch(&model.loss));
    let mut session = MonitoredSession::training(&model.graph)
        .checkpoint_dir(directory.path().to_str().unwrap())
        .save_checkpoint(Some(Every::Steps(5)))
        .hook(StopAtStepHook::at(12))
        .hook(NanTensorHook::new(&model.loss, true))
        .hook(lose)
        .hook(last)
        .build()?;
    while !session.should_stop() {
        session.run(&RunArgs::new().target(&model.train))?;
    }
    assert_eq!(session.recoveries(), 1);
    session.close()?;
    assert_eq!(*sessions.lock(), [0, 5]);
    let values = values.lock().take().unwrap();
    assert_eq!(values[0].to_scalar::<i64>()?, 12);
    assert_eq!(
        latest_checkpoint(directory.path().to_str().unwrap())?.map(|path| path.ends_with("model.ckpt-12")),
        Some(true)
    );
    Ok(())
}

#[test]
fn a_loss_that_is_no_number_ends_training() -> Result<()> {
    let graph = Graph::new();
    let step = create_global_step(&graph);
    let x = Variable::new(&graph, "x", &graph.constant_tensor(&Tensor::scalar(f32::NAN)));
    let loss = ops::math::square(x.value());
    let train = GradientDescentOptimizer::new(0.1).minimize(&loss, Some(&step))?;
    let mut session = MonitoredSession::training(&graph).hook(NanTensorHook::new(&loss, true)).build()?;
    let status = session.run(&RunArgs::new().target(&train)).unwrap_err();
    assert!(status.message().contains("NaN"), "{status}");
    drop(session);

    let mut session = MonitoredSession::training(&graph).hook(NanTensorHook::new(&loss, false)).build()?;
    session.run(&RunArgs::new().target(&train))?;
    assert!(session.should_stop());
    session.close()
}

#[test]
fn hooks_log_and_count() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let model = model(None)?;
    let (lines, logged) = channel();
    let writer = FileWriter::new(directory.path().to_str().unwrap())?;
    let log = LoggingTensorHook::with_log(&[("x", model.x.value())], Every::Steps(2), move |line| {
        lines.send(line.to_owned()).unwrap();
    });
    let session = MonitoredSession::training(&model.graph)
        .hook(log)
        .hook(StepCounterHook::new(Every::Steps(2), Some(writer.clone())))
        .hook(StopAtStepHook::after(5))
        .hook(GlobalStepWaiterHook::new(0))
        .build()?;
    let args = RunArgs::new().target(&model.train);
    session.run_until_stopped(|session| session.run(&args).map(drop))?;
    let lines: Vec<String> = logged.try_iter().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines.iter().all(|line| line.starts_with("x = ")), "{lines:?}");
    writer.close()?;
    let mut reader = EventsReader::open(&FileSystems::local(), writer.path())?;
    let mut rates = 0;
    while let Some(event) = reader.next_event()? {
        if let Some(What::Summary(summary)) = event.what {
            assert_eq!(summary.value[0].tag, "global_step/sec");
            rates += 1;
        }
    }
    assert!(rates >= 1);
    Ok(())
}
