//! Classifiers of color images by name, as the command line has them.

mod preparation;

use std::{fmt, path::Path, str::FromStr};

use halite_core::{Client, Error, HostArray, Result};
use halite_data::images::{Filter, Framing};
use halite_ir::Remat;
use halite_nn::Param;
use halite_weights::{Below, NameMap, TensorSource, WeightLoader, open};

pub use self::preparation::Preparation;
use crate::{ClassifyColor, ColorImageModel, EfficientNet, Normalization, ResNet, Vit, VitConfig};

/// A classifier of color images by name: `resnet50`, `vit-b16`, `efficientnet-lite0`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Classifier {
    /// [`ResNet::resnet18`]
    ResNet18,
    /// [`ResNet::resnet34`]
    ResNet34,
    /// [`ResNet::resnet50`]
    ResNet50,
    /// [`EfficientNet::lite0`] to [`EfficientNet::lite4`], by its number.
    EfficientNetLite(u8),
    /// [`VitConfig::s16`]
    VitS16,
    /// [`VitConfig::b16`]
    VitB16,
    /// [`VitConfig::l16`]
    VitL16,
    /// [`VitConfig::ten_billion`]
    Vit10B,
}

/// A classifier's description, and how its published weights are used.
#[derive(Debug)]
pub struct DescribedClassifier<M> {
    /// Types and initialization of the parameters.
    pub net: M,
    /// Names of published weights, each with the normalization that they were trained with. The
    /// first is that of the original.
    pub sources: Vec<(NameMap, Normalization)>,
    /// True for vision transformers, which train with AdamW; others train with SGD.
    pub is_transformer: bool,
}

/// What is done with a [`Classifier`], whatever its type.
pub trait ClassifierVisitor {
    /// What it returns.
    type Output;

    /// Does it.
    ///
    /// # Errors
    /// Those of the visitor.
    fn visit<M: ColorImageModel>(
        self,
        classifier: DescribedClassifier<M::Of<Param>>,
    ) -> Result<Self::Output>;
}

impl Classifier {
    /// All names.
    pub const ALL: [Classifier; 12] = [
        Classifier::ResNet18,
        Classifier::ResNet34,
        Classifier::ResNet50,
        Classifier::EfficientNetLite(0),
        Classifier::EfficientNetLite(1),
        Classifier::EfficientNetLite(2),
        Classifier::EfficientNetLite(3),
        Classifier::EfficientNetLite(4),
        Classifier::VitS16,
        Classifier::VitB16,
        Classifier::VitL16,
        Classifier::Vit10B,
    ];

    /// Preparation of images for the published weights.
    pub fn framing(self) -> Framing {
        match self {
            Classifier::EfficientNetLite(number) => {
                let side = [224, 240, 260, 280, 300][usize::from(number.min(4))];
                // A border of 32 pixels.
                Framing::new(side)
                    .crop(side as f64 / (side + 32) as f64)
                    .filter(Filter::Bicubic)
            }
            _ => Framing::new(224),
        }
    }

