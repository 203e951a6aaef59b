//! CacheDataset: caches another dataset's elements, in memory or in the files of TensorFlow's caches.
//!
//! A file cache is a checkpoint whose keys are the numbers of element and component. While it is being written it has a different
//! name, and a lock file beside it keeps a second writer away.

use super::base::{
    Dataset, DatasetIterator, Element, INPUT, Nesting, Next, PLAIN, dataset_op, element_bytes, input_dataset, ready,
    shared_dataset_kernel,
};
use super::position::{Position, Restoring, Saving};
use super::task::with_files;
use crate::file_access::file_system;
use kernel::{KernelBuilder, KernelDef, Logger, Op, OpFlags, Step};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use storage::bundle::{
    BundleReader, BundleWriter, BundleWriterOptions, MergeOptions, data_filename, merge_bundles, meta_filename,
};
use storage::file_system::FileSystem;
use tensor::{Code, Result, Status};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    dataset_op("CacheDataset", &[INPUT, "filename: string"], PLAIN, OpFlags::NONE, CACHE),
    dataset_op("CacheDatasetV2", &[INPUT, "filename: string", "cache: resource"], PLAIN, OpFlags::STATEFUL, CACHE),
];

/// The most elements that the keys of a file cache allow.
const FILE_ELEMENTS_MAX: usize = 10_000_000;

const CACHE: &[KernelDef] = &[KernelDef::any(|builder: &KernelBuilder<'_>| {
    let num_components = builder.attrs().dtypes("output_types")?.len();
    shared_dataset_kernel(move |context| {
        let input = input_dataset(context, 0)?;
        let name = context.input(1)?.strings()?.first().cloned().unwrap_or_default();
        if name.is_empty() {
            return Ok(Arc::new(MemoryCache { input, elements: Arc::default() }));
        }
        let prefix = String::from_utf8(name.to_vec())
            .map_err(|_| Status::invalid_argument("the name of a cache's files is not UTF-8"))?;
        Ok(Arc::new(FileCache { input, prefix, num_components }))
    })
})];

/// The cached elements, once an iterator has reached the end.
type Kept = Arc<Mutex<Option<Arc<Vec<Element>>>>>;

struct MemoryCache {
    input: Arc<dyn Dataset>,
    elements: Kept,
}

impl Dataset for MemoryCache {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        if let Some(elements) = &*self.elements.lock() {
            return Ok(Box::new(KeptIterator { elements: elements.clone(), next: 0 }));
        }
        let input = Some(self.input.iterator(nesting.deeper()?)?);
        Ok(Box::new(KeepingIterator {
            input,
            seen: Vec::new(),
            seen_bytes: 0,
            kept: self.elements.clone(),
            rest: None,
        }))
    }

    fn cardinality(&self) -> i64 {
        self.input.cardinality()
    }
}

struct KeptIterator {
    elements: Arc<Vec<Element>>,
    next: usize,
}

impl DatasetIterator for KeptIterator {
    fn next<'a>(&'a mut self, _: &'a Arc<Step>) -> Next<'a> {
        self.next += 1;
        ready(Ok(self.elements.get(self.next - 1).cloned()))
    }

    fn save<'a>(&'a mut self, _: &'a Arc<Step>) -> Saving<'a> {
        let position = Position::of::<MemoryCache>().flag(true).size(self.next).elements(self.elements.iter());
        Box::pin(std::future::ready(Ok(position)))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, _: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let mut reader = position.read::<MemoryCache>()?;
            if !reader.flag()? {
                // The cache was incomplete then, but is complete now.
                self.next = reader.elements()?.len();
                return Ok(());
            }
            self.next = reader.size()?;
            Ok(())
        })
    }
}

struct KeepingIterator {
    input: Option<Box<dyn DatasetIterator>>,
    seen: Vec<Element>,
    seen_bytes: usize,
    kept: Kept,
    /// The rest of a cache that was restored whole.
    rest: Option<KeptIterator>,
}

