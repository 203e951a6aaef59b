//! Bucketize: the bucket of each value.

use graph::Output;
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, Op, OpContext, OpDef, OpFlags, kernels, shape};
use num_traits::AsPrimitive;
use std::marker::PhantomData;
use tensor::{Element, Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "Bucketize",
        inputs: &["input: T"],
        outputs: &["output: int32"],
        attrs: &["T: {int32, int64, float, double}", "boundaries: list(float)"],
        flags: OpFlags::NONE,
    },
    shape: shape::unchanged,
    gradient: Gradient::NotDifferentiable,
    kernels: kernels!("T": [f32, f64, i32, i64] => Bucketize),
}];

/// Returns for each value the number of sorted boundaries that are at most the value.
#[track_caller]
pub fn bucketize(input: &Output, boundaries: &[f32]) -> Output {
    input.graph().op("Bucketize").input(input).attr("boundaries", boundaries).output()
}

struct Bucketize<T> {
    boundaries: Vec<f64>,
    element: PhantomData<fn(T)>,
}

impl<T: Element + AsPrimitive<f64>> Bucketize<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let boundaries: Vec<f64> =
            builder.attrs().floats("boundaries")?.iter().map(|&limit| f64::from(limit)).collect();
        if !boundaries.is_sorted() {
            return Err(Status::invalid_argument("Expected sorted boundaries"));
        }
        BoxedKernel::new(Bucketize::<T> { boundaries, element: PhantomData })
    }
}

impl<T: Element + AsPrimitive<f64>> Kernel for Bucketize<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let values = input.as_slice::<T>()?;
        let output = Tensor::build(input.shape().clone(), |out: &mut [i32]| {
            numeric::elementwise::unary_with_cost(5.0, values, out, |value: T| {
                let value: f64 = value.as_();
                // NaN is below no boundary, so it is in the last bucket.
                #[allow(clippy::neg_cmp_op_on_partial_ord)]
                let count = self.boundaries.partition_point(|&limit| !(value < limit));
                count as i32
            });
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, run_op};
    use tensor::Tensor;

    #[test]
    fn boundaries_belong_to_the_bucket_above() {
        let attrs = || attrs![("boundaries", &[1f32, 5.0][..])];
        let y = run_op("Bucketize", attrs(), &[Tensor::vector(&[f32::NAN, 1.0, 5.0, 0.0])]).unwrap();
        assert_eq!(y[0].as_slice::<i32>().unwrap(), &[2, 1, 2, 0]);
        let y = run_op("Bucketize", attrs(), &[Tensor::vector(&[-7i64, 4])]).unwrap();
        assert_eq!(y[0].as_slice::<i32>().unwrap(), &[0, 1]);
        assert!(run_op("Bucketize", attrs![("boundaries", &[5f32, 1.0][..])], &[Tensor::vector(&[1f32])]).is_err());
    }
}
