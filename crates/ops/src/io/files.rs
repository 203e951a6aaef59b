//! Whole files: ReadFile, WriteFile, MatchingFiles.

use super::{scalar_text, texts};
use crate::file_access::file_system;
use bytes::Bytes;
use graph::Output;
use kernel::{BoxedKernel, Cost, Gradient, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext, shape};
use storage::file_system::path;
use tensor::{Code, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ReadFile",
            inputs: &["filename: string"],
            outputs: &["contents: string"],
            attrs: &[],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            c.with_rank(0, 0)?;
            shape::scalar(c)
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new_blocking(ReadFile))],
    },
    Op {
        def: OpDef {
            name: "WriteFile",
            inputs: &["filename: string", "contents: string"],
            outputs: &[],
            attrs: &[],
            flags: OpFlags::STATEFUL,
        },
        shape: |c| {
            c.with_rank(0, 0)?;
            c.with_rank(1, 0)?;
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new_blocking(WriteFile))],
    },
    Op {
        def: OpDef {
            name: "MatchingFiles",
            inputs: &["pattern: string"],
            outputs: &["filenames: string"],
            attrs: &[],
            flags: OpFlags::NONE,
        },
        shape: matching_files_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new_blocking(MatchingFiles))],
    },
];

/// Returns the content of a file.
#[track_caller]
pub fn read_file(filename: &Output) -> Output {
    filename.graph().op("ReadFile").input(filename).output()
}

/// Returns the names of the files that match a pattern, or one of several.
#[track_caller]
pub fn matching_files(pattern: &Output) -> Output {
    pattern.graph().op("MatchingFiles").input(pattern).output()
}

fn matching_files_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank_at_most(0, 1)?;
    c.set_output(0, PartialShape::unknown_of_rank(1));
    Ok(())
}

struct ReadFile;

impl Kernel for ReadFile {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let name = scalar_text(context.input(0)?, "Input filename tensor")?;
        context.set_output(0, Tensor::string(file_system().read(&name)?));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

struct WriteFile;

impl Kernel for WriteFile {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let name = scalar_text(context.input(0)?, "Input filename tensor")?;
        let contents = context.input(1)?;
        let [contents] = contents.strings()? else {
            return Err(Status::invalid_argument(format!(
                "Contents tensor must be scalar, but had shape: {}",
                contents.shape()
            )));
        };
        let files = file_system();
        let directory = path::dirname(&name);
        if !directory.is_empty() && !files.exists(directory)? {
            match files.create_dir_all(directory) {
                Err(status) if status.code() != Code::AlreadyExists => return Err(status),
                _ => {}
            }
        }
        files.write_atomically(&name, contents)
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

struct MatchingFiles;

impl Kernel for MatchingFiles {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let mut names = Vec::new();
        for pattern in texts(context.input(0)?)? {
            names.extend(file_system().glob(&pattern)?);
        }
        names.sort();
        let names: Vec<Bytes> = names.into_iter().map(Bytes::from).collect();
        context.set_output(0, Tensor::from_strings(Shape::vector(names.len()), names)?);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, run_op};
    use tensor::{Code, Tensor};

    #[test]
    fn a_file_that_is_written_is_found_and_read() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| Tensor::string(directory.path().join(name).to_str().unwrap().to_owned());
        run_op("WriteFile", attrs![], &[at("x/y/b.txt"), Tensor::string("hello")]).unwrap();
        run_op("WriteFile", attrs![], &[at("x/y/a.txt"), Tensor::string("")]).unwrap();
        assert_eq!(run_op("ReadFile", attrs![], &[at("x/y/b.txt")]).unwrap()[0].strings().unwrap()[0], "hello");
        let names = run_op("MatchingFiles", attrs![], &[at("x/y/*.txt")]).unwrap();
        assert_eq!(names[0].dims(), &[2]);
        assert!(names[0].strings().unwrap()[0].ends_with(b"a.txt"));
        assert_eq!(run_op("ReadFile", attrs![], &[at("no")]).unwrap_err().code(), Code::NotFound);
    }

    #[test]
    fn what_has_no_end_is_refused() {
        let zero = Tensor::string("/dev/zero");
        let status = run_op("ReadFile", attrs![], &[zero.clone()]).unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(status.message(), "/dev/zero; Not a regular file but a character device");
        let status = run_op("WriteFile", attrs![], &[zero, Tensor::string("x")]).unwrap_err();
        assert_ne!(status.code(), Code::Internal);
    }
}
