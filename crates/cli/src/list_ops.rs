//! `ferroflow ops`: the ops that there are, with their types and whether they have a gradient.

use kernel::{Gradient, Op};
use std::collections::BTreeMap;

/// Prints one line per op, as a table or as Markdown.
pub fn run(filter: Option<&str>, markdown: bool) {
    let registry = ops::registry();
    let names: Vec<&str> =
        registry.names().into_iter().filter(|name| filter.is_none_or(|filter| name.contains(filter))).collect();
    if markdown {
        println!("| op | types | gradient |\n|---|---|---|");
    }
    for name in &names {
        let Some(op) = registry.get(name) else { continue };
        let (types, gradient) = (types_of(op), gradient_of(op));
        if markdown {
            println!("| {name} | {types} | {gradient} |");
        } else {
            println!("{name:<40} {gradient:<10} {types}");
        }
    }
    if !markdown {
        println!("{} ops", names.len());
    }
}

fn gradient_of(op: &Op) -> &'static str {
    match op.gradient {
        Gradient::Fn(_) => "gradient",
        Gradient::NotDifferentiable => "none",
        Gradient::Unsupported => "-",
    }
}

fn types_of(op: &Op) -> String {
    if op.kernels.is_empty() {
        return "no kernel".to_owned();
    }
    let mut by_attr: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (attr, dtype) in op.kernels.iter().flat_map(|kernel| kernel.types) {
        let types = by_attr.entry(attr).or_default();
        if !types.contains(&dtype.name()) {
            types.push(dtype.name());
        }
    }
    if by_attr.is_empty() {
        return "any".to_owned();
    }
    by_attr.iter().map(|(attr, types)| format!("{attr}: {}", types.join(" "))).collect::<Vec<_>>().join("; ")
}
