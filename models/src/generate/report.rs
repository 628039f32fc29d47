//! Rates of a generation.

use std::{fmt, time::Duration};

/// Number of tokens and the time they took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TokenRate {
    /// Number of tokens of all sequences.
    pub tokens: usize,
    /// Wall time, without compiling.
    pub time: Duration,
}

impl TokenRate {
    /// Tokens a second; 0 if no time passed.
    pub fn per_second(&self) -> f64 {
        let seconds = self.time.as_secs_f64();
        if seconds == 0.0 {
            return 0.0;
        }
        self.tokens as f64 / seconds
    }

    pub(super) fn add(&mut self, tokens: usize, time: Duration) {
        self.tokens += tokens;
        self.time += time;
    }
}

impl fmt::Display for TokenRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, rate) = (self.time.as_secs_f64(), self.per_second());
        write!(
            f,
            "{} tokens in {seconds:.2} s ({rate:.1} tokens/s)",
            self.tokens
        )
    }
}

/// What a generation took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GenerationReport {
    /// Tokens of prompts, each pass with the first token that it gives. If the context is full, the
    /// end of the text is processed again, and counts again.
    pub prefill: TokenRate,
    /// Generated tokens but the first of each pass over a prompt.
    pub decode: TokenRate,
    /// Time of compiling programs, or of loading them from the program cache.
    pub compile: Duration,
}

impl fmt::Display for GenerationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let compile = self.compile.as_secs_f64();
        write!(
            f,
            "prefill {}, decode {}, compiled in {compile:.2} s",
            self.prefill, self.decode
        )
    }
}
