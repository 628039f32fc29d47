//! The verdict on each element of a result.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use halite_core::{DType, HostArray};

use crate::edge_values::{
    compare::{Element, epsilon},
    differences::{Allow, Difference, STAY, default_ulps},
    job::{Executor, Job, Part},
    table::Form,
};

/// An executor, a row, function or gradient, and the type of the result.
type Measured = (Executor, &'static str, &'static str, DType);

/// What a campaign has found.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Results, and elements of them, that were compared.
    pub(crate) results: AtomicUsize,
    pub(crate) elements: AtomicUsize,
    /// Largest distance that was accepted without a difference, by executor, row, part and type.
    apart: Mutex<BTreeMap<Measured, u64>>,
    /// Differences of the table that something needed, by number.
    pub(crate) used: Mutex<BTreeSet<usize>>,
    /// A line for each result that is wrong.
    pub(crate) wrong: Mutex<Vec<String>>,
}

impl Report {
    /// Prints what was compared, and how far results were apart within the general limits.
    pub(crate) fn print(&self) {
        let (results, elements) = (&self.results, &self.elements);
        println!(
            "{} results with {} elements; largest distances in units in the last place:",
            results.load(Ordering::Relaxed),
            elements.load(Ordering::Relaxed)
        );
        let mut lines = BTreeMap::<_, Vec<String>>::new();
        for ((executor, row, kind, dtype), most) in self.apart.lock().unwrap().iter() {
            if *most > 0 {
                let line = lines.entry((*executor, *kind, *dtype)).or_default();
                line.push(format!("{row} {most}"));
            }
        }
        for ((executor, kind, dtype), rows) in lines {
            println!("{executor}, {kind}, {dtype}: {}", rows.join(", "));
        }
    }

    pub(crate) fn wrong(&self, line: String) {
        // At once, since a long campaign may be interrupted.
        println!("{line}");
        self.wrong.lock().unwrap().push(line);
    }
}

/// Comparison of one result.
pub(crate) struct Judge<'a> {
    pub(crate) job: &'a Job,
    pub(crate) part: &'a Part,
    pub(crate) executor: Executor,
    pub(crate) inputs: Vec<Vec<Element>>,
    /// What the oracle gives.
    pub(crate) oracle: &'a HostArray,
    /// What is expected if subnormal inputs are zeros.
    pub(crate) flushed: &'a HostArray,
}

impl Judge<'_> {
    pub(crate) fn compare(&self, got: &HostArray, expected: &HostArray, report: &Report) {
        let (row, part) = (self.part.0.name, self.part.1.as_str());
        report.results.fetch_add(1, Ordering::Relaxed);
        report
            .elements
            .fetch_add(got.ty().elements(), Ordering::Relaxed);
        if got.ty() != expected.ty() {
            let line = format!("{self}: is {}, expected {}", got.ty(), expected.ty());
            return report.wrong(line);
        }
        let (most, wrong) = self.wrong_elements(got, expected, report);
        let kind = if part.starts_with("grad") {
            "gradient"
        } else {
            "function"
        };
        let key = (self.executor, row, kind, got.ty().dtype());
        let mut apart = report.apart.lock().unwrap();
        let entry = apart.entry(key).or_default();
        *entry = most.max(*entry);
        if let Some(&(first, ..)) = wrong.first() {
            let some: Vec<String> = wrong.iter().take(6).map(|w| self.describe(w)).collect();
            let line = format!(
                "{self}: {} of {} wrong, first at {first}: {}",
                wrong.len(),
                got.ty().elements(),
                some.join("; ")
            );
            report.wrong(line);
        }
    }

    /// The largest distance within the general limit, and the elements that are wrong: place,
    /// result and what is expected.
    fn wrong_elements(
        &self,
        got: &HostArray,
        expected: &HostArray,
        report: &Report,
    ) -> (u64, Vec<(usize, Element, Element)>) {
        let (row, part, dtype) = (self.part.0.name, &self.part.1, self.job.dtype);
        // Drawn inputs find rarer roundings.
        let times = if self.job.drawn.is_some() { 4 } else { 1 };
        let ulps = times * default_ulps(row, part, got.ty().dtype(), self.executor);
        let allowed: Vec<(usize, &Difference)> = STAY
            .iter()
            .enumerate()
            .filter(|(_, all)| all.concerns(row, part, dtype, self.executor))
            .collect();
        let (mut most, mut wrong) = (0, Vec::new());
        let elements = [expected, self.flushed, self.oracle].map(Element::all);
        for (at, got) in Element::all(got).into_iter().enumerate() {
            let [mut expected, flushed, oracle] = [0, 1, 2].map(|of| elements[of][at]);
            if self.is_without_limits(at) {
                expected = oracle;
            }
            let allows = |(_, by): &&(usize, &Difference)| self.allows(by, at, got, expected);
            match got.apart(expected) {
                None if self.has_any_zero() && got.is_zero() && expected.is_zero() => {}
                Some(apart) if apart <= ulps => most = most.max(apart),
                _ if self.is_flushed(got, [expected, flushed], ulps) => {}
                _ if self.is_rounded(at, got, expected) => {}
                _ => match allowed.iter().find(allows) {
                    Some((number, _)) => {
                        report.used.lock().unwrap().insert(*number);
                    }
                    None => wrong.push((at, got, expected)),
                },
            }
        }
        (most, wrong)
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
            Allow::DividedByItself => self.operands(at)[0].is_zero() && got.value() == 1.0,
            Allow::SignOfInfinity => got.value().is_infinite() && expected.value().is_infinite(),
            Allow::Largest => self.operands(at).into_iter().any(Element::is_large),
            Allow::Infinite => {
                let operands = self.operands(at).into_iter();
                operands.into_iter().any(|it| it.value().is_infinite())
            }
            Allow::Subnormal => {
                let operands = self.operands(at);
                expected.is_subnormal() || operands.into_iter().any(Element::is_tiny)
            }
        }
    }

    /// Whether it is off by the rounding of the steps of a reduction over elements that were drawn,
    /// which cancel: the limit is relative to the largest of them and to its square. A step of a
    /// gradient may overflow where an element is that large.
    fn is_rounded(&self, at: usize, got: Element, expected: Element) -> bool {
        if self.job.drawn.is_none() {
            return false;
        }
        let is_gradient = self.part.1.starts_with("grad");
        if is_gradient && self.operands(at).into_iter().any(Element::is_large) {
            return true;
        }
        if self.job.form != Form::Rows {
            return false;
        }
        let values = self.operands(at).into_iter().map(|x| x.value().abs());
        let largest = values.filter(|x| x.is_finite()).fold(1.0, f64::max);
        let scale = (largest * largest).max(expected.value().abs());
        let steps = (64 + self.job.size) as f64;
        (got.value() - expected.value()).abs() <= steps * epsilon(got.dtype) * scale
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
        matches!(self.job.form, Form::Rows | Form::Cubes) || self.part.1.starts_with("grad")
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
            _ => {
                let inputs = self.inputs.iter().filter(|input| !input.is_empty());
                inputs.map(|input| input[at % input.len()]).collect()
            }
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
