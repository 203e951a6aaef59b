//! Savers that are killed at any instant leave nothing for good, and what another one works on stays.

use super::{BundleReader, BundleWriter, BundleWriterOptions, HeldPart, MergeOptions, merge_bundles};
use crate::file_system::{FileSystem, FileSystems, create_temporary, host_number};
use std::process::Command;
use std::sync::Arc;
use tensor::{Code, Tensor};

struct Directory(tempfile::TempDir);

impl Directory {
    fn new() -> Directory {
        Directory(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn names(&self) -> Vec<String> {
        FileSystems::local().list(self.0.path().to_str().unwrap()).unwrap()
    }

    fn writer(&self, name: &str, value: f32) -> BundleWriter {
        let options = BundleWriterOptions::default();
        let mut writer = BundleWriter::new(Arc::new(FileSystems::local()), &self.path(name), options).unwrap();
        writer.add(&format!("x{}", name.len()), &Tensor::scalar(value)).unwrap();
        writer
    }

    fn save(&self, name: &str, value: f32) -> HeldPart {
        self.writer(name, value).finish_and_hold().unwrap()
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.path(name), content).unwrap();
    }
}

#[test]
fn what_a_killed_saver_left_is_swept_and_what_another_one_writes_is_not() {
    let dir = Directory::new();
    dir.write(&format!("m.data-00000-of-00001.tempstate-{:08x}-1-0", host_number()), "left over");
    dir.write("n.index.tempstate-01234567-4000000000-12", "left over on another machine");
    // TensorFlow's, which it may be writing.
    dir.write("m.data-00000-of-00001.tempstate15", "theirs");
    dir.write("mine.tempstate-of-the-art", "a user's");
    let other = dir.writer("n", 1.0);
    drop(dir.save("m", 0.0));
    other.finish().unwrap();
    BundleReader::open(Arc::new(FileSystems::local()), &dir.path("n")).unwrap().verify().unwrap();
    let mut left = dir.names();
    left.retain(|name| name.contains("tempstate"));
    assert_eq!(left, ["m.data-00000-of-00001.tempstate15", "mine.tempstate-of-the-art"]);
}

#[test]
fn data_files_without_the_index_that_was_to_come_are_swept_and_younger_ones_are_not() {
    let dir = Directory::new();
    drop(dir.save("killed", 0.0));
    // As if the kill had come between the data file's new name and the index's.
    let leftover = dir.path(&format!("killed.index.tempstate-{:08x}-1-0", host_number()));
    std::fs::rename(dir.path("killed.index"), leftover).unwrap();
    drop(dir.save("m", 0.0));
    assert_eq!(dir.names(), ["m.data-00000-of-00001", "m.index"]);

    drop(dir.save("killed", 0.0));
    let leftover = dir.path(&format!("killed.index.tempstate-{:08x}-1-0", host_number()));
    std::fs::rename(dir.path("killed.index"), &leftover).unwrap();
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    std::fs::File::open(leftover).unwrap().set_modified(old).unwrap();
    drop(dir.save("m", 1.0));
    assert_eq!(dir.names(), ["killed.data-00000-of-00001", "m.data-00000-of-00002", "m.index"]);
}

#[test]
fn parts_that_nobody_will_merge_are_swept_and_those_of_the_living_are_not() {
    let dir = Directory::new();
    let unique = "_temp_0123456789abcdef0123456789abcdef";
    let first = dir.save(&format!("m-1{unique}/part-00000-of-00002"), 0.0);
    drop(dir.save(&format!("m-1{unique}/part-00001-of-00002"), 0.0));
    drop(dir.save("m-2", 0.0));
    assert!(dir.names().contains(&format!("m-1{unique}")), "{:?}", dir.names());
    drop(first);
    // TensorFlow's have no mark.
    std::fs::create_dir(dir.path("m-3_temp")).unwrap();
    for name in ["m-2.index", "m-2.data-00000-of-00001"] {
        std::fs::copy(dir.path(name), dir.path(&format!("m-3_temp/{}", name.replace("m-2", "part-00000-of-00001"))))
            .unwrap();
    }
    drop(dir.save("m-2", 1.0));
    assert_eq!(dir.names(), ["m-2.data-00000-of-00002", "m-2.index", "m-3_temp"]);
}

#[test]
fn parts_under_the_same_names_are_not_mixed() {
    let dir = Directory::new();
    let part = |index: usize| format!("m_temp/part-0000{index}-of-00002");
    let held = dir.save(&part(0), 0.0);
    let options = BundleWriterOptions::default();
    let other = BundleWriter::new(Arc::new(FileSystems::local()), &dir.path(&part(0)), options).unwrap();
    // The first one is over before the second one's patience is.
    let (begun, second) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let second = scope.spawn(move || {
            second.recv().unwrap();
            other.finish()
        });
        begun.send(()).unwrap();
        drop(dir.save("m_temp/part-00001-of-00002x", 0.0));
        let parts = [dir.path(&part(0)), dir.path("m_temp/part-00001-of-00002x")];
        merge_bundles(&FileSystems::local(), &parts, &dir.path("m"), MergeOptions::default()).unwrap();
        drop(held);
        second.join().unwrap().unwrap();
    });
    BundleReader::open(Arc::new(FileSystems::local()), &dir.path("m")).unwrap().verify().unwrap();
}

