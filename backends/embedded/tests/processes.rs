//! Programs over several devices in the fast mode against the oracle, bit for bit: collectives of
//! every type in manual computations, inside of loops and of each other, and what falls back.

use std::sync::Arc;

use halite_core::{
    Arg, Client, Code, CompileOptions, HostBytes, Placement, Program, Result, Signature,
};
use halite_embedded::{Embedded, Mode, Options};
use halite_stablehlo::{ElementType, RankedType};

const ELEMENTS: [ElementType; 13] = [
    ElementType::F32,
    ElementType::F64,
    ElementType::Bf16,
    ElementType::F16,
    ElementType::Bool,
    ElementType::S8,
    ElementType::S16,
    ElementType::S32,
    ElementType::S64,
    ElementType::U8,
    ElementType::U16,
    ElementType::U32,
    ElementType::U64,
];

fn client(mode: Mode) -> Client {
    let options = Options {
        devices: 4,
        mode,
        threads: 2,
        node: None,
    };
    Client::new(Embedded::new(&options).expect("the executor starts"))
}

/// A program on a mesh of `x` and `y`, whose `body` maps `%x`, sharded over both, and `%r`,
/// replicated, to `%0`, sharded as `%x`, and `%1`, replicated.
fn on_mesh(element: ElementType, body: &str) -> Program {
    let name = element.name();
    let (x, r) = (format!("tensor<8x4x{name}>"), format!("tensor<4x{name}>"));
    let split = r#"{sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>}"#;
    let whole = "{sdy.sharding = #sdy.sharding<@mesh, [{}]>}";
    let code = format!(
        r#"module @test attributes {{mhlo.num_partitions = 4 : i32}} {{
          sdy.mesh @mesh = <["x"=2, "y"=2]>
          func.func public @main(%x: {x} {split}, %r: {r} {whole})
              -> ({x} {split}, {r} {whole}) {{
            {body}
            return %0, %1 : {x}, {r}
          }}
        }}"#
    );
    let ty = |dims: &[usize]| {
        let ty = RankedType::new(element, dims);
        ty.tensor_type().expect("a type of arrays")
    };
    Program {
        name: Arc::from("test"),
        code: Code::from(code.replace("ELEMENT", name).as_bytes()),
        signature: Signature {
            inputs: vec![ty(&[4, 2]), ty(&[4])],
            outputs: vec![ty(&[4, 2]), ty(&[4])],
            donated: vec![0, 1],
        },
        partitions: 4,
        replicas: 1,
    }
}

/// `%0, %1 = sdy.manual_computation(%x, %r)` over `axes`, whose `body` maps `%a` and `%b` to `%c`
/// and `%d`.
fn manual(axes: &str, body: &str) -> String {
    let split = match axes {
        r#""x""# => r#"[{"x"}, {}]"#,
        r#""y""# => r#"[{}, {"y"}]"#,
        _ => r#"[{"x"}, {"y"}]"#,
    };
    let shard = match axes {
        r#""x""# => "4x4",
        r#""y""# => "8x2",
        _ => "4x2",
    };
    format!(
        r#"%0:2 = sdy.manual_computation(%x, %r)
             in_shardings=[<@mesh, {split}>, <@mesh, [{{}}]>]
             out_shardings=[<@mesh, {split}>, <@mesh, [{{}}]>] manual_axes={{{axes}}}
             (%a: tensor<{shard}xELEMENT>, %b: tensor<4xELEMENT>) {{
           {body}
           sdy.return %c, %d : tensor<{shard}xELEMENT>, tensor<4xELEMENT>
         }} : (tensor<8x4xELEMENT>, tensor<4xELEMENT>)
             -> (tensor<8x4xELEMENT>, tensor<4xELEMENT>)"#
    )
}

/// The attributes of a collective over these groups of partitions.
fn over(groups: &str) -> String {
    let rows = groups.matches('[').count() - 1;
    let columns = groups.matches(|c: char| c.is_ascii_digit()).count() / rows;
    format!(
        "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, \
         replica_groups = dense<{groups}> : tensor<{rows}x{columns}xi64>"
    )
}

