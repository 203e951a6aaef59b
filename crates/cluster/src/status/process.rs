//! The kernel's statistics of this process.

/// The resources that the process has used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProcessUsage {
    /// Seconds of processor time, in user mode and in the kernel.
    pub cpu_seconds: f64,
    /// Bytes that it has in memory.
    pub resident_bytes: u64,
}

/// The fields of `/proc/self/stat` after the program's name, by their numbers in the manual minus three.
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;

/// The kernel's unit for processor time in `/proc`.
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns the resources that this process has used; zeros if the system doesn't say.
pub(super) fn usage() -> ProcessUsage {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    parse(&read("/proc/self/stat"), &read("/proc/self/status"))
}

fn parse(stat: &str, status: &str) -> ProcessUsage {
    // The name may contain anything, including parentheses.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let number = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident_kib = resident.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
    ProcessUsage {
        cpu_seconds: (number(USER_TICKS) + number(SYSTEM_TICKS)) as f64 / TICKS_PER_SECOND,
        resident_bytes: resident_kib << 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_moves_no_field() {
        let stat =
            "7 (a) (b c) S 1 1 1 0 -1 4194560 1 0 0 0 300 200 0 0 20 0 4 0 100 1000000 50 18446744073709551615 1";
        let usage = parse(stat, "Name:\ta\nVmRSS:\t    200 kB\n");
        assert_eq!((usage.cpu_seconds, usage.resident_bytes), (5.0, 200 << 10));
        assert!(super::usage().resident_bytes > 0);
    }
}
