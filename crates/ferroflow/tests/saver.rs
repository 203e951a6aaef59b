//! Checkpoints of a session: saved, restored under other names and in parts, and the old ones deleted.

use ferroflow::train::{Saver, SaverOptions, global_variables_initializer, latest_checkpoint};
use ferroflow::variable::Kind;
use ferroflow::variable_scope::{FixedSizePartitioner, get_variable};
use ferroflow::{Code, Graph, Result, Session, initializers};

fn directory(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("ferroflow-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn what_is_saved_is_restored() -> Result<()> {
    let directory = directory("saver");
    let prefix = directory.join("model.ckpt").to_str().unwrap().to_owned();
    let graph = Graph::new();
    let v = get_variable(&graph, "v", &[3]).initializer(initializers::constant(2.0)).get();
    get_variable(&graph, "w", &[2]).initializer(initializers::ones()).kind(Kind::Resource).get();
    let init = global_variables_initializer(&graph);
    let saver = Saver::with_options(&graph, SaverOptions { max_to_keep: 2, ..Default::default() })?;
    let session = Session::new(&graph)?;
    session.run_ops(&[&init])?;
    for step in 1..=3 {
        assert_eq!(saver.save(&session, &prefix, Some(step))?, format!("{prefix}-{step}"));
    }
    assert_eq!(latest_checkpoint(directory.to_str().unwrap())?, Some(format!("{prefix}-3")));
    assert_eq!(saver.last_checkpoints(), [format!("{prefix}-2"), format!("{prefix}-3")]);
    assert!(!std::path::Path::new(&format!("{prefix}-1.index")).exists());

    let other = Graph::new();
    let renamed = get_variable(&other, "renamed", &[3]).initializer(initializers::zeros()).get();
    let options = SaverOptions { variables: Some(vec![("v".to_owned(), renamed.clone())]), ..Default::default() };
    let saver = Saver::with_options(&other, options)?;
    let session = Session::new(&other)?;
    assert_eq!(saver.restore(&session, &format!("{prefix}-1")).unwrap_err().code(), Code::InvalidArgument);
    saver.restore(&session, &format!("{prefix}-3"))?;
    assert_eq!(session.run(&[renamed.value()])?[0].as_slice::<f32>()?, &[2.0; 3]);
    drop(v);
    std::fs::remove_dir_all(directory).unwrap();
    Ok(())
}

#[test]
fn parts_are_saved_as_slices_of_the_whole() -> Result<()> {
    let directory = directory("slices");
    let prefix = directory.join("model.ckpt").to_str().unwrap().to_owned();
    let graph = Graph::new();
    let request = get_variable(&graph, "table", &[5, 2]).initializer(initializers::constant(3.0));
    let table = request.get_partitioned(&FixedSizePartitioner { num_shards: 2, axis: 0 });
    assert_eq!(table.parts().len(), 2);
    assert_eq!(table.parts()[0].name(), "table/part_0");
    let init = global_variables_initializer(&graph);
    let saver = Saver::new(&graph)?;
    let session = Session::new(&graph)?;
    session.run_ops(&[&init])?;
    saver.save(&session, &prefix, None)?;

    let whole = Graph::new();
    let table = get_variable(&whole, "table", &[5, 2]).initializer(initializers::zeros()).get();
    let saver = Saver::new(&whole)?;
    let session = Session::new(&whole)?;
    saver.restore(&session, &prefix)?;
    assert_eq!(session.run(&[table.value()])?[0].as_slice::<f32>()?, &[3.0; 10]);
    std::fs::remove_dir_all(directory).unwrap();
    Ok(())
}

#[test]
fn a_damaged_checkpoint_is_refused_and_changes_nothing() -> Result<()> {
    let directory = directory("damaged");
    let prefix = directory.join("model.ckpt").to_str().unwrap().to_owned();
    let graph = Graph::new();
    let v = get_variable(&graph, "v", &[100]).initializer(initializers::constant(2.0)).get();
    let init = global_variables_initializer(&graph);
    let saver = Saver::new(&graph)?;
    let session = Session::new(&graph)?;
    session.run_ops(&[&init])?;
    let good = saver.save(&session, &prefix, Some(1))?;
    let bad = saver.save(&session, &prefix, Some(2))?;
    let data = format!("{bad}.data-00000-of-00001");
    let bytes = std::fs::read(&data).unwrap();
    let mut flipped = bytes.clone();
    flipped[17] ^= 4;
    for content in [&bytes[..bytes.len() / 2], &flipped] {
        std::fs::write(&data, content).unwrap();
        let status = saver.restore(&session, &bad).unwrap_err();
        assert!(matches!(status.code(), Code::DataLoss | Code::OutOfRange), "{status}");
        assert_eq!(session.run(&[v.value()])?[0].as_slice::<f32>()?, &[2.0; 100]);
    }
    saver.restore(&session, &good)?;
    std::fs::remove_dir_all(directory).unwrap();
    Ok(())
}

#[test]
fn checkpoints_are_kept_for_good_now_and_then() -> Result<()> {
    // A checkpoint for every instant, and none in a year.
    for (hours, files) in [(1e-9, 3), (8760.0, 1)] {
        let directory = directory(&format!("kept-{files}"));
        let prefix = directory.join("model.ckpt").to_str().unwrap().to_owned();
        let graph = Graph::new();
        get_variable(&graph, "v", &[3]).initializer(initializers::ones()).get();
        let init = global_variables_initializer(&graph);
        let options = SaverOptions { max_to_keep: 1, keep_checkpoint_every_n_hours: hours, ..Default::default() };
        let saver = Saver::with_options(&graph, options)?;
        let session = Session::new(&graph)?;
        session.run_ops(&[&init])?;
        for step in 1..=3 {
            saver.save(&session, &prefix, Some(step))?;
        }
        assert_eq!(saver.last_checkpoints(), [format!("{prefix}-3")]);
        let there = (1..=3).filter(|step| std::path::Path::new(&format!("{prefix}-{step}.index")).exists()).count();
        assert_eq!(there, files);
        std::fs::remove_dir_all(directory).unwrap();
    }
    Ok(())
}
