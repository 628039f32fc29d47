//! Operations with kernels of their own, on sizes beyond those of `operations`, against the oracle:
//! bit for bit, but for sums of floats.

use halite_core::DType;
use halite_embedded::Mode;

use crate::common::{floats, open, program, run};

/// Pseudorandom numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // Xorshift (Marsaglia, 2003).
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// The bytes of elements: small integers, so that some are equal, and special floats.
    fn bytes(&mut self, dtype: DType, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..count {
            let number = self.next() % 40;
            let special = [
                f64::NAN,
                -f64::NAN,
                -0.0,
                0.0,
                f64::INFINITY,
                f64::NEG_INFINITY,
            ];
            let value = match special.get(number as usize) {
                Some(&special) => special,
                None => (self.next() % 2000) as f64 / 8.0 - 100.0,
            };
            match dtype {
                DType::F32 => bytes.extend((value as f32).to_le_bytes()),
                DType::F64 => bytes.extend(value.to_le_bytes()),
                DType::Bf16 => {
                    bytes.extend(((value as f32).to_bits() >> 16).to_le_bytes()[..2].iter())
                }
                DType::Bool => bytes.push((self.next() % 2) as u8),
                dtype => bytes.extend(&(self.next() % 50).to_le_bytes()[..dtype.size()]),
            }
        }
        bytes
    }
}

/// Floats with the same bits for every NaN.
fn with_one_nan(dtype: DType, bytes: &[u8]) -> Vec<u8> {
    let each = bytes.chunks(dtype.size());
    let same = |bytes: &[u8]| {
        let is_nan = match *bytes {
            [a, b] if dtype == DType::Bf16 => f32::from_le_bytes([0, 0, a, b]).is_nan(),
            [a, b, c, d, e, f, g, h] if dtype == DType::F64 => {
                f64::from_le_bytes([a, b, c, d, e, f, g, h]).is_nan()
            }
            _ => false,
        };
        if is_nan {
            vec![0xff; bytes.len()]
        } else {
            bytes.to_vec()
        }
    };
    each.flat_map(same).collect()
}

/// Runs a program in both modes. Without a tolerance the bits of the results are compared; with one
/// the values, of which floats of 32 bits may differ by so much, relative to the largest.
fn check(text: &str, seed: u64, tolerance: Option<f32>) {
    let program = program(text);
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let inputs = program.signature.inputs.iter();
    let inputs: Vec<_> = inputs
        .map(|ty| random.bytes(ty.dtype(), ty.elements()))
        .collect();
    let on =
        |mode| run(&open(mode, 1), &program, &inputs).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let (fast, oracle) = (on(Mode::Fast), on(Mode::Oracle));
    let pairs = fast.iter().zip(&oracle).zip(&program.signature.outputs);
    for (number, ((fast, oracle), ty)) in pairs.enumerate() {
        let Some(tolerance) = tolerance else {
            assert!(fast == oracle, "result {number} of seed {seed}\n{text}");
            continue;
        };
        if ty.dtype() != DType::F32 {
            let [fast, oracle] = [fast, oracle].map(|bytes| with_one_nan(ty.dtype(), bytes));
            assert!(fast == oracle, "result {number} of seed {seed}\n{text}");
            continue;
        }
        let (fast, oracle) = (floats(fast), floats(oracle));
        let finite = oracle.iter().filter(|it| it.is_finite());
        let limit = tolerance * finite.fold(1.0, |most: f32, it| most.max(it.abs()));
        for (at, (fast, oracle)) in fast.iter().zip(&oracle).enumerate() {
            let is_same = fast == oracle || fast.is_nan() && oracle.is_nan();
            assert!(
                is_same || (fast - oracle).abs() <= limit,
                "result {number} at {at} of seed {seed}: {fast}, not {oracle}\n{text}"
            );
        }
    }
}

const SIZES: [usize; 8] = [0, 1, 2, 3, 63, 65, 127, 300];

/// The constants of [`JAX`].
const OF_JAX: &str = "
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %nan = stablehlo.constant dense<0x7FC00000> : tensor<f32>";

