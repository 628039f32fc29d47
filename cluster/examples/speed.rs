//! Times of collectives: `halite launch -n 2 -- target/release/examples/speed`.

use std::time::{Duration, Instant};

use halite_cluster::Job;
use halite_core::{DType, Exchange, ReduceOp, Result};

const MINUTE: Duration = Duration::from_secs(60);

/// Median, smallest and largest time of a call, in milliseconds.
fn time(count: usize, mut call: impl FnMut() -> Result<()>) -> Result<String> {
    let mut times = Vec::new();
    for _ in 0..count {
        let start = Instant::now();
        call()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let (least, most) = (times[0], times[count - 1]);
    Ok(format!(
        "{:.3} ms ({least:.3} to {most:.3})",
        times[count / 2]
    ))
}

fn main() -> Result<()> {
    let job = Job::from_env()?;
    let group = job.group();
    let lane = group.lane("data")?;
    let barrier = time(100, || group.barrier("barrier", MINUTE))?;
    if job.is_coordinator() {
        println!("{} processes, barrier: {barrier}", job.size());
    }
    for power in [10, 14, 20, 24, 26] {
        let from = vec![0u8; 1 << power];
        let mut into = vec![0u8; 1 << power];
        let count = if power < 20 { 200 } else { 12 };
        let taken = time(count, || {
            let (op, dtype) = (ReduceOp::Sum, DType::F32);
            let (from, into) = (&from[..], &mut into[..]);
            lane.exchange(
                "all-reduce",
                Exchange::AllReduce {
                    op,
                    dtype,
                    from,
                    into,
                },
                MINUTE,
            )
        })?;
        if job.is_coordinator() {
            println!("all-reduce of {} kB: {taken}", (1 << power) / 1024);
        }
    }
    job.finish()
}
