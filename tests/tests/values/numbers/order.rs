//! Sorts by value: NaN is larger than all, whatever its sign, and equal elements keep their order.

use halite_core::{CompileOptions, DType, TensorType, tree::Leaf};
use halite_ir::Interface;
use halite_nn::{Padding, Trace, grad, vjp};
use halite_tests::eval::{client, eval, host, program};

const FLOATS: [DType; 4] = [DType::F16, DType::Bf16, DType::F32, DType::F64];

/// Equal numbers, zeros of both signs, infinities and NaNs of both signs.
const VALUES: [f64; 14] = [
    3.0,
    f64::from_bits(0xfff8_0000_0000_0000),
    1.0,
    0.0,
    f64::NAN,
    -0.0,
    f64::INFINITY,
    1.0,
    -2.5,
    0.0,
    f64::NEG_INFINITY,
    f64::from_bits(0xfff8_0000_0000_0000),
    -0.0,
    3.0,
];

/// The stable order by value.
fn order(values: &[f64], descending: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (values[a], values[b]);
        let ascending = match (a.is_nan(), b.is_nan()) {
            (false, false) => a.partial_cmp(&b).unwrap(),
            (a, b) => a.cmp(&b),
        };
        if descending {
            ascending.reverse()
        } else {
            ascending
        }
    });
    order
}

#[test]
fn floats_are_sorted_by_value() {
    for dtype in FLOATS {
        for descending in [false, true] {
            let expected = order(&VALUES, descending);
            let results = eval(
                move |cx, x| {
                    let float = x[0].convert(dtype);
                    let (sorted, places) = float.sort_with_indices(0, descending);
                    let (largest, top) = float.top_k(6, 0);
                    let alone = float.sort(0, descending);
                    let weight = cx.arange(VALUES.len(), DType::F64) + 1.0;
                    let loss = (sorted.convert(DType::F64) * weight).sum_all();
                    let alone_loss = (alone.convert(DType::F64) * weight).sum_all();
                    vec![
                        places,
                        float.argsort(0, descending),
                        top,
                        sorted.convert(DType::F64),
                        alone.convert(DType::F64),
                        largest.convert(DType::F64),
                        grad(loss, &Leaf(x[0])).0,
                        grad(alone_loss, &Leaf(x[0])).0,
                    ]
                },
                &[host(&VALUES, &[VALUES.len()])],
            );
            let ints = |at: usize| results[at].as_slice::<i32>().unwrap();
            let floats = |at: usize| results[at].as_slice::<f64>().unwrap();
            let places: Vec<i32> = expected.iter().map(|&at| at as i32).collect();
            assert_eq!(ints(0), places, "{dtype}, descending {descending}");
            assert_eq!(ints(1), places, "{dtype}, descending {descending}");
            let largest: Vec<i32> = order(&VALUES, true).iter().map(|&at| at as i32).collect();
            assert_eq!(ints(2), &largest[..6], "{dtype}");
            let same = |given: &[f64], places: &[i32]| {
                given.iter().zip(places).all(|(value, &at)| {
                    let wanted = VALUES[at as usize];
                    (value.is_nan() && wanted.is_nan())
                        || (*value == wanted
                            && value.is_sign_negative() == wanted.is_sign_negative())
                })
            };
            assert!(same(floats(3), &places), "{dtype} {:?}", floats(3));
            assert!(same(floats(4), &places), "{dtype} {:?}", floats(4));
            assert!(same(floats(5), &largest[..6]), "{dtype} {:?}", floats(5));
            let mut slopes = vec![0.0; VALUES.len()];
            for (rank, &at) in expected.iter().enumerate() {
                slopes[at] = rank as f64 + 1.0;
            }
            assert_eq!(floats(6), slopes, "{dtype}, descending {descending}");
            assert_eq!(floats(7), slopes, "{dtype}, descending {descending}");
        }
    }
}

