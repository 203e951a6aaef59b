//! Datasets of files: lines of text, TFRecords, records of a fixed length, comma-separated values.

use super::Dataset;
use bytes::Bytes;
use graph::Graph;
use ops::parsing::decode_csv;
use tensor::{DType, PartialShape, Result, Shape, Tensor};

/// Options for reading files.
///
/// ```
/// use ferroflow::data::{Dataset, RecordOptions};
///
/// let options = RecordOptions { compression: "GZIP".to_owned(), ..RecordOptions::default() };
/// let records = Dataset::tf_records(&ferroflow::Graph::new(), &["a.tfrecords.gz"], &options);
/// ```
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// The compression: `GZIP`, `ZLIB`, or none.
    pub compression: String,
    /// The size of the read buffer in bytes.
    pub buffer_size: i64,
}

impl Default for RecordOptions {
    fn default() -> RecordOptions {
        RecordOptions { compression: String::new(), buffer_size: 256 << 10 }
    }
}

/// Options for reading comma-separated values.
///
/// ```
/// use ferroflow::data::{CsvOptions, Dataset};
/// use ferroflow::prelude::*;
///
/// let options = CsvOptions { has_header: true, ..CsvOptions::default() };
/// let rows = Dataset::csv(&Graph::new(), &["rows.csv"], &[Tensor::scalar(0f32)], &options);
/// ```
#[derive(Clone, Debug, Default)]
pub struct CsvOptions {
    /// Whether each file begins with a header line, which is skipped.
    pub has_header: bool,
    /// How the files are read.
    pub files: RecordOptions,
}

impl Dataset {
    /// Returns a dataset of the lines of text files, without their line ends.
    ///
    /// ```
    /// use ferroflow::data::{Dataset, RecordOptions};
    /// use ferroflow::prelude::*;
    /// # let directory = tempfile::tempdir().unwrap();
    ///
    /// let path = directory.path().join("lines.txt");
    /// std::fs::write(&path, "to be\nor not").unwrap();
    /// let g = Graph::new();
    /// let lines = Dataset::text_lines(&g, &[path.to_str().unwrap()], &RecordOptions::default());
    /// let next = lines.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_strings()?, ["to be"]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn text_lines(graph: &Graph, files: &[&str], options: &RecordOptions) -> Dataset {
        Dataset::of_files(graph, "TextLineDataset", files, options)
    }

    /// Returns a dataset of the records of TFRecord files. A damaged record is a `DataLoss` with its position.
    ///
    /// ```
    /// use ferroflow::data::example::ExampleWriter;
    /// use ferroflow::data::{Dataset, RecordOptions};
    /// use ferroflow::prelude::*;
    /// # let directory = tempfile::tempdir().unwrap();
    ///
    /// let path = directory.path().join("examples.tfrecords");
    /// let mut writer = ExampleWriter::create(&path)?;
    /// writer.write([("label", 7.into())])?;
    /// writer.close()?;
    /// let g = Graph::new();
    /// let records = Dataset::tf_records(&g, &[path.to_str().unwrap()], &RecordOptions::default());
    /// let next = records.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].dtype(), DType::String);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn tf_records(graph: &Graph, files: &[&str], options: &RecordOptions) -> Dataset {
        Dataset::of_files(graph, "TFRecordDataset", files, options)
    }

    /// Returns a dataset of records of `record_bytes` bytes; the header and footer of each file are skipped.
    ///
    /// ```
    /// use ferroflow::data::{Dataset, RecordOptions};
    /// use ferroflow::prelude::*;
    /// # let directory = tempfile::tempdir().unwrap();
    ///
    /// let path = directory.path().join("pairs.bin");
    /// std::fs::write(&path, b"HEADab12").unwrap();
    /// let g = Graph::new();
    /// let pairs = Dataset::fixed_length_records(&g, &[path.to_str().unwrap()], 2, 4, 0, &RecordOptions::default());
    /// let next = pairs.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_strings()?, ["ab"]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn fixed_length_records(
        graph: &Graph,
        files: &[&str],
        record_bytes: i64,
        header_bytes: i64,
        footer_bytes: i64,
        options: &RecordOptions,
    ) -> Dataset {
        match names(files) {
            Ok(names) => {
                let layout = [header_bytes, record_bytes, footer_bytes, options.buffer_size];
                let op = graph.op("FixedLengthRecordDatasetV2").input(&graph.constant_tensor(&names));
                let op = op.inputs(&layout.map(|number| graph.constant(number)));
                let variant = op.input(&graph.constant(options.compression.as_str())).output();
                Dataset::from_variant(&variant, &[DType::String], &[PartialShape::scalar()])
            }
            Err(status) => Dataset::mistaken(graph, "FixedLengthRecordDatasetV2", status),
        }
    }

    /// Returns a dataset of the lines of files of comma-separated values. Each column has a default, which defines its type: a
    /// scalar, or an empty vector if the column is required.
    ///
    /// ```
    /// use ferroflow::data::{CsvOptions, Dataset};
    /// use ferroflow::prelude::*;
    /// # let directory = tempfile::tempdir().unwrap();
    ///
    /// let path = directory.path().join("rows.csv");
    /// std::fs::write(&path, "1,a\n,b\n").unwrap();
    /// let g = Graph::new();
    /// let defaults = [Tensor::scalar(9i64), Tensor::string("")];
    /// let rows = Dataset::csv(&g, &[path.to_str().unwrap()], &defaults, &CsvOptions::default()).batch(2, true);
    /// let next = rows.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [1, 9]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn csv(graph: &Graph, files: &[&str], defaults: &[Tensor], options: &CsvOptions) -> Dataset {
        let lines = match options.has_header {
            false => Dataset::text_lines(graph, files, &options.files),
            true => match names(files) {
                Ok(names) => Dataset::from_tensor_slices(graph, names).flat_map(|graph, file| {
                    let inputs =
                        [graph.constant(options.files.compression.as_str()), graph.constant(options.files.buffer_size)];
                    let variant = graph.op("TextLineDataset").input(&file[0]).inputs(&inputs).output();
                    Dataset::from_variant(&variant, &[DType::String], &[PartialShape::scalar()]).skip(1)
                }),
                Err(status) => return Dataset::mistaken(graph, "TextLineDataset", status),
            },
        };
        lines.map(|line| {
            let defaults: Vec<_> = defaults.iter().map(|default| line[0].graph().constant_tensor(default)).collect();
            decode_csv(&line[0], &defaults)
        })
    }

    #[track_caller]
    fn of_files(graph: &Graph, op: &str, files: &[&str], options: &RecordOptions) -> Dataset {
        match names(files) {
            Ok(names) => {
                let inputs = [graph.constant(options.compression.as_str()), graph.constant(options.buffer_size)];
                let variant = graph.op(op).input(&graph.constant_tensor(&names)).inputs(&inputs).output();
                Dataset::from_variant(&variant, &[DType::String], &[PartialShape::scalar()])
            }
            Err(status) => Dataset::mistaken(graph, op, status),
        }
    }
}

fn names(files: &[&str]) -> Result<Tensor> {
    let names = files.iter().map(|name| Bytes::copy_from_slice(name.as_bytes())).collect();
    Tensor::from_strings(Shape::vector(files.len()), names)
}
