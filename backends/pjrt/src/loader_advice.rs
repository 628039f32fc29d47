//! What to do about a library that the system's loader refuses, by the loader's own words.

/// What the loader says, and what to do about it; the first that fits counts.
const CAUSES: [(&[&str], &str); 11] = [
    (
        &["static TLS"],
        "the room for thread-local variables of libraries that are loaded later is used up: set \
         LD_PRELOAD to this file, or raise GLIBC_TUNABLES=glibc.rtld.optional_static_tls=2000000",
    ),
    (
        &["version `GLIBC_", "version `GLIBCXX_", "version `CXXABI_"],
        "this system is older than the one it was built for: use a build for older systems, or a \
         newer system (GLIBCXX and CXXABI are versions of libstdc++)",
    ),
    (
        &[
            "version `",
            "undefined symbol",
            "symbol not found",
            "Symbol not found",
        ],
        "it was built against another version of a library: install that version, or use another \
         build of it",
    ),
    (
        &["wrong ELF class", "incompatible architecture", "ELFCLASS"],
        "a library that it needs is there for another architecture alone: install the one for this \
         architecture",
    ),
    (
        &["executable stack"],
        "this system refuses libraries with an executable stack: use another build of it",
    ),
    (
        &["failed to map segment from shared object: Operation not permitted"],
        "it lies on a file system that is mounted `noexec`: move it to another one",
    ),
    (
        &["Cannot allocate memory", "cannot allocate memory"],
        "this process has too little memory for it: raise its limit (`ulimit -v`)",
    ),
    (
        &[
            "invalid ELF header",
            "file too short",
            "no dynamic section",
            "not properly aligned",
        ],
        "the file that the loader names is damaged or no library: fetch it again",
    ),
    (
        &["Permission denied"],
        "this account may not load it: look at the permissions of the file that the loader names, \
         and at the policy of the system (SELinux)",
    ),
    (
        &[
            "cannot open shared object file",
            "Error loading shared library",
            "image not found",
        ],
        "install the library that the loader names, or add its directory to LD_LIBRARY_PATH",
    ),
    (
        &["Library not loaded"],
        "install the library that the loader names, or add its directory to DYLD_LIBRARY_PATH",
    ),
];

/// The advice for this message of the loader.
pub(crate) fn advice(message: &str) -> &'static str {
    let fits =
        |(signs, _): &&(&[&str], &'static str)| signs.iter().any(|sign| message.contains(sign));
    let cause = CAUSES.iter().find(fits);
    cause.map_or("the loader's own words say why", |(_, advice)| *advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_fits_the_words_of_glibc() {
        for (message, part) in [
            (
                "/a.so: cannot allocate memory in static TLS block",
                "LD_PRELOAD",
            ),
            (
                "/lib/libc.so.6: version `GLIBC_2.38' not found (required by /a.so)",
                "older",
            ),
            ("libtpu.so: version `LIBFOO_2' not found", "another version"),
            ("/a.so: undefined symbol: cudaMalloc", "another version"),
            (
                "libx.so.1: wrong ELF class: ELFCLASS32",
                "this architecture",
            ),
            (
                "libx.so.1: cannot open shared object file: No such file or directory",
                "LD_LIBRARY_PATH",
            ),
            (
                "libx.so.1: cannot open shared object file: Permission denied",
                "permissions",
            ),
            (
                "/a.so: cannot enable executable stack as shared object requires: Invalid argument",
                "another build",
            ),
            (
                "/a.so: failed to map segment from shared object: Operation not permitted",
                "noexec",
            ),
            (
                "/a.so: failed to map segment from shared object: Cannot allocate memory",
                "ulimit",
            ),
            ("libx.so: invalid ELF header", "fetch it again"),
            ("a new reason", "own words"),
        ] {
            assert!(
                advice(message).contains(part),
                "{message}: {}",
                advice(message)
            );
        }
    }
}
