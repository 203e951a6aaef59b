//! MNIST: handwritten digits in idx files, and the bundled subset.
//!
//! Files of a directory are checked before they are used. If the directory has a `SHA256SUMS`, as `sha256sum` writes it, each
//! file listed in it must have that checksum. Any other file of the same size as the full set's must have the full set's
//! checksum. Digits of your own have another size, or a `SHA256SUMS`. In any case, gzip's own checksum is verified, and the sizes
//! in an idx header must match the file's length.
//!
//! ```
//! # #[cfg(feature = "digits")] {
//! let digits = ferroflow::data::mnist::Mnist::builtin()?;
//! assert_eq!(digits.train.len() + digits.validation.len(), 15_000);
//! let mut batches = digits.train.batches(7);
//! let (images, labels) = batches.next_batch(100)?;
//! assert_eq!((images.dims(), labels.dims()), (&[100, 784][..], &[100, 10][..]));
//! # }
//! # Ok::<(), ferroflow::Status>(())
//! ```

use flate2::read::GzDecoder;
use numeric::stable::SplitMix64;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use tensor::{Result, Status, Tensor};

/// The width and height of an image in pixels.
///
/// ```
/// use ferroflow::data::mnist::{IMAGE_PIXELS, IMAGE_SIZE};
///
/// assert_eq!(IMAGE_SIZE * IMAGE_SIZE, IMAGE_PIXELS);
/// ```
pub const IMAGE_SIZE: usize = 28;
/// The number of pixels of an image.
///
/// ```
/// use ferroflow::Graph;
/// use ferroflow::data::mnist::IMAGE_PIXELS;
///
/// let images = Graph::new().placeholder::<f32>((None, IMAGE_PIXELS as i64));
/// assert_eq!(images.shape(), ferroflow::PartialShape::from([-1, 784]));
/// ```
pub const IMAGE_PIXELS: usize = IMAGE_SIZE * IMAGE_SIZE;
/// The number of classes.
///
/// ```
/// use ferroflow::data::mnist::NUM_CLASSES;
/// use ferroflow::layers::Dense;
///
/// let logits = Dense::new(NUM_CLASSES as i64);
/// ```
pub const NUM_CLASSES: usize = 10;

const TRAIN_IMAGES: &str = "train-images-idx3-ubyte";
const TRAIN_LABELS: &str = "train-labels-idx1-ubyte";
const TEST_IMAGES: &str = "t10k-images-idx3-ubyte";
const TEST_LABELS: &str = "t10k-labels-idx1-ubyte";

/// The files of the full set, uncompressed: their lengths and SHA-256 checksums.
const FULL_SET: [(&str, usize, &str); 4] = [
    (TRAIN_IMAGES, 47_040_016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    (TRAIN_LABELS, 60_008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    (TEST_IMAGES, 7_840_016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    (TEST_LABELS, 10_008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
];

/// The file with the checksums of the files in a directory.
const CHECKSUMS: &str = "SHA256SUMS";

/// A bound on the uncompressed size of a file; the largest one of the full set has 47 MB.
const UNPACKED_BYTES_MAX: u64 = 1 << 30;

/// The digits, split as in TensorFlow's tutorials.
///
/// ```
/// # #[cfg(feature = "digits")] {
/// use ferroflow::data::mnist::Mnist;
///
/// let digits = Mnist::builtin()?;
/// assert_eq!((digits.train.len(), digits.validation.len(), digits.test.len()), (13_750, 1_250, 2_500));
/// # }
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug)]
pub struct Mnist {
    /// The training digits.
    pub train: Digits,
    /// The validation digits: a twelfth of the training files, which is not used for training.
    pub validation: Digits,
    /// The test digits.
    pub test: Digits,
}

/// Images and their labels.
///
/// ```
/// # #[cfg(feature = "digits")] {
/// use ferroflow::data::mnist::{Digits, Mnist};
///
/// let test: Digits = Mnist::builtin()?.test;
/// let (images, labels) = test.all()?;
/// assert_eq!((images.dims(), labels.dims()), (&[2500, 784][..], &[2500, 10][..]));
/// # }
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug)]
pub struct Digits {
    images: Arc<[u8]>,
    labels: Arc<[u8]>,
    first: usize,
    len: usize,
}

