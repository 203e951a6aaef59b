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
fn a_chief_that_saves_keeps_other_processes_out_of_its_directory() -> Result<()> {
    use storage::file_system::{FileSystem, Locking};
    let directory = tempfile::tempdir().unwrap();
    let logdir = directory.path().to_str().unwrap();
    let lock = directory.path().join("ferroflow.lock");
    let try_lock = || FileSystems::local().try_lock_file(lock.to_str().unwrap(), "process 7 on moon");
    let model = model(None)?;
    let supervisor = || Supervisor::builder(&model.graph).logdir(logdir);
    let monitored = || MonitoredSession::training(&model.graph).checkpoint_dir(logdir);
    // A lock that is taken here is another one's to them, as if another process had it.
    let Locking::Held(other) = try_lock()? else { panic!("not locked") };
    let refused = [
        supervisor().build()?.prepare_or_wait_for_session("").map(drop).unwrap_err(),
        monitored().build().map(drop).unwrap_err(),
    ];
    for status in refused {
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains("process 7 on moon") && status.message().contains(logdir), "{status}");
    }
    // Those that save nothing are let in, and so is a worker.
    supervisor().save_model_secs(0).build()?.managed_session("", |_| Ok(()))?;
    monitored().save_checkpoint(None).build()?.close()?;
    monitored().is_chief(false).build()?.close()?;
    drop(other);
    // One process may have several, at once or one after the other; the last one unlocks.
    let first = monitored().build()?;
    supervisor().build()?.managed_session("", |_| Ok(()))?;
    assert!(matches!(try_lock()?, Locking::Taken(who) if who.contains(&format!("process {} on", std::process::id()))));
    first.close()?;
    assert!(!lock.exists());
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
    let ready = report_uninitialized_variables(&waiting.graph, None);
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

/// Sends on what is logged.
struct Log(std::sync::mpsc::SyncSender<String>);

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Message(String);
        impl tracing::field::Visit for Message {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
                }
            }
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        let _ = self.0.try_send(message.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_waiting_worker_is_told_at_once() -> Result<()> {
    const WATCHDOG: Duration = Duration::from_secs(120);
    // In one process and over gRPC.
    let embedded = embedded(2)?;
    let addresses = cluster::unused_addresses(3).unwrap();
    let spec = ClusterSpec::new().with_job("ps", &addresses[..1])?.with_job("worker", &addresses[1..])?;
    let start = |job: &str, task: u32| ferroflow::distributed::start_server(&spec, job, task);
    let servers = [start("ps", 0)?, start("worker", 0)?, start("worker", 1)?];
    let targets = [
        [Target::from(embedded.master("worker", 0)?), Target::from(embedded.master("worker", 1)?)],
        [Target::from(&servers[1]), Target::from(&*format!("grpc://{}", addresses[2]))],
    ];
    for [chief_target, target] in targets {
        let setter = |task: u32| ReplicaDeviceSetter::new(1).worker_device(&format!("/job:worker/task:{task}"));
        let waiting = model(Some(&setter(1)?))?;
        let ready = report_uninitialized_variables(&waiting.graph, None);
        // By itself it would look again in an hour.
        let manager = SessionManager::new(&waiting.graph).ready_op(Some(&ready)).look_every(Duration::from_secs(3600));
        let (log, logged) = std::sync::mpsc::sync_channel(100);
        let (done, ended) = channel();
        std::thread::spawn(move || {
            let session = tracing::subscriber::with_default(Log(log), || {
                manager.wait_for_session(&target, &Default::default(), None)
            });
            let _ = done.send(session.and_then(|session| session.eval::<f32>(waiting.x.value())));
        });
        let said = loop {
            let line = logged.recv_timeout(WATCHDOG).unwrap();
            if line.starts_with("Waiting for model to be ready") {
                break line;
            }
        };
        assert!(said.contains("global_step on /job:ps/task:0, x on /job:ps/task:0"), "{said}");

        let chief = model(Some(&setter(0)?))?;
        let supervisor = Supervisor::builder(&chief.graph).build()?;
        let session = supervisor.prepare_or_wait_for_session(&chief_target)?;
        assert_eq!(ended.recv_timeout(WATCHDOG).unwrap()?, 4.0);
        session.close()?;
        supervisor.stop()?;
    }
    servers.iter().try_for_each(ferroflow::distributed::stop)
}

#[test]
fn waiting_ends_with_a_stop() -> Result<()> {
    let cluster = embedded(1)?;
    let waiting = model(Some(&ReplicaDeviceSetter::new(1)))?;
    let ready = report_uninitialized_variables(&waiting.graph, None);
    let coordinator = Coordinator::new();
    let manager = SessionManager::new(&waiting.graph).ready_op(Some(&ready)).coordinator(&coordinator);
    let manager = manager.look_every(Duration::from_secs(3600));
    let target = Target::from(cluster.master("worker", 0)?);
    let (done, ended) = channel();
    std::thread::spawn(move || done.send(manager.wait_for_session(&target, &Default::default(), None).map(drop)));
    coordinator.request_stop(None);
    let status = ended.recv_timeout(Duration::from_secs(120)).unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Cancelled, "{status}");
    Ok(())
}

