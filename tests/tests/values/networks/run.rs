//! Running networks and comparing their gradients.

use std::sync::OnceLock;

use halite_backends::{Accelerator, CompileCacheOptions, OpenOptions};
use halite_core::{
    Arg, Client, CompileOptions, DType, DTypePolicy, DeviceBuffers, HostArray, HostBytes, Loaded,
    Narrowing, Result,
};
use halite_fetch::Quiet;
use halite_ir::{Graph, Interface, narrow_convolutions, optimize, unrolled, with_precision};
use halite_tests::eval::{self, program};

use crate::networks::{
    build::{Built, Rounding, Spec, barriered, build, perturbed, units},
    description::{Network, mix},
};

/// Difference of a directional derivative from the finite difference, relative to the gradient's
/// norm.
const DIFFERENCE_TOLERANCE: f64 = 1e-5;

/// Difference of a parameter's gradient in `f32` from that in `f64`, relative to its norm.
const ROUNDING_TOLERANCE: f64 = 2e-3;

/// Difference of a parameter's gradient in mixed precision from that in `f64`, relative to its
/// norm. Of 48 networks the largest was 0.27 and the median 0.011; a wrong rule differs by about 1.
const MIXED_TOLERANCE: f64 = 0.4;

/// How many times larger a difference in `f32` may be than what rounding errors in `f64` explain,
/// where both are large.
const SIMILAR: f64 = 20.0;

/// Number of random choices of rounding errors, of which the one with the largest effect counts.
const PERTURBATIONS: u64 = 4;

/// How many points are tried. At a point beside a kink or a tie, one rounding error changes an
/// element's gradient, so what is wrong at one point may be right; a wrong rule is wrong at all of
/// them.
const POINTS: u64 = 4;

/// The accelerator of the tests, whose gradients are checked: by default XLA's CPU plugin.
fn checked() -> &'static Client {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    CLIENT.get_or_init(|| open(&eval::named().unwrap_or(Accelerator::cpu())))
}

/// The embedded executor, which runs programs in `f64` as plain loops, and rounds each operation
/// alone. It shares no code with XLA, and compiles in a hundredth of the time.
fn embedded() -> &'static Client {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    CLIENT.get_or_init(|| open(&Accelerator::Embedded { devices: None }))
}

/// One device without a compile cache: thousands of programs run once.
fn open(accelerator: &Accelerator) -> Client {
    let compile_cache: CompileCacheOptions = "off".parse().expect("a setting of compile caches");
    let options = OpenOptions {
        compile_cache: Some(compile_cache),
        ..OpenOptions::default()
    };
    let opened = accelerator.open_with(&options, &mut Quiet);
    opened
        .unwrap_or_else(|error| panic!("the tests need {accelerator}: {error}"))
        .client
}

/// A compiled program of a network.
pub(crate) struct Compiled {
    client: &'static Client,
    loaded: Loaded,
    specs: Vec<Spec>,
    dtype: DType,
}

/// A loss and its gradients.
#[derive(Clone, Debug)]
pub(crate) struct Evaluated {
    pub(crate) loss: f64,
    /// By differentiated input.
    pub(crate) gradients: Vec<Vec<f64>>,
}

impl Compiled {
    fn new(client: &'static Client, graph: Graph, specs: Vec<Spec>, dtype: DType) -> Result<Self> {
        let program = program(
            &optimize(graph),
            &Interface {
                replicas: 1,
                ..Interface::new("network")
            },
        )?;
        let options = CompileOptions {
            devices: client.local_devices()[..1].to_vec(),
            ..CompileOptions::default()
        };
        let loaded = client.compile(&program, &options)?;
        Ok(Compiled {
            client,
            loaded,
            specs,
            dtype,
        })
    }

    /// The program of a network in an element type.
    pub(crate) fn of(network: &Network, dtype: DType) -> Result<Self> {
        let Built { graph, specs } = build(network, dtype)?;
        Compiled::new(checked(), graph, specs, dtype)
    }

    /// The program of a network in the embedded executor.
    fn reference(network: &Network, dtype: DType) -> Result<Self> {
        let Built { graph, specs } = build(network, dtype)?;
        Compiled::new(embedded(), graph, specs, dtype)
    }