/// The comparator of `jax.numpy.sort` on floats.
const JAX: &str = "
      %1 = stablehlo.compare EQ, %a, %zero, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %2 = stablehlo.select %1, %zero, %a : tensor<i1>, tensor<f32>
      %3 = stablehlo.compare NE, %a, %a, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %4 = stablehlo.select %3, %nan, %2 : tensor<i1>, tensor<f32>
      %5 = stablehlo.compare EQ, %b, %zero, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %6 = stablehlo.select %5, %zero, %b : tensor<i1>, tensor<f32>
      %7 = stablehlo.compare NE, %b, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %8 = stablehlo.select %7, %nan, %6 : tensor<i1>, tensor<f32>
      %z = stablehlo.compare LT, %4, %8, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>";

/// A comparison of elements of type `ty`.
fn compares(ty: &str, direction: &str, order: &str) -> String {
    format!(
        "%z = stablehlo.compare {direction}, %a, %b, {order} : (tensor<{ty}>, tensor<{ty}>) -> \
         tensor<i1>"
    )
}

/// Sorts elements of type `ty` with their positions, and returns the first `count` of each line.
fn sort(ty: &str, dims: [usize; 2], dim: usize, comparator: &str, count: usize) -> String {
    let [rows, columns] = dims;
    let mut kept = dims;
    kept[dim] = kept[dim].min(count);
    let [x, y] = kept;
    let of = |ty: &str| format!("tensor<{rows}x{columns}x{ty}>");
    let part = |ty: &str| format!("tensor<{x}x{y}x{ty}>");
    format!(
        "func.func public @main(%x: {0}) -> ({2}, {3}) {{
    %i = stablehlo.iota dim = {dim} : {1}
    %s:2 = \"stablehlo.sort\"(%x, %i) <{{dimension = {dim} : i64, is_stable = true}}> ({{
    ^bb0(%a: tensor<{ty}>, %b: tensor<{ty}>, %j: tensor<i32>, %k: tensor<i32>):
      {comparator}
      stablehlo.return %z : tensor<i1>
    }}) : ({0}, {1}) -> ({0}, {1})
    %v = stablehlo.slice %s#0 [0:{x}, 0:{y}] : ({0}) -> {2}
    %p = stablehlo.slice %s#1 [0:{x}, 0:{y}] : ({1}) -> {3}
    return %v, %p : {2}, {3}
  }}",
        of(ty),
        of("i32"),
        part(ty),
        part("i32")
    )
}

#[test]
fn sorts_agree_with_the_oracle() {
    let orders = [
        ("f32", [OF_JAX, JAX].concat()),
        ("f32", compares("f32", "LT", "FLOAT")),
        ("f32", compares("f32", "GT", "FLOAT")),
        ("f32", compares("f32", "GT", "TOTALORDER")),
        ("f32", compares("f32", "LE", "FLOAT")),
        ("f64", compares("f64", "LT", "TOTALORDER")),
        ("f64", compares("f64", "GT", "FLOAT")),
        ("bf16", compares("bf16", "LT", "TOTALORDER")),
        ("i32", compares("i32", "GT", "SIGNED")),
        ("i64", compares("i64", "LT", "SIGNED")),
        ("ui8", compares("ui8", "GT", "UNSIGNED")),
    ];
    for (number, (ty, comparator)) in orders.iter().enumerate() {
        for (at, size) in SIZES.into_iter().enumerate() {
            let seed = (number * 100 + at) as u64;
            let (dims, dim) = if at % 2 == 0 {
                ([3, size], 1)
            } else {
                ([size, 3], 0)
            };
            for count in [1, 5, usize::MAX] {
                check(&sort(ty, dims, dim, comparator, count), seed, None);
            }
        }
    }
}

/// Compilers move constants out of the comparator.
#[test]
fn sorts_by_captured_constants_agree_with_the_oracle() {
    for (seed, size) in SIZES.into_iter().enumerate() {
        let text = sort("f32", [3, size], 1, JAX, usize::MAX);
        let text = text.replacen("%i = ", &format!("{OF_JAX}\n    %i = "), 1);
        check(&text, seed as u64, None);
    }
}

