//! RMSProp: ApplyRMSProp, ApplyCenteredRMSProp, and their other forms.

use super::apply::Optimizer;
use super::{INDICES, USE_LOCKING};
use kernel::AttrMap;
use numeric::float::WideFloat;
use numeric::optimizer;
use tensor::Result;

training_ops! {
    /// Divides steps by the square root of the running mean of squared gradients.
    apply_rms_prop = "ApplyRMSProp", resource_apply_rms_prop = "ResourceApplyRMSProp":
        [var, ms, mom], [lr: T, rho: T, momentum: T, epsilon: T, grad: T], [USE_LOCKING], dense_kernels!(RmsProp, 3);
    /// As the dense op, for the rows in `indices`.
    sparse_apply_rms_prop = "SparseApplyRMSProp", resource_sparse_apply_rms_prop = "ResourceSparseApplyRMSProp":
        [var, ms, mom], [lr: T, rho: T, momentum: T, epsilon: T, grad: T, indices: Tindices], [INDICES, USE_LOCKING],
        sparse_kernels!(RmsProp, 3);
    /// Divides steps by the running standard deviation of gradients.
    apply_centered_rms_prop = "ApplyCenteredRMSProp", resource_apply_centered_rms_prop = "ResourceApplyCenteredRMSProp":
        [var, mg, ms, mom], [lr: T, rho: T, momentum: T, epsilon: T, grad: T], [USE_LOCKING],
        dense_kernels!(CenteredRmsProp, 4);
    /// As the dense op, for the rows in `indices`.
    sparse_apply_centered_rms_prop = "SparseApplyCenteredRMSProp",
    resource_sparse_apply_centered_rms_prop = "ResourceSparseApplyCenteredRMSProp":
        [var, mg, ms, mom], [lr: T, rho: T, momentum: T, epsilon: T, grad: T, indices: Tindices], [INDICES, USE_LOCKING],
        sparse_kernels!(CenteredRmsProp, 4);
}

const SCALARS: &[&str] = &["lr", "rho", "momentum", "epsilon"];

struct RmsProp;

impl Optimizer<3> for RmsProp {
    type Rule<W: WideFloat> = optimizer::RmsProp<W>;
    const SCALARS: &'static [&'static str] = SCALARS;

    fn new(_: &AttrMap) -> Result<Self> {
        Ok(RmsProp)
    }

    fn rule<W: WideFloat>(&self, scalars: &[W]) -> Result<Self::Rule<W>> {
        Ok(optimizer::RmsProp { lr: scalars[0], rho: scalars[1], momentum: scalars[2], epsilon: scalars[3] })
    }
}

struct CenteredRmsProp;

impl Optimizer<4> for CenteredRmsProp {
    type Rule<W: WideFloat> = optimizer::CenteredRmsProp<W>;
    const SCALARS: &'static [&'static str] = SCALARS;

    fn new(_: &AttrMap) -> Result<Self> {
        Ok(CenteredRmsProp)
    }

    fn rule<W: WideFloat>(&self, scalars: &[W]) -> Result<Self::Rule<W>> {
        Ok(optimizer::CenteredRmsProp { lr: scalars[0], rho: scalars[1], momentum: scalars[2], epsilon: scalars[3] })
    }
}
