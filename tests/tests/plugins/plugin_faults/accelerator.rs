//! Convolutions and scatters that GPUs get wrong (decision 0054), lowered around: on the plugin of the
//! tests, which `HALITE_TEST_ACCELERATOR` names, and on the embedded executor, beside its oracle.
//!
//! On an accelerator with faults, `HALITE_ACCELERATOR_FAULTS=1` also prints what is wrong without
//! lowering.

use std::sync::OnceLock;

use halite_core::{Client, DType, Faults, HostArray, tree::Leaf};
use halite_embedded::{Embedded, Mode, Options};
use halite_ir::{ConvolutionAttributes, ConvolutionDims};
use halite_nn::{Tensor, grad};
use halite_tests::{eval::try_eval_on, long::part, random::Random};

use crate::plugin_faults::support::{embedded, plugin, setting, with_faults};

/// The embedded executor without kernels.
pub(crate) fn oracle() -> &'static Client {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    CLIENT.get_or_init(|| {
        let options = Options {
            mode: Mode::Oracle,
            threads: 1,
            ..Options::default()
        };
        Client::new(Embedded::new(&options).expect("an executor of one device"))
    })
}

/// Clients whose programs are lowered around the faults of GPUs: of the named accelerator those that
/// it has.
pub(crate) fn lowered() -> Vec<(&'static str, Client)> {
    let plugin = match halite_tests::eval::named() {
        Some(_) => plugin().clone(),
        None => with_faults(plugin(), Faults::ALL),
    };
    let embedded = with_faults(embedded(), halite_pjrt::capabilities("cuda").faults);
    vec![("plugin", plugin), ("embedded", embedded)]
}

/// The accelerator as if it had no faults, if what it then has wrong is asked for.
pub(crate) fn not_lowered() -> Option<Client> {
    (setting("HALITE_ACCELERATOR_FAULTS", 0) != 0).then(|| with_faults(plugin(), Faults::NONE))
}

/// A convolution of spatial dimensions, and dimensions of its operands.
#[derive(Clone)]
struct Variation {
    name: String,
    conv: ConvolutionAttributes,
    dims: [Vec<usize>; 2],
}

/// Names of what varies.
const ALONE: [&str; 8] = [
    "plain",
    "reversed in part",
    "reversed",
    "input dilation",
    "kernel dilation",
    "strides",
    "permuted",
    "cut",
];

impl Variation {
    /// Each variation alone, all of them, and each but one, in groups of the batch, of the features
    /// and without.
    fn all(spatial: usize) -> Vec<Self> {
        let sets = ALONE.iter().map(|one| vec![*one]).chain([
            vec!["reversed in part", "input dilation", "kernel dilation"],
            vec!["reversed", "input dilation"],
            vec!["strides", "kernel dilation", "permuted"],
            ALONE.to_vec(),
        ]);
        let groups = [(1, 1), (1, 2), (2, 1)];
        sets.flat_map(|set| groups.map(|groups| Variation::of(&set, spatial, groups)))
            .collect()
    }

    fn of(set: &[&str], spatial: usize, (feature_groups, batch_groups): (usize, usize)) -> Self {
        let has = |name: &str| set.contains(&name);
        let dims = |batch, feature, first: usize| ConvolutionDims {
            batch,
            feature,
            spatial: (first..first + spatial).collect(),
        };
        let [mut input, mut kernel, mut output] = [
            dims(0, spatial + 1, 1),
            dims(spatial + 1, spatial, 0),
            dims(0, spatial + 1, 1),
        ];
        if has("permuted") {
            [input, kernel, output] = [
                dims(spatial, 0, 1),
                dims(0, spatial + 1, 1),
                dims(spatial + 1, 0, 1),
            ];
            (input.batch, input.spatial) = (spatial + 1, (1..=spatial).rev().collect());
            output.spatial.reverse();
        }
        let each = |name: &str, first: usize| match has(name) {
            true => (0..spatial)
                .map(|i| if i == 0 { first } else { 1 + i % 2 })
                .collect(),
            false => vec![1; spatial],
        };
        let conv = ConvolutionAttributes {
            strides: each("strides", 2),
            padding: (0..spatial as i64)
                .map(|i| if has("cut") { (-1, 2) } else { (1, i) })
                .collect(),
            input_dilation: each("input dilation", 2),
            kernel_dilation: each("kernel dilation", 2),
            reversal: (0..spatial)
                .map(|i| has("reversed") || has("reversed in part") && i == 0)
                .collect(),
            feature_groups,
            batch_groups,
            input,
            kernel,
            output,
            precision: Vec::new(),
        };
        let groups = feature_groups * batch_groups;
        let x = arranged(&conv.input, 2 * batch_groups, 3 * feature_groups, |i| 5 + i);
        let k = arranged(&conv.kernel, 2 * groups, 3, |i| 2 + i % 2);
        let name = format!("{set:?} of {feature_groups} and {batch_groups} groups");
        Variation {
            name,
            conv,
            dims: [x, k],
        }
    }

    /// The result in `f64`, and of floats the gradients of both operands.
    fn results<'t>(&self, x: &[Tensor<'t>], dtype: DType) -> Vec<Tensor<'t>> {
        let [x, kernel] = [x[0], x[1]].map(|x| x.convert(dtype));
        let y = x.conv_general(kernel, self.conv.clone(), dtype);
        let mut results = vec![y];
        if dtype.is_float() {
            let cx = x.trace();
            let weights = (cx.arange(y.ty().elements(), DType::S32) % 3).convert(dtype);
            let loss = (y * weights.reshape(y.dims())).sum_all();
            results.extend(grad(loss, &[x, kernel].map(Leaf)).map(|gradient| gradient.0));
        }
        results
            .iter()
            .map(|result| result.convert(DType::F64))
            .collect()
    }
}

