use crate::{
    Attribute, Attributes, CollectiveAttributes, ConvolutionAttributes, CustomCallAttributes,
    Dense, DotAttributes, ElementType, GatherAttributes, ManualAttributes, OpKind, RankedType,
    ScatterAttributes, UnaryOp, WindowAttributes, build::fields::erf_call,
};

impl OpKind {
    /// The name and the attributes from which [`from_attributes`](Self::from_attributes) makes
    /// this operation. Optional attributes that it does not have (`channel_id`, `compare_type`, the
    /// algorithm of `dot_general`, ..) are left out; all others are there, defaults included.
    pub fn to_attributes(&self) -> (&'static str, Attributes) {
        let mut attributes = Attributes::default();
        let name = attributes.push_kind(self);
        (name, attributes)
    }
}

impl Attributes {
    fn push_kind(&mut self, kind: &OpKind) -> &'static str {
        match kind {
            OpKind::Constant(value) => {
                self.push("value", Attribute::Dense(value.clone()));
                "constant"
            }
            OpKind::Iota { dim } => {
                self.push_size("iota_dimension", *dim);
                "iota"
            }
            OpKind::Unary(UnaryOp::Erf) => self.push_custom_call(&erf_call()),
            OpKind::Unary(op) => op.name(),
            OpKind::Binary(op) => op.name(),
            OpKind::Compare { direction, order } => {
                self.push_case("comparison_direction", direction.name());
                if let Some(order) = order {
                    self.push_case("compare_type", order.name());
                }
                "compare"
            }
            OpKind::Select => "select",
            OpKind::Clamp => "clamp",
            OpKind::Convert => "convert",
            OpKind::BitcastConvert => "bitcast_convert",
            OpKind::ReducePrecision { exponent, mantissa } => {
                self.push_i32("exponent_bits", i64::from(*exponent));
                self.push_i32("mantissa_bits", i64::from(*mantissa));
                "reduce_precision"
            }
            OpKind::BroadcastInDim { mapping } => {
                self.push_sizes("broadcast_dimensions", mapping);
                "broadcast_in_dim"
            }
            OpKind::Reshape => "reshape",
            OpKind::Transpose { permutation } => {
                self.push_sizes("permutation", permutation);
                "transpose"
            }
            OpKind::Reverse { dims } => {
                self.push_sizes("dimensions", dims);
                "reverse"
            }
            OpKind::Concatenate { dim } => {
                self.push_size("dimension", *dim);
                "concatenate"
            }
            OpKind::Slice {
                starts,
                limits,
                strides,
            } => {
                self.push_sizes("start_indices", starts);
                self.push_sizes("limit_indices", limits);
                self.push_sizes("strides", strides);
                "slice"
            }
            OpKind::DynamicSlice { sizes } => {
                self.push_sizes("slice_sizes", sizes);
                "dynamic_slice"
            }
            OpKind::DynamicUpdateSlice => "dynamic_update_slice",
            OpKind::Pad {
                low,
                high,
                interior,
            } => {
                self.push_ints("edge_padding_low", low);
                self.push_ints("edge_padding_high", high);
                self.push_sizes("interior_padding", interior);
                "pad"
            }
            OpKind::Gather(gather) => self.push_gather(gather),
            OpKind::Scatter(scatter) => self.push_scatter(scatter),
            OpKind::DotGeneral(dot) => self.push_dot(dot),
            OpKind::Convolution(convolution) => self.push_convolution(convolution),
            OpKind::Reduce { dims } => {
                self.push_sizes("dimensions", dims);
                "reduce"
            }
            OpKind::ReduceWindow(window) => {
                self.push_window(window);
                self.push_sizes("base_dilations", &window.base_dilations);
                self.push_sizes("window_dilations", &window.window_dilations);
                "reduce_window"
            }
            OpKind::SelectAndScatter(window) => {
                self.push_window(window);
                "select_and_scatter"
            }
            OpKind::Sort { dim, stable } => {
                self.push_size("dimension", *dim);
                self.push_flag("is_stable", *stable);
                "sort"
            }
            OpKind::Map { dims } => {
                self.push_sizes("dimensions", dims);
                "map"
            }
            OpKind::While => "while",
            OpKind::If => "if",
            OpKind::Case => "case",
            OpKind::Call { function } => {
                self.push("callee", Attribute::Symbol(function.clone()));
                "func.call"
            }
            OpKind::Composite {
                name,
                attributes,
                decomposition,
                version,
            } => {
                self.push("name", Attribute::Str(name.clone()));
                self.push("composite_attributes", Attribute::Dict(attributes.clone()));
                self.push("decomposition", Attribute::Symbol(decomposition.clone()));
                self.push_i32("version", *version);
                "composite"
            }
            OpKind::CustomCall(call) => self.push_custom_call(call),
            OpKind::Fft { transform, lengths } => {
                self.push_case("fft_type", transform.name());
                self.push_sizes("fft_length", lengths);
                "fft"
            }
            OpKind::Cholesky { lower } => {
                self.push_flag("lower", *lower);
                "cholesky"
            }
            OpKind::TriangularSolve {
                left_side,
                lower,
                unit_diagonal,
                transpose,
            } => {
                self.push_flag("left_side", *left_side);
                self.push_flag("lower", *lower);
                self.push_flag("unit_diagonal", *unit_diagonal);
                self.push_case("transpose_a", transpose.name());
                "triangular_solve"
            }
            OpKind::BatchNormTraining { epsilon, feature } => {
                self.push_batch_norm(*epsilon, *feature);
                "batch_norm_training"
            }
            OpKind::BatchNormInference { epsilon, feature } => {
                self.push_batch_norm(*epsilon, *feature);
                "batch_norm_inference"
            }
            OpKind::BatchNormGrad { epsilon, feature } => {
                self.push_batch_norm(*epsilon, *feature);
                "batch_norm_grad"
            }
            OpKind::Rng { distribution } => {
                self.push_case("rng_distribution", distribution.name());
                "rng"
            }
            OpKind::RngBitGenerator { algorithm } => {
                self.push_case("rng_algorithm", algorithm.name());
                "rng_bit_generator"
            }
            OpKind::OptimizationBarrier => "optimization_barrier",
            OpKind::Tuple => "tuple",
            OpKind::GetTupleElement { index } => {
                self.push_i32("index", *index as i64);
                "get_tuple_element"
            }
            OpKind::AfterAll => "after_all",
            OpKind::GetDimensionSize { dim } => {
                self.push_size("dimension", *dim);
                "get_dimension_size"
            }
            OpKind::AllReduce(collective) => {
                self.push_collective(collective);
                "all_reduce"
            }
            OpKind::AllGather { dim, collective } => {
                self.push_size("all_gather_dim", *dim);
                self.push_collective(collective);
                "all_gather"
            }
            OpKind::AllToAll {
                split,
                concat,
                parts,
                collective,
            } => {
                self.push_size("split_dimension", *split);
                self.push_size("concat_dimension", *concat);
                self.push_size("split_count", *parts);
                self.push_groups(&collective.groups);
                self.push_channel(collective.channel);
                "all_to_all"
            }
            OpKind::ReduceScatter { dim, collective } => {
                self.push_size("scatter_dimension", *dim);
                self.push_collective(collective);
                "reduce_scatter"
            }
            OpKind::CollectivePermute { pairs, channel } => {
                let pairs = pairs.iter().map(|&(from, to)| (from as i64, to as i64));
                self.push_pairs("source_target_pairs", pairs.collect());
                self.push_channel(*channel);
                "collective_permute"
            }
            OpKind::CollectiveBroadcast(collective) => {
                self.push_groups(&collective.groups);
                self.push_channel(collective.channel);
                "collective_broadcast"
            }
            OpKind::PartitionId => "partition_id",
            OpKind::ReplicaId => "replica_id",
            OpKind::ShardingConstraint(sharding) => {
                self.push("sharding", Attribute::Sharding(sharding.clone()));
                "sdy.sharding_constraint"
            }
            OpKind::PropagationBarrier(direction) => {
                self.push_i32("allowed_direction", *direction as i64);
                "sdy.propagation_barrier"
            }
            OpKind::ManualComputation(ManualAttributes {
                inputs,
                outputs,
                axes,
            }) => {
                self.push("in_shardings", Attribute::Shardings(inputs.clone()));
                self.push("out_shardings", Attribute::Shardings(outputs.clone()));
                self.push("manual_axes", Attribute::Axes(axes.clone()));
                "sdy.manual_computation"
            }
        }
    }

    fn push_gather(&mut self, gather: &GatherAttributes) -> &'static str {
        self.push_sizes("offset_dims", &gather.offset_dims);
        self.push_sizes("collapsed_slice_dims", &gather.collapsed_slice_dims);
        self.push_sizes("operand_batching_dims", &gather.operand_batching_dims);
        self.push_sizes(
            "start_indices_batching_dims",
            &gather.start_indices_batching_dims,
        );
        self.push_sizes("start_index_map", &gather.start_index_map);
        self.push_size("index_vector_dim", gather.index_vector_dim);
        self.push_sizes("slice_sizes", &gather.slice_sizes);
        self.push_flag("indices_are_sorted", gather.indices_are_sorted);
        "gather"
    }

    fn push_scatter(&mut self, scatter: &ScatterAttributes) -> &'static str {
        self.push_sizes("update_window_dims", &scatter.update_window_dims);
        self.push_sizes("inserted_window_dims", &scatter.inserted_window_dims);
        self.push_sizes("input_batching_dims", &scatter.input_batching_dims);
        self.push_sizes(
            "scatter_indices_batching_dims",
            &scatter.scatter_indices_batching_dims,
        );
        self.push_sizes(
            "scatter_dims_to_operand_dims",
            &scatter.scatter_dims_to_operand_dims,
        );
        self.push_size("index_vector_dim", scatter.index_vector_dim);
        self.push_flag("indices_are_sorted", scatter.indices_are_sorted);
        self.push_flag("unique_indices", scatter.unique_indices);
        "scatter"
    }

    fn push_dot(&mut self, dot: &DotAttributes) -> &'static str {
        self.push_sizes("lhs_batching_dimensions", &dot.lhs_batching);
        self.push_sizes("rhs_batching_dimensions", &dot.rhs_batching);
        self.push_sizes("lhs_contracting_dimensions", &dot.lhs_contracting);
        self.push_sizes("rhs_contracting_dimensions", &dot.rhs_contracting);
        self.push_precision(&dot.precision);
        if let Some(algorithm) = &dot.algorithm {
            self.0.extend(algorithm.0.iter().cloned());
        }
        "dot_general"
    }

    fn push_convolution(&mut self, convolution: &ConvolutionAttributes) -> &'static str {
        let ConvolutionAttributes {
            input,
            kernel,
            output,
            ..
        } = convolution;
        self.push_size("input_batch_dimension", input.batch);
        self.push_size("input_feature_dimension", input.feature);
        self.push_sizes("input_spatial_dimensions", &input.spatial);
        self.push_size("kernel_output_feature_dimension", kernel.batch);
        self.push_size("kernel_input_feature_dimension", kernel.feature);
        self.push_sizes("kernel_spatial_dimensions", &kernel.spatial);
        self.push_size("output_batch_dimension", output.batch);
        self.push_size("output_feature_dimension", output.feature);
        self.push_sizes("output_spatial_dimensions", &output.spatial);
        self.push_sizes("window_strides", &convolution.strides);
        self.push_pairs("padding", convolution.padding.clone());
        self.push_sizes("lhs_dilation", &convolution.input_dilation);
        self.push_sizes("rhs_dilation", &convolution.kernel_dilation);
        let reversal: Vec<u8> = convolution.reversal.iter().copied().map(u8::from).collect();
        let ty = RankedType::new(ElementType::Bool, [reversal.len()]);
        self.push(
            "window_reversal",
            Attribute::Dense(Dense {
                ty,
                bytes: reversal.into(),
            }),
        );
        self.push_size("feature_group_count", convolution.feature_groups);
        self.push_size("batch_group_count", convolution.batch_groups);
        self.push_precision(&convolution.precision);
        "convolution"
    }

    fn push_custom_call(&mut self, call: &CustomCallAttributes) -> &'static str {
        self.push("call_target_name", Attribute::Str(call.target.clone()));
        self.push_flag("has_side_effect", call.side_effect);
        if let Some(config) = &call.config {
            self.push("backend_config", config.clone());
        }
        self.push_i32("api_version", call.api_version);
        let functions = call
            .functions
            .iter()
            .cloned()
            .map(Attribute::Symbol)
            .collect();
        self.push("called_computations", Attribute::Array(functions));
        let optional = [
            ("output_operand_aliases", &call.aliases),
            ("operand_layouts", &call.operand_layouts),
            ("result_layouts", &call.result_layouts),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                self.push(name, value.clone());
            }
        }
        "custom_call"
    }

    fn push_batch_norm(&mut self, epsilon: f32, feature: usize) {
        self.push(
            "epsilon",
            Attribute::Float(f64::from(epsilon), ElementType::F32),
        );
        self.push_size("feature_index", feature);
    }

    fn push_window(&mut self, window: &WindowAttributes) {
        self.push_sizes("window_dimensions", &window.sizes);
        self.push_sizes("window_strides", &window.strides);
        self.push_pairs("padding", window.padding.clone());
    }

    fn push_collective(&mut self, collective: &CollectiveAttributes) {
        self.push_groups(&collective.groups);
        self.push_channel(collective.channel);
        self.push_flag("use_global_device_ids", collective.global_ids);
    }
}
