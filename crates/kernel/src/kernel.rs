//! [`Kernel`] and [`AsyncKernel`], which run a node, and [`KernelDef`], which creates them.

use crate::{AsyncContext, OpContext};
use graph::{AttrMap, Node};
use std::ops::Range;
use tensor::{DType, Result};

/// The cost of a kernel, by which the executor decides whether to run it on another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Negligible: the kernel always runs inline.
    Inline,
    /// Roughly proportional to the bytes of the inputs.
    ByInput,
    /// High, whatever the inputs.
    Expensive,
}

/// Runs a node without waiting.
pub trait Kernel: Send + Sync {
    /// Computes the outputs from the inputs.
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()>;

    /// Returns the cost of the kernel.
    fn cost(&self) -> Cost {
        Cost::ByInput
    }

    /// Returns whether the kernel accepts a reference to a variable for inputs that are not declared as references, so that it can
    /// read the variable under its lock instead of taking a snapshot.
    fn takes_refs(&self) -> bool {
        false
    }

    /// Returns whether the kernel passes on its input unchanged and may pass on a reference to a variable. The consumer of its
    /// output then reads the variable when it runs, as in TensorFlow, where the output shares the variable's memory.
    fn forwards_refs(&self) -> bool {
        false
    }
}

/// Runs a node that may wait, such as a dequeue or a receive, without holding a thread.
pub trait AsyncKernel: Send + Sync {
    /// Starts the work. [`AsyncContext::finish`] ends it, now or later, on any thread.
    fn compute(&self, context: AsyncContext);
}

/// A kernel of either kind.
pub enum BoxedKernel {
    /// A synchronous kernel.
    Sync(Box<dyn Kernel>),
    /// An asynchronous kernel.
    Async(Box<dyn AsyncKernel>),
}

impl BoxedKernel {
    /// Wraps a synchronous kernel.
    pub fn new(kernel: impl Kernel + 'static) -> Result<BoxedKernel> {
        Ok(BoxedKernel::Sync(Box::new(kernel)))
    }

    /// Wraps an asynchronous kernel.
    pub fn new_async(kernel: impl AsyncKernel + 'static) -> Result<BoxedKernel> {
        Ok(BoxedKernel::Async(Box::new(kernel)))
    }
}

/// The kernel of an op for some of the types that the op allows.
pub struct KernelDef {
    /// The values of type attributes that the kernel supports; empty for all.
    pub types: &'static [(&'static str, DType)],
    /// Creates the kernel for a node.
    pub create: fn(&KernelBuilder<'_>) -> Result<BoxedKernel>,
}

impl KernelDef {
    /// Returns a kernel for every type that the op allows.
    pub const fn any(create: fn(&KernelBuilder<'_>) -> Result<BoxedKernel>) -> KernelDef {
        KernelDef { types: &[], create }
    }

    /// Returns whether the kernel supports a node with these attributes.
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

/// The node that a kernel is created for.
pub struct KernelBuilder<'a> {
    /// The node.
    pub node: &'a Node,
    /// The full name of the device.
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

    /// Returns the inputs that belong to an argument.
    pub fn input_range(&self, name: &str) -> Result<Range<usize>> {
        self.node.schema.input_range(name, &self.node.attrs)
    }

    /// Returns the outputs that belong to an argument.
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

    /// Returns the container and name of the node's resource from the attributes `container` and `shared_name`. The default for the
    /// name is the node's.
    pub fn resource_name(&self) -> (String, String) {
        let text = |name: &str| self.node.attrs.string(name).unwrap_or_default();
        let shared = text("shared_name");
        (text("container"), if shared.is_empty() { self.node.name.clone() } else { shared })
    }
}
