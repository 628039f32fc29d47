//! A training loop of your own: `Jit`, an optimizer, and nothing of the trainer. Two spirals are
//! told apart.
//!
//! `cargo run --release --example loop`
use halite::{
    Sharding,
    nn::{
        optim::{self, Moments},
        rng,
    },
    prelude::*,
    train::State,
};

#[derive(Tree, Clone)]
struct Net<L> {
    layers: Vec<Linear<L>>,
    out: Linear<L>,
}

impl<'t> Net<Tensor<'t>> {
    /// `points: f32[batch, 2]` to logits `f32[batch, 2]`.
    fn forward(&self, points: Tensor<'t>) -> Tensor<'t> {
        self.out.forward(
            self.layers
                .iter()
                .fold(points, |x, layer| layer.forward(x).tanh()),
        )
    }
}

/// Everything a step changes: model, optimizer, count of steps, random key.
type Everything = State<Net<()>, Moments<()>, ()>;

const POINTS: usize = 400;

fn main() -> Result<()> {
    let client = Accelerator::cpu().open()?;
    let device = Sharding::single(client.local_devices()[0]);
    let model = Net {
        layers: vec![Linear::new(2, 64), Linear::new(64, 64)],
        out: Linear::new(64, 2),
    };
    let adam = Adam::new(Schedule::warmup(5e-3, 50).then(Schedule::cosine(5e-3, 950)));

    // First values are drawn on the device.
    let (params, rule) = (model.clone(), adam.clone());
    let init = Jit::<Empty<()>, Empty<()>, Everything>::function(&client, move |cx, _| {
        let key = rng::constant_key(cx, rng::key(42));
        State {
            model: init(cx, &params, key),
            slots: init(cx, &optim::slots(&rule, &params), key),
            step: cx.scalar(0.0, DType::U32),
            key,
            scale: None,
        }
    });

    // Forward, backward and update are one program. The state is donated: it is updated in place.
    let step = Jit::<Everything, (Leaf<()>, Leaf<()>), (Leaf<()>, Leaf<()>)>::new(
        &client,
        move |cx,
              State {
                  model: net,
                  slots,
                  step,
                  key,
                  scale,
              },
              (Leaf(points), Leaf(labels))| {
            // Dropout and batch norm ask for the mode; dropout draws from a key that differs in
            // each step.
            cx.set_mode(true, Some(rng::fold_in(key, step)));
            let logits = net.forward(points);
            let loss = cross_entropy(logits, labels).value();
            let right = accuracy(logits, labels).value();
            let gradients = grad(loss, &net);
            let (next, slots) = optim::update(&adam, cx, step, &model, net, gradients, slots);
            // What layers say of their state: the running statistics of batch norm.
            let next = next.map(|_, leaf| cx.updated(leaf));
            (
                State {
                    model: next,
                    slots,
                    step: step + 1,
                    key,
                    scale,
                },
                (Leaf(loss), Leaf(right)),
            )
        },
    )
    .named("spirals");

    let (points, labels) = spirals();
    let points = Array::upload(
        &client,
        &HostArray::from_slice(&points, [POINTS, 2])?,
        &device,
    )?;
    let labels = Array::upload(&client, &HostArray::from_slice(&labels, [POINTS])?, &device)?;
    let data = (Leaf(points), Leaf(labels));

    let mut state = init.run(&Empty::new())?;
    for number in 1..=1000 {
        let (next, (loss, right)) = step.call(state, &data)?;
        state = next;
        // Reading waits for the device, so it is done now and then; the other steps are only
        // queued.
        if number % 200 == 0 {
            let [loss, right] = [
                loss.0.read()?.item::<f32>()?,
                right.0.read()?.item::<f32>()?,
            ];
            println!(
                "step {number:4}: loss {loss:.4}, {:.1} % right",
                100.0 * right
            );
        }
    }
    println!("compiled {} time, {:?}", step.compiles(), step.stages());
    Ok(())
}

/// Points `[POINTS, 2]` of two spirals, and which one each is of.
fn spirals() -> (Vec<f32>, Vec<i32>) {
    let point = |i: usize| {
        let (spiral, along) = (i % 2, i as f32 / POINTS as f32);
        let angle = 9.0 * along + std::f32::consts::PI * spiral as f32;
        [along * angle.cos(), along * angle.sin()]
    };
    (
        (0..POINTS).flat_map(point).collect(),
        (0..POINTS).map(|i| (i % 2) as i32).collect(),
    )
}
