//! Reductions, windows, sorting and `map`.

use halite_stablehlo::{ElementClass, ElementType, RankedType};

use crate::operations::{
    compare::Tolerance,
    draft::{Draft, Value},
    family::{Family, accumulations},
    moves::{array, subset},
    numbers::{self, Range},
};

/// Operations that combine two elements, in any order.
pub(crate) const COMBINERS: [&str; 7] =
    ["add", "multiply", "maximum", "minimum", "and", "or", "xor"];

pub(crate) fn families() -> Vec<Family> {
    let mut families = Vec::new();
    families.extend(accumulations("reduce", reduce));
    families.extend(accumulations("reduce_window", reduce_window));
    families.push(Family::new("reduce", argmax).variant("argmax"));
    families.push(Family::new("select_and_scatter", select_and_scatter));
    families.push(Family::new("sort", |draft, element| {
        sort(draft, element, false)
    }));
    families
        .push(Family::new("sort", |draft, element| sort(draft, element, true)).variant("of pairs"));
    families.push(Family::new("map", map));
    families
}

/// Whether `combiner` combines elements of this type in any order.
pub(crate) fn combines(combiner: &str, element: ElementType) -> bool {
    match (combiner, element.class()) {
        ("and" | "or" | "xor", class) => {
            !matches!(class, ElementClass::Float | ElementClass::Complex)
        }
        ("maximum" | "minimum", class) => class != ElementClass::Complex,
        // These round after each step, as far as the next number.
        (_, ElementClass::Float) => element.bits() >= 8,
        _ => true,
    }
}

/// The values and the tolerance for a combination of up to this many elements.
pub(crate) fn accumulation(
    combiner: &str,
    element: ElementType,
    count: usize,
) -> (Range, Tolerance) {
    match (combiner, element.class()) {
        ("add", ElementClass::Float | ElementClass::Complex) => {
            // Sums are at most 4 for each element; each step rounds once.
            let limit = 4.0 * (count + 1) as f64;
            (
                Range::Small,
                Tolerance::Absolute(limit * (count + 1) as f64),
            )
        }
        ("multiply", ElementClass::Float) => (Range::Positive, Tolerance::Ulps(count as u64 + 1)),
        ("multiply", ElementClass::Complex) => {
            (Range::Positive, Tolerance::Ulps(4 * count as u64 + 4))
        }
        _ => (Range::Any, Tolerance::Exact),
    }
}

/// Whether products of this many numbers may leave the range of a narrow type: XLA rounds after each
/// factor, so that what is infinite or NaN then depends on the order.
fn leaves_range(element: ElementType, count: usize, range: Range) -> bool {
    let most = if element.bits() == 8 { 2 } else { 8 };
    range == Range::Positive && count > most
}

/// The initial value of a combination, which leaves every element as it is: other values may be
/// combined any number of times.
fn initial(draft: &mut Draft<'_>, combiner: &str, element: ElementType) -> Value {
    let bytes = match combiner {
        "multiply" => numbers::one(element),
        "maximum" => numbers::extreme(element, true),
        "minimum" => numbers::extreme(element, false),
        "and" => match element.class() {
            ElementClass::Signed => vec![0xff; element.size()],
            _ => numbers::extreme(element, false),
        },
        _ => vec![0; numbers::carrier(element).size()],
    };
    draft.scalar_of(element, bytes)
}

/// A region of one operation on two scalars.
pub(crate) fn region(combiner: &str, element: ElementType) -> String {
    let ty = RankedType::new(element, []);
    format!(
        "({{\n    ^bb0(%x: {ty}, %y: {ty}):\n      %z = stablehlo.{combiner} %x, %y : {ty}\n      \
         stablehlo.return %z : {ty}\n  }})"
    )
}

