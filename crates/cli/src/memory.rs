//! The allocator, and the flags that limit memory.

use crate::Failure;
use clap::Args;
use cluster::{parse_memory_limit, set_memory_limit, set_session_memory_limit};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Returns freed memory to the system while a server is idle. mimalloc purges freed memory only when it is called again, and only
/// from the heap of the calling thread, so each thread calls this itself.
pub fn return_memory_when_idle() {
    cluster::set_idle_hook(|| {
        // SAFETY: this may be called at any time, from any thread.
        unsafe { libmimalloc_sys::mi_collect(true) }
    });
}

/// Limits of memory.
#[derive(Args, Clone, Debug, Default)]
pub struct MemoryFlags {
    /// The most memory that this process may use: bytes, a unit such as 512M or 4G, or a percentage of the machine's or the
    /// control group's memory. Requests beyond it are refused. The default is 80%.
    #[arg(long = "memory_limit", value_name = "AMOUNT", env = "FERROFLOW_MEMORY_LIMIT")]
    pub memory_limit: Option<String>,
    /// The most memory that one session may use, in the same units; by default as much as the process.
    #[arg(long = "session_memory_limit", value_name = "AMOUNT", env = "FERROFLOW_SESSION_MEMORY_LIMIT")]
    pub session_memory_limit: Option<String>,
}

impl MemoryFlags {
    /// Sets the limits of this process.
    pub fn apply(&self) -> Result<(), Failure> {
        let parse = |flag: &str, text: &str| {
            parse_memory_limit(text).map_err(|status| Failure::new(format!("--{flag}: {}", status.message())))
        };
        if let Some(text) = &self.memory_limit {
            set_memory_limit(parse("memory_limit", text)?);
        }
        if let Some(text) = &self.session_memory_limit {
            set_session_memory_limit(parse("session_memory_limit", text)?);
        }
        Ok(())
    }
}
