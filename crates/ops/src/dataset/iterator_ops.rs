//! Ops on iterators: creating them, setting their dataset, taking elements, and converting them to strings.

use super::base::{Element, dataset_of};
use super::iterator::{HasSignature, IteratorResource, Signature, Wish};
use super::task::{call, start};
use crate::data_flow::ResourceOp;
use crate::function::Callee;
use graph::{Graph, Operation, Output, ShapeContext};
use kernel::{
    AsyncContext, AsyncKernel, BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags,
    Resource, ResourceManager, Step, shape,
};
use parking_lot::Mutex;
use prost::Message;
use proto::ResourceHandleProto;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tensor::{DType, PartialShape, ResourceHandle, Result, Status, Tensor, Variant, VariantValue, tensor_to_proto};

const TYPES: &str = "output_types: list(type) >= 1";
const SHAPES: &str = "output_shapes: list(shape) >= 1";

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    maker("Iterator", &["shared_name: string", "container: string", TYPES, SHAPES], MAKE),
    maker("IteratorV2", &["shared_name: string", "container: string", TYPES, SHAPES], MAKE),
    maker(
        "OneShotIterator",
        &["dataset_factory: func", TYPES, SHAPES, "container: string = ''", "shared_name: string = ''"],
        ONE_SHOT,
    ),
    Op {
        def: OpDef {
            name: "MakeIterator",
            inputs: &["dataset: variant", "iterator: resource"],
            outputs: &[],
            attrs: &[],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::unknown,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(MakeIterator))],
    },
    user(
        "IteratorGetNext",
        &["components: output_types"],
        next_shape,
        &[KernelDef::any(|_| BoxedKernel::new_async(GetNext))],
    ),
    user(
        "IteratorGetNextSync",
        &["components: output_types"],
        next_shape,
        &[KernelDef::any(|_| BoxedKernel::new_async(GetNext))],
    ),
    user(
        "IteratorGetNextAsOptional",
        &["optional: variant"],
        shape::scalar,
        &[KernelDef::any(|_| BoxedKernel::new_async(GetNextAsOptional))],
    ),
    Op {
        def: OpDef {
            name: "IteratorToStringHandle",
            inputs: &["resource_handle: resource"],
            outputs: &["string_handle: string"],
            attrs: &[],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::scalar,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(ToStringHandle::<IteratorResource>::default()))],
    },
    from_string("IteratorFromStringHandle"),
    from_string("IteratorFromStringHandleV2"),
    Op {
        def: OpDef {
            name: "OptionalFromValue",
            inputs: &["components: Toutput_types"],
            outputs: &["optional: variant"],
            attrs: &["Toutput_types: list(type) >= 1"],
            flags: OpFlags::NONE,
        },
        shape: shape::scalar,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(OptionalFromValue))],
    },
    Op {
        def: OpDef {
            name: "OptionalNone",
            inputs: &[],
            outputs: &["optional: variant"],
            attrs: &[],
            flags: OpFlags::NONE,
        },
        shape: shape::scalar,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(OptionalNone))],
    },
    Op {
        def: OpDef {
            name: "OptionalHasValue",
            inputs: &["optional: variant"],
            outputs: &["has_value: bool"],
            attrs: &[],
            flags: OpFlags::NONE,
        },
        shape: shape::scalar,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(OptionalHasValue))],
    },
    Op {
        def: OpDef {
            name: "OptionalGetValue",
            inputs: &["optional: variant"],
            outputs: &["components: output_types"],
            attrs: &[TYPES, SHAPES],
            flags: OpFlags::NONE,
        },
        shape: next_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(OptionalGetValue))],
    },
];

const MAKE: &[KernelDef] = &[KernelDef::any(|builder| {
    let signature = Signature::new(builder)?;
    ResourceOp::boxed(builder, move |_| Ok(signature.iterator()), |_, _| Ok(()))
})];
const ONE_SHOT: &[KernelDef] = &[KernelDef::any(OneShotIterator::create)];
const FROM_STRING: &[KernelDef] = &[KernelDef::any(FromStringHandle::<IteratorResource>::create)];

