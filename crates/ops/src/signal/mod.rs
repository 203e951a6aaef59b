//! Signals: Fourier transforms, spectrograms of audio and their cepstra, and audio files.
//!
//! ```
//! use graph::Graph;
//! use ops::signal;
//!
//! let g = Graph::new();
//! let spectrum = signal::rfft(&g.constant([1f32, 0.0, 0.0, 0.0]), &g.constant([4i32]));
//! let step = std::sync::Arc::new(kernel::Step::detached());
//! let values = kernel::evaluate(ops::registry(), &g.graph(), &[], &[spectrum.edge()], &step)?;
//! assert_eq!(values[0].to_vec::<tensor::Complex32>()?, [tensor::Complex32::new(1.0, 0.0); 3]);
//! # Ok::<(), tensor::Status>(())
//! ```

mod fft;
mod mfcc;
mod spectrogram;
mod wav;

pub use fft::*;
pub use mfcc::mfcc;
pub use spectrogram::audio_spectrogram;
pub(crate) use wav::encode_samples;
pub use wav::{decode_wav, encode_wav};

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[fft::OPS, mfcc::OPS, spectrogram::OPS, wav::OPS];
