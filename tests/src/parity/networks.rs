//! The networks of `parity.py`, their batches and optimizers.

use std::{collections::BTreeMap, path::Path, str::FromStr};

use halite::{
    models::{Gpt2, Normalization, ResNet, ResNetConfig, Vit, VitConfig},
    train::State,
    weights::{NameMap, WeightLoader},
};
use halite_core::{Array, Client, DType, HostArray, Result, Sharding, Tree, tree::Of};
use halite_nn::{
    Adam, AdamW, Embedding, Linear, Lstm, Model, Optimizer, Param, Schedule, Sgd, Tensor,
    Transformer, TransformerConfig, bce_with_logits, cross_entropy, jit_step,
};

use super::{Reference, formula, slices};

/// Step `i` trains on batch `i % BATCHES`.
pub(super) const BATCHES: usize = 4;

/// A network that both sides have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Network {
    /// ResNet-18 with the stem for small images; momentum.
    ResNet18,
    /// Vision transformer; AdamW.
    Vit,
    /// Two bidirectional LSTM layers over tokens, and a classifier; AdamW.
    Lstm,
    /// GPT-2 of six layers; AdamW.
    Gpt,
    /// ResNet-34 with ten binary labels; Adam, whose rate is halved after each ten steps.
    Ct,
}

impl Network {
    /// All networks.
    pub const ALL: [Network; 5] = [
        Network::ResNet18,
        Network::Vit,
        Network::Lstm,
        Network::Gpt,
        Network::Ct,
    ];

    /// `resnet18`, `vit`, `lstm`, `gpt` or `ct`.
    pub fn name(self) -> &'static str {
        match self {
            Network::ResNet18 => "resnet18",
            Network::Vit => "vit",
            Network::Lstm => "lstm",
            Network::Gpt => "gpt",
            Network::Ct => "ct",
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Network::ALL
            .into_iter()
            .find(|network| network.name() == name);
        known.ok_or_else(|| {
            let names = Network::ALL.map(Network::name).join(", ");
            format!("unknown network `{name}`; expected one of {names}")
        })
    }
}

/// Width and depth of a network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Size {
    /// A few thousand parameters.
    Small,
    /// ResNet-18 in full, others with about a million parameters.
    Full,
}

impl Size {
    /// `small` or `full`.
    pub fn name(self) -> &'static str {
        match self {
            Size::Small => "small",
            Size::Full => "full",
        }
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "small" => Ok(Size::Small),
            "full" => Ok(Size::Full),
            _ => Err(format!("unknown size `{name}`; expected small or full")),
        }
    }
}

/// The loss of each of `steps` steps from the weights of `formula`. Batches are those of the
/// reference.
///
/// # Errors
/// If the tensors do not fit the network, or a step fails.
pub fn losses(
    client: &Client,
    network: Network,
    size: Size,
    reference: &Reference,
    dtype: DType,
    steps: usize,
) -> Result<Vec<f64>> {
    let run = Run {
        client,
        tensors: &reference.tensors,
        dtype,
        steps,
    };
    let is_full = size == Size::Full;
    match network {
        Network::ResNet18 => {
            let width = if is_full { 64 } else { 4 };
            let net = ResNet::new(&ResNetConfig {
                blocks: [2, 2, 2, 2],
                bottleneck: false,
                width,
                classes: 10,
            });
            let net = net.cifar_stem();
            let (side, batch) = if is_full { (32, 8) } else { (16, 4) };
            let batches = images(batch, side, dtype);
            let sgd = Sgd::new(0.01).momentum(0.9).weight_decay(5e-4);
            let names = net.names();
            run.train(net, &names, sgd, batches?, |net, x, y| {
                cross_entropy(net.forward(x), y)
            })
        }
        Network::Vit => {
            let (hidden, layers, side, batch) = if is_full {
                (64, 6, 32, 8)
            } else {
                (16, 2, 8, 4)
            };
            let net = Vit::new(&VitConfig {
                image: side,
                patch: 4,
                layers,
                hidden_size: hidden,
                heads: 4,
                mlp_size: 2 * hidden,
                ..VitConfig::s16(10)
            })?;
            let names = net.names();
            run.train(
                net,
                &names,
                adamw(3e-4),
                images(batch, side, dtype)?,
                |net, x, y| cross_entropy(net.forward(x), y),
            )
        }
        Network::Lstm => {
            let (vocab, width, hidden, time, batch) = if is_full {
                (500, 64, 64, 40, 16)
            } else {
                (20, 6, 5, 7, 4)
            };
            let net = Classifier::new(vocab, width, hidden, 4);
            let batches = batches(|at| {
                let tokens =
                    formula::integers(&format!("tokens.{at}"), vocab as u64, &[batch, time])?;
                Ok((
                    tokens,
                    formula::integers(&format!("labels.{at}"), 4, &[batch])?,
                ))
            });
            run.train(
                net,
                &NameMap::torch(),
                adamw(5e-4),
                batches?,
                |net, x, y| cross_entropy(net.forward(x), y),
            )
        }
        Network::Gpt => {
            let (vocab, hidden, time, batch) = if is_full {
                (256, 128, 64, 8)
            } else {
                (20, 8, 6, 3)
            };
            let config = TransformerConfig {
                heads: 4,
                kv_heads: 4,
                ..TransformerConfig::gpt2(6, hidden)
            };
            let net = Transformer::new(&config.vocab_size(vocab).context_length(time))?;
            let batches = batches(|at| {
                let tokens =
                    formula::integers(&format!("tokens.{at}"), vocab as u64, &[batch, time + 1])?;
                let rows = tokens.as_slice::<i32>()?.chunks(time + 1);
                let part = |from: usize| -> Result<HostArray> {
                    let part: Vec<i32> = rows
                        .clone()
                        .flat_map(|row| &row[from..from + time])
                        .copied()
                        .collect();
                    HostArray::from_slice(&part, [batch, time])
                };
                Ok((part(0)?, part(1)?))
            });
            run.train(
                net,
                &Gpt2::names("transformer."),
                adamw(3e-4),
                batches?,
                |net, x, y| cross_entropy(net.forward(x), y),
            )
        }
        Network::Ct => run.ct(size, reference.data.as_deref()),
    }
}