/// Sizes in the order of these dimension numbers.
fn arranged(
    dims: &ConvolutionDims,
    batch: usize,
    feature: usize,
    spatial: impl Fn(usize) -> usize,
) -> Vec<usize> {
    let mut sizes = vec![0; dims.spatial.len() + 2];
    (sizes[dims.batch], sizes[dims.feature]) = (batch, feature);
    for (i, &dim) in dims.spatial.iter().enumerate() {
        sizes[dim] = spatial(i);
    }
    sizes
}

/// Names of the variations whose results on a client are not those of the oracle.
fn wrong(client: &Client, all: &[Variation], dtype: DType, seed: u64) -> Vec<String> {
    let mut random = Random::new(seed, 0);
    let low = if dtype.is_float() { -2.0 } else { 0.0 };
    let most = if dtype.is_float() { 5 } else { 13 };
    let mut draw = |dims: &Vec<usize>| {
        let count = dims.iter().product();
        let values: Vec<f64> = (0..count)
            .map(|_| random.below(most) as f64 + low)
            .collect();
        HostArray::from_slice(&values, dims).expect("one for each element")
    };
    let inputs: Vec<HostArray> = all
        .iter()
        .flat_map(|one| one.dims.iter())
        .map(&mut draw)
        .collect();
    let results = |client: &Client| {
        let all = all.to_vec();
        let results = try_eval_on(client, move |_, x| each(&all, x, dtype), &inputs);
        results.unwrap_or_else(|error| panic!("{dtype}: {error}"))
    };
    let (got, expected) = (results(client), results(oracle()));
    let of_each = got.len() / all.len();
    let parts = ["result", "gradient of the input", "gradient of the kernel"];
    (got.iter().zip(&expected).enumerate())
        .filter(|(_, (got, expected))| !agree(got, expected, dtype))
        .map(|(i, _)| format!("{dtype}, {}: {}", all[i / of_each].name, parts[i % of_each]))
        .collect()
}

fn each<'t>(all: &[Variation], x: &[Tensor<'t>], dtype: DType) -> Vec<Tensor<'t>> {
    (all.iter().zip(x.chunks(2)))
        .flat_map(|(one, x)| one.results(x, dtype))
        .collect()
}

/// Whether each element differs by rounding only.
fn agree(got: &HostArray, expected: &HostArray, dtype: DType) -> bool {
    let tolerance = match dtype {
        DType::F16 | DType::Bf16 => 0.02,
        _ => 0.0,
    };
    let [got, expected] = [got, expected].map(|array| array.as_slice::<f64>().expect("f64"));
    (got.iter().zip(expected))
        .all(|(got, expected)| (got - expected).abs() <= tolerance * (1.0 + expected.abs()))
}

/// Compares all variations, in one program for each type and number of dimensions.
fn check(spatial: usize, dtypes: &[DType]) {
    let mut failed = Vec::new();
    let all = Variation::all(spatial);
    for &dtype in dtypes {
        for (name, client) in lowered() {
            let wrong = wrong(&client, &all, dtype, 1);
            failed.extend(wrong.into_iter().map(|what| format!("{name}, {what}")));
        }
        if let Some(client) = not_lowered().filter(|_| dtype.is_float()) {
            let wrong = wrong(&client, &all, dtype, 1);
            println!("{spatial}-dimensional, not lowered: {wrong:#?}");
        }
    }
    assert!(
        failed.is_empty(),
        "{} are wrong:\n{}",
        failed.len(),
        failed.join("\n")
    );
}

#[test]
fn convolutions_of_sequences_are_right() {
    check(1, &[DType::F32, DType::Bf16]);
}

#[test]
fn convolutions_of_images_are_right() {
    check(2, &[DType::F64, DType::F16]);
}

#[test]
fn convolutions_of_volumes_are_right() {
    check(3, &[DType::F32]);
}

#[test]
fn convolutions_of_integers_are_right() {
    let integers = DType::computed().filter(|dtype| dtype.is_integer());
    let integers: Vec<_> = integers.collect();
    let tried: Vec<_> = part(&integers, &[1, integers.len() - 1]).copied().collect();
    check(1, &tried);
    check(2, &[DType::S8]);
    check(3, &[DType::S32]);
}

/// Kernels of more places than have a product each.
#[test]
fn long_kernels_of_integers_are_right() {
    let mut all = Vec::new();
    for (spatial, kernel) in [
        (1, vec![65]),
        (2, vec![3, 67]),
        (2, vec![9, 8]),
        (2, vec![70, 66]),
    ] {
        for groups in [(1, 1), (2, 1), (1, 2)] {
            let set = ["reversed in part", "strides", "kernel dilation"];
            let mut one = Variation::of(&set, spatial, groups);
            one.conv.kernel_dilation = vec![1; spatial];
            one.name = format!("{}, {kernel:?}", one.name);
            for (i, &size) in kernel.iter().enumerate() {
                one.dims[1][one.conv.kernel.spatial[i]] = size;
                one.dims[0][one.conv.input.spatial[i]] = size + 3;
            }
            all.push(one);
        }
    }
    for (name, client) in lowered() {
        for dtype in [DType::S8, DType::U32] {
            assert_eq!(wrong(&client, &all, dtype, 2), [""; 0], "{name}");
        }
    }
}
