//! The building blocks of ops: the [`Op`] record and its registry, [`Kernel`]s and their contexts, the [`Step`], variables and
//! other resources, the [`Rendezvous`], and cancellation.
//!
//! Invariant: this crate knows no concrete op.

mod callback;
mod cancellation;
mod context;
mod evaluate;
mod function;
mod io_pool;
mod kernel;
mod optimize;
mod registry;
mod rendezvous;
mod resource;
mod saves;
mod session_kernels;
mod step;
mod timer;
mod variable;

pub use callback::{Asking, Attendance, Callback, CallbackDone, CallbackHub};
pub use cancellation::{Cancellation, CancellationToken};
pub use context::{AsyncContext, Completion, OpContext, Outputs, Value, Values};
pub use evaluate::evaluate;
pub use function::{BoundFunction, Callee, FunctionCall, FunctionForks, set_outputs, take_args};
pub use io_pool::run_io;
pub use kernel::{AsyncKernel, BoxedKernel, Cost, Kernel, KernelBuilder, KernelDef};
pub use optimize::optimize;
pub use registry::{Op, OpRegistry};
pub use rendezvous::{FrameAndIteration, LocalRendezvous, ReceiveDone, Rendezvous, RendezvousKey, Transfer};
pub use resource::{Holdings, Resource, ResourceCache, ResourceManager};
pub use saves::{Save, SavesSummary, note_save, saves};
pub use session_kernels::SessionKernels;
pub use step::{CallFrame, JobRunner, Logger, SessionState, Step, Trace};
pub use step::{
    CollectiveCall, CollectiveDone, CollectiveGroup, CollectiveKind, Collectives, Reduction, ReductionPlan,
};
pub use step::{FunctionDone, FunctionHandle, FunctionPlace, FunctionRuntime};
pub use variable::Variable;

pub use graph::builder::{Grad, Gradient, GradientArgs, IndexedSlices};
pub use graph::shape::{self, ShapeContext, ShapeFn};
pub use graph::{AttrMap, OpDef, OpFlags};