/// Fails once as if a task had been lost, at a step.
struct LoseTask {
    at: i64,
    step: Variable,
    sessions: Arc<parking_lot::Mutex<Vec<i64>>>,
    failure: Status,
}

impl SessionRunHook for LoseTask {
    fn after_create_session(&mut self, session: &Session, _coordinator: &Coordinator) -> Result<()> {
        self.sessions.lock().push(session.eval(self.step.value())?);
        Ok(())
    }

    fn after_run(&mut self, context: &RunContext<'_>, _values: &RunValues) -> Result<()> {
        if self.sessions.lock().len() == 1 && context.session().eval::<i64>(self.step.value())? == self.at {
            return Err(self.failure.clone());
        }
        Ok(())
    }
}

#[test]
fn a_lost_task_is_recovered_from_with_the_last_checkpoint() -> Result<()> {
    // It can't be reached, or was started again and knows nothing of the session.
    for failure in [Status::unavailable("the ps is gone"), Status::aborted("the ps was restarted")] {
        check_recovery(failure)?;
    }
    Ok(())
}

fn check_recovery(failure: Status) -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let model = model(None)?;
    let sessions = Arc::default();
    let lose = LoseTask { at: 7, step: model.step.clone(), sessions: Arc::clone(&sessions), failure };
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
fn a_loss_that_is_no_number_leaves_the_last_good_checkpoint() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let checkpoints = directory.path().to_str().unwrap();
    let graph = Graph::new();
    let step = create_global_step(&graph);
    let x = Variable::new(&graph, "x", &graph.constant_tensor(&Tensor::scalar(4f32)));
    let factor = ops::array::placeholder(&graph, ferroflow::DType::Float, &ferroflow::PartialShape::scalar());
    let loss = ops::math::square(&ops::math::multiply(x.value(), &factor));
    let train = GradientDescentOptimizer::new(0.1).minimize(&loss, Some(&step))?;
    let mut session = MonitoredSession::training(&graph)
        .checkpoint_dir(checkpoints)
        .save_checkpoint(Some(Every::Steps(5)))
        .hook(NanTensorHook::new(&loss, true))
        .build()?;
    let mut run = |value: f32| session.run(&RunArgs::new().target(&train).feed(&factor, Tensor::scalar(value)));
    for _ in 0..5 {
        run(1.0)?;
    }
    let status = run(f32::NAN).unwrap_err();
    assert!(status.message().contains("Model diverged with loss = NaN"), "{status}");
    drop(session);
    let last = latest_checkpoint(checkpoints)?.unwrap();
    assert!(last.ends_with("model.ckpt-5"), "{last}");
    let saver = Saver::new(&graph)?;
    let session = Session::new(&graph)?;
    saver.restore(&session, &last)?;
    assert!((session.eval::<f32>(x.value())? - 4.0 * 0.8f32.powi(5)).abs() < 1e-4);
    Ok(())
}