impl Mnist {
    /// Returns the bundled digits: 15,000 for training and 2,500 for tests. They need the feature `digits`, which is on by
    /// default.
    ///
    /// ```
    /// # #[cfg(feature = "digits")] {
    /// use ferroflow::data::mnist::Mnist;
    ///
    /// assert_eq!(Mnist::builtin()?.test.len(), 2_500);
    /// # }
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[cfg(feature = "digits")]
    pub fn builtin() -> Result<Mnist> {
        Mnist::from_files(
            &unpack(TRAIN_IMAGES, digits::TRAIN_IMAGES)?,
            &unpack(TRAIN_LABELS, digits::TRAIN_LABELS)?,
            &unpack(TEST_IMAGES, digits::TEST_IMAGES)?,
            &unpack(TEST_LABELS, digits::TEST_LABELS)?,
        )
    }

    /// Reads the four idx files of a directory, gzipped or not, and checks them as described in the [module](self).
    ///
    /// ```
    /// use ferroflow::Code;
    /// use ferroflow::data::mnist::Mnist;
    ///
    /// // A directory with train-images-idx3-ubyte.gz and the other three.
    /// let mnist = Mnist::from_dir("/no/such/directory");
    /// assert_eq!(mnist.err().unwrap().code(), Code::NotFound);
    /// ```
    pub fn from_dir(directory: impl AsRef<Path>) -> Result<Mnist> {
        let directory = directory.as_ref();
        let checksums = match std::fs::read_to_string(directory.join(CHECKSUMS)) {
            Ok(text) => checksums(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => HashMap::new(),
            Err(error) => {
                return Err(Status::unknown(format!("{}: {error}", directory.join(CHECKSUMS).display())));
            }
        };
        let read = |name: &str| -> Result<Vec<u8>> {
            let plain = directory.join(name);
            let path = if plain.exists() { plain } else { directory.join(format!("{name}.gz")) };
            let bytes = std::fs::read(&path).map_err(|error| {
                let message = format!("{}: {error} (MNIST needs {name} or {name}.gz there)", path.display());
                if error.kind() == std::io::ErrorKind::NotFound {
                    Status::not_found(message)
                } else {
                    Status::unknown(message)
                }
            })?;
            let shown = path.display().to_string();
            let listed = path.file_name().and_then(|file| checksums.get(file.to_str()?));
            if let Some(expected) = listed {
                check_sum(&shown, &bytes, expected, "as SHA256SUMS beside it says")?;
            }
            let unpacked = unpack(&shown, &bytes)?;
            let full = FULL_SET.iter().find(|(file, length, _)| *file == name && *length == unpacked.len());
            if let (None, Some((_, _, expected))) = (listed, full) {
                let whose = "as the full MNIST set's has, whose size it is (digits of your own need a SHA256SUMS)";
                check_sum(&shown, &unpacked, expected, whose)?;
            }
            Ok(unpacked.into_owned())
        };
        Mnist::from_files(&read(TRAIN_IMAGES)?, &read(TRAIN_LABELS)?, &read(TEST_IMAGES)?, &read(TEST_LABELS)?)
    }

    fn from_files(train_images: &[u8], train_labels: &[u8], test_images: &[u8], test_labels: &[u8]) -> Result<Mnist> {
        let all = Digits::new(idx_images(TRAIN_IMAGES, train_images)?, idx_labels(TRAIN_LABELS, train_labels)?)?;
        let held_out = all.len / 12;
        Ok(Mnist {
            validation: Digits { len: held_out, ..all.clone() },
            train: Digits { first: held_out, len: all.len - held_out, ..all },
            test: Digits::new(idx_images(TEST_IMAGES, test_images)?, idx_labels(TEST_LABELS, test_labels)?)?,
        })
    }
}

impl Digits {
    fn new(images: &[u8], labels: &[u8]) -> Result<Digits> {
        if images.len() != labels.len() * IMAGE_PIXELS {
            return Err(Status::invalid_argument(format!(
                "{} images but {} labels",
                images.len() / IMAGE_PIXELS,
                labels.len()
            )));
        }
        if let Some(label) = labels.iter().find(|&&label| usize::from(label) >= NUM_CLASSES) {
            return Err(Status::data_loss(format!("label {label} is not a digit")));
        }
        Ok(Digits { images: images.into(), labels: labels.into(), first: 0, len: labels.len() })
    }

