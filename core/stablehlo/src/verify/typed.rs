//! Operations with the types of their operands, results and regions, and checks of types.

use std::collections::HashMap;

use crate::{
    Dense, ElementClass, ElementType, Function, Module, OpKind, Operation, RankedType, Type,
    ValueId,
    rules::{self, Check, ensure},
};

/// The functions of a module by name.
pub(super) type Functions<'a> = HashMap<&'a str, &'a Function>;

/// An operation with the types of its operands, results and regions, all of which exist.
pub(super) struct Typed<'a> {
    pub(super) module: &'a Module,
    functions: &'a Functions<'a>,
    function: &'a Function,
    op: &'a Operation,
}

impl<'a> Typed<'a> {
    /// The operands, results and values of regions must exist.
    pub(super) fn new(
        module: &'a Module,
        functions: &'a Functions<'a>,
        function: &'a Function,
        op: &'a Operation,
    ) -> Self {
        Typed {
            module,
            functions,
            function,
            op,
        }
    }

    /// The function of the module with this name.
    pub(super) fn callee(&self, name: &str) -> Check<&'a Function> {
        let found = self.functions.get(name).copied();
        found.ok_or_else(|| format!("the module has no function `{name}`"))
    }

    pub(super) fn kind(&self) -> &'a OpKind {
        &self.op.kind
    }

    fn types(&self, values: &[ValueId]) -> Vec<&'a Type> {
        values
            .iter()
            .map(|&value| self.function.ty(value))
            .collect()
    }

    pub(super) fn operands(&self) -> Vec<&'a Type> {
        self.types(&self.op.operands)
    }

    pub(super) fn results(&self) -> Vec<&'a Type> {
        self.types(&self.op.results)
    }

    /// The operands, which must be tensors.
    pub(super) fn tensors(&self) -> Check<Vec<&'a RankedType>> {
        as_tensors("operand", &self.operands())
    }

    /// The operands, which must be tensors, and exactly `N`.
    pub(super) fn take<const N: usize>(&self) -> Check<[&'a RankedType; N]> {
        rules::take(&self.tensors()?)
    }

    /// The operands, which must be tensors, and at least one.
    pub(super) fn some_tensors(&self) -> Check<Vec<&'a RankedType>> {
        let tensors = self.tensors()?;
        ensure!(!tensors.is_empty(), "takes one operand or more, got none");
        Ok(tensors)
    }

    /// The results as declared, which must be tensors, and exactly `N`. For operations whose
    /// results do not follow from their operands alone.
    pub(super) fn declared<const N: usize>(&self) -> Check<[&'a RankedType; N]> {
        let tensors = as_tensors("result", &self.results())?;
        let count = tensors.len();
        (tensors.try_into()).map_err(|_| format!("result count is {count}; it must be {N}"))
    }

    /// The one result as declared, which must be a tensor.
    pub(super) fn declared_one(&self) -> Check<&'a RankedType> {
        let [result] = self.declared()?;
        Ok(result)
    }

    pub(super) fn check_region_count(&self, count: usize) -> Check {
        ensure!(
            self.op.regions.len() == count,
            "region count is {}; it must be {count}",
            self.op.regions.len()
        );
        Ok(())
    }

    /// Number of regions.
    pub(super) fn regions(&self) -> usize {
        self.op.regions.len()
    }

    /// Types that a region returns.
    pub(super) fn region_results(&self, region: usize) -> Vec<&'a Type> {
        self.types(&self.op.regions[region].results)
    }

    /// Checks the types that a region takes and returns.
    pub(super) fn check_region(&self, region: usize, takes: &[Type], returns: &[Type]) -> Check {
        let arguments = self.types(&self.op.regions[region].arguments);
        check_types(&format!("region {region}: argument"), &arguments, takes)?;
        let results = self.region_results(region);
        check_types(&format!("region {region}: result"), &results, returns)
    }
}

