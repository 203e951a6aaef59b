//! Adam's sparse update, for which TensorFlow has no op: several nodes apply it.

use crate::train::declaration::{Declared, Rows, cast_variable};
use crate::train::expression::{add, assign, div, group, mul, sub, unary};
use crate::variable::{Kind, Variable};
use graph::{Graph, Operation, Output};
use tensor::Result;

pub(super) fn apply_sparse(
    optimizer: &Declared,
    graph: &Graph,
    rows: &Rows<'_>,
    variable: &Variable,
) -> Result<Operation> {
    let dtype = variable.dtype();
    let (values, indices) = (rows.values, rows.indices()?);
    let (m, v) = (optimizer.slot(variable, "m")?, optimizer.slot(variable, "v")?);
    let beta1_power = PowerValue::new(graph, optimizer.power("beta1_power")?, variable)?;
    let beta2_power = PowerValue::new(graph, optimizer.power("beta2_power")?, variable)?;
    let learning_rate = optimizer.shared(graph, "learning_rate", dtype)?;
    let beta1 = optimizer.shared(graph, "beta1", dtype)?;
    let beta2 = optimizer.shared(graph, "beta2", dtype)?;
    let epsilon = optimizer.shared(graph, "epsilon", dtype)?;

    let unbiased2 = unary(graph, "Sqrt", &sub(graph, 1.0, beta2_power.output())?)?;
    let scaled = mul(graph, &learning_rate, &unbiased2)?;
    let rate = div(graph, &scaled, &sub(graph, 1.0, beta1_power.output())?)?;
    let m_part = mul(graph, values, &sub(graph, 1.0, &beta1)?)?;
    let m_new = decay_and_add(optimizer, graph, &m, &beta1, indices, &m_part)?;
    let squares = mul(graph, values, values)?;
    let v_part = mul(graph, &squares, &sub(graph, 1.0, &beta2)?)?;
    let v_new = decay_and_add(optimizer, graph, &v, &beta2, indices, &v_part)?;
    let root = unary(graph, "Sqrt", &v_new)?;
    let step = mul(graph, &rate, &m_new)?;
    let step = div(graph, &step, &add(graph, &root, &epsilon)?)?;
    let update = match variable.kind() {
        Kind::Ref => {
            let op = graph.op("AssignSub").input(variable.handle()).input(&step);
            op.attr("use_locking", optimizer.use_locking()).try_build()?
        }
        Kind::Resource => {
            let update = graph.op("AssignSubVariableOp").input(variable.handle()).input(&step).try_build()?;
            graph.control_dependencies(std::slice::from_ref(&update), |graph| variable.read_op(graph));
            update
        }
    };
    group(graph, &[update, m_new.op.clone(), v_new.op.clone()], "group_deps")
}

/// A power of beta: cast immediately if the variable has another type, otherwise read where it is used.
enum PowerValue {
    Cast(Output),
    Read(Box<Variable>),
}

impl PowerValue {
    fn new(graph: &Graph, power: Variable, variable: &Variable) -> Result<PowerValue> {
        if power.dtype() == variable.dtype() {
            return Ok(PowerValue::Read(Box::new(power)));
        }
        Ok(PowerValue::Cast(cast_variable(graph, &power, variable.dtype())?))
    }

    fn output(&self) -> Output {
        match self {
            PowerValue::Cast(output) => output.clone(),
            PowerValue::Read(power) => power.read(),
        }
    }
}

/// Adds `slot = slot * decay`, then adds rows to it; returns the final value.
fn decay_and_add(
    optimizer: &Declared,
    graph: &Graph,
    slot: &Variable,
    decay: &Output,
    indices: &Output,
    rows: &Output,
) -> Result<Output> {
    let decayed = mul(graph, slot.read(), decay)?;
    let assign = assign(graph, slot, &decayed, optimizer.use_locking())?;
    graph.control_dependencies(std::slice::from_ref(&assign), |graph| match slot.kind() {
        Kind::Ref => {
            let op = graph.op("ScatterAdd").input(slot.handle()).input(indices).input(rows);
            Ok(op.attr("use_locking", optimizer.use_locking()).try_build()?.output(0))
        }
        Kind::Resource => {
            let op = graph.op("ResourceScatterAdd").input(slot.handle()).input(indices).input(rows).try_build()?;
            Ok(graph.control_dependencies(&[op], |_| slot.read()))
        }
    })
}
