use half::bf16;

use super::*;

/// Numbers that depend on a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % end
    }

    fn values(&mut self, count: usize) -> Vec<f32> {
        (0..count)
            .map(|_| self.below(2001) as f32 / 1000.0 - 1.0)
            .collect()
    }

    fn dim(&mut self) -> ConvDim {
        ConvDim {
            input: self.below(9),
            kernel: self.below(5),
            input_dilation: match self.below(4) {
                0 => 1 + self.below(4),
                _ => 1,
            },
            stride: 1 + self.below(4),
            dilation: 1 + self.below(3),
            low: self.below(7) as isize - 3,
            high: self.below(7) as isize - 3,
        }
    }

    fn geometry(&mut self) -> ConvGeometry {
        let groups = 1 + self.below(4);
        let is_depthwise = self.below(4) == 0;
        let is_narrow = groups == 1 && self.below(4) == 0;
        let mut size = || match is_depthwise {
            true => 1,
            false => self.below(10),
        };
        let (mut features, mut outputs) = (groups * size(), groups * size());
        if is_narrow {
            features += 16;
            outputs %= 5;
        }
        ConvGeometry {
            batch: self.below(5),
            features,
            outputs,
            groups,
            spatial: (0..self.below(4)).map(|_| self.dim()).collect(),
        }
    }

    /// Input, kernel and gradient of the result.
    fn tensors(&mut self, geometry: &ConvGeometry) -> [Vec<f32>; 3] {
        let lengths = [
            geometry.input_len(),
            geometry.kernel_len(),
            geometry.output_len(),
        ];
        lengths.map(|len| self.values(len))
    }
}

fn dim(input: usize, kernel: usize, stride: usize, padding: isize) -> ConvDim {
    ConvDim {
        input,
        kernel,
        input_dilation: 1,
        stride,
        dilation: 1,
        low: padding,
        high: padding,
    }
}

/// With an input that is dilated by 2.
fn transposed(mut geometry: ConvGeometry) -> ConvGeometry {
    let dims = geometry.spatial.iter_mut();
    dims.for_each(|dim| dim.input_dilation = 2);
    geometry
}

fn square(batch: usize, features: usize, outputs: usize, dim: ConvDim) -> ConvGeometry {
    ConvGeometry {
        batch,
        features,
        outputs,
        groups: 1,
        spatial: vec![dim; 2],
    }
}

/// Calls `each` with the positions in input, kernel and result of every term of the result.
fn terms(geometry: &ConvGeometry, mut each: impl FnMut([usize; 3])) {
    let ConvGeometry {
        batch,
        features,
        outputs,
        groups,
        ref spatial,
    } = *geometry;
    let (of_group, out_of_group) = (features / groups, outputs / groups);
    let count = |size: fn(&ConvDim) -> usize| spatial.iter().map(size).product::<usize>();
    let results = count(ConvDim::output);
    let (inputs, taps) = (count(|dim| dim.input), count(|dim| dim.kernel));
    for image in 0..batch {
        for result in 0..results {
            for tap in 0..taps {
                // The input position; `None` in the padding.
                let (mut result_rest, mut tap_rest) = (result, tap);
                let (mut position, mut stride) = (Some(0), 1);
                for dim in spatial.iter().rev() {
                    let (at, k) = (result_rest % dim.output(), tap_rest % dim.kernel);
                    result_rest /= dim.output();
                    tap_rest /= dim.kernel;
                    let input = (at * dim.stride + k * dim.dilation) as isize - dim.low;
                    let input = usize::try_from(input).ok();
                    let input = input.filter(|at| at.is_multiple_of(dim.input_dilation));
                    let input = input.map(|at| at / dim.input_dilation);
                    let input = input.filter(|&at| at < dim.input);
                    position = position.zip(input).map(|(all, at)| all + at * stride);
                    stride *= dim.input;
                }
                let Some(position) = position else { continue };
                for output in 0..outputs {
                    for feature in 0..of_group {
                        let group = output / out_of_group;
                        let x = (image * inputs + position) * features + group * of_group + feature;
                        let kernel = (tap * of_group + feature) * outputs + output;
                        each([x, kernel, (image * results + result) * outputs + output]);
                    }
                }
            }
        }
    }
}

