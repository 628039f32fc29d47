// The five lines that a peer and `compare.py` exchange (see protocol.py), for the peers in Rust:
// included in both.

use std::{io::BufRead, time::Instant};

/// `step` does one training step; `finish` waits for the last one and gives its loss.
fn serve<L>(mut step: impl FnMut() -> L, mut finish: impl FnMut(L) -> f32) {
    let started = Instant::now();
    let loss = step();
    let loss = finish(loss);
    let first = started.elapsed().as_secs_f64();
    println!("READY {{\"first_step_s\": {first:.4}, \"since_exec_s\": {:.3}, \"loss1\": {loss:.4}}}", since_exec());
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("lines of text");
        let Some(steps) = line.strip_prefix("RUN ") else { break };
        let steps: usize = steps.trim().parse().expect("a number of steps");
        let started = Instant::now();
        let mut last = None;
        for _ in 0..steps {
            last = Some(step());
        }
        std::hint::black_box(last.map(&mut finish));
        println!("DONE {:.9}", started.elapsed().as_secs_f64());
    }
    println!("BYE {{\"peak_rss_mb\": {:.1}}}", peak_rss_mb());
}

fn since_exec() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let ticks: f64 = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19)).expect("a start time").parse().expect("a number");
    let uptime = std::fs::read_to_string("/proc/uptime").expect("Linux");
    uptime.split_whitespace().next().expect("a time").parse::<f64>().expect("a number") - ticks / 100.0
}

fn peak_rss_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM")).expect("a peak");
    line.split_whitespace().nth(1).expect("a size").parse::<f64>().expect("a number") / 1024.0
}

fn label(index: usize, classes: usize) -> usize {
    index * 7919 % classes
}
