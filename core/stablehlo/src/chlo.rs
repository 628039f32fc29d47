//! Operations of the dialect `chlo`, which JAX writes into text.
//!
//! StableHLO does not have them. The reader makes each a composite of its name, which [`lower`]
//! replaces by a call of a function in operations of StableHLO: executors, other compilers and the
//! import into traces need not know the dialect, and all compute the same. That of `chlo.top_k`
//! has a composite, which compilers recognize, for its speed. `chlo.erf` is the call of `mhlo.erf`,
//! which every executor has; [`Module::with_erf_composites`] makes a composite of it.
//!
//! Real functions are computed in `f64` for `f64` and in `f32` for all other floats.

mod bits;
mod builder;
mod complex;
mod elementary;
mod error_function;
mod gamma;
mod top_k;
mod zeta;

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use halite_core::{Error, ErrorKind, Result};

use self::builder::{Builder, Value};
use crate::{
    Attribute, Attributes, ElementClass, ElementType, Function, Module, OpKind, Operation,
    RankedType, Region, Type, UnaryOp, ValueId,
};

/// The composite of an operation of the dialect, whose function [`lower`] adds. `None` for
/// operations that have none.
pub(crate) fn composite(name: &str, attributes: &mut Attributes) -> Option<OpKind> {
    operation(name)?;
    let mut own = Attributes::default();
    if let Some(count) = attributes.take("k") {
        own.push("k", count);
    }
    Some(OpKind::Composite {
        name: name.to_owned(),
        attributes: own,
        decomposition: String::new(),
        version: 1,
    })
}

/// Adds the functions of [`composite`]s, and calls them.
///
/// # Errors
/// If an operation has operands that it does not take, with its position.
pub(crate) fn lower(module: &mut Module) -> Result<()> {
    let names = module.functions.iter().map(|it| it.name.clone());
    let mut lowering = Lowering {
        taken: names.collect(),
        ..Lowering::default()
    };
    for Function { body, types, .. } in &mut module.functions {
        lowering.region(body, types)?;
    }
    module.functions.append(&mut lowering.functions);
    Ok(())
}

impl Module {
    /// The program with a composite `chlo.erf` in place of each call of `mhlo.erf`, as JAX writes
    /// it: compilers that do not know it run its decomposition.
    ///
    /// # Errors
    /// If the operand of such a call is not a tensor of floats, with its position.
    pub fn with_erf_composites(&self) -> Result<Cow<'_, Module>> {
        let mut functions = self.functions.iter();
        if !functions.any(|function| contains_erf(&function.body)) {
            return Ok(Cow::Borrowed(self));
        }
        let mut module = self.clone();
        for function in &mut module.functions {
            name_erf(&mut function.body);
        }
        lower(&mut module)?;
        Ok(Cow::Owned(module))
    }
}

const ERF: &str = "chlo.erf";

fn is_erf(operation: &Operation) -> bool {
    operation.kind == OpKind::Unary(UnaryOp::Erf)
}

fn contains_erf(region: &Region) -> bool {
    let contains =
        |operation: &Operation| is_erf(operation) || operation.regions.iter().any(contains_erf);
    region.operations.iter().any(contains)
}

/// Makes the calls of `mhlo.erf` composites without a decomposition.
fn name_erf(region: &mut Region) {
    for operation in &mut region.operations {
        operation.regions.iter_mut().for_each(name_erf);
        // Further attributes, if the program has them, are of the call.
        let mut attributes = Attributes::default();
        if is_erf(operation)
            && let Some(composite) = composite(ERF, &mut attributes)
        {
            operation.kind = composite;
            operation.attributes = attributes;
        }
    }
}

#[derive(Default)]
struct Lowering {
    /// Names of functions.
    taken: HashSet<String>,
    /// Names of decompositions by operation, attributes and types.
    known: HashMap<String, String>,
    functions: Vec<Function>,
    /// Operations of these functions.
    operations: usize,
}

