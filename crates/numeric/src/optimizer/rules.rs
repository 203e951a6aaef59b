//! The update rules, as TensorFlow's training ops compute them, for one element at a time.

use super::Rule;
use crate::float::WideFloat;

/// Returns 1 for positive numbers, -1 for negative ones, and zero and NaN as they are.
#[inline(always)]
fn sign<W: WideFloat>(x: W) -> W {
    if x > W::ZERO {
        W::of(1.0)
    } else if x < W::ZERO {
        W::of(-1.0)
    } else {
        x
    }
}

/// Returns `x` moved towards zero by `by`.
#[inline(always)]
fn shrink<W: WideFloat>(x: W, by: W) -> W {
    let rest = x.abs() - by;
    sign(x) * if rest < W::ZERO { W::ZERO } else { rest }
}

/// `var -= lr * grad`. Slots: var.
#[derive(Clone, Copy, Debug)]
pub struct GradientDescent<W> {
    pub lr: W,
}

impl<W: WideFloat> Rule<W, 1> for GradientDescent<W> {
    #[inline(always)]
    fn update(&self, [var]: [W; 1], grad: W) -> [W; 1] {
        [var - grad * self.lr]
    }
}

/// Gradient descent with shrinkage. Slots: var.
#[derive(Clone, Copy, Debug)]
pub struct ProximalGradientDescent<W> {
    pub lr: W,
    pub l1: W,
    pub l2: W,
}

impl<W: WideFloat> Rule<W, 1> for ProximalGradientDescent<W> {
    #[inline(always)]
    fn update(&self, [var]: [W; 1], grad: W) -> [W; 1] {
        let moved = var - grad * self.lr;
        let shrunk = if self.l1 > W::ZERO { shrink(moved, self.lr * self.l1) } else { moved };
        [shrunk / (W::of(1.0) + self.l2 * self.lr)]
    }
}

/// Momentum. Slots: var, accum.
#[derive(Clone, Copy, Debug)]
pub struct Momentum<W> {
    pub lr: W,
    pub momentum: W,
    pub use_nesterov: bool,
}

impl<W: WideFloat> Rule<W, 2> for Momentum<W> {
    #[inline(always)]
    fn update(&self, [var, accum]: [W; 2], grad: W) -> [W; 2] {
        let accum = accum * self.momentum + grad;
        let step = if self.use_nesterov { grad * self.lr + accum * self.momentum * self.lr } else { accum * self.lr };
        [var - step, accum]
    }
}

/// Momentum whose accumulator holds steps rather than gradients. Slots: var, accum.
#[derive(Clone, Copy, Debug)]
pub struct KerasMomentum<W> {
    pub lr: W,
    pub momentum: W,
    pub use_nesterov: bool,
}

impl<W: WideFloat> Rule<W, 2> for KerasMomentum<W> {
    #[inline(always)]
    fn update(&self, [var, accum]: [W; 2], grad: W) -> [W; 2] {
        let accum = accum * self.momentum - grad * self.lr;
        let step = if self.use_nesterov { accum * self.momentum - grad * self.lr } else { accum };
        [var + step, accum]
    }
}

/// Adagrad. Slots: var, accum.
#[derive(Clone, Copy, Debug)]
pub struct Adagrad<W> {
    pub lr: W,
    pub update_slots: bool,
}

impl<W: WideFloat> Rule<W, 2> for Adagrad<W> {
    #[inline(always)]
    fn update(&self, [var, accum]: [W; 2], grad: W) -> [W; 2] {
        let accum = if self.update_slots { accum + grad * grad } else { accum };
        [var - grad * self.lr / accum.sqrt(), accum]
    }
}

/// Adagrad with an epsilon. Slots: var, accum.
#[derive(Clone, Copy, Debug)]
pub struct AdagradV2<W> {
    pub lr: W,
    pub epsilon: W,
    pub update_slots: bool,
}

impl<W: WideFloat> Rule<W, 2> for AdagradV2<W> {
    #[inline(always)]
    fn update(&self, [var, accum]: [W; 2], grad: W) -> [W; 2] {
        let accum = if self.update_slots { accum + grad * grad } else { accum };
        [var - grad * self.lr / (accum.sqrt() + self.epsilon), accum]
    }
}

/// Adagrad with shrinkage. Slots: var, accum.
#[derive(Clone, Copy, Debug)]
pub struct ProximalAdagrad<W> {
    pub lr: W,
    pub l1: W,
    pub l2: W,
}

