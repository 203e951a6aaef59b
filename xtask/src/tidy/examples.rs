//! Checks that the documentation of `ferroflow` has an example for every public item, and that of `ops` one for every module with
//! functions that build nodes.

use super::rust_files;
use crate::process;
use std::path::Path;

/// Files whose public items are not visible outside of the crate.
const INNER_FILES: [&str; 2] = ["crates/ferroflow/src/compose.rs", "crates/ferroflow/src/train/declaration.rs"];

/// Items without an example. The list may only become shorter.
const WITHOUT_EXAMPLE: [&str; 0] = [];

/// The keywords that public items begin with.
const KINDS: [&str; 7] = ["fn ", "struct ", "enum ", "trait ", "type ", "const ", "static "];

#[test]
fn every_public_item_of_the_library_has_an_example() {
    let mut without = Vec::new();
    let mut num_items = 0;
    for path in rust_files() {
        let shown = shown(&path);
        if !shown.starts_with("crates/ferroflow/src/") || INNER_FILES.contains(&shown.as_str()) {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a source file is readable");
        for item in public_items(&text) {
            num_items += 1;
            if !item.has_example {
                without.push(format!("{shown}: {}", item.name));
            }
        }
    }
    assert!(num_items > 500, "the items were not found");
    let left: Vec<String> = WITHOUT_EXAMPLE.iter().map(|item| (*item).to_string()).collect();
    assert_eq!(without, left, "the list of items without an example is another");
}

#[test]
fn every_module_of_ops_with_builders_has_an_example() {
    let mut complaints = Vec::new();
    let mut num_modules = 0;
    for path in rust_files() {
        let shown = shown(&path);
        if !shown.starts_with("crates/ops/src/") || !shown.ends_with("/mod.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a source file is readable");
        if !text.contains("\npub use ") {
            continue;
        }
        num_modules += 1;
        if !text.lines().take_while(|line| line.starts_with("//!")).any(|line| line.contains("```")) {
            complaints.push(format!("{shown}: its documentation has no example"));
        }
    }
    assert!(num_modules > 10, "the modules were not found");
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// Sources of other crates with methods that users call, and the page of `ferroflow` with their examples, which can use a session
/// there.
const METHODS: [(&str, &str); 8] = [
    ("crates/graph/src/builder.rs", "    pub fn "),
    ("crates/graph/src/builder/control_flow.rs", "    pub fn "),
    ("crates/graph/src/builder/gradients.rs", "    pub fn "),
    ("crates/graph/src/builder/mistake.rs", "    pub fn "),
    ("crates/graph/src/builder/op_builder.rs", "    pub fn "),
    ("crates/graph/src/builder/operators.rs", "    pub fn "),
    ("crates/graph/src/builder/scope.rs", "    pub fn "),
    ("crates/ops/src/methods.rs", "    fn "),
];

#[test]
fn every_method_of_graphs_and_outputs_is_in_an_example() {
    let mut examples = String::new();
    for page in ["graph", "operation", "output", "tensor_ops"] {
        let path = process::root().join(format!("crates/ferroflow/doc/{page}.md"));
        examples += &std::fs::read_to_string(path).expect("a page is readable");
    }
    let mut complaints = Vec::new();
    let mut num_methods = 0;
    for (file, start) in METHODS {
        let text = std::fs::read_to_string(process::root().join(file)).expect("a source file is readable");
        for line in text.lines().take_while(|line| !line.starts_with("mod tests {")) {
            let Some(rest) = line.strip_prefix(start) else { continue };
            let name = rest.split(['(', '<']).next().unwrap_or(rest);
            num_methods += 1;
            let is_called = [".", "::"]
                .iter()
                .any(|before| ["(", "::<"].iter().any(|after| examples.contains(&format!("{before}{name}{after}"))));
            if !is_called {
                complaints.push(format!("{file}: {name} is in no example of crates/ferroflow/doc"));
            }
        }
    }
    assert!(num_methods > 120, "the methods were not found");
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

struct Item {
    name: String,
    has_example: bool,
}

/// Returns the public items of a source outside of its tests. Examples that a macro generates count, too.
fn public_items(text: &str) -> Vec<Item> {
    let mut items = Vec::new();
    let mut has_example = false;
    let mut is_in_attribute = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("mod tests {") {
            break;
        }
        let is_documentation = line.starts_with("///") || line.starts_with("#[") || is_in_attribute;
        if is_documentation {
            has_example |= line.contains("```") || line.contains("example!(");
            // An attribute may span several lines.
            is_in_attribute = (line.starts_with("#[") || is_in_attribute) && !line.ends_with(']');
            continue;
        }
        if let Some(name) = public_name(line) {
            items.push(Item { name: name.to_string(), has_example });
        }
        // A macro's repetition of attributes may come between the documentation and the item.
        has_example &= line.starts_with("$(");
    }
    items
}

fn public_name(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ")?;
    let rest = KINDS.iter().find_map(|kind| rest.strip_prefix(kind))?;
    rest.split(|character: char| !character.is_alphanumeric() && character != '_' && character != '$').next()
}

fn shown(path: &Path) -> String {
    path.strip_prefix(process::root()).unwrap_or(path).display().to_string()
}

#[test]
fn items_and_their_examples_are_found() {
    let text = "/// Does it.\n///\n/// ```\n/// does_it();\n/// ```\n#[track_caller]\npub fn does_it() {}\n\n\
                impl Thing {\n    /// Nothing.\n    pub fn nothing(&self) {}\n    pub(crate) fn inner() {}\n}\n\n\
                #[doc = concat!(\n    \"```\"\n)]\npub struct Written;\nmod tests {\n    pub fn unseen() {}\n}\n";
    let found: Vec<(String, bool)> = public_items(text).into_iter().map(|item| (item.name, item.has_example)).collect();
    let expected = [("does_it", true), ("nothing", false), ("Written", true)];
    assert_eq!(found, expected.map(|(name, has_example)| (name.to_string(), has_example)));
}
