//! Samples of data with what a model predicts for them, as a report shows them.

use std::fmt::Write as _;

use halite_core::{DType, Error, HostArray, Result, format_bytes};
use halite_data::{Dataset, Rows};
use serde::{Deserialize, Serialize};

use super::{super::png, MOST_BYTES, Report};
use crate::{format::format_metric, values::values_of};

/// Numbers of an array that are shown; of more, the first ones are.
const SHOWN: usize = 12;

/// Most samples that are shown.
const MOST: usize = 100;

/// Least side of a picture, in pixels. Smaller arrays are shown as numbers.
const SIDE: usize = 4;

impl Report {
    /// Shows what a model predicts for the samples of `dataset`, at most 100: the first field of
    /// each is its input, and the second its target. `outputs` are `[samples, ..]`, as of
    /// [`Trainer::predict`](crate::Trainer::predict). [`write_to`](Self::write_to) writes it into the
    /// directory of the run.
    ///
    /// # Errors
    /// If there are more samples, or another number of outputs; if a sample cannot be read; if
    /// their pictures take more than half of a report.
    pub fn set_predictions(&mut self, dataset: &dyn Dataset, outputs: &HostArray) -> Result<()> {
        let count = dataset.len();
        if count > MOST {
            let message = format!("{count} samples to show; give a subset of at most {MOST}");
            return Err(Error::invalid("report", message));
        }
        if outputs.ty().dims().first() != Some(&count) {
            let message = format!("{count} samples, and outputs {}", outputs.ty());
            return Err(Error::invalid("report", message));
        }
        let mut rows = Rows::zeros(dataset.fields(), count)?;
        for index in 0..count {
            dataset.read(index, &mut rows.sample_mut(index))?;
        }
        let mut fields = rows.arrays().iter().map(Shown::samples_of);
        let inputs = fields.next().transpose()?.unwrap_or_default();
        let targets = fields.next().transpose()?;
        let mut targets = targets.into_iter().flatten();
        let samples = inputs.into_iter().zip(Shown::samples_of(outputs)?);
        let predictions = samples.map(|(input, prediction)| Prediction {
            input,
            target: targets.next(),
            prediction,
        });
        let predictions: Vec<Prediction> = predictions.collect();
        check_size(&predictions)?;
        self.predictions = predictions;
        Ok(())
    }
}

/// A sample, and what a model predicts for it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Prediction {
    /// What the model was given.
    pub input: Shown,
    /// What it should predict, if the data say so.
    pub target: Option<Shown>,
    /// What it predicts.
    pub prediction: Shown,
}

/// A value of a sample.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shown {
    /// Numbers or words.
    Text(String),
    /// A picture: a PNG file in base64.
    Picture(String),
}

impl Shown {
    /// The values of the samples of an array `[samples, ..]`: pictures of `[height, width]` and
    /// `[height, width, channels]`, with 1, 3 or 4 channels, and numbers of other arrays.
    fn samples_of(array: &HostArray) -> Result<Vec<Self>> {
        let (values, dims) = (values_of(array)?, array.ty().dims());
        let (samples, dims) = match dims {
            [] => return Err(Error::invalid("report", "a single number has no samples")),
            [samples, dims @ ..] => (*samples, dims),
        };
        let each = values.len() / samples.max(1);
        let sample = |index: usize| &values[index * each..(index + 1) * each];
        (0..samples)
            .map(|index| match picture_dims(dims) {
                Some(dims) => picture(sample(index), dims, array.ty().dtype()),
                None => Ok(Shown::Text(numbers(sample(index)))),
            })
            .collect()
    }

    fn bytes(&self) -> u64 {
        let (Shown::Text(text) | Shown::Picture(text)) = self;
        text.len() as u64
    }

    fn html(&self, of: &str, escaped: impl Fn(&str) -> String) -> String {
        match self {
            Shown::Text(text) => escaped(text),
            Shown::Picture(png) => {
                format!(
                    "<img alt=\"{of}\" src=\"data:image/png;base64,{}\">",
                    escaped(png)
                )
            }
        }
    }
}

/// Checks that a report with these predictions can be read again.
fn check_size(predictions: &[Prediction]) -> Result<()> {
    let all = predictions.iter().flat_map(|of| {
        let shown = [Some(&of.input), of.target.as_ref(), Some(&of.prediction)];
        shown.into_iter().flatten()
    });
    let bytes: u64 = all.map(Shown::bytes).sum();
    let most = MOST_BYTES / 2;
    if bytes <= most {
        return Ok(());
    }
    let count = predictions.len() as u64;
    let instead = match count * most / bytes {
        0 => "smaller pictures".to_string(),
        fewer => format!("a subset of at most {fewer}, or smaller pictures"),
    };
    let message = format!(
        "{count} samples to show take {}, and a report has {} for them; give {instead}",
        format_bytes(bytes),
        format_bytes(most)
    );
    Err(Error::invalid("report", message))
}

