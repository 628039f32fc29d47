//! Buffers without a transfer: zeros, errors, and placeholders that are fulfilled later.

use std::sync::Arc;

use halite_pjrt_sys::buffer::*;

use crate::{
    abi::{Function, Given, list, text},
    buffer::{Buffer, Content},
    client::Client,
    dtype::tensor_type,
    event::Event,
    handle::{find, objects, publish, take},
    promise::Promise,
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

/// The fulfilment of a placeholder, which fails it if it is dropped.
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
        let (promise, fulfilled) = Promise::new("the alias buffer was not fulfilled");
        let buffer = Buffer::new(&client, ty, place, Content::Later(fulfilled));
        out.alias_buffer = publish(buffer.clone());
        out.fulfill_alias_buffer_cb = publish(Arc::new(Fulfillment { buffer, promise }));
        Ok(())
    }
}

/// An error of this function fails the alias as well, whose promise is dropped.
impl Function for PJRT_Client_FulfillAliasBuffer_Args {
    const HAS_RESULTS: bool = false;

    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        let message = text!(args, error_message, error_message_size)?;
        let Fulfillment {
            buffer: alias,
            promise,
        } = take::<Fulfillment>(args.fulfill_alias_buffer_cb)?
            .and_then(Arc::into_inner)
            .ok_or_else(|| Status::invalid("`fulfill_alias_buffer_cb` is null"))?;
        if let Err(status) = Status::of_code(args.status_code, message) {
            promise.set(Err(status));
            return Ok(());
        }
        let source = find::<Buffer>(args.buffer)?;
        check_source(&source, &alias)?;
        if let Content::Failed(status) = source.content() {
            promise.set(Err(status));
            return Ok(());
        }
        // Another unfulfilled alias is an error, so that no alias waits for itself.
        let contents = source.here()?;
        let ready = Event::of_backend(contents.first().ready());
        alias.arrive(contents);
        ready.on_ready(|outcome| promise.set(outcome));
        Ok(())
    }
}

/// Checks that a buffer has the client, type and place of the alias that it fulfills.
fn check_source(source: &Buffer, alias: &Buffer) -> Outcome {
    if !Arc::ptr_eq(&source.client, &alias.client) {
        return Err(Status::invalid("`buffer` is a buffer of another client"));
    }
    if (&source.ty, source.place) != (&alias.ty, alias.place) {
        return Err(Status::invalid(format!(
            "a buffer of {} in {:?} cannot be {} in {:?}",
            source.ty, source.place, alias.ty, alias.place
        )));
    }
    Ok(())
}
