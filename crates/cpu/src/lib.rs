//! The instruction set that loops use: the best that the processor has, or a lower one set by `FERROFLOW_CPU`.
//!
//! Only this crate detects the processor's features. Loops are compiled for each [`Level`], by `cpu_macros::each_level` or by
//! hand where the registers matter, and call [`level`] to choose.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

/// The environment variable that lowers the level, for tests and for comparing results between machines.
pub const VARIABLE: &str = "FERROFLOW_CPU";

/// The instruction sets that loops are compiled for, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The instructions that every processor of the architecture has.
    Baseline,
    /// AVX2 with FMA, BMI1, BMI2 and F16C, on x86-64.
    Avx2,
    /// AVX-512F with BW, CD, DQ and VL, and everything in [`Level::Avx2`].
    Avx512,
}

impl Level {
    const ALL: [Level; 3] = [Level::Baseline, Level::Avx2, Level::Avx512];

    /// Returns the name of the level in `FERROFLOW_CPU`.
    pub fn name(self) -> &'static str {
        match self {
            Level::Baseline => "baseline",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the levels that this processor has.
pub fn available() -> &'static [Level] {
    &Level::ALL[..=detected() as usize]
}

/// Returns the level in use.
///
/// It does not change while the process runs. If `FERROFLOW_CPU` has a value that [`requested`] rejects, it is the processor's
/// best.
#[inline]
pub fn level() -> Level {
    match CHOSEN.load(Ordering::Relaxed) {
        0 => Level::Baseline,
        1 => Level::Avx2,
        2 => Level::Avx512,
        _ => choose(),
    }
}

/// Returns whether loops compiled for [`Level::Avx2`] can run. On other architectures, these loops are compiled for the
/// baseline, so the answer is yes.
// Not inlined, since every loop for every type calls it.
#[inline(never)]
pub fn is_wide() -> bool {
    cfg!(not(target_arch = "x86_64")) || level() >= Level::Avx2
}

/// Returns whether loops compiled for [`Level::Avx512`] can run.
#[inline(never)]
pub fn is_widest() -> bool {
    level() >= Level::Avx512
}

/// Returns the level that `FERROFLOW_CPU` requests, the best one if it is not set, or an error message if it is invalid.
pub fn requested() -> Result<Level, String> {
    match std::env::var_os(VARIABLE) {
        Some(value) if !value.is_empty() => parse(&value.to_string_lossy(), detected()),
        _ => Ok(detected()),
    }
}

/// The level as a number, or [`UNKNOWN`] before the first call of [`level`].
static CHOSEN: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = u8::MAX;

#[cold]
fn choose() -> Level {
    let chosen = requested().unwrap_or_else(|_| detected());
    CHOSEN.store(chosen as u8, Ordering::Relaxed);
    chosen
}

fn parse(value: &str, best: Level) -> Result<Level, String> {
    let names = |levels: &[Level]| levels.iter().map(|level| level.name()).collect::<Vec<_>>().join(", ");
    let Some(level) = Level::ALL.into_iter().find(|level| level.name() == value) else {
        return Err(format!("{VARIABLE}={value} is not a level of instructions; there are: {}", names(&Level::ALL)));
    };
    if level > best {
        let had = names(&Level::ALL[..=best as usize]);
        return Err(format!("{VARIABLE}={value} asks for what this processor does not have; it has: {had}"));
    }
    Ok(level)
}

fn detected() -> Level {
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("f16c");
        match avx2 {
            true if has_avx512() => Level::Avx512,
            true => Level::Avx2,
            false => Level::Baseline,
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    Level::Baseline
}

/// All processors with AVX-512 have these except the Xeon Phi, which has only the first and the third.
#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512cd")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes sure that a test run for one level does not silently test another.
    #[test]
    fn the_level_in_use_is_the_one_that_was_asked_for() {
        assert_eq!(Ok(level()), requested());
    }

    #[test]
    fn levels_are_known_by_their_names() {
        for level in Level::ALL {
            assert_eq!(parse(level.name(), Level::Avx512), Ok(level));
        }
    }

    #[test]
    fn wrong_levels_are_refused_with_those_that_there_are() {
        let unknown = parse("sse9", Level::Avx2).expect_err("no such level");
        assert!(unknown.contains("sse9") && unknown.contains("baseline, avx2, avx512"), "{unknown}");
        let missing = parse("avx512", Level::Avx2).expect_err("not on this processor");
        assert!(missing.ends_with("it has: baseline, avx2"), "{missing}");
    }
}
