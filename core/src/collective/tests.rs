use std::time::Instant;

use super::*;
use crate::ErrorKind;

const SOON: Duration = Duration::from_secs(20);

fn together<T: Send>(size: usize, work: impl Fn(&ThreadMember) -> T + Sync) -> Vec<T> {
    let members = ThreadMember::group(size);
    std::thread::scope(|scope| {
        let threads: Vec<_> = members
            .iter()
            .map(|member| scope.spawn(|| work(member)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

#[test]
fn all_gather_returns_contributions_by_rank() {
    for all in together(3, |me| {
        me.all_gather("ranks", &[me.rank() as u8], SOON).unwrap()
    }) {
        assert_eq!(all, [[0], [1], [2]]);
    }
    for got in together(3, |me| {
        me.broadcast("root", 2, &[me.rank() as u8], SOON).unwrap()
    }) {
        assert_eq!(got, [2]);
    }
    let sent = |me: &ThreadMember| {
        (0..3)
            .map(|to| vec![me.rank() as u8, to])
            .collect::<Vec<_>>()
    };
    for (rank, got) in together(3, |me| me.all_to_all("swap", &sent(me), SOON).unwrap())
        .into_iter()
        .enumerate()
    {
        assert_eq!(got, [[0, rank as u8], [1, rank as u8], [2, rank as u8]]);
    }
}

#[test]
fn process_allgather_stacks_or_concatenates() {
    for (tiled, dims) in [(false, &[3, 2, 1][..]), (true, &[6, 1])] {
        let all = together(3, |me| {
            let rank = me.rank() as f64;
            let mine = HostArray::from_slice(&[rank, -rank], [2, 1]).unwrap();
            me.process_allgather("x", &mine, tiled, SOON).unwrap()
        });
        for got in all {
            assert_eq!(got.ty().dims(), dims);
            assert_eq!(
                got.as_slice::<f64>().unwrap(),
                [0.0, -0.0, 1.0, -1.0, 2.0, -2.0]
            );
        }
    }
    let one = SingleProcess;
    assert!(
        one.process_allgather("x", &HostArray::scalar(1f32), true, SOON)
            .is_err()
    );
}

#[test]
fn all_reduce_reduces_over_members() {
    let mine = |me: &ThreadMember| HostArray::from_slice(&[me.rank() as f32, 2.0], [2]).unwrap();
    let check = |op, want: [f32; 2]| {
        for got in together(4, |me| me.all_reduce("x", &mine(me), op, SOON).unwrap()) {
            assert_eq!(got.as_slice::<f32>().unwrap(), want, "{op:?}");
        }
    };
    check(ReduceOp::Sum, [6.0, 8.0]);
    check(ReduceOp::Mean, [1.5, 2.0]);
    check(ReduceOp::Max, [3.0, 2.0]);
    check(ReduceOp::Min, [0.0, 2.0]);
    check(ReduceOp::Product, [0.0, 16.0]);
    let parts = together(2, |me| {
        me.reduce_scatter("x", &mine(me), ReduceOp::Sum, SOON)
            .unwrap()
    });
    assert_eq!(parts[1].as_slice::<f32>().unwrap(), [4.0]);
}

#[test]
fn subgroup_has_its_members_alone() {
    let ask = |process: ThreadProcess| {
        let group = process.subgroup("ends", &[0, 2])?;
        // Invalid lists of ranks.
        for ranks in [&[][..], &[2, 0], &[1, 3]] {
            assert!(process.subgroup("none", ranks).is_err(), "{ranks:?}");
        }
        let mine = [process.rank() as u8];
        group
            .map(|group| group.all_gather("ranks", &mine, SOON))
            .transpose()
    };
    let all = ThreadProcess::group(3).into_iter();
    let threads: Vec<_> = all
        .map(|process| std::thread::spawn(move || ask(process)))
        .collect();
    let results = threads.into_iter().map(|one| one.join().unwrap().unwrap());
    let both = Some(vec![vec![0], vec![2]]);
    assert_eq!(results.collect::<Vec<_>>(), [both.clone(), None, both]);
}

#[test]
fn empty_array_is_scattered() {
    let empty = HostArray::from_slice::<f32>(&[], [0, 3]).unwrap();
    let parts = together(2, |me| {
        me.reduce_scatter("x", &empty, ReduceOp::Sum, SOON).unwrap()
    });
    assert_eq!(parts, [empty.clone(), empty.clone()]);
}

#[test]
fn mean_of_integers_does_not_wrap() {
    let mean = |values: [u8; 2]| {
        let mine = |me: &ThreadMember| HostArray::scalar(values[me.rank()]);
        together(2, |me| {
            me.all_reduce("x", &mine(me), ReduceOp::Mean, SOON)
                .unwrap()
                .as_slice::<u8>()
                .unwrap()[0]
        })
    };
    assert_eq!(mean([200, 101]), [150, 150]);
    let lowest = together(3, |me| {
        me.all_reduce("x", &HostArray::scalar(i64::MIN), ReduceOp::Mean, SOON)
            .unwrap()
    });
    assert_eq!(lowest[2].as_slice::<i64>().unwrap(), [i64::MIN]);
}

#[test]
fn longest_timeout_does_not_panic() {
    let all = together(2, |me| {
        me.all_gather("x", &[me.rank() as u8], Duration::MAX)
            .unwrap()
    });
    assert_eq!(all, [[[0], [1]], [[0], [1]]]);
}

#[test]
fn timeout_error_names_late_members() {
    let members = ThreadMember::group(3);
    let error = members[1]
        .barrier("epoch 2", Duration::from_millis(10))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert!(
        error.to_string().contains("`epoch 2`") && error.to_string().contains("[0, 2] of 3"),
        "{error}"
    );
}

#[test]
fn retry_after_timeout_meets_late_members() {
    let members = ThreadMember::group(2);
    for _ in 0..3 {
        let error = members[1]
            .all_gather("step 1", b"early", Duration::from_millis(5))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    }
    std::thread::scope(|scope| {
        let late = scope.spawn(|| members[0].all_gather("step 1", b"late", SOON));
        let retried = members[1].all_gather("step 1", b"again", SOON).unwrap();
        assert_eq!(retried, [&b"late"[..], b"again"]);
        assert_eq!(late.join().unwrap().unwrap(), retried);
        // The group is in step for what follows.
        let other = scope.spawn(|| members[0].all_gather("step 2", b"a", SOON));
        assert_eq!(
            members[1].all_gather("step 2", b"b", SOON).unwrap(),
            [b"a", b"b"]
        );
        other.join().unwrap().unwrap();
    });
    assert!(
        members[0].group.state.lock().unwrap().rounds.is_empty(),
        "no round is kept"
    );
}

#[test]
fn member_may_call_another_operation_after_timeout() {
    let members = ThreadMember::group(2);
    members[0]
        .barrier("epoch 1", Duration::from_millis(5))
        .unwrap_err();
    std::thread::scope(|scope| {
        scope.spawn(|| members[0].barrier("save", SOON).unwrap());
        members[1].barrier("save", SOON).unwrap();
    });
}

#[test]
fn wrong_name_does_not_advance_the_round() {
    let members = ThreadMember::group(2);
    std::thread::scope(|scope| {
        // Whoever comes first names the round, and this member insists on its name.
        let save = || loop {
            match members[0].barrier("save", SOON) {
                Err(error) if error.kind() == ErrorKind::InvalidArgument => {}
                other => break other,
            }
        };
        let first = scope.spawn(save);
        // Until the other is there.
        let error = loop {
            match members[1].barrier("epoch 1", Duration::from_millis(1)) {
                Err(error) if error.kind() == ErrorKind::InvalidArgument => break error,
                other => assert_eq!(other.unwrap_err().kind(), ErrorKind::DeadlineExceeded),
            }
        };
        assert!(
            error
                .to_string()
                .contains("member 1 called `epoch 1`, other members called `save`"),
            "{error}"
        );
        members[1].barrier("save", SOON).unwrap();
        first.join().unwrap().unwrap();
    });
}

#[test]
fn dropped_member_is_reported_at_once() {
    let mut members = ThreadMember::group(3);
    let last = members.pop().unwrap();
    let started = Instant::now();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = members
            .iter()
            .map(|member| scope.spawn(|| member.barrier("epoch 2", SOON).unwrap_err()))
            .collect();
        scope.spawn(move || drop(last)); // What happens to a member whose thread fails.
        for error in waiting {
            let error = error.join().unwrap();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(
                error
                    .to_string()
                    .contains("`epoch 2`: members [2] of 3 were dropped"),
                "{error}"
            );
        }
    });
    assert!(started.elapsed() < SOON);
}

#[test]
fn contribution_of_dropped_member_counts() {
    let mut members = ThreadMember::group(2);
    let last = members.pop().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || last.barrier("end", SOON).unwrap());
        members[0].barrier("end", SOON).unwrap();
    });
}

