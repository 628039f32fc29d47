use halite_tests::eval::host;

use crate::gradients::Case;

#[test]
fn moved_elements_move_back() {
    let x = || Case::noise(&[&[2, 3, 4]]);
    x().check("reshape", |_, x| vec![x[0].reshape([4, 6])]);
    x().check("transpose", |_, x| vec![x[0].transpose([2, 0, 1])]);
    x().check("reverse", |_, x| vec![x[0].reverse([0, 2])]);
    x().check("slice", |_, x| vec![x[0].slice([0..1, 1..3, 2..4])]);
    x().check("slice with strides", |_, x| {
        vec![x[0].slice_strided([0, 0, 1], [2, 3, 4], [1, 2, 2])]
    });
    x().check("split", |_, x| x[0].split(2, 2));
    x().check("index and squeeze", |_, x| {
        vec![x[0].index(1, 2), x[0].unsqueeze(1)]
    });
    x().check("triangles", |_, x| vec![x[0].tril(0), x[0].triu(1)]);
    Case::noise(&[&[2, 3], &[2, 1], &[2, 2]]).check("concatenate", |cx, x| vec![cx.concat(x, 1)]);
    Case::noise(&[&[2, 3], &[2, 3]]).check("stack", |cx, x| vec![cx.stack(x, 1)]);
}

#[test]
fn broadcasts_sum_back_in_any_order_of_dimensions() {
    Case::noise(&[&[2, 3]]).check("in front", |_, x| vec![x[0].broadcast_to([4, 2, 3])]);
    Case::noise(&[&[2, 3]]).check("exchanged", |_, x| {
        vec![x[0].broadcast_in_dim([3, 4, 2], [2, 0])]
    });
    Case::noise(&[&[2, 1, 3]]).check("of size one", |_, x| {
        vec![x[0].broadcast_in_dim([3, 5, 2], [2, 1, 0])]
    });
}

#[test]
fn padding_gradients() {
    let x = || Case::noise(&[&[3, 4], &[]]);
    x().check("pad", |_, x| vec![x[0].pad(x[1], [(1, 2), (0, 1)])]);
    x().check("cut", |_, x| vec![x[0].pad(x[1], [(-1, 2), (1, -2)])]);
    x().check("spread", |_, x| {
        vec![x[0].pad_interior(x[1], [1, 0], [0, 2], [2, 1])]
    });
    x().check("spread and cut", |_, x| {
        vec![x[0].pad_interior(x[1], [-2, 1], [1, -3], [2, 1])]
    });
}

#[test]
fn dynamic_slice_gradients_at_clamped_starts() {
    for (name, starts) in [("inside", [1, 2]), ("moved", [-3, 9])] {
        let starts = [
            host::<i32>(&starts[..1], &[]),
            host::<i32>(&starts[1..], &[]),
        ];
        Case::noise(&[&[4, 5]])
            .with(&starts)
            .check(&format!("dynamic slice, {name}"), |_, x| {
                vec![x[0].dynamic_slice(&x[1..], [2, 3])]
            });
        Case::noise(&[&[4, 5], &[2, 3]])
            .with(&starts)
            .check(&format!("dynamic update slice, {name}"), |_, x| {
                vec![x[0].dynamic_update_slice(x[1], &x[2..])]
            });
    }
}

#[test]
fn barriers_let_it_through() {
    Case::noise(&[&[3], &[2]]).check("barrier", |cx, x| {
        let passed = cx.optimization_barrier(x);
        vec![passed[0].sin(), passed[1]]
    });
    Case::noise(&[&[3], &[2]]).check("barrier with an unused result", |cx, x| {
        vec![cx.optimization_barrier(x)[1]]
    });
}
