//! Partial runs and callables: each result belongs to its own feeds.

use super::{Setting, all, graph, pause};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tensor::{Result, Tensor};

const ROUNDS: u32 = 4;

fn text(worker: usize) -> String {
    format!(
        "a = Placeholder() {{dtype=double}} @/job:worker/task:{worker}
         b = Placeholder() {{dtype=double}} @/job:ps/task:0
         c = Placeholder() {{dtype=double}} @/job:ps/task:0
         sum = AddV2(a, b) @/job:worker/task:{worker}
         product = Mul(sum, c) @/job:ps/task:0"
    )
}

async fn use_parts(setting: Arc<Setting>, number: usize) {
    let mut client = setting.client(number, &graph(&text(number % setting.num_workers())));
    if client.random.one_of_thousand(600) {
        client = client.with_timeout(Duration::from_secs(4));
    }
    let mut callable: Option<i64> = None;
    for round in 0..ROUNDS {
        let values: [f64; 3] = std::array::from_fn(|_| client.random.below(1000) as f64);
        let [a, b, c] = values.map(Tensor::scalar);
        let outcome: Result<()> = async {
            match client.random.below(3) {
                0 => {
                    let handle = client.partial_run_setup(&["a:0", "b:0", "c:0"], &["sum:0", "product:0"]).await?;
                    let sum = client.run_part(&handle, &[("a:0", a), ("b:0", b)], &["sum:0"]).await?;
                    setting.check(sum[0].to_scalar() == Ok(values[0] + values[1]), || format!("a sum is {sum:?}"));
                    // A client may abandon a partial run.
                    if client.random.one_of_thousand(250) {
                        setting.cluster.count("partial runs left open");
                        return Ok(());
                    }
                    let product = client.run_part(&handle, &[("c:0", c)], &["product:0"]).await?;
                    let expected = (values[0] + values[1]) * values[2];
                    setting.check(product[0].to_scalar() == Ok(expected), || format!("a product is {product:?}"));
                }
                1 => {
                    let handle = match callable {
                        Some(handle) => handle,
                        None => client.make_callable(&["a:0", "b:0", "c:0"], &["product:0"]).await?,
                    };
                    callable = None;
                    let product = client.run_callable(handle, vec![a, b, c]).await?;
                    let expected = (values[0] + values[1]) * values[2];
                    setting.check(product[0].to_scalar() == Ok(expected), || format!("a product is {product:?}"));
                    if client.random.one_of_thousand(500) {
                        client.release_callable(handle).await?;
                    } else {
                        callable = Some(handle);
                    }
                }
                _ => {
                    let feeds = [("a:0", a), ("b:0", b), ("c:0", c)];
                    let both = client.run(&feeds, &["sum:0", "product:0"], &[]).await?;
                    setting.check(both[0].to_scalar() == Ok(values[0] + values[1]), || format!("a sum is {both:?}"));
                }
            }
            Ok(())
        }
        .await;
        if let Err(status) = outcome {
            callable = None;
            setting.check(!setting.is_calm, || format!("a part failed without a fault: {status:?}"));
            pause(&mut client, 2 * round).await;
        }
    }
    setting.cluster.calm().await;
    client.finish().await;
}

/// Runs clients that use partial runs and callables.
pub async fn run(setting: Arc<Setting>) {
    let clients = (0..setting.num_workers())
        .map(|number| Box::pin(use_parts(setting.clone(), number)) as BoxFuture<'static, ()>)
        .collect();
    all(&setting, clients).await;
}
