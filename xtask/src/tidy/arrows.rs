//! Checks that the dependencies between modules of a crate point one way, according to the paths in their sources.
//!
//! Arrows are between sibling modules: a path in a file anywhere below one module to a name anywhere below another is an arrow
//! from the one to the other. A module and its submodules belong together, and code for tests does not count. A name that the
//! parent re-exports (`pub use`) counts as the name of the module that it comes from.

use crate::process;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The modules of `cluster` that form layers: each names only those before it, and no other module of the crate names any of them.
const CLUSTER_LAYERS: [&str; 7] = ["interface", "worker", "transport", "master", "status", "server", "simulated_task"];

/// Within `transport`: each names only those before it.
const TRANSPORT_LAYERS: [&str; 7] =
    ["tcp", "stream", "streamed_worker", "grpc", "worker_cache", "connector", "task_rendezvous"];

/// The remaining cycles, by crate and parent. A cycle that no longer exists must be removed here, and none may be added.
const KNOWN_CYCLES: [(&str, &str, &[&str]); 4] = [
    ("numeric", "", &["compute_threads", "parallel", "watchdog"]),
    ("numeric", "matmul", &["block", "zeros"]),
    ("ops", "", &["array", "data_flow", "dataset", "list", "logging", "ragged", "random", "sparse", "string"]),
    ("ops", "dataset", &["base", "position"]),
];

type ModulePath = Vec<String>;

/// The modules of a crate with their sources.
struct Modules {
    texts: BTreeMap<ModulePath, String>,
}

/// Arrows between the modules inside one parent, each with a path that causes it.
type Arrows = BTreeMap<(String, String), String>;

