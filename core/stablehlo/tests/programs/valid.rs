//! Valid programs, at least one of each family. Each ends with the operation it is for.

use halite_stablehlo::{
    Attributes, BinaryOp, CollectiveAttributes, ComparisonOrder, ConvolutionAttributes,
    ConvolutionDims, CustomCallAttributes, Dense, DotAttributes, FftKind, GatherAttributes,
    ManualAttributes, Module, OpKind, RngAlgorithm, RngDistribution, ScatterAttributes, ShardyAxis,
    ShardyDim, ShardyMesh, ShardySharding, Transposition, UnaryOp, WindowAttributes,
};

use crate::program::{Builder, less_than, module, on, program, program_with, zeros};

pub(crate) fn add() -> Module {
    program(OpKind::Binary(BinaryOp::Add), "2x3xf32 2x3xf32", "2x3xf32")
}

pub(crate) fn unary(op: UnaryOp, operand: &str, result: &str) -> Module {
    program(OpKind::Unary(op), operand, result)
}

pub(crate) fn compare() -> Module {
    let mut compare = program(less_than(), "2x3xf32 2x3xf32", "2x3xi1");
    if let OpKind::Compare { order, .. } = &mut crate::program::Edit::op(&mut compare).kind {
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
    let kind = OpKind::Gather(GatherAttributes {
        offset_dims: vec![1],
        collapsed_slice_dims: vec![0],
        start_index_map: vec![0],
        index_vector_dim: 1,
        slice_sizes: vec![1, 3],
        ..GatherAttributes::default()
    });
    program(kind, "5x3xf32 7x1xi32", "7x3xf32")
}

pub(crate) fn batched_gather() -> Module {
    let kind = OpKind::Gather(GatherAttributes {
        offset_dims: vec![2],
        collapsed_slice_dims: vec![1],
        operand_batching_dims: vec![0],
        start_indices_batching_dims: vec![1],
        start_index_map: vec![1],
        index_vector_dim: 2,
        slice_sizes: vec![1, 1, 3],
        ..GatherAttributes::default()
    });
    program(kind, "4x5x3xf32 7x4xi32", "7x4x3xf32")
}

pub(crate) fn scatter() -> Module {
    let kind = OpKind::Scatter(ScatterAttributes {
        update_window_dims: vec![1],
        inserted_window_dims: vec![0],
        scatter_dims_to_operand_dims: vec![0],
        index_vector_dim: 1,
        ..ScatterAttributes::default()
    });
    program_with(kind, "5x3xf32 7x1xi32 7x2xf32", "5x3xf32", |b| {
        vec![b.sum("f32")]
    })
}

pub(crate) fn dot() -> Module {
    let kind = OpKind::DotGeneral(DotAttributes {
        lhs_batching: vec![0],
        rhs_batching: vec![2],
        lhs_contracting: vec![2],
        rhs_contracting: vec![0],
        ..DotAttributes::default()
    });
    program(kind, "4x2x3xbf16 3x5x4xbf16", "4x2x5xf32")
}

pub(crate) fn convolution() -> Module {
    let images = ConvolutionDims {
        batch: 0,
        feature: 3,
        spatial: vec![1, 2],
    };
    let kind = OpKind::Convolution(ConvolutionAttributes {
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
    });
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
    let kind = OpKind::ReduceWindow(WindowAttributes {
        sizes: vec![1, 3],
        strides: vec![1, 2],
        base_dilations: vec![1, 2],
        window_dilations: vec![2, 1],
        padding: vec![(0, 0), (1, 0)],
    });
    program_with(kind, "2x6xf32 f32", "2x5xf32", |b| vec![b.sum("f32")])
}

pub(crate) fn select_and_scatter() -> Module {
    let kind = OpKind::SelectAndScatter(WindowAttributes {
        sizes: vec![1, 2],
        strides: vec![1, 2],
        base_dilations: vec![1, 1],
        window_dilations: vec![1, 1],
        padding: vec![(0, 0), (0, 0)],
    });
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

pub(crate) fn while_loop() -> Module {
    program_with(OpKind::While, "i32 f32 i32", "i32 f32 i32", |b| {
        let limit = b.inputs()[2];
        let condition = b.region("i32 f32 i32", |b, args| {
            b.op(less_than(), &[args[0], limit], "i1")
        });
        let body = b.region("i32 f32 i32", |b, args| {
            let next = b.op(OpKind::Binary(BinaryOp::Add), &[args[0], args[2]], "i32")[0];
            vec![next, args[1], args[2]]
        });
        vec![condition, body]
    })
}

pub(crate) fn if_else() -> Module {
    program_with(OpKind::If, "i1", "f32", |b| {
        let one =
            |b: &mut Builder| b.region("", |b, _| b.op(OpKind::Constant(zeros("f32")), &[], "f32"));
        vec![one(b), one(b)]
    })
}

pub(crate) fn case() -> Module {
    program_with(OpKind::Case, "i32", "i32", |b| {
        let index = b.inputs()[0];
        let one = |b: &mut Builder| b.region("", |_, _| vec![index]);
        vec![one(b), one(b), one(b)]
    })
}

/// `main` calls `f`, which calls `g`.
pub(crate) fn call() -> Module {
    let calling = |name: &str, callee: &str| {
        let mut function = Builder::new(name, "2xf32");
        let inputs = function.inputs();
        let callee = callee.to_owned();
        let results = function.op(OpKind::Call { function: callee }, &inputs, "2xf32");
        function.finish(results)
    };
    let leaf = Builder::new("g", "2xf32");
    let inputs = leaf.inputs();
    module(vec![
        calling("main", "f"),
        calling("f", "g"),
        leaf.finish(inputs),
    ])
}

pub(crate) fn composite() -> Module {
    let mut composite = call();
    for function in &mut composite.functions[..2] {
        function.body.operations[0].kind = OpKind::Composite {
            name: "chlo.erf".into(),
            attributes: Attributes::default(),
            decomposition: "g".into(),
            version: 1,
        };
    }
    composite
}

pub(crate) fn custom_call() -> Module {
    let kind = OpKind::CustomCall(CustomCallAttributes {
        target: "Qr".into(),
        ..CustomCallAttributes::default()
    });
    program(kind, "4x3xf32 token", "tuple<4x3xf32,3xf32> token")
}

pub(crate) fn tuple() -> Module {
    program(OpKind::Tuple, "2xf32 token", "tuple<2xf32,token>")
}

pub(crate) fn get_tuple_element() -> Module {
    program(
        OpKind::GetTupleElement { index: 1 },
        "tuple<2xf32,token>",
        "token",
    )
}

pub(crate) fn fft(transform: FftKind, operand: &str, result: &str) -> Module {
    let lengths = vec![4, 6];
    program(OpKind::Fft { transform, lengths }, operand, result)
}

pub(crate) fn triangular_solve() -> Module {
    let kind = OpKind::TriangularSolve {
        left_side: false,
        lower: true,
        unit_diagonal: false,
        transpose: Transposition::No,
    };
    program(kind, "2x3x3xf32 2x4x3xf32", "2x4x3xf32")
}

pub(crate) fn cholesky() -> Module {
    program(OpKind::Cholesky { lower: true }, "2x3x3xf64", "2x3x3xf64")
}

pub(crate) fn batch_norm_grad() -> Module {
    let kind = OpKind::BatchNormGrad {
        epsilon: 0.1,
        feature: 1,
    };
    program(
        kind,
        "2x3xf32 3xf32 3xf32 3xf32 2x3xf32",
        "2x3xf32 3xf32 3xf32",
    )
}

pub(crate) fn rng() -> Module {
    let distribution = RngDistribution::Normal;
    program(OpKind::Rng { distribution }, "f32 f32 2xi64", "3x4xf32")
}

pub(crate) fn rng_bit_generator() -> Module {
    let algorithm = RngAlgorithm::ThreeFry;
    program(
        OpKind::RngBitGenerator { algorithm },
        "2xui64",
        "2xui64 5xui32",
    )
}

pub(crate) fn groups(groups: &[&[usize]], channel: Option<i64>) -> CollectiveAttributes {
    CollectiveAttributes {
        groups: groups.iter().map(|group| group.to_vec()).collect(),
        channel,
        global_ids: false,
    }
}

pub(crate) fn all_reduce() -> Module {
    let kind = OpKind::AllReduce(groups(&[&[0, 2], &[1], &[3]], None));
    let all = program_with(kind, "2xf32 3xf32", "2xf32 3xf32", |b| vec![b.sum("f32")]);
    on(all, 1, 4)
}

pub(crate) fn all_gather() -> Module {
    let collective = CollectiveAttributes {
        global_ids: true,
        ..groups(&[&[0, 2], &[1, 3]], Some(1))
    };
    on(
        program(
            OpKind::AllGather { dim: 0, collective },
            "2x3xf32",
            "4x3xf32",
        ),
        4,
        1,
    )
}

pub(crate) fn all_to_all() -> Module {
    let kind = OpKind::AllToAll {
        split: 1,
        concat: 0,
        parts: 2,
        collective: groups(&[&[0, 1], &[2, 3]], Some(1)),
    };
    on(program(kind, "2x6xf32", "4x3xf32"), 4, 1)
}

pub(crate) fn reduce_scatter() -> Module {
    let kind = OpKind::ReduceScatter {
        dim: 0,
        collective: groups(&[], Some(1)),
    };
    on(
        program_with(kind, "8x3xf32", "1x3xf32", |b| vec![b.sum("f32")]),
        4,
        2,
    )
}

pub(crate) fn collective_permute() -> Module {
    let kind = OpKind::CollectivePermute {
        pairs: vec![(0, 1), (1, 2), (3, 3)],
        channel: Some(1),
    };
    on(program(kind, "2xf32", "2xf32"), 4, 1)
}

pub(crate) fn collective_broadcast() -> Module {
    on(
        program(
            OpKind::CollectiveBroadcast(groups(&[&[2, 1]], None)),
            "2xf32",
            "2xf32",
        ),
        1,
        4,
    )
}

pub(crate) fn axis(name: &str) -> ShardyAxis {
    ShardyAxis {
        name: name.into(),
        part: None,
    }
}

/// The sharding of each dimension over one axis, or none for `""`.
pub(crate) fn sharding(dims: &[&str]) -> ShardySharding {
    let dim = |name: &&str| ShardyDim {
        axes: if name.is_empty() {
            Vec::new()
        } else {
            vec![axis(name)]
        },
        ..ShardyDim::default()
    };
    ShardySharding {
        mesh: "mesh".into(),
        dims: dims.iter().map(dim).collect(),
        replicated: Vec::new(),
        unreduced: Vec::new(),
    }
}

pub(crate) fn with_mesh(mut module: Module) -> Module {
    module.meshes.push(ShardyMesh {
        name: "mesh".into(),
        axes: vec![("x".into(), 4), ("y".into(), 2)],
        devices: Vec::new(),
    });
    on(module, 8, 1)
}

pub(crate) fn sharding_constraint() -> Module {
    let kind = OpKind::ShardingConstraint(sharding(&["y", ""]));
    with_mesh(program(kind, "8x3xf32", "8x3xf32"))
}

/// A sum over `x` of the shards of an input, by hand.
pub(crate) fn manual_computation() -> Module {
    let kind = OpKind::ManualComputation(ManualAttributes {
        inputs: vec![sharding(&["x", "y"])],
        outputs: vec![sharding(&["", "y"])],
        axes: vec![axis("x"), axis("y")],
    });
    let program = program_with(kind, "8x6xf32", "2x6xf32", |b| {
        let region = b.region("2x3xf32", |b, args| {
            let collective = CollectiveAttributes {
                global_ids: true,
                ..groups(&[&[0, 2, 4, 6], &[1, 3, 5, 7]], Some(1))
            };
            let sum = vec![b.sum("f32")];
            b.op_with(OpKind::AllReduce(collective), args, sum, "2x3xf32")
        });
        vec![region]
    });
    with_mesh(program)
}

/// A program of each family.
pub(crate) fn all() -> Vec<Module> {
    vec![
        add(),
        unary(UnaryOp::Abs, "2xcomplex<f32>", "2xf32"),
        unary(UnaryOp::IsFinite, "2xbf16", "2xi1"),
        unary(UnaryOp::Not, "2xi1", "2xi1"),
        program(
            OpKind::Binary(BinaryOp::Complex),
            "2xf64 2xf64",
            "2xcomplex<f64>",
        ),
        compare(),
        select(),
        clamp(),
        program(OpKind::Convert, "2xf32", "2xi4"),
        bitcast_convert(),
        program(OpKind::BitcastConvert, "2xui64", "2x4xbf16"),
        reduce_precision(),
        constant(),
        program(
            OpKind::Constant(Dense::from_integers([1, 2, 3])),
            "",
            "3xi64",
        ),
        iota(),
        broadcast_in_dim(),
        program(OpKind::Reshape, "2x3xf32", "3x1x2xf32"),
        transpose(),
        program(OpKind::Reverse { dims: vec![1] }, "2x3xf32", "2x3xf32"),
        concatenate(),
        slice(),
        dynamic_slice(),
        dynamic_update_slice(),
        pad(),
        gather(),
        batched_gather(),
        scatter(),
        dot(),
        convolution(),
        reduce(),
        reduce_two(),
        reduce_window(),
        select_and_scatter(),
        sort(),
        map(),
        while_loop(),
        if_else(),
        case(),
        call(),
        composite(),
        custom_call(),
        tuple(),
        get_tuple_element(),
        program(OpKind::AfterAll, "token token", "token"),
        program(OpKind::OptimizationBarrier, "2xf32 token", "2xf32 token"),
        program(OpKind::GetDimensionSize { dim: 0 }, "2xf32", "i32"),
        fft(FftKind::Fft, "2x4x6xcomplex<f32>", "2x4x6xcomplex<f32>"),
        fft(FftKind::Rfft, "2x4x6xf32", "2x4x4xcomplex<f32>"),
        fft(FftKind::Irfft, "2x4x4xcomplex<f64>", "2x4x6xf64"),
        triangular_solve(),
        cholesky(),
        program(
            OpKind::BatchNormTraining {
                epsilon: 0.1,
                feature: 1,
            },
            "2x3xf32 3xf32 3xf32",
            "2x3xf32 3xf32 3xf32",
        ),
        program(
            OpKind::BatchNormInference {
                epsilon: 0.1,
                feature: 0,
            },
            "2x3xf32 2xf32 2xf32 2xf32 2xf32",
            "2x3xf32",
        ),
        batch_norm_grad(),
        rng(),
        rng_bit_generator(),
        all_reduce(),
        all_gather(),
        all_to_all(),
        reduce_scatter(),
        collective_permute(),
        collective_broadcast(),
        program(OpKind::PartitionId, "", "ui32"),
        program(OpKind::ReplicaId, "", "ui32"),
        sharding_constraint(),
        manual_computation(),
    ]
}

#[test]
fn valid_programs_pass() {
    for program in all() {
        if let Err(error) = program.verify() {
            panic!("{error}\n{:#?}", program.functions[0].body.operations);
        }
    }
}
