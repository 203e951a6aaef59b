//! Helpers for tests of ops: `run_op`, `check_shape`, `check_gradient`, and [`TestSession`] for ops with state.

use crate::registry;
use graph::{AttrMap, Edge, Graph, NodeGraph, NodeId, OpLookup, Operation, Output, ShapeContext};
use kernel::{
    AsyncContext, BoxedKernel, Completion, FrameAndIteration, Grad, OpContext, Outputs, SessionKernels, Step, Value,
    Values, evaluate,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, mpsc};
use tensor::{DType, PartialShape, Result, Status, Tensor};

/// Builds attributes from pairs: `attrs![("T", DType::Float), ("axis", 1i64)]`.
macro_rules! attrs {
    ($(($name:expr, $value:expr)),* $(,)?) => {{
        #[allow(unused_mut)]
        let mut attrs = ::graph::AttrMap::default();
        $(attrs.set($name, $value);)*
        attrs
    }};
}
pub(crate) use attrs;

/// Runs one op on inputs; type attributes and counts that the inputs determine needn't be given.
pub(crate) fn run_op(op: &str, attrs: AttrMap, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let graph = Graph::with_ops(registry());
    let mut builder = graph.op(op);
    let (mut feeds, mut fed) = (Vec::new(), Vec::new());
    for input in inputs {
        let output = graph.op("Placeholder").attr("dtype", input.dtype()).try_build()?.output(0);
        feeds.push((output.edge(), input.clone()));
        builder = builder.input(&output);
        fed.push(output);
    }
    for (name, value) in attrs {
        builder = builder.attr(&name, value);
    }
    let op = builder.try_build()?;
    if let BoxedKernel::Async(_) = registry().create_kernel(graph.graph().node(op.id()), "")? {
        let session = TestSession { graph, ..TestSession::new() };
        let feeds: Vec<(&Output, Tensor)> = fed.iter().zip(inputs.iter().cloned()).collect();
        return session.run(&op, &feeds);
    }
    let mut fetches: Vec<Edge> = (0..op.num_outputs()).map(|port| op.output(port as u32).edge()).collect();
    // An op without outputs runs before a node that can be fetched.
    let after = graph.control_dependencies(&[op], |graph| graph.constant_tensor(&Tensor::scalar(0i32)));
    fetches.push(after.edge());
    let mut values = evaluate(registry(), &graph.graph(), &feeds, &fetches, &Arc::new(Step::detached()))?;
    values.pop();
    Ok(values)
}

/// The kernel of one node, which runs several times.
pub(crate) struct RepeatedOp {
    kernel: BoxedKernel,
    num_outputs: usize,
}

impl RepeatedOp {
    /// Makes the kernel of an op for inputs of these types.
    pub(crate) fn new(op: &str, attrs: AttrMap, inputs: &[Tensor]) -> RepeatedOp {
        let graph = Graph::with_ops(registry());
        let mut builder = graph.op(op);
        for input in inputs {
            builder = builder.input(&graph.op("Placeholder").attr("dtype", input.dtype()).output());
        }
        for (name, value) in attrs {
            builder = builder.attr(&name, value);
        }
        let op = builder.try_build().unwrap();
        let kernel = registry().create_kernel(graph.graph().node(op.id()), "").unwrap();
        RepeatedOp { kernel, num_outputs: op.num_outputs() }
    }

    pub(crate) fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let inputs = inputs.iter().cloned().map(Value::Tensor).collect();
        finished(&start_kernel(&self.kernel, inputs, self.num_outputs, &Arc::new(Step::detached()), "repeated"))
    }
}

/// A graph, and the state that its runs share: variables, queues and stateful kernels.
pub(crate) struct TestSession {
    pub graph: Graph,
    pub step: Arc<Step>,
    pub kernels: Arc<SessionKernels>,
}

impl TestSession {
    pub(crate) fn new() -> TestSession {
        TestSession {
            graph: Graph::with_ops(registry()),
            step: Arc::new(Step::detached()),
            kernels: Arc::new(SessionKernels::new()),
        }
    }

    /// Returns a placeholder for a feed.
    pub(crate) fn placeholder(&self, dtype: DType) -> Output {
        self.graph.op("Placeholder").attr("dtype", dtype).output()
    }

    /// Returns the same graph and resources in another step.
    pub(crate) fn another_step(&self) -> TestSession {
        let mut step = Step::detached();
        step.resources = self.step.resources.clone();
        step.session = self.step.session.clone();
        step.runner = self.step.runner.clone();
        step.functions = self.step.functions.clone();
        TestSession { graph: self.graph.clone(), step: Arc::new(step), kernels: self.kernels.clone() }
    }

    /// Runs what `fetch` needs and returns its value.
    pub(crate) fn fetch(&self, fetch: &Output, feeds: &[(&Output, Tensor)]) -> Result<Tensor> {
        Ok(self.run(&fetch.op, feeds)?.swap_remove(fetch.port as usize))
    }

    /// Runs an operation and returns all its outputs.
    pub(crate) fn run(&self, op: &Operation, feeds: &[(&Output, Tensor)]) -> Result<Vec<Tensor>> {
        finished(&self.start(op, feeds)?)
    }

