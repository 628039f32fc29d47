//! Collectives of real processes against plain loops.

use std::time::Duration;

use halite_cluster::spawn;
use halite_core::{
    Collective, CollectiveExt, DType, ErrorKind, Exchange, HostArray, ReduceOp, Result,
};

const SOON: Duration = Duration::from_secs(60);

/// A value of a process, small enough that every type sums it exactly.
fn value(rank: usize, index: usize) -> i32 {
    ((rank * 7 + index * 3) % 5) as i32 - 1
}

/// Checks a reduction by exchange against a loop. The group comes with the number of values of which
/// each process gets the reduction when it is scattered.
macro_rules! check {
    ($group:expr, $dtype:ident, $type:ty, $from:expr, $op:ident, $fold:expr) => {{
        let (group, part): (&dyn Collective, usize) = $group;
        let count = part * group.size();
        let make = $from;
        let of = |rank: usize| -> Vec<$type> {
            (0..count)
                .map(|index| make(value(rank, index).abs()))
                .collect()
        };
        let fold: fn($type, $type) -> $type = $fold;
        let mut expected = of(0);
        for rank in 1..group.size() {
            expected
                .iter_mut()
                .zip(of(rank))
                .for_each(|(total, x)| *total = fold(*total, x));
        }
        let (mine, mut whole) = (of(group.rank()), vec![make(0); count]);
        let mut part = vec![make(0); part];
        let (op, dtype) = (ReduceOp::$op, DType::$dtype);
        let from = bytemuck::cast_slice(&mine);
        let into = bytemuck::cast_slice_mut(&mut whole);
        group.exchange(
            "whole",
            Exchange::AllReduce {
                op,
                dtype,
                from,
                into,
            },
            SOON,
        )?;
        let into = bytemuck::cast_slice_mut(&mut part);
        group.exchange(
            "part",
            Exchange::ReduceScatter {
                op,
                dtype,
                from,
                into,
            },
            SOON,
        )?;
        let what = concat!(stringify!($dtype), " ", stringify!($op));
        assert_eq!(whole, expected, "{what}");
        assert_eq!(
            part,
            expected[group.rank() * part.len()..][..part.len()],
            "{what}"
        );
    }};
}

fn reductions(group: &dyn Collective, part: usize) -> Result<()> {
    let group = (group, part);
    macro_rules! numbers {
        ($($dtype:ident $type:ty),*) => {$(
            check!(group, $dtype, $type, |x: i32| x as $type, Sum, |a, b| a + b);
            check!(group, $dtype, $type, |x: i32| x as $type, Product, |a, b| a * b);
            check!(group, $dtype, $type, |x: i32| x as $type, Max, |a, b| if a > b { a } else { b });
            check!(group, $dtype, $type, |x: i32| x as $type, Min, |a, b| if a < b { a } else { b });
        )*};
    }
    numbers!(F32 f32, F64 f64, S8 i8, S16 i16, S32 i32, S64 i64, U8 u8, U16 u16, U32 u32, U64 u64);
    let half = |x: i32| half::f16::from_f32(x as f32);
    check!(group, F16, half::f16, half, Sum, |a, b| a + b);
    let bf16 = |x: i32| half::bf16::from_f32(x as f32);
    check!(group, Bf16, half::bf16, bf16, Sum, |a, b| a + b);
    check!(group, Bf16, half::bf16, bf16, Max, |a, b| if a > b {
        a
    } else {
        b
    });
    check!(group, Bool, u8, |x: i32| u8::from(x > 0), Or, |a, b| a | b);
    check!(group, Bool, u8, |x: i32| u8::from(x > 0), And, |a, b| a & b);
    Ok(())
}

/// Broadcasts and gathers bytes of every process.
fn copies(group: &dyn Collective, part: usize) -> Result<()> {
    let of = |rank: usize| -> Vec<u8> { (0..part).map(|index| (7 * rank + index) as u8).collect() };
    for root in 0..group.size() {
        let mut bytes = of(group.rank());
        let exchange = Exchange::Broadcast {
            root,
            bytes: &mut bytes,
        };
        group.exchange("root", exchange, SOON)?;
        assert_eq!(bytes, of(root), "from {root}");
    }
    let (from, mut into) = (of(group.rank()), vec![0; part * group.size()]);
    let exchange = Exchange::AllGather {
        from: &from,
        into: &mut into,
    };
    group.exchange("all", exchange, SOON)?;
    let all: Vec<u8> = (0..group.size()).flat_map(of).collect();
    assert_eq!(into, all);
    Ok(())
}

