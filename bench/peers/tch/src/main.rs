//! The models in tch, which calls PyTorch's library.

use measure::{BATCH, CLASSES, PIXELS, Task, measure};
use std::error::Error;
use tch::nn::{self, Module, OptimizerConfig, RNN};
use tch::{Device, Tensor};

type Network = Box<dyn Fn(&Tensor) -> Tensor>;

fn mlp(path: &nn::Path) -> Network {
    let hidden = nn::linear(path / "hidden", PIXELS as i64, 100, Default::default());
    let output = nn::linear(path / "output", 100, CLASSES as i64, Default::default());
    Box::new(move |images| images.apply(&hidden).relu().apply(&output))
}

fn cnn(path: &nn::Path) -> Network {
    let config = nn::ConvConfig { padding: 2, ..Default::default() };
    let first = nn::conv2d(path / "first", 1, 32, 5, config);
    let second = nn::conv2d(path / "second", 32, 64, 5, config);
    let hidden = nn::linear(path / "hidden", 7 * 7 * 64, 512, Default::default());
    let output = nn::linear(path / "output", 512, CLASSES as i64, Default::default());
    Box::new(move |images| {
        let images = images.view([BATCH as i64, 1, 28, 28]);
        let images = images.apply(&first).relu().max_pool2d_default(2).apply(&second).relu().max_pool2d_default(2);
        output.forward(&images.view([BATCH as i64, 7 * 7 * 64]).apply(&hidden).relu())
    })
}

fn recurrent(path: &nn::Path) -> Network {
    let lstm = nn::lstm(path / "lstm", 28, 128, Default::default());
    let output = nn::linear(path / "output", 128, CLASSES as i64, Default::default());
    Box::new(move |images| {
        let (outputs, _) = lstm.seq(&images.view([BATCH as i64, 28, 28]));
        outputs.select(1, -1).apply(&output)
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let task = Task::from_arguments()?;
    let variables = nn::VarStore::new(Device::Cpu);
    let path = variables.root();
    let (network, mut optimizer) = match task.model.as_str() {
        "mlp" => (mlp(&path), nn::Adam::default().build(&variables, 0.001)?),
        "cnn" => (cnn(&path), nn::Sgd::default().build(&variables, 0.01)?),
        "lstm" => (recurrent(&path), nn::Sgd::default().build(&variables, 0.1)?),
        _ => return Err(task.unknown()),
    };
    let images = Tensor::from_slice(&task.images).view([BATCH as i64, PIXELS as i64]);
    let labels: Vec<i64> = task.labels.iter().map(|&label| label.into()).collect();
    let labels = Tensor::from_slice(&labels);
    measure(|| {
        let loss = network(&images).cross_entropy_for_logits(&labels);
        optimizer.backward_step(&loss);
        Ok::<f32, Box<dyn Error>>(loss.double_value(&[]) as f32)
    })
}
