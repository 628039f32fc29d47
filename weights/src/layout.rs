//! Order and grouping of the dimensions of a tensor in a file, by those of a parameter.

use std::ops::Range;

use halite_core::{Error, Result};

use crate::strides::Axis;

/// Layout of a tensor in the file relative to the parameter. The layer dimension of a
/// [`Stack`](halite_nn::Stack) does not count: the file has one tensor per layer.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Layout {
    /// The same dimensions.
    Same,
    /// [`Linear`](halite_nn::Linear): `[in, out]`, in the file `[out, in]`.
    Linear,
    /// [`Conv`](halite_nn::Conv): `[window.., in, out]`, in the file `[out, in, window..]`.
    Conv,
    /// [`ConvTranspose`](halite_nn::ConvTranspose): `[window.., in, out / groups]`, in the file
    /// `[in, out / groups, window..]`.
    ConvTranspose,
    /// Projection to heads: `[in, heads, width]`, in the file `[heads * width, in]`; its bias
    /// `[heads, width]`, in the file `[heads * width]`.
    ToHeads,
    /// As [`ToHeads`](Self::ToHeads), where the two halves of a head that rotary embeddings pair are
    /// interleaved in the file: llama.cpp's order of queries and keys in GGUF files.
    ToHeadsInterleaved,
    /// Projection from heads: `[heads, width, out]`, in the file `[out, heads * width]`.
    FromHeads,
    /// Each dimension of the file merges these dimensions of the parameter, outermost first:
    /// `[[1], [0]]` is [`Linear`](Self::Linear).
    Merged(Vec<Vec<usize>>),
}

/// A layout for a parameter of known dimensions. A dimension of the parameter may be several
/// factors; one of the file is several factors, merged.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct View {
    /// Sizes, in the order of the parameter.
    factors: Vec<usize>,
    /// The factors of each dimension of the parameter.
    of_dims: Vec<Range<usize>>,
    /// The factors of each dimension in the file.
    groups: Vec<Vec<usize>>,
}

impl Layout {
    /// The layout for a parameter of `dims`.
    pub(crate) fn view(&self, dims: &[usize]) -> Result<View> {
        let rank = dims.len();
        let unfit = |needs: &str| {
            let message = format!("layout {self:?} of a parameter of dimensions {dims:?}: {needs}");
            Err(Error::invalid("name map", message))
        };
        let groups = match self {
            Layout::Same => (0..rank).map(|dim| vec![dim]).collect(),
            Layout::Linear if rank == 2 => vec![vec![1], vec![0]],
            Layout::Linear => return unfit("it needs two"),
            Layout::Conv | Layout::ConvTranspose if rank >= 3 => {
                let window = (0..rank - 2).map(|dim| vec![dim]);
                let features = match self {
                    Layout::Conv => [vec![rank - 1], vec![rank - 2]],
                    _ => [vec![rank - 2], vec![rank - 1]],
                };
                features.into_iter().chain(window).collect()
            }
            Layout::Conv | Layout::ConvTranspose => return unfit("it needs three or more"),
            Layout::ToHeads | Layout::ToHeadsInterleaved => match rank {
                2 => vec![vec![0, 1]],
                3 => vec![vec![1, 2], vec![0]],
                _ => return unfit("it needs three, or two of a bias"),
            },
            Layout::FromHeads if rank == 3 => vec![vec![2], vec![0, 1]],
            Layout::FromHeads => return unfit("it needs three"),
            Layout::Merged(groups) => {
                let mut all: Vec<usize> = groups.concat();
                all.sort_unstable();
                if !all.iter().copied().eq(0..rank) {
                    return unfit("each dimension must occur exactly once");
                }
                groups.clone()
            }
        };
        let view = View {
            factors: dims.to_vec(),
            of_dims: (0..rank).map(|dim| dim..dim + 1).collect(),
            groups,
        };
        match self {
            Layout::ToHeadsInterleaved => view.interleaved(rank - 1),
            _ => Ok(view),
        }
    }
}

