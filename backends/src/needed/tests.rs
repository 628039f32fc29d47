use std::{fs, process::Command};

use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH};

use super::{fuzz::library, message::missing, *};
use crate::{locate::Source, plugins::plugin};

/// Writes a library with these strings, which the loader would not accept.
fn write(path: &Path, strings: &[(i64, &str)]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, library(strings)).unwrap();
}

/// The names that are missing, and the libraries that are loaded first.
fn walk(loader: &Loader, extra: &[PathBuf], path: &Path) -> (Vec<String>, Vec<PathBuf>) {
    let mut walk = Walk::new(loader, extra.into());
    walk.needs_of(path, &Dynamic::of_file(path).unwrap(), &[], 0);
    let names = walk.missing.iter().map(ToString::to_string);
    (names.collect(), walk.first)
}

fn given(path: PathBuf) -> Located {
    Located {
        path,
        source: Source::Given,
        plugin: None,
    }
}

#[test]
fn dynamic_section_is_read() {
    let bytes = library(&[
        (DT_NEEDED, "liba.so.1"),
        (DT_RUNPATH, "$ORIGIN/x:/b"),
        (DT_NEEDED, "libb.so"),
    ]);
    let dynamic = Dynamic::read(&bytes[..]).unwrap();
    assert_eq!(dynamic.needed, ["liba.so.1", "libb.so"]);
    let runpath = directories(&dynamic.runpath.unwrap(), Path::new("/o"));
    assert_eq!(runpath, [Path::new("/o/x"), Path::new("/b")]);
    assert_eq!(dynamic.rpath, None);
}

/// That of AMD's plugin has more than 4096 bytes, on a file that is not read as a whole.
#[test]
fn long_search_path_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = "$ORIGIN/../_rocm_sdk_core/lib:".repeat(200);
    let file = directory.path().join("plugin.so");
    write(&file, &[(DT_RUNPATH, &path), (DT_NEEDED, "liba.so")]);
    let dynamic = Dynamic::of_file(&file).unwrap();
    assert_eq!(dynamic.runpath, Some(path));
    assert_eq!(dynamic.needed, ["liba.so"]);
}

#[test]
fn damaged_library_is_an_error() {
    let whole = library(&[(DT_NEEDED, "liba.so.1"), (DT_RUNPATH, "/b")]);
    for length in 0..whole.len() {
        assert!(Dynamic::read(&whole[..length]).is_err(), "{length}");
    }
    // Any value of any byte, with the offsets and sizes among them, is read or refused.
    for place in 0..whole.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[place] = value;
            let _ = Dynamic::read(&bytes[..]);
        }
    }
    let mut large = whole.clone();
    // The size of the dynamic segment.
    large[64 + 56 + 32..][..8].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    let error = Dynamic::read(&large[..]).unwrap_err();
    assert_eq!(error, "damaged: a dynamic section of 1099511627776 bytes");
}

#[test]
fn library_for_another_machine_is_an_error() {
    let mut bytes = library(&[]);
    bytes[18..20].copy_from_slice(&22_u16.to_le_bytes());
    let error = Dynamic::read(&bytes[..]).unwrap_err();
    assert_eq!(error, "for another architecture (ELF machine 22)");
}

#[test]
fn needs_are_followed_through_found_libraries() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    write(
        &at("p/plugin.so"),
        &[(DT_NEEDED, "liba.so"), (DT_RUNPATH, "$ORIGIN/../lib")],
    );
    // The second one needs the first one again, and two that are missing.
    write(
        &at("lib/liba.so"),
        &[(DT_NEEDED, "libb.so"), (DT_RUNPATH, "$ORIGIN")],
    );
    let needs = [
        (DT_NEEDED, "liba.so"),
        (DT_NEEDED, "libc1.so"),
        (DT_NEEDED, "libc2.so"),
    ];
    write(&at("lib/libb.so"), &needs);
    let (names, first) = walk(&Loader::default(), &[], &at("p/plugin.so"));
    assert_eq!(
        (names, first),
        (vec!["libc1.so".into(), "libc2.so".into()], vec![])
    );
}

