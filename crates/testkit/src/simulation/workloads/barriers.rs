//! Barriers: keys get their two values in separate steps, and are taken when both are there, each once and with the right values.

use super::{Setting, all, graph, pause};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tensor::{Code, Result, Shape, Tensor};

const KEYS: u64 = 4;
const ATTEMPTS_MAX: u64 = 20;

fn text(worker: usize) -> String {
    format!(
        "keys = Placeholder() {{dtype=string}} @/job:worker/task:{worker}
         x = Placeholder() {{dtype=int64}} @/job:worker/task:{worker}
         one = Placeholder() {{dtype=int32}} @/job:worker/task:{worker}
         barrier = Barrier() {{component_types=[int64, int64], shapes=[[], []], shared_name=\"barrier\"}} @/job:ps/task:0
         insert0 = BarrierInsertMany(barrier, keys, x) {{T=int64, component_index=0}} @/job:ps/task:0
         insert1 = BarrierInsertMany(barrier, keys, x) {{T=int64, component_index=1}} @/job:ps/task:0
         take = BarrierTakeMany(barrier, one) {{component_types=[int64, int64]}} @/job:ps/task:0
         first = Neg(take:2) @/job:worker/task:{worker}
         second = Neg(take:3) @/job:worker/task:{worker}"
    )
}

async fn insert(setting: Arc<Setting>, number: usize, sent: Arc<Mutex<BTreeSet<i64>>>, left: Arc<AtomicUsize>) {
    let mut client = setting.client(number, &graph(&text(number % setting.num_workers())));
    client = client.with_timeout(Duration::from_secs(5));
    let (mut done, mut attempts) = (0, 0);
    while done < KEYS && attempts < ATTEMPTS_MAX {
        attempts += 1;
        let value = (number as i64 + 1) * 1000 + attempts as i64;
        sent.lock().insert(value);
        let key = Tensor::from_strings(Shape::vector(1), vec![value.to_string().into_bytes().into()]);
        let outcome: Result<()> = async {
            let key = key?;
            let mut targets = ["insert0", "insert1"];
            if client.random.one_of_thousand(500) {
                targets.reverse();
            }
            for target in targets {
                let feeds = [("keys:0", key.clone()), ("x:0", Tensor::vector(&[value]))];
                client.run(&feeds, &[], &[target]).await?;
            }
            Ok(())
        }
        .await;
        match outcome {
            Ok(()) => done += 1,
            Err(status) => {
                setting.check(!setting.is_calm, || format!("an insertion failed without a fault: {status:?}"));
                pause(&mut client, attempts as u32).await;
            }
        }
    }
    client.finish().await;
    left.fetch_sub(1, Ordering::AcqRel);
}

/// Runs a client that inserts, and one that takes.
pub async fn run(setting: Arc<Setting>) {
    let sent = Arc::new(Mutex::new(BTreeSet::new()));
    let left = Arc::new(AtomicUsize::new(1));
    let taking = {
        let (setting, sent, left) = (setting.clone(), sent.clone(), left.clone());
        async move {
            let mut client = setting.client(1, &graph(&text(1 % setting.num_workers())));
            client = client.with_timeout(Duration::from_secs(2));
            let mut taken = BTreeSet::new();
            let mut failures = 0;
            loop {
                let are_done = left.load(Ordering::Acquire) == 0;
                let outcome = client.run(&[("one:0", Tensor::scalar(1i32))], &["first:0", "second:0"], &[]).await;
                match outcome {
                    Ok(values) => {
                        failures = 0;
                        let value = |index: usize| -values[index].as_slice::<i64>().map_or(0, |values| values[0]);
                        setting.check(value(0) == value(1), || format!("a key has {} and {}", value(0), value(1)));
                        setting.check(taken.insert(value(0)), || format!("{} was taken twice", value(0)));
                        setting.check(sent.lock().contains(&value(0)), || format!("nobody inserted {}", value(0)));
                    }
                    Err(status) => {
                        setting.check(!setting.is_calm || status.code() == Code::DeadlineExceeded, || {
                            format!("taking failed without a fault: {status:?}")
                        });
                        failures += 1;
                        if are_done && failures > 2 && setting.cluster.is_calm() || failures > 60 {
                            break;
                        }
                        pause(&mut client, failures).await;
                    }
                }
            }
            setting.check(!setting.is_calm || taken.len() as u64 == KEYS, || {
                format!("without a fault {} of {KEYS} keys were taken", taken.len())
            });
            client.finish().await;
        }
    };
    let inserting = insert(setting.clone(), 0, sent, left);
    let clients: Vec<BoxFuture<'static, ()>> = vec![Box::pin(taking), Box::pin(inserting)];
    all(&setting, clients).await;
}
