//! Random programs: the compiler takes what inference takes and finds the same types, and passes
//! change no value.

use halite_core::{CompileOptions, DType, HostArray, TensorType};
use halite_ir::{
    Binary, Comparison, ConvDims, Convolution, Dot, Extreme, Gather, Graph, Interface, Literal, Op,
    Reduction, Scatter, Unary, Value, Window, optimize, verify,
};
use halite_tests::eval::program;
use proptest::{prelude::*, test_runner::RngSeed};

use crate::support::*;

/// Draws small numbers from one large one.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        // A step of a multiplicative generator: each draw depends on all bits.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }

    fn list(&mut self, length: usize, below: usize) -> Vec<usize> {
        (0..length).map(|_| self.below(below)).collect()
    }

    fn positive(&mut self, length: usize, up_to: usize) -> Vec<usize> {
        (0..length).map(|_| 1 + self.below(up_to)).collect()
    }

    fn signed(&mut self, length: usize) -> Vec<i64> {
        (0..length).map(|_| self.below(5) as i64 - 2).collect()
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    fn reduction(&mut self) -> Reduction {
        self.of(&[
            Reduction::Sum,
            Reduction::Product,
            Reduction::Min,
            Reduction::Max,
            Reduction::And,
            Reduction::Or,
        ])
    }

    fn window(&mut self, rank: usize) -> Window {
        Window {
            sizes: self.positive(rank, 3),
            strides: self.positive(rank, 2),
            base_dilations: self.positive(rank, 2),
            window_dilations: self.positive(rank, 2),
            padding: (0..rank).map(|_| (self.below(2), self.below(2))).collect(),
        }
    }
}

