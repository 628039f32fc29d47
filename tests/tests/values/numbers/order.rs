//! Computed NaN in sorts, gradients of large windows, and selections without sorting.

use halite_core::{CompileOptions, DType, TensorType, tree::Leaf};
use halite_ir::Interface;
use halite_nn::{Padding, Trace, grad, vjp};
use halite_tests::eval::{client, eval, host, program};

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
