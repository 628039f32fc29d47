//! Elementwise operations, shape operations, contractions and reductions.

use halite_stablehlo::{
    BinaryOp, ComparisonOrder, ConvolutionAttributes, ConvolutionDims, DotAttributes,
    GatherAttributes, Module, OpKind, ScatterAttributes, UnaryOp, WindowAttributes,
};

use crate::programs::program::{less_than, program, program_with, zeros};

pub(crate) fn add() -> Module {
    program(OpKind::Binary(BinaryOp::Add), "2x3xf32 2x3xf32", "2x3xf32")
}

pub(crate) fn unary(op: UnaryOp, operand: &str, result: &str) -> Module {
    program(OpKind::Unary(op), operand, result)
}

pub(crate) fn compare() -> Module {
    let mut compare = program(less_than(), "2x3xf32 2x3xf32", "2x3xi1");
    if let OpKind::Compare { order, .. } =
        &mut crate::programs::program::Edit::op(&mut compare).kind
    {
        *order = Some(ComparisonOrder::TotalOrder);
    }
    compare
}

pub(crate) fn select() -> Module {
    program(OpKind::Select, "i1 2x3xf32 2x3xf32", "2x3xf32")
}

pub(crate) fn clamp() -> Module {
    program(OpKind::Clamp, "f32 2x3xf32 2x3xf32", "2x3xf32")
}

pub(crate) fn bitcast_convert() -> Module {
    program(OpKind::BitcastConvert, "2x4xi8", "2xf32")
}

pub(crate) fn reduce_precision() -> Module {
    let kind = OpKind::ReducePrecision {
        exponent: 5,
        mantissa: 10,
    };
    program(kind, "2xf32", "2xf32")
}

pub(crate) fn constant() -> Module {
    program(OpKind::Constant(zeros("2x3xf32")), "", "2x3xf32")
}

pub(crate) fn iota() -> Module {
    program(OpKind::Iota { dim: 1 }, "", "2x3xi32")
}

pub(crate) fn broadcast_in_dim() -> Module {
    let mapping = vec![2, 0];
    program(OpKind::BroadcastInDim { mapping }, "3x1xf32", "2x4x3xf32")
}

pub(crate) fn transpose() -> Module {
    let permutation = vec![2, 0, 1];
    program(OpKind::Transpose { permutation }, "2x3x4xf32", "4x2x3xf32")
}

pub(crate) fn concatenate() -> Module {
    program(
        OpKind::Concatenate { dim: 1 },
        "2x3xf32 2x1xf32 2x0xf32",
        "2x4xf32",
    )
}

pub(crate) fn slice() -> Module {
    let kind = OpKind::Slice {
        starts: vec![1, 0],
        limits: vec![4, 6],
        strides: vec![1, 4],
    };
    program(kind, "5x6xf32", "3x2xf32")
}

pub(crate) fn dynamic_slice() -> Module {
    let sizes = vec![2, 6];
    program(OpKind::DynamicSlice { sizes }, "5x6xf32 i32 i32", "2x6xf32")
}

pub(crate) fn dynamic_update_slice() -> Module {
    program(
        OpKind::DynamicUpdateSlice,
        "5x6xf32 2x6xf32 ui8 ui8",
        "5x6xf32",
    )
}

pub(crate) fn pad() -> Module {
    let kind = OpKind::Pad {
        low: vec![1, -1],
        high: vec![2, 0],
        interior: vec![0, 2],
    };
    program(kind, "2x3xf32 f32", "5x6xf32")
}

pub(crate) fn gather() -> Module {
    let kind = OpKind::Gather(Box::new(GatherAttributes {
        offset_dims: vec![1],
        collapsed_slice_dims: vec![0],
        start_index_map: vec![0],
        index_vector_dim: 1,
        slice_sizes: vec![1, 3],
        ..GatherAttributes::default()
    }));
    program(kind, "5x3xf32 7x1xi32", "7x3xf32")
}

pub(crate) fn batched_gather() -> Module {
    let kind = OpKind::Gather(Box::new(GatherAttributes {
        offset_dims: vec![2],
        collapsed_slice_dims: vec![1],
        operand_batching_dims: vec![0],
        start_indices_batching_dims: vec![1],
        start_index_map: vec![1],
        index_vector_dim: 2,
        slice_sizes: vec![1, 1, 3],
        ..GatherAttributes::default()
    }));
    program(kind, "4x5x3xf32 7x4xi32", "7x4x3xf32")
}