    /// Returns the number of digits.
    ///
    /// ```
    /// # #[cfg(feature = "digits")] {
    /// assert_eq!(ferroflow::data::mnist::Mnist::builtin()?.test.len(), 2_500);
    /// # }
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no digits.
    ///
    /// ```
    /// # #[cfg(feature = "digits")] {
    /// assert!(!ferroflow::data::mnist::Mnist::builtin()?.validation.is_empty());
    /// # }
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns every digit: images of `[n, 784]` with pixels from 0 to 1, and labels of `[n, 10]` with a 1 for the digit.
    ///
    /// ```
    /// # #[cfg(feature = "digits")] {
    /// let (images, labels) = ferroflow::data::mnist::Mnist::builtin()?.validation.all()?;
    /// assert!(images.as_slice::<f32>()?.iter().all(|pixel| (0.0..=1.0).contains(pixel)));
    /// // One 1 for each digit.
    /// assert_eq!(labels.as_slice::<f32>()?.iter().sum::<f32>(), labels.dims()[0] as f32);
    /// # }
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn all(&self) -> Result<(Tensor, Tensor)> {
        let indices: Vec<usize> = (0..self.len).collect();
        self.gather(&indices)
    }

    /// Returns the label of a digit.
    ///
    /// ```
    /// # #[cfg(feature = "digits")] {
    /// let test = ferroflow::data::mnist::Mnist::builtin()?.test;
    /// assert!(test.label(0).is_some_and(|label| label < 10));
    /// assert_eq!(test.label(test.len()), None);
    /// # }
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn label(&self, index: usize) -> Option<u8> {
        (index < self.len).then(|| self.labels[self.first + index])
    }

    /// Returns batches without end: each epoch has every digit once, in an order that depends on `seed`.
    ///
    /// ```
    /// # #[cfg(feature = "digits")] {
    /// let train = ferroflow::data::mnist::Mnist::builtin()?.train;
    /// let (mut one, mut same) = (train.batches(7), train.batches(7));
    /// assert_eq!(one.next_batch(8)?.1.to_vec::<f32>()?, same.next_batch(8)?.1.to_vec::<f32>()?);
    /// # }
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn batches(&self, seed: u64) -> Batches {
        let mut batches = Batches {
            digits: self.clone(),
            order: (0..self.len).collect(),
            next: 0,
            random: SplitMix64::new(seed ^ 0x9e37_79b9_7f4a_7c15),
        };
        batches.shuffle();
        batches
    }

    fn gather(&self, indices: &[usize]) -> Result<(Tensor, Tensor)> {
        let count = indices.len() as i64;
        let shape = tensor::Shape::new(&[count, IMAGE_PIXELS as i64])?;
        let images = Tensor::build(shape, |pixels: &mut [f32]| {
            for (&index, row) in indices.iter().zip(pixels.chunks_exact_mut(IMAGE_PIXELS)) {
                let start = (self.first + index) * IMAGE_PIXELS;
                numeric::pixels::fractions(&self.images[start..start + IMAGE_PIXELS], row);
            }
        })?;
        let shape = tensor::Shape::new(&[count, NUM_CLASSES as i64])?;
        let labels = Tensor::build(shape, |ones: &mut [f32]| {
            ones.fill(0.0);
            for (&index, row) in indices.iter().zip(ones.chunks_exact_mut(NUM_CLASSES)) {
                row[usize::from(self.labels[self.first + index])] = 1.0;
            }
        })?;
        Ok((images, labels))
    }
}

/// Batches of digits, shuffled in every epoch.
///
/// ```
/// # #[cfg(feature = "digits")] {
/// use ferroflow::data::mnist::{Batches, Mnist};
///
/// let mut batches: Batches = Mnist::builtin()?.train.batches(7);
/// let (images, labels) = batches.next_batch(100)?;
/// assert_eq!((images.dims()[0], labels.dims()[0]), (100, 100));
/// # }
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug)]
pub struct Batches {
    digits: Digits,
    order: Vec<usize>,
    next: usize,
    random: SplitMix64,
}

