//! Values of host arrays as text, shortened like NumPy's.

use std::fmt::{self, Write};

use half::{bf16, f16};

use crate::{DType, Element, HostArray, dtype::float8};

/// Arrays of more elements are shortened.
const SHORTENED_ABOVE: usize = 1000;
/// The number of entries at each end of a shortened dimension.
const EDGE: usize = 3;

/// Nested brackets around the values: `[[1.0000, 2.0000], [3.0000, 4.0000]]`, one row per line.
impl fmt::Display for HostArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (dims, shorten) = (self.ty().dims(), self.ty().elements() > SHORTENED_ABOVE);
        let shown: Vec<usize> = shown_elements(dims, shorten);
        let text = match self.ty().dtype() {
            DType::Bool => self.texts(&shown, |x: bool| x.to_string()),
            DType::S8 => self.texts(&shown, |x: i8| x.to_string()),
            DType::S16 => self.texts(&shown, |x: i16| x.to_string()),
            DType::S32 => self.texts(&shown, |x: i32| x.to_string()),
            DType::S64 => self.texts(&shown, |x: i64| x.to_string()),
            DType::U8 => self.texts(&shown, |x: u8| x.to_string()),
            DType::U16 => self.texts(&shown, |x: u16| x.to_string()),
            DType::U32 => self.texts(&shown, |x: u32| x.to_string()),
            DType::U64 => self.texts(&shown, |x: u64| x.to_string()),
            DType::F16 => self.floats(&shown, f16::to_f64),
            DType::Bf16 => self.floats(&shown, bf16::to_f64),
            DType::F32 => self.floats(&shown, |x: f32| x.into()),
            DType::F64 => self.floats(&shown, |x: f64| x),
            DType::C64 => self.complex(&shown, |[re, im]: [f32; 2]| [re.into(), im.into()]),
            DType::C128 => self.complex(&shown, |x: [f64; 2]| x),
            // 8-bit floats, which have no Rust type.
            dtype => Ok(float_texts(shown.iter().map(|&index| {
                float8(dtype, self.bytes()[index]).unwrap_or(f64::NAN)
            }))),
        };
        let text = text.map_err(|_| fmt::Error)?;
        let width = text.iter().map(String::len).max().unwrap_or(0);
        let mut text = text.iter().map(|text| format!("{text:>width$}"));
        nested(f, dims, shorten, 1, &mut text)
    }
}

impl HostArray {
    fn texts<T: Element>(
        &self,
        shown: &[usize],
        text: impl Fn(T) -> String,
    ) -> crate::Result<Vec<String>> {
        let values = self.as_slice::<T>()?;
        Ok(shown.iter().map(|&index| text(values[index])).collect())
    }

    fn floats<T: Element>(
        &self,
        shown: &[usize],
        to_f64: impl Fn(T) -> f64,
    ) -> crate::Result<Vec<String>> {
        let values = self.as_slice::<T>()?;
        Ok(float_texts(
            shown.iter().map(|&index| to_f64(values[index])),
        ))
    }

    /// `1.0000+2.0000i`
    fn complex<T: Element>(
        &self,
        shown: &[usize],
        parts: impl Fn(T) -> [f64; 2],
    ) -> crate::Result<Vec<String>> {
        let values = self.as_slice::<T>()?;
        let parts = float_texts(shown.iter().flat_map(|&index| parts(values[index])));
        let text = |pair: &[String]| match pair[1].starts_with('-') {
            true => format!("{}{}i", pair[0], pair[1]),
            false => format!("{}+{}i", pair[0], pair[1]),
        };
        Ok(parts.chunks_exact(2).map(text).collect())
    }
}

