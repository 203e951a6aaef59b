//! [`ExampleWriter`]: writes `tf.train.Example`s to TFRecord files.

use prost::Message;
use proto::feature::Kind;
use proto::{BytesList, Example, Features, FloatList, Int64List};
use std::path::Path;
use storage::file_system::{FileSystem, FileSystems};
use storage::record::{CompressionType, RecordWriter};
use tensor::Result;

/// Writes examples, each a set of named features, to a TFRecord file.
///
/// ```
/// use ferroflow::data::example::ExampleWriter;
///
/// let path = std::env::temp_dir().join(format!("examples-{}.tfrecords", std::process::id()));
/// let mut writer = ExampleWriter::create(&path)?;
/// writer.write([("image_raw", vec![0u8, 255].into()), ("label", 7.into())])?;
/// writer.close()?;
/// # std::fs::remove_file(path).unwrap();
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct ExampleWriter(RecordWriter);

/// A feature of an example: bytes, integers or floats.
///
/// ```
/// use ferroflow::data::example::Feature;
///
/// let features: [Feature; 4] = ["text".into(), vec![1u8, 2].into(), 3.into(), vec![0.5f32, 1.5].into()];
/// ```
pub struct Feature(Kind);

impl ExampleWriter {
    /// Creates a file.
    ///
    /// ```
    /// use ferroflow::data::example::ExampleWriter;
    ///
    /// assert!(ExampleWriter::create("/no/such/directory/file").is_err());
    /// ```
    pub fn create(path: impl AsRef<Path>) -> Result<ExampleWriter> {
        let file = FileSystems::all().create(&path.as_ref().to_string_lossy())?;
        Ok(ExampleWriter(RecordWriter::new(file, CompressionType::None)))
    }

    /// Writes an example.
    ///
    /// ```
    /// use ferroflow::data::example::ExampleWriter;
    /// # let directory = tempfile::tempdir().unwrap();
    ///
    /// let mut writer = ExampleWriter::create(directory.path().join("examples.tfrecords"))?;
    /// writer.write([("image", vec![0u8, 255].into()), ("label", 7.into())])?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn write<'a>(&mut self, features: impl IntoIterator<Item = (&'a str, Feature)>) -> Result<()> {
        let feature = |(name, Feature(kind)): (&str, Feature)| (name.to_owned(), proto::Feature { kind: Some(kind) });
        let features = Some(Features { feature: features.into_iter().map(feature).collect() });
        self.0.write_record(&Example { features }.encode_to_vec())
    }

    /// Flushes and closes the file.
    ///
    /// ```
    /// use ferroflow::data::example::ExampleWriter;
    /// # let directory = tempfile::tempdir().unwrap();
    ///
    /// let mut writer = ExampleWriter::create(directory.path().join("examples.tfrecords"))?;
    /// writer.write([("label", 7.into())])?;
    /// writer.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn close(self) -> Result<()> {
        self.0.close()
    }
}

impl From<Vec<u8>> for Feature {
    fn from(bytes: Vec<u8>) -> Feature {
        Feature(Kind::BytesList(BytesList { value: vec![bytes.into()] }))
    }
}

impl From<&str> for Feature {
    fn from(text: &str) -> Feature {
        Feature::from(text.as_bytes().to_vec())
    }
}

impl From<i64> for Feature {
    fn from(number: i64) -> Feature {
        Feature::from(vec![number])
    }
}

impl From<Vec<i64>> for Feature {
    fn from(value: Vec<i64>) -> Feature {
        Feature(Kind::Int64List(Int64List { value }))
    }
}

impl From<f32> for Feature {
    fn from(number: f32) -> Feature {
        Feature::from(vec![number])
    }
}

impl From<Vec<f32>> for Feature {
    fn from(value: Vec<f32>) -> Feature {
        Feature(Kind::FloatList(FloatList { value }))
    }
}
