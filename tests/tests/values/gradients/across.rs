use halite_ir::Reduction;
use halite_nn::Over;

use crate::gradients::Case;

/// The gradient is that of the sum of all devices' losses, so what every device takes from one
/// flows back to that one.
#[test]
fn what_went_between_devices_comes_back() {
    if !halite_tests::eval::has_devices(4) {
        return;
    }
    let x = || Case::noise(&[&[4, 3]]).on_devices(4);
    let groups = || vec![vec![0, 2], vec![1, 3]];
    x().check("sum over all", |_, x| {
        vec![x[0].all_reduce(Reduction::Sum, Over::ALL)]
    });
    x().check("sum over groups", move |_, x| {
        vec![x[0].all_reduce(Reduction::Sum, groups()) * x[0]]
    });
    x().check("max", |_, x| {
        vec![x[0].all_reduce(Reduction::Max, Over::ALL)]
    });
    x().check("min", move |_, x| {
        vec![x[0].all_reduce(Reduction::Min, groups())]
    });
    x().check("gather", move |_, x| vec![x[0].all_gather(1, groups())]);
    x().check("reduce scatter", |_, x| {
        vec![x[0].reduce_scatter(Reduction::Sum, 0, vec![vec![0, 1, 2, 3]])]
    });
    x().check("all to all", move |_, x| {
        vec![x[0].all_to_all(0, 1, groups())]
    });
    x().check("permute", |_, x| {
        vec![x[0].collective_permute([(0, 1), (1, 2), (3, 0)], Over::ALL)]
    });
}