/// Names the variable that makes the test below a saver that waits to be killed.
const VICTIM: &str = "FERROFLOW_TEST_SAVER";

#[test]
fn ten_kills_while_saving_leave_nothing_after_the_next_save() {
    if let Ok(prefix) = std::env::var(VICTIM) {
        let mut writer =
            BundleWriter::new(Arc::new(FileSystems::local()), &prefix, BundleWriterOptions::default()).unwrap();
        writer.add("x", &Tensor::scalar(1f32)).unwrap();
        // Locked at the same time, as it is while a checkpoint is put in place.
        let _index = create_temporary(&FileSystems::local(), &format!("{prefix}.index")).unwrap();
        println!("\nsaving");
        std::thread::park_timeout(std::time::Duration::from_secs(60));
        return;
    }
    let dir = Directory::new();
    let name = "bundle::sweep_tests::ten_kills_while_saving_leave_nothing_after_the_next_save";
    for round in 0..10 {
        let prefix = match round % 2 {
            0 => dir.path(&format!("m-{round}")),
            _ => dir.path(&format!("m-{round}_temp_0123456789abcdef0123456789abcde{round}/part-00000-of-00002")),
        };
        let mut saver = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(VICTIM, prefix)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let lines = std::io::BufRead::lines(std::io::BufReader::new(saver.stdout.take().unwrap()));
        assert!(lines.map_while(Result::ok).any(|line| line == "saving"));
        saver.kill().unwrap();
        saver.wait().unwrap();
    }
    assert!(!dir.names().is_empty());
    drop(dir.save("m", 0.0));
    assert_eq!(dir.names(), ["m.data-00000-of-00001", "m.index"]);
}

#[test]
fn a_lock_that_a_stopped_saver_has_is_named_and_a_link_in_its_place_is_not_followed() {
    use crate::file_system::{Locking, holder, lock_within};
    let (dir, fs) = (Directory::new(), FileSystems::local());
    let path = dir.path("m.lock");
    let Ok(Locking::Held(lock)) = fs.try_lock_file(&path, &holder()) else { panic!("not locked") };
    let status = lock_within(&fs, &path, std::time::Duration::ZERO).unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(status.message().contains(&format!("process {} on ", std::process::id())), "{status}");
    drop(lock);
    assert_eq!(dir.names(), [""; 0]);
    dir.write("victim", "precious");
    std::os::unix::fs::symlink(dir.path("victim"), &path).unwrap();
    assert!(fs.try_lock_file(&path, "us").is_err());
    assert_eq!(std::fs::read_to_string(dir.path("victim")).unwrap(), "precious");
}
