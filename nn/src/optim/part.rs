use crate::{Param, Pattern};

/// The parameters of a model that an [update](super::update) changes: those that are trained, or
/// those of them whose path matches the pattern.
#[derive(Debug)]
pub struct Part<'m, M> {
    /// Description of the whole model.
    pub model: &'m M,
    /// Pattern of the paths; none matches all.
    pub pattern: Option<&'m Pattern>,
}

/// All parameters that are trained.
impl<'m, M> From<&'m M> for Part<'m, M> {
    fn from(model: &'m M) -> Self {
        Part {
            model,
            pattern: None,
        }
    }
}

impl<M> Part<'_, M> {
    pub(super) fn trains(&self, path: &str, param: &Param) -> bool {
        param.trainable && self.pattern.is_none_or(|pattern| pattern.matches(path))
    }
}
