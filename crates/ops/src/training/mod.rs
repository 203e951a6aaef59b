//! Optimizer steps: one kernel applies a rule of `numeric::optimizer` to variables given by ref or by handle.
//!
//! To add an optimizer, implement `apply::Optimizer` for a struct that holds its attributes, and list its ops
//! with `training_ops!`.
//!
//! ```
//! use graph::Graph;
//! use ops::{state, training};
//! use tensor::{DType, PartialShape};
//!
//! let g = Graph::new();
//! let w = state::var_handle_op(&g, "w", DType::Float, &PartialShape::scalar());
//! let set = state::assign_variable_op(&w, &g.constant(1f32));
//! let step = g.control_dependencies(&[set], |g| {
//!     training::resource_apply_gradient_descent(&w, &g.constant(0.5f32), &g.constant(1f32))
//! });
//! let value = g.control_dependencies(&[step], |_| state::read_variable_op(&w, DType::Float));
//! let step = std::sync::Arc::new(kernel::Step::detached());
//! let values = kernel::evaluate(ops::registry(), &g.graph(), &[], &[value.edge()], &step)?;
//! assert_eq!(values[0].to_scalar::<f32>()?, 0.5);
//! # Ok::<(), tensor::Status>(())
//! ```

/// Lists the forms of an optimizer's op by ref and by handle, and defines their builder functions.
macro_rules! training_ops {
    ($(
        $(#[$doc:meta])*
        $name:ident = $op:literal, $resource_name:ident = $resource_op:literal:
        [$var:ident $(, $slot:ident)*], [$($input:ident: $ty:ident),*], [$($attr:expr),*], $kernels:expr;
    )*) => {
        /// The ops of this file.
        pub(super) const OPS: &[::kernel::Op] = &[$(
            ::kernel::Op {
                def: ::kernel::OpDef {
                    name: $op,
                    inputs: &[
                        concat!(stringify!($var), ": Ref(T)"),
                        $(concat!(stringify!($slot), ": Ref(T)"),)*
                        $(concat!(stringify!($input), ": ", stringify!($ty)),)*
                    ],
                    outputs: &["out: Ref(T)"],
                    attrs: &[numbertype!("T"), $($attr),*],
                    flags: ::kernel::OpFlags::NONE,
                },
                shape: super::apply::apply_shape,
                gradient: ::kernel::Gradient::Unsupported,
                kernels: $kernels,
            },
            resource_training_op!($resource_op: [$var $(, $slot)*], [$($input: $ty),*], [$($attr),*], $kernels),
        )*];

        $(
            $(#[$doc])*
            #[track_caller]
            #[allow(clippy::too_many_arguments)]
            pub fn $name($var: &::graph::Output, $($slot: &::graph::Output,)* $($input: &::graph::Output,)*) -> ::graph::Output {
                $var.graph().op($op).input($var)$(.input($slot))*$(.input($input))*.output()
            }

            $(#[$doc])*
            #[track_caller]
            #[allow(clippy::too_many_arguments)]
            pub fn $resource_name($var: &::graph::Output, $($slot: &::graph::Output,)* $($input: &::graph::Output,)*) -> ::graph::Operation {
                $var.graph().op($resource_op).input($var)$(.input($slot))*$(.input($input))*.build()
            }
        )*
    };
}

/// Returns the record of an optimizer's op by handle.
macro_rules! resource_training_op {
    ($op:literal: [$($slot:ident),*], [$($input:ident: $ty:ident),*], [$($attr:expr),*], $kernels:expr) => {
        ::kernel::Op {
            def: ::kernel::OpDef {
                name: $op,
                inputs: &[
                    $(concat!(stringify!($slot), ": resource"),)*
                    $(concat!(stringify!($input), ": ", stringify!($ty)),)*
                ],
                outputs: &[],
                attrs: &[numbertype!("T"), $($attr),*],
                flags: ::kernel::OpFlags::STATEFUL,
            },
            shape: super::apply::apply_shape,
            gradient: ::kernel::Gradient::Unsupported,
            kernels: $kernels,
        }
    };
}

/// Lists the dense kernels of an optimizer with this many slots, the variable included.
macro_rules! dense_kernels {
    ($optimizer:ident, $slots:literal) => {
        training_kernels!(ApplyDense, $optimizer, $slots, [f32, f64, ::tensor::f16, ::tensor::bf16])
    };
}

/// Lists the sparse kernels of an optimizer with this many slots, the variable included.
macro_rules! sparse_kernels {
    ($optimizer:ident, $slots:literal) => {
        training_kernels!(ApplySparse, $optimizer, $slots, [f32, f64, ::tensor::f16, ::tensor::bf16])
    };
}

macro_rules! training_kernels {
    ($kernel:ident, $optimizer:ident, $slots:literal, [$($ty:ty),*]) => {
        &[$(::kernel::KernelDef {
            types: &[("T", <$ty as ::tensor::Element>::DTYPE)],
            create: |builder| super::apply::$kernel::<$ty, $optimizer, $slots>::create(builder),
        },)*]
    };
}

mod adadelta;
mod adagrad;
mod adam;
mod apply;
mod ftrl;
mod gradient_descent;
mod momentum;
mod rms_prop;
mod sign;

pub use adadelta::*;
pub use adagrad::*;
pub use adam::*;
pub use ftrl::*;
pub use gradient_descent::*;
pub use momentum::*;
pub use rms_prop::*;
pub use sign::*;

use kernel::Op;

/// Attributes that most of the ops have.
const USE_LOCKING: &str = "use_locking: bool = false";
const INDICES: &str = "Tindices: {int32, int64}";

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[
    adadelta::OPS,
    adagrad::OPS,
    adam::OPS,
    adam::RESOURCE_OPS,
    ftrl::OPS,
    gradient_descent::OPS,
    momentum::OPS,
    momentum::RESOURCE_OPS,
    rms_prop::OPS,
    sign::OPS,
];

#[cfg(test)]
mod tests;
