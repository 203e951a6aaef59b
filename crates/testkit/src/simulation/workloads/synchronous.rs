//! Synchronous training: every worker's client adds gradients of one to an accumulator, and the chief adds their sum to a variable as
//! soon as there is one for each worker. The variable and the accumulator together contain all gradients.

use super::{Setting, all, graph, pause};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tensor::{Result, Tensor};

const ROUNDS: u64 = 4;
const ATTEMPTS_MAX: u64 = 20;

/// A step that no accumulator considers outdated.
const LATE_STEP: i64 = 1 << 40;

#[derive(Clone, Copy, Debug, Default)]
struct Book {
    /// The gradients that were sent, and those that were answered.
    sent: u64,
    answered: u64,
    /// Failed steps of the chief: the gradients that they took are lost.
    failed_takes: u64,
}

fn text(worker: usize) -> String {
    format!(
        "gradient = Placeholder() {{dtype=double}} @/job:worker/task:{worker}
         local = Placeholder() {{dtype=int64}} @/job:worker/task:{worker}
         required = Placeholder() {{dtype=int32}} @/job:worker/task:{worker}
         zero = Placeholder() {{dtype=double}} @/job:worker/task:{worker}
         sums = ConditionalAccumulator() {{dtype=double, shape=[], shared_name=\"sums\", reduction_type=\"SUM\"}} @/job:ps/task:0
         v = VariableV2() {{dtype=double, shape=[]}} @/job:ps/task:0
         ready = IsVariableInitialized(v) @/job:ps/task:0
         init = Assign(v, zero) @/job:ps/task:0
         give = AccumulatorApplyGradient(sums, local, gradient) {{dtype=double}} @/job:ps/task:0
         take = AccumulatorTakeGradient(sums, required) {{dtype=double}} @/job:ps/task:0
         add = AssignAdd(v, take) @/job:ps/task:0
         total = Neg(add) @/job:worker/task:{worker}
         now = Neg(v) @/job:worker/task:{worker}
         left = AccumulatorNumAccumulated(sums) @/job:ps/task:0"
    )
}

async fn give(setting: Arc<Setting>, number: usize, book: Arc<Mutex<Book>>, left: Arc<AtomicUsize>) {
    let mut client = setting.client(number, &graph(&text(number)));
    client = client.with_timeout(Duration::from_secs(5));
    let (mut done, mut attempts) = (0, 0);
    while done < ROUNDS && attempts < ATTEMPTS_MAX {
        attempts += 1;
        book.lock().sent += 1;
        let feeds = [("gradient:0", Tensor::scalar(1f64)), ("local:0", Tensor::scalar(LATE_STEP))];
        match client.run(&feeds, &[], &["give"]).await {
            Ok(_) => {
                book.lock().answered += 1;
                done += 1;
            }
            Err(status) => {
                setting.check(!setting.is_calm, || format!("a gradient was refused without a fault: {status:?}"));
                pause(&mut client, attempts as u32).await;
            }
        }
    }
    client.finish().await;
    left.fetch_sub(1, Ordering::AcqRel);
}

async fn lead(setting: Arc<Setting>, book: Arc<Mutex<Book>>, givers: Arc<AtomicUsize>) {
    let mut client = setting.client(0, &graph(&text(0)));
    client = client.with_timeout(Duration::from_secs(3));
    let num_workers = setting.num_workers() as i32;
    let mut failures = 0;
    loop {
        let are_done = givers.load(Ordering::Acquire) == 0;
        let outcome: Result<()> = async {
            let ready = client.run(&[], &["ready:0"], &[]).await?;
            if !ready[0].to_scalar::<bool>()? {
                client.run(&[("zero:0", Tensor::scalar(0f64))], &[], &["init"]).await?;
            }
            let taken = client.run(&[("required:0", Tensor::scalar(num_workers))], &["total:0"], &[]).await;
            if taken.is_err() {
                book.lock().failed_takes += 1;
            }
            let total = -taken?[0].to_scalar::<f64>()?;
            let sent = book.lock().sent;
            setting.check(total <= sent as f64, || format!("{sent} gradients were given, and {total} are added"));
            Ok(())
        }
        .await;
        if outcome.is_ok() {
            failures = 0;
            continue;
        }
        failures += 1;
        if are_done && failures > 2 && setting.cluster.is_calm() || failures > 60 {
            break;
        }
        pause(&mut client, failures).await;
    }
    client.sleep(Duration::from_secs(60)).await;
    let both: Result<(f64, i32)> = async {
        let both = client.run(&[], &["now:0", "left:0"], &[]).await?;
        Ok((-both[0].to_scalar::<f64>()?, both[1].to_scalar::<i32>()?))
    }
    .await;
    let known = *book.lock();
    match both {
        Ok((total, left)) => {
            let given = total + f64::from(left);
            setting.check(given <= known.sent as f64, || format!("{given} gradients are there of {known:?}"));
            // Steps that time out take nothing; those that were cancelled or lost may have taken gradients.
            let may_be_lost = !setting.is_calm && known.failed_takes > 0 || setting.cluster.starts(0) > 1;
            setting.check(may_be_lost || given >= known.answered as f64, || {
                format!("only {given} gradients are there of {known:?}")
            });
        }
        Err(status) => setting.check(!setting.is_calm, || format!("the end can't be read: {status:?}")),
    }
    client.finish().await;
}

/// Runs a client on every worker, one of which is the chief.
pub async fn run(setting: Arc<Setting>) {
    let book = Arc::new(Mutex::new(Book::default()));
    let left = Arc::new(AtomicUsize::new(setting.num_workers()));
    let mut clients: Vec<BoxFuture<'static, ()>> = Vec::new();
    for number in 0..setting.num_workers() {
        clients.push(Box::pin(give(setting.clone(), number, book.clone(), left.clone())));
    }
    clients.push(Box::pin(lead(setting.clone(), book.clone(), left.clone())));
    all(&setting, clients).await;
}