    /// Calls `visitor` with this classifier, for this number of classes and for images of `side` by
    /// `side` pixels.
    ///
    /// # Errors
    /// If a vision transformer has no whole number of patches in such an image; those of the
    /// visitor.
    pub fn visit<V: ClassifierVisitor>(
        self,
        classes: usize,
        side: usize,
        visitor: V,
    ) -> Result<V::Output> {
        let vit = |config: VitConfig, visitor: V| {
            let net = Vit::new(&VitConfig {
                image: side,
                ..config
            })?;
            let sources = vec![
                (net.names(), Normalization::IMAGENET),
                (net.timm_names(), Normalization::HALF),
            ];
            visitor.visit::<Vit<()>>(DescribedClassifier {
                net,
                sources,
                is_transformer: true,
            })
        };
        match self {
            Classifier::ResNet18 => resnet(ResNet::resnet18(classes), visitor),
            Classifier::ResNet34 => resnet(ResNet::resnet34(classes), visitor),
            Classifier::ResNet50 => resnet(ResNet::resnet50(classes), visitor),
            Classifier::EfficientNetLite(number) => {
                let net = match number {
                    0 => EfficientNet::lite0(classes),
                    1 => EfficientNet::lite1(classes),
                    2 => EfficientNet::lite2(classes),
                    3 => EfficientNet::lite3(classes),
                    _ => EfficientNet::lite4(classes),
                };
                let normalization = Normalization::EFFICIENTNET_LITE;
                let sources = vec![
                    (net.names(), normalization),
                    (net.timm_names(), normalization),
                ];
                visitor.visit::<EfficientNet<()>>(DescribedClassifier {
                    net,
                    sources,
                    is_transformer: false,
                })
            }
            Classifier::VitS16 => vit(VitConfig::s16(classes), visitor),
            Classifier::VitB16 => vit(VitConfig::b16(classes), visitor),
            Classifier::VitL16 => vit(VitConfig::l16(classes), visitor),
            Classifier::Vit10B => vit(
                VitConfig {
                    remat: Some(Remat::Full),
                    ..VitConfig::ten_billion(classes)
                },
                visitor,
            ),
        }
    }

    /// Opens published weights. If a training framework has put them below a prefix, such as
    /// `state_dict` or `module`, the tensors are those below it.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Box<dyn TensorSource>> {
        let file = open(path)?;
        let names = || file.tensors().iter().map(|tensor| &*tensor.name);
        if names().any(|name| HEADS.contains(&name)) {
            return Ok(Box::new(file));
        }
        let below = |head: &&str| {
            names().find_map(|name| {
                name.strip_suffix(*head)?
                    .strip_suffix('.')
                    .map(str::to_owned)
            })
        };
        match HEADS.iter().find_map(below) {
            Some(prefix) => Ok(Box::new(Below::new(file, &prefix)?)),
            None => Ok(Box::new(file)),
        }
    }

    /// Number of classes of published weights.
    ///
    /// # Errors
    /// If there is no head.
    pub fn classes_of(file: &dyn TensorSource) -> Result<usize> {
        let is_head = |name: &str| HEADS.contains(&name);
        let found = (file.tensors().iter())
            .find(|tensor| is_head(&tensor.name) && tensor.ty.rank() == 1)
            .map(|tensor| tensor.ty.dims()[0]);
        found.ok_or_else(|| {
            let message = format!(
                "no head in {}; expected one of {}",
                file.origin(),
                HEADS.join(", ")
            );
            Error::invalid("classifier", message)
        })
    }

    /// Probabilities of the classes of images `u8[count, side, side, 3]`, by published weights:
    /// `f32[count, classes]`. The number of classes is that of the file's head. Images are framed
    /// by [`framing`](Self::framing), and normalized as the names of the weights say.
    ///
    /// # Errors
    /// If the file does not fit the model, or the images are of another type.
    pub fn probabilities(
        self,
        client: &Client,
        file: &dyn TensorSource,
        images: &HostArray,
    ) -> Result<HostArray> {
        self.probabilities_by(client, file, images, None)
    }

    /// As [`probabilities`](Self::probabilities), with a normalization such as that of a
    /// [`Preparation`].
    ///
    /// # Errors
    /// As [`probabilities`](Self::probabilities).
    pub fn probabilities_by(
        self,
        client: &Client,
        file: &dyn TensorSource,
        images: &HostArray,
        normalization: Option<Normalization>,
    ) -> Result<HostArray> {
        let visitor = Probabilities {
            client,
            file,
            images,
            normalization,
        };
        let side = images.ty().dims().get(1).copied().unwrap_or_default();
        self.visit(Self::classes_of(file)?, side, visitor)
    }
}

fn resnet<V: ClassifierVisitor>(net: ResNet<Param>, visitor: V) -> Result<V::Output> {
    let sources = vec![(net.names(), Normalization::IMAGENET)];
    visitor.visit::<ResNet<()>>(DescribedClassifier {
        net,
        sources,
        is_transformer: false,
    })
}

