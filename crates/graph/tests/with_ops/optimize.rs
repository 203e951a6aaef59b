//! Optimization: a text graph in, the expected text out.

use expect_test::{Expect, expect};
use graph::passes::{Fusion, OptimizeOptions, OptimizeSwitches, optimize};
use graph::{Edge, NodeGraph};
use ops::registry as ops;
use std::collections::HashMap;
use tensor::{Result, Status, Tensor};

/// An evaluator of sums, negations and splits of vectors of one element.
fn evaluate(graph: &NodeGraph, fetches: &[Edge]) -> Result<Vec<Tensor>> {
    let mut values: HashMap<Edge, Tensor> = HashMap::new();
    for id in graph.topological_order()? {
        let node = graph.node(id);
        let input = |index: usize| values[&node.inputs[index]].clone();
        let outputs = match node.op() {
            "Const" => vec![node.attrs.tensor("value")?],
            "Identity" => vec![input(0)],
            "Neg" => vec![Tensor::scalar(-input(0).to_scalar::<f32>()?)],
            "AddV2" => vec![Tensor::scalar(input(0).to_scalar::<f32>()? + input(1).to_scalar::<f32>()?)],
            "Switch" => vec![input(0), input(0)],
            op => return Err(Status::unimplemented(op)),
        };
        for (port, value) in outputs.into_iter().enumerate() {
            values.insert(Edge { node: id, port: port as u32 }, value);
        }
    }
    Ok(fetches.iter().map(|edge| values[edge].clone()).collect())
}

fn check(text: &str, expected: Expect) {
    let mut graph = NodeGraph::from_text(text, ops()).unwrap_or_else(|status| panic!("{status}"));
    let options = OptimizeOptions {
        switches: OptimizeSwitches::ALL,
        evaluate: Some(&evaluate),
        has_kernel: &|node| !node.attrs.strings("fused_ops").is_ok_and(|list| list.iter().any(|op| op == "Tanh")),
        may_fuse: &|device, fusion| match fusion {
            Fusion::Product => device != "/job:foreign",
            Fusion::Elementwise => device == "/job:ours",
        },
        constant_bytes_max: 1 << 10,
    };
    let report = optimize(&mut graph, ops(), &options).unwrap();
    graph.topological_order().unwrap();
    for (_, node) in graph.iter() {
        graph.check_inputs(node).unwrap();
    }
    expected.assert_eq(&format!("{}{report:?}\n", graph.to_text()));
}

