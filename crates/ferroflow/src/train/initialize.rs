//! Operations on all variables: initialization, and a list of the uninitialized ones.

use super::expression::group;
use crate::kept::{kept_in, kept_operation};
use crate::variable::{Kind, Variable, global_variables, local_variables, named_constant};
use bytes::Bytes;
use graph::{Graph, Operation, Output};
use tensor::{DType, PartialShape, Result, Shape, Tensor};

/// Adds an operation that initializes these variables.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::variables_initializer;
///
/// let g = Graph::new();
/// let w = Variable::new(&g, "w", &g.constant(3f32));
/// let init = variables_initializer(&g, &[w.clone()], "init_w");
/// let session = Session::new(&g)?;
/// session.run_ops(&[&init])?;
/// assert_eq!(session.eval::<f32>(w.value())?, 3.0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn variables_initializer(graph: &Graph, variables: &[Variable], name: &str) -> Operation {
    kept_operation(graph, "variables_initializer", || initializers(graph, variables, name))
}

fn initializers(graph: &Graph, variables: &[Variable], name: &str) -> Result<Operation> {
    let initializers: Vec<Operation> = variables.iter().map(|variable| variable.initializer().clone()).collect();
    group(graph, &initializers, name)
}

/// Adds an operation that initializes all variables that are shared among workers.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::global_variables_initializer;
///
/// let g = Graph::new();
/// let (w, b) = (Variable::new(&g, "w", &g.constant(3f32)), Variable::new(&g, "b", &g.constant(1f32)));
/// let session = Session::new(&g)?;
/// session.run_ops(&[&global_variables_initializer(&g)])?;
/// assert_eq!(session.eval::<f32>(&(w.value() + b.value()))?, 4.0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn global_variables_initializer(graph: &Graph) -> Operation {
    kept_operation(graph, "global_variables_initializer", || initializers(graph, &global_variables(graph)?, "init"))
}

/// Adds an operation that initializes the local variables of one worker.
///
/// ```
/// use ferroflow::metrics;
/// use ferroflow::prelude::*;
/// use ferroflow::train::local_variables_initializer;
///
/// let g = Graph::new();
/// let mean = metrics::mean(&g.constant([1f32, 2.0])).build();
/// let session = Session::new(&g)?;
/// session.run_ops(&[&local_variables_initializer(&g)])?;
/// assert_eq!(session.eval::<f32>(&mean.update)?, 1.5);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn local_variables_initializer(graph: &Graph) -> Operation {
    kept_operation(graph, "local_variables_initializer", || initializers(graph, &local_variables(graph)?, "init"))
}

/// Adds a vector with the names of the uninitialized variables among the given ones, or among all if none are given.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::report_uninitialized_variables;
///
/// let g = Graph::new();
/// let w = Variable::new(&g, "w", &g.constant(3f32));
/// let missing = report_uninitialized_variables(&g, None);
/// let session = Session::new(&g)?;
/// assert_eq!(session.run(&[&missing])?[0].to_strings()?, ["w"]);
/// session.run_ops(&[w.initializer()])?;
/// assert_eq!(session.run(&[&missing])?[0].num_elements(), 0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn report_uninitialized_variables(graph: &Graph, variables: Option<&[Variable]>) -> Output {
    kept_in(graph, "report_uninitialized_variables", &[], || uninitialized(graph, variables), Output::clone)
}

fn uninitialized(graph: &Graph, variables: Option<&[Variable]>) -> Result<Output> {
    let all = match variables {
        Some(variables) => variables.to_vec(),
        None => [global_variables(graph)?, local_variables(graph)?].concat(),
    };
    graph.name_scope("report_uninitialized_variables", |graph| {
        if all.is_empty() {
            return Ok(named_constant(graph, "Const", &Tensor::from_strings(Shape::vector(0), Vec::new())?));
        }
        let mut initialized = Vec::with_capacity(all.len());
        for variable in &all {
            initialized.push(is_initialized(graph, variable)?);
        }
        graph.device("/device:CPU:0", |graph| {
            let stack = graph.op("Pack").name("stack").inputs(&initialized).try_build()?.output(0);
            let missing = graph.op("LogicalNot").input(&stack).try_build()?.output(0);
            let names: Vec<Bytes> = all.iter().map(|variable| Bytes::from(variable.name())).collect();
            let names = graph.constant_tensor(&Tensor::from_strings(Shape::vector(names.len()), names)?);
            boolean_mask(graph, &names, &missing, all.len())
        })
    })
}