#[test]
fn modules_form_no_cycles() {
    let mut complaints = Vec::new();
    let mut found = BTreeSet::new();
    for name in crates() {
        for (parent, arrows) in Modules::of(&name).arrows() {
            for cycle in cycles(&arrows) {
                let parent = parent.join("::");
                let known = KNOWN_CYCLES.iter().position(|(in_crate, inside, modules)| {
                    *in_crate == name && *inside == parent && modules.iter().eq(cycle.iter())
                });
                match known {
                    Some(index) => drop(found.insert(index)),
                    None => {
                        let within = arrows.iter().filter(|((from, to), _)| cycle.contains(from) && cycle.contains(to));
                        let reasons: Vec<String> =
                            within.map(|((_, to), path)| format!("    {path} is in {to}")).collect();
                        let shown = cycle.iter().cloned().collect::<Vec<_>>().join(", ");
                        complaints.push(format!("{name} {parent}: {shown} form a cycle:\n{}", reasons.join("\n")));
                    }
                }
            }
        }
    }
    for (index, (in_crate, parent, modules)) in KNOWN_CYCLES.iter().enumerate() {
        if !found.contains(&index) {
            complaints
                .push(format!("{in_crate} {parent}: {modules:?} form no cycle any more: take them out of the list"));
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn the_layers_of_cluster_point_one_way() {
    let arrows = Modules::of("cluster").arrows();
    let mut complaints = Vec::new();
    let layers = [(vec![], &CLUSTER_LAYERS[..]), (vec!["transport".to_owned()], &TRANSPORT_LAYERS[..])];
    for (parent, order) in layers {
        let arrows = arrows.get(&parent).expect("cluster has these modules");
        let rank = |module: &str| order.iter().position(|known| *known == module).map_or(0, |at| at + 1);
        for ((from, to), path) in arrows {
            if rank(to) > rank(from) {
                complaints.push(format!("{from} names {to}, which is above it: {path}"));
            }
        }
        for module in order {
            assert!(arrows.keys().any(|(from, to)| from == module || to == module), "there is no module {module}");
        }
    }
    // A transport knows only the trait `Recipient`, not its implementations.
    for (module, text) in Modules::of("cluster").texts {
        if module.first().is_some_and(|first| first == "transport") {
            let names_worker =
                paths(&text).iter().any(|path| path.ends_with(&["worker".to_owned(), "Worker".to_owned()]));
            if names_worker {
                complaints.push(format!("{} names Worker", module.join("::")));
            }
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn paths_are_found_in_whatever_way_they_are_written() {
    let text = "use crate::a::{b::C, d, e::{f, G as H}};\nfn x() { super::super::y::z::<T>(crate::K) }";
    let found: Vec<String> = paths(text).into_iter().map(|path| path.join("::")).collect();
    let expected =
        ["crate::a::b::C", "crate::a::d", "crate::a::e::f", "crate::a::e::G", "super::super::y::z", "crate::K"];
    assert_eq!(found, expected);
    let arrows: Arrows = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]
        .map(|(from, to)| ((from.to_owned(), to.to_owned()), String::new()))
        .into_iter()
        .collect();
    assert_eq!(cycles(&arrows), [["a", "b", "c"].map(str::to_owned).into_iter().collect::<BTreeSet<_>>()]);
}

fn crates() -> Vec<String> {
    let entries = std::fs::read_dir(process::root().join("crates")).expect("crates/ is readable");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name")).collect();
    names.sort();
    names
}

impl Modules {
    /// Reads a crate's modules, without comments and code for tests.
    fn of(name: &str) -> Modules {
        let mut modules = Modules { texts: BTreeMap::new() };
        modules.read(&process::root().join("crates").join(name).join("src"), &mut Vec::new());
        let all = modules.texts.clone();
        modules.texts.retain(|path, _| !(1..=path.len()).any(|end| is_for_tests(&all, &path[..end])));
        modules.texts.values_mut().for_each(|text| *text = without_tests(text));
        modules
    }

    fn read(&mut self, directory: &Path, parent: &mut ModulePath) {
        for entry in std::fs::read_dir(directory).expect("a source directory is readable").flatten() {
            let path = entry.path();
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
            if path.is_dir() {
                parent.push(stem);
                self.read(&path, parent);
                parent.pop();
            } else if path.extension().is_some_and(|extension| extension == "rs") && stem != "main" {
                let mut module = parent.clone();
                if stem != "mod" && stem != "lib" {
                    module.push(stem);
                }
                let text = std::fs::read_to_string(&path).expect("a source file is readable");
                let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
                self.texts.insert(module, lines.collect::<Vec<_>>().join("\n"));
            }
        }
    }

    /// Returns the arrows between siblings, by parent.
    fn arrows(&self) -> BTreeMap<ModulePath, Arrows> {
        let mut arrows: BTreeMap<ModulePath, Arrows> = BTreeMap::new();
        for (module, text) in &self.texts {
            for path in paths(text) {
                let Some(named) = self.resolve(module, &path) else { continue };
                let common = module.iter().zip(&named).take_while(|(own, other)| own == other).count();
                if let (Some(from), Some(to)) = (module.get(common), named.get(common)) {
                    let shown = format!("{} in {}", path.join("::"), module.join("::"));
                    let key = (from.clone(), to.clone());
                    arrows.entry(module[..common].to_vec()).or_default().entry(key).or_insert(shown);
                }
            }
        }
        arrows
    }

    /// Resolves a path in a module to a module.
    fn resolve(&self, module: &[String], path: &[String]) -> Option<ModulePath> {
        let num_supers = path.iter().take_while(|segment| *segment == "super").count();
        let (mut found, rest) = match num_supers {
            0 => (Vec::new(), &path[1..]),
            count => (module.get(..module.len().checked_sub(count)?)?.to_vec(), &path[count..]),
        };
        for segment in rest {
            found.push(segment.clone());
            if !self.texts.contains_key(&found) {
                found.pop();
                // The module may re-export a name of one inside it.
                if let Some(source) = self.texts.get(&found).and_then(|text| passed_on(text, segment)) {
                    found.push(source);
                    if !self.texts.contains_key(&found) {
                        found.pop();
                    }
                }
                break;
            }
        }
        Some(found)
    }
}

/// Returns the submodule from which a module with this source imports a name, if it does.
fn passed_on(text: &str, name: &str) -> Option<String> {
    for statement in text.split("use ").skip(1).filter_map(|rest| rest.split(';').next()) {
        let mut leaves = Vec::new();
        read_path(&statement.chars().collect::<Vec<_>>(), 0, &mut Vec::new(), &mut leaves);
        if let Some(path) = leaves.iter().find(|path| path.len() > 1 && path.last().is_some_and(|last| last == name)) {
            return path.first().cloned();
        }
    }
    None
}

fn is_for_tests(texts: &BTreeMap<ModulePath, String>, module: &[String]) -> bool {
    let Some((name, parent)) = module.split_last() else { return false };
    let declared = [format!("mod {name};"), format!("mod {name} {{")];
    let Some(text) = texts.get(parent) else { return false };
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines
        .windows(2)
        .any(|pair| is_test_attribute(pair[0]) && declared.iter().any(|end| pair[1].ends_with(end.as_str())))
}

fn is_test_attribute(line: &str) -> bool {
    line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test") || line.starts_with("#[cfg(any(test")
}

/// Cuts off the module of tests at the end of a file.
pub(super) fn without_tests(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let is_cut = |pair: &[&str]| is_test_attribute(pair[0]) && pair[1].contains("mod ") && pair[1].ends_with('{');
    let end = lines.windows(2).position(is_cut).unwrap_or(lines.len());
    lines[..end].join("\n")
}

/// Returns the paths in a source that begin with `crate` or `super`.
fn paths(text: &str) -> Vec<Vec<String>> {
    let chars: Vec<char> = text.chars().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let is_start = at == 0 || !is_word(chars[at - 1]) && chars[at - 1] != ':';
        let begins = |word: &str| chars[at..].iter().copied().take(word.len()).eq(word.chars());
        if is_start && (begins("crate::") || begins("super::")) {
            at = read_path(&chars, at, &mut Vec::new(), &mut found);
        } else {
            at += 1;
        }
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Reads a path after a prefix, including the groups in it, and returns its end.
fn read_path(chars: &[char], mut at: usize, prefix: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> usize {
    let depth = prefix.len();
    loop {
        while chars.get(at).is_some_and(|c| c.is_whitespace()) {
            at += 1;
        }
        match chars.get(at) {
            Some('{') => {
                at += 1;
                loop {
                    at = read_path(chars, at, prefix, found);
                    // Whatever follows a name, such as `as X`, is not part of the path.
                    while chars.get(at).is_some_and(|c| *c != ',' && *c != '}') {
                        at += 1;
                    }
                    at += 1;
                    if chars.get(at - 1) != Some(&',') {
                        break;
                    }
                }
                break;
            }
            Some(c) if is_word(*c) => {
                let start = at;
                while chars.get(at).is_some_and(|c| is_word(*c)) {
                    at += 1;
                }
                prefix.push(chars[start..at].iter().collect());
                if chars.get(at) == Some(&':') && chars.get(at + 1) == Some(&':') {
                    at += 2;
                    continue;
                }
                found.push(prefix.clone());
                break;
            }
            // `*`, or the types of a function; an empty entry at the end of a group names nothing.
            other => {
                if prefix.len() > depth || other == Some(&'*') {
                    found.push(prefix.clone());
                }
                break;
            }
        }
    }
    prefix.truncate(depth);
    at
}

/// Returns the strongly connected groups of modules.
fn cycles(arrows: &Arrows) -> Vec<BTreeSet<String>> {
    let modules: BTreeSet<&String> = arrows.keys().flat_map(|(from, to)| [from, to]).collect();
    let reached = |start: &String| {
        let mut reached = BTreeSet::new();
        let mut open = vec![start];
        while let Some(module) = open.pop() {
            for (_, to) in arrows.keys().filter(|(from, _)| from == module) {
                if reached.insert(to.clone()) {
                    open.push(to);
                }
            }
        }
        reached
    };
    let reach: BTreeMap<&String, BTreeSet<String>> = modules.iter().map(|module| (*module, reached(module))).collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for module in &modules {
        let group: BTreeSet<String> =
            reach[*module].iter().filter(|other| reach[*other].contains(*module)).cloned().collect();
        if group.len() > 1 && !found.contains(&group) {
            found.push(group);
        }
    }
    found
}
