use halite_core::{Error, ErrorKind, Result};

use super::{
    fields::{ERF, check_call},
    take::Take,
};
use crate::{
    Attributes, BinaryOp, FftKind, OpKind, RngAlgorithm, RngDistribution, Type, UnaryOp, chlo,
};

impl OpKind {
    /// The operation with this name, which is without dialect for StableHLO (`dot_general`), and
    /// with it for others (`func.call`, `sdy.manual_computation`, `check.expect_eq`).
    ///
    /// Removes the attributes that define the operation and leaves the others. Missing ones have
    /// the defaults of the specification. `operand` is the type of the first operand, on whose rank
    /// `broadcast`, `dot`, `sort` and `select_and_scatter` depend.
    ///
    /// # Errors
    /// If the operation is unknown or not supported, an attribute without default is missing, or
    /// one has the wrong type, a negative size, or an unknown case of an enumeration.
    pub fn from_attributes(
        name: &str,
        attributes: &mut Attributes,
        operand: Option<&Type>,
    ) -> Result<OpKind> {
        let mut take = Take {
            op: name,
            attributes,
            operand,
        };
        if let Some(op) = UnaryOp::from_name(name).filter(|&op| op != UnaryOp::Erf) {
            take.default_accuracy();
            return Ok(OpKind::Unary(op));
        }
        if let Some(op) = BinaryOp::from_name(name) {
            return Ok(OpKind::Binary(op));
        }
        take.kind()
    }
}

/// Checks that the result of `broadcast` has the added dimensions and then those of the operand, as
/// [`OpKind::BroadcastInDim`] does not have `broadcast_sizes`. Other operations are right.
pub(crate) fn check_broadcast(
    name: &str,
    attributes: &Attributes,
    operand: Option<&Type>,
    results: &[Type],
) -> Result<()> {
    let (Some(Type::Tensor(x)), [Type::Tensor(y)]) = (operand, results) else {
        return Ok(());
    };
    if name != "broadcast" {
        return Ok(());
    }
    let mut take = Take {
        op: name,
        attributes: &mut attributes.clone(),
        operand,
    };
    let sizes = take.sizes("broadcast_sizes")?;
    if sizes.iter().chain(&x.dims).eq(&y.dims) {
        return Ok(());
    }
    let message = format!(
        "`broadcast` of {x} by `broadcast_sizes` {sizes:?} is {y}; its dimensions must be the \
         sizes and then those of the operand"
    );
    Err(Error::invalid("program", message))
}

