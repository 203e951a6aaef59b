//! The local file system does what its traits say, with TensorFlow's errors.

use super::*;
use tensor::Code;

fn directory() -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap().to_owned();
    (directory, path)
}

fn write(file_system: &dyn FileSystem, path: &str, content: &[u8]) {
    let mut file = file_system.create(path).unwrap();
    file.append(content).unwrap();
    file.close().unwrap();
}

#[test]
fn write_read_rename_delete() {
    let (_keep, dir) = directory();
    let fs = FileSystems::local();
    let (a, b) = (format!("{dir}/a"), format!("file://{dir}/b"));
    write(&fs, &a, b"hello");
    let mut file = fs.open_append(&a).unwrap();
    file.append(b" world").unwrap();
    file.sync().unwrap();
    assert_eq!(fs.read(&a).unwrap(), b"hello world");
    file.close().unwrap();
    fs.rename(&a, &b).unwrap();
    assert!(!fs.exists(&a).unwrap() && fs.exists(&b).unwrap());
    assert_eq!(fs.read_range(&b, 6, 3).unwrap(), b"wor");
    assert_eq!(fs.read_range(&b, 9, usize::MAX).unwrap(), b"ld");
    assert_eq!(fs.read_range(&b, 100, 3).unwrap(), b"");
    let statistics = fs.stat(&b).unwrap();
    assert_eq!((statistics.length, statistics.is_directory), (11, false));
    assert!(statistics.modified_nanos > 0);
    let reader = fs.open(&b).unwrap();
    let mut buffer = [0; 8];
    assert_eq!(reader.read_at(6, &mut buffer).unwrap(), 5);
    assert_eq!(reader.read_exact_at(6, &mut buffer).unwrap_err().code(), Code::OutOfRange);
    assert_eq!(reader.read_at(u64::MAX, &mut buffer).unwrap(), 0);
    fs.delete_file(&b).unwrap();
    assert!(!fs.exists(&b).unwrap());
}

#[test]
fn errors_have_the_code_and_the_path() {
    let (_keep, dir) = directory();
    let fs = FileSystems::local();
    let missing = format!("{dir}/missing");
    let status = fs.read(&missing).unwrap_err();
    assert_eq!(
        (status.code(), status.message().to_owned()),
        (Code::NotFound, format!("{missing}; No such file or directory"))
    );
    assert_eq!(fs.create(&format!("{missing}/x")).err().unwrap().code(), Code::NotFound);
    assert_eq!(fs.open(&dir).err().unwrap().code(), Code::FailedPrecondition);
    assert_eq!(fs.create_dir(&dir).unwrap_err().code(), Code::AlreadyExists);
    assert_eq!(fs.create_dir("").unwrap_err().code(), Code::AlreadyExists);
    write(&fs, &missing, b"");
    assert_eq!(fs.create_new(&missing).err().unwrap().code(), Code::AlreadyExists);
    assert_eq!(fs.list(&missing).unwrap_err().code(), Code::FailedPrecondition);
    assert!(!fs.exists(&format!("{missing}/below")).unwrap());
    let status = fs.read("s3://bucket/key").unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    let message = "File system scheme 's3' not implemented (file: 's3://bucket/key')";
    assert!(status.message().starts_with(message), "{status}");
}

/// What has no end, or waits for another program, is refused at once, whatever is to be done with it.
#[test]
fn only_regular_files_are_opened() {
    let (_keep, dir) = directory();
    let fs = FileSystems::local();
    let (pipe, socket) = (format!("{dir}/pipe"), format!("{dir}/socket"));
    let status = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(status.success());
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for (path, kind) in [
        ("/dev/zero", "a character device"),
        ("/dev/full", "a character device"),
        (&pipe, "a named pipe"),
        (&socket, "a socket"),
    ] {
        let expected = format!("{path}; Not a regular file but {kind}");
        let failures = [
            fs.read(path).err(),
            fs.open(path).err(),
            fs.create(path).err(),
            fs.open_append(path).err(),
            fs.write_atomically(path, b"x").err(),
        ];
        for status in failures.into_iter().map(Option::unwrap) {
            assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
            // Beside a device there may be no room for a file that is to take its place.
            assert!(status.message() == expected || path.starts_with("/dev"), "{status}");
        }
    }
    assert_eq!(fs.read(&dir).unwrap_err().message(), format!("{dir}; Is a directory"));
}