fn adamw(rate: f64) -> AdamW {
    AdamW::new(rate).weight_decay(0.01)
}

/// Inputs and targets.
pub(super) type Batches = Vec<(HostArray, HostArray)>;

fn batches(batch: impl FnMut(usize) -> Result<(HostArray, HostArray)>) -> Result<Batches> {
    (0..BATCHES).map(batch).collect()
}

fn images(batch: usize, side: usize, dtype: DType) -> Result<Batches> {
    batches(|at| {
        let images = formula::floats(&format!("images.{at}"), &[batch, side, side, 3], dtype)?;
        Ok((
            images,
            formula::integers(&format!("labels.{at}"), 10, &[batch])?,
        ))
    })
}

/// One training run.
struct Run<'a> {
    client: &'a Client,
    tensors: &'a BTreeMap<String, Vec<usize>>,
    dtype: DType,
    steps: usize,
}

impl Run<'_> {
    /// Batches are those of the folder `data`, or of `formula`.
    fn ct(&self, size: Size, data: Option<&Path>) -> Result<Vec<f64>> {
        let net = match size {
            Size::Full => ResNet::resnet34(10),
            Size::Small => ResNet::new(&ResNetConfig {
                blocks: [1, 2, 2, 1],
                bottleneck: false,
                width: 4,
                classes: 10,
            }),
        };
        let batches = slices::batches(data, size, self.dtype)?;
        let adam = Adam::new(Schedule::step_decay(1e-4, 0.5, 10));
        let names = net.names();
        self.train(net, &names, adam, batches, |net, x, y| {
            bce_with_logits(net.forward(Normalization::IMAGENET.forward(x)), y)
        })
    }

    fn train<M, O>(
        &self,
        net: M,
        names: &NameMap,
        optimizer: O,
        batches: Batches,
        loss: impl for<'t> Fn(&Of<M, Tensor<'t>>, Tensor<'t>, Tensor<'t>) -> Tensor<'t>
        + Send
        + Sync
        + 'static,
    ) -> Result<Vec<f64>>
    where
        M: Model,
        O: Optimizer + Clone,
    {
        let dtype = self.dtype;
        let net = M::from_tree(net.map_leaves(|_, param| param.with_dtype(dtype)));
        let weights = formula::weights(self.tensors, dtype)?;
        let mut state = State::new(self.client, &net, &optimizer, 0)?;
        state.model = WeightLoader::new(&weights, names)
            .load(self.client, &net)?
            .model;
        let step = jit_step(self.client, &state, move |cx, state, [x, y]| {
            state.set_training_mode(cx);
            let loss = loss(&state.model, x, y).mean_all();
            let gradients = state.gradients(loss);
            (state.update(gradients), [loss])
        });
        let device = Sharding::single(self.client.local_devices()[0]);
        let upload = |host: &HostArray| Array::upload(self.client, host, &device);
        let batches = (batches.iter())
            .map(|(x, y)| Ok((upload(x)?, upload(y)?)))
            .collect::<Result<Vec<_>>>()?;
        let mut losses = Vec::with_capacity(self.steps);
        for number in 0..self.steps {
            let (x, y) = &batches[number % BATCHES];
            let (next, [loss]) = step.call(state, [x, y])?;
            state = next;
            losses.push(match dtype {
                DType::F64 => loss.item::<f64>()?,
                _ => f64::from(loss.item::<f32>()?),
            });
        }
        Ok(losses)
    }
}

/// Classifier of sequences by the last hidden states of both directions.
#[derive(Clone, Debug, Tree)]
struct Classifier<L> {
    embedding: Embedding<L>,
    lstm: Lstm<L>,
    fc: Linear<L>,
}

impl Classifier<Param> {
    fn new(vocab: usize, width: usize, hidden: usize, classes: usize) -> Self {
        Classifier {
            embedding: Embedding::new(vocab, width),
            lstm: Lstm::new(width, hidden).layers(2).bidirectional(),
            fc: Linear::new(2 * hidden, classes),
        }
    }
}

impl<'t> Classifier<Tensor<'t>> {
    fn forward(&self, tokens: Tensor<'t>) -> Tensor<'t> {
        let (_, end) = self.lstm.forward(self.embedding.forward(tokens), None);
        let last = [2, 3].map(|at| end.hidden.index(0, at));
        self.fc.forward(tokens.trace().concat(&last, 1))
    }
}
