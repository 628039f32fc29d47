//! Programs of one operation, for all operations, with several interfaces.

use std::{collections::HashSet, panic::Location};

use halite_core::{DType, MeshShape, PartitionSpec, TensorType};
use halite_ir::{
    Attribute, Axes, BinaryOp, ComparisonDirection, ConvolutionAttributes, ConvolutionDims,
    CustomCall, DotAttributes, Extreme, GatherAttributes, Graph, Groups, Interface, Literal, Op,
    Port, Reduction, Remat, ScatterAttributes, ShardMap, UnaryOp, Value, WindowAttributes, infer,
};

use crate::{infer::types, legalize::try_read_back};

/// A graph of one operation on inputs of these types, which returns its results.
fn graph(op: Op, operands: &str) -> Graph {
    let mut graph = Graph::new();
    let operands = types(operands).into_iter().map(|ty| graph.input(ty));
    let operands: Vec<_> = operands.collect();
    let origin = Some(Location::caller());
    let results = graph.push(op, &operands, origin).unwrap().to_vec();
    graph.set_outputs(results);
    graph
}

fn interfaces(graph: &Graph) -> Vec<Interface> {
    let port = |ty: TensorType| Port {
        name: Some(format!("of {ty}")),
        spec: match ty.dims().first() {
            Some(size) if size % 2 == 0 => Some(PartitionSpec::first("data")),
            Some(_) => Some(PartitionSpec::replicated()),
            None => None,
        },
    };
    let ports = |types: Vec<TensorType>| -> Vec<Port> { types.into_iter().map(port).collect() };
    let (inputs, outputs) = (ports(graph.input_types()), ports(graph.output_types()));
    let (given, made) = (graph.input_types(), graph.output_types());
    let alias = |input: usize| match (given.get(input), made.first()) {
        (Some(of_input), Some(of_output)) if of_input == of_output => vec![(input, 0)],
        _ => vec![],
    };
    let mesh = |data, model| MeshShape::new([("data", data), ("model", model)]).ok();
    let sharded = Interface {
        mesh: mesh(2, 4),
        inputs: inputs.clone(),
        outputs: outputs.clone(),
        ..Interface::new("a/b")
    };
    let whole = |ports: &[Port]| {
        let port = |port: &Port| Port {
            spec: None,
            ..port.clone()
        };
        ports.iter().map(port).collect()
    };
    vec![
        Interface::default(),
        Interface {
            locations: false,
            full_products: true,
            ..Interface::new("")
        },
        Interface {
            one_function: true,
            aliases: alias(0),
            ..Interface::new("7")
        },
        Interface {
            replicas: 8,
            inputs: whole(&inputs),
            outputs: whole(&outputs),
            aliases: alias(1),
            ..Interface::new("r")
        },
        Interface {
            mesh: mesh(1, 1),
            ..Interface::new("m")
        },
        Interface {
            aliases: alias(0),
            ..sharded.clone()
        },
        sharded,
    ]
}

#[track_caller]
fn check(op: Op, operands: &str) {
    check_graph(&graph(op, operands));
}

#[track_caller]
fn check_graph(graph: &Graph) {
    assert!(read_back(graph) > 0);
}

/// Reads the graph back with all interfaces that fit its operations, and returns their number.
#[track_caller]
fn read_back(graph: &Graph) -> usize {
    let interfaces = interfaces(graph);
    let read = |interface: &&Interface| try_read_back(graph, interface).is_ok();
    interfaces.iter().filter(read).count()
}

#[test]
fn constants_are_read_back() {
    for dtype in DType::computed() {
        for dims in [&[][..], &[0], &[3], &[16], &[17], &[2, 2], &[3, 0], &[5, 7]] {
            let ty = TensorType::new(dtype, dims);
            let size = ty.elements() * dtype.size();
            let patterns: [&dyn Fn(usize) -> usize; 5] =
                [&|_| 0, &|_| 1, &|i| i % 2, &|i| i * 73 + 41, &|i| 1000 - i];
            for pattern in patterns {
                let mask = if dtype == DType::Bool { 1 } else { 255 };
                let bytes = (0..size).map(|i| (pattern(i) & mask) as u8);
                let bytes: Vec<u8> = bytes.collect();
                let literal = Literal::from_bytes(&bytes, ty.clone()).unwrap();
                check(Op::Constant(literal), "");
            }
            check(Op::Constant(Literal::zero(&ty)), "");
        }
    }
    let floats = [-0.0, 1e-7, f32::NAN, -f32::NAN, f32::INFINITY, 1.0 / 3.0];
    let floats = Literal::new(&floats, [floats.len()]).unwrap();
    check(Op::Constant(floats), "");
    let ty = TensorType::new(DType::S32, [4, 3]);
    check(Op::Iota { ty, dim: 1 }, "");
}

