//! Verified downloads of registry packages into a cache directory.
#![forbid(unsafe_code)]
