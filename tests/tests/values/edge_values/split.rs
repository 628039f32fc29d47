//! Every row on several devices: its results and gradients are those of one device, whatever the
//! shardings of inputs and results.

use std::sync::{Arc, OnceLock};

use halite_backends::Accelerator;
use halite_core::{
    Array, Client, DType, HostArray, Mesh, MeshShape, PartitionSpec, Result, Sharding, TensorType,
    tree::{Empty, Leaf, Tree},
};
use halite_nn::Jit;
use halite_tests::{eval, long::is_long, parallel};

use crate::edge_values::{
    draw::Random,
    job::every_result,
    table::{Form, Row, all},
};

/// Environment variable with the number of rounds over all rows.
const ROUNDS: &str = "HALITE_SPLIT_ROWS";

/// Environment variable with the seed of the first round.
const SEED: &str = "HALITE_SPLIT_ROWS_SEED";

const MESHES: [&[(&str, usize)]; 6] = [
    &[("a", 2)],
    &[("a", 4)],
    &[("a", 3)],
    &[("a", 2), ("b", 2)],
    &[("a", 3), ("b", 2)],
    &[("a", 2), ("b", 2), ("c", 2)],
];

/// A row with inputs and where they are.
struct Case {
    row: &'static Row,
    seed: u64,
    mesh: MeshShape,
    inputs: Vec<(HostArray, PartitionSpec)>,
}

impl Case {
    fn draw(row: &'static Row, seed: u64) -> Self {
        let mut random = Random(seed);
        let axes = MESHES[random.below(MESHES.len())];
        let mesh = MeshShape::new(axes.iter().copied()).expect("axes of different names");
        let inputs = types(row)
            .into_iter()
            .map(|ty| {
                let spec = spec(&mut random, &ty, &mesh);
                (random.ordinary(ty), spec)
            })
            .collect();
        Case {
            row,
            seed,
            mesh,
            inputs,
        }
    }

    /// Results and gradients on a mesh of this shape.
    fn run(&self, client: &Client, shape: &MeshShape) -> Result<Vec<HostArray>> {
        type Many = Vec<Leaf<()>>;
        let devices = client.local_devices()[..shape.size()].to_vec();
        let mesh = Arc::new(Mesh::new(shape.axes(), devices)?);
        let row = self.row;
        let jit = Jit::<Empty<()>, Many, Many>::new(client, move |_, _, inputs| {
            let results = every_result(&[row], &inputs.into_leaves());
            (Empty::new(), results.into_iter().map(Leaf).collect())
        });
        let (split, seed) = ((shape.size() > 1).then(|| shape.clone()), self.seed);
        let jit = jit.on(&mesh).output_specs(move |path, ty| {
            let index = path.bytes().map(u64::from).sum::<u64>();
            let random = &mut Random(seed + 1000 * index);
            let on = |mesh| spec(random, ty, mesh);
            split.as_ref().map_or_else(PartitionSpec::replicated, on)
        });
        let upload = |(input, spec): &(HostArray, PartitionSpec)| {
            let spec = match shape.size() {
                1 => PartitionSpec::replicated(),
                _ => spec.clone(),
            };
            Array::upload(client, input, &Sharding::new(&mesh, spec)?).map(Leaf)
        };
        let arrays = self.inputs.iter().map(upload).collect::<Result<Vec<_>>>()?;
        let (_, outputs) = jit.call(Empty::new(), &arrays)?;
        outputs.iter().map(Array::read).collect()
    }

    /// How the results on several devices differ from those on one.
    fn difference(&self, client: &Client) -> Option<String> {
        let one = MeshShape::new([("a", 1)]).expect("one axis");
        let specs: Vec<String> = self
            .inputs
            .iter()
            .map(|(_, spec)| spec.to_string())
            .collect();
        let what = |message: String| {
            let (name, mesh) = (self.row.name, &self.mesh);
            format!(
                "{name} on {mesh:#}, inputs {specs:?}, seed {}: {message}",
                self.seed
            )
        };
        let whole = match self.run(client, &one) {
            Ok(whole) => whole,
            Err(error) => return Some(what(format!("on one device: {error}"))),
        };
        let split = match self.run(client, &self.mesh) {
            Ok(split) => split,
            Err(error) => return Some(what(error.to_string())),
        };
        let mut pairs = whole.iter().zip(&split).enumerate();
        pairs.find_map(|(index, (whole, split))| {
            let difference = differs(whole, split)?;
            Some(what(format!(
                "result {index}, {}: {difference}",
                whole.ty()
            )))
        })
    }
}