    /// Runs what an operation needs and starts it; its outputs come through the channel.
    pub(crate) fn start(&self, op: &Operation, feeds: &[(&Output, Tensor)]) -> Result<mpsc::Receiver<Result<Outputs>>> {
        let graph = self.graph.graph();
        let mut values: BTreeMap<Edge, Value> = BTreeMap::new();
        for (output, tensor) in feeds {
            values.insert(output.edge(), Value::Tensor(tensor.clone()));
        }
        let mut needed = BTreeSet::new();
        let mut stack = vec![op.id()];
        while let Some(id) = stack.pop() {
            if needed.insert(id) {
                let node = graph.node(id);
                stack.extend(node.inputs.iter().filter(|edge| !values.contains_key(edge)).map(|edge| edge.node));
                stack.extend(&node.control_inputs);
            }
        }
        // A value with only one remaining consumer is moved, so that kernels may write in place.
        let mut uses: BTreeMap<Edge, usize> = BTreeMap::new();
        for edge in needed.iter().flat_map(|id: &NodeId| &graph.node(*id).inputs) {
            *uses.entry(*edge).or_default() += 1;
        }
        for id in graph.topological_order()?.into_iter().filter(|id| needed.contains(id)) {
            let node = graph.node(id);
            let mut inputs = Values::new();
            for (edge, slot) in node.inputs.iter().zip(&node.input_types) {
                let left = uses.entry(*edge).or_default();
                *left -= 1;
                let value = if *left == 0 { values.remove(edge) } else { values.get(edge).cloned() };
                inputs.push(match value.unwrap_or_default() {
                    Value::Ref(variable) if !slot.is_ref => Value::Tensor(variable.read()?),
                    other => other,
                });
            }
            let create = || registry().create_kernel(node, &self.step.device);
            let kernel = match node.schema.is_stateful() {
                true => self.kernels.find_or_create(&node.name, create)?,
                false => Arc::new(create()?),
            };
            let outputs = start_kernel(&kernel, inputs, node.output_types.len(), &self.step, &node.name);
            if id == op.id() {
                return Ok(outputs);
            }
            let outputs = outputs.recv().unwrap_or_else(|_| Err(Status::internal("no result")))?;
            for (port, value) in outputs.into_iter().enumerate() {
                values.insert(Edge { node: id, port: port as u32 }, value);
            }
        }
        Err(Status::internal("the operation isn't in its graph"))
    }
}

/// Waits for the started operation, and returns its outputs.
pub(crate) fn finished(started: &mpsc::Receiver<Result<Outputs>>) -> Result<Vec<Tensor>> {
    let outputs = started.recv().unwrap_or_else(|_| Err(Status::internal("no result")))?;
    let tensor = |value: Value| match value {
        Value::Tensor(tensor) => Ok(tensor),
        Value::Ref(variable) => variable.read(),
        Value::None => Err(Status::internal("an output has no value")),
    };
    outputs.into_iter().map(tensor).collect()
}

/// Returns whether the started operation is still waiting. A kernel that is done reports it before its cause returns, so the test
/// needn't wait.
pub(crate) fn waits(started: &mpsc::Receiver<Result<Outputs>>) -> bool {
    matches!(started.try_recv(), Err(mpsc::TryRecvError::Empty))
}

/// Starts a kernel; its outputs are sent through the channel, at once unless it waits.
pub(crate) fn start_kernel(
    kernel: &BoxedKernel,
    mut inputs: Values,
    num_outputs: usize,
    step: &Arc<Step>,
    name: &str,
) -> mpsc::Receiver<Result<Outputs>> {
    struct Done(mpsc::Sender<Result<Outputs>>);
    impl Completion for Done {
        fn complete(self: Box<Self>, result: Result<Outputs>) {
            // The test may have ended already.
            let _ = self.0.send(result);
        }
    }
    let (sender, receiver) = mpsc::channel();
    let mut outputs: Outputs = (0..num_outputs).map(|_| Value::None).collect();
    let frame = FrameAndIteration::default();
    match kernel {
        BoxedKernel::Sync(kernel) => {
            let result = kernel.compute(&mut OpContext::new(&mut inputs, &mut outputs, step, name, frame, false));
            Box::new(Done(sender)).complete(result.map(|()| outputs));
        }
        BoxedKernel::Async(kernel) => {
            let done = Box::new(Done(sender));
            kernel.compute(AsyncContext::new(inputs, outputs, step.clone(), name.into(), frame, false, done));
        }
    }
    receiver
}

/// Checks an op's shape function in the notation `"[2,?];[3]"` for inputs and outputs; `"?"` is an unknown shape.
pub(crate) fn check_shape(op: &str, attrs: AttrMap, inputs: &str, expected: &str) {
    let shapes = infer(op, attrs, inputs, &[]).unwrap_or_else(|status| panic!("{status}"));
    let shown: Vec<String> =
        shapes.iter().map(|shape| if shape.rank().is_none() { "?".to_owned() } else { shape.to_string() }).collect();
    assert_eq!(shown.join(";"), expected, "shapes of {op}");
}