#[test]
fn mesh_reduce_calls_the_closure() {
    let median = |me: &ThreadMember| {
        let mine = HostArray::scalar([5i64, 1, 3][me.rank()]);
        me.mesh_reduce("median", &mine, SOON, |all| {
            let mut values: Vec<i64> = all
                .iter()
                .map(|array| array.as_slice::<i64>().unwrap()[0])
                .collect();
            values.sort_unstable();
            Ok(values[1])
        })
    };
    assert_eq!(together(3, |me| median(me).unwrap()), [3, 3, 3]);
    let anyone: &dyn Collective = &SingleProcess;
    assert_eq!(
        anyone
            .mesh_reduce("count", &HostArray::scalar(1u8), SOON, |all| Ok(all.len()))
            .unwrap(),
        1
    );
}

#[test]
fn differing_names_or_types_are_errors() {
    let results = together(2, |me| {
        me.barrier(
            if me.rank() == 0 { "a" } else { "b" },
            Duration::from_millis(200),
        )
    });
    assert!(results.iter().all(Result::is_err));
    let results = together(2, |me| {
        let mine = HostArray::from_slice(&vec![1i32; 1 + me.rank()], [1 + me.rank()]).unwrap();
        me.all_reduce("x", &mine, ReduceOp::Sum, SOON)
    });
    assert!(results.iter().any(|result| {
        result
            .as_ref()
            .unwrap_err()
            .to_string()
            .contains("differs from")
    }));
    let alone = SingleProcess.all_reduce("x", &HostArray::scalar(1.0f32), ReduceOp::And, SOON);
    assert!(
        alone
            .unwrap_err()
            .to_string()
            .contains("And is not defined for f32[]")
    );
}