/// An operation on some values of the graph, that may or may not be valid.
fn draw_op(draw: &mut Draw, graph: &Graph, values: &[Value], dtypes: &[DType]) -> (Op, Vec<Value>) {
    let x = draw.of(values);
    let ty = graph.ty(x).clone();
    let rank = ty.rank();
    // An operand of the same type, of the same dimensions, or any.
    let alike: Vec<Value> = values
        .iter()
        .copied()
        .filter(|&value| graph.ty(value) == &ty)
        .collect();
    let same_dims: Vec<Value> = values
        .iter()
        .copied()
        .filter(|&value| graph.ty(value).dims() == ty.dims())
        .collect();
    let same_dtype: Vec<Value> = values
        .iter()
        .copied()
        .filter(|&value| graph.ty(value).dtype() == ty.dtype())
        .collect();
    let (y, z) = (draw.of(&alike), draw.of(&alike));
    let any = draw.of(values);
    let related = draw.of(&same_dtype);
    match draw.below(31) {
        0 => (
            Op::Unary(draw.of(&[
                Unary::Abs,
                Unary::Negate,
                Unary::Sign,
                Unary::Not,
                Unary::PopulationCount,
            ])),
            vec![x],
        ),
        1 => (
            Op::Unary(draw.of(&[
                Unary::Tanh,
                Unary::Erf,
                Unary::IsFinite,
                Unary::Floor,
                Unary::CountLeadingZeros,
            ])),
            vec![x],
        ),
        2 => (
            Op::Binary(draw.of(&[
                Binary::Add,
                Binary::Multiply,
                Binary::Maximum,
                Binary::Minimum,
            ])),
            vec![x, y],
        ),
        3 => (
            Op::Binary(draw.of(&[Binary::Subtract, Binary::And, Binary::Or, Binary::Xor])),
            vec![x, y],
        ),
        4 => (
            Op::Binary(draw.of(&[
                Binary::ShiftLeft,
                Binary::ShiftRightLogical,
                Binary::ShiftRightArithmetic,
            ])),
            vec![x, y],
        ),
        5 => (
            Op::Compare(draw.of(&[
                Comparison::Lt,
                Comparison::Eq,
                Comparison::Ge,
                Comparison::Ne,
            ])),
            vec![x, y],
        ),
        6 => (Op::Select, vec![draw.of(&same_dims), x, y]),
        7 => (Op::Clamp, vec![y, x, z]),
        8 => (Op::Convert(draw.of(dtypes)), vec![x]),
        9 => (Op::BitcastConvert(draw.of(dtypes)), vec![x]),
        10 => (
            Op::Broadcast {
                dims: draw.positive(rank + 1, 3),
                mapping: draw.list(rank, rank + 1),
            },
            vec![x],
        ),
        11 => {
            let at = draw.below(rank + 1);
            let mut dims = ty.dims().to_vec();
            dims.insert(at, 1 + draw.below(3));
            (
                Op::Broadcast {
                    dims,
                    mapping: (0..rank).map(|dim| dim + usize::from(dim >= at)).collect(),
                },
                vec![x],
            )
        }
        12 => {
            let mut dims = ty.dims().to_vec();
            dims.rotate_left(usize::from(rank > 0));
            if draw.below(2) == 0 {
                dims.push(1);
            }
            (Op::Reshape { dims }, vec![x])
        }
        13 => {
            let mut permutation: Vec<usize> = (0..rank).collect();
            permutation.rotate_left(draw.below(rank + 1).min(rank));
            (Op::Transpose { permutation }, vec![x])
        }
        14 => (
            Op::Reverse {
                dims: (0..rank).filter(|_| draw.below(2) == 0).collect(),
            },
            vec![x],
        ),
        15 => (
            Op::Concatenate {
                dim: draw.below(rank + 1),
            },
            vec![x, y, related],
        ),
        16 => {
            let starts: Vec<usize> = ty.dims().iter().map(|&size| draw.below(size + 1)).collect();
            let limits = ty
                .dims()
                .iter()
                .zip(&starts)
                .map(|(&size, &start)| start + draw.below(size - start + 1))
                .collect();
            (
                Op::Slice {
                    starts,
                    limits,
                    strides: draw.positive(rank, 3),
                },
                vec![x],
            )
        }
        17 => {
            let index = Value::clone(&draw.of(values));
            let sizes = ty.dims().iter().map(|&size| draw.below(size + 1)).collect();
            (
                Op::DynamicSlice { sizes },
                [vec![x], vec![index; rank]].concat(),
            )
        }
        18 => (
            Op::DynamicUpdateSlice,
            [vec![x, related], vec![any; rank]].concat(),
        ),
        19 => {
            let value = draw.of(&same_dtype);
            (
                Op::Pad {
                    low: draw.signed(rank),
                    high: draw.signed(rank),
                    interior: draw.list(rank, 3),
                },
                vec![x, value],
            )
        }
        20 => {
            // Slices that lack one dimension, somewhere between the dimensions of the indices.
            let dropped = draw.below(rank.max(1));
            let batch = graph.ty(any).rank();
            let first = draw.below(batch + 1);
            let gather = Gather {
                offset_dims: (first..first + rank.saturating_sub(1)).collect(),
                collapsed_slice_dims: vec![dropped],
                operand_batching_dims: vec![],
                indices_batching_dims: vec![],
                start_index_map: vec![draw.below(rank.max(1))],
                index_vector_dim: batch,
                slice_sizes: ty
                    .dims()
                    .iter()
                    .enumerate()
                    .map(|(dim, &size)| if dim == dropped { 1 } else { size })
                    .collect(),
            };
            (Op::Gather(gather), vec![x, any])
        }
        21 => {
            // Single elements: the updates have the dimensions of the indices.
            let indices = graph.ty(any).dims();
            let fitting: Vec<Value> = same_dtype
                .iter()
                .copied()
                .filter(|&value| graph.ty(value).dims() == indices)
                .collect();
            let scatter = Scatter {
                combine: if draw.below(3) == 0 {
                    None
                } else {
                    Some(draw.reduction())
                },
                update_window_dims: vec![],
                inserted_window_dims: (0..rank).collect(),
                operand_batching_dims: vec![],
                indices_batching_dims: vec![],
                scatter_dims_to_operand_dims: vec![draw.below(rank.max(1))],
                index_vector_dim: indices.len(),
                unique_indices: false,
            };
            (
                Op::Scatter(scatter),
                vec![x, any, fitting.first().copied().unwrap_or(x)],
            )
        }
        22 | 23 => {
            let other = graph.ty(related);
            let contract = draw.below(rank + 1).min(rank.saturating_sub(1));
            let fitting: Vec<usize> = (0..other.rank())
                .filter(|&dim| {
                    ty.dims()
                        .get(contract)
                        .is_some_and(|&size| size == other.dims()[dim])
                })
                .collect();
            let dot = Dot {
                left_batch: vec![],
                right_batch: vec![],
                left_contract: fitting.first().map(|_| contract).into_iter().collect(),
                right_contract: fitting.first().copied().into_iter().collect(),
                result: ty.dtype(),
            };
            (Op::Dot(dot), vec![x, related])
        }
        24 => {
            let dims = |draw: &mut Draw| {
                let feature = 1 + draw.below(2);
                ConvDims {
                    batch: 0,
                    feature,
                    spatial: vec![3 - feature],
                }
            };
            let conv = Convolution {
                input: dims(draw),
                kernel: dims(draw),
                output: dims(draw),
                strides: draw.positive(1, 2),
                padding: vec![(draw.below(4) as i64 - 1, draw.below(4) as i64 - 1)],
                input_dilation: draw.positive(1, 2),
                kernel_dilation: draw.positive(1, 2),
                reversal: vec![draw.below(2) == 0],
                feature_groups: 1 + draw.below(2),
                batch_groups: 1,
                result: ty.dtype(),
            };
            (Op::Convolution(conv), vec![x, related])
        }
        25 => (
            Op::Reduce {
                kind: draw.reduction(),
                dims: (0..rank).filter(|_| draw.below(2) == 0).collect(),
            },
            vec![x],
        ),
        26 => (
            Op::ArgReduce {
                kind: draw.of(&[Extreme::Min, Extreme::Max]),
                dim: draw.below(rank + 1),
            },
            vec![x],
        ),
        27 => (
            Op::ReduceWindow {
                kind: draw.reduction(),
                window: draw.window(rank),
            },
            vec![x],
        ),
        28 => (
            Op::Sort {
                dim: draw.below(rank + 1),
                descending: draw.below(2) == 0,
            },
            vec![x, draw.of(&same_dims)],
        ),
        29 => (Op::OptimizationBarrier, vec![x, any]),
        _ => {
            // A number that the passes know what to do with.
            let number = draw.below(2) as u8;
            let literal = match ty.dtype() {
                DType::Bool => Literal::splat(number == 1, ty.dims()),
                DType::S32 => Literal::splat(i32::from(number), ty.dims()),
                DType::U8 => Literal::splat(number, ty.dims()),
                DType::F32 => Literal::splat(f32::from(number), ty.dims()),
                _ => Literal::splat(i32::from(number), [2]),
            };
            (Op::Constant(literal), vec![])
        }
    }
}

