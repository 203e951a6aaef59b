//! Runs steps of a GraphDef in this process and prints how many a second: our side of `cargo xtask bench core`.
//!
//! `step_rate GRAPH.pb [--init NODE]… [--feed NAME=TENSOR.pb]… [--fetch NAME]… [--target NODE]…` reads a number of seconds
//! per line from the standard input, runs for that long, and answers with the steps per second; with `--check` it prints
//! the sums of the fetched values after one step instead.

use ferroflow::session::{ClientSession, RunOptions, SessionBackend};
use ferroflow::{Result, Status, Tensor};
use proto::Message;
use std::io::BufRead;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut graph = None;
    let (mut init, mut feeds, mut fetches, mut targets) = (vec![], vec![], vec![], vec![]);
    let mut check = false;
    while let Some(argument) = arguments.next() {
        let mut value =
            || arguments.next().ok_or_else(|| Status::invalid_argument(format!("{argument} needs a value")));
        match argument.as_str() {
            "--init" => init.push(value()?),
            "--feed" => feeds.push(read_feed(&value()?)?),
            "--fetch" => fetches.push(value()?),
            "--target" => targets.push(value()?),
            "--check" => check = true,
            path => graph = Some(path.to_owned()),
        }
    }
    let graph = graph.ok_or_else(|| Status::invalid_argument("which graph?"))?;
    let session = ClientSession::local(ops::registry(), proto::ConfigProto::default())?;
    session.extend(&decode(&read(&graph)?)?)?;
    let options = RunOptions::default();
    let init: Vec<&str> = init.iter().map(String::as_str).collect();
    if !init.is_empty() {
        session.run(&options, &[], &[], &init)?;
    }
    let fetches: Vec<&str> = fetches.iter().map(String::as_str).collect();
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    let step = || {
        let feeds: Vec<(&str, Tensor)> = feeds.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        session.run(&options, &feeds, &fetches, &targets)
    };
    if check {
        for value in step()?.0 {
            println!("{}", value.as_slice::<f32>()?.iter().map(|&x| f64::from(x)).sum::<f64>());
        }
        return Ok(());
    }
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| Status::unknown(error.to_string()))?;
        let seconds: f64 = line.trim().parse().map_err(|_| Status::invalid_argument("seconds per line, please"))?;
        println!("{}", rate(&step, Duration::from_secs_f64(seconds))?);
    }
    Ok(())
}

fn rate<R>(step: &impl Fn() -> Result<R>, time: Duration) -> Result<f64> {
    let start = Instant::now();
    let mut steps = 0u64;
    while start.elapsed() < time {
        step()?;
        steps += 1;
    }
    Ok(steps as f64 / start.elapsed().as_secs_f64())
}

fn read_feed(argument: &str) -> Result<(String, Tensor)> {
    let (name, path) = argument.split_once('=').ok_or_else(|| Status::invalid_argument("--feed NAME=FILE"))?;
    Ok((name.to_owned(), tensor::tensor_from_proto(&decode(&read(path)?)?)?))
}

fn read(path: &str) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Status::not_found(format!("{path}: {error}")))
}

fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M> {
    M::decode(bytes).map_err(|error| Status::invalid_argument(error.to_string()))
}
