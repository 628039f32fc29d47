//! What is imported, and what is refused with which message.

use halite_core::{Array, Client, DType, HostArray, Sharding, TensorType};
use halite_embedded::{Embedded, Options};
use halite_exchange::Artifact;
use halite_ir::Op;
use halite_nn::{Trace, jit};

fn artifact(body: &str) -> Artifact {
    let text = format!("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{\n{body}\n}}");
    Artifact::read(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
}

/// The names of the operations of an imported program.
fn operations(body: &str) -> Vec<&'static str> {
    let function = artifact(body).function().unwrap();
    function
        .graph()
        .nodes()
        .iter()
        .map(|node| node.op.name())
        .collect()
}

#[track_caller]
fn assert_refused(body: &str, parts: &[&str]) {
    let error = artifact(body).function().unwrap_err().to_string();
    for part in parts {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
}

/// A loop of `%x` with the counter `%i` from `start` while it is `direction` 3.
fn counted(start: &str, direction: &str) -> String {
    format!(
        "%zero = stablehlo.constant dense<0> : tensor<i32>
         {start}
         %three = stablehlo.constant dense<3> : tensor<i32>
         %0:2 = stablehlo.while(%i = %start, %y = %x) : tensor<i32>, tensor<4xf32>
         cond {{
           %1 = stablehlo.compare {direction}, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
           stablehlo.return %1 : tensor<i1>
         }} do {{
           %2 = stablehlo.constant dense<1> : tensor<i32>
           %3 = stablehlo.add %i, %2 : tensor<i32>
           %4 = stablehlo.sine %y : tensor<4xf32>
           stablehlo.return %3, %4 : tensor<i32>, tensor<4xf32>
         }}
         return %0#1 : tensor<4xf32>"
    )
}

#[test]
fn counted_loop_is_a_scan() {
    let constant = "%start = stablehlo.constant dense<1> : tensor<i32>";
    let function = artifact(&counted(constant, "LT")).function().unwrap();
    let lengths: Vec<usize> = (function.graph().nodes().iter())
        .filter_map(|node| match &node.op {
            Op::Scan { length, .. } => Some(*length),
            _ => None,
        })
        .collect();
    assert_eq!(lengths, [2]);
}

#[test]
fn other_loops_are_while() {
    let computed = "%start = stablehlo.add %zero, %zero : tensor<i32>";
    assert!(operations(&counted(computed, "LT")).contains(&"while"));
    let constant = "%start = stablehlo.constant dense<1> : tensor<i32>";
    assert!(operations(&counted(constant, "LE")).contains(&"while"));
}

fn reduction(region: &str) -> String {
    format!(
        "%init = stablehlo.constant dense<0.0> : tensor<f32>
         %0 = \"stablehlo.reduce\"(%x, %init) <{{dimensions = array<i64: 0>}}> ({{
         ^bb0(%a: tensor<f32>, %b: tensor<f32>):
           {region}
           stablehlo.return %r : tensor<f32>
         }}) : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
         %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4xf32>
         return %1 : tensor<4xf32>"
    )
}

#[test]
fn initial_value_other_than_the_identity_is_combined() {
    let add = reduction("%r = stablehlo.add %a, %b : tensor<f32>");
    assert_eq!(operations(&add), ["constant", "reduce_sum", "broadcast"]);
    let maximum = reduction("%r = stablehlo.maximum %b, %a : tensor<f32>");
    assert_eq!(
        operations(&maximum),
        [
            "constant",
            "reduce_max",
            "broadcast",
            "maximum",
            "broadcast"
        ]
    );
}

#[test]
fn unknown_regions_are_refused() {
    assert_refused(
        &reduction(
            "%s = stablehlo.add %a, %b : tensor<f32>\n%r = stablehlo.add %s, %b : tensor<f32>",
        ),
        &[
            "import of reduce: line 3, column",
            "add(add(a0,a1),a1)",
            "known are add, multiply",
        ],
    );
}

#[test]
fn operation_without_counterpart_is_named() {
    assert_refused(
        "%0 = stablehlo.fft %x, type = RFFT, length = [4] : (tensor<4xf32>) -> tensor<3xcomplex<f32>>
         return %x : tensor<4xf32>",
        &["import of fft: line 2, column", "cannot be traced", "compile the artifact"],
    );
    assert_refused(
        "%0 = stablehlo.custom_call @mine(%x) : (tensor<4xf32>) -> tensor<4xf32>
         return %0 : tensor<4xf32>",
        &["import of custom_call", "custom call `mine`"],
    );
}

#[test]
fn calls_that_double_are_refused() {
    let mut text = "func.func @main(%x: tensor<f32>) -> tensor<f32> {
        %0 = call @f0(%x) : (tensor<f32>) -> tensor<f32>
        return %0 : tensor<f32>
      }"
    .to_owned();
    for level in 0..17 {
        let next = level + 1;
        text += &format!(
            "\nfunc.func @f{level}(%x: tensor<f32>) -> tensor<f32> {{
              %0 = call @f{next}(%x) : (tensor<f32>) -> tensor<f32>
              %1 = call @f{next}(%0) : (tensor<f32>) -> tensor<f32>
              return %1 : tensor<f32>
            }}"
        );
    }
    text += "\nfunc.func @f17(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }";
    let error = Artifact::read(text.as_bytes())
        .unwrap()
        .function()
        .unwrap_err();
    assert!(error.to_string().contains("250,000 operations"), "{error}");
}