/// Result, input gradient and kernel gradient.
fn run<T: Element + From<bf16>>(
    convolution: &Convolution,
    threads: &Threads,
    operands: [&[T]; 3],
) -> [Vec<T>; 3] {
    run_to(convolution, threads, operands)
}

/// The same, with elements of another type.
fn run_to<T: Element, O: Element + From<bf16>>(
    convolution: &Convolution,
    threads: &Threads,
    [x, kernel, g]: [&[T]; 3],
) -> [Vec<O>; 3] {
    // What was in the memory does not matter.
    let mut all = [g, x, kernel].map(|of| vec![O::from(bf16::NAN); of.len()]);
    convolution.forward(threads, x, kernel, &mut all[0]);
    convolution.input_gradient(threads, kernel, g, &mut all[1]);
    convolution.kernel_gradient(threads, x, g, &mut all[2]);
    all
}

/// Sums in f64 by plain loops, and sums of the absolute terms.
fn exact(geometry: &ConvGeometry, [x, kernel, g]: [&[f32]; 3]) -> [Vec<(f64, f64)>; 3] {
    let mut exact = [g, x, kernel].map(|of| vec![(0.0, 0.0); of.len()]);
    terms(geometry, |[in_x, in_kernel, in_g]| {
        let [x, kernel, g] = [x[in_x], kernel[in_kernel], g[in_g]].map(f64::from);
        let terms = [(in_g, x * kernel), (in_x, kernel * g), (in_kernel, x * g)];
        for (exact, (at, term)) in exact.iter_mut().zip(terms) {
            exact[at].0 += term;
            exact[at].1 += term.abs();
        }
    });
    exact
}

/// Compares with plain loops; the error is relative to the sum of the absolute terms.
fn check_values(geometry: ConvGeometry, tensors: [&[f32]; 3], threads: &Threads) {
    let exact = exact(&geometry, tensors);
    let convolution = Convolution::new(geometry).expect("the geometry is valid");
    let out = run(&convolution, threads, tensors);
    let names = ["result", "input gradient", "kernel gradient"];
    for (name, (out, exact)) in names.iter().zip(out.iter().zip(&exact)) {
        for (at, (&value, &(sum, size))) in out.iter().zip(exact).enumerate() {
            let error = (f64::from(value) - sum).abs();
            let geometry = convolution.geometry();
            assert!(
                error <= 2e-6 * size + f64::from(f32::from_bits(1)),
                "{name} of {geometry:?} at {at}: {value}, not {sum}"
            );
        }
    }
}

fn check(geometry: ConvGeometry, random: &mut Random, threads: &Threads) {
    let tensors = random.tensors(&geometry);
    check_values(geometry, tensors.each_ref().map(|it| &it[..]), threads);
}

fn threads(count: usize) -> Threads {
    Threads::new(count).expect("threads start")
}

#[test]
fn random_convolutions_equal_plain_loops() {
    let (mut random, threads) = (Random(1), threads(2));
    for _ in 0..3000 {
        check(random.geometry(), &mut random, &threads);
    }
}

