//! Entry points into this crate's private parsers for fuzzing. Not part of the public API, and
//! without stability.
//!
//! Each function takes any bytes, returns whether they were accepted, and panics where a property
//! does not hold.

mod hlo_seeds;

use halite_core::{ProgramFacts, program_text};
use prost::Message;

use crate::{
    collectives::Collectives,
    frame,
    hlo::{Computations, ModuleWithConfig},
    options, scan,
    signature::CompiledSignature,
};

/// The optimized program that a plugin returns: its types and its collectives.
pub fn hlo(data: &[u8]) -> bool {
    let module = ModuleWithConfig::decode(data)
        .ok()
        .and_then(|module| module.module);
    let modules = [module, Computations::decode(data).ok()];
    let found = modules
        .iter()
        .flatten()
        .map(|module| Collectives::of(module, 8));
    let accepted = found.filter(|found| !found.uses.is_empty()).count() > 0;
    let signatures =
        ["hlo_with_config", "hlo"].map(|format| CompiledSignature::decode(format, data).is_some());
    accepted || signatures.contains(&true)
}

/// Valid inputs of [`hlo`].
pub fn hlo_seeds() -> Vec<Vec<u8>> {
    hlo_seeds::seeds()
}

/// The frame of a serialized program, as given and with the digest that belongs to the bytes.
pub fn frame(data: &[u8]) -> bool {
    const IDENTITY: &str = "cpu, PJRT 0.115";
    let sealed = frame::seal(data.to_vec());
    let mut accepted = false;
    for bytes in [data, &sealed] {
        if let Ok(payload) = frame::unwrap("fuzz", IDENTITY, bytes) {
            assert_eq!(
                frame::wrap(IDENTITY, payload),
                bytes,
                "a frame has one form"
            );
            accepted = true;
        }
    }
    accepted
}

/// Valid inputs of `frame`, without their digests.
pub fn frame_seeds() -> Vec<Vec<u8>> {
    let whole = |payload: &[u8]| frame::wrap("cpu, PJRT 0.115", payload);
    let unsealed = |payload: &[u8]| {
        let mut bytes = whole(payload);
        bytes.truncate(bytes.len() - 32);
        bytes
    };
    vec![
        whole(b""),
        unsealed(b""),
        unsealed(b"payload"),
        unsealed(&[7; 200]),
    ]
}

/// Compile options as XLA reads them.
pub fn compile_options(data: &[u8]) -> bool {
    options::fuzz(data)
}

/// Valid inputs of [`compile_options`].
pub fn compile_options_seeds() -> Vec<Vec<u8>> {
    options::fuzz_seeds()
}

/// The scan of a program's code. Returns whether it found anything.
pub fn program_text(data: &[u8]) -> bool {
    let mut kept = Vec::new();
    program_text::without_locations(data, |piece| kept.extend_from_slice(piece));
    assert!(kept.len() <= data.len(), "locations are only removed");
    scan::scan(data) != ProgramFacts::default() || kept.len() < data.len()
}

/// The facts that a scan finds in a program's code.
pub fn program_facts(code: &[u8]) -> ProgramFacts {
    scan::scan(code)
}

/// Valid inputs of [`program_text`].
pub fn program_text_seeds() -> Vec<Vec<u8>> {
    let text: &[&[u8]] = &[
        b"module @m {\n  sdy.mesh @mesh = <[\"data\"=4, \"model\"=2]>\n  %a = \"sdy.constant\"() : () -> tensor<bf16> \
          loc(\"a.rs\":3:4)\n#loc1 = loc(callsite(\"f\"(\"b\\\"c.rs\":1:2) at #loc))\n}",
        b"%1 = stablehlo.convolution(%0) {mhlo.sharding = \"{replicated}\", layout_mode = \"{1,0}\"} : tensor<4xf32> // loc(x)",
        b"ML\xefR\x05StableHLO\0sdy\0mhlo.sharding\0convolution\0layout_mode\0",
    ];
    text.iter().map(|text| text.to_vec()).collect()
}
