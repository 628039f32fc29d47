use std::panic::Location;

use halite_core::Tree;

use crate::{Init, Param, ParamKind, Tensor};

/// Dense layer: `x · weight + bias`.
#[derive(Clone, Debug, Tree)]
pub struct Linear<L> {
    /// `[in, out]`
    pub weight: L,
    /// `[out]`
    pub bias: Option<L>,
}

impl Linear<Param> {
    /// Maps `inputs` to `outputs` features, with a bias. Initialized uniformly within
    /// `1 / sqrt(inputs)`, as in PyTorch (Kaiming uniform).
    pub fn new(inputs: usize, outputs: usize) -> Self {
        let bias = Param::new([outputs], Init::torch_default(inputs));
        Linear {
            weight: Param::new([inputs, outputs], Init::torch_default(inputs))
                .of_kind(ParamKind::Linear),
            bias: Some(bias),
        }
    }

    /// Removes the bias.
    pub fn without_bias(mut self) -> Self {
        self.bias = None;
        self
    }

    /// Sets the initialization of the weight.
    pub fn weight_init(mut self, init: Init) -> Self {
        self.weight.init = init;
        self
    }

    /// Sets the initialization of the bias, if there is one.
    pub fn bias_init(mut self, init: Init) -> Self {
        self.bias.iter_mut().for_each(|bias| bias.init = init);
        self
    }
}

impl<'t> Linear<Tensor<'t>> {
    /// Maps `x: [.., in]` to `[.., out]`.
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        let y = x.matmul(self.weight);
        match self.bias {
            Some(bias) => y + bias,
            None => y,
        }
    }
}
