//! Published decoders of any form.

use halite_core::Result;
use halite_nn::{Param, Transformer};

use crate::{Gpt2, Llama, Pretrained, PretrainedModel};

/// The decoder of an opened directory or file, by the `model_type` of its configuration: [`Gpt2`],
/// or else one of [`Llama`]'s form. Nothing is loaded yet.
///
/// # Errors
/// As [`Llama::from_pretrained`]; the error of an unknown `model_type` lists those of Llama's form.
pub fn open_decoder(source: Pretrained) -> Result<PretrainedModel<Transformer<Param>>> {
    match source.config()?.text("model_type") {
        Some("gpt2") => Gpt2::of(source),
        _ => Llama::of(source),
    }
}
