//! Checkpoints: a ps saves to a disk that loses data that was not synced, and its machine dies between any two writes. A checkpoint whose
//! save was answered can be restored, and every checkpoint that can be restored is one that was saved, and complete.

use super::{Setting, doubles, graph, pause};
use crate::simulation::client::Client;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tensor::{Code, Result, Shape, Tensor};

const SAVES: u32 = 6;

/// The length of each of the two tensors of a checkpoint.
const ELEMENTS: usize = 40;

const TEXT: &str = r#"
    prefix = Placeholder() {dtype=string} @/job:ps/task:0
    part0 = Placeholder() {dtype=string} @/job:ps/task:0
    part1 = Placeholder() {dtype=string} @/job:ps/task:0
    parts = Placeholder() {dtype=string} @/job:ps/task:0
    names0 = Placeholder() {dtype=string} @/job:ps/task:0
    names1 = Placeholder() {dtype=string} @/job:ps/task:0
    names = Placeholder() {dtype=string} @/job:ps/task:0
    slice = Placeholder() {dtype=string} @/job:ps/task:0
    slices = Placeholder() {dtype=string} @/job:ps/task:0
    x = Placeholder() {dtype=double} @/job:ps/task:0
    save = SaveV2(prefix, names, slices, x, x) {dtypes=[double, double]} @/job:ps/task:0
    save0 = SaveV2(part0, names0, slice, x) {dtypes=[double]} @/job:ps/task:0
    save1 = SaveV2(part1, names1, slice, x) {dtypes=[double]} @/job:ps/task:0
    merge = MergeV2Checkpoints(parts, prefix, ^save0, ^save1) @/job:ps/task:0
    restore = RestoreV2(prefix, names, slices) {dtypes=[double, double]} @/job:ps/task:0
    a = Neg(restore:0) @/job:worker/task:0
    b = Neg(restore:1) @/job:worker/task:0
"#;

/// The known state of a checkpoint.
#[derive(Clone, Debug, Default)]
struct Known {
    /// The last save that was answered.
    answered: Option<u32>,
    /// Saves that ended with an error; each may have completed at any time.
    failed: BTreeSet<u32>,
}

fn strings(texts: &[&str]) -> Tensor {
    let texts: Vec<_> = texts.iter().map(|text| text.as_bytes().to_vec().into()).collect();
    Tensor::from_strings(Shape::vector(texts.len()), texts).expect("as many strings as there are")
}

fn text(text: &str) -> Tensor {
    Tensor::string(text.as_bytes().to_vec())
}

async fn save(client: &mut Client, prefix: &str, number: u32, in_parts: bool) -> Result<()> {
    let x = Tensor::vector(&[f64::from(number); ELEMENTS]);
    let names = [("names:0", strings(&["a", "b"])), ("slices:0", strings(&["", ""])), ("x:0", x.clone())];
    if !in_parts {
        let [names, slices, x] = names;
        return client.run(&[("prefix:0", text(prefix)), names, slices, x], &[], &["save"]).await.map(drop);
    }
    let parts = [0, 1].map(|part| format!("{prefix}_temp_{number}/part-0000{part}-of-00002"));
    let feeds = [
        ("prefix:0", text(prefix)),
        ("part0:0", text(&parts[0])),
        ("part1:0", text(&parts[1])),
        ("parts:0", strings(&[&parts[0], &parts[1]])),
        ("names0:0", strings(&["a"])),
        ("names1:0", strings(&["b"])),
        ("slice:0", strings(&[""])),
        ("x:0", x),
    ];
    client.run(&feeds, &[], &["merge"]).await.map(drop)
}

async fn restore(client: &mut Client, prefix: &str) -> Result<(Vec<f64>, Vec<f64>)> {
    let feeds = [("prefix:0", text(prefix)), ("names:0", strings(&["a", "b"])), ("slices:0", strings(&["", ""]))];
    let both = client.run(&feeds, &["a:0", "b:0"], &[]).await?;
    Ok((doubles(&both[0]), doubles(&both[1])))
}

async fn check(setting: &Setting, client: &mut Client, prefix: &str, known: &Known) {
    let restored = restore(client, prefix).await;
    match restored {
        Ok((a, b)) => {
            let number = -a.first().copied().unwrap_or_default();
            let is_whole = a.iter().chain(&b).all(|value| *value == -number) && a.len() + b.len() == 2 * ELEMENTS;
            setting.check(is_whole, || format!("{prefix} is a mixture: {a:?} and {b:?}"));
            let is_known = known.answered.map(f64::from) == Some(number)
                || known.failed.iter().any(|failed| f64::from(*failed) == number);
            setting.check(is_known, || format!("{prefix} holds save {number}, and not one of {known:?}"));
        }
        Err(status)
            if matches!(
                status.code(),
                Code::Unavailable | Code::Aborted | Code::Cancelled | Code::DeadlineExceeded
            ) =>
        {
            setting.check(!setting.cluster.is_calm() || !setting.is_calm, || format!("{prefix}: {status:?}"));
        }
        Err(status) => setting.check(known.answered.is_none(), || {
            format!("{prefix} can't be restored, though its save was answered ({known:?}): {status:?}")
        }),
    }
}

/// Saves, makes the machine die, and checks what is left.
pub async fn run(setting: Arc<Setting>) {
    let mut client = setting.client(0, &graph(TEXT)).with_timeout(Duration::from_secs(20));
    let mut random = setting.random("checkpoints");
    let mut known: BTreeMap<String, Known> = BTreeMap::new();
    let num_prefixes = 1 + random.below(3);
    for number in 1..=SAVES {
        let prefix = format!("sim://0/run/model-{}", number as usize % num_prefixes);
        if !setting.is_calm && random.one_of_thousand(400) {
            setting.cluster.disks.die_after(0, random.between(0, 18));
        }
        let in_parts = random.one_of_thousand(500);
        let outcome = save(&mut client, &prefix, number, in_parts).await;
        let entry = known.entry(prefix.clone()).or_default();
        match outcome {
            Ok(()) => entry.answered = Some(number),
            Err(status) => {
                entry.failed.insert(number);
                setting.check(!setting.is_calm, || format!("a save failed without a fault: {status:?}"));
                pause(&mut client, 6).await;
            }
        }
        if random.one_of_thousand(300) {
            let entry = entry.clone();
            check(&setting, &mut client, &prefix, &entry).await;
        }
    }
    setting.cluster.calm().await;
    setting.check_steps().await;
    // A machine that was to die at some write does so now.
    if !setting.is_calm && random.one_of_thousand(500) {
        setting.cluster.kill(0, true);
        setting.cluster.restart_after(0, Duration::from_millis(10));
    }
    client.sleep(Duration::from_secs(60)).await;
    setting.cluster.calm().await;
    client.finish().await;
    for (prefix, known) in known {
        // The first step after a restart may use a session from before it.
        let _ = client
            .run(
                &[
                    ("prefix:0", text("sim://0/none")),
                    ("names:0", strings(&["a", "b"])),
                    ("slices:0", strings(&["", ""])),
                ],
                &["a:0"],
                &[],
            )
            .await;
        check(&setting, &mut client, &prefix, &known).await;
    }
    client.finish().await;
}