/// What others do to the variables between their restoring and the first step is not saved before that step.
#[test]
fn a_training_that_goes_on_does_not_save_before_it_begins() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let checkpoints = directory.path().to_str().unwrap();
    let saved = || latest_checkpoint(checkpoints).map(|newest| newest.unwrap_or_default());
    let start = |model: &Model, meanwhile: Option<&Operation>| {
        let scaffold = meanwhile.iter().fold(Scaffold::new(), |scaffold, op| scaffold.local_init_op(op));
        MonitoredSession::training(&model.graph)
            .checkpoint_dir(checkpoints)
            .save_checkpoint(Some(Every::Steps(1000)))
            .scaffold(scaffold)
            .build()
    };
    let first = model(None)?;
    let mut session = start(&first, None)?;
    session.raw_session()?;
    assert!(saved()?.ends_with("model.ckpt-0"), "{}", saved()?);
    session.run(&RunArgs::new().target(&first.train))?;
    session.close()?;
    assert!(saved()?.ends_with("model.ckpt-1"), "{}", saved()?);
    let second = model(None)?;
    let mut session = start(&second, Some(&second.train))?;
    assert_eq!(session.raw_session()?.eval_index(second.step.value())?, 2);
    assert!(saved()?.ends_with("model.ckpt-1"), "{}", saved()?);
    // In the end it is: the step has changed since the checkpoint.
    session.close()?;
    assert!(saved()?.ends_with("model.ckpt-2"), "{}", saved()?);
    Ok(())
}

#[test]
fn a_truncated_checkpoint_is_an_error_and_those_before_it_restore() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let checkpoints = directory.path().to_str().unwrap();
    let train = |until: i64| -> Result<()> {
        let model = model(None)?;
        let session = MonitoredSession::training(&model.graph)
            .checkpoint_dir(checkpoints)
            .save_checkpoint(Some(Every::Steps(5)))
            .hook(StopAtStepHook::at(until))
            .build()?;
        session.run_until_stopped(|session| session.run(&RunArgs::new().target(&model.train)).map(drop))
    };
    train(10)?;
    let data = directory.path().join("model.ckpt-10.data-00000-of-00001");
    let bytes = std::fs::read(&data).unwrap();
    std::fs::write(&data, &bytes[..bytes.len() / 2]).unwrap();
    let state = std::fs::read(directory.path().join("checkpoint")).unwrap();
    let status = train(20).unwrap_err();
    assert_eq!(status.code(), Code::DataLoss, "{status}");
    assert!(status.message().contains("model.ckpt-10"), "{status}");
    assert_eq!(std::fs::read(directory.path().join("checkpoint")).unwrap(), state);
    let model = model(None)?;
    let (saver, session) = (Saver::new(&model.graph)?, Session::new(&model.graph)?);
    saver.restore(&session, directory.path().join("model.ckpt-5").to_str().unwrap())?;
    assert_eq!(session.eval::<i64>(model.step.value())?, 5);
    Ok(())
}

#[test]
fn a_damaged_record_ends_training_and_the_last_checkpoint_stays() -> Result<()> {
    use ferroflow::input::{Compression, InputOptions, Reader, string_input_producer};
    use storage::file_system::FileSystem;
    use storage::record::{CompressionType, RecordWriter};

    let directory = tempfile::tempdir().unwrap();
    let checkpoints = directory.path().join("train").to_str().unwrap().to_owned();
    let records = directory.path().join("records").to_str().unwrap().to_owned();
    let mut writer = RecordWriter::new(FileSystems::local().create(&records)?, CompressionType::None);
    for _ in 0..5 {
        writer.write_record(b"0.5")?;
    }
    writer.close()?;
    let mut bytes = std::fs::read(&records).unwrap();
    let last = bytes.len() - 6;
    bytes[last] ^= 1;
    std::fs::write(&records, bytes).unwrap();

    let graph = Graph::new();
    let step = create_global_step(&graph);
    let x = Variable::new(&graph, "x", &graph.constant_tensor(&Tensor::scalar(4f32)));
    let names = string_input_producer(&graph, &[&records], &InputOptions { shuffle: false, ..Default::default() });
    let (_, record) = Reader::tf_record(&graph, Compression::None).read(&names);
    let factor = graph.op("StringToNumber").input(&record).try_build()?.output(0);
    let loss = ops::math::square(&ops::math::multiply(x.value(), &factor));
    let train = GradientDescentOptimizer::new(0.1).minimize(&loss, Some(&step))?;
    let session = MonitoredSession::training(&graph)
        .checkpoint_dir(&checkpoints)
        .save_checkpoint(Some(Every::Steps(2)))
        .build()?;
    let result = session.run_until_stopped(|session| session.run(&RunArgs::new().target(&train)).map(drop));
    let status = result.unwrap_err();
    assert_eq!(status.code(), Code::DataLoss, "{status}");
    assert!(status.message().contains("corrupted record"), "{status}");
    let last = latest_checkpoint(&checkpoints)?.unwrap();
    assert!(last.ends_with("model.ckpt-4"), "{last}");
    let session = Session::new(&graph)?;
    Saver::new(&graph)?.restore(&session, &last)?;
    assert_eq!(session.eval::<i64>(step.value())?, 4);
    Ok(())
}

