//! AddSign and PowerSign.

use super::apply::{Apply, Hyper, Recipe, apply_shape};
use kernel::{Gradient, Op, OpDef, OpFlags};
use numeric::float::WideFloat;
use numeric::optimizer as rules;
use tensor::{Result, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ApplyAddSign",
            inputs: &["var: Ref(T)", "m: Ref(T)", "lr: T", "alpha: T", "sign_decay: T", "beta: T", "grad: T"],
            outputs: &["out: Ref(T)"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
            ],
            flags: OpFlags::NONE,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(AddSign, 2),
    },
    Op {
        def: OpDef {
            name: "ResourceApplyAddSign",
            inputs: &["var: resource", "m: resource", "lr: T", "alpha: T", "sign_decay: T", "beta: T", "grad: T"],
            outputs: &[],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(AddSign, 2),
    },
    Op {
        def: OpDef {
            name: "ApplyPowerSign",
            inputs: &["var: Ref(T)", "m: Ref(T)", "lr: T", "logbase: T", "sign_decay: T", "beta: T", "grad: T"],
            outputs: &["out: Ref(T)"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
            ],
            flags: OpFlags::NONE,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(PowerSign, 2),
    },
    Op {
        def: OpDef {
            name: "ResourceApplyPowerSign",
            inputs: &["var: resource", "m: resource", "lr: T", "logbase: T", "sign_decay: T", "beta: T", "grad: T"],
            outputs: &[],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: apply_shape,
        gradient: Gradient::Unsupported,
        kernels: apply_kernels!(PowerSign, 2),
    },
];

struct AddSign;

impl Recipe<2> for AddSign {
    type Rule<W: WideFloat> = rules::AddSign<W>;
    const SLOTS: [&'static str; 2] = ["var", "m"];

    fn rule<W: WideFloat>(hyper: &Hyper<'_, W>) -> Result<Self::Rule<W>> {
        Ok(rules::AddSign {
            lr: hyper.get("lr")?,
            alpha: hyper.get("alpha")?,
            sign_decay: hyper.get("sign_decay")?,
            beta: hyper.get("beta")?,
        })
    }
}

struct PowerSign;

impl Recipe<2> for PowerSign {
    type Rule<W: WideFloat> = rules::PowerSign<W>;
    const SLOTS: [&'static str; 2] = ["var", "m"];

    fn rule<W: WideFloat>(hyper: &Hyper<'_, W>) -> Result<Self::Rule<W>> {
        Ok(rules::PowerSign {
            lr: hyper.get("lr")?,
            logbase: hyper.get("logbase")?,
            sign_decay: hyper.get("sign_decay")?,
            beta: hyper.get("beta")?,
        })
    }
}