#[test]
fn constants_are_folded_but_not_what_they_feed() {
    check(
        "x = _Arg() {T=float, index=0}
a = Const() {dtype=float, value=float[](1)}
b = Neg(a)
c = AddV2(a, b)
d = AddV2(c, b)
y = Mul(x, d)
r = _Retval(y) {index=0}",
        expect![[r#"
            x = _Arg() {T=float, index=0}
            d = Const() {dtype=float, value=float[](-1.0)}
            y = Mul(x, d)
            r = _Retval(y) {index=0}
            OptimizeReport { folded: 1, shared: 0, bypassed: 0, fused: 0, spread: 0, unwaited: 0 }
        "#]],
    );
}

#[test]
fn a_small_constant_is_on_every_device_that_needs_it() {
    let large = vec!["1.5"; 2000].join(", ");
    check(
        &format!(
            "x = _Arg() {{T=float, index=0}} @/job:worker
v = _Arg() {{T=float, index=1}} @/job:ps
rate = Const() {{dtype=float, value=float[](0.5)}} @/job:worker
waits = Const(^x) {{dtype=float, value=float[](2)}} @/job:worker
large = Const() {{dtype=float, value=float[2000]({large})}} @/job:worker
here = Sub(x, rate) @/job:worker
there = Sub(v, rate) @/job:ps
again = Sub(there, rate) @/job:ps
later = Sub(again, waits) @/job:ps
wide = Sub(later, large) @/job:ps
r0 = _Retval(here) {{index=0}} @/job:worker
r1 = _Retval(wide) {{index=1}} @/job:ps"
        ),
        expect![[r#"
            x = _Arg() {T=float, index=0} @/job:worker
            v = _Arg() {T=float, index=1} @/job:ps
            rate = Const() {dtype=float, value=float[](0.5)} @/job:worker
            waits = Const(^x) {dtype=float, value=float[](2.0)} @/job:worker
            large = Const() {dtype=float, value=float[2000](1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, ...)} @/job:worker
            here = Sub(x, rate) @/job:worker
            there = Sub(v, rate_1) @/job:ps
            again = Sub(there, rate_1) @/job:ps
            later = Sub(again, waits) @/job:ps
            wide = Sub(later, large) @/job:ps
            r0 = _Retval(here) {index=0} @/job:worker
            r1 = _Retval(wide) {index=1} @/job:ps
            rate_1 = Const() {dtype=float, value=float[](0.5)} @/job:ps
            OptimizeReport { folded: 0, shared: 0, bypassed: 0, fused: 0, spread: 1, unwaited: 0 }
        "#]],
    );
}

#[test]
fn state_size_and_kernels_limit_folding() {
    check(
        "two = Const() {dtype=int32, value=int32[1](2)}
random = RandomUniform(two) {dtype=float}
tanh = Tanh(a)
a = Const() {dtype=float, value=float[](1)}
b = Neg(a)
big = Const() {dtype=float, value=float[16,17](0)}
negative = Neg(big)
r0 = _Retval(random) {index=0}
r1 = _Retval(tanh) {index=1}
r2 = _Retval(b) {index=2}
r3 = _Retval(negative) {index=3}"
            .replace("float[16,17](0)", &format!("float[16,17]({})", vec!["0"; 272].join(", ")))
            .as_str(),
        expect![[r#"
            two = Const() {dtype=int32, value=int32[1](2)}
            random = RandomUniform(two) {dtype=float}
            tanh = Tanh(a)
            a = Const() {dtype=float, value=float[](1.0)}
            b = Const() {dtype=float, value=float[](-1.0)}
            big = Const() {dtype=float, value=float[16,17](0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, ...)}
            negative = Neg(big)
            r0 = _Retval(random) {index=0}
            r1 = _Retval(tanh) {index=1}
            r2 = _Retval(b) {index=2}
            r3 = _Retval(negative) {index=3}
            OptimizeReport { folded: 1, shared: 0, bypassed: 0, fused: 0, spread: 0, unwaited: 0 }
        "#]],
    );
}

#[test]
fn a_folded_constant_waits_for_what_its_parts_waited_for() {
    check(
        "p = _Arg() {T=bool, index=0}
x = _Arg() {T=float, index=1}
switch = Switch(x, p)
pivot = Identity(switch:1)
one = Const(^pivot) {dtype=float, value=float[](1)}
minus = Neg(one)
sum = AddV2(pivot, minus)
merge = Merge(switch, sum)
r = _Retval(merge) {index=0}",
        expect![[r#"
            p = _Arg() {T=bool, index=0}
            x = _Arg() {T=float, index=1}
            switch = Switch(x, p)
            pivot = Identity(switch:1)
            minus = Const(^pivot) {dtype=float, value=float[](-1.0)}
            sum = AddV2(pivot, minus)
            merge = Merge(switch, sum)
            r = _Retval(merge) {index=0}
            OptimizeReport { folded: 1, shared: 0, bypassed: 0, fused: 0, spread: 0, unwaited: 0 }
        "#]],
    );
}

#[test]
fn known_shapes_are_constants() {
    check(
        "x = _Arg() {T=float, index=0, _output_shapes=[[2,3]]}
y = Neg(x)
shape = Shape(y)
unknown = _Arg() {T=float, index=1}
open = Shape(unknown)
r = _Retval(shape) {index=0}
s = _Retval(open) {index=1}",
        expect![[r#"
            x = _Arg() {T=float, _output_shapes=[[2,3]], index=0}
            shape = Const(^x) {dtype=int32, value=int32[2](2, 3)}
            unknown = _Arg() {T=float, index=1}
            open = Shape(unknown)
            r = _Retval(shape) {index=0}
            s = _Retval(open) {index=1}
            OptimizeReport { folded: 1, shared: 0, bypassed: 0, fused: 0, spread: 0, unwaited: 1 }
        "#]],
    );
}

#[test]
fn identities_are_bypassed_except_where_they_mean_something() {
    check(
        "x = _Arg() {T=float, index=0} @/job:a
plain = Identity(x) @/job:a
moved = Identity(plain) @/job:b
v = VariableV2() {dtype=float, shape=[]} @/job:a
snapshot = Identity(v) @/job:a
waits = Identity(x, ^snapshot) @/job:a
p = _Arg() {T=bool, index=1} @/job:a
switch = Switch(x, p) @/job:a
pivot = Identity(switch:1) @/job:a
data_only = Identity(switch) @/job:a
step = NoOp(^pivot, ^plain) @/job:a
sum = AddN(plain, moved, snapshot, waits, data_only) @/job:a
r = _Retval(sum) {index=0} @/job:a",
        expect![[r#"
            x = _Arg() {T=float, index=0} @/job:a
            moved = Identity(x) @/job:b
            v = VariableV2() {dtype=float, shape=[]} @/job:a
            snapshot = Identity(v) @/job:a
            waits = Identity(x, ^snapshot) @/job:a
            p = _Arg() {T=bool, index=1} @/job:a
            switch = Switch(x, p) @/job:a
            pivot = Identity(switch:1) @/job:a
            step = NoOp(^pivot, ^x) @/job:a
            sum = AddN(x, moved, snapshot, waits, switch) @/job:a
            r = _Retval(sum) {index=0} @/job:a
            OptimizeReport { folded: 0, shared: 0, bypassed: 2, fused: 0, spread: 0, unwaited: 0 }
        "#]],
    );
}

#[test]
fn arithmetic_that_changes_nothing() {
    check(
        "x = _Arg() {T=float, index=0, _output_shapes=[[?,3]]}
one = Const() {dtype=float, value=float[](1)}
zeros = Const() {dtype=float, value=float[1,3](0, 0, 0)}
wide = Const() {dtype=float, value=float[2,1,1](0, 0)}
a = Mul(one, x)
b = AddV2(a, zeros)
c = Sub(b, zeros)
not = Sub(zeros, c)
wider = AddV2(c, wide)
shape = Const() {dtype=int32, value=int32[2](-1, 3)}
same = Reshape(c, shape)
cast = Cast(same) {DstT=float}
r0 = _Retval(cast) {index=0}
r1 = _Retval(not) {index=1}
r2 = _Retval(wider) {index=2}",
        expect![[r#"
            x = _Arg() {T=float, _output_shapes=[[?,3]], index=0}
            zeros = Const() {dtype=float, value=float[1,3](0.0, 0.0, 0.0)}
            wide = Const() {dtype=float, value=float[2,1,1](0.0, 0.0)}
            not = Sub(zeros, x)
            wider = AddV2(x, wide)
            r0 = _Retval(x) {index=0}
            r1 = _Retval(not) {index=1}
            r2 = _Retval(wider) {index=2}
            OptimizeReport { folded: 0, shared: 0, bypassed: 5, fused: 0, spread: 0, unwaited: 0 }
        "#]],
    );
}

#[test]
fn equal_nodes_are_shared_unless_they_read_variables() {
    check(
        "x = _Arg() {T=float, index=0}
y = _Arg() {T=float, index=1}
a = Mul(x, y)
b = Mul(y, x)
c = Tanh(a)
d = Tanh(b)
elsewhere = Tanh(a) @/job:b
v = VariableV2() {dtype=float, shape=[]}
read1 = Identity(v)
read2 = Identity(v)
seed = Const() {dtype=int32, value=int32[1](2)}
random1 = RandomUniform(seed) {dtype=float}
random2 = RandomUniform(seed) {dtype=float}
all = AddN(c, d, elsewhere, read1, read2, random1, random2)
r = _Retval(all) {index=0}",
        expect![[r#"
            x = _Arg() {T=float, index=0}
            y = _Arg() {T=float, index=1}
            a = Mul(x, y)
            c = Tanh(a)
            elsewhere = Tanh(a) @/job:b
            v = VariableV2() {dtype=float, shape=[]}
            read1 = Identity(v)
            read2 = Identity(v)
            seed = Const() {dtype=int32, value=int32[1](2)}
            random1 = RandomUniform(seed) {dtype=float}
            random2 = RandomUniform(seed) {dtype=float}
            all = AddN(c, c, elsewhere, read1, read2, random1, random2)
            r = _Retval(all) {index=0}
            OptimizeReport { folded: 0, shared: 2, bypassed: 0, fused: 0, spread: 0, unwaited: 0 }
        "#]],
    );
}

#[test]
fn products_take_their_bias_and_activation_in() {
    check(
        "x = _Arg() {T=float, index=0, _output_shapes=[[?,2]]}
w = _Arg() {T=float, index=1, _output_shapes=[[2,3]]}
b = _Arg() {T=float, index=2, _output_shapes=[[3]]}
product = MatMul(x, w, ^b) {transpose_b=false}
biased = BiasAdd(product, b)
active = Relu(biased)
square = MatMul(active, w) {transpose_b=true}
c = _Arg() {T=float, index=3, _output_shapes=[[2]]}
added = AddV2(c, square)
tanh = Tanh(added)
image = _Arg() {T=float, index=4}
filter = _Arg() {T=float, index=5}
conv = Conv2D(image, filter) {padding=\"SAME\", strides=[1, 2, 2, 1]}
conv_biased = BiasAdd(conv, b)
conv_active = Relu(conv_biased)
r0 = _Retval(tanh) {index=0}
r1 = _Retval(conv_active) {index=1}",
        expect![[r#"
            x = _Arg() {T=float, _output_shapes=[[?,2]], index=0}
            w = _Arg() {T=float, _output_shapes=[[2,3]], index=1}
            b = _Arg() {T=float, _output_shapes=[[3]], index=2}
            active = _FusedMatMul(x, w, b, ^b) {fused_ops=["BiasAdd", "Relu"]}
            c = _Arg() {T=float, _output_shapes=[[2]], index=3}
            added = _FusedMatMul(active, w, c) {fused_ops=["BiasAdd"], transpose_b=true}
            tanh = Tanh(added)
            image = _Arg() {T=float, index=4}
            filter = _Arg() {T=float, index=5}
            conv_active = _FusedConv2D(image, filter, b) {T=float, TArgs=[float], fused_ops=["BiasAdd", "Relu"], num_args=1, padding="SAME", strides=[1, 2, 2, 1]}
            r0 = _Retval(tanh) {index=0}
            r1 = _Retval(conv_active) {index=1}
            OptimizeReport { folded: 0, shared: 0, bypassed: 0, fused: 5, spread: 0, unwaited: 0 }
        "#]],
    );
}

#[test]
fn what_others_need_is_not_fused_away() {
    check(
        "x = _Arg() {T=float, index=0}
b = _Arg() {T=float, index=1}
p1 = MatMul(x, x)
a1 = BiasAdd(p1, b)
r1 = Relu(a1)
p2 = MatMul(r1, x)
a2 = AddV2(p2, b)
p3 = MatMul(x, a2) @/job:foreign
a3 = BiasAdd(p3, b) @/job:foreign
o0 = _Retval(p1) {index=0}
o1 = _Retval(a1) {index=1}
o2 = _Retval(a3) {index=2}",
        expect![[r#"
            x = _Arg() {T=float, index=0}
            b = _Arg() {T=float, index=1}
            p1 = MatMul(x, x)
            a1 = BiasAdd(p1, b)
            r1 = Relu(a1)
            p2 = MatMul(r1, x)
            a2 = AddV2(p2, b)
            p3 = MatMul(x, a2) @/job:foreign
            a3 = BiasAdd(p3, b) @/job:foreign
            o0 = _Retval(p1) {index=0}
            o1 = _Retval(a1) {index=1}
            o2 = _Retval(a3) {index=2}
            OptimizeReport { folded: 0, shared: 0, bypassed: 0, fused: 0, spread: 0, unwaited: 0 }
        "#]],
    );
}

#[test]
fn chains_of_element_wise_ops_become_programs() {
    check(
        "a = _Arg() {T=float, index=0, _output_shapes=[[?,3]]} @/job:ours
b = _Arg() {T=float, index=1, _output_shapes=[[?,3]]} @/job:ours
s = _Arg() {T=float, index=2, _output_shapes=[[]]} @/job:ours
late = _Arg() {T=float, index=3} @/job:ours
scalar = Neg(s) @/job:ours
gate = Tanh(a) @/job:ours
product = Mul(gate, b) @/job:ours
scaled = Mul(scalar, product) @/job:ours
both = AddV2(scaled, gate, ^late) @/job:ours
shared = Neg(both) @/job:ours
left = Tanh(shared) @/job:ours
right = Relu(shared) @/job:ours
end = Sub(left, right) @/job:ours
there = Relu(end) @/job:foreign
far = Neg(there) @/job:foreign
r = _Retval(far) {index=0} @/job:ours",
        expect![[r#"
            a = _Arg() {T=float, _output_shapes=[[?,3]], index=0} @/job:ours
            b = _Arg() {T=float, _output_shapes=[[?,3]], index=1} @/job:ours
            s = _Arg() {T=float, _output_shapes=[[]], index=2} @/job:ours
            late = _Arg() {T=float, index=3} @/job:ours
            scalar = Neg(s) @/job:ours
            both = _FusedElementwise(a, b, scalar, ^late) {program=["Tanh 0 0", "Mul 3 1", "Mul 2 4", "AddV2 5 3"]} @/job:ours
            end = _FusedElementwise(both) {program=["Neg 0 0", "Tanh 1 1", "Relu 1 1", "Sub 2 3"]} @/job:ours
            there = Relu(end) @/job:foreign
            far = Neg(there) @/job:foreign
            r = _Retval(far) {index=0} @/job:ours
            OptimizeReport { folded: 0, shared: 0, bypassed: 0, fused: 6, spread: 0, unwaited: 0 }
        "#]],
    );
}

#[test]
fn a_gradient_that_nobody_reads_is_not_computed() {
    check(
        "x = _Arg() {T=float, index=0} @/job:worker
w = _Arg() {T=float, index=1} @/job:ps
hidden = MatMul(x, w) @/job:worker
slope = Neg(hidden) @/job:worker
for_x = MatMul(slope, w) {transpose_b=true} @/job:worker
for_w = MatMul(x, slope) {transpose_a=true} @/job:worker
both = NoOp(^for_x, ^for_w) @/job:worker
tied_x = Identity(for_x, ^both) @/job:worker
tied_w = Identity(for_w, ^both) @/job:worker
step = NoOp(^tied_x) @/job:worker
r = _Retval(tied_w) {index=0} @/job:worker",
        expect![[r#"
            x = _Arg() {T=float, index=0} @/job:worker
            w = _Arg() {T=float, index=1} @/job:ps
            hidden = MatMul(x, w) @/job:worker
            slope = Neg(hidden) @/job:worker
            for_w = MatMul(x, slope) {transpose_a=true} @/job:worker
            step = NoOp(^for_w) @/job:worker
            r = _Retval(for_w) {index=0} @/job:worker
            OptimizeReport { folded: 0, shared: 0, bypassed: 1, fused: 0, spread: 0, unwaited: 8 }
        "#]],
    );
}

#[test]
fn what_may_fail_or_change_something_is_waited_for() {
    check(
        "x = _Arg() {T=float, index=0}
idle = _Arg() {T=float, index=1}
checked = CheckNumerics(x) {message=\"is it?\"}
table = HashTableV2() {key_dtype=int64, value_dtype=float}
size = LookupTableSizeV2(table)
p = _Arg() {T=bool, index=2}
switch = Switch(x, p)
branch = Neg(switch:1)
sum = Neg(x, ^checked, ^size, ^branch, ^idle)
r = _Retval(sum) {index=0}",
        expect![[r#"
            x = _Arg() {T=float, index=0}
            idle = _Arg() {T=float, index=1}
            checked = CheckNumerics(x) {message="is it?"}
            table = HashTableV2() {key_dtype=int64, value_dtype=float}
            size = LookupTableSizeV2(table)
            p = _Arg() {T=bool, index=2}
            switch = Switch(x, p)
            branch = Neg(switch:1)
            sum = Neg(x, ^checked, ^size, ^branch, ^idle)
            r = _Retval(sum) {index=0}
            OptimizeReport { folded: 0, shared: 0, bypassed: 0, fused: 0, spread: 0, unwaited: 0 }
        "#]],
    );
}

#[test]
fn waits_between_devices_stay_gathered() {
    check(
        "a = _Arg() {T=float, index=0} @/job:ps
v = VariableV2() {dtype=float, shape=[]} @/job:ps
w = VariableV2() {dtype=float, shape=[]} @/job:ps
x = Assign(v, a) {T=float} @/job:ps
y = Assign(w, a) {T=float} @/job:ps
all = NoOp(^x, ^y) @/job:ps
here = NoOp(^x) @/job:ps
first = Neg(a, ^all) @/job:worker
second = Neg(a, ^here, ^a) @/job:ps
r0 = _Retval(first) {index=0} @/job:worker
r1 = _Retval(second) {index=1} @/job:ps",
        expect![[r#"
            a = _Arg() {T=float, index=0} @/job:ps
            v = VariableV2() {dtype=float, shape=[]} @/job:ps
            w = VariableV2() {dtype=float, shape=[]} @/job:ps
            x = Assign(v, a) @/job:ps
            y = Assign(w, a) @/job:ps
            all = NoOp(^x, ^y) @/job:ps
            first = Neg(a, ^all) @/job:worker
            second = Neg(a, ^x) @/job:ps
            r0 = _Retval(first) {index=0} @/job:worker
            r1 = _Retval(second) {index=1} @/job:ps
            OptimizeReport { folded: 0, shared: 0, bypassed: 0, fused: 0, spread: 0, unwaited: 2 }
        "#]],
    );
}

#[test]
fn loops_stay_loops() {
    check(
        "zero = Const() {dtype=float, value=float[](0)}
enter = Enter(zero) {frame_name=\"f\"}
merge = Merge(enter, next)
less = Less(merge, merge)
cond = LoopCond(less)
switch = Switch(merge, cond)
pivot = Identity(switch:1)
one = Const(^pivot) {dtype=float, value=float[](1)}
minus = Neg(one)
body = AddV2(pivot, minus)
last = Identity(body)
next = NextIteration(last)
exit = Exit(switch)
r = _Retval(exit) {index=0}",
        expect![[r#"
            zero = Const() {dtype=float, value=float[](0.0)}
            enter = Enter(zero) {frame_name="f"}
            merge = Merge(enter, next)
            less = Less(merge, merge)
            cond = LoopCond(less)
            switch = Switch(merge, cond)
            pivot = Identity(switch:1)
            minus = Const(^pivot) {dtype=float, value=float[](-1.0)}
            body = AddV2(pivot, minus)
            next = NextIteration(body)
            exit = Exit(switch)
            r = _Retval(exit) {index=0}
            OptimizeReport { folded: 1, shared: 0, bypassed: 1, fused: 0, spread: 0, unwaited: 0 }
        "#]],
    );
}
