//! Compares every declaration with a real header: the one of API 0.81 that the package
//! `xla-cpu-pjrt` ships.
//!
//! The header is fetched with `pip` into the cache directory if it is not there. A C compiler then
//! says what it makes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use halite_fetch::{Cache, Client, FileSpec, Package, Quiet, Transform};
use halite_pjrt_sys::*;

const PACKAGE: Package = Package {
    client: Client::Pip,
    name: "xla-cpu-pjrt",
    version: "0.0.1",
    archive_size: 63_461_052,
    archive_sha256: Some("55837b6b7b47daa717f2d9a5a03563ea0ceaa338d06a81a1e2d3f060d960decc"),
    files: &[FileSpec {
        inside: "xla_plugins/xla_cpu_pjrt/include/pjrt_c_api.h",
        name: "pjrt_c_api.h",
        size: 106_019,
        sha256: "c85bb95cb1743c2a353a555b3ab35f065e5f17007c7f182ad68d23754950235c",
        transform: Transform::None,
    }],
    parts: &[],
};
const HEADER_MINOR: u32 = 81;

/// `(struct, field here, a field at the same place in C)`, where C has an anonymous union.
const UNIONS: [(&str, &str, &str); 2] = [
    ("PJRT_NamedValue", "value", "int64_value"),
    ("PJRT_Buffer_MemoryLayout", "value", "tiled"),
];

#[test]
fn structs_match_the_real_header() {
    let header = Header::get();
    let mut program = String::new();
    for layout in layouts() {
        let name = layout.name;
        writeln!(
            program,
            "  printf(\"{name} %zu %zu\\n\", sizeof({name}), _Alignof({name}));"
        )
        .unwrap();
        if header
            .text
            .contains(&format!("PJRT_DEFINE_STRUCT_TRAITS({name},"))
            || header
                .text
                .contains(&format!("PJRT_DEFINE_STRUCT_TRAITS(\n    {name},"))
        {
            writeln!(
                program,
                "  printf(\"{name}_STRUCT_SIZE %zu\\n\", (size_t){name}_STRUCT_SIZE);"
            )
            .unwrap();
        }
        for (field, _) in fields(&layout) {
            writeln!(
                program,
                "  printf(\"{name}.{field} %zu %zu\\n\", offsetof({name}, {field}), sizeof((({name}*)0)->{field}));"
            )
            .unwrap();
        }
    }
    let c = header.run(&program);

    let mut compared = 0;
    for layout in layouts() {
        let name = layout.name;
        let (_, end) = fields(&layout)
            .last()
            .map(|(_, field)| (field.offset, field.offset + field.size))
            .unwrap();
        let padded = end.next_multiple_of(layout.align);
        assert_eq!(
            c[name],
            [padded, layout.align],
            "size and alignment of {name} in 0.{HEADER_MINOR}"
        );
        if let Some(size) = c.get(&format!("{name}_STRUCT_SIZE")) {
            assert_eq!(
                layout.end_at(HEADER_MINOR),
                size[0],
                "STRUCT_SIZE of {name}"
            );
        }
        for (c_name, field) in fields(&layout) {
            let [offset, size] = c[&format!("{name}.{c_name}")][..] else {
                panic!("{name}.{c_name} was not printed")
            };
            assert_eq!(field.offset, offset, "offset of {name}.{c_name}");
            // Of a union, C was asked for one member only.
            if UNIONS.iter().all(|(owner, ..)| *owner != name) {
                assert_eq!(field.size, size, "size of {name}.{c_name}");
            }
            compared += 1;
        }
    }
    assert!(compared > 500, "only {compared} fields were compared");
}

#[test]
fn every_struct_of_the_real_header_is_there() {
    let header = Header::get();
    let ours: BTreeSet<&str> = layouts().iter().map(|layout| layout.name).collect();
    let theirs: BTreeSet<&str> = header
        .text
        .lines()
        .filter_map(|line| {
            line.strip_prefix("typedef ")
                .unwrap_or(line)
                .strip_prefix("struct ")?
                .strip_suffix(" {")
        })
        .filter(|name| *name != "PJRT_Api")
        .collect();
    assert!(
        theirs.len() > 130,
        "found only {} structs in the header",
        theirs.len()
    );
    let missing: Vec<_> = theirs.difference(&ours).collect();
    assert!(
        missing.is_empty(),
        "in the header but not declared: {missing:?}"
    );
    let invented: Vec<_> = ours.difference(&theirs).collect();
    assert!(
        invented.is_empty(),
        "declared as 0.{HEADER_MINOR} or older but not in the header: {invented:?}"
    );
}

