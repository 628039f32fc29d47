//! A custom operation: RMS normalization as one Rust function, with a gradient that is another, in a
//! small network that is trained.
//!
//! `cargo run --release --example custom_op`
use halite::{
    core::custom_call::{self, Arguments},
    prelude::*,
};

/// Normalizes rows: `y = x * rstd`, `rstd = 1 / sqrt(mean(x^2) + epsilon)`. The reciprocal is a
/// second result, which the gradient uses.
fn forward(call: &mut Arguments<'_>) -> Result<()> {
    let epsilon = call.attributes().float("epsilon")? as f32;
    let ([x], [y, rstd]) = call.buffers()?;
    let width = width(x.ty())?;
    let rows = x.as_slice::<f32>()?.chunks_exact(width);
    let normalized = y.as_mut_slice::<f32>()?.chunks_exact_mut(width);
    for ((x, y), rstd) in rows.zip(normalized).zip(rstd.as_mut_slice::<f32>()?) {
        let mean = x.iter().map(|x| x * x).sum::<f32>() / width as f32;
        *rstd = (mean + epsilon).sqrt().recip();
        y.iter_mut().zip(x).for_each(|(y, x)| *y = x * *rstd);
    }
    Ok(())
}

/// `dx = rstd * (dy - y * mean(dy * y))`.
fn backward(call: &mut Arguments<'_>) -> Result<()> {
    let ([y, rstd, dy], [dx]) = call.buffers()?;
    let width = width(y.ty())?;
    let rows = y.as_slice::<f32>()?.chunks_exact(width);
    let cotangents = dy.as_slice::<f32>()?.chunks_exact(width);
    let results = dx.as_mut_slice::<f32>()?.chunks_exact_mut(width);
    let rows = rows.zip(cotangents).zip(results);
    for (((y, dy), dx), rstd) in rows.zip(rstd.as_slice::<f32>()?) {
        let mean = y.iter().zip(dy).map(|(y, dy)| y * dy).sum::<f32>() / width as f32;
        for ((dx, dy), y) in dx.iter_mut().zip(dy).zip(y) {
            *dx = rstd * (dy - y * mean);
        }
    }
    Ok(())
}

/// Size of the last dimension.
fn width(ty: &TensorType) -> Result<usize> {
    match ty.dims().last() {
        Some(&width) if width > 0 => Ok(width),
        _ => Err(Error::invalid("rms_norm", format!("{ty} has no rows"))),
    }
}

/// The operation: shapes of its results, and its gradient.
fn rms_norm() -> CustomOp {
    let gradient = CustomOp::new("rms_norm_gradient", |operands| {
        Ok(vec![operands[0].clone()])
    });
    CustomOp::new("rms_norm", |operands| {
        let x = &operands[0];
        width(x)?;
        let rows = TensorType::new(x.dtype(), &x.dims()[..x.rank() - 1]);
        Ok(vec![x.clone(), rows])
    })
    .attribute("epsilon", 1e-6)
    .gradient(move |vjp: CustomVjp<1, 2>| {
        let ([y, rstd], [dy, _]) = (vjp.results, vjp.cotangents);
        let [dx] = gradient.call(vjp.cx, &[y, rstd, dy]);
        [Some(dx)]
    })
}

#[derive(Tree)]
struct Net<L> {
    hidden: Linear<L>,
    out: Linear<L>,
}

impl<'t> Net<Tensor<'t>> {
    /// `x: f32[batch, 2]` to logits `f32[batch, 2]`.
    fn forward(&self, norm: &CustomOp, x: Tensor<'t>) -> Tensor<'t> {
        let [hidden, _rstd] = norm.call(x.trace(), &[self.hidden.forward(x).relu()]);
        self.out.forward(hidden)
    }
}

fn main() -> Result<()> {
    custom_call::register("rms_norm", forward)?;
    custom_call::register("rms_norm_gradient", backward)?;
    let client = Accelerator::cpu().open()?;
    let norm = rms_norm();
    compare(&client, norm.clone())?;
    train(&client, norm)
}

/// Compares value and gradient with the same formula in tensor operations.
fn compare(client: &Client, norm: CustomOp) -> Result<()> {
    let differences = jit(client, move |cx, [x]| {
        let rstd = (x.square().mean([1]) + 1e-6).rsqrt();
        let expected = x * rstd.reshape([rstd.dims()[0], 1]);
        let [y, _rstd] = norm.call(cx, &[x]);
        let slopes = [y, expected].map(|y| grad(y.sin().sum_all(), &x));
        [y - expected, slopes[0] - slopes[1]].map(|error| error.abs().max([0, 1]))
    });
    let x: Vec<f32> = (0..32).map(|i| (i as f32 * 0.7).sin() * 3.0).collect();
    let x = Array::from_slice(client, &x, [4, 8])?;
    let [value, gradient] = differences.run([&x])?;
    let (value, gradient) = (value.item::<f32>()?, gradient.item::<f32>()?);
    println!(
        "largest difference from tensor operations: value {value:.1e}, gradient {gradient:.1e}"
    );
    assert!(value < 1e-5 && gradient < 1e-5);
    Ok(())
}

/// Trains the network to tell points inside a circle from those outside.
fn train(client: &Client, norm: CustomOp) -> Result<()> {
    let net = Net {
        hidden: Linear::new(2, 32),
        out: Linear::new(32, 2),
    };
    let adam = Adam::new(1e-2);
    let mut state = State::new(client, &net, &adam, 42)?;
    let step = jit_step(client, &state, move |cx, state, [points, labels]| {
        state.set_training_mode(cx);
        let logits = state.model.forward(&norm, points);
        let loss = cross_entropy(logits, labels).mean_all();
        let gradients = grad(loss, &state.model);
        (state.update(gradients), [loss])
    });
    let point = |i: usize| [(i as f32 * 0.37).sin(), (i as f32 * 0.61).cos()];
    let points: Vec<[f32; 2]> = (0..256).map(point).collect();
    let labels: Vec<i32> = (points.iter())
        .map(|[x, y]| i32::from(x * x + y * y > 0.7))
        .collect();
    let points = Array::from_slice(client, points.as_flattened(), [256, 2])?;
    let labels = Array::from_slice(client, &labels, [256])?;
    for number in 0..=200 {
        let (next, [loss]) = step.call(state, [&points, &labels])?;
        state = next;
        if number % 100 == 0 {
            println!("step {number:3}: loss {:.4}", loss.item::<f32>()?);
        }
    }
    Ok(())
}
