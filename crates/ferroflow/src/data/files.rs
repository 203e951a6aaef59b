//! Datasets of files: lines of text, TFRecords, records of a fixed length, comma-separated values.

use super::Dataset;
use bytes::Bytes;
use graph::Graph;
use ops::parsing::decode_csv;
use tensor::{DType, PartialShape, Result, Shape, Tensor};

/// How files are read.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// How they are compressed: `GZIP`, `ZLIB`, or not at all.
    pub compression: String,
    /// How many bytes are read at once.
    pub buffer_size: i64,
}

impl Default for RecordOptions {
    fn default() -> RecordOptions {
        RecordOptions { compression: String::new(), buffer_size: 256 << 10 }
    }
}

/// How comma-separated values are read.
#[derive(Clone, Debug, Default)]
pub struct CsvOptions {
    /// Whether each file begins with a line of names, which is left out.
    pub has_header: bool,
    /// How the files are read.
    pub files: RecordOptions,
}

impl Dataset {
    /// Returns the lines of text files, one after the other, without their ends.
    #[track_caller]
    pub fn text_lines(graph: &Graph, files: &[&str], options: &RecordOptions) -> Dataset {
        Dataset::of_files(graph, "TextLineDataset", files, options)
    }

    /// Returns the records of TFRecord files, one after the other. A damaged record is a `DataLoss` with its place.
    #[track_caller]
    pub fn tf_records(graph: &Graph, files: &[&str], options: &RecordOptions) -> Dataset {
        Dataset::of_files(graph, "TFRecordDataset", files, options)
    }

    /// Returns records of `record_bytes` bytes; a file's first and last bytes, its header and footer, are left out.
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

    /// Returns the lines of files of comma-separated values. There is a default for each column, which says its type: a scalar, or a
    /// vector without elements where the column must be there.
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
