//! Custom calls: those that JAX emits for every platform that it does not know, annotations, and
//! the checks of StableHLO's test programs.

use halite_core::{Error, ErrorKind, Result};
use halite_stablehlo::{
    Attribute, CustomCallAttributes, Module, OpKind, Operation, RankedType, Region, Type,
};

use super::{
    expect,
    interpret::{Frame, locate},
    linalg,
    operation::{exactly, tensor_types, tensors},
    shape::slice,
    sort::sort,
    tensor::{Tensor, Value, Wide, unexpected},
};

/// Targets that return their operands: annotations for partitioners and memory spaces.
const ANNOTATIONS: &[&str] = &[
    "Sharding",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "LayoutConstraint",
    "MoveToDevice",
    "MoveToHost",
    "annotate_device_placement",
    "xla.sdy.FuncResultSharding",
    "xla.sdy.ShardingGroup",
];

/// Other targets.
const FUNCTIONS: &[&str] = &[
    "mhlo.erf",
    "Qr",
    "ProductOfElementaryHouseholderReflectors",
    "ApproxTopK",
    "PartialReduce",
    "TopK",
    "mhlo.topk",
    "check.eq",
    "check.expect_eq",
    "check.expect_close",
    "check.expect_almost_eq",
];

/// Checks that all custom calls of a program are known.
///
/// # Errors
/// [`ErrorKind::Unsupported`] with the target and the place of the first that is not.
pub(crate) fn check_custom_calls(module: &Module) -> Result<()> {
    module
        .functions
        .iter()
        .try_for_each(|function| check_region(&function.body))
}

fn check_region(region: &Region) -> Result<()> {
    for op in &region.operations {
        if let OpKind::CustomCall(CustomCallAttributes { target, .. }) = &op.kind
            && !ANNOTATIONS.contains(&&**target)
            && !FUNCTIONS.contains(&&**target)
        {
            return Err(locate(unknown(target), op));
        }
        op.regions.iter().try_for_each(check_region)?;
    }
    Ok(())
}

fn unknown(target: &str) -> Error {
    let message = format!(
        "this backend has no custom call `{target}`; it has {}, and annotations: {}",
        FUNCTIONS.join(", "),
        ANNOTATIONS.join(", ")
    );
    Error::new(ErrorKind::Unsupported, "program", message)
}

/// Runs a custom call.
pub(super) fn call<'r>(
    frame: &mut Frame<'r>,
    op: &'r Operation,
    attributes: &'r CustomCallAttributes,
    operands: Vec<Value>,
    types: &[&Type],
) -> Result<Vec<Value>> {
    let target = &*attributes.target;
    if ANNOTATIONS.contains(&target) {
        return annotation(target, operands, types);
    }
    if let Some(check) = target.strip_prefix("check.") {
        expect::check(check, &tensors(&operands)?, &op.attributes)?;
        return Ok(types.iter().map(|_| Value::Token).collect());
    }
    let results = match target {
        "mhlo.erf" => {
            let [x] = exactly(&tensors(&operands)?)?;
            let results = x.floats()?.into_iter().map(libm::erf).collect();
            vec![Tensor::encode(
                tensor_types(types)?[0],
                Wide::Float(results),
            )?]
        }
        "Qr" => {
            let [x] = exactly(&tensors(&operands)?)?;
            linalg::qr(x, two(&tensor_types(types)?)?)?.into()
        }
        "ProductOfElementaryHouseholderReflectors" => {
            let [packed, taus] = exactly(&tensors(&operands)?)?;
            vec![linalg::product_of_reflectors(
                packed,
                taus,
                tensor_types(types)?[0],
            )?]
        }
        "ApproxTopK" | "PartialReduce" => {
            approximate_top_k(frame, op, attributes, &operands, types)?
        }
        "TopK" | "mhlo.topk" => top_k(&tensors(&operands)?, &tensor_types(types)?, op)?,
        _ => return Err(unknown(target)),
    };
    Ok(results.into_iter().map(Value::Tensor).collect())
}

fn two<'t>(types: &[&'t RankedType]) -> Result<[&'t RankedType; 2]> {
    types
        .try_into()
        .map_err(|_| unexpected("2 results", &format!("{} results", types.len())))
}

