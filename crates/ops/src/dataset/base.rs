//! [`Dataset`] and [`DatasetIterator`], and common parts of the ops that create datasets.

use super::position::{Position, Restoring, Saving, owner};
use crate::function::Function;
use kernel::{
    BoxedKernel, Cost, FunctionForks, Gradient, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags, Step, shape,
};
use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use tensor::{Element as ElementType, Result, Status, Tensor, Variant, VariantValue};

/// An element of a dataset: a tensor for each component.
pub(super) type Element = Vec<Tensor>;

/// A future of the next element, or of `None` at the end.
pub(super) type Next<'a> = Pin<Box<dyn Future<Output = Result<Option<Element>>> + Send + 'a>>;

/// The most nested datasets. Each asks the next one for its elements, on one stack, and some call functions that create datasets
/// themselves: threads of 2 MB support several times as many, even in debug builds.
const LEVELS_MAX: u32 = 256;

/// The nesting depth of a dataset or iterator. For an iterator it also holds the state of its functions.
#[derive(Clone, Default)]
pub(super) struct Nesting {
    levels: u32,
    functions: Option<Arc<FunctionForks>>,
}

impl Nesting {
    /// Returns the first level of an iterator, whose functions start with their own state.
    pub(super) fn outermost() -> Nesting {
        Nesting { levels: 0, functions: Some(Arc::default()) }
    }

    /// Returns the next level, if it is allowed.
    pub(super) fn deeper(&self) -> Result<Nesting> {
        if self.levels >= LEVELS_MAX {
            return Err(Status::invalid_argument(format!("datasets are nested more than {LEVELS_MAX} deep")));
        }
        Ok(Nesting { levels: self.levels + 1, functions: self.functions.clone() })
    }

    /// Returns a function with its state in this iterator.
    pub(super) fn own(&self, function: &Function) -> Result<Function> {
        match &self.functions {
            Some(forks) => function.forked(forks),
            None => Ok(function.clone()),
        }
    }
}

/// The number of elements of a dataset that never ends.
pub(super) const INFINITE: i64 = -1;

/// The number of elements of a dataset if it can only be found by iteration.
pub(super) const UNKNOWN: i64 = -2;

/// A sequence of elements that can be iterated any number of times.
pub(super) trait Dataset: Send + Sync {
    /// Starts at the first element; `nesting` is the iterator's depth.
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>>;

    /// Returns the number of elements, if it is known without iteration, [`INFINITE`] or [`UNKNOWN`].
    fn cardinality(&self) -> i64 {
        UNKNOWN
    }

    /// Returns whether a batch of this dataset fails as a whole: TensorFlow fuses a map and the following batch into one op, in
    /// which an element that fails also drops the others of its batch.
    fn fails_by_batch(&self) -> bool {
        false
    }
}

/// Iterates over the elements of a dataset.
pub(super) trait DatasetIterator: Send {
    /// Returns the next element; functions that it needs run in `step`.
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a>;

    /// Returns the iterator's position.
    fn save<'a>(&'a mut self, _: &'a Arc<Step>) -> Saving<'a> {
        let status = Status::unimplemented(format!("the position of a {} can't be saved", owner::<Self>()));
        Box::pin(std::future::ready(Err(status)))
    }

    /// Moves to the position of an equivalent iterator. This iterator must be at its start, and is unusable after an error.
    fn restore<'a>(&'a mut self, _: &'a Position, _: &'a Arc<Step>) -> Restoring<'a> {
        let status = Status::unimplemented(format!("the position of a {} can't be restored", owner::<Self>()));
        Box::pin(std::future::ready(Err(status)))
    }
}

/// Returns the approximate size of an element in bytes.
pub(super) fn element_bytes(element: &Element) -> usize {
    /// The overhead of a tensor besides its content.
    const TENSOR_BYTES: usize = 128;
    element.iter().map(|tensor| tensor.num_bytes().saturating_add(TENSOR_BYTES)).fold(0, usize::saturating_add)
}

/// Returns an element that is already available.
pub(super) fn ready(element: Result<Option<Element>>) -> Next<'static> {
    Box::pin(std::future::ready(element))
}

/// A dataset in a variant tensor.
struct DatasetVariant {
    dataset: Arc<dyn Dataset>,
    /// Its nesting depth.
    nesting: Nesting,
}