#[test]
fn input_of_another_type_is_a_mistake() {
    let function = artifact("return %x : tensor<4xf32>").function().unwrap();
    let cx = Trace::new();
    let x = cx.input(TensorType::new(DType::F32, [5]), "x");
    let y = function.call(&cx, &[x])[0];
    assert!(y.is_error());
    let error = cx.check().unwrap_err().to_string();
    assert!(error.contains("input `0` is f32[4], got f32[5]"), "{error}");
    assert!(error.contains("import.rs"), "{error}");
}

#[test]
fn program_of_several_devices_is_refused() {
    let text = "module attributes {mhlo.num_partitions = 2 : i32} {
        func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }
      }";
    let error = Artifact::read(text.as_bytes()).unwrap_err().to_string();
    assert!(
        error.starts_with("artifact: the program runs on 2 devices"),
        "{error}"
    );
}

#[test]
fn array_on_another_device_is_refused() {
    let options = Options {
        devices: 2,
        ..Options::default()
    };
    let client = Client::new(Embedded::new(&options).unwrap());
    let program = artifact("return %x : tensor<4xf32>")
        .compile(&client)
        .unwrap();
    let other = halite_core::Sharding::single(client.local_devices()[1]);
    let x = halite_core::HostArray::zeros(TensorType::new(DType::F32, [4]));
    let x = halite_core::Array::upload(&client, &x, &other).unwrap();
    let error = program.run(&[&x]).unwrap_err().to_string();
    assert!(error.contains("input `0` is on devices"), "{error}");
}

/// Imported and as it is, a sort by bits and a sort by value have the same results.
#[test]
fn sorts_keep_their_order_of_floats() {
    let client = Client::new(Embedded::new(&Options::default()).unwrap());
    let device = Sharding::single(client.local_devices()[0]);
    let by_value = |direction: &str, smaller: &str, larger: &str| {
        format!(
            "%0 = stablehlo.compare {direction}, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
             %1 = stablehlo.compare EQ, {smaller}, {smaller}, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
             %2 = stablehlo.compare NE, {larger}, {larger}, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
             %3 = stablehlo.and %1, %2 : tensor<i1>
             %before = stablehlo.or %0, %3 : tensor<i1>"
        )
    };
    let by_bits = |direction: &str| {
        format!(
            "%before = stablehlo.compare {direction}, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>"
        )
    };
    let orders = [
        (by_bits("LT"), vec![4, 6, 2, 1, 5, 0, 3]),
        (by_bits("GT"), vec![3, 0, 5, 1, 2, 6, 4]),
        (by_value("LT", "%a", "%b"), vec![6, 1, 2, 5, 0, 3, 4]),
        (by_value("GT", "%b", "%a"), vec![3, 4, 0, 5, 1, 2, 6]),
    ];
    let x = [2.0, 0.0, -0.0, f32::NAN, -f32::NAN, 1.0, -3.0];
    for (comparator, expected) in orders {
        let text = format!(
            r#"func.func @main(%x: tensor<7xf32>) -> tensor<7xi32> {{
                 %places = stablehlo.iota dim = 0 : tensor<7xi32>
                 %sorted:2 = "stablehlo.sort"(%x, %places) <{{dimension = 0 : i64, is_stable = true}}> ({{
                 ^bb0(%a: tensor<f32>, %b: tensor<f32>, %i: tensor<i32>, %j: tensor<i32>):
                   {comparator}
                   stablehlo.return %before : tensor<i1>
                 }}) : (tensor<7xf32>, tensor<7xi32>) -> (tensor<7xf32>, tensor<7xi32>)
                 return %sorted#1 : tensor<7xi32>
               }}"#
        );
        let artifact = Artifact::read(text.as_bytes()).unwrap();
        let host = HostArray::from_slice(&x, [7]).unwrap();
        let array = Array::upload(&client, &host, &device).unwrap();
        let direct = artifact.compile(&client).unwrap().run(&[&array]).unwrap();
        let function = artifact.function().unwrap();
        let imported = jit(&client, move |cx, [x]| [function.call(cx, &[x])[0]]);
        let [imported] = imported.run([&array]).unwrap();
        for places in [&direct[0], &imported] {
            assert_eq!(places.to_vec::<i32>().unwrap(), expected, "{comparator}");
        }
    }
}

#[test]
fn empty_files_are_named_so() {
    for bytes in [&b""[..], b" \n"] {
        let error = Artifact::read(bytes).unwrap_err().to_string();
        assert!(
            error.starts_with("artifact: the program is empty ("),
            "{error}"
        );
    }
}
