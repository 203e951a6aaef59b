//! A thousand seeds of the simulation, and that a seed does the same again.

use std::sync::atomic::{AtomicU64, Ordering};
use testkit::simulation::{Outcome, run_seed};

const SEEDS: u64 = 1000;

/// Runs seeds on as many threads as there are cores; returns those that found something.
fn run(seeds: u64) -> Vec<Outcome> {
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let run_some = || {
            let seeds = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < seeds));
            seeds.map(run_seed).filter(|outcome| !outcome.findings.is_empty()).collect::<Vec<_>>()
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(run_some)).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("a simulation ends")).collect()
    })
}

#[test]
fn a_thousand_seeds_find_nothing() {
    let found = run(SEEDS);
    let shown: Vec<String> = found
        .iter()
        .map(|outcome| {
            let (seed, workload) = (outcome.seed, outcome.workload);
            format!(
                "seed {seed} ({workload}; `cargo xtask simulate --seed {seed}`):\n    {}",
                outcome.findings.join("\n    ")
            )
        })
        .collect();
    assert!(found.is_empty(), "{} of {SEEDS} seeds found something:\n{}", found.len(), shown.join("\n"));
}

#[test]
fn a_seed_does_the_same_again() {
    for seed in 0..40 {
        let (first, second) = (run_seed(seed), run_seed(seed));
        assert_eq!(first, second, "seed {seed}");
        assert!(first.steps > 100, "seed {seed} does nothing");
    }
}
