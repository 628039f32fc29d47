//! Buffers without a transfer: zeros, errors, and placeholders that are fulfilled later.

use std::sync::Arc;

use halite_pjrt_sys::buffer::*;

use super::{Buffer, Content};
use crate::{
    abi::{Function, Given, list, text},
    client::Client,
    dtype::tensor_type,
    event::Promise,
    handle::{find, objects, publish, take},
    status::{Outcome, Status},
    transfer::{check_layout, zeros},
};

impl Function for PJRT_Client_CreateUninitializedBuffer_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let client = find::<Client>(args.client)?;
        let ty = tensor_type(
            args.shape_element_type,
            list!(args, shape_dims, shape_num_dims)?,
        )?;
        check_layout(args, args.shape_layout, &ty)?;
        let place = client.placement(args.device, args.memory)?;
        out.buffer = publish(zeros(&client, &ty, place)?);
        Ok(())
    }
}

impl Function for PJRT_Client_CreateErrorBuffer_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let client = find::<Client>(args.client)?;
        let ty = tensor_type(
            args.shape_element_type,
            list!(args, shape_dims, shape_num_dims)?,
        )?;
        check_layout(args, args.shape_layout, &ty)?;
        let place = client.placement(std::ptr::null_mut(), args.memory)?;
        let message = text!(args, error_message, error_message_size)?;
        let Err(status) = Status::of_code(args.error_code, message) else {
            return Err(Status::invalid("`error_code` is OK"));
        };
        out.buffer = publish(Buffer::new(&client, ty, place, Content::Failed(status)));
        Ok(())
    }
}

/// The fulfilment of a placeholder.
pub(crate) struct Fulfillment {
    buffer: Arc<Buffer>,
    promise: Promise,
}

objects!(Fulfillment => PJRT_FulfillAliasBufferCallback);

impl Function for PJRT_Client_CreateAliasBuffer_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let client = find::<Client>(args.client)?;
        let ty = tensor_type(
            args.shape_element_type,
            list!(args, shape_dims, shape_num_dims)?,
        )?;
        check_layout(args, args.shape_layout, &ty)?;
        let place = client.placement(std::ptr::null_mut(), args.memory)?;
        let promise = Promise::default();
        let buffer = Buffer::new(&client, ty, place, Content::Later(promise.clone()));
        out.alias_buffer = publish(buffer.clone());
        out.fulfill_alias_buffer_cb = publish(Arc::new(Fulfillment { buffer, promise }));
        Ok(())
    }
}

impl Function for PJRT_Client_FulfillAliasBuffer_Args {
    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        let message = text!(args, error_message, error_message_size)?;
        let status = Status::of_code(args.status_code, message);
        let content = match &status {
            Ok(()) => {
                let source = find::<Buffer>(args.buffer)?;
                let alias = find::<Fulfillment>(args.fulfill_alias_buffer_cb)?;
                if (&source.ty, source.place) != (&alias.buffer.ty, alias.buffer.place) {
                    return Err(Status::invalid(format!(
                        "a buffer of {} in {:?} cannot be {} in {:?}",
                        source.ty, source.place, alias.buffer.ty, alias.buffer.place
                    )));
                }
                source.content()
            }
            Err(status) => Content::Failed(status.clone()),
        };
        let alias = take::<Fulfillment>(args.fulfill_alias_buffer_cb)?
            .ok_or_else(|| Status::invalid("`fulfill_alias_buffer_cb` is null"))?;
        alias.buffer.arrive(content);
        alias.promise.set(status);
        Ok(())
    }
}
