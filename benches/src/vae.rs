//! A variational autoencoder (Kingma and Welling 2014) of images of 28x28, with transposed
//! convolutions in its decoder.

use halite::{
    DType, Param, Tree,
    nn::{Conv2d, Init, Linear, Padding, Tensor, bce_with_logits, rng},
};

use crate::Forward;

/// Features of a latent vector.
const LATENT: usize = 16;

/// Two strided convolutions and a dense layer to means and logarithms of variances; a dense layer
/// and two transposed convolutions back.
#[derive(Tree, Clone, Debug)]
pub struct Vae<L> {
    convolutions: [Conv2d<L>; 2],
    latent: Linear<L>,
    hidden: Linear<L>,
    transposed: [Conv2d<L>; 2],
}

/// A transposed convolution of 4x4 and stride 2, which doubles the size of an image. First weights
/// are those of PyTorch, whose fan-in is that of the outputs.
fn transposed(inputs: usize, outputs: usize) -> Conv2d<Param> {
    let init = Init::torch_default(16 * outputs);
    let mut conv = Conv2d::new(inputs, outputs, 4)
        .weight_init(init)
        .bias_init(init);
    conv.options.input_dilation = vec![2; 2];
    conv.options.padding = Padding::Explicit(vec![(2, 2); 2]);
    conv
}

impl Vae<Param> {
    /// Creates a model of images with one feature.
    #[allow(
        clippy::new_without_default,
        reason = "a model has no default but the one architecture"
    )]
    pub fn new() -> Self {
        let strided =
            |inputs: usize, outputs: usize| Conv2d::new(inputs, outputs, 4).stride(2).padding(1);
        Vae {
            convolutions: [strided(1, 32), strided(32, 64)],
            latent: Linear::new(7 * 7 * 64, 2 * LATENT),
            hidden: Linear::new(LATENT, 7 * 7 * 64),
            transposed: [transposed(64, 32), transposed(32, 1)],
        }
    }
}

impl<'t> Vae<Tensor<'t>> {
    /// Means and logarithms of the variances of the latent vectors: `[batch, LATENT]` each.
    fn encode(&self, x: Tensor<'t>) -> [Tensor<'t>; 2] {
        let [first, second] = &self.convolutions;
        let y = second.forward(first.forward(x).relu()).relu();
        let parts = self.latent.forward(y.flatten_from(1)).split(1, 2);
        [parts[0], parts[1]]
    }

    /// Logits of pixels, `[batch, 28, 28, 1]`.
    fn decode(&self, z: Tensor<'t>) -> Tensor<'t> {
        let batch = z.dims()[0];
        let y = self.hidden.forward(z).relu().reshape([batch, 7, 7, 64]);
        let [first, second] = &self.transposed;
        second.forward(first.forward(y).relu())
    }
}

impl Forward for Vae<()> {
    /// `x: [batch, 28, 28, 1]`; returns logits of its pixels, without noise.
    fn logits<'t>(model: &Vae<Tensor<'t>>, x: Tensor<'t>) -> Tensor<'t> {
        model.decode(model.encode(x)[0])
    }

    /// Sums over the pixels and the latent vector, means over the batch: the cross entropy of the
    /// pixels, and the divergence of the latent distribution from a normal one. `y` is the images.
    fn loss<'t>(model: &Vae<Tensor<'t>>, x: Tensor<'t>, y: Tensor<'t>) -> Tensor<'t> {
        let batch = x.dims()[0] as f64;
        let [mean, log_variance] = model.encode(x);
        let noise = rng::normal(x.trace().next_key(), mean.dims(), DType::F32);
        let deviation = (log_variance * 0.5).exp();
        let logits = model.decode(mean + deviation * noise.convert(mean.dtype()));
        let pixels = bce_with_logits(logits.convert(DType::F32), y).sum_all();
        let [mean, log_variance] = [mean, log_variance].map(|part| part.convert(DType::F32));
        let divergence = mean.square() + log_variance.exp() - log_variance - 1.0;
        (pixels + divergence.sum_all() * 0.5) / batch
    }
}
