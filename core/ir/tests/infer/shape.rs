//! Constants, and operations that move elements by static indices.

use expect_test::expect;
use halite_ir::{Literal, Op};

use crate::infer::{check, ty};

const HUGE: usize = usize::MAX;

#[test]
fn constant_errors() {
    let iota = |text: &str, dim| Op::Iota { ty: ty(text), dim };
    check(
        [
            (Op::Constant(Literal::splat(1.0f32, [])), "f32[]"),
            (Op::Constant(Literal::splat(1.0f32, [HUGE, 2])), ""),
            (iota("f32[2]", 1), ""),
            (iota("f32[]", 0), ""),
            (iota("bool[2]", 0), ""),
        ],
        expect![[r#"
            constant: takes 0 operands, got 1 (f32[])
            constant: f32[18446744073709551615, 2] is larger than any address space
            iota: dimension 1 of f32[2], whose only dimension is 0
            iota: dimension 0 of f32[], which has no dimensions
            iota: takes integers and floats, not bool[2] (convert first)
        "#]],
    );
}

#[test]
fn broadcast_errors() {
    let broadcast = |dims: &[usize], mapping: &[usize]| Op::Broadcast {
        dims: dims.to_vec(),
        mapping: mapping.to_vec(),
    };
    check(
        [
            (broadcast(&[4, 3], &[0]), "f32[3]"),
            (broadcast(&[4, 3], &[0, 0]), "f32[4,4]"),
            (broadcast(&[4, 3], &[2]), "f32[3]"),
            (broadcast(&[3], &[]), "f32[3]"),
            (broadcast(&[HUGE, HUGE], &[]), "f32[]"),
        ],
        expect![[r#"
            broadcast: dimension 0 of f32[3] is 3, dimension 0 of f32[4, 3] is 4; only a dimension of 1 is repeated
            broadcast: mapped dimension 0 of f32[4, 3] appears twice in [0, 0]
            broadcast: mapped dimension 2 of f32[4, 3], whose dimensions are 0 to 1
            broadcast: 0 mapped dimensions [] for f32[3], which has 1 dimensions
            broadcast: f32[18446744073709551615, 18446744073709551615] is larger than any address space
        "#]],
    );
}

#[test]
fn reshape_errors() {
    let reshape = |dims: &[usize]| Op::Reshape {
        dims: dims.to_vec(),
    };
    check(
        [
            (reshape(&[5]), "f32[2,3]"),
            (reshape(&[HUGE, HUGE]), "f32[2,3]"),
            (reshape(&[0, HUGE]), "f32[0]"),
            (reshape(&[4]), "f32[18446744073709551615,2]"),
        ],
        expect![[r#"
            reshape: f32[2, 3] has 6 elements, f32[5] has 5; a reshape keeps them all
            reshape: f32[2, 3] has 6 elements, f32[18446744073709551615, 18446744073709551615] has 340282366920938463426481119284349108225; a reshape keeps them all
            reshape: f32[0, 18446744073709551615] is larger than any address space
            reshape: f32[18446744073709551615, 2] is larger than any address space
        "#]],
    );
}

#[test]
fn permutation_errors() {
    let transpose = |permutation: &[usize]| Op::Transpose {
        permutation: permutation.to_vec(),
    };
    check(
        [
            (transpose(&[0]), "f32[2,3]"),
            (transpose(&[0, 0]), "f32[2,3]"),
            (transpose(&[0, 2]), "f32[2,3]"),
            (Op::Reverse { dims: vec![1, 1] }, "f32[2,3]"),
            (Op::Reverse { dims: vec![0] }, "f32[]"),
        ],
        expect![[r#"
            transpose: 1 permuted dimensions [0] for f32[2, 3], which has 2 dimensions
            transpose: dimension 0 of f32[2, 3] appears twice in [0, 0]
            transpose: dimension 2 of f32[2, 3], whose dimensions are 0 to 1
            reverse: dimension 1 of f32[2, 3] appears twice in [1, 1]
            reverse: dimension 0 of f32[], which has no dimensions
        "#]],
    );
}

#[test]
fn concatenate_errors() {
    check(
        [
            (Op::Concatenate { dim: 0 }, ""),
            (Op::Concatenate { dim: 1 }, "f32[2,3] f32[3,3]"),
            (Op::Concatenate { dim: 0 }, "f32[2] s32[2]"),
            (Op::Concatenate { dim: 2 }, "f32[2,3]"),
            (
                Op::Concatenate { dim: 1 },
                "f32[0,9223372036854775807] f32[0,9223372036854775807] f32[0,2]",
            ),
        ],
        expect![[r#"
            concatenate: takes one operand or more, got none
            concatenate: f32[2, 3] and f32[3, 3] along dimension 1: the element type and all other dimensions must be equal
            concatenate: f32[2] and s32[2] along dimension 0: the element type and all other dimensions must be equal
            concatenate: dimension 2 of f32[2, 3], whose dimensions are 0 to 1
            concatenate: dimension 1 of the result would be larger than any address space
        "#]],
    );
}

#[test]
fn slice_errors() {
    let slice = |start, limits: &[usize], stride| Op::Slice {
        starts: vec![start],
        limits: limits.to_vec(),
        strides: vec![stride],
    };
    check(
        [
            (slice(0, &[4], 1), "f32[3]"),
            (slice(2, &[1], 1), "f32[3]"),
            (slice(0, &[1], 0), "f32[3]"),
            (slice(0, &[1], HUGE), "f32[3]"),
            (slice(0, &[1, 1], 1), "f32[3]"),
        ],
        expect![[r#"
            slice: 0..4 of dimension 0 of f32[3], whose indices are 0..3
            slice: 2..1 of dimension 0 of f32[3], whose indices are 0..3
            slice: strides [0]: number 0 is 0, it must be 1 or more
            slice: strides [18446744073709551615]: number 0 is 18446744073709551615, it must be at most 9223372036854775807
            slice: 2 limits [1, 1] for f32[3], which has 1 dimensions
        "#]],
    );
}

#[test]
fn pad_errors() {
    let pad = |low, high: &[i64], interior| Op::Pad {
        low: vec![low],
        high: high.to_vec(),
        interior: vec![interior],
    };
    check(
        [
            (pad(-2, &[-2], 0), "f32[3] f32[]"),
            (pad(0, &[0], HUGE), "f32[3] f32[]"),
            (pad(0, &[0], HUGE / 2), "f32[9] f32[]"),
            (pad(i64::MAX, &[i64::MAX], 0), "f32[0] f32[]"),
            (pad(0, &[0], 0), "f32[3] s32[]"),
            (pad(0, &[], 0), "f32[3] f32[]"),
        ],
        expect![[r#"
            pad: dimension 0 of f32[3], padded by -2 before, -2 after, 0 between: it would have size -1
            pad: interior paddings [18446744073709551615]: number 0 is 18446744073709551615, it must be at most 9223372036854775807
            pad: dimension 0 of f32[9], padded by 0 before, 0 after, 9223372036854775807 between: the dilated size is 73786976294838206465; its magnitude must not exceed 2^60
            pad: dimension 0 of f32[0], padded by 9223372036854775807 before, 9223372036854775807 after, 0 between: the padding is 9223372036854775807; its magnitude must not exceed 2^60
            pad: the padding value is s32[], for f32[3] it must be f32[]
            pad: 0 high paddings [] for f32[3], which has 1 dimensions
        "#]],
    );
}
