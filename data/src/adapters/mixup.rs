//! Mixup and CutMix: samples mixed with other samples, labels too.

use halite_core::{DType, Error, ErrorKind, Result};

#[cfg(doc)]
use super::DatasetExt;
use super::map::Scratch;
use crate::{Dataset, Field, Key, Random, Sample, SampleMut};

/// Samples mixed with other samples of the same dataset. See [`DatasetExt::mixup`] and
/// [`DatasetExt::cutmix`]. A sample whose partner cannot be read is mixed with another one.
#[derive(Debug)]
pub struct Mixup<D> {
    inner: D,
    image: usize,
    label: usize,
    mixup: Option<f64>,
    cutmix: Option<f64>,
    probability: f64,
    scratch: Scratch,
}

/// Partners that are tried where samples cannot be read.
const ATTEMPTS: usize = 8;

/// How a sample is mixed.
#[derive(Clone, Copy, Debug)]
enum Method {
    Mixup,
    CutMix,
}

impl<D: Dataset> Mixup<D> {
    pub(super) fn new(inner: D, image: &str, label: &str) -> Result<Self> {
        if inner.is_sequential() || inner.is_empty() {
            let message = format!(
                "{} is {}; mixing reads other samples by index",
                inner.name(),
                if inner.is_empty() {
                    "empty"
                } else {
                    "a stream"
                }
            );
            return Err(Error::invalid("mixup", message));
        }
        let (image_at, label_at) = (field_of(&inner, image)?, field_of(&inner, label)?);
        let dtype = |at: usize| inner.fields()[at].ty.dtype();
        if !matches!(dtype(image_at), DType::U8 | DType::F32) {
            let message = format!(
                "`{image}` is {}; expected u8 or f32",
                inner.fields()[image_at].ty
            );
            return Err(Error::invalid("mixup", message));
        }
        if dtype(label_at) != DType::F32 || image_at == label_at {
            let message = format!(
                "`{label}` is {}; expected labels f32[classes], such as those of `one_hot`",
                inner.fields()[label_at].ty
            );
            return Err(Error::invalid("mixup", message));
        }
        Ok(Mixup {
            inner,
            image: image_at,
            label: label_at,
            mixup: None,
            cutmix: None,
            probability: 1.0,
            scratch: Scratch::default(),
        })
    }

    /// Mixes by mixup, with this `alpha`; by either of both for half of the samples each if CutMix
    /// is there.
    ///
    /// # Errors
    /// If `alpha` is not between 1e-3 and 1e6.
    pub fn or_mixup(self, alpha: f64) -> Result<Self> {
        let mixup = Some(checked(alpha)?);
        Ok(Mixup { mixup, ..self })
    }

    /// Mixes by CutMix, with this `alpha`; by either of both for half of the samples each if mixup is
    /// there.
    ///
    /// # Errors
    /// If `alpha` is not between 1e-3 and 1e6, or if the image has no height and width.
    pub fn or_cutmix(self, alpha: f64) -> Result<Self> {
        let field = &self.inner.fields()[self.image];
        if field.ty.rank() < 2 || field.ty.elements() == 0 {
            let (name, ty) = (&field.name, &field.ty);
            let message = format!("`{name}` is {ty}; expected [height, width, ..]");
            return Err(Error::invalid("cutmix", message));
        }
        let cutmix = Some(checked(alpha)?);
        Ok(Mixup { cutmix, ..self })
    }

