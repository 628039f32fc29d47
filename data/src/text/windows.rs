//! Windows of a sequence of tokens.

use std::sync::Arc;

use halite_core::{DType, Error, Result, TensorType};

use crate::{Dataset, Field, SampleMut, digest::digest_of};

/// Windows of a sequence of tokens: sample `i` is the `length + 1` tokens from `i * length` on, so
/// that each token but the last has its successor as target. Every token but the first is a target
/// once in an epoch; a rest that does not fill a window is omitted.
///
/// The one field is `tokens: u32[length + 1]`. A token takes four bytes of the host's memory,
/// whatever the size of the vocabulary.
///
/// ```
/// use halite_data::{Dataset, Rows, text::TokenWindows};
///
/// let windows = TokenWindows::new((0..10).collect::<Vec<u32>>(), 3)?;
/// assert_eq!(windows.len(), 3);
/// let mut rows = Rows::zeros(windows.fields(), 1)?;
/// windows.read(1, &mut rows.sample_mut(0))?;
/// assert_eq!(rows.sample(0).values::<u32>(0)?, [3, 4, 5, 6]);
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TokenWindows {
    tokens: Arc<[u32]>,
    length: usize,
    fields: [Field; 1],
}

impl TokenWindows {
    /// Creates windows of `length` targets.
    ///
    /// # Errors
    /// If `length` is 0, or there are too few tokens for one window.
    pub fn new(tokens: impl Into<Arc<[u32]>>, length: usize) -> Result<Self> {
        let tokens = tokens.into();
        check_windows(tokens.len(), length)
            .map_err(|message| Error::invalid("token windows", message))?;
        let fields = [Field::new(
            "tokens",
            TensorType::new(DType::U32, [length + 1]),
        )];
        Ok(TokenWindows {
            tokens,
            length,
            fields,
        })
    }

    /// Creates windows for training and for validation: the last part of each of `documents`, of
    /// this share, is for validation.
    ///
    /// # Errors
    /// If `validation` is not between 0 and 1, or as [`new`](Self::new) for either.
    pub fn split<T: AsRef<[u32]>>(
        documents: &[T],
        length: usize,
        validation: f64,
    ) -> Result<[Self; 2]> {
        if !(validation > 0.0 && validation < 1.0) {
            let message = format!(
                "a validation share of {validation}; it must be more than 0 and less than 1"
            );
            return Err(Error::invalid("token windows", message));
        }
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for document in documents {
            let document = document.as_ref();
            let (train, held_out) =
                document.split_at((document.len() as f64 * (1.0 - validation)).round() as usize);
            first.extend(train);
            last.extend(held_out);
        }
        let windows = |tokens: Vec<u32>, what: &str| {
            TokenWindows::new(tokens, length).map_err(|error| {
                Error::invalid("token windows", format!("{what}: {}", error.message()))
            })
        };
        Ok([
            windows(first, "to train on")?,
            windows(last, "to validate on")?,
        ])
    }

    /// Number of targets of a window.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The sequence of tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }
}

impl Dataset for TokenWindows {
    fn len(&self) -> usize {
        (self.tokens.len() - 1) / self.length
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        let start = index * self.length;
        into.write(0, &self.tokens[start..=start + self.length])
    }

    fn digest(&self) -> Option<String> {
        let length = (self.length as u64).to_le_bytes();
        Some(digest_of([&length[..], bytemuck::cast_slice(&self.tokens)]))
    }
}

/// Checks that there are tokens for a window of `length` targets.
pub(super) fn check_windows(tokens: usize, length: usize) -> Result<(), String> {
    match length {
        0 => Err("a context of 0 tokens; it must be at least 1".to_owned()),
        _ if tokens < 2 => Err(format!(
            "{tokens} tokens; expected more text, at least 2 tokens"
        )),
        _ if tokens <= length => Err(format!(
            "{tokens} tokens do not fill a window of {length} + 1; use a context of at most {}, or \
             more text",
            tokens - 1
        )),
        _ => Ok(()),
    }
}
