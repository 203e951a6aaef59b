//! Datasets as another kind of variant, so that nothing looks into them on the way: WrapDatasetVariant,
//! UnwrapDatasetVariant.

use super::base::dataset_of;
use kernel::{BoxedKernel, Cost, Gradient, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags, shape};
use std::any::Any;
use tensor::{Result, Status, Tensor, Variant, VariantValue};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    op("WrapDatasetVariant", &[KernelDef::any(|_| BoxedKernel::new(Wrap))]),
    op("UnwrapDatasetVariant", &[KernelDef::any(|_| BoxedKernel::new(Unwrap))]),
];

const fn op(name: &'static str, kernels: &'static [KernelDef]) -> Op {
    Op {
        def: OpDef {
            name,
            inputs: &["input_handle: variant"],
            outputs: &["output_handle: variant"],
            attrs: &[],
            flags: OpFlags::NONE,
        },
        shape: shape::scalar,
        gradient: Gradient::Unsupported,
        kernels,
    }
}

/// The tensor of a dataset.
struct WrappedDataset(Tensor);

impl VariantValue for WrappedDataset {
    fn type_name(&self) -> &str {
        "tensorflow::WrappedDatasetVariant"
    }

    fn encode(&self) -> Result<proto::VariantTensorDataProto> {
        Err(Status::unimplemented("a dataset can't leave its task: put it on the device of its iterator"))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn scalar_input<'a>(context: &'a OpContext<'_>) -> Result<&'a Tensor> {
    let tensor = context.input(0)?;
    if !tensor.shape().is_scalar() {
        return Err(Status::invalid_argument("Dataset tensor must be a scalar of dtype DT_VARIANT."));
    }
    Ok(tensor)
}

struct Wrap;

impl Kernel for Wrap {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let tensor = scalar_input(context)?;
        dataset_of(tensor)?;
        let wrapped = Tensor::variant(Variant::new(WrappedDataset(tensor.clone())));
        context.set_output(0, wrapped);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct Unwrap;

impl Kernel for Unwrap {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let variant = scalar_input(context)?.variants()?.first();
        let wrapped = variant.and_then(|variant| variant.downcast_ref::<WrappedDataset>());
        let dataset = wrapped.map(|wrapped| wrapped.0.clone());
        let dataset = dataset.ok_or_else(|| {
            Status::invalid_argument(
                "Tensor must be a WrappedDataset variant object. Use the output of WrapDatasetVariant.",
            )
        })?;
        context.set_output(0, dataset);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, run_op};
    use tensor::{DType, PartialShape, Tensor};

    #[test]
    fn a_wrapped_dataset_is_unwrapped() {
        let bounds = [Tensor::scalar(0i64), Tensor::scalar(3i64), Tensor::scalar(1i64)];
        let (types, shapes) = ([DType::Int64], [PartialShape::scalar()]);
        let attrs = attrs![("output_types", &types[..]), ("output_shapes", &shapes[..])];
        let dataset = run_op("RangeDataset", attrs, &bounds).unwrap();
        assert!(run_op("UnwrapDatasetVariant", attrs![], &dataset).is_err());
        let wrapped = run_op("WrapDatasetVariant", attrs![], &dataset).unwrap();
        assert!(run_op("WrapDatasetVariant", attrs![], &wrapped).is_err());
        let unwrapped = run_op("UnwrapDatasetVariant", attrs![], &wrapped).unwrap();
        assert!(super::dataset_of(&unwrapped[0]).is_ok());
    }
}