    /// Sets the probability that a sample is mixed; 1 by default.
    ///
    /// # Errors
    /// If it is not between 0 and 1.
    pub fn probability(self, probability: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&probability) {
            let message = format!("a probability of {probability}; expected 0 to 1");
            return Err(Error::invalid("mixup", message));
        }
        Ok(Mixup {
            probability,
            ..self
        })
    }

    /// Writes the mixture of `into`, which has the first sample, and of `other`.
    fn mix(&self, into: &mut SampleMut<'_>, other: Sample<'_>, random: &mut Random) -> Result<()> {
        let (method, alpha) = match (self.mixup, self.cutmix) {
            (Some(mixup), Some(cutmix)) => {
                if random.chance(0.5) {
                    (Method::Mixup, mixup)
                } else {
                    (Method::CutMix, cutmix)
                }
            }
            (Some(mixup), None) => (Method::Mixup, mixup),
            (None, Some(cutmix)) => (Method::CutMix, cutmix),
            (None, None) => return Ok(()),
        };
        let mut lambda = random.beta(alpha, alpha);
        match method {
            Method::Mixup => match self.inner.fields()[self.image].ty.dtype() {
                DType::F32 => blend(into, other, self.image, lambda)?,
                _ => blend_bytes(into.bytes_mut(self.image), other.bytes(self.image), lambda),
            },
            Method::CutMix => lambda = self.paste(into, other, lambda, random),
        }
        blend(into, other, self.label, lambda)
    }

    /// Copies a rectangle of the other image; returns the share of the first image that is left.
    fn paste(
        &self,
        into: &mut SampleMut<'_>,
        other: Sample<'_>,
        lambda: f64,
        random: &mut Random,
    ) -> f64 {
        let dims = self.inner.fields()[self.image].ty.dims();
        let (height, width) = (dims[0], dims[1]);
        let center = [random.below(height), random.below(width)];
        let [rows, columns] = rectangle([height, width], center, lambda);
        let (bytes, other) = (into.bytes_mut(self.image), other.bytes(self.image));
        let pixel = bytes.len() / (height * width);
        for row in rows.clone() {
            let start = row * width;
            let part = (start + columns.start) * pixel..(start + columns.end) * pixel;
            bytes[part.clone()].copy_from_slice(&other[part]);
        }
        1.0 - (rows.len() * columns.len()) as f64 / (height * width) as f64
    }
}

/// Rows and columns of the rectangle whose area is `1 - lambda` of the image, before it is cut off
/// at the borders.
fn rectangle(dims: [usize; 2], center: [usize; 2], lambda: f64) -> [std::ops::Range<usize>; 2] {
    let part = 0.5 * (1.0 - lambda).sqrt();
    [0, 1].map(|axis| {
        let half = (part * dims[axis] as f64) as usize;
        center[axis].saturating_sub(half)..(center[axis] + half).min(dims[axis])
    })
}

fn blend(into: &mut SampleMut<'_>, other: Sample<'_>, field: usize, lambda: f64) -> Result<()> {
    let other = other.values::<f32>(field)?;
    for (to, &from) in into.values_mut::<f32>(field)?.iter_mut().zip(other) {
        *to = (lambda * f64::from(*to) + (1.0 - lambda) * f64::from(from)) as f32;
    }
    Ok(())
}

fn blend_bytes(into: &mut [u8], other: &[u8], lambda: f64) {
    let (first, second) = (lambda as f32, (1.0 - lambda) as f32);
    for (to, &from) in into.iter_mut().zip(other) {
        *to = (first * f32::from(*to) + second * f32::from(from) + 0.5) as u8;
    }
}

fn field_of(dataset: &impl Dataset, name: &str) -> Result<usize> {
    let found = (dataset.fields().iter()).position(|field| field.name == name);
    found.ok_or_else(|| {
        let names = dataset
            .fields()
            .iter()
            .map(|field| format!("`{}`", field.name));
        let names: Vec<String> = names.collect();
        let message = format!(
            "{} has no field `{name}`; it has {}",
            dataset.name(),
            names.join(", ")
        );
        Error::invalid("dataset", message)
    })
}

fn checked(alpha: f64) -> Result<f64> {
    if (1e-3..=1e6).contains(&alpha) {
        Ok(alpha)
    } else {
        let message = format!("alpha {alpha}; expected 1e-3 to 1e6, such as 0.2");
        Err(Error::invalid("mixup", message))
    }
}

