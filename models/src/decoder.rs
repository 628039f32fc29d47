//! What all published decoders have in common.

use halite_core::{Error, Result};
use halite_nn::{Param, Transformer, TransformerConfig};
use halite_weights::TensorSource;

use crate::{Config, Pretrained};

/// Notes fields that make a decoder something else.
pub(crate) fn expect_causal(fields: &mut Config<'_>) {
    if !fields.flag_or("is_causal", true) {
        fields.problem("`is_causal` is false; supported: true");
    }
    // It only says what the model is.
    fields.flag_or("is_decoder", true);
}

/// Describes a decoder of this configuration, which the weights bound: a plan of loading has an
/// entry for each layer.
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
