//! [`Kernel`] and [`AsyncKernel`]: what runs a node; [`KernelDef`]: how one is made.

use crate::io_pool::Blocking;
use crate::{AsyncContext, OpContext};
use graph::{AttrMap, Node};
use std::ops::Range;
use tensor::{DType, Result};

/// How much work a kernel is, so that the executor knows whether to hand it to another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Next to nothing: always run in place.
    Inline,
    /// About in proportion to the bytes of its inputs.
    ByInput,
    /// A lot, whatever the inputs.
    Expensive,
}

/// Runs a node without waiting for anything.
pub trait Kernel: Send + Sync {
    /// Computes the outputs from the inputs.
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()>;

    /// Returns how much work the kernel is.
    fn cost(&self) -> Cost {
        Cost::ByInput
    }

    /// Returns whether inputs that aren't declared as references may still arrive as the variable itself, so that the
    /// kernel can look at it under its lock instead of taking a snapshot.
    fn takes_refs(&self) -> bool {
        false
    }

    /// Returns whether the kernel passes its input on as it is, so that it may pass on a variable: whoever takes its
    /// output then reads the variable when it runs, as in TensorFlow, where the output shares the variable's memory.
    fn forwards_refs(&self) -> bool {
        false
    }
}

/// Runs a node that may have to wait, such as a dequeue or a receive. Waiting holds no thread.
pub trait AsyncKernel: Send + Sync {
    /// Starts the work; [`AsyncContext::finish`] ends it, now or later, on any thread.
    fn compute(&self, context: AsyncContext);
}

/// A kernel of either kind.
pub enum BoxedKernel {
    /// One that doesn't wait.
    Sync(Box<dyn Kernel>),
    /// One that may wait.
    Async(Box<dyn AsyncKernel>),
}

impl BoxedKernel {
    /// Wraps a kernel that doesn't wait.
    pub fn new(kernel: impl Kernel + 'static) -> Result<BoxedKernel> {
        Ok(BoxedKernel::Sync(Box::new(kernel)))
    }

    /// Wraps a kernel that waits for files, in `compute` and without returning meanwhile: it runs on a thread that nobody else
    /// waits for, and a step that is cancelled goes on without it.
    pub fn new_blocking(kernel: impl Kernel + 'static) -> Result<BoxedKernel> {
        BoxedKernel::new_async(Blocking::new(kernel))
    }

    /// Wraps a kernel that may wait.
    pub fn new_async(kernel: impl AsyncKernel + 'static) -> Result<BoxedKernel> {
        Ok(BoxedKernel::Async(Box::new(kernel)))
    }
}

/// A kernel for some of the types that an op allows.
pub struct KernelDef {
    /// The type attributes that this kernel is for; none means any.
    pub types: &'static [(&'static str, DType)],
    /// Makes the kernel for a node.
    pub create: fn(&KernelBuilder<'_>) -> Result<BoxedKernel>,
}

impl KernelDef {
    /// A kernel for every type that the op allows.
    pub const fn any(create: fn(&KernelBuilder<'_>) -> Result<BoxedKernel>) -> KernelDef {
        KernelDef { types: &[], create }
    }

    /// Returns whether this kernel is for a node with these attributes.
    pub fn matches(&self, attrs: &AttrMap) -> bool {
        self.types.iter().all(|(name, dtype)| attrs.dtype(name).is_ok_and(|actual| actual == *dtype))
    }
}

/// Lists one kernel per element type: `kernels!("T": [f32, f64] => MyKernel)` uses `MyKernel::<f32>::create` and so on.
#[macro_export]
macro_rules! kernels {
    ($attr:literal : [$($ty:ty),* $(,)?] => $kernel:ident) => {
        &[$($crate::KernelDef {
            types: &[($attr, <$ty as ::tensor::Element>::DTYPE)],
            create: |builder| $kernel::<$ty>::create(builder),
        },)*]
    };
}

/// What a kernel can see when it is made.
pub struct KernelBuilder<'a> {
    /// The node.
    pub node: &'a Node,
    /// The whole name of the device.
    pub device: &'a str,
}

impl KernelBuilder<'_> {
    /// Returns the node's name.
    pub fn name(&self) -> &str {
        &self.node.name
    }

    /// Returns the node's attributes.
    pub fn attrs(&self) -> &AttrMap {
        &self.node.attrs
    }

    /// Returns which inputs belong to an argument.
    pub fn input_range(&self, name: &str) -> Result<Range<usize>> {
        self.node.schema.input_range(name, &self.node.attrs)
    }

    /// Returns which outputs belong to an argument.
    pub fn output_range(&self, name: &str) -> Result<Range<usize>> {
        self.node.schema.output_range(name, &self.node.attrs)
    }

    /// Returns the type of an input.
    pub fn input_dtype(&self, index: usize) -> DType {
        self.node.input_types[index].dtype
    }

    /// Returns the type of an output.
    pub fn output_dtype(&self, index: usize) -> DType {
        self.node.output_types[index].dtype
    }

    /// Returns the types of all outputs.
    pub fn output_dtypes(&self) -> Vec<DType> {
        self.node.output_types.iter().map(|slot| slot.dtype).collect()
    }

    /// Returns the resource's container and name from the attributes `container` and `shared_name`; without a shared
    /// name it is the node's name.
    pub fn resource_name(&self) -> (String, String) {
        let text = |name: &str| self.node.attrs.string(name).unwrap_or_default();
        let shared = text("shared_name");
        (text("container"), if shared.is_empty() { self.node.name.clone() } else { shared })
    }
}
