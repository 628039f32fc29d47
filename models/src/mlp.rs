//! Multi-layer perceptron.

use halite_core::Tree;
use halite_nn::{Linear, Param, Tensor};

use crate::ImageModel;

/// A multi-layer perceptron: dense layers with ReLU between them.
#[derive(Tree, Clone, Debug)]
pub struct Mlp<L> {
    /// Hidden layers, each followed by ReLU.
    pub hidden: Vec<Linear<L>>,
    /// Output layer, which returns the logits.
    pub out: Linear<L>,
}

impl Mlp<Param> {
    /// Creates a perceptron of these layer sizes: input features, hidden features, classes.
    ///
    /// # Panics
    /// If there are fewer than two sizes.
    pub fn new(sizes: &[usize]) -> Self {
        let [.., last, classes] = sizes else {
            panic!("an Mlp needs at least an input size and a number of classes, got {sizes:?}")
        };
        let hidden = sizes[..sizes.len() - 1]
            .windows(2)
            .map(|pair| Linear::new(pair[0], pair[1]))
            .collect();
        Mlp {
            hidden,
            out: Linear::new(*last, *classes),
        }
    }
}

impl<'t> Mlp<Tensor<'t>> {
    /// Maps `x: [batch, inputs]` to logits `[batch, classes]`.
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let x = self
            .hidden
            .iter()
            .fold(x, |x, layer| layer.forward(x).relu());
        self.out.forward(x)
    }
}

impl ImageModel for Mlp<()> {
    fn logits<'t>(model: &Mlp<Tensor<'t>>, images: Tensor<'t>) -> Tensor<'t> {
        model.forward(images.flatten_from(1))
    }
}
