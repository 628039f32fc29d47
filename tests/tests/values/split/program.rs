//! One random program: how it is traced, run and made smaller.

use std::sync::Arc;

use halite_core::{
    Array, Client, DType, HostArray, Mesh, MeshShape, PartitionSpec, Result, Sharding, TensorType,
    tree::{Empty, Leaf, Tree},
};
use halite_nn::{Jit, Tensor, Trace, grad};
use halite_tests::{eval::noise, random::Random};

use crate::split::{draw, operations};

/// Difference that rounding in `f64` may make, relative to the largest element.
const TOLERANCE: f64 = 1e-8;

/// A program that is drawn while it is traced: a step depends on the seed, its number, and the steps
/// before.
#[derive(Clone)]
pub(crate) struct Program {
    seed: u64,
    mesh: MeshShape,
    inputs: Vec<(TensorType, PartitionSpec)>,
    steps: u64,
    /// Steps whose results count neither as results nor for the loss.
    unused: Vec<u64>,
    /// Whether intermediate results have sharding constraints.
    constrained: bool,
    /// Whether results are sharded.
    sharded_results: bool,
}

/// What came of a comparison.
pub(crate) enum Outcome {
    Same,
    Refused(String),
    Differs(String),
}

impl Program {
    pub(crate) fn new(seed: u64) -> Self {
        let random = &mut Random::new(seed, 0);
        let mesh = draw::mesh(random);
        let inputs = (0..1 + random.below(2))
            .map(|_| {
                let ty = draw::input(random);
                let spec = draw::spec(random, &ty, &mesh);
                (ty, spec)
            })
            .collect();
        Program {
            seed,
            mesh,
            inputs,
            steps: 3 + random.below(5) as u64,
            unused: Vec::new(),
            constrained: random.percent(60),
            sharded_results: random.percent(40),
        }
    }

    /// The results of all steps, then the gradients of a loss of all of them by the inputs. Returns
    /// the names of the results, too.
    fn trace<'t>(
        &self,
        cx: &'t Trace,
        inputs: &[Tensor<'t>],
        is_split: bool,
    ) -> (Vec<String>, Vec<Tensor<'t>>) {
        let mut pool = inputs.to_vec();
        let (mut names, mut results, mut losses) = (Vec::new(), Vec::new(), Vec::new());
        for step in 1..=self.steps {
            let random = &mut Random::new(self.seed, step);
            let drawn = operations::draw(random, cx, &pool, inputs.len(), (&self.mesh, is_split));
            let spec_random = &mut Random::new(self.seed, step + 1000);
            let Some((mut name, mut result)) = drawn else {
                continue;
            };
            if self.constrained && spec_random.percent(40) {
                let spec = draw::spec(spec_random, &result.ty(), &self.mesh);
                name += &format!(", on {spec}");
                result = result.sharding_constraint(spec);
            }
            name = format!("%{} = {name}: {}", pool.len(), result.ty());
            pool.push(result);
            if self.unused.contains(&step) {
                names.push(format!("{name}, no result"));
                results.push(cx.scalar(0.0, DType::F64));
            } else {
                names.push(name);
                results.push(result);
                losses.push(loss(cx, result, step as f64));
            }
        }
        if let Some(loss) = losses.into_iter().reduce(|a, b| a + b) {
            let inputs: Vec<Leaf<Tensor<'t>>> = inputs.iter().copied().map(Leaf).collect();
            results.extend(grad(loss, &inputs).into_leaves());
            names.extend((0..inputs.len()).map(|input| format!("gradient of %{input}")));
        }
        (names, results)
    }

    /// The names of the results: the steps, then the gradients.
    fn names(&self) -> Vec<String> {
        let cx = Trace::new();
        let inputs: Vec<Tensor<'_>> = (self.inputs.iter())
            .map(|(ty, _)| cx.input(ty.clone(), "x"))
            .collect();
        self.trace(&cx, &inputs, false).0
    }

