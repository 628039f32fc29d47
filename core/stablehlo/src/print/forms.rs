//! Pretty forms that are more than operands and `key = value`. Each follows the results, and ends
//! before the location.

use super::{function::Printer, text::Text};
use crate::{
    Attribute, ComparisonDirection, ComparisonOrder, ConvolutionAttributes, ConvolutionDims,
    CustomCallAttributes, Dense, DotAttributes, Operation, PropagationDirection, ShardySharding,
    Type,
};

/// Version of the interface of a `custom_call` whose configuration is a dictionary.
const TYPED_FFI: i64 = 4;

impl<'m> Printer<'m, '_> {
    /// Writes `chlo.erf %0 : t -> t`.
    pub(super) fn erf(&mut self, operation: &'m Operation) {
        let (&[x], &[y]) = (&operation.operands[..], &operation.results[..]) else {
            return self.generic(operation);
        };
        self.head("chlo.erf", &operation.operands);
        self.out.optional_dictionary(&operation.attributes);
        self.out.text(" : ");
        self.ty(x);
        self.out.text(" -> ");
        self.ty(y);
    }

    /// Writes `stablehlo.constant dense<..> : t`.
    pub(super) fn constant(&mut self, operation: &'m Operation, value: &Dense) {
        let typed =
            |result| matches!(self.type_of(result), Some(Type::Tensor(ty)) if *ty == value.ty);
        match operation.results[..] {
            [result] if typed(result) && operation.operands.is_empty() => {
                self.out.text("stablehlo.constant");
                self.out.optional_dictionary(&operation.attributes);
                self.out.char(' ').dense(value);
            }
            _ => self.generic(operation),
        }
    }

    /// Writes `stablehlo.compare LT, %0, %1, FLOAT : (t, t) -> t`.
    pub(super) fn compare(
        &mut self,
        operation: &'m Operation,
        direction: ComparisonDirection,
        order: Option<ComparisonOrder>,
    ) {
        self.out.text("stablehlo.compare ").text(direction.name());
        self.out.comma(operation.operands.len());
        self.values(&operation.operands);
        if let Some(order) = order {
            self.out.text(", ").text(order.name());
        }
        self.tail(operation);
    }

    /// Writes `stablehlo.reduce_precision %0, format = e5m10 : t`.
    pub(super) fn reduce_precision(
        &mut self,
        operation: &'m Operation,
        exponent: u32,
        mantissa: u32,
    ) {
        self.head("reduce_precision", &operation.operands);
        self.out.comma(operation.operands.len());
        self.out.text("format = e").number(exponent);
        self.out.char('m').number(mantissa);
        self.tail(operation);
    }

    /// Writes `stablehlo.slice %0 [0:4, 1:7:2] : (t) -> t`, of starts, limits and strides.
    pub(super) fn slice<'r>(
        &mut self,
        operation: &'m Operation,
        ranges: impl Iterator<Item = (&'r usize, (&'r usize, &'r usize))>,
    ) {
        self.head("slice", &operation.operands);
        self.out.char(' ');
        self.out.list(ranges, |text, (&start, (&limit, &stride))| {
            text.number(start as u64).char(':').number(limit as u64);
            if stride != 1 {
                text.char(':').number(stride as u64);
            }
        });
        self.tail(operation);
    }

    /// Writes `stablehlo.dot_general %0, %1, contracting_dims = [1] x [0] : (t, t) -> t`.
    pub(super) fn dot(&mut self, operation: &'m Operation, dot: &DotAttributes) {
        self.head("dot_general", &operation.operands);
        if !dot.lhs_batching.is_empty() || !dot.rhs_batching.is_empty() {
            let out = self.out.text(", batching_dims = ").sizes(&dot.lhs_batching);
            out.text(" x ").sizes(&dot.rhs_batching);
        }
        self.out.text(", contracting_dims = ");
        self.out.sizes(&dot.lhs_contracting);
        self.out.text(" x ").sizes(&dot.rhs_contracting);
        if !dot.precision.is_empty() {
            self.out.text(", precision = ");
            self.out.list(&dot.precision, |text, case| {
                text.text(case);
            });
        }
        if let Some(algorithm) = &dot.algorithm {
            self.out.text(", algorithm = <");
            self.out.each(&algorithm.0, |text, (name, value)| {
                text.text(name).text(" = ").plain_attribute(value);
            });
            self.out.char('>');
        }
        self.tail(operation);
    }

    /// Writes `stablehlo.convolution(%0, %1) dim_numbers = .., window = {..} {..} : (t, t) -> t`.
    pub(super) fn convolution(&mut self, operation: &'m Operation, conv: &ConvolutionAttributes) {
        self.out.text("stablehlo.convolution(");
        self.values(&operation.operands);
        self.out.text(") dim_numbers = ");
        self.out.conv_dims(&conv.input, ['b', 'f']).char('x');
        self.out.conv_dims(&conv.kernel, ['o', 'i']).text("->");
        self.out.conv_dims(&conv.output, ['b', 'f']);
        self.out.text(", window = {stride = ").sizes(&conv.strides);
        self.out.text(", pad = ");
        self.out.list(&conv.padding, |text, &(low, high)| {
            text.integers([low, high]);
        });
        self.out.text(", lhs_dilate = ").sizes(&conv.input_dilation);
        self.out
            .text(", rhs_dilate = ")
            .sizes(&conv.kernel_dilation);
        self.out.text(", reverse = ").flags(&conv.reversal);
        self.out.text("} {batch_group_count = ");
        self.out.number(conv.batch_groups as u64);
        self.out.text(" : i64, feature_group_count = ");
        self.out.number(conv.feature_groups as u64).text(" : i64");
        if !conv.precision.is_empty() {
            self.out.text(", precision_config = ");
            self.out.cases("precision", &conv.precision);
        }
        self.further(operation);
        self.types_after(operation);
    }

    /// Writes `func.call @f(%0) {..} : (t) -> (t)`.
    pub(super) fn call(&mut self, operation: &'m Operation, function: &str) {
        self.out.text("func.call ").symbol(function).char('(');
        self.values(&operation.operands);
        self.out.char(')');
        self.out.optional_dictionary(&operation.attributes);
        self.out.text(" : (");
        self.types(&operation.operands);
        self.out.text(") -> (");
        self.types(&operation.results);
        self.out.char(')');
    }

    /// Writes `stablehlo.custom_call @"f"(%0) {api_version = 4 : i32, ..} : (t) -> t`.
    pub(super) fn custom_call(&mut self, operation: &'m Operation, call: &CustomCallAttributes) {
        self.out.text("stablehlo.custom_call @");
        self.out.string(&call.target).char('(');
        self.values(&operation.operands);
        self.out.text(") {api_version = ").integer(call.api_version);
        self.out
            .text(" : i32, has_side_effect = ")
            .boolean(call.side_effect);
        match &call.config {
            Some(Attribute::Dict(entries)) => {
                self.out.text(", backend_config = {");
                self.out.each(&entries.0, |text, (name, value)| {
                    text.string(name).entry_value(name, value);
                });
                self.out.char('}');
            }
            Some(config) => {
                self.out.text(", backend_config = ").attribute(config);
            }
            None if call.api_version == TYPED_FFI => {
                self.out.text(", backend_config = {}");
            }
            None => {}
        }
        if !call.functions.is_empty() {
            self.out.text(", called_computations = ");
            self.out.list(&call.functions, |text, name| {
                text.symbol(name);
            });
        }
        if let Some(aliases) = &call.aliases {
            self.out
                .text(", output_operand_aliases = ")
                .aliases(aliases);
        }
        if let Some(layouts) = &call.operand_layouts {
            self.out.text(", operand_layouts = ").layouts(layouts);
        }
        if let Some(layouts) = &call.result_layouts {
            self.out.text(", result_layouts = ").layouts(layouts);
        }
        self.further(operation);
        self.types_after(operation);
    }

    /// Writes `stablehlo.get_tuple_element %0[1] : (t) -> t`.
    pub(super) fn get_tuple_element(&mut self, operation: &'m Operation, index: usize) {
        self.head("get_tuple_element", &operation.operands);
        self.out.char('[').number(index as u64).char(']');
        self.tail(operation);
    }

    /// Writes `sdy.sharding_constraint %0 <..> : t`.
    pub(super) fn sharding_constraint(
        &mut self,
        operation: &'m Operation,
        sharding: &ShardySharding,
    ) {
        self.head("sdy.sharding_constraint", &operation.operands);
        self.out.char(' ').sharding(sharding);
        self.tail(operation);
    }

    /// Writes `sdy.propagation_barrier %0 allowed_direction=FORWARD : t`.
    pub(super) fn propagation_barrier(
        &mut self,
        operation: &'m Operation,
        direction: PropagationDirection,
    ) {
        self.head("sdy.propagation_barrier", &operation.operands);
        self.out.text(" allowed_direction=").text(direction.name());
        self.tail(operation);
    }

    /// Writes further attributes and the `}` after those that define the operation.
    fn further(&mut self, operation: &'m Operation) {
        if !operation.attributes.0.is_empty() {
            self.out.text(", ").entries(&operation.attributes);
        }
        self.out.char('}');
    }

    fn types_after(&mut self, operation: &'m Operation) {
        self.out.text(" : ");
        self.function_type(&operation.operands, &operation.results);
    }
}

impl Text<'_> {
    /// Writes `[b, 0, 1, f]`, with letters for the batch and the feature.
    fn conv_dims(&mut self, dims: &ConvolutionDims, [batch, feature]: [char; 2]) -> &mut Self {
        self.list(0..dims.spatial.len() + 2, |text, dim| {
            let spatial = || dims.spatial.iter().position(|&spatial| spatial == dim);
            match spatial() {
                _ if dim == dims.batch => text.char(batch),
                _ if dim == dims.feature => text.char(feature),
                Some(number) => text.number(number as u64),
                None => text.char('?'),
            };
        })
    }
}
