//! Functions and their gradients, compiled and run, without a trainer: Newton's method for a
//! minimum.
//!
//! `cargo run --release --example jit`
use halite::prelude::*;

/// `x⁴ - 3x² + x`: a valley left, a flatter one right.
fn height(x: Tensor<'_>) -> Tensor<'_> {
    x.square().square() - 3.0 * x.square() + x
}

fn main() -> Result<()> {
    let client = Accelerator::cpu().open()?;
    let mut x = Array::scalar(&client, 2.0f64)?;

    // Traced once: height, slope and curvature are one program, which updates the position in place.
    let newton = jit_step(&client, &x, |_cx, x, []| {
        let y = height(x);
        let slope = grad(y, &x);
        let curvature = grad(slope, &x); // the gradient of a gradient
        (x - slope / curvature, [y, slope])
    });
    for step in 0..6 {
        let (next, [y, slope]) = newton.call(x, ())?; // queued; `x` is gone, its memory reused
        println!(
            "step {step}: height {:10.6}, slope {:10.2e}",
            y.item::<f64>()?,
            slope.item::<f64>()?
        );
        x = next;
    }
    println!("minimum at x = {x}");

    let counted = client.counters().snapshot();
    println!(
        "{} compile, {} launches, {} blocking reads",
        counted.compiles, counted.launches, counted.blocking_reads
    );

    // Shape errors are reported before anything is compiled: all at once, each with its line.
    let wrong = jit(&client, |_cx, [a, b]| {
        let product = a.matmul(b);
        let sum = a + b;
        [product + sum]
    });
    let a = Array::from_slice(&client, &[0.0f32; 6], [2, 3])?;
    let b = Array::from_slice(&client, &[0.0f32; 20], [4, 5])?;
    let error = wrong
        .run([&a, &b])
        .expect_err("these have neither a product nor a sum");
    println!("\n{error}");
    Ok(())
}
