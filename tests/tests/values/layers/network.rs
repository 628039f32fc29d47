//! Layers of decoders, recurrent networks and transformers of images
//! (`tests/golden/pytorch/network_layers.py`), in `f64` and in 16 bits.

use std::collections::BTreeMap;

use halite_core::{DType, TensorType};
use halite_nn::{
    Attention, Conv, ConvTranspose, Gru, InstanceNorm, Interpolation, Lstm, LstmState, Mask, Mean,
    NllLoss, Param, Recurrent, StochasticDepth, Tensor, Trace, grad, nll_loss, rng,
};
use halite_tests::eval::{eval, host};
use serde::Deserialize;

use crate::layers::golden::{Case, cases_in, check_cases, check_narrow, with};

/// Arguments of a layer.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Options {
    window: Vec<usize>,
    stride: Vec<usize>,
    padding: Vec<usize>,
    output_padding: Vec<usize>,
    dilation: Vec<usize>,
    groups: usize,
    hidden: usize,
    layers: usize,
    bidirectional: bool,
    bias: bool,
    initial: bool,
    features: usize,
    heads: usize,
    keys: usize,
    values: usize,
    mask: Option<Vec<Vec<bool>>>,
    mode: String,
    size: Vec<usize>,
    sizes: Vec<Vec<usize>>,
    factors: Vec<f64>,
}

fn golden(prefix: &str) -> BTreeMap<String, Case> {
    cases_in("network_layers.json", prefix)
}

/// Checks the cases that begin with `prefix`, with their options; those with gradients in 16 bits
/// too.
fn check(
    prefix: &str,
    function: impl for<'t> Fn(&'t Trace, &str, &Options, &[Tensor<'t>]) -> Vec<Tensor<'t>>
    + Copy
    + Send
    + Sync
    + 'static,
) {
    let options: BTreeMap<String, Options> = golden(prefix)
        .into_iter()
        .map(|(name, case)| {
            (
                name,
                serde_json::from_value(case.options).unwrap_or_default(),
            )
        })
        .collect();
    let narrow = options.clone();
    check_cases(golden(prefix), move |cx, name, inputs| {
        function(cx, name, &options[name], inputs)
    });
    if !golden(prefix).values().all(Case::has_gradients) {
        return;
    }
    for (dtype, tolerance) in [(DType::Bf16, 0.04), (DType::F16, 0.005)] {
        let narrow = narrow.clone();
        check_narrow(golden(prefix), dtype, tolerance, move |cx, name, inputs| {
            function(cx, name, &narrow[name], inputs)
        });
    }
}

fn each<const N: usize>(values: &[usize]) -> [usize; N] {
    values.try_into().expect("an option for each dimension")
}

/// A transposed convolution of the options over `x` with kernel and bias.
fn transposed<'t, const N: usize>(
    options: &Options,
    leaves: &[Tensor<'t>],
    x: Tensor<'t>,
) -> Tensor<'t> {
    let kernel = leaves[0].dims();
    let outputs = kernel[N + 1] * options.groups;
    let layer = ConvTranspose::<Param, N>::new(kernel[N], outputs, each(&kernel[..N]))
        .stride(each(&options.stride))
        .padding(each(&options.padding))
        .output_padding(each(&options.output_padding))
        .dilation(each(&options.dilation))
        .groups(options.groups);
    let layer = if leaves.len() == 1 {
        layer.without_bias()
    } else {
        layer
    };
    assert_eq!(layer.kernel.ty.dims(), kernel);
    with(&layer, leaves).forward(x)
}

#[test]
fn transposed_convolutions_match_pytorch() {
    check("conv_transpose", |_, _, options, inputs| {
        let (x, leaves) = (inputs[0], &inputs[1..]);
        vec![match options.stride.len() {
            1 => transposed::<1>(options, leaves, x),
            2 => transposed::<2>(options, leaves, x),
            _ => transposed::<3>(options, leaves, x),
        }]
    });
}

