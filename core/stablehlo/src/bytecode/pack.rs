//! Elements of constants, as bytecode stores them.
//!
//! Booleans are packed into bits; other elements have whole bytes, also narrow ones.

use std::sync::Arc;

use crate::{Dense, ElementType, RankedType, types::canonical};

/// The byte that stands for a splat of `true`.
const ALL_TRUE: u8 = 0xff;

/// Reads the elements of a constant.
///
/// # Errors
/// If their number does not match the type.
pub(super) fn unpack(ty: RankedType, blob: &[u8]) -> Result<Dense, String> {
    let bytes = match ty.element {
        ElementType::Bool => unpack_booleans(&ty, blob)?,
        element => {
            let (one, all) = (element.size(), ty.bytes());
            if blob.len() != one && blob.len() != all {
                return Err(wrong_length(&ty, blob, all));
            }
            match element.bits() {
                2..8 => blob.iter().map(|byte| canonical(element, *byte)).collect(),
                _ => Arc::from(blob),
            }
        }
    };
    // A type without elements has no element to repeat.
    let bytes = if ty.elements() == 0 {
        Arc::from([])
    } else {
        bytes
    };
    Ok(Dense::new(ty, bytes.to_vec()))
}

fn unpack_booleans(ty: &RankedType, blob: &[u8]) -> Result<Arc<[u8]>, String> {
    let (count, packed) = (ty.elements(), ty.elements().div_ceil(8));
    match *blob {
        [ALL_TRUE] => Ok(Arc::from([1])),
        _ if blob.len() == packed && packed != count => {
            let bits = (0..count).map(|index| blob[index / 8] >> (index % 8) & 1);
            Ok(bits.collect())
        }
        [value] => Ok(Arc::from([u8::from(value != 0)])),
        // Old versions of StableHLO stored whole bytes.
        _ if blob.len() == count => Ok(blob.iter().map(|byte| u8::from(*byte != 0)).collect()),
        _ => Err(wrong_length(ty, blob, packed)),
    }
}

/// Writes the elements of a constant.
pub(super) fn pack(dense: &Dense) -> Vec<u8> {
    match dense.ty.element {
        ElementType::Bool => pack_booleans(dense),
        element if element.bits() < 8 => {
            let mask = (1 << element.bits()) - 1;
            dense.bytes.iter().map(|byte| byte & mask).collect()
        }
        _ => dense.bytes.to_vec(),
    }
}

fn pack_booleans(dense: &Dense) -> Vec<u8> {
    if dense.is_splat() {
        let value = dense.bytes[0] != 0;
        return vec![if value { ALL_TRUE } else { 0 }];
    }
    let bytes = dense.bytes.chunks(8).map(|chunk| {
        let bits = chunk.iter().enumerate();
        bits.fold(0, |byte, (index, bit)| byte | u8::from(*bit != 0) << index)
    });
    bytes.collect()
}

fn wrong_length(ty: &RankedType, blob: &[u8], expected: usize) -> String {
    let found = blob.len();
    format!("{found} bytes of elements; {ty} needs {expected}, or those of one element")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(element: ElementType, count: usize, blob: &[u8], bytes: &[u8]) {
        let dense = unpack(RankedType::new(element, [count]), blob).unwrap();
        assert_eq!(&*dense.bytes, bytes);
        assert_eq!(pack(&dense), blob);
    }

    #[test]
    fn booleans_are_packed() {
        check(ElementType::Bool, 3, &[0b101], &[1, 0, 1]);
        check(
            ElementType::Bool,
            9,
            &[0b11, 1],
            &[1, 1, 0, 0, 0, 0, 0, 0, 1],
        );
    }

    #[test]
    fn splats_of_booleans_are_one_byte() {
        check(ElementType::Bool, 20, &[0xff], &[1]);
        check(ElementType::Bool, 20, &[0], &[0]);
    }

    #[test]
    fn one_boolean_is_its_low_bit() {
        check(ElementType::Bool, 1, &[1], &[1]);
        check(ElementType::Bool, 1, &[0], &[0]);
    }

    #[test]
    fn equal_elements_become_one() {
        let unpacked = |element, blob: &[u8]| unpack(RankedType::new(element, [3]), blob).unwrap();
        assert_eq!(*unpacked(ElementType::Bool, &[0]).bytes, [0]);
        assert_eq!(
            *unpacked(ElementType::S16, &[1, 0, 1, 0, 1, 0]).bytes,
            [1, 0]
        );
    }

    #[test]
    fn narrow_integers_are_extended() {
        check(ElementType::S4, 2, &[0x0f, 0x07], &[0xff, 0x07]);
        check(ElementType::U4, 2, &[0x0f, 0x07], &[0x0f, 0x07]);
        check(ElementType::S2, 2, &[0x02, 0x01], &[0xfe, 0x01]);
    }

    #[test]
    fn constant_without_elements_has_no_bytes() {
        check(ElementType::Bool, 0, &[], &[]);
        check(ElementType::F32, 0, &[], &[]);
    }

    #[test]
    fn wrong_number_of_elements_is_an_error() {
        let error = unpack(RankedType::new(ElementType::F32, [3]), &[0; 8]).unwrap_err();
        let expected = "8 bytes of elements; tensor<3xf32> needs 12, or those of one element";
        assert_eq!(error, expected);
    }
}
