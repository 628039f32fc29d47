//! Loops and branches. Their bodies are closures that may use tensors from outside.
//!
//! A tensor computed in a body belongs to it: code after the body can use only what it returns.

mod checkpoint;
mod optional;
mod scan;
mod side_outputs;

use std::panic::Location;

use halite_core::{
    DType, TensorType,
    tree::{Tree, same_structure},
};
use halite_ir::Op;

use crate::{
    Tensor, Trace, context,
    trace::{Region, capture},
};

pub(crate) use optional::run_if;
pub use scan::ScanOptions;
pub(crate) use scan::{ScanSpec, push_scan};

impl Trace {
    /// Repeats `body` on the state while `condition`, a `bool` scalar, is true; returns the last
    /// state. The types of the state's tensors stay the same.
    ///
    /// [`next_key`](Self::next_key) returns other keys in each iteration, in the condition too.
    ///
    /// It has no gradient: the trip count, and so the number of residuals, is not known while
    /// tracing. [`scan`](Self::scan) and [`repeat`](Self::repeat) have gradients.
    ///
    /// ```
    /// use halite_core::{DType, tree::Leaf};
    /// use halite_nn::Trace;
    ///
    /// let cx = &Trace::new();
    /// let limit = cx.scalar(100.0, DType::F32);
    /// let doubled = cx.while_loop(Leaf(cx.scalar(1.0, DType::F32)), |x| x.0.lt(limit), |x| Leaf(x.0 * 2.0));
    /// assert!(cx.mistakes().is_empty());
    /// assert_eq!(doubled.0.ty().to_string(), "f32[]");
    /// ```
    #[track_caller]
    pub fn while_loop<'t, S: Tree<Leaf = Tensor<'t>>>(
        &'t self,
        init: S,
        condition: impl FnOnce(&S) -> Tensor<'t>,
        body: impl FnOnce(S) -> S,
    ) -> S {
        let location = Location::caller();
        let initial: Vec<Tensor<'t>> = init.leaves().into_iter().copied().collect();
        let results = loop_over(
            self,
            &initial,
            location,
            |carried| condition(&init.with_leaves(carried.iter().copied())),
            |carried| {
                let next = body(init.with_leaves(carried.iter().copied()));
                same_types(
                    self,
                    "while",
                    ["the initial state", "the body's result"],
                    &init,
                    &next,
                    location,
                )
            },
        );
        init.with_leaves(results)
    }

    /// Runs `on_true` or `on_false` and returns its result. Both return tensors of the same types.
    /// [`Tensor::select`] chooses elementwise.
    #[track_caller]
    pub fn cond<'t, T: Tree<Leaf = Tensor<'t>>>(
        &'t self,
        predicate: Tensor<'t>,
        on_true: impl FnOnce() -> T,
        on_false: impl FnOnce() -> T,
    ) -> T {
        let index = if predicate.is_error() || predicate.ty() == TensorType::scalar(DType::Bool) {
            predicate.convert(DType::S32)
        } else {
            let message = || format!("the predicate is {}; it must be bool[]", predicate.ty());
            predicate.mistake_like("cond", message, TensorType::scalar(DType::S32))
        };
        let (mut on_true, mut on_false) = (Some(on_true), Some(on_false));
        branches(
            self,
            "cond",
            |branch| ["`on_false`", "`on_true`"][branch].to_string(),
            index,
            2,
            &mut |branch| match branch {
                0 => on_false.take().expect("each branch is traced once")(),
                _ => on_true.take().expect("each branch is traced once")(),
            },
        )
    }

    /// Runs `branch(index)` and returns its result; `index` is an `s32` scalar, and an index out of
    /// range runs the last branch. All branches return tensors of the same types.
    ///
    /// # Panics
    /// If `count` is 0.
    #[track_caller]
    pub fn case<'t, T: Tree<Leaf = Tensor<'t>>>(
        &'t self,
        index: Tensor<'t>,
        count: usize,
        mut branch: impl FnMut(usize) -> T,
    ) -> T {
        assert!(count > 0, "a case has at least one branch");
        let index = if index.is_error() || index.ty() == TensorType::scalar(DType::S32) {
            index
        } else {
            let message = || format!("the index is {}; it must be s32[]", index.ty());
            index.mistake_like("case", message, TensorType::scalar(DType::S32))
        };
        branches(
            self,
            "case",
            |branch| format!("branch {branch}"),
            index,
            count,
            &mut branch,
        )
    }
}

