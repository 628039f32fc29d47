//! Runs of the built-in models as `jax.export` artifacts.

use std::{collections::BTreeMap, path::Path, str::FromStr};

use crate::{
    DType, Error, HostArray, Param, Result, TensorType,
    exchange::{Exported, Parameters, export_model},
    models::{Cnn, ImageModel, Mlp, normalized},
    nn::{Transformer, TransformerConfig},
    train::checkpoint::Saved,
};

/// Exports the forward pass of the best checkpoint of a run of `halite train`, or of the newest if
/// none is marked as best.
///
/// An image classifier maps `u8[batch, side, side]` to logits `f32[batch, 10]`, a language model
/// tokens `s32[batch, context]` to logits `f32[batch, context, vocabulary]`.
///
/// # Errors
/// If there is no checkpoint, it cannot be read, or is not of a built-in model.
pub fn export_run(
    run: impl AsRef<Path>,
    batch_size: usize,
    parameters: Parameters,
) -> Result<Exported> {
    let saved = Saved::of_run(run)?;
    let properties = Properties(saved.properties()?);
    let model = properties.get("--model")?;
    let exported = match model {
        "cnn" => {
            let side = properties.side()?;
            images::<Cnn<()>>(
                saved,
                &Cnn::new(side, 10),
                [batch_size, side, side],
                parameters,
            )
        }
        "mlp" => {
            let side = properties.side()?;
            let net = Mlp::new(&[side * side, 512, 512, 10]);
            images::<Mlp<()>>(saved, &net, [batch_size, side, side], parameters)
        }
        name => {
            let config = TransformerConfig {
                context_length: properties.parsed("--context")?,
                ..name.parse::<TransformerConfig>()?
            };
            let config = config.vocab_size(properties.parsed("vocabulary")?);
            text(saved, &config, batch_size, parameters)
        }
    }?;
    Ok(Exported {
        name: model.to_owned(),
        ..exported
    })
}

fn images<M: ImageModel>(
    mut saved: Saved,
    net: &M::Of<Param>,
    dims: [usize; 3],
    parameters: Parameters,
) -> Result<Exported> {
    let model = saved.take_model(net)?;
    let images = TensorType::new(DType::U8, dims);
    export_model(&model, [images], parameters, |_cx, model, [images]| {
        [M::logits(&M::from_bare(model), normalized(images))]
    })
}

fn text(
    mut saved: Saved,
    config: &TransformerConfig,
    batch_size: usize,
    parameters: Parameters,
) -> Result<Exported> {
    let model: Transformer<HostArray> = saved.take_model(&Transformer::new(config)?)?;
    let tokens = TensorType::new(DType::S32, [batch_size, config.context_length]);
    export_model(&model, [tokens], parameters, |_cx, model, [tokens]| {
        [model.forward(tokens)]
    })
}

/// Properties of a run, by name.
struct Properties(BTreeMap<String, String>);

impl Properties {
    fn get(&self, name: &str) -> Result<&str> {
        self.0.get(name).map(String::as_str).ok_or_else(|| {
            let message = format!(
                "the run has no property `{name}`; expected a run of `halite train` (programs of \
                 your own call `halite::exchange::export_model`)"
            );
            Error::invalid("export", message)
        })
    }

    fn parsed<T: FromStr>(&self, name: &str) -> Result<T> {
        let value = self.get(name)?;
        value.parse().map_err(|_| {
            Error::invalid(
                "export",
                format!("the run has the property `{name}` = `{value}`"),
            )
        })
    }

    /// Pixels of a row and of a column of an image.
    fn side(&self) -> Result<usize> {
        match self.get("--data")? {
            "digits" => Ok(8),
            "mnist" | "fashion" => Ok(28),
            other => {
                let message = format!(
                    "unknown data set `{other}` of images; expected mnist, fashion or digits"
                );
                Err(Error::invalid("export", message))
            }
        }
    }
}
