//! Queues: producers add numbers that are used once, consumers take them. No number is taken twice, and none is lost except with a failed
//! step or with a ps that ended.

use super::{Setting, all, graph, pause};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tensor::{Code, Tensor};

/// The count of numbers that each producer adds, and that of its attempts.
const NUMBERS: u64 = 5;
const ATTEMPTS_MAX: u64 = 25;

#[derive(Default)]
struct Book {
    /// The numbers that were sent, and those whose step was answered.
    sent: BTreeSet<i64>,
    added: BTreeSet<i64>,
    taken: BTreeSet<i64>,
    /// Failed steps that were to take a number.
    failed_takes: usize,
}

fn text(worker: usize) -> String {
    format!(
        "x = Placeholder() {{dtype=int64}} @/job:worker/task:{worker}
         queue = FIFOQueueV2() {{component_types=[int64], shared_name=\"queue\", capacity=3}} @/job:ps/task:0
         put = QueueEnqueueV2(queue, x) {{Tcomponents=[int64]}} @/job:ps/task:0
         get = QueueDequeueV2(queue) {{component_types=[int64]}} @/job:ps/task:0
         got = Neg(get) @/job:worker/task:{worker}
         close = QueueCloseV2(queue) @/job:ps/task:0"
    )
}

async fn produce(setting: Arc<Setting>, book: Arc<Mutex<Book>>, number: usize, left: Arc<AtomicUsize>) {
    let mut client = setting.client(number, &graph(&text(number % setting.num_workers())));
    client = client.with_timeout(Duration::from_secs(5));
    let (mut done, mut attempts) = (0, 0);
    while done < NUMBERS && attempts < ATTEMPTS_MAX {
        attempts += 1;
        let value = (number as i64 + 1) * 1000 + attempts as i64;
        book.lock().sent.insert(value);
        match client.run(&[("x:0", Tensor::scalar(value))], &[], &["put"]).await {
            Ok(_) => {
                book.lock().added.insert(value);
                done += 1;
            }
            Err(status) => {
                setting.check(!setting.is_calm, || format!("adding failed without a fault: {status:?}"));
                pause(&mut client, attempts as u32).await;
            }
        }
    }
    client.finish().await;
    left.fetch_sub(1, Ordering::AcqRel);
}

async fn consume(setting: Arc<Setting>, book: Arc<Mutex<Book>>, number: usize, producers: Arc<AtomicUsize>) {
    let mut client = setting.client(number, &graph(&text(number % setting.num_workers())));
    client = client.with_timeout(Duration::from_secs(2));
    let mut failures = 0;
    loop {
        let are_done = producers.load(Ordering::Acquire) == 0;
        match client.run(&[], &["got:0"], &[]).await {
            Ok(values) => {
                failures = 0;
                let value = -values[0].to_scalar::<i64>().unwrap_or_default();
                let mut book = book.lock();
                let is_new = book.taken.insert(value);
                setting.check(is_new, || format!("{value} was taken twice"));
                setting.check(book.sent.contains(&value), || format!("{value} was taken, and nobody added it"));
            }
            Err(status) if status.code() == Code::OutOfRange => break,
            Err(status) => {
                setting.check(!setting.is_calm || status.code() == Code::DeadlineExceeded, || {
                    format!("taking failed without a fault: {status:?}")
                });
                book.lock().failed_takes += 1;
                failures += 1;
                if are_done && failures > 3 && setting.cluster.is_calm() || failures > 60 {
                    break;
                }
                pause(&mut client, failures).await;
            }
        }
    }
    client.finish().await;
}

/// Runs producers and consumers on one queue.
pub async fn run(setting: Arc<Setting>) {
    let book = Arc::new(Mutex::new(Book::default()));
    let mut random = setting.random("queues");
    let (num_producers, num_consumers) = (1 + random.below(2), 1 + random.below(2));
    let left = Arc::new(AtomicUsize::new(num_producers));
    let mut clients: Vec<BoxFuture<'static, ()>> = Vec::new();
    for number in 0..num_producers {
        clients.push(Box::pin(produce(setting.clone(), book.clone(), number, left.clone())));
    }
    for number in 0..num_consumers {
        clients.push(Box::pin(consume(setting.clone(), book.clone(), num_producers + number, left.clone())));
    }
    all(&setting, clients).await;
    let book = book.lock();
    let lost = book.added.difference(&book.taken).count();
    // A queue ends with its ps, and the numbers that a step has taken are lost if the step fails.
    if setting.cluster.starts(0) == 1 {
        setting.check(lost <= book.failed_takes, || {
            format!("{lost} numbers were added and never taken, and only {} steps that take failed", book.failed_takes)
        });
    }
}