/// Complex numbers by their real parts, and by their imaginary parts where these are equal.
#[test]
fn sorts_of_complex_numbers_agree_with_the_oracle() {
    let pair = "(tensor<f32>, tensor<f32>) -> tensor<i1>";
    for size in SIZES {
        let [real, complex] = ["f32", "complex<f32>"].map(|of| format!("tensor<{size}x{of}>"));
        let of_number = "(tensor<complex<f32>>) -> tensor<f32>";
        let text = format!(
            "func.func public @main(%x: {real}, %y: {real}) -> ({real}, {real}) {{
    %c = stablehlo.complex %x, %y : {complex}
    %s:2 = \"stablehlo.sort\"(%c, %y) <{{dimension = 0 : i64, is_stable = true}}> ({{
    ^bb0(%a: tensor<complex<f32>>, %b: tensor<complex<f32>>, %j: tensor<f32>, %k: tensor<f32>):
      %ar = stablehlo.real %a : {of_number}
      %ai = stablehlo.imag %a : {of_number}
      %br = stablehlo.real %b : {of_number}
      %bi = stablehlo.imag %b : {of_number}
      %1 = stablehlo.compare LT, %ar, %br, TOTALORDER : {pair}
      %2 = stablehlo.compare EQ, %ar, %br, TOTALORDER : {pair}
      %3 = stablehlo.compare LT, %ai, %bi, TOTALORDER : {pair}
      %4 = stablehlo.and %2, %3 : tensor<i1>
      %z = stablehlo.or %1, %4 : tensor<i1>
      stablehlo.return %z : tensor<i1>
    }}) : ({complex}, {real}) -> ({complex}, {real})
    %r = stablehlo.real %s#0 : ({complex}) -> {real}
    return %r, %s#1 : {real}, {real}
  }}"
        );
        check(&text, size as u64 + 1, None);
    }
}

/// A sort by two keys, the second where the first are equal.
#[test]
fn sorts_by_two_keys_agree_with_the_oracle() {
    for size in SIZES {
        let ty = format!("tensor<{size}xi32>");
        let pair = "(tensor<i32>, tensor<i32>) -> tensor<i1>";
        check(
            &format!(
                "func.func public @main(%x: {ty}, %y: {ty}) -> ({ty}, {ty}) {{
    %s:2 = \"stablehlo.sort\"(%x, %y) <{{dimension = 0 : i64, is_stable = true}}> ({{
    ^bb0(%a: tensor<i32>, %b: tensor<i32>, %j: tensor<i32>, %k: tensor<i32>):
      %1 = stablehlo.compare LT, %a, %b, SIGNED : {pair}
      %2 = stablehlo.compare EQ, %a, %b, SIGNED : {pair}
      %3 = stablehlo.compare LT, %j, %k, SIGNED : {pair}
      %4 = stablehlo.and %2, %3 : tensor<i1>
      %z = stablehlo.or %1, %4 : tensor<i1>
      stablehlo.return %z : tensor<i1>
    }}) : ({ty}, {ty}) -> ({ty}, {ty})
    return %s#0, %s#1 : {ty}, {ty}
  }}"
            ),
            size as u64 + 1,
            None,
        );
    }
}