impl Batches {
    /// Returns the next `size` digits, continuing into the next epoch if necessary.
    ///
    /// ```
    /// # #[cfg(feature = "digits")] {
    /// let mut batches = ferroflow::data::mnist::Mnist::builtin()?.train.batches(7);
    /// let (images, _labels) = batches.next_batch(32)?;
    /// assert_eq!(images.dims(), [32, 784]);
    /// # }
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn next_batch(&mut self, size: usize) -> Result<(Tensor, Tensor)> {
        if self.order.is_empty() {
            return Err(Status::out_of_range("there are no digits"));
        }
        let mut indices = Vec::with_capacity(size);
        while indices.len() < size {
            if self.next == self.order.len() {
                self.shuffle();
            }
            indices.push(self.order[self.next]);
            self.next += 1;
        }
        self.digits.gather(&indices)
    }

    fn shuffle(&mut self) {
        for last in (1..self.order.len()).rev() {
            let pick = self.random.below(last + 1);
            self.order.swap(last, pick);
        }
        self.next = 0;
    }
}

/// Parses the output of `sha256sum`: a checksum and a file on every line.
fn checksums(text: &str) -> HashMap<String, String> {
    let lines = text.lines().filter_map(|line| line.trim().split_once(char::is_whitespace));
    // A star before the name means that the file was read in binary mode.
    let name = |text: &str| text.trim_start().trim_start_matches('*').trim_start_matches("./").to_owned();
    lines.map(|(sum, file)| (name(file), sum.to_ascii_lowercase())).collect()
}

fn check_sum(path: &str, bytes: &[u8], expected: &str, whose: &str) -> Result<()> {
    let found: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    if found == expected {
        return Ok(());
    }
    Err(Status::data_loss(format!("{path} is damaged: its SHA-256 is {found}, not {expected}, {whose}")))
}

/// Unpacks gzip, whose checksum is verified; other bytes are taken as they are.
fn unpack<'a>(name: &str, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>> {
    const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
    if !bytes.starts_with(&GZIP_MAGIC) {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut unpacked = Vec::new();
    GzDecoder::new(bytes)
        .take(UNPACKED_BYTES_MAX)
        .read_to_end(&mut unpacked)
        .map_err(|error| Status::data_loss(format!("{name} is damaged: {error}")))?;
    Ok(Cow::Owned(unpacked))
}

fn idx_images<'a>(name: &str, bytes: &'a [u8]) -> Result<&'a [u8]> {
    let (dims, data) = idx(name, bytes, 3)?;
    if dims[1..] != [IMAGE_SIZE, IMAGE_SIZE] {
        return Err(Status::invalid_argument(format!("{name}: images of {}x{}, not 28x28", dims[1], dims[2])));
    }
    Ok(data)
}

fn idx_labels<'a>(name: &str, bytes: &'a [u8]) -> Result<&'a [u8]> {
    Ok(idx(name, bytes, 1)?.1)
}

