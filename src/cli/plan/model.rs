//! Models of plans.

use std::str::FromStr;

use halite::{
    Error, MeshShape, Param, Result,
    backends::OpenTarget,
    models::{
        Classifier, ClassifierVisitor, ColorImageModel, DescribedClassifier, TrainingOptions,
    },
    nn::TransformerConfig,
    plan::Plan,
    train::Strategy,
};

use super::PlanCommand;

/// The model of a plan.
#[derive(Clone, Debug)]
pub(super) enum Model {
    Mlp,
    Cnn,
    Classifier(Classifier),
    Transformer(TransformerConfig),
}

impl FromStr for Model {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "mnist-mlp" => Ok(Model::Mlp),
            "mnist-cnn" => Ok(Model::Cnn),
            _ => {
                let classifier = || name.parse().map(Model::Classifier);
                let transformer = name.parse().map(Model::Transformer);
                transformer.or_else(|_: Error| classifier()).map_err(|_| {
                    let classifiers = Classifier::ALL.iter().map(Classifier::to_string);
                    let names: Vec<String> = ["mnist-mlp", "mnist-cnn"]
                        .map(String::from)
                        .into_iter()
                        .chain(classifiers)
                        .chain(TransformerConfig::NAMES.map(String::from))
                        .collect();
                    let names = names.join(", ");
                    let message = format!("unknown model `{name}`; expected one of {names}");
                    Error::invalid("model", message)
                })
            }
        }
    }
}

/// Classes of the planned classifiers of color images.
pub(super) const IMAGENET_CLASSES: usize = 1000;

/// Plans the training step of a classifier of color images, as `halite train imagenet` trains it.
pub(super) struct Classified<'a> {
    pub(super) command: &'a PlanCommand,
    pub(super) target: &'a OpenTarget,
    pub(super) axes: &'a MeshShape,
    pub(super) strategy: &'a Strategy,
    pub(super) options: TrainingOptions,
    pub(super) side: usize,
}

impl ClassifierVisitor for Classified<'_> {
    type Output = Plan;

    fn visit<M: ColorImageModel>(
        self,
        classifier: DescribedClassifier<M::Of<Param>>,
    ) -> Result<Plan> {
        let task = classifier.task::<M>(classifier.sources[0].1);
        let (net, side, options) = (classifier.net, self.side, &self.options);
        let Classified {
            command,
            target,
            axes,
            strategy,
            ..
        } = self;
        if classifier.is_transformer {
            let step = task.adamw_step(side, net, options);
            command.plan_step(target, axes, strategy, step)
        } else {
            let step = task.sgd_step(side, net, options);
            command.plan_step(target, axes, strategy, step)
        }
    }
}
