//! Adagrad: first and second version, proximal, and with dual averaging.

use super::apply::{Apply, Hyper, Recipe, apply_shape};
use kernel::{Gradient, Op, OpDef, OpFlags};
use numeric::float::WideFloat;
use numeric::optimizer as rules;
use tensor::{Result, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ApplyAdagrad",
            inputs: &["var: Ref(T)", "accum: Ref(T)", "lr: T", "grad: T"],
            outputs: &["out: Ref(T)"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
                "update_slots: bool = true",
            ],
            flags: OpFlags::NONE,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(Adagrad, 2),
    },
    Op {
        def: OpDef {
            name: "ResourceApplyAdagrad",
            inputs: &["var: resource", "accum: resource", "lr: T", "grad: T"],
            outputs: &[],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
                "update_slots: bool = true",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(Adagrad, 2),
    },
    Op {
        def: OpDef {
            name: "SparseApplyAdagrad",
            inputs: &["var: Ref(T)", "accum: Ref(T)", "lr: T", "grad: T", "indices: Tindices"],
            outputs: &["out: Ref(T)"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "Tindices: {int32, int64}",
                "use_locking: bool = false",
                "update_slots: bool = true",
            ],
            flags: OpFlags::NONE,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(Adagrad, 2),
    },
    Op {
        def: OpDef {
            name: "ResourceSparseApplyAdagrad",
            inputs: &["var: resource", "accum: resource", "lr: T", "grad: T", "indices: Tindices"],
            outputs: &[],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "Tindices: {int32, int64}",
                "use_locking: bool = false",
                "update_slots: bool = true",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(Adagrad, 2),
    },
    Op {
        def: OpDef {
            name: "ApplyAdagradV2",
            inputs: &["var: Ref(T)", "accum: Ref(T)", "lr: T", "epsilon: T", "grad: T"],
            outputs: &["out: Ref(T)"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
                "update_slots: bool = true",
            ],
            flags: OpFlags::NONE,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(AdagradV2, 2),
    },
    Op {
        def: OpDef {
            name: "ResourceApplyAdagradV2",
            inputs: &["var: resource", "accum: resource", "lr: T", "epsilon: T", "grad: T"],
            outputs: &[],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
                "update_slots: bool = true",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(AdagradV2, 2),
    },
    Op {
        def: OpDef {
            name: "SparseApplyAdagradV2",
            inputs: &["var: Ref(T)", "accum: Ref(T)", "lr: T", "epsilon: T", "grad: T", "indices: Tindices"],
            outputs: &["out: Ref(T)"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "Tindices: {int32, int64}",
                "use_locking: bool = false",
                "update_slots: bool = true",
            ],
            flags: OpFlags::NONE,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(AdagradV2, 2),
    },
    Op {
        def: OpDef {
            name: "ResourceSparseApplyAdagradV2",
            inputs: &["var: resource", "accum: resource", "lr: T", "epsilon: T", "grad: T", "indices: Tindices"],
            outputs: &[],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "Tindices: {int32, int64}",
                "use_locking: bool = false",
                "update_slots: bool = true",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(AdagradV2, 2),
    },
    Op {
        def: OpDef {
            name: "ApplyProximalAdagrad",
            inputs: &["var: Ref(T)", "accum: Ref(T)", "lr: T", "l1: T", "l2: T", "grad: T"],
            outputs: &["out: Ref(T)"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
            ],
            flags: OpFlags::NONE,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(ProximalAdagrad, 2),
    },
    Op {
        def: OpDef {
            name: "ResourceApplyProximalAdagrad",
            inputs: &["var: resource", "accum: resource", "lr: T", "l1: T", "l2: T", "grad: T"],
            outputs: &[],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(ProximalAdagrad, 2),
    },
    Op {
        def: OpDef {
            name: "SparseApplyProximalAdagrad",
            inputs: &["var: Ref(T)", "accum: Ref(T)", "lr: T", "l1: T", "l2: T", "grad: T", "indices: Tindices"],
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
        kernels: apply_kernels!(ProximalAdagrad, 2),
    },
    Op {
        def: OpDef {
            name: "ResourceSparseApplyProximalAdagrad",
            inputs: &["var: resource", "accum: resource", "lr: T", "l1: T", "l2: T", "grad: T", "indices: Tindices"],
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
        kernels: apply_kernels!(ProximalAdagrad, 2),
    },
    Op {
        def: OpDef {
            name: "ApplyAdagradDA",
            inputs: &[
                "var: Ref(T)",
                "gradient_accumulator: Ref(T)",
                "gradient_squared_accumulator: Ref(T)",
                "grad: T",
                "lr: T",
                "l1: T",
                "l2: T",
                "global_step: int64",
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
        kernels: apply_kernels!(AdagradDa, 3),
    },
    Op {
        def: OpDef {
            name: "ResourceApplyAdagradDA",
            inputs: &[
                "var: resource",
                "gradient_accumulator: resource",
                "gradient_squared_accumulator: resource",
                "grad: T",
                "lr: T",
                "l1: T",
                "l2: T",
                "global_step: int64",
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
        kernels: apply_kernels!(AdagradDa, 3),
    },
    Op {
        def: OpDef {
            name: "SparseApplyAdagradDA",
            inputs: &[
                "var: Ref(T)",
                "gradient_accumulator: Ref(T)",
                "gradient_squared_accumulator: Ref(T)",
                "grad: T",
                "indices: Tindices",
                "lr: T",
                "l1: T",
                "l2: T",
                "global_step: int64",
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
        kernels: apply_kernels!(AdagradDa, 3),
    },
    Op {
        def: OpDef {
            name: "ResourceSparseApplyAdagradDA",
            inputs: &[
                "var: resource",
                "gradient_accumulator: resource",
                "gradient_squared_accumulator: resource",
                "grad: T",
                "indices: Tindices",
                "lr: T",
                "l1: T",
                "l2: T",
                "global_step: int64",
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
        kernels: apply_kernels!(AdagradDa, 3),
    },
];

struct Adagrad;

impl Recipe<2> for Adagrad {
    type Rule<W: WideFloat> = rules::Adagrad<W>;
    const SLOTS: [&'static str; 2] = ["var", "accum"];

    fn rule<W: WideFloat>(hyper: &Hyper<'_, W>) -> Result<Self::Rule<W>> {
        Ok(rules::Adagrad { lr: hyper.get("lr")?, update_slots: hyper.flag("update_slots") })
    }
}

struct AdagradV2;

impl Recipe<2> for AdagradV2 {
    type Rule<W: WideFloat> = rules::AdagradV2<W>;
    const SLOTS: [&'static str; 2] = ["var", "accum"];

    fn rule<W: WideFloat>(hyper: &Hyper<'_, W>) -> Result<Self::Rule<W>> {
        Ok(rules::AdagradV2 {
            lr: hyper.get("lr")?,
            epsilon: hyper.get("epsilon")?,
            update_slots: hyper.flag("update_slots"),
        })
    }
}

struct ProximalAdagrad;

impl Recipe<2> for ProximalAdagrad {
    type Rule<W: WideFloat> = rules::ProximalAdagrad<W>;
    const SLOTS: [&'static str; 2] = ["var", "accum"];

    fn rule<W: WideFloat>(hyper: &Hyper<'_, W>) -> Result<Self::Rule<W>> {
        Ok(rules::ProximalAdagrad { lr: hyper.get("lr")?, l1: hyper.get("l1")?, l2: hyper.get("l2")? })
    }
}

struct AdagradDa;

impl Recipe<3> for AdagradDa {
    type Rule<W: WideFloat> = rules::AdagradDa<W>;
    const SLOTS: [&'static str; 3] = ["var", "gradient_accumulator", "gradient_squared_accumulator"];

    fn rule<W: WideFloat>(hyper: &Hyper<'_, W>) -> Result<Self::Rule<W>> {
        Ok(rules::AdagradDa {
            lr: hyper.get("lr")?,
            l1: hyper.get("l1")?,
            l2: hyper.get("l2")?,
            global_step: hyper.step("global_step")?,
        })
    }
}
