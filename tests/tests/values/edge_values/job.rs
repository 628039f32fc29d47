//! Programs of many rows, and their results on each executor.

use std::{collections::BTreeMap, fmt, path::Path, sync::OnceLock, time::Instant};

use halite_core::{
    Client, DType, HostArray, TensorType,
    tree::{Leaf, Tree},
};
use halite_embedded::{Embedded, Mode, Options};
use halite_ir::{Literal, Op};
use halite_nn::{Tensor, Trace, vjp};
use halite_tests::{
    combinations::recorded,
    eval::{client, try_eval_on},
    golden::read_file,
};

use crate::edge_values::{
    compare::{Element, flushed},
    judge::{Judge, Report},
    table::{Form, Row},
};

/// Environment variable that makes the campaign print how long each program takes.
const TIMES: &str = "HALITE_EDGE_VALUES_TIMES";

/// What runs a program.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Executor {
    /// XLA's CPU plugin.
    Cpu,
    /// The embedded executor.
    Embedded,
    /// The embedded executor without kernels, which computes in `f64`.
    Oracle,
}

impl Executor {
    pub(crate) fn client(self) -> &'static Client {
        let executor = |mode| {
            let options = Options {
                mode,
                threads: 1,
                ..Options::default()
            };
            let client = Client::new(Embedded::new(&options).expect("an executor of one device"));
            recorded(client, &self.to_string())
        };
        static EMBEDDED: OnceLock<Client> = OnceLock::new();
        static ORACLE: OnceLock<Client> = OnceLock::new();
        match self {
            Executor::Cpu => client(),
            Executor::Embedded => EMBEDDED.get_or_init(|| executor(Mode::Fast)),
            Executor::Oracle => ORACLE.get_or_init(|| executor(Mode::Oracle)),
        }
    }
}

impl fmt::Display for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Executor::Cpu => "cpu",
            Executor::Embedded => "embedded",
            Executor::Oracle => "oracle",
        })
    }
}

/// Inputs and expected results, by name.
pub(crate) fn golden() -> &'static BTreeMap<String, HostArray> {
    static GOLDEN: OnceLock<BTreeMap<String, HostArray>> = OnceLock::new();
    GOLDEN.get_or_init(|| {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/values/edge_values/reference");
        read_file(&folder.join("golden.safetensors"))
    })
}

/// Rows of one form and one element type, as one program.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) rows: Vec<&'static Row>,
    pub(crate) form: Form,
    pub(crate) dtype: DType,
    /// The last dimension of [`Form::Rows`] and [`Form::Cubes`].
    pub(crate) size: usize,
    /// What it is run on.
    pub(crate) on: Vec<Executor>,
    /// Inputs that were drawn; without them, those of the golden file.
    pub(crate) drawn: Option<Vec<HostArray>>,
}

