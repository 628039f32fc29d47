//! Attention to another sequence.

use std::panic::Location;

use super::{Attention, Mask, ToHeads, attention};
use crate::{Init, Param, Tensor};

impl Attention<Param> {
    /// Sets the number of features of the sequence that keys and values are projected from:
    /// `kdim` and `vdim` of `torch.nn.MultiheadAttention`. For [`cross`](Attention::cross).
    pub fn source_features(self, features: usize) -> Self {
        self.key_features(features).value_features(features)
    }

    /// Sets the number of features that keys are projected from: `kdim`.
    pub fn key_features(mut self, features: usize) -> Self {
        self.k.set_inputs(features);
        self
    }

    /// Sets the number of features that values are projected from: `vdim`.
    pub fn value_features(mut self, features: usize) -> Self {
        self.v.set_inputs(features);
        self
    }
}

impl ToHeads<Param> {
    /// Sets the number of input features, with the initialization of [`ToHeads::new`] for it.
    fn set_inputs(&mut self, inputs: usize) {
        let mut dims = self.weight.ty.dims().to_vec();
        let at = dims.len() - 3;
        dims[at] = inputs;
        self.weight.ty = self.weight.ty.with_dims(dims);
        let init = Init::torch_default(inputs);
        self.weight.init = init;
        self.bias.iter_mut().for_each(|bias| bias.init = init);
    }
}

impl<'t> Attention<Tensor<'t>> {
    /// Cross-attention: queries from `x: [batch, time, features]`, keys and values from `source:
    /// [batch, positions, source features]`. Returns the type of `x`.
    ///
    /// ```
    /// use halite_core::{DType, TensorType, Tree};
    /// use halite_nn::{Attention, Mask, Trace};
    ///
    /// let cross = Attention::new(64, 8, 8).source_features(48);
    /// let cx = Trace::new();
    /// let cross = cross.map_leaves(|path, param| cx.input(param.ty, path.to_string()));
    /// let x = cx.input(TensorType::new(DType::F32, [4, 10, 64]), "x");
    /// let encoded = cx.input(TensorType::new(DType::F32, [4, 7, 48]), "encoded");
    /// assert_eq!(cross.cross(x, encoded, Mask::None).ty(), x.ty());
    /// ```
    #[track_caller]
    pub fn cross(&self, x: Tensor<'t>, source: Tensor<'t>, mask: Mask<'t>) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        self.cross_with(x, source, source, mask)
    }

    /// Cross-attention with sequences of their own for keys and values: `keys: [batch, positions,
    /// key features]`, `values: [batch, positions, value features]`, as the arguments of
    /// `torch.nn.MultiheadAttention`.
    #[track_caller]
    pub fn cross_with(
        &self,
        x: Tensor<'t>,
        keys: Tensor<'t>,
        values: Tensor<'t>,
        mask: Mask<'t>,
    ) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        let (q, k, v) = (
            self.q.forward(x),
            self.k.forward(keys),
            self.v.forward(values),
        );
        self.o.forward(attention(q, k, v, mask, self.dropout))
    }
}