/// As many valid operations as there are in so many draws; every value is an output.
fn draw_graph(seeds: &[u64], dtypes: &[DType]) -> (Graph, Vec<HostArray>) {
    let mut graph = Graph::new();
    let mut values = Vec::new();
    let mut inputs = Vec::new();
    for (i, dims) in [&[][..], &[3], &[2, 3], &[2, 3, 4], &[1, 3, 2]]
        .into_iter()
        .enumerate()
    {
        for &dtype in dtypes {
            let ty = TensorType::new(dtype, dims);
            values.push(graph.input(ty.clone()));
            let mut host = HostArray::zeros(ty);
            // Small bytes: `bool` of 0 and 1, small integers, tiny floats.
            host.bytes_mut()
                .iter_mut()
                .enumerate()
                .for_each(|(at, byte)| *byte = ((at * 5 + i) % 7 % 2) as u8);
            inputs.push(host);
        }
    }
    let mut results = Vec::new();
    for &seed in seeds {
        let (op, operands) = draw_op(&mut Draw(seed), &graph, &values, dtypes);
        let types: Vec<&TensorType> = operands.iter().map(|&operand| graph.ty(operand)).collect();
        let Ok(made) = halite_ir::infer(&op, &types) else {
            continue;
        };
        if made.iter().all(|ty| ty.elements() <= 500) {
            let made = graph
                .push(op, &operands, Some(std::panic::Location::caller()))
                .unwrap()
                .to_vec();
            values.extend(&made);
            results.extend(made);
        }
    }
    graph.set_outputs(results);
    (graph, inputs)
}

proptest! {
    // The same programs each time: a plugin that ends its process on one of them leaves no words of
    // which it was.
    #![proptest_config(ProptestConfig {
        cases: 10,
        rng_seed: RngSeed::Fixed(2),
        max_shrink_iters: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_compiler_takes_what_inference_takes(seeds in prop::collection::vec(any::<u64>(), 40..120)) {
        let dtypes = [DType::Bool, DType::S32, DType::U8, DType::F32, DType::Bf16, DType::U64];
        let (graph, _) = draw_graph(&seeds, &dtypes);
        verify(&graph).unwrap();
        // The client compares the types that the compiler found with those of the signature.
        let program = program(&graph, &Interface::new("random")).unwrap();
        if let Err(error) = client().compile(&program, &CompileOptions::default()) {
            return Err(TestCaseError::fail(format!("{error}\n{}", String::from_utf8_lossy(&program.code))));
        }
    }

    #[test]
    fn passes_change_no_value(seeds in prop::collection::vec(any::<u64>(), 40..120)) {
        let (graph, inputs) = draw_graph(&seeds, &[DType::Bool, DType::S32, DType::U8]);
        let optimized = optimize(&graph);
        verify(&optimized).unwrap();
        prop_assert!(optimized.nodes().len() <= graph.nodes().len());
        let inputs: Vec<&HostArray> = inputs.iter().collect();
        let (before, after) = (run_graph(&graph, &inputs), run_graph(&optimized, &inputs));
        for (i, (before, after)) in before.iter().zip(&after).enumerate() {
            prop_assert!(before == after, "output {} of {:?}", i, graph);
        }
    }
}
