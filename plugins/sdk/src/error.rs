//! What callers ask of errors.

use halite_pjrt_sys::error::{
    PJRT_Error_Destroy_Args, PJRT_Error_ForEachPayload_Args, PJRT_Error_GetCode_Args,
    PJRT_Error_Message_Args,
};

use crate::{
    abi::{Function, Given, visit_payloads},
    handle::{find, take},
    status::{Outcome, Status},
    text,
};

/// Frees an error; null is allowed. Cannot fail.
pub(crate) fn destroy(args: &PJRT_Error_Destroy_Args) {
    // An unknown handle is ignored, as there is no way to report it.
    _ = take::<Status>(args.error);
}

/// The text of an error.
pub(crate) fn message(args: &mut PJRT_Error_Message_Args) {
    let status = find::<Status>(args.error.cast_mut());
    (args.message, args.message_size) = match &status {
        // The registry keeps the text until the error is destroyed.
        Ok(status) => text(&status.message),
        Err(_) => text("unknown error: too many handles are alive"),
    };
}

impl Function for PJRT_Error_GetCode_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        out.code = find::<Status>(args.error.cast_mut())?.code;
        Ok(())
    }
}

impl Function for PJRT_Error_ForEachPayload_Args {
    const HAS_RESULTS: bool = false;

    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        find::<Status>(args.error.cast_mut())?;
        visit_payloads(args)
    }
}