/// Positions of largest elements along a dimension, as JAX finds them.
fn extremes(ty: &str, dims: [usize; 2], dim: usize) -> String {
    let [rows, columns] = dims;
    let rest = dims[1 - dim];
    let (x, i) = (
        format!("tensor<{rows}x{columns}x{ty}>"),
        format!("tensor<{rows}x{columns}xi32>"),
    );
    let (y, j) = (
        format!("tensor<{rest}x{ty}>"),
        format!("tensor<{rest}xi32>"),
    );
    let (s, k) = (format!("tensor<{ty}>"), "tensor<i32>");
    let flag = format!("({s}, {s}) -> tensor<i1>");
    format!(
        "func.func public @main(%x: {x}, %least: {s}) -> ({y}, {j}) {{
    %i = stablehlo.iota dim = {dim} : {i}
    %none = stablehlo.constant dense<0> : {k}
    %r:2 = stablehlo.reduce(%x init: %least), (%i init: %none) across dimensions = [{dim}] : \
         ({x}, {i}, {s}, {k}) -> ({y}, {j})
     reducer(%a: {s}, %b: {s}) (%m: {k}, %n: {k}) {{
      %2 = stablehlo.compare GT, %a, %b : {flag}
      %3 = stablehlo.compare NE, %a, %a : {flag}
      %4 = stablehlo.or %2, %3 : tensor<i1>
      %5 = stablehlo.compare EQ, %a, %b : {flag}
      %6 = stablehlo.compare LT, %m, %n, SIGNED : ({k}, {k}) -> tensor<i1>
      %7 = stablehlo.and %5, %6 : tensor<i1>
      %8 = stablehlo.or %4, %7 : tensor<i1>
      %9 = stablehlo.select %4, %a, %b : tensor<i1>, {s}
      %10 = stablehlo.select %8, %m, %n : tensor<i1>, {k}
      stablehlo.return %9, %10 : {s}, {k}
    }}
    return %r#0, %r#1 : {y}, {j}
  }}"
    )
}

#[test]
fn positions_of_extremes_agree_with_the_oracle() {
    for (number, ty) in ["f32", "f64", "i32", "ui8", "bf16"].into_iter().enumerate() {
        let seed = |at: usize| (number * 100 + at + 1) as u64;
        for (at, size) in SIZES.into_iter().enumerate() {
            let dim = at % 2;
            let dims = if dim == 0 { [size, 70] } else { [70, size] };
            check(&extremes(ty, dims, dim), seed(at), None);
        }
        // Long lines are cut into segments.
        for (at, (dims, dim)) in [([1, 1024], 1), ([1500, 3], 0)].into_iter().enumerate() {
            check(&extremes(ty, dims, dim), seed(50 + at), None);
        }
    }
}

/// A long line is cut into segments of equal length; every element of what is left of it counts.
#[test]
fn every_element_of_a_long_line_counts() {
    for (seed, (dims, dim)) in [([1, 1000], 1), ([1500, 3], 0)].into_iter().enumerate() {
        let [rows, columns] = dims;
        let (x, y) = (
            format!("tensor<{rows}x{columns}xi32>"),
            format!("tensor<{}xi32>", dims[1 - dim]),
        );
        let program = format!(
            "func.func public @main(%x: {x}) -> {y} {{
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %sum = stablehlo.reduce(%x init: %zero) across dimensions = [{dim}] : \
         ({x}, tensor<i32>) -> {y}
     reducer(%a: tensor<i32>, %b: tensor<i32>) {{
      %one = stablehlo.constant dense<1> : tensor<i32>
      %2 = stablehlo.add %a, %b : tensor<i32>
      %3 = stablehlo.add %2, %one : tensor<i32>
      stablehlo.return %3 : tensor<i32>
    }}
    return %sum : {y}
  }}"
        );
        check(&program, seed as u64, None);
    }
}

/// Branches in a loop that counts, on both sides and beyond the last.
#[test]
fn branches_agree_with_the_oracle() {
    let program = "
func.func public @main(%x: tensor<5xf32>) -> (tensor<5xf32>, tensor<i32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %n = stablehlo.constant dense<7> : tensor<i32>
  %half = stablehlo.constant dense<0.5> : tensor<5xf32>
  %0:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<5xf32>
    cond {
      %less = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    } do {
      %j = stablehlo.subtract %i, %one : tensor<i32>
      %a = \"stablehlo.case\"(%j) ({
        %b = stablehlo.add %y, %half : tensor<5xf32>
        stablehlo.return %b : tensor<5xf32>
      }, {
        %b = stablehlo.multiply %y, %x : tensor<5xf32>
        stablehlo.return %b : tensor<5xf32>
      }, {
        stablehlo.return %y : tensor<5xf32>
      }) : (tensor<i32>) -> tensor<5xf32>
      %p = stablehlo.compare EQ, %i, %one, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %c = \"stablehlo.if\"(%p) ({
        %b = stablehlo.negate %a : tensor<5xf32>
        stablehlo.return %b : tensor<5xf32>
      }, {
        stablehlo.return %a : tensor<5xf32>
      }) : (tensor<i1>) -> tensor<5xf32>
      %k = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %k, %c : tensor<i32>, tensor<5xf32>
    }
  return %0#1, %0#0 : tensor<5xf32>, tensor<i32>
}";
    (1..5).for_each(|seed| check(program, seed, Some(0.0)));
}