/// The operands, if they have the types of the results. Programs are run before partitioning, where
/// full and shard shapes are the same only if nothing is partitioned.
fn annotation(target: &str, operands: Vec<Value>, types: &[&Type]) -> Result<Vec<Value>> {
    for (operand, ty) in operands.iter().zip(types) {
        if let (Value::Tensor(x), Some(ty)) = (operand, ty.as_tensor())
            && x.ty != *ty
        {
            let message = format!(
                "`{target}` from {} to {ty}: this backend runs manual partitioning of Shardy \
                 (`sdy.manual_computation`), not of GSPMD",
                x.ty
            );
            return Err(Error::new(ErrorKind::Unsupported, "run", message));
        }
    }
    Ok(operands.into_iter().take(types.len()).collect())
}

/// The first elements along a dimension after sorting by a comparator of the module: exact, which
/// the approximate operation may be. Operands: tensors, then initial values, which are not needed.
fn approximate_top_k<'r>(
    frame: &mut Frame<'r>,
    op: &'r Operation,
    attributes: &'r CustomCallAttributes,
    operands: &[Value],
    types: &[&Type],
) -> Result<Vec<Tensor>> {
    let types = tensor_types(types)?;
    let x = tensors(&operands[..operands.len() / 2])?;
    let dim = (0..types[0].rank()).find(|&dim| types[0].dims[dim] != x[0].ty.dims[dim]);
    let dim = config_int(op, attributes, "reduction_dim")
        .or(dim)
        .unwrap_or(0);
    let [comparator] = &attributes.functions[..] else {
        let message = format!("`{}` needs one called computation", attributes.target);
        return Err(Error::invalid("run", message));
    };
    if dim >= x[0].ty.rank() {
        let message = format!(
            "`{}` along dimension {dim} of {}",
            attributes.target, x[0].ty
        );
        return Err(Error::invalid("run", message));
    }
    let mut evaluate = |arguments| frame.call(comparator, arguments);
    let sorted = sort(&mut evaluate, &x, dim)?;
    let first =
        |(x, ty): (&Tensor, &&RankedType)| slice(x, &vec![0; ty.rank()], &vec![1; ty.rank()], ty);
    sorted.iter().zip(&types).map(first).collect()
}

/// An integer in the configuration of a custom call.
fn config_int(op: &Operation, attributes: &CustomCallAttributes, name: &str) -> Option<usize> {
    let dictionary = match (&attributes.config, op.attributes.get("mhlo.backend_config")) {
        (Some(Attribute::Dict(config)), _) | (_, Some(Attribute::Dict(config))) => config,
        _ => return None,
    };
    match dictionary.get(name) {
        Some(&Attribute::Int(value, _)) => usize::try_from(value).ok(),
        _ => None,
    }
}

/// The largest elements along the last dimension, in order, and their indices.
fn top_k(operands: &[&Tensor], types: &[&RankedType], op: &Operation) -> Result<Vec<Tensor>> {
    let [x] = exactly(operands)?;
    let [values_type, indices_type] = two(types)?;
    let attributes = op.attributes.get("mhlo.attributes");
    let largest = match attributes {
        Some(Attribute::Dict(attributes)) => {
            attributes.get("largest") != Some(&Attribute::Bool(false))
        }
        _ => true,
    };
    let (length, count) = match (x.ty.dims.last(), values_type.dims.last()) {
        (Some(&length), Some(&count)) => (length, count),
        _ => {
            return Err(Error::invalid(
                "run",
                "TopK of a scalar; it needs a dimension",
            ));
        }
    };
    let wide = x.wide()?;
    let compare = |a: usize, b: usize| match &wide {
        Wide::Int(values) => values[a].cmp(&values[b]),
        Wide::Float(values) => values[a].total_cmp(&values[b]),
        Wide::Complex(values) => values[a].re.total_cmp(&values[b].re),
    };
    let (mut bytes, mut indices) = (Vec::new(), Vec::new());
    for line in 0..x.ty.elements() / length.max(1) {
        let mut order: Vec<_> = (line * length..(line + 1) * length).collect();
        order.sort_by(|&a, &b| {
            if largest {
                compare(b, a)
            } else {
                compare(a, b)
            }
        });
        for &at in &order[..count.min(length)] {
            bytes.extend_from_slice(x.element(at));
            indices.push((at % length) as i128);
        }
    }
    Ok(vec![
        Tensor::new(values_type.clone(), bytes),
        Tensor::encode(indices_type, Wide::Int(indices))?,
    ])
}
