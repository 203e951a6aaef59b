//! Checkpoints survive the way through files, in one piece, in slices and in shards, and damage of any kind is an error.

use super::*;
use crate::file_system::{FileSystem, FileSystems};
use bytes::Bytes;
use proptest::prelude::*;
use std::sync::Arc;
use tensor::{Code, DType, Result, Shape, Status, Tensor};

struct Directory {
    directory: tempfile::TempDir,
    fs: Arc<dyn FileSystem>,
}

impl Directory {
    fn new() -> Directory {
        Directory { directory: tempfile::tempdir().unwrap(), fs: Arc::new(FileSystems::local()) }
    }
    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.directory.path().display())
    }
    fn names(&self) -> Vec<String> {
        self.fs.list(&self.path("")).unwrap()
    }
    fn writer(&self, name: &str) -> BundleWriter {
        BundleWriter::new(self.fs.clone(), &self.path(name), BundleWriterOptions::default()).unwrap()
    }
    fn reader(&self, name: &str) -> BundleReader {
        BundleReader::open(self.fs.clone(), &self.path(name)).unwrap()
    }
    fn save(&self, name: &str, tensors: &[(&str, Tensor)]) {
        let mut writer = self.writer(name);
        for (name, tensor) in tensors {
            writer.add(name, tensor).unwrap();
        }
        writer.finish().unwrap();
    }
    fn merge(&self, parts: &[&str], name: &str) -> Result<()> {
        let parts: Vec<String> = parts.iter().map(|part| self.path(part)).collect();
        merge_bundles(&*self.fs, &parts, &self.path(name), MergeOptions::default())
    }
}

fn floats(dims: &[i64], first: f32) -> Tensor {
    let count = dims.iter().product::<i64>() as usize;
    let values: Vec<f32> = (0..count).map(|index| first + index as f32).collect();
    Tensor::from_slice(dims, &values).unwrap()
}

fn strings(values: &[&str]) -> Tensor {
    let values: Vec<Bytes> = values.iter().map(|value| Bytes::copy_from_slice(value.as_bytes())).collect();
    Tensor::from_strings(Shape::vector(values.len()), values).unwrap()
}

/// Compares type, shape and elements.
fn assert_same(a: &Tensor, b: &Tensor) {
    assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()));
    match a.buffer() {
        Some(buffer) => assert_eq!(Some(buffer.bytes()), b.buffer().map(|buffer| buffer.bytes())),
        None => assert_eq!(a.strings().unwrap(), b.strings().unwrap()),
    }
}

#[test]
fn tensors_of_every_type() {
    let dir = Directory::new();
    let mut tensors = vec![
        ("scalar".to_owned(), Tensor::scalar(3.5f64)),
        ("empty".to_owned(), floats(&[0, 3], 0.0)),
        ("strings".to_owned(), strings(&["", "one", &"x".repeat(300)])),
        ("no_strings".to_owned(), strings(&[])),
        ("bools".to_owned(), Tensor::vector(&[true, false, true])),
        ("big".to_owned(), floats(&[700, 1000], 1.0)),
    ];
    for &dtype in DType::ALL.iter().filter(|dtype| dtype.is_plain() && **dtype != DType::Bool) {
        let bytes = Bytes::from((0..3 * dtype.size() as u8).collect::<Vec<u8>>());
        let buffer = tensor::Buffer::foreign(bytes);
        tensors.push((format!("plain/{dtype}"), Tensor::from_buffer(dtype, Shape::vector(3), buffer).unwrap()));
    }
    let mut writer = dir.writer("m");
    for (name, tensor) in &tensors {
        writer.add(name, tensor).unwrap();
    }
    writer.finish().unwrap();
    assert_eq!(dir.names(), ["m.data-00000-of-00001", "m.index"]);
    let reader = dir.reader("m");
    reader.verify().unwrap();
    for (name, tensor) in &tensors {
        assert_same(&reader.lookup(name).unwrap(), tensor);
        let info = reader.info(name).unwrap();
        assert_eq!((info.dtype, &info.shape, info.slices.len()), (tensor.dtype(), tensor.shape(), 0));
    }
    let mut names: Vec<&String> = tensors.iter().map(|(name, _)| name).collect();
    names.sort();
    let listed = reader.list().unwrap();
    assert_eq!(listed.iter().map(|info| &info.name).collect::<Vec<_>>(), names);
    assert_eq!(reader.info("big").unwrap().bytes, 2_800_000);
    assert!(reader.contains("big").unwrap() && !reader.contains("bi").unwrap() && !reader.contains("").unwrap());
    let status = reader.lookup("bi").unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::NotFound, "Key bi not found in checkpoint"));
}

