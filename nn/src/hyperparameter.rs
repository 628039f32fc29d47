//! Numbers that a program is given at every launch, such as a learning rate: with another value it
//! is the same program.

use std::{mem, panic::Location, sync::Arc};

use halite_core::{DType, HostArray, Result, TensorType};
use halite_ir::Op;

use crate::{
    Tensor, Trace,
    tensor::{holds, splat},
    trace::{Hyperparameter, Recorded},
};

impl Trace {
    /// A number that is an argument of the program, not a part of it: a scalar of element type
    /// `dtype`, rounded to nearest.
    ///
    /// With another value the program is the same, and is not compiled again: use this for what
    /// people try several values of. The learning rates, schedules, decays and limits of
    /// [`optim`](crate::optim) are such numbers. [`Jit`](crate::Jit) hands them over at every call,
    /// those of one element type as one small array; in [`graph`](Self::graph) they are constants.
    ///
    /// Decisions of Rust code by the value stay in the program: a term that is left out where its
    /// factor is 0. Asking again for the same name and value gives the same tensor; one name may
    /// stand for several values, as of several optimizers.
    ///
    /// ```
    /// use halite_core::{Client, DType, Null, Sharding, TensorType, tree::{Empty, Leaf}};
    /// use halite_nn::{ArraySpec, Jit};
    ///
    /// # fn main() -> halite_core::Result<()> {
    /// let client = Client::new(Null::new(1));
    /// let lower = |rate: f64| {
    ///     let scale = Jit::<Empty<()>, Leaf<()>, Leaf<()>>::function(&client, move |cx, Leaf(x)| {
    ///         Leaf(x * cx.hyperparameter("rate", rate, DType::F32))
    ///     });
    ///     let device = Sharding::single(client.local_devices()[0]);
    ///     scale.lower(&Empty::new(), &Leaf(ArraySpec::new(TensorType::new(DType::F32, [4]), &device)))
    /// };
    /// let (slow, fast) = (lower(1e-3)?, lower(1e-2)?);
    /// assert_eq!(slow.program.code, fast.program.code);
    /// assert_eq!(fast.hyperparameters[0].1.as_slice::<f32>()?, [1e-2]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn hyperparameter(&self, name: &str, value: f64, dtype: DType) -> Tensor<'_> {
        let ty = TensorType::scalar(dtype);
        if !holds(dtype, value) {
            return self.fail(
                "hyperparameter",
                format!("`{name}` is {value}, which {dtype} cannot represent"),
                Some(ty),
            );
        }
        let mut recording = self.recording.borrow_mut();
        let same = |known: &&Hyperparameter| {
            *known.name == *name
                && known.value.to_bits() == value.to_bits()
                && known.literal.ty().dtype() == dtype
        };
        if let Some(known) = recording.hyperparameters.iter().find(same) {
            return self.tensor(known.id);
        }
        let (name, literal) = (Arc::<str>::from(name), splat(value, &ty));
        // It belongs to the program itself: bodies of loops and branches capture it.
        let id = recording.record_in(0, ty, false, Some(name.clone()));
        let origin = self.origin(Location::caller());
        recording.hyperparameters.push(Hyperparameter {
            name,
            value,
            literal,
            id,
            origin,
        });
        self.tensor(id)
    }
}

/// Makes the hyperparameters further inputs of the program: for each of their element types an
/// array that is cut up before anything else happens. Gives the inputs with their values.
pub(crate) fn inputs(cx: &Trace) -> Result<Vec<(Tensor<'_>, HostArray)>> {
    let mut recording = cx.recording.borrow_mut();
    let mut left = mem::take(&mut recording.hyperparameters);
    let (mut inputs, mut cuts) = (Vec::new(), Vec::new());
    while let Some(first) = left.first() {
        let dtype = first.literal.ty().dtype();
        let (these, others): (Vec<_>, Vec<_>) = left
            .into_iter()
            .partition(|one| one.literal.ty().dtype() == dtype);
        left = others;
        let ty = TensorType::new(dtype, [these.len()]);
        let bytes: Vec<u8> = these
            .iter()
            .flat_map(|one| one.literal.to_host().bytes().to_vec())
            .collect();
        let input = recording.record_in(0, ty.clone(), false, Some("hyperparameters".into()));
        for (
            index,
            Hyperparameter {
                literal,
                id,
                origin,
                ..
            },
        ) in these.into_iter().enumerate()
        {
            let part = recording.record_in(0, TensorType::new(dtype, [1]), false, None);
            let slice = Op::Slice {
                starts: vec![index],
                limits: vec![index + 1],
                strides: vec![1],
            };
            let reshape = Op::Reshape {
                dims: literal.ty().dims().to_vec(),
            };
            let node =
                |op, operand, result| Recorded::new(op, vec![operand], vec![result], 0, origin);
            cuts.extend([node(slice, input, part), node(reshape, part, id)]);
        }
        inputs.push((cx.tensor(input), HostArray::from_bytes(&bytes, ty)?));
    }
    recording.prepend(cuts);
    Ok(inputs)
}
