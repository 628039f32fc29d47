//! Random numbers and initialization on the CPU plugin: JAX's bits, and statistical properties.

use std::collections::HashSet;

use halite_core::{DType, HostArray, TensorType, Tree, tree::Leaf};
use halite_ir::Op;
use halite_nn::{Conv2d, Distribution, Dropout, Init, Linear, Param, Tensor, Trace, init, rng};
use halite_tests::eval::eval;

fn floats(array: &HostArray) -> &[f32] {
    array.as_slice().expect("it is f32")
}

fn words(array: &HostArray) -> &[u32] {
    array.as_slice().expect("it is u32")
}

/// The values of `jax.random` (JAX 0.10.2, defaults) for `jax.random.PRNGKey(42)`.
#[test]
fn random_numbers_match_jax() {
    let results = eval(
        |cx, _| {
            let key = rng::constant_key(cx, rng::key(42));
            let number = cx.scalar(7.0, DType::S32);
            vec![
                rng::split_many(key, 3),
                rng::fold_in(key, 7),
                rng::fold_in(key, number),
                rng::row(rng::fold_in_many(key, &[9, 7]), 1),
                rng::bits(key, [2, 3], DType::U32),
                rng::uniform(key, [4], DType::F32, 0.0, 1.0),
                rng::normal(key, [6], DType::F32),
                rng::truncated_normal(key, [4], DType::F32, -2.0, 2.0),
                rng::integers(key, [6], -5, 100),
                rng::permutation(key, 8),
            ]
        },
        &[],
    );
    // np.asarray(jax.random.split(key, 3)), and so on.
    let split = [
        1832780943, 270669613, 64467757, 2916123636, 2465931498, 255383827,
    ];
    assert_eq!(words(&results[0]), split);
    for folded in &results[1..4] {
        assert_eq!(words(folded), [2547012911, 1371500959]);
    }
    let random = [
        2098992034, 2919706841, 2646866425, 2409546199, 1935504149, 2516274904,
    ];
    assert_eq!(words(&results[4]), random);
    let bits = |array: &HostArray| -> Vec<u32> {
        let values = floats(array).iter();
        values.map(|value| value.to_bits()).collect()
    };
    let uniform = [0x3efa3824, 0x3f2e0730, 0x3f1dc3f8, 0x3f0f9ec0];
    assert_eq!(bits(&results[5]), uniform);
    let normal = [
        0xbce7df15, 0x3eef2be8, 0x3e976661, 0x3e1d3b24, 0xbdfe04eb, 0x3e5e211a,
    ];
    assert_eq!(bits(&results[6]), normal);
    // JAX's compiler fuses the multiplication and addition of `uniform`, the plugin's does not.
    let truncated = [0xbcdd51b4, 0x3ee385e2, 0x3e905231, 0x3e160635].map(f32::from_bits);
    for (&got, expected) in floats(&results[7]).iter().zip(truncated) {
        assert!((got - expected).abs() <= 2e-7, "{got}, not {expected}");
    }
    let integers = |index: usize| results[index].as_slice::<i32>().expect("it is s32");
    assert_eq!(integers(8), [94, 49, 76, -1, 84, 19]);
    assert_eq!(integers(9), [7, 4, 2, 5, 3, 6, 0, 1]);
}

#[test]
fn derived_keys_differ() {
    let results = eval(
        |cx, _| {
            let key = rng::constant_key(cx, rng::key(1));
            let numbers: Vec<u64> = (0..500)
                .chain((0..500).map(|number| number << 32))
                .collect();
            vec![
                rng::split_many(key, 1000),
                rng::fold_in_many(key, &numbers),
                key.reshape([1, 2]),
            ]
        },
        &[],
    );
    let split: HashSet<&[u32]> = words(&results[0]).chunks(2).collect();
    let folded: HashSet<&[u32]> = words(&results[1]).chunks(2).collect();
    // 0 << 32 is 0 again.
    assert_eq!((split.len(), folded.len()), (1000, 999));
    assert!(!split.contains(words(&results[2])) && !folded.contains(words(&results[2])));
}

