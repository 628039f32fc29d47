//! Random convolutions with their gradients, on the plugin and the embedded executor.
//!
//! `HALITE_CONVOLUTIONS` is the number of programs, of [`OF_ONE_PROGRAM`] convolutions each, and
//! `HALITE_CONVOLUTIONS_SEED` the seed.

use halite_core::{DType, HostArray, Kernels, TensorType, tree::Leaf};
use halite_ir::{ConvolutionAttributes, ConvolutionDims, Op, infer};
use halite_nn::{Tensor, grad};
use halite_tests::{eval::try_eval_on, random::Random};

use crate::plugin_faults::support::{embedded, plugin, setting};

/// Convolutions of one program: compiling has a price for each.
const OF_ONE_PROGRAM: u64 = 12;

/// A convolution and the types of its operands and of the result.
#[derive(Clone, Debug)]
struct Case {
    conv: ConvolutionAttributes,
    types: [TensorType; 3],
}

impl Case {
    /// The first valid convolution that is drawn.
    fn draw(random: &mut Random) -> Self {
        loop {
            if let Some(case) = Case::try_draw(random) {
                return case;
            }
        }
    }

    fn try_draw(random: &mut Random) -> Option<Self> {
        let spatial = *random.pick(&[1, 1, 1, 2, 2, 3]);
        let (feature_groups, batch_groups) =
            *random.pick(&[(1, 1), (1, 1), (1, 1), (2, 1), (1, 2)]);
        let mut each =
            |of: &[usize]| -> Vec<usize> { (0..spatial).map(|_| *random.pick(of)).collect() };
        let sizes = each(&[1, 2, 4, 5, 6, 7, 9]);
        let kernel = each(&[1, 2, 3, 4]);
        let strides = each(&[1, 1, 2, 3]);
        let input_dilation = each(&[1, 1, 1, 1, 1, 2, 3]);
        let kernel_dilation = each(&[1, 1, 1, 1, 2]);
        let reversal = each(&[0, 0, 0, 0, 1]).into_iter().map(|one| one == 1);
        let reversal = reversal.collect();
        let padding: Vec<(i64, i64)> = (0..spatial).map(|_| draw_padding(random)).collect();
        let dtype = *random.pick(&[DType::F32, DType::F32, DType::Bf16, DType::F16, DType::F64]);
        let batch = batch_groups * *random.pick(&[1, 2]);
        let features = [*random.pick(&[1, 2, 3]), *random.pick(&[1, 2, 3])];
        let [input, window, output] = draw_layout(random, spatial);
        let conv = ConvolutionAttributes {
            input,
            kernel: window,
            output,
            strides,
            padding,
            input_dilation,
            kernel_dilation,
            reversal,
            feature_groups,
            batch_groups,
            precision: Vec::new(),
        };
        let groups = feature_groups * batch_groups;
        let x = arranged(&conv.input, batch, features[0] * feature_groups, &sizes);
        let k = arranged(&conv.kernel, features[1] * groups, features[0], &kernel);
        let [x, k] = [x, k].map(|dims| TensorType::new(dtype, dims));
        let op = Op::Convolution(conv.clone(), dtype);
        let y = infer(&op, &[&x, &k]).ok()?.remove(0);
        let is_usable = !y.dims().contains(&0) && y.elements() < 2000;
        is_usable.then_some(Case {
            conv,
            types: [x, k, y],
        })
    }

    /// Small integers, whose sums are exact in most types.
    fn inputs(&self, random: &mut Random) -> Vec<HostArray> {
        let draw = |ty: &TensorType| {
            let values: Vec<f64> = (0..ty.elements())
                .map(|_| random.below(5) as f64 - 2.0)
                .collect();
            let host = HostArray::from_slice(&values, ty.dims()).expect("one for each element");
            host.to_float(ty.dtype())
                .expect("integers are numbers of each type")
        };
        self.types.iter().map(draw).collect()
    }

    /// The result and the gradients of the operands.
    fn results<'t>(&self, x: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
        let y = x[0].conv_general(x[1], self.conv.clone(), x[0].dtype());
        let gradients = grad((y * x[2]).sum_all(), &[x[0], x[1]].map(Leaf));
        let [of_x, of_kernel] = gradients.map(|gradient| gradient.0);
        vec![y, of_x, of_kernel]
    }
}

