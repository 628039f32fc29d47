//! Entry points into this crate's private parsers for fuzzing. Not part of the public API, and
//! without stability.
//!
//! Each function takes any bytes, returns whether they were accepted, and panics where a property
//! does not hold.

/// An entry of the compile cache, as given and with the digest that belongs to the bytes.
pub fn program_entry(data: &[u8]) -> bool {
    crate::compile_cache::fuzz_entry(data)
}

/// Valid inputs of [`program_entry`], without their digests.
pub fn program_entry_seeds() -> Vec<Vec<u8>> {
    crate::compile_cache::fuzz_entry_seeds()
}

/// A size of the compile cache, such as `500M`.
pub fn cache_size(data: &[u8]) -> bool {
    std::str::from_utf8(data).is_ok_and(crate::compile_cache::fuzz_size)
}

/// A shared library whose needs are read.
pub fn library_needs(data: &[u8]) -> bool {
    crate::needed::fuzz::library_needs(data)
}

/// Valid inputs of [`library_needs`].
pub fn library_needs_seeds() -> Vec<Vec<u8>> {
    crate::needed::fuzz::library_needs_seeds()
}
