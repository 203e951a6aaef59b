//! MNIST: handwritten digits in idx files, and the smaller set that comes with the library.
//!
//! ```
//! let digits = ferroflow::data::mnist::Mnist::builtin()?;
//! assert_eq!(digits.train.len() + digits.validation.len(), 15_000);
//! let mut batches = digits.train.batches(7);
//! let (images, labels) = batches.next_batch(100)?;
//! assert_eq!((images.dims(), labels.dims()), (&[100, 784][..], &[100, 10][..]));
//! # Ok::<(), ferroflow::Status>(())
//! ```

use flate2::read::GzDecoder;
use std::borrow::Cow;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use tensor::{Result, Status, Tensor};

/// Pixels in a row and rows in an image.
pub const IMAGE_SIZE: usize = 28;
/// Pixels in an image.
pub const IMAGE_PIXELS: usize = IMAGE_SIZE * IMAGE_SIZE;
/// Kinds of digits.
pub const NUM_CLASSES: usize = 10;

const TRAIN_IMAGES: &str = "train-images-idx3-ubyte";
const TRAIN_LABELS: &str = "train-labels-idx1-ubyte";
const TEST_IMAGES: &str = "t10k-images-idx3-ubyte";
const TEST_LABELS: &str = "t10k-labels-idx1-ubyte";

/// A bound on the size of a file once it is unpacked; the full set's largest has 47 MB.
const UNPACKED_BYTES_MAX: u64 = 1 << 30;

/// The digits, split as TensorFlow's tutorials split them.
#[derive(Clone, Debug)]
pub struct Mnist {
    /// The digits to train on.
    pub train: Digits,
    /// Digits of the training files that are kept out of training: a twelfth of them.
    pub validation: Digits,
    /// The digits to test on.
    pub test: Digits,
}

/// Images and their labels.
#[derive(Clone, Debug)]
pub struct Digits {
    images: Arc<[u8]>,
    labels: Arc<[u8]>,
    first: usize,
    len: usize,
}

impl Mnist {
    /// Returns the digits that come with the library: 15,000 to train on and 2,500 to test on.
    pub fn builtin() -> Result<Mnist> {
        macro_rules! file {
            ($name:literal) => {
                unpack($name, include_bytes!(concat!("../../../../data/mnist/", $name, ".gz")))?
            };
        }
        Mnist::from_files(
            &file!("train-images-idx3-ubyte"),
            &file!("train-labels-idx1-ubyte"),
            &file!("t10k-images-idx3-ubyte"),
            &file!("t10k-labels-idx1-ubyte"),
        )
    }

    /// Reads the four idx files of a directory, gzipped or not.
    pub fn from_dir(directory: impl AsRef<Path>) -> Result<Mnist> {
        let directory = directory.as_ref();
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
            Ok(unpack(&path.display().to_string(), &bytes)?.into_owned())
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

    /// Returns how many digits there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns every digit: images of `[n, 784]` with pixels from 0 to 1, and labels of `[n, 10]` with a 1 for the digit.
    pub fn all(&self) -> Result<(Tensor, Tensor)> {
        let indices: Vec<usize> = (0..self.len).collect();
        self.gather(&indices)
    }

    /// Returns the label of a digit.
    pub fn label(&self, index: usize) -> Option<u8> {
        (index < self.len).then(|| self.labels[self.first + index])
    }

    /// Returns batches without end: each epoch has every digit once, in another order that `seed` decides.
    pub fn batches(&self, seed: u64) -> Batches {
        let mut batches = Batches {
            digits: self.clone(),
            order: (0..self.len).collect(),
            next: 0,
            random: seed ^ 0x9e37_79b9_7f4a_7c15,
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
                for (to, &from) in row.iter_mut().zip(&self.images[start..start + IMAGE_PIXELS]) {
                    *to = f32::from(from) / 255.0;
                }
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

/// Batches of digits, in an order that changes every epoch.
#[derive(Clone, Debug)]
pub struct Batches {
    digits: Digits,
    order: Vec<usize>,
    next: usize,
    random: u64,
}

impl Batches {
    /// Returns the next `size` digits, across the end of an epoch if need be.
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
            let pick = (self.next_random() % (last as u64 + 1)) as usize;
            self.order.swap(last, pick);
        }
        self.next = 0;
    }

    /// SplitMix64: enough for an order of digits.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
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

/// Reads an idx file of bytes: a magic number with the rank, the sizes, the data.
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
}
