//! Makes a graph deep: long chains of nodes, and functions within the attributes of functions.

use crate::random_graph::{Chooser, RandomGraph};
use proto::attr_value::Value;
use proto::{AttrValue, NameAttrList};

/// How long a chain may get; some are longer than any stack would bear.
const LENGTHS: [usize; 4] = [10, 100, 300, 3_000];

/// How deep attributes may lie within each other; a message of more than a hundred levels can't be read.
const ATTRIBUTE_LEVELS: [usize; 3] = [2, 20, 45];

/// Puts copies of a node one behind the other, or functions within a function's attributes.
pub fn deepen(chooser: &mut Chooser, graph: &mut RandomGraph) {
    if graph.def.node.is_empty() {
        return;
    }
    match chooser.once_in(4) {
        true => nest_attributes(chooser, graph),
        false => chain(chooser, graph),
    }
}

/// Has copies of a node take each other's output in the place of one of its inputs, and fetches the last of them.
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
        // Behind a control input the order is all that there is.
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
