//! MatchingFilesDataset: the names of files that match patterns.

use super::base::{Dataset, DatasetIterator, Nesting, Next, dataset_kernel, dataset_op, ready};
use super::position::{Position, Restoring, Saving};
use super::task::with_files;
use crate::file_access::file_system;
use kernel::{KernelDef, Op, OpFlags, Step};
use parking_lot::Mutex;
use std::sync::Arc;
use tensor::{Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    dataset_op("MatchingFilesDataset", &["patterns: string"], &[], OpFlags::STATEFUL, KERNELS),
    dataset_op("ExperimentalMatchingFilesDataset", &["patterns: string"], &[], OpFlags::STATEFUL, KERNELS),
];

const KERNELS: &[KernelDef] = &[KernelDef::any(|_| {
    dataset_kernel(|context| {
        let patterns = context.input(0)?;
        if patterns.shape().rank() > 1 {
            return Err(Status::invalid_argument("`patterns` must be a scalar or a vector."));
        }
        let patterns = patterns.strings()?.iter().map(|text| String::from_utf8_lossy(text).into_owned());
        Ok(Matching { patterns: patterns.collect() })
    })
})];

struct Matching {
    patterns: Arc<[String]>,
}

impl Dataset for Matching {
    fn iterator(&self, _: Nesting) -> Result<Box<dyn DatasetIterator>> {
        let names = Names { patterns: self.patterns.clone(), found: None, next: 0 };
        Ok(Box::new(MatchingIterator { names: Arc::new(Mutex::new(names)) }))
    }
}

struct MatchingIterator {
    names: Arc<Mutex<Names>>,
}

struct Names {
    patterns: Arc<[String]>,
    /// The files that existed when the first name was requested.
    found: Option<Vec<String>>,
    next: usize,
}

impl Names {
    fn find(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for pattern in &*self.patterns {
            let mut names = file_system().glob(pattern)?;
            names.sort();
            found.extend(names);
        }
        if found.is_empty() {
            return Err(Status::not_found(format!(
                "Don't find any matched files matching pattern: {}",
                self.patterns.join(", ")
            )));
        }
        Ok(found)
    }

    fn next(&mut self) -> Result<Option<String>> {
        if self.found.is_none() {
            self.found = Some(self.find()?);
        }
        let name = self.found.as_ref().and_then(|found| found.get(self.next).cloned());
        self.next += usize::from(name.is_some());
        Ok(name)
    }
}

impl DatasetIterator for MatchingIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        let found = self.names.try_lock().and_then(|mut names| names.found.is_some().then(|| names.next()));
        if let Some(name) = found {
            return ready(name.map(|name| name.map(|name| vec![Tensor::string(name)])));
        }
        Box::pin(async move {
            let name = with_files(step, "names of files", &self.names, Names::next).await?;
            Ok(name.map(|name| vec![Tensor::string(name)]))
        })
    }

    fn save<'a>(&'a mut self, _: &'a Arc<Step>) -> Saving<'a> {
        let names = self.names.lock();
        let position = Position::of::<Self>().size(names.next).flag(names.found.is_some());
        let found = names.found.iter().flatten();
        let position = position.size(names.found.as_ref().map_or(0, Vec::len));
        let position = found.fold(position, |position, name| position.bytes(name.clone()));
        Box::pin(std::future::ready(Ok(position)))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, _: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let mut reader = position.read::<Self>()?;
            let (next, is_found) = (reader.size()?, reader.flag()?);
            let mut found = Vec::new();
            for _ in 0..reader.size()? {
                found.push(String::from_utf8_lossy(&reader.bytes()?).into_owned());
            }
            let mut names = self.names.lock();
            names.next = next;
            names.found = is_found.then_some(found);
            Ok(())
        })
    }
}
