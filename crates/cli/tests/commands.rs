//! The small commands as processes: `hello`, `check`, `ops`, and what wrong arguments get.

use proto::{AssetFileDef, AttrValue, GraphDef, Message, MetaGraphDef, NodeDef, SavedModel};
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs the program; returns whether it succeeded and all that it printed.
fn run(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ferroflow")).args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

fn graph(op: &str) -> GraphDef {
    let float = AttrValue { value: Some(proto::attr_value::Value::Type(proto::DataType::DtFloat as i32)) };
    let node = |name: &str, op: &str, inputs: &[&str], attr: &str| NodeDef {
        name: name.to_owned(),
        op: op.to_owned(),
        input: inputs.iter().map(|input| (*input).to_owned()).collect(),
        attr: [(attr.to_owned(), float.clone())].into(),
        ..Default::default()
    };
    GraphDef { node: vec![node("x", "Placeholder", &[], "dtype"), node("y", op, &["x"], "T")], ..Default::default() }
}

fn check(directory: &Path, name: &str, bytes: &[u8]) -> (bool, String) {
    let path = directory.join(name);
    std::fs::write(&path, bytes).unwrap();
    run(&["check", path.to_str().unwrap()])
}

#[test]
fn hello() {
    let (succeeded, text) = run(&["hello"]);
    assert!(succeeded, "{text}");
    assert_eq!(text, "Hello, distributed TensorFlow!\n");
}

#[test]
fn every_shell_gets_a_script_that_completes_flags() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (succeeded, text) = run(&["completions", shell]);
        assert!(succeeded && text.contains("task_index") && text.contains("completions"), "{text}");
    }
    let (succeeded, text) = run(&["completions", "tcsh"]);
    assert!(!succeeded && text.contains("bash"), "{text}");
}

#[test]
fn check_tells_what_is_in_a_file_and_what_cannot_run() {
    let directory = tempfile::tempdir().unwrap();
    let (succeeded, text) = check(directory.path(), "good.pb", &graph("Neg").encode_to_vec());
    assert!(succeeded, "{text}");
    for part in ["GraphDef", "2 nodes", "input x: float", "Neg 1, Placeholder 1", "every op can be run"] {
        assert!(text.contains(part), "'{part}' is not in: {text}");
    }
    let (succeeded, text) = check(directory.path(), "bad.pb", &graph("Nonsense").encode_to_vec());
    assert!(!succeeded, "{text}");
    assert!(text.contains("op Nonsense is unknown; nodes y") && text.contains("1 op(s) can't be run"), "{text}");
    let (succeeded, text) = check(directory.path(), "client.pb", &graph("EagerPyFunc").encode_to_vec());
    assert!(!succeeded && text.contains("op EagerPyFunc calls a function of the client's Python program"), "{text}");
    for (change, words) in [
        ((|graph| graph.node[1].input[0] = "absent".to_owned()) as fn(&mut GraphDef), "Unknown input node 'absent'"),
        (|graph| graph.node[1].name = "x".to_owned(), "Node 'x' is not unique"),
        (|graph| graph.node[1].input[0] = "y".to_owned(), "cycle"),
    ] {
        let mut wrong = graph("Neg");
        change(&mut wrong);
        let (succeeded, text) = check(directory.path(), "wrong.pb", &wrong.encode_to_vec());
        assert!(!succeeded && text.contains(words) && text.contains("1 graph(s) can't be run"), "{text}");
    }
    let (succeeded, text) = run(&["check", directory.path().to_str().unwrap()]);
    assert!(!succeeded && text.contains("has no saved_model.pb"), "{text}");
    let mut meta = MetaGraphDef { graph_def: Some(graph("Neg")), ..Default::default() };
    meta.asset_file_def.push(AssetFileDef { filename: "words.txt".to_owned(), ..Default::default() });
    let (succeeded, text) = check(directory.path(), "model.meta", &meta.encode_to_vec());
    assert!(succeeded && text.contains("MetaGraphDef") && text.contains("asset words.txt"), "{text}");
    let model = SavedModel { saved_model_schema_version: 1, meta_graphs: vec![meta] };
    check(directory.path(), "saved_model.pb", &model.encode_to_vec());
    let (succeeded, text) = run(&["check", directory.path().to_str().unwrap()]);
    assert!(succeeded && text.contains("SavedModel, 1 MetaGraph(s)"), "{text}");
    // Exported models are in directories below the one that was named.
    let parent = tempfile::tempdir().unwrap();
    std::fs::create_dir(parent.path().join("17")).unwrap();
    check(&parent.path().join("17"), "saved_model.pb", &model.encode_to_vec());
    let (succeeded, text) = run(&["saved_model", "ls", parent.path().to_str().unwrap()]);
    assert!(!succeeded && text.contains("there is one in /") && text.trim_end().ends_with("/17"), "{text}");
    for (name, bytes) in [("empty.pb", &b""[..]), ("noise.pb", b"\xff\x00\x80"), ("words.txt", b"hello there")] {
        let (succeeded, text) = check(directory.path(), name, bytes);
        assert!(!succeeded && text.contains("is not a GraphDef, MetaGraphDef or SavedModel"), "{text}");
    }
    let (succeeded, text) = run(&["check", "/no/such/file"]);
    assert!(!succeeded && text.contains("can't read /no/such/file"), "{text}");
}

