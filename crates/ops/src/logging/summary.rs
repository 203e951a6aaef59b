//! Summaries as serialized messages: ScalarSummary, TensorSummary, TensorSummaryV2, and MergeSummary.

use super::summarize::for_each_number;
use graph::Output;
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, shape};
use prost::Message;
use proto::summary::{Value, value};
use proto::{Summary, SummaryMetadata};
use std::collections::HashSet;
use tensor::{DType, Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ScalarSummary",
            inputs: &["tags: string", "values: T"],
            outputs: &["summary: string"],
            attrs: &["T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}"],
            flags: OpFlags::NONE,
        },
        shape: shape::scalar,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(ScalarSummary))],
    },
    Op {
        def: OpDef {
            name: "TensorSummary",
            inputs: &["tensor: T"],
            outputs: &["summary: string"],
            attrs: &["T: type", "description: string = ''", "labels: list(string) = []", "display_name: string = ''"],
            flags: OpFlags::NONE,
        },
        shape: shape::scalar,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(TensorSummary::create)],
    },
    Op {
        def: OpDef {
            name: "TensorSummaryV2",
            inputs: &["tag: string", "tensor: T", "serialized_summary_metadata: string"],
            outputs: &["summary: string"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: shape::scalar,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(TensorSummaryV2))],
    },
    Op {
        def: OpDef {
            name: "MergeSummary",
            inputs: &["inputs: N * string"],
            outputs: &["summary: string"],
            attrs: &["N: int >= 1"],
            flags: OpFlags::NONE,
        },
        shape: shape::scalar,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(MergeSummary))],
    },
];

/// Returns a summary of a number.
#[track_caller]
pub fn scalar_summary(tag: &str, value: &Output) -> Output {
    let graph = value.graph();
    let tag = graph.constant_tensor(&Tensor::string(tag.to_owned()));
    graph.op("ScalarSummary").input(&tag).input(value).output()
}

/// Merges summaries, at least one, into one.
#[track_caller]
pub fn merge_summary(inputs: &[Output]) -> Output {
    let [first, ..] = inputs else {
        return graph::builder::mistaken_output(
            "MergeSummary",
            tensor::Status::invalid_argument("merge_summary needs at least one input"),
        );
    };
    first.graph().op("MergeSummary").inputs(inputs).output()
}

/// Returns a scalar string tensor with a serialized message.
pub(super) fn serialized(summary: &Summary) -> Tensor {
    Tensor::string(summary.encode_to_vec())
}

/// Returns a tag, which must be a scalar.
pub(super) fn tag_of(tensor: &Tensor) -> Result<String> {
    if tensor.num_elements() != 1 {
        return Err(Status::invalid_argument("tag must be scalar"));
    }
    Ok(tensor.strings()?.first().map(|tag| String::from_utf8_lossy(tag).into_owned()).unwrap_or_default())
}

struct ScalarSummary;

impl Kernel for ScalarSummary {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (tags, values) = (context.input(0)?, context.input(1)?);
        let both_single = tags.num_elements() == 1 && values.num_elements() == 1;
        if tags.shape() != values.shape() && !both_single {
            let which = match tags.strings()? {
                [tag] => format!(" (tag '{}')", String::from_utf8_lossy(tag)),
                _ => String::new(),
            };
            return Err(Status::invalid_argument(format!(
                "tags and values are not the same shape: {} != {}{which}",
                tags.shape(),
                values.shape()
            )));
        }
        let mut tags = tags.strings()?.iter();
        let mut summary = Summary::default();
        for_each_number(values, |number| {
            let tag = tags.next().map(|tag| String::from_utf8_lossy(tag).into_owned()).unwrap_or_default();
            let value = Some(value::Value::SimpleValue(number as f32));
            summary.value.push(Value { tag, value, ..Default::default() });
        })?;
        context.set_output(0, serialized(&summary));
        Ok(())
    }
}

/// A tensor as it is; the writer sets the tag.
struct TensorSummary {
    node_name: String,
}

impl TensorSummary {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(TensorSummary { node_name: builder.name().to_owned() })
    }
}

impl Kernel for TensorSummary {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let tensor = tensor::tensor_to_proto(context.input(0)?)?;
        let value = Value {
            node_name: self.node_name.clone(),
            value: Some(value::Value::Tensor(tensor)),
            ..Default::default()
        };
        context.set_output(0, serialized(&Summary { value: vec![value] }));
        Ok(())
    }
}