const fn maker(name: &'static str, attrs: &'static [&'static str], kernels: &'static [KernelDef]) -> Op {
    Op {
        def: OpDef { name, inputs: &[], outputs: &["handle: resource"], attrs, flags: OpFlags::STATEFUL },
        shape: shape::scalar,
        gradient: Gradient::Unsupported,
        kernels,
    }
}

const fn user(
    name: &'static str,
    outputs: &'static [&'static str],
    shape: kernel::ShapeFn,
    kernels: &'static [KernelDef],
) -> Op {
    Op {
        def: OpDef {
            name,
            inputs: &["iterator: resource"],
            outputs,
            attrs: &[TYPES, SHAPES],
            flags: OpFlags::STATEFUL,
        },
        shape,
        gradient: Gradient::Unsupported,
        kernels,
    }
}

const fn from_string(name: &'static str) -> Op {
    Op {
        def: OpDef {
            name,
            inputs: &["string_handle: string"],
            outputs: &["resource_handle: resource"],
            attrs: &["output_types: list(type) >= 0 = []", "output_shapes: list(shape) >= 0 = []"],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::scalar,
        gradient: Gradient::Unsupported,
        kernels: FROM_STRING,
    }
}

/// Returns an iterator without a dataset.
#[track_caller]
pub fn iterator(graph: &Graph, dtypes: &[DType], shapes: &[PartialShape]) -> Output {
    let op = graph.op("IteratorV2").attr("shared_name", "").attr("container", "");
    op.attr("output_types", dtypes).attr("output_shapes", shapes).output()
}

/// Starts an iterator at the first element of a dataset.
#[track_caller]
pub fn make_iterator(dataset: &Output, iterator: &Output) -> Operation {
    iterator.graph().op("MakeIterator").input(dataset).input(iterator).build()
}

/// Returns the next element; at the end it fails with `OutOfRange`.
#[track_caller]
pub fn iterator_get_next(iterator: &Output, dtypes: &[DType], shapes: &[PartialShape]) -> Vec<Output> {
    let op = iterator.graph().op("IteratorGetNext").input(iterator);
    op.attr("output_types", dtypes).attr("output_shapes", shapes).outputs()
}

pub(super) fn next_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shapes = c.attrs.shapes("output_shapes")?;
    if shapes.len() != c.num_outputs() {
        return Err(Status::invalid_argument("`output_shapes` must be the same length as `output_types`"));
    }
    for (index, shape) in shapes.into_iter().enumerate() {
        c.set_output(index, shape);
    }
    Ok(())
}

struct OneShotIterator {
    shared: Arc<OneShot>,
}

struct OneShot {
    signature: Signature,
    container: String,
    name: String,
    is_private: bool,
    factory: Callee,
    state: Mutex<OneShotState>,
    /// The iterator's place in its container, from which it is removed with the node.
    manager: Mutex<Weak<ResourceManager>>,
}

enum OneShotState {
    New,
    /// The function is running; these wait for it.
    Making(Vec<AsyncContext>),
    Made(Arc<IteratorResource>),
    Failed(Status),
}

impl OneShotIterator {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        static NEXT_PRIVATE: AtomicU64 = AtomicU64::new(0);
        let shared_name = builder.attrs().string("shared_name")?;
        let is_private = shared_name.is_empty();
        let name = match is_private {
            true => format!("_{}_{}", NEXT_PRIVATE.fetch_add(1, Ordering::Relaxed), builder.name()),
            false => shared_name,
        };
        let shared = OneShot {
            signature: Signature::new(builder)?,
            container: builder.attrs().string("container")?,
            name,
            is_private,
            factory: Callee::new(builder.attrs().func("dataset_factory")?),
            state: Mutex::new(OneShotState::New),
            manager: Mutex::new(Weak::new()),
        };
        BoxedKernel::new_async(OneShotIterator { shared: Arc::new(shared) })
    }
}

