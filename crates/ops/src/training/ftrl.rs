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
    /// As the dense op, for the rows in `indices`.
    sparse_apply_ftrl = "SparseApplyFtrl", resource_sparse_apply_ftrl = "ResourceSparseApplyFtrl":
        [var, accum, linear], [grad: T, indices: Tindices, lr: T, l1: T, l2: T, lr_power: T],
        [INDICES, USE_LOCKING, MULTIPLY], sparse_kernels!(Ftrl, 3);
    /// FTRL-proximal with a second penalty that depends on the size of the variable.
    apply_ftrl_v2 = "ApplyFtrlV2", resource_apply_ftrl_v2 = "ResourceApplyFtrlV2":
        [var, accum, linear], [grad: T, lr: T, l1: T, l2: T, l2_shrinkage: T, lr_power: T], [USE_LOCKING, MULTIPLY],
        dense_kernels!(FtrlV2, 3);
    /// As the dense op, for the rows in `indices`.
    sparse_apply_ftrl_v2 = "SparseApplyFtrlV2", resource_sparse_apply_ftrl_v2 = "ResourceSparseApplyFtrlV2":
        [var, accum, linear], [grad: T, indices: Tindices, lr: T, l1: T, l2: T, l2_shrinkage: T, lr_power: T],
        [INDICES, USE_LOCKING, MULTIPLY], sparse_kernels!(FtrlV2, 3);
}

/// The hyper-parameters in the same order for both kinds of op.
fn rule<W: WideFloat>([lr, l1, l2, l2_shrinkage, lr_power]: [W; 5], multiply_linear_by_lr: bool) -> optimizer::Ftrl<W> {
    optimizer::Ftrl { lr, l1, l2, l2_shrinkage, lr_power, multiply_linear_by_lr }
}

fn check<W: WideFloat>(rule: &optimizer::Ftrl<W>) -> Result<()> {
    let zero = W::of(0.0);
    let check = |holds: bool, what: &str| match holds {
        true => Ok(()),
        false => Err(Status::invalid_argument(format!("{what}: []"))),
    };
    let lr_is_fine = rule.lr > zero || (rule.multiply_linear_by_lr && rule.lr >= zero);
    check(lr_is_fine, "lr is not a positive scalar (or zero if multiply_linear_by_lr is set)")?;
    check(rule.l1 >= zero, "l1 regularization strength is not a non-negative scalar")?;
    check(rule.l2 >= zero, "l2 regularization strength is not a non-negative scalar")?;
    check(rule.l2_shrinkage >= zero, "l2 shrinkage regularization strength is not a non-negative scalar")?;
    check(rule.lr_power <= zero, "lr_power is not a non-positive scalar")
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
        Ok(rule([scalars[0], scalars[1], scalars[2], W::of(0.0), scalars[3]], self.multiply_linear_by_lr))
    }

    fn check_sparse<W: WideFloat>(&self, scalars: &[W]) -> Result<()> {
        check(&self.rule(scalars)?)
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
        Ok(rule([scalars[0], scalars[1], scalars[2], scalars[3], scalars[4]], self.multiply_linear_by_lr))
    }

    fn check_sparse<W: WideFloat>(&self, scalars: &[W]) -> Result<()> {
        check(&self.rule(scalars)?)
    }
}
