//! Rust functions as operations, on the real CPU plugin with eight devices and on the embedded
//! executor: values, gradients against finite differences, errors, and the compile cache.

mod cache;
mod errors;
mod gradients;
mod values;

use std::sync::LazyLock;

use halite_core::{
    Result,
    custom_call::{self, Arguments},
};
use halite_nn::{CustomOp, CustomVjp};

/// `factor * x^3`, element by element, in f64.
fn cube(call: &mut Arguments<'_>) -> Result<()> {
    let factor = call.attributes().float("factor")?;
    let ([x], [y]) = call.buffers()?;
    let pairs = (y.as_mut_slice::<f64>()?.iter_mut()).zip(x.as_slice::<f64>()?);
    pairs.for_each(|(y, x)| *y = factor * x * x * x);
    Ok(())
}

/// [`cube`] with its derivative.
static CUBE: LazyLock<CustomOp> = LazyLock::new(|| {
    custom_call::register("test.cube", cube).unwrap();
    CustomOp::new("test.cube", |x| Ok(vec![x[0].clone()]))
        .attribute("factor", 0.5)
        .gradient(
            |CustomVjp {
                 operands: [x],
                 cotangents: [dy],
                 ..
             }: CustomVjp<1, 1>| [Some(dy * x * x * 1.5)],
        )
});
