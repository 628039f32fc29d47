//! Custom calls: those that JAX emits for every platform that it does not know, annotations, the
//! checks of StableHLO's test programs, and functions that are registered in this process.

use halite_core::{Error, ErrorKind, Result, custom_call};
use halite_stablehlo::{
    Attribute, CustomCallAttributes, ElementClass, ElementType, Function, Module, OpKind,
    Operation, RankedType, Region, Type, ValueId,
};

use super::{
    expect,
    interpret::{Frame, locate},
    linalg,
    operation::{exactly, tensor_types, tensors},
    registered,
    shape::slice,
    sort::{Order, sort},
    tensor::{Tensor, Value, Wide, allocate, collect, unexpected},
};

/// Targets that return their operands, or nothing: annotations for partitioners, memory spaces and
/// the removal of what nothing uses.
const ANNOTATIONS: &[&str] = &[
    "Sharding",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "LayoutConstraint",
    "MoveToDevice",
    "MoveToHost",
    "annotate_device_placement",
    "dce_sink",
    "xla.sdy.FuncResultSharding",
    "xla.sdy.ShardingGroup",
];

/// Other targets.
const FUNCTIONS: &[&str] = &[
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

/// Checks that all custom calls of a program are known, and have operands and results of the types
/// that their targets need.
///
/// # Errors
/// [`ErrorKind::Unsupported`] with the target and the place of the first that is not known;
/// [`ErrorKind::InvalidArgument`] for types.
pub(crate) fn check_custom_calls(module: &Module) -> Result<()> {
    module
        .functions
        .iter()
        .try_for_each(|function| check_region(module, function, &function.body))
}

fn check_region(module: &Module, function: &Function, region: &Region) -> Result<()> {
    for op in &region.operations {
        if let OpKind::CustomCall(attributes) = &op.kind {
            let target = &attributes.target;
            let types = |ids: &[ValueId]| ids.iter().map(|&id| function.ty(id)).collect::<Vec<_>>();
            let (operands, results) = (types(&op.operands), types(&op.results));
            if FUNCTIONS.contains(&&**target) {
                if !has_types(target, &operands, &results) {
                    return Err(locate(wrong_types(target, &operands, &results), op));
                }
                if is_approximate(target) {
                    check_sorting(module, op, attributes, &operands)
                        .map_err(|error| locate(error, op))?;
                }
            } else if !ANNOTATIONS.contains(&&**target) && custom_call::target(target).is_none() {
                return Err(locate(unknown(target), op));
            }
        }
        (op.regions.iter()).try_for_each(|region| check_region(module, function, region))?;
    }
    Ok(())
}

/// Returns true if the target sorts by a function of the program.
fn is_approximate(target: &str) -> bool {
    matches!(target, "ApproxTopK" | "PartialReduce")
}

/// Checks the dimension and the comparator of a target that sorts.
fn check_sorting(
    module: &Module,
    op: &Operation,
    attributes: &CustomCallAttributes,
    operands: &[&Type],
) -> Result<()> {
    let target = &attributes.target;
    let x = &tensor_types(operands)?[..operands.len() / 2];
    let [comparator] = &attributes.functions[..] else {
        let count = attributes.functions.len();
        let message = format!("`{target}` has {count} called computations; it needs 1");
        return Err(Error::invalid("program", message));
    };
    let dim = config_int(op, attributes, "reduction_dim").unwrap_or(0);
    if dim >= x[0].rank() {
        let message = format!("`{target}` is along dimension {dim} of {}", x[0]);
        return Err(Error::invalid("program", message));
    }
    let scalar = |ty: &&RankedType| Type::Tensor(RankedType::new(ty.element, []));
    let takes: Vec<Type> = (x.iter().map(scalar))
        .flat_map(|ty| [ty.clone(), ty])
        .collect();
    let returns = [Type::Tensor(RankedType::new(ElementType::Bool, []))];
    let fits = module.function(comparator).is_some_and(|function| {
        let types = |ids: &[ValueId]| ids.iter().map(|&id| function.ty(id).clone()).collect();
        let [arguments, results]: [Vec<Type>; 2] =
            [&function.body.arguments, &function.body.results].map(|ids| types(ids));
        arguments == takes && results == returns
    });
    if !fits {
        let takes: Vec<_> = takes.iter().map(ToString::to_string).collect();
        let message = format!(
            "`{target}` sorts by `{comparator}`, which must be a function from {} to {}",
            takes.join(", "),
            returns[0]
        );
        return Err(Error::invalid("program", message));
    }
    Ok(())
}

/// Returns true if a target of [`FUNCTIONS`] takes and returns these types.
fn has_types(target: &str, operands: &[&Type], results: &[&Type]) -> bool {
    if target.starts_with("check.") {
        return results.iter().all(|ty| ty.as_tensor().is_none());
    }
    let (Ok(x), Ok(y)) = (tensor_types(operands), tensor_types(results)) else {
        return false;
    };
    let is_inexact = |ty: &RankedType| {
        matches!(
            ty.element.class(),
            ElementClass::Float | ElementClass::Complex
        )
    };
    match (target, &x[..], &y[..]) {
        ("Qr", [x], [packed, taus]) => {
            let &[ref batch @ .., rows, columns] = &x.dims[..] else {
                return false;
            };
            let factors = [batch, &[rows.min(columns)]].concat();
            is_inexact(x) && x == packed && **taus == RankedType::new(x.element, factors)
        }
        ("ProductOfElementaryHouseholderReflectors", [x, taus], [y]) => {
            let &[ref batch @ .., rows, columns] = &x.dims[..] else {
                return false;
            };
            let Some((&count, of_taus)) = taus.dims.split_last() else {
                return false;
            };
            let fits = of_taus == batch && count <= rows.min(columns);
            is_inexact(x) && x == y && taus.element == x.element && fits
        }
        ("ApproxTopK" | "PartialReduce", x, y) => {
            let first = x.first().map(|x| &x.dims);
            let is_part = |(x, y): (&&RankedType, &&RankedType)| {
                let fits = x.dims.iter().zip(&y.dims).all(|(all, part)| part <= all);
                x.element == y.element && x.rank() == y.rank() && fits && Some(&x.dims) == first
            };
            !y.is_empty() && x.len() == 2 * y.len() && x.iter().zip(y).all(is_part)
        }
        ("TopK" | "mhlo.topk", [x], [values, indices]) => {
            let (Some((length, batch)), Some((count, of_values))) =
                (x.dims.split_last(), values.dims.split_last())
            else {
                return false;
            };
            let has_indices = matches!(
                indices.element.class(),
                ElementClass::Signed | ElementClass::Unsigned
            );
            let fits = count <= length && batch == of_values && values.dims == indices.dims;
            x.element == values.element && has_indices && fits
        }
        _ => false,
    }
}

fn wrong_types(target: &str, operands: &[&Type], results: &[&Type]) -> Error {
    let list = |types: &[&Type]| {
        let names: Vec<_> = types.iter().map(ToString::to_string).collect();
        names.join(", ")
    };
    let needed = match target {
        "Qr" => "tensor<..xMxNxf32> -> tensor<..xMxNxf32>, tensor<..xmin(M,N)xf32>",
        "ProductOfElementaryHouseholderReflectors" => {
            "tensor<..xMxNxf32>, tensor<..xKxf32> -> tensor<..xMxNxf32>, K at most M and N"
        }
        "ApproxTopK" | "PartialReduce" => {
            "operands of one shape and as many initial values -> parts of the operands"
        }
        "TopK" | "mhlo.topk" => {
            "tensor<..xNxf32> -> tensor<..xKxf32>, tensor<..xKxi32>, K at most N, or of another \
             element type"
        }
        _ => "two tensors -> no tensors",
    };
    let message = format!(
        "the custom call `{target}` has types {} -> {}; it needs {needed}",
        list(operands),
        list(results)
    );
    Error::invalid("program", message)
}

fn unknown(target: &str) -> Error {
    let message = format!(
        "this backend has no custom call `{target}`, and it is not registered in this process \
         (`custom_call::register`); it has {}, and annotations: {}",
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
        target if is_approximate(target) => {
            approximate_top_k(frame, op, attributes, &operands, types)?
        }
        "TopK" | "mhlo.topk" => top_k(&tensors(&operands)?, &tensor_types(types)?, op)?,
        _ => {
            let registered = custom_call::target(target).ok_or_else(|| unknown(target))?;
            let config = attributes.config.as_ref();
            registered::call(
                &registered,
                config,
                &tensors(&operands)?,
                &tensor_types(types)?,
            )?
        }
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
    if operands.len() < types.len() {
        let (given, wanted) = (operands.len(), types.len());
        let message = format!("`{target}` of {given} values has {wanted} results");
        return Err(Error::invalid("run", message));
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
    let comparator = &attributes.functions[0];
    let function = frame.process.module.function(comparator);
    let order = function.and_then(|function| Order::of(&function.body));
    let mut evaluate = |arguments| frame.call(comparator, arguments);
    let sorted = sort(&mut evaluate, order, &x, dim)?;
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
    let last = |ty: &RankedType| ty.dims.last().copied().unwrap_or(1);
    let (length, count) = (last(&x.ty), last(values_type));
    let wide = x.wide()?;
    let compare = |a: usize, b: usize| match &wide {
        Wide::Int(values) => values[a].cmp(&values[b]),
        Wide::Float(values) => compare_floats(values[a], values[b]),
        Wide::Complex(values) => compare_floats(values[a].re, values[b].re),
    };
    let mut bytes = allocate(values_type.bytes())?;
    let mut indices = allocate(values_type.elements())?;
    for line in 0..x.ty.elements() / length.max(1) {
        let mut order = collect(length, line * length..)?;
        order.sort_by(|&a, &b| {
            if largest {
                compare(b, a)
            } else {
                compare(a, b)
            }
        });
        for &at in &order[..count] {
            bytes.extend_from_slice(x.element(at));
            indices.push((at % length) as i128);
        }
    }
    Ok(vec![
        Tensor::new(values_type.clone(), bytes),
        Tensor::encode(indices_type, Wide::Int(indices))?,
    ])
}

/// The order of values: NaN of either sign is above all numbers, and both zeros are equal.
fn compare_floats(a: f64, b: f64) -> std::cmp::Ordering {
    let is_nan = a.is_nan().cmp(&b.is_nan());
    a.partial_cmp(&b).unwrap_or(is_nan)
}
