//! Scatters that set, of which the last update of a place wins (decision 0054), with their gradients.
//!
//! `HALITE_SCATTERS` is the number of programs, of [`OF_ONE_PROGRAM`] scatters each, and
//! `HALITE_SCATTERS_SEED` the seed.

use halite_core::{Client, DType, HostArray, TensorType, tree::Leaf};
use halite_ir::{Op, ScatterAttributes, infer};
use halite_nn::{Tensor, grad};
use halite_tests::{
    eval::{host, try_eval_on},
    random::Random,
};

use crate::plugin_faults::{
    accelerator::{lowered, not_lowered, oracle},
    support::setting,
};

const OF_ONE_PROGRAM: usize = 12;

/// A scatter, and the dimensions of its operands.
#[derive(Clone, Debug)]
struct Case {
    scatter: ScatterAttributes,
    dims: [Vec<usize>; 3],
    indices: DType,
    values: DType,
}

impl Case {
    /// The first valid scatter that is drawn.
    fn draw(random: &mut Random) -> Self {
        loop {
            if let Some(case) = Case::try_draw(random) {
                return case;
            }
        }
    }

    fn try_draw(random: &mut Random) -> Option<Self> {
        let rank = 1 + random.below(4);
        let x: Vec<usize> = (0..rank)
            .map(|_| *random.pick(&[1, 2, 3, 5, 300]))
            .collect();
        let batching = random.percent(20).then(|| random.below(rank));
        let inserted: Vec<usize> = (0..rank)
            .filter(|&dim| Some(dim) != batching && random.percent(50))
            .collect();
        let moved: Vec<usize> = (0..rank)
            .filter(|&dim| Some(dim) != batching && random.percent(60))
            .collect();
        let batch: Vec<usize> = (0..1 + random.below(2)).map(|_| random.below(9)).collect();
        let mut indices = batch.clone();
        if let Some(dim) = batching {
            indices[0] = x[dim];
        }
        let vector_dim = match moved.len() {
            1 if random.percent(50) => indices.len(),
            _ => random.below(indices.len() + 1),
        };
        let mut updates = indices.clone();
        if vector_dim < indices.len() || moved.len() != 1 || random.percent(50) {
            indices.insert(vector_dim, moved.len());
        }
        let batching_of_indices = batching.map(|_| usize::from(vector_dim == 0));
        let mut windows = Vec::new();
        for dim in (0..rank).filter(|dim| !inserted.contains(dim) && Some(*dim) != batching) {
            let place = random.below(updates.len() + 1);
            let size = match random.percent(50) || !moved.contains(&dim) {
                true => x[dim],
                false => 1 + random.below(x[dim].min(4)),
            };
            // Window dimensions are ascending.
            let place = windows
                .last()
                .map_or(place, |&last: &usize| place.max(last + 1));
            let place = place.min(updates.len());
            updates.insert(place, size);
            windows.push(place);
        }
        let scatter = ScatterAttributes {
            update_window_dims: windows,
            inserted_window_dims: inserted,
            input_batching_dims: batching.into_iter().collect(),
            scatter_indices_batching_dims: batching_of_indices.into_iter().collect(),
            scatter_dims_to_operand_dims: moved,
            index_vector_dim: vector_dim,
            unique_indices: false,
            indices_are_sorted: false,
        };
        let values = *random.pick(&[DType::F32, DType::F32, DType::F16, DType::S8, DType::F64]);
        let index = *random.pick(&[DType::S32, DType::S64, DType::U8, DType::U32, DType::S8]);
        let types = [(&x, values), (&indices, index), (&updates, values)]
            .map(|(dims, dtype)| TensorType::new(dtype, dims));
        infer(&Op::Scatter(scatter.clone(), None), &types.each_ref()).ok()?;
        let is_small = types.iter().all(|ty| ty.elements() < 20_000);
        is_small.then_some(Case {
            scatter,
            dims: [x, indices, updates],
            indices: index,
            values,
        })
    }

    /// Names of the results.
    fn parts(&self) -> Vec<String> {
        let parts = [
            "result",
            "gradient of the operand",
            "gradient of the updates",
        ];
        let count = if self.values.is_float() { 3 } else { 1 };
        let named = parts[..count].iter();
        named.map(|part| format!("{part} of {self:?}")).collect()
    }

    /// Values that are all different within the exact range of most types, and indices of which some
    /// are out of range.
    fn inputs(&self, random: &mut Random) -> Vec<HostArray> {
        let [x, indices, updates] = &self.dims;
        let count = |dims: &[usize]| dims.iter().product::<usize>();
        let old: Vec<f64> = (0..count(x)).map(|i| -1.0 - (i % 100) as f64).collect();
        let new: Vec<f64> = (0..count(updates)).map(|i| (i % 120) as f64).collect();
        let at: Vec<f64> = (0..count(indices))
            .map(|_| random.below(6) as f64 - 1.0)
            .collect();
        vec![host(&old, x), host(&at, indices), host(&new, updates)]
    }

    /// The result, and of floats the gradients.
    fn results<'t>(&self, x: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
        let [old, new] = [x[0], x[2]].map(|x| x.convert(self.values));
        // -1 is the largest number of an unsigned type.
        let at = x[1].convert(DType::S64).convert(self.indices);
        let y = old.scatter(at, new, self.scatter.clone(), None);
        let mut results = vec![y];
        if self.values.is_float() {
            let cx = y.trace();
            let weights = cx.arange(y.ty().elements(), DType::S32) % 50 + 1;
            let weights = weights.convert(self.values).reshape(y.dims());
            let gradients = grad((y * weights).sum_all(), &[old, new].map(Leaf));
            results.extend(gradients.map(|gradient| gradient.0));
        }
        results
            .iter()
            .map(|result| result.convert(DType::F64))
            .collect()
    }
}

fn each<'t>(cases: &[Case], x: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
    (cases.iter().zip(x.chunks(3)))
        .flat_map(|(case, x)| case.results(x))
        .collect()
}

#[test]
fn last_update_wins() {
    let count = setting("HALITE_SCATTERS", 6);
    let seed = setting("HALITE_SCATTERS_SEED", 1);
    let mut failed = Vec::new();
    for number in 0..count {
        let mut random = Random::new(seed, number);
        let cases: Vec<Case> = (0..OF_ONE_PROGRAM)
            .map(|_| Case::draw(&mut random))
            .collect();
        let inputs: Vec<HostArray> = cases
            .iter()
            .flat_map(|case| case.inputs(&mut random))
            .collect();
        let results = |client: &Client| {
            let cases = cases.clone();
            try_eval_on(client, move |_, x| each(&cases, x), &inputs).unwrap()
        };
        let expected = results(oracle());
        let parts: Vec<String> = cases.iter().flat_map(Case::parts).collect();
        let wrong = |got: &[HostArray]| -> Vec<String> {
            (got.iter().zip(&expected).zip(&parts))
                .filter(|((got, expected), _)| got != expected)
                .map(|(_, part)| part.clone())
                .collect()
        };
        for (name, client) in lowered() {
            let wrong = wrong(&results(&client));
            failed.extend(
                wrong
                    .into_iter()
                    .map(|part| format!("program {number}, {name}: {part}")),
            );
        }
        if let Some(client) = not_lowered() {
            println!(
                "program {number}, not lowered: {:#?}",
                wrong(&results(&client))
            );
        }
    }
    assert!(
        failed.is_empty(),
        "{} differ (HALITE_SCATTERS_SEED={seed}):\n{}",
        failed.len(),
        failed.join("\n")
    );
}
