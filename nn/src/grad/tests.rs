use halite_core::{DType, TensorType, tree::Leaf};

use super::{backward::VISITED, grad};
use crate::{Mean, Tensor, Trace};

fn weights(cx: &Trace) -> Tensor<'_> {
    cx.input(TensorType::new(DType::F32, [4]), "w")
}

/// A loss of some operations.
fn loss(mut x: Tensor<'_>) -> Tensor<'_> {
    for _ in 0..20 {
        x = (x * 0.5).sin();
    }
    x.sum_all()
}

/// Operations that `run` takes gradients through.
fn visited(run: impl FnOnce()) -> usize {
    let before = VISITED.get();
    run();
    VISITED.get() - before
}

#[test]
fn gradients_of_one_loss_visit_equally_much() {
    let cx = &Trace::new();
    let w = weights(cx);
    let loss = loss(w);
    let once = || {
        visited(|| {
            grad(loss, &Leaf(w));
        })
    };
    let first = once();
    assert!(first > 40);
    assert!((0..30).all(|_| once() == first));
    assert!(cx.mistakes().is_empty());
}

#[test]
fn inner_steps_visit_equally_much() {
    let cx = &Trace::new();
    let mut w = weights(cx);
    let mut step = || {
        visited(|| {
            let Leaf(slope) = grad(loss(w), &Leaf(w));
            w = w - slope * 0.1;
        })
    };
    let first = step();
    assert!((0..30).all(|_| step() == first));
    assert!(cx.mistakes().is_empty());
}

#[test]
fn gradients_go_through_other_leaves() {
    let cx = &Trace::new();
    let w = weights(cx);
    let hidden = w.sin();
    let loss = (hidden * hidden).sum_all();
    let (both, alone) = (grad(loss, &vec![hidden, w]), grad(loss, &Leaf(w)));
    let graph = |of: Tensor<'_>| cx.graph(&[w], &[of]).unwrap().to_string();
    let pruned = |of| halite_ir::optimize(cx.graph(&[w], &[of]).unwrap()).to_string();
    assert!(graph(both[1]).contains("Cosine"));
    assert_eq!(pruned(both[1]), pruned(alone.0));
}

#[test]
fn accumulated_batches_keep_the_lines_of_their_body() {
    let cx = &Trace::new();
    let w = weights(cx);
    let xs = cx.input(TensorType::new(DType::F32, [2, 3]), "xs");
    let mut line = 0;
    cx.accumulate_gradients(Leaf(xs), &[w], |Leaf(x)| {
        let present = x.sum_all().gt(0.0);
        let loss = cx.report_if(present, || {
            line = line!() + 1;
            Mean::of(x + w)
        });
        (loss, vec![w])
    });
    let mistakes = cx.mistakes();
    let places = mistakes.iter().map(|mistake| mistake.location);
    let places: Vec<_> = places.map(|at| (at.file(), at.line())).collect();
    assert_eq!(places[0], (file!(), line), "{mistakes:?}");
}