/// No value, one, odd numbers, and more than fit a message that MPI sends at once.
fn every_size(group: &dyn Collective) -> Result<()> {
    for part in [0, 1, 37, 40_001] {
        reductions(group, part)?;
        copies(group, part)?;
    }
    Ok(())
}

#[test]
fn reductions_equal_plain_loops() {
    // One place a call, as each has processes of its own.
    spawn(2, |job| every_size(&*job.group())).unwrap();
    spawn(3, |job| every_size(&*job.group().lane("data")?)).unwrap();
}

#[test]
fn eight_processes_exchange_as_plain_loops() {
    spawn(8, |job| {
        let lane = job.group().lane("data")?;
        for part in [0, 1, 37] {
            reductions(&*lane, part)?;
            copies(&*lane, part)?;
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn means_equal_plain_loops() {
    spawn(3, |job| {
        let group = job.group();
        let mine = [job.rank() as f32, 1.0, -2.5 * job.rank() as f32];
        let from: &[u8] = bytemuck::cast_slice(&mine);
        let (op, dtype) = (ReduceOp::Mean, DType::F32);
        let mut result = [0f32; 3];
        let into = bytemuck::cast_slice_mut(&mut result);
        group.exchange(
            "mean",
            Exchange::AllReduce {
                op,
                dtype,
                from,
                into,
            },
            SOON,
        )?;
        assert_eq!(result, [1.0, 1.0, -2.5]);
        let mine = HostArray::from_slice(&[job.rank() as i32, 7], [2])?;
        let mean = group.all_reduce("mean", &mine, ReduceOp::Mean, SOON)?;
        assert_eq!(mean.as_slice::<i32>()?, [1, 7]);
        Ok(())
    })
    .unwrap();
}

#[test]
fn maximum_with_nan_is_nan() {
    spawn(2, |job| {
        let mine = [
            if job.rank() == 1 { f32::NAN } else { 3.0 },
            job.rank() as f32,
        ];
        let mut result = [0f32; 2];
        let exchange = Exchange::AllReduce {
            op: ReduceOp::Max,
            dtype: DType::F32,
            from: bytemuck::cast_slice(&mine),
            into: bytemuck::cast_slice_mut(&mut result),
        };
        job.group().exchange("maximum", exchange, SOON)?;
        assert!(result[0].is_nan() && result[1] == 1.0, "{result:?}");
        Ok(())
    })
    .unwrap();
}

#[test]
fn bytes_reach_every_process() {
    spawn(3, |job| {
        let (group, rank) = (job.group(), job.rank());
        assert_eq!(
            (job.size(), job.local_size(), job.local_rank()),
            (3, 3, rank)
        );
        group.barrier("start", SOON)?;
        let mine = vec![rank as u8; rank * 1_000_000];
        let all = group.all_gather("sizes", &mine, SOON)?;
        let sizes: Vec<usize> = all.iter().map(Vec::len).collect();
        assert_eq!(sizes, [0, 1_000_000, 2_000_000]);
        assert!(all[2].iter().all(|&byte| byte == 2));
        let sent = group.broadcast("from 1", 1, &[rank as u8; 3], SOON)?;
        assert_eq!(sent, [1, 1, 1]);
        let mut bytes = vec![rank as u8; 5];
        let exchange = Exchange::Broadcast {
            root: 2,
            bytes: &mut bytes,
        };
        group.exchange("from 2", exchange, SOON)?;
        assert_eq!(bytes, [2; 5]);
        let mut all = [9; 6];
        let (from, into) = (&[rank as u8, 7][..], &mut all[..]);
        group.exchange("all", Exchange::AllGather { from, into }, SOON)?;
        assert_eq!(all, [0, 7, 1, 7, 2, 7]);
        let messages: Vec<Vec<u8>> = (0..3).map(|to| vec![rank as u8, to]).collect();
        let received = group.all_to_all("pairs", &messages, SOON)?;
        assert_eq!(
            received,
            [[0, rank as u8], [1, rank as u8], [2, rank as u8]]
        );
        let last = group.mesh_reduce("last", &HostArray::scalar(rank as u64), SOON, |all| {
            Ok(all.last().expect("three").as_slice::<u64>()?[0])
        })?;
        assert_eq!(last, 2);
        Ok(())
    })
    .unwrap();
}

#[test]
fn groups_of_some_processes_are_independent() {
    spawn(4, |job| {
        let (group, rank) = (job.group(), job.rank());
        let odd = group.subgroup("odd", &[1, 3])?;
        let last = group.subgroup("last", &[1, 2, 3])?;
        assert_eq!(odd.is_some(), rank % 2 == 1);
        if let Some(odd) = odd {
            assert_eq!((odd.rank(), odd.size()), (rank / 2, 2));
            reductions(&*odd, 37)?;
            copies(&*odd, 37)?;
        }
        let Some(last) = last else {
            assert_eq!(rank, 0);
            return Ok(());
        };
        let ranks = last.all_gather("ranks", &[rank as u8], SOON)?;
        assert_eq!(ranks, [[1], [2], [3]]);
        // Errors name processes of the job.
        let name = if rank == 2 { "load" } else { "save" };
        let error = last.barrier(name, SOON).unwrap_err().to_string();
        let expected = "process 1 calls `save` (call 2), process 2 calls `load` (call 2)";
        assert!(error.contains(expected), "{error}");
        Ok(())
    })
    .unwrap();
}

#[test]
fn lanes_overlap() {
    spawn(2, |job| {
        let lanes = [job.group().lane("a")?, job.group().lane("b")?];
        std::thread::scope(|scope| {
            // Process 0 starts on one lane first, process 1 on the other.
            for offset in 0..2 {
                let lane = lanes[(job.rank() + offset) % 2].clone();
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(20 * offset as u64));
                    for _ in 0..50 {
                        lane.barrier("turn", SOON).unwrap();
                    }
                });
            }
        });
        Ok(())
    })
    .unwrap();
}

#[test]
fn first_process_of_a_host_works_first() {
    spawn(3, |job| {
        // A name of this run alone, and no file of another one.
        let id = std::process::id().to_le_bytes();
        let id = &job.group().all_gather("name", &id, SOON)?[0];
        let file = std::env::temp_dir().join(format!("halite-first-{id:?}"));
        if job.is_coordinator() {
            _ = std::fs::remove_file(&file);
        }
        job.group().barrier("no file", SOON)?;
        let mut calls = 0;
        let there = job.coordinator_first("fill", SOON, || {
            calls += 1;
            if job.local_rank() == 0 {
                std::thread::sleep(Duration::from_millis(300));
                std::fs::write(&file, "filled")?;
            }
            Ok(file.is_file())
        })?;
        assert!(there && calls == 1);
        job.group().barrier("all have looked", SOON)?;
        if job.is_coordinator() {
            std::fs::remove_file(&file)?;
        }
        let failed = job.coordinator_first("fail", SOON, || match job.rank() {
            0 => Err(halite_core::Error::invalid("fill", "no space")),
            _ => Ok(()),
        });
        let text = failed.unwrap_err().to_string();
        let expected = [
            "fill: no space",
            "`fail`: process 0 failed, the first of this host",
        ];
        assert_eq!(text, expected[job.rank().min(1)]);
        Ok(())
    })
    .unwrap();
}

#[test]
fn differing_calls_are_an_error_on_all() {
    let result = spawn(3, |job| {
        let name = if job.rank() == 2 { "load" } else { "save" };
        let error = job.group().barrier(name, SOON).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let text = error.to_string();
        assert!(text.contains("process 0 calls `save` (call "), "{text}");
        assert!(text.contains("process 2 calls `load` (call "), "{text}");
        // The processes do not agree any more: every later call fails at once, and is not made.
        let again = job.group().barrier("again", SOON).unwrap_err();
        assert!(
            again
                .to_string()
                .contains("an earlier call of `control` failed"),
            "{again}"
        );
        Err(error)
    });
    // That of the processes, and not of a failed assertion.
    let text = result.unwrap_err().to_string();
    assert!(text.contains("process 2 calls `load` (call "), "{text}");
}