    fn run(&self, client: &Client, mesh: &MeshShape) -> Result<Vec<HostArray>> {
        type Many = Vec<Leaf<()>>;
        let (traced, is_split) = (self.clone(), mesh.size() > 1);
        let devices = &client.local_devices()[..mesh.size()];
        let mesh = Arc::new(Mesh::new(mesh.axes(), devices.iter().copied())?);
        let jit = Jit::<Empty<()>, Many, Many>::new(client, move |cx, _, inputs| {
            let results = traced.trace(cx, &inputs.into_leaves(), is_split).1;
            (Empty::new(), results.into_iter().map(Leaf).collect())
        });
        let (shape, seed, sharded) = (self.mesh.clone(), self.seed, self.sharded_results);
        let jit = jit.on(&mesh).output_specs(move |path, ty| {
            let index = path
                .bytes()
                .fold(0, |hash, byte| hash * 31 + u64::from(byte));
            let random = &mut Random::new(seed, index + 100_000);
            match sharded && is_split {
                true => draw::spec(random, ty, &shape),
                false => PartitionSpec::replicated(),
            }
        });
        let upload = |(index, (ty, spec)): (usize, &(TensorType, PartitionSpec))| {
            let values = noise(self.seed + index as u64, ty.dims(), -1.0, 1.0);
            let spec = if is_split {
                spec.clone()
            } else {
                PartitionSpec::replicated()
            };
            let sharding = Sharding::new(&mesh, spec)?;
            Array::upload(client, &values, &sharding).map(Leaf)
        };
        let arrays = (self.inputs.iter().enumerate().map(upload)).collect::<Result<Vec<_>>>()?;
        let (_, outputs) = jit.call(Empty::new(), &arrays)?;
        outputs.iter().map(Array::read).collect()
    }

    /// Compares the program on its mesh with one device.
    pub(crate) fn compare(&self, client: &Client) -> Outcome {
        let one = MeshShape::new([("a", 1)]).expect("one axis");
        let results = |mesh| self.run(client, mesh);
        let (whole, split) = match (results(&one), results(&self.mesh)) {
            (Ok(whole), Ok(split)) => (whole, split),
            (Err(error), _) | (_, Err(error)) => return Outcome::Refused(error.to_string()),
        };
        for ((whole, split), name) in whole.iter().zip(&split).zip(self.names()) {
            if let Some(difference) = difference(whole, split) {
                return Outcome::Differs(format!("{name}: {difference}"));
            }
        }
        Outcome::Same
    }

    fn differs(&self, client: &Client) -> bool {
        matches!(self.compare(client), Outcome::Differs(_))
    }

    /// Describes a program with fewer steps and constraints that differs, too.
    pub(crate) fn smaller(mut self, client: &Client) -> String {
        for step in 1..=self.steps {
            let mut without = self.clone();
            without.unused.push(step);
            if without.differs(client) {
                self = without;
            }
        }
        for simplify in [
            |program: &mut Program| program.constrained = false,
            |program: &mut Program| program.sharded_results = false,
        ] {
            let mut simpler = self.clone();
            simplify(&mut simpler);
            if simpler.differs(client) {
                self = simpler;
            }
        }
        self.describe(client)
    }

    fn describe(&self, client: &Client) -> String {
        let mut lines = vec![format!("mesh {:#}", self.mesh)];
        for (index, (ty, spec)) in self.inputs.iter().enumerate() {
            lines.push(format!("%{index}: {ty} on {spec}"));
        }
        lines.extend(self.names());
        if self.sharded_results {
            lines.push("results are sharded".to_owned());
        }
        if let Outcome::Differs(what) = self.compare(client) {
            lines.push(format!("differs: {what}"));
        }
        lines.join("\n")
    }
}

/// A scalar that depends on all elements of a tensor, each in another way.
fn loss<'t>(cx: &'t Trace, x: Tensor<'t>, rate: f64) -> Tensor<'t> {
    let waves = (cx.iota(&x.flatten().ty(), 0) * rate).sin();
    (x.tanh() * waves.reshape(x.dims())).sum_all()
}

/// The first difference that rounding does not explain.
fn difference(whole: &HostArray, split: &HostArray) -> Option<String> {
    let [whole, split] = [whole, split].map(|array| array.to_float(DType::F64).expect("floats"));
    let [whole, split] = [&whole, &split].map(|array| array.as_slice::<f64>().expect("floats"));
    let largest = whole
        .iter()
        .fold(1.0, |most: f64, value| most.max(value.abs()));
    let mut pairs = whole.iter().zip(split).enumerate();
    let same = |whole: f64, split: f64| {
        let both_nan = whole.is_nan() && split.is_nan();
        whole == split || both_nan || (whole - split).abs() <= TOLERANCE * largest
    };
    pairs
        .find(|(_, (whole, split))| !same(**whole, **split))
        .map(|(at, (whole, split))| format!("element {at} is {split}, not {whole}"))
}
