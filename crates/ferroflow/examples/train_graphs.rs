//! Writes the graphs of optimizers, savers and synchronous training to a directory, one GraphDef per file, so that a test
//! can compare them with TensorFlow's: `train_graphs DIRECTORY`.

use ferroflow::train::*;
use ferroflow::variable::{Kind, Variable, collections, create_global_step};
use ferroflow::variable_scope::{Reuse, get_variable, variable_scope};
use ferroflow::{DType, Grad, Graph, IndexedSlices, Output, PartialShape, Result, Status, initializers};
use prost::Message;
use std::sync::Arc;

fn main() -> Result<()> {
    let directory = std::env::args().nth(1).ok_or_else(|| Status::invalid_argument("usage: train_graphs DIRECTORY"))?;
    for name in OPTIMIZERS {
        for (kind_name, kind) in [("ref", Kind::Ref), ("resource", Kind::Resource)] {
            for (gradient_name, sparse) in [("dense", false), ("sparse", true)] {
                for (size_name, size) in SIZES {
                    let graph = Graph::new();
                    optimizer_graph(&graph, name, kind, sparse, size)?;
                    write(&graph, &directory, &format!("{name}-{kind_name}-{gradient_name}{size_name}"))?;
                }
            }
        }
    }
    for (name, sharded) in [("saver", false), ("saver-sharded", true)] {
        let graph = Graph::new();
        saver_graph(&graph, sharded)?;
        write(&graph, &directory, name)?;
    }
    let graph = Graph::new();
    sync_graph(&graph)?;
    write(&graph, &directory, "sync")?;
    let graph = Graph::new();
    variables_graph(&graph)?;
    write(&graph, &directory, "variables")?;
    let graph = Graph::new();
    helpers_graph(&graph)?;
    write(&graph, &directory, "helpers")
}

const OPTIMIZERS: &[&str] = &[
    "gradient_descent",
    "momentum",
    "nesterov",
    "adagrad",
    "adagrad_da",
    "adadelta",
    "adam",
    "rmsprop",
    "rmsprop_centered",
    "ftrl",
    "ftrl_shrinkage",
    "proximal_gradient_descent",
    "proximal_adagrad",
];

fn optimizer(name: &str, global_step: &Variable) -> Result<Box<dyn Optimizer>> {
    Ok(match name {
        "gradient_descent" => Box::new(GradientDescentOptimizer::new(0.1)),
        "momentum" => Box::new(MomentumOptimizer::new(0.1, 0.9)),
        "nesterov" => Box::new(MomentumOptimizer::new(0.1, 0.9).use_nesterov(true)),
        "adagrad" => Box::new(AdagradOptimizer::new(0.1)),
        "adagrad_da" => Box::new(AdagradDaOptimizer::new(0.1, global_step)),
        "adadelta" => Box::new(AdadeltaOptimizer::new(0.001)),
        "adam" => Box::new(AdamOptimizer::new(0.001)),
        "rmsprop" => Box::new(RmsPropOptimizer::new(0.1)),
        "rmsprop_centered" => Box::new(RmsPropOptimizer::new(0.1).centered(true)),
        "ftrl" => Box::new(FtrlOptimizer::new(0.1)),
        "ftrl_shrinkage" => Box::new(FtrlOptimizer::new(0.1).l2_shrinkage_regularization_strength(0.5)),
        "proximal_gradient_descent" => Box::new(ProximalGradientDescentOptimizer::new(0.1)),
        "proximal_adagrad" => Box::new(ProximalAdagradOptimizer::new(0.1)),
        other => return Err(Status::invalid_argument(format!("no optimizer is called {other}"))),
    })
}

fn placeholder(graph: &Graph, name: &str, dtype: DType, dims: &[i64]) -> Output {
    let shape = PartialShape::from_dims(dims);
    graph.op("Placeholder").name(name).attr("dtype", dtype).attr("shape", shape).output()
}

fn global_step(graph: &Graph, kind: Kind) -> Variable {
    let request = get_variable(graph, "global_step", &[]).dtype(DType::Int64).initializer(initializers::zeros());
    request.trainable(false).kind(kind).get()
}

