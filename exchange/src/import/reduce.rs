//! Operations whose regions combine or compare elements: each region must be one of those that the
//! graph has an operation for.

use halite_core::{DType, Result};
use halite_ir::{BinaryOp, Extreme, Op, Reduction, Value};
use halite_stablehlo::{
    Dense, ElementClass, ElementType, OpKind, Operation, ScatterAttributes, WindowAttributes,
};

use super::{
    Scope,
    region::{expression, float, integer},
    unsupported,
};

/// Functions of two elements by the name of the operation.
const COMBINERS: [(&str, Reduction, BinaryOp); 6] = [
    ("add", Reduction::Sum, BinaryOp::Add),
    ("multiply", Reduction::Product, BinaryOp::Multiply),
    ("minimum", Reduction::Min, BinaryOp::Minimum),
    ("maximum", Reduction::Max, BinaryOp::Maximum),
    ("and", Reduction::And, BinaryOp::And),
    ("or", Reduction::Or, BinaryOp::Or),
];

/// The function of `left` and `right` that an expression is.
fn combiner(text: &str, left: usize, right: usize) -> Option<(Reduction, BinaryOp)> {
    let found = COMBINERS.iter().find(|(name, ..)| {
        text == format!("{name}(a{left},a{right})") || text == format!("{name}(a{right},a{left})")
    });
    found.map(|&(_, kind, binary)| (kind, binary))
}

pub(super) fn reduce(
    scope: &mut Scope<'_>,
    operation: &Operation,
    dims: &[usize],
) -> Result<Vec<Value>> {
    let count = operation.operands.len() / 2;
    if let Some(results) = arg_reduce(scope, operation, dims)? {
        return Ok(results);
    }
    let mut dims = dims.to_vec();
    dims.sort_unstable();
    let mut results = Vec::with_capacity(count);
    // Several operands are reduced together; here, each on its own.
    for index in 0..count {
        let (kind, binary) = known_combiner(scope, operation, index, count)?;
        let (x, init) = (operation.operands[index], operation.operands[count + index]);
        let op = Op::Reduce {
            kind,
            dims: dims.clone(),
        };
        let operand = scope.value(x);
        let mut reduced = scope.push_one(op, &[operand])?;
        let constant = scope.known.scalar(init);
        if !constant.is_some_and(|constant| is_identity(constant, kind)) {
            let init = scope.value(init);
            let init = scope.broadcast(init, reduced)?;
            reduced = scope.binary(binary, init, reduced)?;
        }
        results.push(reduced);
    }
    Ok(results)
}

/// The function that the region applies to operand `index` of `count`.
fn known_combiner(
    scope: &Scope<'_>,
    operation: &Operation,
    index: usize,
    count: usize,
) -> Result<(Reduction, BinaryOp)> {
    let text = expression(&scope.known, &operation.regions[0], index);
    let known = text
        .as_deref()
        .and_then(|text| combiner(text, index, count + index));
    known.ok_or_else(|| {
        let names: Vec<&str> = COMBINERS.iter().map(|(name, ..)| *name).collect();
        let found = match text {
            Some(text) => format!("combines elements by {text}"),
            None => "is long, or of other than elementwise operations".to_owned(),
        };
        unsupported(format!(
            "its region {found}; known are {}",
            names.join(", ")
        ))
    })
}