/// Windows over a dimension, which end or start at each element.
#[test]
fn running_reductions_agree_with_the_oracle() {
    let cases = [
        ("f32", "add", "0.0"),
        ("f32", "maximum", "0xFF800000"),
        ("f32", "multiply", "1.0"),
        ("bf16", "maximum", "0xFF80"),
        ("f64", "minimum", "0x7FF0000000000000"),
        ("i32", "add", "0"),
        ("ui8", "add", "0"),
        ("i64", "minimum", "9223372036854775807"),
        ("i1", "or", "false"),
    ];
    for (number, (ty, op, initial)) in cases.into_iter().enumerate() {
        for (at, size) in SIZES.into_iter().enumerate() {
            for (dims, dim) in [([size, 67], 0), ([3, size], 1)] {
                for is_forward in [true, false] {
                    if size == 0 {
                        continue;
                    }
                    let (mut window, mut padding) = ([1, 1], [[0, 0], [0, 0]]);
                    window[dim] = size;
                    padding[dim][usize::from(!is_forward)] = size - 1;
                    let text = windows(ty, op, initial, dims, window, [1, 1], padding);
                    let is_sum = op == "add" || op == "multiply";
                    let tolerance = is_sum.then_some(2e-7);
                    check(&text, (number * 10 + at + 1) as u64, tolerance);
                }
            }
        }
    }
}

/// Reductions of windows of a tensor.
fn windows(
    ty: &str,
    op: &str,
    initial: &str,
    dims: [usize; 2],
    window: [usize; 2],
    strides: [usize; 2],
    padding: [[usize; 2]; 2],
) -> String {
    let count = |dim: usize| {
        let padded = dims[dim] + padding[dim][0] + padding[dim][1];
        if padded < window[dim] {
            0
        } else {
            (padded - window[dim]) / strides[dim] + 1
        }
    };
    let (x, y) = (
        format!("tensor<{}x{}x{ty}>", dims[0], dims[1]),
        format!("tensor<{}x{}x{ty}>", count(0), count(1)),
    );
    format!(
        "func.func public @main(%x: {x}) -> {y} {{
    %i = stablehlo.constant dense<{initial}> : tensor<{ty}>
    %y = \"stablehlo.reduce_window\"(%x, %i) <{{padding = dense<{padding:?}> : tensor<2x2xi64>, \
         window_dimensions = array<i64: {}, {}>, window_strides = array<i64: {}, {}>}}> ({{
    ^bb0(%a: tensor<{ty}>, %b: tensor<{ty}>):
      %z = stablehlo.{op} %a, %b : tensor<{ty}>
      stablehlo.return %z : tensor<{ty}>
    }}) : ({x}, tensor<{ty}>) -> {y}
    return %y : {y}
  }}",
        window[0], window[1], strides[0], strides[1]
    )
}