/// The variables of an optimizer's graph: from 1,000 elements on TensorFlow fills what it otherwise has as constants.
struct Size {
    dtype: DType,
    rows: i64,
    columns: i64,
}

const SIZES: [(&str, Size); 2] = [
    ("", Size { dtype: DType::Float, rows: 4, columns: 3 }),
    ("-large", Size { dtype: DType::Double, rows: 2, columns: 1000 }),
];

fn optimizer_graph(graph: &Graph, name: &str, kind: Kind, sparse: bool, size: Size) -> Result<()> {
    let Size { dtype, rows, columns } = size;
    let variable = |name: &str, dims: &[i64], initializer: initializers::Initializer| {
        get_variable(graph, name, dims).dtype(dtype).initializer(initializer).kind(kind).get()
    };
    let v = variable("v", &[rows, columns], initializers::zeros());
    let w = variable("w", &[columns], initializers::ones());
    let step = global_step(graph, kind);
    let gradient = if sparse {
        let values = placeholder(graph, "gv", dtype, &[2, columns]);
        let indices = placeholder(graph, "gi", DType::Int32, &[2]);
        Grad::Slices(IndexedSlices { values, indices, dense_shape: None })
    } else {
        Grad::Dense(placeholder(graph, "gv", dtype, &[rows, columns]))
    };
    let dense = Grad::Dense(placeholder(graph, "gw", dtype, &[columns]));
    optimizer(name, &step)?.apply_gradients(&[(Some(gradient), v), (Some(dense), w)], Some(&step), None)?;
    Ok(())
}

fn setter() -> Result<ReplicaDeviceSetter> {
    ReplicaDeviceSetter::new(2).worker_device("/job:worker/task:1")
}

fn saver_graph(graph: &Graph, sharded: bool) -> Result<()> {
    setter()?.scope(graph, |_| {
        get_variable(graph, "v", &[4, 3]).initializer(initializers::zeros()).get();
        get_variable(graph, "w", &[3]).initializer(initializers::zeros()).kind(Kind::Resource).get();
        Saver::with_options(graph, SaverOptions { sharded, ..Default::default() })?;
        Ok(())
    })
}

fn sync_graph(graph: &Graph) -> Result<()> {
    setter()?.scope(graph, |_| {
        let step = global_step(graph, Kind::Ref);
        let v = get_variable(graph, "v", &[4, 3]).initializer(initializers::zeros()).get();
        let w = get_variable(graph, "w", &[3]).initializer(initializers::zeros()).get();
        let dense = Grad::Dense(placeholder(graph, "gv", DType::Float, &[4, 3]));
        let values = placeholder(graph, "gwv", DType::Float, &[2]);
        let indices = placeholder(graph, "gwi", DType::Int64, &[2]);
        let shape = placeholder(graph, "gws", DType::Int64, &[1]);
        let sparse = Grad::Slices(IndexedSlices { values, indices, dense_shape: Some(shape) });
        let optimizer = SyncReplicasOptimizer::new(GradientDescentOptimizer::new(0.1), 2, Some(3))?;
        optimizer.apply_gradients(&[(Some(dense), v), (Some(sparse), w)], Some(&step), None)?;
        optimizer.init_tokens_op(None)?;
        optimizer.chief_queue_runner()?;
        Ok(())
    })
}

fn variables_graph(graph: &Graph) -> Result<()> {
    let strategy = Arc::new(GreedyLoadBalancingStrategy::new(2, byte_size_load));
    setter()?.strategy(strategy).scope(graph, |_| {
        variable_scope(graph, "sc", Reuse::New, |_| -> Result<()> {
            let normal = initializers::random_normal(0.0, 1.0, Some(3));
            get_variable(graph, "v", &[4, 3]).initializer(normal).get();
            let truncated = initializers::truncated_normal(0.0, 0.1, None);
            get_variable(graph, "t", &[4, 3]).initializer(truncated).get();
            get_variable(graph, "u", &[4, 3]).get();
            get_variable(graph, "q", &[6]).initializer(initializers::constant(0.5)).get();
            let uniform = initializers::random_uniform(-1.0, 1.0, None);
            get_variable(graph, "ru", &[4, 3]).initializer(uniform).kind(Kind::Resource).get();
            Ok(())
        })?;
        create_global_step(graph);
        Variable::builder(graph, "local")
            .collections(&[collections::LOCAL_VARIABLES])
            .trainable(false)
            .build_constant(&ferroflow::Tensor::vector(&[1f32, 2.0]));
        global_variables_initializer(graph);
        local_variables_initializer(graph);
        report_uninitialized_variables(graph, None);
        Ok(())
    })
}