    /// The same with loops unrolled and every operation behind a barrier.
    pub(crate) fn with_barriers(network: &Network, dtype: DType) -> Result<Self> {
        let Built { graph, specs } = build(network, dtype)?;
        let graph = barriered(&unrolled(graph, usize::MAX));
        Compiled::new(checked(), graph, specs, dtype)
    }

    /// The program of a network in the embedded executor, in `f64` with errors of this size.
    fn perturbed(network: &Network, rounding: Rounding, seed: u64) -> Result<Self> {
        let Built { graph, specs } = build(network, DType::F64)?;
        let graph = perturbed(&graph, rounding, seed);
        Compiled::new(embedded(), graph, specs, DType::F64)
    }

    /// The program of a network in mixed precision, in the form for NVIDIA GPUs.
    fn mixed(network: &Network) -> Result<Self> {
        let Built { graph, specs } = build(network, DType::F32)?;
        let graph = with_precision(graph, &DTypePolicy::BF16_MIXED, &Narrowing::Everywhere);
        let graph = narrow_convolutions(unrolled(graph, usize::MAX));
        Compiled::new(checked(), graph, specs, DType::F32)
    }

    /// Values of all inputs.
    pub(crate) fn point(&self, seed: u64) -> Vec<Vec<f64>> {
        self.specs
            .iter()
            .enumerate()
            .map(|(index, spec)| spec.draw(seed, index))
            .collect()
    }

    /// Numbers between -1 and 1 for each element that is differentiated by; none for other inputs.
    pub(crate) fn direction(&self, seed: u64) -> Vec<Vec<f64>> {
        let along = |(index, spec): (usize, &Spec)| match spec.is_differentiated() {
            true => units(
                mix(seed ^ 0xd1ec) ^ index as u64,
                spec.dims.iter().product(),
            )
            .map(|unit| 2.0 * unit - 1.0)
            .collect(),
            false => Vec::new(),
        };
        self.specs.iter().enumerate().map(along).collect()
    }

    pub(crate) fn run(&self, point: &[Vec<f64>]) -> Result<Evaluated> {
        let device = self.client.local_devices()[0];
        let mut buffers = Vec::new();
        for (spec, values) in self.specs.iter().zip(point) {
            let array = match (spec.is_integer(), self.dtype) {
                (true, _) => HostArray::from_slice(
                    &values.iter().map(|&value| value as i32).collect::<Vec<_>>(),
                    &spec.dims,
                )?,
                (false, DType::F64) => HostArray::from_slice(values, &spec.dims)?,
                (false, _) => HostArray::from_slice(
                    &values.iter().map(|&value| value as f32).collect::<Vec<_>>(),
                    &spec.dims,
                )?,
            };
            buffers.push(self.client.upload(
                HostBytes::Borrowed(array.bytes()),
                array.ty(),
                device.into(),
            )?);
        }
        let outputs = self
            .loaded
            .launch(buffers.iter().map(Arg::Borrow).collect())?;
        let mut results = Vec::new();
        for buffer in outputs.iter().map(DeviceBuffers::first) {
            let mut host = HostArray::zeros(buffer.tensor_type().clone());
            buffer.read(host.bytes_mut())?;
            results.push(host.to_float(DType::F64)?.as_slice::<f64>()?.to_vec());
        }
        let gradients = results.split_off(1);
        Ok(Evaluated {
            loss: results[0][0],
            gradients,
        })
    }
}

impl Evaluated {
    pub(crate) fn norm(&self) -> f64 {
        self.gradients
            .iter()
            .flatten()
            .map(|g| g * g)
            .sum::<f64>()
            .sqrt()
    }

    /// The derivative along a direction.
    pub(crate) fn along(&self, direction: &[Vec<f64>]) -> f64 {
        let directions = direction.iter().filter(|along| !along.is_empty());
        directions
            .zip(&self.gradients)
            .flat_map(|(along, g)| along.iter().zip(g))
            .map(|(along, g)| along * g)
            .sum()
    }