#[test]
fn check_reads_texts() {
    let directory = tempfile::tempdir().unwrap();
    let text_of_graph = proto::text::format("tensorflow.GraphDef", &graph("Neg")).unwrap();
    let (succeeded, text) = check(directory.path(), "graph.pbtxt", text_of_graph.as_bytes());
    assert!(succeeded && text.contains("graph.pbtxt: GraphDef") && text.contains("Neg 1, Placeholder 1"), "{text}");
    let wrong = text_of_graph.replace("input: ", "inputs: ");
    let (succeeded, text) = check(directory.path(), "wrong.pbtxt", wrong.as_bytes());
    assert!(!succeeded && text.contains("there is no field 'inputs' here"), "{text}");
    let meta = MetaGraphDef { graph_def: Some(graph("Neg")), ..Default::default() };
    let text_of_meta = proto::text::format("tensorflow.MetaGraphDef", &meta).unwrap();
    let (succeeded, text) = check(directory.path(), "model.meta.txt", text_of_meta.as_bytes());
    assert!(succeeded && text.contains("MetaGraphDef"), "{text}");
    let model = SavedModel { saved_model_schema_version: 1, meta_graphs: vec![meta] };
    let text_of_model = proto::text::format("tensorflow.SavedModel", &model).unwrap();
    check(directory.path(), "saved_model.pbtxt", text_of_model.as_bytes());
    let (succeeded, text) = run(&["check", directory.path().to_str().unwrap()]);
    assert!(succeeded && text.contains("SavedModel, 1 MetaGraph(s)"), "{text}");
}

#[test]
fn ops_lists_what_there_is() {
    let (succeeded, text) = run(&["ops"]);
    assert!(succeeded);
    assert!(text.lines().any(|line| line.starts_with("MatMul ")), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("Nonsense")));
}

#[test]
fn a_reader_may_leave_early() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ferroflow"))
        .arg("ops")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
}

#[test]
fn the_level_of_instructions_can_be_lowered_and_a_wrong_one_is_named() {
    let with_level = |level: &str, argument: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferroflow"));
        let output = command.env("FERROFLOW_CPU", level).arg(argument).output().unwrap();
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (succeeded, text) = with_level("baseline", "--version");
    assert!(succeeded && text.contains("\ninstructions: baseline\nthis processor has: baseline"), "{text}");
    assert_eq!(with_level("baseline", "hello"), (true, "Hello, distributed TensorFlow!\n".to_owned()));
    let (succeeded, text) = with_level("sse9", "hello");
    assert!(!succeeded && text.contains("FERROFLOW_CPU=sse9") && text.contains("baseline, avx2, avx512"), "{text}");
}

#[test]
fn wrong_arguments_are_named() {
    for (arguments, part) in [
        (&["train", "--no_such_flag"][..], "no_such_flag"),
        (&["nonsense"], "nonsense"),
        (&["check"], "FILE"),
        (&["server", "--job_name=ps", "--ps_hosts=127.0.0.1:1", "--task_index=7"], "7"),
    ] {
        let (succeeded, text) = run(arguments);
        assert!(!succeeded, "{arguments:?}: {text}");
        assert!(text.contains(part), "{arguments:?}: {text}");
    }
}
