//! Progress of a generation: the sequences on the host.

use std::ops::ControlFlow;

use halite_core::{Array, Error, ErrorKind, HostArray, Result};

use super::{FinishReason, GeneratedToken, GenerationOptions, GenerationReport, programs::Drawn};

/// A sequence during a generation.
pub(super) struct Sequence {
    /// The prompt and what follows.
    pub(super) tokens: Vec<u32>,
    pub(super) prompt: usize,
    pub(super) finish: Option<FinishReason>,
}

/// A generation in progress.
pub(super) struct Run<'r> {
    pub(super) sequences: Vec<Sequence>,
    pub(super) options: &'r GenerationOptions,
    pub(super) report: GenerationReport,
    pub(super) on_token: &'r mut dyn FnMut(GeneratedToken) -> ControlFlow<()>,
}

impl Run<'_> {
    pub(super) fn is_active(&self) -> bool {
        self.sequences
            .iter()
            .any(|sequence| sequence.finish.is_none())
    }

    /// The ends of the sequences that are processed as prompts: all of a sequence, or half of the
    /// context of those that are longer.
    pub(super) fn ends(&self, context: usize) -> Vec<&[u32]> {
        let ends = self.sequences.iter().map(|sequence| {
            let tokens = &sequence.tokens[..];
            if tokens.len() <= context {
                tokens
            } else {
                &tokens[tokens.len() - (context / 2).max(1)..]
            }
        });
        ends.collect()
    }

    /// Most tokens that a sequence still lacks.
    pub(super) fn remaining(&self) -> usize {
        let active = self
            .sequences
            .iter()
            .filter(|sequence| sequence.finish.is_none());
        let generated = active.map(|sequence| sequence.tokens.len() - sequence.prompt);
        generated
            .map(|generated| self.options.max_tokens - generated)
            .max()
            .unwrap_or(0)
    }

    /// Number of tokens drawn for each sequence that is not finished.
    pub(super) fn drawn(&self) -> usize {
        let generated = self
            .sequences
            .iter()
            .map(|sequence| sequence.tokens.len() - sequence.prompt);
        generated.max().unwrap_or(0)
    }

    /// Whether a token occurs in a sequence: `bool[batch, vocab]`.
    pub(super) fn seen(&self, vocabulary: usize) -> Result<HostArray> {
        let batch = self.sequences.len();
        let mut seen = vec![false; batch * vocabulary];
        for (row, sequence) in self.sequences.iter().enumerate() {
            for &token in &sequence.tokens {
                seen[row * vocabulary + token as usize] = true;
            }
        }
        HostArray::from_slice(&seen, [batch, vocabulary])
    }

    /// Adds up to `steps` drawn tokens to the sequences that are not finished; returns how many were
    /// added.
    ///
    /// # Errors
    /// If logits of one of them were not finite.
    pub(super) fn take(&mut self, drawn: &HostDrawn, steps: usize) -> Result<usize> {
        let mut added = 0;
        let rows = drawn.tokens.iter().zip(&drawn.is_finite);
        for (place, (&token, &is_finite)) in rows.take(steps * self.sequences.len()).enumerate() {
            let index = place % self.sequences.len();
            let sequence = &mut self.sequences[index];
            if sequence.finish.is_some() {
                continue;
            }
            let generated = sequence.tokens.len() - sequence.prompt;
            if !is_finite {
                let message = format!(
                    "the logits of sequence {index} for generated token {generated} are NaN or \
                     infinite; the weights are damaged, or a narrow type overflows"
                );
                return Err(Error::new(ErrorKind::Diverged, "generate", message));
            }
            let token = token as u32;
            if self.options.stop.contains(&token) {
                sequence.finish = Some(FinishReason::Stop(token));
                continue;
            }
            sequence.tokens.push(token);
            added += 1;
            if generated + 1 == self.options.max_tokens {
                sequence.finish = Some(FinishReason::MaxTokens);
            }
            let event = GeneratedToken {
                sequence: index,
                token,
            };
            if (self.on_token)(event).is_break() {
                for sequence in &mut self.sequences {
                    sequence.finish.get_or_insert(FinishReason::Interrupted);
                }
                break;
            }
        }
        Ok(added)
    }
}

/// [`Drawn`] tokens on the host.
pub(super) struct HostDrawn {
    pub(super) tokens: Vec<i32>,
    pub(super) is_finite: Vec<bool>,
}

impl HostDrawn {
    pub(super) fn read(drawn: &Drawn<Array>) -> Result<Self> {
        Ok(HostDrawn {
            tokens: drawn.tokens.to_vec()?,
            is_finite: drawn.is_finite.to_vec()?,
        })
    }
}