    fn is_finite(&self) -> bool {
        self.loss.is_finite() && self.gradients.iter().flatten().all(|g| g.is_finite())
    }

    /// The largest difference of a parameter's gradient, relative to its norm, or to a part of the
    /// whole norm if that is larger: some gradients are 0 but for rounding, as of a bias before a
    /// norm.
    pub(crate) fn distance(&self, right: &Evaluated) -> f64 {
        let floor = 0.03 * right.norm();
        let norm = |values: &mut dyn Iterator<Item = f64>| {
            values.map(|value| value * value).sum::<f64>().sqrt()
        };
        let of_one = |(a, b): (&Vec<f64>, &Vec<f64>)| {
            norm(&mut a.iter().zip(b).map(|(a, b)| a - b)) / (norm(&mut b.iter().copied()) + floor)
        };
        // `f64::max` leaves NaN out.
        self.gradients
            .iter()
            .zip(&right.gradients)
            .map(of_one)
            .fold(0.0, |most, one| {
                if one > most || one.is_nan() {
                    one
                } else {
                    most
                }
            })
    }
}

/// What a check found where nothing is wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passed {
    /// Whether the first point was beside a kink.
    pub(crate) kink: bool,
    /// Whether the network is flat or overflows, so that nothing was compared.
    pub(crate) unusable: bool,
    /// Whether rounding errors explain what differs, as of norms of nearly equal values.
    pub(crate) ill_conditioned: bool,
}

/// What is compiled of a network beside its programs in `f64` and `f32`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variants {
    /// In `f32` with every operation behind an optimization barrier.
    pub(crate) barriers: bool,
    /// In bf16-mixed precision.
    pub(crate) mixed: bool,
}

/// The compiled programs of a network.
struct Programs {
    /// In `f64`, by plain loops.
    exact: Compiled,
    /// In `f32`, by XLA.
    rounded: Compiled,
    barriers: Option<Compiled>,
    mixed: Option<Compiled>,
}

impl Programs {
    fn of(network: &Network, variants: Variants) -> Result<Self> {
        let variant = |wanted: bool, compile: fn(&Network) -> Result<Compiled>| {
            wanted.then(|| compile(network)).transpose()
        };
        Ok(Programs {
            exact: Compiled::reference(network, DType::F64)?,
            rounded: Compiled::of(network, DType::F32)?,
            barriers: variant(variants.barriers, |network| {
                Compiled::with_barriers(network, DType::F32)
            })?,
            mixed: variant(variants.mixed, Compiled::mixed)?,
        })
    }

