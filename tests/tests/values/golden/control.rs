//! Branches, loops and checkpoints, what gradients pass over, gradients of gradients, attention.

use halite_core::{
    DType,
    tree::{Empty, Leaf},
};
use halite_nn::{ScanOptions, Tensor, cross_entropy, grad};
use halite_tests::{functions, golden::Given};

/// `h = tanh(x w + h u)` over `xs`: the last and all of them.
fn recurrent<'t>(g: &Given<'t>, reverse: bool) -> (Leaf<Tensor<'t>>, Leaf<Tensor<'t>>) {
    let [xs, h, w, u] = ["xs", "h", "w", "u"].map(|name| g.input(name));
    let options = ScanOptions {
        reverse,
        ..ScanOptions::default()
    };
    g.cx.scan_with(options, Leaf(h), Leaf(xs), |Leaf(h), Leaf(x)| {
        let h = (x.matmul(w) + h.matmul(u)).tanh();
        (Leaf(h), Leaf(h))
    })
}

functions! {
    attention(g) {
        let [q, k, v] = ["q", "k", "v"].map(|name| g.input(name).swap_dims(1, 2));
        let (time, width) = (q.dims()[2], q.dims()[3]);
        let scores = q.matmul(k.t()) / (width as f64).sqrt();
        let mask = g.cx.lower_triangle(time, time, 0);
        let weights = mask.select(scores, f64::NEG_INFINITY).softmax(3);
        weights.matmul(v).swap_dims(1, 2)
    };
    case(g) {
        let x = g.input("x");
        let branch = |index| Leaf(match index {
            0 => x.sin(),
            1 => x * x,
            _ => x - x.mean_all(),
        });
        g.cx.case(g.input("index"), 3, branch).0
    };
    cond(g) {
        let (x, y) = (g.input("x"), g.input("y"));
        let on_true = || (Leaf(x * 2 + y), Leaf(x.sum_all()));
        let on_false = || (Leaf(x.sin() * y), Leaf(y.sum_all()));
        let (Leaf(vector), Leaf(scalar)) = g.cx.cond(g.input("p"), on_true, on_false);
        (vector, scalar)
    };
    gradient_of_gradient(g) {
        let x = g.x();
        let y = (x * x * x * x.sin()).sum_all();
        grad(y, &Leaf(x)).0
    };
    gradient_penalty(g) {
        let [x, hidden, out] = ["x", "hidden", "out"].map(|name| g.input(name));
        let logits = x.matmul(hidden).tanh().matmul(out);
        let loss = cross_entropy(logits, g.input("target")).mean_all();
        let (Leaf(hidden), Leaf(out)) = grad(loss, &(Leaf(hidden), Leaf(out)));
        hidden.square().sum_all() + out.square().sum_all()
    };
    optimization_barrier(g) g.x().optimization_barrier() * 2;
    repeat(g) {
        let start = Leaf(g.cx.eye(2, DType::F32));
        g.cx.repeat(5, start, |iteration, Leaf(y)| Leaf(y.matmul(g.x()) + iteration.convert(DType::F32))).0
    };
    repeat_nested(g) {
        let start = Leaf(g.cx.scalar(0.0, DType::S32));
        let outer = |i: Tensor<'t>, a: Leaf<Tensor<'t>>| g.cx.repeat(3, a, |j, Leaf(b)| Leaf(b + g.x() * i + j));
        g.cx.repeat(4, start, outer).0
    };
    scan(g) {
        let (Leaf(last), Leaf(states)) = recurrent(g, false);
        (last, states)
    };
    scan_reverse(g) {
        let (Leaf(last), Leaf(states)) = recurrent(g, true);
        (last, states)
    };
    scan_gradient(g) {
        let (Leaf(last), Leaf(states)) = recurrent(g, false);
        let (Leaf(w), Leaf(u)) = (Leaf(g.input("w")), Leaf(g.input("u")));
        let (Leaf(dw), Leaf(du)) = grad((states * states).sum_all() + last.sum_all(), &(Leaf(w), Leaf(u)));
        (dw, du)
    };
    checkpoint(g) {
        let (x, w) = (g.input("x"), g.input("w"));
        let Leaf(y) = g.cx.checkpoint(|| Leaf(x.matmul(w).sin().matmul(w).tanh()));
        y
    };
    checkpoint_in_scan(g) {
        let iterations = ScanOptions { length: Some(4), reverse: false };
        let start = (Leaf(g.input("x")), Leaf(g.cx.scalar(0.0, DType::S32)));
        let w = g.input("w");
        let ((Leaf(y), _), Leaf(means)) = g.cx.scan_with(iterations, start, Empty::new(), |(Leaf(y), Leaf(iteration)), _| {
            let Leaf(next) = g.cx.checkpoint(|| Leaf((y.matmul(w).sin() + iteration.convert(DType::F32)).tanh()));
            ((Leaf(next), Leaf(iteration + 1)), Leaf(next.mean_all()))
        });
        (y, means)
    };
    stop_gradient(g) g.x() * g.x().stop_gradient() + g.x().sin();
    while_loop(g) {
        let x = g.x();
        let start = (Leaf(x), Leaf(g.cx.scalar(0.0, DType::S32)));
        let far = |(Leaf(root), _): &(Leaf<Tensor<'t>>, Leaf<Tensor<'t>>)| (*root * *root - x).abs().max([0]).gt(1e-3);
        let (Leaf(root), Leaf(iterations)) = g.cx.while_loop(start, far, |(Leaf(root), Leaf(iterations))| {
            (Leaf((root + x / root) * 0.5), Leaf(iterations + 1))
        });
        (root, iterations)
    };
}
