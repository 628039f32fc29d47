//! Every function of the table with handles of every type, alive and destroyed, in the places of
//! its first two arguments; and with random arguments. It returns, with or without an error.
#![allow(unsafe_code)]

use halite_pjrt_sys::{
    LAYOUTS, Layout, SLOTS, Slot, client::*, device::*, error::PJRT_Error, executable::*,
};

use crate::common::*;

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

/// Functions that return nothing.
const RETURN_NOTHING: [&str; 2] = ["PJRT_Error_Destroy", "PJRT_Error_Message"];

/// Memory of the arguments of a call, larger than all of them.
type Arguments = [usize; 64];

/// Calls a function with zeros but for the first two fields after the header.
fn call_slot(slot: &Slot, first: usize, second: usize) {
    let mut memory: Arguments = [0; 64];
    memory[0] = size_of_val(&memory);
    (memory[2], memory[3]) = (first, second);
    call_with(slot, &mut memory);
}

/// Calls a function, and returns whether it succeeded.
fn call_with(slot: &Slot, memory: &mut Arguments) -> bool {
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
    error.is_null()
}

#[test]
fn every_function_returns() {
    let handles = handles();
    let ends = |slot: &&Slot| slot.name.ends_with("_Destroy") || slot.name.ends_with("_Delete");
    let slots = || {
        SLOTS
            .iter()
            .filter(|slot| !RETURN_NOTHING.contains(&slot.name))
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
                // Numbers that are not addresses are not passed as pointers at structs.
                if other > 1 && other != usize::MAX {
                    call_slot(slot, first, other);
                }
            }
        }
    }
}

/// Fields of 8 bytes, by name.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Handle,
    /// The length of a list or text.
    Length,
    /// A function that is called, with its argument.
    Callback,
    /// A number, or a pointer at a list, a text or a struct.
    Other,
}

const HANDLES: [&str; 17] = [
    "client",
    "device",
    "memory",
    "buffer",
    "src",
    "dst_buffer",
    "dst_device",
    "dst_memory",
    "event",
    "executable",
    "loaded_executable",
    "topology",
    "context",
    "transfer_manager",
    "device_description",
    "execute_device",
    "error",
];

fn kind(name: &str) -> Kind {
    let contains = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if HANDLES.contains(&name) {
        Kind::Handle
    } else if contains(&["callback", "deleter", "user_arg", "register"]) {
        Kind::Callback
    } else if name.starts_with("num_") || contains(&["_size", "size_", "count", "_num_"]) {
        Kind::Length
    } else {
        Kind::Other
    }
}

/// Index in [`handles`] of the handle that belongs in a field.
fn right_handle(name: &str) -> usize {
    match name {
        "client" => 3,
        "device" | "dst_device" | "execute_device" => 4,
        "memory" | "dst_memory" => 5,
        "device_description" => 6,
        "topology" => 7,
        "buffer" | "src" | "dst_buffer" => 8,
        "event" => 10,
        "executable" | "loaded_executable" => 11,
        "context" => 13,
        _ => 0,
    }
}

/// Number of calls: `HALITE_RANDOM_CALLS`, 100,000 by default.
fn calls() -> u64 {
    let number = std::env::var("HALITE_RANDOM_CALLS").ok();
    number.map_or(100_000, |number| number.parse().expect("a number of calls"))
}

/// Lists, texts and nested structs are zeros, because a wrong pointer in them would be read.
/// Handles, numbers, lengths and `struct_size` are random.
#[test]
fn random_arguments_return() {
    let zeros: &'static mut [usize; 512] = Box::leak(Box::new([0; 512]));
    let zeros = zeros.as_mut_ptr();
    let mut state = 5u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize % below
    };
    let slots: Vec<&Slot> = (SLOTS.iter())
        .filter(|slot| !RETURN_NOTHING.contains(&slot.name))
        .collect();
    let (mut known, mut succeeded) = (handles(), 0);
    for number in 0..calls() {
        if number % 250 == 249 {
            known = handles();
        }
        // SAFETY: no call is running, and nothing else writes to these zeros.
        unsafe { zeros.write_bytes(0, 512) };
        let slot = slots[random(slots.len())];
        let layout = layout(slot);
        let mut memory: Arguments = [0; 64];
        let bytes = memory.as_mut_ptr().cast::<u8>();
        let has_pointers = random(4) > 0;
        for field in layout.fields {
            let value = match (kind(field.name), field.size) {
                (_, 1..8) => random(20),
                (Kind::Handle, 8) if random(4) == 0 => known[random(known.len())],
                (Kind::Handle, 8) if field.name == "executable" => known[11 + random(2)],
                (Kind::Handle, 8) => known[right_handle(field.name)],
                (Kind::Length, 8) if has_pointers => random(4),
                (Kind::Length, 8) => random(usize::MAX),
                (Kind::Other, 8) if has_pointers && random(2) > 0 => zeros.addr(),
                _ => 0,
            };
            let from = value.to_ne_bytes();
            let size = field.size.min(8);
            // SAFETY: the field is inside of the arguments, which `memory` has room for.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), bytes.add(field.offset), size) };
        }
        memory[0] = match random(8) {
            0 => random(600),
            1 => usize::MAX,
            _ => layout.size,
        };
        succeeded += u64::from(call_with(slot, &mut memory));
    }
    println!("{} calls, {succeeded} succeeded", calls());
    assert!(succeeded > calls() / 20, "{succeeded} of {}", calls());
}
