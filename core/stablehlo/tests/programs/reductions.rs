//! Contractions, reductions and matrix operations that break a constraint.

use expect_test::expect;
use halite_stablehlo::{FftKind, OpKind};

use crate::programs::{
    program::{Edit, attribute, refused},
    valid,
};

#[test]
fn contractions_must_fit() {
    let dot = |edit: fn(&mut halite_stablehlo::DotAttributes)| {
        let program = valid::dot();
        attribute!(program, OpKind::DotGeneral(attributes) => edit(attributes))
    };
    refused(
        dot(|d| d.lhs_batching[0] = 2),
        expect!["batch or contracting dimension 2 of tensor<4x2x3xbf16> appears twice in [2, 2]"],
    );
    refused(
        dot(|d| d.rhs_batching.clear()),
        expect![[r#"
            batch dimensions [0] of tensor<4x2x3xbf16> and [] of tensor<3x5x4xbf16> are
            paired"#]],
    );
    refused(
        dot(|d| d.rhs_contracting[0] = 1),
        expect![[r#"
            contracting dimension 2 of tensor<4x2x3xbf16> is 3, dimension 1 of
            tensor<3x5x4xbf16> is 5"#]],
    );
    refused(
        dot(|d| d.rhs_contracting[0] = 3),
        expect![[r#"
            batch or contracting dimension 3 of tensor<3x5x4xbf16>, whose dimensions are 0
            to 2"#]],
    );
    let mixed = valid::dot().operand(0, "4x2x3xi32");
    mixed.verify().unwrap();
    refused(
        valid::dot().result(0, "4x2x5xi32"),
        expect![[r#"
            elements of the result are i32, which cannot hold those of tensor<4x2x3xbf16>
            and tensor<3x5x4xbf16>"#]],
    );
    refused(
        valid::dot().result(0, "4x5x2xf32"),
        expect!["result 0 is tensor<4x5x2xf32>; it must be tensor<4x2x5xf32>"],
    );
    let conv = |edit: fn(&mut halite_stablehlo::ConvolutionAttributes)| {
        let program = valid::convolution();
        attribute!(program, OpKind::Convolution(attributes) => edit(attributes))
    };
    refused(
        conv(|c| c.input.batch = 3),
        expect![[r#"
            the input's dimensions: batch 3, feature 3, spatial [1, 2]; each of 0 to 3 must
            appear once"#]],
    );
    refused(
        conv(|c| c.kernel.spatial.push(0)),
        expect![[r#"
            the kernel's dimensions: batch 3, feature 2, spatial [0, 1, 0]; each of 0 to 3
            must appear once"#]],
    );
    refused(
        conv(|c| c.output.feature = 4),
        expect![[r#"
            the output's dimensions: batch 0, feature 4, spatial [1, 2]; each of 0 to 3
            must appear once"#]],
    );
    refused(
        conv(|c| c.strides[0] = 0),
        expect!["strides [0, 1]: number 0 is 0, it must be 1 or more"],
    );
    refused(
        conv(|c| c.padding[0] = (i64::MAX, i64::MAX)),
        expect![[r#"
            spatial dimension 0 of tensor<8x28x28x4xf32>: the padding is
            9223372036854775807; its magnitude must not exceed 2^60"#]],
    );
    refused(
        conv(|c| c.padding[0] = (2, 1)),
        expect!["result 0 is tensor<8x14x23x6xf32>; it must be tensor<8x15x23x6xf32>"],
    );
    refused(
        conv(|c| _ = c.padding.pop()),
        expect!["1 paddings for tensor<8x28x28x4xf32>, which has 2 spatial dimensions"],
    );
    refused(
        conv(|c| c.feature_groups = 0),
        expect!["0 feature groups and 1 batch groups; both must be 1 or more, one of them 1"],
    );
    refused(
        conv(|c| c.feature_groups = 4),
        expect![[r#"
            tensor<8x28x28x4xf32> has 4 features (dimension 3) in 4 groups, the kernel
            tensor<3x3x2x6xf32> takes 2 (dimension 2)"#]],
    );
    refused(
        conv(|c| c.batch_groups = 2),
        expect!["2 feature groups and 2 batch groups; both must be 1 or more, one of them 1"],
    );
    refused(
        valid::convolution().operand(1, "3x3x4x6xf32"),
        expect![[r#"
            tensor<8x28x28x4xf32> has 4 features (dimension 3) in 2 groups, the kernel
            tensor<3x3x4x6xf32> takes 4 (dimension 2)"#]],
    );
    refused(
        valid::convolution().operand(1, "3x3xf32"),
        expect![[r#"
            tensor<8x28x28x4xf32> and the kernel tensor<3x3xf32> must have the same rank, 2
            or more"#]],
    );
}

#[test]
fn reductions_must_fit() {
    let reduce = valid::reduce;
    refused(
        reduce().edit(|op| _ = op.operands.pop()),
        expect!["it has 1 operands; it must have an initial value for each input"],
    );
    refused(
        reduce().edit(|op| op.operands.clear()),
        expect!["takes one operand or more, got none"],
    );
    refused(
        reduce().operand(1, "1xf32"),
        expect!["an initial value is tensor<1xf32>; it must be a scalar"],
    );
    refused(
        reduce().operand(1, "f64"),
        expect![[r#"
        an initial value is tensor<f64> and the operand is tensor<2x3x4xf32>; they must
        have one element type"#]],
    );
    refused(
        attribute!(reduce(), OpKind::Reduce { dims } => dims[0] = 3),
        expect!["dimension 3 of tensor<2x3x4xf32>, whose dimensions are 0 to 2"],
    );
    refused(
        reduce().edit(|op| _ = op.regions[0].results.pop()),
        expect!["region 0: result count is 0; it must be 1"],
    );
    refused(
        reduce().edit(|op| op.regions.push(Default::default())),
        expect!["region count is 2; it must be 1"],
    );
    refused(
        valid::reduce_two().operand(1, "3x2xi32"),
        expect![[r#"
        operands are tensor<2x3xf32> and tensor<3x2xi32>; they must have the same
        dimensions"#]],
    );
    refused(
        valid::sort().edit(|op| _ = op.regions[0].results.pop()),
        expect!["region 0: result count is 0; it must be 1"],
    );
    refused(
        attribute!(valid::sort(), OpKind::Sort { dim, .. } => *dim = 1),
        expect!["dimension 1 of tensor<5xf32>, whose only dimension is 0"],
    );
    refused(
        valid::map().result(0, "2x3xf32"),
        expect!["region 0: result 0 is tensor<i1>; it must be tensor<f32>"],
    );
    refused(
        attribute!(valid::map(), OpKind::Map { dims } => dims.reverse()),
        expect!["`dimensions` is [1, 0]; it must have all 2 dimensions in their order"],
    );
}

#[test]
fn windows_must_fit() {
    let windows = |edit: fn(&mut halite_stablehlo::WindowAttributes)| {
        let program = valid::reduce_window();
        attribute!(program, OpKind::ReduceWindow(attributes) => edit(attributes))
    };
    refused(
        windows(|w| w.sizes[1] = 0),
        expect!["window sizes [1, 0]: number 1 is 0, it must be 1 or more"],
    );
    refused(
        windows(|w| w.strides[1] = 0),
        expect!["window strides [1, 0]: number 1 is 0, it must be 1 or more"],
    );
    refused(
        windows(|w| w.strides[1] = 3),
        expect!["result 0 is tensor<2x5xf32>; it must be tensor<2x4xf32>"],
    );
    refused(
        windows(|w| w.base_dilations[1] = usize::MAX),
        expect![[r#"
            base dilations [1, 18446744073709551615]: number 1 is 18446744073709551615, it
            must be at most 9223372036854775807"#]],
    );
    refused(
        windows(|w| _ = w.padding.pop()),
        expect!["1 paddings [(0, 0)] for tensor<2x6xf32>, which has 2 dimensions"],
    );
    let select = |edit: fn(&mut halite_stablehlo::WindowAttributes)| {
        let program = valid::select_and_scatter();
        attribute!(program, OpKind::SelectAndScatter(attributes) => edit(attributes))
    };
    refused(
        select(|w| w.sizes[1] = 5),
        expect![[r#"
            the source is tensor<2x3xf32>, the windows of tensor<2x6xf32> are
            tensor<2x1xf32>"#]],
    );
    refused(
        select(|w| w.base_dilations[1] = 2),
        expect!["the window has dilations; they are all to be 1"],
    );
    refused(
        valid::select_and_scatter().edit(|op| op.regions.swap(0, 1)),
        expect!["region 0: result 0 is tensor<f32>; it must be tensor<i1>"],
    );
}

#[test]
fn matrices_must_fit() {
    let lengths = |edit: fn(&mut Vec<usize>)| {
        let program = valid::fft(FftKind::Rfft, "2x4x6xf32", "2x4x4xcomplex<f32>");
        attribute!(program, OpKind::Fft { lengths, .. } => edit(lengths))
    };
    refused(
        lengths(|lengths| lengths[0] = 5),
        expect![[r#"
        the operand is tensor<2x4x6xf32>; with `fft_length` [5, 6] its dimensions must
        be [2, 5, 6]"#]],
    );
    refused(
        lengths(|lengths| lengths.clear()),
        expect![[r#"
        `fft_length` has 0 items; it must have 1 to 3, and no more than
        tensor<2x4x6xf32> has dimensions"#]],
    );
    refused(
        valid::fft(FftKind::Rfft, "4x6xbf16", "4x4xcomplex<f32>"),
        expect!["the element type is bf16; it must be f32 or f64"],
    );
    refused(
        valid::fft(FftKind::Irfft, "4x6xcomplex<f32>", "4x6xf32"),
        expect![[r#"
            the operand is tensor<4x6xcomplex<f32>>; with `fft_length` [4, 6] its
            dimensions must be [4, 4]"#]],
    );
    refused(
        valid::fft(FftKind::Fft, "4x6xf32", "4x6xf32"),
        expect!["the operand is tensor<4x6xf32>; its elements must be complex"],
    );
    refused(
        valid::cholesky().operand(0, "2x3x4xf64"),
        expect!["the matrix is tensor<2x3x4xf64>; its last two dimensions must be the same"],
    );
    refused(
        valid::cholesky().operand(0, "3xf64"),
        expect!["the matrix is tensor<3xf64>; its last two dimensions must be the same"],
    );
    refused(
        valid::triangular_solve().operand(1, "2x3x4xf32"),
        expect![[r#"
        the operands are tensor<2x3x3xf32> and tensor<2x3x4xf32>; they must have the
        same dimensions before the last two, and the size of the matrix must be
        dimension 2 of the second"#]],
    );
    refused(
        valid::triangular_solve().operand(1, "3x4x3xf32"),
        expect![[r#"
        the operands are tensor<2x3x3xf32> and tensor<3x4x3xf32>; they must have the
        same dimensions before the last two, and the size of the matrix must be
        dimension 2 of the second"#]],
    );
    refused(
        valid::batch_norm_grad().operand(3, "2xf32"),
        expect!["operand 3 is tensor<2xf32>; it must be tensor<3xf32>"],
    );
    refused(
        valid::batch_norm_grad().operand(4, "3x2xf32"),
        expect!["operand 4 is tensor<3x2xf32>; it must be tensor<2x3xf32>"],
    );
}

#[test]
fn random_number_types_are_checked() {
    refused(
        valid::rng().operand(0, "i32").operand(1, "i32"),
        expect!["takes floats, not tensor<i32> (convert first)"],
    );
    refused(
        valid::rng().operand(2, "3xi64"),
        expect![[r#"
        the shape is tensor<3xi64>; it must have an element for each dimension of the
        result, tensor<3x4xf32>"#]],
    );
    refused(
        valid::rng_bit_generator().operand(0, "3xui64"),
        expect!["the state is tensor<3xui64>; it must be a vector of ui64 with 2 elements"],
    );
    refused(
        valid::rng_bit_generator().operand(0, "4xui32"),
        expect!["the state is tensor<4xui32>; it must be a vector of ui64 with 2 elements"],
    );
    refused(
        valid::rng_bit_generator().result(1, "5xi1"),
        expect!["takes integers and floats, not tensor<5xi1> (convert first)"],
    );
}
