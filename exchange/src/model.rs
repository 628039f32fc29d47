//! Trained models as `jax.export` artifacts.

use halite_core::{
    Capabilities, MeshShape, Result, TensorType,
    tree::{Empty, Family, Leaf, Tree},
};
use halite_nn::{Function, ShardedType, Tensor, Trace, lower};

use crate::{Exported, HostValues, export::exported};

/// Place of a model's parameters in an artifact.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Parameters {
    /// Constants of the program: the artifact is a function of the inputs.
    #[default]
    Constants,
    /// The first argument: the artifact is a function of the parameters, a dict, and the inputs.
    Arguments,
}

/// Exports the forward pass of a trained model for inputs of these types, on CPUs, CUDA and TPUs.
///
/// `model` has the values of the parameters: [`Fitted::model`] after training, or what
/// `Trainer::load` returned. Parameters that are sharded over several devices are gathered: the
/// artifact is for one device.
///
/// ```
/// use halite_core::{Array, Client, DType, TensorType};
/// use halite_exchange::{Parameters, export_model};
/// use halite_nn::Linear;
/// use halite_embedded::{Options, Embedded};
///
/// # fn main() -> halite_core::Result<()> {
/// # let client = Client::new(Embedded::new(&Options::default())?);
/// # let weight = Array::from_slice(&client, &[1.0f32, 2.0, 3.0, 4.0], [2, 2])?;
/// let model = Linear { weight, bias: None };
/// let x = TensorType::new(DType::F32, [32, 2]); // a batch of 32
/// let forward = export_model(&model, [x], Parameters::Constants, |_cx, model, [x]| {
///     [model.forward(x).softmax(1)]
/// })?;
/// assert_eq!(forward.inputs.paths(), ["0.0"]);
/// # let file = tempfile::NamedTempFile::new().unwrap();
/// # let path = file.path();
/// forward.save(path)?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// All mistakes of the traced code at once; if the program has operations that portable artifacts
/// do not have; if a parameter cannot be read.
///
/// [`Fitted::model`]:
/// https://docs.rs/halite-train/latest/halite_train/struct.Fitted.html#structfield.model
pub fn export_model<M: Tree<Leaf: HostValues>, const N: usize, const K: usize>(
    model: &M,
    inputs: [TensorType; N],
    parameters: Parameters,
    forward: impl for<'t> Fn(
        &'t Trace,
        <M::Family as Family>::Bare<Tensor<'t>>,
        [Tensor<'t>; N],
    ) -> [Tensor<'t>; K]
    + Send
    + Sync
    + 'static,
) -> Result<Exported> {
    type Inputs<M, const N: usize> = (<M as Tree>::Family, [Leaf<()>; N]);
    let function = Function::<Empty<()>, Inputs<M, N>, [Leaf<()>; K]>::stateless(
        move |cx, (model, inputs): (<M::Family as Family>::Of<Tensor<'_>>, _)| {
            let inputs = <[Leaf<Tensor<'_>>; N]>::map(inputs, |Leaf(input)| input);
            forward(cx, M::Family::into_bare(model), inputs).map(Leaf)
        },
    )
    .named("forward");
    let types = model
        .leaf_refs()
        .map_leaves(|_, values| ShardedType::replicated(values.ty().clone()));
    let inputs = inputs.map(|ty| Leaf(ShardedType::replicated(ty)));
    let paths = (types.paths().into_iter())
        .map(|path| {
            if path.is_empty() {
                "0".to_owned()
            } else {
                format!("0.{path}")
            }
        })
        .chain((1..=N).map(|index| index.to_string()));
    let paths: Vec<String> = paths.collect();
    let one = MeshShape::new([("device", 1)])?;
    let lowered = lower(
        &function,
        &Empty::new(),
        &(types, inputs),
        &one,
        &Capabilities::PORTABLE,
    )?;
    let results = lowered.shape.paths();
    let exported = exported("forward", &lowered, &paths, &results)?;
    match parameters {
        Parameters::Constants => exported.with_constant(0, model),
        Parameters::Arguments => Ok(exported),
    }
}