impl<W: WideFloat> Rule<W, 2> for ProximalAdagrad<W> {
    #[inline(always)]
    fn update(&self, [var, accum]: [W; 2], grad: W) -> [W; 2] {
        let accum = accum + grad * grad;
        let lr = self.lr / accum.sqrt();
        let moved = var - grad * lr;
        let shrunk = if self.l1 > W::ZERO { shrink(moved, lr * self.l1) } else { moved };
        [shrunk / (W::of(1.0) + self.l2 * lr), accum]
    }
}

/// Adagrad with dual averaging. Slots: var, gradient accumulator, squared gradient accumulator.
#[derive(Clone, Copy, Debug)]
pub struct AdagradDa<W> {
    pub lr: W,
    pub l1: W,
    pub l2: W,
    pub global_step: W,
}

impl<W: WideFloat> Rule<W, 3> for AdagradDa<W> {
    #[inline(always)]
    fn update(&self, [_, sum, squares]: [W; 3], grad: W) -> [W; 3] {
        let sum = sum + grad;
        let squares = squares + grad * grad;
        let divisor = self.l2 * self.global_step * self.lr + squares.sqrt();
        let shrunk = if self.l1 > W::ZERO { shrink(sum, self.l1 * self.global_step) } else { sum };
        [-(self.lr * shrunk) / divisor, sum, squares]
    }
}

/// Adadelta. Slots: var, accum, accum_update.
#[derive(Clone, Copy, Debug)]
pub struct Adadelta<W> {
    pub lr: W,
    pub rho: W,
    pub epsilon: W,
}

impl<W: WideFloat> Rule<W, 3> for Adadelta<W> {
    #[inline(always)]
    fn update(&self, [var, accum, accum_update]: [W; 3], grad: W) -> [W; 3] {
        let fresh = W::of(1.0) - self.rho;
        let accum = accum * self.rho + grad * grad * fresh;
        let update = (accum_update + self.epsilon).sqrt() / (accum + self.epsilon).sqrt() * grad;
        [var - update * self.lr, accum, accum_update * self.rho + update * update * fresh]
    }
}

/// Adam. Slots: var, m, v.
#[derive(Clone, Copy, Debug)]
pub struct Adam<W> {
    pub lr: W,
    pub beta1_power: W,
    pub beta2_power: W,
    pub beta1: W,
    pub beta2: W,
    pub epsilon: W,
    pub use_nesterov: bool,
}

impl<W: WideFloat> Adam<W> {
    #[inline(always)]
    fn alpha(&self) -> W {
        self.lr * (W::of(1.0) - self.beta2_power).sqrt() / (W::of(1.0) - self.beta1_power)
    }
}

impl<W: WideFloat> Rule<W, 3> for Adam<W> {
    #[inline(always)]
    fn update(&self, [var, m, v]: [W; 3], grad: W) -> [W; 3] {
        let fresh = W::of(1.0) - self.beta1;
        let m = m + (grad - m) * fresh;
        let v = v + (grad * grad - v) * (W::of(1.0) - self.beta2);
        let direction = if self.use_nesterov { grad * fresh + self.beta1 * m } else { m };
        [var - direction * self.alpha() / (v.sqrt() + self.epsilon), m, v]
    }
}

/// Adam with the maximum of the second moments. Slots: var, m, v, vhat.
#[derive(Clone, Copy, Debug)]
pub struct AdamWithAmsgrad<W> {
    pub adam: Adam<W>,
}

impl<W: WideFloat> Rule<W, 4> for AdamWithAmsgrad<W> {
    #[inline(always)]
    fn update(&self, [var, m, v, vhat]: [W; 4], grad: W) -> [W; 4] {
        let adam = &self.adam;
        let m = m + (grad - m) * (W::of(1.0) - adam.beta1);
        let v = v + (grad * grad - v) * (W::of(1.0) - adam.beta2);
        let vhat = if v > vhat { v } else { vhat };
        [var - m * adam.alpha() / (vhat.sqrt() + adam.epsilon), m, v, vhat]
    }
}

/// AdaMax. Slots: var, m, v.
#[derive(Clone, Copy, Debug)]
pub struct AdaMax<W> {
    pub lr: W,
    pub beta1_power: W,
    pub beta1: W,
    pub beta2: W,
    pub epsilon: W,
}

impl<W: WideFloat> Rule<W, 3> for AdaMax<W> {
    #[inline(always)]
    fn update(&self, [var, m, v]: [W; 3], grad: W) -> [W; 3] {
        let m = m + (grad - m) * (W::of(1.0) - self.beta1);
        let decayed = self.beta2 * v;
        let v = if grad.abs() > decayed { grad.abs() } else { decayed };
        [var - self.lr / (W::of(1.0) - self.beta1_power) * (m / (v + self.epsilon)), m, v]
    }
}

