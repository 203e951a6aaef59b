//! Histograms with TensorFlow's exponential buckets: HistogramSummary.

use super::summarize::for_each_number;
use super::summary::{serialized, tag_of};
use graph::Output;
use kernel::{BoxedKernel, Gradient, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags, shape};
use proto::summary::{Value, value};
use proto::{HistogramProto, Summary};
use std::sync::LazyLock;
use tensor::{Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "HistogramSummary",
        inputs: &["tag: string", "values: T"],
        outputs: &["summary: string"],
        attrs: &[
            "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64} = DT_FLOAT",
        ],
        flags: OpFlags::NONE,
    },
    shape: shape::scalar,
    gradient: Gradient::NotDifferentiable,
    kernels: &[KernelDef::any(|_| BoxedKernel::new(HistogramSummary))],
}];

/// Returns a summary of the distribution of values.
#[track_caller]
pub fn histogram_summary(tag: &str, values: &Output) -> Output {
    let graph = values.graph();
    let tag = graph.constant_tensor(&Tensor::string(tag.to_owned()));
    graph.op("HistogramSummary").input(&tag).input(values).output()
}

/// The upper limits of the buckets: each 10% above the previous one, from 10⁻¹² to 10²⁰, and the same below zero.
static LIMITS: LazyLock<Vec<f64>> = LazyLock::new(|| {
    let mut positive = Vec::new();
    let mut limit = 1.0e-12;
    while limit < 1.0e20 {
        positive.push(limit);
        limit *= 1.1;
    }
    positive.push(f64::MAX);
    let negative = positive.iter().rev().map(|limit| -limit);
    negative.chain(std::iter::once(0.0)).chain(positive.iter().copied()).collect()
});

/// Counts numbers in buckets.
pub(crate) struct Histogram {
    buckets: Vec<f64>,
    proto: HistogramProto,
}

impl Histogram {
    /// Returns one without numbers.
    pub(crate) fn new() -> Histogram {
        let proto = HistogramProto { min: f64::MAX, max: -f64::MAX, ..Default::default() };
        Histogram { buckets: vec![0.0; LIMITS.len()], proto }
    }

    /// Counts a finite number.
    pub(crate) fn add(&mut self, value: f64) {
        let bucket = LIMITS.partition_point(|&limit| limit <= value).min(self.buckets.len() - 1);
        self.buckets[bucket] += 1.0;
        self.proto.min = self.proto.min.min(value);
        self.proto.max = self.proto.max.max(value);
        self.proto.num += 1.0;
        self.proto.sum += value;
        self.proto.sum_squares += value * value;
    }

    /// Returns the message; runs of empty buckets are merged.
    pub(crate) fn into_proto(mut self) -> HistogramProto {
        let mut index = 0;
        while index < self.buckets.len() {
            let count = self.buckets[index];
            let mut limit = LIMITS[index];
            index += 1;
            if count <= 0.0 {
                while index < self.buckets.len() && self.buckets[index] <= 0.0 {
                    limit = LIMITS[index];
                    index += 1;
                }
            }
            self.proto.bucket_limit.push(limit);
            self.proto.bucket.push(count);
        }
        self.proto
    }
}

struct HistogramSummary;

impl Kernel for HistogramSummary {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (tag, values) = (context.input(0)?, context.input(1)?);
        let tag = tag_of(tag)?;
        let mut histogram = Histogram::new();
        let mut odd = None;
        for_each_number(values, |value| {
            if value.is_finite() {
                histogram.add(value);
            } else if odd.is_none() {
                odd = Some(value);
            }
        })?;
        if let Some(value) = odd {
            let what = if value.is_nan() { "Nan in summary histogram for" } else { "Infinity in Histogram for" };
            return Err(Status::invalid_argument(format!("{what}: {}", context.node_name())));
        }
        let value = Some(value::Value::Histo(histogram.into_proto()));
        context.set_output(0, serialized(&Summary { value: vec![Value { tag, value, ..Default::default() }] }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, run_op};
    use prost::Message;

    fn histogram(values: &[f32]) -> HistogramProto {
        let y = run_op("HistogramSummary", attrs![], &[Tensor::string("h"), Tensor::vector(values)]).unwrap();
        let mut summary = Summary::decode(y[0].strings().unwrap()[0].clone()).unwrap();
        match summary.value.remove(0).value {
            Some(value::Value::Histo(histogram)) => histogram,
            other => panic!("{other:?}"),
        }
    }

    /// The numbers come from TensorFlow.
    #[test]
    fn buckets() {
        let h = histogram(&[1., 2., 2., -3., 0.]);
        assert_eq!((h.min, h.max, h.num, h.sum, h.sum_squares), (-3., 2., 5., 2., 18.));
        let limits = [
            -3.1665833053880363,
            -2.8787120958073054,
            0.0,
            1e-12,
            0.917246389039776,
            1.0089710279437536,
            1.9661990955585713,
            2.1628190051144287,
            f64::MAX,
        ];
        assert_eq!(h.bucket_limit, limits);
        assert_eq!(h.bucket, [0., 1., 0., 1., 0., 1., 0., 2., 0.]);
        let none = histogram(&[]);
        assert_eq!((none.min, none.max, none.num), (f64::MAX, -f64::MAX, 0.0));
        assert_eq!((none.bucket_limit, none.bucket), (vec![f64::MAX], vec![0.0]));
    }

    #[test]
    fn what_is_no_number_is_an_error() {
        for (value, text) in
            [(f32::NAN, "Nan in summary histogram for: "), (f32::INFINITY, "Infinity in Histogram for: ")]
        {
            let status = run_op("HistogramSummary", attrs![], &[Tensor::string("h"), Tensor::vector(&[1.0, value])]);
            assert!(status.unwrap_err().message().starts_with(text));
        }
    }
}
