//! Attention, rotary positions, and whole transformers.

use halite_core::{
    DType,
    tree::{Leaf, Tree},
};
use halite_nn::{
    Adam, Dropout, Mask, Param, Rotary, Tensor, Transformer, TransformerConfig, attention,
    cross_entropy, grad, init, optim, rng,
};
use halite_tests::{functions, golden::Given};

functions! {
    masked_attention(g) {
        let mask = match g.get::<String>("mask").as_str() {
            "none" => Mask::None,
            "causal" => Mask::Causal,
            "where" => Mask::Where(g.input("mask")),
            "add" => Mask::Add(g.input("mask")),
            other => panic!("mask {other}"),
        };
        attention(g.input("q"), g.input("k"), g.input("v"), mask, Dropout::new(0.0))
    };
    rotary(g) {
        let x = g.x();
        Rotary::new(g.get("theta")).rotation(g.cx, x.dims()[1], x.dims()[3]).forward(x)
    };
    transformer(g) {
        let (described, ids) = (described(g), g.input("ids"));
        let model = given(g, &described);
        vec![model.forward(inputs_and_targets(ids).0), next_token_loss(&model, ids)]
    };
    transformer_training(g) {
        let (described, ids, steps) = (described(g), g.input("ids"), g.size("steps"));
        let optimizer = Adam::new(g.get::<f64>("rate"));
        let slots = init(g.cx, &optim::slots(&optimizer, &described), rng::constant_key(g.cx, rng::key(0)));
        let losses = Leaf(g.cx.scalar(0.0, DType::F32).broadcast_to([steps]));
        let (.., Leaf(losses)) = g.cx.repeat(steps, (given(g, &described), (slots, losses)), |step, (model, (slots, losses))| {
            let loss = next_token_loss(&model, ids);
            let gradients = grad(loss, &model);
            let (model, slots) = optim::update(&optimizer, g.cx, step.convert(DType::U32), &described, model, gradients, slots);
            (model, (slots, Leaf(losses.0.dynamic_update_slice(loss.reshape([1]), &[step]))))
        }).1;
        losses
    };
}

/// The model that a case is of, with parameters of its own names.
fn described(g: &Given<'_>) -> Transformer<Param> {
    let (layers, width, hidden) = (g.size("layers"), g.size("width"), g.size("hidden"));
    let base = match g.get::<String>("form").as_str() {
        "gpt2" => TransformerConfig {
            kv_heads: g.size("heads"),
            mlp_size: hidden,
            ..TransformerConfig::gpt2(layers, width)
        },
        "llama" => TransformerConfig {
            kv_heads: 1,
            ..TransformerConfig::llama(layers, width, hidden)
        },
        other => panic!("form {other}"),
    };
    let config = TransformerConfig {
        heads: g.size("heads"),
        ..base
    };
    Transformer::new(
        &config
            .vocab_size(g.size("vocabulary"))
            .context_length(g.size("context")),
    )
    .expect("a model of this shape")
}

fn given<'t>(g: &Given<'t>, described: &Transformer<Param>) -> Transformer<Tensor<'t>> {
    described.clone().map_leaves(|path, param| {
        let value = g.input(&path.to_string());
        assert_eq!(value.ty(), param.ty, "{path}");
        value
    })
}

fn inputs_and_targets(ids: Tensor<'_>) -> (Tensor<'_>, Tensor<'_>) {
    let last = ids.dims()[1] - 1;
    (ids.slice_dim(1, ..last), ids.slice_dim(1, 1..))
}

fn next_token_loss<'t>(model: &Transformer<Tensor<'t>>, ids: Tensor<'t>) -> Tensor<'t> {
    let (inputs, targets) = inputs_and_targets(ids);
    cross_entropy(model.forward(inputs), targets).mean_all()
}
