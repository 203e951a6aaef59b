//! Tests of files, checkpoints and events in an in-memory store.

use super::*;
use crate::bundle::{BundleReader, BundleWriter, BundleWriterOptions, MergeOptions, merge_bundles, meta_filename};
use crate::checkpoint_state::{SavedPaths, get_checkpoint_state, latest_checkpoint, update_checkpoint_state};
use crate::event::{EventsReader, EventsWriter, FlushPolicy};
use crate::file_system::{FileRoot, FileSystems};
use object_store::memory::InMemory;
use proto::{CheckpointState, Event};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tensor::Tensor;

/// An in-memory bucket for every name.
#[derive(Default)]
struct MemoryStores(Mutex<HashMap<String, Arc<InMemory>>>);

impl Stores for MemoryStores {
    fn store(&self, scheme: &str, bucket: &str) -> Result<Arc<dyn ObjectStore>> {
        Ok(self.0.lock().unwrap().entry(format!("{scheme}://{bucket}")).or_default().clone())
    }
}

fn files() -> RemoteFileSystem {
    RemoteFileSystem::with_stores(Arc::new(MemoryStores::default()))
}

fn write(files: &dyn FileSystem, path: &str, content: &[u8]) {
    let mut file = files.create(path).unwrap();
    file.append(content).unwrap();
    file.close().unwrap();
}

fn code<T>(result: Result<T>) -> Code {
    result.err().expect("it fails").code()
}

/// Returns bytes that depend on their position.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index / 7 % 251) as u8).collect()
}

#[test]
fn a_file_appears_when_it_is_closed() {
    let files = files();
    let mut file = files.create("s3://b/dir/x").unwrap();
    file.append(b"some").unwrap();
    assert!(!files.exists("s3://b/dir/x").unwrap() && !files.exists("s3://b/dir").unwrap());
    file.append(b"thing").unwrap();
    file.close().unwrap();
    assert_eq!(files.read("s3://b/dir/x").unwrap(), b"something");
    assert_eq!(files.read_range("s3://b//dir/./x", 4, 100).unwrap(), b"thing");
    // A file that is dropped leaves the old content.
    let mut file = files.create("s3://b/dir/x").unwrap();
    file.append(&pattern(writer::PART_BYTES + 1)).unwrap();
    drop(file);
    assert_eq!(files.read("s3://b/dir/x").unwrap(), b"something");
    let statistics = files.stat("s3://b/dir/x").unwrap();
    assert!(statistics.length == 9 && !statistics.is_directory && statistics.modified_nanos > 0);
    assert!(files.stat("s3://b/dir").unwrap().is_directory);
    write(&files, "s3://b/empty", b"");
    assert_eq!(files.read("s3://b/empty").unwrap(), b"");
}

#[test]
fn large_files_are_written_and_read_in_parts() {
    let files = files();
    let content = pattern(2 * writer::PART_BYTES + 12_345);
    let mut file = files.create("gs://b/large").unwrap();
    for piece in content.chunks(700_001) {
        file.append(piece).unwrap();
    }
    file.sync().unwrap();
    assert!(files.read("gs://b/large").unwrap() == content);
    // Bytes after a flush are appended to the existing ones.
    file.append(b"more").unwrap();
    file.close().unwrap();
    let file = files.open("gs://b/large").unwrap();
    assert_eq!(file.length().unwrap(), content.len() as u64 + 4);
    // Sequentially, in pieces that fit no range, and then in the middle and after the end.
    let (mut read, mut buffer) = (Vec::new(), vec![0; 300_007]);
    loop {
        let count = file.read_at(read.len() as u64, &mut buffer).unwrap();
        read.extend_from_slice(&buffer[..count]);
        if count < buffer.len() {
            break;
        }
    }
    assert!(read[..content.len()] == content && read.ends_with(b"more"));
    let mut buffer = vec![0; 100];
    file.read_exact_at(9_000_000, &mut buffer).unwrap();
    assert!(buffer == content[9_000_000..9_000_100]);
    assert_eq!(file.read_at(u64::MAX, &mut buffer).unwrap(), 0);
    assert_eq!(code(file.read_exact_at(content.len() as u64, &mut buffer)), Code::OutOfRange);
}

