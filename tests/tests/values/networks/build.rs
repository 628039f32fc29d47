//! Networks as traced programs.

use halite_core::{DType, Result, TensorType, tree::Leaf};
use halite_ir::{BinaryOp, Extreme, Graph, Literal, Node, Op, Reduction, Remat, Value};
use halite_nn::{
    BatchNorm, ConvOptions, Dropout, GroupNorm, LayerNorm, Mask, Padding, RmsNorm, Tensor, Trace,
    attention, grad,
};

use crate::networks::description::{Block, Kind, Network, Start, mix};

/// An input or a parameter of a network.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) dims: Vec<usize>,
    pub(crate) values: Values,
}

/// What an input is drawn from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Values {
    /// Uniform floats, which gradients are taken by.
    Between(f64, f64),
    /// Uniform floats in -1 to 1, which gradients are not taken by.
    Weights,
    /// Integers below this.
    Ids(usize),
}

/// A program that gives the loss and its gradients.
pub(crate) struct Built {
    pub(crate) graph: Graph,
    pub(crate) specs: Vec<Spec>,
}

impl Spec {
    pub(crate) fn is_differentiated(&self) -> bool {
        matches!(self.values, Values::Between(..))
    }

    pub(crate) fn is_integer(&self) -> bool {
        matches!(self.values, Values::Ids(_))
    }

    /// Values of input number `index` of a network, each exact in `f32`.
    pub(crate) fn draw(&self, seed: u64, index: usize) -> Vec<f64> {
        let unit = units(mix(mix(seed) ^ index as u64), self.dims.iter().product());
        match self.values {
            Values::Between(low, high) => unit
                .map(|unit| f64::from((low + (high - low) * unit) as f32))
                .collect(),
            Values::Weights => unit
                .map(|unit| f64::from((2.0 * unit - 1.0) as f32))
                .collect(),
            Values::Ids(count) => unit.map(|unit| (unit * count as f64).floor()).collect(),
        }
    }
}

/// Uniform numbers in 0 to 1. `tests/golden/random_networks.py` has the same.
pub(crate) fn units(seed: u64, count: usize) -> impl Iterator<Item = f64> {
    (0..count as u64).map(move |at| {
        (mix(seed.wrapping_add(at.wrapping_mul(0x632b_e59b_d9b4_e019))) >> 11) as f64
            / (1u64 << 53) as f64
    })
}

/// The loss and its gradients by all inputs that are differentiated by, in the order of the inputs.
pub(crate) fn build(network: &Network, dtype: DType) -> Result<Built> {
    let cx = Trace::new();
    cx.set_mode(true, None);
    let mut builder = Builder {
        cx: &cx,
        dtype,
        made: Vec::new(),
        given: None,
    };
    let x = match &network.start {
        Start::Dense { dims } => builder.parameter(dims, -1.5, 1.5),
        &Start::Tokens {
            batch,
            time,
            vocabulary,
            width,
        } => {
            let ids = builder.input(&[batch, time], Values::Ids(vocabulary));
            builder
                .parameter(&[vocabulary, width], -1.5, 1.5)
                .take(ids, 0)
        }
    };
    let y = builder.apply(&network.blocks, x).flatten();
    let weights = builder.input(&y.dims(), Values::Weights);
    let loss = (y * weights + y.square() * 0.3).mean_all();
    let wrt: Vec<Leaf<Tensor<'_>>> = builder
        .made
        .iter()
        .filter(|(spec, _)| spec.is_differentiated())
        .map(|&(_, tensor)| Leaf(tensor))
        .collect();
    let outputs: Vec<Tensor<'_>> = std::iter::once(loss)
        .chain(grad(loss, &wrt).into_iter().map(|Leaf(g)| g))
        .collect();
    let (specs, inputs): (Vec<Spec>, Vec<Tensor<'_>>) =
        std::mem::take(&mut builder.made).into_iter().unzip();
    Ok(Built {
        graph: cx.graph(&inputs, &outputs)?,
        specs,
    })
}

/// The same graph with the results of each operation behind an optimization barrier, in bodies too.
pub(crate) fn barriered(graph: &Graph) -> Graph {
    rebuilt(graph, &mut |graph, node, values, place| {
        let alone = matches!(
            node.op,
            Op::Constant(_) | Op::Iota { .. } | Op::Broadcast { .. }
        );
        if place == Place::Results && !alone {
            push(graph, Op::OptimizationBarrier, &values, node)
        } else {
            values
        }
    })
}

/// Sizes of rounding errors, relative to what is rounded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounding {
    /// Of a result.
    pub(crate) result: f64,
    /// Of a sum, for each of its terms: bound of the error of adding them one after the other.
    pub(crate) term: f64,
}