#[test]
fn table_matches_the_real_header() {
    let header = Header::get();
    let known: Vec<_> = SLOTS
        .iter()
        .filter(|slot| slot.since <= HEADER_MINOR)
        .collect();
    let mut program = String::from("  printf(\"size %zu\\n\", (size_t)PJRT_Api_STRUCT_SIZE);\n");
    for slot in &known {
        writeln!(
            program,
            "  printf(\"{0} %zu\\n\", offsetof(PJRT_Api, {0}));",
            slot.name
        )
        .unwrap();
    }
    let c = header.run(&program);
    for slot in &known {
        assert_eq!(slot.offset, c[slot.name][0], "offset of {}", slot.name);
    }
    assert_eq!(
        known.last().unwrap().offset + size_of::<usize>(),
        c["size"][0],
        "the table of 0.{HEADER_MINOR}"
    );

    // Newer slots come after it, each of its version or a later one.
    let newer: Vec<_> = SLOTS.iter().skip(known.len()).collect();
    assert!(
        newer.iter().all(|slot| slot.since > HEADER_MINOR),
        "a newer slot stands among the old ones"
    );
    assert!(
        newer
            .windows(2)
            .all(|pair| pair[0].since <= pair[1].since && pair[0].offset < pair[1].offset)
    );
    assert_eq!(SLOTS.len(), 138);
    assert_eq!(PJRT_Api::STRUCT_SIZE, 1144);
}

#[test]
fn every_number_is_the_one_of_the_real_header() {
    let header = Header::get();
    let enums = [
        ("PJRT_Extension_Type_", base::PJRT_Extension_Type::VALUES),
        ("PJRT_NamedValue_", base::PJRT_NamedValue_Type::VALUES),
        ("PJRT_Error_Code_", error::PJRT_Error_Code::VALUES),
        ("PJRT_ProcessState_", client::PJRT_ProcessState::VALUES),
        ("PJRT_Buffer_Type_", buffer::PJRT_Buffer_Type::VALUES),
        (
            "PJRT_HostBufferSemantics_",
            buffer::PJRT_HostBufferSemantics::VALUES,
        ),
        (
            "PJRT_Buffer_MemoryLayout_Type_",
            buffer::PJRT_Buffer_MemoryLayout_Type::VALUES,
        ),
    ];
    let mut program = String::new();
    let mut count = 0;
    for (prefix, values) in enums {
        for (name, ..) in values.iter().filter(|(_, _, since)| *since <= HEADER_MINOR) {
            writeln!(
                program,
                "  printf(\"{prefix}{name} %zu\\n\", (size_t){prefix}{name});"
            )
            .unwrap();
            count += 1;
        }
    }
    let c = header.run(&program);
    for (prefix, values) in enums {
        for (name, number, _) in values.iter().filter(|(_, _, since)| *since <= HEADER_MINOR) {
            assert_eq!(
                c[&format!("{prefix}{name}")][0],
                *number as usize,
                "{prefix}{name}"
            );
        }
    }
    assert!(count > 70, "only {count} numbers were compared");
    assert_eq!(size_of::<buffer::PJRT_Buffer_Type>(), 4);
}

#[test]
fn struct_sizes_grow_with_the_version() {
    use executable::PJRT_Executable_GetCompiledMemoryStats_Args as Stats;
    assert_eq!(
        [81, 90, 104].map(|minor| Stats::LAYOUT.end_at(minor)),
        [112, 120, 144]
    );
    assert_eq!(Stats::new().struct_size, 144);
    // Padding at the end is no field.
    use device::PJRT_Device_MemoryStats_Args as DeviceStats;
    assert_eq!(
        [81, 114].map(|minor| DeviceStats::LAYOUT.end_at(minor)),
        [185, 201]
    );
    assert_eq!(size_of::<DeviceStats>(), 208);
    // What a running 0.115 plugin asks for at least.
    assert_eq!(client::PJRT_Client_Create_Args::STRUCT_SIZE, 88);
    assert_eq!(executable::PJRT_ExecuteOptions::STRUCT_SIZE, 144);
    assert_eq!(
        executable::PJRT_Executable_DeserializeAndLoad_Args::STRUCT_SIZE,
        72
    );
}