impl<D: Dataset> Dataset for Mixup<D> {
    of_inner!(len fields name);

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        self.inner.read(index, into)?;
        let key = into.key();
        let mut random = key.random("mixup");
        if !random.chance(self.probability) {
            return Ok(());
        }
        for attempt in 1.. {
            let partner = random.below(self.inner.len());
            // As it is read at its own place of the epoch.
            let of_partner = Key {
                index: partner,
                ..key
            };
            let mut is_read = false;
            let read = (self.scratch).read(&self.inner, partner, of_partner, |other| {
                is_read = true;
                self.mix(into, other, &mut random)
            });
            let Err(error) = read else { break };
            let is_interrupted = matches!(error.kind(), ErrorKind::Cancelled | ErrorKind::Internal);
            // A sample that cannot be read is reported at its own place, once, and the others are
            // mixed with those that can be.
            if is_read || is_interrupted || attempt == ATTEMPTS {
                let message = format!("partner of sample {index}, sample {partner}");
                return Err(Error::new(error.kind(), "mixup", message).caused_by(error));
            }
        }
        Ok(())
    }

    fn digest(&self) -> Option<String> {
        let inner = self.inner.digest()?;
        let alpha = |name: &str, alpha: Option<f64>| match alpha {
            Some(alpha) => format!(", {name} {alpha}"),
            None => String::new(),
        };
        let methods = alpha("mixup", self.mixup) + &alpha("cutmix", self.cutmix);
        let (fields, probability) = ([self.image, self.label], self.probability);
        Some(format!(
            "{inner}{methods} of the fields {fields:?} at {probability}"
        ))
    }
}

/// See [`DatasetExt::one_hot`].
#[derive(Debug)]
pub struct OneHot<D> {
    inner: D,
    label: usize,
    classes: usize,
    fields: Vec<Field>,
    scratch: Scratch,
}

impl<D: Dataset> OneHot<D> {
    pub(super) fn new(inner: D, label: &str, classes: usize) -> Result<Self> {
        let at = field_of(&inner, label)?;
        let ty = &inner.fields()[at].ty;
        let is_label = matches!(ty.dtype(), DType::U8 | DType::U32 | DType::S32);
        if ty.rank() != 0 || !is_label || classes == 0 {
            let message =
                format!("`{label}` is {ty} of {classes} classes; expected u32[] of several");
            return Err(Error::invalid("one-hot", message));
        }
        let mut fields = inner.fields().to_vec();
        fields[at].ty = halite_core::TensorType::new(DType::F32, [classes]);
        Ok(OneHot {
            inner,
            label: at,
            classes,
            fields,
            scratch: Scratch::default(),
        })
    }

    fn class(&self, sample: Sample<'_>) -> Result<i64> {
        let at = self.label;
        Ok(match self.inner.fields()[at].ty.dtype() {
            DType::U8 => sample.values::<u8>(at)?[0].into(),
            DType::S32 => sample.values::<i32>(at)?[0].into(),
            _ => sample.values::<u32>(at)?[0].into(),
        })
    }
}

impl<D: Dataset> Dataset for OneHot<D> {
    of_inner!(len is_sequential name);

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        self.scratch.read(&self.inner, index, into.key(), |sample| {
            for field in (0..self.fields.len()).filter(|&field| field != self.label) {
                into.bytes_mut(field).copy_from_slice(sample.bytes(field));
            }
            let class = self.class(sample)?;
            let row = into.values_mut::<f32>(self.label)?;
            row.fill(0.0);
            let place = usize::try_from(class)
                .ok()
                .and_then(|class| row.get_mut(class));
            let Some(place) = place else {
                let (name, classes) = (&self.fields[self.label].name, self.classes);
                let message = format!(
                    "`{name}` of sample {index} is {class}; expected 0 to {}",
                    classes - 1
                );
                return Err(Error::invalid("one-hot", message));
            };
            *place = 1.0;
            Ok(())
        })
    }

    fn digest(&self) -> Option<String> {
        let (inner, label, classes) = (self.inner.digest()?, self.label, self.classes);
        Some(format!("{inner}, one-hot {label} of {classes}"))
    }
}
