//! Every element type in the fast mode, against the oracle: elementwise bit for bit, sums within
//! the rounding of the type.

mod numbers;
mod sums;

use std::{fmt::Write, sync::LazyLock};

use halite_stablehlo::UnaryOp;
use numbers::{Kind, Random, TYPES, Type, by_name, check};

/// Writes a program of elementwise operations on tensors of one shape.
struct Writer {
    random: Random,
    shape: String,
    body: String,
    values: Vec<(String, Type)>,
}

impl Writer {
    fn ty(&self, ty: Type) -> String {
        format!("tensor<{}{}>", self.shape, ty.name)
    }

    fn push(&mut self, ty: Type, line: &str) -> String {
        let name = format!("%v{}", self.values.len());
        writeln!(self.body, "    {name} = {line}").expect("strings grow");
        self.values.push((name.clone(), ty));
        name
    }

    fn operand(&mut self, ty: Type) -> String {
        let of_type = self.values.iter().filter(|it| it.1 == ty);
        let of_type: Vec<_> = of_type.map(|it| it.0.clone()).collect();
        // The last ones, so that chains are long.
        let back = self.random.below(3).min(of_type.len() - 1);
        of_type[of_type.len() - 1 - back].clone()
    }

    /// Whether the sign of a NaN is that of an argument: that of a result is left open.
    fn has_known_sign(&self, name: &str, ty: Type) -> bool {
        !ty.is_float() || self.values[..TYPES.len()].iter().any(|it| it.0 == name)
    }

    fn step(&mut self) {
        let ty = self.random.pick(&TYPES);
        let (x, text) = (self.operand(ty), self.ty(ty));
        match self.random.below(10) {
            // That of f32 is within 0.51 units in the last place.
            9 if ty.is_float() && ty.kind != (Kind::Float { mantissa: 23 }) => {
                let call = format!("stablehlo.custom_call @mhlo.erf({x})");
                self.push(ty, &format!("{call} : ({text}) -> {text}"));
            }
            8 if ty.is_float() => {
                let (exponent, mantissa) = (1 + self.random.below(11), self.random.below(26));
                let format = format!("e{exponent}m{mantissa}");
                let line = format!("stablehlo.reduce_precision {x}, format = {format} : {text}");
                self.push(ty, &line);
            }
            0 | 1 => {
                let op = self.random.pick(unary(ty));
                self.push(ty, &format!("stablehlo.{op} {x} : {text}"));
            }
            2..=4 => {
                let (op, y) = (self.random.pick(binary(ty)), self.operand(ty));
                self.push(ty, &format!("stablehlo.{op} {x}, {y} : {text}"));
            }
            5 => {
                let y = self.operand(ty);
                let direction = self.random.pick(&["EQ", "NE", "LT", "LE", "GT", "GE"]);
                let kind = match ty.kind {
                    Kind::Signed => "SIGNED",
                    Kind::Float { .. } => {
                        let [x, y] = [&x, &y].map(|it| self.has_known_sign(it, ty));
                        let orders = ["FLOAT", "TOTALORDER"];
                        self.random.pick(&orders[..if x && y { 2 } else { 1 }])
                    }
                    _ => "UNSIGNED",
                };
                let mask = by_name("i1");
                let of = self.ty(mask);
                let line = format!(
                    "stablehlo.compare {direction}, {x}, {y}, {kind} : ({text}, {text}) -> {of}"
                );
                let mask = self.push(mask, &line);
                self.push(
                    ty,
                    &format!("stablehlo.select {mask}, {x}, {y} : {of}, {text}"),
                );
            }
            6 => {
                let to = self.random.pick(&TYPES);
                let of = self.ty(to);
                let is_cast = to.bits == ty.bits && self.random.below(2) == 0;
                let op = if is_cast && self.has_known_sign(&x, ty) {
                    "bitcast_convert"
                } else {
                    "convert"
                };
                self.push(to, &format!("stablehlo.{op} {x} : ({text}) -> {of}"));
            }
            _ => {
                let (low, high) = (self.operand(ty), self.operand(ty));
                self.push(ty, &format!("stablehlo.clamp {low}, {x}, {high} : {text}"));
            }
        }
    }
}

/// Operations on floats whose bits differ from those of the oracle for some types.
const INEXACT: &[&str] = &[
    "exponential",
    "exponential_minus_one",
    "log",
    "log_plus_one",
    "logistic",
    "tanh",
];

/// Operations whose operand or result is no float, or that text has no name for.
const OTHERS: &[&str] = &[
    "count_leading_zeros",
    "erf",
    "imag",
    "is_finite",
    "not",
    "popcnt",
    "real",
];

/// Operations on floats that have the bits of the oracle for every type.
static EXACT: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let all = UnaryOp::ALL.iter().map(|op| op.name());
    all.filter(|name| !INEXACT.contains(name) && !OTHERS.contains(name))
        .collect()
});

/// Operations on floats.
static FUNCTIONS: LazyLock<Vec<&str>> = LazyLock::new(|| [&**EXACT, INEXACT].concat());

fn unary(ty: Type) -> &'static [&'static str] {
    match ty.kind {
        Kind::Bool => &["not"],
        Kind::Signed => &[
            "abs",
            "negate",
            "not",
            "sign",
            "popcnt",
            "count_leading_zeros",
        ],
        Kind::Unsigned => &["not", "negate", "popcnt", "count_leading_zeros"],
        // The others of f32 are within 0.51 units in the last place.
        Kind::Float { mantissa: 23 } => &EXACT,
        Kind::Float { .. } => &FUNCTIONS,
    }
}