#[test]
fn computed_nan_is_the_largest() {
    // 0 / 0 on x86 is a NaN with its sign bit set.
    let results = eval(
        |_, x| {
            let x = x[0].convert(DType::F32);
            let x = x * (x / x);
            let (_, largest) = x.top_k(1, 0);
            vec![
                x.argsort(0, false),
                x.argsort(0, true),
                largest,
                x.argmax(0),
                x.argmin(0),
            ]
        },
        &[host(&[3.0, 0.0, 1.0, 2.0], &[4])],
    );
    let expected: [&[i32]; 5] = [&[2, 3, 0, 1], &[1, 0, 3, 2], &[1], &[1], &[1]];
    for (result, expected) in results.iter().zip(expected) {
        assert_eq!(result.as_slice::<i32>().unwrap(), expected);
    }
}

#[test]
fn first_extreme_is_found_by_value() {
    for dtype in FLOATS {
        let results = eval(
            move |_, x| {
                let rows = x[0].convert(dtype);
                vec![rows.argmax(1), rows.argmin(1)]
            },
            &[host(
                &[
                    [-0.0, 0.0, -1.0, 0.0],
                    [1.0, f64::NAN, -f64::NAN, 2.0],
                    [f64::INFINITY, 1.0, f64::INFINITY, f64::NEG_INFINITY],
                    [0.0, -0.0, 0.0, -0.0],
                ]
                .concat(),
                &[4, 4],
            )],
        );
        assert_eq!(
            results[0].as_slice::<i32>().unwrap(),
            [0, 1, 0, 0],
            "{dtype}"
        );
        assert_eq!(
            results[1].as_slice::<i32>().unwrap(),
            [2, 1, 3, 0],
            "{dtype}"
        );
    }
}

#[test]
fn cumulative_extremes_keep_nan() {
    for dtype in FLOATS {
        let x = [1.0, 3.0, 2.0, -f64::NAN, 5.0];
        let results = eval(
            move |_, x| {
                let x = x[0].convert(dtype);
                vec![
                    x.cummax(0).convert(DType::F64),
                    x.cummin(0).convert(DType::F64),
                ]
            },
            &[host(&x, &[5])],
        );
        for (result, expected) in results.iter().zip([[1.0, 3.0, 3.0], [1.0, 1.0, 1.0]]) {
            let values = result.as_slice::<f64>().unwrap();
            assert_eq!(values[..3], expected, "{dtype}");
            assert!(
                values[3..].iter().all(|value| value.is_nan()),
                "{dtype} {values:?}"
            );
        }
    }
}

#[test]
fn gradient_of_large_windows_goes_to_nan() {
    // Windows of more than 25 places use another operation.
    for size in [3, 30] {
        let mut x = vec![1.0; 40];
        x[2] = -f64::NAN;
        let results = eval(
            move |_, x| {
                let pooled = x[0]
                    .reshape([1, 40, 1])
                    .max_pool([size], [size], Padding::Valid);
                let Leaf(slope) = vjp(&[pooled], &[pooled.ones_like() * x[1]], &Leaf(x[0]));
                // Reads the weights where the slope was written.
                let Leaf(read) = grad((slope * x[2]).sum_all(), &Leaf(x[1]));
                vec![slope, read]
            },
            &[
                host(&x, &[40]),
                host(&vec![1.0; 40 / size], &[1, 40 / size, 1]),
                host(&(0..40).map(f64::from).collect::<Vec<_>>(), &[40]),
            ],
        );
        let [slope, read] = [0, 1].map(|at| results[at].as_slice::<f64>().unwrap());
        assert_eq!(slope[..3], [0.0, 0.0, 1.0], "{slope:?}");
        assert_eq!(read[0], 2.0, "{read:?}");
    }
}

/// XLA's compiler for CPUs makes a call of the program, which takes a tenth of the time of sorting
/// all elements.
#[test]
fn largest_floats_are_selected_without_sorting() {
    if *client().platform().name != *"cpu" {
        return;
    }
    for dtype in [DType::F16, DType::Bf16, DType::F32] {
        let cx = Trace::new();
        let x = cx.input(TensorType::new(dtype, [8, 1000]), "x");
        let (values, places) = x.top_k(4, 1);
        let graph = cx.graph(&[x], &[values, places]).unwrap();
        let program = program(&graph, &Interface::new("top_k")).unwrap();
        let loaded = client().compile(&program, &CompileOptions::default());
        let (_, optimized) = loaded.unwrap().optimized().unwrap();
        assert!(optimized.windows(4).any(|part| part == b"TopK"), "{dtype}");
    }
}