/// RMSProp. Slots: var, ms, mom.
#[derive(Clone, Copy, Debug)]
pub struct RmsProp<W> {
    pub lr: W,
    pub rho: W,
    pub momentum: W,
    pub epsilon: W,
}

impl<W: WideFloat> Rule<W, 3> for RmsProp<W> {
    #[inline(always)]
    fn update(&self, [var, ms, mom]: [W; 3], grad: W) -> [W; 3] {
        let ms = ms + (grad * grad - ms) * (W::of(1.0) - self.rho);
        let mom = mom * self.momentum + grad * self.lr / (ms + self.epsilon).sqrt();
        [var - mom, ms, mom]
    }
}

/// Centered RMSProp. Slots: var, mg, ms, mom.
#[derive(Clone, Copy, Debug)]
pub struct CenteredRmsProp<W> {
    pub lr: W,
    pub rho: W,
    pub momentum: W,
    pub epsilon: W,
}

impl<W: WideFloat> Rule<W, 4> for CenteredRmsProp<W> {
    #[inline(always)]
    fn update(&self, [var, mg, ms, mom]: [W; 4], grad: W) -> [W; 4] {
        let fresh = W::of(1.0) - self.rho;
        let ms = ms + (grad * grad - ms) * fresh;
        let mg = mg + (grad - mg) * fresh;
        let variance = ms - mg * mg + self.epsilon;
        let mom = mom * self.momentum + grad * self.lr / variance.sqrt();
        [var - mom, mg, ms, mom]
    }
}

/// FTRL-proximal; `l2_shrinkage` is 0 for the first version. Slots: var, accum, linear.
#[derive(Clone, Copy, Debug)]
pub struct Ftrl<W> {
    pub lr: W,
    pub l1: W,
    pub l2: W,
    pub l2_shrinkage: W,
    pub lr_power: W,
    pub multiply_linear_by_lr: bool,
}

impl<W: WideFloat> Rule<W, 3> for Ftrl<W> {
    #[inline(always)]
    fn update(&self, [var, accum, linear]: [W; 3], grad: W) -> [W; 3] {
        let with_shrinkage = grad + W::of(2.0) * self.l2_shrinkage * var;
        let new_accum = accum + grad * grad;
        let root = |x: W| if self.lr_power == W::of(-0.5) { x.sqrt() } else { x.simd_pow(-self.lr_power) };
        let (before, after) = (root(accum), root(new_accum));
        let two_l2 = W::of(2.0) * self.l2;
        let (linear, threshold, divisor) = if self.multiply_linear_by_lr {
            (linear + with_shrinkage * self.lr - (after - before) * var, self.l1 * self.lr, after + two_l2 * self.lr)
        } else {
            (linear + with_shrinkage - (after - before) / self.lr * var, self.l1, after / self.lr + two_l2)
        };
        let moved = (threshold * sign(linear) - linear) / divisor;
        [if linear.abs() > threshold { moved } else { W::ZERO }, new_accum, linear]
    }
}

/// AddSign. Slots: var, m.
#[derive(Clone, Copy, Debug)]
pub struct AddSign<W> {
    pub lr: W,
    pub alpha: W,
    pub sign_decay: W,
    pub beta: W,
}

impl<W: WideFloat> Rule<W, 2> for AddSign<W> {
    #[inline(always)]
    fn update(&self, [var, m]: [W; 2], grad: W) -> [W; 2] {
        let m = m * self.beta + grad * (W::of(1.0) - self.beta);
        let agreement = sign(grad) * sign(m);
        [var - self.lr * (self.alpha + self.sign_decay * agreement) * grad, m]
    }
}

/// PowerSign. Slots: var, m.
#[derive(Clone, Copy, Debug)]
pub struct PowerSign<W> {
    pub lr: W,
    pub logbase: W,
    pub sign_decay: W,
    pub beta: W,
}

impl<W: WideFloat> Rule<W, 2> for PowerSign<W> {
    #[inline(always)]
    fn update(&self, [var, m]: [W; 2], grad: W) -> [W; 2] {
        let m = m * self.beta + grad * (W::of(1.0) - self.beta);
        let agreement = sign(grad) * sign(m);
        let scale = (self.logbase * self.sign_decay * agreement).simd_exp();
        [var - self.lr * scale * grad, m]
    }
}