#[test]
fn depthwise_convolutions_match_pytorch() {
    check("depthwise", |_, _, options, inputs| {
        let (x, leaves) = (inputs[0], &inputs[1..]);
        let window = &options.window;
        vec![match window.len() {
            1 => with(&Conv::depthwise(3, each::<1>(window)), leaves).forward(x),
            2 => with(&Conv::depthwise(3, each::<2>(window)), leaves).forward(x),
            _ => with(&Conv::depthwise(3, each::<3>(window)), leaves).forward(x),
        }]
    });
}

fn recurrent<const GATES: usize>(options: &Options, x: Tensor<'_>) -> Recurrent<Param, GATES> {
    let layer = Recurrent::new(x.dims()[2], options.hidden).layers(options.layers);
    let layer = if options.bidirectional {
        layer.bidirectional()
    } else {
        layer
    };
    if options.bias {
        layer
    } else {
        layer.without_bias()
    }
}

/// All results flat in one, then each.
fn joined<'t>(cx: &'t Trace, results: Vec<Tensor<'t>>) -> Vec<Tensor<'t>> {
    let flat: Vec<Tensor<'t>> = results.iter().map(|result| result.flatten()).collect();
    [vec![cx.concat(&flat, 0)], results].concat()
}

#[test]
fn lstm_matches_pytorch() {
    check("lstm", |cx, _, options, inputs| {
        let (x, rest) = (inputs[0], &inputs[1..]);
        let (states, leaves) = rest.split_at(if options.initial { 2 } else { 0 });
        let state = options.initial.then(|| LstmState {
            hidden: states[0],
            cell: states[1],
        });
        let layer: Lstm<_> = with(&recurrent::<4>(options, x), leaves);
        let (y, end) = layer.forward(x, state);
        joined(cx, vec![y, end.hidden, end.cell])
    });
}

#[test]
fn gru_matches_pytorch() {
    check("gru", |cx, _, options, inputs| {
        let (x, rest) = (inputs[0], &inputs[1..]);
        let (state, leaves) = rest.split_at(usize::from(options.initial));
        let layer: Gru<_> = with(&recurrent::<3>(options, x), leaves);
        let (y, end) = layer.forward(x, state.first().copied());
        joined(cx, vec![y, end])
    });
}

#[test]
fn padded_lstm_matches_pytorch() {
    check("padded_lstm", |cx, _, options, inputs| {
        let (x, lengths, rest) = (inputs[0], inputs[1], &inputs[2..]);
        let (states, leaves) = rest.split_at(if options.initial { 2 } else { 0 });
        let state = options.initial.then(|| LstmState {
            hidden: states[0],
            cell: states[1],
        });
        let layer: Lstm<_> = with(&recurrent::<4>(options, x), leaves);
        let (y, end) = layer.forward_padded(x, lengths, state);
        joined(cx, vec![y, end.hidden, end.cell])
    });
}

#[test]
fn padded_gru_matches_pytorch() {
    check("padded_gru", |cx, _, options, inputs| {
        let (x, lengths, rest) = (inputs[0], inputs[1], &inputs[2..]);
        let (state, leaves) = rest.split_at(usize::from(options.initial));
        let layer: Gru<_> = with(&recurrent::<3>(options, x), leaves);
        let (y, end) = layer.forward_padded(x, lengths, state.first().copied());
        joined(cx, vec![y, end])
    });
}

#[test]
fn instance_norm_matches_pytorch() {
    check("instance_norm", |_, name, _, inputs| {
        let (x, leaves) = (inputs[0], &inputs[1..]);
        let layer = InstanceNorm::new(x.dims()[x.rank() - 1]);
        let layer = match name {
            "instance_norm.plain" => layer.without_affine().eps(1e-3),
            _ => layer,
        };
        vec![with(&layer, leaves).forward(x)]
    });
}

#[test]
fn cross_attention_matches_pytorch() {
    check("attention", |cx, _, options, inputs| {
        let [x, keys, values] = inputs[..3] else {
            panic!("three inputs")
        };
        let layer = Attention::new(
            options.features,
            options.heads,
            options.features / options.heads,
        )
        .key_features(options.keys)
        .value_features(options.values);
        let layer = if options.bias {
            layer
        } else {
            layer.without_bias()
        };
        let layer = with(&layer, &inputs[3..]);
        let mask = match &options.mask {
            None => Mask::None,
            Some(rows) => {
                let one = |&allowed: &bool| cx.scalar(f64::from(u8::from(allowed)), DType::F32);
                let row = |row: &Vec<bool>| cx.stack(&row.iter().map(one).collect::<Vec<_>>(), 0);
                let rows: Vec<Tensor<'_>> = rows.iter().map(row).collect();
                Mask::Where(cx.stack(&rows, 0).ne(0.0))
            }
        };
        vec![layer.cross_with(x, keys, values, mask)]
    });
}