/// The reduction as an argmin or argmax, if it is one as JAX lowers it.
fn arg_reduce(
    scope: &mut Scope<'_>,
    operation: &Operation,
    dims: &[usize],
) -> Result<Option<Vec<Value>>> {
    let ([x, indices, init, _], [dim]) = (&operation.operands[..], dims) else {
        return Ok(None);
    };
    let counts = scope.known.operations.get(indices);
    if counts.is_none_or(|iota| iota.kind != OpKind::Iota { dim: *dim }) {
        return Ok(None);
    }
    let region = &operation.regions[0];
    let texts = [0, 1].map(|result| expression(&scope.known, region, result));
    let known = [(Extreme::Max, "gt"), (Extreme::Min, "lt")].into_iter();
    let found = known.map(|(kind, better)| {
        let wins = format!("or({better}(a0,a2),ne(a0,a0))");
        let first = format!("or({wins},and(eq(a0,a2),lt(a1,a3)))");
        let texts = [
            format!("select({wins},a0,a2)"),
            format!("select({first},a1,a3)"),
        ];
        (kind, texts.map(Some))
    });
    let Some((kind, _)) = found.into_iter().find(|(_, expected)| *expected == texts) else {
        return Ok(None);
    };
    let worst = match kind {
        Extreme::Max => Reduction::Max,
        Extreme::Min => Reduction::Min,
    };
    if !(scope.known.scalar(*init)).is_some_and(|init| is_identity(init, worst)) {
        return Ok(None);
    }
    let (dtype, operand) = (
        scope.graph.ty(scope.value(*indices)).dtype(),
        scope.value(*x),
    );
    let mut results = scope.push(Op::ArgReduce { kind, dim: *dim }, &[operand])?;
    if dtype != DType::S32 {
        results[1] = scope.push_one(Op::Convert(dtype), &[results[1]])?;
    }
    Ok(Some(results))
}

pub(super) fn reduce_window(
    scope: &mut Scope<'_>,
    operation: &Operation,
    attributes: &WindowAttributes,
) -> Result<Vec<Value>> {
    let [x, init] = operation.operands[..] else {
        return Err(unsupported("several operands"));
    };
    let (kind, _) = known_combiner(scope, operation, 0, 1)?;
    needs_identity(scope.known.scalar(init), kind)?;
    let window = window(attributes)?;
    let x = scope.value(x);
    scope.push(Op::ReduceWindow { kind, window }, &[x])
}

pub(super) fn select_and_scatter(
    scope: &mut Scope<'_>,
    operation: &Operation,
    attributes: &WindowAttributes,
) -> Result<Vec<Value>> {
    let [select, combine] = [0, 1].map(|index| {
        let region = &operation.regions[index];
        expression(&scope.known, region, 0)
    });
    let kind = match select.as_deref() {
        Some("ge(a0,a1)" | "or(ge(a0,a1),ne(a0,a0))") => Extreme::Max,
        Some("le(a0,a1)" | "or(le(a0,a1),ne(a0,a0))") => Extreme::Min,
        _ => return Err(unsupported("its selection is other than GE or LE")),
    };
    let adds = combine.and_then(|text| combiner(&text, 0, 1));
    if adds.is_none_or(|(kind, _)| kind != Reduction::Sum) {
        return Err(unsupported("its scatter is other than add"));
    }
    needs_identity(scope.known.scalar(operation.operands[2]), Reduction::Sum)?;
    let window = window(attributes)?;
    let operands = scope.values(&operation.operands[..2]);
    scope.push(Op::SelectAndScatter { kind, window }, &operands)
}

fn needs_identity(init: Option<&Dense>, kind: Reduction) -> Result<()> {
    if init.is_some_and(|init| is_identity(init, kind)) {
        return Ok(());
    }
    Err(unsupported(format!(
        "its initial value is other than the identity of {kind:?}"
    )))
}

fn window(attributes: &WindowAttributes) -> Result<WindowAttributes> {
    let is_negative = |&(low, high): &(i64, i64)| low < 0 || high < 0;
    if attributes.padding.iter().any(is_negative) {
        return Err(unsupported("its window has negative padding"));
    }
    Ok(attributes.clone())
}

pub(super) fn sort(scope: &mut Scope<'_>, operation: &Operation, dim: usize) -> Result<Vec<Value>> {
    let text = expression(&scope.known, &operation.regions[0], 0);
    let operands = scope.values(&operation.operands);
    // The operand that is compared: its elements are arguments 2 key and 2 key + 1.
    let order = (0..operands.len()).find_map(|key| {
        let order = Order::of(text.as_deref()?, 2 * key)?;
        Some((key, order))
    });
    let Some((
        key,
        Order {
            descending,
            is_total,
        },
    )) = order
    else {
        let found = text.unwrap_or_else(|| "a long region".to_owned());
        return Err(unsupported(format!(
            "its comparison is {found}; known are LT and GT of one operand"
        )));
    };
    let op = Op::Sort {
        dim,
        descending,
        by_bits: is_total,
    };
    let mut reordered = operands;
    reordered.swap(0, key);
    let mut results = scope.push(op, &reordered)?;
    results.swap(0, key);
    Ok(results)
}

