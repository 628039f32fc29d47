//! Integration tests of `halite-pjrt-sys`, in one executable: each links all of its dependencies.

mod ffi_layouts;
mod header;
