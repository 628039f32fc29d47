//! Which parameters weight decay is for.

use std::{fmt, sync::Arc};

use halite_core::TensorType;

use super::Named;

/// Says of a parameter, by path and type, whether it decays. The type is that of one layer: see [`Param::layer_type`](crate::Param::layer_type).
pub type DecayRule = Arc<dyn Fn(&str, &TensorType) -> bool + Send + Sync>;

/// Which parameters weight decay is for.
#[derive(Clone, Default)]
pub enum Decay {
    /// Those of two dimensions or more: matrices and kernels, not biases, and not the scales of normalisation layers.
    #[default]
    Matrices,
    /// Every parameter, as PyTorch does with a single group.
    All,
    /// Those for which this says so, given path and type.
    Rule(DecayRule),
}

impl Decay {
    /// Parameters for which `rule` says so, given path and type.
    pub fn rule(rule: impl Fn(&str, &TensorType) -> bool + Send + Sync + 'static) -> Self {
        Decay::Rule(Arc::new(rule))
    }

    /// Whether this parameter decays.
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
