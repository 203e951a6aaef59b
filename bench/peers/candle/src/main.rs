//! The models in candle.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::rnn::{LSTMConfig, RNN, lstm};
use candle_nn::{AdamW, Conv2dConfig, Module, Optimizer, ParamsAdamW, SGD, VarBuilder, VarMap, conv2d, linear};
use measure::{BATCH, CLASSES, PIXELS, Task, measure};
use std::error::Error;

type Network = Box<dyn Fn(&Tensor) -> Result<Tensor>>;

fn mlp(vb: VarBuilder) -> Result<Network> {
    let hidden = linear(PIXELS, 100, vb.pp("hidden"))?;
    let output = linear(100, CLASSES, vb.pp("output"))?;
    Ok(Box::new(move |images| output.forward(&hidden.forward(images)?.relu()?)))
}

fn cnn(vb: VarBuilder) -> Result<Network> {
    let config = Conv2dConfig { padding: 2, ..Default::default() };
    let first = conv2d(1, 32, 5, config, vb.pp("first"))?;
    let second = conv2d(32, 64, 5, config, vb.pp("second"))?;
    let hidden = linear(7 * 7 * 64, 512, vb.pp("hidden"))?;
    let output = linear(512, CLASSES, vb.pp("output"))?;
    Ok(Box::new(move |images| {
        let images = images.reshape((BATCH, 1, 28, 28))?;
        let images = first.forward(&images)?.relu()?.max_pool2d(2)?;
        let images = second.forward(&images)?.relu()?.max_pool2d(2)?;
        output.forward(&hidden.forward(&images.flatten_from(1)?)?.relu()?)
    }))
}

fn recurrent(vb: VarBuilder) -> Result<Network> {
    let lstm = lstm(28, 128, LSTMConfig::default(), vb.pp("lstm"))?;
    let output = linear(128, CLASSES, vb.pp("output"))?;
    Ok(Box::new(move |images| {
        let states = lstm.seq(&images.reshape((BATCH, 28, 28))?)?;
        output.forward(states[states.len() - 1].h())
    }))
}

fn train(task: &Task, network: Network, mut optimizer: impl Optimizer) -> std::result::Result<(), Box<dyn Error>> {
    let images = Tensor::from_slice(&task.images, (BATCH, PIXELS), &Device::Cpu)?;
    let labels: Vec<u32> = task.labels.iter().map(|&label| label.into()).collect();
    let labels = Tensor::new(labels, &Device::Cpu)?;
    measure(|| {
        let loss = candle_nn::loss::cross_entropy(&network(&images)?, &labels)?;
        optimizer.backward_step(&loss)?;
        loss.to_scalar::<f32>()
    })
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let task = Task::from_arguments()?;
    let variables = VarMap::new();
    let vb = VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu);
    match task.model.as_str() {
        "mlp" => {
            let network = mlp(vb)?;
            // Without decay of the weights it is Adam.
            let adam = ParamsAdamW { lr: 0.001, weight_decay: 0.0, ..Default::default() };
            train(&task, network, AdamW::new(variables.all_vars(), adam)?)
        }
        "cnn" => {
            let network = cnn(vb)?;
            train(&task, network, SGD::new(variables.all_vars(), 0.01)?)
        }
        "lstm" => {
            let network = recurrent(vb)?;
            train(&task, network, SGD::new(variables.all_vars(), 0.1)?)
        }
        _ => Err(task.unknown()),
    }
}
