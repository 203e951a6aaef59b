//! Makes graphs deep: long chains of nodes, and functions nested in the attributes of functions.

use crate::random_graph::{Chooser, RandomGraph};
use proto::attr_value::Value;
use proto::{AttrValue, NameAttrList};

/// The lengths of chains; a recursion over the longest would overflow any stack.
const LENGTHS: [usize; 4] = [10, 100, 300, 3_000];

/// The nesting of attributes; messages with more than a hundred levels cannot be decoded.
const ATTRIBUTE_LEVELS: [usize; 3] = [2, 20, 45];

/// Chains copies of a node, or nests functions in a function's attributes.
pub fn deepen(chooser: &mut Chooser, graph: &mut RandomGraph) {
    if graph.def.node.is_empty() {
        return;
    }
    match chooser.once_in(4) {
        true => nest_attributes(chooser, graph),
        false => chain(chooser, graph),
    }
}

/// Chains copies of a node by one of its inputs, and fetches the last of them.
fn chain(chooser: &mut Chooser, graph: &mut RandomGraph) {
    let with_inputs: Vec<usize> =
        (0..graph.def.node.len()).filter(|&at| !graph.def.node[at].input.is_empty()).collect();
    if with_inputs.is_empty() {
        return;
    }
    let first = graph.def.node[*chooser.one_of(&with_inputs)].clone();
    let place = chooser.below(first.input.len());
    let length = *chooser.one_of(&LENGTHS);
    let mut before = first.name.clone();
    for number in 0..length {
        let mut copy = first.clone();
        copy.name = format!("{}/deep{number}", first.name);
        // A control input orders the copies without a value.
        copy.input[place] = if first.input[place].starts_with('^') { format!("^{before}") } else { before };
        before = copy.name.clone();
        graph.def.node.push(copy);
    }
    match chooser.once_in(2) {
        true => graph.targets.push(before),
        false => graph.fetches.push(format!("{before}:0")),
    }
}

fn nest_attributes(chooser: &mut Chooser, graph: &mut RandomGraph) {
    let levels = *chooser.one_of(&ATTRIBUTE_LEVELS);
    let at = chooser.below(graph.def.node.len());
    let node = &mut graph.def.node[at];
    let name = node.op.clone();
    let function = |attr| AttrValue { value: Some(Value::Func(Box::new(NameAttrList { name: name.clone(), attr }))) };
    let mut value = function(Default::default());
    for _ in 0..levels {
        value = function([("f".to_owned(), value)].into_iter().collect());
    }
    let attr = node.attr.keys().find(|name| name.as_str() == "f" || name.as_str() == "body").cloned();
    node.attr.insert(attr.unwrap_or_else(|| "f".to_owned()), value);
}
