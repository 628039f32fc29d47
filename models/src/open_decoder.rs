//! Published decoders of any form.

use halite_core::Result;
use halite_nn::{Param, Transformer};

use crate::{Gpt2, Llama, Pretrained, PretrainedModel};

/// The decoder of an opened directory or file, by the `model_type` of its configuration: [`Gpt2`],
/// or else one of [`Llama`]'s form. Nothing is loaded yet.
///
/// # Errors
/// As [`Llama::from_pretrained`]; if the `model_type` is that of no decoder.
pub fn open_decoder(source: Pretrained) -> Result<PretrainedModel<Transformer<Param>>> {
    let mut config = source.config()?;
    if config.text("model_type") == Some("gpt2") {
        return Gpt2::of(source);
    }
    config.expect_text("model_type", &["llama", "mistral", "qwen2", "gpt2"]);
    config.finish_part()?;
    Llama::of(source)
}
