//! Programs that run: mutated programs are compiled and run by the embedded executor.

use std::sync::LazyLock;

use halite::exchange::Artifact;
use halite_core::{Array, Client, ErrorKind, HostArray, Result, TensorType};
use halite_embedded::{Embedded, Mode, Options};
use halite_stablehlo::{Module, OpKind, Region};

use crate::random::Random;

/// Most elements of all values of a program together: programs with more may take long.
const LARGEST: usize = 1 << 12;

/// Runs a program that is read in both modes of the executor. It ends with its results or an error,
/// never with a panic, which the executor reports as an internal error.
pub(super) fn run_program(data: &[u8]) -> bool {
    let Ok(artifact) = Artifact::read(data) else {
        return false;
    };
    if !is_small(artifact.module()) {
        return false;
    }
    let mut random = Random::new(data.len() as u64, 0);
    let inputs = artifact.inputs().iter();
    let inputs: Vec<HostArray> = inputs.map(|input| values(&input.ty, &mut random)).collect();
    let mut ran = false;
    for client in CLIENTS.iter() {
        match run(client, &artifact, &inputs) {
            Ok(()) => ran = true,
            Err(error) => assert_ne!(error.kind(), ErrorKind::Internal, "{error}"),
        }
    }
    ran
}

/// One for each mode.
static CLIENTS: LazyLock<[Client; 2]> = LazyLock::new(|| {
    [Mode::Fast, Mode::Oracle].map(|mode| {
        let options = Options {
            mode,
            devices: 1,
            threads: 1,
            node: None,
        };
        Client::new(Embedded::new(&options).expect("the system has threads"))
    })
});

fn run(client: &Client, artifact: &Artifact, inputs: &[HostArray]) -> Result<()> {
    let program = artifact.compile(client)?;
    let inputs: Vec<Array> = (inputs.iter())
        .map(|input| Array::upload(client, input, program.sharding()))
        .collect::<Result<_>>()?;
    let outputs = program.run(&inputs.iter().collect::<Vec<_>>())?;
    outputs
        .iter()
        .try_for_each(|output| output.read().map(drop))
}

/// Whether the program has few elements, and no loop, which may be endless.
fn is_small(module: &Module) -> bool {
    fn loops(region: &Region) -> bool {
        (region.operations.iter())
            .any(|op| matches!(op.kind, OpKind::While) || op.regions.iter().any(loops))
    }
    let mut types = module.functions.iter().flat_map(|function| &function.types);
    let elements = types.try_fold(0usize, |sum, ty| {
        sum.checked_add(ty.as_tensor().map_or(0, |ty| ty.elements()))
    });
    elements.is_some_and(|elements| elements <= LARGEST)
        && !module
            .functions
            .iter()
            .any(|function| loops(&function.body))
}

/// Small integers, which indices are, or any bits.
fn values(ty: &TensorType, random: &mut Random) -> HostArray {
    let mut array = HostArray::zeros(ty.clone());
    let size = ty.dtype().size();
    let any = random.percent(50);
    for element in array.bytes_mut().chunks_exact_mut(size) {
        let bits = random.next_u64().to_le_bytes();
        if ty.dtype() == halite_core::DType::Bool {
            element[0] = bits[0] & 1;
        } else if any {
            let count = size.min(8);
            element[..count].copy_from_slice(&bits[..count]);
        } else {
            element[0] = bits[0] & 3;
        }
    }
    array
}

/// Programs of the fuzz target, mostly of one operation.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    // They are opened here, before memory is measured.
    LazyLock::force(&CLIENTS);
    let lines = PROGRAMS.trim().split("\n\n");
    let small = lines.map(|text| text.as_bytes().to_vec());
    let files = FILES.iter().map(|text| text.as_bytes().to_vec());
    small.chain(files).collect()
}

const PROGRAMS: &str = include_str!("programs.mlir");

const FILES: &[&str] = &[
    include_str!("../../../core/stablehlo/tests/data/approx_top_k.mlir"),
    include_str!("../../../core/stablehlo/tests/data/cholesky.mlir"),
    include_str!("../../../core/stablehlo/tests/data/conv_gradient.mlir"),
    include_str!("../../../core/stablehlo/tests/data/fft.mlir"),
    include_str!("../../../core/stablehlo/tests/data/gather_scatter.mlir"),
    include_str!("../../../core/stablehlo/tests/data/mlp_step.mlir"),
    include_str!("../../../core/stablehlo/tests/data/random_bits.mlir"),
    include_str!("../../../core/stablehlo/tests/data/sort.mlir"),
    include_str!("../../../core/stablehlo/tests/data/top_k.mlir"),
];