/// A result of a program: of a row, named `out0`, `out1`, .. or `grad0`, ...
pub(crate) type Part = (&'static Row, String);

impl Job {
    pub(crate) fn place(&self) -> String {
        self.form.place(self.dtype, self.size)
    }

    /// The inputs in the golden file, or those that were drawn.
    fn inputs(&self) -> Vec<HostArray> {
        if let Some(drawn) = &self.drawn {
            return drawn.clone();
        }
        if self.form == Form::Cubes && self.size == 0 {
            let ty = TensorType::new(self.dtype, [4, 6, 0]);
            return vec![HostArray::zeros(ty)];
        }
        let name = |index| format!("in/{}/{index}", self.place());
        (0..)
            .map_while(|index| golden().get(&name(index)).cloned())
            .collect()
    }

    /// A result in the golden file.
    fn golden(&self, part: &Part, kind: &str) -> Option<&'static HostArray> {
        let key = format!("{}/{}/{}{kind}", part.0.name, self.place(), part.1);
        golden().get(&key).filter(|_| self.drawn.is_none())
    }

    /// The rows that accept these inputs, and the results that they have.
    fn parts(&self, inputs: &[HostArray], report: &Report) -> (Vec<&'static Row>, Vec<Part>) {
        let (mut rows, mut parts) = (Vec::new(), Vec::new());
        for &row in &self.rows {
            let cx = Trace::new();
            let given: Vec<Tensor<'_>> = inputs
                .iter()
                .map(|input| cx.input(input.ty().clone(), "x"))
                .collect();
            let outputs = (row.build)(&given);
            let gradients = gradients(row, &given, &outputs);
            if let Err(error) = cx.check() {
                // An empty dimension may be refused, as the reference says.
                if self.size > 0 || self.golden(&(row, "out0".to_owned()), "").is_some() {
                    report.wrong(format!("{} of {}: {error}", row.name, self.place()));
                }
                continue;
            }
            let named = |name: &'static str| move |index: usize| (row, format!("{name}{index}"));
            rows.push(row);
            parts.extend((0..outputs.len()).map(named("out")));
            let wanted = row.gradients.iter().copied().take(gradients.len());
            parts.extend(wanted.map(named("grad")));
        }
        (rows, parts)
    }

    /// Runs the program on `executor`; nothing if it fails.
    fn results(
        &self,
        executor: Executor,
        rows: &[&'static Row],
        inputs: &[HostArray],
        report: &Report,
    ) -> Vec<HostArray> {
        let (start, rows) = (Instant::now(), rows.to_vec());
        let results = try_eval_on(
            executor.client(),
            move |_, given| every_result(&rows, given),
            inputs,
        );
        if std::env::var_os(TIMES).is_some() {
            let seconds = start.elapsed().as_secs_f64();
            println!("{seconds:.2} s on {executor}: {self}");
        }
        results.unwrap_or_else(|error| {
            report.wrong(format!("{self} on {executor}: {error}"));
            Vec::new()
        })
    }

    /// Runs the program on each of its executors, and compares the results with the golden ones, or
    /// with those of the oracle where there are none.
    pub(crate) fn run(&self, report: &Report) {
        let inputs = self.inputs();
        let (rows, parts) = self.parts(&inputs, report);
        if rows.is_empty() {
            return;
        }
        let results = |executor, inputs: &[_]| self.results(executor, &rows, inputs, report);
        let oracle = results(Executor::Oracle, &inputs);
        let without_subnormal = match self.drawn {
            Some(_) => results(Executor::Oracle, &flushed(&inputs)),
            None => oracle.clone(),
        };
        for &executor in &self.on {
            let results = match executor {
                Executor::Oracle => oracle.clone(),
                _ => results(executor, &inputs),
            };
            for (at, (part, got)) in parts.iter().zip(&results).enumerate() {
                let Some(oracle) = oracle.get(at) else { break };
                let golden = self.golden(part, "");
                let flushed = self.golden(part, "/flushed").or(golden);
                let judge = Judge {
                    job: self,
                    part,
                    executor,
                    inputs: inputs.iter().map(Element::all).collect(),
                    oracle,
                    flushed: flushed.unwrap_or(&without_subnormal[at]),
                };
                judge.compare(got, golden.unwrap_or(oracle), report);
            }
        }
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.rows.iter().map(|row| row.name).collect();
        let few = if names.len() > 3 {
            "many"
        } else {
            &names.join(", ")
        };
        write!(f, "{few} of {}", self.place())
    }
}

pub(crate) fn every_result<'t>(rows: &[&Row], given: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
    let mut all = Vec::new();
    for row in rows {
        let outputs = (row.build)(given);
        all.extend(&outputs);
        all.extend(gradients(row, given, &outputs));
    }
    all
}

/// Gradients of the first output.
fn gradients<'t>(row: &Row, given: &[Tensor<'t>], outputs: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
    let wrt: Vec<Leaf<Tensor<'t>>> = row.gradients.iter().map(|&at| Leaf(given[at])).collect();
    let first = outputs[0];
    if wrt.is_empty() || !first.dtype().is_float() || first.is_error() {
        return vec![];
    }
    vjp(&[first], &[cotangent(first)], &wrt).into_leaves()
}

/// As in `reference/make.py`: not 0 anywhere, and not the same everywhere.
fn cotangent(output: Tensor<'_>) -> Tensor<'_> {
    let ty = output.ty();
    let values: Vec<f64> = (0..ty.elements())
        .map(|index| (37 * index % 101 + 1) as f64 / 64.0)
        .collect();
    let literal = Literal::new(&values, ty.dims()).expect("a value for each element");
    let cx = output.trace();
    cx.push_one(Op::Constant(literal), &[]).convert(ty.dtype())
}
