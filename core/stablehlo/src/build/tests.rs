use expect_test::{Expect, expect};

use crate::{Attribute, Attributes, Dense, ElementType, OpKind, RankedType, ShardySharding, Type};

/// One operation of each kind, with attributes that are not the defaults.
fn all() -> Vec<OpKind> {
    use crate::*;
    let collective = CollectiveAttributes {
        groups: vec![vec![0, 2], vec![1, 3]],
        channel: Some(1),
        global_ids: true,
    };
    let uneven = CollectiveAttributes {
        groups: vec![vec![0, 2, 1], vec![3]],
        channel: None,
        global_ids: false,
    };
    let dims = ConvolutionDims {
        batch: 0,
        feature: 3,
        spatial: vec![1, 2],
    };
    let window = WindowAttributes {
        sizes: vec![2, 3],
        strides: vec![2, 1],
        base_dilations: vec![1, 2],
        window_dilations: vec![3, 1],
        padding: vec![(1, -1), (0, 2)],
    };
    let undilated = WindowAttributes {
        base_dilations: vec![1, 1],
        window_dilations: vec![1, 1],
        ..window.clone()
    };
    let sharding = ShardySharding {
        mesh: "mesh".into(),
        dims: vec![ShardyDim::default()],
        replicated: Vec::new(),
        unreduced: Vec::new(),
    };
    let mut algorithm = Attributes::default();
    algorithm.push("lhs_precision_type", Attribute::Str("tf32".into()));
    let mut all: Vec<OpKind> = UnaryOp::ALL.iter().copied().map(OpKind::Unary).collect();
    all.extend(BinaryOp::ALL.iter().copied().map(OpKind::Binary));
    all.extend([
        OpKind::Constant(Dense::from_integers([1, -2])),
        OpKind::Iota { dim: 1 },
        OpKind::Compare {
            direction: ComparisonDirection::Ge,
            order: Some(ComparisonOrder::TotalOrder),
        },
        OpKind::Compare {
            direction: ComparisonDirection::Ne,
            order: None,
        },
        OpKind::Select,
        OpKind::Clamp,
        OpKind::Convert,
        OpKind::BitcastConvert,
        OpKind::ReducePrecision {
            exponent: 5,
            mantissa: 10,
        },
        OpKind::BroadcastInDim {
            mapping: vec![0, 2],
        },
        OpKind::Reshape,
        OpKind::Transpose {
            permutation: vec![1, 0],
        },
        OpKind::Reverse { dims: vec![1] },
        OpKind::Concatenate { dim: 1 },
        OpKind::Slice {
            starts: vec![0],
            limits: vec![4],
            strides: vec![2],
        },
        OpKind::DynamicSlice { sizes: vec![2, 2] },
        OpKind::DynamicUpdateSlice,
        OpKind::Pad {
            low: vec![-1],
            high: vec![2],
            interior: vec![3],
        },
        OpKind::Gather(Box::new(GatherAttributes {
            offset_dims: vec![1],
            collapsed_slice_dims: vec![0],
            operand_batching_dims: vec![2],
            start_indices_batching_dims: vec![3],
            start_index_map: vec![4],
            index_vector_dim: 5,
            slice_sizes: vec![1, 6],
            indices_are_sorted: true,
        })),
        OpKind::Scatter(Box::new(ScatterAttributes {
            update_window_dims: vec![1],
            inserted_window_dims: vec![0],
            input_batching_dims: vec![2],
            scatter_indices_batching_dims: vec![3],
            scatter_dims_to_operand_dims: vec![4],
            index_vector_dim: 5,
            indices_are_sorted: false,
            unique_indices: true,
        })),
        OpKind::DotGeneral(Box::new(DotAttributes {
            lhs_batching: vec![0],
            rhs_batching: vec![1],
            lhs_contracting: vec![2],
            rhs_contracting: vec![3],
            precision: vec!["HIGH".into(), "DEFAULT".into()],
            algorithm: Some(algorithm),
        })),
        OpKind::Convolution(Box::new(ConvolutionAttributes {
            input: dims.clone(),
            kernel: ConvolutionDims {
                batch: 3,
                feature: 2,
                spatial: vec![0, 1],
            },
            output: dims,
            strides: vec![1, 2],
            padding: vec![(1, 1), (-1, 0)],
            input_dilation: vec![2, 1],
            kernel_dilation: vec![1, 3],
            reversal: vec![true, false],
            feature_groups: 2,
            batch_groups: 1,
            precision: Vec::new(),
        })),
        OpKind::Reduce { dims: vec![0, 1] },
        OpKind::ReduceWindow(Box::new(window)),
        OpKind::SelectAndScatter(Box::new(undilated)),
        OpKind::Sort {
            dim: 0,
            stable: true,
        },
        OpKind::Map { dims: vec![0] },
        OpKind::While,
        OpKind::If,
        OpKind::Case,
        OpKind::Call {
            function: "f".into(),
        },
        OpKind::Composite {
            name: "chlo.erf".into(),
            attributes: Attributes(vec![("k".into(), Attribute::Bool(true))]),
            decomposition: "chlo.erf.impl".into(),
            version: 1,
        },
        OpKind::CustomCall(Box::new(CustomCallAttributes {
            target: "Qr".into(),
            side_effect: true,
            config: Some(Attribute::Str("x".into())),
            api_version: 4,
            functions: vec!["f".into()],
            aliases: Some(Attribute::Array(vec![alias()])),
            operand_layouts: None,
            result_layouts: None,
        })),
        OpKind::Fft {
            transform: FftKind::Irfft,
            lengths: vec![8],
        },
        OpKind::Cholesky { lower: true },
        OpKind::TriangularSolve {
            left_side: true,
            lower: false,
            unit_diagonal: true,
            transpose: Transposition::Adjoint,
        },
        OpKind::BatchNormTraining {
            epsilon: 0.001,
            feature: 1,
        },
        OpKind::BatchNormInference {
            epsilon: 0.001,
            feature: 1,
        },
        OpKind::BatchNormGrad {
            epsilon: 0.001,
            feature: 1,
        },
        OpKind::Rng {
            distribution: RngDistribution::Normal,
        },
        OpKind::RngBitGenerator {
            algorithm: RngAlgorithm::ThreeFry,
        },
        OpKind::OptimizationBarrier,
        OpKind::Tuple,
        OpKind::GetTupleElement { index: 1 },
        OpKind::AfterAll,
        OpKind::GetDimensionSize { dim: 1 },
        OpKind::AllReduce(collective.clone()),
        OpKind::AllReduce(uneven.clone()),
        OpKind::AllGather {
            dim: 1,
            collective: collective.clone(),
        },
        OpKind::AllToAll {
            split: 0,
            concat: 1,
            parts: 2,
            collective: uneven.clone(),
        },
        OpKind::ReduceScatter { dim: 0, collective },
        OpKind::CollectivePermute {
            pairs: vec![(0, 1), (1, 0)],
            channel: Some(2),
        },
        OpKind::CollectiveBroadcast(uneven),
        OpKind::PartitionId,
        OpKind::ReplicaId,
        OpKind::ShardingConstraint(sharding.clone()),
        OpKind::PropagationBarrier(PropagationDirection::Forward),
        OpKind::ManualComputation(ManualAttributes {
            inputs: vec![sharding.clone()],
            outputs: vec![sharding],
            axes: vec![ShardyAxis {
                name: "x".into(),
                part: None,
            }],
        }),
    ]);
    all
}