/// Mostly a cut before and padding after.
fn draw_padding(random: &mut Random) -> (i64, i64) {
    let mut edge = |of: &[i64]| *random.pick(of);
    match edge(&[0, 1, 1, 2]) {
        0 => (edge(&[0, 1, 2]), edge(&[0, 1, 2])),
        1 => (-edge(&[1, 2, 3, 4, 5, 7]), edge(&[1, 2, 3, 4, 5, 7])),
        _ => (edge(&[-3, -1, 2, 3, 4, 7]), edge(&[-8, -3, -1, 0, 3, 6])),
    }
}

/// Dimension numbers of the input, the kernel and the output: channels last, first, or the input of
/// a kernel gradient.
fn draw_layout(random: &mut Random, spatial: usize) -> [ConvolutionDims; 3] {
    let dims = |batch, feature, first: usize| ConvolutionDims {
        batch,
        feature,
        spatial: (first..first + spatial).collect(),
    };
    let (last, rank) = (spatial + 1, spatial);
    match random.below(3) {
        0 => [dims(0, last, 1), dims(last, rank, 0), dims(0, last, 1)],
        1 => [dims(0, 1, 2), dims(0, 1, 2), dims(0, 1, 2)],
        _ => [dims(last, 0, 1), dims(last, 0, 1), dims(rank, last, 0)],
    }
}

/// Sizes in the order of these dimension numbers.
fn arranged(dims: &ConvolutionDims, batch: usize, feature: usize, spatial: &[usize]) -> Vec<usize> {
    let mut sizes = vec![0; spatial.len() + 2];
    (sizes[dims.batch], sizes[dims.feature]) = (batch, feature);
    for (&dim, &size) in dims.spatial.iter().zip(spatial) {
        sizes[dim] = size;
    }
    sizes
}

#[test]
fn random_convolutions_agree() {
    let count = setting("HALITE_CONVOLUTIONS", 4);
    let seed = setting("HALITE_CONVOLUTIONS_SEED", 1);
    let mut wrong = Vec::new();
    for number in 0..count {
        let mut random = Random::new(seed, number);
        let cases: Vec<Case> = (0..OF_ONE_PROGRAM)
            .map(|_| Case::draw(&mut random))
            .collect();
        let inputs: Vec<HostArray> = (cases.iter())
            .flat_map(|case| case.inputs(&mut random))
            .collect();
        let kernels = [Kernels::Off, Kernels::On, Kernels::All][number as usize % 3];
        let mut capabilities = plugin().capabilities();
        capabilities.kernels = kernels;
        let client = plugin().clone().with_capabilities(capabilities);
        let results = |client| {
            let cases = cases.clone();
            try_eval_on(client, move |_, x| each(&cases, x), &inputs).unwrap()
        };
        let (got, expected) = (results(&client), results(embedded()));
        for (index, (got, expected)) in got.iter().zip(&expected).enumerate() {
            if !agree(got, expected) {
                let what = ["result", "gradient of the input", "gradient of the kernel"][index % 3];
                wrong.push(format!(
                    "program {number}, {kernels:?}: {what} of {:?}",
                    cases[index / 3]
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} differ (HALITE_CONVOLUTIONS_SEED={seed}):\n{}",
        wrong.len(),
        3 * count * OF_ONE_PROGRAM,
        wrong.join("\n")
    );
}

fn each<'t>(cases: &[Case], x: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
    (cases.iter().zip(x.chunks(3)))
        .flat_map(|(case, x)| case.results(x))
        .collect()
}

/// Whether each element differs by rounding only.
fn agree(got: &HostArray, expected: &HostArray) -> bool {
    let tolerance = match expected.ty().dtype() {
        DType::F64 | DType::F32 => 0.0,
        _ => 0.02,
    };
    let [got, expected] = [got, expected].map(|array| array.to_float(DType::F64).unwrap());
    let [got, expected] = [&got, &expected].map(|array| array.as_slice::<f64>().unwrap());
    (got.iter().zip(expected))
        .all(|(got, expected)| (got - expected).abs() <= tolerance * (1.0 + expected.abs()))
}