#[test]
fn only_rpath_is_inherited() {
    for (tag, expected) in [(DT_RPATH, &[][..]), (DT_RUNPATH, &["libb.so"][..])] {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        write(
            &at("plugin.so"),
            &[(DT_NEEDED, "liba.so"), (tag, "$ORIGIN/lib")],
        );
        write(&at("lib/liba.so"), &[(DT_NEEDED, "libb.so")]);
        write(&at("lib/libb.so"), &[]);
        assert_eq!(walk(&Loader::default(), &[], &at("plugin.so")).0, expected);
    }
}

#[test]
fn libraries_of_other_places_come_after_their_needs() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    write(
        &at("plugin.so"),
        &[(DT_NEEDED, "liba.so"), (DT_NEEDED, "libb.so")],
    );
    write(&at("env/liba.so"), &[(DT_NEEDED, "libb.so")]);
    write(&at("env/libb.so"), &[]);
    let (names, first) = walk(&Loader::default(), &[at("env")], &at("plugin.so"));
    assert_eq!(
        (names, first),
        (vec![], vec![at("env/libb.so"), at("env/liba.so")])
    );
}

#[test]
fn unusable_file_is_named_with_its_reason() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    write(
        &at("plugin.so"),
        &[(DT_NEEDED, "liba.so"), (DT_RUNPATH, "$ORIGIN")],
    );
    fs::write(at("liba.so"), "half a download").unwrap();
    let (names, _) = walk(&Loader::default(), &[], &at("plugin.so"));
    assert!(
        names[0].starts_with(&format!(
            "liba.so ({}: not a readable ELF library",
            at("liba.so").display()
        )),
        "{names:?}"
    );
}

#[test]
fn message_names_all_with_their_packages() {
    let library = |name: &&str| Missing {
        name: (*name).into(),
        refused: None,
    };
    let check = |names: &[&str], plugin: &KnownPlugin, expected: &str| {
        let names: Vec<_> = names.iter().map(library).collect();
        assert_eq!(missing(Path::new("/p.so"), &names, plugin.needs), expected);
    };
    let oneapi = plugin("oneapi").unwrap();
    check(
        &[
            "libmpi.so.12",
            "libmkl_sycl_rng.so.5",
            "libmkl_core.so.2",
            "libze_loader.so.1",
        ],
        oneapi,
        "/p.so is not loaded: 4 libraries that it needs are missing: libmpi.so.12, \
         libmkl_sycl_rng.so.5, libmkl_core.so.2, libze_loader.so.1; install them with `python3 -m \
         pip install impi-rt==2021.15.0 onemkl-sycl-rng==2025.1.0 mkl==2025.1.0` and Level Zero's \
         loader 1.20 or newer (`apt-get install libze1` on Debian 13), or add their directories to LD_LIBRARY_PATH",
    );
    check(
        &["libx.so", "libumf.so.0"],
        oneapi,
        "/p.so is not loaded: 2 libraries that it needs are missing: libx.so, libumf.so.0; install \
         libx.so, of which halite knows no package, and the others with `python3 -m pip install \
         umf==0.10.0`; or add their directories to LD_LIBRARY_PATH",
    );
    check(
        &["libx.so"],
        plugin("cpu").unwrap(),
        "/p.so is not loaded: a library that it needs is missing: libx.so; install the packages \
         that have them, or add their directories to LD_LIBRARY_PATH",
    );
}

#[test]
fn python_directories_are_those_of_the_installed_package() {
    let site = Path::new("/env/lib/python3.12/site-packages");
    let library = site.join(plugin("oneapi").unwrap().library.inside);
    let directories = directories("$ORIGIN/../../../..:/opt/x", library.parent().unwrap());
    let directories: Vec<_> = directories.iter().map(|path| without_dots(path)).collect();
    assert_eq!(directories, [Path::new("/env/lib"), Path::new("/opt/x")]);
}

