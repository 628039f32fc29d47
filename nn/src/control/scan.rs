//! Loops with a static trip count, which have gradients.

use std::panic::Location;

use halite_core::{
    DType, TensorType,
    tree::{Empty, Tree},
};
use halite_ir::{Graph, Op};

use super::{named, valid};
use crate::{
    Tensor, Trace, context,
    context::SideOutputs,
    rng,
    trace::{Id, Region, captured},
};

/// Options of [`Trace::scan_with`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ScanOptions {
    /// Number of iterations. Defaults to the first dimension of the scanned tensors; required if
    /// there are none.
    pub length: Option<usize>,
    /// Iterates from the last slice to the first. Stacked results have the order of the slices.
    pub reverse: bool,
}

/// Attributes of [`Op::Scan`] without the body.
#[derive(Clone, Copy)]
pub(crate) struct ScanSpec {
    pub(crate) carried: usize,
    pub(crate) scanned: usize,
    pub(crate) length: usize,
    pub(crate) reverse: bool,
    pub(crate) residuals: usize,
}

/// The next carried values and the results to stack, or an error tensor.
type BodyResult<'t> = Result<(Vec<Tensor<'t>>, Vec<Tensor<'t>>), Tensor<'t>>;

/// The traced body of a scan.
struct Iteration<'t> {
    region: Region,
    /// Carried values of the next iteration.
    next: Vec<Tensor<'t>>,
    /// Results that are stacked.
    stacked: Vec<Tensor<'t>>,
    /// Metrics, and updates of states that are slices.
    side: SideOutputs,
    /// For each updated state that is a slice, the index of the scanned tensor.
    slices: Vec<usize>,
    /// States from outside that are carried, because the body updates them.
    states: Vec<Tensor<'t>>,
    /// Whether the body draws random numbers.
    draws: bool,
}

