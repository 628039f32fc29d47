//! Layers, losses, optimizers.

use halite_core::tree::{Leaf, Tree};
use halite_nn::{
    Adam, AdamW, BatchNorm, Conv2d, CrossEntropy, Decay, Dropout, Embedding, GroupNorm, Init,
    LayerNorm, Linear, Mean, Optimizer, Padding, Param, RmsNorm, Sgd, Tensor, bce_with_logits,
    cross_entropy, huber, init, kl_divergence, mae, mse, optim, rng, soft_cross_entropy,
    top_k_accuracy,
};
use halite_tests::{functions, golden::Given};

functions! {
    attend(g) Embedding { table: g.input("table") }.attend(g.input("x"));
    batch_norm(g) {
        let layer = batch_norm(g);
        g.cx.set_mode(true, None);
        let y = layer.forward(g.x());
        g.cx.set_mode(false, None);
        vec![y, g.cx.updated(layer.mean), g.cx.updated(layer.variance)]
    };
    batch_norm_evaluation(g) batch_norm(g).forward(g.x());
    conv2d(g) {
        let layer = Conv2d::new(4, 6, 3).stride(2).padding(1).groups(2);
        layer.rebuild([g.input("weight"), g.input("bias")]).forward(g.x())
    };
    dropout(g) {
        g.cx.set_mode(true, Some(g.input("key")));
        let y = Dropout::new(0.3).forward(g.input("x"));
        g.cx.set_mode(false, None);
        y
    };
    embedding(g) Embedding { table: g.input("table") }.forward(g.input("ids"));
    global_avg_pool(g) g.x().global_avg_pool();
    global_max_pool(g) g.x().global_max_pool();
    group_norm(g) {
        let layer = GroupNorm::new(g.size("groups"), g.x().dims()[3]);
        layer.rebuild([g.input("scale"), g.input("bias")]).forward(g.x())
    };
    layer_norm(g) LayerNorm { scale: g.input("scale"), bias: g.inputs().get(2).copied(), eps: 1e-5 }.forward(g.x());
    linear(g) Linear { weight: g.input("weight"), bias: g.inputs().get(2).copied() }.forward(g.x());
    network(g) {
        let features = g.input("scale");
        let norm = BatchNorm::new(3).rebuild([features, g.input("bias"), features.zeros_like(), features.ones_like()]);
        g.cx.set_mode(true, None);
        let convolved = Conv2d::new(2, 3, 3).without_bias().same().rebuild([g.input("kernel")]).forward(g.x());
        let pooled = norm.forward(convolved).relu().max_pool([2, 2], [], Padding::Valid);
        g.cx.set_mode(false, None);
        cross_entropy(pooled.flatten_from(1).matmul(g.input("dense")), g.input("target")).mean_all()
    };
    rms_norm(g) RmsNorm { scale: g.input("scale"), eps: 1e-6 }.forward(g.x());

    bce_with_logits(g) bce_with_logits(g.x(), g.y()).mean_all();
    cross_entropy(g) cross_entropy_of(g).value();
    huber(g) huber(g.x(), g.y(), g.get("delta")).mean_all();
    kl_divergence(g) kl_divergence(g.x(), g.y()).mean_all();
    mae(g) mae(g.x(), g.y()).mean_all();
    mse(g) mse(g.x(), g.y()).mean_all();
    soft_cross_entropy(g) soft_cross_entropy(g.x(), g.y()).mean_all();
    top_k_accuracy(g) top_k_accuracy(g.x(), g.y(), g.size("k")).value();

    adam(g) {
        let plain = Adam::new(g.get::<f64>("rate")).betas(or(g, "b1", 0.9), or(g, "b2", 0.999)).eps(or(g, "eps", 1e-8));
        train(g, &plain.weight_decay(or(g, "weight_decay", 0.0)).decay(Decay::All))
    };
    adamw(g) {
        let plain = AdamW::new(g.get::<f64>("rate")).betas(or(g, "b1", 0.9), or(g, "b2", 0.999)).eps(or(g, "eps", 1e-8));
        train(g, &plain.weight_decay(g.get("weight_decay")).decay(Decay::All))
    };
    clip_global_norm(g) {
        let model = (Leaf(Param::new(g.x().dims(), Init::Zeros)), Leaf(Param::new(g.y().dims(), Init::Zeros)));
        let grads = (Leaf(g.x()), Leaf(g.y()));
        let ((Leaf(a), Leaf(b)), norm) = optim::clip_global_norm(g.cx, &model, grads, g.get("max"));
        vec![a, b, norm]
    };
    clip_value(g) {
        let (Leaf(a), Leaf(b)) = optim::clip_value(g.cx, (Leaf(g.x()), Leaf(g.y())), g.get("max"));
        (a, b)
    };
    sgd(g) {
        let plain = Sgd::new(g.get::<f64>("rate")).momentum(or(g, "momentum", 0.0)).dampening(or(g, "dampening", 0.0));
        let plain = plain.weight_decay(or(g, "weight_decay", 0.0)).decay(Decay::All);
        train(g, &if g.get_or_default("nesterov") { plain.nesterov() } else { plain })
    };
}

fn batch_norm<'t>(g: &Given<'t>) -> BatchNorm<Tensor<'t>> {
    BatchNorm::new(g.x().dims()[g.x().rank() - 1])
        .rebuild(["scale", "bias", "mean", "variance"].map(|name| g.input(name)))
}

fn cross_entropy_of<'t>(g: &Given<'t>) -> Mean<'t> {
    let mut loss = CrossEntropy::new().label_smoothing(g.get_or_default("smoothing"));
    if let Some(ignored) = g.get_or_default("ignore") {
        loss = loss.ignore(ignored);
    }
    if let Some(weights) = g.find("class_weights") {
        loss = loss.class_weights(weights);
    }
    if let Some(weights) = g.find("weights") {
        loss = loss.weights(weights);
    }
    loss.loss(g.input("logits"), g.input("target"))
}

/// An attribute, or torch's default.
fn or(g: &Given<'_>, name: &str, default: f64) -> f64 {
    g.get_or_default::<Option<f64>>(name).unwrap_or(default)
}

/// A dense layer's parameters after as many updates as there are gradients.
fn train<'t>(g: &Given<'t>, optimizer: &impl Optimizer) -> Vec<Tensor<'t>> {
    let dtype = g.input("weight").dtype();
    let model = Linear::new(3, 4).map_leaves(|_, param| param.with_dtype(dtype));
    let mut params = Linear {
        weight: g.input("weight"),
        bias: Some(g.input("bias")),
    };
    let mut slots = init(
        g.cx,
        &optim::slots(optimizer, &model),
        rng::constant_key(g.cx, rng::key(0)),
    );
    let steps = g.input("bias_grads").dims()[0];
    for step in 0..steps {
        let [weight, bias] =
            ["weight_grads", "bias_grads"].map(|name| g.input(name).index(0, step));
        let number = g.cx.scalar(step as f64, halite_core::DType::S32);
        (params, slots) = optim::update(
            optimizer,
            g.cx,
            number,
            &model,
            params,
            Linear {
                weight,
                bias: Some(bias),
            },
            slots,
        );
    }
    params.into_leaves()
}
