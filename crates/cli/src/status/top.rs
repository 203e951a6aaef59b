//! `ferroflow top`: shows the state of a cluster in a terminal, until `q` or Ctrl-C.

use super::commands::TargetFlags;
use super::summary::{notes, printable, rows, table};
use super::target::Target;
use crate::Failure;
use console::{Key, Style, Term};
use serde_json::Value;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// The polling interval.
const ASKING: Duration = Duration::from_secs(1);

/// Events while the screen is shown.
enum News {
    /// The state of the cluster, or the error.
    State(Result<Value, String>),
    /// The user quits.
    End,
}

/// Shows the cluster until the user quits.
pub fn run(flags: &TargetFlags) -> Result<(), Failure> {
    let terminal = Term::stdout();
    if !terminal.is_term() {
        return Err(Failure::new("this shows a cluster in a terminal, and there is none: use `ferroflow status`"));
    }
    let target = Target::parse(&flags.target)?;
    // Asked once before the screen is cleared, so that an error in the address stays visible.
    let mut state = target.state()?;
    let (sender, incoming) = channel();
    start("keys", sender.clone(), |sender| {
        let keys = Term::stdout();
        while !matches!(keys.read_key(), Err(_) | Ok(Key::Char('q') | Key::Escape | Key::CtrlC)) {}
        let _ = sender.send(News::End);
    })?;
    start("top", sender, move |sender| {
        loop {
            target.pause(ASKING);
            if sender.send(News::State(target.state().map_err(|failure| failure.message))).is_err() {
                return;
            }
        }
    })?;
    let failed = |error: std::io::Error| Failure::new(format!("the terminal failed: {error}"));
    let mut trouble = None;
    loop {
        let (height, width) = terminal.size();
        let picture = picture(&state, trouble.as_deref(), usize::from(width), usize::from(height));
        terminal.clear_screen().map_err(failed)?;
        terminal.write_str(&picture.join("\n")).map_err(failed)?;
        match incoming.recv() {
            Ok(News::State(Ok(told))) => (state, trouble) = (told, None),
            Ok(News::State(Err(why))) => trouble = Some(why),
            Ok(News::End) | Err(_) => break,
        }
    }
    terminal.write_line("").map_err(failed)
}

fn start(name: &str, sender: Sender<News>, work: impl FnOnce(Sender<News>) + Send + 'static) -> Result<(), Failure> {
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(move || work(sender));
    spawned.map(drop).map_err(|error| Failure::new(format!("can't start a thread: {error}")))
}

/// Returns the lines of the screen, cut to the terminal's size.
fn picture(state: &Value, trouble: Option<&str>, width: usize, height: usize) -> Vec<String> {
    let rows = rows(state);
    let well = rows.iter().filter(|row| row.is_well).count();
    let cut = |line: &str| line.chars().take(width).collect::<String>();
    let bold = Style::new().bold();
    let mut lines = vec![
        bold.apply_to(cut(&format!("ferroflow: {well} of {} tasks are well   (q ends this)", rows.len()))).to_string(),
        String::new(),
    ];
    let mut table = table(&rows).into_iter();
    lines.extend(table.next().map(|header| Style::new().dim().apply_to(cut(&header)).to_string()));
    for (line, row) in table.zip(&rows) {
        let style = if row.is_well { Style::new() } else { Style::new().yellow() };
        lines.push(style.apply_to(cut(&line)).to_string());
    }
    lines.push(String::new());
    lines.extend(trouble.map(|trouble| cut(&printable(trouble))));
    lines.extend(notes(state).iter().map(|note| cut(note)));
    lines.truncate(height.saturating_sub(1));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_picture_fits_the_terminal() {
        let state = json!({"tasks": [
            {"task": "/job:ps/replica:0/task:0", "events": [], "uptime_seconds": 90.0},
            {"task": "/job:ps/replica:0/task:1", "error": "connection refused"},
        ]});
        let shown = picture(&state, None, 100, 30).join("\n");
        for part in
            ["1 of 2 tasks are well", "TASK", "ps 0", "1 min", "no answer", "ps 1 does not answer: connection refused"]
        {
            assert!(shown.contains(part), "no '{part}' in\n{shown}");
        }
        let small = picture(&state, Some("gone"), 5, 3);
        assert!(small.len() == 2 && small.iter().all(|line| console::measure_text_width(line) <= 5), "{small:?}");
    }
}
