//! Compiled functions with inferred types, and the two calls that run them.

use halite_core::{
    Array, Client, Result,
    tree::{Empty, Family, Leaf, Tree},
};

use crate::{Jit, Tensor, Trace};

/// Type that a tree of arrays has while it is traced: `Mlp<Tensor<'t>>` for `Mlp<Array>`.
type TracedLike<'t, F> = <F as Family>::Bare<Tensor<'t>>;

/// A compiled function from `N` arrays to `M` arrays.
pub type ArrayFunction<const N: usize, const M: usize> =
    Jit<Empty<()>, [Leaf<()>; N], [Leaf<()>; M]>;

/// Compiles a function from `N` tensors to `M` tensors at its first call; [`Jit::run`] calls it.
///
/// Rust infers `N` and `M` from the closure. For inputs that are structs, see [`jit_like`]; for a
/// training step, [`jit_step`]; for outputs that are structs, [`jit_tree`]; for vectors, [`jit_vec`].
///
/// ```
/// use halite_core::{Array, Client, Null};
/// use halite_nn::jit;
///
/// # fn main() -> halite_core::Result<()> {
/// let client = Client::new(Null::new(1)); // computes nothing; see `halite_backends::Accelerator`
/// let distance = jit(&client, |_cx, [x, y]| [(x - y).square().sum_all().sqrt()]);
///
/// let x = Array::from_slice(&client, &[1.0f32, 2.0], [2])?;
/// let y = Array::from_slice(&client, &[4.0f32, 6.0], [2])?;
/// let [d] = distance.run([&x, &y])?;
/// println!("{d}");
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn jit<const N: usize, const M: usize>(
    client: &Client,
    function: impl for<'t> Fn(&'t Trace, [Tensor<'t>; N]) -> [Tensor<'t>; M] + Send + Sync + 'static,
) -> ArrayFunction<N, M> {
    Jit::function(client, move |cx, inputs: [Leaf<Tensor<'_>>; N]| {
        function(cx, inputs.map(|Leaf(input)| input)).map(Leaf)
    })
}

/// As [`jit`], for a number of inputs and outputs that is known when the program runs:
/// `f.run(&arrays)` with a vector of arrays returns a vector.
///
/// ```
/// use halite_core::{Array, Client, Null};
/// use halite_nn::{grad, jit_vec};
///
/// # fn main() -> halite_core::Result<()> {
/// # let client = Client::new(Null::new(1));
/// let slopes = jit_vec(&client, |cx, inputs| {
///     let squares: Vec<_> = inputs.iter().map(|x| x.square().sum_all()).collect();
///     grad(cx.stack(&squares, 0).sum_all(), &inputs)
/// });
/// let arrays = vec![Array::scalar(&client, 2.0f32)?, Array::from_slice(&client, &[1.0f32; 3], [3])?];
/// assert_eq!(slopes.run(&arrays)?[1].ty().dims(), [3]);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn jit_vec(
    client: &Client,
    function: impl for<'t> Fn(&'t Trace, Vec<Tensor<'t>>) -> Vec<Tensor<'t>> + Send + Sync + 'static,
) -> Jit<Empty<()>, Vec<Leaf<()>>, Vec<Leaf<()>>> {
    Jit::function(client, move |cx, inputs: Vec<Leaf<Tensor<'_>>>| {
        let inputs = inputs.into_iter().map(|Leaf(input)| input).collect();
        function(cx, inputs).into_iter().map(Leaf).collect()
    })
}

/// Compiles a function from arrays like `inputs` to `M` tensors at its first call; [`Jit::run`]
/// calls it. Only the Rust type of `inputs` counts here.
///
/// ```
/// use halite_core::{Array, Client, HostArray, Null, Tree};
/// use halite_nn::{Linear, Tensor, jit_like};
///
/// # fn main() -> halite_core::Result<()> {
/// # let client = Client::new(Null::new(1));
/// # let array = |dims: [usize; 2]| Array::from_slice(&client, &[0.0f32; 4][..dims[0] * dims[1]], dims);
/// let layer = Linear { weight: array([2, 2])?, bias: None };
/// let x = array([1, 2])?;
/// let predict = jit_like(&client, (&layer, &x), |_cx, (layer, x)| [layer.forward(x).relu()]);
/// let [y] = predict.run((&layer, &x))?;
/// # assert_eq!(y.ty().dims(), [1, 2]);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn jit_like<'a, I: Inputs<'a>, const M: usize>(
    client: &Client,
    inputs: I,
    function: impl for<'t> Fn(&'t Trace, TracedLike<'t, I::Family>) -> [Tensor<'t>; M]
    + Send
    + Sync
    + 'static,
) -> Jit<Empty<()>, I::Family, [Leaf<()>; M]> {
    let _ = inputs;
    Jit::function(client, move |cx, inputs| {
        function(cx, I::Family::into_bare(inputs)).map(Leaf)
    })
}