#[test]
fn elementwise_operations_are_read_back() {
    use ComparisonDirection as C;
    let mut checked = HashSet::new();
    let unary = UnaryOp::ALL.iter().map(|&op| (Op::Unary(op), 1));
    let binary = BinaryOp::ALL.iter().map(|&op| (Op::Binary(op), 2));
    for (op, count) in unary.chain(binary) {
        for ty in ["u32[2]", "s8[2,3]", "f32[4]", "f16[4]", "bf16[]", "bool[2]"] {
            let operands = vec![ty; count].join(" ");
            let given = types(&operands);
            if infer(&op, &given.iter().collect::<Vec<_>>()).is_ok() {
                checked.insert(op.name());
                check(op.clone(), &operands);
            }
        }
    }
    let complex = ["complex", "imag", "real"];
    let all = UnaryOp::ALL.len() + BinaryOp::ALL.len();
    assert_eq!(checked.len(), all - complex.len());
    for op in [C::Eq, C::Ne, C::Lt, C::Le, C::Gt, C::Ge] {
        for dtype in DType::computed() {
            check(Op::Compare(op), &format!("{0}[2] {0}[2]", dtype.name()));
        }
    }
    check(Op::Select, "bool[2] f32[2] f32[2]");
    check(Op::Select, "bool[] f32[2] f32[2]");
    check(Op::Clamp, "f32[] f32[2] f32[]");
    for dtype in DType::computed() {
        check(Op::Convert(dtype), "bf16[2,3]");
    }
    check(Op::Convert(DType::F32), "f32[2]");
    check(Op::BitcastConvert(DType::S32), "f32[2]");
    let (exponent, mantissa) = (5, 10);
    check(Op::ReducePrecision { exponent, mantissa }, "f32[2]");
}

#[test]
fn rearrangements_are_read_back() {
    let broadcast = |dims: &[usize], mapping: &[usize]| Op::Broadcast {
        dims: dims.to_vec(),
        mapping: mapping.to_vec(),
    };
    check(broadcast(&[4, 2], &[]), "f32[]");
    check(broadcast(&[4, 2], &[1]), "f32[1]");
    check(Op::Reshape { dims: vec![3, 2] }, "f32[6]");
    let permutation = vec![2, 0, 1];
    check(Op::Transpose { permutation }, "f32[4,2,3]");
    check(Op::Reverse { dims: vec![0, 1] }, "f32[4,2]");
    check(Op::Concatenate { dim: 1 }, "f32[4,2] f32[4,1] f32[4,0]");
    let slice = Op::Slice {
        starts: vec![0, 1],
        limits: vec![3, 2],
        strides: vec![2, 1],
    };
    check(slice, "f32[4,2]");
    check(
        Op::DynamicSlice { sizes: vec![2, 1] },
        "f32[4,2] s32[] s32[]",
    );
    check(Op::DynamicUpdateSlice, "f32[4] f32[2] u8[]");
    let pad = Op::Pad {
        low: vec![-1, 2],
        high: vec![3, 0],
        interior: vec![0, 1],
    };
    check(pad, "f32[4,2] f32[]");
    let gather = GatherAttributes {
        offset_dims: vec![1],
        collapsed_slice_dims: vec![0],
        operand_batching_dims: vec![],
        start_indices_batching_dims: vec![],
        start_index_map: vec![0],
        index_vector_dim: 1,
        slice_sizes: vec![1, 6],
        indices_are_sorted: false,
    };
    check(Op::Gather(gather), "f32[5,6] s32[4]");
    let batched = GatherAttributes {
        offset_dims: vec![],
        collapsed_slice_dims: vec![1],
        operand_batching_dims: vec![0],
        start_indices_batching_dims: vec![0],
        start_index_map: vec![1],
        index_vector_dim: 1,
        slice_sizes: vec![1, 1],
        indices_are_sorted: false,
    };
    check(Op::Gather(batched), "f32[4,6] s32[4]");
}

