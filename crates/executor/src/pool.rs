//! The pool on which expensive nodes run; it is the one that kernels use for parallel loops, so that both together never
//! have more threads than there are cores.

use kernel::Runner;
use numeric::denormals::FlushDenormals;
use std::sync::{Arc, LazyLock};
use tensor::Account;

struct Pool;

impl Runner for Pool {
    fn spawn(&self, job: Box<dyn FnOnce() + Send>) {
        let account = Account::current();
        numeric::compute_threads::spawn(Box::new(move || {
            let _account = account.as_ref().map(Account::enter);
            // What nodes leave to the pool is computed as the nodes are.
            let _flush = FlushDenormals::begin();
            job();
        }));
    }
}

static POOL: LazyLock<Arc<Pool>> = LazyLock::new(|| Arc::new(Pool));

/// Returns the runner over the process's compute pool.
pub fn default_runner() -> Arc<dyn Runner> {
    POOL.clone()
}