/// Adds what helps optimizers, each with a node `out_NAME`: decays, clipping, gated gradients and moving averages.
fn helpers_graph(graph: &Graph) -> Result<()> {
    let step = global_step(graph, Kind::Ref);
    let v = get_variable(graph, "v", &[4, 3]).initializer(initializers::constant(2.0)).get();
    let x = placeholder(graph, "x", DType::Float, &[4, 3]);
    let (values, indices) =
        (placeholder(graph, "y", DType::Float, &[2, 3]), placeholder(graph, "i", DType::Int32, &[2]));
    let out =
        |name: &str, output: &Output| drop(graph.op("Identity").name(&format!("out_{name}")).input(output).build());
    for (name, staircase) in [("", false), ("_staircase", true)] {
        out(&format!("exponential{name}"), &exponential_decay(0.1, &step, 10.0, 0.5, staircase));
        out(&format!("natural_exp{name}"), &natural_exp_decay(0.1, &step, 10.0, 0.5, staircase));
        out(&format!("inverse_time{name}"), &inverse_time_decay(0.1, &step, 10.0, 0.5, staircase));
    }
    out("polynomial", &polynomial_decay(1.0, &step, 10.0, 0.1, 2.0, false));
    out("polynomial_cycle", &polynomial_decay(1.0, &step, 10.0, 0.1, 2.0, true));
    out("cosine", &cosine_decay(0.1, &step, 10.0, 0.2));
    out("piecewise", &piecewise_constant(&step, &[2, 9], &[1.0, 0.5, 0.1]));
    out("by_value", &clip_by_value(&x, -0.5, 0.5));
    out("by_norm", &clip_by_norm(&x, 1.5));
    let slices = Grad::Slices(IndexedSlices { values, indices, dense_shape: None });
    let (clipped, norm) = clip_by_global_norm(&[Some(Grad::Dense(x.clone())), None, Some(slices)], 2.5);
    out("global_norm", &norm);
    for (name, gradient) in ["global_dense", "none", "global_slices"].iter().zip(clipped) {
        match gradient {
            Some(Grad::Dense(gradient)) => out(name, &gradient),
            Some(Grad::Slices(gradient)) => out(name, &gradient.values),
            None => {}
        }
    }
    let loss = ferroflow::ops::math::reduce_sum(&ferroflow::ops::math::square(&(v.value() * &x)), None, false);
    let optimizer = GradientDescentOptimizer::new(0.1);
    for (name, gate_gradients) in
        [("none", GateGradients::None), ("op", GateGradients::Op), ("graph", GateGradients::Graph)]
    {
        let options = GradientOptions { gate_gradients, ..Default::default() };
        if let Some((Some(Grad::Dense(gradient)), _)) = optimizer.compute_gradients(&loss, &options)?.first() {
            out(&format!("gate_{name}"), gradient);
        }
    }
    let averages = ExponentialMovingAverage::new(0.9, Some(&step));
    let update = averages.apply(graph, std::slice::from_ref(&v));
    graph.op("NoOp").name("update_averages").control(&update).build();
    let average = averages.average(&v).ok_or_else(|| Status::internal("no average"))?;
    out("average", average.value());
    Ok(())
}

fn write(graph: &Graph, directory: &str, name: &str) -> Result<()> {
    let path = std::path::Path::new(directory).join(format!("{name}.pb"));
    std::fs::write(&path, graph.to_graph_def().encode_to_vec())
        .map_err(|error| Status::unavailable(format!("{}: {error}", path.display())))
}