impl Trace {
    /// Runs `body` on the state and on each slice of `xs` along the first dimension, in order.
    /// Returns the last state, and the other results of all iterations stacked along a new first
    /// dimension.
    ///
    /// The program contains the body once. The types of the state's tensors stay the same. The
    /// gradient saves residuals of each iteration; [`checkpoint`](Self::checkpoint) saves fewer.
    /// [`next_key`](Self::next_key) returns other keys in each iteration.
    ///
    /// ```
    /// use halite_core::{DType, TensorType, tree::Leaf};
    /// use halite_nn::Trace;
    ///
    /// let cx = &Trace::new();
    /// let xs = cx.input(TensorType::new(DType::F32, [10, 3]), "xs");
    /// let zero = cx.full(0.0, &TensorType::new(DType::F32, [3]));
    /// let (sum, doubled) = cx.scan(Leaf(zero), Leaf(xs), |sum, x| {
    ///     let next = sum.0 + x.0;
    ///     (Leaf(next), Leaf(next * 2.0))
    /// });
    /// assert!(cx.mistakes().is_empty());
    /// assert_eq!(sum.0.ty().to_string(), "f32[3]");
    /// assert_eq!(doubled.0.ty().to_string(), "f32[10, 3]");
    /// ```
    #[track_caller]
    pub fn scan<'t, S, X, Y>(&'t self, init: S, xs: X, body: impl FnOnce(S, X) -> (S, Y)) -> (S, Y)
    where
        S: Tree<Leaf = Tensor<'t>>,
        X: Tree<Leaf = Tensor<'t>>,
        Y: Tree<Leaf = Tensor<'t>>,
    {
        self.scan_with(ScanOptions::default(), init, xs, body)
    }

    /// Like [`scan`](Self::scan), optionally in reverse, or for a number of iterations without `xs`
    /// ([`Empty`](halite_core::tree::Empty)).
    #[track_caller]
    pub fn scan_with<'t, S, X, Y>(
        &'t self,
        options: ScanOptions,
        init: S,
        xs: X,
        body: impl FnOnce(S, X) -> (S, Y),
    ) -> (S, Y)
    where
        S: Tree<Leaf = Tensor<'t>>,
        X: Tree<Leaf = Tensor<'t>>,
        Y: Tree<Leaf = Tensor<'t>>,
    {
        let location = Location::caller();
        let initial: Vec<Tensor<'t>> = init.leaves().into_iter().copied().collect();
        let scanned: Vec<Tensor<'t>> = xs.leaves().into_iter().copied().collect();
        let length = trip_count(self, "scan", options.length, &xs, location);
        let mut given = None;
        let results = scan_leaves(
            self,
            length,
            options.reverse,
            &initial,
            scanned,
            location,
            |carried, slices| {
                let (next, ys) = body(
                    init.with_leaves(carried.iter().copied()),
                    xs.with_leaves(slices.iter().copied()),
                );
                let next = super::same_types(
                    self,
                    "scan",
                    ["the initial state", "the body's result"],
                    &init,
                    &next,
                    location,
                );
                let stacked = super::usable(self, "scan", &ys, location);
                given = Some(ys);
                Ok((next?, stacked?))
            },
        );
        let ys = given.expect("the body is traced once");
        match results {
            Ok(results) => {
                let (state, stacked) = results.split_at(initial.len());
                (
                    init.with_leaves(state.iter().copied()),
                    ys.with_leaves(stacked.iter().copied()),
                )
            }
            Err(_) => {
                let stacked = |y: &Tensor<'t>| stack(&y.ty(), length.unwrap_or(0));
                let leaves = ys.leaves().into_iter();
                (
                    super::errors_like(self, &init),
                    ys.with_leaves(leaves.map(|y| self.error_like(Some(stacked(y))))),
                )
            }
        }
    }

    /// Runs `body` `count` times on the number of the iteration (an `s32` scalar, from 0) and the
    /// state; returns the last state. The types of the state's tensors stay the same. It has a
    /// gradient, like [`scan`](Self::scan).
    #[track_caller]
    pub fn repeat<'t, S: Tree<Leaf = Tensor<'t>>>(
        &'t self,
        count: usize,
        init: S,
        body: impl FnOnce(Tensor<'t>, S) -> S,
    ) -> S {
        let location = Location::caller();
        let length = trip_count(self, "repeat", Some(count), &Empty::new(), location);
        let leaves = init.leaves().into_iter().copied();
        let initial: Vec<Tensor<'t>> = leaves.chain([self.scalar(0.0, DType::S32)]).collect();
        let counter = initial.len() - 1;
        let results = scan_leaves(
            self,
            length,
            false,
            &initial,
            vec![],
            location,
            |carried, _| {
                let next = body(
                    carried[counter],
                    init.with_leaves(carried[..counter].iter().copied()),
                );
                let mut next = super::same_types(
                    self,
                    "repeat",
                    ["the initial state", "the body's result"],
                    &init,
                    &next,
                    location,
                )?;
                next.push(carried[counter] + 1);
                Ok((next, vec![]))
            },
        );
        match results {
            Ok(results) => init.with_leaves(results.into_iter().take(counter)),
            Err(_) => super::errors_like(self, &init),
        }
    }
}