    /// What is compared at a point: its name, the difference, and the tolerance.
    fn differences(
        &self,
        at: &[Vec<f64>],
        right: &Evaluated,
        seed: u64,
    ) -> Result<[(&'static str, f64, f64); 4]> {
        let distance = |program: &Option<Compiled>, from: &Evaluated| match program {
            Some(program) => Ok(program.run(at)?.distance(from)),
            None => Ok::<_, halite_core::Error>(0.0),
        };
        let single = self.rounded.run(at)?;
        Ok([
            (
                "f64 from finite differences",
                difference(&self.exact, at, right, seed)?,
                DIFFERENCE_TOLERANCE,
            ),
            ("f32 from f64", single.distance(right), ROUNDING_TOLERANCE),
            (
                "f32 with barriers from f32",
                distance(&self.barriers, &single)?,
                ROUNDING_TOLERANCE,
            ),
            (
                "bf16-mixed from f64",
                distance(&self.mixed, right)?,
                MIXED_TOLERANCE,
            ),
        ])
    }
}

/// Checks all gradients of a network: in `f64` against finite differences, in `f32` against `f64`,
/// and those of the variants against `f32` and `f64`.
pub(crate) fn check(network: &Network, variants: Variants) -> std::result::Result<Passed, String> {
    let text = |error: halite_core::Error| error.to_string();
    let programs = Programs::of(network, variants).map_err(text)?;
    let mut reason = String::new();
    let (mut is_exact, mut rounding) = (false, Vec::new());
    for point in 0..POINTS {
        let seed = point_seed(network, point);
        let at = programs.exact.point(seed);
        let right = programs.exact.run(&at).map_err(text)?;
        if !right.is_finite() || right.norm() < 1e-9 {
            return Ok(Passed {
                unusable: true,
                ..Passed::default()
            });
        }
        let differences = programs.differences(&at, &right, seed).map_err(text)?;
        // `<=` is false for NaN.
        let is_within = |&(_, found, tolerance): &(&str, f64, f64)| found <= tolerance;
        if differences.iter().all(is_within) {
            return Ok(Passed {
                kink: point > 0,
                ..Passed::default()
            });
        }
        is_exact |= is_within(&differences[0]);
        rounding.push(Differences {
            // Unlike `f64::max`, a sum is NaN if one difference is.
            single: differences[1].1 + differences[2].1,
            mixed: differences[3].1,
        });
        let wrong = differences
            .iter()
            .filter(|difference| !is_within(difference));
        let wrong = wrong.map(|(of, found, tolerance)| {
            format!("{of} differs by {found:.1e}, more than {tolerance:.0e}")
        });
        reason = wrong.collect::<Vec<_>>().join("; ");
    }
    // A rule that is wrong in f64 is wrong at all points.
    if is_exact && is_ill_conditioned(network, &rounding).map_err(text)? {
        return Ok(Passed {
            ill_conditioned: true,
            ..Passed::default()
        });
    }
    Err(reason)
}

/// Whether rounding errors explain differences at each point: in `f64`, errors of the size of those
/// in `f32` change the gradients by about as much as `f32` does, and errors of the size of those in
/// bf16 by as much as mixed precision. A rule that is wrong where a compiler rounds a value in two
/// ways is not excused: only operands of arithmetic have errors here, not those of comparisons.
fn is_ill_conditioned(network: &Network, differences: &[Differences]) -> Result<bool> {
    let exact = Compiled::reference(network, DType::F64)?;
    let perturbed = |rounding: Rounding| -> Result<Vec<Compiled>> {
        let seeds = 0..PERTURBATIONS;
        seeds
            .map(|seed| Compiled::perturbed(network, rounding, seed))
            .collect()
    };
    let (single, half) = (perturbed(Rounding::F32)?, perturbed(Rounding::BF16)?);
    for (point, difference) in (0..).zip(differences) {
        let at = exact.point(point_seed(network, point));
        let right = exact.run(&at)?;
        let explained = |programs: &[Compiled]| -> Result<f64> {
            let each = programs.iter();
            let each = each.map(|program| Ok(program.run(&at)?.distance(&right)));
            each.reduce(|a, b| Ok(f64::max(a?, b?)))
                .expect("perturbations")
        };
        // `<=` is false for NaN.
        let is_explained = difference.single <= SIMILAR * explained(&single)?
            && (difference.mixed <= MIXED_TOLERANCE || difference.mixed <= explained(&half)?);
        if !is_explained {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Differences at a point that rounding may explain.
struct Differences {
    /// In `f32`, with and without barriers.
    single: f64,
    /// In mixed precision.
    mixed: f64,
}

fn point_seed(network: &Network, point: u64) -> u64 {
    network.seed.wrapping_add(point << 40)
}

/// The smallest difference of the derivative along a direction from central differences of several
/// steps.
fn difference(program: &Compiled, at: &[Vec<f64>], slope: &Evaluated, seed: u64) -> Result<f64> {
    let direction = program.direction(seed);
    let given = slope.along(&direction);
    let size = slope.norm() / 3f64.sqrt();
    let mut least = f64::INFINITY;
    for step in [1e-6, 1e-7, 1e-5, 1e-8, 1e-4] {
        let loss = |step: f64| -> Result<f64> {
            let mut moved = at.to_vec();
            for (values, along) in moved.iter_mut().zip(&direction) {
                values
                    .iter_mut()
                    .zip(along)
                    .for_each(|(value, along)| *value += step * along);
            }
            Ok(program.run(&moved)?.loss)
        };
        let measured = (loss(step)? - loss(-step)?) / (2.0 * step);
        least = least.min((given - measured).abs() / size);
        if least <= DIFFERENCE_TOLERANCE {
            break;
        }
    }
    Ok(least)
}
