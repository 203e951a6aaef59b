//! Declarations of optimizers: their numbers, their slots, and the ops that apply a gradient. [`Declared`] implements an
//! optimizer from its declaration.

use super::expression::{Number, assign, cast, cast_number, group, mul, number, unary};
use super::optimizer::{OptimizerState, deduplicate};
use super::slot::{SlotInitial, constant_beside, like};
use crate::variable::{Kind, Variable};
use graph::{Graph, Operation, Output};
use tensor::{DType, Result, Status};

/// The properties that distinguish an optimizer.
pub(crate) struct Declaration {
    /// The default name.
    pub name: &'static str,
    /// The numbers, in the order in which TensorFlow adds their nodes.
    pub numbers: &'static [Hyper],
    /// The variables beside each trained one, in the order of their creation.
    pub slots: &'static [Slot],
    /// Variables that hold the power of a number, and are multiplied by it in each step.
    pub powers: &'static [Power],
    /// The inputs of `dense` and `sparse` after the variable.
    pub inputs: &'static [Input],
    /// Applies a dense gradient.
    pub dense: Update,
    /// Applies a sparse gradient.
    pub sparse: Update,
    /// Whether, for an index that occurs twice, `sparse` has the same effect as with the sum of its rows.
    pub sparse_adds_up: bool,
}

/// A number of an optimizer.
pub(crate) struct Hyper {
    /// The name, also of its node.
    pub name: &'static str,
    /// The default value; without one, the program must set the number.
    pub default: Option<f64>,
    /// The place of its node.
    pub node: Node,
}

/// The place of a number's node.
pub(crate) enum Node {
    /// One constant, shared by all updates.
    Shared,
    /// None, or one beside each update.
    Own,
    /// A function adds it, once for all updates.
    Derived(fn(&Declared, &Graph) -> Result<Output>),
}

/// A variable beside each trained one.
pub(crate) struct Slot {
    /// The name of the slot.
    pub name: &'static str,
    /// The initial value.
    pub first: First,
}

