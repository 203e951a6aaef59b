//! FTRL-proximal: first version, and second with shrinkage.

use super::apply::{Apply, Hyper, Recipe, apply_shape};
use kernel::{Gradient, Op, OpDef, OpFlags};
use numeric::float::WideFloat;
use numeric::optimizer as rules;
use tensor::{Result, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ApplyFtrl",
            inputs: &[
                "var: Ref(T)",
                "accum: Ref(T)",
                "linear: Ref(T)",
                "grad: T",
                "lr: T",
                "l1: T",
                "l2: T",
                "lr_power: T",
            ],
            outputs: &["out: Ref(T)"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
                "multiply_linear_by_lr: bool = false",
            ],
            flags: OpFlags::NONE,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(Ftrl, 3),
    },
    Op {
        def: OpDef {
            name: "ResourceApplyFtrl",
            inputs: &[
                "var: resource",
                "accum: resource",
                "linear: resource",
                "grad: T",
                "lr: T",
                "l1: T",
                "l2: T",
                "lr_power: T",
            ],
            outputs: &[],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
                "multiply_linear_by_lr: bool = false",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(Ftrl, 3),
    },
    Op {
        def: OpDef {
            name: "SparseApplyFtrl",
            inputs: &[
                "var: Ref(T)",
                "accum: Ref(T)",
                "linear: Ref(T)",
                "grad: T",
                "indices: Tindices",
                "lr: T",
                "l1: T",
                "l2: T",
                "lr_power: T",
            ],
            outputs: &["out: Ref(T)"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "Tindices: {int32, int64}",
                "use_locking: bool = false",
                "multiply_linear_by_lr: bool = false",
            ],
            flags: OpFlags::NONE,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(Ftrl, 3),
    },
    Op {
        def: OpDef {
            name: "ResourceSparseApplyFtrl",
            inputs: &[
                "var: resource",
                "accum: resource",
                "linear: resource",
                "grad: T",
                "indices: Tindices",
                "lr: T",
                "l1: T",
                "l2: T",
                "lr_power: T",
            ],
            outputs: &[],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "Tindices: {int32, int64}",
                "use_locking: bool = false",
                "multiply_linear_by_lr: bool = false",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(Ftrl, 3),
    },
    Op {
        def: OpDef {
            name: "ApplyFtrlV2",
            inputs: &[
                "var: Ref(T)",
                "accum: Ref(T)",
                "linear: Ref(T)",
                "grad: T",
                "lr: T",
                "l1: T",
                "l2: T",
                "l2_shrinkage: T",
                "lr_power: T",
            ],
            outputs: &["out: Ref(T)"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
                "multiply_linear_by_lr: bool = false",
            ],
            flags: OpFlags::NONE,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(FtrlV2, 3),
    },
    Op {
        def: OpDef {
            name: "ResourceApplyFtrlV2",
            inputs: &[
                "var: resource",
                "accum: resource",
                "linear: resource",
                "grad: T",
                "lr: T",
                "l1: T",
                "l2: T",
                "l2_shrinkage: T",
                "lr_power: T",
            ],
            outputs: &[],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
                "multiply_linear_by_lr: bool = false",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(FtrlV2, 3),
    },
    Op {
        def: OpDef {
            name: "SparseApplyFtrlV2",
            inputs: &[
                "var: Ref(T)",
                "accum: Ref(T)",
                "linear: Ref(T)",
                "grad: T",
                "indices: Tindices",
                "lr: T",
                "l1: T",
                "l2: T",
                "l2_shrinkage: T",
                "lr_power: T",
            ],
            outputs: &["out: Ref(T)"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "Tindices: {int32, int64}",
                "use_locking: bool = false",
                "multiply_linear_by_lr: bool = false",
            ],
            flags: OpFlags::NONE,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(FtrlV2, 3),
    },
    Op {
        def: OpDef {
            name: "ResourceSparseApplyFtrlV2",
            inputs: &[
                "var: resource",
                "accum: resource",
                "linear: resource",
                "grad: T",
                "indices: Tindices",
                "lr: T",
                "l1: T",
                "l2: T",
                "l2_shrinkage: T",
                "lr_power: T",
            ],
            outputs: &[],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "Tindices: {int32, int64}",
                "use_locking: bool = false",
                "multiply_linear_by_lr: bool = false",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(FtrlV2, 3),
    },
];

struct Ftrl;

impl Recipe<3> for Ftrl {
    type Rule<W: WideFloat> = rules::Ftrl<W>;
    const SLOTS: [&'static str; 3] = ["var", "accum", "linear"];

    fn rule<W: WideFloat>(hyper: &Hyper<'_, W>) -> Result<Self::Rule<W>> {
        Ok(rules::Ftrl {
            lr: hyper.get("lr")?,
            l1: hyper.get("l1")?,
            l2: hyper.get("l2")?,
            l2_shrinkage: W::of(0.0),
            lr_power: hyper.get("lr_power")?,
            multiply_linear_by_lr: hyper.flag("multiply_linear_by_lr"),
        })
    }
}

struct FtrlV2;

impl Recipe<3> for FtrlV2 {
    type Rule<W: WideFloat> = rules::Ftrl<W>;
    const SLOTS: [&'static str; 3] = ["var", "accum", "linear"];

    fn rule<W: WideFloat>(hyper: &Hyper<'_, W>) -> Result<Self::Rule<W>> {
        Ok(rules::Ftrl {
            lr: hyper.get("lr")?,
            l1: hyper.get("l1")?,
            l2: hyper.get("l2")?,
            l2_shrinkage: hyper.get("l2_shrinkage")?,
            lr_power: hyper.get("lr_power")?,
            multiply_linear_by_lr: hyper.flag("multiply_linear_by_lr"),
        })
    }
}