impl Rounding {
    /// Of a program in `f32`.
    pub(crate) const F32: Rounding = Rounding {
        result: f32::EPSILON as f64,
        term: f32::EPSILON as f64 / 2.0,
    };

    /// Of a program in mixed precision, which adds in `f32`: the distance of 1 from the next number
    /// in bf16.
    pub(crate) const BF16: Rounding = Rounding {
        result: 1.0 / 128.0,
        term: 0.0,
    };
}

/// The same graph in `f64` with each operand of arithmetic multiplied by numbers near 1, in bodies
/// too: one for the whole use, as where a compiler computes a value again with other rounding, and
/// one for each element.
pub(crate) fn perturbed(graph: &Graph, rounding: Rounding, seed: u64) -> Graph {
    let mut uses = 0;
    rebuilt(graph, &mut |graph, node, mut values, place| {
        let terms = match place {
            Place::Operands => terms(graph, &node.op, &values),
            Place::Results => None,
        };
        let Some(terms) = terms else { return values };
        for value in &mut values {
            let dims = graph.ty(*value).dims().to_vec();
            if graph.ty(*value).dtype() != DType::F64 {
                continue;
            }
            uses += 1;
            let size = rounding.result + rounding.term * terms as f64;
            let mut factors = units(mix(seed) ^ uses, 1 + dims.iter().product::<usize>())
                .map(|unit| 1.0 + size * (2.0 * unit - 1.0));
            let whole = factors.next().expect("one number more than elements");
            let factors: Vec<f64> = factors.map(|factor| whole * factor).collect();
            let factor = Literal::new(&factors, dims).expect("a number for each element");
            let factor = push(graph, Op::Constant(factor), &[], node)[0];
            *value = push(
                graph,
                Op::Binary(BinaryOp::Multiply),
                &[*value, factor],
                node,
            )[0];
        }
        values
    })
}

/// Number of terms that an operation adds for each element of its results; none for one that
/// compares or moves its operands.
fn terms(graph: &Graph, op: &Op, operands: &[Value]) -> Option<usize> {
    let size = |operand: usize, dims: &[usize]| -> usize {
        let ty = graph.ty(operands[operand]);
        dims.iter().map(|&dim| ty.dims()[dim]).product()
    };
    match op {
        Op::Unary(_) => Some(1),
        Op::Binary(op) => (!matches!(op, BinaryOp::Maximum | BinaryOp::Minimum)).then_some(1),
        Op::Reduce { kind, dims } => (*kind == Reduction::Sum).then(|| size(0, dims)),
        Op::Dot(dot, ..) => Some(size(0, &dot.lhs_contracting)),
        Op::Convolution(..) => Some(graph.ty(operands[1]).elements()),
        _ => None,
    }
}

/// What [`rebuilt`] changes.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Operands,
    Results,
}

/// Operands or results of a node, which are in the new graph, to what replaces them.
type Change<'a> = dyn FnMut(&mut Graph, &Node, Vec<Value>, Place) -> Vec<Value> + 'a;

