//! The output of `ferroflow status` and `ferroflow top`: a row for each task, and lines about problems.

use serde_json::Value;

/// The shortest wait that is shown.
const WAIT_SHOWN_SECS: f64 = 0.5;

/// The names of the columns.
const COLUMNS: [&str; 9] = ["TASK", "STATE", "UP", "STEPS/S", "MEDIAN", "LOSS", "STEP", "VARIABLES", "MEMORY"];

/// A task in a table.
pub(super) struct Row {
    /// Its fields, in the order of [`COLUMNS`].
    pub fields: [String; COLUMNS.len()],
    /// Whether it answers, and waits for no other task.
    pub is_well: bool,
}

/// Returns a row for each task.
pub(super) fn rows(cluster: &Value) -> Vec<Row> {
    list(cluster, "tasks").map(row).collect()
}

fn row(task: &Value) -> Row {
    let name = short(text(task, "task"));
    let nothing = || "-".to_owned();
    if task.get("events").is_none() {
        let is_foreign = task.get("is_foreign").is_some();
        let state = if is_foreign { "TensorFlow" } else { "no answer" };
        let mut fields: [String; COLUMNS.len()] = std::array::from_fn(|_| nothing());
        (fields[0], fields[1]) = (name, state.to_owned());
        return Row { fields, is_well: is_foreign };
    }
    let waits = list(task, "waits").filter(|wait| number(wait, "seconds") > Some(WAIT_SHOWN_SECS)).count();
    let session = list(task, "sessions").find(|session| number(session, "steps") > Some(0.0));
    let of_session = |field: &str| session.and_then(|session| number(session, field));
    let steps = task.get("steps").unwrap_or(&Value::Null);
    let rate = number(steps, "per_second").filter(|&rate| rate > 0.0);
    let fields = [
        name,
        if waits > 0 { "waits".to_owned() } else { "ok".to_owned() },
        number(task, "uptime_seconds").map_or_else(nothing, duration),
        rate.map_or_else(nothing, |rate| format!("{rate:.1}")),
        number(steps, "median_micros").map_or_else(nothing, |micros| duration(micros / 1e6)),
        of_session("loss").map_or_else(nothing, |loss| format!("{loss:.4}")),
        of_session("global_step").map_or_else(nothing, |step| format!("{step:.0}")),
        number(task, "variable_bytes").filter(|&bytes| bytes > 0.0).map_or_else(nothing, bytes),
        number(task, "resident_bytes").map_or_else(nothing, bytes),
    ];
    Row { fields, is_well: waits == 0 }
}

/// Returns the lines of a table of rows; the first has the column names.
pub(super) fn table(rows: &[Row]) -> Vec<String> {
    let width = |column: usize| {
        let fields = rows.iter().map(|row| row.fields[column].chars().count());
        fields.chain([COLUMNS[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..COLUMNS.len()).map(width).collect();
    let line = |fields: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = fields.zip(&widths).map(|(field, width)| format!("{field:width$}")).collect();
        padded.join("  ").trim_end().to_owned()
    };
    let header = line(&mut COLUMNS.into_iter());
    let lines = rows.iter().map(|row| line(&mut row.fields.iter().map(String::as_str)));
    std::iter::once(header).chain(lines).collect()
}

/// Returns lines about tasks that don't answer or wait for others, the worst first.
pub(super) fn notes(cluster: &Value) -> Vec<String> {
    let mut notes = Vec::new();
    for task in list(cluster, "tasks").filter(|task| task.get("error").is_some()) {
        notes.push(format!("{} does not answer: {}", short(text(task, "task")), printable(text(task, "error"))));
    }
    for task in list(cluster, "tasks") {
        for wait in list(task, "waits") {
            let Some(seconds) = number(wait, "seconds").filter(|&seconds| seconds > WAIT_SHOWN_SECS) else { continue };
            notes.push(format!(
                "{} ({}) waits for {} for {}: {}",
                short(text(task, "task")),
                printable(text(wait, "who")),
                short(text(wait, "task")),
                duration(seconds),
                printable(text(wait, "why"))
            ));
        }
    }
    notes
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value.get(field).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value, field: &str) -> Option<f64> {
    value.get(field).and_then(Value::as_f64)
}

/// Returns a task's display name: `worker 0`.
fn short(task: &str) -> String {
    let name = task.strip_prefix("/job:").unwrap_or(task).replace("/replica:0", "").replace("/task:", " ");
    printable(&name)
}

/// Replaces control characters, which could move the terminal's cursor or change its colours: these texts come from others.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { '\u{fffd}' } else { character }).collect()
}

fn duration(seconds: f64) -> String {
    match seconds {
        ..0.001 => format!("{:.0} us", seconds * 1e6),
        ..1.0 => format!("{:.1} ms", seconds * 1e3),
        ..60.0 => format!("{seconds:.1} s"),
        ..3600.0 => format!("{:.0} min", (seconds / 60.0).floor()),
        ..86_400.0 => format!("{:.1} h", seconds / 3600.0),
        _ => format!("{:.1} d", seconds / 86_400.0),
    }
}

fn bytes(count: f64) -> String {
    match count {
        ..1e3 => format!("{count:.0} B"),
        ..1e6 => format!("{:.1} kB", count / 1e3),
        ..1e9 => format!("{:.1} MB", count / 1e6),
        _ => format!("{:.1} GB", count / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tasks_become_rows_and_troubles_notes() {
        let cluster = json!({"tasks": [
            {"task": "/job:ps/replica:0/task:0", "events": [], "uptime_seconds": 90.0, "resident_bytes": 5e6,
             "variable_bytes": 4000, "waits": [], "sessions": [], "steps": {"per_second": 0.0}},
            {"task": "/job:worker/replica:0/task:1", "events": [], "uptime_seconds": 3.0, "resident_bytes": 5e6,
             "waits": [{"who": "session 1", "task": "/job:ps/replica:0/task:1", "seconds": 7.0, "why": "refused\u{1b}[31m"}],
             "sessions": [{"steps": 4, "loss": 0.5, "global_step": 9}],
             "steps": {"per_second": 12.34, "median_micros": 1500}},
            {"task": "/job:ps/replica:0/task:1", "error": "connection refused"},
            {"task": "/job:ps/replica:0/task:2", "is_foreign": true},
        ]});
        let rows = rows(&cluster);
        assert_eq!(rows[0].fields, ["ps 0", "ok", "1 min", "-", "-", "-", "-", "4.0 kB", "5.0 MB"]);
        assert_eq!(rows[1].fields, ["worker 1", "waits", "3.0 s", "12.3", "1.5 ms", "0.5000", "9", "-", "5.0 MB"]);
        assert_eq!((rows[2].fields[1].as_str(), rows[2].is_well), ("no answer", false));
        assert_eq!((rows[3].fields[1].as_str(), rows[3].is_well), ("TensorFlow", true));
        assert_eq!(
            notes(&cluster),
            [
                "ps 1 does not answer: connection refused",
                "worker 1 (session 1) waits for ps 1 for 7.0 s: refused\u{fffd}[31m"
            ]
        );
        assert!(rows_of_nonsense());
    }

    /// Another release, or another process on its port, may answer anything.
    fn rows_of_nonsense() -> bool {
        [json!(null), json!({"tasks": 7}), json!({"tasks": [7, {"events": 1}, {"task": [], "waits": {}}]})]
            .iter()
            .all(|nonsense| rows(nonsense).len() <= 3 && notes(nonsense).is_empty())
    }
}
