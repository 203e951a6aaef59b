//! Optimizers that compare the gradient's sign with its history: ApplyAddSign, ApplyPowerSign, and their resource forms.

use super::USE_LOCKING;
use super::apply::Optimizer;
use kernel::AttrMap;
use numeric::float::WideFloat;
use numeric::optimizer;
use tensor::Result;

training_ops! {
    /// Increases the step if gradient and history agree.
    apply_add_sign = "ApplyAddSign", resource_apply_add_sign = "ResourceApplyAddSign":
        [var, m], [lr: T, alpha: T, sign_decay: T, beta: T, grad: T], [USE_LOCKING], dense_kernels!(AddSign, 2);
    /// Scales the step if gradient and history agree.
    apply_power_sign = "ApplyPowerSign", resource_apply_power_sign = "ResourceApplyPowerSign":
        [var, m], [lr: T, logbase: T, sign_decay: T, beta: T, grad: T], [USE_LOCKING], dense_kernels!(PowerSign, 2);
}

struct AddSign;

impl Optimizer<2> for AddSign {
    type Rule<W: WideFloat> = optimizer::AddSign<W>;
    const SCALARS: &'static [&'static str] = &["lr", "alpha", "sign_decay", "beta"];

    fn new(_: &AttrMap) -> Result<Self> {
        Ok(AddSign)
    }

    fn rule<W: WideFloat>(&self, scalars: &[W]) -> Result<Self::Rule<W>> {
        Ok(optimizer::AddSign { lr: scalars[0], alpha: scalars[1], sign_decay: scalars[2], beta: scalars[3] })
    }
}

struct PowerSign;

impl Optimizer<2> for PowerSign {
    type Rule<W: WideFloat> = optimizer::PowerSign<W>;
    const SCALARS: &'static [&'static str] = &["lr", "logbase", "sign_decay", "beta"];

    fn new(_: &AttrMap) -> Result<Self> {
        Ok(PowerSign)
    }

    fn rule<W: WideFloat>(&self, scalars: &[W]) -> Result<Self::Rule<W>> {
        Ok(optimizer::PowerSign { lr: scalars[0], logbase: scalars[1], sign_decay: scalars[2], beta: scalars[3] })
    }
}
