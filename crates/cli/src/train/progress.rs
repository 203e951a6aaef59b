//! Shows the progress of training: a bar on a terminal, plain lines elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// A worker's report on its latest steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steps {
    /// The worker.
    pub task: u32,
    /// The number of steps since its last report.
    pub count: u64,
    /// The global step.
    pub step: i64,
    /// The loss of the latest step.
    pub loss: f32,
}

impl Steps {
    /// Returns the line for a parent process.
    pub fn to_line(self) -> String {
        format!("@steps {} {} {} {}", self.task, self.count, self.step, self.loss)
    }

    /// Parses the line of a child process.
    pub fn from_line(line: &str) -> Option<Steps> {
        let mut words = line.strip_prefix("@steps ")?.split(' ');
        let steps = Steps {
            task: words.next()?.parse().ok()?,
            count: words.next()?.parse().ok()?,
            step: words.next()?.parse().ok()?,
            loss: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(steps)
    }
}

/// Shows the progress of training.
pub struct Progress {
    start: Instant,
    /// The time of the last report.
    last_at: Option<Instant>,
    first_step: Option<i64>,
    last_step: i64,
    shares: Vec<u64>,
    whose: Whose,
    shown: Instant,
    bar: Option<ProgressBar>,
}

/// The workers whose steps are reported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Whose {
    /// All workers.
    All,
    /// One worker of a cluster.
    One {
        /// The worker.
        task: u32,
        /// The number of gradients of a global step.
        gradients: u64,
    },
}

/// The bar, almost as wide as the terminal. The cursor is three columns before the edge, which leaves room for the ^C that a terminal
/// prints; at the edge the line would wrap, and a part of the bar would stay on the screen.
const STYLE: &str = "{wide_bar} {pos}/{len} {msg} [{elapsed}, {eta} left]   \u{1b}[3D";

/// The bar at the end of training, without a remaining time.
const STYLE_ENDED: &str = "{wide_bar} {pos}/{len} {msg} [{elapsed}]";

/// The interval of lines if there is no terminal.
const INTERVAL: Duration = Duration::from_secs(1);

impl Progress {
    /// Starts to show the progress to a global step.
    pub fn new(last_step: i64, workers: u32, whose: Whose) -> Progress {
        let bar = std::io::stdout().is_terminal().then(|| {
            let length = u64::try_from(last_step).unwrap_or(0);
            let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stdout());
            bar.with_style(style(STYLE))
        });
        crate::log::print_above(bar.as_ref());
        Progress {
            start: Instant::now(),
            last_at: None,
            first_step: None,
            last_step,
            shares: vec![0; workers as usize],
            whose,
            shown: Instant::now(),
            bar,
        }
    }

    /// Shows a worker's report.
    pub fn take(&mut self, steps: Steps) {
        let first = *self.first_step.get_or_insert(steps.step.saturating_sub(steps.count as i64).max(0));
        self.last_at = Some(Instant::now());
        if let Some(share) = self.shares.get_mut(steps.task as usize) {
            *share += steps.count;
        }
        if self.bar.is_none() && self.shown.elapsed() < INTERVAL {
            return;
        }
        self.shown = Instant::now();
        let seconds = self.start.elapsed().as_secs_f64().max(1e-9);
        let done = steps.step.saturating_sub(first);
        let rate = done as f64 / seconds;
        let message = format!("loss {:.4}, {rate:.0} steps/s, {}", steps.loss, self.shares(done));
        match &self.bar {
            Some(bar) => {
                bar.set_position(u64::try_from(steps.step.min(self.last_step)).unwrap_or(0));
                bar.set_message(message);
            }
            None => {
                crate::say!("step {} of {}, {message}", steps.step, self.last_step);
                let _ = std::io::stdout().flush();
            }
        }
    }

    /// Returns each worker's share of the given number of global steps.
    fn shares(&self, done: i64) -> String {
        let percent = |part: u64, whole: u64| 100.0 * (part as f64 / whole.max(1) as f64).min(1.0);
        match self.whose {
            Whose::All => {
                let total = self.shares.iter().sum::<u64>();
                let shares: Vec<String> =
                    self.shares.iter().map(|&steps| format!("{:.0} %", percent(steps, total))).collect();
                format!("workers {}", shares.join(" "))
            }
            Whose::One { task, gradients } => {
                let own = self.shares.get(task as usize).copied().unwrap_or(0);
                let total = u64::try_from(done).unwrap_or(0).saturating_mul(gradients);
                format!("worker {task}'s share {:.0} %", percent(own, total))
            }
        }
    }

    /// Prints a line without disturbing the bar.
    pub fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => {
                crate::say!("{line}");
                let _ = std::io::stdout().flush();
            }
        }
    }

    /// Prints a line to standard error without disturbing the bar.
    pub fn complain(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            // A closed pipe must not end the training.
            None => drop(writeln!(std::io::stderr(), "{line}")),
        }
    }

    /// Ends the bar at the step that training has reached, or where it is, since training may have been interrupted.
    pub fn finish(&self, reached: Option<i64>) {
        if let Some(bar) = &self.bar {
            bar.set_style(style(STYLE_ENDED));
            if let Some(step) = reached {
                bar.set_position(u64::try_from(step.min(self.last_step)).unwrap_or(0));
            }
            bar.abandon();
            crate::log::print_above(None);
        }
    }

    /// Returns the number of steps up to a global step that were done since the start: earlier runs may have done the others.
    pub fn done_until(&self, step: i64) -> i64 {
        self.first_step.map_or(0, |first| step.saturating_sub(first).max(0))
    }

    /// Returns the seconds from the start to the last step.
    pub fn seconds(&self) -> f64 {
        self.last_at.map_or_else(|| self.start.elapsed(), |at| at.duration_since(self.start)).as_secs_f64()
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_all_and_of_one() {
        let mut all = Progress::new(100, 2, Whose::All);
        for (task, count) in [(0, 3), (1, 1)] {
            all.take(Steps { task, count, step: 4, loss: 0.5 });
        }
        assert_eq!(all.shares(4), "workers 75 % 25 %");
        for (gradients, expected) in [(1, "worker 1's share 50 %"), (2, "worker 1's share 25 %")] {
            let mut one = Progress::new(100, 2, Whose::One { task: 1, gradients });
            one.take(Steps { task: 1, count: 10, step: 20, loss: 0.5 });
            assert_eq!(one.shares(20), expected);
        }
    }

    #[test]
    fn only_the_steps_of_this_run_are_counted() {
        let mut progress = Progress::new(30_000, 1, Whose::All);
        assert_eq!(progress.done_until(20_000), 0);
        progress.take(Steps { task: 0, count: 2, step: 20_002, loss: 0.5 });
        assert_eq!(progress.done_until(20_100), 100);
    }

    #[test]
    fn lines_for_a_parent() {
        let steps = Steps { task: 1, count: 20, step: 300, loss: 0.25 };
        assert_eq!(Steps::from_line(&steps.to_line()), Some(steps));
        assert_eq!(Steps::from_line("@steps 1 2 3"), None);
        assert_eq!(Steps::from_line("worker 1: hello"), None);
    }
}
