//! Adam and AdaMax.

use super::apply::{Apply, Hyper, Recipe, apply_shape};
use kernel::{Gradient, Op, OpDef, OpFlags};
use numeric::float::WideFloat;
use numeric::optimizer as rules;
use tensor::{Result, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ApplyAdam",
            inputs: &[
                "var: Ref(T)",
                "m: Ref(T)",
                "v: Ref(T)",
                "beta1_power: T",
                "beta2_power: T",
                "lr: T",
                "beta1: T",
                "beta2: T",
                "epsilon: T",
                "grad: T",
            ],
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
        kernels: apply_kernels!(Adam, 3),
    },
    Op {
        def: OpDef {
            name: "ResourceApplyAdam",
            inputs: &[
                "var: resource",
                "m: resource",
                "v: resource",
                "beta1_power: T",
                "beta2_power: T",
                "lr: T",
                "beta1: T",
                "beta2: T",
                "epsilon: T",
                "grad: T",
            ],
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
        kernels: apply_kernels!(Adam, 3),
    },
    Op {
        def: OpDef {
            name: "ApplyAdaMax",
            inputs: &[
                "var: Ref(T)",
                "m: Ref(T)",
                "v: Ref(T)",
                "beta1_power: T",
                "lr: T",
                "beta1: T",
                "beta2: T",
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
        kernels: apply_kernels!(AdaMax, 3),
    },
    Op {
        def: OpDef {
            name: "ResourceApplyAdaMax",
            inputs: &[
                "var: resource",
                "m: resource",
                "v: resource",
                "beta1_power: T",
                "lr: T",
                "beta1: T",
                "beta2: T",
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
        kernels: apply_kernels!(AdaMax, 3),
    },
];

struct Adam;

impl Recipe<3> for Adam {
    type Rule<W: WideFloat> = rules::Adam<W>;
    const SLOTS: [&'static str; 3] = ["var", "m", "v"];

    fn rule<W: WideFloat>(hyper: &Hyper<'_, W>) -> Result<Self::Rule<W>> {
        Ok(rules::Adam {
            lr: hyper.get("lr")?,
            beta1_power: hyper.get("beta1_power")?,
            beta2_power: hyper.get("beta2_power")?,
            beta1: hyper.get("beta1")?,
            beta2: hyper.get("beta2")?,
            epsilon: hyper.get("epsilon")?,
            use_nesterov: hyper.flag("use_nesterov"),
        })
    }
}

struct AdaMax;

impl Recipe<3> for AdaMax {
    type Rule<W: WideFloat> = rules::AdaMax<W>;
    const SLOTS: [&'static str; 3] = ["var", "m", "v"];

    fn rule<W: WideFloat>(hyper: &Hyper<'_, W>) -> Result<Self::Rule<W>> {
        Ok(rules::AdaMax {
            lr: hyper.get("lr")?,
            beta1_power: hyper.get("beta1_power")?,
            beta1: hyper.get("beta1")?,
            beta2: hyper.get("beta2")?,
            epsilon: hyper.get("epsilon")?,
        })
    }
}