/// Records a scan. `body` maps the carried values and the slices of an iteration to the next
/// carried values and the results to stack. Returns the last carried values, then the stacked
/// results.
fn scan_leaves<'t>(
    cx: &'t Trace,
    length: Result<usize, Tensor<'t>>,
    reverse: bool,
    initial: &[Tensor<'t>],
    mut scanned: Vec<Tensor<'t>>,
    location: &'static Location<'static>,
    body: impl FnOnce(&[Tensor<'t>], &[Tensor<'t>]) -> BodyResult<'t>,
) -> Result<Vec<Tensor<'t>>, Tensor<'t>> {
    let iteration = trace_iteration(cx, initial, &scanned, location, body)?;
    let Iteration {
        mut region,
        next,
        mut stacked,
        side,
        slices,
        states,
        draws,
    } = iteration;
    let length = length?;
    let mut operands = initial.iter().chain(&scanned);
    if let Some(&error) = operands.find(|tensor| tensor.is_error()) {
        return Err(error);
    }
    let given = next.len() + stacked.len();
    stacked.extend(side.leaves().map(|id| cx.tensor(id)));
    if next.is_empty() && stacked.is_empty() {
        return Ok(vec![]);
    }
    if draws {
        let _site = cx.called_from(location);
        scanned.push(rng::split_many(cx.next_key(), length));
    } else {
        region.inputs.truncate(next.len() + scanned.len());
    }
    // A state that was updated before the loop continues from there.
    let first = states.iter().map(|&state| cx.updated(state));
    let initial_of_all: Vec<Tensor<'t>> = initial.iter().copied().chain(first).collect();

    let outputs = next.iter().chain(&stacked);
    region.outputs = outputs.map(|tensor| tensor.id).collect();
    let spec = ScanSpec {
        carried: next.len(),
        scanned: scanned.len(),
        length,
        reverse,
        residuals: 0,
    };
    let mut results = push_scan(cx, spec, region, &initial_of_all, &scanned, location);
    if let Some(&error) = results.iter().find(|result| result.is_error()) {
        return Err(error);
    }
    let _site = cx.called_from(location);
    let (metrics, mut values) = side.with(results.split_off(given), |name, total, weight| {
        (name, total.sum([0]), weight.sum([0]))
    });
    let carried = initial.len()..initial.len() + states.len();
    values.extend(results.drain(carried));
    let slices = slices.into_iter().map(|slice| scanned[slice]);
    super::side_outputs::report(cx, (metrics, values), slices.chain(states));
    Ok(results)
}

