//! TensorFlow's optimizers: a declaration of each, and the methods that set its numbers.

mod adam;
#[cfg(test)]
mod tests;

use super::declaration::{Declaration, Declared, First, Hyper, Input, Node, Power, Rows, Slot, Update};
use super::declaration::{own, required, shared, zeros};
use super::expression::{Number, add, binary, div, mul, read_as, unary};
use super::optimizer::{Optimizer, OptimizerState};
use crate::variable::{Kind, Variable};
use Input::{Copy, Gradient, Number as Shared, OwnNumber};
use graph::{Graph, Operation, Output};
use tensor::Result;

/// A documentation example of an optimizer: it is created with an option, and trains a weight.
macro_rules! example {
    ($optimizer:ident, $arguments:literal, $told:expr) => {
        concat!(
            "\n```\nuse ferroflow::{prelude::*, train::*, variable::create_global_step};\n\nlet g = Graph::new();\n",
            "let step = create_global_step(&g);\nlet w = Variable::new(&g, \"w\", &g.constant(4f32));\nlet optimizer = ",
            stringify!($optimizer),
            "::new(",
            $arguments,
            ")",
            $told,
            ";\nlet train = optimizer.minimize(&w.value().square(), Some(&step))?;\nlet session = Session::new(&g)?;\n",
            "session.run_ops(&[&global_variables_initializer(&g)])?;\nsession.run_ops(&[&train])?;\n",
            "assert!(session.eval::<f32>(w.value())? < 4.0);\n# Ok::<(), Status>(())\n```"
        )
    };
}

/// Adds the common options of optimizers, and implements [`Optimizer`] by their declarations.
macro_rules! declared {
    ($($optimizer:ident($arguments:literal)),* $(,)?) => {$(
        impl $optimizer {
            /// Sets the name, which is also that of the operation that applies the gradients.
            #[doc = example!($optimizer, $arguments, ".named(\"Trainer\")")]
            pub fn named(mut self, name: &str) -> Self {
                self.0.set_name(name);
                self
            }

            /// Sets whether updates of a variable lock it.
            #[doc = example!($optimizer, $arguments, ".use_locking(true)")]
            pub fn use_locking(mut self, use_locking: bool) -> Self {
                self.0.set_use_locking(use_locking);
                self
            }
        }

        impl Optimizer for $optimizer {
            fn name(&self) -> &str {
                self.0.name()
            }

            fn state(&self) -> &OptimizerState {
                self.0.state()
            }

            fn create_slots(&self, graph: &Graph, variables: &[Variable]) -> Result<()> {
                self.0.create_slots(graph, variables)
            }

            fn prepare(&self, graph: &Graph) -> Result<()> {
                self.0.prepare(graph)
            }

            fn apply_dense(&self, graph: &Graph, gradient: &Output, variable: &Variable) -> Result<Operation> {
                self.0.apply_dense(graph, gradient, variable)
            }

            fn apply_sparse(
                &self,
                graph: &Graph,
                values: &Output,
                indices: &Output,
                variable: &Variable,
            ) -> Result<Operation> {
                self.0.apply_sparse(graph, values, indices, variable)
            }

            fn apply_sparse_duplicate_indices(
                &self,
                graph: &Graph,
                values: &Output,
                indices: &Output,
                variable: &Variable,
            ) -> Result<Operation> {
                self.0.apply_sparse_duplicate_indices(graph, values, indices, variable)
            }

            fn finish(&self, graph: &Graph, updates: &[Operation], name: &str) -> Result<Operation> {
                self.0.finish(graph, updates, name)
            }
        }
    )*};
}

