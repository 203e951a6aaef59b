//! Gradient descent, plain and proximal.

use super::apply::{Apply, Hyper, Recipe, apply_shape};
use kernel::{Gradient, Op, OpDef, OpFlags};
use numeric::float::WideFloat;
use numeric::optimizer as rules;
use tensor::{Result, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ApplyGradientDescent",
            inputs: &["var: Ref(T)", "alpha: T", "delta: T"],
            outputs: &["out: Ref(T)"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
            ],
            flags: OpFlags::NONE,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(GradientDescent, 1),
    },
    Op {
        def: OpDef {
            name: "ResourceApplyGradientDescent",
            inputs: &["var: resource", "alpha: T", "delta: T"],
            outputs: &[],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(GradientDescent, 1),
    },
    Op {
        def: OpDef {
            name: "ApplyProximalGradientDescent",
            inputs: &["var: Ref(T)", "alpha: T", "l1: T", "l2: T", "delta: T"],
            outputs: &["out: Ref(T)"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
            ],
            flags: OpFlags::NONE,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(ProximalGradientDescent, 1),
    },
    Op {
        def: OpDef {
            name: "ResourceApplyProximalGradientDescent",
            inputs: &["var: resource", "alpha: T", "l1: T", "l2: T", "delta: T"],
            outputs: &[],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(ProximalGradientDescent, 1),
    },
    Op {
        def: OpDef {
            name: "SparseApplyProximalGradientDescent",
            inputs: &["var: Ref(T)", "alpha: T", "l1: T", "l2: T", "grad: T", "indices: Tindices"],
            outputs: &["out: Ref(T)"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "Tindices: {int32, int64}",
                "use_locking: bool = false",
            ],
            flags: OpFlags::NONE,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(ProximalGradientDescent, 1),
    },
    Op {
        def: OpDef {
            name: "ResourceSparseApplyProximalGradientDescent",
            inputs: &["var: resource", "alpha: T", "l1: T", "l2: T", "grad: T", "indices: Tindices"],
            outputs: &[],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "Tindices: {int32, int64}",
                "use_locking: bool = false",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(ProximalGradientDescent, 1),
    },
];

struct GradientDescent;

impl Recipe<1> for GradientDescent {
    type Rule<W: WideFloat> = rules::GradientDescent<W>;
    const SLOTS: [&'static str; 1] = ["var"];

    fn rule<W: WideFloat>(hyper: &Hyper<'_, W>) -> Result<Self::Rule<W>> {
        Ok(rules::GradientDescent { lr: hyper.get("alpha")? })
    }
}

struct ProximalGradientDescent;

impl Recipe<1> for ProximalGradientDescent {
    type Rule<W: WideFloat> = rules::ProximalGradientDescent<W>;
    const SLOTS: [&'static str; 1] = ["var"];

    fn rule<W: WideFloat>(hyper: &Hyper<'_, W>) -> Result<Self::Rule<W>> {
        Ok(rules::ProximalGradientDescent { lr: hyper.get("alpha")?, l1: hyper.get("l1")?, l2: hyper.get("l2")? })
    }
}