#[track_caller]
fn branches<'t, T: Tree<Leaf = Tensor<'t>>>(
    cx: &'t Trace,
    op: &str,
    name: impl Fn(usize) -> String,
    index: Tensor<'t>,
    count: usize,
    branch: &mut dyn FnMut(usize) -> T,
) -> T {
    let location = Location::caller();
    let mut first: Option<T> = None;
    let mut regions = Vec::with_capacity(count);
    let mut wrong = None;
    for i in 0..count {
        let (region, outputs) = cx.region(&[], |_| {
            let result = side_outputs::without_side_outputs(cx, op, location, || branch(i));
            let outputs = match &first {
                None => usable(cx, op, &result, location),
                Some(first) => same_types(cx, op, [&name(0), &name(i)], first, &result, location),
            };
            first.get_or_insert(result);
            outputs
        });
        match outputs {
            Ok(outputs) => regions.push(region.giving(&outputs)),
            Err(error) => wrong = Some(error),
        }
    }
    let first = first.expect("there is at least one branch");
    if let Some(error) = wrong.or(index.is_error().then_some(index)) {
        return errors_like(error.trace, &first);
    }
    if first.leaf_count() == 0 {
        return first;
    }
    let results = push_case(cx, index, &[], regions, location);
    first.with_leaves(results)
}

/// Records a case of `regions`, which take `inputs` and the captured values.
pub(crate) fn push_case<'t>(
    cx: &'t Trace,
    index: Tensor<'t>,
    inputs: &[Tensor<'t>],
    mut regions: Vec<Region>,
    location: &'static Location<'static>,
) -> Vec<Tensor<'t>> {
    let captured = capture(cx, &mut regions);
    let branches = regions.iter().map(|region| region.graph(cx)).collect();
    let operands: Vec<Tensor<'t>> = [index]
        .into_iter()
        .chain(inputs.iter().copied())
        .chain(captured.iter().map(|&id| cx.tensor(id)))
        .collect();
    let _site = cx.called_from(location);
    cx.push(Op::Case { branches }, &operands)
}