#[test]
fn adaptive_pooling_matches_pytorch() {
    check("adaptive_avg", |_, _, options, inputs| {
        vec![inputs[0].adaptive_avg_pool(&options.size)]
    });
    check("adaptive_max", |_, _, options, inputs| {
        vec![inputs[0].adaptive_max_pool(&options.size)]
    });
}

fn interpolated<'t>(cx: &'t Trace, options: &Options, x: Tensor<'t>) -> Tensor<'t> {
    let method = match &*options.mode {
        "nearest" => Interpolation::Nearest,
        "nearest-exact" => Interpolation::NearestExact,
        mode => Interpolation::Linear {
            align_corners: mode == "corners",
        },
    };
    if !options.factors.is_empty() {
        return x.interpolate_by(&options.factors, method);
    }
    let all: Vec<Tensor<'t>> = options
        .sizes
        .iter()
        .map(|size| x.interpolate(size, method))
        .collect();
    cx.concat(&all, 1)
}

#[test]
fn interpolation_matches_pytorch() {
    check("interpolate", |cx, _, options, inputs| {
        vec![interpolated(cx, options, inputs[0])]
    });
}

#[test]
fn nll_loss_matches_pytorch() {
    check("nll_loss", |_, name, _, inputs| {
        let (x, target, options) = (inputs[0], inputs[1], NllLoss::new());
        let mean = match name {
            "nll_loss.ignore" => options.ignore(-100).loss(x, target),
            "nll_loss.class_weights" => options.class_weights(inputs[2]).loss(x, target),
            "nll_loss.everything" => options
                .class_weights(inputs[2])
                .ignore(-100)
                .loss(x, target),
            _ => Mean::of(nll_loss(x, target)),
        };
        vec![mean.value()]
    });
}

#[test]
fn nan_spreads_as_in_pytorch() {
    check("nan.", |cx, name, options, inputs| {
        let x = inputs[1]
            .eq(1.0)
            .select(cx.full(f64::NAN, &inputs[0].ty()), inputs[0]);
        let filled = |param: &Param| cx.full(0.5, &param.ty.with_dtype(x.dtype()));
        let y = match name {
            "nan.adaptive_avg" => x.adaptive_avg_pool([3]),
            "nan.adaptive_max" => x.adaptive_max_pool([3, 3]),
            "nan.conv_transpose" => {
                let layer = ConvTranspose::<Param, 1>::new(1, 1, 3).stride(2);
                let leaves = [
                    filled(&layer.kernel),
                    cx.scalar(0.0, x.dtype()).reshape([1]),
                ];
                with(&layer, &leaves).forward(x)
            }
            "nan.instance_norm" => with(&InstanceNorm::new(2).without_affine(), &[]).forward(x),
            "nan.lstm" | "nan.gru" => {
                let (lstm, gru) = (Lstm::new(1, 1), Gru::new(1, 1));
                if name == "nan.lstm" {
                    let leaves: Vec<_> = halite_core::Tree::leaves(&lstm)
                        .into_iter()
                        .map(filled)
                        .collect();
                    with(&lstm, &leaves).forward(x, None).0
                } else {
                    let leaves: Vec<_> = halite_core::Tree::leaves(&gru)
                        .into_iter()
                        .map(filled)
                        .collect();
                    with(&gru, &leaves).forward(x, None).0
                }
            }
            "nan.nll_loss" => nll_loss(x, cx.arange(2, DType::S32) * 2.0),
            _ => interpolated(cx, options, x),
        };
        vec![y.ne(y).convert(DType::F64)]
    });
}

