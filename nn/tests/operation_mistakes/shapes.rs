//! Dimensions, indices and windows.

use expect_test::expect;
use halite_core::{DType, TensorType};
use halite_ir::GatherAttributes;
use halite_nn::{ConvOptions, Over, Padding, Trace, s};

use crate::shared::{check, input};

#[test]
fn missing_dimensions_are_mistakes() {
    check(
        |cx| {
            let x = input(cx, "x", &[2, 3]);
            let scalar = input(cx, "scalar", &[]);
            let _ = x.sum([2]);
            let _ = scalar.max([0]);
            let _ = x.mean([1, 1]);
            let _ = x.softmax(5);
            let _ = x.argmax(2);
            let _ = x.swap_dims(0, 2);
            let _ = scalar.t();
            let _ = x.squeeze(1);
            let _ = x.unsqueeze(3);
            let _ = x.transpose([0, 0]);
            let _ = x.slice_dim(1, 1..9);
            let _ = x.slice_dim(3, ..);
            let _ = x.split(1, 2);
            let _ = x.index(0, 2);
            let _ = x.cumsum(2);
            let _ = x.sort(2, false);
            let _ = x.top_k(4, 1);
            let _ = x.flatten_from(3);
            let _ = cx.concat(&[], 0);
            let _ = cx.concat(&[x, scalar], 0);
            let _ = x.broadcast_to([3]);
        },
        expect![[r#"
            +4: sum: dimension 2 of f32[2, 3], whose dimensions are 0 to 1, or -2 to -1 from the last (operand 0 is `x`)
            +5: max: dimension 0 of f32[], which has none (operand 0 is `scalar`)
            +6: mean: dimension 1 of f32[2, 3] appears twice in [1, 1] (operand 0 is `x`)
            +7: softmax: dimension 5 of f32[2, 3], whose dimensions are 0 to 1, or -2 to -1 from the last (operand 0 is `x`)
            +8: argmax: dimension 2 of f32[2, 3], whose dimensions are 0 to 1, or -2 to -1 from the last (operand 0 is `x`)
            +9: swap dimensions: dimension 2 of f32[2, 3], whose dimensions are 0 to 1, or -2 to -1 from the last (operand 0 is `x`)
            +10: transpose: f32[] is not a matrix (operand 0 is `scalar`)
            +11: squeeze: dimension 1 of f32[2, 3] is not 1 (operand 0 is `x`)
            +12: unsqueeze: no place 3 in f32[2, 3]: places are 0 to 2, or -3 to -1 from the last (operand 0 is `x`)
            +13: transpose: dimension 0 of f32[2, 3] appears twice in [0, 0] (operand 0 is `x`)
            +14: slice: 1..9 of dimension 1 of f32[2, 3], whose indices are 0..3 (operand 0 is `x`)
            +15: slice: dimension 3 of f32[2, 3], whose dimensions are 0 to 1, or -2 to -1 from the last (operand 0 is `x`)
            +16: split: dimension 1 of f32[2, 3] cannot be split into 2 equal parts (operand 0 is `x`)
            +17: index: no 2 in dimension 0 of f32[2, 3], which has 2 (operand 0 is `x`)
            +18: cumulative sum: dimension 2 of f32[2, 3], whose dimensions are 0 to 1, or -2 to -1 from the last (operand 0 is `x`)
            +19: sort: dimension 2 of f32[2, 3], whose dimensions are 0 to 1, or -2 to -1 from the last (operand 0 is `x`)
            +20: top k: 4 largest along dimension 1 of f32[2, 3] (operand 0 is `x`)
            +21: flatten: from dimension 3 of f32[2, 3], which has 2 (operand 0 is `x`)
            +22: concatenate: no tensors given
            +23: concatenate: f32[2, 3] and f32[] along dimension 0: the element type and all other dimensions must be equal (operand 0 is `x`, operand 1 is `scalar`)
            +24: broadcast: f32[2, 3] has more dimensions than [3] (operand 0 is `x`)
        "#]],
    );
}

#[test]
fn negative_dimensions_count_from_the_last() {
    let cx = Trace::new();
    let x = input(&cx, "x", &[2, 3, 5]);
    let shapes = [
        (x.sum([-1]).dims(), vec![2, 3]),
        (x.mean_keep([-2, 0]).dims(), vec![1, 1, 5]),
        (x.argmax(-3).dims(), vec![3, 5]),
        (x.transpose([-1, 0, 1]).dims(), vec![5, 2, 3]),
        (x.swap_dims(0, -1).dims(), vec![5, 3, 2]),
        (x.move_dim(-1, 0).dims(), vec![5, 2, 3]),
        (x.unsqueeze(-1).dims(), vec![2, 3, 5, 1]),
        (x.unsqueeze(-4).squeeze(-4).dims(), vec![2, 3, 5]),
        (x.flatten_from(-2).dims(), vec![2, 15]),
        (x.slice_dim(-1, 1..3).dims(), vec![2, 3, 2]),
        (x.index(-2, -1).dims(), vec![2, 5]),
        (x.top_k(2, -1).0.dims(), vec![2, 3, 2]),
        (cx.concat(&[x, x], -2).dims(), vec![2, 6, 5]),
        (cx.stack(&[x, x], -1).dims(), vec![2, 3, 5, 2]),
    ];
    cx.check().unwrap();
    for (number, (shape, expected)) in shapes.into_iter().enumerate() {
        assert_eq!(shape, expected, "{number}");
    }
}

#[test]
fn slices_have_the_shapes_of_numpy() {
    let cx = Trace::new();
    let x = input(&cx, "x", &[7, 4, 3]);
    let shapes = [
        (x.at(s![]).dims(), vec![7, 4, 3]),
        (x.at(s![.., 1..3, -1]).dims(), vec![7, 2]),
        (x.at(s![0, 0, 0]).dims(), vec![]),
        (x.at(s![-2..]).dims(), vec![2, 4, 3]),
        (x.at(s![..-2, ..=2]).dims(), vec![5, 3, 3]),
        (x.at(s![1..; 3]).dims(), vec![2, 4, 3]),
        (x.at(s![..;2, ..;5, 1..=-1]).dims(), vec![4, 1, 2]),
        (x.at(s![7..]).dims(), vec![0, 4, 3]),
        (x.at(s![3..3, ..]).dims(), vec![0, 4, 3]),
    ];
    cx.check().unwrap();
    for (number, (shape, expected)) in shapes.into_iter().enumerate() {
        assert_eq!(shape, expected, "{number}");
    }
}

#[test]
fn slices_that_do_not_fit_are_mistakes() {
    check(
        |cx| {
            let x = input(cx, "x", &[2, 3]);
            let _ = x.at(s![2]);
            let _ = x.at(s![.., -4]);
            let _ = x.at(s![.., 1..4]);
            let _ = x.at(s![2..1]);
            let _ = x.at(s![..=2]);
            let _ = x.at(s![..; 0]);
            let _ = x.at(s![0, 0, 0]);
            let _ = x.at(s![usize::MAX]);
            let _ = x.sum([-3]);
        },
        expect![[r#"
            +3: slice: index 2 of the 2 elements (0 to 1, or -2 to -1 from the last) of dimension 0 of f32[2, 3] (operand 0 is `x`)
            +4: slice: index -4 of the 3 elements (0 to 2, or -3 to -1 from the last) of dimension 1 of f32[2, 3] (operand 0 is `x`)
            +5: slice: range 1..4 of the 3 elements of dimension 1 of f32[2, 3] (operand 0 is `x`)
            +6: slice: range 2..1 of the 2 elements of dimension 0 of f32[2, 3] (operand 0 is `x`)
            +7: slice: range 0..=2 of the 2 elements of dimension 0 of f32[2, 3] (operand 0 is `x`)
            +8: slice: a step of 0 over the 2 elements of dimension 0 of f32[2, 3] (operand 0 is `x`)
            +9: slice: 3 slices of f32[2, 3], which has 2 dimensions (operand 0 is `x`)
            +10: slice: index beyond 2^63 of the 2 elements (0 to 1, or -2 to -1 from the last) of dimension 0 of f32[2, 3] (operand 0 is `x`)
            +11: sum: dimension -3 of f32[2, 3], whose dimensions are 0 to 1, or -2 to -1 from the last (operand 0 is `x`)
        "#]],
    );
}

fn strides(strides: &[usize]) -> ConvOptions {
    ConvOptions {
        strides: strides.into(),
        ..ConvOptions::default()
    }
}

#[test]
fn index_errors_name_what_is_expected() {
    check(
        |cx| {
            let x = input(cx, "x", &[2, 3]);
            let image = input(cx, "image", &[1, 8, 8, 3]);
            let kernel = input(cx, "conv.kernel", &[3, 3, 4, 16]);
            let _ = x.take(x, 0);
            let _ = x.one_hot(3, DType::F32);
            let _ = x.take_along(cx.iota(&TensorType::new(DType::S32, [3, 3]), 0), 1);
            let _ = x.gather(
                cx.arange(2, DType::S32),
                GatherAttributes {
                    offset_dims: vec![9],
                    collapsed_slice_dims: vec![4],
                    operand_batching_dims: vec![],
                    start_indices_batching_dims: vec![],
                    start_index_map: vec![],
                    index_vector_dim: 7,
                    ..GatherAttributes::default()
                },
            );
            let _ = image.conv(kernel, &ConvOptions::default());
            let _ = image.conv(kernel, &strides(&[1]));
            let _ = image.conv(kernel, &strides(&[0, 1]));
            let _ = x.conv(kernel, &ConvOptions::default());
            let _ = image.max_pool([2], [], Padding::Valid);
            let _ = image.max_pool([2, 0], [], Padding::Valid);
            let _ = image.avg_pool([2, 2], [], Padding::Explicit(vec![(0, 0)]));
            let _ = image.max_pool([2, 2], [], Padding::Explicit(vec![(-1, 0), (0, 0)]));
            let _ = x.convert(DType::S32).mean([0]);
            let _ = x.all_gather(0, Over::ALL);
        },
        expect![[r#"
            +5: take: f32[2, 3] is not a tensor of integers; convert it first (operand 0 is `x`)
            +6: one hot: f32[2, 3] is not a tensor of integers; convert it first (operand 0 is `x`)
            +7: take along: indices s32[3, 3] along dimension 1 of f32[2, 3]: the other dimensions must be equal (operand 0 is `x`)
            +8: gather: index vector dimension 7 of the indices s32[2]; it must be at most 1 (operand 0 is `x`)
            +20: convolution: f32[1, 8, 8, 3] has 3 features (dimension 3) in 1 group, the kernel f32[3, 3, 4, 16] takes 4 (dimension 2) (operand 0 is `image`, operand 1 is `conv.kernel`)
            +21: window: 1 strides given for f32[1, 8, 8, 3], which needs 2 (operand 0 is `image`)
            +22: window: strides [0, 1]: each must be at least 1 (operand 0 is `image`)
            +23: convolution: f32[2, 3] with kernel f32[3, 3, 4, 16]; expected [batch, spatial.., in] and [spatial.., in, out] (operand 0 is `x`, operand 1 is `conv.kernel`)
            +24: max pool: 1 window sizes given for f32[1, 8, 8, 3], which needs 2 (operand 0 is `image`)
            +25: window: sizes [2, 0]: each must be at least 1 (operand 0 is `image`)
            +26: average pool: padding of 1 dimensions given for 2 spatial dimensions (operand 0 is `image`)
            +27: max pool: negative padding [(-1, 0), (0, 0)] (operand 0 is `image`)
            +28: mean: s32[2, 3] is not a tensor of floats; convert it first
            +29: all_gather: the groups are empty, and the result depends on their size: name the devices, such as [[0, 1]] (operand 0 is `x`)
        "#]],
    );
}

#[test]
fn overflowing_windows_are_mistakes() {
    check(
        |cx| {
            let image = input(cx, "image", &[1, 8, 8, 3]);
            let kernel = input(cx, "kernel", &[3, 3, 3, 16]);
            let far = vec![usize::MAX; 2];
            for padding in [Padding::Valid, Padding::Same] {
                let of = |strides: &[usize]| ConvOptions {
                    strides: strides.into(),
                    padding: padding.clone(),
                    ..Default::default()
                };
                let _ = image.conv(
                    kernel,
                    &ConvOptions {
                        kernel_dilation: far.clone(),
                        ..of(&[])
                    },
                );
                let _ = image.conv(
                    kernel,
                    &ConvOptions {
                        input_dilation: far.clone(),
                        ..of(&[])
                    },
                );
                let _ = image.conv(kernel, &of(&far));
                let _ = image.avg_pool(&far, [], padding.clone());
            }
            let none = input(cx, "none", &[0, 1 << 40, 1 << 40]);
            let _ = (none.flatten_from(1), none.mean([1, 2]));
        },
        expect![[r#"
            +11: convolution: kernel dilations [18446744073709551615, 18446744073709551615]: number 0 is 18446744073709551615, it must be at most 9223372036854775807 (operand 0 is `image`, operand 1 is `kernel`)
            +18: convolution: input dilations [18446744073709551615, 18446744073709551615]: number 0 is 18446744073709551615, it must be at most 9223372036854775807 (operand 0 is `image`, operand 1 is `kernel`)
            +25: convolution: strides [18446744073709551615, 18446744073709551615]: number 0 is 18446744073709551615, it must be at most 9223372036854775807 (operand 0 is `image`, operand 1 is `kernel`)
            +26: reduce_window: window sizes [1, 18446744073709551615, 18446744073709551615, 1]: number 1 is 18446744073709551615, it must be at most 9223372036854775807 (operand 0 is `image`)
            +11: convolution: kernel dilations [18446744073709551615, 18446744073709551615]: number 0 is 18446744073709551615, it must be at most 9223372036854775807 (operand 0 is `image`, operand 1 is `kernel`)
            +18: convolution: input dilations [18446744073709551615, 18446744073709551615]: number 0 is 18446744073709551615, it must be at most 9223372036854775807 (operand 0 is `image`, operand 1 is `kernel`)
            +25: convolution: strides [18446744073709551615, 18446744073709551615]: number 0 is 18446744073709551615, it must be at most 9223372036854775807 (operand 0 is `image`, operand 1 is `kernel`)
            +26: reduce_window: window sizes [1, 18446744073709551615, 18446744073709551615, 1]: number 1 is 18446744073709551615, it must be at most 9223372036854775807 (operand 0 is `image`)
            +29: reshape: f32[0, 18446744073709551615] is larger than any address space (operand 0 is `none`)
        "#]],
    );
}

#[test]
fn windows_larger_than_their_input_are_mistakes() {
    check(
        |cx| {
            let image = input(cx, "image", &[1, 2, 9, 3]);
            let kernel = input(cx, "kernel", &[3, 3, 3, 16]);
            let conv = |options: ConvOptions| image.conv(kernel, &options);
            let _ = conv(ConvOptions::default());
            let _ = conv(ConvOptions {
                padding: Padding::Explicit(vec![(1, 0), (-5, -2)]),
                ..Default::default()
            });
            let _ = conv(ConvOptions {
                kernel_dilation: vec![1, 5],
                padding: Padding::Explicit(vec![(1, 0), (0, 0)]),
                ..Default::default()
            });
            let _ = image.max_pool([3, 3], [1, 1], Padding::Valid);
            let _ = image.avg_pool([2, 10], [], Padding::Valid);
            let beyond = |padding| Padding::Explicit(vec![padding, (0, 0)]);
            let _ = image.max_pool([2, 2], [1, 1], beyond((2, 0)));
            let _ = image.max_pool([2, 2], [], beyond((0, 4)));
            // These fit: the input has gaps, or padding, or is empty.
            let _ = conv(ConvOptions {
                input_dilation: vec![2, 1],
                ..Default::default()
            });
            let _ = image.max_pool([3, 3], [1, 1], Padding::Same);
            let none = input(cx, "none", &[0, 2, 2, 3]);
            let _ = (
                none.max_pool([2, 2], [], Padding::Valid),
                none.conv(
                    kernel,
                    &ConvOptions {
                        padding: Padding::Same,
                        ..Default::default()
                    },
                ),
            );
        },
        expect![[r#"
            +4: convolution: the kernel spans 3 elements of dimension 1 of f32[1, 2, 9, 3], which has 2 with its padding; use a smaller kernel, or more padding (operand 0 is `image`)
            +4: convolution: the kernel spans 3 elements of dimension 2 of f32[1, 2, 9, 3], which has 2 with its padding; use a smaller kernel, or more padding (operand 0 is `image`)
            +4: convolution: the kernel spans 11 elements of dimension 2 of f32[1, 2, 9, 3], which has 9 with its padding; use a smaller kernel, or more padding (operand 0 is `image`)
            +15: max pool: the window spans 3 elements of dimension 1 of f32[1, 2, 9, 3], which has 2 with its padding; use a smaller window, or more padding (operand 0 is `image`)
            +16: average pool: the window spans 10 elements of dimension 2 of f32[1, 2, 9, 3], which has 9 with its padding; use a smaller window, or more padding (operand 0 is `image`)
            +18: max pool: dimension 1 of f32[1, 2, 9, 3] is padded by (2, 0), so that a window of 2 there has no element and no maximum; pad by less than the window (operand 0 is `image`)
            +19: max pool: dimension 1 of f32[1, 2, 9, 3] is padded by (0, 4), so that a window of 2 there has no element and no maximum; pad by less than the window (operand 0 is `image`)
        "#]],
    );
}
