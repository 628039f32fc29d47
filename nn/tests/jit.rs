//! The cache of a jit function's programs.

use std::sync::Arc;

use halite_core::{Client, DType, Null, Sharding, TensorType, tree::Empty, tree::Leaf};
use halite_nn::{ArraySpec, Jit, Tensor};

#[test]
fn prepared_program_is_the_most_recently_used() {
    let client = Client::new(Null::new(1));
    let device = Arc::new(Sharding::single(client.local_devices()[0]));
    let double: Jit<Empty<()>, Leaf<()>, Leaf<()>> =
        Jit::function(&client, |_, Leaf(x): Leaf<Tensor<'_>>| Leaf(x * 2.0)).max_programs(2);
    let prepare = |elements: usize| {
        let spec = ArraySpec::new(TensorType::new(DType::F32, [elements]), &device);
        double.prepare(&Empty::new(), &Leaf(spec)).unwrap();
        double.compiles()
    };
    assert_eq!([1, 2, 1].map(prepare), [1, 2, 2]);
    // 2 is dropped for 3, so 1 need not be compiled again.
    assert_eq!([3, 1].map(prepare), [3, 3]);
}
