//! Published decoders of any form.

use halite_core::{Error, Result};
use halite_nn::{Param, Transformer, TransformerConfig};
use halite_weights::TensorSource;

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

/// Describes a decoder of this configuration, which the weights bound: a plan of loading has an entry
/// for each layer.
///
/// # Errors
/// If the configuration is invalid, or has more layers than there are tensors.
pub(crate) fn described(
    config: &TransformerConfig,
    source: &Pretrained,
) -> Result<Transformer<Param>> {
    let tensors = source.weights().tensors().len();
    if config.layers > tensors {
        let message = format!(
            "{} layers in the configuration of {}, whose weights have {tensors} tensors",
            config.layers,
            source.origin()
        );
        return Err(Error::invalid("open model", message));
    }
    Transformer::new(config)
}