#[test]
fn plugin_is_recognized_by_the_name_of_its_file() {
    let name = |path: &str| resembling(Path::new(path)).map(|plugin| plugin.name);
    assert_eq!(
        name("/a/jax_plugins/xla_rocm7/xla_rocm_plugin.so"),
        Some("rocm7")
    );
    assert_eq!(name("/cache/xla_rocm_plugin.so"), Some("rocm"));
    assert_eq!(name("/a/my_plugin.so"), None);
}

/// Compiles a library.
fn build(directory: &Path, name: &str, code: &str, arguments: &[&str]) {
    fs::write(directory.join("code.c"), code).unwrap();
    let mut cc = Command::new("cc");
    cc.current_dir(directory);
    cc.args(["-shared", "-fPIC", "-Wl,-z,lazy", "-o", name, "code.c"]);
    cc.arg(format!("-Wl,-soname,{name}")).args(arguments);
    assert!(cc.status().expect("a C compiler").success());
}

#[cfg(target_os = "linux")]
#[test]
fn real_library_is_loaded_after_what_it_needs() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let build = |name: &str, code: &str, needs: &[&str]| build(directory.path(), name, code, needs);
    build("libhalite_one.so", "int one(void) { return 7; }", &[]);
    let code = "int one(void); int two(void) { return one(); }";
    build("libhalite_two.so", code, &["libhalite_one.so"]);
    let code = "int two(void); int three(void) { return two(); }";
    build("plugin.so", code, &["libhalite_two.so"]);
    fs::create_dir(at("env")).unwrap();
    for name in ["libhalite_one.so", "libhalite_two.so"] {
        fs::rename(at(name), at("env").join(name)).unwrap();
    }

    let error = provide(&given(at("plugin.so"))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let words = "a library that it needs is missing: libhalite_two.so;";
    assert!(error.message().contains(words), "{error}");

    let loader = Loader::of_this_process();
    let (names, first) = walk(&loader, &[at("env")], &at("plugin.so"));
    assert!(names.is_empty(), "{names:?}");
    load::all(&first).unwrap();
    provide(&given(at("plugin.so"))).unwrap();
}

/// MKL's libraries are of this kind.
#[cfg(target_os = "linux")]
#[test]
fn library_may_use_symbols_that_it_does_not_name() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let build = |name: &str, code: &str| build(directory.path(), name, code, &[]);
    build(
        "libhalite_user.so",
        "int used(void); int user(void) { return used(); }",
    );
    build("libhalite_used.so", "int used(void) { return 7; }");
    build(
        "libhalite_lone.so",
        "extern int nowhere; int lone(void) { return nowhere; }",
    );
    load::all(&[at("libhalite_user.so"), at("libhalite_used.so")]).unwrap();
    build(
        "libhalite_a.so",
        "int b(void); int a(int n) { return n ? b() : 1; }",
    );
    build(
        "libhalite_b.so",
        "int a(int n); int b(void) { return a(0); }",
    );
    load::all(&[at("libhalite_a.so"), at("libhalite_b.so")]).unwrap();
    let error = load::all(&[at("libhalite_used.so"), at("libhalite_lone.so")]).unwrap_err();
    let words = "libhalite_lone.so, which the plugin needs, does not load";
    assert!(error.to_string().contains(words), "{error}");
    assert!(
        error.to_string().contains("undefined symbol: nowhere"),
        "{error}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn loader_finds_the_system_s_libraries() {
    let loader = Loader::of_this_process();
    assert!(loader.is_loaded("libc.so.6"));
    let found = loader.candidates("libdl.so.2", &[], &[]);
    assert!(
        found.iter().any(|path| Dynamic::of_file(path).is_ok()),
        "{found:?}"
    );
    assert!(
        loader
            .candidates("libnobody_has_this.so", &[], &[])
            .is_empty()
    );
}
