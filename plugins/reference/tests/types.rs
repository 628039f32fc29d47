//! Every element type in the fast mode, against the oracle: elementwise bit for bit, sums within
//! the rounding of the type.

mod common;

use std::fmt::Write;

use common::{open, program, run};
use halite_reference::Mode;

/// A type: its name, and for floats the bits of exponent and mantissa.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Type {
    name: &'static str,
    bits: u32,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Bool,
    Signed,
    Unsigned,
    Float { mantissa: u32 },
}

const fn integer(name: &'static str, bits: u32, kind: Kind) -> Type {
    Type { name, bits, kind }
}

const fn float(name: &'static str, bits: u32, mantissa: u32) -> Type {
    let kind = Kind::Float { mantissa };
    Type { name, bits, kind }
}

const TYPES: [Type; 13] = [
    integer("i1", 1, Kind::Bool),
    integer("i8", 8, Kind::Signed),
    integer("ui8", 8, Kind::Unsigned),
    integer("i16", 16, Kind::Signed),
    integer("ui16", 16, Kind::Unsigned),
    integer("i32", 32, Kind::Signed),
    integer("ui32", 32, Kind::Unsigned),
    integer("i64", 64, Kind::Signed),
    integer("ui64", 64, Kind::Unsigned),
    float("bf16", 16, 7),
    float("f16", 16, 10),
    float("f32", 32, 23),
    float("f64", 64, 52),
];

fn by_name(name: &str) -> Type {
    let found = TYPES.into_iter().find(|ty| ty.name == name);
    found.unwrap_or_else(|| panic!("no type {name}"))
}

impl Type {
    fn size(self) -> usize {
        (self.bits as usize).div_ceil(8)
    }

    fn is_float(self) -> bool {
        matches!(self.kind, Kind::Float { .. })
    }

    /// A number, as bits: of any size, a limit of the type, or a small one.
    fn sample(self, random: &mut Random) -> u64 {
        let mask = u64::MAX >> (64 - self.bits);
        let choice = random.below(4);
        let Kind::Float { mantissa } = self.kind else {
            let limits = [0, 1, mask, mask >> 1, (mask >> 1) + 1, mask - 1, 2, 7];
            return mask
                & match choice {
                    0 => random.next(),
                    1 => limits[random.below(limits.len())],
                    _ => (random.below(17) as u64).wrapping_sub(8),
                };
        };
        let sign = (random.next() & 1) << (self.bits - 1);
        let infinity = (mask >> 1) >> mantissa << mantissa;
        let one = ((infinity >> mantissa) / 2) << mantissa;
        let limits = [
            0,
            1,
            (1 << mantissa) - 1,
            1 << mantissa,
            infinity - 1,
            infinity,
            infinity | 1 << (mantissa - 1),
            one,
            one / 2,
        ];
        let magnitude = match choice {
            0 => random.next() % infinity,
            1 => limits[random.below(limits.len())],
            // Around 1, with few bits and with many.
            2 => (one + (random.next() % (8 << mantissa))).wrapping_sub(4 << mantissa),
            _ => one + ((random.next() % 32) << (mantissa - 4)),
        };
        sign | magnitude
    }

    /// The number with these bits.
    fn decode(self, bits: u64) -> f64 {
        match self.kind {
            Kind::Bool | Kind::Unsigned => bits as f64,
            Kind::Signed => ((bits << (64 - self.bits)) as i64 >> (64 - self.bits)) as f64,
            Kind::Float { mantissa: 52 } => f64::from_bits(bits),
            Kind::Float { mantissa: 23 } => f32::from_bits(bits as u32).into(),
            Kind::Float { mantissa: 7 } => f32::from_bits((bits as u32) << 16).into(),
            Kind::Float { .. } => half::f16::from_bits(bits as u16).into(),
        }
    }

    /// The nearest bits of a small number.
    fn encode(self, x: f64) -> u64 {
        match self.kind {
            Kind::Bool => u64::from(x > 0.0),
            Kind::Signed | Kind::Unsigned => x as i64 as u64 & u64::MAX >> (64 - self.bits),
            Kind::Float { mantissa: 52 } => x.to_bits(),
            Kind::Float { mantissa: 23 } => (x as f32).to_bits().into(),
            Kind::Float { mantissa: 7 } => half::bf16::from_f32(x as f32).to_bits().into(),
            Kind::Float { .. } => half::f16::from_f32(x as f32).to_bits().into(),
        }
    }

