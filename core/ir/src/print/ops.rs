//! Operations that are printed as one line.

use halite_core::{DType, Result, TensorType};

use super::{
    Printer,
    regions::{ScanSpec, comparison},
    writer::Name,
};
use crate::{Comparison, Graph, Node, Op, Unary};

/// The node being printed.
#[derive(Clone, Copy)]
pub(super) struct Cx<'a> {
    pub(super) graph: &'a Graph,
    pub(super) node: &'a Node,
    pub(super) operands: &'a [Name],
    pub(super) types: &'a [&'a TensorType],
}

/// Names of the results of a node.
pub(super) enum Printed {
    /// `%3`, or `%3#0, %3#1, ..`
    Group(u32),
    /// The operand's name: nothing was printed.
    Same(Name),
    /// One name for each.
    Each(Vec<Name>),
}

impl<'a> Cx<'a> {
    pub(super) fn result(self, i: usize) -> &'a TensorType {
        self.graph.ty(self.node.results[i])
    }
}

impl Printer<'_> {
    pub(super) fn op(&mut self, cx: Cx<'_>) -> Result<Printed> {
        Ok(Printed::Group(match &cx.node.op {
            Op::Constant(literal) => self.literal(literal, cx.node.origin),
            Op::Iota { ty, dim } => {
                let number = self.begin(cx);
                self.w
                    .text("stablehlo.iota dim = ")
                    .number(*dim)
                    .text(" : ")
                    .ty(ty);
                self.end(cx);
                number
            }
            Op::Unary(Unary::IsFinite) => self.plain(cx, "is_finite"),
            Op::Unary(Unary::Erf) => {
                let number = self.begin(cx);
                self.w
                    .text("chlo.erf ")
                    .names(cx.operands)
                    .text(" : ")
                    .ty(cx.types[0])
                    .text(" -> ")
                    .ty(cx.types[0]);
                self.end(cx);
                number
            }
            Op::Unary(Unary::PopulationCount) => self.alike(cx, "popcnt"),
            Op::Unary(unary) => self.alike(cx, unary.name()),
            Op::Binary(binary) => self.alike(cx, binary.name()),
            Op::Compare(comparison) => self.comparison(cx, *comparison),
            Op::Select => {
                let number = self.begin(cx);
                self.w
                    .text("stablehlo.select ")
                    .names(cx.operands)
                    .text(" : ")
                    .types(&cx.types[..2]);
                self.end(cx);
                number
            }
            Op::Clamp => self.plain(cx, "clamp"),
            Op::Convert(_) => self.plain(cx, "convert"),
            Op::BitcastConvert(_) => self.plain(cx, "bitcast_convert"),
            Op::ReducePrecision { exponent, mantissa } => {
                let number = self.begin(cx);
                self.w
                    .text("stablehlo.reduce_precision ")
                    .names(cx.operands)
                    .text(", format = e")
                    .number(*exponent as usize);
                self.w
                    .text("m")
                    .number(*mantissa as usize)
                    .text(" : ")
                    .ty(cx.types[0]);
                self.end(cx);
                number
            }
            Op::Broadcast { dims: _, mapping } => self.with_dims(cx, "broadcast_in_dim", mapping),
            Op::Reshape { dims: _ } => self.plain(cx, "reshape"),
            Op::Transpose { permutation } => self.with_dims(cx, "transpose", permutation),
            Op::Reverse { dims } => {
                let number = self.begin(cx);
                self.w
                    .text("stablehlo.reverse ")
                    .names(cx.operands)
                    .text(", dims = ")
                    .list(dims)
                    .text(" : ")
                    .ty(cx.types[0]);
                self.end(cx);
                number
            }
            Op::Concatenate { dim } => {
                let number = self.begin(cx);
                self.w
                    .text("stablehlo.concatenate ")
                    .names(cx.operands)
                    .text(", dim = ")
                    .number(*dim)
                    .text(" : ");
                self.function_type(cx);
                self.end(cx);
                number
            }
            Op::Slice {
                starts,
                limits,
                strides,
            } => {
                let number = self.begin(cx);
                self.w
                    .text("stablehlo.slice ")
                    .names(cx.operands)
                    .text(" [");
                for (i, ((&start, &limit), &stride)) in
                    starts.iter().zip(limits).zip(strides).enumerate()
                {
                    self.w.comma(i).number(start).text(":").number(limit);
                    if stride != 1 {
                        self.w.text(":").number(stride);
                    }
                }
                self.w.text("] : ");
                self.function_type(cx);
                self.end(cx);
                number
            }
            Op::DynamicSlice { sizes } => {
                let number = self.begin(cx);
                self.w
                    .text("stablehlo.dynamic_slice ")
                    .names(cx.operands)
                    .text(", sizes = ")
                    .list(sizes)
                    .text(" : ");
                self.function_type(cx);
                self.end(cx);
                number
            }
            Op::DynamicUpdateSlice => self.plain(cx, "dynamic_update_slice"),
            Op::Pad {
                low,
                high,
                interior,
            } => {
                let number = self.begin(cx);
                self.w
                    .text("stablehlo.pad ")
                    .names(cx.operands)
                    .text(", low = ")
                    .signed_list(low)
                    .text(", high = ");
                self.w
                    .signed_list(high)
                    .text(", interior = ")
                    .list(interior)
                    .text(" : ");
                self.function_type(cx);
                self.end(cx);
                number
            }
            Op::Gather(gather) => self.gather(cx, gather),
            Op::Scatter(scatter) => self.scatter(cx, scatter),
            Op::Dot(dot) => self.dot(cx, dot),
            Op::Convolution(convolution) => self.convolution(cx, convolution),
            Op::Reduce { kind, dims } => self.reduce(cx, *kind, dims),
            Op::ArgReduce { kind, dim } => self.arg_reduce(cx, *kind, *dim),
            Op::ReduceWindow { kind, window } => self.reduce_window(cx, *kind, window),
            Op::SelectAndScatter { kind, window } => self.select_and_scatter(cx, *kind, window),
            Op::Sort { dim, descending } => self.sort(cx, *dim, *descending),
            Op::While {
                carried,
                condition,
                body,
            } => self.while_loop(cx, *carried, condition, body)?,
            Op::Scan {
                carried,
                scanned,
                length,
                reverse,
                body,
            } => {
                let spec = ScanSpec {
                    carried: *carried,
                    scanned: *scanned,
                    length: *length,
                    reverse: *reverse,
                };
                return self.scan(cx, spec, body).map(Printed::Each);
            }
            Op::Checkpoint { body, remat: _ } => {
                return self.nodes(body, cx.operands.to_vec()).map(Printed::Each);
            }
            Op::Case { branches } => self.case(cx, branches)?,
            Op::StopGradient => return Ok(Printed::Same(cx.operands[0])),
            Op::OptimizationBarrier => {
                let number = self.begin(cx);
                self.w
                    .text("stablehlo.optimization_barrier ")
                    .names(cx.operands)
                    .text(" : ")
                    .types(cx.types);
                self.end(cx);
                number
            }
            Op::CustomCall(call) => self.custom_call(cx, call)?,
            Op::AllReduce { kind, groups } => self.all_reduce(cx, *kind, groups)?,
            Op::AllGather { dim, groups } => self.all_gather(cx, *dim, groups)?,
            Op::ReduceScatter { kind, dim, groups } => {
                self.reduce_scatter(cx, *kind, *dim, groups)?
            }
            Op::AllToAll {
                split,
                concat,
                groups,
            } => self.all_to_all(cx, *split, *concat, groups)?,
            Op::CollectivePermute { pairs, groups } => {
                self.collective_permute(cx, pairs, groups)?
            }
            Op::PartitionId => self.device_id(cx, "partition_id"),
            Op::ReplicaId => self.device_id(cx, "replica_id"),
            Op::AxisIndex(axes) => return self.axis_index(cx, axes).map(Printed::Same),
            Op::ShardMap(map) => return self.shard_map(cx, map),
            Op::ShardingConstraint(spec) => return Ok(self.sharding_constraint(cx, spec)),
        }))
    }

    /// Starts the line of a node: `%3 = `. Returns the number.
    pub(super) fn begin(&mut self, cx: Cx<'_>) -> u32 {
        let number = self.w.fresh();
        self.w.line().results(number, cx.node.results.len());
        number
    }

    /// Ends a line of a node.
    pub(super) fn end(&mut self, cx: Cx<'_>) {
        self.w.location(cx.node.origin);
    }

    /// Writes `(t, t) -> t`.
    pub(super) fn function_type(&mut self, cx: Cx<'_>) {
        self.w.text("(").types(cx.types).text(") -> ");
        self.result_types(cx);
    }

    /// Writes `t`, or `(t, t)`.
    pub(super) fn result_types(&mut self, cx: Cx<'_>) {
        match cx.node.results[..] {
            [result] => {
                self.w.ty(cx.graph.ty(result));
            }
            _ => {
                self.w.text("(");
                for (i, &result) in cx.node.results.iter().enumerate() {
                    self.w.comma(i).ty(cx.graph.ty(result));
                }
                self.w.text(")");
            }
        }
    }

    /// Writes an operation whose operands and result have one type.
    fn alike(&mut self, cx: Cx<'_>, op: &str) -> u32 {
        let number = self.begin(cx);
        self.w
            .text("stablehlo.")
            .text(op)
            .text(" ")
            .names(cx.operands)
            .text(" : ")
            .ty(cx.types[0]);
        self.end(cx);
        number
    }

    /// Writes an operation without attributes.
    fn plain(&mut self, cx: Cx<'_>, op: &str) -> u32 {
        let number = self.begin(cx);
        self.w
            .text("stablehlo.")
            .text(op)
            .text(" ")
            .names(cx.operands)
            .text(" : ");
        self.function_type(cx);
        self.end(cx);
        number
    }

    fn with_dims(&mut self, cx: Cx<'_>, op: &str, dims: &[usize]) -> u32 {
        let number = self.begin(cx);
        self.w
            .text("stablehlo.")
            .text(op)
            .text(" ")
            .names(cx.operands)
            .text(", dims = ")
            .list(dims)
            .text(" : ");
        self.function_type(cx);
        self.end(cx);
        number
    }

    fn comparison(&mut self, cx: Cx<'_>, direction: Comparison) -> u32 {
        let direction = match direction {
            Comparison::Eq => "EQ",
            Comparison::Ne => "NE",
            Comparison::Lt => "LT",
            Comparison::Le => "LE",
            Comparison::Gt => "GT",
            Comparison::Ge => "GE",
        };
        let number = self.begin(cx);
        self.w
            .text("stablehlo.compare ")
            .text(direction)
            .text(", ")
            .names(cx.operands)
            .text(", ");
        self.w.text(comparison(cx.types[0].dtype())).text(" : ");
        self.function_type(cx);
        self.end(cx);
        number
    }

    fn device_id(&mut self, cx: Cx<'_>, op: &str) -> u32 {
        let number = self.begin(cx);
        self.w
            .text("stablehlo.")
            .text(op)
            .text(" : ")
            .ty(&TensorType::scalar(DType::U32));
        self.end(cx);
        number
    }
}
