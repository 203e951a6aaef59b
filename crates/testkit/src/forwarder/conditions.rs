//! The conditions that packets to or from a host meet, and the commands that change them.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// A part of all packets, in millionths.
const WHOLE: f64 = 1e6;

/// The longest delay, for one direction of one host.
const DELAY_MS_MAX: f64 = 60_000.0;

/// The conditions of one direction of a host. They may change at any time.
#[derive(Debug, Default)]
pub struct Conditions {
    delay_micros: AtomicU64,
    loss_millionths: AtomicU32,
    is_cut: AtomicBool,
}

impl Conditions {
    /// Returns the delay of packets.
    pub fn delay(&self) -> Duration {
        Duration::from_micros(self.delay_micros.load(Ordering::Relaxed))
    }

    /// Returns whether nothing gets through.
    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// Returns whether a packet is lost, given a random number.
    pub fn loses(&self, random: u64) -> bool {
        let loss = self.loss_millionths.load(Ordering::Relaxed);
        loss > 0 && random % (WHOLE as u64) < u64::from(loss)
    }

    fn apply(&self, change: &Change) {
        if let Some(delay) = change.delay_micros {
            self.delay_micros.store(delay, Ordering::Relaxed);
        }
        if let Some(loss) = change.loss_millionths {
            self.loss_millionths.store(loss, Ordering::Relaxed);
        }
        if let Some(is_cut) = change.is_cut {
            self.is_cut.store(is_cut, Ordering::Relaxed);
        }
    }
}

/// Both directions of a host.
#[derive(Debug, Default)]
pub struct Directions {
    /// What the host receives.
    pub inward: Conditions,
    /// What the host sends.
    pub outward: Conditions,
}

/// A change of conditions, in a command: `in|out|both [delay_ms=N] [loss=PART] [cut=yes|no]`.
#[derive(Debug, PartialEq)]
pub struct Change {
    is_inward: bool,
    is_outward: bool,
    delay_micros: Option<u64>,
    loss_millionths: Option<u32>,
    is_cut: Option<bool>,
}

impl Change {
    /// Parses the words of a command that follow the name of the host.
    pub fn parse(words: &[&str]) -> Result<Change, String> {
        let Some((direction, settings)) = words.split_first() else { return Err("which direction?".to_owned()) };
        let (is_inward, is_outward) = match *direction {
            "in" => (true, false),
            "out" => (false, true),
            "both" => (true, true),
            other => return Err(format!("`{other}` is no direction: in, out or both")),
        };
        let mut change = Change { is_inward, is_outward, delay_micros: None, loss_millionths: None, is_cut: None };
        for setting in settings {
            let Some((name, value)) = setting.split_once('=') else { return Err(format!("`{setting}` sets nothing")) };
            let number = |most: f64| {
                let number = value.parse::<f64>().ok().filter(|number| (0.0..=most).contains(number));
                number.ok_or_else(|| format!("{name} is a number from 0 to {most}, not `{value}`"))
            };
            match (name, value) {
                ("delay_ms", _) => change.delay_micros = Some((number(DELAY_MS_MAX)? * 1e3) as u64),
                ("loss", _) => change.loss_millionths = Some((number(1.0)? * WHOLE) as u32),
                ("cut", "yes") => change.is_cut = Some(true),
                ("cut", "no") => change.is_cut = Some(false),
                _ => return Err(format!("`{setting}` is none of delay_ms=N, loss=PART, cut=yes, cut=no")),
            }
        }
        Ok(change)
    }

    /// Changes the conditions of a host.
    pub fn apply(&self, directions: &Directions) {
        if self.is_inward {
            directions.inward.apply(self);
        }
        if self.is_outward {
            directions.outward.apply(self);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_of_the_directions_and_settings_that_it_names() {
        let host = Directions::default();
        Change::parse(&["both", "delay_ms=2.5", "loss=0.25"]).unwrap().apply(&host);
        Change::parse(&["in", "cut=yes", "delay_ms=0"]).unwrap().apply(&host);
        assert_eq!((host.inward.delay(), host.outward.delay()), (Duration::ZERO, Duration::from_micros(2500)));
        assert!(host.inward.is_cut() && !host.outward.is_cut());
        assert!(host.outward.loses(249_999) && !host.outward.loses(250_000));
        Change::parse(&["in", "cut=no"]).unwrap().apply(&host);
        assert!(!host.inward.is_cut() && host.inward.loses(1_000_001));
    }

    #[test]
    fn a_command_that_is_none_is_refused_by_what_is_wrong_with_it() {
        for (words, part) in [
            (&[][..], "which direction"),
            (&["up"], "in, out or both"),
            (&["in", "loss"], "sets nothing"),
            (&["in", "loss=2"], "from 0 to 1"),
            (&["in", "delay_ms=NaN"], "not `NaN`"),
            (&["in", "cut=maybe"], "cut=yes"),
        ] {
            let refused = Change::parse(words).unwrap_err();
            assert!(refused.contains(part), "{words:?}: {refused}");
        }
    }
}
