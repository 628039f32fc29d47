//! Portable bytecode: what replaces operations that are not in StableHLO.

use halite_core::{Arg, Array, Client, CompileOptions, DType, HostArray, Sharding};
use halite_embedded::{Embedded, Options};
use halite_exchange::portable;
use halite_stablehlo::{Module, OpKind};

fn module(element: &str, count: usize) -> Module {
    let ty = format!("tensor<{count}x{element}>");
    let text = format!(
        "func.func @main(%x: {ty}) -> {ty} {{
           %y = chlo.erf %x : {ty} -> {ty}
           return %y : {ty}
         }}"
    );
    Module::read(text.as_bytes()).unwrap()
}

fn run(module: &Module, program: Vec<u8>, x: &HostArray) -> HostArray {
    let client = Client::new(Embedded::new(&Options::default()).unwrap());
    let program = module.interface().unwrap().program(program);
    let loaded = client
        .compile(&program, &CompileOptions::default())
        .unwrap();
    let sharding = Sharding::single(client.local_devices()[0]);
    let x = Array::upload(&client, x, &sharding).unwrap();
    let mut outputs = loaded.launch(vec![Arg::Borrow(x.shards())]).unwrap();
    let output = Array::from_shards(x.ty().clone(), &sharding, outputs.remove(0)).unwrap();
    output.read().unwrap()
}

/// Values in all ranges of the decomposition.
fn points() -> Vec<f64> {
    let mut points: Vec<f64> = (-700..=700).map(|i| f64::from(i) * 0.01).collect();
    points.extend([
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        1e-30,
        -1e-30,
        -0.0,
        1e30,
    ]);
    points
}

/// Checks the decomposition against the operation of the embedded executor.
#[track_caller]
fn check(element: &str, x: &HostArray, tolerance: f64) {
    let module = module(element, x.ty().dims()[0]);
    let expected = run(&module, module.to_string().into_bytes(), x);
    let found = run(&module, portable(&module, None).unwrap(), x);
    let values = |array: &HostArray| -> Vec<f64> {
        let wide = array.to_float(DType::F64).unwrap();
        wide.as_slice::<f64>().unwrap().to_vec()
    };
    for ((x, found), expected) in values(x).iter().zip(values(&found)).zip(values(&expected)) {
        let error = (found - expected).abs();
        let is_close = error <= tolerance * expected.abs() || found.is_nan() && expected.is_nan();
        assert!(is_close, "erf({x}) = {expected}, {found} in {element}");
    }
}

#[test]
fn decomposition_of_erf_is_accurate() {
    let dims = [points().len()];
    let x = HostArray::from_slice(&points(), dims).unwrap();
    check("f64", &x, 2e-15);
    let single = x.to_float(DType::F32).unwrap();
    check("f32", &single, 5e-7);
    check("bf16", &x.to_float(DType::Bf16).unwrap(), 8e-3);
    check("f16", &x.to_float(DType::F16).unwrap(), 1e-3);
}

#[test]
fn erf_in_regions_is_a_composite() {
    let text = "func.func @main(%x: tensor<2xf32>, %p: tensor<i1>) -> tensor<2xf32> {
        %z = chlo.erf %x : tensor<2xf32> -> tensor<2xf32>
        %y = \"stablehlo.if\"(%p) ({
          %a = chlo.erf %z : tensor<2xf32> -> tensor<2xf32>
          stablehlo.return %a : tensor<2xf32>
        }, {
          stablehlo.return %x : tensor<2xf32>
        }) : (tensor<i1>) -> tensor<2xf32>
        return %y : tensor<2xf32>
    }";
    let module = Module::read(text.as_bytes()).unwrap();
    let read = Module::read(&portable(&module, None).unwrap()).unwrap();
    let names: Vec<&str> = read
        .functions
        .iter()
        .map(|function| &*function.name)
        .collect();
    assert_eq!(names, ["main", "chlo.erf.impl.f32.2"]);
    let main = read.main().unwrap();
    let branch = &main.body.operations[1].regions[0];
    for operation in [&main.body.operations[0], &branch.operations[0]] {
        assert!(matches!(&operation.kind, OpKind::Composite { name, .. } if name == "chlo.erf"));
    }
}
