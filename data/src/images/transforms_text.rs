//! Text form of transforms: `128,random-resized-crop=0.8..1,flip=0.5`.

use std::{fmt, str::FromStr};

use halite_core::{Error, Result};

use super::{Filter, Transforms, transforms::CONTEXT};

/// Names of filters in the text form.
const FILTERS: [(&str, Filter); 4] = [
    ("bilinear", Filter::Bilinear),
    ("bicubic", Filter::Bicubic),
    ("box", Filter::Box),
    ("lanczos", Filter::Lanczos),
];

/// Names of the steps, each with a value or a range `low..high`.
const STEPS: [&str; 16] = [
    "crop",
    "random-resized-crop",
    "crop-ratio",
    "flip",
    "flip-vertical",
    "rotate",
    "translate",
    "zoom",
    "shear",
    "brightness",
    "contrast",
    "saturation",
    "blur",
    "blur-probability",
    "erase",
    "erase-area",
];

impl Transforms {
    /// The values of a step: two for a range, which may be given as one, and one otherwise.
    fn values(&mut self, step: &str) -> Option<&mut [f64]> {
        let one = std::slice::from_mut::<f64>;
        Some(match step {
            "crop" => one(&mut self.framing.crop),
            "random-resized-crop" => self.random_crop.get_or_insert([1.0; 2]),
            "crop-ratio" => &mut self.ratio,
            "flip" => one(&mut self.flip),
            "flip-vertical" => one(&mut self.flip_vertical),
            "rotate" => one(&mut self.rotate),
            "translate" => one(&mut self.translate),
            "zoom" => &mut self.zoom,
            "shear" => one(&mut self.shear),
            "brightness" => one(&mut self.brightness),
            "contrast" => one(&mut self.contrast),
            "saturation" => one(&mut self.saturation),
            "blur" => self.blur.get_or_insert([1.0; 2]),
            "blur-probability" => one(&mut self.blur_probability),
            "erase" => one(&mut self.erase),
            "erase-area" => &mut self.erase_area,
            _ => return None,
        })
    }
}

/// The side, then the steps that differ from [`Transforms::new`], separated by commas.
impl fmt::Display for Transforms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.side())?;
        let (mut values, mut defaults) = (self.clone(), Transforms::new(self.side()));
        for step in STEPS {
            let absent = match step {
                "random-resized-crop" => self.random_crop.is_none(),
                "blur" => self.blur.is_none(),
                _ => values.values(step) == defaults.values(step),
            };
            if absent {
                continue;
            }
            match values.values(step) {
                Some([low, high]) if low != high => write!(f, ",{step}={low}..{high}")?,
                Some([value, ..]) => write!(f, ",{step}={value}")?,
                _ => {}
            }
        }
        for (name, filter) in FILTERS {
            if filter == self.framing.filter && filter != Filter::default() {
                write!(f, ",filter={name}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Transforms {
    type Err = Error;

    /// Parses the text form. Values are checked.
    fn from_str(text: &str) -> Result<Self> {
        let failed = |reason: String| Error::invalid(CONTEXT, format!("`{text}`: {reason}"));
        let mut items = text.split(',').map(str::trim);
        let side = items.next().unwrap_or_default();
        let side = side.strip_prefix("side=").unwrap_or(side);
        let side = side.parse().map_err(|_| {
            failed(format!(
                "`{side}` is not a side; expected text as `128,flip=0.5,rotate=10`"
            ))
        })?;
        let mut transforms = Transforms::new(side);
        let mut seen = Vec::new();
        for item in items {
            let (step, value) = item
                .split_once('=')
                .ok_or_else(|| failed(format!("`{item}` has no value; expected `STEP=VALUE`")))?;
            if seen.contains(&step) {
                return Err(failed(format!("`{step}` is given twice")));
            }
            seen.push(step);
            if step == "filter" {
                let found = FILTERS.iter().find(|(name, _)| *name == value);
                let (_, filter) = found.ok_or_else(|| {
                    let names = FILTERS.map(|(name, _)| name).join(", ");
                    failed(format!("unknown filter `{value}`; expected one of {names}"))
                })?;
                transforms.framing.filter = *filter;
                continue;
            }
            let into = transforms.values(step).ok_or_else(|| {
                let steps = STEPS.join(", ");
                failed(format!(
                    "unknown step `{step}`; expected one of {steps}, filter"
                ))
            })?;
            let number = |text: &str| -> Result<f64> {
                let parsed = text.trim().parse();
                parsed.map_err(|_| failed(format!("`{text}` of `{step}` is not a number")))
            };
            match (value.split_once(".."), &mut *into) {
                (Some((low, high)), [first, last]) => {
                    let high = high.strip_prefix('=').unwrap_or(high);
                    (*first, *last) = (number(low)?, number(high)?);
                }
                (Some(_), _) => {
                    return Err(failed(format!("`{step}` has one value, not a range")));
                }
                (None, into) => into.fill(number(value)?),
            }
        }
        transforms.check()?;
        Ok(transforms)
    }
}
