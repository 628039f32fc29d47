//! The layout of buffers, arguments and results: row-major. Layouts of host memory are in
//! [`crate::layout`].

use std::sync::{Arc, Mutex, PoisonError};

use halite_core::TensorType;
use halite_pjrt_sys::extension::{PJRT_Layouts_MemoryLayout, PJRT_Layouts_SerializedLayout};
use halite_stablehlo::{Attribute, Module};

use crate::{
    abi::Shared,
    handle::{objects, publish},
    serialized::Bytes,
    status::{Outcome, Status},
};

/// The layout of a tensor: row-major.
pub(crate) struct Layout {
    rank: usize,
}

objects! {
    Layout => PJRT_Layouts_MemoryLayout,
    Bytes<PJRT_Layouts_SerializedLayout> => PJRT_Layouts_SerializedLayout,
}

impl Layout {
    pub(crate) fn publish(ty: &TensorType) -> *mut PJRT_Layouts_MemoryLayout {
        publish(Arc::new(Layout { rank: ty.rank() }))
    }

    /// Its text, dimensions from the fastest varying one on: `{1,0}`.
    pub(crate) fn text(&self) -> String {
        let dims: Vec<_> = (0..self.rank).rev().map(|dim| dim.to_string()).collect();
        format!("{{{}}}", dims.join(","))
    }
}

/// The layouts of arguments or results, of which callers own none. All executables share those of
/// one rank.
pub(crate) fn of_executables(
    types: &[TensorType],
) -> Shared<Box<[*mut PJRT_Layouts_MemoryLayout]>> {
    /// Handles by rank, as addresses.
    static KNOWN: Mutex<Vec<Option<usize>>> = Mutex::new(Vec::new());

    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let handle = |ty: &TensorType| {
        if known.len() <= ty.rank() {
            known.resize(ty.rank() + 1, None);
        }
        let handle =
            known[ty.rank()].get_or_insert_with(|| Layout::publish(ty).expose_provenance());
        std::ptr::with_exposed_provenance_mut(*handle)
    };
    Shared(types.iter().map(handle).collect())
}

/// Refuses a program that asks for an argument or result in another layout.
///
/// # Errors
/// UNIMPLEMENTED, with the layout.
pub(crate) fn check(module: &Module) -> Outcome {
    let main = module.main()?;
    let lists = [
        ("argument", &main.body.arguments, &main.input_attributes),
        ("result", &main.body.results, &main.output_attributes),
    ];
    for (what, values, attributes) in lists {
        for (index, (&value, attributes)) in values.iter().zip(attributes).enumerate() {
            let Some(Attribute::Str(mode)) = attributes.get("mhlo.layout_mode") else {
                continue;
            };
            let rank = main.ty(value).as_tensor().map_or(0, |ty| ty.rank());
            let row_major = Layout { rank }.text();
            if !["default", "auto", &row_major].contains(&&**mode) {
                return Err(Status::unimplemented(format!(
                    "{what} {index} in the layout `{mode}`; this plugin has `{row_major}`"
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fastest_dimension_is_first() {
        let texts = [0, 1, 3].map(|rank| Layout { rank }.text());
        assert_eq!(texts, ["{}", "{0}", "{2,1,0}"]);
    }

    #[test]
    fn other_layouts_are_refused() {
        let read = |mode: &str| {
            let code = format!(
                "func.func @main(%x: tensor<2x3xf32> {{mhlo.layout_mode = \"{mode}\"}}) {{ return }}"
            );
            crate::program::read(code.as_bytes(), 1, 1)
        };
        for mode in ["default", "auto", "{1,0}"] {
            assert!(read(mode).is_ok(), "{mode}");
        }
        let message = read("{0,1}").unwrap_err().message;
        assert_eq!(
            &*message,
            "argument 0 in the layout `{0,1}`; this plugin has `{1,0}`"
        );
    }
}