#[test]
fn exchanges_fill_the_buffers_of_every_member() {
    let bytes = |values: &[f32]| bytemuck::cast_slice::<f32, u8>(values).to_vec();
    let results = together(2, |me| {
        let mine = bytes(&[1.0 + me.rank() as f32, 10.0]);
        let (op, dtype) = (ReduceOp::Sum, crate::DType::F32);
        let (mut sum, mut part, mut all) = (vec![0; 8], vec![0; 4], vec![0; 16]);
        let mut sent = mine.clone();
        let run = |exchange| me.exchange("x", exchange, SOON).unwrap();
        let (from, into) = (&mine, &mut sum);
        run(Exchange::AllReduce {
            op,
            dtype,
            from,
            into,
        });
        let (from, into) = (&mine, &mut part);
        run(Exchange::ReduceScatter {
            op,
            dtype,
            from,
            into,
        });
        let (from, into) = (&mine, &mut all);
        run(Exchange::AllGather { from, into });
        let (root, bytes) = (1, &mut sent);
        run(Exchange::Broadcast { root, bytes });
        (sum, part, all, sent)
    });
    for (rank, (sum, part, all, sent)) in results.into_iter().enumerate() {
        assert_eq!(sum, bytes(&[3.0, 20.0]));
        assert_eq!(part, bytes(&[[3.0, 20.0][rank]]));
        assert_eq!(all, bytes(&[1.0, 10.0, 2.0, 10.0]));
        assert_eq!(sent, bytes(&[2.0, 10.0]));
    }
    let (from, into) = (&[0; 4][..], &mut [0; 5][..]);
    let odd = SingleProcess.exchange("odd", Exchange::AllGather { from, into }, SOON);
    assert!(
        odd.unwrap_err()
            .to_string()
            .contains("has 4 bytes, and the buffer for it 5")
    );
}

#[test]
fn lanes_of_processes_are_independent() {
    let mut processes = ThreadProcess::group(2);
    let (second, first) = (processes.pop().unwrap(), processes.pop().unwrap());
    let [a, b] = ["device 0", "device 1"].map(|name| (first.lane(name), second.lane(name)));
    let ((a0, a1), (b0, b1)) = ((a.0.unwrap(), a.1.unwrap()), (b.0.unwrap(), b.1.unwrap()));
    let gather = |lane: &Arc<dyn Collective>, mine: u8| lane.all_gather("x", &[mine], SOON);
    let (from_a, from_b) = std::thread::scope(|scope| {
        // One process exchanges on lane `a` first, the other on lane `b`.
        let one = scope.spawn(|| gather(&a0, 1));
        let other = scope.spawn(|| (gather(&b1, 2), gather(&a1, 3)));
        gather(&b0, 4).unwrap();
        let (b, _) = other.join().unwrap();
        (one.join().unwrap(), b)
    });
    assert_eq!(from_a.unwrap(), [[1], [3]]);
    assert_eq!(from_b.unwrap(), [[4], [2]]);
    assert!(first.lane("device 2").is_ok());
    let error = second.lane("other").unwrap_err().to_string();
    assert!(
        error.contains("`other`, another process for `device 2`"),
        "{error}"
    );
}

#[test]
fn dropped_process_ends_waits_on_its_lanes() {
    let mut processes = ThreadProcess::group(2);
    let (second, first) = (processes.pop().unwrap(), processes.pop().unwrap());
    let before = first.lane("before").unwrap();
    drop(second); // It never asked for a lane.
    let after = first.lane("after").unwrap();
    for lane in [before, after] {
        let error = lane.barrier("step", SOON).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}
