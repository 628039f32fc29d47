//! Programs that JAX and halite print.

use expect_test::expect;
use halite_stablehlo::{Module, OpKind, Region};

use crate::text::{function, jax_programs, without_positions};

fn operations(region: &Region) -> usize {
    let inner = region
        .operations
        .iter()
        .flat_map(|operation| &operation.regions);
    region.operations.len() + inner.map(operations).sum::<usize>()
}

#[test]
fn jax_programs_are_read() {
    let mut summary = String::new();
    for (name, text) in jax_programs() {
        let program = Module::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let count: usize = program.functions.iter().map(|f| operations(&f.body)).sum();
        summary += &format!(
            "{name}: {} functions, {count} operations\n",
            program.functions.len()
        );
    }
    expect![[r#"
        approx_top_k: 2 functions, 5 operations
        cholesky: 3 functions, 18 operations
        control: 1 functions, 15 operations
        conv_gradient: 1 functions, 13 operations
        custom_call: 1 functions, 1 operations
        fft: 3 functions, 4 operations
        gather_scatter: 1 functions, 21 operations
        mlp_step: 1 functions, 51 operations
        narrow: 1 functions, 19 operations
        random_bits: 1 functions, 6 operations
        scan: 4 functions, 20 operations
        shard_map: 1 functions, 12 operations
        sort: 1 functions, 16 operations
        top_k: 2 functions, 6 operations
    "#]]
    .assert_eq(&summary);
}

#[test]
fn printed_programs_are_read_as_the_same() {
    for (name, text) in jax_programs() {
        let program = Module::parse(&text).unwrap();
        let printed = program.to_string();
        let again = Module::parse(&printed).unwrap_or_else(|error| panic!("{name}: {error}"));
        // Constants may be NaN, which differs from itself as a number but not as bytes.
        let (program, again) = (without_positions(program), without_positions(again));
        assert_eq!(program, again, "{name}");
        assert_eq!(printed, again.to_string(), "{name}");
    }
}

/// A program of several blocks of text, with a constant that is longer than a block.
fn long_program() -> Module {
    let digits: String = (0..40_000_u32)
        .map(|n| format!("{:02x}", n % 251))
        .collect();
    let constant = format!("%c = stablehlo.constant dense<\"0x{digits}\"> : tensor<40000xui8>\n");
    let add = |index: usize| {
        let line = index / 2;
        format!("%{index} = stablehlo.add %x, %x : tensor<2x3xf32> loc(\"a.py\":{line}:1)\n")
    };
    let first: String = (0..500).map(add).collect();
    let last: String = (500..1000).map(add).collect();
    Module::parse(&function(&format!("{first}{constant}{last}return"))).unwrap()
}

#[test]
fn streamed_text_is_the_same() {
    let jax = jax_programs();
    let jax = jax.iter().map(|(_, text)| Module::parse(text).unwrap());
    for mut program in jax.chain([long_program()]) {
        for function in &mut program.functions {
            function.input_names.fill(None);
        }
        let text = program.to_text();
        assert!(program.to_string() == text);
        // Each location is used once after its operation, and defined once at the end.
        let line = |line: &str| match line.split_once(" loc(#") {
            Some((line, _)) => format!("{line}\n"),
            None => format!("{line}\n"),
        };
        let lines = text.lines().filter(|line| !line.starts_with("#loc"));
        let mut key = String::new();
        program.write_without_locations(&mut key).unwrap();
        assert!(key == lines.map(line).collect::<String>());
    }
}

#[test]
fn errors_of_a_sink_are_returned() {
    struct Full;
    impl std::fmt::Write for Full {
        fn write_str(&mut self, _: &str) -> std::fmt::Result {
            Err(std::fmt::Error)
        }
    }
    assert!(long_program().write_without_locations(&mut Full).is_err());
    assert!(
        Module::default()
            .write_without_locations(&mut Full)
            .is_err()
    );
}

#[test]
fn locations_are_lines_of_the_user() {
    let (_, text) = jax_programs()
        .into_iter()
        .find(|(name, _)| name == "scan")
        .unwrap();
    let program = Module::parse(&text).unwrap();
    let operations = &program.main().unwrap().body.operations;
    let found = operations
        .iter()
        .find(|operation| operation.kind == OpKind::While)
        .unwrap();
    let line = found.location.as_ref().unwrap();
    assert_eq!(line.file, "make.py");
    let script = include_str!("../data/make.py")
        .lines()
        .nth(line.line as usize - 1)
        .unwrap();
    assert!(script.contains("scan"), "{script}");
}

#[test]
fn constants_of_narrow_types_are_exact() {
    let (_, text) = jax_programs()
        .into_iter()
        .find(|(name, _)| name == "narrow")
        .unwrap();
    let program = Module::parse(&text).unwrap();
    let mut found = String::new();
    for operation in &program.main().unwrap().body.operations {
        if let OpKind::Constant(dense) = &operation.kind
            && dense.ty.rank() > 0
        {
            let bytes = dense
                .bytes
                .iter()
                .take(12)
                .map(|byte| format!("{byte:02x}"));
            found += &format!("{} {}\n", dense.ty, bytes.collect::<Vec<_>>().join(" "));
        }
    }
    expect![[r#"
        tensor<6xf8E4M3FN> 38 40 b0 7e 7f 02
        tensor<6xf8E8M0FNU> 7f 80 ff 88 9d 77
        tensor<6xf4E2M1FN> 02 04 09 07 07 00
        tensor<6xf16> 00 3c 00 40 00 b8 00 5f 00 7c 25 1a
        tensor<6xf8E3M4> 30 40 a0 70 70 00
        tensor<4xi4> 01 02 fd 07
        tensor<3xi1> 01 00 01
        tensor<2xcomplex<f32>> 00 00 80 3f 00 00 00 40 00 00 40 40
        tensor<5xf32> 00 00 80 7f 00 00 c0 7f 00 00 00 80
        tensor<120xui8> 00 01 02 03 04 05 06 07 08 09 0a 0b
        tensor<120xi1> 01 00 00 01 00 00 01 00 00 01 00 00
    "#]]
    .assert_eq(&found);
}
