//! Random numbers.

use halite_nn::rng;
use halite_tests::functions;

functions! {
    seed(g) rng::constant_key(g.cx, rng::key(g.get("seed")));
    split_key(g) rng::split_many(g.x(), g.size("count"));
    fold_in(g) rng::fold_in(g.x(), g.input("number"));

    bernoulli(g) rng::bernoulli(g.x(), g.list("dims"), g.get::<f64>("probability"));
    bits(g) rng::bits(g.x(), g.list("dims"), g.dtype("dtype"));
    categorical(g) rng::categorical(g.x(), g.input("logits"));
    gumbel(g) rng::gumbel(g.x(), g.list("dims"), g.dtype("dtype"));
    integers(g) rng::integers(g.x(), g.list("dims"), g.get("low"), g.get("high"));
    normal(g) rng::normal(g.x(), g.list("dims"), g.dtype("dtype"));
    permutation(g) rng::permutation(g.x(), g.size("count"));
    truncated_normal(g) rng::truncated_normal(g.x(), g.list("dims"), g.dtype("dtype"), g.get("low"), g.get("high"));
    uniform(g) rng::uniform(g.x(), g.list("dims"), g.dtype("dtype"), g.get::<f64>("low"), g.get::<f64>("high"));
}