fn matrix() -> Type {
    Type::Tensor(RankedType::new(ElementType::F32, [2, 3]))
}

/// `#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 1, ..>`.
fn alias() -> Attribute {
    let indices = || Attribute::Array(vec![Attribute::Int(0, ElementType::S64)]);
    Attribute::Dict(Attributes(vec![
        ("output_tuple_indices".into(), indices()),
        ("operand_index".into(), Attribute::Int(1, ElementType::S64)),
        ("operand_tuple_indices".into(), indices()),
    ]))
}

#[test]
fn every_kind_survives_attributes() {
    for kind in all() {
        let (name, mut attributes) = kind.to_attributes();
        attributes.push("mhlo.sharding", Attribute::Str("{replicated}".into()));
        let back = OpKind::from_attributes(name, &mut attributes, Some(&matrix()));
        assert_eq!(back.expect(name), kind);
        assert_eq!(attributes.0.len(), 1, "{name}: {attributes:?}");
    }
}

/// Expects the operation made of the attributes, or the error.
fn check(name: &str, attributes: &[(&str, Attribute)], expect: Expect) {
    let attributes = attributes
        .iter()
        .map(|(name, value)| (name.to_string(), value.clone()));
    let mut attributes = Attributes(attributes.collect());
    let text = match OpKind::from_attributes(name, &mut attributes, Some(&matrix())) {
        Ok(kind) => format!("{kind:?}"),
        Err(error) => error.to_string(),
    };
    expect.assert_eq(&text);
}

fn ints(values: &[i64]) -> Attribute {
    Attribute::Dense(Dense::from_integers(values.iter().copied()))
}

