//! The [`Op`] record, which has everything about an op, and the [`OpRegistry`], which finds ops by name.

use crate::{BoxedKernel, KernelBuilder, KernelDef};
use foldhash::{HashMap, HashMapExt};
use graph::{Gradient, Node, OpDef, OpInfo, OpLookup, OpSchema, ShapeFn};
use std::sync::{Arc, OnceLock};
use tensor::{DType, Result, Status};

/// Everything about an op. There are no defaults, so that omitting a facet does not compile.
pub struct Op {
    /// The definition, which equals TensorFlow's.
    pub def: OpDef,
    /// The shape function.
    pub shape: ShapeFn,
    /// The gradient.
    pub gradient: Gradient,
    /// The kernels, by type.
    pub kernels: &'static [KernelDef],
}

struct Entry {
    op: &'static Op,
    info: OnceLock<OpInfo>,
}

/// The known ops, by name. A definition is parsed when it is first looked up.
pub struct OpRegistry {
    entries: HashMap<&'static str, Entry>,
}

impl OpRegistry {
    /// Returns a registry of lists of ops. Of two ops with the same name, the later one is used.
    pub fn new(lists: impl IntoIterator<Item = &'static [Op]>) -> OpRegistry {
        let mut entries = HashMap::new();
        for op in lists.into_iter().flatten() {
            entries.insert(op.def.name, Entry { op, info: OnceLock::new() });
        }
        OpRegistry { entries }
    }

    /// Returns an op's record.
    pub fn get(&self, name: &str) -> Option<&'static Op> {
        self.entries.get(name).map(|entry| entry.op)
    }

    /// Returns the names of all ops, sorted.
    pub fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.entries.keys().copied().collect();
        names.sort_unstable();
        names
    }

    /// Creates the kernel for a node. If there is none for its types, the error lists the supported ones.
    pub fn create_kernel(&self, node: &Node, device: &str) -> Result<BoxedKernel> {
        let Some(op) = self.get(node.op()) else {
            return Err(Status::not_found(format!("Op type not registered '{}'", node.op())));
        };
        let builder = KernelBuilder { node, device };
        match op.kernels.iter().find(|kernel| kernel.matches(&node.attrs)) {
            Some(kernel) => (kernel.create)(&builder),
            None => Err(no_kernel(op, node)),
        }
    }

    /// Returns whether there is a kernel for a node.
    pub fn has_kernel(&self, node: &Node) -> bool {
        self.get(node.op()).is_some_and(|op| op.kernels.iter().any(|kernel| kernel.matches(&node.attrs)))
    }
}

impl OpLookup for OpRegistry {
    fn op(&self, name: &str) -> Option<&OpInfo> {
        let entry = self.entries.get(name)?;
        Some(entry.info.get_or_init(|| {
            let schema = OpSchema::parse(&entry.op.def).unwrap_or_else(|status| panic!("{status}"));
            OpInfo { schema: Arc::new(schema), shape: entry.op.shape, gradient: entry.op.gradient }
        }))
    }
}

fn no_kernel(op: &Op, node: &Node) -> Status {
    let types = |attr: &str| -> Vec<DType> {
        let all = op.kernels.iter().flat_map(|kernel| kernel.types);
        all.filter(|(name, _)| *name == attr).map(|(_, dtype)| *dtype).collect()
    };
    let mut wanted: Vec<String> = Vec::new();
    for attr in &node.schema.attrs {
        if let Ok(dtype) = node.attrs.dtype(&attr.name) {
            let mut have = types(&attr.name);
            have.sort_unstable();
            have.dedup();
            let have: Vec<_> = have.iter().map(|dtype| dtype.name()).collect();
            wanted.push(if have.is_empty() {
                format!("{}={dtype}", attr.name)
            } else {
                format!("{}={dtype} (there are kernels for {})", attr.name, have.join(", "))
            });
        }
    }
    Status::invalid_argument(format!(
        "No OpKernel was registered to support Op '{}' used by node {} with these attrs: [{}] on a CPU",
        node.op(),
        node.name,
        wanted.join(", ")
    ))
}
