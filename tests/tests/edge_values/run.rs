//! Programs of many rows, their results on each executor, and the verdict on each element.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use halite_core::{
    Client, DType, HostArray,
    tree::{Leaf, Tree},
};
use halite_ir::{Literal, Op};
use halite_nn::{Tensor, Trace, vjp};
use halite_reference::{Mode, Options, Reference};
use halite_tests::{
    eval::{client, try_eval_on},
    golden::read_file,
};

use crate::{
    compare::{Element, epsilon},
    differences::{Allow, Difference, all as differences, default_ulps},
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
    fn client(self) -> &'static Client {
        let reference = |mode| {
            let options = Options {
                mode,
                threads: 1,
                ..Options::default()
            };
            Client::new(Reference::new(&options).expect("an executor of one device"))
        };
        static EMBEDDED: OnceLock<Client> = OnceLock::new();
        static ORACLE: OnceLock<Client> = OnceLock::new();
        match self {
            Executor::Cpu => client(),
            Executor::Embedded => EMBEDDED.get_or_init(|| reference(Mode::Fast)),
            Executor::Oracle => ORACLE.get_or_init(|| reference(Mode::Oracle)),
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
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/edge_values/reference");
        read_file(&folder.join("golden.safetensors"))
    })
}

/// Rows of one form and one element type, as one program.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) rows: Vec<&'static Row>,
    pub(crate) form: Form,
    pub(crate) dtype: DType,
    /// The last dimension of [`Form::Rows`].
    pub(crate) size: usize,
    /// What it is run on.
    pub(crate) on: Vec<Executor>,
}

/// A result of a program: of a row, named `out0`, `out1`, .. or `grad0`, ...
type Part = (&'static Row, String);

/// What a campaign has found.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Results, and elements of them, that were compared.
    pub(crate) results: AtomicUsize,
    pub(crate) elements: AtomicUsize,
    /// Largest distance that was accepted without a difference, by executor, row, part and type.
    pub(crate) apart: Mutex<BTreeMap<(Executor, &'static str, &'static str, DType), u64>>,
    /// Differences of the table that something needed, by number.
    pub(crate) used: Mutex<BTreeSet<usize>>,
    /// A line for each result that is wrong.
    pub(crate) wrong: Mutex<Vec<String>>,
}

impl Job {
    fn place(&self) -> String {
        self.form.place(self.dtype, self.size)
    }

    /// The inputs in the golden file.
    pub(crate) fn inputs(&self) -> Vec<HostArray> {
        let name = |index| format!("in/{}/{index}", self.place());
        (0..)
            .map_while(|index| golden().get(&name(index)).cloned())
            .collect()
    }

