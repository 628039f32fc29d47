use super::*;
use crate::{AlignedBytes, DType, TensorType};

fn f32s(len: usize) -> TensorType {
    TensorType::new(DType::F32, [len])
}

/// Registers a function of an `f32` vector and calls it with `[1, 2]`.
#[track_caller]
fn call(
    name: &str,
    attributes: &[(String, Attribute)],
    function: impl Fn(&mut Arguments<'_>) -> Result<()> + Send + Sync + 'static,
) -> Result<Vec<f32>> {
    register(name, function).unwrap();
    let x = AlignedBytes::copy_of(bytemuck::bytes_of(&[1.0f32, 2.0]));
    let mut y = AlignedBytes::zeroed(8);
    let arguments = Arguments::new([(f32s(2), x.as_ref())], [(f32s(2), y.as_mut())], attributes)?;
    target(name).unwrap().run(arguments)?;
    Ok(bytemuck::cast_slice(y.as_ref()).to_vec())
}

fn error_of(result: Result<Vec<f32>>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn function_writes_outputs() {
    let attributes = [("factor".to_owned(), 3.0.into())];
    let result = call("core.scale", &attributes, |call| {
        let factor = call.attributes().float("factor")? as f32;
        let ([x], [y]) = call.buffers()?;
        for (y, x) in (y.as_mut_slice::<f32>()?.iter_mut()).zip(x.as_slice::<f32>()?) {
            *y = factor * x;
        }
        Ok(())
    });
    assert_eq!(result.unwrap(), [3.0, 6.0]);
}

#[test]
fn wrong_dtype_is_an_error() {
    let result = call("core.dtype", &[], |call| {
        let ([x], [_]) = call.buffers()?;
        x.as_slice::<i32>().map(|_| ())
    });
    assert_eq!(
        error_of(result),
        "custom call: `core.dtype`: input 0 is f32[2], used as s32"
    );
    let result = call("core.output_dtype", &[], |call| {
        let ([_], [y]) = call.buffers()?;
        y.as_mut_slice::<f64>().map(|_| ())
    });
    assert_eq!(
        error_of(result),
        "custom call: `core.output_dtype`: output 0 is f32[2], used as f64"
    );
}

#[test]
fn wrong_number_of_buffers_is_an_error() {
    let result = call("core.arity", &[], |call| {
        let ([_, _], [_]) = call.buffers()?;
        Ok(())
    });
    assert_eq!(
        error_of(result),
        "custom call: `core.arity`: called with 1 inputs and 1 outputs; the function has 2 and 1"
    );
}

#[test]
fn unknown_attribute_is_an_error() {
    let attributes = [
        ("mode".to_owned(), "fast".into()),
        ("n".to_owned(), 3.into()),
    ];
    let result = call("core.attribute", &attributes, |call| {
        call.attributes().int("count").map(|_| ())
    });
    assert_eq!(
        error_of(result),
        "custom call: `core.attribute`: no attribute `count`; the call has `mode`, `n`"
    );
    let result = call("core.attribute_type", &attributes, |call| {
        assert_eq!(call.attributes().int("n")?, 3);
        call.attributes().bool("mode").map(|_| ())
    });
    assert_eq!(
        error_of(result),
        "custom call: `core.attribute_type`: the attribute `mode` is \"fast\", not a bool"
    );
}

#[test]
fn panic_is_an_error() {
    let result = call("core.panic", &[], |_| panic!("no {}", 7));
    let error = result.unwrap_err();
    assert_eq!(
        error.to_string(),
        "custom call: `core.panic`: panicked: no 7"
    );
    assert_eq!(error.kind(), ErrorKind::Internal);
}

#[test]
fn duplicate_target_is_an_error() {
    register("core.twice", |_| Ok(())).unwrap();
    let error = register("core.twice", |_| Ok(())).unwrap_err().to_string();
    assert_eq!(
        error,
        "custom call: the target `core.twice` is already registered; choose another name"
    );
    assert!(register("", |_| Ok(())).is_err());
}

#[test]
fn empty_buffers_are_slices() {
    register("core.empty", |call| {
        let ([x], [y]) = call.buffers()?;
        assert!(x.as_slice::<f64>()?.is_empty() && y.as_mut_slice::<bool>()?.is_empty());
        Ok(())
    })
    .unwrap();
    let types = [DType::F64, DType::Bool].map(|dtype| TensorType::new(dtype, [0, 3]));
    let [x, y] = types;
    let arguments = Arguments::new([(x, &[][..])], [(y, &mut [][..])], &[]).unwrap();
    target("core.empty").unwrap().run(arguments).unwrap();
}

#[test]
fn bytes_must_match_the_type() {
    let error = Arguments::new([(f32s(2), &[0; 7][..])], [], &[]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "custom call: input 0 has 7 bytes, f32[2] needs 8"
    );
}

#[test]
fn invalid_bool_is_an_error() {
    register("core.bool", |call| {
        let ([x], []) = call.buffers()?;
        x.as_slice::<bool>().map(|_| ())
    })
    .unwrap();
    let ty = TensorType::new(DType::Bool, [2]);
    let arguments = Arguments::new([(ty, &[1, 2][..])], [], &[]).unwrap();
    let error = target("core.bool").unwrap().run(arguments).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("input 0 are not a valid bool[2]"),
        "{error}"
    );
}
