//! Stochastic depth of models that were trained with it (`golden/vision.py`).

use std::collections::BTreeMap;

use halite_core::{HostArray, Tree};
use halite_models::{EfficientNet, InvertedResidual};
use halite_nn::{Init, Param, StochasticDepth, rng};
use halite_tests::eval::eval;

use crate::vision::golden;

/// timm's `drop_path_rate=0.2`, which the original networks were trained with.
#[test]
fn efficientnet_has_timms_rates_of_stochastic_depth() {
    let rates = golden::<BTreeMap<String, Vec<f64>>>("stochastic_depth.json");
    for (name, net) in [
        ("tf_efficientnet_lite0", EfficientNet::lite0(10)),
        ("tf_efficientnet_lite4", EfficientNet::lite4(10)),
    ] {
        let depths = net.blocks.iter().map(|block| block.stochastic_depth.rate);
        let depths: Vec<f64> = depths.collect();
        assert_eq!(depths.len(), rates[name].len());
        for (ours, theirs) in depths.iter().zip(&rates[name]) {
            assert!(
                (ours - theirs).abs() < 1e-12,
                "{name}: {ours}, not {theirs}"
            );
        }
    }
}

/// A block whose branch is always dropped is the identity in training, not in evaluation.
#[test]
fn dropped_block_of_efficientnet_is_the_identity() {
    let mut block = InvertedResidual::new(4, 2, 3, 1, 4);
    block.stochastic_depth = StochasticDepth::new(1.0);
    let pixels: Vec<f32> = (0..2 * 3 * 3 * 4).map(|place| place as f32).collect();
    let image = HostArray::from_slice(&pixels, [2, 3, 3, 4]).unwrap();
    let results = eval(
        move |cx, given| {
            let block = block.clone().map_leaves(|_, param: Param| {
                let value = f64::from(u8::from(param.init != Init::Zeros));
                cx.full(value, &param.ty)
            });
            cx.set_mode(true, Some(rng::constant_key(cx, rng::key(1))));
            let training = block.forward(given[0]);
            cx.discard_updates();
            cx.set_mode(false, None);
            vec![training, block.forward(given[0])]
        },
        std::slice::from_ref(&image),
    );
    assert_eq!(results[0], image);
    assert_ne!(results[1], image);
}
