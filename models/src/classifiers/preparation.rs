//! Preparation of images that a file beside published weights describes.

use std::path::Path;

use halite_core::Result;
use halite_data::images::{Filter, Framing};
use halite_weights::{Config, keys};

use crate::{Classifier, Normalization, pretrained::read_json};

/// Names of interpolations in files of timm.
const FILTERS: [(&str, Filter); 4] = [
    ("bilinear", Filter::Bilinear),
    ("bicubic", Filter::Bicubic),
    ("box", Filter::Box),
    ("lanczos", Filter::Lanczos),
];

/// How images are prepared for published weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preparation {
    /// The square that is taken of an image.
    pub framing: Framing,
    /// Normalization of the pixels; `None` is that of the weights, by their names.
    pub normalization: Option<Normalization>,
}

impl Classifier {
    /// Preparation of images for the published weights at `path`: as the `config.json` of timm beside
    /// them describes it, or else that of [`framing`](Self::framing). Keys of the names `ignored`
    /// count as missing.
    ///
    /// # Errors
    /// If the file cannot be read, describes something else than a central square, or has a key that
    /// is not known.
    pub fn preparation(self, path: impl AsRef<Path>, ignored: &[String]) -> Result<Preparation> {
        let path = path.as_ref();
        let plain = Preparation {
            framing: self.framing(),
            normalization: None,
        };
        let directory = if path.is_dir() {
            Some(path)
        } else {
            path.parent()
        };
        let file = directory.map(|directory| read_json(&directory.join("config.json")));
        let Some((origin, fields)) = file.transpose()?.flatten() else {
            return Ok(plain);
        };
        if fields.get("pretrained_cfg").is_none() {
            return Ok(plain);
        }
        let mut config = Config::new(&origin, &fields).known(&keys::TIMM, ignored);
        let read = of_timm(&mut config, plain.framing);
        config.finish()?;
        Ok(read)
    }
}

fn of_timm(config: &mut Config<'_>, default: Framing) -> Preparation {
    let filters = FILTERS.map(|(name, _)| name);
    config.expect_text("pretrained_cfg.interpolation", &filters);
    let filter = config.text("pretrained_cfg.interpolation");
    let filter = FILTERS.iter().find(|(name, _)| Some(*name) == filter);
    let crop = config.number_or("pretrained_cfg.crop_pct", default.crop);
    let side = match config.numbers("pretrained_cfg.input_size")[..] {
        [] => default.side,
        [3.0, height, width] if height == width && height >= 1.0 => height as usize,
        _ => {
            config.problem("`pretrained_cfg.input_size` is not [3, side, side]");
            default.side
        }
    };
    let mut channels = |name: &str| {
        let numbers = config.numbers(name);
        let channels = <[f64; 3]>::try_from(numbers).ok();
        channels.map(|channels| channels.map(|value| value * 255.0))
    };
    let mean = channels("pretrained_cfg.mean");
    let std = channels("pretrained_cfg.std");
    Preparation {
        framing: Framing {
            side,
            crop,
            filter: filter.map_or(default.filter, |(_, filter)| *filter),
        },
        normalization: mean.zip(std).map(|(mean, std)| Normalization { mean, std }),
    }
}