impl DatasetIterator for KeepingIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            if let Some(rest) = &mut self.rest {
                return rest.next(step).await;
            }
            let Some(input) = &mut self.input else { return Ok(None) };
            match input.next(step).await? {
                Some(element) => {
                    // An endless dataset can't be cached; this fails before it has taken all memory.
                    self.seen_bytes = self.seen_bytes.saturating_add(element_bytes(&element));
                    tensor::check_elements_fit(self.seen_bytes, 1)?;
                    self.seen.push(element.clone());
                    Ok(Some(element))
                }
                None => {
                    self.input = None;
                    self.kept.lock().get_or_insert_with(|| Arc::new(std::mem::take(&mut self.seen)));
                    Ok(None)
                }
            }
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(async move {
            if let Some(rest) = &mut self.rest {
                return rest.save(step).await;
            }
            if self.input.is_none()
                && let Some(elements) = &*self.kept.lock()
            {
                let position = Position::of::<MemoryCache>().flag(true).size(elements.len());
                return Ok(position.elements(elements.iter()));
            }
            let position = Position::of::<MemoryCache>().flag(false).elements(self.seen.iter());
            position.within_maybe(&mut self.input, step).await
        })
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let mut reader = position.read::<MemoryCache>()?;
            if reader.flag()? {
                let next = reader.size()?;
                let elements = reader.elements()?;
                let kept = self.kept.lock().get_or_insert_with(|| Arc::new(elements)).clone();
                self.rest = Some(KeptIterator { elements: kept, next });
                self.input = None;
                return Ok(());
            }
            self.seen = reader.elements()?;
            self.seen_bytes = self.seen.iter().map(element_bytes).fold(0, usize::saturating_add);
            reader.within_or_ended(&mut self.input, step).await
        })
    }
}

struct FileCache {
    input: Arc<dyn Dataset>,
    prefix: String,
    num_components: usize,
}

impl Dataset for FileCache {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        if file_system().exists(&meta_filename(&self.prefix))? {
            let reading =
                Reading { prefix: self.prefix.clone(), reader: None, next: 0, num_components: self.num_components };
            return Ok(Box::new(ReadingIterator { reading: Arc::new(Mutex::new(reading)) }));
        }
        let cache = CacheFiles {
            file_system: file_system(),
            prefix: self.prefix.clone(),
            num_components: self.num_components,
            state: State::Untouched,
        };
        let input = self.input.iterator(nesting.deeper()?)?;
        Ok(Box::new(WritingIterator { input, cache: Arc::new(Mutex::new(cache)) }))
    }

    fn cardinality(&self) -> i64 {
        self.input.cardinality()
    }
}

/// Reads a cache on file threads.
struct ReadingIterator {
    reading: Arc<Mutex<Reading>>,
}

struct Reading {
    prefix: String,
    /// Opened when the first element is read.
    reader: Option<BundleReader>,
    next: usize,
    num_components: usize,
}

impl Reading {
    fn read(&mut self) -> Result<Option<Element>> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            None => self.reader.insert(BundleReader::open(file_system(), &self.prefix)?),
        };
        let keys = element_keys(self.next, self.num_components);
        if !reader.contains(&keys[0])? {
            return Ok(None);
        }
        let element = keys.iter().map(|key| reader.lookup(key)).collect::<Result<Element>>()?;
        self.next += 1;
        Ok(Some(element))
    }
}

impl DatasetIterator for ReadingIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(with_files(step, "a cache in files", &self.reading, Reading::read))
    }

    fn save<'a>(&'a mut self, _: &'a Arc<Step>) -> Saving<'a> {
        let position = Position::of::<FileCache>().size(self.reading.lock().next);
        Box::pin(std::future::ready(Ok(position)))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, _: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            self.reading.lock().next = position.read::<FileCache>()?.size()?;
            Ok(())
        })
    }
}

/// Writes a cache on file threads.
struct WritingIterator {
    input: Box<dyn DatasetIterator>,
    cache: Arc<Mutex<CacheFiles>>,
}

impl DatasetIterator for WritingIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            let logger = step.logger.clone();
            let begin = move |cache: &mut CacheFiles| {
                if matches!(cache.state, State::Complete) {
                    return Ok(true);
                }
                cache.begin(logger).map(|()| false)
            };
            if with_files(step, "a cache in files", &self.cache, begin).await? {
                return Ok(None);
            }
            let element = self.input.next(step).await?;
            let add = move |cache: &mut CacheFiles| {
                match &element {
                    Some(element) => cache.add(element)?,
                    None => cache.complete()?,
                }
                Ok(element)
            };
            with_files(step, "a cache in files", &self.cache, add).await
        })
    }
}

/// The files of a cache that is being written. If it is dropped before it is complete, they are deleted: an incomplete cache
/// would pass for a complete one.
struct CacheFiles {
    file_system: Arc<dyn FileSystem>,
    prefix: String,
    num_components: usize,
    state: State,
}