/// Most operations of all functions that are added. One for each operation and shape is added, of
/// up to some hundreds of operations: a short text could name any number of shapes.
const MOST_OPERATIONS: usize = Module::MAX_OPERATIONS / 4;

impl Lowering {
    fn region(&mut self, region: &mut Region, types: &[Type]) -> Result<()> {
        for operation in &mut region.operations {
            for region in &mut operation.regions {
                self.region(region, types)?;
            }
            let Some(function) = self.function_of(operation, types)? else {
                continue;
            };
            match &mut operation.kind {
                OpKind::Composite {
                    name,
                    decomposition,
                    ..
                } if name == ERF => *decomposition = function,
                kind => *kind = OpKind::Call { function },
            }
        }
        Ok(())
    }

    /// The name of the function of a composite without one.
    fn function_of(&mut self, of: &Operation, types: &[Type]) -> Result<Option<String>> {
        let OpKind::Composite {
            name,
            attributes,
            decomposition,
            ..
        } = &of.kind
        else {
            return Ok(None);
        };
        let (true, Some(operation)) = (decomposition.is_empty(), operation(name)) else {
            return Ok(None);
        };
        let ty = |value: &ValueId| types[value.0 as usize].as_tensor().cloned();
        let operands: Option<Vec<_>> = of.operands.iter().map(ty).collect();
        let operands = operands.unwrap_or_default();
        let key = key(name, attributes, &operands);
        if let Some(function) = self.known.get(&key) {
            return Ok(Some(function.clone()));
        }
        if self.operations > MOST_OPERATIONS {
            let (place, count) = (of.position, self.known.len());
            let message = format!(
                "{place}: `{name}` in addition to {count} functions of chlo and shapes, which have \
                 {} operations; at most {MOST_OPERATIONS} are supported: use fewer shapes, or lower \
                 the dialect chlo to StableHLO first",
                self.operations
            );
            return Err(Error::new(ErrorKind::Unsupported, "program", message));
        }
        let function = match operation {
            Computation::TopK => {
                let key_of =
                    |ty: &RankedType| RankedType::new(top_k::of_key(ty.element), &*ty.dims);
                let keys: Vec<_> = operands.iter().map(key_of).collect();
                let sorted = self.add(&format!("{key}.sorted"), &keys, |x| match *x {
                    [x] => top_k::sorted(x, attributes),
                    _ => Err("one tensor"),
                });
                sorted.and_then(|sorted| {
                    self.add(&key, &operands, |x| top_k::top_k(x[0], attributes, &sorted))
                })
            }
            _ => self.add(&key, &operands, |x| operation.build(x)),
        };
        let function = function.map_err(|expected| {
            let types: Vec<_> = operands.iter().map(ToString::to_string).collect();
            let (place, types) = (of.position, types.join(", "));
            let message = format!("{place}: `{name}` of ({types}); expected {expected}");
            Error::invalid("program", message)
        })?;
        self.known.insert(key, function.clone());
        Ok(Some(function))
    }

    /// Adds a function of these operands, and returns its name.
    fn add(
        &mut self,
        name: &str,
        operands: &[RankedType],
        build: impl for<'b> FnOnce(&[Value<'b>]) -> Built<'b>,
    ) -> std::result::Result<String, &'static str> {
        let mut name = name.to_owned();
        while !self.taken.insert(name.clone()) {
            name.push('_');
        }
        let builder = Builder::new(name.clone(), operands);
        let results = build(&builder.arguments())?;
        let function = builder.finish(&results);
        self.operations += function.body.operations.len();
        self.functions.push(function);
        Ok(name)
    }
}

/// The name of the decomposition for these operands: `chlo.asin.impl.f32.2x3`.
fn key(name: &str, attributes: &Attributes, operands: &[RankedType]) -> String {
    let mut key = format!("{name}.impl");
    if let Some(Attribute::Int(count, _)) = attributes.get("k") {
        key = format!("{key}.{count}");
    }
    if let Some(ty) = operands.first() {
        let dims: Vec<_> = ty.dims.iter().map(usize::to_string).collect();
        let element = ty.element.name().replace(['<', '>'], "");
        key = format!("{key}.{element}.{}", dims.join("x"));
    }
    key
}

