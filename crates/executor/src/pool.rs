//! The pool on which expensive nodes run. Kernels use the same pool for parallel loops, so that there are never more busy
//! threads than cores.

use kernel::JobRunner;
use numeric::denormals::FlushDenormals;
use std::sync::{Arc, LazyLock};
use tensor::Account;

struct Pool;

impl JobRunner for Pool {
    fn spawn(&self, job: Box<dyn FnOnce() + Send>) {
        let account = Account::current();
        numeric::compute_threads::spawn(Box::new(move || {
            let _account = account.as_ref().map(Account::enter);
            // Work that nodes hand to the pool treats denormals as the nodes themselves do.
            let _flush = FlushDenormals::begin();
            job();
        }));
    }
}

static POOL: LazyLock<Arc<Pool>> = LazyLock::new(|| Arc::new(Pool));

/// Returns the runner over the process's compute pool.
pub fn default_runner() -> Arc<dyn JobRunner> {
    POOL.clone()
}
