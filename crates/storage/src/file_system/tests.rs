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
    assert_eq!(status.message(), "File system scheme 's3' not implemented (file: 's3://bucket/key')");
}

#[test]
fn a_full_disk_is_resource_exhausted() {
    // The device that is always full.
    let mut file = FileSystems::local().open_append("/dev/full").unwrap();
    let status = file.append(&vec![0; 1 << 20]).and_then(|()| file.flush()).unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "/dev/full; No space left on device"));
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