#[test]
fn missing_attributes_have_defaults() {
    check("sort", &[], expect![[r#"Sort { dim: 1, stable: false }"#]]);
    check(
        "dot",
        &[],
        expect![[
            r#"DotGeneral(DotAttributes { lhs_batching: [], rhs_batching: [], lhs_contracting: [1], rhs_contracting: [0], precision: [], algorithm: None })"#
        ]],
    );
    check(
        "broadcast",
        &[("broadcast_sizes", ints(&[4]))],
        expect![[r#"BroadcastInDim { mapping: [1, 2] }"#]],
    );
    check(
        "reduce_window",
        &[("window_dimensions", ints(&[4, 1]))],
        expect![[
            r#"ReduceWindow(WindowAttributes { sizes: [4, 1], strides: [1, 1], base_dilations: [1, 1], window_dilations: [1, 1], padding: [(0, 0), (0, 0)] })"#
        ]],
    );
    check(
        "custom_call",
        &[("call_target_name", Attribute::Str("f".into()))],
        expect![[
            r#"CustomCall(CustomCallAttributes { target: "f", side_effect: false, config: None, api_version: 1, functions: [], aliases: None, operand_layouts: None, result_layouts: None })"#
        ]],
    );
    check(
        "composite",
        &[
            ("name", Attribute::Str("f".into())),
            ("decomposition", Attribute::Symbol("g".into())),
        ],
        expect![[
            r#"Composite { name: "f", attributes: Attributes([]), decomposition: "g", version: 0 }"#
        ]],
    );
    check(
        "check.expect_eq",
        &[],
        expect![[
            r#"CustomCall(CustomCallAttributes { target: "check.expect_eq", side_effect: true, config: None, api_version: 1, functions: [], aliases: None, operand_layouts: None, result_layouts: None })"#
        ]],
    );
}

#[test]
fn errors_name_attribute_with_value() {
    let name = |text: &str| Attribute::Str(text.into());
    check(
        "transpose",
        &[],
        expect![[r#"program: `transpose`: attribute `permutation` is missing"#]],
    );
    check(
        "transpose",
        &[("permutation", ints(&[1, -1]))],
        expect![
            "program: `transpose`: attribute `permutation` is a list with -1; expected integers of at least 0"
        ],
    );
    check(
        "transpose",
        &[("permutation", name("x"))],
        expect![[
            r#"program: `transpose`: attribute `permutation` is "x"; expected a list of integers"#
        ]],
    );
    check(
        "fft",
        &[("fft_type", name("DCT"))],
        expect![[
            r#"program: `fft`: attribute `fft_type` is `DCT`; expected one of FFT, IFFT, RFFT, IRFFT"#
        ]],
    );
    check(
        "sort",
        &[("dimension", Attribute::Int(-3, ElementType::S64))],
        expect![[r#"program: `sort`: attribute `dimension` is -3; the operand has rank 2"#]],
    );
    check(
        "cholesky",
        &[("lower", name("yes"))],
        expect![[r#"program: `cholesky`: attribute `lower` is "yes"; expected a boolean"#]],
    );
    check(
        "all_reduce",
        &[("replica_groups", ints(&[0, 1]))],
        expect![[
            r#"program: `all_reduce`: attribute `replica_groups` is of type tensor<2xi64>; expected a constant of 2 dimensions"#
        ]],
    );
    check(
        "collective_permute",
        &[("source_target_pairs", ints(&[0, 1, 2]))],
        expect![[
            r#"program: `collective_permute`: attribute `source_target_pairs` is of type tensor<3xi64>; expected pairs, tensor<Nx2xi64>"#
        ]],
    );
    check(
        "dot_general",
        &[("precision_config", Attribute::Array(vec![name("LOW")]))],
        expect![[
            r#"program: `dot_general`: attribute `precision_config` has `LOW`; expected one of DEFAULT, HIGH, HIGHEST"#
        ]],
    );
    let float = Attribute::Dense(Dense {
        ty: RankedType::new(ElementType::F32, [1]),
        bytes: [0; 4].into(),
    });
    check(
        "reverse",
        &[("dimensions", float)],
        expect![[
            r#"program: `reverse`: attribute `dimensions` is a constant of type tensor<1xf32>; expected integers"#
        ]],
    );
    let large = Attribute::Dense(Dense {
        ty: RankedType::new(ElementType::S64, [99_999_999_999]),
        bytes: [0; 8].into(),
    });
    check(
        "reverse",
        &[("dimensions", large)],
        expect![[
            r#"program: `reverse`: attribute `dimensions` is a list of 99,999,999,999 equal elements; expected at most 256"#
        ]],
    );
}

#[test]
fn unsupported_operations_are_refused_by_name() {
    check(
        "dynamic_reshape",
        &[],
        expect![[
            r#"program: the operation `dynamic_reshape` is not supported; shapes must be static"#
        ]],
    );
    check(
        "uniform_quantize",
        &[],
        expect![[
            r#"program: the operation `uniform_quantize` is not supported; quantized types are not supported"#
        ]],
    );
    check(
        "chlo.broadcast_add",
        &[],
        expect![
            "program: the operation `chlo.broadcast_add` is not supported; lower the dialect chlo to StableHLO first"
        ],
    );
    check(
        "infeed",
        &[],
        expect![[r#"program: the operation `infeed` is not supported"#]],
    );
}

#[test]
fn sharding_constraint_needs_sharding() {
    let sharding = Attribute::Sharding(ShardySharding {
        mesh: "mesh".into(),
        dims: Vec::new(),
        replicated: Vec::new(),
        unreduced: Vec::new(),
    });
    check(
        "sdy.sharding_constraint",
        &[("sharding", sharding)],
        expect![[
            r#"ShardingConstraint(ShardySharding { mesh: "mesh", dims: [], replicated: [], unreduced: [] })"#
        ]],
    );
    check(
        "sdy.sharding_constraint",
        &[],
        expect![[r#"program: `sdy.sharding_constraint`: attribute `sharding` is missing"#]],
    );
}