#[test]
fn alignment_and_what_the_writer_refuses() {
    let dir = Directory::new();
    let options = BundleWriterOptions { data_alignment: 64 };
    let mut writer = BundleWriter::new(dir.fs.clone(), &dir.path("new/m"), options).unwrap();
    writer.add("a", &Tensor::scalar(1u8)).unwrap();
    writer.add("b", &Tensor::scalar(2u8)).unwrap();
    let code = |result: Result<()>| result.unwrap_err().code();
    assert_eq!(code(writer.add("a", &Tensor::scalar(1u8))), Code::InvalidArgument);
    assert_eq!(code(writer.add("", &Tensor::scalar(1u8))), Code::InvalidArgument);
    let resource = Tensor::zeros(DType::Resource, Shape::vector(0)).unwrap();
    assert_eq!(code(writer.add("r", &resource)), Code::Unimplemented);
    let slice = TensorSlice::parse("0,2").unwrap();
    assert_eq!(code(writer.add_slice("s", &Shape::vector(5), &slice, &floats(&[3], 0.0))), Code::InvalidArgument);
    writer.add_slice("s", &Shape::vector(5), &slice, &floats(&[2], 0.0)).unwrap();
    let slice = TensorSlice::parse("2,2").unwrap();
    assert_eq!(code(writer.add_slice("s", &Shape::vector(6), &slice, &floats(&[2], 0.0))), Code::InvalidArgument);
    writer.finish().unwrap();
    let reader = dir.reader("new/m");
    assert_eq!(reader.lookup("b").unwrap().to_scalar::<u8>().unwrap(), 2);
    assert_eq!(dir.fs.stat(&dir.path("new/m.data-00000-of-00001")).unwrap().length, 192);
    // A slice is missing.
    let status = reader.lookup("s").unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().starts_with("Does not have sufficient slices for partitioned tensor s"), "{status}");
}

