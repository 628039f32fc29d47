//! Entry points into this crate's parsers for fuzzing. Not part of the public API, and without
//! stability.
//!
//! Each function takes any bytes, returns whether they were accepted, and panics if a property does
//! not hold.

use halite_core::{DType, HostArray, TensorType};

use crate::{Artifact, Exported, PyTree, npy};

/// A `.npy` file.
pub fn npy(data: &[u8]) -> bool {
    let Ok(array) = npy::read_as(data, DType::F8E4M3Fn) else {
        return false;
    };
    // The file does not name the types of 8-bit floats.
    let again = npy::read_as(&npy::write(&array), array.ty().dtype());
    let again = again.expect("what was written is read");
    assert!(
        again == array,
        "an array changes when it is written and read"
    );
    true
}

/// Valid inputs of [`npy`].
pub fn npy_seeds() -> Vec<Vec<u8>> {
    let matrix = HostArray::from_slice(&[1.5f32, -2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
    let arrays = [
        HostArray::scalar(7i64),
        matrix.expect("as many values as elements"),
        HostArray::from_slice(&[true, false], [2]).expect("as many values as elements"),
        HostArray::zeros(TensorType::new(DType::F8E4M3Fn, [4])),
    ];
    let file = |header: &str, data: &[u8]| {
        let length = [header.len() as u8, 0];
        [&b"\x93NUMPY\x01\0"[..], &length, header.as_bytes(), data].concat()
    };
    let columns = "{'descr': '<u2', 'fortran_order': True, 'shape': (2, 1), }";
    // The only 8-bit float that `ml_dtypes` names.
    let float8 = "{'descr': '<f1', 'fortran_order': False, 'shape': (2,), }";
    let others = [file(columns, &[0; 4]), file(float8, &[0x3c; 2])];
    arrays.iter().map(npy::write).chain(others).collect()
}

/// An artifact of `jax.export`, or any other program, which is also imported.
pub fn artifact(data: &[u8]) -> bool {
    if let Ok(exported) = Exported::read(data)
        && let Ok(written) = exported.to_bytes()
    {
        let again = Exported::read(&written).expect("what was written is read");
        assert!(
            again == exported,
            "an artifact changes when it is written and read"
        );
    }
    let Ok(artifact) = Artifact::read(data) else {
        return false;
    };
    if let Ok(function) = artifact.function() {
        halite_ir::verify(function.graph()).expect("an imported graph is valid");
    }
    true
}

/// Valid inputs of [`artifact`], without their programs' text.
pub fn artifact_seeds() -> Vec<Vec<u8>> {
    let text = b"func.func @main(%i: tensor<i32>, %x: tensor<2xf32>, %y: tensor<f32>) -> tensor<2xf32> {
        %0 = stablehlo.constant dense<2> : tensor<i32>
        %1:2 = stablehlo.while(%a = %i, %b = %x) : tensor<i32>, tensor<2xf32>
        cond {
          %2 = stablehlo.compare LT, %a, %0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %2 : tensor<i1>
        } do {
          %3 = stablehlo.constant dense<1> : tensor<i32>
          %4 = stablehlo.add %a, %3 : tensor<i32>
          %5 = stablehlo.tanh %b : tensor<2xf32>
          stablehlo.return %4, %5 : tensor<i32>, tensor<2xf32>
        }
        %6 = stablehlo.reduce(%1#1 init: %y) applies stablehlo.maximum across dimensions = [0] : (tensor<2xf32>, tensor<f32>) -> tensor<f32>
        %7 = stablehlo.broadcast_in_dim %6, dims = [] : (tensor<f32>) -> tensor<2xf32>
        return %7 : tensor<2xf32>
      }";
    let tree = PyTree::Dict(vec![("a".into(), PyTree::Leaf), ("b".into(), PyTree::None)]);
    let arguments = PyTree::Tuple(vec![PyTree::List(vec![PyTree::Leaf]), tree]);
    let vector = halite_core::TensorType::new(halite_core::DType::F32, [2]);
    let scalar = vector.with_dims([]);
    let exported = Exported {
        name: "f".into(),
        inputs: PyTree::Tuple(vec![arguments, PyTree::Dict(Vec::new())]),
        input_types: vec![Some(vector.clone()), Some(scalar)],
        outputs: PyTree::Leaf,
        output_types: vec![Some(vector)],
        platforms: vec!["cpu".into(), "tpu".into()],
        used_inputs: vec![0, 1],
        devices: 1,
        program: text[..].into(),
    };
    let bytes = exported.to_bytes().expect("the artifact has types");
    vec![text.to_vec(), bytes]
}
