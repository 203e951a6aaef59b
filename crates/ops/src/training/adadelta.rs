//! Adadelta.

use super::apply::{Apply, Hyper, Recipe, apply_shape};
use kernel::{Gradient, Op, OpDef, OpFlags};
use numeric::float::WideFloat;
use numeric::optimizer as rules;
use tensor::{Result, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ApplyAdadelta",
            inputs: &[
                "var: Ref(T)",
                "accum: Ref(T)",
                "accum_update: Ref(T)",
                "lr: T",
                "rho: T",
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
        kernels: apply_kernels!(Adadelta, 3),
    },
    Op {
        def: OpDef {
            name: "ResourceApplyAdadelta",
            inputs: &[
                "var: resource",
                "accum: resource",
                "accum_update: resource",
                "lr: T",
                "rho: T",
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
        kernels: apply_kernels!(Adadelta, 3),
    },
    Op {
        def: OpDef {
            name: "SparseApplyAdadelta",
            inputs: &[
                "var: Ref(T)",
                "accum: Ref(T)",
                "accum_update: Ref(T)",
                "lr: T",
                "rho: T",
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
        kernels: apply_kernels!(Adadelta, 3),
    },
    Op {
        def: OpDef {
            name: "ResourceSparseApplyAdadelta",
            inputs: &[
                "var: resource",
                "accum: resource",
                "accum_update: resource",
                "lr: T",
                "rho: T",
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
        kernels: apply_kernels!(Adadelta, 3),
    },
];

struct Adadelta;

impl Recipe<3> for Adadelta {
    type Rule<W: WideFloat> = rules::Adadelta<W>;
    const SLOTS: [&'static str; 3] = ["var", "accum", "accum_update"];

    fn rule<W: WideFloat>(hyper: &Hyper<'_, W>) -> Result<Self::Rule<W>> {
        Ok(rules::Adadelta { lr: hyper.get("lr")?, rho: hyper.get("rho")?, epsilon: hyper.get("epsilon")? })
    }
}
