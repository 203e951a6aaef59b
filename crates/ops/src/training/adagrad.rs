//! Adagrad and related optimizers: ApplyAdagrad, ApplyAdagradV2, ApplyAdagradDA, ApplyProximalAdagrad, and their other forms.

use super::apply::Optimizer;
use super::{INDICES, USE_LOCKING};
use kernel::AttrMap;
use numeric::float::WideFloat;
use numeric::optimizer;
use tensor::Result;

const UPDATE_SLOTS: &str = "update_slots: bool = true";

training_ops! {
    /// Divides steps by the square root of the sum of squared gradients.
    apply_adagrad = "ApplyAdagrad", resource_apply_adagrad = "ResourceApplyAdagrad":
        [var, accum], [lr: T, grad: T], [USE_LOCKING, UPDATE_SLOTS], dense_kernels!(Adagrad, 2);
    /// As the dense op, for the rows in `indices`.
    sparse_apply_adagrad = "SparseApplyAdagrad", resource_sparse_apply_adagrad = "ResourceSparseApplyAdagrad":
        [var, accum], [lr: T, grad: T, indices: Tindices], [INDICES, USE_LOCKING, UPDATE_SLOTS],
        sparse_kernels!(Adagrad, 2);
    /// Adagrad with an epsilon beside the square root.
    apply_adagrad_v2 = "ApplyAdagradV2", resource_apply_adagrad_v2 = "ResourceApplyAdagradV2":
        [var, accum], [lr: T, epsilon: T, grad: T], [USE_LOCKING, UPDATE_SLOTS], dense_kernels!(AdagradV2, 2);
    /// As the dense op, for the rows in `indices`.
    sparse_apply_adagrad_v2 = "SparseApplyAdagradV2", resource_sparse_apply_adagrad_v2 = "ResourceSparseApplyAdagradV2":
        [var, accum], [lr: T, epsilon: T, grad: T, indices: Tindices], [INDICES, USE_LOCKING, UPDATE_SLOTS],
        sparse_kernels!(AdagradV2, 2);
    /// Adagrad with dual averaging.
    apply_adagrad_da = "ApplyAdagradDA", resource_apply_adagrad_da = "ResourceApplyAdagradDA":
        [var, gradient_accumulator, gradient_squared_accumulator],
        [grad: T, lr: T, l1: T, l2: T, global_step: int64], [USE_LOCKING], dense_kernels!(AdagradDa, 3);
    /// As the dense op, for the rows in `indices`.
    sparse_apply_adagrad_da = "SparseApplyAdagradDA", resource_sparse_apply_adagrad_da = "ResourceSparseApplyAdagradDA":
        [var, gradient_accumulator, gradient_squared_accumulator],
        [grad: T, indices: Tindices, lr: T, l1: T, l2: T, global_step: int64], [INDICES, USE_LOCKING],
        sparse_kernels!(AdagradDa, 3);
    /// Adagrad with proximal `l1` and `l2` regularization.
    apply_proximal_adagrad = "ApplyProximalAdagrad", resource_apply_proximal_adagrad = "ResourceApplyProximalAdagrad":
        [var, accum], [lr: T, l1: T, l2: T, grad: T], [USE_LOCKING], dense_kernels!(ProximalAdagrad, 2);
    /// As the dense op, for the rows in `indices`.
    sparse_apply_proximal_adagrad = "SparseApplyProximalAdagrad",
    resource_sparse_apply_proximal_adagrad = "ResourceSparseApplyProximalAdagrad":
        [var, accum], [lr: T, l1: T, l2: T, grad: T, indices: Tindices], [INDICES, USE_LOCKING],
        sparse_kernels!(ProximalAdagrad, 2);
}

struct Adagrad {
    update_slots: bool,
}

impl Optimizer<2> for Adagrad {
    type Rule<W: WideFloat> = optimizer::Adagrad<W>;
    const SCALARS: &'static [&'static str] = &["lr"];

    fn new(attrs: &AttrMap) -> Result<Self> {
        Ok(Adagrad { update_slots: attrs.bool("update_slots")? })
    }

    fn rule<W: WideFloat>(&self, scalars: &[W]) -> Result<Self::Rule<W>> {
        Ok(optimizer::Adagrad { lr: scalars[0], update_slots: self.update_slots })
    }
}

struct AdagradV2 {
    update_slots: bool,
}

impl Optimizer<2> for AdagradV2 {
    type Rule<W: WideFloat> = optimizer::AdagradV2<W>;
    const SCALARS: &'static [&'static str] = &["lr", "epsilon"];

    fn new(attrs: &AttrMap) -> Result<Self> {
        Ok(AdagradV2 { update_slots: attrs.bool("update_slots")? })
    }

    fn rule<W: WideFloat>(&self, scalars: &[W]) -> Result<Self::Rule<W>> {
        Ok(optimizer::AdagradV2 { lr: scalars[0], epsilon: scalars[1], update_slots: self.update_slots })
    }
}

struct AdagradDa;

impl Optimizer<3> for AdagradDa {
    type Rule<W: WideFloat> = optimizer::AdagradDa<W>;
    const SCALARS: &'static [&'static str] = &["lr", "l1", "l2", "global_step"];

    fn new(_: &AttrMap) -> Result<Self> {
        Ok(AdagradDa)
    }

    fn rule<W: WideFloat>(&self, scalars: &[W]) -> Result<Self::Rule<W>> {
        Ok(optimizer::AdagradDa { lr: scalars[0], l1: scalars[1], l2: scalars[2], global_step: scalars[3] })
    }
}

struct ProximalAdagrad;

impl Optimizer<2> for ProximalAdagrad {
    type Rule<W: WideFloat> = optimizer::ProximalAdagrad<W>;
    const SCALARS: &'static [&'static str] = &["lr", "l1", "l2"];

    fn new(_: &AttrMap) -> Result<Self> {
        Ok(ProximalAdagrad)
    }

    fn rule<W: WideFloat>(&self, scalars: &[W]) -> Result<Self::Rule<W>> {
        Ok(optimizer::ProximalAdagrad { lr: scalars[0], l1: scalars[1], l2: scalars[2] })
    }
}
