//! Every collective between processes and its gradient, against plain loops, over random groups,
//! sizes and types. `HALITE_COLLECTIVES` is the number of cases, `HALITE_COLLECTIVES_SEED` the seed of
//! the first.

use std::{
    env,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use halite_core::{
    Array, DType, HostArray, Mesh, PartitionSpec, ProcessGroup, Result, Sharding, ThreadProcess,
    tree::Leaf,
};
use halite_ir::{Literal, Op, Reduction};
use halite_nn::{Manual, Processes, Tensor, Trace, grad, jit};

use super::{EXECUTORS, Open};

const SOON: Duration = Duration::from_secs(60);

/// Types of the elements that are sent.
const TYPES: [DType; 12] = [
    DType::F64,
    DType::F32,
    DType::Bf16,
    DType::F16,
    DType::S8,
    DType::S16,
    DType::S32,
    DType::S64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
];

/// A collective over the processes.
#[derive(Clone, Copy, Debug)]
enum Collective {
    AllReduce(Reduction),
    ReduceScatter { dim: usize },
    AllGather { dim: usize },
    Broadcast { root: usize },
}

impl Collective {
    fn of(self, x: Tensor<'_>) -> Tensor<'_> {
        match self {
            Collective::AllReduce(kind) => x.all_reduce(kind, "process"),
            Collective::ReduceScatter { dim } => {
                x.reduce_scatter(Reduction::Sum, dim as i64, "process")
            }
            Collective::AllGather { dim } => x.all_gather(dim as i64, "process"),
            Collective::Broadcast { root } => x.process_broadcast(root),
        }
    }

    /// Dimension along which the elements of a process are divided or joined.
    fn dim(self) -> usize {
        match self {
            Collective::ReduceScatter { dim } | Collective::AllGather { dim } => dim,
            Collective::AllReduce(_) | Collective::Broadcast { .. } => 0,
        }
    }

    /// Calls `each` with every element of every process that goes into an element of a process, both
    /// as process and index.
    fn each(
        self,
        dims: [usize; 2],
        processes: usize,
        mut each: impl FnMut([usize; 2], [usize; 2]),
    ) {
        let [rows, columns] = dims;
        for from in 0..processes {
            for to in 0..processes {
                for index in 0..rows * columns {
                    let (row, column) = (index / columns, index % columns);
                    let target = match self {
                        Collective::AllReduce(_) => Some(index),
                        Collective::Broadcast { root } => (root == from).then_some(index),
                        Collective::ReduceScatter { dim: 0 } => {
                            let part = rows / processes;
                            (row / part == to).then(|| row % part * columns + column)
                        }
                        Collective::ReduceScatter { .. } => {
                            let part = columns / processes;
                            (column / part == to).then(|| row * part + column % part)
                        }
                        Collective::AllGather { dim: 0 } => {
                            Some((from * rows + row) * columns + column)
                        }
                        Collective::AllGather { .. } => {
                            Some((row * processes + from) * columns + column)
                        }
                    };
                    if let Some(target) = target {
                        each([from, index], [to, target]);
                    }
                }
            }
        }
    }

    fn fold(self, one: f64, other: f64) -> f64 {
        match self {
            Collective::AllReduce(Reduction::Product) => one * other,
            Collective::AllReduce(Reduction::Min) => one.min(other),
            Collective::AllReduce(Reduction::Max) => one.max(other),
            _ => one + other,
        }
    }

    /// The results of all processes.
    fn results(self, dims: [usize; 2], xs: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let length = self.result_len(dims, xs.len());
        let mut ys = vec![vec![None; length]; xs.len()];
        self.each(dims, xs.len(), |[from, x], [to, y]| {
            let (x, y) = (xs[from][x], &mut ys[to][y]);
            *y = Some(y.map_or(x, |y| self.fold(y, x)));
        });
        let value = |y: Option<f64>| y.expect("every result has an operand");
        (ys.into_iter())
            .map(|ys| ys.into_iter().map(value).collect())
            .collect()
    }

    fn result_len(self, dims: [usize; 2], processes: usize) -> usize {
        let elements = dims[0] * dims[1];
        match self {
            Collective::AllReduce(_) | Collective::Broadcast { .. } => elements,
            Collective::ReduceScatter { .. } => elements / processes,
            Collective::AllGather { .. } => elements * processes,
        }
    }
}

/// Numbers from a seed.
struct Draw(u64);

impl Draw {
    /// A number below `end` (SplitMix64).
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// A collective in a program of several processes.
#[derive(Clone, Debug)]
struct Case {
    collective: Collective,
    /// Dimensions of the operand.
    dims: [usize; 2],
    dtype: DType,
    processes: usize,
    /// Devices of each process.
    devices: usize,
    /// Whether each device exchanges a part of the other dimension, in a manual region.
    manual: bool,
    executor: usize,
}

impl Case {
    fn draw(draw: &mut Draw) -> Self {
        let processes = 1 + draw.below(8);
        let devices = 1 + draw.below(8 / processes);
        let dim = draw.below(2);
        let kinds = [
            Reduction::Sum,
            Reduction::Product,
            Reduction::Min,
            Reduction::Max,
        ];
        let (root, kind) = (draw.below(processes), draw.one_of(&kinds));
        let collective = draw.one_of(&[
            Collective::AllReduce(kind),
            Collective::ReduceScatter { dim },
            Collective::AllGather { dim },
            Collective::Broadcast { root },
        ]);
        let manual = draw.below(3) == 0;
        let mut dims = [draw.one_of(&[0, 1, 2, 3, 7]), draw.one_of(&[1, 1, 5, 401])];
        if draw.below(2) == 0 {
            dims.reverse();
        }
        if let Collective::ReduceScatter { dim } = collective {
            dims[dim] *= processes;
        }
        if manual {
            dims[1 - collective.dim()] *= devices;
        }
        Case {
            collective,
            dims,
            dtype: draw.one_of(&TYPES),
            processes,
            devices,
            manual,
            executor: draw.below(2),
        }
    }

    /// Whether the collective has a gradient.
    fn has_gradient(&self) -> bool {
        let is_linear = match self.collective {
            Collective::AllReduce(kind) => kind == Reduction::Sum,
            _ => true,
        };
        is_linear && self.dtype.is_float()
    }

    /// The elements of a process: every reduction of eight of them is exact in every type.
    fn elements(&self, rank: usize, draw: &mut Draw) -> Vec<f64> {
        let is_product = matches!(self.collective, Collective::AllReduce(Reduction::Product));
        let is_signed = self.dtype.is_float() || self.dtype.is_signed_integer();
        let mut element = || match draw.below(7) as f64 {
            x if is_product && rank < 6 => 1.0 + x % 2.0,
            _ if is_product => 1.0,
            x if is_signed => x - 3.0,
            x => x,
        };
        (0..self.dims[0] * self.dims[1])
            .map(|_| element())
            .collect()
    }

    /// The collective in a program.
    fn of<'t>(&self, cx: &'t Trace, x: Tensor<'t>) -> Tensor<'t> {
        let x = x.convert(self.dtype);
        if !self.manual {
            return self.collective.of(x);
        }
        let processes = cx.processes().expect("a job of processes");
        let mut spec = [None, None];
        spec[1 - self.collective.dim()] = Some("data");
        let spec = PartitionSpec::new(spec.map(|axis| axis.into_iter().collect::<Vec<_>>()));
        let mesh = Manual::over(processes.local_mesh());
        let (given, taken) = ([spec.clone()], [spec]);
        cx.shard_map(mesh, &[x], &given, &taken, |x| {
            vec![self.collective.of(x[0])]
        })[0]
    }

    fn check(&self, draw: &mut Draw) {
        let processes = self.processes;
        let xs: Vec<Vec<f64>> = (0..processes)
            .map(|rank| self.elements(rank, draw))
            .collect();
        let ys = self.collective.results(self.dims, &xs);
        let cotangent: Vec<f64> = ys[0].iter().map(|_| draw.below(7) as f64 - 3.0).collect();
        let mut slopes = vec![vec![0.0; xs[0].len()]; processes];
        self.collective
            .each(self.dims, processes, |[from, x], [to, y]| {
                slopes[from][x] += cotangent[y] * (1 + to) as f64;
            });
        let arrays: Vec<HostArray> = xs
            .iter()
            .map(|x| HostArray::from_slice(x, self.dims).unwrap())
            .collect();
        let case = self.clone();
        let open = EXECUTORS[self.executor];
        let results = run(open, self.devices, &arrays, move |cx, x| {
            let y = case.of(cx, x).convert(DType::F64);
            if !case.has_gradient() {
                return [y, y];
            }
            let weights = Op::Constant(Literal::new(&cotangent, y.dims()).unwrap());
            let rank = cx.process_index().convert(y.dtype()) + 1.0;
            let loss = (y * cx.push_one(weights, &[]) * rank).sum_all();
            let Leaf(slope) = grad(loss, &Leaf(x));
            [y, slope]
        });
        for (rank, [y, slope]) in results.iter().enumerate() {
            assert_eq!(y.as_slice::<f64>().unwrap(), ys[rank], "process {rank}");
            if self.has_gradient() {
                let slope = slope.as_slice::<f64>().unwrap();
                assert_eq!(slope, slopes[rank], "gradient of process {rank}");
            }
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

fn setting(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().expect(name))
}

#[test]
fn collectives_equal_plain_loops() {
    let first = setting("HALITE_COLLECTIVES_SEED", 1);
    for seed in first..first + setting("HALITE_COLLECTIVES", 8) {
        let mut draw = Draw(seed);
        let case = Case::draw(&mut draw);
        // What a failure is of.
        println!("HALITE_COLLECTIVES=1 HALITE_COLLECTIVES_SEED={seed}: {case:?}");
        case.check(&mut draw);
    }
}

/// Lengths and types of tensors that are packed into several exchanges of at most 16 MiB.
const PACKED: [(usize, DType); 7] = [
    (3_000_001, DType::F32),
    (0, DType::F32),
    (3_000_000, DType::Bf16),
    (1, DType::F64),
    (7, DType::F16),
    (1_500_000, DType::F32),
    (5_000_000, DType::F32),
];

#[test]
fn sums_in_several_buckets_are_those_of_each_tensor() {
    let number = |i: usize, rank: usize| ((i * 7 + rank * 3) % 13) as f64 - 6.0;
    let longest = PACKED.iter().map(|(length, _)| *length).max().unwrap();
    let arrays: Vec<HostArray> = (0..2)
        .map(|rank| {
            let x: Vec<f64> = (0..longest).map(|i| number(i, rank)).collect();
            HostArray::from_slice(&x, [longest]).unwrap()
        })
        .collect();
    let results = run(EXECUTORS[0], 2, &arrays, |cx, x| {
        let parts = PACKED.map(|(length, dtype)| x.slice_dim(0, 0..length).convert(dtype));
        let sums = cx.process_sums("parts", &parts);
        std::array::from_fn::<_, { PACKED.len() }, _>(|part| sums[part].convert(DType::F64))
    });
    for sums in results {
        for (sum, (length, dtype)) in sums.iter().zip(PACKED) {
            let sum = sum.as_slice::<f64>().unwrap();
            assert_eq!(sum.len(), length);
            let is_right = |(i, sum): (usize, &f64)| *sum == number(i, 0) + number(i, 1);
            assert!(sum.iter().enumerate().all(is_right), "{length} of {dtype}");
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