    fn bytes(self, numbers: impl Iterator<Item = u64>) -> Vec<u8> {
        numbers
            .flat_map(|bits| bits.to_le_bytes().into_iter().take(self.size()))
            .collect()
    }

    fn numbers(self, bytes: &[u8]) -> Vec<u64> {
        let bits = |it: &[u8]| {
            it.iter()
                .rev()
                .fold(0, |bits, &byte| bits << 8 | u64::from(byte))
        };
        bytes.chunks_exact(self.size()).map(bits).collect()
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

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
        match self.random.below(8) {
            0 | 1 => {
                let op = self.random.pick(unary(ty));
                self.push(ty, &format!("stablehlo.{op} {x} : {text}"));
            }
            2 | 3 | 4 => {
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
        // Those of f32 are within 0.51 units in the last place.
        Kind::Float { mantissa: 23 } => &[
            "abs",
            "negate",
            "floor",
            "ceil",
            "sign",
            "sqrt",
            "rsqrt",
            "cosine",
            "sine",
            "tan",
            "cbrt",
            "round_nearest_even",
            "round_nearest_afz",
        ],
        Kind::Float { .. } => &[
            "abs",
            "negate",
            "floor",
            "ceil",
            "sign",
            "sqrt",
            "rsqrt",
            "cosine",
            "sine",
            "tan",
            "cbrt",
            "round_nearest_even",
            "round_nearest_afz",
            "exponential",
            "log",
            "tanh",
            "exponential_minus_one",
            "log_plus_one",
            "logistic",
        ],
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

/// Runs a program on both executors, and checks the results.
#[track_caller]
fn check(text: &str, inputs: &[Vec<u8>], types: &[Type], same: impl Fn(Type, u64, u64) -> bool) {
    let program = program(text);
    let on = |mode| {
        run(&open(mode, 1), &program, inputs).unwrap_or_else(|e| panic!("{mode:?}: {e}\n{text}"))
    };
    let (fast, oracle) = (on(Mode::Fast), on(Mode::Oracle));
    for (number, &ty) in types.iter().enumerate() {
        let [fast, oracle] = [&fast, &oracle].map(|it| ty.numbers(&it[number]));
        assert_eq!(fast.len(), oracle.len());
        for (at, (&fast, &oracle)) in fast.iter().zip(&oracle).enumerate() {
            let [x, y] = [fast, oracle].map(|bits| ty.decode(bits));
            assert!(
                same(ty, fast, oracle),
                "result {number}, {} at {at}: {x:e} ({fast:#x}), not {y:e} ({oracle:#x})\n{text}",
                ty.name
            );
        }
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

/// Small numbers, whose sums are far from the limits of the type.
fn small(ty: Type, count: usize, random: &mut Random) -> Vec<u8> {
    let numbers: Vec<_> = (0..count)
        .map(|_| ty.encode(random.below(4000) as f64 / 500.0 - 4.0))
        .collect();
    ty.bytes(numbers.into_iter())
}

/// Integers have the same bits; floats differ by a unit in the last place of the type, or by
/// rounding errors of sums of `size`.
fn close(size: f64) -> impl Fn(Type, u64, u64) -> bool {
    move |ty, x, y| {
        let Kind::Float { mantissa } = ty.kind else {
            return x == y;
        };
        let [x, y] = [x, y].map(|bits| ty.decode(bits));
        let unit = 0.5f64.powi(mantissa as i32) * y.abs();
        let of_sum = 0.5f64.powi(if mantissa == 52 { 50 } else { 21 }) * size;
        x == y || (x - y).abs() <= unit + of_sum || x.is_nan() && y.is_nan()
    }
}

#[test]
fn reductions_of_all_types_are_those_of_the_oracle() {
    let mut random = Random(1);
    for ty in TYPES {
        let name = ty.name;
        for (op, initial) in [
            ("add", "1"),
            ("maximum", "0"),
            ("minimum", "1"),
            ("multiply", "1"),
        ] {
            let text = format!(
                "func.func public @main(%x: tensor<6x5x33x{name}>)
                     -> (tensor<6x5x{name}>, tensor<33x{name}>, tensor<6x33x{name}>, tensor<{name}>,
                         tensor<5x33x{name}>, tensor<6x5x16x{name}>) {{
                   %0 = stablehlo.constant dense<{initial}{}> : tensor<{name}>
                   %t = stablehlo.constant dense<{}> : tensor<6x5x33x{name}>
                   %y = stablehlo.maximum %x, %t : tensor<6x5x33x{name}>
                   %1 = stablehlo.reduce(%y init: %0) applies stablehlo.{op} across dimensions = [2]
                     : (tensor<6x5x33x{name}>, tensor<{name}>) -> tensor<6x5x{name}>
                   %2 = stablehlo.reduce(%x init: %0) applies stablehlo.{op}
                     across dimensions = [0, 1]
                     : (tensor<6x5x33x{name}>, tensor<{name}>) -> tensor<33x{name}>
                   %3 = stablehlo.reduce(%x init: %0) applies stablehlo.{op} across dimensions = [1]
                     : (tensor<6x5x33x{name}>, tensor<{name}>) -> tensor<6x33x{name}>
                   %4 = stablehlo.reduce(%1 init: %0) applies stablehlo.{op}
                     across dimensions = [0, 1]
                     : (tensor<6x5x{name}>, tensor<{name}>) -> tensor<{name}>
                   %5 = stablehlo.reduce(%x init: %0) applies stablehlo.{op} across dimensions = [0]
                     : (tensor<6x5x33x{name}>, tensor<{name}>) -> tensor<5x33x{name}>
                   %i = stablehlo.constant dense<{}> : tensor<{name}>
                   %6 = \"stablehlo.reduce_window\"(%x, %i) ({{
                     ^bb0(%a: tensor<{name}>, %b: tensor<{name}>):
                       %s = stablehlo.{op} %a, %b : tensor<{name}>
                       stablehlo.return %s : tensor<{name}>
                   }}) {{window_dimensions = array<i64: 1, 1, 3>,
                         window_strides = array<i64: 1, 1, 2>}}
                     : (tensor<6x5x33x{name}>, tensor<{name}>) -> tensor<6x5x16x{name}>
                   return %1, %2, %3, %4, %5, %6 : tensor<6x5x{name}>, tensor<33x{name}>,
                     tensor<6x33x{name}>, tensor<{name}>, tensor<5x33x{name}>,
                     tensor<6x5x16x{name}>
                 }}",
                if ty.is_float() { ".0" } else { "" },
                if ty.is_float() { "1.0" } else { "1" },
                match op {
                    "add" if ty.is_float() => "0.0".into(),
                    "add" => "0".into(),
                    _ => format!("{initial}{}", if ty.is_float() { ".0" } else { "" }),
                },
            );
            let text = match ty.kind {
                Kind::Bool => text
                    .replace("dense<1>", "dense<true>")
                    .replace("dense<0>", "dense<false>"),
                _ => text,
            };
            let inputs = [small(ty, 6 * 5 * 33, &mut random)];
            // Products of many floats are large, or small.
            let size = if op == "multiply" { 0.0 } else { 4000.0 };
            let relative = |ty: Type, x: u64, y: u64| {
                let [a, b] = [x, y].map(|bits| ty.decode(bits));
                close(size)(ty, x, y) || ty.is_float() && (a - b).abs() <= 1e-5 * b.abs()
            };
            check(&text, &inputs, &[ty; 6], relative);
        }
    }
}

#[test]
fn contractions_of_all_types_are_those_of_the_oracle() {
    let mut random = Random(2);
    let of = [
        ["bf16", "bf16"],
        ["bf16", "f32"],
        ["f16", "f16"],
        ["f16", "f32"],
        ["f32", "f32"],
        ["f64", "f64"],
        ["i8", "i32"],
        ["i8", "i8"],
        ["ui8", "ui8"],
        ["ui8", "ui32"],
        ["i16", "i16"],
        ["ui16", "ui16"],
        ["i32", "i32"],
        ["ui32", "ui32"],
        ["i64", "i64"],
        ["ui64", "ui64"],
        ["i32", "i64"],
        ["f32", "f64"],
    ];
    for [from, to] in of {
        for [m, k, n] in [[1, 1, 1], [3, 0, 2], [5, 17, 9], [2, 300, 33]] {
            let text = format!(
                "func.func public @main(%x: tensor<2x{k}x{m}x{from}>, %y: tensor<2x{k}x{n}x{from}>,
                                        %i: tensor<2x7x6x4x{from}>, %w: tensor<3x3x4x5x{from}>)
                     -> (tensor<2x{m}x{n}x{to}>, tensor<2x4x3x5x{to}>) {{
                   %0 = stablehlo.dot_general %x, %y, batching_dims = [0] x [0],
                     contracting_dims = [1] x [1]
                     : (tensor<2x{k}x{m}x{from}>, tensor<2x{k}x{n}x{from}>)
                     -> tensor<2x{m}x{n}x{to}>
                   %1 = stablehlo.convolution(%i, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]
                       ->[b, 0, 1, f],
                     window = {{stride = [2, 2], pad = [[1, 1], [1, 1]]}}
                     {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
                     : (tensor<2x7x6x4x{from}>, tensor<3x3x4x5x{from}>) -> tensor<2x4x3x5x{to}>
                   return %0, %1 : tensor<2x{m}x{n}x{to}>, tensor<2x4x3x5x{to}>
                 }}"
            );
            let from = by_name(from);
            let inputs = [2 * k * m, 2 * k * n, 2 * 7 * 6 * 4, 9 * 20]
                .map(|count| small(from, count, &mut random));
            check(
                &text,
                &inputs,
                &[by_name(to); 2],
                close(16.0 * k.max(36) as f64),
            );
        }
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

#[test]
fn convolutions_of_all_geometries_are_those_of_the_oracle() {
    let mut random = Random(4);
    for number in 0..150 {
        let name = ["f32", "f32", "bf16", "f16", "f64", "i32", "ui8"][number % 7];
        let ty = by_name(name);
        let groups = random.pick(&[1, 2, 3, 8]);
        let (feature_groups, batch_groups) = match random.below(2) {
            0 => (groups, 1),
            _ => (1, groups),
        };
        let batch = batch_groups * (1 + random.below(2));
        let in_group = 1 + random.below(3);
        let (features, outputs) = (feature_groups * in_group, groups * (1 + random.below(3)));
        let mut dims = Vec::new();
        for _ in 0..2 {
            let (size, window) = (1 + random.below(9), 1 + random.below(4));
            let [stride, of_input, of_window] = [(); 3].map(|()| 1 + random.below(3));
            let dilated = (size - 1) * of_input + 1;
            let extent = (window - 1) * of_window + 1;
            let low = random.below(4) as i64 - 1;
            let least = extent as i64 - dilated as i64 - low;
            let high = (random.below(4) as i64 - 1).max(least);
            let padded = (dilated as i64 + low + high) as usize;
            let result = (padded - extent) / stride + 1;
            let reverse = random.below(2) == 1;
            dims.push((
                size, window, stride, of_input, of_window, low, high, result, reverse,
            ));
        }
        let [x, y] = [dims[0], dims[1]];
        let layout = random.below(2);
        let shape = |[a, b, c, d]: [usize; 4], last_is_feature: bool| match last_is_feature {
            true => format!("tensor<{a}x{c}x{d}x{b}x{name}>"),
            false => format!("tensor<{a}x{b}x{c}x{d}x{name}>"),
        };
        let input = shape([batch, features, x.0, y.0], layout == 0);
        let output = shape([batch / batch_groups, outputs, x.7, y.7], layout == 0);
        let kernel = match layout {
            0 => format!("tensor<{}x{}x{in_group}x{outputs}x{name}>", x.1, y.1),
            _ => format!("tensor<{outputs}x{in_group}x{}x{}x{name}>", x.1, y.1),
        };
        let numbers = match layout {
            0 => "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]",
            _ => "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]",
        };
        let text = format!(
            "func.func public @main(%x: {input}, %k: {kernel}) -> {output} {{
               %0 = stablehlo.convolution(%x, %k) dim_numbers = {numbers},
                 window = {{stride = [{}, {}], pad = [[{}, {}], [{}, {}]], lhs_dilate = [{}, {}],
                            rhs_dilate = [{}, {}], reverse = [{}, {}]}}
                 {{batch_group_count = {batch_groups} : i64,
                   feature_group_count = {feature_groups} : i64}}
                 : ({input}, {kernel}) -> {output}
               return %0 : {output}
             }}",
            x.2, y.2, x.5, x.6, y.5, y.6, x.3, y.3, x.4, y.4, x.8, y.8
        );
        let counts = [batch * features * x.0 * y.0, x.1 * y.1 * in_group * outputs];
        let inputs = counts.map(|count| small(ty, count, &mut random));
        check(&text, &inputs, &[ty], close(16.0 * 48.0));
    }
}
