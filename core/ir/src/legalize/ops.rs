//! Lowering by operation.

use halite_core::Result;
use halite_stablehlo::{
    ConvolutionAttributes, DotAttributes, ElementType, OpKind, PropagationDirection, Transposition,
    UnaryOp, ValueId, ValueIds,
};

use super::{
    Builder, Cx, custom_calls::custom_call, loops::Scan, order, reductions::combiner, single,
};
use crate::{CustomCall, Op, Reduction};

impl Builder<'_> {
    /// Lowers a node.
    pub(super) fn node(&mut self, cx: Cx<'_>) -> Result<ValueIds> {
        let kind = match &cx.node.op {
            Op::Constant(literal) => return Ok(single(self.constant(literal))),
            Op::Iota { ty: _, dim } => OpKind::Iota { dim: *dim },
            Op::Unary(UnaryOp::Logistic) => return Ok(single(self.logistic(cx))),
            Op::Unary(unary) => OpKind::Unary(*unary),
            Op::Binary(binary) => OpKind::Binary(*binary),
            Op::Compare(direction) => OpKind::Compare {
                direction: *direction,
                order: Some(order(self.element(cx.operands[0]))),
            },
            Op::Select => OpKind::Select,
            Op::Clamp => OpKind::Clamp,
            Op::Convert(_) => OpKind::Convert,
            Op::BitcastConvert(_) => OpKind::BitcastConvert,
            Op::ReducePrecision { exponent, mantissa } => OpKind::ReducePrecision {
                exponent: *exponent,
                mantissa: *mantissa,
            },
            Op::Broadcast { dims: _, mapping } => OpKind::BroadcastInDim {
                mapping: mapping.clone(),
            },
            Op::Reshape { dims: _ } => OpKind::Reshape,
            Op::Transpose { permutation } => OpKind::Transpose {
                permutation: permutation.clone(),
            },
            Op::Reverse { dims } => OpKind::Reverse { dims: dims.clone() },
            Op::Concatenate { dim } => OpKind::Concatenate { dim: *dim },
            Op::Slice {
                starts,
                limits,
                strides,
            } => OpKind::Slice {
                starts: starts.clone(),
                limits: limits.clone(),
                strides: strides.clone(),
            },
            Op::DynamicSlice { sizes } => OpKind::DynamicSlice {
                sizes: sizes.clone(),
            },
            Op::DynamicUpdateSlice => OpKind::DynamicUpdateSlice,
            Op::Pad {
                low,
                high,
                interior,
            } => OpKind::Pad {
                low: low.clone(),
                high: high.clone(),
                interior: interior.clone(),
            },
            Op::Gather(gather) => OpKind::Gather(Box::new(gather.clone())),
            Op::Scatter(scatter, combine) => {
                return Ok(single(self.scatter(cx, scatter, *combine)));
            }
            Op::Dot(dot, _) => OpKind::DotGeneral(Box::new(DotAttributes {
                precision: self.precision(cx, &dot.precision),
                ..dot.clone()
            })),
            Op::Convolution(conv, _) => OpKind::Convolution(Box::new(ConvolutionAttributes {
                precision: self.precision(cx, &conv.precision),
                ..conv.clone()
            })),
            Op::Reduce { kind, dims } => return Ok(single(self.reduce(cx, *kind, dims))),
            Op::ArgReduce { kind, dim } => return Ok(self.arg_reduce(cx, *kind, *dim)),
            Op::ReduceWindow { kind, window } => {
                return Ok(single(self.reduce_window(cx, *kind, window)));
            }
            Op::SelectAndScatter { kind, window } => {
                return Ok(single(self.select_and_scatter(cx, *kind, window)));
            }
            Op::Sort {
                dim,
                descending,
                by_bits,
            } => return Ok(self.sort(cx, *dim, *descending, *by_bits)),
            Op::Cholesky { lower } => OpKind::Cholesky { lower: *lower },
            Op::TriangularSolve(triangular) => OpKind::TriangularSolve {
                left_side: triangular.left_side,
                lower: triangular.lower,
                unit_diagonal: triangular.unit_diagonal,
                transpose: if triangular.transposed {
                    Transposition::Transpose
                } else {
                    Transposition::No
                },
            },
            Op::While {
                carried,
                condition,
                body,
            } => return self.while_loop(cx, *carried, condition, body),
            Op::Scan {
                carried,
                scanned,
                length,
                reverse,
                residuals: _,
                body,
            } => {
                let scan = Scan {
                    carried: *carried,
                    scanned: *scanned,
                    length: *length,
                    reverse: *reverse,
                    body,
                };
                return self.scan(cx, scan);
            }
            Op::Checkpoint { body, remat: _ } => return self.nodes(body, cx.operands),
            Op::Case { branches } => return self.case(cx, branches),
            Op::StopGradient => return Ok(ValueIds::from_slice(cx.operands)),
            Op::OptimizationBarrier => OpKind::OptimizationBarrier,
            Op::CustomCall(CustomCall {
                decomposition: Some(graph),
                ..
            }) => return self.nodes(graph, cx.operands),
            Op::CustomCall(call) => {
                let operands: Vec<_> = cx.operands.iter().map(|&value| self.ty(value)).collect();
                custom_call(call, &operands, &cx.results().collect::<Vec<_>>())?
            }
            Op::AllReduce { kind, groups } => {
                let collective = self.collective(cx, groups)?;
                return Ok(self.reducing(cx, *kind, OpKind::AllReduce(collective)));
            }
            Op::AllGather { dim, groups } => OpKind::AllGather {
                dim: *dim,
                collective: self.collective(cx, groups)?,
            },
            Op::ReduceScatter { kind, dim, groups } => {
                let scatter = OpKind::ReduceScatter {
                    dim: *dim,
                    collective: self.collective(cx, groups)?,
                };
                return Ok(self.reducing(cx, *kind, scatter));
            }
            Op::AllToAll {
                split,
                concat,
                groups,
            } => self.all_to_all(cx, *split, *concat, groups)?,
            Op::CollectivePermute { pairs, groups } => {
                self.collective_permute(cx, pairs, groups)?
            }
            Op::PartitionId => OpKind::PartitionId,
            Op::ReplicaId => OpKind::ReplicaId,
            Op::AxisIndex(axes) => return Ok(single(self.axis_index(axes)?)),
            Op::ShardMap(map) => return self.shard_map(cx, map),
            Op::ShardingConstraint(spec) => match self.constrained_mesh() {
                Some(mesh) => self.sharding_constraint(cx, spec, mesh),
                None => return Ok(ValueIds::from_slice(cx.operands)),
            },
            Op::Unsharded { dims } => match self.constrained_mesh() {
                Some(_) => self.unsharded(cx, dims),
                None => return Ok(ValueIds::from_slice(cx.operands)),
            },
            Op::PropagationBarrier => match self.constrained_mesh() {
                Some(_) => OpKind::PropagationBarrier(PropagationDirection::Forward),
                None => return Ok(ValueIds::from_slice(cx.operands)),
            },
        };
        Ok(self.add(kind, cx.operands, cx.results(), Vec::new()))
    }

    /// Adds a collective that combines elements of devices.
    fn reducing(&mut self, cx: Cx<'_>, kind: Reduction, op: OpKind) -> ValueIds {
        let element = self.element(cx.operands[0]);
        let region = self.combine(Some(combiner(kind)), element);
        self.add(op, cx.operands, cx.results(), vec![region])
    }

    /// In `f32` for floats of 16 bits: XLA makes 1 / (1 + e^-x) of it, whose exponential overflows
    /// in `f16` where the result is 6e-6.
    fn logistic(&mut self, cx: Cx<'_>) -> ValueId {
        let x = self.in_full_precision(cx.operands[0]);
        let ty = self.ty(x).clone();
        let y = self.one(OpKind::Unary(UnaryOp::Logistic), &[x], ty);
        self.convert(y, cx.result(0).element)
    }

    /// The precision of a contraction: its own, or that of an operand of `f32` where the program
    /// asks for it.
    fn precision(&self, cx: Cx<'_>, own: &[String]) -> Vec<String> {
        let is_f32 = |&value: &ValueId| self.element(value) == ElementType::F32;
        if own.iter().any(|name| name != "DEFAULT") {
            own.to_vec()
        } else if self.interface.full_products && cx.operands.iter().any(is_f32) {
            vec!["HIGHEST".to_owned(); 2]
        } else {
            Vec::new()
        }
    }
}
