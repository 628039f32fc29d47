//! Dispatch over the operations, and those that are printed as one line.

use halite_core::{DType, Result, TensorType};

use super::{
    Printer,
    regions::comparison,
    scan::Scan,
    writer::{Name, Writer},
};
use crate::{ComparisonDirection, CustomCall, Graph, Node, Op, UnaryOp};

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
    /// Prints the operation of a node.
    pub(super) fn op(&mut self, cx: Cx<'_>) -> Result<Printed> {
        Ok(Printed::Group(match &cx.node.op {
            Op::Constant(literal) => self.literal(literal, cx.node.origin),
            Op::Iota { ty, dim } => self.iota(cx, ty, *dim),
            Op::Unary(UnaryOp::Erf) => self.erf(cx),
            Op::Unary(UnaryOp::Logistic) => self.logistic(cx),
            Op::Unary(UnaryOp::IsFinite) => self.plain(cx, "is_finite"),
            Op::Unary(unary) => self.alike(cx, unary.name()),
            Op::Binary(binary) => self.alike(cx, binary.name()),
            Op::Compare(comparison) => self.comparison(cx, *comparison),
            Op::Select => self.line(cx, "select", &cx.types[..2], |_| ()),
            Op::Clamp => self.plain(cx, "clamp"),
            Op::Convert(_) => self.plain(cx, "convert"),
            Op::BitcastConvert(_) => self.plain(cx, "bitcast_convert"),
            Op::ReducePrecision { exponent, mantissa } => {
                self.reduce_precision(cx, *exponent, *mantissa)
            }
            Op::Broadcast { dims: _, mapping } => self.with_dims(cx, "broadcast_in_dim", mapping),
            Op::Reshape { dims: _ } => self.plain(cx, "reshape"),
            Op::Transpose { permutation } => self.with_dims(cx, "transpose", permutation),
            Op::Reverse { dims } => self.reverse(cx, dims),
            Op::Concatenate { dim } => self.concatenate(cx, *dim),
            Op::Slice {
                starts,
                limits,
                strides,
            } => self.slice(cx, starts, limits, strides),
            Op::DynamicSlice { sizes } => self.dynamic_slice(cx, sizes),
            Op::DynamicUpdateSlice => self.plain(cx, "dynamic_update_slice"),
            Op::Pad {
                low,
                high,
                interior,
            } => self.pad(cx, low, high, interior),
            Op::Gather(gather) => self.gather(cx, gather),
            Op::Scatter(scatter, combine) => self.scatter(cx, scatter, *combine),
            Op::Dot(dot, ..) => self.dot(cx, dot),
            Op::Convolution(convolution, ..) => self.convolution(cx, convolution),
            Op::Reduce { kind, dims } => self.reduce(cx, *kind, dims),
            Op::ArgReduce { kind, dim } => self.arg_reduce(cx, *kind, *dim),
            Op::ReduceWindow { kind, window } => self.reduce_window(cx, *kind, window),
            Op::SelectAndScatter { kind, window } => self.select_and_scatter(cx, *kind, window),
            Op::Sort {
                dim,
                descending,
                by_bits,
            } => self.sort(cx, *dim, *descending, *by_bits),
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
                return self.scan(cx, scan).map(Printed::Each);
            }
            Op::Checkpoint { body, remat: _ } => {
                return self.nodes(body, cx.operands).map(Printed::Each);
            }
            Op::Case { branches } => self.case(cx, branches)?,
            Op::StopGradient => return Ok(Printed::Same(cx.operands[0])),
            Op::OptimizationBarrier => self.line(cx, "optimization_barrier", cx.types, |_| ()),
            Op::CustomCall(CustomCall {
                decomposition: Some(graph),
                ..
            }) => {
                return self.nodes(graph, cx.operands).map(Printed::Each);
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
            Op::Unsharded { dims } => return Ok(self.unsharded(cx, dims)),
            Op::PropagationBarrier => return Ok(self.propagation_barrier(cx)),
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

    /// Writes `stablehlo.op %0, %1{attributes} : t, t`, with these types at the end.
    fn line(
        &mut self,
        cx: Cx<'_>,
        op: &str,
        types: &[&TensorType],
        attributes: impl FnOnce(&mut Writer),
    ) -> u32 {
        let number = self.head(cx, op, attributes);
        self.w.types(types);
        self.end(cx);
        number
    }

    /// Writes `stablehlo.op %0, %1{attributes} : (t, t) -> t`.
    fn function(&mut self, cx: Cx<'_>, op: &str, attributes: impl FnOnce(&mut Writer)) -> u32 {
        let number = self.head(cx, op, attributes);
        self.function_type(cx);
        self.end(cx);
        number
    }

    /// Writes a line up to its types.
    fn head(&mut self, cx: Cx<'_>, op: &str, attributes: impl FnOnce(&mut Writer)) -> u32 {
        let number = self.begin(cx);
        self.w.text("stablehlo.").text(op).text(" ");
        self.w.names(cx.operands);
        attributes(self.w);
        self.w.text(" : ");
        number
    }

    /// Writes an operation whose operands and result have one type.
    fn alike(&mut self, cx: Cx<'_>, op: &str) -> u32 {
        self.line(cx, op, &cx.types[..1], |_| ())
    }

    /// Writes an operation without attributes.
    fn plain(&mut self, cx: Cx<'_>, op: &str) -> u32 {
        self.function(cx, op, |_| ())
    }

    fn with_dims(&mut self, cx: Cx<'_>, op: &str, dims: &[usize]) -> u32 {
        self.function(cx, op, |w| {
            w.text(", dims = ").list(dims);
        })
    }

    fn reduce_precision(&mut self, cx: Cx<'_>, exponent: u32, mantissa: u32) -> u32 {
        self.line(cx, "reduce_precision", &cx.types[..1], |w| {
            w.text(", format = e").number(exponent as usize);
            w.text("m").number(mantissa as usize);
        })
    }

    fn reverse(&mut self, cx: Cx<'_>, dims: &[usize]) -> u32 {
        self.line(cx, "reverse", &cx.types[..1], |w| {
            w.text(", dims = ").list(dims);
        })
    }

    fn concatenate(&mut self, cx: Cx<'_>, dim: usize) -> u32 {
        self.function(cx, "concatenate", |w| {
            w.text(", dim = ").number(dim);
        })
    }

    /// Writes `stablehlo.slice %0 [0:4, 1:7:2] : ..`.
    fn slice(&mut self, cx: Cx<'_>, starts: &[usize], limits: &[usize], strides: &[usize]) -> u32 {
        self.function(cx, "slice", |w| {
            w.text(" [");
            for (dim, &stride) in strides.iter().enumerate() {
                w.comma(dim).number(starts[dim]);
                w.text(":").number(limits[dim]);
                if stride != 1 {
                    w.text(":").number(stride);
                }
            }
            w.text("]");
        })
    }

    fn dynamic_slice(&mut self, cx: Cx<'_>, sizes: &[usize]) -> u32 {
        self.function(cx, "dynamic_slice", |w| {
            w.text(", sizes = ").list(sizes);
        })
    }

    fn pad(&mut self, cx: Cx<'_>, low: &[i64], high: &[i64], interior: &[usize]) -> u32 {
        self.function(cx, "pad", |w| {
            w.text(", low = ").signed_list(low);
            w.text(", high = ").signed_list(high);
            w.text(", interior = ").list(interior);
        })
    }

    fn comparison(&mut self, cx: Cx<'_>, direction: ComparisonDirection) -> u32 {
        let direction = match direction {
            ComparisonDirection::Eq => "EQ",
            ComparisonDirection::Ne => "NE",
            ComparisonDirection::Lt => "LT",
            ComparisonDirection::Le => "LE",
            ComparisonDirection::Gt => "GT",
            ComparisonDirection::Ge => "GE",
        };
        let number = self.begin(cx);
        self.w.text("stablehlo.compare ").text(direction);
        self.w.text(", ").names(cx.operands);
        self.w.text(", ").text(comparison(cx.types[0].dtype()));
        self.w.text(" : ");
        self.function_type(cx);
        self.end(cx);
        number
    }

    /// In `f32` for floats of 16 bits: XLA makes 1 / (1 + e^-x) of it, whose exponential overflows
    /// in `f16` where the result is 6e-6.
    fn logistic(&mut self, cx: Cx<'_>) -> u32 {
        let (x, ty) = self.in_full_precision(cx, 0);
        let number = self.begin(cx);
        self.w.text("stablehlo.logistic ").name(x);
        self.w.text(" : ").ty(&ty);
        self.end(cx);
        self.narrowed(cx, number, &ty)
    }

    fn erf(&mut self, cx: Cx<'_>) -> u32 {
        let number = self.begin(cx);
        self.w.text("chlo.erf ").names(cx.operands);
        self.w.text(" : ").ty(cx.types[0]);
        self.w.text(" -> ").ty(cx.types[0]);
        self.end(cx);
        number
    }

    fn iota(&mut self, cx: Cx<'_>, ty: &TensorType, dim: usize) -> u32 {
        let number = self.begin(cx);
        self.w.text("stablehlo.iota dim = ").number(dim);
        self.w.text(" : ").ty(ty);
        self.end(cx);
        number
    }

    fn device_id(&mut self, cx: Cx<'_>, op: &str) -> u32 {
        let number = self.begin(cx);
        self.w.text("stablehlo.").text(op);
        self.w.text(" : ").ty(&TensorType::scalar(DType::U32));
        self.end(cx);
        number
    }
}