#[test]
fn a_file_that_does_not_say_how_long_it_is_is_read() {
    let content = FileSystems::local().read("/proc/self/maps").unwrap();
    assert!(!content.is_empty() && content.ends_with(b"\n"), "{}", content.len());
}

#[test]
fn a_file_larger_than_any_tensor_is_refused_before_memory_is_taken() {
    let (_keep, dir) = directory();
    let path = format!("{dir}/holes");
    std::fs::File::create(&path).unwrap().set_len(1 << 42).unwrap();
    assert_eq!(FileSystems::local().read(&path).unwrap_err().code(), Code::ResourceExhausted);
}

/// A cancelled reader stops in the middle of a file.
#[test]
fn reading_ends_when_it_is_interrupted() {
    let (_keep, dir) = directory();
    let path = format!("{dir}/holes");
    std::fs::File::create(&path).unwrap().set_len(8 << 20).unwrap();
    let interrupt = tensor::Interrupt::new();
    let file = FileSystems::local().open(&path).unwrap();
    assert_eq!(interrupt.within(|| file.read_at(0, &mut vec![0; 8 << 20])).unwrap(), 8 << 20);
    interrupt.raise();
    let status = interrupt.within(|| file.read_at(0, &mut vec![0; 8 << 20])).unwrap_err();
    assert_eq!(status.code(), Code::Cancelled);
}

#[test]
fn atomic_writes_leave_the_old_content_on_failure_and_no_litter() {
    let (_keep, dir) = directory();
    let fs = FileSystems::local();
    let path = format!("{dir}/checkpoint");
    fs.write_atomically(&path, b"one").unwrap();
    fs.write_atomically(&path, b"two").unwrap();
    assert_eq!(fs.read(&path).unwrap(), b"two");
    // A directory can't be replaced by a file.
    let taken = format!("{dir}/taken");
    fs.create_dir(&taken).unwrap();
    assert!(fs.write_atomically(&taken, b"x").is_err());
    assert_eq!(fs.list(&dir).unwrap(), ["checkpoint", "taken"]);
}

#[test]
fn temporary_names_step_over_leftovers() {
    let (_keep, dir) = directory();
    let fs = FileSystems::local();
    let path = format!("{dir}/m");
    let (first, _file) = create_temporary(&fs, &path).unwrap();
    let (second, _file) = create_temporary(&fs, &path).unwrap();
    assert_ne!(first, second);
    assert!(first.starts_with(&format!("{path}.tempstate")));
}

#[test]
fn globs_and_directories() {
    let (_keep, dir) = directory();
    let fs = FileSystems::local();
    fs.create_dir_all(&format!("{dir}/x/y")).unwrap();
    fs.create_dir_all(&format!("{dir}/x/y")).unwrap();
    for name in ["x/a1", "x/a2", "x/b1", "x/.hidden", "x/y/a1"] {
        write(&fs, &format!("{dir}/{name}"), b"");
    }
    let found = |pattern: &str| -> Vec<String> {
        let paths = fs.glob(&format!("{dir}/{pattern}")).unwrap();
        paths.iter().map(|path| path.strip_prefix(&format!("{dir}/")).unwrap().to_owned()).collect()
    };
    assert_eq!(found("x/a*"), ["x/a1", "x/a2"]);
    assert_eq!(found("x/*"), ["x/a1", "x/a2", "x/b1", "x/y"]);
    assert_eq!(found("*/*/a1"), ["x/y/a1"]);
    assert_eq!(found("*/y/a1"), ["x/y/a1"]);
    assert_eq!(found("x/a1"), ["x/a1"]);
    assert_eq!(found("x/none"), [""; 0]);
    assert_eq!(found("none/*"), [""; 0]);
    assert_eq!(fs.glob(&format!("file://{dir}/x/b*")).unwrap(), [format!("file://{dir}/x/b1")]);
    assert_eq!(fs.delete_dir(&format!("{dir}/x")).unwrap_err().code(), Code::FailedPrecondition);
    fs.delete_recursively(&format!("{dir}/x")).unwrap();
    assert_eq!(fs.list(&dir).unwrap(), [""; 0]);
}

