//! What all peers do alike: they read the batch, train on it, and say how many steps a second they make.
//!
//! `PROGRAM MODEL BATCH_DIRECTORY [VARIANT]` prints the losses of the first and of the last warm-up step. Then it reads a
//! number of seconds per line from the standard input, trains for that long, and answers with the steps per second.

use std::error::Error;
use std::io::BufRead;
use std::path::Path;
use std::time::{Duration, Instant};

/// Images in the batch.
pub const BATCH: usize = 100;
/// Pixels in an image: 28 rows of 28.
pub const PIXELS: usize = 784;
/// Kinds of images.
pub const CLASSES: usize = 10;

const WARM_UP_STEPS: usize = 20;

/// What a program is asked for.
pub struct Task {
    /// `mlp`, `cnn` or `lstm`.
    pub model: String,
    /// Which back end, where a library has several.
    pub variant: String,
    /// The images, a row of pixels after the other.
    pub images: Vec<f32>,
    /// The kind of each image.
    pub labels: Vec<u8>,
}

impl Task {
    /// Reads the arguments of the program, and the batch.
    pub fn from_arguments() -> Result<Task, Box<dyn Error>> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let [model, directory, rest @ ..] = &arguments[..] else {
            return Err("usage: PROGRAM MODEL BATCH_DIRECTORY [VARIANT]".into());
        };
        let read =
            |name: &str| std::fs::read(Path::new(directory).join(name)).map_err(|error| format!("{name}: {error}"));
        let bytes = read("images.f32")?;
        let images: Vec<f32> = bytes.as_chunks().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect();
        let labels = read("labels.u8")?;
        if images.len() != BATCH * PIXELS || labels.len() != BATCH {
            return Err(format!("{} pixels and {} labels are no batch", images.len(), labels.len()).into());
        }
        Ok(Task { model: model.clone(), variant: rest.first().cloned().unwrap_or_default(), images, labels })
    }

    /// Returns what to say of a model or variant that the program doesn't have.
    pub fn unknown(&self) -> Box<dyn Error> {
        format!("there is no model '{}' of variant '{}'", self.model, self.variant).into()
    }
}

/// Runs a step, which returns its loss, as often as the standard input asks for.
pub fn measure<E: Into<Box<dyn Error>>>(mut step: impl FnMut() -> Result<f32, E>) -> Result<(), Box<dyn Error>> {
    let first = step().map_err(Into::into)?;
    let mut last = first;
    for _ in 1..WARM_UP_STEPS {
        last = step().map_err(Into::into)?;
    }
    println!("{first} {last}");
    for line in std::io::stdin().lock().lines() {
        let time = Duration::from_secs_f64(line?.trim().parse()?);
        let (start, mut steps) = (Instant::now(), 0u64);
        while start.elapsed() < time {
            step().map_err(Into::into)?;
            steps += 1;
        }
        println!("{}", steps as f64 / start.elapsed().as_secs_f64());
    }
    Ok(())
}
