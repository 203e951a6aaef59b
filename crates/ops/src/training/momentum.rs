//! Momentum: ApplyMomentum, ResourceApplyKerasMomentum, and their other forms.

use super::apply::Optimizer;
use super::{INDICES, USE_LOCKING};
use kernel::{AttrMap, Op};
use numeric::float::WideFloat;
use numeric::optimizer;
use tensor::Result;

const NESTEROV: &str = "use_nesterov: bool = false";

training_ops! {
    /// Adds the gradient to a decaying sum, and subtracts `lr` times the sum from a variable.
    apply_momentum = "ApplyMomentum", resource_apply_momentum = "ResourceApplyMomentum":
        [var, accum], [lr: T, grad: T, momentum: T], [USE_LOCKING, NESTEROV], dense_kernels!(Momentum, 2);
    /// As the dense op, for the rows in `indices`.
    sparse_apply_momentum = "SparseApplyMomentum", resource_sparse_apply_momentum = "ResourceSparseApplyMomentum":
        [var, accum], [lr: T, grad: T, indices: Tindices, momentum: T], [INDICES, USE_LOCKING, NESTEROV],
        sparse_kernels!(Momentum, 2);
}

/// The ops of this file that have no form by ref.
pub(super) const RESOURCE_OPS: &[Op] = &[
    resource_training_op!("ResourceApplyKerasMomentum":
        [var, accum], [lr: T, grad: T, momentum: T], [USE_LOCKING, NESTEROV], dense_kernels!(KerasMomentum, 2)),
    resource_training_op!("ResourceSparseApplyKerasMomentum":
        [var, accum], [lr: T, grad: T, indices: Tindices, momentum: T], [INDICES, USE_LOCKING, NESTEROV],
        sparse_kernels!(KerasMomentum, 2)),
];

struct Momentum {
    use_nesterov: bool,
}

impl Optimizer<2> for Momentum {
    type Rule<W: WideFloat> = optimizer::Momentum<W>;
    const SCALARS: &'static [&'static str] = &["lr", "momentum"];

    fn new(attrs: &AttrMap) -> Result<Self> {
        Ok(Momentum { use_nesterov: attrs.bool("use_nesterov")? })
    }

    fn rule<W: WideFloat>(&self, scalars: &[W]) -> Result<Self::Rule<W>> {
        Ok(optimizer::Momentum { lr: scalars[0], momentum: scalars[1], use_nesterov: self.use_nesterov })
    }
}

struct KerasMomentum {
    use_nesterov: bool,
}

impl Optimizer<2> for KerasMomentum {
    type Rule<W: WideFloat> = optimizer::KerasMomentum<W>;
    const SCALARS: &'static [&'static str] = &["lr", "momentum"];

    fn new(attrs: &AttrMap) -> Result<Self> {
        Ok(KerasMomentum { use_nesterov: attrs.bool("use_nesterov")? })
    }

    fn rule<W: WideFloat>(&self, scalars: &[W]) -> Result<Self::Rule<W>> {
        Ok(optimizer::KerasMomentum { lr: scalars[0], momentum: scalars[1], use_nesterov: self.use_nesterov })
    }
}
