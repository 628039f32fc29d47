//! The structures of [`OpKind`], each from its attributes.

use halite_core::{Error, ErrorKind, Result};

use super::{ALGORITHM_FIELDS, API_VERSION_END, API_VERSIONS, DEFAULT_API_VERSION, take::Take};
use crate::{
    Attribute, Attributes, CollectiveAttributes, ComparisonDirection, ComparisonOrder,
    ConvolutionAttributes, ConvolutionDims, CustomCallAttributes, Dense, DotAttributes,
    GatherAttributes, ManualAttributes, OpKind, PropagationDirection, ScatterAttributes,
    Transposition, WindowAttributes,
};

impl Take<'_> {
    /// Removes a default `result_accuracy`.
    pub(super) fn default_accuracy(&mut self) {
        if let Some(Attribute::Dict(fields)) = self.attributes.get("result_accuracy")
            && matches!(fields.get("mode"), Some(Attribute::Str(mode)) if mode == "DEFAULT")
        {
            self.attributes.take("result_accuracy");
        }
    }

    pub(super) fn constant(&mut self) -> Result<Dense> {
        match self.required("value")? {
            Attribute::Dense(dense) => Ok(dense),
            _ => Err(self.error("attribute `value` is not a constant `dense<..>`")),
        }
    }

    pub(super) fn bits(&mut self, name: &str) -> Result<u32> {
        let bits = self.size(name)?;
        u32::try_from(bits)
            .map_err(|_| self.error(&format!("attribute `{name}` is {bits}; expected 32 bits")))
    }

    pub(super) fn compare(&mut self) -> Result<OpKind> {
        let direction = self.case(
            "comparison_direction",
            ComparisonDirection::ALL,
            ComparisonDirection::name,
        )?;
        let order = match self.attributes.get("compare_type") {
            Some(Attribute::Str(text)) if text == "NOTYPE" => {
                self.optional("compare_type");
                None
            }
            _ => self.optional_case("compare_type", ComparisonOrder::ALL, ComparisonOrder::name)?,
        };
        Ok(OpKind::Compare { direction, order })
    }

    pub(super) fn broadcast(&mut self) -> Result<OpKind> {
        let added = self.sizes("broadcast_sizes")?.len();
        let mapping = (added..added + self.rank()?).collect();
        Ok(OpKind::BroadcastInDim { mapping })
    }

    pub(super) fn gather(&mut self) -> Result<GatherAttributes> {
        Ok(GatherAttributes {
            offset_dims: self.dims("offset_dims")?,
            collapsed_slice_dims: self.dims("collapsed_slice_dims")?,
            operand_batching_dims: self.dims("operand_batching_dims")?,
            start_indices_batching_dims: self.dims("start_indices_batching_dims")?,
            start_index_map: self.dims("start_index_map")?,
            index_vector_dim: self.size_or_zero("index_vector_dim")?,
            slice_sizes: self.sizes("slice_sizes")?,
            indices_are_sorted: self.flag("indices_are_sorted")?,
        })
    }

    pub(super) fn scatter(&mut self) -> Result<ScatterAttributes> {
        Ok(ScatterAttributes {
            update_window_dims: self.dims("update_window_dims")?,
            inserted_window_dims: self.dims("inserted_window_dims")?,
            input_batching_dims: self.dims("input_batching_dims")?,
            scatter_indices_batching_dims: self.dims("scatter_indices_batching_dims")?,
            scatter_dims_to_operand_dims: self.dims("scatter_dims_to_operand_dims")?,
            index_vector_dim: self.size_or_zero("index_vector_dim")?,
            indices_are_sorted: self.flag("indices_are_sorted")?,
            unique_indices: self.flag("unique_indices")?,
        })
    }

    fn size_or_zero(&mut self, name: &str) -> Result<usize> {
        match self.attributes.get(name) {
            None => Ok(0),
            Some(_) => self.size(name),
        }
    }

    /// Precisions of the operands. All `DEFAULT` is the same as none.
    fn precision(&mut self) -> Result<Vec<String>> {
        let mut precision = self.texts("precision_config")?;
        for text in &precision {
            if !["DEFAULT", "HIGH", "HIGHEST"].contains(&text.as_str()) {
                return Err(self.error(&format!(
                    "attribute `precision_config` has `{text}`; expected one of DEFAULT, HIGH, \
                     HIGHEST"
                )));
            }
        }
        if precision.iter().all(|text| text == "DEFAULT") {
            precision.clear();
        }
        Ok(precision)
    }

    /// `dot` contracts the last dimension of the first operand with the first of the second.
    pub(super) fn dot(&mut self) -> Result<DotAttributes> {
        let Some(last) = self.rank()?.checked_sub(1) else {
            return Err(self.error("the first operand is a scalar; expected a vector or matrix"));
        };
        Ok(DotAttributes {
            lhs_contracting: vec![last],
            rhs_contracting: vec![0],
            precision: self.precision()?,
            ..DotAttributes::default()
        })
    }

    pub(super) fn dot_general(&mut self) -> Result<DotAttributes> {
        let mut algorithm = Attributes::default();
        for name in ALGORITHM_FIELDS {
            if let Some(value) = self.optional(name) {
                algorithm.push(name, value);
            }
        }
        Ok(DotAttributes {
            lhs_batching: self.dims("lhs_batching_dimensions")?,
            rhs_batching: self.dims("rhs_batching_dimensions")?,
            lhs_contracting: self.dims("lhs_contracting_dimensions")?,
            rhs_contracting: self.dims("rhs_contracting_dimensions")?,
            precision: self.precision()?,
            algorithm: (!algorithm.0.is_empty()).then_some(algorithm),
        })
    }

    pub(super) fn convolution(&mut self) -> Result<ConvolutionAttributes> {
        let input = ConvolutionDims {
            batch: self.size("input_batch_dimension")?,
            feature: self.size("input_feature_dimension")?,
            spatial: self.sizes("input_spatial_dimensions")?,
        };
        let count = input.spatial.len();
        let reversal = match self.optional_ints("window_reversal")? {
            Some(flags) => flags.into_iter().map(|flag| flag != 0).collect(),
            None => vec![false; count],
        };
        Ok(ConvolutionAttributes {
            input,
            kernel: ConvolutionDims {
                batch: self.size("kernel_output_feature_dimension")?,
                feature: self.size("kernel_input_feature_dimension")?,
                spatial: self.sizes("kernel_spatial_dimensions")?,
            },
            output: ConvolutionDims {
                batch: self.size("output_batch_dimension")?,
                feature: self.size("output_feature_dimension")?,
                spatial: self.sizes("output_spatial_dimensions")?,
            },
            strides: self.sizes_or_ones("window_strides", count)?,
            padding: self.padding(count)?,
            input_dilation: self.sizes_or_ones("lhs_dilation", count)?,
            kernel_dilation: self.sizes_or_ones("rhs_dilation", count)?,
            reversal,
            feature_groups: self.size("feature_group_count")?,
            batch_groups: self.size("batch_group_count")?,
            precision: self.precision()?,
        })
    }

    pub(super) fn reduce_window(&mut self) -> Result<WindowAttributes> {
        let sizes = self.sizes("window_dimensions")?;
        let count = sizes.len();
        Ok(WindowAttributes {
            sizes,
            strides: self.sizes_or_ones("window_strides", count)?,
            base_dilations: self.sizes_or_ones("base_dilations", count)?,
            window_dilations: self.sizes_or_ones("window_dilations", count)?,
            padding: self.padding(count)?,
        })
    }

    pub(super) fn select_and_scatter(&mut self) -> Result<WindowAttributes> {
        let count = self.rank()?;
        Ok(WindowAttributes {
            sizes: self.sizes_or_ones("window_dimensions", count)?,
            strides: self.sizes_or_ones("window_strides", count)?,
            base_dilations: vec![1; count],
            window_dilations: vec![1; count],
            padding: self.padding(count)?,
        })
    }

    /// The dimension of `sort`, by default -1, which is the last one.
    pub(super) fn sort_dim(&mut self) -> Result<usize> {
        let rank = self.rank()?;
        let dim = self.optional_int("dimension")?.unwrap_or(-1);
        let from_end = if dim < 0 { rank as i64 } else { 0 };
        usize::try_from(dim.saturating_add(from_end)).map_err(|_| {
            self.error(&format!(
                "attribute `dimension` is {dim}; the operand has rank {rank}"
            ))
        })
    }

    pub(super) fn composite(&mut self) -> Result<OpKind> {
        let attributes = match self.optional("composite_attributes") {
            None => Attributes::default(),
            Some(Attribute::Dict(attributes)) => attributes,
            Some(_) => {
                return Err(self.error("attribute `composite_attributes` is not a dictionary"));
            }
        };
        Ok(OpKind::Composite {
            name: self.text("name")?,
            attributes,
            decomposition: self.text("decomposition")?,
            version: self.optional_int("version")?.unwrap_or(0),
        })
    }

    pub(super) fn custom_call(&mut self) -> Result<CustomCallAttributes> {
        let mut operand_layouts = self.optional("operand_layouts");
        let mut result_layouts = self.optional("result_layouts");
        // Layouts are of all operands and results, or of none: an empty list alone means nothing.
        if ![&operand_layouts, &result_layouts]
            .into_iter()
            .flatten()
            .any(has_elements)
        {
            (operand_layouts, result_layouts) = (None, None);
        }
        Ok(CustomCallAttributes {
            target: self.text("call_target_name")?,
            side_effect: self.flag("has_side_effect")?,
            config: self.config()?,
            api_version: self.api_version()?,
            functions: self.texts("called_computations")?,
            aliases: self.aliases()?,
            operand_layouts,
            result_layouts,
        })
    }

    /// `output_operand_aliases`. An empty list is the same as none.
    fn aliases(&mut self) -> Result<Option<Attribute>> {
        let aliases = self.optional("output_operand_aliases");
        match &aliases {
            Some(Attribute::Array(items)) if !items.iter().all(is_alias) => Err(self.error(
                "attribute `output_operand_aliases` is not a list of \
                 `#stablehlo.output_operand_alias` with the fields output_tuple_indices, \
                 operand_index and operand_tuple_indices",
            )),
            None | Some(Attribute::Array(_)) => Ok(aliases.filter(has_elements)),
            Some(_) => Err(self.error("attribute `output_operand_aliases` is not a list")),
        }
    }

    /// `backend_config`. An empty one is the same as none.
    fn config(&mut self) -> Result<Option<Attribute>> {
        let config = self.optional("backend_config");
        match &config {
            Some(Attribute::Str(text)) if text.is_empty() => Ok(None),
            Some(Attribute::Dict(fields)) if fields.0.is_empty() => Ok(None),
            None | Some(Attribute::Str(_) | Attribute::Bytes(_) | Attribute::Dict(_)) => Ok(config),
            Some(_) => {
                Err(self.error("attribute `backend_config` is neither a string nor a dictionary"))
            }
        }
    }

    fn api_version(&mut self) -> Result<i64> {
        let name = "api_version";
        match self.attributes.get(name) {
            Some(Attribute::Str(_)) => {
                let all: Vec<usize> = (0..API_VERSIONS.len()).collect();
                Ok(self.case(name, &all, |version| API_VERSIONS[version])? as i64)
            }
            _ => match self.optional_int(name)?.unwrap_or(DEFAULT_API_VERSION) {
                version @ 0..API_VERSION_END => Ok(version),
                version => Err(self.error(&format!(
                    "attribute `{name}` is {version}; expected less than {API_VERSION_END}"
                ))),
            },
        }
    }

    pub(super) fn triangular_solve(&mut self) -> Result<OpKind> {
        Ok(OpKind::TriangularSolve {
            left_side: self.flag("left_side")?,
            lower: self.flag("lower")?,
            unit_diagonal: self.flag("unit_diagonal")?,
            transpose: self.case("transpose_a", Transposition::ALL, Transposition::name)?,
        })
    }

    pub(super) fn batch_norm(&mut self) -> Result<(f32, usize)> {
        Ok((self.float("epsilon")? as f32, self.size("feature_index")?))
    }

    /// `channel_id`; 0 and less mean that there is none.
    fn channel(&mut self) -> Result<Option<i64>> {
        Ok(self
            .optional_int("channel_id")?
            .filter(|&channel| channel > 0))
    }

    pub(super) fn collective(&mut self) -> Result<CollectiveAttributes> {
        Ok(CollectiveAttributes {
            groups: self.groups()?,
            channel: self.channel()?,
            global_ids: self.flag("use_global_device_ids")?,
        })
    }

    pub(super) fn collective_broadcast(&mut self) -> Result<OpKind> {
        if self.flag("has_dynamic_root")? {
            let message = "`collective_broadcast` with a dynamic root is not supported";
            return Err(Error::new(ErrorKind::Unsupported, "program", message));
        }
        Ok(OpKind::CollectiveBroadcast(self.collective()?))
    }

    pub(super) fn collective_permute(&mut self) -> Result<OpKind> {
        let pairs = self.pairs("source_target_pairs")?.unwrap_or_default();
        let pairs: Option<_> = pairs
            .into_iter()
            .map(|(from, to)| Some((usize::try_from(from).ok()?, usize::try_from(to).ok()?)))
            .collect();
        Ok(OpKind::CollectivePermute {
            pairs: pairs.ok_or_else(|| {
                self.error("attribute `source_target_pairs` has a negative device")
            })?,
            channel: self.channel()?,
        })
    }

    pub(super) fn sharding_constraint(&mut self) -> Result<OpKind> {
        match self.required("sharding")? {
            Attribute::Sharding(sharding) => Ok(OpKind::ShardingConstraint(sharding)),
            _ => Err(self.error("attribute `sharding` is not a sharding `#sdy.sharding<..>`")),
        }
    }

    pub(super) fn propagation_barrier(&mut self) -> Result<OpKind> {
        let name = "allowed_direction";
        let number = self.size(name)?;
        match PropagationDirection::ALL.get(number) {
            Some(direction) => Ok(OpKind::PropagationBarrier(*direction)),
            None => Err(self.error(&format!("attribute `{name}` is {number}; expected 0 to 3"))),
        }
    }

    pub(super) fn manual(&mut self) -> Result<ManualAttributes> {
        let mut shardings = |name: &str| match self.required(name)? {
            Attribute::Shardings(list) => Ok(list),
            _ => Err(self.error(&format!("attribute `{name}` is not a list of shardings"))),
        };
        let (inputs, outputs) = (shardings("in_shardings")?, shardings("out_shardings")?);
        match self.required("manual_axes")? {
            Attribute::Axes(axes) => Ok(ManualAttributes {
                inputs,
                outputs,
                axes,
            }),
            _ => Err(self.error("attribute `manual_axes` is not a list of mesh axes")),
        }
    }
}