/// Checks the types of values, of which `what` names one.
pub(super) fn check_types(what: &str, types: &[&Type], must_be: &[Type]) -> Check {
    ensure!(
        types.len() == must_be.len(),
        "{what} count is {}; it must be {}",
        types.len(),
        must_be.len()
    );
    match (types.iter().zip(must_be).enumerate()).find(|(_, (ty, must_be))| **ty != *must_be) {
        Some((index, (ty, must_be))) => {
            Err(format!("{what} {index} is {ty}; it must be {must_be}"))
        }
        None => Ok(()),
    }
}

fn as_tensors<'a>(what: &str, types: &[&'a Type]) -> Check<Vec<&'a RankedType>> {
    let tensor = |(index, ty): (usize, &&'a Type)| {
        (ty.as_tensor()).ok_or_else(|| format!("{what} {index} is {ty}; it must be a tensor"))
    };
    types.iter().enumerate().map(tensor).collect()
}

/// A tensor, as the type of a value.
pub(super) fn tensor(element: ElementType, dims: impl Into<Vec<usize>>) -> Type {
    Type::Tensor(RankedType::new(element, dims))
}

/// A scalar, as the type of a value.
pub(super) fn scalar(element: ElementType) -> Type {
    tensor(element, [])
}

/// Checks that tensors have one type.
pub(super) fn check_same(types: &[&RankedType]) -> Check {
    for ty in types {
        ensure!(
            *ty == types[0],
            "operands are {} and {ty}; they must have one type",
            types[0]
        );
    }
    Ok(())
}

/// Checks that an operand is a scalar.
pub(super) fn check_scalar(what: &str, ty: &RankedType) -> Check {
    ensure!(ty.rank() == 0, "{what} is {ty}; it must be a scalar");
    Ok(())
}

/// Deepest nesting of tuple types.
const MAX_TUPLE_NESTING: usize = 16;

/// Checks that products of a type's dimensions fit `isize`, also without the dimensions of size 0:
/// executors compute strides of empty tensors, too.
pub(super) fn check_size(ty: &Type) -> Check {
    fn check(ty: &Type, nesting: usize) -> Check {
        match ty {
            Type::Token => Ok(()),
            Type::Tuple(types) => {
                ensure!(
                    nesting < MAX_TUPLE_NESTING,
                    "a tuple type is nested more than {MAX_TUPLE_NESTING} deep"
                );
                types.iter().try_for_each(|ty| check(ty, nesting + 1))
            }
            Type::Tensor(ty) => {
                ensure!(
                    ty.rank() <= Module::MAX_RANK,
                    "a tensor type has {} dimensions; it must have at most {}",
                    ty.rank(),
                    Module::MAX_RANK
                );
                let bytes = (ty.dims.iter()).try_fold(ty.element.size(), |bytes, &dim| {
                    bytes.checked_mul(dim.max(1))
                });
                ensure!(
                    bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok()),
                    "{ty} is larger than this machine's address space"
                );
                Ok(())
            }
        }
    }
    check(ty, 0)
}

/// Checks that a constant has as many bytes as its type needs, and no bits that it does not have.
pub(super) fn check_dense(value: &Dense) -> Check {
    check_size(&Type::Tensor(value.ty.clone()))?;
    let (given, needed) = (value.bytes.len(), value.ty.bytes());
    ensure!(
        given == needed || value.is_splat(),
        "{} has {given} bytes; it must have {needed}, or those of one element",
        value.ty
    );
    let element = value.ty.element;
    if element.bits() >= 8 {
        return Ok(());
    }
    let fits = |&&byte: &&u8| match element.class() {
        ElementClass::Signed => {
            let half = 1 << (element.bits() - 1);
            (-half..half).contains(&i32::from(byte.cast_signed()))
        }
        _ => u32::from(byte) < 1 << element.bits(),
    };
    match value.bytes.iter().find(|byte| !fits(byte)) {
        Some(byte) => Err(format!(
            "an element of {} has the byte {byte:#04x}",
            value.ty
        )),
        None => Ok(()),
    }
}
