//! The extension `Shardings`: how the arguments and results of a program are distributed over its
//! partitions, as callers need to know for programs that leave it to the compiler.

use halite_pjrt_sys::{
    base::{PJRT_Extension_Base, PJRT_Extension_Type},
    extension::{
        PJRT_Shardings_Extension, PJRT_Shardings_PJRT_Executable_OutputShardings_Args,
        PJRT_Shardings_PJRT_Executable_ParameterShardings_Args,
    },
};

use crate::{
    abi::{Shared, entry, getters},
    executable::Executable,
};

/// The node of the extension, which is the last one.
pub(super) const EXTENSION: &Shared<PJRT_Shardings_Extension> = &Shared(PJRT_Shardings_Extension {
    base: PJRT_Extension_Base {
        struct_size: size_of::<PJRT_Shardings_Extension>(),
        r#type: PJRT_Extension_Type::Shardings,
        next: std::ptr::null_mut(),
    },
    parameter_shardings: Some(entry::<PJRT_Shardings_PJRT_Executable_ParameterShardings_Args>),
    output_shardings: Some(entry::<PJRT_Shardings_PJRT_Executable_OutputShardings_Args>),
});

getters! {
    PJRT_Shardings_PJRT_Executable_ParameterShardings_Args(executable: Executable) => |out| {
        let shardings = &executable.parameter_shardings;
        out.num_parameters = shardings.sizes.len();
        (out.shardings, out.sharding_sizes) = shardings.raw();
    };
    PJRT_Shardings_PJRT_Executable_OutputShardings_Args(executable: Executable) => |out| {
        let shardings = &executable.output_shardings;
        out.num_outputs = shardings.sizes.len();
        (out.shardings, out.sharding_sizes) = shardings.raw();
    };
}
