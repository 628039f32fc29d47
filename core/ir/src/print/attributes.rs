//! Operations whose attributes are long: gather, scatter, dot, convolution, custom calls.

use std::collections::HashSet;

use halite_core::{DType, Error, Result, TensorType};

use super::{Printer, ops::Cx};
use crate::{
    Attribute, ConvolutionAttributes, ConvolutionDims, CustomCall, DotAttributes, GatherAttributes,
    Reduction, ScatterAttributes,
};

impl Printer<'_> {
    pub(super) fn gather(&mut self, cx: Cx<'_>, gather: &GatherAttributes) -> u32 {
        let number = self.begin(cx);
        self.w
            .text("\"stablehlo.gather\"(")
            .names(cx.operands)
            .text(") <{dimension_numbers = #stablehlo.gather<");
        self.w.text("offset_dims = ").list(&gather.offset_dims);
        self.w
            .text(", collapsed_slice_dims = ")
            .list(&gather.collapsed_slice_dims);
        self.w
            .text(", operand_batching_dims = ")
            .list(&gather.operand_batching_dims);
        self.w
            .text(", start_indices_batching_dims = ")
            .list(&gather.start_indices_batching_dims);
        self.w
            .text(", start_index_map = ")
            .list(&gather.start_index_map);
        self.w
            .text(", index_vector_dim = ")
            .number(gather.index_vector_dim);
        self.w
            .text(">, indices_are_sorted = ")
            .text(boolean(gather.indices_are_sorted))
            .text(", slice_sizes = ")
            .array(&gather.slice_sizes)
            .text("}> : ");
        self.function_type(cx);
        self.end(cx);
        number
    }

    pub(super) fn scatter(
        &mut self,
        cx: Cx<'_>,
        scatter: &ScatterAttributes,
        combine: Option<Reduction>,
    ) -> u32 {
        let (x, ty) = self.widened(cx, combine, 0);
        let (updates, update) = self.widened(cx, combine, 2);
        let number = self.begin(cx);
        self.w
            .text("\"stablehlo.scatter\"(")
            .names(&[x, cx.operands[1], updates])
            .text(") <{scatter_dimension_numbers = #stablehlo.scatter<");
        self.w
            .text("update_window_dims = ")
            .list(&scatter.update_window_dims);
        self.w
            .text(", inserted_window_dims = ")
            .list(&scatter.inserted_window_dims);
        self.w
            .text(", input_batching_dims = ")
            .list(&scatter.input_batching_dims);
        self.w
            .text(", scatter_indices_batching_dims = ")
            .list(&scatter.scatter_indices_batching_dims);
        self.w
            .text(", scatter_dims_to_operand_dims = ")
            .list(&scatter.scatter_dims_to_operand_dims);
        self.w
            .text(", index_vector_dim = ")
            .number(scatter.index_vector_dim);
        self.w
            .text(">, indices_are_sorted = ")
            .text(boolean(scatter.indices_are_sorted))
            .text(", unique_indices = ")
            .text(boolean(scatter.unique_indices))
            .text("}> ({");
        self.combine(combine, &TensorType::scalar(ty.dtype()));
        self.w.text("}) : (").types(&[&ty, cx.types[1], &update]);
        self.w.text(") -> ").ty(&ty);
        self.end(cx);
        self.narrowed(cx, number, &ty)
    }

    pub(super) fn dot(&mut self, cx: Cx<'_>, dot: &DotAttributes) -> u32 {
        let number = self.begin(cx);
        self.w.text("stablehlo.dot_general ").names(cx.operands);
        if !dot.lhs_batching.is_empty() {
            self.w
                .text(", batching_dims = ")
                .list(&dot.lhs_batching)
                .text(" x ")
                .list(&dot.rhs_batching);
        }
        self.w
            .text(", contracting_dims = ")
            .list(&dot.lhs_contracting)
            .text(" x ")
            .list(&dot.rhs_contracting);
        let precision = self.precision(cx, &dot.precision);
        if !precision.is_empty() {
            self.w
                .text(&format!(", precision = [{}]", precision.join(", ")));
        }
        self.w.text(" : ");
        self.function_type(cx);
        self.end(cx);
        number
    }

    pub(super) fn convolution(&mut self, cx: Cx<'_>, conv: &ConvolutionAttributes) -> u32 {
        let number = self.begin(cx);
        self.w
            .text("stablehlo.convolution(")
            .names(cx.operands)
            .text(") dim_numbers = ");
        self.conv_dims(&conv.input, "b", "f");
        self.w.text("x");
        self.conv_dims(&conv.kernel, "o", "i");
        self.w.text("->");
        self.conv_dims(&conv.output, "b", "f");
        self.w
            .text(", window = {stride = ")
            .list(&conv.strides)
            .text(", pad = [");
        for (i, &(low, high)) in conv.padding.iter().enumerate() {
            self.w.comma(i).signed_list(&[low, high]);
        }
        self.w
            .text("], lhs_dilate = ")
            .list(&conv.input_dilation)
            .text(", rhs_dilate = ")
            .list(&conv.kernel_dilation);
        self.w.text(", reverse = [");
        for (i, &reversed) in conv.reversal.iter().enumerate() {
            self.w.comma(i).text(boolean(reversed));
        }
        self.w
            .text("]} {batch_group_count = ")
            .number(conv.batch_groups);
        self.w
            .text(" : i64, feature_group_count = ")
            .number(conv.feature_groups)
            .text(" : i64");
        let precision = self.precision(cx, &conv.precision);
        if !precision.is_empty() {
            let precision: Vec<String> = (precision.iter())
                .map(|name| format!("#stablehlo<precision {name}>"))
                .collect();
            let precision = format!(", precision_config = [{}]", precision.join(", "));
            self.w.text(&precision);
        }
        self.w.text("} : ");
        self.function_type(cx);
        self.end(cx);
        number
    }

    /// The precision of a contraction: its own, or that of an operand of `f32` where the program
    /// asks for it.
    fn precision<'p>(&self, cx: Cx<'_>, own: &'p [String]) -> Vec<&'p str> {
        let full = self.full_products && cx.types.iter().any(|ty| ty.dtype() == DType::F32);
        if own.iter().any(|name| name != "DEFAULT") {
            own.iter().map(String::as_str).collect()
        } else if full {
            vec!["HIGHEST"; 2]
        } else {
            vec![]
        }
    }

    /// Writes `[b, 0, 1, f]`.
    fn conv_dims(&mut self, dims: &ConvolutionDims, batch: &str, feature: &str) {
        self.w.text("[");
        for dim in 0..dims.spatial.len() + 2 {
            self.w.comma(dim);
            if dim == dims.batch {
                self.w.text(batch);
            } else if dim == dims.feature {
                self.w.text(feature);
            } else {
                let number = dims.spatial.iter().position(|&spatial| spatial == dim);
                self.w
                    .number(number.expect("each dimension has one role, which infer checks"));
            }
        }
        self.w.text("]");
    }

    pub(super) fn custom_call(&mut self, cx: Cx<'_>, call: &CustomCall) -> Result<u32> {
        let mut seen = HashSet::new();
        if let Some((name, _)) = call
            .attributes
            .iter()
            .find(|(name, _)| name.is_empty() || !seen.insert(name))
        {
            return Err(Error::invalid(
                "custom_call",
                format!(
                    "`{}` has an attribute `{name}` that is empty or appears twice",
                    call.target
                ),
            ));
        }
        if call.target.is_empty() {
            return Err(Error::invalid("custom_call", "the target's name is empty"));
        }
        let number = self.begin(cx);
        self.w
            .text("stablehlo.custom_call @")
            .string(&call.target)
            .text("(")
            .names(cx.operands);
        self.w
            .text(") {api_version = 4 : i32, has_side_effect = ")
            .text(boolean(call.side_effect));
        self.w.text(", backend_config = {");
        for (i, (name, value)) in call.attributes.iter().enumerate() {
            self.w.comma(i).string(name).text(" = ");
            match value {
                Attribute::Bool(value) => {
                    self.w.text(boolean(*value));
                }
                Attribute::Int(value) => {
                    self.w.display(value).text(" : i64");
                }
                Attribute::Float(value) => {
                    self.double(*value).text(" : f64");
                }
                Attribute::Str(value) => {
                    self.w.string(value);
                }
            }
        }
        self.w.text("}");
        let results = cx.node.results.iter();
        let results: Vec<&TensorType> = results.map(|&result| cx.graph.ty(result)).collect();
        if cx.types.iter().chain(&results).any(|ty| ty.rank() > 1) {
            // Without them, XLA's compiler may lay a value out in another order than that of rows.
            self.layouts("operand_layouts", cx.types);
            self.layouts("result_layouts", &results);
        }
        self.w.text("} : ");
        self.function_type(cx);
        self.end(cx);
        Ok(number)
    }

    /// Writes the layouts of row-major values: their dimensions, the fastest first.
    fn layouts(&mut self, name: &str, types: &[&TensorType]) {
        self.w.text(", ").text(name).text(" = [");
        for (i, ty) in types.iter().enumerate() {
            let dims: Vec<String> = (0..ty.rank()).rev().map(|dim| dim.to_string()).collect();
            let dims = match dims.len() {
                0 => String::new(),
                _ => format!("[{}]", dims.join(", ")),
            };
            let layout = format!("dense<{dims}> : tensor<{}xindex>", ty.rank());
            self.w.comma(i).text(&layout);
        }
        self.w.text("]");
    }
}

fn boolean(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}
