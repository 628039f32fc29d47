//! Constants, and operations that move elements.

use halite_ir::{Literal, Op};
use halite_nn::Tensor;
use halite_tests::{functions, golden::Given};

functions! {
    constant(g) constant(g);
    eye(g) g.cx.eye(g.size("size"), g.dtype("dtype"));
    full(g) g.cx.full(g.get("value"), &g.ty());
    iota(g) g.cx.iota(&g.ty(), g.size("dim"));

    broadcast_in_dim(g) g.x().broadcast_in_dim(g.list("dims"), g.list("mapping"));
    broadcast_to(g) g.x().broadcast_to(g.list("dims"));
    concatenate(g) g.cx.concat(g.inputs(), g.size("dim"));
    flatten_from(g) g.x().flatten_from(g.size("dim"));
    index(g) g.x().index(g.size("dim"), g.size("index"));
    matrix_transpose(g) g.x().t();
    move_dim(g) g.x().move_dim(g.size("a"), g.size("b"));
    pad(g) {
        let edges = |name: &str| g.get::<Vec<i64>>(name);
        g.x().pad_interior(g.input("value"), edges("low"), edges("high"), g.list("interior"))
    };
    reshape(g) g.x().reshape(g.list("dims"));
    reverse(g) g.x().reverse(g.list("dims"));
    slice(g) g.x().slice_strided(g.list("starts"), g.list("limits"), g.list("strides"));
    split(g) g.x().split(g.size("dim"), g.size("parts"));
    stack(g) g.cx.stack(g.inputs(), g.size("dim"));
    swap_dims(g) g.x().swap_dims(g.size("a"), g.size("b"));
    transpose(g) g.x().transpose(g.list("permutation"));
    tril(g) g.x().tril(g.get("diagonal"));
    triu(g) g.x().triu(g.get("diagonal"));

    dynamic_slice(g) g.x().dynamic_slice(&g.inputs()[1..], g.list("sizes"));
    dynamic_update_slice(g) g.x().dynamic_update_slice(g.input("update"), &g.inputs()[2..]);
}

/// Different values in one literal, of any type by way of a conversion.
fn constant<'t>(g: &Given<'t>) -> Tensor<'t> {
    let literal = Literal::new(&g.get::<Vec<f64>>("values"), g.list("dims"))
        .expect("a value for each element");
    g.cx.push_one(Op::Constant(literal), &[])
        .convert(g.dtype("dtype"))
}