/// Result of a decomposition; the error is what operands the operation takes.
type Built<'b> = std::result::Result<Vec<Value<'b>>, &'static str>;

/// How an operation is computed from its operands.
enum Computation {
    /// From floats, in `f32` or `f64`.
    Real(for<'b> fn(Value<'b>) -> Value<'b>),
    /// As [`Real`](Self::Real), from two operands.
    Real2(for<'b> fn(Value<'b>, Value<'b>) -> Value<'b>),
    /// From floats, and from complex numbers.
    Inexact(
        for<'b> fn(Value<'b>) -> Value<'b>,
        for<'b> fn(Value<'b>) -> Value<'b>,
    ),
    /// From elements of any other kind.
    Other(for<'b> fn(&[Value<'b>]) -> Built<'b>),
    /// With a composite of its own.
    TopK,
}

/// The computation of an operation; `None` if it is not known.
fn operation(name: &str) -> Option<Computation> {
    use Computation::{Inexact, Other, Real, Real2};
    Some(match name.strip_prefix("chlo.")? {
        "acos" => Inexact(elementary::acos, complex::acos),
        "acosh" => Inexact(elementary::acosh, complex::acosh),
        "asin" => Inexact(elementary::asin, complex::asin),
        "asinh" => Inexact(elementary::asinh, complex::asinh),
        "atan" => Inexact(elementary::atan, complex::atan),
        "atanh" => Inexact(elementary::atanh, complex::atanh),
        "cosh" => Inexact(elementary::cosh, complex::cosh),
        "sinh" => Inexact(elementary::sinh, complex::sinh),
        "tan" => Inexact(|x| x.tan(), |z| z.tan()),
        "erf" => Real(error_function::erf),
        "erf_inv" => Real(error_function::erf_inv),
        "erfc" => Real(error_function::erfc),
        "digamma" => Real(gamma::digamma),
        "lgamma" => Real(gamma::lgamma),
        "polygamma" => Real2(zeta::polygamma),
        "zeta" => Real2(zeta::zeta),
        "bessel_i1e" => Real(zeta::bessel_i1e),
        "square" => Other(elementary::square),
        "conj" => Other(complex::conj),
        "is_inf" => Other(bits::is_inf),
        "is_neg_inf" => Other(bits::is_neg_inf),
        "is_pos_inf" => Other(bits::is_pos_inf),
        "mulhi" => Other(bits::mulhi),
        "next_after" => Other(bits::next_after),
        "top_k" => Computation::TopK,
        _ => return None,
    })
}

impl Computation {
    fn build<'b>(&self, operands: &[Value<'b>]) -> Built<'b> {
        let class = operands.first().map(|x| x.element().class());
        let same = operands.windows(2).all(|pair| pair[0].ty() == pair[1].ty());
        match (self, operands) {
            (Computation::Real(f) | Computation::Inexact(f, _), &[x])
                if class == Some(ElementClass::Float) =>
            {
                Ok(vec![f(computed(x)).convert(x.element())])
            }
            (Computation::Real2(f), &[x, y]) if class == Some(ElementClass::Float) && same => {
                Ok(vec![f(computed(x), computed(y)).convert(x.element())])
            }
            (Computation::Inexact(_, f), &[x]) if class == Some(ElementClass::Complex) => {
                Ok(vec![f(x)])
            }
            (Computation::Other(f), operands) if same => f(operands),
            (Computation::Real(_), _) => Err("one tensor of floats"),
            (Computation::Real2(_), _) => Err("two tensors of floats of one type"),
            (Computation::Inexact(..), _) => Err("one tensor of floats or complex numbers"),
            (Computation::Other(_), _) => Err("operands of one type"),
            (Computation::TopK, _) => Err("one tensor"),
        }
    }
}

/// A float in the type that it is computed in.
fn computed(x: Value<'_>) -> Value<'_> {
    match x.element() {
        ElementType::F64 => x,
        _ => x.convert(ElementType::F32),
    }
}
