//! Automation: `cargo xtask help` lists the commands.

mod bench;
mod browser;
mod chaos;
mod dist;
mod fresh;
mod fuzz;
mod interop;
mod levels;
mod manifests;
mod process;
mod release;
mod sanitize;
mod simulate;
mod test;
#[cfg(test)]
mod tidy;
mod venv;
mod wheel;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask COMMAND

  test [--quick] [--filter X] [--rust-only | --interop-only]
        Runs every check: format, clippy, packages, Rust tests, those of arithmetic again at every level of
        instructions below FERROFLOW_CPU, doc tests, and the tests against real TensorFlow. --quick leaves out the interop tests marked slow. --filter runs the tests
        whose name contains X.
  interop [-- PYTEST ARGUMENTS]
        Sets up the venv, builds the binary and runs pytest on tests/interop, in two processes;
        with -n 0 in one, as a debugger needs it.
  opdef OP...
        Prints TensorFlow's definition of each op as the literal that crates/ops holds.
  bench [PART [-- ARGUMENTS]]
        Builds the release binary and measures it beside TensorFlow, all parts or one of them:
        cluster, rust, core, data, sessions, sweep, bandwidth. Writes bench/results and
        docs/performance.md; FERROFLOW_BENCH_SECONDS and FERROFLOW_BENCH_ROUNDS say how long,
        FERROFLOW_BENCH_OUTPUT=DIR puts results and page elsewhere.
  bench peers [-- PEERS]
        Builds the same models in burn, candle and tch, in a workspace of their own below bench/peers,
        and measures them, TensorFlow's local session, PyTorch where it is installed, and ours. Writes
        docs/peers.md; FERROFLOW_BENCH_JOBS says how many jobs a build has.
  bench tls [-- --megabytes N]
        Measures what encryption, the proxy and the flight recorder cost, beside the bounds that they have.
        Writes bench/results/tls.json.
  bench network [-- --rates=GBIT,… --delays=MS,… CASES]
        Measures 1 ps and 2 workers on hosts of their own (network namespaces): links of 1, 10 and 25 Gbit/s, delays of
        0, 0.5 and 5 ms in each round trip, beside TensorFlow's servers. Where the system allows no namespaces, it says so. Writes
        bench/results/network.json and, when run whole, a section of docs/performance.md.
  bench allreduce [-- --ranks=N,… --bytes=N,…]
        Measures an all-reduce among ranks that are processes of this machine, beside TensorFlow's, and PyTorch's gloo
        and OpenMPI's where they are installed. Writes docs/allreduce.md.
  bench --against OLD_BINARY [cluster] [core] [-- CASES]
        Measures the release build beside another binary of ours, in at least 15 pairs a case, and
        fails where the 95 % interval of the ratio lies wholly below 0.97. core needs the example
        step_rate beside the old binary.
  fuzz [--seconds N] [--seed N]
        Runs random graphs on an embedded server: nothing may panic or hang.
  fuzz TARGET... | all [--seconds N] [--seed N]
        Gives changed bytes to what takes some from outside: tensor-proto, graph-def, text-format, checkpoint,
        records, events, rpc, stream, saved-model. Inputs with an outcome of their own are kept below target/fuzz.
  attack [--seconds N] [--rounds N]
        Attacks a release build in every known way at once, twice, while a real client trains on it.
        As root the attackers are another user. Fails when the training, a server, a descriptor or
        memory is lost.
  chaos [--minutes N] [--seed N] [--only TEXT]
        Trains on a release build, 2 ps and 4 workers on hosts of their own (network namespaces), while tasks are
        killed and stopped and hosts are cut off, for ten minutes; --only chooses faults by their names. Fails when an
        update is lost or applied twice, a host that is cut off goes unnoticed for 15 s, or memory or descriptors grow.
        Needs root or namespaces for users, and /dev/net/tun; elsewhere it says so and does nothing. A run of five
        minutes or more writes its table into docs/faults.md.
  simulate [--seeds N] [--from N] [--seed N]
        Runs whole clusters on one thread each, on a clock of their own, with faults that a seed decides: 1,000
        seeds after those that were run before, or from one on; --seed runs one again and shows what it found.
        What was found is kept in target/simulation/tally.tsv.
  s3 [-- PYTEST_ARGUMENTS]
        Runs the tests of stores of objects against moto's S3 server, which it installs below target/.
  release-check
        Packs every crate and builds it from its package alone, builds ferroflow without its features,
        installs the binary as a user would, runs README's program in a new project, here and on a server,
        looks at the status page in a browser, saves checkpoints on an S3 server, and makes the
        documentation without a warning.
  browser
        Starts README's cluster with certificates from a release build, and looks at its status page in
        Chromium: light, dark and on a phone. Screenshots are below target/browser.
  wheel [--dev]
        Builds a Python wheel with the binary and the module into dist/, installs it into a new environment
        and runs it there. --dev takes a development build, which is quicker.
  release
        Makes everything that is given to users into dist/: a tarball, the wheel, a Debian package, a
        container image, a list of what is inside (SBOM) and checksums. What can't be made here is said.
  sanitize [NAME]
        Runs the unit tests of tensor buffers, streams and shared memory, or those whose name contains NAME,
        under AddressSanitizer.
  ops-document
        Writes docs/ops.md from the binary and the cases of the differential tests.
  proxy --listen PORT --to HOST:PORT
        Records the gRPC calls between two tasks.
  python ARGUMENTS
        Runs the venv's Python with the environment of the interop tests.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    let result = match command {
        "test" => test::run(rest),
        "interop" => interop::run_pytest(after_dashes(rest)),
        "opdef" => interop::run_script("opdef.py", rest),
        "fuzz" => fuzz::run(rest),
        "attack" => interop::run_attack(after_dashes(rest)),
        "chaos" => chaos::run(after_dashes(rest)),
        "ops-document" => interop::run_document(),
        "proxy" => interop::run_script("wire_proxy.py", rest),
        "python" => interop::run_python(rest),
        "bench" => bench::run(rest),
        "release-check" => release::check(rest),
        "browser" => browser::run(rest),
        "simulate" => simulate::run(rest),
        "s3" => interop::run_s3(after_dashes(rest)),
        "sanitize" => sanitize::run(rest),
        "wheel" => wheel::run(rest),
        "release" => dist::run(rest),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        unknown => Err(format!("unknown command `{unknown}`\n\n{HELP}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            if !message.is_empty() {
                eprintln!("xtask: {message}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Returns the arguments without a leading `--`, which users of cargo may write.
fn after_dashes(arguments: &[String]) -> &[String] {
    match arguments.split_first() {
        Some((first, rest)) if first == "--" => rest,
        _ => arguments,
    }
}
