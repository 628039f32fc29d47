//! Every collective over one axis of two, over both, and over lists.

use halite_core::{DType, HostArray, Mesh};
use halite_ir::Reduction;
use halite_nn::{Manual, Over, Tensor, Trace};
use halite_tests::eval::{eval, host, noise};

use crate::shard_map::support::*;

/// The part of an array on one device: `[rows, columns]`.
#[derive(Clone, Debug, PartialEq)]
struct Part(Vec<Vec<f64>>);

impl Part {
    fn gathered(parts: &[&Part], dim: usize) -> Part {
        match dim {
            0 => Part(parts.iter().flat_map(|part| part.0.clone()).collect()),
            _ => Part(
                (0..parts[0].0.len())
                    .map(|row| parts.iter().flat_map(|part| part.0[row].clone()).collect())
                    .collect(),
            ),
        }
    }

    fn cut(&self, dim: usize, of: usize, which: usize) -> Part {
        let size = if dim == 0 {
            self.0.len()
        } else {
            self.0[0].len()
        } / of;
        let range = which * size..(which + 1) * size;
        match dim {
            0 => Part(self.0[range].to_vec()),
            _ => Part(
                self.0
                    .iter()
                    .map(|row| row[range.clone()].to_vec())
                    .collect(),
            ),
        }
    }

    fn map(&self, f: impl Fn(f64) -> f64) -> Part {
        Part(
            self.0
                .iter()
                .map(|row| row.iter().map(|&x| f(x)).collect())
                .collect(),
        )
    }

    fn reduced(parts: &[&Part], kind: Reduction) -> Part {
        let combine = |a: f64, b: f64| match kind {
            Reduction::Sum => a + b,
            Reduction::Product => a * b,
            Reduction::Min => a.min(b),
            Reduction::Max => a.max(b),
            Reduction::And => f64::from((a as i64 & b as i64) as i32),
            Reduction::Or => f64::from((a as i64 | b as i64) as i32),
        };
        let mut total = parts[0].clone();
        for part in &parts[1..] {
            for (row, other) in total.0.iter_mut().zip(&part.0) {
                row.iter_mut()
                    .zip(other)
                    .for_each(|(a, b)| *a = combine(*a, *b));
            }
        }
        total
    }
}

/// For each device its group, in order, and its place in the group.
fn groups(mesh: &Mesh, axes: &[&str]) -> Vec<(Vec<usize>, usize)> {
    let member = |device: usize| {
        axes.iter().fold(0, |at, axis| {
            at * mesh.axis(axis).unwrap() + mesh.coordinate(device, axis)
        })
    };
    let alike = |a: usize, b: usize| {
        mesh.axes().all(|(axis, _)| {
            axes.contains(&axis) || mesh.coordinate(a, axis) == mesh.coordinate(b, axis)
        })
    };
    (0..mesh.size())
        .map(|device| {
            let mut group: Vec<usize> = (0..mesh.size())
                .filter(|&other| alike(device, other))
                .collect();
            group.sort_by_key(|&other| member(other));
            (group, member(device))
        })
        .collect()
}

/// The parts of all devices, one below the other.
fn stacked(parts: &[Part]) -> Vec<f64> {
    parts
        .iter()
        .flat_map(|part| part.0.iter().flatten().copied())
        .collect()
}

fn floats(array: &HostArray) -> Vec<f64> {
    match array.ty().dtype() {
        DType::F64 => array.as_slice::<f64>().unwrap().to_vec(),
        _ => array
            .as_slice::<i32>()
            .unwrap()
            .iter()
            .map(|&value| f64::from(value))
            .collect(),
    }
}

/// The parts of `[16, 32]` values on the devices of [`mesh`].
fn parts(mesh: &Mesh, values: &[f64]) -> Vec<Part> {
    let part = |device| {
        let (row, column) = (
            8 * mesh.coordinate(device, "data"),
            8 * mesh.coordinate(device, "model"),
        );
        let rows = row..row + 8;
        let values = |row| values[32 * row + column..][..8].to_vec();
        Part(rows.map(values).collect())
    };
    (0..mesh.size()).map(part).collect()
}

