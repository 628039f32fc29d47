//! Interfaces of programs: the types and shardings of their inputs and outputs.

mod hlo;
mod shardy;

use std::{collections::HashMap, sync::Arc};

use halite_core::{Code, Error, ErrorKind, HloSharding, Program, Result, Signature, TensorType};

use crate::{
    Attribute, Attributes, Function, Module, RankedType, ShardySharding, Type, ValueId,
    verify::check_devices,
};

/// Interface of a program: what a client must know to call it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Interface {
    /// Name of the module; `main` if it has none.
    pub name: Arc<str>,
    /// Inputs of `main`.
    pub inputs: Vec<InterfaceTensor>,
    /// Outputs of `main`.
    pub outputs: Vec<InterfaceTensor>,
    /// Indices of inputs whose memory the program may reuse (`tf.aliasing_output`,
    /// `jax.buffer_donor`), ascending.
    pub donated: Vec<usize>,
    /// Number of SPMD partitions.
    pub partitions: usize,
    /// Number of replicas.
    pub replicas: usize,
}

/// An input or output of a program.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InterfaceTensor {
    /// Type of the whole tensor, over all partitions of a replica.
    pub ty: TensorType,
    /// Type of the shard of one partition.
    pub shard: TensorType,
    /// Shards of the partitions of a replica (`sdy.sharding`, `mhlo.sharding`). `None` if the
    /// program leaves it open: the tensor is whole on every partition then.
    pub sharding: Option<HloSharding>,
}

impl Interface {
    /// Types of inputs and outputs on one device, and donated inputs.
    pub fn signature(&self) -> Signature {
        let shards = |tensors: &[InterfaceTensor]| {
            tensors.iter().map(|tensor| tensor.shard.clone()).collect()
        };
        Signature {
            inputs: shards(&self.inputs),
            outputs: shards(&self.outputs),
            donated: self.donated.clone(),
        }
    }

    /// Checks the signature with which a client declares the program. It may donate any inputs.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if it has other numbers or types of inputs or outputs, or its
    /// donated inputs are not ascending indices of inputs.
    pub fn check_signature(&self, declared: &Signature) -> Result<()> {
        let own = self.signature();
        let lists = [
            ("argument", &own.inputs, &declared.inputs),
            ("result", &own.outputs, &declared.outputs),
        ];
        let invalid = |message| Err(Error::invalid("program", message));
        for (what, own, declared) in lists {
            if own.len() != declared.len() {
                let (count, given) = (own.len(), declared.len());
                return invalid(format!(
                    "the signature has {given} {what}s, `main` has {count}"
                ));
            }
            let mut pairs = own.iter().zip(declared).enumerate();
            if let Some((index, (own, declared))) = pairs.find(|(_, (own, it))| own != it) {
                return invalid(format!(
                    "the signature has {what} {index} of {declared}, `main` has {own} on each \
                     device"
                ));
            }
        }
        let (donated, count) = (&declared.donated, declared.inputs.len());
        if donated.iter().any(|&index| index >= count) || !donated.is_sorted_by(|a, b| a < b) {
            return invalid(format!(
                "donated inputs {donated:?} are not ascending indices of {count} inputs"
            ));
        }
        Ok(())
    }

    /// The program of this interface, which was read from `code`.
    pub fn program(&self, code: impl Into<Code>) -> Program {
        Program {
            name: self.name.clone(),
            code: code.into(),
            signature: self.signature(),
            partitions: self.partitions,
            replicas: self.replicas,
        }
    }
}

impl Module {
    /// The interface of the program. Does not [`verify`](Self::verify) it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for an input or output that clients have no arrays for: a token,
    /// a tuple, an element type such as `f8E4M3FN`; or for a sharding other than of shards over all
    /// partitions, or more than 2^23 shards in all of its different shardings.
    /// [`ErrorKind::InvalidArgument`] if a sharding does not fit its tensor, or an input is aliased
    /// to an output that does not exist.
    pub fn interface(&self) -> Result<Interface> {
        check_devices(self)?;
        let main = self.main()?;
        let mut shardings = Shardings::new(self);
        let (inputs, outputs) = (&main.body.arguments, &main.body.results);
        let name = if self.name.is_empty() {
            &main.name
        } else {
            &self.name
        };
        Ok(Interface {
            name: name.as_str().into(),
            inputs: shardings.tensors("input", main, inputs, &main.input_attributes)?,
            outputs: shardings.tensors("output", main, outputs, &main.output_attributes)?,
            donated: donated(main)?,
            partitions: self.partitions(),
            replicas: self.replicas(),
        })
    }
}

/// The shardings of a program. Each is expanded to its shards once, however many inputs and outputs
/// have it.
struct Shardings<'m> {
    module: &'m Module,
    /// By their text in the program, and the rank of the tensor.
    known: HashMap<(Written<'m>, usize), Option<HloSharding>>,
}