fn binary(ty: Type) -> &'static [&'static str] {
    match ty.kind {
        Kind::Bool => &["add", "multiply", "maximum", "minimum", "and", "or", "xor"],
        Kind::Signed | Kind::Unsigned => &[
            "add",
            "subtract",
            "multiply",
            "divide",
            "remainder",
            "power",
            "maximum",
            "minimum",
            "and",
            "or",
            "xor",
            "shift_left",
            "shift_right_logical",
            "shift_right_arithmetic",
        ],
        Kind::Float { .. } => &[
            "add",
            "subtract",
            "multiply",
            "divide",
            "remainder",
            "power",
            "atan2",
            "maximum",
            "minimum",
        ],
    }
}

fn same_bits(ty: Type, x: u64, y: u64) -> bool {
    x == y || ty.is_float() && ty.decode(x).is_nan() && ty.decode(y).is_nan()
}

#[test]
fn chains_of_all_types_have_the_bits_of_the_oracle() {
    let sizes = [0, 1, 2, 7, 257, 1000];
    for seed in 0..120 {
        let mut random = Random(seed);
        let size = random.pick(&sizes);
        let mut writer = Writer {
            random,
            shape: format!("{size}x"),
            body: String::new(),
            values: Vec::new(),
        };
        let mut inputs = Vec::new();
        let mut arguments = Vec::new();
        for (number, ty) in TYPES.into_iter().chain(TYPES).enumerate() {
            // Each type has a tensor, and a scalar or a constant for all elements.
            let count = if number < TYPES.len() { size } else { 1 };
            let numbers = (0..count).map(|_| ty.sample(&mut writer.random));
            inputs.push(ty.bytes(numbers.collect::<Vec<_>>().into_iter()));
            if number < TYPES.len() {
                arguments.push(format!("%v{number}: {}", writer.ty(ty)));
                writer.values.push((format!("%v{number}"), ty));
            } else {
                let of = writer.ty(ty);
                arguments.push(format!("%s{number}: tensor<{}>", ty.name));
                let line = format!(
                    "stablehlo.broadcast_in_dim %s{number}, dims = [] : (tensor<{}>) -> {of}",
                    ty.name
                );
                writer.push(ty, &line);
            }
        }
        (0..40).for_each(|_| writer.step());
        // Half of the results stay in registers.
        let last = writer.values.len() - 40;
        let mut outputs = writer.values[last..].to_vec();
        outputs.retain(|_| writer.random.below(2) == 0);
        let types: Vec<_> = outputs.iter().map(|it| writer.ty(it.1)).collect();
        let names: Vec<_> = outputs.iter().map(|it| it.0.clone()).collect();
        let text = format!(
            "func.func public @main({}) -> ({}) {{\n{}    return {} : {}\n}}\n",
            arguments.join(", "),
            types.join(", "),
            writer.body,
            names.join(", "),
            types.join(", "),
        );
        let types: Vec<_> = outputs.iter().map(|it| it.1).collect();
        check(&text, &inputs, &types, same_bits);
    }
}

#[test]
fn moves_of_all_types_keep_every_bit() {
    let mut random = Random(3);
    for ty in TYPES {
        let name = ty.name;
        let of = |dims: &str| format!("tensor<{dims}x{name}>");
        let text = format!(
            "func.func public @main(%x: {x}, %y: {x}, %v: tensor<{name}>, %at: tensor<i64>)
                 -> ({t}, {p}, {c}, {x}, {r}, {s}) {{
               %0 = stablehlo.transpose %x, dims = [1, 0] : ({x}) -> {t}
               %1 = stablehlo.pad %x, %v, low = [1, 0], high = [0, 2], interior = [1, 0]
                 : ({x}, tensor<{name}>) -> {p}
               %2 = stablehlo.concatenate %x, %y, dim = 1 : ({x}, {x}) -> {c}
               %3 = stablehlo.reverse %y, dims = [0, 1] : {x}
               %4 = stablehlo.slice %c2 [1:5:2, 3:13:3] : ({c}) -> {r}
               %5 = stablehlo.dynamic_slice %x, %at, %at, sizes = [2, 3]
                 : ({x}, tensor<i64>, tensor<i64>) -> {s}
               return %0, %1, %2, %3, %4, %5 : {t}, {p}, {c}, {x}, {r}, {s}
             }}",
            x = of("5x7"),
            t = of("7x5"),
            p = of("10x9"),
            c = of("5x14"),
            r = of("2x4"),
            s = of("2x3"),
        );
        let text = text.replace("%c2", "%2");
        let mut tensor = |count: usize| {
            let numbers: Vec<_> = (0..count).map(|_| ty.sample(&mut random)).collect();
            ty.bytes(numbers.into_iter())
        };
        let inputs = [tensor(35), tensor(35), tensor(1)];
        for at in [-3i64, 1, i64::MAX] {
            let mut inputs = inputs.to_vec();
            inputs.push(at.to_le_bytes().to_vec());
            check(&text, &inputs, &[ty; 6], |_, x, y| x == y);
        }
    }
}