/// The call that stands for an operation of the dialect `check`, by which tests state results.
pub(super) fn check_call(name: &str) -> CustomCallAttributes {
    CustomCallAttributes {
        target: name.into(),
        side_effect: true,
        api_version: DEFAULT_API_VERSION,
        ..CustomCallAttributes::default()
    }
}

/// Target of the call that stands for [`UnaryOp::Erf`](crate::UnaryOp::Erf), the only operation of
/// CHLO that programs of halite have. JAX writes the same call into portable artifacts.
pub(super) const ERF: &str = "mhlo.erf";

pub(super) fn erf_call() -> CustomCallAttributes {
    CustomCallAttributes {
        target: ERF.into(),
        api_version: DEFAULT_API_VERSION,
        ..CustomCallAttributes::default()
    }
}

/// Returns true for an attribute with the fields of `#stablehlo.output_operand_alias`, and no
/// other.
fn is_alias(attribute: &Attribute) -> bool {
    let is_int = |value: &Attribute| matches!(value, Attribute::Int(..));
    let is_list = |value: Option<&Attribute>| match value {
        Some(Attribute::Array(values)) => values.iter().all(is_int),
        _ => false,
    };
    let Attribute::Dict(fields) = attribute else {
        return false;
    };
    fields.0.len() == 3
        && fields.get("operand_index").is_some_and(is_int)
        && is_list(fields.get("output_tuple_indices"))
        && is_list(fields.get("operand_tuple_indices"))
}

fn has_elements(attribute: &Attribute) -> bool {
    !matches!(attribute, Attribute::Array(list) if list.is_empty())
}
