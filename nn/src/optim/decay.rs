//! Selection of the parameters that weight decay applies to.

use std::{fmt, sync::Arc};

use halite_core::TensorType;

use super::Named;

/// Predicate for the parameters that decay, by path and type. The type is that of one layer: see
/// [`Param::layer_type`](crate::Param::layer_type).
pub type DecayRule = Arc<dyn Fn(&str, &TensorType) -> bool + Send + Sync>;

/// The parameters that weight decay applies to, among those that are trained and have a gradient.
#[derive(Clone, Default)]
pub enum Decay {
    /// Every parameter: the default, as in PyTorch with a single parameter group, and in optax
    /// without a mask.
    #[default]
    All,
    /// Parameters of two dimensions or more: matrices and kernels, but neither biases nor the
    /// scales of normalization layers.
    Matrices,
    /// Parameters for which the predicate is true, given path and type.
    Rule(DecayRule),
}

impl Decay {
    /// Selects the parameters for which `rule` is true, given path and type.
    pub fn rule(rule: impl Fn(&str, &TensorType) -> bool + Send + Sync + 'static) -> Self {
        Decay::Rule(Arc::new(rule))
    }

    /// Returns `true` if this parameter decays.
    pub fn applies(&self, named: Named<'_>) -> bool {
        let (path, ty) = (named.path, &named.param.layer_type());
        match self {
            Decay::Matrices => ty.rank() >= 2,
            Decay::All => true,
            Decay::Rule(rule) => rule(path, ty),
        }
    }
}

impl fmt::Debug for Decay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Decay::Matrices => "Matrices",
            Decay::All => "All",
            Decay::Rule(_) => "Rule(..)",
        })
    }
}
