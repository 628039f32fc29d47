//! Remedies for a library that the system's loader rejects, by the loader's message and the file
//! system of the library.

use std::{fs, path::Path};

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
        &["Cannot allocate memory", "cannot allocate memory"],
        "this process has too little memory for it: raise its limit (`ulimit -v`)",
    ),
    (
        &["failed to map segment"],
        "its file system is mounted `noexec`, or the policy of the system (SELinux) forbids to \
         execute it: move it to another file system; HALITE_CACHE_DIR is the directory of what \
         halite installs",
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

/// What to do about the library at `path`, for which the system's loader gives this message.
pub fn loader_advice(path: &Path, message: &str) -> String {
    let fits =
        |(signs, _): &&(&[&str], &'static str)| signs.iter().any(|sign| message.contains(sign));
    let is_forbidden = ["failed to map segment", "Permission denied"]
        .iter()
        .any(|sign| message.contains(sign));
    if is_forbidden && let Some(mount) = noexec_mount(path) {
        return format!(
            "it is on the file system {mount}, which is mounted `noexec`: no library can be loaded \
             from there. Mount it with `exec`, or move the library to another file system; for \
             what halite installs, set HALITE_CACHE_DIR to a directory on another one"
        );
    }
    let cause = CAUSES.iter().find(fits);
    cause
        .map_or("the loader's own words say why", |(_, advice)| *advice)
        .to_owned()
}

/// The mount point of a file, if its file system is mounted `noexec`. `None` on systems other than
/// Linux.
fn noexec_mount(path: &Path) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let (mount, is_noexec) = mount_of(&mounts, &path)?;
    is_noexec.then_some(mount)
}

/// The mount point of a path in the text of `mountinfo`, and whether it is `noexec`.
fn mount_of(mounts: &str, path: &Path) -> Option<(String, bool)> {
    let mount = |line: &str| {
        // Number, parent, device, root, mount point, options.
        let mut words = line.split(' ').skip(4);
        let (point, options) = (unescaped(words.next()?), words.next()?);
        let is_noexec = options.split(',').any(|option| option == "noexec");
        path.starts_with(&point).then_some((point, is_noexec))
    };
    // A later mount hides an earlier one at the same place.
    let mounts = mounts.lines().filter_map(mount);
    mounts.max_by_key(|(point, _)| Path::new(point).components().count())
}

/// A path as `mountinfo` has it: `\040` is a space.
fn unescaped(text: &str) -> String {
    let escapes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    escapes
        .iter()
        .fold(text.to_owned(), |text, (escape, plain)| {
            text.replace(escape, plain)
        })
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
                "/a.so: failed to map segment from shared object",
                "HALITE_CACHE_DIR",
            ),
            (
                "/a.so: failed to map segment from shared object: Cannot allocate memory",
                "ulimit",
            ),
            ("libx.so: invalid ELF header", "fetch it again"),
            ("a new reason", "own words"),
        ] {
            let advice = loader_advice(Path::new("/nowhere/a.so"), message);
            assert!(advice.contains(part), "{message}: {advice}");
        }
    }

    #[test]
    fn mount_of_a_path_is_the_innermost() {
        let mounts = "22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                      40 22 0:30 / /my\\040disk rw,nosuid,noexec,relatime - tmpfs tmpfs rw\n\
                      41 40 0:31 / /my\\040disk/exec rw - tmpfs tmpfs rw\n\
                      42 22 0:32 / /twice rw - tmpfs tmpfs rw\n\
                      43 22 0:33 / /twice rw,noexec - tmpfs tmpfs rw\n";
        for (path, point, is_noexec) in [
            ("/lib/a.so", "/", false),
            ("/my disk/a.so", "/my disk", true),
            ("/my disk/exec/a.so", "/my disk/exec", false),
            ("/my disks/a.so", "/", false),
            ("/twice/a.so", "/twice", true),
        ] {
            let found = mount_of(mounts, Path::new(path));
            assert_eq!(found, Some((point.to_owned(), is_noexec)), "{path}");
        }
        assert_eq!(mount_of("", Path::new("/a.so")), None);
    }
}