/// The table of a page; rows whose prediction is another class than the target are marked.
pub(super) fn table(predictions: &[Prediction], escaped: impl Fn(&str) -> String) -> String {
    let mut table =
        "<table>\n<tr><th>input</th><th>target</th><th>prediction</th></tr>\n".to_string();
    for Prediction {
        input,
        target,
        prediction,
    } in predictions
    {
        let class = |shown: &Shown| match shown {
            Shown::Text(text) => text.parse::<i64>().ok(),
            Shown::Picture(_) => None,
        };
        let classes = target.as_ref().and_then(class).zip(class(prediction));
        let is_wrong = classes.is_some_and(|(target, prediction)| target != prediction);
        let class = if is_wrong { " class=\"wrong\"" } else { "" };
        let target = target.as_ref();
        _ = writeln!(
            table,
            "<tr{class}><td>{}</td><td>{}</td><td>{}</td></tr>",
            input.html("input", &escaped),
            target.map_or_else(String::new, |target| target.html("target", &escaped)),
            prediction.html("prediction", &escaped),
        );
    }
    table + "</table>\n"
}

/// Height, width and channels, if an array of these dimensions is a picture.
fn picture_dims(dims: &[usize]) -> Option<[u32; 3]> {
    let [height, width, channels] = match *dims {
        [height, width] => [height, width, 1],
        [height, width, channels @ (1 | 3 | 4)] => [height, width, channels],
        _ => return None,
    };
    let is_large = height >= SIDE && width >= SIDE;
    let dim = |dim: usize| u32::try_from(dim).ok();
    is_large.then_some([dim(height)?, dim(width)?, dim(channels)?])
}

/// A picture of bytes, or of floats: those from 0 to 1 as they are, others from the least to the
/// greatest.
fn picture(values: &[f64], dims: [u32; 3], dtype: DType) -> Result<Shown> {
    let finite = values.iter().copied().filter(|value| value.is_finite());
    let (least, most) = finite.fold(
        (f64::INFINITY, f64::NEG_INFINITY),
        |(least, most), value| (least.min(value), most.max(value)),
    );
    let (from, to) = match dtype {
        DType::U8 => (0.0, 255.0),
        _ if least >= 0.0 && most <= 1.0 => (0.0, 1.0),
        _ => (least, most.max(least + f64::MIN_POSITIVE)),
    };
    let pixel = |value: &f64| {
        if value.is_finite() {
            (255.0 * (value - from) / (to - from)).round() as u8
        } else {
            0
        }
    };
    let pixels: Vec<u8> = values.iter().map(pixel).collect();
    Ok(Shown::Picture(base64(&png::encode(&pixels, dims)?)))
}

/// The numbers as text.
fn numbers(values: &[f64]) -> String {
    let number = |value: &f64| {
        if value.fract() == 0.0 && value.abs() < 1e15 {
            format!("{value}")
        } else {
            format_metric("", *value)
        }
    };
    let shown: Vec<String> = values.iter().take(SHOWN).map(number).collect();
    let more = match values.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    shown.join(", ") + &more
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let of = |index: usize| u32::from(part.get(index).copied().unwrap_or(0));
        let bits = of(0) << 16 | of(1) << 8 | of(2);
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit)) & 63;
            // Each byte makes one digit more.
            let is_there = digit <= part.len();
            text.push(if is_there {
                char::from(DIGITS[index as usize])
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_has_the_values_of_its_standard() {
        let texts = ["", "f", "fo", "foo", "foob", "fooba", "foobar"];
        let expected = [
            "", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy",
        ];
        assert_eq!(texts.map(|text| base64(text.as_bytes())), expected);
    }

    #[test]
    fn samples_are_numbers_or_pictures() {
        let shown = |array: HostArray| Shown::samples_of(&array).unwrap();
        let text = |text: &str| Shown::Text(text.into());
        let classes = HostArray::from_slice(&[7i32, -1], [2]).unwrap();
        assert_eq!(shown(classes), [text("7"), text("-1")]);
        let points = HostArray::from_slice(&[0.5f32, 2.0, 1e-7, f32::NAN], [2, 2]).unwrap();
        assert_eq!(shown(points), [text("0.5000, 2"), text("1.000e-7, NaN")]);
        let many = HostArray::from_slice(&[1u8; 14], [1, 14]).unwrap();
        let ones = ["1"; 12].join(", ");
        assert_eq!(shown(many), [text(&format!("{ones}, and 2 more"))]);
        let images = HostArray::from_slice(&[0u8; 2 * 5 * 4 * 3], [2, 5, 4, 3]).unwrap();
        let images = shown(images);
        assert_eq!(images.len(), 2);
        // The signature of a PNG file.
        let is_png =
            |shown: &Shown| matches!(shown, Shown::Picture(png) if png.starts_with("iVBORw0KGgo"));
        assert!(images.iter().all(is_png), "{images:?}");
        assert!(Shown::samples_of(&HostArray::scalar(1f32)).is_err());
    }

    #[test]
    fn values_that_are_not_finite_are_black() {
        let shown = |first: f32| {
            let mut image = [0.5; SIDE * SIDE];
            image[0] = first;
            let image = HostArray::from_slice(&image, [1, SIDE, SIDE]).unwrap();
            Shown::samples_of(&image).unwrap()
        };
        assert_ne!(shown(0.0), shown(1.0));
        for value in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            assert_eq!(shown(value), shown(0.0), "{value}");
        }
    }
}
