//! The choice between halite's kernel and the compiler's code, by measurements.
//!
//! [`TABLE`] has measured convolutions, and how many times halite's kernel is as fast as the
//! compiler's code for each. Those that are most similar to a convolution decide about it: a
//! function of the program, the processor and the table, which measures nothing.

use std::{cmp::Ordering, sync::LazyLock};

use halite_core::{DType, Processor};

use super::product::{Kind, Product};

/// Measurements, one convolution a line; its head says what the columns are. Written by
/// `cargo run --release -p halite-benches --bin convolutions -- --table FILE`.
const TABLE: &str = include_str!("measured.txt");

/// Convolutions that decide together.
const NEAREST: usize = 3;
/// Numbers that describe a convolution.
const SIZES: usize = 9;
/// Importance of a factor of 2 in each of them, an estimate: which sizes change a ratio was not
/// measured on its own. The compiler has other code for three spatial dimensions than for two, so
/// that convolutions of the same number decide alone where there are any.
const WEIGHTS: [f64; SIZES] = [1000.0, 1.0, 1.0, 1.0, 1.0, 2.0, 0.5, 3.0, 0.5];

/// Logarithms of the spatial dimensions (at least 2), of the features and outputs of a group, of the
/// groups, the taps, the stride, the dilation, the input dilation and of the multiplications.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sizes([f64; SIZES]);

impl Sizes {
    fn new(sizes: [f64; SIZES]) -> Self {
        Sizes(sizes.map(|size| size.max(1.0).log2()))
    }

    fn of(product: &Product) -> Self {
        let over_dims = |size: fn(&super::product::Spatial) -> usize| {
            let sizes = product.spatial.iter().map(size);
            sizes.fold(1.0, |all, here| all * here as f64)
        };
        let groups = product.groups as f64;
        Self::new([
            product.spatial.len().max(2) as f64,
            product.features as f64 / groups,
            product.outputs as f64 / groups,
            groups,
            over_dims(|dim| dim.kernel),
            over_dims(|dim| dim.stride),
            over_dims(|dim| dim.dilation),
            over_dims(|dim| dim.input_dilation),
            product.multiplications(),
        ])
    }

    /// How different two convolutions are.
    fn distance(&self, other: &Self) -> f64 {
        let differences = self.0.iter().zip(&other.0).zip(WEIGHTS);
        differences
            .map(|((a, b), weight)| weight * (a - b).powi(2))
            .sum()
    }
}

/// A measured convolution.
struct Measured {
    processor: Processor,
    dtype: DType,
    sizes: Sizes,
    /// Time of the compiler's code as a multiple of that of the kernel: result, input gradient and
    /// kernel gradient.
    ratios: [f64; 3],
}

/// Returns whether the kernel is faster than the compiler's code.
pub(super) fn pays(product: &Product, processor: &Processor) -> bool {
    static MEASURED: LazyLock<Vec<Measured>> =
        LazyLock::new(|| parse(TABLE).expect("the table is that of the benchmark"));
    gain(&MEASURED, product, processor) > 0.0
}

/// Estimated logarithm of the ratio of both times; 0 if nothing is measured.
fn gain(measured: &[Measured], product: &Product, processor: &Processor) -> f64 {
    let pass = match product.kind {
        Kind::Result => 0,
        Kind::InputGradient => 1,
        Kind::KernelGradient => 2,
    };
    let ascending = |a: &f64, b: &f64| a.partial_cmp(b).unwrap_or(Ordering::Equal);
    // Kernels widen what they read to `f32`: its ratios stand for a type that was not measured.
    let is_measured = measured.iter().any(|it| it.dtype == product.dtype);
    let dtype = if is_measured {
        product.dtype
    } else {
        DType::F32
    };
    let of_type = measured.iter().filter(|it| it.dtype == dtype);
    let unlike = |it: &Measured| unlike(&it.processor, processor);
    let Some(nearest) = of_type.clone().map(unlike).min_by(ascending) else {
        return 0.0;
    };
    let of_processor = of_type.filter(|it| unlike(it) == nearest);
    let sizes = Sizes::of(product);
    let mut near: Vec<(f64, f64)> = of_processor
        .map(|it| (it.sizes.distance(&sizes), it.ratios[pass].ln()))
        .collect();
    near.sort_by(|a, b| ascending(&a.0, &b.0));
    near.truncate(NEAREST);
    let weight = |distance: f64| 1.0 / (distance + 0.05);
    let total: f64 = near.iter().map(|&(distance, _)| weight(distance)).sum();
    let sum: f64 = near
        .iter()
        .map(|&(distance, ratio)| weight(distance) * ratio)
        .sum();
    sum / total
}

/// How different two processors are.
fn unlike(a: &Processor, b: &Processor) -> f64 {
    let difference = |a: usize, b: usize| (a.max(1) as f64 / b.max(1) as f64).log2().abs();
    2.0 * difference(a.vector_bits, b.vector_bits) + difference(a.threads, b.threads)
}

