//! Every collective between processes and its gradient, against plain loops, over random groups,
//! sizes and types.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use halite_core::{
    Array, HostArray, Mesh, ProcessGroup, Result, Sharding, ThreadProcess, tree::Leaf,
};
use halite_data::Permutation;
use halite_ir::{Literal, Op, Reduction};
use halite_nn::{Processes, Tensor, Trace, grad, jit};

use super::{EXECUTORS, Open};

const SOON: Duration = Duration::from_secs(60);

/// A collective over the processes.
#[derive(Clone, Copy, Debug)]
enum Collective {
    AllReduce,
    ReduceScatter { dim: usize },
    AllGather { dim: usize },
    Broadcast { root: usize },
}

impl Collective {
    fn of(self, x: Tensor<'_>) -> Tensor<'_> {
        match self {
            Collective::AllReduce => x.all_reduce(Reduction::Sum, "process"),
            Collective::ReduceScatter { dim } => {
                x.reduce_scatter(Reduction::Sum, dim as i64, "process")
            }
            Collective::AllGather { dim } => x.all_gather(dim as i64, "process"),
            Collective::Broadcast { root } => x.process_broadcast(root),
        }
    }

    /// The matrix of the linear function from the operands of all processes to the results of all,
    /// as pairs of (process, index of element).
    fn entries(self, dims: [usize; 2], processes: usize) -> Vec<[[usize; 2]; 2]> {
        let [rows, columns] = dims;
        let mut entries = Vec::new();
        for from in 0..processes {
            for to in 0..processes {
                for row in 0..rows {
                    for column in 0..columns {
                        let place = |[row, column]: [usize; 2], width: usize| row * width + column;
                        let target = match self {
                            Collective::AllReduce => Some(place([row, column], columns)),
                            Collective::Broadcast { root } => {
                                (root == from).then(|| place([row, column], columns))
                            }
                            Collective::ReduceScatter { dim: 0 } => {
                                let part = rows / processes;
                                (row / part == to).then(|| place([row % part, column], columns))
                            }
                            Collective::ReduceScatter { .. } => {
                                let part = columns / processes;
                                (column / part == to).then(|| place([row, column % part], part))
                            }
                            Collective::AllGather { dim: 0 } => {
                                Some(place([from * rows + row, column], columns))
                            }
                            Collective::AllGather { .. } => {
                                let whole = processes * columns;
                                Some(place([row, from * columns + column], whole))
                            }
                        };
                        if let Some(target) = target {
                            entries.push([[from, place([row, column], columns)], [to, target]]);
                        }
                    }
                }
            }
        }
        entries
    }

    fn result_len(self, dims: [usize; 2], processes: usize) -> usize {
        let elements = dims[0] * dims[1];
        match self {
            Collective::AllReduce | Collective::Broadcast { .. } => elements,
            Collective::ReduceScatter { .. } => elements / processes,
            Collective::AllGather { .. } => elements * processes,
        }
    }
}

/// Runs `body` in each process on the array of its rank, and returns the results by rank.
fn run<const N: usize>(
    open: Open,
    devices: usize,
    arrays: &[HostArray],
    body: impl for<'t> Fn(&'t Trace, Tensor<'t>) -> [Tensor<'t>; N] + Clone + Send + Sync + 'static,
) -> Vec<[HostArray; N]> {
    let of_process = |process: ThreadProcess| -> Result<[HostArray; N]> {
        let client = open(devices as u32).open()?;
        let mesh = Arc::new(Mesh::new([("data", devices)], client.local_devices())?);
        let rank = halite_core::Collective::rank(&process);
        let group: Arc<dyn ProcessGroup> = Arc::new(process);
        let processes = Processes::new(&group, &mesh, SOON)?;
        let x = Array::upload(&client, &arrays[rank], &Sharding::replicated(&mesh))?;
        // `processes` lives until the results are there.
        let (body, all) = (body.clone(), processes.clone());
        let program = jit(&client, move |cx, [x]| {
            cx.set_processes(&all, x.sum_all());
            body(cx, x)
        });
        let results = program.on(&mesh).run([&x])?;
        let read = |array: &Array| array.read().unwrap();
        Ok(std::array::from_fn(|index| read(&results[index])))
    };
    thread::scope(|scope| {
        let all = ThreadProcess::group(arrays.len()).into_iter();
        let all: Vec<_> = all
            .map(|process| scope.spawn(|| of_process(process)))
            .collect();
        let results = all.into_iter().map(|one| one.join().unwrap().unwrap());
        results.collect()
    })
}

/// Numbers that are exact in every type.
fn numbers(count: usize, seed: u64) -> Vec<f64> {
    let order = Permutation::new(61, seed, 0);
    (0..count).map(|i| order.at(i % 61) as f64 - 30.0).collect()
}