/// The graph, with `change` applied to the operands and to the results of each operation, in bodies
/// too.
fn rebuilt(graph: &Graph, change: &mut Change<'_>) -> Graph {
    let mut new = Graph::new();
    let mut map = vec![None; graph.value_count()];
    for &input in graph.inputs() {
        map[input.index()] = Some(new.input(graph.ty(input).clone()));
    }
    for node in graph.nodes() {
        let op = match &node.op {
            &Op::Scan {
                carried,
                scanned,
                length,
                reverse,
                residuals,
                ref body,
            } => Op::Scan {
                carried,
                scanned,
                length,
                reverse,
                residuals,
                body: Box::new(rebuilt(body, change)),
            },
            Op::Checkpoint { body, remat } => Op::Checkpoint {
                body: Box::new(rebuilt(body, change)),
                remat: *remat,
            },
            Op::Case { branches } => Op::Case {
                branches: branches
                    .iter()
                    .map(|branch| rebuilt(branch, change))
                    .collect(),
            },
            other => other.clone(),
        };
        let operands = (node.operands.iter())
            .map(|value| map[value.index()].expect("made before"))
            .collect();
        let operands = change(&mut new, node, operands, Place::Operands);
        let results = push(&mut new, op, &operands, node);
        let results = change(&mut new, node, results, Place::Results);
        for (old, value) in node.results.iter().zip(results) {
            map[old.index()] = Some(value);
        }
    }
    new.set_outputs(
        graph
            .outputs()
            .iter()
            .map(|value| map[value.index()].expect("made before"))
            .collect(),
    );
    new
}

/// Appends an operation in the place of `node`.
fn push(graph: &mut Graph, op: Op, operands: &[Value], node: &Node) -> Vec<Value> {
    let results = graph.push(op, operands, node.origin);
    results.expect("types that fit").to_vec()
}

/// Applies blocks to tensors, and makes the inputs that they need.
struct Builder<'t> {
    cx: &'t Trace,
    dtype: DType,
    made: Vec<(Spec, Tensor<'t>)>,
    /// In a body: the parameters, which were made outside.
    given: Option<std::vec::IntoIter<Tensor<'t>>>,
}

