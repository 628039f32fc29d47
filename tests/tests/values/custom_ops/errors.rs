//! Errors of functions, and of programs that call what is not there.

use halite_core::{
    Client, DType, Error, ErrorKind, HostArray, TensorType,
    custom_call::{self, Arguments},
};
use halite_exchange::export;
use halite_nn::{CustomOp, jit};
use halite_tests::eval::{Function, client, eval, host, try_eval};

/// The error of a program that calls `function` on `f32[2]`. Later launches of other programs work.
#[track_caller]
fn error_of(
    target: &str,
    function: impl Fn(&mut Arguments<'_>) -> halite_core::Result<()> + Send + Sync + 'static,
) -> Error {
    custom_call::register(target, function).unwrap();
    let op = CustomOp::new(target, |x| Ok(vec![x[0].clone()])).attribute("n", 3);
    let x = host(&[1.0f32, 2.0], &[2]);
    let error = try_eval(
        move |cx, x| op.call::<1>(cx, x).to_vec(),
        std::slice::from_ref(&x),
    )
    .unwrap_err();
    let doubled = eval(|_, x| vec![x[0] + x[0]], &[x]);
    assert_eq!(doubled[0], host(&[2.0f32, 4.0], &[2]));
    error
}

/// Makes the compiler infer the lifetimes of a closure as those of a function.
fn traced<F: Function>(function: F) -> F {
    function
}

#[track_caller]
fn check(error: &Error, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
}

#[test]
fn error_of_a_function_names_its_target() {
    let error = error_of("test.fails", |_| {
        Err(Error::invalid("norm", "epsilon is -1; it must be positive"))
    });
    check(
        &error,
        &["`test.fails`: epsilon is -1; it must be positive"],
    );
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

#[test]
fn panic_of_a_function_is_an_error() {
    let error = error_of("test.panics", |_| panic!("index {} of 2", 7));
    check(&error, &["`test.panics`: panicked: index 7 of 2"]);
    assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
}

#[test]
fn wrong_dtype_names_the_buffer() {
    let error = error_of("test.dtype", |call| {
        let ([x], [_]) = call.buffers()?;
        x.as_slice::<f64>().map(|_| ())
    });
    check(&error, &["`test.dtype`: input 0 is f32[2], used as f64"]);
}

#[test]
fn missing_attribute_names_those_there_are() {
    let error = error_of("test.attribute", |call| {
        call.attributes().float("epsilon").map(|_| ())
    });
    check(
        &error,
        &["`test.attribute`: no attribute `epsilon`; the call has `n`"],
    );
}

#[test]
fn wrong_number_of_buffers_is_an_error() {
    let error = error_of("test.arity", |call| {
        let ([_, _], [_]) = call.buffers()?;
        Ok(())
    });
    check(
        &error,
        &["called with 1 inputs and 1 outputs; the function has 2 and 1"],
    );
}

#[test]
fn unregistered_target_is_an_error() {
    let op = CustomOp::new("test.nobody_registered_this", |x| Ok(vec![x[0].clone()]));
    let error = try_eval(
        move |cx, x| op.call::<1>(cx, x).to_vec(),
        &[host(&[1.0f32], &[1])],
    )
    .unwrap_err();
    check(&error, &["test.nobody_registered_this"]);
    assert_ne!(error.kind(), ErrorKind::Internal, "{error}");
}

#[test]
fn target_may_be_registered_after_a_failed_compile() {
    let op = CustomOp::new("test.late", |x| Ok(vec![x[0].clone()]));
    let call = traced(move |cx, x| op.call::<1>(cx, x).to_vec());
    let x = [host(&[1.0f32], &[1])];
    assert!(try_eval(call.clone(), &x).is_err());
    custom_call::register("test.late", |call| {
        let ([_], [y]) = call.buffers()?;
        y.as_mut_slice::<f32>()?.fill(7.0);
        Ok(())
    })
    .unwrap();
    assert_eq!(eval(call, &x)[0], host(&[7.0f32], &[1]));
}

#[test]
fn export_refuses_a_function_of_this_process() {
    let op = CustomOp::new("test.exported", |x| Ok(vec![x[0].clone()]));
    let device = client().local_devices()[0];
    let x = HostArray::from_slice(&[1.0f32, 2.0], [2]).unwrap();
    let x =
        halite_core::Array::upload(client(), &x, &halite_core::Sharding::single(device)).unwrap();
    let function = jit(client(), move |cx, [x]| op.call::<1>(cx, &[x]));
    let error = export(&function, [&x]).unwrap_err();
    check(&error, &["test.exported"]);
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[test]
fn plugin_without_the_extension_names_it() {
    custom_call::register("test.extension", |_| Ok(())).unwrap();
    let client: Client = halite_tests::embedded::open_plugin(1, false).unwrap();
    let op = CustomOp::new("test.extension", |_| {
        Ok(vec![TensorType::new(DType::F32, [1])])
    });
    let x = halite_core::Array::from_slice(&client, &[1.0f32], [1]).unwrap();
    let error = jit(&client, move |cx, [x]| op.call::<1>(cx, &[x]))
        .run([&x])
        .unwrap_err();
    check(&error, &["test.extension"]);
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    check(
        &error,
        &[
            "has no FFI extension",
            "embedded executor run such functions",
        ],
    );
}
