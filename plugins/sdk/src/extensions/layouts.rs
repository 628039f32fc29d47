//! The extension `Layouts`: buffers, arguments and results are row-major. Without it, jaxlib ends
//! the process when it serializes an executable.

use halite_pjrt_sys::{
    base::{PJRT_Extension_Base, PJRT_Extension_Type},
    extension::*,
};

use super::shardings;
use crate::{
    abi::{Function, Given, Shared, entry, getters, list},
    buffer::Buffer,
    client::{Client, Topology},
    device_layout::Layout,
    dtype::tensor_type,
    executable::Executable,
    handle::{find, take},
    serialized::Bytes,
    status::{Outcome, drop_logged},
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