/// Traces and records a loop. Returns the last carried values.
fn loop_over<'t>(
    cx: &'t Trace,
    initial: &[Tensor<'t>],
    location: &'static Location<'static>,
    condition: impl FnOnce(&[Tensor<'t>]) -> Tensor<'t>,
    body: impl FnOnce(&[Tensor<'t>]) -> Result<Vec<Tensor<'t>>, Tensor<'t>>,
) -> Vec<Tensor<'t>> {
    // A loop that draws random numbers also carries a key: the first draws of an iteration are
    // the condition's, and the last one is the key of the next iteration.
    let key = context::has_key(cx).then(|| TensorType::new(DType::U32, [2]));
    let carried = initial.iter().map(|tensor| tensor.ty());
    let types: Vec<TensorType> = carried.chain(key).collect();
    let (mut condition, (answer, drawn_by_condition)) = cx.region(&types, |inputs| {
        let (carried, key) = inputs.split_at(initial.len());
        let (answer, drawn) = context::with_key(cx, key.first().copied(), 0, || {
            side_outputs::without_side_outputs(cx, "while", location, || condition(carried))
        });
        (check_answer(cx, answer, location), drawn)
    });
    let (mut body, (next, drawn)) = cx.region(&types, |inputs| {
        let (carried, key) = inputs.split_at(initial.len());
        let key = key.first().copied();
        let (next, drawn) = context::with_key(cx, key, drawn_by_condition, || {
            side_outputs::without_side_outputs(cx, "while", location, || body(carried))
        });
        let last = (drawn > 0).then(|| context::with_key(cx, key, drawn, || cx.next_key()).0);
        let next = next.map(|next| next.into_iter().chain(last).collect::<Vec<_>>());
        (next, drawn)
    });
    let has_error = initial.iter().any(|tensor| tensor.is_error());
    let (Ok(answer), Ok(next), false) = (answer, next, has_error) else {
        let initial = initial.iter();
        return initial
            .map(|tensor| cx.error_like(Some(tensor.ty())))
            .collect();
    };
    if initial.is_empty() {
        return vec![];
    }
    let mut carried = initial.to_vec();
    if drawn > 0 {
        let _site = cx.called_from(location);
        carried.push(cx.next_key());
    } else {
        condition.inputs.truncate(initial.len());
        body.inputs.truncate(initial.len());
    }
    let regions = [condition.giving(&[answer]), body.giving(&next)];
    let mut results = push_while(cx, &carried, regions, location);
    results.truncate(initial.len());
    results
}

/// Records a loop of a condition and a body, which take `carried` and the captured values.
fn push_while<'t>(
    cx: &'t Trace,
    carried: &[Tensor<'t>],
    mut regions: [Region; 2],
    location: &'static Location<'static>,
) -> Vec<Tensor<'t>> {
    let captured = capture(cx, &mut regions);
    let captured = captured.iter().map(|&id| cx.tensor(id));
    let [condition, body] = regions.map(|region| Box::new(region.graph(cx)));
    let op = Op::While {
        carried: carried.len(),
        condition,
        body,
    };
    let operands: Vec<Tensor<'t>> = carried.iter().copied().chain(captured).collect();
    let _site = cx.called_from(location);
    cx.push(op, &operands)
}

/// Checks the type of the condition's result.
fn check_answer<'t>(
    cx: &'t Trace,
    answer: Tensor<'t>,
    location: &'static Location<'static>,
) -> Result<Tensor<'t>, Tensor<'t>> {
    check_usable(cx, "while", "the condition", answer, location)?;
    if !answer.is_error() && answer.ty() != TensorType::scalar(DType::Bool) {
        let message = format!(
            "the condition returns {}; it must return bool[]",
            answer.ty()
        );
        return Err(cx.fail_at(location, "while", message, None));
    }
    valid(answer)
}

/// The tree with an error tensor of the same type at each leaf.
fn errors_like<'t, T: Tree<Leaf = Tensor<'t>>>(cx: &'t Trace, tree: &T) -> T {
    let leaves = tree.leaves().into_iter();
    tree.with_leaves(leaves.map(|leaf| cx.error_like(Some(leaf.ty()))))
}

/// The leaves of `tree`, checked to be usable in the open scope.
fn usable<'t, T: Tree<Leaf = Tensor<'t>>>(
    cx: &'t Trace,
    op: &str,
    tree: &T,
    location: &'static Location<'static>,
) -> Result<Vec<Tensor<'t>>, Tensor<'t>> {
    let mut found = Ok(Vec::new());
    tree.for_each(|path, &leaf| {
        let checked = check_usable(
            cx,
            op,
            &named("the result", &path.to_string()),
            leaf,
            location,
        );
        match (checked.and_then(valid), &mut found) {
            (Ok(leaf), Ok(leaves)) => leaves.push(leaf),
            (Err(error), found) => *found = Err(error),
            (Ok(_), Err(_)) => {}
        }
    });
    found
}

/// The leaves of `right`, checked to be usable in the open scope and to have the types of those
/// of `left`.
fn same_types<'t, T: Tree<Leaf = Tensor<'t>>>(
    cx: &'t Trace,
    op: &str,
    names: [&str; 2],
    left: &T,
    right: &T,
    location: &'static Location<'static>,
) -> Result<Vec<Tensor<'t>>, Tensor<'t>> {
    let [left_name, right_name] = names;
    let leaves = usable(cx, op, right, location)?;
    if let Err(error) = same_structure(left, right) {
        let message = format!("{left_name} and {right_name} differ: {error}");
        return Err(cx.fail_at(location, op, message, None));
    }
    let mut wrong = Ok(());
    for ((path, left), right) in left.named().into_iter().zip(&leaves) {
        if !left.is_error() && left.ty() != right.ty() {
            let (left, right) = (left.ty(), right.ty());
            let (left_name, right_name) = (named(left_name, &path), named(right_name, &path));
            let message =
                format!("{left_name} is {left}, {right_name} is {right}; the types must be equal");
            wrong = Err(cx.fail_at(location, op, message, None));
        }
    }
    wrong.map(|()| leaves)
}

fn check_usable<'t>(
    cx: &'t Trace,
    op: &str,
    what: &str,
    tensor: Tensor<'t>,
    location: &'static Location<'static>,
) -> Result<Tensor<'t>, Tensor<'t>> {
    if cx.can_use(tensor) {
        return Ok(tensor);
    }
    let message = format!("{what} {}", crate::trace::STRAY);
    Err(cx.fail_at(location, op, message, None))
}

fn named(what: &str, path: &str) -> String {
    if path.is_empty() {
        what.to_string()
    } else {
        format!("`{path}` of {what}")
    }
}

/// The tensor, or `Err` if it is an error tensor.
fn valid(tensor: Tensor<'_>) -> Result<Tensor<'_>, Tensor<'_>> {
    if tensor.is_error() {
        Err(tensor)
    } else {
        Ok(tensor)
    }
}
