//! MNIST with batch norm, rematerialization and sharded state: PyTorch/XLA's
//! `test_train_mp_mnist_fsdp_with_ckpt.py --batch_size 16 --num_epochs 2`, with its network.
//!
//! `cargo run --release --example fsdp` has parameters, gradients and optimizer state in shards on
//! eight devices (ZeRO-3). `halite launch -n 4 -- target/release/examples/fsdp` has four
//! processes, each with its part of the optimizer state (ZeRO-1).
use halite::{cluster::Job, prelude::*, train::Strategy};

/// A convolution, and the normalization of its features.
#[derive(Tree)]
struct Block<L> {
    conv: Conv2d<L>,
    norm: BatchNorm<L>,
}

#[derive(Tree)]
struct Net<L> {
    blocks: [Block<L>; 2],
    hidden: Linear<L>,
    out: Linear<L>,
}

impl<'t> Block<Tensor<'t>> {
    fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        // The gradient saves only the input of the convolution, and computes the rest again.
        let Leaf(x) = x.trace().checkpoint(|| {
            let y = self.conv.forward(x);
            Leaf(y.max_pool([2, 2], [2, 2], Padding::Valid).relu())
        });
        self.norm.forward(x)
    }
}

impl<'t> Net<Tensor<'t>> {
    /// `images: [batch, 28, 28, 1]` to logits `[batch, 10]`.
    fn forward(&self, images: Tensor<'t>) -> Tensor<'t> {
        let [first, second] = &self.blocks;
        let x = second.forward(first.forward(images)).flatten_from(1);
        self.out.forward(self.hidden.forward(x).relu())
    }
}

fn net() -> Net<Param> {
    let block = |inputs, outputs| Block {
        conv: Conv2d::new(inputs, outputs, 5),
        norm: BatchNorm::new(outputs),
    };
    Net {
        blocks: [block(1, 10), block(10, 20)],
        hidden: Linear::new(320, 50),
        out: Linear::new(50, 10),
    }
}

fn main() -> Result<()> {
    let job = Job::from_env()?;
    let (devices, strategy) = match job.size() {
        // The parameters are small: without this none would be split.
        1 => (8, Strategy::fsdp().min_elements(64)),
        _ => (1, Strategy::zero1()),
    };
    let client = Accelerator::cpu().devices(devices)?.open()?;
    let (train, test) = Mnist::Digits.load()?;
    let task = task(&net(), |cx, net, batch| {
        let images = (batch.input.convert(DType::F32) / 255.0 - 0.1307) / 0.3081;
        let logits = net.forward(images.unsqueeze(3));
        cx.metric("accuracy", batch.mean(correct(logits, batch.target)));
        batch.mean(cross_entropy(logits, batch.target))
    });
    let trainer = Trainer::builder(&client)
        .processes(job.group())
        .strategy(strategy)
        .batch_size(16 * 8)
        .epochs(2)
        .out("runs/fsdp")
        .build()?;
    if job.is_coordinator() {
        println!("{}", trainer.strategy().describe(trainer.mesh(), &net())?);
    }
    let sgd = Sgd::new(0.01 * 8.0).momentum(0.5);
    let fitted = trainer.fit(task, net(), sgd, train, test.clone())?;
    job.print_once(fitted);

    // The checkpoint is of whole arrays: any number of devices reads it.
    if job.is_coordinator() {
        let first = client.local_devices()[0];
        let one = Trainer::builder(&client).devices([first]).build()?;
        let loaded = one.load(&net(), "runs/fsdp")?;
        let metrics = one.test(task, &loaded, test)?;
        println!("from the checkpoint, on one device: {metrics:?}");
    }
    job.finish()
}