/// Compiles a function from `N` tensors to a tree like `output` at its first call; [`Jit::run`]
/// calls it. Only the Rust type of `output` counts here.
///
/// ```
/// use halite_core::{Array, Client, Null};
/// use halite_nn::{Linear, Model, jit_tree};
///
/// # fn main() -> halite_core::Result<()> {
/// # let client = Client::new(Null::new(1));
/// let layer = Linear::new(3, 2).initialize(&client, 0)?;
/// let constant = jit_tree(&client, &layer, |cx, [scale]| Linear {
///     weight: scale.broadcast_to([3, 2]),
///     bias: Some(scale.broadcast_to([2])),
/// });
/// let layer = constant.run([&Array::scalar(&client, 0.5f32)?])?; // a `Linear<Array>`
/// # assert_eq!(layer.weight.ty().dims(), [3, 2]);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn jit_tree<O: Tree, const N: usize>(
    client: &Client,
    output: &O,
    function: impl for<'t> Fn(&'t Trace, [Tensor<'t>; N]) -> TracedLike<'t, O::Family>
    + Send
    + Sync
    + 'static,
) -> Jit<Empty<()>, [Leaf<()>; N], O::Family> {
    let _ = output;
    Jit::function(client, move |cx, inputs: [Leaf<Tensor<'_>>; N]| {
        O::Family::from_bare(function(cx, inputs.map(|Leaf(input)| input)))
    })
}

/// Compiles a function that updates a state like `state`, with `N` tensors as inputs and `M` as
/// outputs, at its first call; [`Jit::call`] calls it. Only the Rust type of `state` counts here.
///
/// ```
/// use halite_core::{Array, Client, Null};
/// use halite_nn::{grad, jit_step};
///
/// # fn main() -> halite_core::Result<()> {
/// # let client = Client::new(Null::new(1));
/// let mut x = Array::scalar(&client, 2.0f32)?;
/// let descend = jit_step(&client, &x, |_cx, x, [rate]| {
///     let loss = (x - 1.0).square();
///     (x - rate * grad(loss, &x), [loss])
/// });
/// let rate = Array::scalar(&client, 0.1f32)?;
/// for _ in 0..3 {
///     let (next, [_loss]) = descend.call(x, [&rate])?; // `x` is moved in, and its memory reused
///     x = next;
/// }
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn jit_step<S: Tree<Leaf = Array>, const N: usize, const M: usize>(
    client: &Client,
    state: &S,
    function: impl for<'t> Fn(
        &'t Trace,
        TracedLike<'t, S::Family>,
        [Tensor<'t>; N],
    ) -> (TracedLike<'t, S::Family>, [Tensor<'t>; M])
    + Send
    + Sync
    + 'static,
) -> Jit<S::Family, [Leaf<()>; N], [Leaf<()>; M]> {
    let _ = state;
    Jit::new(client, move |cx, state, inputs: [Leaf<Tensor<'_>>; N]| {
        let inputs = inputs.map(|Leaf(input)| input);
        let (next, outputs) = function(cx, S::Family::into_bare(state), inputs);
        (S::Family::from_bare(next), outputs.map(Leaf))
    })
}

/// Arrays that a compiled function reads: a reference to a tree, `&x` or `&model`, or arrays and
/// tuples of references, `[&x, &y]` and `(&model, &x)`; `()` for a function of `[]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the inputs of a compiled function",
    label = "expected references to arrays",
    note = "inputs are borrowed: `f.run([&x, &y])`, `f.run((&model, &x))`"
)]
pub trait Inputs<'a> {
    /// The inputs with their leaf type left open.
    type Family: Family;

    /// Returns a tree with the references at its leaves.
    fn into_refs(self) -> <Self::Family as Family>::Of<&'a Array>;
}

impl<'a, T: Tree<Leaf = Array>> Inputs<'a> for &'a T {
    type Family = T::Family;

    fn into_refs(self) -> <T::Family as Family>::Of<&'a Array> {
        self.leaf_refs()
    }
}

impl<'a, T: Inputs<'a>, const N: usize> Inputs<'a> for [T; N] {
    type Family = [T::Family; N];

    fn into_refs(self) -> [<T::Family as Family>::Of<&'a Array>; N] {
        self.map(T::into_refs)
    }
}

impl<'a> Inputs<'a> for () {
    type Family = [Leaf<()>; 0];

    fn into_refs(self) -> [Leaf<&'a Array>; 0] {
        []
    }
}

macro_rules! tuples_of_inputs {
    ($(($($Input:ident $index:tt),*))*) => {$(
        impl<'a, $($Input: Inputs<'a>),*> Inputs<'a> for ($($Input,)*) {
            type Family = ($($Input::Family,)*);

            fn into_refs(self) -> <Self::Family as Family>::Of<&'a Array> {
                ($(self.$index.into_refs(),)*)
            }
        }
    )*};
}
tuples_of_inputs!((A 0)(A 0, B 1)(A 0, B 1, C 2)(A 0, B 1, C 2, D 3));

impl<S: Family, I: Family, O: Family> Jit<S, I, O> {
    /// Queues one run, after compiling if types or shardings are new. The state is moved in and its
    /// memory is reused; the inputs are only read.
    ///
    /// # Errors
    /// All mistakes of the traced code at once; the compiler's error; a state or input on another
    /// mesh than the rest. The state is lost then; [`prepare`](Self::prepare) finds all of these
    /// before that.
    #[track_caller]
    pub fn call<'a>(
        &self,
        state: S::Bare<Array>,
        inputs: impl Inputs<'a, Family = I>,
    ) -> Result<(S::Bare<Array>, O::Bare<Array>)> {
        let (state, outputs) = self.call_with(S::from_bare(state), inputs.into_refs())?;
        Ok((S::into_bare(state), O::into_bare(outputs)))
    }
}

impl<I: Family, O: Family> Jit<Empty<()>, I, O> {
    /// Queues one run, after compiling if types or shardings are new.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    #[track_caller]
    pub fn run<'a>(&self, inputs: impl Inputs<'a, Family = I>) -> Result<O::Bare<Array>> {
        Ok(O::into_bare(self.run_with(inputs.into_refs())?))
    }
}