enum State {
    Untouched,
    Locked { writer: BundleWriter, num_elements: usize, logger: Arc<dyn Logger> },
    Complete,
}

impl CacheFiles {
    fn unfinished(&self) -> String {
        format!("{}_0", self.prefix)
    }

    fn lock_file(&self) -> String {
        format!("{}.lockfile", self.unfinished())
    }

    /// Takes the lock, unless this writer has it already.
    fn begin(&mut self, logger: Arc<dyn Logger>) -> Result<()> {
        if !matches!(self.state, State::Untouched) {
            return Ok(());
        }
        let index = meta_filename(&self.prefix);
        if self.file_system.exists(&index)? {
            return Err(Status::already_exists(format!(
                "Existing cache files found: \n{index}\n{}\nTo continue delete the above files.",
                data_filename(&self.prefix, 0, 1)
            )));
        }
        let lock = self.lock_file();
        // The lock is beside the cache, whose directory may have to be created first, as the writer does.
        let writer = BundleWriter::new(self.file_system.clone(), &self.unfinished(), BundleWriterOptions::default())?;
        let mut file = match self.file_system.create_new(&lock) {
            Err(status) if status.code() == Code::AlreadyExists => {
                let content = self.file_system.read(&lock).unwrap_or_default();
                return Err(Status::already_exists(format!(
                    "There appears to be a concurrent caching iterator running - cache lockfile already exists ('{lock}'). \
                     If you are sure no other running TF computations are using this cache prefix, delete the lockfile and \
                     re-initialize the iterator. Lockfile contents: {}",
                    String::from_utf8_lossy(&content)
                )));
            }
            created => created?,
        };
        self.state = State::Locked { writer, num_elements: 0, logger };
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        file.append(format!("Created at: {seconds}").as_bytes())?;
        file.close()
    }

    fn add(&mut self, element: &Element) -> Result<()> {
        let State::Locked { writer, num_elements, .. } = &mut self.state else { return Ok(()) };
        if *num_elements >= FILE_ELEMENTS_MAX {
            return Err(Status::invalid_argument(format!(
                "Upstream iterator is producing more than {FILE_ELEMENTS_MAX} items, which is more than the cache limit."
            )));
        }
        if element.len() != self.num_components {
            return Err(Status::internal(format!(
                "Upstream iterator returned invalid number of tensors. Expected {} got: {}",
                self.num_components,
                element.len()
            )));
        }
        for (key, tensor) in element_keys(*num_elements, self.num_components).iter().zip(element) {
            writer.add(key, tensor)?;
        }
        *num_elements += 1;
        Ok(())
    }

    fn complete(&mut self) -> Result<()> {
        let State::Locked { writer, .. } = std::mem::replace(&mut self.state, State::Complete) else { return Ok(()) };
        let installed = writer.finish().and_then(|()| {
            merge_bundles(&*self.file_system, &[self.unfinished()], &self.prefix, MergeOptions::default())
        });
        self.clean_up();
        installed
    }

    /// Deletes the files of an unfinished cache, the lock last.
    fn clean_up(&self) {
        let index = meta_filename(&self.unfinished());
        for path in [index, data_filename(&self.unfinished(), 0, 1), self.lock_file()] {
            let _ = self.file_system.delete_file(&path);
        }
    }
}

impl Drop for CacheFiles {
    fn drop(&mut self) {
        if let State::Locked { writer, logger, .. } = std::mem::replace(&mut self.state, State::Complete) {
            drop(writer);
            self.clean_up();
            let text = "the dataset that is cached there was not read to its end; what was cached of it is gone";
            logger.log("warning", &format!("{}: {text}", self.prefix));
        }
    }
}

/// Returns the keys of an element's components, padded so that they sort numerically.
fn element_keys(element: usize, num_components: usize) -> Vec<String> {
    let component_digits = digits(num_components.saturating_sub(1));
    let element_digits = digits(FILE_ELEMENTS_MAX - 1);
    (0..num_components).map(|component| format!("{element:>element_digits$}_{component:>component_digits$}")).collect()
}

fn digits(number: usize) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_tensorflow() {
        assert_eq!(element_keys(0, 2), ["      0_0", "      0_1"]);
        assert_eq!(element_keys(1234567, 1), ["1234567_0"]);
        assert_eq!(element_keys(3, 11)[10], "      3_10");
        assert_eq!(element_keys(3, 11)[9], "      3_ 9");
        assert_eq!(element_keys(3, 10)[9], "      3_9");
    }
}