impl VariantValue for DatasetVariant {
    fn type_name(&self) -> &str {
        "tensorflow::DatasetVariantWrapper"
    }

    fn encode(&self) -> Result<proto::VariantTensorDataProto> {
        Err(Status::unimplemented("a dataset can't leave its task: put it on the device of its iterator"))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Returns the variant tensor of a dataset with this nesting depth.
pub(super) fn dataset_tensor(dataset: Arc<dyn Dataset>, nesting: Nesting) -> Tensor {
    Tensor::variant(Variant::new(DatasetVariant { dataset, nesting }))
}

/// Returns the greatest nesting depth of the datasets among a node's inputs.
fn nesting_of_inputs(context: &OpContext<'_>) -> Nesting {
    let inputs = (0..context.num_inputs()).filter_map(|index| context.input(index).ok());
    let variants = inputs.filter_map(|input| input.variants().ok()).flatten();
    let datasets = variants.filter_map(|variant| variant.downcast_ref::<DatasetVariant>());
    datasets.map(|dataset| dataset.nesting.clone()).max_by_key(|nesting| nesting.levels).unwrap_or_default()
}

/// Returns the dataset in a tensor.
pub(super) fn dataset_of(tensor: &Tensor) -> Result<Arc<dyn Dataset>> {
    let variant = tensor.variants()?.first();
    let found = variant.and_then(|variant| variant.downcast_ref::<DatasetVariant>());
    found.map(|found| found.dataset.clone()).ok_or_else(|| {
        Status::invalid_argument("Tensor must be a Dataset object: a scalar of dtype DT_VARIANT that holds one")
    })
}

/// Returns the dataset in an input.
pub(super) fn input_dataset(context: &OpContext<'_>, index: usize) -> Result<Arc<dyn Dataset>> {
    dataset_of(context.input(index)?)
}

/// Returns the single element of an input that must be a scalar.
pub(super) fn argument<T: ElementType>(context: &OpContext<'_>, index: usize, name: &str) -> Result<T> {
    let tensor = context.input(index)?;
    if !tensor.shape().is_scalar() {
        return Err(Status::invalid_argument(format!("{name} must be a scalar")));
    }
    tensor.to_scalar()
}

/// Builds a dataset from a node's inputs.
pub(super) type MakeDataset = Box<dyn Fn(&mut OpContext<'_>) -> Result<Arc<dyn Dataset>> + Send + Sync>;

/// Outputs a dataset.
struct DatasetOp(MakeDataset);

impl Kernel for DatasetOp {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let nesting = nesting_of_inputs(context).deeper()?;
        let dataset = (self.0)(context)?;
        context.set_output(0, dataset_tensor(dataset, nesting));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

/// Returns the kernel of an op that outputs a dataset.
pub(super) fn dataset_kernel<D: Dataset + 'static>(
    make: impl Fn(&mut OpContext<'_>) -> Result<D> + Send + Sync + 'static,
) -> Result<BoxedKernel> {
    shared_dataset_kernel(move |context| Ok(Arc::new(make(context)?) as Arc<dyn Dataset>))
}

/// As [`dataset_kernel`], for a dataset that may be one of the inputs.
pub(super) fn shared_dataset_kernel(
    make: impl Fn(&mut OpContext<'_>) -> Result<Arc<dyn Dataset>> + Send + Sync + 'static,
) -> Result<BoxedKernel> {
    BoxedKernel::new(DatasetOp(Box::new(make)))
}

/// The record of an op that outputs a dataset.
pub(super) const fn dataset_op(
    name: &'static str,
    inputs: &'static [&'static str],
    attrs: &'static [&'static str],
    flags: OpFlags,
    kernels: &'static [KernelDef],
) -> Op {
    Op {
        def: OpDef { name, inputs, outputs: &["handle: variant"], attrs, flags },
        shape: shape::scalar,
        gradient: Gradient::Unsupported,
        kernels,
    }
}

/// Attributes that most of the ops have.
pub(super) const TYPES: &str = "output_types: list(type) >= 1";
pub(super) const SHAPES: &str = "output_shapes: list(shape) >= 1";
pub(super) const METADATA: &str = "metadata: string = ''";
pub(super) const INPUT: &str = "input_dataset: variant";
pub(super) const PLAIN: &[&str] = &[TYPES, SHAPES, METADATA];