#[test]
fn contractions_are_read_back() {
    for dtype in ["f32", "bf16", "f64"] {
        let result = DType::from_name(dtype).unwrap();
        let dot = |batch: Vec<usize>, left, right| {
            Op::Dot(
                DotAttributes {
                    lhs_batching: batch.clone(),
                    rhs_batching: batch,
                    lhs_contracting: vec![left],
                    rhs_contracting: vec![right],
                    ..DotAttributes::default()
                },
                result,
            )
        };
        check(dot(vec![], 1, 0), &format!("{dtype}[2,3] {dtype}[3,4]"));
        check(
            dot(vec![0], 2, 1),
            &format!("{dtype}[2,3,4] {dtype}[2,4,5]"),
        );
        let dims = |batch, feature, spatial: [usize; 2]| ConvolutionDims {
            batch,
            feature,
            spatial: spatial.to_vec(),
        };
        let convolution = Op::Convolution(
            ConvolutionAttributes {
                input: dims(0, 3, [2, 1]),
                kernel: dims(3, 2, [0, 1]),
                output: dims(1, 0, [2, 3]),
                strides: vec![1, 2],
                padding: vec![(1, -1), (0, 2)],
                input_dilation: vec![2, 1],
                kernel_dilation: vec![1, 2],
                reversal: vec![true, false],
                feature_groups: 2,
                batch_groups: 1,
                precision: Vec::new(),
            },
            result,
        );
        check(convolution, &format!("{dtype}[2,7,9,4] {dtype}[3,3,2,6]"));
    }
}

fn window(base: usize) -> WindowAttributes {
    WindowAttributes {
        sizes: vec![2, 1],
        strides: vec![2, 1],
        base_dilations: vec![base, 1],
        window_dilations: vec![1, base],
        padding: vec![(1, 0), (0, 0)],
    }
}

#[test]
fn reductions_are_read_back() {
    use Reduction as R;
    for dtype in DType::computed() {
        let name = dtype.name();
        let x = format!("{name}[4,6]");
        let kinds = match dtype {
            DType::Bool => &[R::And, R::Or][..],
            _ if dtype.is_float() => &[R::Sum, R::Product, R::Min, R::Max],
            _ => &[R::Sum, R::Product, R::Min, R::Max, R::And, R::Or],
        };
        for &kind in kinds {
            check(
                Op::Reduce {
                    kind,
                    dims: vec![1],
                },
                &x,
            );
            let window = window(2);
            check(Op::ReduceWindow { kind, window }, &x);
            check(scatter(Some(kind)), &format!("{x} s32[3] {name}[3,6]"));
        }
        check(scatter(None), &format!("{x} s32[3] {name}[3,6]"));
        for kind in [Extreme::Min, Extreme::Max] {
            if dtype == DType::Bool {
                continue;
            }
            check(Op::ArgReduce { kind, dim: 0 }, &x);
            let window = window(1);
            let operands = format!("{x} {name}[2,6]");
            check(Op::SelectAndScatter { kind, window }, &operands);
        }
        for (descending, by_bits) in [(false, false), (true, false), (false, true), (true, true)] {
            let sort = Op::Sort {
                dim: 1,
                descending,
                by_bits,
            };
            check(sort.clone(), &x);
            check(sort, &format!("{x} s64[4,6] f32[4,6]"));
        }
    }
}

fn scatter(combine: Option<Reduction>) -> Op {
    Op::Scatter(
        ScatterAttributes {
            update_window_dims: vec![1],
            inserted_window_dims: vec![0],
            input_batching_dims: vec![],
            scatter_indices_batching_dims: vec![],
            scatter_dims_to_operand_dims: vec![0],
            index_vector_dim: 1,
            unique_indices: combine.is_none(),
            indices_are_sorted: false,
        },
        combine,
    )
}

/// A graph of inputs of these types.
fn function(inputs: &str, body: impl FnOnce(&mut Graph, &[Value]) -> Vec<Value>) -> Graph {
    let mut graph = Graph::new();
    let inputs = types(inputs).into_iter().map(|ty| graph.input(ty));
    let inputs: Vec<_> = inputs.collect();
    let outputs = body(&mut graph, &inputs);
    graph.set_outputs(outputs);
    graph
}

fn push(graph: &mut Graph, op: Op, operands: &[Value]) -> Value {
    graph.push(op, operands, Some(Location::caller())).unwrap()[0]
}

