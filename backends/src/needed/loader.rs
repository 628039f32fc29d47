//! Where the system's loader searches for libraries: directories of the environment and of the
//! system, and the cache that `ldconfig` prints.

use std::{
    cell::OnceCell,
    collections::{HashMap, HashSet},
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::elf::{directories, multiarch};

/// The loader of one process.
#[derive(Debug, Default)]
pub(super) struct Loader {
    /// File names of the libraries of the process.
    loaded: HashSet<String>,
    /// Directories of `LD_LIBRARY_PATH`.
    first: Vec<PathBuf>,
    /// Directories that are searched without configuration.
    defaults: Vec<PathBuf>,
    /// The cache; `None` where `ldconfig` does not print it. Read where it is needed.
    cache: OnceCell<Option<HashMap<String, Vec<PathBuf>>>>,
}

impl Loader {
    /// Returns the loader of this process.
    pub(super) fn of_this_process() -> Self {
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let file = |line: &str| {
            Some(
                Path::new(&line[line.find('/')?..])
                    .file_name()?
                    .to_str()?
                    .to_owned(),
            )
        };
        let variable = env::var("LD_LIBRARY_PATH").unwrap_or_default();
        let first = match variable.as_str() {
            "" => Vec::new(),
            path => directories(&path.replace(';', ":"), Path::new("/")),
        };
        let multiarch = multiarch();
        let defaults = [&*multiarch, "lib64", "lib"];
        Loader {
            loaded: maps.lines().filter_map(file).collect(),
            first,
            defaults: (defaults.iter())
                .flat_map(|name| [Path::new("/").join(name), Path::new("/usr").join(name)])
                .collect(),
            cache: OnceCell::new(),
        }
    }

    /// Returns whether a library is part of the process, and is not searched for again.
    pub(super) fn is_loaded(&self, name: &str) -> bool {
        self.loaded.contains(name)
    }

    /// Returns the paths at which a library may be, in the order in which they are tried: `before`
    /// and `after` are directories of the library that needs it.
    pub(super) fn candidates(
        &self,
        name: &str,
        before: &[PathBuf],
        after: &[PathBuf],
    ) -> Vec<PathBuf> {
        if name.contains('/') {
            return vec![name.into()];
        }
        let of_library = before.iter().chain(&self.first).chain(after);
        let mut paths: Vec<PathBuf> = of_library
            .chain(&self.defaults)
            .flat_map(|directory| in_directory(directory, name))
            .filter(|path| path.exists())
            .collect();
        // `ldconfig` is asked only for what is not found without it.
        if paths.is_empty() {
            let cached = self.cache().as_ref().and_then(|cache| cache.get(name));
            paths.extend(cached.into_iter().flatten().cloned());
        }
        paths
    }

    /// Returns whether the cache could be read.
    pub(super) fn knows_the_system(&self) -> bool {
        self.cache().is_some()
    }

    fn cache(&self) -> &Option<HashMap<String, Vec<PathBuf>>> {
        self.cache.get_or_init(|| {
            // Accounts other than root may not have it on their path.
            let programs = ["/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig"];
            let listed = programs.iter().find_map(|program| {
                let mut command = Command::new(program);
                let output = command.arg("-p").stdin(Stdio::null()).output().ok()?;
                output.status.success().then_some(output.stdout)
            });
            let cache = parse(&String::from_utf8_lossy(&listed?));
            (!cache.is_empty()).then_some(cache)
        })
    }
}

/// Returns the paths of a library in a directory; those for newer processors first.
fn in_directory(directory: &Path, name: &str) -> Vec<PathBuf> {
    let newer = ["x86-64-v4", "x86-64-v3", "x86-64-v2"];
    let newer = newer.map(|level| directory.join("glibc-hwcaps").join(level).join(name));
    newer.into_iter().chain([directory.join(name)]).collect()
}

/// Parses the lines `libm.so.6 (libc6,x86-64) => /lib/x86_64-linux-gnu/libm.so.6`.
fn parse(text: &str) -> HashMap<String, Vec<PathBuf>> {
    let mut cache: HashMap<String, Vec<PathBuf>> = HashMap::new();
    for line in text.lines() {
        let parts = line.trim().split_once(" => ");
        if let Some((description, path)) = parts
            && let Some((name, _)) = description.split_once(' ')
        {
            cache.entry(name.to_owned()).or_default().push(path.into());
        }
    }
    cache
}