#[test]
fn a_file_grows_with_each_flush() {
    let files = files();
    let mut file = files.create_new("az://c/log").unwrap();
    let reader = files.open("az://c/log").unwrap();
    assert_eq!(reader.length().unwrap(), 0);
    file.append(b"one").unwrap();
    file.flush().unwrap();
    assert_eq!(reader.length().unwrap(), 3);
    file.append(b"two").unwrap();
    file.flush().unwrap();
    assert_eq!(reader.length().unwrap(), 6);
    let mut buffer = [0; 6];
    reader.read_exact_at(0, &mut buffer).unwrap();
    assert_eq!(&buffer, b"onetwo");
    file.close().unwrap();
    let mut file = files.open_append("az://c/log").unwrap();
    file.append(b"three").unwrap();
    file.close().unwrap();
    assert_eq!(files.read("az://c/log").unwrap(), b"onetwothree");
}

/// A reader gets one version of an object, not parts of two.
#[test]
fn a_replaced_object_is_noticed() {
    let files = files();
    write(&files, "s3://b/x", &pattern(1 << 20));
    let reader = files.open("s3://b/x").unwrap();
    reader.read_exact_at(0, &mut [0; 10]).unwrap();
    write(&files, "s3://b/x", &vec![255; 1 << 20]);
    assert_eq!(code(reader.read_exact_at(900_000, &mut [0; 10])), Code::Aborted);
}

/// A store where something happens meanwhile.
struct Disturbed {
    files: RemoteFileSystem,
    /// What replaces a file, once, as soon as it is open.
    replaced_by: Mutex<Option<Vec<u8>>>,
    /// Whether directories can't be listed, which is so from the creation of an index on.
    fails_to_list: AtomicBool,
}

impl Disturbed {
    fn new() -> Disturbed {
        Disturbed { files: files(), replaced_by: Mutex::new(None), fails_to_list: AtomicBool::new(false) }
    }
}

impl FileSystem for Disturbed {
    fn open(&self, path: &str) -> Result<Box<dyn RandomAccessFile>> {
        let file = self.files.open(path)?;
        if let Some(content) = self.replaced_by.lock().unwrap().take() {
            write(&self.files, path, &content);
        }
        Ok(file)
    }
    fn create(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        self.fails_to_list.fetch_or(path.ends_with(".index"), Ordering::Relaxed);
        self.files.create(path)
    }
    fn create_new(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        self.files.create_new(path)
    }
    fn appears_whole(&self, path: &str) -> bool {
        self.files.appears_whole(path)
    }
    fn open_append(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        self.files.open_append(path)
    }
    fn exists(&self, path: &str) -> Result<bool> {
        self.files.exists(path)
    }
    fn stat(&self, path: &str) -> Result<FileStatistics> {
        self.files.stat(path)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.files.rename(from, to)
    }
    fn delete_file(&self, path: &str) -> Result<()> {
        self.files.delete_file(path)
    }
    fn delete_dir(&self, path: &str) -> Result<()> {
        self.files.delete_dir(path)
    }
    fn create_dir(&self, path: &str) -> Result<()> {
        self.files.create_dir(path)
    }
    fn create_dir_all(&self, path: &str) -> Result<()> {
        self.files.create_dir_all(path)
    }
    fn list(&self, path: &str) -> Result<Vec<String>> {
        match self.fails_to_list.load(Ordering::Relaxed) {
            true => Err(Status::unavailable(format!("{path}; The store did not answer in time"))),
            false => self.files.list(path),
        }
    }
    fn sync_dir(&self, path: &str) -> Result<()> {
        self.files.sync_dir(path)
    }
}

/// Whoever reads the name of the newest checkpoint while another one is saved gets the old one or the new one.
#[test]
fn a_file_that_is_replaced_is_read_as_it_was_at_one_time() {
    let files = Disturbed::new();
    write(&files, "s3://b/x", b"what was");
    *files.replaced_by.lock().unwrap() = Some(b"what is new and longer".to_vec());
    assert_eq!(files.read("s3://b/x").unwrap(), b"what is new and longer");
}

