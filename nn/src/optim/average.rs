//! Averages of the parameters over training, whose values generalize better than the last ones.

use std::{fmt, panic::Location};

use halite_core::{
    DType, Error, Result, Tree,
    tree::{Family, Leaf, Of},
};

use super::{Slots, zeros};
use crate::{Param, Tensor, Trace, special::wide};

/// Averages of all trained parameters and of the model's state, with leaves `L`.
pub type Averages<L> = Slots<Leaf<()>, L>;

/// Rule of an average of the parameters, updated after each optimizer step, as in PyTorch's
/// `AveragedModel`. Before its first step the average is the parameters.
///
/// The model's state, such as the running statistics of batch norm, is averaged with them
/// (`use_buffers` there): the last statistics are those of other weights.
///
/// ```
/// use halite_nn::optim::WeightAveraging;
///
/// let ema = WeightAveraging::ema(0.999);
/// let last_quarter = WeightAveraging::swa().start(7500).every(100);
/// assert_eq!(ema.to_string(), "ema(0.999)");
/// assert_eq!(last_quarter.to_string(), "swa, from step 7500, every 100 steps");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightAveraging {
    /// That of an exponential moving average.
    decay: Option<f64>,
    start: u64,
    every: u64,
}

impl WeightAveraging {
    /// Exponential moving average (Polyak and Juditsky 1992): `decay * average + (1 - decay) *
    /// parameters`, such as 0.999.
    pub fn ema(decay: f64) -> Self {
        WeightAveraging {
            decay: Some(decay),
            start: 0,
            every: 1,
        }
    }

    /// Stochastic weight averaging (Izmailov et al. 2018): the mean of the parameters after
    /// different steps.
    pub fn swa() -> Self {
        WeightAveraging {
            decay: None,
            start: 0,
            every: 1,
        }
    }

    /// Sets the first step whose parameters count, from 0; 0 by default.
    pub fn start(mut self, step: u64) -> Self {
        self.start = step;
        self
    }

    /// Sets the number of steps from one that counts to the next; 1 by default.
    pub fn every(mut self, steps: u64) -> Self {
        self.every = steps;
        self
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// If `decay` is not between 0 and 1, `every` is 0, or one of the steps is beyond `u32`.
    pub fn check(&self) -> Result<()> {
        let refused = |message: String| Err(Error::invalid("average", message));
        if let Some(decay) = self.decay.filter(|decay| !(0.0..1.0).contains(decay)) {
            return refused(format!(
                "decay is {decay}; expected a number from 0 to below 1, such as 0.999"
            ));
        }
        let most = u64::from(u32::MAX);
        if self.every == 0 || self.every > most || self.start > most {
            return refused(format!(
                "it starts at step {} and counts every {} steps; expected a start up to {most}, \
                 and 1 to {most} steps",
                self.start, self.every
            ));
        }
        Ok(())
    }

    /// Describes the averages of a model: those of its trained parameters and of its state, in `f32`,
    /// or in `f64` for leaves in `f64`.
    pub fn describe<M: Tree<Leaf = Param>>(&self, model: &M) -> Averages<Param> {
        Slots::of(model, |_, param| {
            is_averaged(param).then(|| Leaf(zeros(param)))
        })
    }

    /// The averages before the first step: the parameters.
    #[track_caller]
    pub fn first<'t, M: Tree<Leaf = Param>>(
        &self,
        model: &M,
        params: &Of<M, Tensor<'t>>,
    ) -> Averages<Tensor<'t>> {
        self.map(model, params, |param| param.convert(wide(param.dtype())))
    }

    /// The averages after update `step`, counted from 0, an integer scalar. `params` are those after
    /// it.
    ///
    /// # Panics
    /// If `params` or `averages` are not trees of the structure of `model`.
    #[track_caller]
    pub fn next<'t, M: Tree<Leaf = Param>>(
        &self,
        cx: &'t Trace,
        step: Tensor<'t>,
        model: &M,
        averages: Averages<Tensor<'t>>,
        params: &Of<M, Tensor<'t>>,
    ) -> Averages<Tensor<'t>> {
        let _site = cx.called_from(Location::caller());
        if let Err(error) = self.check() {
            cx.fail("average", error.message(), None);
            return averages;
        }
        let step = step.convert(DType::U32);
        let number = |number: u64| cx.scalar(number as f64, DType::U32);
        let (start, every) = (number(self.start), number(self.every));
        let since = step.maximum(start) - start;
        let is_first = step.le(start);
        let counts = (since % every).eq(0);
        let mut averages = averages.into_leaves().into_iter();
        self.map(model, params, |param| {
            let average = averages
                .next()
                .expect("an average of each trained parameter");
            let param = param.convert(average.dtype());
            let weight = match self.decay {
                Some(decay) => cx.hyperparameter("1 - decay", 1.0 - decay, average.dtype()),
                None => 1.0 / ((since / every).convert(average.dtype()) + 1.0),
            };
            let weight = counts.select(weight, 0.0);
            is_first.select(param, average + (param - average) * weight)
        })
    }

    fn map<'t, M: Tree<Leaf = Param>>(
        &self,
        model: &M,
        params: &Of<M, Tensor<'t>>,
        mut average: impl FnMut(Tensor<'t>) -> Tensor<'t>,
    ) -> Averages<Tensor<'t>> {
        let mut params = params.leaves().into_iter();
        Slots::of(model, |_, description| {
            let param = params.next().expect("parameters are a tree of the model");
            is_averaged(description).then(|| Leaf(average(*param)))
        })
    }
}

/// Whether a leaf of this description has an average.
pub fn is_averaged(param: &Param) -> bool {
    param.trainable || param.is_state && param.ty.dtype().is_float()
}

/// The model with the averages of its leaves, and the leaves that have none.
///
/// # Panics
/// If they are of different models.
pub fn averaged<'a, F: Family, L>(model: &'a F::Of<L>, averages: &'a Averages<L>) -> F::Of<&'a L> {
    let mut averages = averages.list().iter();
    Tree::leaf_refs(model).map_leaves(|_, leaf: &'a L| {
        let average = averages.next().expect("averages are a tree of the model");
        average.as_ref().map_or(leaf, |Leaf(average)| average)
    })
}

impl fmt::Display for WeightAveraging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.decay {
            Some(decay) => write!(f, "ema({decay})")?,
            None => f.write_str("swa")?,
        }
        if self.start > 0 {
            write!(f, ", from step {}", self.start)?;
        }
        if self.every > 1 {
            write!(f, ", every {} steps", self.every)?;
        }
        Ok(())
    }
}
