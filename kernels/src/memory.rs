//! Memory of kernels, which is allocated with an error.

use std::panic::resume_unwind;

/// Payload of the unwinding that ends a kernel if the host has too little memory.
///
/// A kernel runs on several threads, and what they do returns nothing. The panic hook is not called:
/// this is no fault of the program. Callers catch it with [`std::panic::catch_unwind`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CannotAllocate {
    /// Size of the allocation that failed.
    pub bytes: usize,
}

/// Makes a vector `count` long, if it is shorter, with copies of `value`. Unwinds with
/// [`CannotAllocate`].
pub fn grow<T: Clone>(values: &mut Vec<T>, count: usize, value: T) {
    let missing = count.saturating_sub(values.len());
    if values.try_reserve_exact(missing).is_err() {
        let bytes = count.saturating_mul(size_of::<T>());
        resume_unwind(Box::new(CannotAllocate { bytes }));
    }
    values.resize(values.len() + missing, value);
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn impossible_size_is_the_payload() {
        let bytes = (isize::MAX as usize) & !7;
        let unwound = catch_unwind(|| grow(&mut Vec::new(), bytes / 8, 0u64)).unwrap_err();
        assert_eq!(unwound.downcast_ref(), Some(&CannotAllocate { bytes }));
    }

    #[test]
    fn longer_vector_stays() {
        let mut values = vec![1, 2, 3];
        grow(&mut values, 2, 7);
        assert_eq!(values, [1, 2, 3]);
        grow(&mut values, 5, 7);
        assert_eq!(values, [1, 2, 3, 7, 7]);
    }
}
