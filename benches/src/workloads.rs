//! The workloads of `peers/README.md` by name, without a device.

use halite::{
    DTypePolicy, Error, HostArray, MeshShape, Param, Result,
    models::{Mlp, ResNet},
    nn::{Adam, AdamW, Optimizer, Sgd, ShardedType, Transformer, TransformerConfig, lower},
    train::Strategy,
    tree::Leaf,
};
use halite_core::{Capabilities, Program};

use crate::{ConvNext, Forward, GptBlock, Vae, WideCnn, data, labels, pixels, step_function};

/// A model that is trained on one batch.
#[allow(missing_debug_implementations, reason = "a model need not have one")]
pub struct Workload<M: Forward, O> {
    /// The model.
    pub model: M::Of<Param>,
    /// The optimizer of its parameters.
    pub optimizer: O,
    /// The batch.
    pub x: HostArray,
    /// The labels of the batch.
    pub y: HostArray,
}

impl<M: Forward, O: Optimizer + Clone> Workload<M, O> {
    /// Lowers the training step in this precision for one device of these capabilities.
    ///
    /// # Errors
    /// If the model has mistakes.
    pub fn lower(self, precision: DTypePolicy, capabilities: &Capabilities) -> Result<Program> {
        let mesh = MeshShape::single();
        let state = Strategy::default().state_specs::<M, O>(&mesh, &self.model, &self.optimizer)?;
        let whole = |array: &HostArray| Leaf(ShardedType::replicated(array.ty().clone()));
        let batch = (whole(&self.x), whole(&self.y));
        let step = step_function::<M, O>().precision(precision);
        Ok(lower(&step, &state, &batch, &mesh, capabilities)?.program)
    }
}

/// What is done with a [`Workload`], whatever the types of its model and optimizer.
pub trait Visitor {
    /// What it returns.
    type Output;

    /// Does it.
    ///
    /// # Errors
    /// Those of the visitor.
    fn visit<M: Forward, O: Optimizer + Clone>(
        self,
        workload: Workload<M, O>,
    ) -> Result<Self::Output>;
}

/// Calls `visitor` with the workload `name`: `w1` to `w8`, `mlp256` or `block`.
///
/// # Errors
/// If there is no such workload; those of the visitor.
pub fn visit<V: Visitor>(name: &str, visitor: V) -> Result<V::Output> {
    let sgd = Sgd::new(0.01);
    let images = |batch: usize, size: usize, classes: i32| {
        let x = data(&[batch, size, size, 3]);
        (x, labels([batch], classes))
    };
    let mlp = |batch: usize| Workload::<Mlp<()>, _> {
        model: Mlp::new(&[784, 512, 512, 10]),
        optimizer: Adam::new(1e-3),
        x: data(&[batch, 784]),
        y: labels([batch], 10),
    };
    match name {
        "w1" => visitor.visit(mlp(128)),
        "mlp256" => visitor.visit(mlp(256)),
        "w2" => visitor.visit(Workload::<WideCnn<()>, _> {
            model: WideCnn::new(),
            optimizer: sgd.momentum(0.9),
            x: data(&[128, 28, 28, 1]),
            y: labels([128], 10),
        }),
        "w3" => {
            let (x, y) = images(64, 32, 10);
            visitor.visit(Workload::<ResNet<()>, _> {
                model: ResNet::resnet18(10).cifar_stem(),
                optimizer: sgd.momentum(0.9).weight_decay(5e-4),
                x,
                y,
            })
        }
        "w4" => {
            let config = TransformerConfig {
                tied: false,
                ..TransformerConfig::gpt2(6, 384)
            }
            .vocab_size(65)
            .context_length(256);
            visitor.visit(Workload::<Transformer<()>, _> {
                model: Transformer::new(&config)?,
                optimizer: Adam::new(3e-4),
                x: labels([16, 256], 65),
                y: labels([16, 256], 65),
            })
        }
        "w5" => {
            let (x, y) = images(8, 224, 1000);
            visitor.visit(Workload::<ResNet<()>, _> {
                model: ResNet::resnet50(1000),
                optimizer: sgd.momentum(0.9).weight_decay(1e-4),
                x,
                y,
            })
        }
        "w6" => visitor.visit(Workload::<Mlp<()>, _> {
            model: Mlp::new(&[32, 32, 32]),
            optimizer: sgd,
            x: data(&[8, 32]),
            y: labels([8], 32),
        }),
        "w7" => {
            let (x, y) = images(16, 64, 10);
            visitor.visit(Workload::<ConvNext<()>, _> {
                model: ConvNext::new(&[32, 64, 128], 10),
                optimizer: AdamW::new(1e-3).weight_decay(0.05),
                x,
                y,
            })
        }
        "w8" => visitor.visit(Workload::<Vae<()>, _> {
            model: Vae::new(),
            optimizer: Adam::new(1e-3),
            x: pixels(&[32, 28, 28, 1]),
            y: pixels(&[32, 28, 28, 1]),
        }),
        "block" => visitor.visit(Workload::<GptBlock<()>, _> {
            model: GptBlock::new(384, 6, 256),
            optimizer: Adam::new(1e-3),
            x: data(&[8, 128, 384]),
            y: labels([8 * 128], 256),
        }),
        other => Err(Error::invalid(
            "workload",
            format!("unknown workload `{other}`; expected w1 to w8, mlp256 or block"),
        )),
    }
}