struct TensorSummaryV2;

impl Kernel for TensorSummaryV2 {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (tag, metadata) = (context.input(0)?, context.input(2)?);
        if !tag.shape().is_scalar() {
            return Err(Status::invalid_argument(format!("tag must be a scalar, got shape {}", tag.shape())));
        }
        if !metadata.shape().is_scalar() || metadata.dtype() != DType::String {
            return Err(Status::invalid_argument("serialized_summary_metadata must be scalar"));
        }
        let metadata = metadata.strings()?.first().cloned().unwrap_or_default();
        let metadata = SummaryMetadata::decode(metadata)
            .map_err(|error| Status::invalid_argument(format!("serialized_summary_metadata is not valid: {error}")))?;
        let tensor = tensor::tensor_to_proto(context.input(1)?)?;
        let value = Value {
            tag: tag_of(tag)?,
            metadata: Some(metadata),
            value: Some(value::Value::Tensor(tensor)),
            ..Default::default()
        };
        context.set_output(0, serialized(&Summary { value: vec![value] }));
        Ok(())
    }
}

struct MergeSummary;

impl Kernel for MergeSummary {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let mut merged = Summary::default();
        let mut tags: HashSet<String> = HashSet::new();
        for index in 0..context.num_inputs() {
            for bytes in context.input(index)?.strings()? {
                let summary = Summary::decode(bytes.clone())
                    .map_err(|_| Status::invalid_argument("Could not parse one of the summary inputs"))?;
                for value in summary.value {
                    if !value.tag.is_empty() && !tags.insert(value.tag.clone()) {
                        return Err(Status::invalid_argument(format!(
                            "Duplicate tag {} found in summary inputs ",
                            value.tag
                        )));
                    }
                    merged.value.push(value);
                }
            }
        }
        context.set_output(0, serialized(&merged));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, run_op};

    fn scalar(tag: &'static str, value: f64) -> Tensor {
        run_op("ScalarSummary", attrs![], &[Tensor::string(tag), Tensor::scalar(value)]).unwrap().remove(0)
    }

    #[test]
    fn bytes_equal_those_of_tensorflow() {
        let merged = run_op("MergeSummary", attrs![], &[scalar("a", 1.0), scalar("b", 1.0)]).unwrap();
        let expected: &[u8] = b"\n\x08\n\x01a\x15\x00\x00\x80?\n\x08\n\x01b\x15\x00\x00\x80?";
        assert_eq!(&merged[0].strings().unwrap()[0][..], expected);
    }

    #[test]
    fn bad_inputs_are_errors() {
        let message = |status: Status| status.message().to_owned();
        let twice = run_op("MergeSummary", attrs![], &[scalar("a", 1.0), scalar("a", 1.0)]).unwrap_err();
        assert!(message(twice).starts_with("Duplicate tag a found in summary inputs"));
        let garbage = run_op("MergeSummary", attrs![], &[Tensor::string("xyz")]).unwrap_err();
        assert!(message(garbage).starts_with("Could not parse one of the summary inputs"));
        let inputs = [Tensor::string("t"), Tensor::vector(&[1f32, 2.0])];
        let shapes = run_op("ScalarSummary", attrs![], &inputs).unwrap_err();
        assert!(message(shapes).starts_with("tags and values are not the same shape: [] != [2] (tag 't')"));
    }

    #[test]
    fn tensors_with_metadata() {
        let metadata = SummaryMetadata { display_name: "x".into(), ..Default::default() }.encode_to_vec();
        let inputs = [Tensor::string("t"), Tensor::vector(&[1f32, 2.0]), Tensor::string(metadata)];
        let y = run_op("TensorSummaryV2", attrs![], &inputs).unwrap();
        let summary = Summary::decode(y[0].strings().unwrap()[0].clone()).unwrap();
        assert_eq!(summary.value[0].metadata.as_ref().unwrap().display_name, "x");
        let Some(value::Value::Tensor(tensor)) = &summary.value[0].value else { panic!("no tensor") };
        let tensor = tensor::tensor_from_proto(tensor).unwrap();
        assert_eq!(tensor.as_slice::<f32>().unwrap(), &[1.0, 2.0]);
    }
}
