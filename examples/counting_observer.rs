//! An observer that counts launches of any client, without touching halite.
//!
//! `cargo run --example counting_observer`

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use halite::{Compilation, LaunchObserver, Observer, QueuedLaunch, nn, prelude::*};

#[derive(Clone, Debug, Default)]
struct Launches(Arc<AtomicU64>);

impl Observer for Launches {
    fn compiled(&self, _: &Compilation<'_>) -> Option<Box<dyn LaunchObserver>> {
        Some(Box::new(self.clone()))
    }
}

impl LaunchObserver for Launches {
    fn launched(&self, _: &QueuedLaunch<'_>) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn main() -> Result<()> {
    let launches = Launches::default();
    let client = Accelerator::cpu().open()?.with_observer(launches.clone());
    let square = nn::jit(&client, |_cx, [x]| [x * x]);
    for x in [1.0f32, 2.0, 3.0] {
        let [y] = square.run([&Array::scalar(&client, x)?])?;
        println!("{x} squared is {}", y.item::<f32>()?);
    }
    println!("{} launches", launches.0.load(Relaxed));
    assert_eq!(launches.0.load(Relaxed), 3);
    Ok(())
}
