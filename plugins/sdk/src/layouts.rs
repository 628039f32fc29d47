//! The extension `Layouts`: buffers, arguments and results are row-major. Without it, jaxlib ends
//! the process when it serializes an executable.

use std::sync::{Arc, Mutex, PoisonError};

use halite_core::TensorType;
use halite_pjrt_sys::{
    base::{PJRT_Extension_Base, PJRT_Extension_Type},
    extension::*,
};
use halite_stablehlo::{Attribute, Module};

use crate::{
    abi::{Function, Given, Shared, entry, getters, list},
    buffer::Buffer,
    client::Client,
    dtype::tensor_type,
    executable::Executable,
    handle::{find, objects, publish, take},
    serialized::Bytes,
    shardings,
    status::{Outcome, Status, drop_logged},
    topology::Topology,
};

/// The first node of the list of extensions.
pub(crate) const EXTENSION: &Shared<PJRT_Layouts_Extension> = &Shared(PJRT_Layouts_Extension {
    base: PJRT_Extension_Base {
        struct_size: size_of::<PJRT_Layouts_Extension>(),
        r#type: PJRT_Extension_Type::Layouts,
        next: (&raw const shardings::EXTENSION.0).cast_mut().cast(),
    },
    memory_layout_destroy: Some(entry::<PJRT_Layouts_MemoryLayout_Destroy_Args>),
    memory_layout_serialize: Some(entry::<PJRT_Layouts_MemoryLayout_Serialize_Args>),
    client_get_default_layout: Some(entry::<PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args>),
    buffer_memory_layout: Some(entry::<PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args>),
    topology_get_default_layout: Some(entry::<PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args>),
    executable_get_output_layouts: Some(
        entry::<PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args>,
    ),
    executable_get_parameter_layouts: Some(
        entry::<PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args>,
    ),
});

/// The layout of a tensor: row-major.
pub(crate) struct Layout {
    rank: usize,
}

objects! {
    Layout => PJRT_Layouts_MemoryLayout,
    Bytes<PJRT_Layouts_SerializedLayout> => PJRT_Layouts_SerializedLayout,
}

impl Layout {
    fn publish(ty: &TensorType) -> *mut PJRT_Layouts_MemoryLayout {
        publish(Arc::new(Layout { rank: ty.rank() }))
    }

    /// Its text, dimensions from the fastest varying one on: `{1,0}`.
    fn text(&self) -> String {
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

impl Function for PJRT_Layouts_MemoryLayout_Destroy_Args {
    const HAS_RESULTS: bool = false;

    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        drop_logged(take::<Layout>(args.layout)?);
        Ok(())
    }
}

impl Function for PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        find::<Client>(args.client)?;
        let dims: &[i64] = list!(args, dims, num_dims)?;
        out.layout = Layout::publish(&tensor_type(args.r#type, dims)?);
        Ok(())
    }
}

impl Function for PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        find::<Topology>(args.topology_description)?;
        let dims: &[i64] = list!(args, dims, num_dims)?;
        out.layout = Layout::publish(&tensor_type(args.r#type, dims)?);
        Ok(())
    }
}

getters! {
    PJRT_Layouts_MemoryLayout_Serialize_Args(layout: Layout) => |out| {
        let bytes = Bytes::publish(layout.text().into_bytes());
        (out.serialized_bytes, out.serialized_bytes_size) = (bytes.start, bytes.length);
        out.serialized_layout = bytes.handle;
        out.serialized_layout_deleter = bytes.deleter;
    };
    PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args(buffer: Buffer) =>
        |out| out.layout = Layout::publish(&buffer.ty);
    PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args(executable: Executable) => |out| {
        let layouts = &executable.output_layouts.0;
        (out.num_outputs, out.layouts) = (layouts.len(), layouts.as_ptr().cast_mut());
    };
    PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args(executable: Executable) => |out| {
        let layouts = &executable.parameter_layouts.0;
        (out.num_parameters, out.layouts) = (layouts.len(), layouts.as_ptr().cast_mut());
    };
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