/// `result = all_reduce(operand)` by `op`.
fn all_reduce(result: &str, operand: &str, shape: &str, op: &str, groups: &str) -> String {
    let attributes = over(groups);
    format!(
        r#"{result} = "stablehlo.all_reduce"({operand}) ({{
            ^bb0(%p: tensor<ELEMENT>, %q: tensor<ELEMENT>):
              %s = stablehlo.{op} %p, %q : tensor<ELEMENT>
              stablehlo.return %s : tensor<ELEMENT>
          }}) {{{attributes}, use_global_device_ids}} : (tensor<{shape}>) -> tensor<{shape}>"#
    )
}

const X: &str = "[[0, 2], [1, 3]]";
const Y: &str = "[[0, 1], [2, 3]]";
const ALL: &str = "[[0, 1, 2, 3]]";
const BOTH: &str = r#""x", "y""#;

/// The results on all devices, of three launches whose results are the next arguments.
fn results(program: &Program, mode: Mode) -> Result<Vec<Vec<u8>>> {
    let client = client(mode);
    let loaded = client.compile(program, &CompileOptions::default())?;
    let mut args = Vec::new();
    for (number, ty) in program.signature.inputs.iter().enumerate() {
        for (place, &device) in client.local_devices().iter().enumerate() {
            let place = if number == 0 { place } else { 0 };
            // Small whole numbers, which sums and products of all types hold.
            let values = (0..ty.elements()).map(|at| ((7 * place + 3 * at + number) % 3) as u8);
            let dense = encoded(ty.dtype().into(), values);
            let buffer = client.upload(HostBytes::Borrowed(&dense), ty, Placement::from(device))?;
            args.push(buffer);
        }
    }
    let mut read = Vec::new();
    for round in 0..3 {
        let give = |buffers: Vec<_>| buffers.into_iter().map(Arg::Donate).collect();
        args = match round {
            0 => loaded.launch(args.iter().map(Arg::Borrow).collect())?,
            _ => loaded.launch(give(args))?,
        };
        for buffers in &args {
            for buffer in buffers.iter() {
                let mut bytes = vec![0; buffer.tensor_type().bytes()];
                buffer.read(&mut bytes)?;
                read.push(bytes);
            }
        }
    }
    Ok(read)
}

/// Whole numbers as elements.
fn encoded(element: ElementType, values: impl Iterator<Item = u8>) -> Vec<u8> {
    let encode = |value: u8| -> Vec<u8> {
        let float = f32::from(value);
        match element {
            ElementType::F32 => float.to_le_bytes().to_vec(),
            ElementType::F64 => f64::from(value).to_le_bytes().to_vec(),
            ElementType::Bf16 => half::bf16::from_f32(float).to_le_bytes().to_vec(),
            ElementType::F16 => half::f16::from_f32(float).to_le_bytes().to_vec(),
            ElementType::Bool => vec![u8::from(value > 0)],
            element => {
                let mut bytes = vec![0; element.size()];
                bytes[0] = value;
                bytes
            }
        }
    };
    values.flat_map(encode).collect()
}

fn check(element: ElementType, body: &str) {
    let program = on_mesh(element, body);
    let text = || String::from_utf8_lossy(program.code.bytes()).into_owned();
    let [fast, oracle] = [Mode::Fast, Mode::Oracle].map(|mode| {
        results(&program, mode).unwrap_or_else(|error| panic!("{mode:?}: {error}\n{}", text()))
    });
    assert_eq!(fast, oracle, "{}", text());
}

/// Both results of a manual computation, as those of the program.
fn program(manual: &str) -> String {
    manual.replacen("%0:2", "%m:2", 1)
        + "\n%0 = stablehlo.optimization_barrier %m#0 : tensor<8x4xELEMENT>
           %1 = stablehlo.optimization_barrier %m#1 : tensor<4xELEMENT>"
}

fn check_manual(element: ElementType, body: &str) {
    check(element, &program(&manual(BOTH, body)));
}

