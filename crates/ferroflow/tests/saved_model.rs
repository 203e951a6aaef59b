//! What the builder of SavedModels refuses, and what it leaves behind.

use ferroflow::lookup::LookupTable;
use ferroflow::prelude::*;
use ferroflow::saved_model::{Export, SavedModel, SavedModelBuilder, Signature, simple_save, tags};
use ferroflow::{Code, Result};
use std::path::Path;

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Exports a graph with one output, `one`.
fn export(directory: &Path) -> Result<String> {
    let g = Graph::new();
    simple_save(&Session::new(&g)?, text(directory), &[], &[("one", &g.constant(1f32))])
}

#[test]
fn nothing_that_is_there_is_overwritten() -> Result<()> {
    let place = tempfile::tempdir().unwrap();
    let model = place.path().join("model");
    assert_eq!(export(&model)?, text(&model));
    let written = std::fs::read(model.join("saved_model.pb")).unwrap();
    let mistake = export(&model).unwrap_err();
    assert_eq!(mistake.code(), Code::AlreadyExists);
    assert!(mistake.message().contains("model' exists already"), "{mistake}");
    assert_eq!(std::fs::read(model.join("saved_model.pb")).unwrap(), written);

    // A file in its place, and an empty directory, which may be one that was made for the model.
    std::fs::write(place.path().join("file"), "text").unwrap();
    assert_eq!(export(&place.path().join("file")).unwrap_err().code(), Code::AlreadyExists);
    std::fs::create_dir(place.path().join("empty")).unwrap();
    export(&place.path().join("empty"))?;
    // Directories above it are made.
    export(&place.path().join("deep/er/1"))?;
    assert_eq!(names(place.path()), ["deep", "empty", "file", "model"]);
    Ok(())
}

#[test]
fn of_two_exports_to_one_place_the_first_is_kept() -> Result<()> {
    let place = tempfile::tempdir().unwrap();
    let model = place.path().join("model");
    let session = Session::new(&Graph::new())?;
    let started = SavedModelBuilder::new(text(&model))?;
    let started = started.add_meta_graph_and_variables(&session, Export::new(&[tags::TRAINING]))?;
    export(&model)?;
    assert_eq!(started.save().unwrap_err().code(), Code::AlreadyExists);
    assert_eq!(SavedModel::open(text(&model))?.tag_sets(), [["serve"]]);
    assert_eq!(names(place.path()), ["model"]);
    Ok(())
}

#[test]
fn an_export_that_fails_leaves_nothing() -> Result<()> {
    let place = tempfile::tempdir().unwrap();
    let model = place.path().join("model");
    let g = Graph::new();
    let w = Variable::new(&g, "w", &g.constant(1f32));
    // The variable has no value yet.
    let mistake = simple_save(&Session::new(&g)?, text(&model), &[], &[("w", w.value())]).unwrap_err();
    assert_eq!(mistake.code(), Code::FailedPrecondition, "{mistake}");
    assert!(names(place.path()).is_empty());
    Ok(())
}

#[test]
fn what_is_wrong_with_an_export_is_told() -> Result<()> {
    let place = tempfile::tempdir().unwrap();
    let model = place.path().join("model");
    let (g, other) = (Graph::new(), Graph::new());
    let one = g.constant(1f32);
    other.constant(7i32);
    let file = g.constant("/no/such/words.txt");
    let computed = g.op("StringJoin").inputs([&file, &file]).attr("N", 2i64).output();
    let session = Session::new(&g)?;
    let serving = || Export::new(&[tags::SERVING]);
    let predict = || Signature::predict();
    for (export, part) in [
        (Export::new(&[]), "needs a tag"),
        (serving().signature("s", predict().output("x", &other.constant(2f32))), "'x' of the signature 's' is not of"),
        (serving().signature("s", predict().output("x", &other.output("Const:0")?)), "'Const:0' is float there"),
        (serving().signature("__saved_model_init_op", predict().output("one", &one)), "is reserved"),
        (serving().main_op(&other.op("NoOp").build()), "belongs to another graph"),
        (serving().asset(&file), "/no/such/words.txt"),
        (serving().asset(&one), "not a constant string"),
        (serving().asset(&computed), "it is a StringJoin"),
    ] {
        let added = SavedModelBuilder::new(text(&model))?.add_meta_graph_and_variables(&session, export);
        let mistake = added.err().unwrap();
        assert!(mistake.message().contains(part), "'{part}' is not in: {mistake}");
    }
    assert!(SavedModelBuilder::new(text(&model))?.save().is_err());
    assert!(SavedModelBuilder::new("/").is_err());
    let twice = SavedModelBuilder::new(text(&model))?.add_meta_graph_and_variables(&session, serving())?;
    let mistake = twice.add_meta_graph_and_variables(&session, serving()).err().unwrap();
    assert!(mistake.message().contains("add further graphs with add_meta_graph"), "{mistake}");
    assert!(names(place.path()).is_empty());

    let wrong = Graph::new();
    let session = Session::new(&wrong)?;
    wrong.op("NoSuchOp").output();
    let added = SavedModelBuilder::new(text(&model))?.add_meta_graph_and_variables(&session, serving());
    assert!(added.err().unwrap().message().contains("NoSuchOp"));
    Ok(())
}

#[test]
fn assets_of_one_name_are_told_apart() -> Result<()> {
    let place = tempfile::tempdir().unwrap();
    let files = ["x/words.txt", "y/words.txt", "z/words.txt"].map(|name| place.path().join(name));
    for (file, content) in files.iter().zip(["a\nb\n", "b\na\n", "a\nb\n"]) {
        std::fs::create_dir(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
    }
    let g = Graph::new();
    let words = g.constant(["a", "b"]);
    let mut signature = Signature::predict();
    for (name, file) in ["x", "y", "z"].iter().zip(&files) {
        signature = signature.output(name, &LookupTable::index_from_file(&g, text(file), 0).lookup(&words));
    }
    let model = place.path().join("model");
    let export = Export::new(&[tags::SERVING]).signature("serving_default", signature);
    SavedModelBuilder::new(text(&model))?.add_meta_graph_and_variables(&Session::new(&g)?, export)?.save()?;
    files.iter().for_each(|file| std::fs::remove_file(file).unwrap());
    assert_eq!(names(&model.join("assets")), ["words.txt", "words.txt_1"]);

    let opened = SavedModel::open(text(&model))?;
    assert_eq!(opened.assets(&[tags::SERVING])?.len(), 3);
    let outputs = opened.load(&[tags::SERVING])?.run("serving_default", [] as [(&str, Tensor); 0])?;
    assert_eq!(outputs["x"].to_vec::<i64>()?, [0, 1]);
    assert_eq!(outputs["y"].to_vec::<i64>()?, [1, 0]);
    assert_eq!(outputs["z"].to_vec::<i64>()?, [0, 1]);
    Ok(())
}

#[test]
fn tables_outlive_a_meta_graph() -> Result<()> {
    use ferroflow::train::meta_graph::{export_meta_graph, import_meta_graph};

    let g = Graph::new();
    let table = LookupTable::index_from_list(&g, ["a", "b"], 0);
    let ids = table.lookup(&g.constant(["b", "c"]));
    let copy = Graph::new();
    import_meta_graph(&copy, &export_meta_graph(&g, None))?;
    // The operation that fills the table has no outputs, and is in its collection all the same.
    let mut session = ferroflow::train::MonitoredSession::training(&copy).build()?;
    let values = session.raw_session()?.run(&[&copy.output(&ids.name())?])?;
    assert_eq!(values[0].to_vec::<i64>()?, [1, -1]);
    session.close()
}
