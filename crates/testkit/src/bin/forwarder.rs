//! Forwards packets between network namespaces: `forwarder [--offload] [--seed N] NAME=ADDRESS…` creates a TUN device for each name,
//! prints `ready`, then reads commands from standard input, one per line, and answers each with a line. It exits at the end of its
//! input. See `testkit::forwarder`.

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use std::io::Write;

    let (mut hosts, mut has_offload, mut seed) = (Vec::new(), false, 1u64);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), argument.split_once('=')) {
            ("--offload", _) => has_offload = true,
            ("--seed", _) => seed = arguments.next().ok_or("--seed needs a number")?.parse()?,
            (_, Some((name, address))) => hosts.push((name.to_owned(), address.parse()?)),
            (unknown, None) => return Err(format!("unknown argument `{unknown}`").into()),
        }
    }
    let forwarder = testkit::forwarder::Forwarder::start(&hosts, has_offload, seed)?;
    let mut output = std::io::stdout().lock();
    writeln!(output, "ready")?;
    for line in std::io::stdin().lines() {
        match forwarder.command(&line?) {
            Ok(answer) => writeln!(output, "{answer}")?,
            Err(message) => writeln!(output, "error: {message}")?,
        }
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("forwarder: there are TUN devices and network namespaces only on Linux");
    std::process::exit(1);
}