#[test]
fn loops_are_read_back() {
    let condition = function("s32[] f32[2] s32[]", |graph, x| {
        vec![push(
            graph,
            Op::Compare(ComparisonDirection::Lt),
            &[x[0], x[2]],
        )]
    });
    let body = function("s32[] f32[2] s32[]", |graph, x| {
        let next = push(graph, Op::Binary(BinaryOp::Add), &[x[0], x[2]]);
        let y = push(graph, Op::Unary(UnaryOp::Tanh), &[x[1]]);
        vec![next, y]
    });
    let repeat = Op::While {
        carried: 2,
        condition: Box::new(condition),
        body: Box::new(body),
    };
    check(repeat, "s32[] f32[2] s32[]");
    for (length, reverse) in [(0, false), (4, false), (4, true)] {
        let body = function("f32[2] f32[2] f32[2] bool[]", |graph, x| {
            let next = push(graph, Op::Binary(BinaryOp::Add), &x[..2]);
            let y = push(graph, Op::Binary(BinaryOp::Multiply), &[next, x[2]]);
            vec![next, y, x[3]]
        });
        let scan = Op::Scan {
            carried: 1,
            scanned: 2,
            length,
            reverse,
            residuals: 1,
            body: Box::new(body),
        };
        let operands = format!("f32[2] f32[2] f32[{length},2] bool[{length}]");
        check(scan, &operands);
    }
    let double = function("f32[2]", |graph, x| {
        vec![push(graph, Op::Binary(BinaryOp::Add), &[x[0], x[0]])]
    });
    let branches = vec![double.clone(), function("f32[2]", |_, x| x.to_vec())];
    check(Op::Case { branches }, "s32[] f32[2]");
    let body = Box::new(double.clone());
    let remat = Remat::Full;
    check(Op::Checkpoint { body, remat }, "f32[2]");
    let composite = CustomCall {
        target: "double".into(),
        results: types("f32[2]"),
        decomposition: Some(Box::new(double)),
        ..CustomCall::default()
    };
    check(Op::CustomCall(composite), "f32[2]");
}

#[test]
fn calls_are_read_back() {
    check(Op::StopGradient, "f32[2]");
    check(Op::OptimizationBarrier, "f32[2] bool[]");
    let attributes = |values: &[Attribute]| -> Vec<(String, Attribute)> {
        let named = values.iter().enumerate();
        named
            .map(|(i, value)| (format!("a {i}"), value.clone()))
            .collect()
    };
    let values = [
        Attribute::Bool(true),
        Attribute::Int(-3),
        Attribute::Float(1e-9),
        Attribute::Float(f64::NEG_INFINITY),
        Attribute::Str("say \"h\u{e4}\"\n\0".into()),
    ];
    for (target, values, results) in [
        ("my.kernel", &values[..], "f32[2,3] s32[]"),
        ("k", &[], "bool[]"),
        ("none", &[], ""),
        ("\u{e4} b", &values, "f32[1,2,3]"),
    ] {
        let call = |attributes| {
            Op::CustomCall(CustomCall {
                target: target.into(),
                attributes,
                results: types(results),
                side_effect: results.is_empty(),
                ..CustomCall::default()
            })
        };
        check(call(attributes(values)), "f32[2] f32[]");
        check(call(attributes(values)), "f32[2,2]");
        let twice = [attributes(values), attributes(values)].concat();
        assert_eq!(
            read_back(&graph(call(twice.clone()), "")) > 0,
            twice.is_empty()
        );
    }
}

fn axes(axes: &[(&str, usize)]) -> Axes {
    let axes = axes.iter();
    axes.map(|&(name, size)| (name.into(), size)).collect()
}

/// Those operations over devices with these groups that fit their operand.
fn collectives(groups: &Groups) -> Graph {
    function("f32[8,8]", |graph, x| {
        let dim = 1;
        let (kind, other) = (Reduction::Max, Reduction::Sum);
        let (split, concat) = (0, 1);
        let groups = || groups.clone();
        let permute = |pairs: &[(usize, usize)]| Op::CollectivePermute {
            pairs: pairs.to_vec(),
            groups: groups(),
        };
        let (first, second) = (groups(), groups());
        let ops = [
            Op::AllReduce {
                kind,
                groups: groups(),
            },
            Op::AllGather { dim, groups: first },
            Op::ReduceScatter {
                kind: other,
                dim,
                groups: second,
            },
            Op::AllToAll {
                split,
                concat,
                groups: groups(),
            },
            permute(&[(0, 1), (3, 0)]),
            permute(&[]),
            permute(&[(7, 1)]),
        ];
        let mut results = Vec::new();
        for op in ops {
            if let Ok(made) = graph.push(op, x, Some(Location::caller())) {
                results.extend(made);
            }
        }
        results.push(push(graph, Op::PartitionId, &[]));
        results.push(push(graph, Op::ReplicaId, &[]));
        results
    })
}