/// Types that many meshes divide; the widest floats that the row accepts.
pub(crate) fn types(row: &Row) -> Vec<TensorType> {
    let accepted = [DType::F64, DType::F32];
    let float = accepted
        .into_iter()
        .find(|dtype| row.dtypes.contains(dtype));
    let dtype = float.unwrap_or(row.dtypes[0]);
    let of = |dims: &[usize]| TensorType::new(dtype, dims);
    let f32s = |dims: &[usize]| TensorType::new(DType::F32, dims);
    match row.form {
        Form::Each => vec![of(&[24])],
        Form::Pairs => vec![of(&[24]), of(&[24])],
        Form::Rows => vec![of(&[16, 12])],
        Form::Indices => vec![of(&[8]), f32s(&[12])],
        Form::Labels => vec![of(&[8]), f32s(&[8, 4])],
        Form::Cubes => vec![of(&[4, 6, 8])],
    }
}

/// A spec whose axes divide the dimensions; few of them are left out.
fn spec(random: &mut Random, ty: &TensorType, mesh: &MeshShape) -> PartitionSpec {
    let mut dims = vec![Vec::new(); ty.rank()];
    let mut open = ty.dims().to_vec();
    for (axis, size) in mesh.axes() {
        let dim = random.below(ty.rank().max(1));
        let is_left_out = random.below(4) == 0;
        if !is_left_out && dim < ty.rank() && open[dim].is_multiple_of(size) {
            dims[dim].push(axis.to_owned());
            open[dim] /= size;
        }
    }
    PartitionSpec::new(dims)
}

/// The first difference that rounding does not explain.
fn differs(whole: &HostArray, split: &HostArray) -> Option<String> {
    let dtype = whole.ty().dtype();
    if !dtype.is_float() {
        let elements = |array: &HostArray| -> Vec<Vec<u8>> {
            array
                .bytes()
                .chunks_exact(dtype.size())
                .map(<[u8]>::to_vec)
                .collect()
        };
        let (whole, split) = (elements(whole), elements(split));
        let mut pairs = whole.iter().zip(&split).enumerate();
        let found = pairs.find(|(_, (whole, split))| whole != split);
        return found
            .map(|(at, (whole, split))| format!("element {at} is {split:?}, not {whole:?}"));
    }
    let tolerance = if dtype == DType::F64 { 1e-8 } else { 1e-4 };
    let [whole, split] = [whole, split].map(|array| array.to_float(DType::F64).expect("numbers"));
    let [whole, split] = [&whole, &split].map(|array| array.as_slice::<f64>().expect("floats"));
    let finite = whole.iter().filter(|value| value.is_finite());
    let largest = finite.fold(1.0, |most: f64, value| most.max(value.abs()));
    let same = |whole: f64, split: f64| {
        let both_nan = whole.is_nan() && split.is_nan();
        whole == split || both_nan || (whole - split).abs() <= tolerance * largest
    };
    let mut pairs = whole.iter().zip(split).enumerate();
    pairs
        .find(|(_, (whole, split))| !same(**whole, **split))
        .map(|(at, (whole, split))| format!("element {at} is {split}, not {whole}"))
}

fn embedded() -> &'static Client {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    CLIENT.get_or_init(|| {
        let embedded = Accelerator::Embedded { devices: Some(8) };
        embedded.open().expect("halite contains it")
    })
}

#[test]
fn rows_compute_the_same_on_several_devices() {
    if !eval::has_devices(8) {
        return;
    }
    let setting = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(
            text.parse::<u64>()
                .unwrap_or_else(|_| panic!("{name}={text}: expected a number")),
        )
    };
    let (rounds, seed) = (setting(ROUNDS).unwrap_or(1), setting(SEED).unwrap_or(1));
    let only = std::env::var(crate::edge_values::ONLY).ok();
    let cases = (seed..seed + rounds).flat_map(|round| {
        let rows = all().enumerate();
        rows.map(move |(number, row)| Case::draw(row, 1_000_000 * round + number as u64))
    });
    let cases: Vec<Case> = cases
        .enumerate()
        // A third of the rows, unless a row or a campaign is asked for.
        .filter(|(number, _)| is_long() || only.is_some() || rounds > 1 || number % 3 == 0)
        .map(|(_, case)| case)
        .filter(|case| only.as_deref().is_none_or(|only| only == case.row.name))
        .collect();
    let count = cases.len();
    let wrong = parallel::map(2, 0..count as u64, |index| {
        let case = &cases[index as usize];
        [("cpu", eval::client()), ("embedded", embedded())]
            .into_iter()
            .filter_map(|(name, client)| Some(format!("{name}: {}", case.difference(client)?)))
            .inspect(|wrong| eprintln!("{wrong}"))
            .collect::<Vec<_>>()
    });
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(
        wrong.is_empty(),
        "{} of {count}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
