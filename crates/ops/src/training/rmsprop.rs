//! RMSProp, plain and centered.

use super::apply::{Apply, Hyper, Recipe, apply_shape};
use kernel::{Gradient, Op, OpDef, OpFlags};
use numeric::float::WideFloat;
use numeric::optimizer as rules;
use tensor::{Result, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ApplyRMSProp",
            inputs: &[
                "var: Ref(T)",
                "ms: Ref(T)",
                "mom: Ref(T)",
                "lr: T",
                "rho: T",
                "momentum: T",
                "epsilon: T",
                "grad: T",
            ],
            outputs: &["out: Ref(T)"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
            ],
            flags: OpFlags::NONE,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(RmsProp, 3),
    },
    Op {
        def: OpDef {
            name: "ResourceApplyRMSProp",
            inputs: &[
                "var: resource",
                "ms: resource",
                "mom: resource",
                "lr: T",
                "rho: T",
                "momentum: T",
                "epsilon: T",
                "grad: T",
            ],
            outputs: &[],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(RmsProp, 3),
    },
    Op {
        def: OpDef {
            name: "SparseApplyRMSProp",
            inputs: &[
                "var: Ref(T)",
                "ms: Ref(T)",
                "mom: Ref(T)",
                "lr: T",
                "rho: T",
                "momentum: T",
                "epsilon: T",
                "grad: T",
                "indices: Tindices",
            ],
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
        kernels: apply_kernels!(RmsProp, 3),
    },
    Op {
        def: OpDef {
            name: "ResourceSparseApplyRMSProp",
            inputs: &[
                "var: resource",
                "ms: resource",
                "mom: resource",
                "lr: T",
                "rho: T",
                "momentum: T",
                "epsilon: T",
                "grad: T",
                "indices: Tindices",
            ],
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
        kernels: apply_kernels!(RmsProp, 3),
    },
    Op {
        def: OpDef {
            name: "ApplyCenteredRMSProp",
            inputs: &[
                "var: Ref(T)",
                "mg: Ref(T)",
                "ms: Ref(T)",
                "mom: Ref(T)",
                "lr: T",
                "rho: T",
                "momentum: T",
                "epsilon: T",
                "grad: T",
            ],
            outputs: &["out: Ref(T)"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
            ],
            flags: OpFlags::NONE,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(CenteredRmsProp, 4),
    },
    Op {
        def: OpDef {
            name: "ResourceApplyCenteredRMSProp",
            inputs: &[
                "var: resource",
                "mg: resource",
                "ms: resource",
                "mom: resource",
                "lr: T",
                "rho: T",
                "momentum: T",
                "epsilon: T",
                "grad: T",
            ],
            outputs: &[],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(CenteredRmsProp, 4),
    },
    Op {
        def: OpDef {
            name: "SparseApplyCenteredRMSProp",
            inputs: &[
                "var: Ref(T)",
                "mg: Ref(T)",
                "ms: Ref(T)",
                "mom: Ref(T)",
                "lr: T",
                "rho: T",
                "momentum: T",
                "epsilon: T",
                "grad: T",
                "indices: Tindices",
            ],
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
        kernels: apply_kernels!(CenteredRmsProp, 4),
    },
    Op {
        def: OpDef {
            name: "ResourceSparseApplyCenteredRMSProp",
            inputs: &[
                "var: resource",
                "mg: resource",
                "ms: resource",
                "mom: resource",
                "lr: T",
                "rho: T",
                "momentum: T",
                "epsilon: T",
                "grad: T",
                "indices: Tindices",
            ],
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
        kernels: apply_kernels!(CenteredRmsProp, 4),
    },
];

struct RmsProp;

impl Recipe<3> for RmsProp {
    type Rule<W: WideFloat> = rules::RmsProp<W>;
    const SLOTS: [&'static str; 3] = ["var", "ms", "mom"];

    fn rule<W: WideFloat>(hyper: &Hyper<'_, W>) -> Result<Self::Rule<W>> {
        Ok(rules::RmsProp {
            lr: hyper.get("lr")?,
            rho: hyper.get("rho")?,
            momentum: hyper.get("momentum")?,
            epsilon: hyper.get("epsilon")?,
        })
    }
}

struct CenteredRmsProp;

impl Recipe<4> for CenteredRmsProp {
    type Rule<W: WideFloat> = rules::CenteredRmsProp<W>;
    const SLOTS: [&'static str; 4] = ["var", "mg", "ms", "mom"];

    fn rule<W: WideFloat>(hyper: &Hyper<'_, W>) -> Result<Self::Rule<W>> {
        Ok(rules::CenteredRmsProp {
            lr: hyper.get("lr")?,
            rho: hyper.get("rho")?,
            momentum: hyper.get("momentum")?,
            epsilon: hyper.get("epsilon")?,
        })
    }
}
