//! Windows of a file of tokens.

use std::{io, path::Path};

use halite_core::{DType, Error, ErrorKind, Result, TensorType};

use super::windows::check_windows;
use crate::{Dataset, Field, SampleMut, digest::digest_of_some, positioned::PositionedFile};

/// Windows of a file of tokens, `u16` or `u32`, little-endian, without a header, as `train.bin` of
/// nanoGPT: sample `i` is the `length + 1` tokens from `i * length` on, as those of
/// [`TokenWindows`](super::TokenWindows). Windows are read where they are, so a file may be larger
/// than memory.
///
/// The one field is `tokens: u32[length + 1]`.
///
/// ```
/// use halite_core::DType;
/// use halite_data::{Dataset, Rows, text::TokenFile};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("train.bin");
/// TokenFile::write(&path, &(0..10).collect::<Vec<u32>>(), DType::U16)?;
/// let windows = TokenFile::open(&path, DType::U16, 3)?.with_vocabulary(10);
/// assert_eq!(windows.len(), 3);
/// let mut rows = Rows::zeros(windows.fields(), 1)?;
/// windows.read(1, &mut rows.sample_mut(0))?;
/// assert_eq!(rows.sample(0).values::<u32>(0)?, [3, 4, 5, 6]);
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Debug)]
pub struct TokenFile {
    file: PositionedFile,
    /// Bytes of a token: 2 or 4.
    width: usize,
    tokens: usize,
    length: usize,
    vocabulary: Option<usize>,
    fields: [Field; 1],
}

const CONTEXT: &str = "token file";

impl TokenFile {
    /// Opens a file of tokens of type `dtype`, `u16` or `u32`, as windows of `length` targets. The
    /// content of a file that is compressed with gzip is in memory, at most 1 GiB.
    ///
    /// # Errors
    /// If the file cannot be read, its size is not a multiple of a token's, or has too few tokens for
    /// one window; if `dtype` is another type, or `length` is 0.
    pub fn open(path: impl AsRef<Path>, dtype: DType, length: usize) -> Result<Self> {
        let path = path.as_ref();
        let width = width_of(dtype)?;
        let file = PositionedFile::open(path)
            .map_err(|error| failed(path, ErrorKind::Io, &error.to_string()))?;
        let file = (file.decompressed()).map_err(|(kind, reason)| failed(path, kind, &reason))?;
        if file.len() % width as u64 != 0 {
            let len = file.len();
            let reason = format!("{len} bytes are not a whole number of {dtype}");
            return Err(failed(path, ErrorKind::Corrupt, &reason));
        }
        let tokens = usize::try_from(file.len() / width as u64)
            .map_err(|_| failed(path, ErrorKind::Corrupt, "larger than the address space"))?;
        check_windows(tokens, length)
            .map_err(|reason| failed(path, ErrorKind::InvalidArgument, &reason))?;
        let ty = TensorType::new(DType::U32, [length + 1]);
        Ok(TokenFile {
            file,
            width,
            tokens,
            length,
            vocabulary: None,
            fields: [Field::new("tokens", ty)],
        })
    }

    /// Sets the size of the vocabulary: a token of this number or a larger one is then an error of
    /// its read, such as in a file of `u16` that is read as `u32`.
    pub fn with_vocabulary(self, vocabulary: usize) -> Self {
        let vocabulary = Some(vocabulary);
        TokenFile { vocabulary, ..self }
    }

    /// Writes tokens as a file that [`open`](Self::open) reads with this `dtype`. A file there is
    /// replaced.
    ///
    /// # Errors
    /// If a token does not fit, `dtype` is neither `u16` nor `u32`, or the file cannot be written.
    pub fn write(path: impl AsRef<Path>, tokens: &[u32], dtype: DType) -> Result<()> {
        let (path, width) = (path.as_ref(), width_of(dtype)?);
        if let Some(place) = (tokens.iter()).position(|&token| width == 2 && token > 0xffff) {
            let reason = format!("token {place} is {}; u16 has at most 65535", tokens[place]);
            return Err(failed(path, ErrorKind::InvalidArgument, &reason));
        }
        let bytes = tokens
            .iter()
            .flat_map(|token| token.to_le_bytes().into_iter().take(width));
        let bytes: Vec<u8> = bytes.collect();
        let written = halite_core::files::write_output(path, &bytes);
        written.map_err(|error| failed(path, ErrorKind::Io, &error.to_string()))
    }

    /// Number of tokens.
    pub fn tokens(&self) -> usize {
        self.tokens
    }
}

impl Dataset for TokenFile {
    fn len(&self) -> usize {
        (self.tokens - 1) / self.length
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        let first = index * self.length;
        let tokens = into.values_mut::<u32>(0)?;
        // Into the first bytes of the row; two bytes become four from the last one on.
        let size = tokens.len() * self.width;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(tokens);
        let read = self
            .file
            .read_at(&mut bytes[..size], (first * self.width) as u64);
        read.map_err(|error: io::Error| {
            let reason = format!("window {index}, from token {first}: {error}");
            failed(self.file.path(), ErrorKind::Io, &reason)
        })?;
        for place in (0..tokens.len()).rev() {
            let bytes: &[u8] = bytemuck::cast_slice(tokens);
            let token = match self.width {
                2 => u32::from(u16::from_le_bytes([bytes[2 * place], bytes[2 * place + 1]])),
                _ => u32::from_le(tokens[place]),
            };
            tokens[place] = token;
        }
        let beyond = |&token: &u32| self.vocabulary.is_some_and(|size| token as usize >= size);
        if let Some(place) = tokens.iter().position(beyond) {
            let (token, vocabulary) = (tokens[place], self.vocabulary.unwrap_or(0));
            let reason = format!(
                "token {} is {token}, and the vocabulary has {vocabulary}; is the file of u{}?",
                first + place,
                8 * self.width
            );
            return Err(failed(self.file.path(), ErrorKind::Corrupt, &reason));
        }
        Ok(())
    }

    /// Digest of the number of tokens, the length of a window, and eight windows.
    fn digest(&self) -> Option<String> {
        Some(format!("{} tokens {}", self.tokens, digest_of_some(self)?))
    }

    fn name(&self) -> String {
        self.file.name()
    }
}

fn width_of(dtype: DType) -> Result<usize> {
    match dtype {
        DType::U16 => Ok(2),
        DType::U32 => Ok(4),
        _ => {
            let message = format!("tokens of type {dtype}; expected u16 or u32");
            Err(Error::invalid(CONTEXT, message))
        }
    }
}

fn failed(path: &Path, kind: ErrorKind, reason: &str) -> Error {
    Error::new(kind, CONTEXT, format!("{}: {reason}", path.display()))
}
