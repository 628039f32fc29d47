//! burn: `burn-peer w1|w2|w6`; see ../README.md for the work.

use burn::{
    module::Module,
    nn::{
        Linear, LinearConfig, PaddingConfig2d,
        conv::{Conv2d, Conv2dConfig},
        loss::CrossEntropyLossConfig,
        pool::{MaxPool2d, MaxPool2dConfig},
    },
    optim::{AdamConfig, GradientsParams, ModuleOptimizer, SgdConfig, momentum::MomentumConfig},
    tensor::{Device, Distribution, Int, Tensor, TensorData, activation::relu},
};

include!("../../protocol.rs");

#[derive(Module, Debug)]
struct Mlp {
    layers: Vec<Linear>,
}

impl Mlp {
    fn new(sizes: &[usize], device: &Device) -> Self {
        Mlp { layers: sizes.windows(2).map(|pair| LinearConfig::new(pair[0], pair[1]).init(device)).collect() }
    }

    fn forward(&self, mut x: Tensor<2>) -> Tensor<2> {
        for (index, layer) in self.layers.iter().enumerate() {
            x = layer.forward(x);
            if index + 1 < self.layers.len() {
                x = relu(x);
            }
        }
        x
    }
}

#[derive(Module, Debug)]
struct Cnn {
    conv1: Conv2d,
    conv2: Conv2d,
    pool: MaxPool2d,
    hidden: Linear,
    out: Linear,
}

impl Cnn {
    fn new(device: &Device) -> Self {
        let padding = || PaddingConfig2d::Explicit(1, 1, 1, 1);
        let conv = |inputs, outputs| Conv2dConfig::new([inputs, outputs], [3, 3]).with_padding(padding()).init(device);
        Cnn {
            conv1: conv(1, 32),
            conv2: conv(32, 64),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            hidden: LinearConfig::new(64 * 14 * 14, 128).init(device),
            out: LinearConfig::new(128, 10).init(device),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<2> {
        let x = relu(self.conv2.forward(relu(self.conv1.forward(x))));
        let x = self.pool.forward(x).flatten::<2>(1, 3);
        self.out.forward(relu(self.hidden.forward(x)))
    }
}

/// burn's usual training loop: forward, backward, gradients by parameter, optimizer step.
fn train<M: Module>(device: &Device, model: M, mut optimizer: ModuleOptimizer, rate: f64, loss: impl Fn(&M) -> Tensor<1>) {
    let mut model = Some(model);
    let step = || {
        let current = model.take().expect("put back by the step before");
        let loss = loss(&current);
        let gradients = GradientsParams::from_grads(loss.backward(), &current);
        model = Some(optimizer.step(rate, current, gradients));
        loss.inner()
    };
    serve(step, |loss| {
        let loss = loss.into_scalar::<f32>();
        device.sync().expect("the device works");
        loss
    });
}

fn main() {
    let device = Device::flex().autodiff();
    let cross_entropy = CrossEntropyLossConfig::new().init(&device);
    let labels = |count: usize, classes: usize| {
        let values: Vec<i32> = (0..count).map(|index| label(index, classes) as i32).collect();
        Tensor::<1, Int>::from_data(TensorData::new(values, [count]), &device)
    };
    let normal = |dims| Tensor::<2>::random(dims, Distribution::Normal(0., 1.), &device);
    match std::env::args().nth(1).as_deref() {
        Some("w1") => {
            let (x, y) = (normal([128, 784]), labels(128, 10));
            let model = Mlp::new(&[784, 512, 512, 10], &device);
            train(&device, model, AdamConfig::new().init(), 1e-3, |m| cross_entropy.forward(m.forward(x.clone()), y.clone()));
        }
        Some("w2") => {
            let x = Tensor::<4>::random([128, 1, 28, 28], Distribution::Normal(0., 1.), &device);
            let y = labels(128, 10);
            let momentum = MomentumConfig::new().with_dampening(0.);
            let sgd = SgdConfig::new().with_momentum(Some(momentum)).init();
            train(&device, Cnn::new(&device), sgd, 0.01, |m| cross_entropy.forward(m.forward(x.clone()), y.clone()));
        }
        Some("w6") => {
            let (x, y) = (normal([8, 32]), labels(8, 32));
            let model = Mlp::new(&[32, 32, 32], &device);
            train(&device, model, SgdConfig::new().init(), 0.01, |m| cross_entropy.forward(m.forward(x.clone()), y.clone()));
        }
        other => panic!("workload {other:?}; want w1, w2 or w6"),
    }
}
