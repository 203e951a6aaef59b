//! Adam and related optimizers: ApplyAdam, ApplyAdaMax, ResourceApplyAdamWithAmsgrad.

use super::USE_LOCKING;
use super::apply::Optimizer;
use kernel::{AttrMap, Op};
use numeric::float::WideFloat;
use numeric::optimizer;
use tensor::Result;

training_ops! {
    /// Steps by the running mean of gradients, divided by the square root of the running mean of their squares.
    apply_adam = "ApplyAdam", resource_apply_adam = "ResourceApplyAdam":
        [var, m, v], [beta1_power: T, beta2_power: T, lr: T, beta1: T, beta2: T, epsilon: T, grad: T],
        [USE_LOCKING, "use_nesterov: bool = false"], dense_kernels!(Adam, 3);
    /// Adam with the maximum of the gradients in place of the root mean square.
    apply_ada_max = "ApplyAdaMax", resource_apply_ada_max = "ResourceApplyAdaMax":
        [var, m, v], [beta1_power: T, lr: T, beta1: T, beta2: T, epsilon: T, grad: T], [USE_LOCKING],
        dense_kernels!(AdaMax, 3);
}

/// The ops of this file that have no form by ref.
pub(super) const RESOURCE_OPS: &[Op] = &[resource_training_op!("ResourceApplyAdamWithAmsgrad":
    [var, m, v, vhat], [beta1_power: T, beta2_power: T, lr: T, beta1: T, beta2: T, epsilon: T, grad: T], [USE_LOCKING],
    dense_kernels!(AdamWithAmsgrad, 4))];

const ADAM: &[&str] = &["beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon"];

fn adam<W: WideFloat>(scalars: &[W], use_nesterov: bool) -> optimizer::Adam<W> {
    optimizer::Adam {
        beta1_power: scalars[0],
        beta2_power: scalars[1],
        lr: scalars[2],
        beta1: scalars[3],
        beta2: scalars[4],
        epsilon: scalars[5],
        use_nesterov,
    }
}

struct Adam {
    use_nesterov: bool,
}

impl Optimizer<3> for Adam {
    type Rule<W: WideFloat> = optimizer::Adam<W>;
    const SCALARS: &'static [&'static str] = ADAM;

    fn new(attrs: &AttrMap) -> Result<Self> {
        Ok(Adam { use_nesterov: attrs.bool("use_nesterov")? })
    }

    fn rule<W: WideFloat>(&self, scalars: &[W]) -> Result<Self::Rule<W>> {
        Ok(adam(scalars, self.use_nesterov))
    }
}

struct AdamWithAmsgrad;

impl Optimizer<4> for AdamWithAmsgrad {
    type Rule<W: WideFloat> = optimizer::AdamWithAmsgrad<W>;
    const SCALARS: &'static [&'static str] = ADAM;

    fn new(_: &AttrMap) -> Result<Self> {
        Ok(AdamWithAmsgrad)
    }

    fn rule<W: WideFloat>(&self, scalars: &[W]) -> Result<Self::Rule<W>> {
        Ok(optimizer::AdamWithAmsgrad { adam: adam(scalars, false) })
    }
}

struct AdaMax;

impl Optimizer<3> for AdaMax {
    type Rule<W: WideFloat> = optimizer::AdaMax<W>;
    const SCALARS: &'static [&'static str] = &["beta1_power", "lr", "beta1", "beta2", "epsilon"];

    fn new(_: &AttrMap) -> Result<Self> {
        Ok(AdaMax)
    }

    fn rule<W: WideFloat>(&self, scalars: &[W]) -> Result<Self::Rule<W>> {
        Ok(optimizer::AdaMax {
            beta1_power: scalars[0],
            lr: scalars[1],
            beta1: scalars[2],
            beta2: scalars[3],
            epsilon: scalars[4],
        })
    }
}