/// Windows of more elements than are expanded, in one and in two dimensions.
#[test]
fn large_windows_agree_with_the_oracle() {
    let ops = [
        ("f32", "add", "0.5"),
        ("f32", "maximum", "0xFF800000"),
        ("f64", "maximum", "0xFFF0000000000000"),
        ("bf16", "minimum", "0x7F80"),
        ("ui8", "maximum", "3"),
        ("i32", "add", "1"),
        ("i1", "and", "true"),
    ];
    let shapes = [
        ([20, 30], [9, 9], [1, 1], [[4, 4], [4, 4]]),
        ([3, 200], [1, 100], [1, 1], [[0, 0], [50, 49]]),
        ([200, 3], [77, 1], [3, 1], [[5, 0], [0, 0]]),
        ([70, 4], [5, 2], [2, 2], [[0, 0], [0, 1]]),
        ([1, 7], [1, 100], [1, 1], [[0, 0], [99, 99]]),
        ([0, 7], [2, 70], [1, 1], [[3, 3], [69, 0]]),
    ];
    for (number, (ty, op, initial)) in ops.into_iter().enumerate() {
        for (at, (dims, window, strides, padding)) in shapes.into_iter().enumerate() {
            let text = windows(ty, op, initial, dims, window, strides, padding);
            let tolerance = Some(if op == "add" { 2e-7 } else { 0.0 });
            check(&text, (number * 10 + at + 1) as u64, tolerance);
        }
    }
}

/// A sort of two operands by both, the second where the first are equal.
fn sort_by_two(size: usize, first: &str, second: &str, order: &str) -> String {
    let (x, y) = (
        format!("tensor<{size}x{first}>"),
        format!("tensor<{size}x{second}>"),
    );
    let pair = |ty: &str| format!("(tensor<{ty}>, tensor<{ty}>) -> tensor<i1>");
    let order_of = |ty: &str| match ty {
        "i32" => "SIGNED".to_owned(),
        _ => order.to_owned(),
    };
    let (of_first, of_second) = (order_of(first), order_of(second));
    format!(
        "func.func public @main(%x: {x}, %y: {y}) -> ({x}, {y}) {{
    %s:2 = \"stablehlo.sort\"(%x, %y) <{{dimension = 0 : i64, is_stable = true}}> ({{
    ^bb0(%a: tensor<{first}>, %b: tensor<{first}>, %j: tensor<{second}>, %k: tensor<{second}>):
      %1 = stablehlo.compare GT, %a, %b, {of_first} : {0}
      %2 = stablehlo.compare EQ, %b, %a, {of_first} : {0}
      %3 = stablehlo.compare LT, %j, %k, {of_second} : {1}
      %4 = stablehlo.and %3, %2 : tensor<i1>
      %z = stablehlo.or %4, %1 : tensor<i1>
      stablehlo.return %z : tensor<i1>
    }}) : ({x}, {y}) -> ({x}, {y})
    return %s#0, %s#1 : {x}, {y}
  }}",
        pair(first),
        pair(second)
    )
}

#[test]
fn sorts_by_floats_where_others_are_equal() {
    for (number, size) in SIZES.into_iter().enumerate() {
        for order in ["FLOAT", "TOTALORDER"] {
            for (first, second) in [("f32", "bf16"), ("i32", "f64"), ("bf16", "i32")] {
                let text = sort_by_two(size, first, second, order);
                check(&text, number as u64 + 7, None);
            }
        }
    }
}

#[test]
fn products_with_vectors_agree_with_the_oracle() {
    for (seed, ty) in ["i32", "i8", "i64", "ui16", "i1"].into_iter().enumerate() {
        for [batch, rows, terms] in [[1, 1, 1], [2, 3, 5], [1, 67, 130], [3, 1, 65], [2, 5, 0]] {
            let of = |dims: &str| format!("tensor<{dims}x{ty}>");
            let (x, y) = (
                of(&format!("{terms}x{batch}x{rows}")),
                of(&format!("{batch}x1x{terms}")),
            );
            let (z, w) = (
                of(&format!("{batch}x{rows}x1")),
                of(&format!("{batch}x1x{rows}")),
            );
            let text = format!(
                "func.func public @main(%x: {x}, %y: {y}) -> ({z}, {w}) {{
    %z = stablehlo.dot_general %x, %y, batching_dims = [1] x [0], contracting_dims = [0] x [2] : \
                 ({x}, {y}) -> {z}
    %w = stablehlo.dot_general %y, %x, batching_dims = [0] x [1], contracting_dims = [2] x [0] : \
                 ({y}, {x}) -> {w}
    return %z, %w : {z}, {w}
  }}"
            );
            check(&text, seed as u64 + 3, None);
        }
    }
}