#[test]
fn a_name_is_reserved_once() {
    let files = files();
    let first = files.create_new("s3://b/x").unwrap();
    assert_eq!(code(files.create_new("s3://b/x")), Code::AlreadyExists);
    first.close().unwrap();
    assert_eq!(code(files.create_new("s3://b/x")), Code::AlreadyExists);
}

#[test]
fn directories_are_what_is_beneath_them() {
    let files = files();
    for path in ["s3://b/d/x.1", "s3://b/d/y.1", "s3://b/d/e/z.1", "s3://b/dd/x.1", "s3://other/x"] {
        write(&files, path, b"x");
    }
    assert_eq!(files.list("s3://b").unwrap(), ["d", "dd"]);
    assert_eq!(files.list("s3://b/d/").unwrap(), ["e", "x.1", "y.1"]);
    assert_eq!(files.glob("s3://b/d*/[xy].1").unwrap(), ["s3://b/d/x.1", "s3://b/d/y.1", "s3://b/dd/x.1"]);
    assert_eq!(files.glob("s3://b/d/e/z.1").unwrap(), ["s3://b/d/e/z.1"]);
    assert_eq!(code(files.list("s3://b/missing")), Code::NotFound);
    assert_eq!(code(files.list("s3://b/d/x.1")), Code::FailedPrecondition);
    assert_eq!(code(files.create_dir("s3://b/d")), Code::AlreadyExists);
    files.create_dir("s3://b/new").unwrap();
    files.create_dir_all("s3://b/new/one").unwrap();
    assert_eq!(code(files.delete_dir("s3://b/d")), Code::FailedPrecondition);
    files.delete_recursively("s3://b/d").unwrap();
    assert!(!files.exists("s3://b/d").unwrap());
    assert_eq!(code(files.delete_file("s3://b/d/x.1")), Code::NotFound);
    files.rename("s3://b/dd/x.1", "s3://other/moved").unwrap();
    assert_eq!(files.read("s3://other/moved").unwrap(), b"x");
    assert!(!files.exists("s3://b/dd/x.1").unwrap());
    files.rename("s3://other/moved", "s3://other/x").unwrap();
    assert_eq!(files.list("s3://other").unwrap(), ["x"]);
    assert_eq!(code(files.rename("s3://b/none", "s3://b/x")), Code::NotFound);
}

#[test]
fn names_that_no_store_can_have() {
    let files = files();
    for path in ["s3://", "s3:///x", "s3://b?x=1/y", "s3://a@b/y", "s3://b/../y", "s3://b/a\nb"] {
        let status = files.exists(path).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{path}");
        assert!(status.message().starts_with(path), "{status}");
    }
    assert_eq!(code(files.open("s3://b")), Code::FailedPrecondition);
    let status = files.open("s3://b/x").err().unwrap();
    assert_eq!((status.code(), status.message()), (Code::NotFound, "s3://b/x; No such file or directory"));
}

fn save(files: &Arc<dyn FileSystem>, prefix: &str, value: f32) {
    let mut writer = BundleWriter::new(files.clone(), prefix, BundleWriterOptions::default()).unwrap();
    writer.add("w", &Tensor::scalar(value)).unwrap();
    writer.finish().unwrap();
}

fn restore(files: &Arc<dyn FileSystem>, prefix: &str) -> f32 {
    BundleReader::open(files.clone(), prefix).unwrap().lookup("w").unwrap().to_scalar().unwrap()
}