#[test]
fn partitioned_variables() {
    let dir = Directory::new();
    let whole = floats(&[6, 5], 0.0);
    let part = |slice: &str| {
        let slice = TensorSlice::parse(slice).unwrap();
        let extents = slice.resolve(whole.shape()).unwrap();
        let (rows, columns) = (extents[0], extents[1]);
        let all = whole.as_slice::<f32>().unwrap();
        let mut values = Vec::new();
        for row in rows.start..rows.start + rows.length {
            let start = (row * 5 + columns.start) as usize;
            values.extend_from_slice(&all[start..start + columns.length as usize]);
        }
        (slice, Tensor::from_slice(&[rows.length, columns.length], &values).unwrap())
    };
    let mut writer = dir.writer("m");
    for slice in ["0,2:-", "2,3:-", "5,1:-"] {
        let (slice, tensor) = part(slice);
        writer.add_slice("rows", whole.shape(), &slice, &tensor).unwrap();
    }
    for slice in ["0,4:0,3", "0,4:3,2", "4,2:0,3", "4,2:3,2"] {
        let (slice, tensor) = part(slice);
        writer.add_slice("grid", whole.shape(), &slice, &tensor).unwrap();
    }
    writer.add_slice("whole", whole.shape(), &TensorSlice::parse("0,6:-").unwrap(), &whole).unwrap();
    for (start, values) in [(0, &["a", "b"][..]), (2, &["c"])] {
        let slice = TensorSlice::parse(&format!("{start},{}", values.len())).unwrap();
        writer.add_slice("strings", &Shape::vector(3), &slice, &strings(values)).unwrap();
    }
    writer.finish().unwrap();
    let reader = dir.reader("m");
    reader.verify().unwrap();
    for name in ["rows", "grid", "whole"] {
        assert_same(&reader.lookup(name).unwrap(), &whole);
        for slice in ["1,3:-", "2,3:-", "0,6:1,3", "3,2:2,2", "-:-", "5,1:4,1"] {
            let (slice, expected) = part(slice);
            assert_same(&reader.lookup_slice(name, &slice).unwrap(), &expected);
        }
    }
    assert_same(&reader.lookup("strings").unwrap(), &strings(&["a", "b", "c"]));
    let middle = TensorSlice::parse("1,2").unwrap();
    assert_same(&reader.lookup_slice("strings", &middle).unwrap(), &strings(&["b", "c"]));
    let listed: Vec<(String, u64, usize)> =
        reader.list().unwrap().into_iter().map(|info| (info.name, info.bytes, info.slices.len())).collect();
    let entry = |name: &str, bytes, slices| (name.to_owned(), bytes, slices);
    assert_eq!(listed, [entry("grid", 120, 4), entry("rows", 120, 3), entry("strings", 14, 2), entry("whole", 120, 0)]);
    for slice in ["0,7:-", "-", "6,1:-"] {
        let slice = TensorSlice::parse(slice).unwrap();
        assert_eq!(reader.lookup_slice("rows", &slice).unwrap_err().code(), Code::InvalidArgument);
    }
}

#[test]
fn slices_of_large_tensors_are_read_in_parts() {
    let dir = Directory::new();
    let whole = floats(&[1500, 1000], 0.0);
    dir.save("m", &[("w", whole.clone())]);
    let reader = dir.reader("m");
    // The first read compares the checksum of everything, the later ones read what they need.
    for slice in ["100,1000:-", "100,1000:-", "1,1:-", "-:3,4", "0,1500:-"] {
        let slice = TensorSlice::parse(slice).unwrap();
        let read = reader.lookup_slice("w", &slice).unwrap();
        let extents = slice.resolve(whole.shape()).unwrap();
        let values = read.as_slice::<f32>().unwrap();
        assert_eq!(read.shape(), &slice.slice_shape(whole.shape()).unwrap());
        for (index, value) in values.iter().enumerate() {
            let (row, column) = (index as i64 / extents[1].length, index as i64 % extents[1].length);
            assert_eq!(*value, ((extents[0].start + row) * 1000 + extents[1].start + column) as f32);
        }
    }
    // Damage anywhere in the tensor is noticed even by a reader of another part.
    let file = dir.path("m.data-00000-of-00001");
    let mut bytes = dir.fs.read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let status = dir.reader("m").lookup_slice("w", &TensorSlice::parse("0,1:-").unwrap()).unwrap_err();
    assert_eq!(status.code(), Code::DataLoss);
    assert!(status.message().contains("Checksum does not match"), "{status}");
}