#[test]
fn stochastic_depth_drops_whole_samples() {
    const BATCH: usize = 4000;
    let results = eval(
        |cx, given| {
            let layer = StochasticDepth::new(0.25);
            cx.set_mode(false, None);
            let same = layer.forward(given[0]);
            cx.set_mode(true, Some(rng::constant_key(cx, rng::key(3))));
            let y = layer.forward(given[0]);
            let none = StochasticDepth::new(1.0).forward(given[0]);
            let slope = grad((y * 3.0).sum_all(), &halite_core::tree::Leaf(given[0])).0;
            vec![same, y, none, slope]
        },
        &[host(&[1.5f32; 2 * BATCH], &[BATCH, 2])],
    );
    let [same, y, none, slope] = [0, 1, 2, 3].map(|at| results[at].as_slice::<f32>().unwrap());
    assert!(same.iter().all(|&value| value == 1.5) && none.iter().all(|&value| value == 0.0));
    let mut dropped = 0;
    for (y, slope) in y.chunks(2).zip(slope.chunks(2)) {
        match y[0] {
            0.0 => dropped += 1,
            value => assert!((value - 2.0).abs() < 1e-6 && (slope[0] - 4.0).abs() < 1e-6),
        }
        assert!(y[0] == y[1] && (y[0] == 0.0) == (slope[0] == 0.0));
    }
    assert!((900..1100).contains(&dropped), "{dropped} of {BATCH}");
}

#[test]
fn layers_explain_what_does_not_fit() {
    let cx = &Trace::new();
    let x = |dims: &[usize]| cx.input(TensorType::new(DType::F32, dims), "x");
    let image = x(&[1, 4, 4, 2]);
    let near = Interpolation::Nearest;
    let transposed = |options: fn(ConvTranspose<Param, 2>) -> ConvTranspose<Param, 2>| {
        let layer = options(ConvTranspose::new(2, 2, 1));
        let leaves: Vec<_> = (halite_core::Tree::leaves(&layer).into_iter())
            .map(|param| cx.full(1.0, &param.ty))
            .collect();
        with(&layer, &leaves).forward(image);
    };
    image.adaptive_avg_pool([2]);
    image.adaptive_max_pool([2, 0]);
    image.interpolate([0, 3], near);
    image.interpolate_by([f64::NAN, 2.0], near);
    image.interpolate([3], near);
    transposed(|layer| layer.output_padding(1));
    transposed(|layer| layer.padding(2));
    transposed(|layer| {
        layer
            .padding(usize::MAX)
            .dilation(usize::MAX)
            .stride(usize::MAX)
    });
    let _ = StochasticDepth::new(1.5).forward(image);
    let lstm = Lstm::new(3, 2);
    let leaves: Vec<_> = (halite_core::Tree::leaves(&lstm).into_iter())
        .map(|param| cx.full(1.0, &param.ty))
        .collect();
    let lstm = with(&lstm, &leaves);
    lstm.forward(x(&[2, 5, 4]), None);
    let state = LstmState {
        hidden: x(&[1, 3, 2]),
        cell: x(&[1, 2, 2]),
    };
    lstm.forward(x(&[2, 5, 3]), Some(state));
    nll_loss(image, image);
    let expected = [
        "expected [batch, spatial.., features] and a size for each spatial dimension",
        "spatial sizes [4, 4] of f32[1, 4, 4, 2] to [2, 0]; each must be at least 1",
        "a dimension of 4 to 0 in f32[1, 4, 4, 2]; both must be at least 1",
        "a dimension of 4 to 0",
        "1 sizes or factors for f32[1, 4, 4, 2]",
        "an output padding of 1 in dimension 1; it must be smaller than the stride 1",
        "dimension 1 of f32[1, 4, 4, 2] with a window of 1, stride 1, dilation 1, padding 2",
        "has an output of no elements, or of more than s32 counts",
        "rate 1.5; expected 0 to 1",
        "f32[2, 5, 4] with a weight of f32[3, 8]; expected floats [batch, time, in]",
        "a state of f32[1, 3, 2] for an input of f32[2, 5, 3]; expected floats [1, 2, 2]",
        "expected floats [.., classes] and integers [..]",
    ];
    let mistakes = cx.mistakes();
    assert_eq!(mistakes.len(), expected.len(), "{mistakes:?}");
    for (mistake, expected) in mistakes.iter().zip(expected) {
        assert!(mistake.message.contains(expected), "{}", mistake.message);
    }
}