#[test]
fn checkpoints_are_replaced_in_one_step() {
    let files: Arc<dyn FileSystem> = Arc::new(files());
    let prefix = "s3://b/logs/model.ckpt-1";
    save(&files, prefix, 1.0);
    assert_eq!(files.list("s3://b/logs").unwrap(), ["model.ckpt-1.data-00000-of-00001", "model.ckpt-1.index"]);
    // A saver was killed in the middle of a save: its data file is reserved, or even complete.
    let mut killed = BundleWriter::new(files.clone(), prefix, BundleWriterOptions::default()).unwrap();
    killed.add("w", &Tensor::scalar(2f32)).unwrap();
    std::mem::forget(killed);
    assert_eq!(restore(&files, prefix), 1.0);
    save(&files, prefix, 3.0);
    assert_eq!(restore(&files, prefix), 3.0);
    assert!(!files.exists("s3://b/logs/model.ckpt-1.data-00000-of-00001").unwrap());
    // An error instead of a kill leaves nothing.
    let before = files.list("s3://b/logs").unwrap();
    drop(BundleWriter::new(files.clone(), prefix, BundleWriterOptions::default()).unwrap());
    assert_eq!(files.list("s3://b/logs").unwrap(), before);

    let state = CheckpointState { model_checkpoint_path: prefix.to_owned(), ..CheckpointState::default() };
    update_checkpoint_state(&*files, "s3://b/logs", state, None, SavedPaths::AsGiven).unwrap();
    assert_eq!(latest_checkpoint(&*files, "s3://b/logs", None).unwrap().as_deref(), Some(prefix));
    assert_eq!(get_checkpoint_state(&*files, "s3://b/none", None).unwrap(), None);
}

/// What fails once the index is there leaves the new checkpoint, not an index without data.
#[test]
fn a_checkpoint_stays_if_the_data_of_before_cannot_be_deleted() {
    let disturbed = Arc::new(Disturbed::new());
    let files: Arc<dyn FileSystem> = disturbed.clone();
    let prefix = "s3://b/logs/model.ckpt-1";
    save(&files, prefix, 1.0);
    disturbed.fails_to_list.store(false, Ordering::Relaxed);
    save(&files, prefix, 2.0);
    assert!(disturbed.fails_to_list.load(Ordering::Relaxed));
    assert_eq!(restore(&files, prefix), 2.0);
}

/// Two savers of one checkpoint have data files of their own; the index that is put last decides.
#[test]
fn of_two_savers_one_has_written_the_checkpoint() {
    let files: Arc<dyn FileSystem> = Arc::new(files());
    let prefix = "gs://b/model";
    let savers = [1f32, 2.0].map(|value| {
        let mut writer = BundleWriter::new(files.clone(), prefix, BundleWriterOptions::default()).unwrap();
        writer.add("w", &Tensor::scalar(value)).unwrap();
        writer
    });
    for (saver, value) in savers.into_iter().zip([1f32, 2.0]) {
        saver.finish().unwrap();
        assert_eq!(restore(&files, prefix), value);
    }
}

#[test]
fn parts_become_one_checkpoint() {
    let files: Arc<dyn FileSystem> = Arc::new(files());
    let merged = "s3://b/logs/model.ckpt-7";
    let parts = [0, 1].map(|part| format!("{merged}_temp_0123456789abcdef0123456789abcdef/part-0000{part}-of-00002"));
    for round in [10f32, 20.0] {
        for (part, name) in parts.iter().zip(["a", "b"]) {
            let mut writer = BundleWriter::new(files.clone(), part, BundleWriterOptions::default()).unwrap();
            writer.add(name, &Tensor::scalar(round)).unwrap();
            writer.finish().unwrap();
        }
        let options = MergeOptions { delete_old_dirs: true, ..MergeOptions::default() };
        merge_bundles(&*files, &parts, merged, options).unwrap();
        let reader = BundleReader::open(files.clone(), merged).unwrap();
        for name in ["a", "b"] {
            assert_eq!(reader.lookup(name).unwrap().to_scalar::<f32>().unwrap(), round);
        }
        // The index, and two data files.
        assert_eq!(files.list("s3://b/logs").unwrap().len(), 3);
        assert!(files.exists(&meta_filename(merged)).unwrap());
    }
}