impl Take<'_> {
    fn kind(&mut self) -> Result<OpKind> {
        Ok(match self.op {
            "constant" => OpKind::Constant(self.constant()?),
            "iota" => OpKind::Iota {
                dim: self.size("iota_dimension")?,
            },
            "compare" => self.compare()?,
            "select" => OpKind::Select,
            "clamp" => OpKind::Clamp,
            "convert" => OpKind::Convert,
            "bitcast_convert" => OpKind::BitcastConvert,
            "reduce_precision" => OpKind::ReducePrecision {
                exponent: self.bits("exponent_bits")?,
                mantissa: self.bits("mantissa_bits")?,
            },
            "broadcast" => self.broadcast()?,
            "broadcast_in_dim" => OpKind::BroadcastInDim {
                mapping: self.sizes("broadcast_dimensions")?,
            },
            "reshape" => OpKind::Reshape,
            "transpose" => OpKind::Transpose {
                permutation: self.sizes("permutation")?,
            },
            "reverse" => OpKind::Reverse {
                dims: self.sizes("dimensions")?,
            },
            "concatenate" => OpKind::Concatenate {
                dim: self.size("dimension")?,
            },
            "slice" => OpKind::Slice {
                starts: self.sizes("start_indices")?,
                limits: self.sizes("limit_indices")?,
                strides: self.sizes("strides")?,
            },
            "dynamic_slice" => OpKind::DynamicSlice {
                sizes: self.sizes("slice_sizes")?,
            },
            "dynamic_update_slice" => OpKind::DynamicUpdateSlice,
            "pad" => OpKind::Pad {
                low: self.ints("edge_padding_low")?,
                high: self.ints("edge_padding_high")?,
                interior: self.sizes("interior_padding")?,
            },
            "gather" => OpKind::Gather(self.gather()?),
            "scatter" => OpKind::Scatter(self.scatter()?),
            "dot" => OpKind::DotGeneral(self.dot()?),
            "dot_general" => OpKind::DotGeneral(self.dot_general()?),
            "convolution" => OpKind::Convolution(self.convolution()?),
            "reduce" => OpKind::Reduce {
                dims: self.sizes("dimensions")?,
            },
            "reduce_window" => OpKind::ReduceWindow(self.reduce_window()?),
            "select_and_scatter" => OpKind::SelectAndScatter(self.select_and_scatter()?),
            "sort" => OpKind::Sort {
                dim: self.sort_dim()?,
                stable: self.flag("is_stable")?,
            },
            "map" => OpKind::Map {
                dims: self.sizes("dimensions")?,
            },
            "while" => OpKind::While,
            "if" => OpKind::If,
            "case" => OpKind::Case,
            "call" | "func.call" => OpKind::Call {
                function: self.text("callee")?,
            },
            "composite" => self.composite()?,
            "custom_call" => match self.custom_call()? {
                call if call.target == ERF => OpKind::Unary(UnaryOp::Erf),
                call => OpKind::CustomCall(call),
            },
            check if check.starts_with("check.") => OpKind::CustomCall(check_call(check)),
            "fft" => OpKind::Fft {
                transform: self.case("fft_type", FftKind::ALL, FftKind::name)?,
                lengths: self.sizes("fft_length")?,
            },
            "cholesky" => OpKind::Cholesky {
                lower: self.flag("lower")?,
            },
            "triangular_solve" => self.triangular_solve()?,
            "batch_norm_training" => {
                let (epsilon, feature) = self.batch_norm()?;
                OpKind::BatchNormTraining { epsilon, feature }
            }
            "batch_norm_inference" => {
                let (epsilon, feature) = self.batch_norm()?;
                OpKind::BatchNormInference { epsilon, feature }
            }
            "batch_norm_grad" => {
                let (epsilon, feature) = self.batch_norm()?;
                OpKind::BatchNormGrad { epsilon, feature }
            }
            "rng" => OpKind::Rng {
                distribution: self.case(
                    "rng_distribution",
                    RngDistribution::ALL,
                    RngDistribution::name,
                )?,
            },
            "rng_bit_generator" => OpKind::RngBitGenerator {
                algorithm: self.case("rng_algorithm", RngAlgorithm::ALL, RngAlgorithm::name)?,
            },
            "optimization_barrier" => OpKind::OptimizationBarrier,
            "tuple" => OpKind::Tuple,
            "get_tuple_element" => OpKind::GetTupleElement {
                index: self.size("index")?,
            },
            "after_all" | "create_token" => OpKind::AfterAll,
            "get_dimension_size" => OpKind::GetDimensionSize {
                dim: self.size("dimension")?,
            },
            "all_reduce" => OpKind::AllReduce(self.collective()?),
            "all_gather" => OpKind::AllGather {
                dim: self.size("all_gather_dim")?,
                collective: self.collective()?,
            },
            "all_to_all" => OpKind::AllToAll {
                split: self.size("split_dimension")?,
                concat: self.size("concat_dimension")?,
                parts: self.size("split_count")?,
                collective: self.collective()?,
            },
            "reduce_scatter" => OpKind::ReduceScatter {
                dim: self.size("scatter_dimension")?,
                collective: self.collective()?,
            },
            "collective_permute" => self.collective_permute()?,
            "collective_broadcast" => self.collective_broadcast()?,
            "partition_id" => OpKind::PartitionId,
            "replica_id" => OpKind::ReplicaId,
            "chlo.erf" => OpKind::Unary(UnaryOp::Erf),
            "sdy.sharding_constraint" => self.sharding_constraint()?,
            "sdy.propagation_barrier" => self.propagation_barrier()?,
            "sdy.manual_computation" => OpKind::ManualComputation(self.manual()?),
            name => match chlo::composite(name, self.attributes) {
                Some(composite) => composite,
                None => return Err(refused(name)),
            },
        })
    }
}

/// The error of an operation that has no [`OpKind`]; `None` for those that have one.
pub(crate) fn refusal(name: &str) -> Option<Error> {
    let made = OpKind::from_attributes(name, &mut Attributes::default(), None);
    made.err()
        .filter(|error| error.kind() == ErrorKind::Unsupported)
}

fn refused(name: &str) -> Error {
    let dynamic = ["real_dynamic_slice", "set_dimension_size"].contains(&name);
    let reason = if dynamic || name.starts_with("dynamic_") {
        "; shapes must be static"
    } else if name.starts_with("uniform_") {
        "; quantized types are not supported"
    } else if name.starts_with("chlo.") {
        "; lower the dialect chlo to StableHLO first"
    } else {
        ""
    };
    let message = format!("the operation `{name}` is not supported{reason}");
    Error::new(ErrorKind::Unsupported, "program", message)
}