#[test]
fn extensions_have_the_offsets_that_plugins_use() {
    use extension::*;
    let at = |layout: Layout, name: &str| {
        layout
            .fields
            .iter()
            .find(|field| field.name == name)
            .unwrap()
            .offset
    };
    assert_eq!(
        at(
            PJRT_Layouts_Extension::LAYOUT,
            "executable_get_output_layouts"
        ),
        64
    );
    assert_eq!(
        at(
            PJRT_Layouts_Extension::LAYOUT,
            "executable_get_parameter_layouts"
        ),
        72
    );
    assert_eq!(
        at(PJRT_Shardings_Extension::LAYOUT, "parameter_shardings"),
        24
    );
    assert_eq!(at(PJRT_Shardings_Extension::LAYOUT, "output_shardings"), 32);
    assert_eq!(at(PJRT_FFI_Extension::LAYOUT, "register_handler"), 40);
    assert_eq!(PJRT_FFI_Register_Handler_Args::STRUCT_SIZE, 52);
    assert_eq!(at(PJRT_Profiler_Extension::LAYOUT, "profiler_api"), 24);
    assert_eq!(at(PLUGIN_Profiler_Api::LAYOUT, "collect_data"), 72);
    assert_eq!(PLUGIN_Profiler_Api::STRUCT_SIZE, 80);
    // libtpu checks these three.
    assert_eq!(PLUGIN_Profiler_Error_Destroy_Args::STRUCT_SIZE, 24);
    assert_eq!(PLUGIN_Profiler_Error_Message_Args::STRUCT_SIZE, 40);
    assert_eq!(PLUGIN_Profiler_Error_GetCode_Args::STRUCT_SIZE, 28);
    assert_eq!(at(PLUGIN_Profiler_CollectData_Args::LAYOUT, "buffer"), 16);
}

/// The structs that the header should have.
fn layouts() -> Vec<Layout> {
    // Extensions have headers of their own, which the package does not ship.
    let extensions: BTreeSet<&str> = extension_layouts();
    LAYOUTS
        .iter()
        .flat_map(|file| file.iter())
        .filter(|layout| layout.since <= HEADER_MINOR && !extensions.contains(layout.name))
        .copied()
        .collect()
}

fn extension_layouts() -> BTreeSet<&'static str> {
    LAYOUTS
        .last()
        .unwrap()
        .iter()
        .map(|layout| layout.name)
        .collect()
}

/// A struct's fields of the header's version, by the name C knows.
fn fields(layout: &Layout) -> Vec<(&'static str, Field)> {
    let named = |field: &Field| {
        let own = field.name.trim_start_matches("r#");
        UNIONS
            .iter()
            .find(|(owner, here, _)| *owner == layout.name && *here == own)
            .map_or(own, |(.., c)| c)
    };
    layout
        .fields
        .iter()
        .filter(|field| field.since <= HEADER_MINOR)
        .map(|field| (named(field), *field))
        .collect()
}

struct Header {
    path: PathBuf,
    text: String,
}

impl Header {
    fn get() -> Header {
        let installed = Cache::open(None)
            .unwrap()
            .ensure(&PACKAGE, &mut Quiet)
            .unwrap();
        let path = installed.path("pjrt_c_api.h");
        Header {
            text: fs::read_to_string(&path).unwrap(),
            path,
        }
    }

    /// Compiles and runs a `main` with this body; gives each printed line's numbers by its name.
    fn run(&self, body: &str) -> BTreeMap<String, Vec<usize>> {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (source, binary) = (
            directory.path().join("layout.c"),
            directory.path().join("layout"),
        );
        let code = format!(
            "#include <stdio.h>\n#include \"{}\"\nint main(void) {{\n{body}  return 0;\n}}\n",
            self.path.display()
        );
        fs::write(&source, code).unwrap();
        let cc = env::var("CC").unwrap_or_else(|_| "cc".into());
        let compiled = Command::new(&cc)
            .args(["-std=c11", "-o"])
            .arg(&binary)
            .arg(&source)
            .output()
            .expect("a C compiler as `cc` or in CC");
        assert!(
            compiled.status.success(),
            "{cc} refused the layout program:\n{}",
            String::from_utf8_lossy(&compiled.stderr)
        );
        let printed = Command::new(&binary).output().unwrap();
        assert!(printed.status.success());
        let printed = String::from_utf8(printed.stdout).unwrap();
        printed
            .lines()
            .map(|line| {
                let mut words = line.split(' ');
                (
                    words.next().unwrap().to_owned(),
                    words.map(|number| number.parse().unwrap()).collect(),
                )
            })
            .collect()
    }
}
