//! Functions and their gradients, compiled and run, without a trainer: Newton's method for a
//! minimum.
//!
//! `cargo run --release --example jit`
use halite::{Sharding, prelude::*};

/// `x⁴ - 3x² + x`: a valley left, a flatter one right.
fn height(x: Tensor<'_>) -> Tensor<'_> {
    x.square().square() - x.square() * 3.0 + x
}

fn main() -> Result<()> {
    let client = Accelerator::cpu().open()?;

    // Traced once: height, slope and curvature are one program. The state (the position) is moved
    // in and out.
    let newton =
        Jit::<Leaf<()>, Empty<()>, (Leaf<()>, Leaf<()>)>::new(&client, |_cx, Leaf(x), _| {
            let y = height(x);
            let Leaf(slope) = grad(y, &Leaf(x));
            let Leaf(curvature) = grad(slope, &Leaf(x)); // the gradient of a gradient
            (Leaf(x - slope / curvature), (Leaf(y), Leaf(slope)))
        });

    let device = Sharding::single(client.local_devices()[0]);
    let mut x = Leaf(Array::upload(&client, &HostArray::scalar(2.0f64), &device)?);
    for step in 0..6 {
        let (next, (y, slope)) = newton.call(x, &Empty::new())?; // queued; `x` is gone, its memory reused
        let [y, slope] = [y.0.read()?.item::<f64>()?, slope.0.read()?.item::<f64>()?];
        println!("step {step}: height {y:10.6}, slope {slope:10.2e}");
        x = next;
    }
    println!("minimum at x = {:.12}", x.0.read()?.item::<f64>()?);

    let counted = client.counters().snapshot();
    println!(
        "{} compile, {} launches, {} blocking reads",
        counted.compiles, counted.launches, counted.blocking_reads
    );

    // What does not fit is told before anything is compiled: all mistakes at once, each with its
    // line.
    let wrong = Jit::<Empty<()>, (Leaf<()>, Leaf<()>), Leaf<()>>::function(
        &client,
        |_cx, (Leaf(a), Leaf(b))| {
            let product = a.matmul(b);
            let sum = a + b;
            Leaf(product + sum)
        },
    );
    let zeros = |dims: [usize; 2]| {
        let host = HostArray::zeros(TensorType::new(DType::F32, dims));
        Array::upload(&client, &host, &device).map(Leaf)
    };
    let error = wrong
        .run(&(zeros([2, 3])?, zeros([4, 5])?))
        .expect_err("these have neither a product nor a sum");
    println!("\n{error}");
    Ok(())
}