impl OneShot {
    /// Creates the dataset and an iterator over it.
    async fn make(self: Arc<Self>, step: Arc<Step>) {
        let made = async {
            let function = self.factory.bind(&step)?;
            let results = call(&function, Vec::new(), &step).await?;
            let [dataset] = &results[..] else {
                return Err(Status::invalid_argument(
                    "The `dataset_factory` function must return a single scalar of dtype DT_VARIANT.",
                ));
            };
            let dataset = dataset_of(dataset)?;
            let create = || {
                let iterator = self.signature.iterator();
                iterator.restart(dataset)?;
                Ok(iterator)
            };
            *self.manager.lock() = Arc::downgrade(&step.resources);
            step.resources.lookup_or_create(&self.container, &self.name, create)
        }
        .await;
        let state = match &made {
            Ok(iterator) => OneShotState::Made(iterator.clone()),
            Err(status) => OneShotState::Failed(status.clone()),
        };
        let before = std::mem::replace(&mut *self.state.lock(), state);
        if let OneShotState::Making(waiting) = before {
            for context in waiting {
                self.answer(context, made.clone());
            }
        }
    }

    fn answer(&self, context: AsyncContext, made: Result<Arc<IteratorResource>>) {
        context.finish_with(|context| {
            let device = &context.step().device;
            let handle = ResourceManager::handle_to(device, &self.container, &self.name, made?);
            context.set_output(0, Tensor::resource(handle));
            Ok(())
        });
    }
}

impl Drop for OneShot {
    fn drop(&mut self) {
        if self.is_private
            && let Some(manager) = self.manager.get_mut().upgrade()
        {
            // The container was already cleared.
            let _ = manager.delete::<IteratorResource>(&self.container, &self.name);
        }
    }
}

impl AsyncKernel for OneShotIterator {
    fn compute(&self, context: AsyncContext) {
        let step = context.step().clone();
        let mut state = self.shared.state.lock();
        match &mut *state {
            OneShotState::New => {
                *state = OneShotState::Making(vec![context]);
                drop(state);
                start(self.shared.clone().make(step));
            }
            OneShotState::Making(waiting) => waiting.push(context),
            OneShotState::Made(iterator) => {
                let iterator = iterator.clone();
                drop(state);
                self.shared.answer(context, Ok(iterator));
            }
            OneShotState::Failed(status) => {
                let status = status.clone();
                drop(state);
                context.finish(Err(status));
            }
        }
    }
}

struct MakeIterator;

impl Kernel for MakeIterator {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let dataset = dataset_of(context.input(0)?)?;
        context.resource::<IteratorResource>(1)?.restart(dataset)
    }
}

pub(super) fn end_of_sequence() -> Status {
    Status::out_of_range("End of sequence")
}

struct GetNext;

impl AsyncKernel for GetNext {
    fn compute(&self, mut context: AsyncContext) {
        let iterator = context.op().resource::<IteratorResource>(0);
        match iterator {
            Ok(iterator) => iterator.request(
                context,
                Wish::Next(|context, element| set_components(context, element.ok_or_else(end_of_sequence)?)),
            ),
            Err(status) => context.finish(Err(status)),
        }
    }
}

pub(super) fn set_components(context: &mut OpContext<'_>, element: Element) -> Result<()> {
    if element.len() != context.num_outputs() {
        return Err(Status::invalid_argument(format!(
            "Number of components does not match: expected {} types but got {}.",
            context.num_outputs(),
            element.len()
        )));
    }
    for (index, component) in element.into_iter().enumerate() {
        context.set_output(index, component);
    }
    Ok(())
}

struct GetNextAsOptional;

impl AsyncKernel for GetNextAsOptional {
    fn compute(&self, mut context: AsyncContext) {
        let iterator = context.op().resource::<IteratorResource>(0);
        match iterator {
            Ok(iterator) => iterator.request(
                context,
                Wish::Next(|context, element| {
                    context.set_output(0, optional(element));
                    Ok(())
                }),
            ),
            Err(status) => context.finish(Err(status)),
        }
    }
}

/// An optional in a variant tensor.
struct OptionalVariant(Option<Element>);

impl VariantValue for OptionalVariant {
    fn type_name(&self) -> &str {
        "tensorflow::data::Optional"
    }

