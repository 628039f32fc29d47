//! Loops in programs for compilers that run straight programs faster.

use halite_core::{
    Capabilities, DType, DTypePolicy, MeshShape, TensorType,
    tree::{Empty, Leaf},
};
use halite_ir::Remat;
use halite_nn::{Function, Linear, Param, ShardedType, Stack, Tensor, Trace, grad, init, lower};

const GPU: Capabilities = {
    let mut gpu = Capabilities::PORTABLE;
    gpu.unrolled = 4096;
    gpu
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
    let text = String::from_utf8(lowered.program.code.bytes().to_vec()).unwrap();
    text.matches("stablehlo.while").count()
}

#[test]
fn loops_are_unrolled_without_rematerialization() {
    for policy in [DTypePolicy::F32, DTypePolicy::BF16_MIXED] {
        assert_eq!(loops(None, policy), 0);
        assert_eq!(loops(Some(Remat::Full), policy), 2);
    }
}

/// Number of loops in the initialization of four layers, which draws weights and biases, and length of
/// its text.
fn init_of_layers(runs_once: bool) -> (usize, usize) {
    let function = Function::<Empty<()>, Leaf<()>, Stack<Linear<()>>>::stateless(
        |cx: &Trace, Leaf(key): Leaf<Tensor<'_>>| {
            let model: Stack<Linear<Param>> = Stack::new(4, Linear::new(8, 8));
            init(cx, &model, key)
        },
    );
    let function = if runs_once {
        function.runs_once()
    } else {
        function
    };
    let key = Leaf(ShardedType::replicated(TensorType::new(DType::U32, [2])));
    let mesh = MeshShape::single();
    let lowered = lower(&function, &Empty::new(), &key, &mesh, &GPU).unwrap();
    let text = String::from_utf8(lowered.program.code.bytes().to_vec()).unwrap();
    (text.matches("stablehlo.while").count(), text.len())
}

#[test]
fn program_that_runs_once_keeps_its_loops() {
    let (unrolled, long) = init_of_layers(false);
    let (loops, short) = init_of_layers(true);
    assert_eq!((unrolled, loops), (0, 2));
    assert!(2 * short < long, "{short} of {long} bytes");
}
