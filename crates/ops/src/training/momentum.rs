//! Momentum, with TensorFlow's and Keras's order of the learning rate.

use super::apply::{Apply, Hyper, Recipe, apply_shape};
use kernel::{Gradient, Op, OpDef, OpFlags};
use numeric::float::WideFloat;
use numeric::optimizer as rules;
use tensor::{Result, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ApplyMomentum",
            inputs: &["var: Ref(T)", "accum: Ref(T)", "lr: T", "grad: T", "momentum: T"],
            outputs: &["out: Ref(T)"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
                "use_nesterov: bool = false",
            ],
            flags: OpFlags::NONE,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(Momentum, 2),
    },
    Op {
        def: OpDef {
            name: "ResourceApplyMomentum",
            inputs: &["var: resource", "accum: resource", "lr: T", "grad: T", "momentum: T"],
            outputs: &[],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
                "use_nesterov: bool = false",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(Momentum, 2),
    },
    Op {
        def: OpDef {
            name: "SparseApplyMomentum",
            inputs: &["var: Ref(T)", "accum: Ref(T)", "lr: T", "grad: T", "indices: Tindices", "momentum: T"],
            outputs: &["out: Ref(T)"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "Tindices: {int32, int64}",
                "use_locking: bool = false",
                "use_nesterov: bool = false",
            ],
            flags: OpFlags::NONE,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(Momentum, 2),
    },
    Op {
        def: OpDef {
            name: "ResourceSparseApplyMomentum",
            inputs: &["var: resource", "accum: resource", "lr: T", "grad: T", "indices: Tindices", "momentum: T"],
            outputs: &[],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "Tindices: {int32, int64}",
                "use_locking: bool = false",
                "use_nesterov: bool = false",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(Momentum, 2),
    },
    Op {
        def: OpDef {
            name: "ResourceApplyKerasMomentum",
            inputs: &["var: resource", "accum: resource", "lr: T", "grad: T", "momentum: T"],
            outputs: &[],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
                "use_nesterov: bool = false",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(KerasMomentum, 2),
    },
    Op {
        def: OpDef {
            name: "ResourceSparseApplyKerasMomentum",
            inputs: &["var: resource", "accum: resource", "lr: T", "grad: T", "indices: Tindices", "momentum: T"],
            outputs: &[],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "Tindices: {int32, int64}",
                "use_locking: bool = false",
                "use_nesterov: bool = false",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(KerasMomentum, 2),
    },
];

struct Momentum;

impl Recipe<2> for Momentum {
    type Rule<W: WideFloat> = rules::Momentum<W>;
    const SLOTS: [&'static str; 2] = ["var", "accum"];

    fn rule<W: WideFloat>(hyper: &Hyper<'_, W>) -> Result<Self::Rule<W>> {
        Ok(rules::Momentum {
            lr: hyper.get("lr")?,
            momentum: hyper.get("momentum")?,
            use_nesterov: hyper.flag("use_nesterov"),
        })
    }
}

struct KerasMomentum;

impl Recipe<2> for KerasMomentum {
    type Rule<W: WideFloat> = rules::KerasMomentum<W>;
    const SLOTS: [&'static str; 2] = ["var", "accum"];

    fn rule<W: WideFloat>(hyper: &Hyper<'_, W>) -> Result<Self::Rule<W>> {
        Ok(rules::KerasMomentum {
            lr: hyper.get("lr")?,
            momentum: hyper.get("momentum")?,
            use_nesterov: hyper.flag("use_nesterov"),
        })
    }
}
