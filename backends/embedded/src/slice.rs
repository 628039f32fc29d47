//! Parts of tensors.

use std::ops::Range;

/// A rectangular part of a row-major tensor, in bytes.
#[derive(Debug)]
pub(crate) struct Slice {
    /// Bytes of the rows of the part.
    row: usize,
    /// Positions of these rows in the tensor.
    rows: Vec<usize>,
}

impl Slice {
    /// The part of `dims` at `first` in a tensor of `whole`, whose elements have `size` bytes.
    pub(crate) fn new(whole: &[usize], dims: &[usize], first: &[usize], size: usize) -> Self {
        let mut stride = size;
        // Inner dimensions of which the part has all are in its rows, and the next one out.
        let mut row = size;
        let mut is_row = true;
        let (mut offset, mut outer) = (0, Vec::new());
        for ((&whole, &count), &first) in whole.iter().zip(dims).zip(first).rev() {
            offset += first * stride;
            if is_row {
                row *= count;
                is_row = whole == count;
            } else {
                outer.push((count, stride));
            }
            stride *= whole;
        }
        let mut rows = vec![offset];
        for &(count, stride) in outer.iter().rev() {
            let next = |&at: &usize| (0..count).map(move |index| at + index * stride);
            rows = rows.iter().flat_map(next).collect();
        }
        if row == 0 {
            rows.clear();
        }
        Slice { row, rows }
    }

    /// The bytes of the part, if they are neighbors.
    pub(crate) fn range(&self) -> Option<Range<usize>> {
        match self.rows[..] {
            [first] => Some(first..first + self.row),
            _ => None,
        }
    }

    /// Copies the part out of a tensor.
    pub(crate) fn read(&self, whole: &[u8], part: &mut [u8]) {
        for (part, &at) in part.chunks_exact_mut(self.row.max(1)).zip(&self.rows) {
            part.copy_from_slice(&whole[at..at + self.row]);
        }
    }

    /// Copies the part into a tensor.
    pub(crate) fn write(&self, part: &[u8], whole: &mut [u8]) {
        for (part, &at) in part.chunks_exact(self.row.max(1)).zip(&self.rows) {
            whole[at..at + self.row].copy_from_slice(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_have_rows_of_neighbors() {
        let whole: Vec<u8> = (0..24).collect();
        let slice = Slice::new(&[2, 3, 4], &[2, 2, 4], &[0, 1, 0], 1);
        let mut part = [0; 16];
        slice.read(&whole, &mut part);
        assert_eq!(
            part,
            [4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 23]
        );
        assert_eq!(slice.rows, [4, 16]);
        assert_eq!(slice.range(), None);
        assert_eq!(
            Slice::new(&[3, 4], &[1, 4], &[2, 0], 4).range(),
            Some(32..48)
        );
        let mut other = [0; 24];
        slice.write(&part, &mut other);
        assert_eq!(other[4..12], whole[4..12]);
        assert_eq!(other[..4], [0; 4]);
    }

    #[test]
    fn empty_slices_copy_nothing() {
        let slice = Slice::new(&[2, 3], &[2, 0], &[0, 1], 4);
        slice.read(&[0; 24], &mut []);
        assert!(slice.rows.is_empty());
    }
}
