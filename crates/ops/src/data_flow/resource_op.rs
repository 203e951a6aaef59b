//! [`ResourceOp`]: the kernel of ops that output a handle to a queue, an accumulator or a barrier.
//!
//! Without a shared name the resource belongs to the node in its session: its name is unique, and it is dropped with the kernel.

use kernel::{
    BoxedKernel, Cost, Kernel, KernelBuilder, OpContext, Resource, ResourceCache, ResourceManager, Value, Variable,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// Outputs a handle to a resource, which it creates if there is none.
pub(crate) struct ResourceOp<R: Resource> {
    container: String,
    name: String,
    is_private: bool,
    by_ref: bool,
    create: Create<R>,
    verify: Verify<R>,
    cache: ResourceCache<Value>,
}

type Create<R> = Box<dyn Fn(&str, &OpContext<'_>) -> Result<R> + Send + Sync>;
type Verify<R> = Box<dyn Fn(&R, &str) -> Result<()> + Send + Sync>;

impl<R: Resource> ResourceOp<R> {
    /// Returns the kernel. `create` is called with the resource's name; `verify` compares an existing one with the node's
    /// configuration.
    pub(crate) fn boxed(
        builder: &KernelBuilder<'_>,
        create: impl Fn(&str) -> Result<R> + Send + Sync + 'static,
        verify: impl Fn(&R, &str) -> Result<()> + Send + Sync + 'static,
    ) -> Result<BoxedKernel> {
        ResourceOp::from_inputs(builder, move |name, _| create(name), verify)
    }

    /// As [`boxed`](ResourceOp::boxed), for a resource whose configuration also depends on the node's inputs.
    pub(crate) fn from_inputs(
        builder: &KernelBuilder<'_>,
        create: impl Fn(&str, &OpContext<'_>) -> Result<R> + Send + Sync + 'static,
        verify: impl Fn(&R, &str) -> Result<()> + Send + Sync + 'static,
    ) -> Result<BoxedKernel> {
        static NEXT_PRIVATE: AtomicU64 = AtomicU64::new(0);
        let shared_name = builder.attrs().string("shared_name")?;
        if shared_name.starts_with('_') {
            return Err(Status::invalid_argument(format!("shared_name cannot start with '_':{shared_name}")));
        }
        let by_node_name = builder.attrs().bool("use_node_name_sharing").unwrap_or(false);
        let is_private = shared_name.is_empty() && !by_node_name;
        let name = match shared_name.is_empty() {
            true if by_node_name => builder.name().to_owned(),
            true => format!("_{}_{}", NEXT_PRIVATE.fetch_add(1, Ordering::Relaxed), builder.name()),
            false => shared_name,
        };
        BoxedKernel::new(ResourceOp {
            container: builder.attrs().string("container")?,
            name,
            is_private,
            by_ref: builder.output_dtype(0) == DType::String,
            create: Box::new(create),
            verify: Box::new(verify),
            cache: ResourceCache::new(),
        })
    }

    fn handle(&self, device: &str, resource: Arc<R>) -> Result<Value> {
        let handle = ResourceManager::handle_to(device, &self.container, &self.name, resource);
        if !self.by_ref {
            return Ok(Value::Tensor(Tensor::resource(handle)));
        }
        let shape = Shape::vector(2);
        let names = vec![handle.container.into_bytes().into(), handle.name.into_bytes().into()];
        let variable = Variable::new(&self.name, DType::String, PartialShape::from(&shape));
        variable.assign(Tensor::from_strings(shape, names)?)?;
        Ok(Value::Ref(Arc::new(variable)))
    }
}

impl<R: Resource> Kernel for ResourceOp<R> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let device = &context.step().device;
        let handle = self.cache.get(&context.step().resources, |manager| {
            let create = || (self.create)(&self.name, context);
            let resource = manager.lookup_or_create(&self.container, &self.name, create)?;
            (self.verify)(&resource, &self.name)?;
            Ok((self.handle(device, resource)?, true))
        })?;
        context.set_output_value(0, handle);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

impl<R: Resource> Drop for ResourceOp<R> {
    fn drop(&mut self) {
        if self.is_private
            && let Some((manager, _)) = self.cache.last()
        {
            // The container was already cleared.
            let _ = manager.delete::<R>(&self.container, &self.name);
        }
    }
}
