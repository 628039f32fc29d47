//! Runs of the built-in models, and published models, as `jax.export` artifacts.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    str::FromStr,
};

use crate::{
    Array, Client, DType, Error, HostArray, Param, Result, TensorType, Tree,
    backends::Accelerator,
    data::images::Transforms,
    exchange::{Exported, Parameters, export_model},
    models::{
        Bert, Classifier, ClassifierVisitor, Cnn, ColorImageModel, DescribedClassifier,
        EmbedOptions, ImageModel, Mlp, Normalization, Pretrained, PretrainedModel, normalized,
        open_decoder,
    },
    nn::{Model, Transformer, TransformerConfig},
    train::checkpoint::Saved,
    tree::Of,
    weights::NameMap,
};

/// Exports the forward pass of the best checkpoint of a run of `halite train`, or of the newest if
/// none is marked as best. Of a run with averages of the parameters these are exported, as they are
/// what it validated.
///
/// A classifier of digits maps `u8[batch, side, side]` to logits `f32[batch, 10]`, one of color images
/// (`halite train imagenet`) `u8[batch, side, side, 3]` to `f32[batch, classes]`, a language model tokens `s32[batch, context]` to logits `f32[batch, context, vocabulary]`.
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
        name if name.parse::<Classifier>().is_ok() => {
            // Runs of `train ct` have their transforms, of which the side is a part.
            let side = match properties.parsed::<Transforms>("transforms") {
                Ok(transforms) => transforms.side(),
                Err(_) => properties.parsed("--side")?,
            };
            let visitor = ExportedClassifier {
                normalization: properties.parsed("normalization")?,
                images: TensorType::new(DType::U8, [batch_size, side, side, 3]),
                parameters,
                saved,
            };
            name.parse::<Classifier>()?
                .visit(visitor.classes()?, side, visitor)
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

/// What of a published model is exported.
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    /// Inputs of a launch.
    pub batch_size: usize,
    /// Tokens of an input.
    pub context: usize,
    /// Directory of adapters that peft or `halite finetune` wrote, which are added to the weights.
    pub adapter: Option<PathBuf>,
    /// Place of the model's parameters.
    pub parameters: Parameters,
    /// Keys of the files of the model and the adapters that count as missing. A key that halite does
    /// not know is an error otherwise.
    pub ignored_keys: Vec<String>,
}

/// Exports the forward pass of a published model: a directory of Hugging Face or a GGUF file.
///
/// A decoder maps tokens `s32[batch, context]` to logits `f32[batch, context, vocabulary]`, a BERT
/// tokens `s32[batch, context]` and a mask `bool[batch, context]`, false at padding, to an embedding
/// `f32[batch, features]`, pooled and normalized as [`EmbedOptions::of`] reads from the directory: the
/// mean over the tokens, of length 1, if it has no files of sentence-transformers.
///
/// # Errors
/// If it cannot be opened or loaded, the context is longer than the model's, or the adapters are not
/// of this model.
pub fn export_pretrained(path: impl AsRef<Path>, options: &ExportOptions) -> Result<Exported> {
    let source = Pretrained::open(path)?.ignore_keys(&options.ignored_keys);
    let dims = [options.batch_size, options.context];
    let check = |longest: usize| match options.context {
        1.. if options.context <= longest => Ok(()),
        context => {
            let message = format!("a context of {context}; expected 1 to {longest} tokens");
            Err(Error::invalid("export", message))
        }
    };
    // Weights are on the host of this process; the program is for any device.
    let client = Accelerator::embedded().open()?;
    let tokens = TensorType::new(DType::S32, dims);
    if source.config()?.text("model_type") == Some("bert") {
        let opened = Bert::of(source)?;
        check(opened.model.config.context_length)?;
        let embed = EmbedOptions::of(&opened.source, options.context)?;
        let model = with_adapters(&client, &opened, &opened.names, options)?;
        let mask = TensorType::new(DType::Bool, dims);
        let inputs = [tokens, mask];
        return export_model(
            &model,
            inputs,
            options.parameters,
            move |cx, model, [tokens, mask]| {
                cx.set_mode(false, None);
                [embed.pooled(model.forward(tokens, mask), mask)]
            },
        );
    }
    let opened = open_decoder(source)?;
    check(opened.model.config.context_length)?;
    let names = opened.adapter_names()?;
    let model = with_adapters(&client, &opened, &names, options)?;
    export_model(
        &model,
        [tokens],
        options.parameters,
        |cx, model, [tokens]| {
            cx.set_mode(false, None);
            [model.forward(tokens).convert(DType::F32)]
        },
    )
}

/// The weights of a published model, with adapters if there are some. `names` are those of the
/// model that the adapters are for.
fn with_adapters<M: Model>(
    client: &Client,
    opened: &PretrainedModel<M>,
    names: &NameMap,
    options: &ExportOptions,
) -> Result<Of<M, Array>>
where
    Of<M, Array>: Tree<Leaf = Array>,
{
    match &options.adapter {
        Some(directory) => opened.load_adapted(client, names, directory),
        None => opened.load(client),
    }
}

fn images<M: ImageModel>(
    mut saved: Saved,
    net: &M::Of<Param>,
    dims: [usize; 3],
    parameters: Parameters,
) -> Result<Exported> {
    let model = saved.take_validated(net)?;
    let images = TensorType::new(DType::U8, dims);
    export_model(&model, [images], parameters, |_cx, model, [images]| {
        [M::logits(&M::from_bare(model), normalized(images))]
    })
}

/// Exports a classifier of color images, whatever its type.
struct ExportedClassifier {
    saved: Saved,
    normalization: Normalization,
    images: TensorType,
    parameters: Parameters,
}

impl ExportedClassifier {
    /// Outputs of the head.
    fn classes(&self) -> Result<usize> {
        let mut arrays = self.saved.arrays();
        let head = arrays.find(|(name, ty)| *name == "model.head.bias" && ty.rank() == 1);
        head.map(|(_, ty)| ty.dims()[0]).ok_or_else(|| {
            let path = self.saved.path().display();
            Error::invalid("export", format!("{path} has no vector `model.head.bias`"))
        })
    }
}

impl ClassifierVisitor for ExportedClassifier {
    type Output = Exported;

    fn visit<M: ColorImageModel>(
        mut self,
        classifier: DescribedClassifier<M::Of<Param>>,
    ) -> Result<Exported> {
        let model = self.saved.take_validated(&classifier.net)?;
        let normalization = self.normalization;
        export_model(
            &model,
            [self.images],
            self.parameters,
            move |cx, model, [images]| {
                cx.set_mode(false, None);
                [M::logits(
                    &M::from_bare(model),
                    normalization.forward(images),
                )]
            },
        )
    }
}

fn text(
    mut saved: Saved,
    config: &TransformerConfig,
    batch_size: usize,
    parameters: Parameters,
) -> Result<Exported> {
    let model: Transformer<HostArray> = saved.take_validated(&Transformer::new(config)?)?;
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
            "mnist" | "fashion" | "fake" => Ok(28),
            other => {
                let message = format!(
                    "unknown data set `{other}` of images; expected mnist, fashion or digits"
                );
                Err(Error::invalid("export", message))
            }
        }
    }
}