    fn encode(&self) -> Result<proto::VariantTensorDataProto> {
        let components = self.0.as_deref().unwrap_or_default();
        Ok(proto::VariantTensorDataProto {
            type_name: self.type_name().to_owned(),
            metadata: vec![u8::from(self.0.is_some())].into(),
            tensors: components.iter().map(tensor_to_proto).collect::<Result<_>>()?,
        })
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

fn optional(element: Option<Element>) -> Tensor {
    Tensor::variant(new_optional(element))
}

/// Returns an optional as an element of a variant tensor.
pub(crate) fn new_optional(element: Option<Element>) -> Variant {
    Variant::new(OptionalVariant(element))
}

/// Returns the optional in an element of a variant tensor, if it is one.
pub(crate) fn optional_of(variant: &Variant) -> Option<Result<Option<Element>>> {
    match variant {
        Variant::Encoded(encoded) if encoded.type_name == "tensorflow::data::Optional" => {
            if encoded.metadata.first() != Some(&1) {
                return Some(Ok(None));
            }
            Some(encoded.tensors.iter().map(tensor::tensor_from_proto).collect::<Result<_>>().map(Some))
        }
        other => other.downcast_ref::<OptionalVariant>().map(|optional| Ok(optional.0.clone())),
    }
}

/// Returns the value of an optional.
fn optional_value(tensor: &Tensor) -> Result<Option<Element>> {
    let found = tensor.variants()?.first().and_then(optional_of);
    found.unwrap_or_else(|| {
        Err(Status::invalid_argument("Input to OptionalHasValue must be an OptionalVariant object."))
    })
}

struct OptionalFromValue;

impl Kernel for OptionalFromValue {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let element = (0..context.num_inputs()).map(|index| context.take_input(index)).collect::<Result<_>>()?;
        context.set_output(0, optional(Some(element)));
        Ok(())
    }
}

struct OptionalNone;

impl Kernel for OptionalNone {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        context.set_output(0, optional(None));
        Ok(())
    }
}

struct OptionalHasValue;

impl Kernel for OptionalHasValue {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let has_value = optional_value(context.input(0)?)?.is_some();
        context.set_output(0, Tensor::scalar(has_value));
        Ok(())
    }
}

struct OptionalGetValue;

impl Kernel for OptionalGetValue {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let value = optional_value(context.input(0)?)?;
        let value = value.ok_or_else(|| Status::invalid_argument("The given optional does not have a value."))?;
        set_components(context, value)
    }
}

/// Represents an iterator by its name.
pub(super) struct ToStringHandle<R>(PhantomData<fn() -> R>);

impl<R> Default for ToStringHandle<R> {
    fn default() -> Self {
        ToStringHandle(PhantomData)
    }
}

impl<R: Resource> Kernel for ToStringHandle<R> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        // The iterator must exist when its string is requested.
        context.resource::<R>(0)?;
        let handle = context.input(0)?.resources()?.first();
        let handle = handle.ok_or_else(|| Status::invalid_argument("an empty resource handle"))?;
        let text = handle.to_proto().encode_to_vec();
        context.set_output(0, Tensor::string(text));
        Ok(())
    }
}

/// Finds an iterator by its name.
pub(super) struct FromStringHandle<R> {
    dtypes: Vec<DType>,
    shapes: Vec<PartialShape>,
    iterator: PhantomData<fn() -> R>,
}

impl<R: Resource + HasSignature> FromStringHandle<R> {
    pub(super) fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let (dtypes, shapes) = (builder.attrs().dtypes("output_types")?, builder.attrs().shapes("output_shapes")?);
        BoxedKernel::new(FromStringHandle::<R> { dtypes, shapes, iterator: PhantomData })
    }
}

impl<R: Resource + HasSignature> Kernel for FromStringHandle<R> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let [text] = context.input(0)?.strings()? else {
            return Err(Status::invalid_argument("string_handle must be a scalar"));
        };
        let parsed = ResourceHandleProto::decode(text.clone()).ok();
        let parsed = parsed
            .ok_or_else(|| Status::invalid_argument("Could not parse string_handle as a valid ResourceHandle"))?;
        let handle = ResourceHandle::from_proto(&parsed)?;
        let device = &context.step().device;
        if handle.device != **device {
            return Err(Status::invalid_argument(format!(
                "Attempted create an iterator on device \"{device}\" from handle defined on device \"{}\"",
                handle.device
            )));
        }
        let iterator: Arc<R> = context.resources().from_handle(&handle)?;
        iterator.signature().check_promise(&self.dtypes, &self.shapes)?;
        let handle = ResourceManager::handle_to(device, &handle.container, &handle.name, iterator);
        context.set_output(0, Tensor::resource(handle));
        Ok(())
    }
}

#[cfg(test)]
mod bound_tests;
#[cfg(test)]
pub(super) mod tests;
