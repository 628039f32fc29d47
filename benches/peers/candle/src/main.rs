//! candle: `candle-peer w1|w2|w6`; see ../README.md for the work. candle has no momentum: it is
//! written here.

use candle_core::{DType, Device, Module, Result, Tensor, Var, backprop::GradStore};
use candle_nn::{AdamW, Conv2dConfig, Optimizer, ParamsAdamW, VarBuilder, VarMap, conv2d, linear, loss::cross_entropy};

include!("../../protocol.rs");

/// `v = momentum v + g; p -= rate v`.
struct Sgd {
    variables: Vec<(Var, Option<Tensor>)>,
    rate: f64,
    momentum: f64,
}

impl Sgd {
    fn new(variables: Vec<Var>, rate: f64, momentum: f64) -> Self {
        Sgd { variables: variables.into_iter().map(|variable| (variable, None)).collect(), rate, momentum }
    }

    fn step(&mut self, gradients: &GradStore) -> Result<()> {
        for (variable, velocity) in &mut self.variables {
            let Some(gradient) = gradients.get(variable) else { continue };
            let next = match velocity {
                Some(velocity) if self.momentum > 0. => ((&*velocity * self.momentum)? + gradient)?,
                _ => gradient.clone(),
            };
            variable.set(&variable.sub(&(&next * self.rate)?)?)?;
            *velocity = Some(next.detach());
        }
        Ok(())
    }
}

/// `step` does one training step, which candle finishes before it returns, and gives the loss.
fn train(mut step: impl FnMut() -> Result<f32>) {
    serve(|| step().expect("the step runs"), |loss| loss);
}

fn main() -> Result<()> {
    let device = Device::Cpu;
    let variables = VarMap::new();
    let builder = VarBuilder::from_varmap(&variables, DType::F32, &device);
    let dense = |inputs, outputs, name| linear(inputs, outputs, builder.pp(name));
    let labels = |count: usize, classes: usize| {
        Tensor::from_vec((0..count).map(|index| label(index, classes) as u32).collect::<Vec<_>>(), count, &device)
    };
    match std::env::args().nth(1).as_deref() {
        Some("w1") => {
            let (a, b, c) = (dense(784, 512, "a")?, dense(512, 512, "b")?, dense(512, 10, "c")?);
            let (x, y) = (Tensor::randn(0f32, 1., (128, 784), &device)?, labels(128, 10)?);
            let adam = ParamsAdamW { lr: 1e-3, weight_decay: 0., ..Default::default() };
            let mut optimizer = AdamW::new(variables.all_vars(), adam)?;
            train(|| {
                let hidden = b.forward(&a.forward(&x)?.relu()?)?.relu()?;
                let loss = cross_entropy(&c.forward(&hidden)?, &y)?;
                optimizer.backward_step(&loss)?;
                loss.to_scalar()
            });
        }
        Some("w2") => {
            let padded = Conv2dConfig { padding: 1, ..Default::default() };
            let (c1, c2) = (conv2d(1, 32, 3, padded, builder.pp("c1"))?, conv2d(32, 64, 3, padded, builder.pp("c2"))?);
            let (d1, d2) = (dense(64 * 14 * 14, 128, "d1")?, dense(128, 10, "d2")?);
            let (x, y) = (Tensor::randn(0f32, 1., (128, 1, 28, 28), &device)?, labels(128, 10)?);
            let mut optimizer = Sgd::new(variables.all_vars(), 0.01, 0.9);
            train(|| {
                let features = c2.forward(&c1.forward(&x)?.relu()?)?.relu()?.max_pool2d(2)?.flatten_from(1)?;
                let loss = cross_entropy(&d2.forward(&d1.forward(&features)?.relu()?)?, &y)?;
                optimizer.step(&loss.backward()?)?;
                loss.to_scalar()
            });
        }
        Some("w6") => {
            let (a, b) = (dense(32, 32, "a")?, dense(32, 32, "b")?);
            let (x, y) = (Tensor::randn(0f32, 1., (8, 32), &device)?, labels(8, 32)?);
            let mut optimizer = Sgd::new(variables.all_vars(), 0.01, 0.);
            train(|| {
                let loss = cross_entropy(&b.forward(&a.forward(&x)?.relu()?)?, &y)?;
                optimizer.step(&loss.backward()?)?;
                loss.to_scalar()
            });
        }
        other => panic!("workload {other:?}; want w1, w2 or w6"),
    }
    Ok(())
}
