//! Loops in programs for compilers that run straight programs faster.

use halite_core::{
    Capabilities, DType, DTypePolicy, MeshShape, TensorType,
    tree::{Empty, Leaf},
};
use halite_ir::Remat;
use halite_nn::{Function, ShardedType, Tensor, Trace, grad, lower};

const GPU: Capabilities = Capabilities {
    unrolled: 4096,
    ..Capabilities::PORTABLE
};

fn layer(x: Tensor<'_>) -> Tensor<'_> {
    x.matmul(x).tanh()
}

/// Number of loops in the gradient of four layers, with rematerialization or without.
fn loops(remat: Option<Remat>, policy: DTypePolicy) -> usize {
    let function = Function::<Empty<()>, Leaf<()>, Leaf<()>>::stateless(
        move |cx: &Trace, Leaf(x): Leaf<Tensor<'_>>| {
            let last = cx.repeat(4, Leaf(x), |_, Leaf(x)| match remat {
                Some(remat) => cx.checkpoint_with(remat, || Leaf(layer(x))),
                None => Leaf(layer(x)),
            });
            grad(last.0.sum_all(), &Leaf(x))
        },
    );
    let function = function.precision(policy);
    let input = Leaf(ShardedType::replicated(TensorType::new(DType::F32, [8, 8])));
    let mesh = MeshShape::single();
    let lowered = lower(&function, &Empty::new(), &input, &mesh, &GPU).unwrap();
    let text = String::from_utf8(lowered.program.code.to_vec()).unwrap();
    text.matches("stablehlo.while").count()
}

#[test]
fn loops_are_unrolled_without_rematerialization() {
    for policy in [DTypePolicy::F32, DTypePolicy::BF16_MIXED] {
        assert_eq!(loops(None, policy), 0);
        assert_eq!(loops(Some(Remat::Full), policy), 2);
    }
}
