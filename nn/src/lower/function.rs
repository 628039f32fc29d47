use std::fmt;

use halite_core::{
    DType, DTypePolicy, PartitionSpec, TensorType,
    tree::{Empty, Family},
};

use super::ShardedType;
use crate::{AxisRoles, Tensor, Trace};

/// The leaves of a family, as tensors of a trace.
pub type Traced<'t, F> = <F as Family>::Of<Tensor<'t>>;

type Body<S, I, O> = dyn for<'t> Fn(&'t Trace, Traced<'t, S>, Traced<'t, I>) -> (Traced<'t, S>, Traced<'t, O>)
    + Send
    + Sync;

/// Partition spec of an output, by path and type.
type OutputSpec = dyn Fn(&str, &TensorType) -> PartitionSpec + Send + Sync;

/// Element type that devices store of an output, by path and type.
type OutputStored = dyn Fn(&str, &TensorType) -> DType + Send + Sync;

/// A function of tensors, from `(state, inputs)` to `(next state, outputs)`, with everything that
/// its program depends on besides the types of its arguments and the target.
///
/// [`lower`](crate::lower) makes a program of it; [`jit`](Function::jit) compiles and runs it.
pub struct Function<S: Family, I: Family, O: Family> {
    pub(super) body: Box<Body<S, I, O>>,
    pub(crate) settings: Settings,
}

/// What a program depends on besides the body of its function, the types of its arguments and the
/// target.
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(super) precision: DTypePolicy,
    pub(super) axis_roles: Option<AxisRoles>,
    /// Iterations of the body in the program; `None` is one, of inputs that are not stacked.
    pub(super) iterations: Option<usize>,
    pub(super) beside_scanned: bool,
    pub(super) runs_once: bool,
    output_spec: Box<OutputSpec>,
    output_stored: Box<OutputStored>,
}

impl<S: Family, I: Family, O: Family> Function<S, I, O> {
    /// A function that is traced when it is lowered. The next state must have the types of the
    /// state.
    pub fn new(
        body: impl for<'t> Fn(&'t Trace, Traced<'t, S>, Traced<'t, I>) -> (Traced<'t, S>, Traced<'t, O>)
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Function {
            body: Box::new(body),
            settings: Settings::default(),
        }
    }

    /// Sets the name for dumps, reports and messages.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into();
        self
    }

    /// Sets the element types that it computes in: see [`Jit::precision`](crate::Jit::precision).
    pub fn precision(mut self, policy: DTypePolicy) -> Self {
        self.settings.precision = policy;
        self
    }

    /// Binds the axis roles that its layers name: see [`Jit::axis_roles`](crate::Jit::axis_roles).
    pub fn axis_roles(mut self, roles: AxisRoles) -> Self {
        self.settings.axis_roles = Some(roles);
        self
    }

    /// Makes it a function of several iterations, in one program and one launch: `length` times the
    /// body, each with the state of the iteration before, as JAX's `lax.scan` of a step. Inputs and
    /// outputs have a new first dimension `length`, which is not sharded: iteration `i` gets slice
    /// `i` of each input, and its outputs are slice `i` of the outputs.
    ///
    /// It computes what `length` calls compute, without the cost of all launches but one: for steps
    /// of microseconds. Where the compiler makes one function of its program, the calls may round in
    /// another way unless their function is [`beside_scanned`](Self::beside_scanned).
    ///
    /// ```
    /// use halite_core::{Array, Client, Null, tree::Leaf};
    /// use halite_nn::Function;
    ///
    /// # fn main() -> halite_core::Result<()> {
    /// # let client = Client::new(Null::new(1));
    /// let sums = Function::<Leaf<()>, Leaf<()>, Leaf<()>>::new(|_cx, Leaf(sum), Leaf(x)| {
    ///     (Leaf(sum + x), Leaf(sum + x))
    /// });
    /// let sums = sums.scanned(16).jit(&client);
    /// let xs = Array::from_slice(&client, &[1.0f32; 32], [16, 2])?;
    /// let (sum, partial) = sums.call(Array::from_slice(&client, &[0.0f32; 2], [2])?, &xs)?;
    /// assert_eq!(sum.ty().dims(), [2]);
    /// assert_eq!(partial.ty().dims(), [16, 2]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn scanned(mut self, length: usize) -> Self {
        self.settings.iterations = Some(length);
        self
    }

    /// Says that it runs in turn with a [scanned](Self::scanned) function of the same body: where the
    /// compiler makes one function of that one's program
    /// ([`Capabilities::one_function`](halite_core::Capabilities::one_function)), it does so with this
    /// one's, and both round alike.
    pub fn beside_scanned(mut self) -> Self {
        self.settings.beside_scanned = true;
        self
    }

    /// Says that its program runs once, as an initialization does, so that compiling takes longer than
    /// running: loops stay loops on devices for which they are
    /// [unrolled](halite_core::Capabilities::unrolled) otherwise.
    pub fn runs_once(mut self) -> Self {
        self.settings.runs_once = true;
        self
    }

    /// Sets the partition spec of each output: see [`Jit::output_specs`](crate::Jit::output_specs).
    pub fn output_specs(
        mut self,
        spec: impl Fn(&str, &TensorType) -> PartitionSpec + Send + Sync + 'static,
    ) -> Self {
        self.settings.output_spec = Box::new(spec);
        self
    }

    /// Sets the element type that devices store of each output: see [`Jit::output_stored`](crate::Jit::output_stored).
    pub fn output_stored(
        mut self,
        stored: impl Fn(&str, &TensorType) -> DType + Send + Sync + 'static,
    ) -> Self {
        self.settings.output_stored = Box::new(stored);
        self
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            name: "main".to_string(),
            precision: DTypePolicy::F32,
            axis_roles: None,
            iterations: None,
            beside_scanned: false,
            runs_once: false,
            output_spec: Box::new(|_, _| PartitionSpec::replicated()),
            output_stored: Box::new(|_, ty| ty.dtype()),
        }
    }
}

impl Settings {
    pub(super) fn output_type(&self, path: &str, ty: TensorType) -> ShardedType {
        let (spec, stored) = (
            (self.output_spec)(path, &ty),
            (self.output_stored)(path, &ty),
        );
        ShardedType::new(ty, spec).stored_as(stored)
    }
}

impl<S: Family, I: Family, O: Family> fmt::Debug for Function<S, I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings {
            name, precision, ..
        } = &self.settings;
        write!(f, "Function(`{name}`, {precision})")
    }
}

impl<I: Family, O: Family> Function<Empty<()>, I, O> {
    /// A function from inputs to outputs, without a state.
    pub fn stateless(
        body: impl for<'t> Fn(&'t Trace, Traced<'t, I>) -> Traced<'t, O> + Send + Sync + 'static,
    ) -> Self {
        Function::new(move |cx, _, inputs| (Empty::new(), body(cx, inputs)))
    }
}