#[test]
fn convolutions_of_several_items_equal_plain_loops() {
    let (mut random, threads) = (Random(2), threads(2));
    for geometry in [
        square(2, 8, 40, dim(28, 3, 1, 1)),
        square(3, 3, 16, dim(41, 7, 2, 3)),
        square(70, 5, 9, dim(4, 3, 1, 1)),
        square(2, 16, 24, dim(23, 1, 2, 0)),
        square(2, 40, 33, dim(21, 1, 1, 0)),
        square(2, 4, 4, dim(30, 2, 3, 0)),
        ConvGeometry {
            groups: 4,
            ..square(2, 12, 8, dim(25, 3, 2, 1))
        },
        ConvGeometry {
            groups: 24,
            ..square(2, 24, 24, dim(25, 5, 1, 2))
        },
        ConvGeometry {
            groups: 49,
            ..square(3, 49, 49, dim(17, 7, 1, 3))
        },
        ConvGeometry {
            groups: 10,
            ..square(2, 40, 80, dim(13, 3, 2, 1))
        },
        ConvGeometry {
            groups: 9,
            ..square(2, 18, 36, dim(10, 4, 1, 3))
        },
        ConvGeometry {
            groups: 20,
            ..square(1, 20, 60, dim(31, 9, 1, 4))
        },
        square(3, 37, 3, dim(19, 3, 1, 1)),
        square(2, 16, 1, dim(23, 4, 2, 1)),
        square(2, 48, 4, dim(11, 2, 1, 0)),
        square(2, 2, 33, dim(15, 3, 2, 1)),
        transposed(square(3, 33, 18, dim(14, 4, 1, 2))),
        transposed(square(3, 32, 1, dim(14, 4, 1, 2))),
        transposed(ConvGeometry {
            groups: 21,
            ..square(2, 21, 21, dim(14, 3, 1, 2))
        }),
        ConvGeometry {
            spatial: vec![dim(1000, 9, 4, 4)],
            ..square(2, 3, 7, dim(0, 0, 1, 0))
        },
    ] {
        check(geometry, &mut random, &threads);
    }
}

#[test]
fn bits_do_not_depend_on_threads() {
    let mut random = Random(4);
    for geometry in [
        square(3, 16, 32, dim(28, 3, 1, 1)),
        square(9, 8, 200, dim(9, 3, 2, 1)),
        ConvGeometry {
            groups: 8,
            ..square(3, 8, 8, dim(29, 3, 1, 1))
        },
        ConvGeometry {
            groups: 8,
            ..square(3, 32, 24, dim(29, 3, 1, 1))
        },
        square(3, 32, 2, dim(29, 3, 1, 1)),
        transposed(square(3, 16, 20, dim(15, 4, 1, 2))),
    ] {
        let tensors = random.tensors(&geometry);
        let tensors = tensors.each_ref().map(|it| &it[..]);
        let convolution = Convolution::new(geometry).expect("the geometry is valid");
        let one = run(&convolution, &threads(1), tensors);
        for count in [2, 3, 7] {
            assert!(
                one == run(&convolution, &threads(count), tensors),
                "{count}"
            );
        }
    }
}

#[test]
fn denormals_are_not_flushed() {
    let geometry = square(2, 5, 6, dim(9, 3, 1, 1));
    let [x, kernel, g] = Random(5).tensors(&geometry);
    let small = |of: Vec<f32>| of.iter().map(|value| value * 1e-39).collect::<Vec<_>>();
    let (x, g) = (small(x), small(g));
    // A product of two of them is zero.
    let [result, to_input, to_kernel] = {
        let convolution = Convolution::new(geometry.clone()).expect("the geometry is valid");
        run(&convolution, &threads(1), [&x, &kernel, &g])
    };
    let [exact_result, exact_input, _] = exact(&geometry, [&x, &kernel, &g]);
    for (out, exact) in [(result, exact_result), (to_input, exact_input)] {
        for (value, (sum, _)) in out.iter().zip(exact) {
            // Each of at most 54 terms rounds to a multiple of the least denormal.
            assert!((f64::from(*value) - sum).abs() <= 54.0 * f64::from(f32::from_bits(1)));
        }
        assert!(out.iter().any(|value| value.is_subnormal()));
    }
    assert!(to_kernel.iter().all(|&value| value == 0.0));
}