fn is_initialized(graph: &Graph, variable: &Variable) -> Result<Output> {
    let op = match variable.kind() {
        Kind::Ref => graph.op("IsVariableInitialized").input(variable.handle()).attr("dtype", variable.dtype()),
        Kind::Resource => graph.op("VarIsInitializedOp").input(variable.handle()),
    };
    Ok(op.try_build()?.output(0))
}

/// Adds the elements of a vector of `len` where `mask` is true, with the nodes that TensorFlow uses for any rank.
fn boolean_mask(graph: &Graph, values: &Output, mask: &Output, len: usize) -> Result<Output> {
    graph.name_scope("boolean_mask", |graph| {
        let len = i32::try_from(len).unwrap_or(i32::MAX);
        let vector = |name: &str, value: i32| named_constant(graph, name, &Tensor::vector(&[value]));
        let slice = |begin: i32, end: i32, begin_mask: i64, end_mask: i64| {
            let shape = vector("Shape", len);
            graph.name_scope("strided_slice", |graph| {
                let whole = format!("{}/", graph.current_name_scope());
                let index = |name: &str, value: i32| named_constant(graph, name, &Tensor::vector(&[value]));
                graph
                    .op("StridedSlice")
                    .name(&whole)
                    .input(&shape)
                    .input(&index("stack", begin))
                    .input(&index("stack_1", end))
                    .input(&index("stack_2", 1))
                    .attr("begin_mask", begin_mask)
                    .attr("end_mask", end_mask)
                    .try_build()
                    .map(|op| op.output(0))
            })
        };
        let masked = slice(0, 1, 0, 0)?;
        let product = graph.name_scope("Prod", |graph| {
            let whole = format!("{}/", graph.current_name_scope());
            let axes = named_constant(graph, "reduction_indices", &Tensor::vector(&[0i32]));
            graph.op("Prod").name(&whole).input(&masked).input(&axes).try_build().map(|op| op.output(0))
        })?;
        let (before, after) = (slice(0, 0, 1, 0)?, slice(1, 0, 0, 1)?);
        let shape = graph.name_scope("concat", |graph| {
            let whole = format!("{}/", graph.current_name_scope());
            let middle = graph.op("Pack").name("values_1").input(&product).try_build()?.output(0);
            let axis = named_constant(graph, "axis", &Tensor::scalar(0i32));
            let op = graph.op("ConcatV2").name(&whole).inputs([&before, &middle, &after]).input(&axis).attr("N", 3i64);
            op.try_build().map(|op| op.output(0))
        })?;
        let flat = graph.op("Reshape").input(values).input(&shape).try_build()?.output(0);
        let flat_mask = graph.name_scope("Reshape_1", |graph| {
            let whole = format!("{}/", graph.current_name_scope());
            let shape = named_constant(graph, "shape", &Tensor::vector(&[-1i32]));
            graph.op("Reshape").name(&whole).input(mask).input(&shape).try_build().map(|op| op.output(0))
        })?;
        let found = graph.op("Where").input(&flat_mask).attr("T", DType::Bool).try_build()?.output(0);
        let indices = graph.op("Squeeze").input(&found).attr("squeeze_dims", &[1i64][..]).try_build()?.output(0);
        graph.name_scope("GatherV2", |graph| {
            let whole = format!("{}/", graph.current_name_scope());
            let axis = named_constant(graph, "axis", &Tensor::scalar(0i32));
            let gathered = graph.op("GatherV2").name(&whole).input(&flat).input(&indices).input(&axis).try_build()?;
            let gathered = gathered.output(0);
            gathered.set_shape(&PartialShape::unknown_of_rank(1))?;
            Ok(gathered)
        })
    })
}
