//! Asynchronous training: every client adds ones to its own element of a variable on each ps. No answered update is lost, and none is
//! applied twice.
//!
//! A variable begins with a stamp, which differs each time that the variable is initialized. It distinguishes the updates before and
//! after the end of a ps.

use super::{Setting, all, doubles, graph, pause};
use crate::simulation::client::Client;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tensor::{Code, Result, Tensor};

/// The number of updates of each client, and that of its attempts.
const UPDATES: u64 = 4;
const ATTEMPTS_MAX: u64 = 30;

/// The state of one client's updates of one variable.
#[derive(Clone, Copy, Debug, Default)]
struct Updates {
    /// Steps that were sent.
    attempts: u64,
    /// Steps that ended with an error, and may have been applied.
    failed: u64,
}

#[derive(Default)]
struct Book {
    /// By variable and client.
    updates: BTreeMap<(usize, usize), Updates>,
    /// The number of answered updates, by variable, stamp and client.
    answered: BTreeMap<(usize, u64, usize), u64>,
    next_stamp: u64,
}

fn text(num_ps: usize, width: usize, worker: usize) -> String {
    let mut text = String::new();
    for ps in 0..num_ps {
        text += &format!(
            "x{ps} = Placeholder() {{dtype=double}} @/job:worker/task:{worker}
             v{ps} = VariableV2() {{dtype=double, shape=[{width}]}} @/job:ps/task:{ps}
             init{ps} = Assign(v{ps}, x{ps}) @/job:ps/task:{ps}
             add{ps} = AssignAdd(v{ps}, x{ps}) @/job:ps/task:{ps}
             sum{ps} = Neg(add{ps}) @/job:worker/task:{worker}
             read{ps} = Neg(v{ps}) @/job:worker/task:{worker}
             ready{ps} = IsVariableInitialized(v{ps}) @/job:ps/task:{ps}\n"
        );
    }
    text
}

struct Trainer {
    setting: Arc<Setting>,
    book: Arc<Mutex<Book>>,
    client: Client,
    number: usize,
    width: usize,
}