/// A sharding in the program.
#[derive(Eq, Hash, PartialEq)]
enum Written<'m> {
    Shardy(&'m ShardySharding),
    Hlo(&'m str),
}

/// Most shards of all different shardings of a program: 64 MiB of their numbers.
const MOST_SHARDS: usize = 1 << 23;

impl<'m> Shardings<'m> {
    fn new(module: &'m Module) -> Self {
        Shardings {
            module,
            known: HashMap::new(),
        }
    }

    fn tensors(
        &mut self,
        what: &str,
        main: &Function,
        values: &[ValueId],
        attributes: &'m [Attributes],
    ) -> Result<Vec<InterfaceTensor>> {
        let tensor = |(index, &value): (usize, &ValueId)| {
            (self.tensor(main, value, attributes.get(index))).map_err(|fault| fault.at(what, index))
        };
        values.iter().enumerate().map(tensor).collect()
    }

    fn tensor(
        &mut self,
        main: &Function,
        value: ValueId,
        attributes: Option<&'m Attributes>,
    ) -> Check<InterfaceTensor> {
        let Some(ty) = main.types.get(value.0 as usize) else {
            return Err(Fault::invalid(format!("value {} does not exist", value.0)));
        };
        let Some(tensor) = ty.as_tensor().and_then(|ty| ty.tensor_type()) else {
            return Err(Fault::unsupported(format!(
                "{ty} is not a type of arrays of a client; convert it inside of the program"
            )));
        };
        (tensor.checked_bytes()).map_err(|error| Fault::invalid(error.message().to_owned()))?;
        let sharding = match attributes {
            Some(attributes) => self.of(attributes, ty)?,
            None => None,
        };
        Ok(InterfaceTensor {
            shard: match &sharding {
                Some(sharding) => shard_type(&tensor, sharding)?,
                None => tensor.clone(),
            },
            ty: tensor,
            sharding,
        })
    }

    /// The sharding that attributes give; Shardy's goes before GSPMD's, as in compilers.
    fn of(&mut self, attributes: &'m Attributes, ty: &Type) -> Check<Option<HloSharding>> {
        let written = match (
            attributes.get("sdy.sharding"),
            attributes.get("mhlo.sharding"),
        ) {
            (Some(Attribute::Sharding(sharding)), _) => Written::Shardy(sharding),
            (_, Some(Attribute::Str(text))) => Written::Hlo(text),
            _ => return Ok(None),
        };
        let rank = ty.as_tensor().map_or(0, RankedType::rank);
        let key = (written, rank);
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let (count, partitions) = (self.known.len() + 1, self.module.partitions());
        if count.saturating_mul(partitions) > MOST_SHARDS {
            return Err(Fault::unsupported(format!(
                "{count} different shardings of {partitions} partitions; at most {} are supported",
                MOST_SHARDS / partitions
            )));
        }
        let sharding = match &key.0 {
            Written::Shardy(sharding) => Some(shardy::hlo_sharding(self.module, sharding, ty)?),
            Written::Hlo(text) => hlo::parse(text, rank, partitions)?,
        };
        self.known.insert(key, sharding.clone());
        Ok(sharding)
    }
}

fn shard_type(ty: &TensorType, sharding: &HloSharding) -> Check<TensorType> {
    let parts = &sharding.parts;
    if ty
        .dims()
        .iter()
        .zip(parts)
        .any(|(size, &parts)| !size.is_multiple_of(parts))
    {
        return Err(Fault::invalid(format!(
            "{ty} is split into {parts:?} parts; each dimension must be a multiple of its parts"
        )));
    }
    let dims = ty
        .dims()
        .iter()
        .zip(parts)
        .map(|(size, parts)| size / parts);
    Ok(ty.with_dims(dims.collect::<Vec<_>>()))
}

/// Indices of donated inputs.
fn donated(main: &Function) -> Result<Vec<usize>> {
    let mut donated = Vec::new();
    let mut aliased = vec![false; main.body.results.len()];
    for (index, attributes) in main.input_attributes.iter().enumerate() {
        let alias = attributes.get("tf.aliasing_output");
        if let Some(output) = alias {
            mark_aliased(output, &mut aliased).map_err(|fault| fault.at("input", index))?;
        }
        let donor = Some(&Attribute::Bool(true)) == attributes.get("jax.buffer_donor");
        if alias.is_some() || donor {
            donated.push(index);
        }
    }
    Ok(donated)
}

/// Marks the output that reuses the memory of an input.
fn mark_aliased(output: &Attribute, aliased: &mut [bool]) -> Check {
    let Attribute::Int(output, _) = output else {
        return Err(Fault::invalid(format!(
            "`tf.aliasing_output` is {output:?}; it must be an integer"
        )));
    };
    let count = aliased.len();
    let index = usize::try_from(*output).ok();
    match index.and_then(|index| aliased.get_mut(index)) {
        None => Err(Fault::invalid(format!(
            "`tf.aliasing_output` is {output}; it must be the index of an output, below {count}"
        ))),
        Some(true) => Err(Fault::invalid(format!(
            "output {output} reuses the memory of another input, too"
        ))),
        Some(aliased) => {
            *aliased = true;
            Ok(())
        }
    }
}

/// An error before its input or output is known.
#[derive(Debug)]
struct Fault {
    kind: ErrorKind,
    message: String,
}

type Check<T = ()> = std::result::Result<T, Fault>;

impl Fault {
    fn invalid(message: String) -> Self {
        Fault {
            kind: ErrorKind::InvalidArgument,
            message,
        }
    }

    fn unsupported(message: String) -> Self {
        Fault {
            kind: ErrorKind::Unsupported,
            message,
        }
    }

    fn at(self, what: &str, index: usize) -> Error {
        Error::new(
            self.kind,
            "program",
            format!("{what} {index} of `main`: {}", self.message),
        )
    }
}
