//! Reductions and contractions: within the rounding of the type.

use crate::types::numbers::{Kind, Random, TYPES, Type, by_name, check};

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
            let most = random.pick(&[4, 9]);
            let (size, window) = (1 + random.below(9), 1 + random.below(most));
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
        // Channels last, channels first, and that of a kernel gradient.
        let layout = random.below(3);
        let tensor = |dims: [usize; 4]| {
            let dims = dims.map(|dim| dim.to_string()).join("x");
            format!("tensor<{dims}x{name}>")
        };
        let results = batch / batch_groups;
        let (numbers, [input, kernel, output]) = match layout {
            0 => (
                "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]",
                [
                    [batch, x.0, y.0, features],
                    [x.1, y.1, in_group, outputs],
                    [results, x.7, y.7, outputs],
                ],
            ),
            1 => (
                "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]",
                [
                    [batch, features, x.0, y.0],
                    [outputs, in_group, x.1, y.1],
                    [results, outputs, x.7, y.7],
                ],
            ),
            _ => (
                "[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]",
                [
                    [features, x.0, y.0, batch],
                    [in_group, x.1, y.1, outputs],
                    [x.7, y.7, results, outputs],
                ],
            ),
        };
        let [input, kernel, output] = [input, kernel, output].map(tensor);
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
        let terms = (x.1 * y.1 * in_group).max(48);
        check(&text, &inputs, &[ty], close(16.0 * terms as f64));
    }
}