/// Reads the lines of a table; `None` if one is not of its form.
fn parse(table: &str) -> Option<Vec<Measured>> {
    let lines = table.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Measured> {
    let mut words = line.split_whitespace();
    let processor = Processor {
        vector_bits: words.next()?.parse().ok()?,
        threads: words.next()?.parse().ok()?,
    };
    let dtype = match words.next()? {
        "f32" => DType::F32,
        "bf16" => DType::Bf16,
        _ => return None,
    };
    let mut number = || words.next()?.parse::<f64>().ok();
    let mut sizes = [0.0; SIZES];
    for size in &mut sizes {
        *size = number()?;
    }
    let ratios = [number()?, number()?, number()?];
    let is_ratio = |ratio: &f64| *ratio > 0.0 && ratio.is_finite();
    ratios.iter().all(is_ratio).then_some(Measured {
        processor,
        dtype,
        sizes: Sizes::new(sizes),
        ratios,
    })
}

#[cfg(test)]
mod tests {
    use super::{super::product::Spatial, *};

    const PROCESSOR: Processor = Processor {
        vector_bits: 512,
        threads: 2,
    };

    fn spatial(size: usize, kernel: usize) -> Spatial {
        Spatial {
            input: size,
            kernel,
            output: size,
            input_dilation: 1,
            stride: 1,
            dilation: 1,
            low: (kernel / 2) as i64,
            high: kernel / 2,
        }
    }

    fn depthwise(features: usize) -> Product {
        Product {
            kind: Kind::Result,
            dtype: DType::F32,
            batch: 16,
            features,
            outputs: features,
            groups: features,
            spatial: vec![spatial(16, 7), spatial(16, 7)],
        }
    }

    #[test]
    fn table_is_read() {
        let measured = parse(TABLE).expect("lines of the form that the head of the table says");
        assert!(measured.iter().any(|it| it.dtype == DType::F32));
        assert!(parse("512 2 f32 1 1 1").is_none());
        assert!(parse("512 2 f32 2 1 1 1 1 1 1 1 1 0 1 1").is_none());
    }

    #[test]
    fn nearest_measurements_decide() {
        let table =
            "512 2 f32 2 1 1 32 49 1 1 1 6e6 4 1 1\n512 2 f32 2 64 64 1 9 1 1 1 1e8 0.5 1 1";
        let measured = parse(table).unwrap();
        assert!(gain(&measured, &depthwise(48), &PROCESSOR) > 0.0);
        let dense = Product {
            groups: 1,
            ..depthwise(64)
        };
        assert!(gain(&measured, &dense, &PROCESSOR) < 0.0);
    }

    #[test]
    fn three_dimensions_have_their_own_measurements() {
        let table =
            "512 2 f32 2 64 64 1 27 1 1 1 1e8 0.5 1 1\n512 2 f32 3 8 16 1 8 1 1 1 1e6 4 1 1";
        let measured = parse(table).unwrap();
        let of = |dims: usize, kernel: usize| {
            let product = Product {
                groups: 1,
                spatial: (0..dims).map(|_| spatial(16, kernel)).collect(),
                ..depthwise(64)
            };
            gain(&measured, &product, &PROCESSOR)
        };
        assert!(of(2, 5) < 0.0);
        assert!(of(3, 3) > 0.0);
    }

    #[test]
    fn kernels_of_volumes_are_called() {
        let product = |kind: Kind, kernel: usize| Product {
            kind,
            batch: 1,
            groups: 1,
            spatial: (0..3).map(|_| spatial(24, kernel)).collect(),
            ..depthwise(8)
        };
        for kind in [Kind::Result, Kind::InputGradient, Kind::KernelGradient] {
            assert!(pays(&product(kind, 3), &PROCESSOR), "{kind:?}");
        }
        assert!(!pays(&product(Kind::InputGradient, 1), &PROCESSOR));
    }

    #[test]
    fn processor_selects_its_measurements() {
        let table =
            "512 2 f32 2 1 1 32 49 1 1 1 6e6 4 1 1\n128 64 f32 2 1 1 32 49 1 1 1 6e6 0.5 1 1";
        let measured = parse(table).unwrap();
        let of = |vector_bits, threads| {
            let processor = Processor {
                vector_bits,
                threads,
            };
            gain(&measured, &depthwise(32), &processor)
        };
        assert!(of(512, 4) > 0.0);
        assert!(of(128, 32) < 0.0);
    }

    #[test]
    fn other_types_are_chosen_as_f32() {
        let of = |table: &str| {
            let product = Product {
                dtype: DType::Bf16,
                ..depthwise(32)
            };
            gain(&parse(table).unwrap(), &product, &PROCESSOR)
        };
        let f32 = "512 2 f32 2 1 1 32 49 1 1 1 6e6 4 1 1\n";
        assert!(of(f32) > 0.0);
        assert!(of(&format!("{f32}512 2 bf16 2 1 1 32 49 1 1 1 6e6 0.5 1 1")) < 0.0);
    }

    #[test]
    fn nothing_measured_is_no_gain() {
        assert_eq!(gain(&[], &depthwise(32), &PROCESSOR), 0.0);
    }
}
