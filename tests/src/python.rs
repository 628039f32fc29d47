//! Python with the packages of `tests/jax/requirements.txt`, for tests that run JAX.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use halite_fetch::{Cache, sha256_of_file};

/// Python with the packages, as [`with_packages`].
pub fn python() -> Command {
    let mut command = with_packages("python3");
    command.args(["-s", "-B"]);
    command
}

/// A command whose environment has the packages for Python, and no variable that JAX or halite
/// reads. The first use installs the packages in the cache directory, which needs `python3` with
/// pip and a package index.
///
/// # Panics
/// If they cannot be installed.
pub fn with_packages(program: &str) -> Command {
    static PACKAGES: OnceLock<PathBuf> = OnceLock::new();
    let packages = PACKAGES.get_or_init(|| {
        install().unwrap_or_else(|error| panic!("the packages of the tests under JAX: {error}"))
    });
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["HALITE_", "JAX_", "PJRT_", "PYTHON", "XLA_"]
            .iter()
            .any(|it| text.starts_with(it))
        {
            command.env_remove(&name);
        }
    }
    command.env("PYTHONPATH", packages);
    command
}

/// A script of this directory, `tests`, by a Python that has the packages that the script names, or
/// by [`python`].
pub fn script(path: Option<&Path>, name: &str) -> Command {
    let mut command = match path {
        Some(path) => Command::new(path),
        None => python(),
    };
    command.args(["-s", "-B"]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(name));
    command
}

/// The directory of the packages, named by their versions and that of Python.
fn install() -> io::Result<PathBuf> {
    let requirements = Path::new(env!("CARGO_MANIFEST_DIR")).join("jax/requirements.txt");
    let cache = Cache::open(None).map_err(io::Error::other)?;
    let version = "import sys; print('%d.%d' % sys.version_info[:2], end='')";
    let version = output(Command::new("python3").args(["-c", version]))?;
    let digest = sha256_of_file(&requirements)?.0;
    let name = format!("tests-python-{version}-{}", &digest[..16]);
    let installed = cache.root().join(&name);
    if installed.is_dir() {
        return Ok(installed);
    }
    fs::create_dir_all(cache.root())?;
    // One process installs; the lock is free when it ends, however it ends.
    let lock = File::create(cache.root().join(format!("{name}.lock")))?;
    lock.lock()?;
    if !installed.is_dir() {
        let partial = tempfile::tempdir_in(cache.root())?;
        let mut pip = Command::new("python3");
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ])
        .args(["--only-binary=:all:", "--no-compile", "--target"])
        .args([partial.path(), Path::new("--requirement"), &requirements]);
        output(&mut pip)?;
        // Only a complete installation has the final name.
        fs::rename(partial.keep(), &installed)?;
    }
    Ok(installed)
}

fn output(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let (status, stderr) = (output.status, String::from_utf8_lossy(&output.stderr));
    Err(io::Error::other(format!("{command:?}: {status}: {stderr}")))
}