/// The initial value of a slot.
pub(crate) enum First {
    /// Zeros.
    Zeros,
    /// Ones.
    Ones,
    /// A number of the optimizer.
    Number(&'static str),
    /// Ones, times a number of the optimizer.
    OnesTimes(&'static str),
    /// Zeros that are created before the slot.
    ZerosBeside,
    /// A number of the optimizer that is created before the slot.
    NumberBeside(&'static str),
}

/// A variable that holds the power of a number.
pub(crate) struct Power {
    /// The name of the variable.
    pub name: &'static str,
    /// The number.
    pub of: &'static str,
}

/// An input of an update.
pub(crate) enum Input {
    /// A slot.
    Slot(&'static str),
    /// A shared or derived number, in the variable's type.
    Number(&'static str),
    /// A number with its own node beside the update.
    OwnNumber(&'static str),
    /// A copy of a derived tensor, in its own type.
    Copy(&'static str),
    /// The power of a number.
    Power(&'static str),
    /// The gradient; for `sparse` its rows, followed by their indices.
    Gradient,
}

/// How a gradient is applied.
pub(crate) enum Update {
    /// By one op; for a resource variable, `Resource` is prepended to its name.
    Op(&'static str),
    /// By nodes that a function adds.
    Nodes(fn(&Declared, &Graph, &Rows<'_>, &Variable) -> Result<Operation>),
}

/// Rows of a gradient.
pub(crate) struct Rows<'a> {
    /// The rows.
    pub values: &'a Output,
    /// The indices of the rows; `None` for a dense gradient.
    pub indices: Option<&'a Output>,
}

impl Rows<'_> {
    /// Returns the indices of a sparse update.
    pub fn indices(&self) -> Result<&Output> {
        self.indices.ok_or_else(|| Status::internal("a whole gradient has no indices"))
    }
}

/// A number that all updates share.
pub(crate) const fn shared(name: &'static str, default: f64) -> Hyper {
    Hyper { name, default: Some(default), node: Node::Shared }
}

/// A number that all updates share and that the program must set.
pub(crate) const fn required(name: &'static str) -> Hyper {
    Hyper { name, default: None, node: Node::Shared }
}

/// A number for initial values, or with a node beside each update.
pub(crate) const fn own(name: &'static str, default: f64) -> Hyper {
    Hyper { name, default: Some(default), node: Node::Own }
}

/// A slot that is initialized with zeros.
pub(crate) const fn zeros(name: &'static str) -> Slot {
    Slot { name, first: First::Zeros }
}

/// An optimizer that is implemented by its declaration.
pub struct Declared {
    record: &'static Declaration,
    name: String,
    use_locking: bool,
    numbers: Vec<(&'static str, Number)>,
    attrs: Vec<(&'static str, bool)>,
    global_step: Option<Variable>,
    state: OptimizerState,
}

impl Declared {
    /// Returns the optimizer with the numbers that have no defaults in its declaration.
    pub(crate) fn new(record: &'static Declaration, given: Vec<(&'static str, Number)>) -> Declared {
        let defaults = record.numbers.iter().filter_map(|hyper| Some((hyper.name, hyper.default?.into())));
        Declared {
            record,
            name: record.name.to_owned(),
            use_locking: false,
            numbers: defaults.chain(given).collect(),
            attrs: Vec::new(),
            global_step: None,
            state: OptimizerState::default(),
        }
    }

    pub(crate) fn set_record(&mut self, record: &'static Declaration) {
        self.record = record;
    }

    pub(crate) fn set_name(&mut self, name: &str) {
        self.name = name.to_owned();
    }

    pub(crate) fn set_use_locking(&mut self, use_locking: bool) {
        self.use_locking = use_locking;
    }

    pub(crate) fn set_number(&mut self, name: &'static str, value: impl Into<Number>) {
        self.numbers.retain(|(other, _)| *other != name);
        self.numbers.push((name, value.into()));
    }

    pub(crate) fn set_attr(&mut self, name: &'static str, value: bool) {
        self.attrs.retain(|(other, _)| *other != name);
        self.attrs.push((name, value));
    }

    pub(crate) fn set_global_step(&mut self, global_step: &Variable) {
        self.global_step = Some(global_step.clone());
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn state(&self) -> &OptimizerState {
        &self.state
    }

    pub(crate) fn use_locking(&self) -> bool {
        self.use_locking
    }

    pub(crate) fn global_step(&self) -> Result<&Variable> {
        self.global_step.as_ref().ok_or_else(|| Status::internal(format!("{} has no global step", self.name)))
    }

    pub(crate) fn number(&self, name: &str) -> Result<&Number> {
        let found = self.numbers.iter().find(|(other, _)| *other == name);
        found.map(|(_, value)| value).ok_or_else(|| Status::internal(format!("{} has no number '{name}'", self.name)))
    }

    /// Returns the numbers that were set but aren't in the declaration.
    #[cfg(test)]
    pub(crate) fn unknown_numbers(&self) -> Vec<&'static str> {
        let is_known = |name: &str| self.record.numbers.iter().any(|hyper| hyper.name == name);
        self.numbers.iter().map(|(name, _)| *name).filter(|name| !is_known(name)).collect()
    }

    /// Returns a number that must not be a tensor.
    fn plain_number(&self, name: &str) -> Result<f64> {
        match self.number(name)? {
            Number::Value(value) => Ok(*value),
            Number::Tensor(tensor) => Err(Status::invalid_argument(format!(
                "'{name}' of optimizer {} must be a plain number, but is the tensor '{}'",
                self.name,
                tensor.name()
            ))),
        }
    }

    /// Returns a shared or derived number in the given type.
    pub(crate) fn shared(&self, graph: &Graph, name: &'static str, dtype: DType) -> Result<Output> {
        cast(graph, &self.state.prepared(name)?, dtype)
    }

    pub(crate) fn slot(&self, variable: &Variable, name: &str) -> Result<Variable> {
        self.state.existing_slot(variable, name)
    }

    pub(crate) fn power(&self, name: &str) -> Result<Variable> {
        self.state.existing_other(name).ok_or_else(|| Status::internal(format!("{} has no '{name}'", self.name)))
    }

    pub(crate) fn create_slots(&self, graph: &Graph, variables: &[Variable]) -> Result<()> {
        if let Some(first) = variables.iter().min_by_key(|variable| variable.name()) {
            for power in self.record.powers {
                self.state.other(first, power.name, &number(self.plain_number(power.of)?, DType::Float)?)?;
            }
        }
        for variable in variables {
            for slot in self.record.slots {
                self.create_slot(graph, variable, slot)?;
            }
        }
        Ok(())
    }

    fn create_slot(&self, graph: &Graph, variable: &Variable, slot: &Slot) -> Result<()> {
        let make = |initial: SlotInitial<'_>| self.state.slot(variable, slot.name, &self.name, initial).map(drop);
        match slot.first {
            First::Zeros => make(SlotInitial::Zeros),
            First::Ones => make(SlotInitial::Ones),
            First::Number(name) => make(SlotInitial::Constant(self.plain_number(name)?)),
            First::OnesTimes(name) => {
                let value = self.plain_number(name)?;
                make(SlotInitial::Function(&|graph| mul(graph, &like(graph, variable, "ones", 1.0)?, value)))
            }
            First::ZerosBeside => make(SlotInitial::Tensor(&constant_beside(graph, variable, 0.0)?)),
            First::NumberBeside(name) => {
                let value = self.plain_number(name)?;
                make(SlotInitial::Tensor(&constant_beside(graph, variable, value)?))
            }
        }
    }

    pub(crate) fn prepare(&self, graph: &Graph) -> Result<()> {
        for hyper in self.record.numbers {
            let output = match hyper.node {
                Node::Shared => self.number(hyper.name)?.to_output(graph, hyper.name, DType::Float)?,
                Node::Derived(build) => build(self, graph)?,
                Node::Own => continue,
            };
            self.state.set_prepared(hyper.name, output);
        }
        Ok(())
    }

    pub(crate) fn apply_dense(&self, graph: &Graph, values: &Output, variable: &Variable) -> Result<Operation> {
        self.apply(graph, &self.record.dense, &Rows { values, indices: None }, variable)
    }

    pub(crate) fn apply_sparse(
        &self,
        graph: &Graph,
        values: &Output,
        indices: &Output,
        variable: &Variable,
    ) -> Result<Operation> {
        self.apply(graph, &self.record.sparse, &Rows { values, indices: Some(indices) }, variable)
    }

    pub(crate) fn apply_sparse_duplicate_indices(
        &self,
        graph: &Graph,
        values: &Output,
        indices: &Output,
        variable: &Variable,
    ) -> Result<Operation> {
        if self.record.sparse_adds_up {
            return self.apply_sparse(graph, values, indices, variable);
        }
        let (values, indices) = deduplicate(graph, values, indices)?;
        self.apply_sparse(graph, &values, &indices, variable)
    }

    fn apply(&self, graph: &Graph, update: &Update, rows: &Rows<'_>, variable: &Variable) -> Result<Operation> {
        match update {
            Update::Op(op) => self.update_op(graph, op, rows, variable),
            Update::Nodes(build) => build(self, graph, rows, variable),
        }
    }

    fn update_op(&self, graph: &Graph, op: &str, rows: &Rows<'_>, variable: &Variable) -> Result<Operation> {
        let op = if variable.kind() == Kind::Ref { op.to_owned() } else { format!("Resource{op}") };
        let mut inputs: Vec<UpdateInput> = vec![variable.handle().clone().into()];
        for input in self.record.inputs {
            self.add_input(graph, input, rows, variable, &mut inputs)?;
        }
        graph.name_scope(&op, |graph| {
            let whole = format!("{}/", graph.current_name_scope());
            let mut builder = graph.op(&op).name(&whole);
            for input in inputs {
                builder = match input {
                    UpdateInput::Ready(output) => builder.input(&output),
                    UpdateInput::Read(variable) => builder.input(&variable.read()),
                };
            }
            builder = builder.attr("use_locking", self.use_locking);
            for (name, value) in &self.attrs {
                builder = builder.attr(name, *value);
            }
            builder.try_build()
        })
    }

    fn add_input(
        &self,
        graph: &Graph,
        input: &Input,
        rows: &Rows<'_>,
        variable: &Variable,
        inputs: &mut Vec<UpdateInput>,
    ) -> Result<()> {
        let dtype = variable.dtype();
        let last = match input {
            Input::Slot(name) => self.slot(variable, name)?.handle().clone().into(),
            Input::Number(name) => self.shared(graph, name, dtype)?.into(),
            Input::OwnNumber(name) => cast_number(graph, self.number(name)?, dtype)?.into(),
            Input::Copy(name) => unary(graph, "Identity", &self.state.prepared(name)?)?.into(),
            Input::Power(name) => {
                let power = self.power(name)?;
                if power.dtype() == dtype {
                    UpdateInput::Read(Box::new(power))
                } else {
                    cast_variable(graph, &power, dtype)?.into()
                }
            }
            Input::Gradient => {
                inputs.push(rows.values.clone().into());
                let Some(indices) = rows.indices else { return Ok(()) };
                indices.clone().into()
            }
        };
        inputs.push(last);
        Ok(())
    }

    /// Multiplies the powers after all updates.
    pub(crate) fn finish(&self, graph: &Graph, updates: &[Operation], name: &str) -> Result<Operation> {
        let Some(first) = self.record.powers.first() else { return group(graph, updates, name) };
        let first = self.power(first.name)?;
        let mut all = updates.to_vec();
        all.extend(graph.control_dependencies(updates, |graph| {
            graph.colocate_with(first.op(), |graph| {
                let assigns = self.record.powers.iter().map(|power| {
                    let variable = self.power(power.name)?;
                    let factor = self.shared(graph, power.of, variable.dtype())?;
                    let next = mul(graph, variable.read(), &factor)?;
                    assign(graph, &variable, &next, self.use_locking)
                });
                assigns.collect::<Result<Vec<_>>>()
            })
        })?);
        group(graph, &all, name)
    }
}

/// An input of an update op: a tensor, or a variable that is read in the op's name scope.
enum UpdateInput {
    Ready(Output),
    Read(Box<Variable>),
}

impl From<Output> for UpdateInput {
    fn from(output: Output) -> UpdateInput {
        UpdateInput::Ready(output)
    }
}

/// Adds a variable's value in another type; a resource variable is read in the cast's name scope.
pub(crate) fn cast_variable(graph: &Graph, variable: &Variable, dtype: DType) -> Result<Output> {
    if variable.dtype() == dtype {
        return Ok(variable.read());
    }
    graph.name_scope("Cast", |graph| {
        let whole = format!("{}/", graph.current_name_scope());
        Ok(graph.op("Cast").name(&whole).input(&variable.read()).attr("DstT", dtype).try_build()?.output(0))
    })
}
