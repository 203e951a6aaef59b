//! Prints the definition of every op, one op a line: name, inputs, outputs, attributes and flags between tabs, and the
//! items of each list between unit separators. The interop tests compare them with TensorFlow's.

use graph::OpFlags;

const FLAGS: [(OpFlags, &str); 5] = [
    (OpFlags::STATEFUL, "STATEFUL"),
    (OpFlags::COMMUTATIVE, "COMMUTATIVE"),
    (OpFlags::AGGREGATE, "AGGREGATE"),
    (OpFlags::ALLOWS_UNINITIALIZED_INPUT, "ALLOWS_UNINITIALIZED_INPUT"),
    (OpFlags::DISTRIBUTED_COMMUNICATION, "DISTRIBUTED_COMMUNICATION"),
];

fn main() {
    let registry = ops::registry();
    for name in registry.names() {
        let Some(op) = registry.get(name) else { continue };
        let def = &op.def;
        let flags: Vec<&str> =
            FLAGS.iter().filter(|(flag, _)| def.flags.contains(*flag)).map(|(_, name)| *name).collect();
        let lists = [def.inputs, def.outputs, def.attrs, &flags].map(|items| items.join("\u{1f}"));
        println!("{name}\t{}", lists.join("\t"));
    }
}
