//! The models that `ferroflow train` trains: each worker builds its graph for itself, with the variables on the parameter
//! servers.

use super::flags::{Flags, ModelKind};
use ferroflow::data::mnist::{IMAGE_PIXELS, IMAGE_SIZE, NUM_CLASSES};
use ferroflow::train::{AdamOptimizer, Optimizer, ReplicaDeviceSetter, Saver, SyncReplicasHook, SyncReplicasOptimizer};
use ferroflow::variable::create_global_step;
use ferroflow::{
    DType, Graph, Operation, Output, PartialShape, Result, Shape, Status, Tensor, Variable, initializers, summary,
};
use ops::{array, math, nn};
use std::sync::Arc;

/// A model's graph.
pub struct Model {
    pub graph: Graph,
    pub images: Output,
    pub labels: Output,
    pub loss: Output,
    pub accuracy: Output,
    pub global_step: Variable,
    pub train: Operation,
    pub sync_hook: Option<SyncReplicasHook>,
    /// It is on the worker, so that checkpoints are written where the chief is, whatever machine the variables are on.
    pub saver: Arc<Saver>,
}

impl Model {
    /// Builds the graph of a worker.
    pub fn build(flags: &Flags, task: u32, device: &str, ps: u32, workers: u32) -> Result<Model> {
        let graph = Graph::new();
        let setter = ReplicaDeviceSetter::new(ps).worker_device(device)?;
        setter.scope(&graph, |_| {
            let global_step = create_global_step(&graph);
            let (pixels, classes) = (IMAGE_PIXELS as i64, NUM_CLASSES as i64);
            let images = array::placeholder(&graph, DType::Float, &PartialShape::from_dims(&[-1, pixels]));
            let labels = array::placeholder(&graph, DType::Float, &PartialShape::from_dims(&[-1, classes]));
            let logits = match flags.model {
                ModelKind::Mlp => mlp(&graph, &images, flags.hidden_units)?,
                ModelKind::Cnn => cnn(&graph, &images, flags.hidden_units)?,
                ModelKind::WideDeep => return Err(Status::internal("wide_deep is no model of digits")),
            };
            let losses = nn::softmax_cross_entropy_with_logits(nn::Labels(&labels), &logits);
            // The name is how the status page finds it.
            let loss = graph.name_scope("total_loss", |_| math::reduce_mean(&losses, None, false));
            let right = math::equal(&math::argmax(&logits, 1), &math::argmax(&labels, 1));
            let accuracy = math::reduce_mean(&math::cast(&right, DType::Float), None, false);
            summary::scalar("loss", &loss);
            summary::scalar("accuracy", &accuracy);
            let adam = AdamOptimizer::new(flags.rate());
            let (train, sync_hook) = if flags.is_sync() {
                let all = i32::try_from(workers).map_err(|_| Status::invalid_argument("too many workers"))?;
                let needed = flags.replicas_to_aggregate.unwrap_or(all);
                let sync = SyncReplicasOptimizer::new(adam, needed, Some(all))?;
                let train = sync.minimize(&loss, Some(&global_step))?;
                // No more tokens than it takes to begin: with spare ones, some workers could go on without the others.
                let tokens = (needed - all).max(0);
                (train, Some(sync.make_session_run_hook(task == 0, Some(tokens))?))
            } else {
                (adam.minimize(&loss, Some(&global_step))?, None)
            };
            let saver = Arc::new(Saver::new(&graph)?);
            Ok(Model { graph: graph.clone(), images, labels, loss, accuracy, global_step, train, sync_hook, saver })
        })
    }
}

fn weights(graph: &Graph, name: &str, dims: &[i64], stddev: f64, seed: i64) -> Result<Variable> {
    let first = initializers::truncated_normal(0.0, stddev, Some(seed));
    Ok(Variable::new(graph, name, &first(graph, &Shape::new(dims)?, DType::Float)?))
}

fn biases(graph: &Graph, name: &str, len: i64) -> Result<Variable> {
    let zeros = Tensor::zeros(DType::Float, Shape::new(&[len])?)?;
    Ok(Variable::new(graph, name, &graph.constant_tensor(&zeros)))
}

fn mlp(graph: &Graph, images: &Output, units: i64) -> Result<Output> {
    let (pixels, classes) = (IMAGE_PIXELS as i64, NUM_CLASSES as i64);
    let hid_w = weights(graph, "hid_w", &[pixels, units], 1.0 / (IMAGE_PIXELS as f64).sqrt(), 1)?;
    let hid_b = biases(graph, "hid_b", units)?;
    let sm_w = weights(graph, "sm_w", &[units, classes], 1.0 / (units as f64).sqrt(), 2)?;
    let sm_b = biases(graph, "sm_b", classes)?;
    let hidden = nn::relu(&nn::xw_plus_b(images, hid_w.value(), hid_b.value()));
    Ok(nn::xw_plus_b(&hidden, sm_w.value(), sm_b.value()))
}

fn cnn(graph: &Graph, images: &Output, units: i64) -> Result<Output> {
    let size = IMAGE_SIZE as i64;
    let mut layer = array::reshape_to(images, &[-1, size, size, 1]);
    let mut channels = 1;
    for (number, (filters, kernel)) in [(12, 5), (24, 5)].into_iter().enumerate() {
        let stddev = (2.0 / (kernel * kernel * channels) as f64).sqrt();
        let name = format!("conv{}", number + 1);
        let dims = [kernel, kernel, channels, filters];
        let filter = weights(graph, &format!("{name}_w"), &dims, stddev, number as i64 + 1)?;
        let bias = biases(graph, &format!("{name}_b"), filters)?;
        let convolved = nn::conv2d(&layer, filter.value(), [1, 1], nn::Padding::Same);
        layer = nn::max_pool(&nn::relu(&nn::bias_add(&convolved, bias.value())), [2, 2], [2, 2], nn::Padding::Same);
        channels = filters;
    }
    let flat = (size / 4) * (size / 4) * channels;
    let hid_w = weights(graph, "hid_w", &[flat, units], (2.0 / flat as f64).sqrt(), 3)?;
    let hid_b = biases(graph, "hid_b", units)?;
    let sm_w = weights(graph, "sm_w", &[units, NUM_CLASSES as i64], 1.0 / (units as f64).sqrt(), 4)?;
    let sm_b = biases(graph, "sm_b", NUM_CLASSES as i64)?;
    let hidden = nn::relu(&nn::xw_plus_b(&array::reshape_to(&layer, &[-1, flat]), hid_w.value(), hid_b.value()));
    Ok(nn::xw_plus_b(&hidden, sm_w.value(), sm_b.value()))
}