#[test]
fn shards_are_merged() {
    let dir = Directory::new();
    dir.fs.create_dir(&dir.path("m_temp_1")).unwrap();
    let whole = floats(&[4, 2], 0.0);
    for (part, rows) in [("m_temp_1/part-00000-of-00003", "0,3:-"), ("m_temp_1/part-00001-of-00003", "3,1:-")] {
        let slice = TensorSlice::parse(rows).unwrap();
        let extents = slice.resolve(whole.shape()).unwrap();
        let rows =
            whole.slice_rows(extents[0].start as usize, (extents[0].start + extents[0].length) as usize).unwrap();
        let mut writer = dir.writer(part);
        writer.add(&format!("only/{}", &part[9..]), &Tensor::scalar(extents[0].start)).unwrap();
        writer.add_slice("shared", whole.shape(), &slice, &rows).unwrap();
        writer.finish().unwrap();
    }
    // A task without variables writes a shard without tensors.
    dir.save("m_temp_1/part-00002-of-00003", &[]);
    let parts = ["m_temp_1/part-00000-of-00003", "m_temp_1/part-00001-of-00003", "m_temp_1/part-00002-of-00003"];
    let parts: Vec<String> = parts.iter().map(|part| dir.path(part)).collect();
    let options = MergeOptions { delete_old_dirs: true, ..Default::default() };
    merge_bundles(&*dir.fs, &parts, &dir.path("m"), options).unwrap();
    let reader = dir.reader("m");
    reader.verify().unwrap();
    assert_eq!(reader.num_shards(), 2);
    assert_same(&reader.lookup("shared").unwrap(), &whole);
    assert_eq!(reader.lookup("only/part-00001-of-00003").unwrap().to_scalar::<i64>().unwrap(), 3);
    // The file of the shard without tensors isn't needed by anybody, but is not ours to throw away.
    assert_eq!(dir.fs.list(&dir.path("m_temp_1")).unwrap(), ["part-00002-of-00003.data-00000-of-00001"]);
    assert_eq!(dir.names(), ["m.data-00000-of-00002", "m.data-00001-of-00002", "m.index", "m_temp_1"]);
}

#[test]
fn merges_that_fail_move_nothing() {
    let dir = Directory::new();
    dir.save("a", &[("x", Tensor::scalar(1i32))]);
    dir.save("b", &[("x", Tensor::scalar(2i32))]);
    dir.save("c", &[("y", Tensor::scalar(3i32))]);
    let before = dir.names();
    let status = dir.merge(&["a", "b"], "m").unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().starts_with("Duplicate tensor keyed by x"), "{status}");
    assert_eq!(dir.merge(&["a", "missing"], "m").unwrap_err().code(), Code::NotFound);
    assert_eq!(dir.merge(&[], "m").unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(dir.names(), before);
    std::fs::remove_file(dir.path("c.data-00000-of-00001")).unwrap();
    assert_eq!(dir.merge(&["a", "c"], "m").unwrap_err().code(), Code::NotFound);
    std::fs::write(dir.path("c.data-00000-of-00001"), b"xx").unwrap();
    assert_eq!(dir.merge(&["a", "c"], "m").unwrap_err().code(), Code::DataLoss);
    assert_eq!(dir.names(), before);
    let options = MergeOptions { allow_missing_files: true, ..Default::default() };
    merge_bundles(&*dir.fs, &[dir.path("a"), dir.path("missing")], &dir.path("m"), options).unwrap();
    assert_eq!(dir.reader("m").lookup("x").unwrap().to_scalar::<i32>().unwrap(), 1);
    let status = merge_bundles(&*dir.fs, &[dir.path("missing")], &dir.path("m"), options).unwrap_err();
    assert_eq!(status.message(), "At least one prefix checkpoint file must exist, but none existed.");
}

#[test]
fn a_checkpoint_that_is_replaced_stays_whole_until_the_new_one_is() {
    let dir = Directory::new();
    for value in 0..5i32 {
        let before = if value > 0 { Some(dir.reader("m")) } else { None };
        let mut writer = dir.writer("m");
        writer.add("x", &Tensor::scalar(value)).unwrap();
        writer.finish().unwrap();
        assert_eq!(dir.reader("m").lookup("x").unwrap().to_scalar::<i32>().unwrap(), value);
        assert_eq!(dir.names().len(), 2, "{:?}", dir.names());
        // A reader that has opened the old checkpoint can read it to its end.
        if let Some(before) = before {
            assert_eq!(before.lookup("x").unwrap().to_scalar::<i32>().unwrap(), value - 1);
        }
    }
}

/// A file system that stops working after some number of changes, as if the process had been killed.
struct Killed {
    inner: FileSystems,
    changes_left: std::sync::Mutex<usize>,
}

impl Killed {
    fn change(&self) -> Result<()> {
        let mut left = self.changes_left.lock().unwrap();
        *left = left.checked_sub(1).ok_or_else(|| Status::aborted("killed"))?;
        Ok(())
    }
}