/// Checks `collective` over `over` on parts of `[16, 32]` noise of this type; `expected` is a
/// function of each group and the place in it.
fn check(
    over: &'static [&'static str],
    dtype: DType,
    collective: impl for<'t> Fn(&'t Trace, Tensor<'t>, Over) -> Tensor<'t> + Send + Sync + 'static,
    expected: impl Fn(&[&Part], usize) -> Part,
) {
    let mesh = mesh();
    let dims = [16, 32];
    let mut input = noise(1, &dims, -9.0, 9.0);
    if dtype == DType::S32 {
        let rounded = floats(&input).into_iter().map(|value| value.round() as i32);
        input = host(&rounded.collect::<Vec<_>>(), &dims);
    }
    let parts = parts(&mesh, &floats(&input));
    let on_device = |(group, place): &(Vec<usize>, usize)| {
        let group: Vec<&Part> = group.iter().map(|&device| &parts[device]).collect();
        expected(&group, *place)
    };
    let expected: Vec<Part> = groups(&mesh, over).iter().map(on_device).collect();
    let split = || spec(&[&["data"], &["model"]]);
    let gathered = spec(&[&["data", "model"]]);
    let on = mesh.clone();
    let results = run(
        &mesh,
        move |cx, x| {
            cx.shard_map(
                &on,
                x,
                &[split()],
                std::slice::from_ref(&gathered),
                |parts| vec![collective(cx, parts[0], over.into())],
            )
        },
        &[(input, split())],
    );
    let (results, expected) = (floats(&results[0]), stacked(&expected));
    assert_eq!(results.len(), expected.len(), "over {over:?}");
    for (i, (result, expected)) in results.iter().zip(&expected).enumerate() {
        assert!(
            (result - expected).abs() <= 1e-12 * expected.abs().max(1.0),
            "over {over:?}, element {i}: {result}, expected {expected}"
        );
    }
}

const OVERS: [&[&str]; 4] = [
    &["data"],
    &["model"],
    &["data", "model"],
    &["model", "data"],
];

fn check_reduction(over: &'static [&'static str], dtype: DType, kind: Reduction) {
    check(
        over,
        dtype,
        move |_, x, over| x.all_reduce(kind, over),
        move |group, _| Part::reduced(group, kind),
    );
}

/// Checks a reduction of `bool`: which elements are larger than `bound`, as 0 and 1.
fn check_bools(over: &'static [&'static str], bound: i32, kind: Reduction) {
    check(
        over,
        DType::S32,
        move |_, x, over| x.gt(bound).all_reduce(kind, over).convert(DType::S32),
        move |group, _| {
            let larger = |part: &&Part| part.map(|x| f64::from(u8::from(x > bound.into())));
            let larger: Vec<Part> = group.iter().map(larger).collect();
            Part::reduced(&larger.iter().collect::<Vec<_>>(), kind)
        },
    );
}

#[test]
fn reductions_over_axes() {
    use Reduction::*;
    for over in OVERS {
        for kind in [Sum, Product, Min, Max] {
            check_reduction(over, DType::F64, kind);
        }
        for kind in [Sum, And, Or] {
            check_reduction(over, DType::S32, kind);
        }
        check_bools(over, -6, And);
        check_bools(over, 6, Or);
        let mean =
            |group: &[&Part], _: usize| Part::reduced(group, Sum).map(|x| x / group.len() as f64);
        check(over, DType::F64, |_, x, over| x.all_reduce_mean(over), mean);
    }
}

fn check_scatter(over: &'static [&'static str], dtype: DType, kind: Reduction, dim: usize) {
    check(
        over,
        dtype,
        move |_, x, over| x.reduce_scatter(kind, dim, over),
        move |group, place| Part::reduced(group, kind).cut(dim, group.len(), place),
    );
}

#[test]
fn gathers_or_scatters_over_axes() {
    for (over, dim) in OVERS.into_iter().flat_map(|over| [(over, 0), (over, 1)]) {
        check(
            over,
            DType::F64,
            move |_, x, over| x.all_gather(dim, over),
            move |group, _| Part::gathered(group, dim),
        );
        check_scatter(over, DType::F64, Reduction::Sum, dim);
        check_scatter(over, DType::F64, Reduction::Max, dim);
        check_scatter(over, DType::S32, Reduction::Or, dim);
        let exchanged = move |group: &[&Part], place: usize| {
            let cut = |part: &&Part| part.cut(dim, group.len(), place);
            let cuts: Vec<Part> = group.iter().map(cut).collect();
            Part::gathered(&cuts.iter().collect::<Vec<_>>(), 1 - dim)
        };
        check(
            over,
            DType::F64,
            move |_, x, over| x.all_to_all(dim, 1 - dim, over),
            exchanged,
        );
    }
}

/// From each place along `over` to the next.
fn forward(over: &[&str]) -> Vec<(usize, usize)> {
    let members = groups(&mesh(), over)[0].0.len();
    (1..members).map(|member| (member - 1, member)).collect()
}

#[test]
fn permute_pairs_are_group_members() {
    for over in OVERS {
        let moved = |group: &[&Part], place: usize| match place {
            0 => Part(vec![vec![0.0; 8]; 8]),
            _ => group[place - 1].clone(),
        };
        check(
            over,
            DType::F64,
            move |_, x, pairs| x.collective_permute(forward(over), pairs),
            moved,
        );
        let place = |_: &[&Part], place: usize| Part(vec![vec![place as f64; 8]; 8]);
        check(
            over,
            DType::S32,
            |cx, x, over| x.zeros_like() + cx.axis_index(over),
            place,
        );
    }
}

