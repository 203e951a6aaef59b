//! Builds the gradient of a function as the body of another function.

use super::{Grad, GradientArgs, Graph, Output};
use crate::attr::AttrMap;
use crate::{Edge, FunctionBody, FunctionLibrary, NodeGraph, NodeId, OpLookup};
use proto::NameAttrList;
use std::sync::Arc;
use tensor::{DType, Result, Status};

/// The op that computes the gradient of the function that its attribute `f` names.
pub const SYMBOLIC_GRADIENT: &str = "SymbolicGradient";

impl FunctionLibrary {
    /// Returns the body that computes a function's gradient. Its arguments are the function's arguments followed by the gradients
    /// with respect to the function's results; its results are the gradients with respect to the function's arguments.
    ///
    /// Uses the gradient function of the library if there is one, and else the gradients of the body's ops.
    pub fn instantiate_gradient(
        self: &Arc<Self>,
        function: &NameAttrList,
        ops: &'static dyn OpLookup,
    ) -> Result<FunctionBody> {
        let attrs = AttrMap::from(&function.attr);
        if let Some(gradient) = self.gradient(&function.name) {
            return self.instantiate(gradient, &attrs, ops);
        }
        let body = self.instantiate(&function.name, &attrs, ops)?;
        gradient_of(body, ops).map_err(|status| status.context(format!("the gradient of function '{}'", function.name)))
    }
}

/// Returns the gradients of a node that calls a function by name: a call of the function's gradient.
pub(super) fn call_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let call = args.op;
    let node = call.graph().graph().node(call.id()).clone();
    let mut inputs = call.inputs();
    let input_types: Vec<DType> = inputs.iter().map(Output::dtype).collect();
    for index in 0..call.num_outputs() {
        inputs.push(match args.grad(index) {
            Some(grad) => grad,
            None => zeros_like(&call.output(index as u32))?,
        });
    }
    let types: Vec<DType> = inputs.iter().map(Output::dtype).collect();
    let own = node.attrs.iter().filter(|(name, _)| !name.starts_with('_'));
    let attr = own.map(|(name, value)| (name.to_string(), value.clone())).collect();
    let gradient = call
        .graph()
        .op(SYMBOLIC_GRADIENT)
        .inputs(&inputs)
        .attr("Tin", &types[..])
        .attr("Tout", &input_types[..])
        .attr("f", NameAttrList { name: node.op().to_owned(), attr })
        .try_build()?;
    let grads = input_types.iter().enumerate();
    Ok(grads.map(|(index, &dtype)| has_gradient(dtype).then(|| gradient.output(index as u32).into())).collect())
}

fn gradient_of(mut body: FunctionBody, ops: &'static dyn OpLookup) -> Result<FunctionBody> {
    // `compact` changes ids, but not names.
    let name_of = |graph: &NodeGraph, id: NodeId| graph.node(id).name.clone();
    let arg_names: Vec<String> = body.args.iter().map(|&id| name_of(&body.graph, id)).collect();
    let mut result_names = Vec::with_capacity(body.results.len());
    for &result in &body.results {
        let missing = || Status::internal("a result has no input");
        let Edge { node, port } = *body.graph.node(result).inputs.first().ok_or_else(missing)?;
        result_names.push((name_of(&body.graph, node), port));
    }
    body.results.iter().for_each(|&result| body.graph.remove(result));
    let graph = Graph::on(body.graph.compact()?, ops)?;
    let find = |name: &str, port: u32| {
        let operation = graph
            .operation(name)
            .ok_or_else(|| Status::internal(format!("node '{name}' is missing from the graph")))?;
        operation.try_output(port)
    };
    let args: Vec<Output> = arg_names.iter().map(|name| find(name, 0)).collect::<Result<_>>()?;
    let mut all_args = args.clone();
    let (mut ys, mut grad_ys) = (Vec::new(), Vec::new());
    for (name, port) in &result_names {
        let y = find(name, *port)?;
        let index = all_args.len() as i64;
        let grad = graph.op("_Arg").attr("T", y.dtype()).attr("index", index).try_build()?.try_output(0)?;
        all_args.push(grad.clone());
        if has_gradient(y.dtype()) {
            ys.push(y);
            grad_ys.push(Some(grad));
        }
    }
    let mut results = Vec::with_capacity(args.len());
    for (index, (arg, grad)) in args.iter().zip(graph.gradients_with(&ys, &args, &grad_ys, &args)?).enumerate() {
        let grad = match grad {
            Some(Grad::Dense(output)) => output,
            Some(Grad::Slices(slices)) => slices.to_dense(),
            None => zeros_like(arg)?,
        };
        let result =
            graph.op("_Retval").input(&grad).attr("T", grad.dtype()).attr("index", index as i64).try_build()?;
        results.push(result.id());
    }
    graph.finish()?;
    let args = all_args.iter().map(|arg| arg.op.id()).collect();
    Ok(FunctionBody { graph: graph.graph(), args, results, control_results: Vec::new() })
}

fn zeros_like(output: &Output) -> Result<Output> {
    output.graph().op("ZerosLike").input(output).try_build()?.try_output(0)
}

fn has_gradient(dtype: DType) -> bool {
    dtype.is_floating() || dtype.is_complex() || matches!(dtype, DType::Resource | DType::Variant)
}
