//! Further ops on iterators: saving and restoring their positions, anonymous iterators, and the device of an iterator.

use super::iterator::{IteratorResource, Signature, Wish};
use super::position::Position;
use super::shuffle::SeedGenerator;
use graph::ShapeContext;
use kernel::{
    AsyncContext, AsyncKernel, BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags,
    Resource, ResourceManager, shape,
};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tensor::{PartialShape, Result, Status, Tensor, Variant, VariantValue};

const TYPES: &str = "output_types: list(type) >= 1";
const SHAPES: &str = "output_shapes: list(shape) >= 1";

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    op(
        "SerializeIterator",
        &["resource_handle: resource"],
        &["serialized: variant"],
        &["external_state_policy: int = 0"],
        state_shape,
        &[KernelDef::any(|_| BoxedKernel::new_async(SerializeIterator))],
    ),
    op(
        "DeserializeIterator",
        &["resource_handle: resource", "serialized: variant"],
        &[],
        &[],
        shape::unknown,
        &[KernelDef::any(|_| BoxedKernel::new_async(DeserializeIterator))],
    ),
    op("AnonymousIterator", &[], &["handle: resource"], &[TYPES, SHAPES], shape::scalar, ANONYMOUS),
    op("AnonymousIteratorV2", &[], &["handle: resource", "deleter: variant"], &[TYPES, SHAPES], scalars, ANONYMOUS),
    op("AnonymousIteratorV3", &[], &["handle: resource"], &[TYPES, SHAPES], shape::scalar, ANONYMOUS),
    deleter("DeleteIterator"),
    op("IteratorGetDevice", &["resource: resource"], &["device: string"], &[], shape::scalar, GET_DEVICE),
    op("ExperimentalIteratorGetDevice", &["resource: resource"], &["device: string"], &[], shape::scalar, GET_DEVICE),
    op("DummySeedGenerator", &[], &["handle: resource"], &[], shape::scalar, DUMMY),
    op("DummyMemoryCache", &[], &["handle: resource"], &[], shape::scalar, DUMMY),
    op("DummyIterationCounter", &[], &["handle: resource"], &[], shape::scalar, DUMMY),
    op(
        "AnonymousSeedGenerator",
        &["seed: int64", "seed2: int64", "reshuffle: bool"],
        &["handle: resource", "deleter: variant"],
        &[],
        scalars,
        SEED_GENERATOR,
    ),
    op(
        "AnonymousRandomSeedGenerator",
        &["seed: int64", "seed2: int64"],
        &["handle: resource", "deleter: variant"],
        &[],
        scalars,
        SEED_GENERATOR,
    ),
    op("AnonymousMemoryCache", &[], &["handle: resource", "deleter: variant"], &[], scalars, MEMORY_CACHE),
    deleter("DeleteSeedGenerator"),
    deleter("DeleteRandomSeedGenerator"),
    deleter("DeleteMemoryCache"),
];

const ANONYMOUS: &[KernelDef] = &[KernelDef::any(|builder: &KernelBuilder<'_>| {
    let signature = Signature::new(builder)?;
    BoxedKernel::new(Anonymous(move |_: &OpContext<'_>| Ok(signature.iterator())))
})];
const SEED_GENERATOR: &[KernelDef] = &[KernelDef::any(|_| {
    BoxedKernel::new(Anonymous(|context: &OpContext<'_>| {
        let seeds = (context.input(0)?.to_scalar::<i64>()?, context.input(1)?.to_scalar::<i64>()?);
        let reshuffles = context.num_inputs() < 3 || context.input(2)?.to_scalar::<bool>()?;
        Ok(SeedGenerator::new(seeds, reshuffles))
    }))
})];
const MEMORY_CACHE: &[KernelDef] =
    &[KernelDef::any(|_| BoxedKernel::new(Anonymous(|_: &OpContext<'_>| Ok(Placeholder))))];
const DUMMY: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new(Dummy))];
const DELETE: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new(Delete))];
const GET_DEVICE: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new(GetDevice))];