#[test]
fn all_reduce_of_every_type() {
    for element in ELEMENTS {
        let ops: &[&str] = match element {
            ElementType::Bool => &["and", "or", "xor", "maximum", "minimum"],
            ElementType::F32 | ElementType::F64 | ElementType::Bf16 | ElementType::F16 => {
                &["add", "multiply", "maximum", "minimum"]
            }
            _ => &["add", "multiply", "maximum", "minimum", "and", "or", "xor"],
        };
        for (number, op) in ops.iter().enumerate() {
            let groups = [X, Y, ALL][number % 3];
            let c = all_reduce("%c", "%a", "4x2xELEMENT", op, groups);
            let d = all_reduce("%d", "%b", "4xELEMENT", op, ALL);
            let body = program(&manual(BOTH, &format!("{c}\n{d}")));
            check(element, &body);
            let loaded = client(Mode::Fast)
                .compile(&on_mesh(element, &body), &CompileOptions::default())
                .unwrap();
            assert!(
                loaded.interpreted().is_empty(),
                "{:?}",
                loaded.interpreted()
            );
        }
    }
}

#[test]
fn scatter_then_gather() {
    for element in [ElementType::F32, ElementType::S8, ElementType::Bf16] {
        for (groups, parts) in [(X, 2), (ALL, 4)] {
            let rows = 4 / parts;
            let attributes = over(groups);
            check_manual(
                element,
                &format!(
                    r#"%n = "stablehlo.reduce_scatter"(%a) ({{
                        ^bb0(%p: tensor<ELEMENT>, %q: tensor<ELEMENT>):
                          %s = stablehlo.add %p, %q : tensor<ELEMENT>
                          stablehlo.return %s : tensor<ELEMENT>
                      }}) {{{attributes}, use_global_device_ids, scatter_dimension = 0 : i64}}
                        : (tensor<4x2xELEMENT>) -> tensor<{rows}x2xELEMENT>
                      %c = "stablehlo.all_gather"(%n) {{{attributes}, use_global_device_ids,
                        all_gather_dim = 0 : i64}}
                        : (tensor<{rows}x2xELEMENT>) -> tensor<4x2xELEMENT>
                      %d = stablehlo.add %b, %b : tensor<4xELEMENT>"#
                ),
            );
        }
    }
}

#[test]
fn all_to_all_moves_parts() {
    let attributes = over(X);
    check_manual(
        ElementType::F32,
        &format!(
            r#"%n = "stablehlo.all_to_all"(%a) {{{attributes}, split_dimension = 0 : i64,
                 concat_dimension = 1 : i64, split_count = 2 : i64}}
                 : (tensor<4x2xELEMENT>) -> tensor<2x4xELEMENT>
               %c = stablehlo.reshape %n : (tensor<2x4xELEMENT>) -> tensor<4x2xELEMENT>
               %d = stablehlo.negate %b : tensor<4xELEMENT>"#
        ),
    );
}

#[test]
fn permutation_leaves_zeros() {
    for pairs in ["[[0, 1], [1, 2], [3, 0]]", "[[2, 2]]", "[[0, 3], [3, 0]]"] {
        let count = pairs.matches('[').count() - 1;
        check_manual(
            ElementType::S32,
            &format!(
                r#"%c = "stablehlo.collective_permute"(%a) {{
                     channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
                     source_target_pairs = dense<{pairs}> : tensor<{count}x2xi64>}}
                     : (tensor<4x2xELEMENT>) -> tensor<4x2xELEMENT>
                   %d = stablehlo.add %b, %b : tensor<4xELEMENT>"#
            ),
        );
    }
}

#[test]
fn broadcast_outside_of_a_group_is_zero() {
    for groups in ["[[1, 0, 3]]", "[[3, 2, 1, 0]]", Y] {
        let attributes = over(groups);
        check_manual(
            ElementType::F16,
            &format!(
                r#"%c = "stablehlo.collective_broadcast"(%a) {{{attributes}}}
                     : (tensor<4x2xELEMENT>) -> tensor<4x2xELEMENT>
                   %d = stablehlo.negate %b : tensor<4xELEMENT>"#
            ),
        );
    }
}

/// The number of the partition, as elements of `shape`.
fn number(shape: &str) -> String {
    format!(
        r#"%id = stablehlo.partition_id : tensor<ui32>
           %ie = stablehlo.convert %id : (tensor<ui32>) -> tensor<ELEMENT>
           %n = stablehlo.broadcast_in_dim %ie, dims = []
             : (tensor<ELEMENT>) -> tensor<{shape}>"#
    )
}

#[test]
fn partitions_know_their_number() {
    let number = number("4x2xELEMENT");
    check_manual(
        ElementType::F32,
        &format!(
            "{number}
             %c = stablehlo.add %a, %n : tensor<4x2xELEMENT>
             %d = stablehlo.add %b, %b : tensor<4xELEMENT>"
        ),
    );
}

