//! Which process of a job writes which elements of the state: each byte is written by one process,
//! and read from the devices by no other.

use std::{borrow::Borrow, ops::Range};

use halite_core::{HostArray, Result, TensorType};

use super::{arrays, manifest::part_type};

/// Elements of an array of the state that a process has on its devices.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Held {
    /// All, as every other process.
    All,
    /// These, in row-major order; what the process has beyond them is padding.
    Rows(Range<usize>),
}

/// A range of the elements of an array, in row-major order, that a process writes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Part {
    /// Index of the array in the state.
    pub(crate) array: usize,
    pub(crate) elements: Range<usize>,
    /// Position of the first of them in the array that the process has.
    first: usize,
}

/// The parts that process `rank` writes, in the order of the arrays: what it alone has, and an equal
/// part of the bytes of all arrays that every process has.
pub(crate) fn parts_of(
    state: &[(String, TensorType, Held)],
    rank: usize,
    processes: usize,
) -> Vec<Part> {
    let replicated = state.iter().filter(|(.., held)| *held == Held::All);
    let total: u128 = replicated.map(|(_, ty, _)| ty.bytes() as u128).sum();
    let [low, high] = [rank, rank + 1].map(|rank| total * rank as u128 / processes as u128);
    let mut before = 0;
    let mut parts = Vec::new();
    for (array, (_, ty, held)) in state.iter().enumerate() {
        let (elements, first) = match held {
            Held::Rows(rows) => (rows.clone(), 0),
            Held::All => {
                let size = ty.dtype().size() as u128;
                let element = |bound: u128| {
                    let element = bound.saturating_sub(before).div_ceil(size);
                    element.min(ty.elements() as u128) as usize
                };
                let elements = element(low)..element(high);
                before += ty.bytes() as u128;
                (elements.clone(), elements.start)
            }
        };
        if !elements.is_empty() {
            parts.push(Part {
                array,
                elements,
                first,
            });
        }
    }
    // Files have them in the same order in all processes, also several files of one process.
    parts.sort_by_key(|part| arrays::place(&state[part.array].0, &state[part.array].1));
    parts
}

impl Part {
    /// Its type in a file, if the array has this type.
    pub(super) fn ty(&self, array: &TensorType) -> TensorType {
        part_type(array, &self.elements)
    }

    /// Its elements of the array that the process has.
    pub(super) fn of<A: Borrow<HostArray>>(&self, array: A) -> Result<Cut<A>> {
        let host = array.borrow();
        let (count, size) = (self.elements.len(), host.ty().dtype().size());
        if host.ty().elements() == count {
            return Ok(Cut::Whole(array));
        }
        let bytes = &host.bytes()[self.first * size..][..count * size];
        let flat = host.ty().with_dims([count]);
        Ok(Cut::Part(HostArray::from_bytes(bytes, flat)?))
    }
}

/// An array, or elements of it.
pub(super) enum Cut<A> {
    Whole(A),
    Part(HostArray),
}

impl<A: Borrow<HostArray>> Borrow<HostArray> for Cut<A> {
    fn borrow(&self) -> &HostArray {
        match self {
            Cut::Whole(array) => array.borrow(),
            Cut::Part(array) => array,
        }
    }
}

#[cfg(test)]
mod tests {
    use halite_core::DType;

    use super::*;

    fn state() -> Vec<(String, TensorType, Held)> {
        let array =
            |dtype, dims: &[usize], held| (String::new(), TensorType::new(dtype, dims), held);
        vec![
            array(DType::F32, &[7, 3], Held::All),
            array(DType::U8, &[5], Held::All),
            array(DType::F64, &[], Held::All),
            array(DType::F32, &[0, 4], Held::All),
            array(DType::S64, &[1000], Held::All),
        ]
    }

    #[test]
    fn each_element_has_one_writer() {
        for processes in [1, 2, 3, 4, 7, 2000] {
            let state = state();
            let mut next = vec![0; state.len()];
            for rank in 0..processes {
                for Part {
                    array,
                    elements,
                    first,
                } in parts_of(&state, rank, processes)
                {
                    assert_eq!((elements.start, first), (next[array], elements.start));
                    next[array] = elements.end;
                }
            }
            assert_eq!(next, [21, 5, 1, 0, 1000], "{processes}");
        }
    }

    #[test]
    fn bytes_are_divided_evenly() {
        let state = state();
        for rank in 0..4 {
            let parts = parts_of(&state, rank, 4).into_iter();
            let bytes: usize = parts
                .map(|part| part.ty(&state[part.array].1).bytes())
                .sum();
            // 8097 bytes in all, cut between elements of at most 8.
            assert!((2017..=2032).contains(&bytes), "{bytes}");
        }
    }

    #[test]
    fn rows_are_written_without_padding() {
        let rows = (
            String::new(),
            TensorType::new(DType::F32, [7]),
            Held::Rows(4..7),
        );
        let [part] = &parts_of(&[rows], 1, 2)[..] else {
            panic!("one part")
        };
        let padded = HostArray::from_slice(&[4f32, 5.0, 6.0, 0.0], [4]).unwrap();
        let cut = part.of(padded).unwrap();
        let cut: &HostArray = cut.borrow();
        assert_eq!(cut.as_slice::<f32>().unwrap(), [4.0, 5.0, 6.0]);
    }
}