const fn op(
    name: &'static str,
    inputs: &'static [&'static str],
    outputs: &'static [&'static str],
    attrs: &'static [&'static str],
    shape: kernel::ShapeFn,
    kernels: &'static [KernelDef],
) -> Op {
    let def = OpDef { name, inputs, outputs, attrs, flags: OpFlags::STATEFUL };
    Op { def, shape, gradient: Gradient::Unsupported, kernels }
}

const fn deleter(name: &'static str) -> Op {
    op(name, &["handle: resource", "deleter: variant"], &[], &[], shape::unknown, DELETE)
}

fn scalars(c: &mut ShapeContext<'_>) -> Result<()> {
    for index in 0..c.num_outputs() {
        c.set_output(index, PartialShape::scalar());
    }
    Ok(())
}

fn state_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, PartialShape::from_dims(&[-1]));
    Ok(())
}

struct SerializeIterator;

impl AsyncKernel for SerializeIterator {
    fn compute(&self, mut context: AsyncContext) {
        let iterator = context.op().resource::<IteratorResource>(0);
        match iterator {
            Ok(iterator) => iterator.request(context, Wish::Save),
            Err(status) => context.finish(Err(status)),
        }
    }
}

struct DeserializeIterator;

impl AsyncKernel for DeserializeIterator {
    fn compute(&self, mut context: AsyncContext) {
        let prepared = {
            let op = context.op();
            let position = op.input(1).and_then(Position::from_tensor);
            position.and_then(|position| Ok((op.resource::<IteratorResource>(0)?, position)))
        };
        match prepared {
            Ok((iterator, position)) => iterator.request(context, Wish::Restore(position)),
            Err(status) => context.finish(Err(status)),
        }
    }
}

/// Creates a resource in every run; nothing but the handle refers to it, and it is dropped with the last copy of the handle.
struct Anonymous<F>(F);

impl<R: Resource, F: Fn(&OpContext<'_>) -> Result<R> + Send + Sync + 'static> Kernel for Anonymous<F> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let resource = Arc::new((self.0)(context)?);
        context.set_output(0, anonymous_handle(context, resource));
        if context.num_outputs() > 1 {
            context.set_output(1, deleter_tensor());
        }
        Ok(())
    }
}

/// Returns a handle to a resource that has no name.
pub(super) fn anonymous_handle<R: Resource>(context: &OpContext<'_>, resource: Arc<R>) -> Tensor {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("_anonymous_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    Tensor::resource(ResourceManager::handle_to(&context.step().device, "", &name, resource))
}

/// Returns the deleter for a resource. There is nothing to do: the resource is dropped with its handle.
pub(super) fn deleter_tensor() -> Tensor {
    Tensor::variant(Variant::new(Deleter))
}

struct Deleter;

impl VariantValue for Deleter {
    fn type_name(&self) -> &str {
        "tensorflow::ResourceDeleter"
    }

    fn encode(&self) -> Result<proto::VariantTensorDataProto> {
        Err(Status::unimplemented("what deletes a resource can't leave its task"))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Takes a deleter and its handle, with which the resource is dropped.
pub(super) struct Delete;

impl Kernel for Delete {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let deleter = context.take_input(context.num_inputs() - 1)?;
        match deleter.variants()? {
            [variant] if variant.downcast_ref::<Deleter>().is_some() => Ok(()),
            _ => Err(Status::invalid_argument("the input is not the deleter of a resource")),
        }
    }
}

/// A placeholder for a resource that programs name but don't use.
struct Placeholder;

impl Resource for Placeholder {
    fn type_name(&self) -> &'static str {
        "N10tensorflow4data13DummyResourceE"
    }

    fn describe(&self) -> String {
        "no resource".to_owned()
    }
}

/// Outputs a handle to nothing.
struct Dummy;

impl Kernel for Dummy {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let handle = ResourceManager::handle_to(&context.step().device, "", "dummy_resource", Arc::new(Placeholder));
        context.set_output(0, Tensor::resource(handle));
        Ok(())
    }
}

struct GetDevice;

impl Kernel for GetDevice {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        context.resource::<IteratorResource>(0)?;
        let device = context.step().device.to_string();
        context.set_output(0, Tensor::string(device));
        Ok(())
    }
}