impl FileSystem for Killed {
    fn open(&self, path: &str) -> Result<Box<dyn crate::file_system::RandomAccessFile>> {
        self.inner.open(path)
    }
    fn create(&self, path: &str) -> Result<Box<dyn crate::file_system::WritableFile>> {
        self.change()?;
        self.inner.create(path)
    }
    fn create_new(&self, path: &str) -> Result<Box<dyn crate::file_system::WritableFile>> {
        self.change()?;
        self.inner.create_new(path)
    }
    fn open_append(&self, path: &str) -> Result<Box<dyn crate::file_system::WritableFile>> {
        self.change()?;
        self.inner.open_append(path)
    }
    fn exists(&self, path: &str) -> Result<bool> {
        self.inner.exists(path)
    }
    fn stat(&self, path: &str) -> Result<crate::file_system::FileStatistics> {
        self.inner.stat(path)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.change()?;
        self.inner.rename(from, to)
    }
    fn delete_file(&self, path: &str) -> Result<()> {
        self.change()?;
        self.inner.delete_file(path)
    }
    fn delete_dir(&self, path: &str) -> Result<()> {
        self.change()?;
        self.inner.delete_dir(path)
    }
    fn create_dir(&self, path: &str) -> Result<()> {
        self.inner.create_dir(path)
    }
    fn create_dir_all(&self, path: &str) -> Result<()> {
        self.inner.create_dir_all(path)
    }
    fn list(&self, path: &str) -> Result<Vec<String>> {
        self.inner.list(path)
    }
    fn sync_dir(&self, path: &str) -> Result<()> {
        self.inner.sync_dir(path)
    }
}

#[test]
fn a_kill_at_any_instant_leaves_the_old_or_the_new_checkpoint() {
    for merged in [false, true] {
        let mut seen = (false, false);
        for changes in 0..14 {
            let dir = Directory::new();
            dir.save("m", &[("x", floats(&[10], 0.0)), ("y", floats(&[10], 1.0))]);
            let killed = Killed { inner: FileSystems::local(), changes_left: changes.into() };
            let killed: Arc<dyn FileSystem> = Arc::new(killed);
            let save = |prefix: &str, tensors: &[(&str, Tensor)]| -> Result<()> {
                let mut writer = BundleWriter::new(killed.clone(), &dir.path(prefix), BundleWriterOptions::default())?;
                for (name, tensor) in tensors {
                    writer.add(name, tensor)?;
                }
                writer.finish()
            };
            let result = if merged {
                save("part-0", &[("x", floats(&[10], 100.0))])
                    .and_then(|()| save("part-1", &[("y", floats(&[10], 101.0))]))
                    .and_then(|()| {
                        let parts = [dir.path("part-0"), dir.path("part-1")];
                        merge_bundles(&*killed, &parts, &dir.path("m"), MergeOptions::default())
                    })
            } else {
                save("m", &[("x", floats(&[10], 100.0)), ("y", floats(&[10], 101.0))])
            };
            let reader = dir.reader("m");
            reader.verify().unwrap();
            let first = |name: &str| reader.lookup(name).unwrap().as_slice::<f32>().unwrap()[0];
            match (first("x"), first("y")) {
                (0.0, 1.0) => {
                    assert!(result.is_err());
                    seen.0 = true;
                }
                (100.0, 101.0) => seen.1 = true,
                other => panic!("a mixture after {changes} changes: {other:?}"),
            }
        }
        assert_eq!(seen, (true, true));
    }
}

#[test]
fn two_savers_of_one_prefix_show_whole_checkpoints_only() {
    let dir = Directory::new();
    let saved = |value: f32| [("x", floats(&[1000], value)), ("y", floats(&[1000], value))];
    dir.save("m", &saved(0.0));
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (dir, saved) = (&dir, &saved);
        let save_often =
            move |saver: i32| (0..20).for_each(|round| dir.save("m", &saved((saver * 100 + round) as f32)));
        let savers = [1, 2].map(|saver| scope.spawn(move || save_often(saver)));
        let is_over = &is_over;
        let reader = scope.spawn(move || {
            while !is_over.load(std::sync::atomic::Ordering::Acquire) {
                let reader = dir.reader("m");
                assert_same(&reader.lookup("x").unwrap(), &reader.lookup("y").unwrap());
            }
        });
        savers.into_iter().for_each(|saver| saver.join().unwrap());
        is_over.store(true, std::sync::atomic::Ordering::Release);
        reader.join().unwrap();
    });
    dir.reader("m").verify().unwrap();
    assert_eq!(dir.names().len(), 2, "{:?}", dir.names());
}