impl<'t> Builder<'t> {
    fn input(&mut self, dims: &[usize], values: Values) -> Tensor<'t> {
        if let Some(given) = &mut self.given {
            return given
                .next()
                .expect("as many parameters as the body was found to need");
        }
        let dtype = if matches!(values, Values::Ids(_)) {
            DType::S32
        } else {
            self.dtype
        };
        let tensor = self.cx.input(
            TensorType::new(dtype, dims),
            format!("input {}", self.made.len()),
        );
        self.made.push((
            Spec {
                dims: dims.to_vec(),
                values,
            },
            tensor,
        ));
        tensor
    }

    fn parameter(&mut self, dims: &[usize], low: f64, high: f64) -> Tensor<'t> {
        self.input(dims, Values::Between(low, high))
    }

    /// A weight that keeps the size of numbers, summed over `count` products.
    fn weight(&mut self, dims: &[usize], count: usize) -> Tensor<'t> {
        let bound = (3.0 / count as f64).sqrt();
        self.parameter(dims, -bound, bound)
    }

    fn dense(&mut self, x: Tensor<'t>, features: usize) -> Tensor<'t> {
        let last = x.rank() - 1;
        let inputs = x.dims()[last];
        let weight = self.weight(&[inputs, features], inputs);
        x.tensordot(weight, &[(last, 0)]) + self.parameter(&[features], -0.5, 0.5)
    }

    fn scale_and_bias(&mut self, features: usize) -> (Tensor<'t>, Tensor<'t>) {
        (
            self.parameter(&[features], 0.5, 1.5),
            self.parameter(&[features], -0.5, 0.5),
        )
    }

    fn apply(&mut self, blocks: &[Block], x: Tensor<'t>) -> Tensor<'t> {
        blocks.iter().fold(x, |x, block| self.one(block, x))
    }

    /// What `blocks` need for an input of this type, made outside of a body; `length` of each if it
    /// is scanned over.
    fn parameters_of(
        &mut self,
        blocks: &[Block],
        ty: TensorType,
        length: Option<usize>,
    ) -> Vec<Tensor<'t>> {
        let scratch = Trace::new();
        let x = scratch.input(ty, "x");
        let mut builder = Builder {
            cx: &scratch,
            dtype: self.dtype,
            made: Vec::new(),
            given: None,
        };
        builder.apply(blocks, x);
        let specs: Vec<Spec> = std::mem::take(&mut builder.made)
            .into_iter()
            .map(|(spec, _)| spec)
            .collect();
        specs
            .iter()
            .map(|spec| self.input(&[length.as_slice(), &spec.dims].concat(), spec.values))
            .collect()
    }

    /// As [`apply`](Self::apply), in a body.
    fn apply_given(
        &mut self,
        blocks: &[Block],
        x: Tensor<'t>,
        given: Vec<Tensor<'t>>,
    ) -> Tensor<'t> {
        let outer = self.given.replace(given.into_iter());
        let y = self.apply(blocks, x);
        self.given = outer;
        y
    }

    fn one(&mut self, block: &Block, x: Tensor<'t>) -> Tensor<'t> {
        let dims = x.dims();
        let last = dims.len() - 1;
        let features = dims[last];
        match block {
            Block::Conv { .. } => self.conv(block, x),
            Block::GroupNorm { .. } | Block::LayerNorm | Block::RmsNorm | Block::BatchNorm => {
                self.norm(block, x)
            }
            &Block::Dense { features } => self.dense(x, features),
            Block::Activation { name } => activation(name, x),
            &Block::MaxPool {
                window,
                stride,
                same,
            } => x.max_pool([window; 2], [stride; 2], padding(same)),
            &Block::AvgPool {
                window,
                stride,
                same,
            } => x.avg_pool([window; 2], [stride; 2], padding(same)),
            Block::Flatten => x.reshape([dims[0], dims[1] * dims[2], features]),
            &Block::Global { kind } => {
                reduced(kind, x, &(1..last).collect::<Vec<_>>()).reshape([dims[0], features])
            }
            &Block::Centre { kind, dim } => x - reduced(kind, x, &[dim]),
            &Block::Cumulative { kind, dim } => cumulative(kind, x, dim),
            &Block::Softmax { dim } => x.softmax(dim),
            &Block::LogSoftmax { dim } => x.log_softmax(dim),
            &Block::Sort { dim, descending } => x.sort(dim, descending),
            &Block::SortBy { dim } => {
                let keys = x * self.parameter(&[features], -1.5, 1.5);
                self.cx.sort_by(&[keys, x], dim, false)[1]
            }
            &Block::TopK { count, dim } => x.top_k(count, dim).0,
            &Block::Clamp { low, high } => x.clamp(low, high),
            Block::LearnedClamp => {
                let bound = self.parameter(&[], 0.5, 1.5);
                self.cx.push_one(Op::Clamp, &[-bound, x, bound])
            }
            &Block::Maxout { features } => self.dense(x, features).maximum(self.dense(x, features)),
            Block::Gate => self.gate(x),
            &Block::Attention { heads, causal } => self.attention(x, heads, causal),
            Block::Residual { blocks } => x + self.apply(blocks, x),
            Block::Checkpoint { dots, blocks } => self.checkpoint(x, *dots, blocks),
            Block::Scan { length, blocks } => self.scan(x, *length, blocks),
        }
    }

    fn conv(&mut self, block: &Block, x: Tensor<'t>) -> Tensor<'t> {
        let &Block::Conv {
            features,
            window,
            stride,
            same,
        } = block
        else {
            unreachable!("{block:?} is not a convolution")
        };
        let inputs = x.dims()[3];
        let weight = self.weight(
            &[window, window, inputs, features],
            window * window * inputs,
        );
        let options = ConvOptions {
            strides: vec![stride; 2],
            padding: padding(same),
            ..ConvOptions::default()
        };
        x.conv(weight, &options) + self.parameter(&[features], -0.5, 0.5)
    }

    fn norm(&mut self, block: &Block, x: Tensor<'t>) -> Tensor<'t> {
        let features = x.dims()[x.rank() - 1];
        if matches!(block, Block::RmsNorm) {
            let scale = self.parameter(&[features], 0.5, 1.5);
            return RmsNorm { scale, eps: 1e-6 }.forward(x);
        }
        let (scale, bias) = self.scale_and_bias(features);
        let eps = 1e-5;
        match block {
            &Block::GroupNorm { groups } => GroupNorm {
                scale,
                bias,
                groups,
                eps,
            }
            .forward(x),
            Block::LayerNorm => LayerNorm {
                scale,
                bias: Some(bias),
                eps,
            }
            .forward(x),
            Block::BatchNorm => BatchNorm {
                scale,
                bias,
                mean: bias.zeros_like(),
                variance: bias.ones_like(),
                momentum: 0.1,
                eps,
            }
            .forward(x),
            other => unreachable!("{other:?} is not a norm"),
        }
    }

    /// Squeeze and excitation: features are scaled by a function of their means.
    fn gate(&mut self, x: Tensor<'t>) -> Tensor<'t> {
        let last = x.rank() - 1;
        let mean = if last > 1 {
            x.mean_keep((1..last).collect::<Vec<_>>())
        } else {
            x
        };
        x * self.dense(mean, x.dims()[last]).sigmoid()
    }

    fn attention(&mut self, x: Tensor<'t>, heads: usize, causal: bool) -> Tensor<'t> {
        let dims = x.dims();
        let features = dims[2];
        let [q, k, v] = [(); 3].map(|()| {
            self.dense(x, features)
                .reshape([dims[0], dims[1], heads, features / heads])
        });
        let mask = if causal { Mask::Causal } else { Mask::None };
        let y = attention(q, k, v, mask, Dropout::new(0.0)).reshape(&dims);
        self.dense(y, features)
    }

    fn checkpoint(&mut self, x: Tensor<'t>, dots: bool, blocks: &[Block]) -> Tensor<'t> {
        let given = self.parameters_of(blocks, x.ty(), None);
        let remat = if dots { Remat::SaveDots } else { Remat::Full };
        let cx = self.cx;
        let body = || Leaf(self.apply_given(blocks, x, given));
        cx.checkpoint_with(remat, body).0
    }

    fn scan(&mut self, x: Tensor<'t>, length: usize, blocks: &[Block]) -> Tensor<'t> {
        let stacked = self.parameters_of(blocks, x.ty(), Some(length));
        let xs: Vec<Leaf<Tensor<'t>>> = stacked.into_iter().map(Leaf).collect();
        let cx = self.cx;
        if xs.is_empty() {
            let body = |_, Leaf(x)| Leaf(self.apply_given(blocks, x, vec![]));
            return cx.repeat(length, Leaf(x), body).0;
        }
        let body = |Leaf(x): Leaf<Tensor<'t>>, slices: Vec<Leaf<Tensor<'t>>>| {
            let given = slices.into_iter().map(|Leaf(slice)| slice).collect();
            (
                Leaf(self.apply_given(blocks, x, given)),
                halite_core::tree::Empty::new(),
            )
        };
        cx.scan(Leaf(x), xs, body).0.0
    }
}

fn cumulative(kind: Kind, x: Tensor<'_>, dim: usize) -> Tensor<'_> {
    match kind {
        Kind::Max => x.cummax(dim),
        Kind::Min => x.cummin(dim),
        Kind::LogSumExp => x.cumlogsumexp(dim),
        _ => x.cumsum(dim) * (1.0 / (x.dims()[dim] as f64).sqrt()),
    }
}

fn padding(same: bool) -> Padding {
    if same { Padding::Same } else { Padding::Valid }
}

fn reduced<'t>(kind: Kind, x: Tensor<'t>, dims: &[usize]) -> Tensor<'t> {
    let kept_dims = || {
        x.dims()
            .iter()
            .enumerate()
            .map(|(dim, &size)| if dims.contains(&dim) { 1 } else { size })
            .collect::<Vec<_>>()
    };
    match kind {
        Kind::Sum => x.sum_keep(dims),
        Kind::Mean => x.mean_keep(dims),
        Kind::Max => x.max_keep(dims),
        Kind::Min => x.min_keep(dims),
        Kind::LogSumExp => x.logsumexp(dims).reshape(kept_dims()),
        Kind::ArgMax => x.arg_reduce(Extreme::Max, dims[0]).0.reshape(kept_dims()),
    }
}

fn activation<'t>(name: &str, x: Tensor<'t>) -> Tensor<'t> {
    match name {
        "relu" => x.relu(),
        "gelu" => x.gelu(),
        "silu" => x.silu(),
        "tanh" => x.tanh(),
        "sigmoid" => x.sigmoid(),
        "softplus" => x.softplus(),
        "relu6" => x.relu6(),
        "leaky_relu" => x.leaky_relu(0.1),
        "elu" => x.elu(1.0),
        "gelu_tanh" => x.gelu_tanh(),
        "hard_swish" => x.hard_swish(),
        "abs" => x.abs(),
        "square" => x.square() * 0.5,
        name => panic!("activation {name}"),
    }
}
