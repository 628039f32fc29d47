//! Functions that `#[derive(Tree)]` calls. Not a public interface.

/// `array.map` for a function that can fail. The first error wins and later elements are dropped.
pub fn try_map_array<T, U, E, const N: usize>(
    array: [T; N],
    mut f: impl FnMut(usize, T) -> Result<U, E>,
) -> Result<[U; N], E> {
    let mut index = 0;
    let mut error = None;
    let mapped = array.map(|element| {
        if error.is_some() {
            return None;
        }
        let made = f(index, element);
        index += 1;
        made.map_err(|failed| error = Some(failed)).ok()
    });
    match error {
        Some(error) => Err(error),
        None => {
            Ok(mapped.map(|element| element.expect("every element was made, since none failed")))
        }
    }
}