#[test]
fn a_reader_of_a_replaced_checkpoint_of_shards_never_reads_anothers_bytes() {
    let dir = Directory::new();
    let save = |value: f32| {
        dir.save("part-0", &[("x", floats(&[10], value))]);
        dir.save("part-1", &[("y", floats(&[10], value))]);
        dir.merge(&["part-0", "part-1"], "m").unwrap();
    };
    save(0.0);
    let old = dir.reader("m");
    for round in 1..5 {
        save(round as f32);
        // The first data file is open; the second is gone rather than another one's.
        assert_same(&old.lookup("x").unwrap(), &floats(&[10], 0.0));
        assert_eq!(old.lookup("y").unwrap_err().code(), Code::NotFound);
    }
    assert_eq!(dir.names().len(), 3, "{:?}", dir.names());
}

#[test]
fn the_numbers_of_data_files_start_again_where_names_have_no_more_digits() {
    let dir = Directory::new();
    dir.save("m", &[("x", floats(&[10], 0.0))]);
    std::fs::write(dir.path("m.data-00000-of-99999"), "").unwrap();
    dir.save("m", &[("x", floats(&[10], 1.0))]);
    assert_eq!(dir.names(), ["m.data-00000-of-00002", "m.index"]);
    assert_same(&dir.reader("m").lookup("x").unwrap(), &floats(&[10], 1.0));
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    let dir = Directory::new();
    let mut writer = dir.writer("m");
    writer.add("x", &floats(&[100_000], 0.0)).unwrap();
    assert_eq!(dir.names().len(), 1);
    drop(writer);
    assert_eq!(dir.names(), [""; 0]);
}

#[test]
fn missing_truncated_and_foreign_files() {
    let dir = Directory::new();
    let open = |name: &str| BundleReader::open(dir.fs.clone(), &dir.path(name)).map(drop);
    assert_eq!(open("missing").unwrap_err().code(), Code::NotFound);
    let index = dir.path("m.index");
    dir.save("m", &[("x", floats(&[100], 0.0)), ("s", strings(&["a", "b"]))]);
    let content = dir.fs.read(&index).unwrap();
    for length in [0, 10, content.len() / 2, content.len() - 1] {
        std::fs::write(&index, &content[..length]).unwrap();
        let status = open("m").unwrap_err();
        assert_eq!(status.code(), Code::DataLoss);
        assert!(status.message().contains("m.index"), "{status}");
    }
    std::fs::write(&index, &content).unwrap();
    let data = dir.path("m.data-00000-of-00001");
    let bytes = dir.fs.read(&data).unwrap();
    std::fs::write(&data, &bytes[..390]).unwrap();
    for name in ["x", "s"] {
        let status = dir.reader("m").lookup(name).unwrap_err();
        assert_eq!(status.code(), Code::DataLoss);
        assert!(status.message().contains("is truncated"), "{status}");
    }
    assert_eq!(dir.reader("m").verify().unwrap_err().code(), Code::DataLoss);
    std::fs::remove_file(&data).unwrap();
    assert_eq!(dir.reader("m").lookup("x").unwrap_err().code(), Code::NotFound);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn damage_is_noticed(data: bool, position: prop::sample::Index, flip in 1u8..) {
        let dir = Directory::new();
        let tensors = [("a", floats(&[3, 3], 0.0)), ("b", strings(&["hello", "world"])), ("c", Tensor::scalar(true))];
        let mut writer = dir.writer("m");
        for (name, tensor) in &tensors {
            writer.add(name, tensor).unwrap();
        }
        for rows in ["0,2", "2,3"] {
            let slice = TensorSlice::parse(rows).unwrap();
            let shape = slice.slice_shape(&Shape::vector(5)).unwrap();
            writer.add_slice("d", &Shape::vector(5), &slice, &floats(shape.dims(), 0.0)).unwrap();
        }
        writer.finish().unwrap();
        let file = dir.path(if data { "m.data-00000-of-00001" } else { "m.index" });
        let mut bytes = std::fs::read(&file).unwrap();
        let position = position.index(bytes.len());
        bytes[position] ^= flip;
        std::fs::write(&file, bytes).unwrap();
        let read = BundleReader::open(dir.fs.clone(), &dir.path("m")).and_then(|reader| {
            reader.verify()?;
            reader.list()?;
            reader.lookup("d")
        });
        match read {
            // The table's metaindex and the padding of its footer mean nothing.
            Ok(_) => prop_assert!(!data),
            Err(status) => prop_assert_eq!(status.code(), Code::DataLoss),
        }
    }
}

