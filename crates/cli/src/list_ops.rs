//! `ferroflow ops`: lists the supported ops with their types, whether they have a gradient, and the number of cases that test
//! them against TensorFlow.

use kernel::{Gradient, Op};
use std::collections::BTreeMap;

/// The number of test cases of each op. The test that writes this file and `docs/ops.md` checks that both are current.
const CASES: &str = include_str!("op_cases.txt");

/// Prints one line per op, as a table or as Markdown.
pub fn run(filter: Option<&str>, markdown: bool) {
    let registry = ops::registry();
    let names: Vec<&str> =
        registry.names().into_iter().filter(|name| filter.is_none_or(|filter| name.contains(filter))).collect();
    let cases = cases();
    if markdown {
        crate::say!("| op | types | gradient | cases |\n|---|---|---|---|");
    }
    for name in &names {
        let Some(op) = registry.get(name) else { continue };
        let (types, gradient) = (types_of(op), gradient_of(op));
        let cases = cases.get(name).copied().unwrap_or("0");
        if markdown {
            crate::say!("| {name} | {types} | {gradient} | {cases} |");
        } else {
            crate::say!("{name:<40} {gradient:<10} {cases:<6} {types}");
        }
    }
    if !markdown {
        crate::say!("{} ops", names.len());
    }
}

/// Returns the number of test cases of each op.
fn cases() -> BTreeMap<&'static str, &'static str> {
    CASES.lines().filter_map(|line| line.split_once(' ')).collect()
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

#[cfg(test)]
mod tests {
    use super::cases;

    #[test]
    fn the_document_says_how_often_an_op_is_tested() {
        let cases = cases();
        assert!(cases["MatMul"].parse::<u32>().unwrap() > 10);
        assert!(cases.len() > 800);
    }
}