/// Names of the biases of heads.
const HEADS: [&str; 5] = [
    "fc.bias",
    "_fc.bias",
    "classifier.bias",
    "heads.head.bias",
    "head.bias",
];

impl<M: halite_core::Tree<Leaf = Param>> DescribedClassifier<M> {
    /// The task of `halite train imagenet`: mirrored images, and a label smoothing of 0.1.
    pub fn task<F: ColorImageModel>(&self, normalization: Normalization) -> ClassifyColor<F> {
        let smoothing = ClassifyColor::<F>::LABEL_SMOOTHING;
        ClassifyColor::new(normalization)
            .label_smoothing(smoothing)
            .mirror()
    }

    /// The names and the normalization that fit the file: the first whose tensors the file has, but
    /// for those at and below the paths `replaced`; else the first of all.
    ///
    /// # Errors
    /// If a replaced path is not that of a parameter.
    pub fn source(
        &self,
        file: &dyn TensorSource,
        replaced: &[&str],
    ) -> Result<&(NameMap, Normalization)> {
        for source in &self.sources {
            let loader = WeightLoader::new(file, &source.0);
            let loader = (replaced.iter()).fold(loader, |loader, path| loader.replace(path));
            if loader.report(&self.net)?.is_complete() {
                return Ok(source);
            }
        }
        Ok(&self.sources[0])
    }
}

struct Probabilities<'a> {
    client: &'a Client,
    file: &'a dyn TensorSource,
    images: &'a HostArray,
    normalization: Option<Normalization>,
}

impl ClassifierVisitor for Probabilities<'_> {
    type Output = HostArray;

    fn visit<M: ColorImageModel>(
        self,
        classifier: DescribedClassifier<M::Of<Param>>,
    ) -> Result<HostArray> {
        let (names, normalization) = classifier.source(self.file, &[])?;
        let loaded = WeightLoader::new(self.file, names).load(self.client, &classifier.net)?;
        let normalization = self.normalization.unwrap_or(*normalization);
        ClassifyColor::<M>::new(normalization).probabilities(
            self.client,
            &loaded.model,
            self.images,
        )
    }
}

impl fmt::Display for Classifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Classifier::ResNet18 => f.write_str("resnet18"),
            Classifier::ResNet34 => f.write_str("resnet34"),
            Classifier::ResNet50 => f.write_str("resnet50"),
            Classifier::EfficientNetLite(number) => write!(f, "efficientnet-lite{number}"),
            Classifier::VitS16 => f.write_str("vit-s16"),
            Classifier::VitB16 => f.write_str("vit-b16"),
            Classifier::VitL16 => f.write_str("vit-l16"),
            Classifier::Vit10B => f.write_str("vit-10b"),
        }
    }
}

impl FromStr for Classifier {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = (Self::ALL.into_iter()).find(|classifier| classifier.to_string() == name);
        found.ok_or_else(|| {
            let names: Vec<String> = Self::ALL.iter().map(Self::to_string).collect();
            let message = format!(
                "unknown classifier `{name}`; expected one of {}",
                names.join(", ")
            );
            Error::invalid("classifier", message)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use halite_weights::{SafetensorsWriter, TensorInfo};

    use super::*;

    #[test]
    fn weights_below_a_prefix_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("head.safetensors");
        let bias = HostArray::from_slice(&[0.0f32; 3], [3]).unwrap();
        for (name, expected) in [
            ("fc.bias", "fc.bias"),
            ("heads.head.bias", "heads.head.bias"),
            ("state_dict.module.fc.bias", "fc.bias"),
            ("model.heads.head.bias", "heads.head.bias"),
        ] {
            let ty = bias.ty().clone();
            let name = name.to_owned();
            let mut file =
                SafetensorsWriter::create(&path, &[TensorInfo { name, ty }], &BTreeMap::new())
                    .unwrap();
            file.write(&bias).unwrap();
            file.finish().unwrap();
            let opened = Classifier::open(&path).unwrap();
            assert_eq!(opened.tensors()[0].name, expected);
            assert_eq!(Classifier::classes_of(&*opened).unwrap(), 3);
        }
    }
}