/// Entries whose fields are anything at all, small numbers more often than others.
fn any_entry() -> impl Strategy<Value = proto::BundleEntryProto> {
    let number = || prop_oneof![3 => -1i64..30, 1 => any::<i64>()];
    let extent = (number(), prop::option::of(number())).prop_map(|(start, length)| proto::tensor_slice_proto::Extent {
        start,
        has_length: length.map(proto::tensor_slice_proto::extent::HasLength::Length),
    });
    let slice = prop::collection::vec(extent, 0..3).prop_map(|extent| proto::TensorSliceProto { extent });
    let dim = number().prop_map(|size| proto::tensor_shape_proto::Dim { size, name: String::new() });
    let shape = (prop::collection::vec(dim, 0..3), prop::bool::weighted(0.1))
        .prop_map(|(dim, unknown_rank)| proto::TensorShapeProto { dim, unknown_rank });
    let slices = prop::collection::vec(slice, 0..3);
    let fields = (0i32..30, prop::option::of(shape), -1i32..3, number(), number(), any::<u32>(), slices);
    fields.prop_map(|(dtype, shape, shard_id, offset, size, crc32c, slices)| proto::BundleEntryProto {
        dtype,
        shape,
        shard_id,
        offset,
        size,
        crc32c,
        slices,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn an_index_that_lies_never_panics(entries in prop::collection::vec(any_entry(), 1..4), spec in "[0-9]{1,2},[1-9]") {
        let dir = Directory::new();
        std::fs::write(dir.path("m.data-00000-of-00002"), [1u8; 200]).unwrap();
        let mut file = dir.fs.create(&dir.path("m.index")).unwrap();
        let mut table = crate::table::TableWriter::new(&mut *file, Default::default());
        let header = proto::BundleHeaderProto { num_shards: 2, ..Default::default() };
        table.add(b"", &prost::Message::encode_to_vec(&header)).unwrap();
        // Slices of the last entry that are really there.
        let mut slices: Vec<Vec<u8>> = entries.iter().flat_map(|entry| &entry.slices)
            .filter_map(|slice| TensorSlice::from_proto(slice).ok())
            .map(|slice| encode_tensor_name_slice("2", &slice)).collect();
        slices.sort();
        slices.dedup();
        for (key, entry) in slices.iter().zip(&entries) {
            table.add(key, &prost::Message::encode_to_vec(entry)).unwrap();
        }
        for (index, entry) in entries.iter().enumerate() {
            table.add(index.to_string().as_bytes(), &prost::Message::encode_to_vec(entry)).unwrap();
        }
        table.finish().unwrap();
        file.close().unwrap();
        let reader = dir.reader("m");
        let _ = reader.list();
        let _ = reader.verify();
        for index in 0..entries.len() {
            let name = index.to_string();
            let _ = reader.lookup(&name);
            let _ = reader.lookup_slice(&name, &TensorSlice::parse(&spec).unwrap());
        }
        let _ = dir.merge(&["m"], "merged");
    }
}