pub(crate) fn scatter() -> Module {
    let kind = OpKind::Scatter(Box::new(ScatterAttributes {
        update_window_dims: vec![1],
        inserted_window_dims: vec![0],
        scatter_dims_to_operand_dims: vec![0],
        index_vector_dim: 1,
        ..ScatterAttributes::default()
    }));
    program_with(kind, "5x3xf32 7x1xi32 7x2xf32", "5x3xf32", |b| {
        vec![b.sum("f32")]
    })
}

pub(crate) fn dot() -> Module {
    let kind = OpKind::DotGeneral(Box::new(DotAttributes {
        lhs_batching: vec![0],
        rhs_batching: vec![2],
        lhs_contracting: vec![2],
        rhs_contracting: vec![0],
        ..DotAttributes::default()
    }));
    program(kind, "4x2x3xbf16 3x5x4xbf16", "4x2x5xf32")
}

pub(crate) fn convolution() -> Module {
    let images = ConvolutionDims {
        batch: 0,
        feature: 3,
        spatial: vec![1, 2],
    };
    let kind = OpKind::Convolution(Box::new(ConvolutionAttributes {
        input: images.clone(),
        kernel: ConvolutionDims {
            batch: 3,
            feature: 2,
            spatial: vec![0, 1],
        },
        output: images,
        strides: vec![2, 1],
        padding: vec![(1, 1), (0, -1)],
        input_dilation: vec![1, 1],
        kernel_dilation: vec![1, 2],
        reversal: vec![false, false],
        feature_groups: 2,
        batch_groups: 1,
        precision: Vec::new(),
    }));
    program(kind, "8x28x28x4xf32 3x3x2x6xf32", "8x14x23x6xf32")
}

pub(crate) fn reduce() -> Module {
    let kind = OpKind::Reduce { dims: vec![0, 2] };
    program_with(kind, "2x3x4xf32 f32", "3xf32", |b| vec![b.sum("f32")])
}

/// The maximum with its index.
pub(crate) fn reduce_two() -> Module {
    let kind = OpKind::Reduce { dims: vec![1] };
    program_with(kind, "2x3xf32 2x3xi32 f32 i32", "2xf32 2xi32", |b| {
        let takes = "f32 i32 f32 i32";
        let region = b.region(takes, |b, args| {
            let keep = b.op(less_than(), &[args[2], args[0]], "i1")[0];
            let value = b.op(OpKind::Select, &[keep, args[0], args[2]], "f32");
            let index = b.op(OpKind::Select, &[keep, args[1], args[3]], "i32");
            [value, index].concat()
        });
        vec![region]
    })
}

pub(crate) fn reduce_window() -> Module {
    let kind = OpKind::ReduceWindow(Box::new(WindowAttributes {
        sizes: vec![1, 3],
        strides: vec![1, 2],
        base_dilations: vec![1, 2],
        window_dilations: vec![2, 1],
        padding: vec![(0, 0), (1, 0)],
    }));
    program_with(kind, "2x6xf32 f32", "2x5xf32", |b| vec![b.sum("f32")])
}

pub(crate) fn select_and_scatter() -> Module {
    let kind = OpKind::SelectAndScatter(Box::new(WindowAttributes {
        sizes: vec![1, 2],
        strides: vec![1, 2],
        base_dilations: vec![1, 1],
        window_dilations: vec![1, 1],
        padding: vec![(0, 0), (0, 0)],
    }));
    program_with(kind, "2x6xf32 2x3xf32 f32", "2x6xf32", |b| {
        vec![b.less("f32"), b.sum("f32")]
    })
}

pub(crate) fn sort() -> Module {
    let kind = OpKind::Sort {
        dim: 0,
        stable: true,
    };
    program_with(kind, "5xf32 5xi32", "5xf32 5xi32", |b| {
        let region = b.region("f32 f32 i32 i32", |b, args| {
            b.op(less_than(), &args[..2], "i1")
        });
        vec![region]
    })
}

pub(crate) fn map() -> Module {
    let kind = OpKind::Map { dims: vec![0, 1] };
    program_with(kind, "2x3xf32 2x3xf32", "2x3xi1", |b| vec![b.less("f32")])
}
