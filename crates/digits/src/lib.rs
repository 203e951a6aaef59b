//! 15,000 training and 2,500 test digits of MNIST, as gzipped idx files inside the program.
//!
//! `ferroflow::data::mnist::Mnist::builtin` reads them, with `ferroflow`'s feature `digits`.
#![deny(missing_docs)]

/// The training images.
pub const TRAIN_IMAGES: &[u8] = include_bytes!("../mnist/train-images-idx3-ubyte.gz");
/// The labels of the training images.
pub const TRAIN_LABELS: &[u8] = include_bytes!("../mnist/train-labels-idx1-ubyte.gz");
/// The test images.
pub const TEST_IMAGES: &[u8] = include_bytes!("../mnist/t10k-images-idx3-ubyte.gz");
/// The labels of the test images.
pub const TEST_LABELS: &[u8] = include_bytes!("../mnist/t10k-labels-idx1-ubyte.gz");
