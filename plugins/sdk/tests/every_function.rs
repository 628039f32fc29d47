//! Every function of the table with handles of every type, alive and destroyed, in the places of
//! its first two arguments: it returns, with or without an error.
#![allow(unsafe_code)]

mod common;

use common::*;
use halite_pjrt_sys::{
    LAYOUTS, Layout, SLOTS, Slot, client::*, device::*, error::PJRT_Error, executable::*,
};

/// Handles of all types as numbers: alive, destroyed, null, and none at all.
fn handles() -> Vec<usize> {
    let client = client("").unwrap();
    let device = first_device(client);
    let mut memory = PJRT_Device_DefaultMemory_Args {
        device,
        ..PJRT_Device_DefaultMemory_Args::new()
    };
    call(&mut memory).unwrap();
    let mut description = PJRT_Device_GetDescription_Args {
        device,
        ..PJRT_Device_GetDescription_Args::new()
    };
    call(&mut description).unwrap();
    let mut topology = PJRT_Client_TopologyDescription_Args {
        client,
        ..PJRT_Client_TopologyDescription_Args::new()
    };
    call(&mut topology).unwrap();
    let [buffer, destroyed] = [0, 1].map(|_| upload(client, &[0.0; 4]).unwrap());
    destroy_buffer(destroyed).unwrap();
    let mut ready = halite_pjrt_sys::buffer::PJRT_Buffer_ReadyEvent_Args::new();
    ready.buffer = buffer;
    call(&mut ready).unwrap();
    let loaded = compile(client, PROGRAM).unwrap();
    let mut executable = PJRT_LoadedExecutable_GetExecutable_Args {
        loaded_executable: loaded,
        ..PJRT_LoadedExecutable_GetExecutable_Args::new()
    };
    call(&mut executable).unwrap();
    let mut context = PJRT_ExecuteContext_Create_Args::new();
    call(&mut context).unwrap();
    vec![
        0,
        1,
        usize::MAX,
        client.addr(),
        device.addr(),
        memory.memory.addr(),
        description.device_description.addr(),
        topology.topology.addr(),
        buffer.addr(),
        destroyed.addr(),
        ready.event.addr(),
        loaded.addr(),
        executable.executable.addr(),
        context.context.addr(),
    ]
}

/// The layout of the arguments of a function.
fn layout(slot: &Slot) -> &'static Layout {
    let name = format!("{}_Args", slot.name);
    let mut layouts = LAYOUTS.iter().flat_map(|file| file.iter());
    layouts
        .find(|layout| layout.name == name)
        .expect("each slot has arguments")
}

/// Calls a function with zeros but for the first two fields after the header.
fn call_slot(slot: &Slot, first: usize, second: usize) {
    let mut memory = [0usize; 64];
    memory[0] = size_of_val(&memory);
    (memory[2], memory[3]) = (first, second);
    let table = halite_plugin::api::<Exported>().cast::<u8>();
    // SAFETY: every function takes a pointer at its arguments, which are shorter than `memory`, and
    // but for two returns an error or null.
    let error = unsafe {
        let entry = table
            .add(slot.offset)
            .cast::<unsafe extern "C-unwind" fn(*mut usize) -> *mut PJRT_Error>();
        entry.read()(memory.as_mut_ptr())
    };
    if !error.is_null() {
        assert!(take(error).message.len() > 5, "{}", slot.name);
    }
}

#[test]
fn every_function_returns() {
    let handles = handles();
    let ends = |slot: &&Slot| slot.name.ends_with("_Destroy") || slot.name.ends_with("_Delete");
    let returns_nothing = ["PJRT_Error_Destroy", "PJRT_Error_Message"];
    let slots = || {
        SLOTS
            .iter()
            .filter(|slot| !returns_nothing.contains(&slot.name))
    };
    let living = slots().filter(|slot| !ends(slot));
    for slot in living.chain(slots().filter(ends)) {
        let second = layout(slot).fields.get(3).map_or("", |field| field.name);
        // A length needs a list, and a callback is called.
        let is_handle = !["num", "size", "count", "callback"]
            .iter()
            .any(|it| second.contains(it));
        for &first in &handles {
            // What is not a handle may be a pointer at a list.
            if slot.name == "PJRT_Client_Create" && first != 0 {
                continue;
            }
            call_slot(slot, first, 0);
            for &other in handles.iter().filter(|_| is_handle) {
                // Numbers that are no addresses are not passed as pointers at structs.
                if other > 1 && other != usize::MAX {
                    call_slot(slot, first, other);
                }
            }
        }
    }
}