impl View {
    /// This view with a dimension as two halves, whose elements are interleaved in the file.
    fn interleaved(mut self, dim: usize) -> Result<Self> {
        let width = self.factors[dim];
        if !width.is_multiple_of(2) {
            let message = format!("heads of width {width}; interleaved ones have an even width");
            return Err(Error::invalid("name map", message));
        }
        self.factors.splice(dim..=dim, [2, width / 2]);
        self.of_dims[dim] = dim..dim + 2;
        for group in &mut self.groups {
            if let Some(at) = group.iter().position(|&factor| factor == dim) {
                group.splice(at..=at, [dim + 1, dim]);
            }
        }
        Ok(self)
    }

    /// Dimensions in the file.
    pub(crate) fn dims(&self) -> Vec<usize> {
        let size = |group: &Vec<usize>| group.iter().map(|&factor| self.factors[factor]).product();
        self.groups.iter().map(size).collect()
    }

    /// The copy of the part `ranges` of the parameter, from the tensor in the file, whose dimensions
    /// are `file` and of which this is a part: the first element there, and the axes. The part is
    /// row-major.
    pub(crate) fn axes(
        &self,
        file: &[usize],
        ranges: &[Range<usize>],
    ) -> Result<(usize, Vec<Axis>)> {
        let mut from = vec![0; self.factors.len()];
        let mut stride = 1usize;
        for (group, &dim) in self.groups.iter().zip(file).rev() {
            let mut inner = stride;
            for &factor in group.iter().rev() {
                from[factor] = inner;
                inner = inner.saturating_mul(self.factors[factor]);
            }
            stride = stride.saturating_mul(dim);
        }
        let mut factored = Vec::with_capacity(self.factors.len());
        for (range, factors) in ranges.iter().zip(&self.of_dims) {
            factored.extend(self.split(range, factors)?);
        }
        let mut into = 1usize;
        let mut axes = vec![
            Axis {
                len: 0,
                from: 0,
                into: 0
            };
            factored.len()
        ];
        let mut base = 0;
        for at in (0..factored.len()).rev() {
            let len = factored[at].len();
            axes[at] = Axis {
                len,
                from: from[at],
                into,
            };
            base += factored[at].start * from[at];
            into *= len;
        }
        Ok((base, axes))
    }

    /// A range of a dimension as ranges of its factors.
    fn split(&self, range: &Range<usize>, factors: &Range<usize>) -> Result<Vec<Range<usize>>> {
        if factors.len() == 1 {
            return Ok(vec![range.clone()]);
        }
        let sizes = &self.factors[factors.clone()];
        if range.is_empty() || *range == (0..sizes.iter().product::<usize>()) {
            let end = |size: &usize| 0..if range.is_empty() { 0 } else { *size };
            return Ok(sizes.iter().map(end).collect());
        }
        let message = format!(
            "elements {range:?} of a dimension whose halves are interleaved in the file; shard another \
             dimension"
        );
        Err(Error::invalid("name map", message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_in_the_file_are_those_of_pytorch() {
        for (layout, dims, expected) in [
            (Layout::Linear, &[3, 4][..], &[4, 3][..]),
            (Layout::Conv, &[5, 7, 3, 4], &[4, 3, 5, 7]),
            (Layout::ConvTranspose, &[5, 7, 3, 4], &[3, 4, 5, 7]),
            (Layout::ToHeads, &[6, 2, 4], &[8, 6]),
            (Layout::ToHeads, &[2, 4], &[8]),
            (Layout::ToHeadsInterleaved, &[6, 2, 4], &[8, 6]),
            (Layout::FromHeads, &[2, 4, 6], &[6, 8]),
            (
                Layout::Merged(vec![vec![0], vec![1, 2]]),
                &[6, 2, 4],
                &[6, 8],
            ),
        ] {
            assert_eq!(layout.view(dims).unwrap().dims(), expected, "{layout:?}");
        }
        for (layout, dims) in [
            (Layout::Linear, &[3][..]),
            (Layout::Conv, &[3, 4]),
            (Layout::ConvTranspose, &[3, 4]),
            (Layout::FromHeads, &[3, 4]),
            (Layout::ToHeadsInterleaved, &[3, 5]),
            (Layout::Merged(vec![vec![0], vec![0]]), &[3, 4]),
        ] {
            assert!(layout.view(dims).is_err(), "{layout:?}");
        }
    }
}