/// Four digits after the point, or scientific notation if the magnitudes need it.
fn float_texts(values: impl Iterator<Item = f64>) -> Vec<String> {
    let values: Vec<f64> = values.collect();
    let magnitudes = values.iter().map(|x| x.abs());
    let scientific = magnitudes
        .filter(|x| x.is_finite() && *x != 0.0)
        .any(|x| !(1e-3..1e6).contains(&x));
    let text = |x: &f64| match scientific {
        _ if !x.is_finite() => x.to_string(),
        true => format!("{x:.4e}"),
        false => format!("{x:.4}"),
    };
    values.iter().map(text).collect()
}

/// The indices of the dimension of this size that are shown.
fn shown_indices(size: usize, shorten: bool) -> Vec<usize> {
    if shorten && size > 2 * EDGE {
        (0..EDGE).chain(size - EDGE..size).collect()
    } else {
        (0..size).collect()
    }
}

/// The row-major indices of the elements that are shown, in order.
fn shown_elements(dims: &[usize], shorten: bool) -> Vec<usize> {
    dims.iter().fold(vec![0], |outer, &size| {
        let inner = shown_indices(size, shorten);
        let with_inner = |outer: usize| inner.iter().map(move |inner| outer * size + inner);
        outer.into_iter().flat_map(with_inner).collect()
    })
}

fn nested(
    f: &mut fmt::Formatter<'_>,
    dims: &[usize],
    shorten: bool,
    indent: usize,
    text: &mut impl Iterator<Item = String>,
) -> fmt::Result {
    let Some((&size, inner)) = dims.split_first() else {
        return f.write_str(&text.next().unwrap_or_default());
    };
    f.write_char('[')?;
    let separator = match inner.len() {
        0 => ", ".to_owned(),
        blank_lines => format!(",{}{:indent$}", "\n".repeat(blank_lines), ""),
    };
    for (position, _) in shown_indices(size, shorten).into_iter().enumerate() {
        if position > 0 {
            f.write_str(&separator)?;
        }
        if shorten && size > 2 * EDGE && position == EDGE {
            write!(f, "...{separator}")?;
        }
        nested(f, inner, shorten, indent + 1, text)?;
    }
    f.write_char(']')
}

#[cfg(test)]
mod tests {
    use crate::{DType, Element, HostArray, TensorType};

    #[track_caller]
    fn check<T: Element>(values: &[T], dims: &[usize], expected: &str) {
        let host = HostArray::from_slice(values, dims).unwrap();
        assert_eq!(host.to_string(), expected);
    }

    #[test]
    fn values_are_aligned_in_nested_brackets() {
        check(&[1.5f32], &[], "1.5000");
        check(&[1u8, 20, 255], &[3], "[  1,  20, 255]");
        check(
            &[-1.0f32, 2.0, 0.25, 4.0],
            &[2, 2],
            "[[-1.0000,  2.0000],\n [ 0.2500,  4.0000]]",
        );
        check(&[true, false], &[2, 1, 1], "[[[ true]],\n\n [[false]]]");
        check(&[1i32; 0], &[2, 0], "[[],\n []]");
        check(
            &[[1.0f32, -2.0], [0.5, f32::INFINITY]],
            &[2],
            "[1.0000-2.0000i,    0.5000+infi]",
        );
        let eighths = TensorType::new(DType::F8E4M3Fn, [2]);
        let eighths = HostArray::from_bytes(&[0xb8, 0x20], eighths).unwrap();
        assert_eq!(eighths.to_string(), "[-1.0000,  0.1250]");
    }

    #[test]
    fn extreme_magnitudes_are_scientific() {
        let text = "[1.0000e-8,       NaN,  1.0000e0]";
        check(&[1e-8f64, f64::NAN, 1.0], &[3], text);
    }

    #[test]
    fn large_arrays_are_shortened() {
        let values: Vec<i32> = (0..2000).collect();
        check(
            &values,
            &[2000],
            "[   0,    1,    2, ..., 1997, 1998, 1999]",
        );
        let lines = HostArray::zeros(TensorType::new(DType::U8, [1000, 2])).to_string();
        assert_eq!(lines.lines().count(), 7, "{lines}");
        assert!(lines.contains("\n ...,\n"), "{lines}");
    }
}
