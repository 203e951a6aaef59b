//! [`SimulatedCluster`]: the tasks of a cluster, each on its own machine, and the faults that happen to them.

use super::disk::Disks;
use super::network::{Endpoint, Host, Network, NetworkOf};
use super::random::Random;
use super::scheduler::{Life, OUTSIDE, Scheduler};
use cluster::{
    ClusterSpec, Dialer, MasterInterface, RandomIds, Remains, ServerConfig, SimulatedTask, Spawner, Trace, Transport,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The machine of the clients.
const CLIENTS: Host = Host(1000);

/// The counts of events, by name.
pub type Tally = BTreeMap<&'static str, u64>;

/// A cluster in a simulation.
pub struct SimulatedCluster {
    /// Decides which task runs when.
    pub scheduler: Arc<Scheduler>,
    /// Carries the calls.
    pub network: Arc<Network>,
    /// Holds the files.
    pub disks: Arc<Disks>,
    seed: u64,
    /// Whether tasks open streams to each other; otherwise tensors are requested by calls.
    has_streams: bool,
    spec: ClusterSpec,
    tasks: Mutex<Vec<Slot>>,
    traces: Mutex<Vec<(String, Trace)>>,
    tally: Mutex<Tally>,
    /// Faults that are not over.
    num_faults: AtomicUsize,
    /// The violations that clients have found.
    findings: Mutex<Vec<String>>,
    /// Calls of clients that have not ended.
    calls: Mutex<BTreeMap<u64, String>>,
    next_call: Mutex<u64>,
}

struct Slot {
    job: &'static str,
    index: u32,
    address: String,
    life: Life,
    task: Option<SimulatedTask>,
    starts: u64,
}

impl SimulatedCluster {
    /// Starts a cluster with these numbers of tasks in two jobs.
    pub fn start(seed: u64, num_ps: usize, num_workers: usize, has_streams: bool) -> Arc<SimulatedCluster> {
        let scheduler = Scheduler::new(seed);
        let network = Network::new(seed, scheduler.clone());
        network.place(OUTSIDE, CLIENTS);
        let addresses =
            |job: &str, count: usize| (0..count).map(|index| format!("{job}{index}:2222")).collect::<Vec<_>>();
        let (ps, workers) = (addresses("ps", num_ps), addresses("worker", num_workers));
        let spec = ClusterSpec::new().with_job("ps", &ps).and_then(|spec| spec.with_job("worker", &workers));
        let spec = spec.expect("the names are right");
        let slot = |job, index: usize, address: &String| Slot {
            job,
            index: index as u32,
            address: address.clone(),
            life: OUTSIDE,
            task: None,
            starts: 0,
        };
        let mut slots: Vec<Slot> = ps.iter().enumerate().map(|(index, address)| slot("ps", index, address)).collect();
        slots.extend(workers.iter().enumerate().map(|(index, address)| slot("worker", index, address)));
        let num_tasks = slots.len();
        let cluster = Arc::new(SimulatedCluster {
            scheduler,
            network,
            disks: Disks::new(seed),
            seed,
            has_streams,
            spec,
            tasks: Mutex::new(slots),
            traces: Mutex::default(),
            tally: Mutex::default(),
            num_faults: AtomicUsize::new(0),
            findings: Mutex::default(),
            calls: Mutex::default(),
            next_call: Mutex::new(0),
        });
        (0..num_tasks).for_each(|task| cluster.start_task(task));
        cluster
    }

    /// Returns the number of tasks; those of the job `ps` come first.
    pub fn num_tasks(&self) -> usize {
        self.tasks.lock().len()
    }

    /// Returns the number of tasks in the job `ps`.
    pub fn num_ps(&self) -> usize {
        self.tasks.lock().iter().filter(|slot| slot.job == "ps").count()
    }

    /// Returns how often a task was started.
    pub fn starts(&self, task: usize) -> u64 {
        self.tasks.lock()[task].starts
    }

    /// Counts an event.
    pub fn count(&self, what: &'static str) {
        *self.tally.lock().entry(what).or_default() += 1;
    }

    /// Returns the counts.
    pub fn tally(&self) -> Tally {
        self.tally.lock().clone()
    }

    /// Records a violation.
    pub fn finding(&self, what: String) {
        self.findings.lock().push(format!("at {:?}: {what}", self.scheduler.time()));
    }

    /// Returns the violations.
    pub fn findings(&self) -> Vec<String> {
        self.findings.lock().clone()
    }

    /// Records that a client makes a call, until the returned value is dropped.
    pub fn calling(self: &Arc<SimulatedCluster>, what: String) -> Calling {
        let id = {
            let mut next = self.next_call.lock();
            *next += 1;
            *next
        };
        self.calls.lock().insert(id, what);
        Calling { cluster: self.clone(), id }
    }

    /// Returns the calls of clients that have not ended.
    pub fn calls(&self) -> Vec<String> {
        self.calls.lock().values().cloned().collect()
    }

    /// Returns a task's master for clients.
    pub fn master(&self, task: usize) -> Arc<dyn MasterInterface> {
        let slots = self.tasks.lock();
        let slot = &slots[task];
        self.network.master(OUTSIDE, &format!("/job:{}/replica:0/task:{}", slot.job, slot.index), &slot.address)
    }

    /// Starts a task that isn't running.
    fn start_task(self: &Arc<SimulatedCluster>, task: usize) {
        let (job, index, address, starts) = {
            let mut slots = self.tasks.lock();
            let slot = &mut slots[task];
            slot.starts += 1;
            (slot.job, slot.index, slot.address.clone(), slot.starts)
        };
        let life = self.scheduler.begin_life();
        self.network.place(life, Host(task));
        self.disks.set_dead(task, false);
        let mut config = ServerConfig::new(self.spec.clone(), job, index).expect("the task is in its cluster");
        config.transport = Transport::Tcp;
        let mut ids = Random::new(self.seed, &format!("ids of start {starts} of {address}"));
        let ids = Arc::new(RandomIds::with_seed(ids.bits()));
        let spawner = Spawner::given(self.scheduler.spawner(life));
        let network = NetworkOf::new(self.network.clone(), life);
        let streams = self.has_streams.then(|| network.clone() as Arc<dyn Dialer>);
        let started = self
            .scheduler
            .within(life, || SimulatedTask::start(&config, ops::registry(), &spawner, ids, network.clone(), streams));
        let started = started.expect("a task starts");
        let name = format!("/job:{job}/replica:0/task:{index}");
        self.traces.lock().push((name, started.trace()));
        let endpoint = Endpoint { life, services: started.clone() };
        self.network.open(&address, endpoint);
        let mut slots = self.tasks.lock();
        slots[task].life = life;
        slots[task].task = Some(started);
    }

    /// Ends a task at once: its process is killed, or its machine dies.
    pub fn kill(self: &Arc<SimulatedCluster>, task: usize, with_machine: bool) {
        let (life, ended) = {
            let mut slots = self.tasks.lock();
            let slot = &mut slots[task];
            let Some(ended) = slot.task.take() else { return };
            (slot.life, ended)
        };
        self.disks.set_dead(task, true);
        self.scheduler.end_life(life);
        self.network.life_ended(life, !with_machine);
        self.scheduler.within(life, || drop(ended));
        if with_machine {
            self.disks.machine_died(task);
        }
        self.count(if with_machine { "machine died" } else { "process killed" });
    }

    /// Restarts a killed task after a while.
    pub fn restart_after(self: &Arc<SimulatedCluster>, task: usize, delay: Duration) {
        self.num_faults.fetch_add(1, Ordering::AcqRel);
        let cluster = self.clone();
        self.scheduler.run_after(delay, move || {
            let is_down = cluster.tasks.lock()[task].task.is_none();
            if is_down {
                cluster.start_task(task);
            }
            cluster.num_faults.fetch_sub(1, Ordering::AcqRel);
        });
    }

    /// Ends the tasks whose machines died at a write, and restarts them later.
    pub fn bury(self: &Arc<SimulatedCluster>) {
        for task in self.disks.take_died() {
            self.kill(task, true);
            self.restart_after(task, Duration::from_millis(300));
        }
    }

    /// Injects a fault for a while.
    fn for_a_while(
        self: &Arc<SimulatedCluster>,
        duration: Duration,
        end: impl FnOnce(&SimulatedCluster) + Send + 'static,
    ) {
        self.num_faults.fetch_add(1, Ordering::AcqRel);
        let cluster = self.clone();
        self.scheduler.run_after(duration, move || {
            end(&cluster);
            cluster.num_faults.fetch_sub(1, Ordering::AcqRel);
        });
    }

    /// Injects faults as the seed decides, and waits until all are over.
    pub async fn suffer(self: Arc<SimulatedCluster>, num_faults: usize) {
        let mut random = Random::new(self.seed, "faults");
        let num_tasks = self.num_tasks();
        for _ in 0..num_faults {
            self.scheduler.sleep(Duration::from_micros(random.magnitude(200, 400_000))).await;
            let task = random.below(num_tasks);
            let duration = Duration::from_micros(random.magnitude(500, 30_000_000));
            let hosts = (0..num_tasks).map(Host).chain([CLIENTS]).collect::<Vec<_>>();
            let (from, to) = (hosts[random.below(hosts.len())], hosts[random.below(hosts.len())]);
            match random.below(12) {
                0 | 1 => {
                    self.kill(task, false);
                    self.restart_after(task, duration);
                }
                2 => {
                    self.kill(task, true);
                    self.restart_after(task, duration);
                }
                3 => {
                    self.disks.die_after(task, random.between(0, 12));
                    self.count("machine told to die at a write");
                }
                4 => {
                    let life = self.tasks.lock()[task].life;
                    self.scheduler.freeze(life, true);
                    self.count("process frozen");
                    self.for_a_while(duration, move |cluster| cluster.scheduler.freeze(life, false));
                }
                5 | 6 if from != to => {
                    self.network.cut(from, to, duration);
                    self.count("one direction cut");
                    self.for_a_while(duration, |_| ());
                }
                7 if from != to => {
                    self.network.cut(from, to, duration);
                    self.network.cut(to, from, duration);
                    self.count("both directions cut");
                    self.for_a_while(duration, |_| ());
                }
                8..=10 if from != to => {
                    self.network.reset(from, to);
                    self.count("connections reset");
                }
                _ => {
                    let factor = random.magnitude(10, 2000);
                    self.network.slow(from, to, factor);
                    self.count("direction slowed down");
                    self.for_a_while(duration, move |cluster| cluster.network.slow(from, to, 1));
                }
            }
        }
        self.calm().await;
    }

    /// Returns whether all faults are over.
    pub fn is_calm(&self) -> bool {
        self.num_faults.load(Ordering::Acquire) == 0
    }

    /// Waits until all faults are over.
    pub async fn calm(&self) {
        while !self.is_calm() {
            self.scheduler.sleep(Duration::from_millis(100)).await;
        }
    }

    /// Returns what the tasks still hold for steps and sessions.
    pub fn remains(&self) -> Vec<(String, Remains)> {
        let slots = self.tasks.lock();
        let held = slots.iter().filter_map(|slot| {
            let remains = slot.task.as_ref()?.remains();
            (remains != Remains::default()).then(|| (format!("/job:{}/task:{}", slot.job, slot.index), remains))
        });
        held.collect()
    }

    /// Ends all tasks, and returns the parts of tasks that are still in memory.
    pub fn end(self: &Arc<SimulatedCluster>) -> Vec<String> {
        for task in 0..self.num_tasks() {
            self.kill(task, false);
        }
        self.scheduler.end_everything();
        let traces = self.traces.lock();
        let held = traces.iter().flat_map(|(name, trace)| {
            trace.held().into_iter().map(move |part| format!("{name} has ended, and {part} is still held"))
        });
        held.collect()
    }
}

/// A call of a client that has not ended.
pub struct Calling {
    cluster: Arc<SimulatedCluster>,
    id: u64,
}

impl Drop for Calling {
    fn drop(&mut self) {
        self.cluster.calls.lock().remove(&self.id);
    }
}
