//! The models in burn, on its CPU back ends `flex` and `ndarray`.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Linear, LinearConfig, Lstm, LstmConfig, PaddingConfig2d};
use burn::optim::{AdamConfig, GradientsParams, ModuleOptimizer, SgdConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Int, Tensor, TensorData};
use measure::{BATCH, CLASSES, PIXELS, Task, measure};
use std::error::Error;

trait Network: Module {
    fn logits(&self, images: Tensor<2>) -> Tensor<2>;
}

#[derive(Module, Debug)]
struct Mlp {
    hidden: Linear,
    output: Linear,
}

impl Mlp {
    fn new(device: &Device) -> Mlp {
        let hidden = LinearConfig::new(PIXELS, 100).init(device);
        Mlp { hidden, output: LinearConfig::new(100, CLASSES).init(device) }
    }
}

impl Network for Mlp {
    fn logits(&self, images: Tensor<2>) -> Tensor<2> {
        self.output.forward(relu(self.hidden.forward(images)))
    }
}

#[derive(Module, Debug)]
struct Cnn {
    first: Conv2d,
    second: Conv2d,
    pool: MaxPool2d,
    hidden: Linear,
    output: Linear,
}

impl Cnn {
    fn new(device: &Device) -> Cnn {
        let conv = |from, to| Conv2dConfig::new([from, to], [5, 5]).with_padding(PaddingConfig2d::Same).init(device);
        Cnn {
            first: conv(1, 32),
            second: conv(32, 64),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            hidden: LinearConfig::new(7 * 7 * 64, 512).init(device),
            output: LinearConfig::new(512, CLASSES).init(device),
        }
    }
}

impl Network for Cnn {
    fn logits(&self, images: Tensor<2>) -> Tensor<2> {
        let images = images.reshape([BATCH, 1, 28, 28]);
        let images = self.pool.forward(relu(self.first.forward(images)));
        let images = self.pool.forward(relu(self.second.forward(images)));
        self.output.forward(relu(self.hidden.forward(images.reshape([BATCH, 7 * 7 * 64]))))
    }
}

#[derive(Module, Debug)]
struct Recurrent {
    lstm: Lstm,
    output: Linear,
}

impl Recurrent {
    fn new(device: &Device) -> Recurrent {
        let lstm = LstmConfig::new(28, 128, true).init(device);
        Recurrent { lstm, output: LinearConfig::new(128, CLASSES).init(device) }
    }
}

impl Network for Recurrent {
    fn logits(&self, images: Tensor<2>) -> Tensor<2> {
        let (_, state) = self.lstm.forward(images.reshape([BATCH, 28, 28]), None);
        self.output.forward(state.hidden)
    }
}

fn train(
    task: &Task,
    device: &Device,
    network: impl Network,
    mut optimizer: ModuleOptimizer,
    rate: f64,
) -> Result<(), Box<dyn Error>> {
    let images = Tensor::<2>::from_data(TensorData::new(task.images.clone(), [BATCH, PIXELS]), device);
    let labels: Vec<i64> = task.labels.iter().map(|&label| label.into()).collect();
    let labels = Tensor::<1, Int>::from_data(TensorData::new(labels, [BATCH]), device);
    let cross_entropy = CrossEntropyLossConfig::new().init(device);
    let mut network = Some(network);
    measure(|| {
        let current = network.take().ok_or("a step failed")?;
        let loss = cross_entropy.forward(current.logits(images.clone()), labels.clone());
        let gradients = GradientsParams::from_grads(loss.backward(), &current);
        network = Some(optimizer.step(rate, current, gradients));
        Ok::<f32, Box<dyn Error>>(loss.into_scalar())
    })
}

#[expect(deprecated, reason = "the back end ndarray is measured as long as burn has it")]
fn main() -> Result<(), Box<dyn Error>> {
    let task = Task::from_arguments()?;
    let device = match task.variant.as_str() {
        "flex" => Device::flex().autodiff(),
        "ndarray" => Device::ndarray().autodiff(),
        _ => return Err(task.unknown()),
    };
    match task.model.as_str() {
        "mlp" => train(&task, &device, Mlp::new(&device), AdamConfig::new().init(), 0.001),
        "cnn" => train(&task, &device, Cnn::new(&device), SgdConfig::new().init(), 0.01),
        "lstm" => train(&task, &device, Recurrent::new(&device), SgdConfig::new().init(), 0.1),
        _ => Err(task.unknown()),
    }
}