fn reduce(draft: &mut Draft<'_>, combiner: &str, element: ElementType) -> Option<Tolerance> {
    let dims = draft.dims(4);
    let reduced = subset(draft, dims.len());
    let count: usize = reduced.iter().map(|&dim| dims[dim]).product();
    let (range, tolerance) = accumulation(combiner, element, count);
    if combiner == "multiply" && leaves_range(element, count, range) {
        return reduce(draft, combiner, element);
    }
    let x = draft.input(element, &dims, range);
    let initial = initial(draft, combiner, element);
    let rest = (0..dims.len())
        .filter(|dim| !reduced.contains(dim))
        .map(|dim| dims[dim]);
    let ty = RankedType::new(element, rest.collect::<Vec<_>>());
    let text = format!(
        "reduce {} {{dimensions = {}}}",
        region(combiner, element),
        array(&reduced)
    );
    let y = draft.op(text, &[&x, &initial], ty);
    draft.output(y);
    Some(tolerance)
}

/// The largest element and its position, the first of equal ones.
fn argmax(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    if element.class() == ElementClass::Complex {
        return None;
    }
    let rank = 1 + draft.random.below(3);
    let dims = draft.dims_of_rank(rank);
    let dim = draft.random.below(rank);
    let x = draft.input(element, &dims, Range::Small);
    let initial = draft.input_of(element, &[], numbers::extreme(element, true));
    let text = format!("iota {{iota_dimension = {dim} : i64}}");
    let positions = draft.op(text, &[], RankedType::new(ElementType::S32, &*dims));
    let none = draft.integers(ElementType::S32, &[], &[i64::from(i32::MAX)]);
    let (ty, index) = (
        RankedType::new(element, []),
        RankedType::new(ElementType::S32, []),
    );
    let flag = RankedType::new(ElementType::Bool, []);
    let region = format!(
        "({{
    ^bb0(%x: {ty}, %i: {index}, %y: {ty}, %j: {index}):
      %gt = stablehlo.compare GT, %x, %y : ({ty}, {ty}) -> {flag}
      %eq = stablehlo.compare EQ, %x, %y : ({ty}, {ty}) -> {flag}
      %lt = stablehlo.compare LT, %i, %j : ({index}, {index}) -> {flag}
      %first = stablehlo.and %eq, %lt : {flag}
      %left = stablehlo.or %gt, %first : {flag}
      %z = stablehlo.select %left, %x, %y : {flag}, {ty}
      %k = stablehlo.select %left, %i, %j : {flag}, {index}
      stablehlo.return %z, %k : {ty}, {index}
  }})"
    );
    let mut rest = dims;
    rest.remove(dim);
    let types = [
        RankedType::new(element, &*rest),
        RankedType::new(ElementType::S32, &*rest),
    ];
    let text = format!("reduce {region} {{dimensions = {}}}", array(&[dim]));
    let results = draft.ops(text, &[&x, &positions, &initial, &none], &types);
    results.into_iter().for_each(|result| draft.output(result));
    Some(Tolerance::Exact)
}

/// Windows of an operand: attributes, sizes of the result, and elements of a window.
struct Windows {
    attributes: String,
    dims: Vec<usize>,
    count: usize,
    /// Whether windows have several elements in more than one dimension.
    is_wide: bool,
}