/// Adds methods that each set one number.
macro_rules! setters {
    ($optimizer:ident($arguments:literal) { $($(#[$doc:meta])* $name:ident: $ty:ty = $example:literal,)* }) => {
        impl $optimizer {
            $(
                $(#[$doc])*
                #[doc = example!($optimizer, $arguments, concat!(".", stringify!($name), "(", $example, ")"))]
                pub fn $name(mut self, $name: $ty) -> Self {
                    self.0.set_number(stringify!($name), $name);
                    self
                }
            )*
        }
    };
}

declared!(
    AdadeltaOptimizer("0.1"),
    AdagradDaOptimizer("0.1, &step"),
    AdagradOptimizer("0.1"),
    AdamOptimizer("0.1"),
    FtrlOptimizer("0.1"),
    GradientDescentOptimizer("0.1"),
    MomentumOptimizer("0.1, 0.9"),
    ProximalAdagradOptimizer("0.1"),
    ProximalGradientDescentOptimizer("0.1"),
    RmsPropOptimizer("0.1"),
);

const LEARNING_RATE: Input = Shared("learning_rate");
const L1: &str = "l1_regularization_strength";
const L2: &str = "l2_regularization_strength";
const INITIAL_ACCUMULATOR: &str = "initial_accumulator_value";

const GRADIENT_DESCENT: Declaration = Declaration {
    name: "GradientDescent",
    numbers: &[required("learning_rate")],
    slots: &[],
    powers: &[],
    inputs: &[LEARNING_RATE, Gradient],
    dense: Update::Op("ApplyGradientDescent"),
    sparse: Update::Nodes(gradient_descent_sparse),
    sparse_adds_up: true,
};

/// Gradient descent: moves every variable against its gradient.
#[doc = example!(GradientDescentOptimizer, "0.1", "")]
pub struct GradientDescentOptimizer(Declared);

impl GradientDescentOptimizer {
    /// Returns the optimizer.
    #[doc = example!(GradientDescentOptimizer, "0.1", "")]
    pub fn new(learning_rate: impl Into<Number>) -> Self {
        Self(Declared::new(&GRADIENT_DESCENT, vec![("learning_rate", learning_rate.into())]))
    }
}

fn gradient_descent_sparse(
    optimizer: &Declared,
    graph: &Graph,
    rows: &Rows<'_>,
    variable: &Variable,
) -> Result<Operation> {
    let learning_rate = optimizer.shared(graph, "learning_rate", variable.dtype())?;
    match variable.kind() {
        Kind::Ref => {
            let delta = mul(graph, rows.values, &learning_rate)?;
            let update = graph.op("ScatterSub").input(variable.handle()).input(rows.indices()?).input(&delta);
            update.attr("use_locking", optimizer.use_locking()).try_build()
        }
        Kind::Resource => {
            let negative = unary(graph, "Neg", rows.values)?;
            let delta = mul(graph, &negative, &learning_rate)?;
            graph.op("ResourceScatterAdd").input(variable.handle()).input(rows.indices()?).input(&delta).try_build()
        }
    }
}

const MOMENTUM: Declaration = Declaration {
    name: "Momentum",
    numbers: &[required("learning_rate"), required("momentum")],
    slots: &[zeros("momentum")],
    powers: &[],
    inputs: &[Input::Slot("momentum"), LEARNING_RATE, Gradient, Shared("momentum")],
    dense: Update::Op("ApplyMomentum"),
    sparse: Update::Op("SparseApplyMomentum"),
    sparse_adds_up: false,
};

/// Gradient descent with momentum: moves along a decaying sum of the gradients.
#[doc = example!(MomentumOptimizer, "0.1, 0.9", "")]
pub struct MomentumOptimizer(Declared);

impl MomentumOptimizer {
    /// Returns the optimizer.
    #[doc = example!(MomentumOptimizer, "0.1, 0.9", "")]
    pub fn new(learning_rate: impl Into<Number>, momentum: impl Into<Number>) -> Self {
        let given = vec![("learning_rate", learning_rate.into()), ("momentum", momentum.into())];
        Self(Declared::new(&MOMENTUM, given))
    }

    /// Sets whether to use Nesterov momentum.
    #[doc = example!(MomentumOptimizer, "0.1, 0.9", ".use_nesterov(true)")]
    pub fn use_nesterov(mut self, use_nesterov: bool) -> Self {
        self.0.set_attr("use_nesterov", use_nesterov);
        self
    }
}

const ADAGRAD: Declaration = Declaration {
    name: "Adagrad",
    numbers: &[required("learning_rate"), own(INITIAL_ACCUMULATOR, 0.1)],
    slots: &[Slot { name: "accumulator", first: First::Number(INITIAL_ACCUMULATOR) }],
    powers: &[],
    inputs: &[Input::Slot("accumulator"), LEARNING_RATE, Gradient],
    dense: Update::Op("ApplyAdagrad"),
    sparse: Update::Op("SparseApplyAdagrad"),
    sparse_adds_up: false,
};

/// Divides the learning rate of each element by the square root of the sum of its squared gradients.
#[doc = example!(AdagradOptimizer, "0.1", "")]
pub struct AdagradOptimizer(Declared);

impl AdagradOptimizer {
    /// Returns the optimizer, with TensorFlow's defaults for the other options.
    #[doc = example!(AdagradOptimizer, "0.1", "")]
    pub fn new(learning_rate: impl Into<Number>) -> Self {
        Self(Declared::new(&ADAGRAD, vec![("learning_rate", learning_rate.into())]))
    }
}

setters!(AdagradOptimizer("0.1") {
    /// Sets the initial value of the accumulators.
    initial_accumulator_value: f64 = "0.5",
});

const PROXIMAL_GRADIENT_DESCENT: Declaration = Declaration {
    name: "ProximalGradientDescent",
    numbers: &[required("learning_rate"), shared(L1, 0.0), shared(L2, 0.0)],
    slots: &[],
    powers: &[],
    inputs: &[LEARNING_RATE, Shared(L1), Shared(L2), Gradient],
    dense: Update::Op("ApplyProximalGradientDescent"),
    sparse: Update::Op("SparseApplyProximalGradientDescent"),
    sparse_adds_up: false,
};

/// Gradient descent with L1 and L2 regularization by proximal steps.
#[doc = example!(ProximalGradientDescentOptimizer, "0.1", "")]
pub struct ProximalGradientDescentOptimizer(Declared);

impl ProximalGradientDescentOptimizer {
    /// Returns the optimizer, with TensorFlow's defaults for the other options.
    #[doc = example!(ProximalGradientDescentOptimizer, "0.1", "")]
    pub fn new(learning_rate: impl Into<Number>) -> Self {
        Self(Declared::new(&PROXIMAL_GRADIENT_DESCENT, vec![("learning_rate", learning_rate.into())]))
    }
}

setters!(ProximalGradientDescentOptimizer("0.1") {
    /// Sets the strength of L1 regularization.
    l1_regularization_strength: impl Into<Number> = "0.01",
    /// Sets the strength of L2 regularization.
    l2_regularization_strength: impl Into<Number> = "0.01",
});

const PROXIMAL_ADAGRAD: Declaration = Declaration {
    name: "ProximalAdagrad",
    numbers: &[required("learning_rate"), shared(L1, 0.0), shared(L2, 0.0), own(INITIAL_ACCUMULATOR, 0.1)],
    slots: &[Slot { name: "accumulator", first: First::NumberBeside(INITIAL_ACCUMULATOR) }],
    powers: &[],
    inputs: &[Input::Slot("accumulator"), LEARNING_RATE, Shared(L1), Shared(L2), Gradient],
    dense: Update::Op("ApplyProximalAdagrad"),
    sparse: Update::Op("SparseApplyProximalAdagrad"),
    sparse_adds_up: false,
};

/// Adagrad with L1 and L2 regularization by proximal steps.
#[doc = example!(ProximalAdagradOptimizer, "0.1", "")]
pub struct ProximalAdagradOptimizer(Declared);

impl ProximalAdagradOptimizer {
    /// Returns the optimizer, with TensorFlow's defaults for the other options.
    #[doc = example!(ProximalAdagradOptimizer, "0.1", "")]
    pub fn new(learning_rate: impl Into<Number>) -> Self {
        Self(Declared::new(&PROXIMAL_ADAGRAD, vec![("learning_rate", learning_rate.into())]))
    }
}

setters!(ProximalAdagradOptimizer("0.1") {
    /// Sets the strength of L1 regularization.
    l1_regularization_strength: impl Into<Number> = "0.01",
    /// Sets the strength of L2 regularization.
    l2_regularization_strength: impl Into<Number> = "0.01",
    /// Sets the initial value of the accumulators.
    initial_accumulator_value: f64 = "0.5",
});

const ADADELTA: Declaration = Declaration {
    name: "Adadelta",
    numbers: &[required("lr"), shared("rho", 0.95), shared("epsilon", 1e-8)],
    slots: &[zeros("accum"), zeros("accum_update")],
    powers: &[],
    inputs: &[
        Input::Slot("accum"),
        Input::Slot("accum_update"),
        Shared("lr"),
        Shared("rho"),
        Shared("epsilon"),
        Gradient,
    ],
    dense: Update::Op("ApplyAdadelta"),
    sparse: Update::Op("SparseApplyAdadelta"),
    sparse_adds_up: false,
};

/// Scales steps by the ratio of decaying averages of squared updates and squared gradients.
#[doc = example!(AdadeltaOptimizer, "0.1", "")]
pub struct AdadeltaOptimizer(Declared);

impl AdadeltaOptimizer {
    /// Returns the optimizer, with TensorFlow's defaults for the other options.
    #[doc = example!(AdadeltaOptimizer, "0.1", "")]
    pub fn new(learning_rate: impl Into<Number>) -> Self {
        Self(Declared::new(&ADADELTA, vec![("lr", learning_rate.into())]))
    }
}

setters!(AdadeltaOptimizer("0.1") {
    /// Sets the decay of the averages.
    rho: impl Into<Number> = "0.5",
    /// Sets a small number that keeps divisors from being zero.
    epsilon: impl Into<Number> = "0.5",
});

const ADAGRAD_DA: Declaration = Declaration {
    name: "AdagradDA",
    numbers: &[
        required("learning_rate"),
        Hyper { name: "global_step", default: None, node: Node::Derived(next_step) },
        own("initial_gradient_squared_accumulator_value", 0.1),
        own(L1, 0.0),
        own(L2, 0.0),
    ],
    slots: &[
        Slot { name: "gradient_accumulator", first: First::ZerosBeside },
        Slot {
            name: "gradient_squared_accumulator",
            first: First::NumberBeside("initial_gradient_squared_accumulator_value"),
        },
    ],
    powers: &[],
    inputs: &[
        Input::Slot("gradient_accumulator"),
        Input::Slot("gradient_squared_accumulator"),
        Gradient,
        LEARNING_RATE,
        OwnNumber(L1),
        OwnNumber(L2),
        Copy("global_step"),
    ],
    dense: Update::Op("ApplyAdagradDA"),
    sparse: Update::Op("SparseApplyAdagradDA"),
    sparse_adds_up: false,
};

/// Adagrad with dual averaging, for sparse linear models.
#[doc = example!(AdagradDaOptimizer, "0.1, &step", "")]
pub struct AdagradDaOptimizer(Declared);

impl AdagradDaOptimizer {
    /// Returns the optimizer, with TensorFlow's defaults for the other options.
    #[doc = example!(AdagradDaOptimizer, "0.1, &step", "")]
    pub fn new(learning_rate: impl Into<Number>, global_step: &Variable) -> Self {
        let mut declared = Declared::new(&ADAGRAD_DA, vec![("learning_rate", learning_rate.into())]);
        declared.set_global_step(global_step);
        Self(declared)
    }
}

setters!(AdagradDaOptimizer("0.1, &step") {
    /// Sets the initial value of the accumulators of squared gradients.
    initial_gradient_squared_accumulator_value: f64 = "0.5",
    /// Sets the strength of L1 regularization.
    l1_regularization_strength: impl Into<Number> = "0.01",
    /// Sets the strength of L2 regularization.
    l2_regularization_strength: impl Into<Number> = "0.01",
});

/// Adds the current step's number. A copy on the worker saves traffic to the task that holds the step counter.
fn next_step(optimizer: &Declared, graph: &Graph) -> Result<Output> {
    let learning_rate = optimizer.state().prepared("learning_rate")?;
    graph.colocate_with(&learning_rate.op, |graph| {
        let copy = read_as(graph, optimizer.global_step()?, "Identity")?;
        add(graph, &copy, 1.0)
    })
}

const RMSPROP: Declaration = Declaration {
    name: "RMSProp",
    numbers: &[required("learning_rate"), shared("decay", 0.9), shared("momentum", 0.0), shared("epsilon", 1e-10)],
    slots: &[Slot { name: "rms", first: First::Ones }, zeros("momentum")],
    powers: &[],
    inputs: &[
        Input::Slot("rms"),
        Input::Slot("momentum"),
        LEARNING_RATE,
        Shared("decay"),
        Shared("momentum"),
        Shared("epsilon"),
        Gradient,
    ],
    dense: Update::Op("ApplyRMSProp"),
    sparse: Update::Op("SparseApplyRMSProp"),
    sparse_adds_up: false,
};

const RMSPROP_CENTERED: Declaration = Declaration {
    slots: &[Slot { name: "rms", first: First::Ones }, zeros("mg"), zeros("momentum")],
    inputs: &[
        Input::Slot("mg"),
        Input::Slot("rms"),
        Input::Slot("momentum"),
        LEARNING_RATE,
        Shared("decay"),
        Shared("momentum"),
        Shared("epsilon"),
        Gradient,
    ],
    dense: Update::Op("ApplyCenteredRMSProp"),
    sparse: Update::Op("SparseApplyCenteredRMSProp"),
    ..RMSPROP
};

/// Divides the gradient by the square root of a decaying average of its square.
#[doc = example!(RmsPropOptimizer, "0.1", "")]
pub struct RmsPropOptimizer(Declared);

impl RmsPropOptimizer {
    /// Returns the optimizer, with TensorFlow's defaults for the other options.
    #[doc = example!(RmsPropOptimizer, "0.1", "")]
    pub fn new(learning_rate: impl Into<Number>) -> Self {
        Self(Declared::new(&RMSPROP, vec![("learning_rate", learning_rate.into())]))
    }

    /// Sets whether to subtract the mean of the gradient, which estimates its variance.
    #[doc = example!(RmsPropOptimizer, "0.1", ".centered(true)")]
    pub fn centered(mut self, centered: bool) -> Self {
        self.0.set_record(if centered { &RMSPROP_CENTERED } else { &RMSPROP });
        self
    }
}

setters!(RmsPropOptimizer("0.1") {
    /// Sets the decay of the averages.
    decay: impl Into<Number> = "0.5",
    /// Sets the momentum.
    momentum: impl Into<Number> = "0.5",
    /// Sets a small number that keeps divisors from being zero.
    epsilon: impl Into<Number> = "0.5",
});

const L2_SHRINKAGE: &str = "l2_shrinkage_regularization_strength";

const FTRL: Declaration = Declaration {
    name: "Ftrl",
    numbers: &[
        required("learning_rate"),
        shared(L1, 0.0),
        Hyper { name: L2, default: Some(0.0), node: Node::Derived(ftrl_l2) },
        shared("beta", 0.0),
        shared(L2_SHRINKAGE, 0.0),
        shared("learning_rate_power", -0.5),
        own(INITIAL_ACCUMULATOR, 0.1),
    ],
    slots: &[Slot { name: "accum", first: First::OnesTimes(INITIAL_ACCUMULATOR) }, zeros("linear")],
    powers: &[],
    inputs: &[
        Input::Slot("accum"),
        Input::Slot("linear"),
        Gradient,
        LEARNING_RATE,
        Shared(L1),
        Shared(L2),
        Shared("learning_rate_power"),
    ],
    dense: Update::Op("ApplyFtrl"),
    sparse: Update::Op("SparseApplyFtrl"),
    sparse_adds_up: false,
};

const FTRL_SHRINKAGE: Declaration = Declaration {
    inputs: &[
        Input::Slot("accum"),
        Input::Slot("linear"),
        Gradient,
        LEARNING_RATE,
        Shared(L1),
        Shared(L2),
        Shared(L2_SHRINKAGE),
        Shared("learning_rate_power"),
    ],
    dense: Update::Op("ApplyFtrlV2"),
    sparse: Update::Op("SparseApplyFtrlV2"),
    ..FTRL
};

/// The FTRL-Proximal algorithm, for sparse linear models.
#[doc = example!(FtrlOptimizer, "0.1", "")]
pub struct FtrlOptimizer(Declared);

impl FtrlOptimizer {
    /// Returns the optimizer, with TensorFlow's defaults for the other options.
    #[doc = example!(FtrlOptimizer, "0.1", "")]
    pub fn new(learning_rate: impl Into<Number>) -> Self {
        Self(Declared::new(&FTRL, vec![("learning_rate", learning_rate.into())]))
    }

    /// Sets the strength of L2 shrinkage, which doesn't depend on the weights' history.
    #[doc = example!(FtrlOptimizer, "0.1", ".l2_shrinkage_regularization_strength(0.01)")]
    pub fn l2_shrinkage_regularization_strength(mut self, l2_shrinkage_regularization_strength: f64) -> Self {
        self.0.set_number(L2_SHRINKAGE, l2_shrinkage_regularization_strength);
        self.0.set_record(if l2_shrinkage_regularization_strength > 0.0 { &FTRL_SHRINKAGE } else { &FTRL });
        self
    }
}

setters!(FtrlOptimizer("0.1") {
    /// Sets the power by which the learning rate decreases.
    learning_rate_power: impl Into<Number> = "-0.5",
    /// Sets the initial value of the accumulators.
    initial_accumulator_value: f64 = "0.5",
    /// Sets the strength of L1 regularization.
    l1_regularization_strength: impl Into<Number> = "0.01",
    /// Sets the strength of L2 regularization.
    l2_regularization_strength: impl Into<Number> = "0.01",
    /// Sets a number that is added to the square root of the accumulators.
    beta: impl Into<Number> = "0.5",
});

/// Adds the L2 strength that includes beta, which the kernels don't support.
fn ftrl_l2(optimizer: &Declared, graph: &Graph) -> Result<Output> {
    let floor = binary(graph, "Maximum", "Maximum", optimizer.number("learning_rate")?.clone(), 1e-36)?;
    let twice = mul(graph, 2.0, &floor)?;
    let beta_part = div(graph, optimizer.number("beta")?.clone(), &twice)?;
    add(graph, optimizer.number(L2)?.clone(), &beta_part)
}

const ADAM: Declaration = Declaration {
    name: "Adam",
    numbers: &[required("learning_rate"), shared("beta1", 0.9), shared("beta2", 0.999), shared("epsilon", 1e-8)],
    slots: &[zeros("m"), zeros("v")],
    powers: &[Power { name: "beta1_power", of: "beta1" }, Power { name: "beta2_power", of: "beta2" }],
    inputs: &[
        Input::Slot("m"),
        Input::Slot("v"),
        Input::Power("beta1_power"),
        Input::Power("beta2_power"),
        LEARNING_RATE,
        Shared("beta1"),
        Shared("beta2"),
        Shared("epsilon"),
        Gradient,
    ],
    dense: Update::Op("ApplyAdam"),
    sparse: Update::Nodes(adam::apply_sparse),
    sparse_adds_up: false,
};

/// Scales steps by decaying averages of the gradient and of its square.
#[doc = example!(AdamOptimizer, "0.1", "")]
pub struct AdamOptimizer(Declared);

impl AdamOptimizer {
    /// Returns the optimizer, with TensorFlow's defaults for the other options.
    #[doc = example!(AdamOptimizer, "0.1", "")]
    pub fn new(learning_rate: impl Into<Number>) -> Self {
        Self(Declared::new(&ADAM, vec![("learning_rate", learning_rate.into())]))
    }
}

setters!(AdamOptimizer("0.1") {
    /// Sets the decay of the gradients' average.
    beta1: impl Into<Number> = "0.5",
    /// Sets the decay of the squares' average.
    beta2: impl Into<Number> = "0.5",
    /// Sets a small number that keeps divisors from being zero.
    epsilon: impl Into<Number> = "0.5",
});
