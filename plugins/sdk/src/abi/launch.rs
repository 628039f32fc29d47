//! Lists of a launch, and memory of the caller for results.

use std::marker::PhantomData;

use halite_pjrt_sys::{
    buffer::PJRT_Buffer,
    event::PJRT_Event,
    executable::{PJRT_Executable_OptimizedProgram_Args, PJRT_LoadedExecutable_Execute_Args},
};

use super::{Given, list_at, nested, rows};
use crate::status::{Outcome, Status};

/// Memory of the caller for `count` results.
pub(crate) struct Room<'a, T> {
    start: *mut T,
    count: usize,
    call: PhantomData<&'a mut [T]>,
}

impl<'a, T: Copy> Room<'a, T> {
    /// The room that a field of the caller's struct points at.
    ///
    /// # Errors
    /// If the pointer is null although there are values, or misaligned.
    ///
    /// # Safety
    ///
    /// * `start` is a field of `args`, null or with room for `count` values during the call.
    pub(crate) unsafe fn new<A>(
        _args: &'a Given<A>,
        name: &str,
        start: *mut T,
        count: usize,
    ) -> Result<Self, Status> {
        if count > 0 && (start.is_null() || !start.is_aligned()) {
            return Err(Status::invalid(format!(
                "`{name}` is {start:p}; expected room for {count} values"
            )));
        }
        Ok(Room {
            start,
            count,
            call: PhantomData,
        })
    }

    /// Writes values, at most as many as there is room for.
    pub(crate) fn write(&self, values: impl IntoIterator<Item = T>) {
        for (index, value) in values.into_iter().take(self.count).enumerate() {
            // SAFETY: `index` is below `count`.
            unsafe { self.start.add(index).write(value) };
        }
    }
}

/// The caller's memory that a field points at: `room!(args, start, count)`.
macro_rules! room {
    ($args:expr, $start:ident, $count:expr) => {{
        let args = $args;
        // SAFETY: the caller's struct points at this much memory (header).
        #[allow(unsafe_code)]
        unsafe {
            $crate::abi::Room::new(args, stringify!($start), args.$start, $count)
        }
    }};
}

pub(crate) use room;

/// Writes a program to the struct of the caller: its format and size, and its bytes where there is
/// room for them.
pub(crate) fn write_program(
    args: &Given<PJRT_Executable_OptimizedProgram_Args>,
    format: &str,
    code: &[u8],
) -> Outcome {
    let given = nested!(args, program)?;
    if !given.code.is_null() && given.code_size < code.len() {
        return Err(Status::invalid(format!(
            "`code_size` is {}, the program has {} bytes",
            given.code_size,
            code.len()
        )));
    }
    let mut written = given.fields;
    written.code_size = code.len();
    (written.format, written.format_size) = crate::text(format);
    // SAFETY: the caller's struct has `given.size` bytes, and room for the code if it is not null.
    unsafe {
        let (from, to) = ((&raw const written).cast::<u8>(), args.program.cast::<u8>());
        std::ptr::copy_nonoverlapping(from, to, given.size);
        if !given.code.is_null() {
            std::ptr::copy_nonoverlapping(code.as_ptr(), given.code.cast(), code.len());
        }
    }
    Ok(())
}

/// The arguments of a launch by device, and the room for its results.
pub(crate) struct LaunchRows<'a> {
    pub(crate) arguments: Vec<&'a [*mut PJRT_Buffer]>,
    pub(crate) results: Vec<Room<'a, *mut PJRT_Buffer>>,
    /// No room if the caller wants no events.
    pub(crate) events: Room<'a, *mut PJRT_Event>,
}

/// The lists of a launch with this number of results per device.
///
/// # Errors
/// If a list is null.
pub(crate) fn launch_rows(
    args: &Given<PJRT_LoadedExecutable_Execute_Args>,
    results: usize,
) -> Result<LaunchRows<'_>, Status> {
    let events = if args.device_complete_events.is_null() {
        0
    } else {
        args.num_devices
    };
    let with_results = if results == 0 { 0 } else { args.num_devices };
    // SAFETY: the lists have these lengths (header), and the caller keeps them during the call.
    unsafe {
        let arguments = match args.num_args {
            // The list may be null.
            0 => vec![&[][..]; args.num_devices],
            width => rows(
                args,
                "argument_lists",
                args.argument_lists,
                args.num_devices,
                width,
            )?,
        };
        let starts = list_at(args, "output_lists", args.output_lists, with_results)?;
        let room = |&start: &*mut *mut PJRT_Buffer| Room::new(args, "output_lists", start, results);
        Ok(LaunchRows {
            arguments,
            results: starts.iter().map(room).collect::<Result<_, _>>()?,
            events: Room::new(
                args,
                "device_complete_events",
                args.device_complete_events,
                events,
            )?,
        })
    }
}