/// A loop of the state `%i, %v`, as long as `%i` is below `limit`.
fn counted(limit: &str, body: &str) -> String {
    format!(
        "%zero = stablehlo.constant dense<0> : tensor<ui32>
         %w:2 = stablehlo.while(%i = %zero, %v = %a) : tensor<ui32>, tensor<4x2xELEMENT>
         cond {{
           {limit}
           %go = stablehlo.compare LT, %i, %limit : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
           stablehlo.return %go : tensor<i1>
         }} do {{
           %one = stablehlo.constant dense<1> : tensor<ui32>
           %next = stablehlo.add %i, %one : tensor<ui32>
           {body}
           stablehlo.return %next, %u : tensor<ui32>, tensor<4x2xELEMENT>
         }}
         %c = stablehlo.negate %w#1 : tensor<4x2xELEMENT>
         %d = stablehlo.negate %b : tensor<4xELEMENT>"
    )
}

#[test]
fn collectives_in_loops() {
    let halves = "%half = stablehlo.constant dense<0.5> : tensor<4x2xELEMENT>
                  %u = stablehlo.multiply %t, %half : tensor<4x2xELEMENT>";
    // As many iterations everywhere, and others for each group of the collective.
    let fixed = "%limit = stablehlo.constant dense<5> : tensor<ui32>";
    let of_group = "%id = stablehlo.partition_id : tensor<ui32>
                    %two = stablehlo.constant dense<2> : tensor<ui32>
                    %limit = stablehlo.divide %id, %two : tensor<ui32>";
    for (limit, groups) in [(fixed, ALL), (fixed, X), (of_group, Y)] {
        let sum = all_reduce("%t", "%v", "4x2xELEMENT", "add", groups);
        check_manual(
            ElementType::F32,
            &counted(limit, &format!("{sum}\n{halves}")),
        );
    }
}

#[test]
fn loops_of_other_lengths() {
    let limit = "%limit = stablehlo.partition_id : tensor<ui32>";
    let body = "%u = stablehlo.add %v, %v : tensor<4x2xELEMENT>";
    check_manual(ElementType::S32, &counted(limit, body));
}

#[test]
fn loop_without_a_member_fails() {
    let limit = "%limit = stablehlo.partition_id : tensor<ui32>";
    let sum = all_reduce("%u", "%v", "4x2xELEMENT", "add", ALL);
    let program = on_mesh(
        ElementType::F32,
        &program(&manual(BOTH, &counted(limit, &sum))),
    );
    for mode in [Mode::Fast, Mode::Oracle] {
        let error = results(&program, mode).unwrap_err().to_string();
        assert!(
            error.contains("process 0 ended without its `all_reduce`"),
            "{mode:?}: {error}"
        );
    }
}