/// Windows of an operand of these dimensions; all have elements.
fn windows(draft: &mut Draft<'_>, dims: &[usize], has_dilations: bool) -> Windows {
    let (mut sizes, mut strides, mut bases, mut dilations) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut padding, mut result) = (Vec::new(), Vec::new());
    for &size in dims {
        let base = if has_dilations {
            draft.choose(&[1, 1, 2, 3])
        } else {
            1
        };
        let dilation = if has_dilations {
            draft.choose(&[1, 1, 2])
        } else {
            1
        };
        let window = draft.choose(&[1, 2, 3]);
        let stride = draft.choose(&[1, 2, 3]);
        let dilated = if size == 0 { 0 } else { (size - 1) * base + 1 } as i64;
        // The gradient of max pooling is undefined for a window of padding alone: XLA's plugin
        // writes outside of the result.
        let most = match (has_dilations, size) {
            (true, _) => 3,
            (false, 0) => 1,
            (false, _) => window as usize,
        };
        let mut pad = || {
            // The plugin's simplifier aborts on windows of one element that skip some.
            let least = if has_dilations && window > 1 { 1 } else { 0 };
            draft.random.below(most) as i64 - if draft.random.percent(30) { least } else { 0 }
        };
        let (low, high) = (pad(), pad());
        let reach = (window - 1) * dilation + 1;
        let padded = dilated + low + high;
        let count = if padded < reach {
            0
        } else {
            (padded - reach) / stride + 1
        };
        sizes.push(window);
        strides.push(stride);
        bases.push(base);
        dilations.push(dilation);
        padding.push(format!("[{low}, {high}]"));
        result.push(count.max(0) as usize);
    }
    let mut attributes = format!(
        "window_dimensions = {}, window_strides = {}",
        array(&sizes),
        array(&strides)
    );
    if has_dilations {
        attributes += &format!(
            ", base_dilations = {}, window_dilations = {}",
            array(&bases),
            array(&dilations)
        );
    }
    if !dims.is_empty() {
        attributes += &format!(
            ", padding = dense<[{}]> : tensor<{}x2xi64>",
            padding.join(", "),
            dims.len()
        );
    }
    let count = sizes.iter().product::<i64>() as usize;
    Windows {
        attributes,
        dims: result,
        count,
        is_wide: sizes.iter().filter(|&&size| size > 1).count() > 1,
    }
}

fn reduce_window(draft: &mut Draft<'_>, combiner: &str, element: ElementType) -> Option<Tolerance> {
    let rank = 1 + draft.random.below(3);
    let dims = draft.dims_of_rank(rank);
    let windows = windows(draft, &dims, true);
    let (range, tolerance) = accumulation(combiner, element, windows.count);
    if combiner == "multiply" && leaves_range(element, windows.count, range) {
        return reduce_window(draft, combiner, element);
    }
    let x = draft.input(element, &dims, range);
    let initial = initial(draft, combiner, element);
    let region = region(combiner, element);
    let text = format!("reduce_window {region} {{{}}}", windows.attributes);
    let y = draft.op(
        text,
        &[&x, &initial],
        RankedType::new(element, windows.dims),
    );
    draft.output(y);
    Some(tolerance)
}

/// The gradient of max pooling.
fn select_and_scatter(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    if element.class() == ElementClass::Complex || !combines("add", element) {
        return None;
    }
    let rank = 1 + draft.random.below(3);
    let dims = draft.dims_of_rank(rank);
    let windows = windows(draft, &dims, false);
    let (range, tolerance) = accumulation("add", element, 27);
    let x = draft.input(element, &dims, Range::Small);
    if windows.is_wide && draft.has_equal_elements() {
        draft.incomparable = Some("the order in which elements of a window are compared is free");
    }
    let source = draft.input(element, &windows.dims, range);
    let initial = draft.scalar(element, range);
    let ty = RankedType::new(element, []);
    let add = if element.class() == ElementClass::Bool {
        "or"
    } else {
        "add"
    };
    let text = format!(
        "select_and_scatter ({{
    ^bb0(%x: {ty}, %y: {ty}):
      %z = stablehlo.compare GE, %x, %y : ({ty}, {ty}) -> tensor<i1>
      stablehlo.return %z : tensor<i1>
  }}, {{
    ^bb0(%x: {ty}, %y: {ty}):
      %z = stablehlo.{add} %x, %y : {ty}
      stablehlo.return %z : {ty}
  }}) {{{}}}",
        windows.attributes
    );
    let y = draft.op(text, &[&x, &source, &initial], x.ty.clone());
    draft.output(y);
    Some(tolerance)
}