/// Mean, standard deviation, minimum and maximum.
fn statistics(values: &[f32]) -> [f64; 4] {
    let count = values.len() as f64;
    let values = || values.iter().map(|&value| f64::from(value));
    let mean = values().sum::<f64>() / count;
    let std = (values().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
    [
        mean,
        std,
        values().fold(f64::INFINITY, f64::min),
        values().fold(f64::NEG_INFINITY, f64::max),
    ]
}

/// Standard deviation and bounds of each initializer, for 300 inputs and 200 outputs.
fn moments() -> [(Init, f64, (f64, f64)); 12] {
    let uniform = Init::Uniform {
        low: -1.0,
        high: 3.0,
    };
    let normal = Init::Normal {
        mean: 2.0,
        std: 0.5,
    };
    let truncated = Init::TruncatedNormal {
        mean: 0.0,
        std: 1.0,
    };
    // Of a variance over a number of inputs, outputs or both.
    let deviation = |variance: f64, fan: f64| (variance / fan).sqrt();
    [
        (Init::Zeros, 0.0, (0.0, 0.0)),
        (Init::Constant(0.25), 0.0, (0.25, 0.25)),
        (uniform, 4.0 / 12f64.sqrt(), (-1.0, 3.0)),
        (normal, 0.5, (-2.0, 6.0)),
        (truncated, 0.879_625_66, (-2.0, 2.0)),
        (Init::lecun_normal(), deviation(1.0, 300.0), (-0.132, 0.132)),
        (Init::lecun_uniform(), deviation(1.0, 300.0), (-0.1, 0.1)),
        (Init::glorot_normal(), deviation(2.0, 500.0), (-0.4, 0.4)),
        (
            Init::glorot_uniform(),
            deviation(2.0, 500.0),
            (-0.109_55, 0.109_55),
        ),
        (Init::he_normal(), deviation(2.0, 300.0), (-0.5, 0.5)),
        (
            Init::he_uniform(),
            deviation(2.0, 300.0),
            (-0.141_43, 0.141_43),
        ),
        (
            Init::torch_default(300),
            deviation(1.0, 900.0),
            (-0.057_74, 0.057_74),
        ),
    ]
}

#[test]
fn initializers_have_the_right_moments() {
    const DIMS: [usize; 2] = [300, 200];
    let cases = moments();
    let inits = cases.map(|(init, ..)| init);
    let results = eval(
        move |cx, _| {
            let model: Vec<Leaf<Param>> = inits.map(|init| Leaf(Param::new(DIMS, init))).into();
            init(cx, &model, rng::constant_key(cx, rng::key(3))).into_leaves()
        },
        &[],
    );
    for ((init, std, (low, high)), values) in cases.iter().zip(&results) {
        let [mean, measured, least, largest] = statistics(floats(values));
        let expected = match init {
            Init::Constant(value) => *value,
            Init::Uniform { low, high } => (low + high) / 2.0,
            Init::Normal { mean, .. } => *mean,
            _ => 0.0,
        };
        // Five standard errors of 60,000 values.
        assert!(
            (mean - expected).abs() <= 5.0 * std / 245.0,
            "{init:?}: mean {mean}"
        );
        assert!(
            (measured - std).abs() <= 0.02 * std,
            "{init:?}: deviation {measured}, not {std}"
        );
        assert!(
            least >= *low && largest <= *high,
            "{init:?}: from {least} to {largest}"
        );
    }
}

#[test]
fn initialization_depends_on_the_path_only() {
    let results = eval(
        |cx, _| {
            let key = || rng::constant_key(cx, rng::key(5));
            let small = init(cx, &vec![Linear::new(4, 3)], key());
            let large = init(
                cx,
                &vec![Linear::new(4, 3), Linear::new(4, 3).without_bias()],
                key(),
            );
            let other = init(
                cx,
                &vec![Linear::new(4, 3)],
                rng::constant_key(cx, rng::key(6)),
            );
            vec![
                small[0].weight,
                large[0].weight,
                large[1].weight,
                other[0].weight,
            ]
        },
        &[],
    );
    assert_eq!(floats(&results[0]), floats(&results[1]));
    assert_ne!(floats(&results[0]), floats(&results[2]));
    assert_ne!(floats(&results[0]), floats(&results[3]));
}

/// Leaves of all distributions, types and sizes around those of the parts of a loop.
fn leaves_of_all_kinds() -> Vec<Param> {
    const SHAPES: [&[usize]; 12] = [
        &[],
        &[0],
        &[1],
        &[2],
        &[3, 0],
        &[13],
        &[64, 63],
        &[4096],
        &[17, 241],
        &[3, 3, 64, 65],
        &[8193],
        &[1025, 1025],
    ];
    let inits = moments().map(|(init, ..)| init);
    let dtypes = [DType::F32, DType::F64, DType::Bf16, DType::F16];
    let cases = SHAPES
        .iter()
        .flat_map(|shape| inits.iter().map(move |init| (shape, init)));
    cases
        .enumerate()
        .map(|(index, (shape, init))| Param::new(shape, *init).with_dtype(dtypes[index % 4]))
        .collect()
}

#[test]
fn leaf_has_the_same_bits_alone() {
    let together = eval(
        |cx, _| {
            let model: Vec<Leaf<Param>> = leaves_of_all_kinds().into_iter().map(Leaf).collect();
            init(cx, &model, rng::constant_key(cx, rng::key(7))).into_leaves()
        },
        &[],
    );
    let count = together.len();
    // Each kind of size, distribution and type.
    for index in (0..count).step_by(11) {
        let alone = eval(
            move |cx, _| {
                let mut model: Vec<Option<Leaf<Param>>> = (0..count).map(|_| None).collect();
                model[index] = leaves_of_all_kinds().into_iter().nth(index).map(Leaf);
                init(cx, &model, rng::constant_key(cx, rng::key(7))).into_leaves()
            },
            &[],
        );
        check_same(&leaves_of_all_kinds()[index], [&alone[0], &together[index]]);
    }
}

/// Equal bits, but for the elements of a truncated normal leaf after its last whole vector: XLA's CPU
/// compiler rounds their product and sum once or twice, depending on the operations around it.
fn check_same(param: &Param, [alone, together]: [&HostArray; 2]) {
    let is_truncated = matches!(
        param.init,
        Init::TruncatedNormal { .. }
            | Init::VarianceScaling {
                distribution: Distribution::TruncatedNormal,
                ..
            }
    );
    let size = alone.bytes().len() / alone.ty().elements().max(1);
    let whole = match is_truncated {
        true => alone.ty().elements() / 16 * 16,
        false => alone.ty().elements(),
    };
    let (whole, rest) = (0..whole * size.max(1), whole..alone.ty().elements());
    assert!(
        alone.bytes()[whole.clone()] == together.bytes()[whole],
        "{param:?}"
    );
    let wide = [alone, together].map(|array| array.to_float(DType::F64).unwrap());
    let [alone, together] = wide
        .each_ref()
        .map(|array| array.as_slice::<f64>().unwrap());
    for at in rest {
        let difference = (alone[at] - together[at]).abs();
        assert!(difference <= 1e-6 * alone[at].abs(), "{param:?} at {at}");
    }
}

#[test]
fn leaves_of_one_distribution_are_one_loop() {
    let lines = |layers: usize| {
        let cx = &Trace::new();
        let model: Vec<Linear<Param>> = (0..layers).map(|size| Linear::new(size + 1, 7)).collect();
        let key = rng::constant_key(cx, rng::key(1));
        let graph = cx.graph(&[], &init(cx, &model, key).into_leaves()).unwrap();
        let loops = graph
            .nodes()
            .iter()
            .filter(|node| matches!(node.op, Op::Scan { .. }));
        (loops.count(), graph.nodes().len())
    };
    let ((one, few), (another, many)) = (lines(10), lines(20));
    assert_eq!((one, another), (1, 1));
    // A draw alone takes more than a hundred operations.
    assert!(many - few < 10 * 2 * 20, "{few} and {many} operations");
}

#[test]
fn dropout_preserves_the_mean() {
    let results = eval(
        |cx, _| {
            let x = cx.full(2.0, &halite_core::TensorType::new(DType::F32, [200, 100]));
            let dropout = Dropout::new(0.3);
            cx.set_mode(false, None);
            let quiet = dropout.forward(x);
            cx.set_mode(true, Some(rng::constant_key(cx, rng::key(8))));
            vec![
                quiet,
                dropout.forward(x),
                dropout.forward(x),
                Dropout::new(1.0).forward(x),
                Dropout::new(0.0).forward(x),
            ]
        },
        &[],
    );
    let zeros = |array: &HostArray| {
        floats(array).iter().filter(|&&value| value == 0.0).count() as f64 / 20_000.0
    };
    assert!(
        floats(&results[0])
            .iter()
            .chain(floats(&results[4]))
            .all(|&value| value == 2.0)
    );
    assert_eq!(zeros(&results[3]), 1.0);
    for dropped in &results[1..3] {
        assert!((zeros(dropped) - 0.3).abs() < 0.02);
        assert!((statistics(floats(dropped))[0] - 2.0).abs() < 0.05);
        assert!(
            floats(dropped)
                .iter()
                .all(|&value| value == 0.0 || (value - 2.0 / 0.7).abs() < 1e-6)
        );
    }
    assert_ne!(floats(&results[1]), floats(&results[2]));
}

#[test]
fn categorical_follows_the_logits() {
    let results = eval(
        |cx, _| {
            let key = rng::constant_key(cx, rng::key(11));
            let weights: Vec<Tensor<'_>> = [1.0, 2.0, 5.0]
                .map(|weight| cx.scalar(weight, DType::F32))
                .into();
            let logits = cx.stack(&weights, 0).log().broadcast_to([20_000, 3]);
            let fair = rng::bernoulli(rng::fold_in(key, 1), [20_000], 0.25).convert(DType::F32);
            vec![rng::categorical(key, logits), fair]
        },
        &[],
    );
    let classes = results[0].as_slice::<i32>().expect("classes are s32");
    for (class, part) in [(0, 0.125), (1, 0.25), (2, 0.625)] {
        let drawn = classes.iter().filter(|&&drawn| drawn == class).count() as f64 / 20_000.0;
        assert!(
            (drawn - part).abs() < 0.02,
            "class {class}: {drawn}, not {part}"
        );
    }
    assert!((statistics(floats(&results[1]))[0] - 0.25).abs() < 0.02);
}

#[test]
fn all_float_types_can_be_drawn() {
    let results = eval(
        |cx, _| {
            let key = rng::constant_key(cx, rng::key(13));
            let half = rng::normal(key, [1000], DType::Bf16).convert(DType::F32);
            let model = Conv2d::new(3, 4, 5).map_leaves(|_, param| param.with_dtype(DType::F64));
            vec![
                half,
                rng::normal(key, [1000], DType::F32),
                init(cx, &model, key).weight.convert(DType::F32),
            ]
        },
        &[],
    );
    for (&half, &single) in floats(&results[0]).iter().zip(floats(&results[1])) {
        assert!(
            (half - single).abs() <= single.abs() / 256.0,
            "{half} is {single} rounded"
        );
    }
    let [mean, std, least, largest] = statistics(floats(&results[2]));
    let bound = (1.0 / 75f64).sqrt();
    assert!(
        mean.abs() < 0.03
            && (std - bound / 3f64.sqrt()).abs() < 0.01
            && least >= -bound
            && largest <= bound
    );
}

#[test]
fn while_iterations_have_distinct_keys() {
    const ITERATIONS: usize = 6;
    let results = eval(
        |cx, _| {
            cx.set_mode(true, Some(rng::constant_key(cx, rng::key(8))));
            let before = cx.next_key().reshape([1, 2]);
            let none = cx.full(0.0, &TensorType::new(DType::U32, [ITERATIONS, 4]));
            let start = [Leaf(cx.scalar(0.0, DType::S32)), Leaf(none)];
            let [_, drawn] = cx.while_loop(
                start,
                // The condition's draw never exceeds the maximum.
                |[iteration, _]| {
                    let drawn = rng::bits(cx.next_key(), [], DType::U32).le(f64::from(u32::MAX));
                    iteration.0.lt(ITERATIONS as f64).and(drawn)
                },
                |[iteration, drawn]| {
                    let keys = cx.concat(&[cx.next_key(), cx.next_key()], 0);
                    let row = cx
                        .iota(&TensorType::new(DType::S32, [ITERATIONS, 4]), 0)
                        .eq(iteration.0);
                    [
                        Leaf(iteration.0 + 1.0),
                        Leaf(row.select(keys.broadcast_to([ITERATIONS, 4]), drawn.0)),
                    ]
                },
            );
            vec![
                before,
                drawn.0.reshape([2 * ITERATIONS, 2]),
                cx.next_key().reshape([1, 2]),
            ]
        },
        &[],
    );
    let keys: HashSet<&[u32]> = results
        .iter()
        .flat_map(|keys| words(keys).chunks(2))
        .collect();
    assert_eq!(keys.len(), 2 * ITERATIONS + 2, "{keys:?}");
}