#[test]
fn a_monitored_session_leaves_all_in_its_directory() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let model = model(None)?;
    ferroflow::summary::scalar("loss", &model.loss);
    let session = MonitoredSession::training(&model.graph)
        .checkpoint_dir(directory.path().to_str().unwrap())
        .save_summaries(Some(Every::Steps(2)))
        .log_step_count_steps(Some(2))
        .hook(StopAtStepHook::after(6))
        .build()?;
    session.run_until_stopped(|session| session.run(&RunArgs::new().target(&model.train)).map(drop))?;
    let entries = std::fs::read_dir(directory.path()).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let events: Vec<String> = names.extract_if(.., |name| name.contains("tfevents")).collect();
    let of = |step: i64| {
        ["data-00000-of-00001", "index", "meta"].map(|ending| format!("model.ckpt-{step}.{ending}")).to_vec()
    };
    let expected = [vec!["checkpoint".to_owned(), "graph.pbtxt".to_owned()], of(0), of(6)].concat();
    assert_eq!(names, expected);
    let text = std::fs::read_to_string(directory.path().join("graph.pbtxt")).unwrap();
    assert!(text.contains("name: \"global_step\"") && text.contains("op: \"ApplyGradientDescent\""), "{text}");
    let mut tags = std::collections::BTreeMap::new();
    let path = directory.path().join(&events[0]);
    let mut reader = EventsReader::open(&FileSystems::local(), path.to_str().unwrap())?;
    while let Some(event) = reader.next_event()? {
        let tag = match event.what {
            Some(What::Summary(summary)) => summary.value[0].tag.clone(),
            Some(What::GraphDef(_)) => "graph".to_owned(),
            Some(What::SessionLog(_)) => "session log".to_owned(),
            _ => continue,
        };
        *tags.entry(tag).or_insert(0) += 1;
    }
    assert_eq!(tags.get("loss"), Some(&3), "{tags:?}");
    assert!(tags.contains_key("global_step/sec") && tags.contains_key("graph"), "{tags:?}");
    assert_eq!(tags.get("session log"), Some(&2), "{tags:?}");
    Ok(())
}

#[test]
fn a_worker_is_held_back_until_a_global_step() -> Result<()> {
    let cluster = embedded(2)?;
    let (entered, enters) = channel();
    let target = Target::from(cluster.master("worker", 1)?);
    let setter = |task: u32| ReplicaDeviceSetter::new(1).worker_device(&format!("/job:worker/task:{task}"));
    let late = model(Some(&setter(1)?))?;
    let worker = std::thread::spawn(move || -> Result<i64> {
        let mut session = MonitoredSession::training(&late.graph)
            .target(&target)
            .is_chief(false)
            .hook(GlobalStepWaiterHook::new(5))
            .build()?;
        session.raw_session()?;
        entered.send(()).unwrap();
        let values = session.run(&RunArgs::new().fetch(late.step.value()))?;
        session.close()?;
        values[0].to_scalar()
    });
    let chief = model(Some(&setter(0)?))?;
    let mut session = MonitoredSession::training(&chief.graph).target(cluster.master("worker", 0)?).build()?;
    session.raw_session()?;
    enters.recv_timeout(Duration::from_secs(120)).unwrap();
    for _ in 0..5 {
        session.run(&RunArgs::new().target(&chief.train))?;
    }
    assert_eq!(worker.join().unwrap()?, 5);
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
