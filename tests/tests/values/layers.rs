//! Layers, losses, optimizers and schedules on the CPU plugin, compared with PyTorch
//! (`tests/golden/pytorch/make.py`, `network_layers.py`), and gradients compared with finite differences.

mod defaults;
mod fifty_updates;
mod golden;
mod layouts;
mod network;
mod optimizers;
mod parity;

use halite_nn::{
    Activation, BatchNorm, Conv1d, Conv2d, Conv3d, CrossEntropy, Embedding, GroupNorm, LayerNorm,
    Linear, Mean, Padding, RmsNorm, bce_with_logits, cross_entropy, huber, kl_divergence, mae, mse,
    soft_cross_entropy,
};

use crate::layers::golden::{check, with};

#[test]
fn activations_match_pytorch() {
    check("activation.", |_, name, inputs| {
        let x = inputs[0];
        vec![match name
            .strip_prefix("activation.")
            .expect("all cases have the prefix")
        {
            "relu" => Activation::Relu.forward(x),
            "relu6" => Activation::Relu6.forward(x),
            "leaky_relu" => Activation::LeakyRelu(0.1).forward(x),
            "elu" => Activation::Elu(1.5).forward(x),
            "selu" => Activation::Selu.forward(x),
            "gelu" => Activation::Gelu.forward(x),
            "gelu_tanh" => Activation::GeluTanh.forward(x),
            "silu" => Activation::Silu.forward(x),
            "mish" => Activation::Mish.forward(x),
            "softplus" => Activation::Softplus.forward(x),
            "log_sigmoid" => x.log_sigmoid(),
            "hard_sigmoid" => Activation::HardSigmoid.forward(x),
            "hard_swish" => Activation::HardSwish.forward(x),
            "sigmoid" => Activation::Sigmoid.forward(x),
            "tanh" => Activation::Tanh.forward(x),
            "glu" => x.glu(),
            "erf_inv" => x.erf_inv(),
            other => panic!("no activation {other}"),
        }]
    });
}

#[test]
fn linear_layers_match_pytorch() {
    check("linear", |_, name, inputs| {
        let layer = match name {
            "linear" => Linear::new(4, 5),
            _ => Linear::new(4, 2).without_bias(),
        };
        vec![with(&layer, &inputs[1..]).forward(inputs[0])]
    });
    check("embedding", |_, name, inputs| {
        let layer = with(&Embedding::new(5, 3), &inputs[1..]);
        vec![if name == "embedding" {
            layer.forward(inputs[0])
        } else {
            layer.attend(inputs[0])
        }]
    });
}

#[test]
fn convolutions_match_pytorch() {
    check("conv", |_, name, inputs| {
        let (x, leaves) = (inputs[0], &inputs[1..]);
        vec![match name {
            "conv2d" => with(&Conv2d::new(3, 4, 3), leaves).forward(x),
            "conv2d.same" => with(&Conv2d::new(2, 3, 3).same(), leaves).forward(x),
            "conv2d.strided" => with(
                &Conv2d::new(2, 3, [3, 2]).stride([2, 1]).padding([1, 0]),
                leaves,
            )
            .forward(x),
            "conv2d.dilated_groups" => with(
                &Conv2d::new(4, 6, 3)
                    .padding(2)
                    .dilation(2)
                    .groups(2)
                    .without_bias(),
                leaves,
            )
            .forward(x),
            "conv1d" => with(&Conv1d::new(3, 4, 3).padding(1), leaves).forward(x),
            "conv3d" => with(&Conv3d::new(2, 3, 2), leaves).forward(x),
            other => panic!("no layer {other}"),
        }]
    });
}

#[test]
fn pooling_matches_pytorch() {
    for prefix in ["max_pool", "avg_pool", "global_"] {
        check(prefix, |_, name, inputs| {
            let x = inputs[0];
            let one = || Padding::Explicit(vec![(1, 1), (1, 1)]);
            vec![match name {
                "max_pool" | "max_pool.odd" => x.max_pool([2, 2], [], Padding::Valid),
                "max_pool.overlapping" => x.max_pool([3, 3], [2, 2], one()),
                "avg_pool" => x.avg_pool([3, 3], [2, 2], one()),
                "global_avg_pool" => x.global_avg_pool(),
                "global_max_pool" => x.global_max_pool(),
                other => panic!("no pool {other}"),
            }]
        });
    }
}

#[test]
fn batch_norm_matches_pytorch() {
    check("batch_norm", |cx, name, inputs| {
        let features = inputs[1].dims()[0];
        let layer = match name {
            "batch_norm.momentum" => BatchNorm::new(features).momentum(0.25).eps(1e-3),
            _ => BatchNorm::new(features),
        };
        let layer = with(&layer, &inputs[1..]);
        if name == "batch_norm.evaluation" {
            cx.set_mode(false, None);
            return vec![layer.forward(inputs[0])];
        }
        cx.set_mode(true, None);
        let y = layer.forward(inputs[0]);
        vec![y, cx.updated(layer.mean), cx.updated(layer.variance)]
    });
}

#[test]
fn sample_norms_match_pytorch() {
    for prefix in ["layer_norm", "group_norm", "rms_norm"] {
        check(prefix, |_, name, inputs| {
            let (x, leaves) = (inputs[0], &inputs[1..]);
            vec![match name {
                "layer_norm" => with(&LayerNorm::new(6), leaves).forward(x),
                "layer_norm.no_bias" => {
                    with(&LayerNorm::new(6).without_bias().eps(1e-3), leaves).forward(x)
                }
                "group_norm" => with(&GroupNorm::new(3, 6), leaves).forward(x),
                "rms_norm" => with(&RmsNorm::new(6), leaves).forward(x),
                other => panic!("no layer {other}"),
            }]
        });
    }
}

#[test]
fn losses_match_pytorch() {
    for prefix in [
        "cross_entropy",
        "soft_cross_entropy",
        "kl_divergence",
        "bce_with_logits",
        "mse",
        "mae",
        "huber",
        "smooth_l1",
    ] {
        check(prefix, |_, name, inputs| {
            let (x, target) = (inputs[0], inputs[1]);
            let options = CrossEntropy::new();
            let mean: Mean<'_> = match name {
                "cross_entropy" | "cross_entropy.large" | "cross_entropy.positions" => {
                    Mean::of(cross_entropy(x, target))
                }
                "cross_entropy.smoothing" => options.label_smoothing(0.1).loss(x, target),
                "cross_entropy.ignore" => options.ignore(-100).loss(x, target),
                "cross_entropy.class_weights" => options.class_weights(inputs[2]).loss(x, target),
                "cross_entropy.everything" => options
                    .class_weights(inputs[2])
                    .label_smoothing(0.2)
                    .ignore(-100)
                    .loss(x, target),
                "cross_entropy.weights" => options.weights(inputs[2]).loss(x, target),
                "soft_cross_entropy" => Mean::of(soft_cross_entropy(x, target)),
                "kl_divergence" => Mean::of(kl_divergence(x, target)),
                "bce_with_logits" => Mean::of(bce_with_logits(x, target)),
                "mse" => Mean::of(mse(x, target)),
                "mae" => Mean::of(mae(x, target)),
                "huber" => Mean::of(huber(x, target, 0.7)),
                "smooth_l1" => Mean::of(huber(x, target, 0.7) / 0.7),
                other => panic!("no loss {other}"),
            };
            vec![mean.value()]
        });
    }
}