#[test]
fn lists_name_places_in_the_mesh() {
    // Devices 0 and 3, 1 and 2, and so on: groups that are along no axis.
    let mesh = mesh();
    let values: Vec<i32> = (0..8).collect();
    let ids = |over: fn() -> Over| {
        run(
            &mesh,
            {
                let mesh = mesh.clone();
                move |cx, x| {
                    let split = [spec(&[&["data", "model"]]), spec(&[&["data", "model"]])];
                    cx.shard_map(&mesh, x, &split[..1], &split, |x| {
                        vec![
                            x[0].all_reduce(Reduction::Sum, over()),
                            x[0].all_gather(0, over()).slice_dim(0, 0..1),
                        ]
                    })
                }
            },
            &[(host(&values, &[8]), spec(&[&["data", "model"]]))],
        )
    };
    let results = ids(|| Over::from(vec![vec![3, 0], vec![1, 2], vec![4, 7], vec![6, 5]]));
    assert_eq!(
        results[0].as_slice::<i32>().unwrap(),
        [3, 3, 3, 3, 11, 11, 11, 11]
    );
    assert_eq!(
        results[1].as_slice::<i32>().unwrap(),
        [3, 1, 1, 3, 4, 6, 6, 4],
        "the first of a group is its first member"
    );
    let results = ids(|| Over::ALL);
    assert_eq!(results[0].as_slice::<i32>().unwrap(), [28; 8]);
}

#[test]
fn permutation_along_one_axis_leaves_others_to_the_compiler() {
    let mesh = mesh();
    let values: Vec<i32> = (0..8).collect();
    for axis in ["data", "model"] {
        let on = mesh.clone();
        let results = run(
            &mesh,
            move |cx, x| {
                let over = Manual::over(on.shape()).only([axis]);
                let split = [spec(&[&[axis]])];
                cx.shard_map(over, x, &split, &split, |x| {
                    vec![x[0].collective_permute([(0, 1), (1, 0)], axis)]
                })
            },
            &[(host(&values, &[8]), spec(&[&["data", "model"]]))],
        );
        let part = 8 / mesh.shape().axis(axis).unwrap();
        let swapped: Vec<i32> = match part {
            4 => vec![4, 5, 6, 7, 0, 1, 2, 3],
            _ => vec![2, 3, 0, 1, 0, 0, 0, 0],
        };
        assert_eq!(results[0].as_slice::<i32>().unwrap(), swapped, "{axis}");
    }
}

/// `x @ w`, with columns of `x` and rows of `w` on the devices of one axis, rows of `x` on those of
/// the other.
fn product<'t>(cx: &'t Trace, over: impl Into<Manual>, x: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
    let (rows_and_columns, rows) = (spec(&[&["data"], &["model"]]), spec(&[&["model"]]));
    cx.shard_map(
        over,
        x,
        &[rows_and_columns, rows],
        &[spec(&[&["data"]])],
        |x| vec![x[0].matmul(x[1]).all_reduce(Reduction::Sum, "model")],
    )
}

/// Checks that the first results differ only by rounding.
#[track_caller]
fn close(results: &[HostArray], expected: &[HostArray], what: &str) {
    let pairs = floats(&results[0]).into_iter().zip(floats(&expected[0]));
    let largest = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(largest < 1e-12, "{what}: {largest}");
}

#[test]
fn sharded_matmul_matches_one_device() {
    let (x, w) = (noise(1, &[8, 16], -1.0, 1.0), noise(2, &[16, 6], -1.0, 1.0));
    let expected = eval(|_, x| vec![x[0].matmul(x[1])], &[x.clone(), w.clone()]);
    for axes in [
        [("data", 2), ("model", 4)],
        [("data", 1), ("model", 8)],
        [("data", 8), ("model", 1)],
        [("data", 1), ("model", 1)],
    ] {
        let mesh = mesh_of(&axes);
        let inputs = [(x.clone(), whole()), (w.clone(), whole())];
        let on = mesh.clone();
        let results = run(&mesh, move |cx, x| product(cx, &on, x), &inputs);
        close(&results, &expected, &format!("{axes:?}"));
    }
}

#[test]
fn automatic_axes_are_partitioned_by_the_compiler() {
    let mesh = mesh();
    let (x, w) = (noise(1, &[8, 16], -1.0, 1.0), noise(2, &[16, 6], -1.0, 1.0));
    let inputs = [x.clone(), w.clone()];
    let expected = eval(|_, x| vec![x[0].matmul(x[1]).tanh()], &inputs);
    let on = mesh.clone();
    let results = run(
        &mesh,
        move |cx, x| {
            let manual = Manual::over(&on).only(["model"]);
            let specs = [spec(&[&[], &["model"]]), spec(&[&["model"]])];
            cx.shard_map(manual, x, &specs, &[whole()], |x| {
                vec![x[0].matmul(x[1]).all_reduce(Reduction::Sum, "model").tanh()]
            })
        },
        &[
            (x, spec(&[&["data"], &["model"]])),
            (w, spec(&[&["model"]])),
        ],
    );
    close(&results, &expected, "`model` is manual");
}
