//! Every process adds its rank: `halite launch -n 2 -- target/debug/examples/all_reduce`.

use std::time::Duration;

use halite_cluster::Job;
use halite_core::{DType, Exchange, HostArray, ReduceOp, Result};

fn main() -> Result<()> {
    let job = Job::from_env()?;
    let (minute, group) = (Duration::from_secs(60), job.group());
    let mine = HostArray::scalar(job.rank() as f32);
    let sum = group.all_reduce("ranks", &mine, ReduceOp::Sum, minute)?;
    let lane = group.lane("data")?;
    let (from, mut into) = (vec![1u8; 1 << 20], vec![0u8; 1 << 20]);
    let exchange = Exchange::AllReduce {
        op: ReduceOp::Sum,
        dtype: DType::U8,
        from: &from,
        into: &mut into,
    };
    lane.exchange("megabyte", exchange, minute)?;
    println!(
        "process {} of {} on {} (local rank {}): sum of ranks {:?}, of ones {}",
        job.rank(),
        job.size(),
        job.host(),
        job.local_rank(),
        sum.as_slice::<f32>()?,
        into[0]
    );
    job.finish()
}
