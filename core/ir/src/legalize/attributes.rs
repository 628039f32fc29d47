//! Operations and attributes of graphs in the terms of StableHLO.

use std::collections::HashSet;

use halite_core::{Error, Result};
use halite_stablehlo::{
    Attribute, Attributes, BinaryOp, ComparisonDirection, ConvolutionAttributes, ConvolutionDims,
    CustomCallAttributes, Dense, DotAttributes, ElementType, GatherAttributes, OpKind, RankedType,
    ScatterAttributes, UnaryOp, WindowAttributes,
};

use crate::{
    Binary, Comparison, ConvDims, Convolution, CustomCall, Dot, Gather, Reduction, Scatter, Unary,
    Window,
};

pub(super) fn unary(op: Unary) -> OpKind {
    OpKind::Unary(match op {
        Unary::Abs => UnaryOp::Abs,
        Unary::Cbrt => UnaryOp::Cbrt,
        Unary::Ceil => UnaryOp::Ceil,
        Unary::Cosine => UnaryOp::Cosine,
        Unary::CountLeadingZeros => UnaryOp::CountLeadingZeros,
        Unary::Erf => {
            return OpKind::CustomCall(CustomCallAttributes {
                target: "mhlo.erf".into(),
                api_version: 1,
                ..CustomCallAttributes::default()
            });
        }
        Unary::Exponential => UnaryOp::Exponential,
        Unary::ExponentialMinusOne => UnaryOp::ExponentialMinusOne,
        Unary::Floor => UnaryOp::Floor,
        Unary::IsFinite => UnaryOp::IsFinite,
        Unary::Log => UnaryOp::Log,
        Unary::LogPlusOne => UnaryOp::LogPlusOne,
        Unary::Logistic => UnaryOp::Logistic,
        Unary::Negate => UnaryOp::Negate,
        Unary::Not => UnaryOp::Not,
        Unary::PopulationCount => UnaryOp::Popcnt,
        Unary::RoundNearestAfz => UnaryOp::RoundNearestAfz,
        Unary::RoundNearestEven => UnaryOp::RoundNearestEven,
        Unary::Rsqrt => UnaryOp::Rsqrt,
        Unary::Sign => UnaryOp::Sign,
        Unary::Sine => UnaryOp::Sine,
        Unary::Sqrt => UnaryOp::Sqrt,
        Unary::Tan => UnaryOp::Tan,
        Unary::Tanh => UnaryOp::Tanh,
    })
}

pub(super) fn binary(op: Binary) -> BinaryOp {
    match op {
        Binary::Add => BinaryOp::Add,
        Binary::And => BinaryOp::And,
        Binary::Atan2 => BinaryOp::Atan2,
        Binary::Divide => BinaryOp::Divide,
        Binary::Maximum => BinaryOp::Maximum,
        Binary::Minimum => BinaryOp::Minimum,
        Binary::Multiply => BinaryOp::Multiply,
        Binary::Or => BinaryOp::Or,
        Binary::Power => BinaryOp::Power,
        Binary::Remainder => BinaryOp::Remainder,
        Binary::ShiftLeft => BinaryOp::ShiftLeft,
        Binary::ShiftRightArithmetic => BinaryOp::ShiftRightArithmetic,
        Binary::ShiftRightLogical => BinaryOp::ShiftRightLogical,
        Binary::Subtract => BinaryOp::Subtract,
        Binary::Xor => BinaryOp::Xor,
    }
}

pub(super) fn direction(comparison: Comparison) -> ComparisonDirection {
    match comparison {
        Comparison::Eq => ComparisonDirection::Eq,
        Comparison::Ne => ComparisonDirection::Ne,
        Comparison::Lt => ComparisonDirection::Lt,
        Comparison::Le => ComparisonDirection::Le,
        Comparison::Gt => ComparisonDirection::Gt,
        Comparison::Ge => ComparisonDirection::Ge,
    }
}

/// The operation that combines two elements.
pub(super) fn combiner(kind: Reduction) -> BinaryOp {
    match kind {
        Reduction::Sum => BinaryOp::Add,
        Reduction::Product => BinaryOp::Multiply,
        Reduction::Min => BinaryOp::Minimum,
        Reduction::Max => BinaryOp::Maximum,
        Reduction::And => BinaryOp::And,
        Reduction::Or => BinaryOp::Or,
    }
}

pub(super) fn gather(gather: &Gather) -> OpKind {
    OpKind::Gather(GatherAttributes {
        offset_dims: gather.offset_dims.clone(),
        collapsed_slice_dims: gather.collapsed_slice_dims.clone(),
        operand_batching_dims: gather.operand_batching_dims.clone(),
        start_indices_batching_dims: gather.indices_batching_dims.clone(),
        start_index_map: gather.start_index_map.clone(),
        index_vector_dim: gather.index_vector_dim,
        slice_sizes: gather.slice_sizes.clone(),
        indices_are_sorted: false,
    })
}

