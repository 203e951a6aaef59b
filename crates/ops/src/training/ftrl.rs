//! FTRL-proximal: ApplyFtrl, ApplyFtrlV2, and their other forms.

use super::apply::Optimizer;
use super::{INDICES, USE_LOCKING};
use kernel::AttrMap;
use numeric::float::WideFloat;
use numeric::optimizer;
use tensor::{Result, Status};

const MULTIPLY: &str = "multiply_linear_by_lr: bool = false";

training_ops! {
    /// Follows the regularized leader.
    apply_ftrl = "ApplyFtrl", resource_apply_ftrl = "ResourceApplyFtrl":
        [var, accum, linear], [grad: T, lr: T, l1: T, l2: T, lr_power: T], [USE_LOCKING, MULTIPLY],
        dense_kernels!(Ftrl, 3);
    /// As the dense op, for the rows that `indices` names.
    sparse_apply_ftrl = "SparseApplyFtrl", resource_sparse_apply_ftrl = "ResourceSparseApplyFtrl":
        [var, accum, linear], [grad: T, indices: Tindices, lr: T, l1: T, l2: T, lr_power: T],
        [INDICES, USE_LOCKING, MULTIPLY], sparse_kernels!(Ftrl, 3);
    /// FTRL-proximal with a second penalty that depends on the size of the variable.
    apply_ftrl_v2 = "ApplyFtrlV2", resource_apply_ftrl_v2 = "ResourceApplyFtrlV2":
        [var, accum, linear], [grad: T, lr: T, l1: T, l2: T, l2_shrinkage: T, lr_power: T], [USE_LOCKING, MULTIPLY],
        dense_kernels!(FtrlV2, 3);
    /// As the dense op, for the rows that `indices` names.
    sparse_apply_ftrl_v2 = "SparseApplyFtrlV2", resource_sparse_apply_ftrl_v2 = "ResourceSparseApplyFtrlV2":
        [var, accum, linear], [grad: T, indices: Tindices, lr: T, l1: T, l2: T, l2_shrinkage: T, lr_power: T],
        [INDICES, USE_LOCKING, MULTIPLY], sparse_kernels!(FtrlV2, 3);
}

/// Checks the hyper-parameters and makes the rule.
fn rule<W: WideFloat>(
    [lr, l1, l2, l2_shrinkage, lr_power]: [W; 5],
    multiply_linear_by_lr: bool,
) -> Result<optimizer::Ftrl<W>> {
    let zero = W::of(0.0);
    let check = |holds: bool, what: &str| match holds {
        true => Ok(()),
        false => Err(Status::invalid_argument(format!("{what}: []"))),
    };
    let lr_is_fine = lr > zero || (multiply_linear_by_lr && lr >= zero);
    check(lr_is_fine, "lr is not a positive scalar (or zero if multiply_linear_by_lr is set)")?;
    check(l1 >= zero, "l1 regularization strength is not a non-negative scalar")?;
    check(l2 >= zero, "l2 regularization strength is not a non-negative scalar")?;
    check(l2_shrinkage >= zero, "l2 shrinkage regularization strength is not a non-negative scalar")?;
    check(lr_power <= zero, "lr_power is not a non-positive scalar")?;
    Ok(optimizer::Ftrl { lr, l1, l2, l2_shrinkage, lr_power, multiply_linear_by_lr })
}

struct Ftrl {
    multiply_linear_by_lr: bool,
}

impl Optimizer<3> for Ftrl {
    type Rule<W: WideFloat> = optimizer::Ftrl<W>;
    const SCALARS: &'static [&'static str] = &["lr", "l1", "l2", "lr_power"];

    fn new(attrs: &AttrMap) -> Result<Self> {
        Ok(Ftrl { multiply_linear_by_lr: attrs.bool("multiply_linear_by_lr")? })
    }

    fn rule<W: WideFloat>(&self, scalars: &[W]) -> Result<Self::Rule<W>> {
        rule([scalars[0], scalars[1], scalars[2], W::of(0.0), scalars[3]], self.multiply_linear_by_lr)
    }
}

struct FtrlV2 {
    multiply_linear_by_lr: bool,
}

impl Optimizer<3> for FtrlV2 {
    type Rule<W: WideFloat> = optimizer::Ftrl<W>;
    const SCALARS: &'static [&'static str] = &["lr", "l1", "l2", "l2_shrinkage", "lr_power"];

    fn new(attrs: &AttrMap) -> Result<Self> {
        Ok(FtrlV2 { multiply_linear_by_lr: attrs.bool("multiply_linear_by_lr")? })
    }

    fn rule<W: WideFloat>(&self, scalars: &[W]) -> Result<Self::Rule<W>> {
        rule([scalars[0], scalars[1], scalars[2], scalars[3], scalars[4]], self.multiply_linear_by_lr)
    }
}