#[test]
fn nan_reaches_its_windows_only() {
    let geometry = square(1, 1, 1, dim(5, 3, 1, 1));
    let convolution = Convolution::new(geometry).expect("the geometry is valid");
    for special in [f32::NAN, f32::INFINITY] {
        let (mut x, mut out) = (vec![1.0; 25], vec![0.0; 25]);
        x[0] = special;
        convolution.forward(&threads(1), &x, &[1.0; 9], &mut out);
        let reached: Vec<_> = (0..25).filter(|&at| !out[at].is_finite()).collect();
        assert_eq!(reached, [0, 1, 5, 6]);
    }
}

#[test]
fn bf16_results_are_rounded_once() {
    let threads = threads(2);
    let mut random = Random(6);
    for _ in 0..300 {
        let geometry = random.geometry();
        let tensors = random.tensors(&geometry);
        let narrow = tensors.map(|it| it.into_iter().map(bf16::from_f32).collect::<Vec<_>>());
        let wide = narrow.each_ref().map(|it| {
            let wide = it.iter().map(|value| value.to_f32());
            wide.collect::<Vec<_>>()
        });
        let convolution = Convolution::new(geometry).expect("the geometry is valid");
        let narrow = narrow.each_ref().map(|it| &it[..]);
        let sums: [Vec<f32>; 3] = run_to(&convolution, &threads, narrow);
        let narrow = run(&convolution, &threads, narrow);
        let wide = run(&convolution, &threads, wide.each_ref().map(|it| &it[..]));
        assert!(sums == wide, "{:?}", convolution.geometry());
        for (narrow, wide) in narrow.iter().zip(&wide) {
            let rounded: Vec<_> = wide.iter().map(|&value| bf16::from_f32(value)).collect();
            assert!(*narrow == rounded, "{:?}", convolution.geometry());
        }
    }
}

fn error(geometry: ConvGeometry) -> String {
    let result = Convolution::new(geometry);
    result.expect_err("the geometry is invalid").to_string()
}

#[test]
fn groups_divide_features() {
    let geometry = ConvGeometry {
        groups: 2,
        ..square(1, 3, 4, dim(1, 1, 1, 0))
    };
    assert_eq!(
        error(geometry),
        "convolution: 2 groups do not divide 3 input and 4 output features"
    );
}

#[test]
fn strides_are_positive() {
    assert_eq!(
        error(square(1, 1, 1, dim(1, 1, 0, 0))),
        "convolution: spatial dimension 0 has input dilation 1, stride 0 and dilation 1; all \
         must be at least 1"
    );
}

#[test]
fn huge_sizes_are_errors() {
    for (size, padding) in [(usize::MAX, 0), (1 << 40, 0), (1, isize::MIN), (1, 1 << 30)] {
        let message = error(square(2, 2, 2, dim(size, 3, 1, padding)));
        assert!(message.contains("too large"), "{message}");
    }
}

#[test]
fn extreme_sizes_do_not_panic() {
    const SIZES: [usize; 9] = [0, 1, 2, 3, 1 << 16, 1 << 24, 1 << 31, 1 << 40, usize::MAX];
    let mut random = Random(7);
    let threads = threads(1);
    for _ in 0..2000 {
        let mut size = |most: usize| SIZES[random.below(most)];
        let mut dim = || ConvDim {
            input: size(9),
            kernel: size(7),
            input_dilation: size(9),
            stride: size(9),
            dilation: size(9),
            low: size(9) as isize,
            high: -(size(7) as isize),
        };
        let spatial = vec![dim(), dim()];
        let geometry = ConvGeometry {
            batch: size(9),
            features: size(7),
            outputs: size(5),
            groups: 1,
            spatial,
        };
        let lengths = |geometry: &ConvGeometry| {
            let (x, kernel) = (geometry.input_len(), geometry.kernel_len());
            [x, kernel, geometry.output_len()]
        };
        let Ok(convolution) = Convolution::new(geometry) else {
            continue;
        };
        let lengths = lengths(convolution.geometry());
        if lengths.iter().all(|&len| len < 1 << 12) {
            let tensors = lengths.map(|len| vec![1.0f32; len]);
            run(&convolution, &threads, tensors.each_ref().map(|it| &it[..]));
        }
    }
}
