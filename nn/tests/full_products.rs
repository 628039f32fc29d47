//! Products of `f32` on devices that round their operands unless a program says otherwise.

use halite_core::{
    Capabilities, DType, DTypePolicy, MeshShape, TensorType,
    tree::{Empty, Leaf},
};
use halite_nn::{Function, ShardedType, Tensor, Trace, grad, lower};

/// How many contractions of a product and its gradient ask for full precision.
fn full(policy: DTypePolicy, rounds_products: bool) -> usize {
    let function = Function::<Empty<()>, Leaf<()>, Leaf<()>>::stateless(
        |_: &Trace, Leaf(x): Leaf<Tensor<'_>>| grad(x.matmul(x).tanh().sum_all(), &Leaf(x)),
    );
    let function = function.precision(policy);
    let input = Leaf(ShardedType::replicated(TensorType::new(DType::F32, [8, 8])));
    let mut capabilities = Capabilities::default();
    capabilities.rounds_products = rounds_products;
    let mesh = MeshShape::single();
    let lowered = lower(&function, &Empty::new(), &input, &mesh, &capabilities).unwrap();
    let text = String::from_utf8(lowered.program.code.bytes().to_vec()).unwrap();
    text.matches("precision = [HIGHEST, HIGHEST]").count()
}

#[test]
fn f32_has_full_precision_and_tf32_is_fast() {
    assert_eq!(full(DTypePolicy::F32, true), 3);
    assert_eq!(full(DTypePolicy::TF32, true), 0);
    assert_eq!(full(DTypePolicy::BF16_MIXED, true), 0);
    assert_eq!(full(DTypePolicy::F32, false), 0);
}