/// Runs an op's shape function; `constants` are the values of some inputs.
pub(crate) fn infer(
    op: &str,
    mut attrs: AttrMap,
    inputs: &str,
    constants: &[(usize, Tensor)],
) -> Result<Vec<PartialShape>> {
    let info = registry().op(op).ok_or_else(|| Status::not_found(op))?;
    let inputs: Vec<PartialShape> = inputs.split(';').filter(|text| !text.is_empty()).map(parse_shape).collect();
    for def in &info.schema.attrs {
        if let (Some(default), false) = (&def.default_value, attrs.contains_key(&def.name)) {
            attrs.insert(def.name.clone(), default.clone());
        }
        if def.r#type == "type" && !attrs.contains_key(&def.name) {
            attrs.set(&def.name, DType::Float);
        }
    }
    let output_types = info.schema.output_types(&attrs)?;
    let handles = vec![Vec::new(); inputs.len()];
    let constant = |index: usize| constants.iter().find(|(input, _)| *input == index).map(|(_, value)| value.clone());
    let mut context = ShapeContext {
        schema: &info.schema,
        attrs: &attrs,
        output_types: &output_types,
        inputs: &inputs,
        input_handles: &handles,
        constant: &constant,
        constant_shape: &|_| None,
        outputs: vec![PartialShape::unknown(); output_types.len()],
        output_handles: vec![Vec::new(); output_types.len()],
    };
    (info.shape)(&mut context)?;
    Ok(context.outputs)
}

fn parse_shape(text: &str) -> PartialShape {
    let text = text.trim();
    if text == "?" {
        return PartialShape::unknown();
    }
    let inner = text.trim_start_matches('[').trim_end_matches(']');
    let dims: Vec<i64> =
        inner.split(',').filter(|dim| !dim.is_empty()).map(|dim| dim.trim().parse().unwrap_or(-1)).collect();
    PartialShape::from_dims(&dims)
}

/// Compares the gradient in the graph with finite differences, in double precision.
///
/// `build` computes the output from placeholders for `inputs`; gradients with respect to floating-point inputs are checked.
pub(crate) fn check_gradient(inputs: &[Tensor], build: impl Fn(&Graph, &[Output]) -> Output) {
    const DELTA: f64 = 1e-4;
    let graph = Graph::with_ops(registry());
    let xs: Vec<Output> = inputs
        .iter()
        .map(|input| {
            let shape = PartialShape::from(input.shape());
            graph.op("Placeholder").attr("dtype", input.dtype()).attr("shape", shape).output()
        })
        .collect();
    let y = build(&graph, &xs);
    // Different weights detect elements that are mixed up.
    let run = |fetch: Edge, inputs: &[Tensor], extra: Option<(Edge, Tensor)>| -> Tensor {
        let mut feeds: Vec<(Edge, Tensor)> = xs.iter().map(Output::edge).zip(inputs.iter().cloned()).collect();
        feeds.extend(extra);
        let graph: NodeGraph = graph.graph();
        let step = Arc::new(Step::detached());
        evaluate(registry(), &graph, &feeds, &[fetch], &step).unwrap_or_else(|status| panic!("{status}")).remove(0)
    };
    let value = run(y.edge(), inputs, None);
    let weights: Vec<f64> = (0..value.num_elements()).map(|index| 0.5 + 0.25 * (index % 7) as f64).collect();
    let weight = graph.op("Placeholder").attr("dtype", DType::Double).output();
    let weight_tensor = Tensor::from_slice(value.dims(), &weights).unwrap();
    let grads = graph
        .gradients_with(&[y.clone()], &xs, &[Some(weight.clone())], &[])
        .unwrap_or_else(|status| panic!("{status}"));
    for (index, (input, grad)) in inputs.iter().zip(&grads).enumerate() {
        if input.dtype() != DType::Double {
            continue;
        }
        let grad = match grad {
            Some(Grad::Dense(grad)) => grad.clone(),
            Some(Grad::Slices(slices)) => slices.to_dense(),
            None => panic!("no gradient flows to input {index}"),
        };
        let actual = run(grad.edge(), inputs, Some((weight.edge(), weight_tensor.clone())));
        let actual = actual.as_slice::<f64>().unwrap();
        for element in 0..input.num_elements() {
            let shifted = |delta: f64| -> f64 {
                let mut moved = inputs.to_vec();
                moved[index] = input.deep_copy().unwrap();
                moved[index].make_mut::<f64>().unwrap()[element] += delta;
                let value = run(y.edge(), &moved, None);
                value.as_slice::<f64>().unwrap().iter().zip(&weights).map(|(value, weight)| value * weight).sum()
            };
            let expected = (shifted(DELTA) - shifted(-DELTA)) / (2.0 * DELTA);
            let got = actual[element];
            assert!(
                (got - expected).abs() <= 1e-5 * (1.0 + expected.abs()),
                "input {index}, element {element}: the graph says {got}, differences say {expected}"
            );
        }
    }
}