pub(super) fn scatter(scatter: &Scatter) -> OpKind {
    OpKind::Scatter(ScatterAttributes {
        update_window_dims: scatter.update_window_dims.clone(),
        inserted_window_dims: scatter.inserted_window_dims.clone(),
        input_batching_dims: scatter.operand_batching_dims.clone(),
        scatter_indices_batching_dims: scatter.indices_batching_dims.clone(),
        scatter_dims_to_operand_dims: scatter.scatter_dims_to_operand_dims.clone(),
        index_vector_dim: scatter.index_vector_dim,
        indices_are_sorted: false,
        unique_indices: scatter.unique_indices,
    })
}

pub(super) fn dot(dot: &Dot, precision: Vec<String>) -> OpKind {
    OpKind::DotGeneral(DotAttributes {
        lhs_batching: dot.left_batch.clone(),
        rhs_batching: dot.right_batch.clone(),
        lhs_contracting: dot.left_contract.clone(),
        rhs_contracting: dot.right_contract.clone(),
        precision,
        algorithm: None,
    })
}

pub(super) fn convolution(conv: &Convolution, precision: Vec<String>) -> OpKind {
    OpKind::Convolution(ConvolutionAttributes {
        input: conv_dims(&conv.input),
        kernel: conv_dims(&conv.kernel),
        output: conv_dims(&conv.output),
        strides: conv.strides.clone(),
        padding: conv.padding.clone(),
        input_dilation: conv.input_dilation.clone(),
        kernel_dilation: conv.kernel_dilation.clone(),
        reversal: conv.reversal.clone(),
        feature_groups: conv.feature_groups,
        batch_groups: conv.batch_groups,
        precision,
    })
}

fn conv_dims(dims: &ConvDims) -> ConvolutionDims {
    ConvolutionDims {
        batch: dims.batch,
        feature: dims.feature,
        spatial: dims.spatial.clone(),
    }
}

pub(super) fn window(window: &Window) -> WindowAttributes {
    let signed = |&(low, high): &(usize, usize)| (low as i64, high as i64);
    WindowAttributes {
        sizes: window.sizes.clone(),
        strides: window.strides.clone(),
        base_dilations: window.base_dilations.clone(),
        window_dilations: window.window_dilations.clone(),
        padding: window.padding.iter().map(signed).collect(),
    }
}

/// A call of a function of the backend on values of these types.
pub(super) fn custom_call(
    call: &CustomCall,
    operands: &[&RankedType],
    results: &[RankedType],
) -> Result<OpKind> {
    let mut seen = HashSet::new();
    let mut names = call.attributes.iter().map(|(name, _)| name);
    if let Some(name) = names.find(|name| name.is_empty() || !seen.insert(*name)) {
        let message = format!(
            "`{}` has an attribute `{name}` that is empty or appears twice",
            call.target
        );
        return Err(Error::invalid("custom_call", message));
    }
    if call.target.is_empty() {
        return Err(Error::invalid("custom_call", "the target's name is empty"));
    }
    let config = call.attributes.iter().map(|(name, value)| {
        let value = match value {
            crate::Attribute::Bool(value) => Attribute::Bool(*value),
            crate::Attribute::Int(value) => Attribute::Int(*value, ElementType::S64),
            crate::Attribute::Float(value) => Attribute::Float(*value, ElementType::F64),
            crate::Attribute::Str(value) => Attribute::Str(value.clone()),
        };
        (name.clone(), value)
    });
    let config = Attributes(config.collect());
    let ranks = |types: &mut dyn Iterator<Item = &RankedType>| -> Vec<usize> {
        types.map(RankedType::rank).collect()
    };
    let operands = ranks(&mut operands.iter().copied());
    let results = ranks(&mut results.iter());
    // Without them, XLA's compiler may lay a value out in another order than that of rows.
    let laid_out = operands.iter().chain(&results).any(|&rank| rank > 1);
    Ok(OpKind::CustomCall(CustomCallAttributes {
        target: call.target.clone(),
        side_effect: call.side_effect,
        config: (!config.0.is_empty()).then_some(Attribute::Dict(config)),
        api_version: 4,
        functions: Vec::new(),
        aliases: None,
        operand_layouts: laid_out.then(|| layouts(&operands)),
        result_layouts: laid_out.then(|| layouts(&results)),
    }))
}

/// The layouts of row-major values of these ranks: their dimensions, the fastest first.
fn layouts(ranks: &[usize]) -> Attribute {
    let layout = |&rank: &usize| {
        let dims = (0..rank as i64).rev();
        Attribute::Dense(Dense::from_integers(dims))
    };
    Attribute::Array(ranks.iter().map(layout).collect())
}
