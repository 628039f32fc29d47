//! Functions that `#[derive(Tree)]` calls. Not a public interface.

/// `array.map` for a function that can fail. At its first `None` later elements are dropped.
pub fn try_map_array<T, U, const N: usize>(
    array: [T; N],
    mut f: impl FnMut(usize, T) -> Option<U>,
) -> Option<[U; N]> {
    let mut made = 0;
    let mut failed = false;
    let mapped = array.map(|element| {
        if failed {
            return None;
        }
        let mapped = f(made, element);
        made += 1;
        failed = mapped.is_none();
        mapped
    });
    if failed {
        return None;
    }
    Some(mapped.map(|element| element.expect("every element was made, since none failed")))
}
