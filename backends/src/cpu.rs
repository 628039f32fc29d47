//! What XLA's CPU compiler gets wrong, or slow, unless it is told.

use halite_core::{FlagValue, Program};

/// The first version of the API whose CPU plugins fuse dots with the YNN library.
pub(crate) const FUSES_WITH_YNN: (i32, i32) = (0, 115);

/// For every program: by default the compiler may drop NaN in a maximum or minimum, `maximum(1, NaN) = 1`, so that a ReLU
/// or a max pooling hides that a model has diverged.
pub(crate) fn flags(_: &Program) -> Vec<(String, FlagValue)> {
    vec![("xla_cpu_enable_fast_min_max".to_string(), FlagValue::Bool(false))]
}

/// As [`flags`]; and for programs with bf16: one fused dot in bf16 was measured to make a training step 18 times slower.
pub(crate) fn flags_with_ynn(program: &Program) -> Vec<(String, FlagValue)> {
    let mut all = flags(program);
    if program.code.windows(4).any(|word| word == b"bf16") {
        all.push(("xla_cpu_experimental_ynn_fusion_type".to_string(), FlagValue::Str(String::new())));
    }
    all
}