/// The order of a sort.
struct Order {
    descending: bool,
    /// Floats are ordered by their bits.
    is_total: bool,
}

impl Order {
    /// The order of arguments `left` and `left + 1` that an expression is.
    fn of(text: &str, left: usize) -> Option<Self> {
        let [a, b] = [left, left + 1].map(|argument| format!("a{argument}"));
        let [key_a, key_b] =
            [&a, &b].map(|x| format!("select(ne({x},{x}),NaN,select(eq({x},0),0,{x}))"));
        let nan_last =
            |small: &str, large: &str| format!("and(eq({small},{small}),ne({large},{large}))");
        let cases = [
            (format!("lt({a},{b})"), false, false),
            (format!("gt({a},{b})"), true, false),
            (
                format!("or(lt({a},{b}),{})", nan_last(&a, &b)),
                false,
                false,
            ),
            (format!("or(gt({a},{b}),{})", nan_last(&b, &a)), true, false),
            (format!("total_lt({a},{b})"), false, true),
            (format!("total_gt({a},{b})"), true, true),
            (format!("total_lt({key_a},{key_b})"), false, false),
            (format!("total_gt({key_a},{key_b})"), true, false),
        ];
        let (_, descending, is_total) = cases.into_iter().find(|(known, ..)| known == text)?;
        Some(Order {
            descending,
            is_total,
        })
    }
}

pub(super) fn scatter(
    scope: &mut Scope<'_>,
    operation: &Operation,
    attributes: &ScatterAttributes,
) -> Result<Vec<Value>> {
    if operation.operands.len() != 3 {
        return Err(unsupported("several operands"));
    }
    let text = expression(&scope.known, &operation.regions[0], 0);
    let combine = match text.as_deref() {
        Some("a1") => None,
        _ => Some(known_combiner(scope, operation, 0, 1)?.0),
    };
    let op = Op::Scatter(attributes.clone(), combine);
    let operands = scope.values(&operation.operands);
    scope.push(op, &operands)
}

/// Whether a constant changes no result of the reduction.
fn is_identity(constant: &Dense, kind: Reduction) -> bool {
    let element = constant.ty.element;
    if element.class() == ElementClass::Float {
        let Some(value) = float(constant) else {
            return false;
        };
        return match kind {
            Reduction::Sum => value == 0.0,
            Reduction::Product => value == 1.0,
            Reduction::Min => value == f64::INFINITY,
            Reduction::Max => value == f64::NEG_INFINITY,
            Reduction::And | Reduction::Or => false,
        };
    }
    let (least, greatest) = range(element);
    match kind {
        Reduction::Sum => integer(constant) == Some(0),
        Reduction::Product => integer(constant) == Some(1),
        Reduction::Min => constant.bytes[..] == greatest,
        Reduction::Max => constant.bytes[..] == least,
        Reduction::And => match element {
            ElementType::Bool => integer(constant) == Some(1),
            _ => constant.bytes.iter().all(|&byte| byte == 0xff),
        },
        Reduction::Or => constant.bytes.iter().all(|&byte| byte == 0),
    }
}

/// Bytes of the least and the greatest integer or boolean.
fn range(element: ElementType) -> (Vec<u8>, Vec<u8>) {
    let (mut least, mut greatest) = (vec![0; element.size()], vec![0xff; element.size()]);
    match element.class() {
        ElementClass::Bool => greatest[0] = 1,
        ElementClass::Signed => {
            (least[element.size() - 1], greatest[element.size() - 1]) = (0x80, 0x7f);
        }
        _ => {}
    }
    (least, greatest)
}