#[test]
fn collectives_are_read_back() {
    let lists = vec![vec![0, 2, 4, 6], vec![7, 5, 3, 1]];
    let model = || axes(&[("model", 4)]);
    for groups in [
        Groups::All,
        Groups::Lists(lists),
        Groups::Axes(model()),
        Groups::Axes(axes(&[("model", 4), ("data", 2)])),
        Groups::Axes(axes(&[("data", 2)])),
        Groups::Axes(axes(&[("model", 1)])),
    ] {
        // Axes are those of a mapped function.
        let is_read = read_back(&collectives(&groups)) > 0;
        assert!(is_read || matches!(groups, Groups::Axes(_)));
        for manual in [&["data", "model"][..], &["model"]] {
            if let Some(graph) = mapped(collectives(&groups), manual) {
                check_graph(&graph);
            }
        }
    }
    check(Op::AxisIndex(axes(&[("model", 1)])), "");
    for index in [
        model(),
        axes(&[("data", 2), ("model", 4)]),
        axes(&[("model", 4), ("data", 2)]),
    ] {
        assert_eq!(read_back(&graph(Op::AxisIndex(index.clone()), "")), 0);
        let body = function("f32[8,8]", |graph, _| {
            vec![push(graph, Op::AxisIndex(index), &[])]
        });
        check_graph(&mapped(body, &["data", "model"]).unwrap());
    }
}

/// A function that each device of the mesh runs on the whole operand, unless its collectives do
/// not fit the mesh.
fn mapped(body: Graph, manual: &[&str]) -> Option<Graph> {
    let mut graph = Graph::new();
    let x = graph.input(TensorType::new(DType::F32, [8, 8]));
    let map = ShardMap {
        mesh: axes(&[("data", 2), ("model", 4)]),
        manual: manual.iter().map(|&axis| axis.into()).collect(),
        inputs: vec![PartitionSpec::replicated()],
        outputs: vec![PartitionSpec::replicated(); body.outputs().len()],
        body: Box::new(body),
    };
    let results = graph.push(Op::ShardMap(map), &[x], Some(Location::caller()));
    let results = results.ok()?.to_vec();
    graph.set_outputs(results);
    Some(graph)
}

#[test]
fn shardings_are_read_back() {
    let constrained = || {
        function("f32[8,8]", |graph, x| {
            let specs = [
                "(data)",
                "((data, model))",
                "(None, (model, data))",
                "(sequence)",
                "()",
            ];
            let constraint = |spec: &str| Op::ShardingConstraint(spec.parse().unwrap());
            let unsharded = [vec![0], vec![1], vec![]].map(|dims| Op::Unsharded { dims });
            let ops = specs.map(constraint).into_iter().chain(unsharded);
            let ops = ops.chain([Op::PropagationBarrier]);
            ops.map(|op| push(graph, op, x)).collect()
        })
    };
    check_graph(&constrained());
    check(
        Op::ShardingConstraint("(model, data)".parse().unwrap()),
        "f32[8,3]",
    );
    // Constraints of a body name no manual axes.
    let body = function("f32[8,8]", |graph, x| {
        let data = Op::ShardingConstraint("(data)".parse().unwrap());
        let ops = [
            data,
            Op::Unsharded { dims: vec![0] },
            Op::PropagationBarrier,
        ];
        ops.map(|op| push(graph, op, x)).to_vec()
    });
    check_graph(&mapped(body, &["model"]).unwrap());
    let body = function("f32[8,8]", |graph, x| {
        let ops = [Op::Unsharded { dims: vec![0] }, Op::PropagationBarrier];
        ops.map(|op| push(graph, op, x)).to_vec()
    });
    check_graph(&mapped(body, &["data", "model"]).unwrap());
    // Shards of several devices.
    let body = function("f32[4,2]", |graph, x| {
        vec![push(graph, Op::Unary(UnaryOp::Tanh), x)]
    });
    let map = ShardMap {
        mesh: axes(&[("data", 2), ("model", 4)]),
        manual: vec!["data".into(), "model".into()],
        inputs: vec!["(data, model)".parse().unwrap()],
        outputs: vec!["((data, model))".parse().unwrap()],
        body: Box::new(body),
    };
    check(Op::ShardMap(map), "f32[8,8]");
}
