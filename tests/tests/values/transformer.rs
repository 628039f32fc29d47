//! Properties of transformers on the CPU plugin. `golden` compares their values.

use halite_core::{
    DType, DTypePolicy, HostArray, Narrowing, TensorType,
    tree::{Empty, Tree},
};
use halite_ir::{Graph, Node, Op, Remat, optimize, verify, with_precision};
use halite_nn::{
    Attention, Dropout, Jit, Mask, Rotary, Tensor, Trace, Transformer, TransformerConfig,
    attention, cross_entropy, grad, init, rng,
};
use halite_tests::eval::{client, eval, host, try_run_replicas};

/// A Llama with grouped-query attention and dropout; three blocks.
fn config() -> TransformerConfig {
    let base = TransformerConfig {
        heads: 4,
        kv_heads: 2,
        dropout: 0.1,
        ..TransformerConfig::llama(3, 16, 24)
    };
    base.vocab_size(11).context_length(8)
}

fn tokens() -> HostArray {
    let ids: Vec<u16> = (0..2 * 8)
        .map(|place| (place * 7 + place / 3) % 11)
        .collect();
    host(&ids, &[2, 8])
}

/// An initialized model, with larger weights than usual so that outputs are sensitive to inputs.
fn drawn<'t>(cx: &'t Trace, config: &TransformerConfig) -> Transformer<Tensor<'t>> {
    cx.set_mode(false, None);
    let described = Transformer::new(config).unwrap();
    init(cx, &described, rng::constant_key(cx, rng::key(7))).map_leaves(|path, leaf| {
        if path.to_string().ends_with("scale") {
            leaf
        } else {
            leaf * 10.0
        }
    })
}

/// Logits, the loss, and its gradients.
fn outputs<'t>(
    model: &Transformer<Tensor<'t>>,
    logits: Tensor<'t>,
    tokens: Tensor<'t>,
) -> Vec<Tensor<'t>> {
    let loss = cross_entropy(logits, tokens).mean_all();
    [logits, loss]
        .into_iter()
        .chain(grad(loss, model).into_leaves())
        .collect()
}

/// Logits, without a scan.
fn one_by_one<'t>(
    cx: &'t Trace,
    model: &Transformer<Tensor<'t>>,
    tokens: Tensor<'t>,
) -> Tensor<'t> {
    let rotation = Rotary::default().rotation(cx, 8, config().head_size());
    let mut x = model.tokens.forward(tokens);
    for layer in 0..model.blocks.layers() {
        x = model
            .blocks
            .layer(layer)
            .forward(x, Mask::Causal, Some(rotation));
    }
    model
        .head
        .as_ref()
        .expect("it is not tied")
        .forward(model.norm.forward(x))
}

fn close(what: &str, ours: &HostArray, theirs: &HostArray) {
    let (ours, theirs): (&[f32], &[f32]) = (ours.as_slice().unwrap(), theirs.as_slice().unwrap());
    let largest = theirs
        .iter()
        .fold(0.0f32, |largest, value| largest.max(value.abs()));
    for (a, b) in ours.iter().zip(theirs) {
        assert!(
            (a - b).abs() <= 2e-5 * (largest + 1e-3),
            "{what}: {a} is not {b}"
        );
    }
}

#[test]
fn scanned_blocks_equal_unrolled_blocks() {
    let one_by_one = eval(
        |cx, given| {
            cx.set_mode(false, None);
            let model = drawn(cx, &config());
            outputs(&model, one_by_one(cx, &model, given[0]), given[0])
        },
        &[tokens()],
    );
    for remat in [None, Some(Remat::Full), Some(Remat::SaveDots)] {
        let scanned = eval(
            move |cx, given| {
                let model = drawn(cx, &TransformerConfig { remat, ..config() });
                outputs(&model, model.forward(given[0]), given[0])
            },
            &[tokens()],
        );
        assert_eq!(scanned.len(), one_by_one.len());
        for (index, (ours, theirs)) in scanned.iter().zip(&one_by_one).enumerate() {
            close(&format!("{remat:?}, output {index}"), ours, theirs);
        }
    }
}

/// The gradients of a small model under a precision policy with the capabilities of accelerators,
/// where elementwise operations use the compute dtype too; blocks in a scan with `remat`, or unrolled.
fn narrowed(policy: DTypePolicy, remat: Option<Option<Remat>>) -> Graph {
    let cx = &Trace::new();
    let tokens = cx.input(tokens().ty().clone(), "tokens");
    let config = TransformerConfig {
        remat: remat.flatten(),
        dropout: 0.0,
        ..config()
    };
    let model = init(
        cx,
        &Transformer::new(&config).unwrap(),
        rng::constant_key(cx, rng::key(7)),
    );
    let logits = if remat.is_some() {
        model.forward(tokens)
    } else {
        one_by_one(cx, &model, tokens)
    };
    let outputs = outputs(&model, logits, tokens).split_off(2);
    let graph = with_precision(
        cx.graph(&[tokens], &outputs).unwrap(),
        &policy,
        &Narrowing::Everywhere,
    );
    let graph = optimize(graph);
    verify(&graph).unwrap();
    graph
}