impl Trainer {
    /// Initializes missing variables, if this is the chief; returns whether all exist.
    async fn initialize(&mut self) -> Result<bool> {
        let num_ps = self.setting.cluster.num_ps();
        let names: Vec<String> = (0..num_ps).map(|ps| format!("ready{ps}:0")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let ready = self.client.run(&[], &names, &[]).await?;
        for (ps, ready) in ready.iter().enumerate() {
            if ready.to_scalar::<bool>()? {
                continue;
            }
            if self.number != 0 {
                return Ok(false);
            }
            let stamp = {
                let mut book = self.book.lock();
                book.next_stamp += 1;
                book.next_stamp
            };
            let mut value = vec![0.0; self.width];
            value[0] = stamp as f64;
            let (feed, target) = (format!("x{ps}:0"), format!("init{ps}"));
            self.client.run(&[(&feed, Tensor::vector(&value))], &[], &[&target]).await?;
        }
        Ok(true)
    }

    /// Adds one to every variable.
    async fn update(&mut self) -> Result<()> {
        let num_ps = self.setting.cluster.num_ps();
        self.client.session().await?;
        let mut one = vec![0.0; self.width];
        one[1 + self.number] = 1.0;
        let feeds: Vec<String> = (0..num_ps).map(|ps| format!("x{ps}:0")).collect();
        let fetches: Vec<String> = (0..num_ps).map(|ps| format!("sum{ps}:0")).collect();
        let feeds: Vec<(&str, Tensor)> = feeds.iter().map(|name| (name.as_str(), Tensor::vector(&one))).collect();
        let fetches: Vec<&str> = fetches.iter().map(String::as_str).collect();
        let number = self.number;
        let note = |book: &Mutex<Book>, change: &dyn Fn(&mut Updates)| {
            let mut book = book.lock();
            (0..num_ps).for_each(|ps| change(book.updates.entry((ps, number)).or_default()));
        };
        note(&self.book, &|updates| updates.attempts += 1);
        match self.client.run(&feeds, &fetches, &[]).await {
            Ok(sums) => {
                for (ps, sum) in sums.iter().enumerate() {
                    self.check_sum(ps, &doubles(sum));
                }
                Ok(())
            }
            Err(status) => {
                note(&self.book, &|updates| updates.failed += 1);
                Err(status)
            }
        }
    }

    fn check_sum(&self, ps: usize, negated: &[f64]) {
        let mut book = self.book.lock();
        let stamp = -negated.first().copied().unwrap_or_default();
        let own = -negated.get(1 + self.number).copied().unwrap_or_default();
        let attempts = book.updates.entry((ps, self.number)).or_default().attempts;
        let answered = book.answered.entry((ps, stamp as u64, self.number)).or_default();
        *answered += 1;
        let answered = *answered;
        drop(book);
        self.setting.check(answered as f64 <= own && own <= attempts as f64, || {
            format!(
                "client {} has {answered} answers to {attempts} updates of v{ps}, which has {own} of them",
                self.number
            )
        });
    }

    async fn run(mut self) -> Trainer {
        let (mut done, mut attempts) = (0, 0);
        while done < UPDATES && attempts < ATTEMPTS_MAX {
            attempts += 1;
            let outcome = match self.initialize().await {
                Ok(true) => self.update().await.map(|()| true),
                other => other,
            };
            match outcome {
                Ok(true) => done += 1,
                Ok(false) => {}
                Err(status) => {
                    self.setting
                        .check(!self.setting.is_calm, || format!("an update failed without a fault: {status:?}"));
                    self.setting.check(status.code() != Code::InvalidArgument, || format!("an update: {status:?}"));
                }
            }
            pause(&mut self.client, attempts.min(8) as u32).await;
        }
        self
    }
}

/// Runs a training client on every worker.
pub async fn run(setting: Arc<Setting>) {
    let book = Arc::new(Mutex::new(Book::default()));
    let mut random = setting.random("training");
    let num_clients = setting.num_workers();
    let width = 1 + num_clients;
    let trainers = (0..num_clients).map(|number| {
        let graph = graph(&text(setting.cluster.num_ps(), width, number));
        let mut client = setting.client(number, &graph);
        if random.one_of_thousand(700) {
            client = client.with_timeout(std::time::Duration::from_millis(random.between(500, 20_000)));
        }
        Trainer { setting: setting.clone(), book: book.clone(), client, number, width }
    });
    let running = trainers.map(|trainer| Box::pin(trainer.run()) as BoxFuture<'static, Trainer>).collect();
    let mut trainers = all(&setting, running).await;
    setting.cluster.calm().await;
    setting.check_steps().await;
    for trainer in &mut trainers {
        trainer.client.finish().await;
    }
    // Pending updates have ended by now, so the values don't change any more.
    let Some(chief) = trainers.first_mut() else { return };
    chief.client.sleep(std::time::Duration::from_secs(60)).await;
    for attempt in 0..20 {
        if chief.initialize().await.is_ok_and(|is_ready| is_ready) {
            break;
        }
        setting.check(attempt < 19, || "the variables can't be made though no fault goes on".to_owned());
        pause(&mut chief.client, attempt).await;
    }
    for ps in 0..setting.cluster.num_ps() {
        let name = format!("read{ps}:0");
        let read = chief.client.run(&[], &[&name], &[]).await;
        match read {
            Ok(read) => check_end(&setting, &book.lock(), ps, &doubles(&read[0]), num_clients),
            Err(status) => setting.finding(format!("v{ps} can't be read though no fault goes on: {status:?}")),
        }
    }
    chief.client.finish().await;
}

fn check_end(setting: &Setting, book: &Book, ps: usize, negated: &[f64], num_clients: usize) {
    let stamp = (-negated.first().copied().unwrap_or_default()) as u64;
    for client in 0..num_clients {
        let found = -negated.get(1 + client).copied().unwrap_or_default();
        let updates = book.updates.get(&(ps, client)).copied().unwrap_or_default();
        let answered = book.answered.get(&(ps, stamp, client)).copied().unwrap_or_default();
        let most = answered + updates.failed;
        setting.check(answered as f64 <= found && found <= most as f64, || {
            format!(
                "v{ps} has {found} updates of client {client}, of which {answered} were answered and {updates:?} made"
            )
        });
        setting.check(!setting.is_calm || (found as u64 == UPDATES && answered == UPDATES), || {
            format!("without a fault v{ps} has {found} updates of client {client}, and not {UPDATES}")
        });
    }
}
