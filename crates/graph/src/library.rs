//! The crates of a program that provide ops to its graphs. The linker collects them in [`LIBRARIES`], so that this crate depends
//! on none of them.

use crate::{OpInfo, OpLookup};
use linkme::distributed_slice;
use std::panic::Location;
use std::sync::LazyLock;

/// A crate that provides ops, or functions that build graphs.
///
/// ```
/// use graph::{LIBRARIES, Library};
///
/// #[linkme::distributed_slice(LIBRARIES)]
/// static LIBRARY: Library = Library { root: file!(), ops: None };
/// ```
pub struct Library {
    /// The `file!()` of the crate's `lib.rs`. A mistake is blamed on a file in its folder only if there is no line of the program to
    /// blame.
    pub root: &'static str,
    /// The crate's ops.
    pub ops: Option<fn() -> &'static dyn OpLookup>,
}

/// The libraries of the program.
#[distributed_slice]
pub static LIBRARIES: [Library];

/// The ops of all libraries.
struct AllOps(Vec<&'static dyn OpLookup>);

impl OpLookup for AllOps {
    fn op(&self, name: &str) -> Option<&OpInfo> {
        self.0.iter().find_map(|ops| ops.op(name))
    }
}

/// Returns the ops of all libraries.
pub(crate) fn all_ops() -> &'static dyn OpLookup {
    static ALL: LazyLock<AllOps> =
        LazyLock::new(|| AllOps(LIBRARIES.iter().filter_map(|library| library.ops).map(|ops| ops()).collect()));
    &*ALL
}

/// Returns whether a line of source is one of a library's, and none of the program.
pub fn is_in_library(location: &Location<'_>) -> bool {
    LIBRARIES.iter().any(|library| {
        let folder = library.root.strip_suffix("lib.rs").unwrap_or(library.root);
        location.file().starts_with(folder)
    })
}