#[test]
fn scan_residuals_are_in_the_compute_dtype() {
    // The scan over blocks carries one value; one that draws first weights carries none.
    let residuals = |policy, remat| -> Vec<TensorType> {
        let graph = narrowed(policy, Some(remat));
        let is_forward = |node: &&Node| {
            matches!(
                node.op,
                Op::Scan {
                    carried: 1,
                    reverse: false,
                    ..
                }
            )
        };
        let forward = graph
            .nodes()
            .iter()
            .find(is_forward)
            .expect("the blocks are a scan");
        forward.results[1..]
            .iter()
            .map(|&result| graph.ty(result).clone())
            .collect()
    };
    let full = residuals(DTypePolicy::BF16_MIXED, Some(Remat::Full));
    assert_eq!(
        full,
        [TensorType::new(DType::Bf16, [3, 2, 8, 16])],
        "what goes into each block"
    );
    for remat in [None, Some(Remat::SaveDots)] {
        let bytes = |policy| {
            residuals(policy, remat)
                .iter()
                .map(TensorType::bytes)
                .sum::<usize>()
        };
        let (mixed, exact) = (bytes(DTypePolicy::BF16_MIXED), bytes(DTypePolicy::F32));
        println!("{remat:?}: {mixed} of {exact} bytes");
        assert!(
            mixed < exact && 2 * mixed >= exact,
            "{remat:?}: {mixed} of {exact} bytes"
        );
    }
}

#[test]
fn bf16_scan_gradients_match_unrolled_blocks() {
    let gradients = |policy, remat| {
        try_run_replicas(&narrowed(policy, remat), &[vec![tokens()]])
            .unwrap()
            .remove(0)
    };
    let exact = gradients(DTypePolicy::F32, None);
    let distance = |remat| {
        let gradients = gradients(DTypePolicy::BF16_MIXED, remat);
        let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
            let pairs = gradients
                .iter()
                .zip(&exact)
                .map(|(a, b)| (a.as_slice::<f32>().unwrap(), b.as_slice::<f32>().unwrap()));
            pairs
                .flat_map(|(a, b)| a.iter().zip(b))
                .map(|(&a, &b)| of(a.into(), b.into()))
                .sum()
        };
        (sum(&|a, b| (a - b).powi(2)) / sum(&|_, b| b * b)).sqrt()
    };
    let one_by_one = distance(None);
    println!("one by one: {one_by_one:.5} from f32");
    assert!(one_by_one > 1e-4 && one_by_one < 0.02, "{one_by_one}");
    for remat in [None, Some(Remat::Full)] {
        let scanned = distance(Some(remat));
        println!("{remat:?}: {scanned:.5}");
        assert!(
            scanned < 1.5 * one_by_one,
            "{remat:?}: {scanned}, {one_by_one} one by one"
        );
    }
}

#[test]
fn program_size_is_independent_of_depth() {
    let size = |layers: usize| {
        let cx = &Trace::new();
        let described = Transformer::new(&TransformerConfig { layers, ..config() }).unwrap();
        let model = described.map_leaves(|path, param| cx.input(param.ty, path.to_string()));
        let tokens = cx.input(TensorType::new(DType::S32, [2, 8]), "tokens");
        cx.set_mode(true, Some(rng::constant_key(cx, rng::key(0))));
        let outputs = outputs(&model, model.forward(tokens), tokens);
        let inputs: Vec<Tensor<'_>> = model.into_leaves().into_iter().chain([tokens]).collect();
        let graph = halite_ir::optimize(cx.graph(&inputs, &outputs).unwrap());
        let program =
            halite_tests::eval::program(&graph, &halite_ir::Interface::new("step")).unwrap();
        String::from_utf8_lossy(program.code.bytes())
            .lines()
            .count()
    };
    let few = size(2);
    assert!(few > 100, "{few} lines");
    assert_eq!(size(24), few);
}

#[test]
fn later_tokens_do_not_change_earlier_logits() {
    for config in [
        config(),
        TransformerConfig::tiny().vocab_size(11).context_length(8),
    ] {
        let logits = |tokens: HostArray| {
            eval(
                move |cx, given| vec![drawn(cx, &config).forward(given[0])],
                &[tokens],
            )
            .remove(0)
        };
        let first = logits(tokens());
        for changed in [1, 4, 7] {
            let mut ids = tokens().as_slice::<u16>().unwrap().to_vec();
            ids[changed] = (ids[changed] + 3) % 11;
            let second = logits(host(&ids, &[2, 8]));
            let differs: Vec<bool> = (first.as_slice::<f32>().unwrap().chunks(11))
                .zip(second.as_slice::<f32>().unwrap().chunks(11))
                .map(|(a, b)| a.iter().zip(b).any(|(a, b)| (a - b).abs() > 1e-4))
                .collect();
            // All positions of the first text from there on, and none of the second text.
            let expected: Vec<bool> = (0..16).map(|place| (changed..8).contains(&place)).collect();
            assert_eq!(differs, expected, "{config}, token {changed}");
        }
    }
}

