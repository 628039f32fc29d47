//! Published weights that a classifier starts from.

use halite::{
    Array, Client, Param, Result,
    models::{ColorImageModel, DescribedClassifier, Normalization},
    weights::{TensorSource, WeightLoader},
};

use super::run::Run;

/// The normalization that the weights of `file` were trained with, and the weights, of which those at
/// and below the paths `replaced` are new. Without a file, the normalization of the original.
///
/// # Errors
/// If the file does not fit the model.
pub(super) fn published<M: ColorImageModel>(
    run: &Run,
    client: &Client,
    file: Option<&dyn TensorSource>,
    classifier: &DescribedClassifier<M::Of<Param>>,
    replaced: &[&str],
) -> Result<(Normalization, Option<M::Of<Array>>)> {
    let Some(file) = file else {
        return Ok((classifier.sources[0].1, None));
    };
    let (names, normalization) = classifier.source(file, replaced)?;
    let loader = WeightLoader::new(file, names).seed(run.options.seed);
    let loader = (replaced.iter()).fold(loader, |loader, path| loader.replace(path));
    let loaded = loader.load(client, &classifier.net)?;
    if run.is_coordinator() && !replaced.is_empty() {
        remark!("{}", loaded.report.to_string().trim_end());
    }
    Ok((*normalization, Some(loaded.model)))
}
