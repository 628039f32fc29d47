//! Which parameters of a model a step trains.

use halite_core::tree::Tree;
use halite_nn::Param;

/// Whether a step computes the gradient of a parameter.
pub(crate) fn is_trained(param: &Param) -> bool {
    param.trainable && param.ty.dtype().is_float()
}

/// Paths of the parameters of a model whose gradients a step computes.
pub(crate) fn trained_paths<M: Tree<Leaf = Param>>(model: &M) -> impl Iterator<Item = String> {
    let named = model.named().into_iter();
    let trained = named.filter(|(_, param)| is_trained(param));
    trained
        .map(|(path, _)| path)
        .collect::<Vec<_>>()
        .into_iter()
}
