//! How buffers store the words of registers.

use std::ops::Range;

use bytemuck::{cast_slice, cast_slice_mut};

use crate::{
    View,
    narrow::{from_bf16, from_f16, to_bf16, to_f16},
};

/// How a buffer stores elements.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(missing_docs, reason = "the names are the types")]
pub enum Format {
    /// Booleans and unsigned integers.
    U8,
    S8,
    U16,
    S16,
    Bf16,
    F16,
    /// Words of 32 bits.
    Word,
    /// Words of 64 bits, of wide registers.
    Wide,
}

/// Calls `$work` with the type of stored elements, and the conversion to words of 32 bits.
macro_rules! with_format {
    ($format:expr, $work:ident) => {
        match $format {
            Format::U8 => $work!(u8, u32::from, |word| word as u8),
            Format::S8 => $work!(u8, |byte| byte as i8 as u32, |word| word as u8),
            Format::U16 => $work!(u16, u32::from, |word| word as u16),
            Format::S16 => $work!(u16, |short| short as i16 as u32, |word| word as u16),
            Format::Bf16 => $work!(u16, from_bf16, to_bf16),
            Format::F16 => $work!(u16, from_f16, to_f16),
            Format::Word | Format::Wide => $work!(u32, |word| word, |word| word),
        }
    };
}

impl Format {
    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Format::U8 | Format::S8 => 1,
            Format::U16 | Format::S16 | Format::Bf16 | Format::F16 => 2,
            Format::Word => 4,
            Format::Wide => 8,
        }
    }

    /// Whether wide registers have the elements.
    pub fn is_wide(self) -> bool {
        self == Format::Wide
    }

    /// The word of a register that has the first element of some bytes.
    ///
    /// # Panics
    /// If there is none.
    pub fn word(self, bytes: &[u8]) -> u64 {
        let bytes = &bytes[..self.size()];
        let bits = bytes.iter().rev();
        let bits = bits.fold(0u64, |bits, &byte| bits << 8 | u64::from(byte));
        if self.is_wide() {
            return bits;
        }
        macro_rules! word {
            ($element:ty, $load:expr, $store:expr) => {{
                let load: fn($element) -> u32 = $load;
                load(bits as $element).into()
            }};
        }
        with_format!(self, word)
    }

    /// Loads a range of the elements of a view into a register of as many words.
    #[inline(always)]
    pub(super) fn load(self, view: &View, bytes: &[u8], range: Range<usize>, into: &mut [u64]) {
        if self.is_wide() {
            let out = &mut into[..range.len()];
            return view.load(cast_slice(bytes), range, out, view.fill, |word: u64| word);
        }
        let out = &mut cast_slice_mut(into)[..range.len()];
        macro_rules! load {
            ($element:ty, $load:expr, $store:expr) => {{
                let elements: &[$element] = cast_slice(bytes);
                view.load(elements, range, out, view.fill as u32, $load)
            }};
        }
        with_format!(self, load)
    }

    /// Loads all elements of some bytes into a register.
    #[inline(always)]
    pub(super) fn load_line(self, bytes: &[u8], into: &mut [u64]) {
        if self.is_wide() {
            let words: &[u64] = cast_slice(bytes);
            return into[..words.len()].copy_from_slice(words);
        }
        let out: &mut [u32] = cast_slice_mut(into);
        macro_rules! load {
            ($element:ty, $load:expr, $store:expr) => {{
                let elements: &[$element] = cast_slice(bytes);
                let load = $load;
                for (out, &element) in out.iter_mut().zip(elements) {
                    *out = load(element);
                }
            }};
        }
        with_format!(self, load)
    }

    /// Stores the words of a register, given as bytes.
    #[inline(always)]
    pub(super) fn store(self, words: &[u8], out: &mut [u8]) {
        if matches!(self, Format::Word | Format::Wide) {
            return out.copy_from_slice(words);
        }
        let words: &[u32] = cast_slice(words);
        macro_rules! store {
            ($element:ty, $load:expr, $store:expr) => {{
                let elements: &mut [$element] = cast_slice_mut(out);
                let store = $store;
                for (out, &word) in elements.iter_mut().zip(words) {
                    *out = store(word);
                }
            }};
        }
        with_format!(self, store)
    }
}
