//! DatasetToTFRecord: writes a dataset to a file.

use super::base::{INPUT, Nesting, dataset_of};
use super::task::{start, turn, with_files};
use crate::file_access::file_system;
use kernel::{AsyncContext, AsyncKernel, BoxedKernel, Gradient, KernelDef, Op, OpContext, OpDef, OpFlags, Step};
use parking_lot::Mutex;
use std::sync::Arc;
use storage::record::{CompressionType, RecordWriter};
use tensor::{DType, Result, Status};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[writer("DatasetToTFRecord"), writer("ExperimentalDatasetToTFRecord")];

/// The number of bytes that are buffered before they are written.
const GATHERED_BYTES: usize = 256 << 10;

const fn writer(name: &'static str) -> Op {
    Op {
        def: OpDef {
            name,
            inputs: &[INPUT, "filename: string", "compression_type: string"],
            outputs: &[],
            attrs: &[],
            flags: OpFlags::STATEFUL,
        },
        shape: |_| Ok(()),
        gradient: Gradient::Unsupported,
        kernels: KERNELS,
    }
}

const KERNELS: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new_async(ToRecords))];

struct ToRecords;

impl AsyncKernel for ToRecords {
    fn compute(&self, mut context: AsyncContext) {
        let step = context.step().clone();
        let prepared = prepare(&context.op());
        match prepared {
            Ok((dataset, path, compression)) => start(async move {
                let written = write(dataset, path, compression, &step).await;
                context.finish(written);
            }),
            Err(status) => context.finish(Err(status)),
        }
    }
}

type Prepared = (Arc<dyn super::base::Dataset>, String, CompressionType);

fn prepare(context: &OpContext<'_>) -> Result<Prepared> {
    let text = |index: usize, name: &str| match context.input(index)?.strings()? {
        [text] => Ok(String::from_utf8_lossy(text).into_owned()),
        _ => Err(Status::invalid_argument(format!("{name} must be a scalar"))),
    };
    let compression = CompressionType::from_name(&text(2, "compression_type")?)?;
    Ok((dataset_of(context.input(0)?)?, text(1, "filename")?, compression))
}

async fn write(
    dataset: Arc<dyn super::base::Dataset>,
    path: String,
    compression: CompressionType,
    step: &Arc<Step>,
) -> Result<()> {
    let mut input = dataset.iterator(Nesting::outermost())?;
    let output: Arc<Mutex<Option<RecordWriter>>> = Arc::default();
    let open = move |output: &mut Option<RecordWriter>| {
        *output = Some(RecordWriter::new(file_system().create(&path)?, compression));
        Ok(())
    };
    with_files(step, "a file of records", &output, open).await?;
    let mut is_ended = false;
    while !is_ended {
        let (mut records, mut bytes) = (Vec::new(), 0);
        while bytes < GATHERED_BYTES {
            turn(step).await?;
            let Some(element) = input.next(step).await? else {
                is_ended = true;
                break;
            };
            match &element[..] {
                [record] if record.dtype() == DType::String && record.shape().is_scalar() => {
                    records.extend_from_slice(record.strings()?);
                }
                _ => {
                    return Err(Status::invalid_argument(
                        "dataset must produce elements of a single scalar string, which is what a record holds",
                    ));
                }
            }
            bytes += records.last().map_or(0, |record| record.len() + 16);
        }
        let append = move |output: &mut Option<RecordWriter>| {
            let Some(writer) = output else { return Err(Status::internal("the file is not open")) };
            records.iter().try_for_each(|record| writer.write_record(record))?;
            if is_ended { output.take().map_or(Ok(()), RecordWriter::close) } else { Ok(()) }
        };
        with_files(step, "a file of records", &output, append).await?;
    }
    Ok(())
}
