//! The state file reads and writes as TensorFlow's does.

use super::*;
use crate::file_system::FileSystems;
use proptest::prelude::*;
use tensor::Code;

fn state(newest: &str, all: &[&str]) -> CheckpointState {
    CheckpointState {
        model_checkpoint_path: newest.to_owned(),
        all_model_checkpoint_paths: all.iter().map(|&path| path.to_owned()).collect(),
        ..Default::default()
    }
}

#[test]
fn text_and_back() {
    let state = CheckpointState {
        all_model_checkpoint_timestamps: vec![1700000000.25, 0.0, 1e300, f64::INFINITY],
        last_preserved_timestamp: 12.5,
        ..state("m-2", &["m-1", "m-2"])
    };
    let text = to_text(&state);
    assert_eq!(
        text,
        "model_checkpoint_path: \"m-2\"\n\
         all_model_checkpoint_paths: \"m-1\"\n\
         all_model_checkpoint_paths: \"m-2\"\n\
         all_model_checkpoint_timestamps: 1700000000.25\n\
         all_model_checkpoint_timestamps: 0.0\n\
         all_model_checkpoint_timestamps: 1e300\n\
         all_model_checkpoint_timestamps: inf\n\
         last_preserved_timestamp: 12.5\n"
    );
    assert_eq!(parse(text.as_bytes()).unwrap(), state);
}

#[test]
fn other_ways_to_write_it() {
    let text = br#"
        # a comment
        model_checkpoint_path: 'a' "b\x41\102\u00e9\n"; all_model_checkpoint_paths: ["x", 'y'],
        all_model_checkpoint_paths: "z" all_model_checkpoint_timestamps: [1, 2.5f, -inf]
        all_model_checkpoint_timestamps: []
        last_preserved_timestamp:7"#;
    let state = parse(text).unwrap();
    assert_eq!(state.model_checkpoint_path, "abABé\n");
    assert_eq!(state.all_model_checkpoint_paths, ["x", "y", "z"]);
    assert_eq!(state.all_model_checkpoint_timestamps, [1.0, 2.5, f64::NEG_INFINITY]);
    assert_eq!(state.last_preserved_timestamp, 7.0);
    assert_eq!(parse(b"").unwrap(), CheckpointState::default());
}

#[test]
fn mistakes_are_told_with_their_place() {
    for (text, message) in [
        ("model_checkpoint_path \"a\"", "1:23: expected \":\""),
        ("model_checkpoint_path: a", "1:24: expected a string"),
        ("model_checkpoint_path: \"a\nb\"", "1:26: the string has no end"),
        ("\nmodel_path: \"a\"", "2:12: a CheckpointState has no field named \"model_path\""),
        ("last_preserved_timestamp: x", "1:27: expected a number, found \"x\""),
        ("model_checkpoint_path: \"\\q\"", "1:27: there is no escape \\q"),
        ("model_checkpoint_path: \"\\777\"", "1:29: the octal escape is larger than a byte"),
        ("model_checkpoint_path: \"\\377\"", "1:24: the string is not valid UTF-8"),
        ("all_model_checkpoint_paths: [\"a\" \"b\"", "1:37: expected \",\" or \"]\""),
        ("%", "1:1: expected the name of a field"),
    ] {
        let status = parse(text.as_bytes()).unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::DataLoss, message), "{text}");
    }
}

#[test]
fn paths_in_the_state() {
    let named = |dir: &str, newest: &str, all: &[&str], paths| {
        let state = checkpoint_state_for(dir, state(newest, all), paths).unwrap();
        (state.model_checkpoint_path, state.all_model_checkpoint_paths.join(" "))
    };
    let pair = |newest: &str, all: &str| (newest.to_owned(), all.to_owned());
    assert_eq!(named("/d", "/d/m-2", &["/d/m-1"], SavedPaths::AsGiven), pair("/d/m-2", "/d/m-1 /d/m-2"));
    assert_eq!(named("/d", "/d/m-2", &["/d/m-1"], SavedPaths::Relative), pair("m-2", "m-1 m-2"));
    assert_eq!(named("logs", "logs/m-2", &["logs/m-2"], SavedPaths::AsGiven), pair("m-2", "m-2"));
    assert_eq!(named("logs", "/x/m-2", &[], SavedPaths::AsGiven), pair("/x/m-2", "/x/m-2"));
    let mut odd = state("/d/m", &[]);
    odd.all_model_checkpoint_timestamps = vec![1.0, 2.0];
    assert_eq!(checkpoint_state_for("/d", odd, SavedPaths::AsGiven).unwrap_err().code(), Code::InvalidArgument);
}

#[test]
fn the_latest_checkpoint_of_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().to_str().unwrap();
    let fs = FileSystems::local();
    let latest = |name| latest_checkpoint(&fs, dir, name);
    assert_eq!(latest(None).unwrap(), None);
    let prefix = format!("{dir}/m-7");
    update_checkpoint_state(&fs, dir, state(&prefix, &[]), None, SavedPaths::Relative).unwrap();
    // The state names a checkpoint that isn't there.
    assert_eq!(latest(None).unwrap(), None);
    std::fs::write(format!("{prefix}.index"), "").unwrap();
    assert_eq!(latest(None).unwrap(), Some(prefix.clone()));
    assert_eq!(latest(Some("other")).unwrap(), None);
    let read = get_checkpoint_state(&fs, dir, None).unwrap().unwrap();
    assert_eq!(read.all_model_checkpoint_paths, std::slice::from_ref(&prefix));
    let conflict = state(&format!("{dir}/checkpoint"), &[]);
    let status = update_checkpoint_state(&fs, dir, conflict, None, SavedPaths::AsGiven).unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(latest(None).unwrap(), Some(prefix));
    std::fs::write(format!("{dir}/checkpoint"), "last_preserved_timestamp: 1").unwrap();
    assert_eq!(latest(None).unwrap_err().code(), Code::InvalidArgument);
    std::fs::write(format!("{dir}/checkpoint"), "model_checkpoint_path: ").unwrap();
    let status = latest(None).unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::DataLoss, &*format!("{dir}/checkpoint: 1:24: expected a string"))
    );
}

proptest! {
    #[test]
    fn any_path_survives(newest: String, all: Vec<String>, times: Vec<f64>) {
        let mut state = state(&newest, &[]);
        state.all_model_checkpoint_paths = all;
        state.all_model_checkpoint_timestamps = times;
        let text = to_text(&state);
        prop_assert!(text.is_ascii());
        prop_assert_eq!(parse(text.as_bytes()).unwrap(), state);
    }

    #[test]
    fn garbage_never_panics(text in "[a-z_:\"'\\\\\\[\\]0-9,.#\n -]{0,60}", bytes: Vec<u8>) {
        let _ = parse(text.as_bytes());
        let _ = parse(&bytes);
        let _ = parse(format!("model_checkpoint_path: \"{text}\"").as_bytes());
    }
}