    /// The rows that accept these inputs, and the results that they have.
    fn parts(&self, inputs: &[HostArray]) -> (Vec<&'static Row>, Vec<Part>) {
        let (mut rows, mut parts) = (Vec::new(), Vec::new());
        for &row in &self.rows {
            let cx = Trace::new();
            let given: Vec<Tensor<'_>> = inputs
                .iter()
                .map(|input| cx.input(input.ty().clone(), "x"))
                .collect();
            let outputs = (row.build)(&given);
            let gradients = gradients(row, &given, &outputs);
            if cx.check().is_err() {
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

    /// Runs the program on `executor`.
    fn results(
        &self,
        executor: Executor,
        rows: &[&'static Row],
        inputs: &[HostArray],
    ) -> halite_core::Result<Vec<HostArray>> {
        let rows = rows.to_vec();
        try_eval_on(
            executor.client(),
            move |_, given| every_result(&rows, given),
            inputs,
        )
    }

    /// Runs the program on each of its executors, and compares the results with the golden ones, or
    /// with those of the oracle where there are none.
    pub(crate) fn run(&self, report: &Report) {
        let inputs = self.inputs();
        let (rows, parts) = self.parts(&inputs);
        let results = |executor| {
            let start = Instant::now();
            let results = self.results(executor, &rows, &inputs);
            if std::env::var_os(TIMES).is_some() {
                println!(
                    "{:.2} s on {executor}: {self}",
                    start.elapsed().as_secs_f64()
                );
            }
            results.unwrap_or_else(|error| panic!("{self}on {executor}: {error}"))
        };
        if rows.is_empty() {
            return;
        }
        let oracle = results(Executor::Oracle);
        for &executor in &self.on {
            let results = match executor {
                Executor::Oracle => oracle.clone(),
                _ => results(executor),
            };
            for ((part, got), oracle) in parts.iter().zip(&results).zip(&oracle) {
                let key = format!("{}/{}/{}", part.0.name, self.place(), part.1);
                let expected = golden().get(&key).unwrap_or(oracle);
                let judge = Judge {
                    job: self,
                    part,
                    executor,
                    inputs: inputs.iter().map(Element::all).collect(),
                    oracle,
                    flushed: golden().get(&format!("{key}/flushed")).unwrap_or(expected),
                };
                judge.compare(got, expected, report);
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
        write!(f, "{few} of {} ", self.place())
    }
}

fn every_result<'t>(rows: &[&Row], given: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
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

/// Comparison of one result.
struct Judge<'a> {
    job: &'a Job,
    part: &'a Part,
    executor: Executor,
    inputs: Vec<Vec<Element>>,
    /// What the oracle gives.
    oracle: &'a HostArray,
    /// What is expected if subnormal inputs are zeros.
    flushed: &'a HostArray,
}

impl Judge<'_> {
    fn compare(&self, got: &HostArray, expected: &HostArray, report: &Report) {
        let (row, part) = (self.part.0.name, self.part.1.as_str());
        report.results.fetch_add(1, Ordering::Relaxed);
        report
            .elements
            .fetch_add(got.ty().elements(), Ordering::Relaxed);
        if got.ty() != expected.ty() {
            let line = format!("{self}: is {}, expected {}", got.ty(), expected.ty());
            return report.wrong.lock().unwrap().push(line);
        }
        let dtype = got.ty().dtype();
        let ulps = default_ulps(dtype, part);
        let allowed: Vec<(usize, &Difference)> = differences()
            .enumerate()
            .filter(|(_, all)| all.concerns(row, part, self.job.dtype, self.executor))
            .collect();
        let (mut most, mut wrong) = (0, Vec::new());
        let elements = [got, expected, self.flushed, self.oracle].map(Element::all);
        for at in 0..elements[0].len() {
            let [got, mut expected, flushed, oracle] = [0, 1, 2, 3].map(|of| elements[of][at]);
            if self.is_without_limits(at) {
                expected = oracle;
            }
            match got.apart(expected) {
                None if self.has_any_zero() && got.is_zero() && expected.is_zero() => {}
                Some(apart) if apart <= ulps => most = most.max(apart),
                _ if self.is_flushed(got, [expected, flushed], ulps) => {}
                _ => match allowed
                    .iter()
                    .find(|(_, all)| self.allows(all, at, got, expected))
                {
                    Some((number, _)) => {
                        report.used.lock().unwrap().insert(*number);
                    }
                    None => wrong.push((at, got, expected)),
                },
            }
        }
        let kind = if part.starts_with("grad") {
            "gradient"
        } else {
            "function"
        };
        let mut apart = report.apart.lock().unwrap();
        let entry = apart.entry((self.executor, row, kind, dtype)).or_default();
        *entry = most.max(*entry);
        if let Some(&(first, ..)) = wrong.first() {
            let some: Vec<String> = wrong.iter().take(6).map(|w| self.describe(w)).collect();
            let line = format!(
                "{self}: {} of {} wrong, first at {first}: {}",
                wrong.len(),
                elements[0].len(),
                some.join("; ")
            );
            report.wrong.lock().unwrap().push(line);
        }
    }

    /// Whether it is right for a processor that takes subnormal numbers as zeros.
    fn is_flushed(&self, got: Element, expected: [Element; 2], ulps: u64) -> bool {
        let near = |expected: Element| {
            let flushed = expected.flushed();
            got.apart(flushed).is_some_and(|apart| apart <= ulps)
                || (got.flushed().is_zero() && flushed.is_zero())
        };
        self.executor == Executor::Cpu && expected.into_iter().any(near)
    }

    fn allows(&self, by: &Difference, at: usize, got: Element, expected: Element) -> bool {
        let apart = got.apart(expected);
        match by.allow {
            Allow::Ulps(most) => apart.is_some_and(|apart| apart <= most),
            Allow::Epsilons(most) => {
                (got.value() - expected.value()).abs() <= most * epsilon(got.dtype)
            }
            Allow::SignOfZero => got.is_zero() && expected.is_zero(),
            Allow::SignOfInfinity => got.value().is_infinite() && expected.value().is_infinite(),
            Allow::Largest => self.operands(at).into_iter().any(Element::is_large),
            Allow::NotFinite => self.operands(at).iter().any(|x| !x.value().is_finite()),
            Allow::Subnormal => {
                let operands = self.operands(at);
                expected.is_subnormal() || operands.into_iter().any(Element::is_tiny)
            }
            Allow::Known(_) => true,
        }
    }

    /// Whether the reference leaves it open: gradients of rows that are not finite, which mix what
    /// all elements of the row are. The executors must agree.
    fn is_without_limits(&self, at: usize) -> bool {
        self.job.form == Form::Rows
            && self.part.1.starts_with("grad")
            && self.operands(at).iter().any(|x| !x.value().is_finite())
    }

    /// Whether the sign of a zero is left open: in gradients, and where elements are combined.
    fn has_any_zero(&self) -> bool {
        self.job.form == Form::Rows || self.part.1.starts_with("grad")
    }

    /// The elements of the inputs that an element of the result depends on.
    fn operands(&self, at: usize) -> Vec<Element> {
        match self.job.form {
            Form::Rows => {
                let size = self.job.size;
                let patterns = self.inputs[0].len() / size.max(1);
                let each = (self.oracle.ty().elements() / patterns.max(1)).max(1);
                let start = (at / each * size).min(self.inputs[0].len() - size);
                self.inputs[0][start..start + size].to_vec()
            }
            _ => self
                .inputs
                .iter()
                .map(|input| input[at % input.len()])
                .collect(),
        }
    }

    fn describe(&self, (at, got, expected): &(usize, Element, Element)) -> String {
        let mut operands: Vec<String> = self.operands(*at).iter().map(|x| x.to_string()).collect();
        operands.truncate(6);
        let apart = got.apart(*expected);
        let apart = apart.map_or(String::new(), |ulps| format!(" ({ulps} ulps)"));
        format!(
            "[{}] gives {got}, expected {expected}{apart}",
            operands.join(" ")
        )
    }
}

impl fmt::Display for Judge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (row, part) = (self.part.0.name, &self.part.1);
        write!(f, "{} {row} {part} of {}", self.executor, self.job.place())
    }
}