#[test]
fn dropout_mask_differs_between_steps() {
    let logits = |training: bool, seed: u64| {
        eval(
            move |cx, given| {
                let model = drawn(cx, &config());
                cx.set_mode(training, Some(rng::constant_key(cx, rng::key(seed))));
                vec![model.forward(given[0])]
            },
            &[tokens()],
        )
        .remove(0)
    };
    assert_eq!(logits(false, 1), logits(false, 2));
    assert_eq!(logits(true, 1), logits(true, 1));
    assert_ne!(logits(true, 1), logits(true, 2));
    assert_ne!(logits(true, 1), logits(false, 1));
}

#[test]
fn first_values_are_those_of_gpt_2() {
    let config = TransformerConfig {
        context_length: 64,
        ..TransformerConfig::gpt2(8, 64).vocab_size(200)
    };
    let described = Transformer::new(&config).unwrap();
    let jit = Jit::<Empty<()>, Empty<()>, Transformer<()>>::function(client(), move |cx, _| {
        init(cx, &described, rng::constant_key(cx, rng::key(0)))
    });
    let sharding = halite_core::Sharding::single(client().local_devices()[0]);
    let model = jit.on(sharding.mesh()).run(&Empty::new()).unwrap();
    for (path, array) in model.named() {
        let host = array.fetch().unwrap().wait().unwrap();
        let values: &[f32] = host.as_slice().unwrap();
        let mean = values.iter().map(|&value| f64::from(value)).sum::<f64>() / values.len() as f64;
        let std = (values
            .iter()
            .map(|&value| (f64::from(value) - mean).powi(2))
            .sum::<f64>()
            / values.len() as f64)
            .sqrt();
        let (expected_mean, expected_std) = match path.as_str() {
            path if path.ends_with("scale") => (1.0, 0.0),
            path if path.ends_with("bias") => (0.0, 0.0),
            "blocks.attention.o.weight" | "blocks.mlp.down.weight" => (0.0, 0.02 / 4.0),
            _ => (0.0, 0.02),
        };
        assert!((mean - expected_mean).abs() < 1e-3, "{path}: mean {mean}");
        assert!(
            (std - expected_std).abs() < 0.05 * expected_std + 1e-9,
            "{path}: standard deviation {std}"
        );
    }
}

#[test]
fn errors_name_invalid_values() {
    let cx = &Trace::new();
    let float = |dims: &[usize]| cx.input(TensorType::new(DType::F32, dims), "x");
    let q = float(&[2, 5, 4, 8]);
    let none = Dropout::new(0.0);
    let _ = attention(
        q,
        float(&[2, 6, 3, 8]),
        float(&[2, 6, 3, 8]),
        Mask::None,
        none,
    );
    let _ = attention(q, q, q, Mask::Where(float(&[5, 5])), none);
    let _ = attention(q, q, q, Mask::Add(float(&[3, 5])), none);
    let _ = Rotary::default().rotation(cx, 5, 7);
    let _ = Rotary::default().rotation(cx, 4, 8).forward(q);
    let layer =
        Attention::new(16, 4, 8).map_leaves(|path, param| cx.input(param.ty, path.to_string()));
    let _ = layer.forward(float(&[2, 5, 12]), Mask::Causal, None);
    let model = Transformer::new(&config())
        .unwrap()
        .map_leaves(|path, param| cx.input(param.ty, path.to_string()));
    let _ = model.forward(cx.input(TensorType::new(DType::S32, [2, 9]), "ids"));
    let _ = model.forward(float(&[2, 8]));
    let mistakes: Vec<String> = cx
        .mistakes()
        .iter()
        .map(|mistake| format!("{}: {}", mistake.op, mistake.message))
        .collect();
    let parts = [
        "attention: queries f32[2, 5, 4, 8], keys f32[2, 6, 3, 8]",
        "attention: a mask of f32[5, 5]; expected bool that broadcast to [2, 4, 5, 5]",
        "attention: a mask of f32[3, 5]; expected floats that broadcast to [2, 4, 5, 5]",
        "rotary: heads of size 7; expected an even size",
        "rotary: f32[2, 5, 4, 8] rotated for positions [4] of size 8",
        "to heads: f32[2, 5, 12] with a weight of f32[16, 4, 8] (`q.weight`)",
        "to heads: f32[2, 5, 12] with a weight of f32[16, 4, 8] (`k.weight`)",
        "to heads: f32[2, 5, 12] with a weight of f32[16, 4, 8] (`v.weight`)",
        "transformer: tokens are s32[2, 9]; expected integers [batch, time], time at most 8",
        "transformer: tokens are f32[2, 8]",
    ];
    assert_eq!(mistakes.len(), parts.len(), "{mistakes:#?}");
    for (mistake, part) in mistakes.iter().zip(parts) {
        assert!(mistake.starts_with(part), "{mistake}\nis not\n{part}");
    }
}