/// Parses an idx file of bytes: a magic number with the rank, the sizes, the data.
fn idx<'a>(name: &str, bytes: &'a [u8], rank: usize) -> Result<(Vec<usize>, &'a [u8])> {
    let damaged = |what: String| Status::data_loss(format!("{name} is not an idx file of digits: {what}"));
    let word = |index: usize| -> Option<u32> {
        Some(u32::from_be_bytes(bytes.get(4 * index..4 * index + 4)?.try_into().ok()?))
    };
    let magic = word(0).ok_or_else(|| damaged(format!("it has only {} bytes", bytes.len())))?;
    if magic != 0x0800 + rank as u32 {
        return Err(damaged(format!("it starts with {magic:#010x}")));
    }
    let dims: Option<Vec<usize>> = (1..=rank).map(|index| word(index).map(|size| size as usize)).collect();
    let dims = dims.ok_or_else(|| damaged("it ends in its header".to_owned()))?;
    let data = &bytes[4 * (rank + 1)..];
    let expected = dims.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
    if expected != Some(data.len()) {
        return Err(damaged(format!("{} bytes for sizes {dims:?}", data.len())));
    }
    Ok((dims, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_builtin_digits_are_whole() {
        let digits = Mnist::builtin().unwrap();
        assert_eq!(digits.train.len() + digits.validation.len(), 15_000);
        assert_eq!(digits.test.len(), 2_500);
        let (images, labels) = digits.test.all().unwrap();
        let labels = labels.as_slice::<f32>().unwrap();
        assert_eq!(labels.iter().sum::<f32>(), 2_500.0);
        assert!(images.as_slice::<f32>().unwrap().iter().all(|pixel| (0.0..=1.0).contains(pixel)));
    }

    #[test]
    fn an_epoch_has_every_digit_once() {
        let digits = Mnist::builtin().unwrap().test;
        let mut batches = digits.batches(3);
        let mut seen: Vec<usize> = batches.order.clone();
        assert_ne!(seen, (0..digits.len()).collect::<Vec<_>>());
        seen.sort_unstable();
        assert_eq!(seen, (0..digits.len()).collect::<Vec<_>>());
        batches.next_batch(2_499).unwrap();
        assert_eq!(batches.next_batch(3).unwrap().0.dims(), &[3, 784]);
    }

    #[test]
    fn damaged_files_are_refused() {
        assert!(idx("x", &[0, 0, 8], 1).is_err());
        assert!(idx("x", &[0, 0, 8, 1, 0, 0, 0, 9, 1], 1).is_err());
        assert!(
            idx("x", &[0, 0, 8, 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 3).is_err()
        );
        assert!(unpack("x", &[0x1f, 0x8b, 1, 2, 3]).is_err());
    }

    /// Writes the digits of `count` zeros as idx files.
    fn write_zeros(directory: &Path, count: u32) {
        let file = |magic: u32, dims: &[u32], len: usize| {
            let header = [&[magic], dims].concat();
            let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_be_bytes()).collect();
            bytes.resize(bytes.len() + len, 0);
            bytes
        };
        for (images, labels) in [(TRAIN_IMAGES, TRAIN_LABELS), (TEST_IMAGES, TEST_LABELS)] {
            let pixels = count as usize * IMAGE_PIXELS;
            std::fs::write(directory.join(images), file(0x0803, &[count, 28, 28], pixels)).unwrap();
            std::fs::write(directory.join(labels), file(0x0801, &[count], count as usize)).unwrap();
        }
    }

    #[test]
    fn digits_of_ones_own_are_taken_by_their_structure() {
        let directory = tempfile::tempdir().unwrap();
        write_zeros(directory.path(), 24);
        let digits = Mnist::from_dir(directory.path()).unwrap();
        assert_eq!((digits.train.len(), digits.validation.len(), digits.test.len()), (22, 2, 24));
        let labels = directory.path().join(TEST_LABELS);
        let mut bytes = std::fs::read(&labels).unwrap();
        bytes.pop();
        std::fs::write(&labels, bytes).unwrap();
        let status = Mnist::from_dir(directory.path()).unwrap_err();
        assert!(status.message().contains("t10k-labels-idx1-ubyte"), "{status}");
    }

    #[test]
    fn what_is_as_large_as_the_full_set_has_its_checksum() {
        let directory = tempfile::tempdir().unwrap();
        write_zeros(directory.path(), 10_000);
        let status = Mnist::from_dir(directory.path()).unwrap_err();
        let expected = "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7";
        assert_eq!(status.code(), tensor::Code::DataLoss);
        for part in ["t10k-images-idx3-ubyte is damaged", expected, "SHA256SUMS"] {
            assert!(status.message().contains(part), "{status}");
        }
        let sum = |name: &str| -> String {
            let bytes = std::fs::read(directory.path().join(name)).unwrap();
            let digest = Sha256::digest(bytes);
            format!("{}  ./{name}\n", digest.iter().map(|byte| format!("{byte:02X}")).collect::<String>())
        };
        std::fs::write(directory.path().join(CHECKSUMS), sum(TEST_IMAGES) + &sum(TEST_LABELS)).unwrap();
        assert_eq!(Mnist::from_dir(directory.path()).unwrap().test.len(), 10_000);
    }

    #[test]
    fn a_checksum_beside_the_files_is_looked_at() {
        let directory = tempfile::tempdir().unwrap();
        write_zeros(directory.path(), 24);
        std::fs::write(directory.path().join(CHECKSUMS), format!("{:064}  {TRAIN_LABELS}\n", 7)).unwrap();
        let status = Mnist::from_dir(directory.path()).unwrap_err();
        assert!(status.message().contains("train-labels-idx1-ubyte is damaged"), "{status}");
        assert!(status.message().contains("SHA256SUMS beside it"), "{status}");
    }
}