#[test]
fn a_directory_without_permission_is_permission_denied() {
    // Nobody, not even root, creates files there, whether it is mounted read-only or not.
    let status = FileSystems::local().create("/sys/kernel/ferroflow").err().unwrap();
    assert_eq!(status.code(), Code::PermissionDenied);
}

/// A directory with a root in it, and beside the root a file that nobody may reach.
struct Confined {
    directory: tempfile::TempDir,
    files: FileSystems,
}

impl Confined {
    fn new(suffix: &str, read_only: bool) -> Confined {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("root/inner")).unwrap();
        std::fs::write(directory.path().join("root/inside"), b"inside").unwrap();
        std::fs::write(directory.path().join("secret"), b"secret").unwrap();
        std::os::unix::fs::symlink("../secret", directory.path().join("root/link")).unwrap();
        std::os::unix::fs::symlink(directory.path(), directory.path().join("root/above")).unwrap();
        std::os::unix::fs::symlink("inside", directory.path().join("root/alias")).unwrap();
        let root = format!("{}/root{suffix}", directory.path().to_str().unwrap());
        let files = FileSystems::confined(&[root.parse().unwrap()], read_only).unwrap();
        Confined { directory, files }
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.directory.path().to_str().unwrap())
    }
}

#[track_caller]
fn check_denied<T>(result: Result<T>) {
    assert_eq!(result.err().map(|status| status.code()), Some(Code::PermissionDenied));
}

#[test]
fn a_root_holds_every_operation_beneath_it() {
    let confined = Confined::new("", false);
    let files = &confined.files;
    let outside = ["secret", "root/../secret", "root/link", "root/above/secret", "root/inner/../../secret", "rootless"];
    for path in outside.map(|name| confined.path(name)) {
        check_denied(files.open(&path));
        check_denied(files.read(&path));
        check_denied(files.create(&path));
        check_denied(files.open_append(&path));
        check_denied(files.exists(&path));
        check_denied(files.stat(&path));
    }
    for path in
        ["secret", "root/../secret", "root/above/secret", "new", "root/above/new"].map(|name| confined.path(name))
    {
        let inside = confined.path("root/inside");
        check_denied(files.create_new(&path));
        check_denied(files.rename(&path, &inside));
        check_denied(files.rename(&inside, &path));
        check_denied(files.delete_file(&path));
        check_denied(files.create_dir(&path));
        check_denied(files.create_dir_all(&path));
        check_denied(files.delete_dir(&path));
        check_denied(files.list(&path));
    }
    check_denied(files.glob(&confined.path("*")));
    check_denied(files.glob(&confined.path("secret")));
    assert_eq!(std::fs::read(confined.directory.path().join("secret")).unwrap(), b"secret");
}