#[test]
fn regions_of_some_axes() {
    for (axes, shard, groups) in [(r#""x""#, "4x4", X), (r#""y""#, "8x2", Y)] {
        let sum = all_reduce("%d", "%b", "4xELEMENT", "add", groups);
        let number = number(&format!("{shard}xELEMENT"));
        let body = format!(
            "{sum}\n{number}
             %c = stablehlo.add %a, %n : tensor<{shard}xELEMENT>"
        );
        check(ElementType::F32, &program(&manual(axes, &body)));
    }
}

#[test]
fn regions_in_regions() {
    let sum = all_reduce("%f", "%e", "4x2xELEMENT", "add", Y);
    let outer = all_reduce("%d", "%b", "4xELEMENT", "add", X);
    let body = format!(
        r#"%c = sdy.manual_computation(%a) in_shardings=[<@mesh, [{{}}, {{"y"}}]>]
             out_shardings=[<@mesh, [{{}}, {{"y"}}]>] manual_axes={{"y"}}
             (%e: tensor<4x2xELEMENT>) {{
           {sum}
           sdy.return %f : tensor<4x2xELEMENT>
         }} : (tensor<4x4xELEMENT>) -> tensor<4x4xELEMENT>
         {outer}"#
    );
    check(ElementType::F32, &program(&manual(r#""x""#, &body)));
}

#[test]
fn collective_in_a_branch() {
    let sum = all_reduce("%t", "%a", "4x2xELEMENT", "add", Y);
    let body = format!(
        r#"%id = stablehlo.partition_id : tensor<ui32>
           %two = stablehlo.constant dense<2> : tensor<ui32>
           %p = stablehlo.compare LT, %id, %two : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
           %c = "stablehlo.if"(%p) ({{
             {sum}
             stablehlo.return %t : tensor<4x2xELEMENT>
           }}, {{
             stablehlo.return %a : tensor<4x2xELEMENT>
           }}) : (tensor<i1>) -> tensor<4x2xELEMENT>
           %d = stablehlo.negate %b : tensor<4xELEMENT>"#
    );
    check_manual(ElementType::F32, &body);
}

#[test]
fn replicated_values_are_updated_once() {
    // As a training step: gradients of shards, summed, and an update of parameters.
    let sum = all_reduce("%t", "%g", "4xELEMENT", "add", ALL);
    let body = format!(
        "%zero = stablehlo.constant dense<0.0> : tensor<ELEMENT>
         %r0 = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [1]
           : (tensor<4x2xELEMENT>, tensor<ELEMENT>) -> tensor<4xELEMENT>
         %g = stablehlo.multiply %r0, %b : tensor<4xELEMENT>
         {sum}
         %d = stablehlo.subtract %b, %t : tensor<4xELEMENT>
         %w = stablehlo.broadcast_in_dim %d, dims = [0]
           : (tensor<4xELEMENT>) -> tensor<4x2xELEMENT>
         %c = stablehlo.add %a, %w : tensor<4x2xELEMENT>"
    );
    check_manual(ElementType::F32, &body);
}

#[test]
fn programs_without_regions() {
    let split = r#"<@mesh, [{"y"}, {"x"}]>"#;
    check(
        ElementType::F32,
        &format!(
            "%n = stablehlo.negate %x : tensor<8x4xELEMENT>
             %k = sdy.sharding_constraint %n {split} : tensor<8x4xELEMENT>
             %b = stablehlo.broadcast_in_dim %r, dims = [1]
               : (tensor<4xELEMENT>) -> tensor<8x4xELEMENT>
             %0 = stablehlo.add %k, %b : tensor<8x4xELEMENT>
             %zero = stablehlo.constant dense<0.0> : tensor<ELEMENT>
             %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0]
               : (tensor<8x4xELEMENT>, tensor<ELEMENT>) -> tensor<4xELEMENT>"
        ),
    );
}

#[test]
fn effects_are_of_each_process() {
    // Shards differ, so that the check fails on some: of what shards share, it runs for each, too.
    let body = "%k = stablehlo.constant dense<1> : tensor<4x2xELEMENT>
       stablehlo.custom_call @check.expect_eq(%a, %k) {has_side_effect = true}
         : (tensor<4x2xELEMENT>, tensor<4x2xELEMENT>) -> ()
       %c = stablehlo.add %a, %a : tensor<4x2xELEMENT>
       %d = stablehlo.add %b, %b : tensor<4xELEMENT>";
    let program = on_mesh(ElementType::S32, &program(&manual(BOTH, body)));
    for mode in [Mode::Fast, Mode::Oracle] {
        let error = results(&program, mode).unwrap_err().to_string();
        assert!(error.contains("expected 1"), "{mode:?}: {error}");
    }
}

#[test]
fn errors_reach_all_devices() {
    let body = "%one = stablehlo.constant dense<1> : tensor<4xELEMENT>
      stablehlo.custom_call @check.expect_eq(%r, %one) {has_side_effect = true}
        : (tensor<4xELEMENT>, tensor<4xELEMENT>) -> ()
      %0 = stablehlo.add %x, %x : tensor<8x4xELEMENT>
      %1 = stablehlo.add %r, %r : tensor<4xELEMENT>";
    let program = on_mesh(ElementType::S32, body);
    let client = client(Mode::Fast);
    let loaded = client
        .compile(&program, &CompileOptions::default())
        .unwrap();
    let launch = |value: u8| {
        let mut args = Vec::new();
        for ty in &program.signature.inputs {
            let bytes = encoded(ElementType::S32, vec![value; ty.elements()].into_iter());
            for &device in &client.local_devices() {
                let upload = client.upload(HostBytes::Borrowed(&bytes), ty, device.into());
                args.push(upload.unwrap());
            }
        }
        loaded.launch(args.into_iter().map(Arg::Donate).collect())
    };
    let outputs = launch(2).unwrap();
    for buffer in outputs.iter().flat_map(|buffers| buffers.iter()) {
        let error = buffer.ready().unwrap().wait().unwrap_err().to_string();
        assert!(error.contains("expected 1"), "{error}");
    }
    for buffer in launch(1).unwrap().iter().flat_map(|buffers| buffers.iter()) {
        buffer.ready().unwrap().wait().unwrap();
    }
}

#[test]
fn products_with_a_shared_matrix() {
    // Rows of each shard with one matrix, forward and backward, and the matrix with rows of each.
    let code = r#"module @test attributes {mhlo.num_partitions = 4 : i32} {
      sdy.mesh @mesh = <["x"=4]>
      func.func public @main(
          %x: tensor<12x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
          %w: tensor<64x64xf32>)
          -> (tensor<12x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
              tensor<64x64xf32>) {
        %0:2 = sdy.manual_computation(%x, %w)
            in_shardings=[<@mesh, [{"x"}, {}]>, <@mesh, [{}, {}]>]
            out_shardings=[<@mesh, [{"x"}, {}]>, <@mesh, [{}, {}]>] manual_axes={"x"}
            (%a: tensor<3x64xf32>, %b: tensor<64x64xf32>) {
          %1 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
            : (tensor<3x64xf32>, tensor<64x64xf32>) -> tensor<3x64xf32>
          %2 = stablehlo.dot_general %1, %b, contracting_dims = [1] x [1]
            : (tensor<3x64xf32>, tensor<64x64xf32>) -> tensor<3x64xf32>
          %c = stablehlo.constant dense<1.0e-4> : tensor<3x64xf32>
          %3 = stablehlo.multiply %2, %c : tensor<3x64xf32>
          %4 = stablehlo.floor %3 : tensor<3x64xf32>
          %5 = "stablehlo.all_reduce"(%b) ({
            ^bb0(%p: tensor<f32>, %q: tensor<f32>):
              %s = stablehlo.maximum %p, %q : tensor<f32>
              stablehlo.return %s : tensor<f32>
          }) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
              replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}
            : (tensor<64x64xf32>) -> tensor<64x64xf32>
          sdy.return %4, %5 : tensor<3x64xf32>, tensor<64x64xf32>
        } : (tensor<12x64xf32>, tensor<64x64xf32>) -> (tensor<12x64xf32>, tensor<64x64xf32>)
        return %0#0, %0#1 : tensor<12x64xf32>, tensor<64x64xf32>
      }
    }"#;
    let ty = |dims: [usize; 2]| {
        RankedType::new(ElementType::F32, dims)
            .tensor_type()
            .unwrap()
    };
    let program = Program {
        code: Code::from(code.as_bytes()),
        signature: Signature {
            inputs: vec![ty([3, 64]), ty([64, 64])],
            outputs: vec![ty([3, 64]), ty([64, 64])],
            donated: vec![0, 1],
        },
        ..on_mesh(ElementType::F32, "")
    };
    let [fast, oracle] =
        [Mode::Fast, Mode::Oracle].map(|mode| results(&program, mode).expect("it runs"));
    assert_eq!(fast, oracle);
}

#[test]
fn memory_of_results_is_used_again() {
    // The results of the region are of another size than those of a shard, and freed in each launch.
    let body = "%c = stablehlo.negate %a : tensor<4x2xELEMENT>
      %d = stablehlo.negate %b : tensor<4xELEMENT>";
    let region = manual(BOTH, body).replacen("%0:2", "%m:2", 1);
    let body = format!(
        "{region}
         %zero = stablehlo.constant dense<0.0> : tensor<ELEMENT>
         %s = stablehlo.reduce(%m#0 init: %zero) applies stablehlo.add across dimensions = [0]
           : (tensor<8x4xELEMENT>, tensor<ELEMENT>) -> tensor<4xELEMENT>
         %1 = stablehlo.add %s, %m#1 : tensor<4xELEMENT>
         %k = stablehlo.broadcast_in_dim %1, dims = [1] : (tensor<4xELEMENT>) -> tensor<8x4xELEMENT>
         %0 = stablehlo.add %x, %k : tensor<8x4xELEMENT>"
    );
    check(ElementType::F32, &body);
}
