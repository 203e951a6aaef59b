//! Adadelta: ApplyAdadelta and its other forms.

use super::apply::Optimizer;
use super::{INDICES, USE_LOCKING};
use kernel::AttrMap;
use numeric::float::WideFloat;
use numeric::optimizer;
use tensor::Result;

training_ops! {
    /// Scales steps by the ratio of past updates to past gradients.
    apply_adadelta = "ApplyAdadelta", resource_apply_adadelta = "ResourceApplyAdadelta":
        [var, accum, accum_update], [lr: T, rho: T, epsilon: T, grad: T], [USE_LOCKING], dense_kernels!(Adadelta, 3);
    /// As the dense op, for the rows in `indices`.
    sparse_apply_adadelta = "SparseApplyAdadelta", resource_sparse_apply_adadelta = "ResourceSparseApplyAdadelta":
        [var, accum, accum_update], [lr: T, rho: T, epsilon: T, grad: T, indices: Tindices], [INDICES, USE_LOCKING],
        sparse_kernels!(Adadelta, 3);
}

struct Adadelta;

impl Optimizer<3> for Adadelta {
    type Rule<W: WideFloat> = optimizer::Adadelta<W>;
    const SCALARS: &'static [&'static str] = &["lr", "rho", "epsilon"];

    fn new(_: &AttrMap) -> Result<Self> {
        Ok(Adadelta)
    }

    fn rule<W: WideFloat>(&self, scalars: &[W]) -> Result<Self::Rule<W>> {
        Ok(optimizer::Adadelta { lr: scalars[0], rho: scalars[1], epsilon: scalars[2] })
    }
}
