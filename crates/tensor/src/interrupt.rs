//! [`Interrupt`]: cancels long work that runs deep inside code without access to a step's cancellation.

use crate::{Result, Status};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that another thread raises. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    is_raised: Arc<AtomicBool>,
}

thread_local! {
    static CURRENT: RefCell<Option<Interrupt>> = const { RefCell::new(None) };
}

impl Interrupt {
    /// Returns a flag that isn't raised.
    pub fn new() -> Interrupt {
        Interrupt::default()
    }

    /// Raises the flag.
    pub fn raise(&self) {
        self.is_raised.store(true, Ordering::Relaxed);
    }

    /// Returns whether the flag is raised.
    pub fn is_raised(&self) -> bool {
        self.is_raised.load(Ordering::Relaxed)
    }

    /// Runs `work`, in which [`check_interrupt`] looks at this flag.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        let _restore = Restore(CURRENT.replace(Some(self.clone())));
        work()
    }
}

struct Restore(Option<Interrupt>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// Fails once this thread's work has been cancelled. A loop whose length input decides calls it now and then.
pub fn check_interrupt() -> Result<()> {
    let is_raised = CURRENT.with_borrow(|current| current.as_ref().is_some_and(Interrupt::is_raised));
    if is_raised { Err(Status::cancelled("Operation was cancelled")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_runs_within_hears_it() {
        let interrupt = Interrupt::new();
        interrupt.raise();
        assert!(check_interrupt().is_ok());
        assert_eq!(interrupt.within(check_interrupt).unwrap_err().code(), crate::Code::Cancelled);
        assert!(interrupt.within(|| Interrupt::new().within(check_interrupt)).is_ok());
        assert!(check_interrupt().is_ok());
    }
}