#[test]
fn events_are_read_while_they_are_written() {
    let files = Arc::new(files());
    let policy = FlushPolicy { max_events: 100, ..FlushPolicy::default() };
    let mut writer = EventsWriter::create_in(files.clone(), "s3://b/logs", "", 1_700_000_000.0, policy).unwrap();
    let first = writer.path().to_owned();
    let mut reader = EventsReader::open(&*files, &first).unwrap();
    assert!(reader.next_event().unwrap().is_some() && reader.next_event().unwrap().is_none());
    writer.write(&Event { step: 1, wall_time: 1_700_000_001.0, ..Event::default() }).unwrap();
    writer.flush().unwrap();
    assert_eq!(reader.next_event().unwrap().unwrap().step, 1);
    // A file that has become large is followed by a new one.
    let large = Event {
        step: 2,
        wall_time: 1_700_000_002.0,
        what: Some(proto::event::What::GraphDef(vec![7; 5 << 20].into())),
        ..Event::default()
    };
    writer.write(&large).unwrap();
    writer.flush().unwrap();
    writer.write(&Event { step: 3, wall_time: 1_700_000_003.0, ..Event::default() }).unwrap();
    assert_ne!(writer.path(), first);
    let second = writer.path().to_owned();
    writer.close().unwrap();
    assert!(second > first);
    let steps = |path: &str| {
        let mut reader = EventsReader::open(&*files, path).unwrap();
        std::iter::from_fn(|| reader.next_event().unwrap()).map(|event| event.step).collect::<Vec<_>>()
    };
    assert_eq!((steps(&first), steps(&second)), (vec![0, 1, 2], vec![0, 3]));
}

#[test]
fn only_what_is_beneath_a_root_is_reached() {
    let stores = Arc::new(MemoryStores::default());
    let open = RemoteFileSystem::with_stores(stores.clone());
    for path in ["s3://b/in/x", "s3://b/in/ro/x", "s3://b/inside", "s3://c/in/x"] {
        write(&open, path, b"x");
    }
    let roots: Vec<FileRoot> = ["s3://b/in", "s3://b/in/ro/:ro"].map(|root| root.parse().unwrap()).into();
    let files = RootedRemoteFileSystem::new(RemoteFileSystem::with_stores(stores.clone()), &roots, false).unwrap();
    write(&files, "s3://b/in/new", b"x");
    assert_eq!(files.read("s3://b/in/ro/x").unwrap(), b"x");
    for path in ["s3://b/inside", "s3://c/in/x", "gs://b/in/x", "s3://b"] {
        assert_eq!(code(files.exists(path)), Code::PermissionDenied, "{path}");
    }
    assert_eq!(code(files.create("s3://b/in/ro/new")), Code::PermissionDenied);
    assert_eq!(code(files.rename("s3://b/in/x", "s3://b/out")), Code::PermissionDenied);
    assert_eq!(code(files.rename("s3://b/in/ro/x", "s3://b/in/y")), Code::PermissionDenied);
    assert_eq!(code(files.exists("s3://b/in/../inside")), Code::InvalidArgument);
    assert_eq!(code(files.glob("s3://b/i*")), Code::PermissionDenied);
    let none = RootedRemoteFileSystem::new(RemoteFileSystem::with_stores(stores), &roots, true).unwrap();
    assert_eq!(code(none.create("s3://b/in/new")), Code::PermissionDenied);
}

/// Without a root that is a URL, a confined server can access no store. A root must be valid.
#[test]
fn a_confined_server_reaches_no_store_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let root = |text: &str| vec![text.parse::<FileRoot>().unwrap()];
    let local = root(directory.path().to_str().unwrap());
    for files in [FileSystems::confined(&local, false), FileSystems::confined(&[], true)] {
        let status = files.unwrap().read("s3://bucket/x").unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied);
        assert!(status.message().contains("--file_root s3://BUCKET/DIR"), "{status}");
    }
    let remote = FileSystems::confined(&root("gs://bucket/dir:ro"), false).unwrap();
    assert_eq!(code(remote.read(directory.path().to_str().unwrap())), Code::PermissionDenied);
    assert_eq!(code(remote.create("gs://bucket/dir/x")), Code::PermissionDenied);
    let status = FileSystems::confined(&root("hdfs://host/dir"), false).err().unwrap();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("NFS gateway"), "{status}");
}

/// A cancelled step does not wait for a store that never answers.
#[test]
fn a_request_is_cancelled_with_its_step() {
    let interrupt = tensor::Interrupt::new();
    let raiser = interrupt.clone();
    let waited = interrupt.within(|| {
        runtime::wait::<()>("s3://b/x", async move {
            raiser.raise();
            std::future::pending().await
        })
    });
    assert_eq!(code(waited), Code::Cancelled);
}