#[test]
fn everything_beneath_a_root_works_as_elsewhere() {
    let confined = Confined::new("", false);
    let files = &confined.files;
    assert_eq!(files.read(&confined.path("root/inside")).unwrap(), b"inside");
    assert_eq!(files.read(&format!("file://{}", confined.path("root/alias"))).unwrap(), b"inside");
    assert_eq!(files.read(&confined.path("root//inner/../inside")).unwrap(), b"inside");
    let made = confined.path("root/a/b/c");
    files.create_dir_all(&made).unwrap();
    files.create_dir_all(&made).unwrap();
    let file = format!("{made}/file");
    files.write_atomically(&file, b"one").unwrap();
    files.write_atomically(&file, b"two").unwrap();
    assert_eq!(files.read(&file).unwrap(), b"two");
    assert_eq!(files.stat(&file).unwrap().length, 3);
    assert!(files.stat(&made).unwrap().is_directory);
    assert!(!files.exists(&confined.path("root/missing")).unwrap());
    assert!(!files.exists(&confined.path("root/inside/beneath")).unwrap());
    assert_eq!(files.glob(&confined.path("root/a/*/c/f*")).unwrap(), [file.clone()]);
    assert_eq!(files.list(&confined.path("root")).unwrap(), ["a", "above", "alias", "inner", "inside", "link"]);
    let mut appended = files.open_append(&file).unwrap();
    appended.append(b"!").unwrap();
    appended.close().unwrap();
    let renamed = confined.path("root/renamed");
    files.rename(&file, &renamed).unwrap();
    assert_eq!(files.read(&renamed).unwrap(), b"two!");
    files.delete_recursively(&confined.path("root/a")).unwrap();
    assert!(!files.exists(&made).unwrap());
    assert_eq!(files.open(&confined.path("root/inner")).err().unwrap().code(), Code::FailedPrecondition);
}

#[test]
fn a_root_or_a_server_that_may_only_read_changes_nothing() {
    for confined in [Confined::new(":ro", false), Confined::new("", true)] {
        let files = &confined.files;
        let (inside, new) = (confined.path("root/inside"), confined.path("root/new"));
        assert_eq!(files.read(&inside).unwrap(), b"inside");
        assert!(files.exists(&inside).unwrap());
        check_denied(files.create(&inside));
        check_denied(files.create_new(&new));
        check_denied(files.open_append(&inside));
        check_denied(files.write_atomically(&inside, b"changed"));
        check_denied(files.rename(&inside, &new));
        check_denied(files.delete_file(&inside));
        check_denied(files.delete_dir(&confined.path("root/inner")));
        check_denied(files.create_dir(&new));
        check_denied(files.create_dir_all(&new));
        check_denied(files.read(&confined.path("secret")));
        assert_eq!(std::fs::read(&inside).unwrap(), b"inside");
    }
}

#[test]
fn the_innermost_root_decides() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(directory.path().join("data/out")).unwrap();
    let at = |name: &str| format!("{}/{name}", directory.path().to_str().unwrap());
    let roots: Vec<FileRoot> =
        [format!("{}:ro", at("data")), at("data/out")].iter().map(|root| root.parse().unwrap()).collect();
    let files = FileSystems::confined(&roots, false).unwrap();
    check_denied(files.create(&at("data/x")));
    files.create(&at("data/out/x")).unwrap();
    assert!(FileSystems::confined(&[at("missing").parse().unwrap()], false).is_err());
    assert!(FileSystems::confined(&[at("data/out/x").parse().unwrap()], false).is_err());
    assert!("".parse::<FileRoot>().is_err() && ":ro".parse::<FileRoot>().is_err());
}

#[test]
fn locks_beneath_a_root() {
    let confined = Confined::new("", false);
    let (files, path) = (&confined.files, confined.path("root/lock"));
    let Locking::Held(lock) = files.try_lock_file(&path, "one").unwrap() else { panic!("not locked") };
    assert!(matches!(files.try_lock_file(&path, "two").unwrap(), Locking::Taken(who) if who == "one"));
    assert!(matches!(LocalFileSystem.try_lock_file(&path, "two").unwrap(), Locking::Taken(who) if who == "one"));
    drop(lock);
    assert!(!files.exists(&path).unwrap());
    check_denied(files.try_lock_file(&confined.path("lock"), "one"));
    check_denied(files.create_locked(&confined.path("root/above/x")));
    check_denied(files.lock_existing(&confined.path("secret")));
    // A link to a file outside is not followed.
    assert!(files.lock_existing(&confined.path("root/link")).is_err());
    let locked = files.create_locked(&confined.path("root/locked")).unwrap();
    assert!(files.lock_existing(&confined.path("root/locked")).unwrap().is_none());
    locked.close().unwrap();
    assert!(files.lock_existing(&confined.path("root/locked")).unwrap().is_some());
    assert_eq!(files.locks_reach_all_hosts(&path), LocalFileSystem.locks_reach_all_hosts(&path));
}
