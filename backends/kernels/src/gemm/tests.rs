use half::bf16;

use super::*;

fn value(at: usize, seed: usize) -> f32 {
    ((at * 7919 + seed * 104_729) % 1009) as f32 / 504.5 - 1.0
}

/// Strides of the rows and columns.
fn axes(rows: usize, columns: usize, is_transposed: bool) -> (Axis, Axis) {
    let axis =
        |size: usize, stride: usize| Axis::new((0..size).map(|at| (at * stride) as u32).collect());
    if is_transposed {
        (axis(rows, 1), axis(columns, rows))
    } else {
        (axis(rows, columns), axis(columns, 1))
    }
}

fn operand<'a, T>(data: &'a [T], (rows, columns): &'a (Axis, Axis)) -> Operand<'a, T> {
    Operand {
        data,
        offset: 0,
        rows,
        columns,
    }
}

fn product(threads: usize, [m, k, n]: [usize; 3], transposed: [bool; 2]) -> Vec<f32> {
    let a: Vec<f32> = (0..m * k).map(|at| value(at, 1)).collect();
    let b: Vec<f32> = (0..k * n).map(|at| value(at, 2)).collect();
    let (a_axes, b_axes) = (axes(m, k, transposed[0]), axes(k, n, transposed[1]));
    let (a, b) = (operand(&a, &a_axes), operand(&b, &b_axes));
    let mut out = vec![f32::NAN; m * n];
    multiply(
        &Threads::new(threads).expect("threads start"),
        a,
        b,
        &mut out,
    );
    let exact = |i: usize, j: usize| -> (f64, f64) {
        let of = |x: &Operand<'_>, i, j| f64::from(x.data[x.rows.at(i) + x.columns.at(j)]);
        let terms = (0..k).map(|term| of(&a, i, term) * of(&b, term, j));
        terms.fold((0.0, 0.0), |(sum, size), term| {
            (sum + term, size + term.abs())
        })
    };
    // Every element of small products, some of large ones.
    for at in (0..m * n).step_by(1 + m * n * k / 3_000_000) {
        let (sum, size) = exact(at / n, at % n);
        let error = (f64::from(out[at]) - sum).abs();
        assert!(
            error <= 2e-6 * size,
            "[{m}, {k}, {n}] {transposed:?} at {at}: {error}"
        );
    }
    out
}

#[test]
fn products_are_those_of_a_naive_loop() {
    let sizes = [1, 2, 7, 8, 9, 31, 33, 65];
    for (number, &m) in sizes.iter().enumerate() {
        for (k, n) in [(0, 3), (1, 1), (5, 40), (17, 32), (300, 9), (64, 70)] {
            for transposed in [[false, false], [true, false], [false, true], [true, true]] {
                product(1 + number % 2, [m, k, n], transposed);
            }
        }
    }
    product(2, [130, 520, 1030], [false, false]);
}

#[test]
fn long_sums_are_cut_into_parts() {
    product(2, [9, 5000, 33], [true, false]);
    product(1, [3, 4096, 1], [false, true]);
}

#[test]
fn bits_do_not_depend_on_threads() {
    for sizes in [[200, 300, 70], [9, 5000, 33], [1, 700, 600]] {
        let one = product(1, sizes, [false, false]);
        assert_eq!(one, product(3, sizes, [false, false]), "{sizes:?}");
    }
}

#[test]
fn bf16_is_widened_exactly() {
    let threads = Threads::new(2).expect("threads start");
    for [m, k, n] in [[1, 300, 70], [3, 17, 1030], [4, 64, 33], [9, 130, 65]] {
        for transposed in [false, true] {
            let a: Vec<f32> = (0..m * k).map(|at| value(at, 1)).collect();
            let narrow: Vec<bf16> = (0..k * n).map(|at| bf16::from_f32(value(at, 2))).collect();
            let wide: Vec<f32> = narrow.iter().map(|value| value.to_f32()).collect();
            let (a_axes, b_axes) = (axes(m, k, false), axes(k, n, transposed));
            let a = operand(&a, &a_axes);
            let mut results = [vec![0.0; m * n], vec![0.0; m * n]];
            multiply(&threads, a, operand(&narrow, &b_axes), &mut results[0]);
            multiply(&threads, a, operand(&wide, &b_axes), &mut results[1]);
            assert_eq!(results[0], results[1], "[{m}, {k}, {n}] {transposed}");
        }
    }
}

#[test]
fn runs_cover_a_range() {
    let axis = Axis::new(vec![4, 5, 6, 10, 11, 3]);
    let runs: Vec<_> = axis.runs(1..6).collect();
    assert_eq!(runs, [(0, 5, 2), (2, 10, 2), (4, 3, 1)]);
    assert_eq!(axis.runs(3..4).collect::<Vec<_>>(), [(0, 10, 1)]);
}
