//! Initialization of all parameters of a model from one key.

mod packed;

use std::panic::Location;

use halite_core::{
    TensorType, Tree,
    tree::{Empty, Leaf, Of},
};

use crate::{Init, Param, Tensor, Trace, rng};

/// Initializes all leaves of `model` from one random key (`u32[2]`).
///
/// Each leaf has its own key, derived from `key` and the leaf's path: adding or removing a layer, or
/// reordering fields, does not change the values of other leaves. Each layer of a
/// [stacked](Param::stacked) leaf has its own key, split from the leaf's.
///
/// One loop draws the random bits of all leaves but large ones, so that compilers see the generator
/// once and not for each leaf.
#[track_caller]
pub fn init<'t, M: Tree<Leaf = Param>>(
    cx: &'t Trace,
    model: &M,
    key: Tensor<'t>,
) -> Of<M, Tensor<'t>> {
    let _site = cx.called_from(Location::caller());
    let leaves: Vec<(u64, &Param)> = (model.named().into_iter())
        .map(|(path, param)| (stable_hash(&path), param))
        .collect();
    let packed = packed::draw(key, &leaves);
    let alone = leaves.iter().zip(&packed);
    let hashes: Vec<u64> = alone
        .filter(|((_, param), packed)| param.init.is_random() && packed.is_none())
        .map(|((hash, _), _)| *hash)
        .collect();
    // All keys at once: a few operations on vectors instead of a hundred on scalars for each leaf.
    let keys = (!hashes.is_empty()).then(|| rng::fold_in_many(key, &hashes));
    let mut rows = 0..;
    let mut packed = packed.into_iter();
    Tree::leaf_refs(model).map_leaves(|_, param| {
        if let Some(unit) = packed.next().flatten() {
            return param.init.of_unit(unit, &param.ty);
        }
        let next = || {
            let keys = keys.expect("keys exist if a leaf is random");
            rng::row(keys, rows.next().expect("there is a row for each leaf"))
        };
        draw_each(&param.init, cx, next, &param.ty, param.stacked)
    })
}

/// Initializes a tensor whose first `stacked` dimensions count layers: each layer separately,
/// with its own key.
fn draw_each<'t>(
    init: &Init,
    cx: &'t Trace,
    key: impl FnOnce() -> Tensor<'t>,
    ty: &TensorType,
    stacked: usize,
) -> Tensor<'t> {
    if stacked == 0 || !init.is_random() {
        return init.draw(cx, key, ty);
    }
    let layer = ty.with_dims(&ty.dims()[1..]);
    let keys = rng::split_many(key(), ty.dims()[0]);
    let (_, Leaf(values)) = cx.scan(
        Empty::new(),
        Leaf(keys),
        |nothing: Empty<Tensor<'t>>, Leaf(key)| {
            let value: Tensor<'t> = draw_each(
                init,
                cx,
                Box::new(|| key) as Box<dyn FnOnce() -> Tensor<'t>>,
                &layer,
                stacked - 1,
            );
            (nothing, Leaf(value))
        },
    );
    values
}

/// 64-bit FNV-1a: the same on every machine and in every version.
fn stable_hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_hash_is_fnv_1a() {
        // Test vectors of FNV-1a.
        assert_eq!(stable_hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(stable_hash("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(stable_hash("foobar"), 0x8594_4171_f739_67e8);
    }
}
