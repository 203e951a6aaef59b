//! The allocator, and the flags that bound memory.

use crate::Failure;
use clap::Args;
use cluster::{parse_memory_limit, set_memory_limit, set_session_memory_limit};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Returns freed memory to the system while a server is idle: mimalloc purges what was freed only when it is called again, and
/// looks only at the heap of the thread that calls it. So each thread calls this itself.
pub fn return_memory_when_idle() {
    cluster::set_idle_hook(|| {
        // SAFETY: collecting may be called at any time, from any thread.
        unsafe { libmimalloc_sys::mi_collect(true) }
    });
}

/// How much memory a process may use.
#[derive(Args, Clone, Debug, Default)]
pub struct MemoryFlags {
    /// The most memory that this process may use: bytes, a unit such as 512M or 4G, or a share of the machine's or the control
    /// group's memory. What doesn't fit is refused. 80% if not given.
    #[arg(long = "memory_limit", value_name = "AMOUNT", env = "FERROFLOW_MEMORY_LIMIT")]
    pub memory_limit: Option<String>,
    /// The most memory that one session may use, likewise; as much as the process if not given.
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