/// Traces the body of a scan. Its region takes the carried values, the slices and, last, a key.
fn trace_iteration<'t>(
    cx: &'t Trace,
    initial: &[Tensor<'t>],
    scanned: &[Tensor<'t>],
    location: &'static Location<'static>,
    body: impl FnOnce(&[Tensor<'t>], &[Tensor<'t>]) -> BodyResult<'t>,
) -> Result<Iteration<'t>, Tensor<'t>> {
    // A body that draws random numbers also scans over keys.
    let key = context::has_key(cx).then(|| TensorType::new(DType::U32, [2]));
    let slices = scanned.iter().map(|x| slice(&x.ty()));
    let carried = initial.iter().map(|leaf| leaf.ty());
    let types: Vec<TensorType> = carried.chain(slices).chain(key).collect();
    let (region, ((outputs, mut side), drawn)) = cx.region(&types, |inputs| {
        let (carried, rest) = inputs.split_at(initial.len());
        let (slices, key) = rest.split_at(scanned.len());
        context::with_key(cx, key.first().copied(), 0, || {
            // In the next iteration a state has the value of this one, not that before the loop.
            context::with_own_side_outputs(cx, || body(carried, slices))
        })
    });
    let (next, stacked) = outputs?;
    // Only the last value of a state counts.
    let all = std::mem::take(&mut side.updates);
    let inputs: Vec<Id> = region.inputs.clone();
    let mut iteration = Iteration {
        region,
        next,
        stacked,
        side,
        slices: Vec::new(),
        states: Vec::new(),
        draws: drawn > 0,
    };
    let mut wrong = None;
    for (index, &(state, value)) in all.iter().enumerate() {
        if all[index + 1..].iter().any(|(later, _)| *later == state) {
            continue;
        }
        let input = inputs.iter().position(|input| *input == state);
        let updated = iteration.update(cx, initial.len(), input, [state, value]);
        if let Err(message) = updated {
            wrong = Some(cx.fail_at(location, "update", message, None));
        }
    }
    wrong.map_or(Ok(iteration), Err)
}

impl<'t> Iteration<'t> {
    /// Adds a state and its value after the iteration. `input` is its index among the inputs of the
    /// region, of which the first ones are the `carried` values, if it is one.
    fn update(
        &mut self,
        cx: &'t Trace,
        carried: usize,
        input: Option<usize>,
        update: [Id; 2],
    ) -> Result<(), String> {
        let [state, value] = update;
        match input {
            Some(slice) if slice >= carried => {
                self.side.updates.push((state, value));
                self.slices.push(slice - carried);
            }
            Some(carried) if update.contains(&self.next[carried].id) => {
                self.next[carried] = cx.tensor(value);
            }
            Some(_) => {
                let message = "a state that is carried is updated, and the body returns another \
                               value for it; return `cx.updated(state)`";
                return Err(message.to_string());
            }
            None if cx.tensor(state).ty() != cx.tensor(value).ty() => {
                let [state, value] = update.map(|id| cx.tensor(id).ty());
                return Err(format!(
                    "the state is {state}, its update is {value}; scan over the state to update \
                     a slice in each iteration, or give all of it"
                ));
            }
            None => {
                let at = carried + self.states.len();
                self.region.inputs.insert(at, state);
                self.next.insert(at, cx.tensor(value));
                self.states.push(cx.tensor(state));
            }
        }
        Ok(())
    }
}

/// Records a scan of a region that takes the carried values and the slices, in this order, and
/// the captured values.
pub(crate) fn push_scan<'t>(
    cx: &'t Trace,
    spec: ScanSpec,
    mut region: Region,
    initial: &[Tensor<'t>],
    scanned: &[Tensor<'t>],
    location: &'static Location<'static>,
) -> Vec<Tensor<'t>> {
    let mut captured = captured(cx, &[&region]);
    // States from outside that are carried are inputs already.
    captured.retain(|id| !region.inputs.contains(id));
    region
        .inputs
        .splice(spec.carried..spec.carried, captured.iter().copied());
    let captured = captured.iter().map(|&id| cx.tensor(id));
    let operands: Vec<Tensor<'t>> = initial
        .iter()
        .copied()
        .chain(captured)
        .chain(scanned.iter().copied())
        .collect();
    let _site = cx.called_from(location);
    cx.push(spec.op(region.graph(cx)), &operands)
}

/// Number of iterations of a scan over `xs`.
fn trip_count<'t, X: Tree<Leaf = Tensor<'t>>>(
    cx: &'t Trace,
    op: &str,
    length: Option<usize>,
    xs: &X,
    location: &'static Location<'static>,
) -> Result<usize, Tensor<'t>> {
    let fail = |message: String| Err(cx.fail_at(location, op, message, None));
    let mut length: Option<(usize, String)> = length.map(|length| (length, "`length`".to_string()));
    for (path, &x) in xs.named() {
        let (ty, what) = (valid(x)?.ty(), named("the scanned tensors", &path));
        let Some(&first) = ty.dims().first() else {
            return fail(format!(
                "{what} is {ty}; it must have a first dimension to take slices of"
            ));
        };
        match &length {
            None => length = Some((first, format!("{what}, {ty},"))),
            Some((length, _)) if *length == first => {}
            Some((length, why)) => {
                return fail(format!(
                    "{why} means {length} iterations; {what} is {ty}, whose first dimension is {first}"
                ));
            }
        }
    }
    match length {
        None => fail(
            "the number of iterations is unknown without scanned tensors; set `ScanOptions::length`"
                .to_string(),
        ),
        Some((length, _)) if i32::try_from(length).is_err() => {
            fail(format!("{length} iterations exceed the range of s32"))
        }
        Some((length, _)) => Ok(length),
    }
}

impl ScanSpec {
    /// The operation, of this body.
    pub(crate) fn op(self, body: Graph) -> Op {
        let ScanSpec {
            carried,
            scanned,
            length,
            reverse,
            residuals,
        } = self;
        Op::Scan {
            carried,
            scanned,
            length,
            reverse,
            residuals,
            body: Box::new(body),
        }
    }
}

/// Type of a slice of `ty` along the first dimension.
fn slice(ty: &TensorType) -> TensorType {
    TensorType::new(ty.dtype(), ty.dims().get(1..).unwrap_or_default())
}

/// Type of `length` stacked tensors of type `ty`.
fn stack(ty: &TensorType, length: usize) -> TensorType {
    TensorType::new(ty.dtype(), [&[length], ty.dims()].concat())
}