/// Lines that compare two scalars in an order, or else floats by value, with NaN as the largest: the
/// comparator of halite's own programs.
fn comparator(ty: &RankedType, direction: &str, [x, y]: [&str; 2], order: Option<&str>) -> String {
    let compare = |name: &str, direction: &str, x: &str, y: &str, order: &str| {
        format!(
            "      {name} = stablehlo.compare {direction}, {x}, {y}, {order} : \
             ({ty}, {ty}) -> tensor<i1>\n"
        )
    };
    if let Some(order) = order {
        return compare("%z", direction, x, y, order);
    }
    let (smaller, larger) = if direction == "LT" { (x, y) } else { (y, x) };
    let mut lines = compare("%before", direction, x, y, "FLOAT");
    lines += &compare("%number", "EQ", smaller, smaller, "FLOAT");
    lines += &compare("%nan", "NE", larger, larger, "FLOAT");
    lines += "      %only = stablehlo.and %number, %nan : tensor<i1>\n      \
              %z = stablehlo.or %before, %only : tensor<i1>\n";
    lines
}

fn sort(draft: &mut Draft<'_>, element: ElementType, has_pairs: bool) -> Option<Tolerance> {
    let rank = 1 + draft.random.below(3);
    let dims = draft.dims_of_rank(rank);
    let dim = draft.random.below(rank);
    let is_complex = element.class() == ElementClass::Complex;
    let x = draft.input(element, &dims, Range::Any);
    let mut operands = vec![x];
    let (ty, index) = (
        RankedType::new(element, []),
        RankedType::new(ElementType::S32, []),
    );
    let mut arguments = vec![format!("%x: {ty}"), format!("%y: {ty}")];
    if has_pairs {
        // Only a stable order of these is defined, since elements are equal.
        let text = format!("iota {{iota_dimension = {dim} : i64}}");
        operands.push(draft.op(text, &[], RankedType::new(ElementType::S32, &*dims)));
        arguments.extend([format!("%i: {index}"), format!("%j: {index}")]);
    }
    let (of, part) = match element.part() {
        Some(part) => (part, RankedType::new(part, [])),
        None => (element, ty.clone()),
    };
    let mut lines = String::new();
    let [mut x, mut y] = ["%x", "%y"];
    if is_complex {
        lines = format!(
            "      %re = stablehlo.real %x : ({ty}) -> {part}\n      \
             %other = stablehlo.real %y : ({ty}) -> {part}\n"
        );
        [x, y] = ["%re", "%other"];
    }
    let order = match of.class() {
        ElementClass::Float => "TOTALORDER",
        ElementClass::Signed => "SIGNED",
        _ => "UNSIGNED",
    };
    let direction = draft.choose(&["LT", "GT"]);
    let by_value = order == "TOTALORDER" && draft.random.percent(50);
    lines += &comparator(&part, direction, [x, y], (!by_value).then_some(order));
    let stable = has_pairs || is_complex || by_value || draft.random.percent(50);
    let text = format!(
        "sort ({{\n    ^bb0({}):\n{lines}      stablehlo.return %z : tensor<i1>\n  }}) \
         {{dimension = {dim} : i64, is_stable = {stable}}}",
        arguments.join(", ")
    );
    let types: Vec<_> = operands.iter().map(|operand| operand.ty.clone()).collect();
    let operands: Vec<&Value> = operands.iter().collect();
    let results = draft.ops(text, &operands, &types);
    results.into_iter().for_each(|result| draft.output(result));
    Some(Tolerance::Bits)
}

fn map(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    let dims = draft.dims(3);
    let (x, y) = (
        draft.input(element, &dims, Range::Any),
        draft.input(element, &dims, Range::Any),
    );
    let ty = RankedType::new(element, []);
    let all: Vec<_> = (0..dims.len()).collect();
    let text = format!(
        "map ({{
    ^bb0(%x: {ty}, %y: {ty}):
      %z = stablehlo.compare NE, %x, %y : ({ty}, {ty}) -> tensor<i1>
      %w = stablehlo.select %z, %y, %x : tensor<i1>, {ty}
      stablehlo.return %w : {ty}
  }}) {{dimensions = {}}}",
        array(&all)
    );
    let z = draft.op(text, &[&x, &y], x.ty.clone());
    draft.output(z);
    Some(Tolerance::Exact)
}