#[test]
fn collectives_equal_plain_loops() {
    for case in 0..24usize {
        let processes = 1 + case % 4;
        let devices = 1 + case % 3;
        let dims = [processes * (1 + case % 2), processes * (1 + case % 5)];
        let collective = match case % 6 {
            0 => Collective::AllReduce,
            1 => Collective::ReduceScatter { dim: 0 },
            2 => Collective::ReduceScatter { dim: 1 },
            3 => Collective::AllGather { dim: 0 },
            4 => Collective::AllGather { dim: 1 },
            _ => Collective::Broadcast {
                root: case % processes,
            },
        };
        let elements = dims[0] * dims[1];
        let xs: Vec<Vec<f64>> = (0..processes)
            .map(|rank| numbers(elements, (7 * case + rank) as u64))
            .collect();
        let length = collective.result_len(dims, processes);
        let cotangent = numbers(length, case as u64);
        let (mut ys, mut slopes) = (
            vec![vec![0.0; length]; processes],
            vec![vec![0.0; elements]; processes],
        );
        for [[from, x], [to, y]] in collective.entries(dims, processes) {
            ys[to][y] += xs[from][x];
            slopes[from][x] += cotangent[y] * (1 + to) as f64;
        }
        let arrays: Vec<HostArray> = xs
            .iter()
            .map(|x| HostArray::from_slice(x, dims).unwrap())
            .collect();
        let given = cotangent.clone();
        let results = run(EXECUTORS[case % 2], devices, &arrays, move |cx, x| {
            let y = collective.of(x);
            let weights = Op::Constant(Literal::new(&given, y.dims()).unwrap());
            let rank = cx.process_index().convert(y.dtype()) + 1.0;
            let loss = (y * cx.push_one(weights, &[]) * rank).sum_all();
            let Leaf(slope) = grad(loss, &Leaf(x));
            [y, slope]
        });
        for (rank, [y, slope]) in results.iter().enumerate() {
            let what = format!("{collective:?} of {dims:?}, process {rank} of {processes}");
            assert_eq!(y.as_slice::<f64>().unwrap(), ys[rank], "{what}");
            assert_eq!(slope.as_slice::<f64>().unwrap(), slopes[rank], "{what}");
        }
    }
}

#[test]
fn reductions_have_all_types() {
    let arrays: Vec<HostArray> = [[3i32, -7], [5, 2]]
        .map(|values| HostArray::from_slice(&values, [2]).unwrap())
        .into();
    for (kind, expected) in [
        (Reduction::Sum, [8, -5]),
        (Reduction::Product, [15, -14]),
        (Reduction::Min, [3, -7]),
        (Reduction::Max, [5, 2]),
    ] {
        let results = run(EXECUTORS[0], 1, &arrays, move |_, x| {
            let half = x.convert(halite_core::DType::Bf16);
            [
                x.all_reduce(kind, "process"),
                half.all_reduce(kind, "process"),
            ]
        });
        for [whole, half] in results {
            assert_eq!(whole.as_slice::<i32>().unwrap(), expected);
            let half = half.as_slice::<half::bf16>().unwrap();
            assert_eq!(
                half,
                expected.map(|value| half::bf16::from_f32(value as f32))
            );
        }
    }
}

/// The errors of two processes, each of which launches programs with exchanges on `x`.
fn errors_of_launches(
    launch: impl Fn(usize, &dyn Fn(f64) -> Result<()>) -> Result<()> + Sync,
) -> Vec<String> {
    let of_process = |process: ThreadProcess| -> Result<()> {
        let client = EXECUTORS[0](1).open()?;
        let mesh = Arc::new(Mesh::new([("data", 1)], client.local_devices())?);
        let rank = halite_core::Collective::rank(&process);
        let group: Arc<dyn ProcessGroup> = Arc::new(process);
        let processes = Processes::new(&group, &mesh, Duration::from_secs(2))?;
        let x = Array::scalar(&client, 1f32)?;
        let programs = [1.0, 2.0].map(|factor| {
            let all = processes.clone();
            let program = jit(&client, move |cx, [x]| {
                cx.set_processes(&all, x);
                [x.all_reduce(Reduction::Sum, "process") * factor]
            });
            (factor, program.on(&mesh))
        });
        launch(rank, &|factor| {
            let (_, program) = (programs.iter())
                .find(|(known, _)| *known == factor)
                .expect("one of the factors");
            // Not read: an exchange may wait.
            program.run([&x]).map(drop)
        })
    };
    thread::scope(|scope| {
        let all = ThreadProcess::group(2).into_iter();
        let all: Vec<_> = all
            .map(|process| scope.spawn(|| of_process(process)))
            .collect();
        let errors = all.into_iter().map(|one| one.join().unwrap().unwrap_err());
        errors.map(|error| error.to_string()).collect()
    })
}

#[test]
fn other_program_is_refused_before_its_launch() {
    let started = Instant::now();
    let errors = errors_of_launches(|rank, launch| launch(1.0 + rank as f64));
    for error in errors {
        let expected = "processes launch different programs that exchange values";
        assert!(error.contains(expected), "{error}");
        for rank in 0..2 {
            let line = format!("process {rank} launches `");
            assert!(error.contains(&line), "{error}");
        }
        assert!(
            error.contains("train/tests/processes/operations.rs:"),
            "{error}"
        );
    }
    assert!(started.elapsed() < Duration::from_secs(30), "it waited");
}

#[test]
fn launch_of_one_process_alone_is_noticed() {
    let errors = errors_of_launches(|rank, launch| {
        launch(1.0)?;
        if rank == 0 {
            launch(1.0)?;
        }
        launch(2.0)
    });
    for error in errors {
        assert!(error.contains("as number 2 (digest"), "{error}");
        assert!(error.contains("as number 3 (digest"), "{error}");
    }
}
