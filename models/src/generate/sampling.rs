//! How tokens are drawn from logits.

use halite_core::{DType, Error, Result, Tree};
use halite_ir::Reduction;
use halite_nn::{Tensor, rng};

/// Temperature below which decoding is greedy: logits divided by it may be infinite.
const COLDEST: f64 = 1e-30;

/// Options of drawing tokens. They are applied in the order of the fields, as in `transformers`:
/// repetition penalty, temperature, top-k, top-p.
///
/// ```
/// use halite_models::Sampling;
///
/// let greedy = Sampling::greedy();
/// let creative = Sampling { temperature: 0.8, top_k: Some(40), top_p: Some(0.95), ..Sampling::default() };
/// # assert!(greedy.check(100).is_ok() && creative.check(100).is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Repetition penalty (Keskar et al. 2019): positive logits of tokens that occurred, in the
    /// prompt too, are divided by it, and negative ones multiplied. 1 changes nothing.
    pub repetition_penalty: f64,
    /// Sampling temperature, by which logits are divided. 1 samples from the model's distribution, 0
    /// (or below 1e-30) always takes the most likely token (greedy decoding), the first of equal ones.
    pub temperature: f64,
    /// Draws only from this many most likely tokens, and from those that are as likely as the last
    /// one.
    pub top_k: Option<usize>,
    /// Draws only from the most likely tokens, as many as it takes for their probabilities to add up
    /// to this, and from those that are as likely as the last one (nucleus sampling, Holtzman et al.
    /// 2020).
    pub top_p: Option<f64>,
    /// Seed of the random numbers. The sequences of a batch draw different ones.
    pub seed: u64,
}

impl Default for Sampling {
    /// The model's distribution: temperature 1 and nothing else.
    fn default() -> Self {
        Sampling {
            repetition_penalty: 1.0,
            temperature: 1.0,
            top_k: None,
            top_p: None,
            seed: 0,
        }
    }
}

impl Sampling {
    /// Always the most likely token.
    pub fn greedy() -> Self {
        Sampling {
            temperature: 0.0,
            ..Sampling::default()
        }
    }

    /// Checks the options for a vocabulary of this size.
    ///
    /// # Errors
    /// If the temperature is negative, `top_k` is 0 or more than the vocabulary, `top_p` is not in
    /// (0, 1], the penalty is not positive, or one of them is not finite.
    pub fn check(&self, vocabulary: usize) -> Result<()> {
        let Sampling {
            repetition_penalty,
            temperature,
            top_k,
            top_p,
            seed: _,
        } = *self;
        let mut problems = Vec::new();
        if !(temperature.is_finite() && temperature >= 0.0) {
            problems.push(format!(
                "temperature {temperature}; expected 0 or a positive number"
            ));
        }
        if let Some(count) = top_k.filter(|&count| count == 0 || count > vocabulary) {
            problems.push(format!("top-k {count}; expected 1 to {vocabulary}"));
        }
        if let Some(p) = top_p.filter(|&p| !(p > 0.0 && p <= 1.0)) {
            problems.push(format!("top-p {p}; expected more than 0 and at most 1"));
        }
        if !(repetition_penalty.is_finite() && repetition_penalty > 0.0) {
            problems.push(format!(
                "repetition penalty {repetition_penalty}; expected a positive number"
            ));
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(Error::invalid("generate", problems.join("; ")))
        }
    }

    /// The part of the options that a program depends on.
    pub(super) fn form(&self) -> Form {
        let is_greedy = self.temperature < COLDEST;
        Form {
            has_penalty: self.repetition_penalty != 1.0,
            is_greedy,
            top_k: self.top_k.filter(|_| !is_greedy),
            // 1 leaves nothing out.
            has_top_p: !is_greedy && self.top_p.is_some_and(|p| p < 1.0),
        }
    }
}

/// The part of [`Sampling`] that programs are compiled for; the numbers are inputs.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Form {
    pub(super) has_penalty: bool,
    pub(super) is_greedy: bool,
    pub(super) top_k: Option<usize>,
    pub(super) has_top_p: bool,
}

/// The numbers of [`Sampling`], scalars of `f32`, and the key of the random numbers.
#[derive(Clone, Copy, Debug, Tree)]
pub(super) struct Numbers<L> {
    pub(super) penalty: L,
    pub(super) temperature: L,
    pub(super) top_p: L,
    /// `u32[2]`
    pub(super) key: L,
}

impl Form {
    /// Draws a token for each sequence from `logits: [batch, vocab]`: `s32[batch]`. `seen`,
    /// `bool[batch, vocab]`, are the tokens that occurred, and `drawn: s32[]` the number of tokens
    /// that were drawn before.
    #[track_caller]
    pub(super) fn draw<'t>(
        self,
        logits: Tensor<'t>,
        seen: Option<Tensor<'t>>,
        drawn: Tensor<'t>,
        numbers: &Numbers<Tensor<'t>>,
    ) -> Tensor<'t> {
        let mut logits = logits.convert(DType::F32);
        if let Some(seen) = seen.filter(|_| self.has_penalty) {
            logits = seen.select(penalized(logits, numbers.penalty), logits);
        }
        if self.is_greedy {
            return logits.argmax(1);
        }
        let logits = logits / numbers.temperature;
        let top_p = self.has_top_p.then_some(numbers.top_p);
        let logits = most_likely(logits, self.top_k, top_p);
        rng::categorical(rng::fold_in(numbers.key, drawn), logits)
    }
}

/// Logits of tokens that occurred.
#[track_caller]
fn penalized<'t>(logits: Tensor<'t>, penalty: Tensor<'t>) -> Tensor<'t> {
    (logits.lt(0.0)).select(logits * penalty, logits / penalty)
}

/// `logits: [batch, vocab]` of the tokens that top-k and then top-p sampling draw from; those of
/// others are -inf. `top_p` is an `f32` scalar. See [`Sampling`].
#[track_caller]
pub fn most_likely<'t>(
    logits: Tensor<'t>,
    top_k: Option<usize>,
    top_p: Option<Tensor<'t>>,
) -> Tensor<'t> {
    let vocabulary = logits.dims().last().copied().unwrap_or(0);
    let top_k = top_k.filter(|&count| count < vocabulary);
    if (top_k.is_none() && top_p.is_none()) || logits.is_error() {
        return logits;
    }
    let logits = logits.convert(DType::F32);
    let (sorted, _) = logits.top_k(top_k.unwrap_or(vocabulary), 1);
    let count = sorted.dims()[1];
    let mut least = sorted.slice_dim(1, count - 1..);
    if let Some(top_p) = top_p {
        let max = sorted.slice_dim(1, ..1);
        // All tokens that are as likely as the last of the top k count.
        let kept = logits.ge(least.broadcast_to(logits.dims()));
        let weights = kept.select((logits - max).exp(), 0.0);
        let probabilities = (sorted - max).exp() / weights.sum_keep([1]);
        // Before the first one of 1 - p the sum over more likely tokens is below p.
        let before = probabilities.cumsum(1) - probabilities;
        let is_kept = before.lt(top_p.broadcast_to(before.dims()));
        least = (is_kept.select(sorted, f64::INFINITY)).reduce_keep(Reduction::Min, [1]);
    }
    let kept = logits.ge(least.broadcast_to(logits.dims()));
    kept.select(logits, f64::NEG_INFINITY)
}
