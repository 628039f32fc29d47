//! What artifacts need only because XLA's plugin for the CPU errs (lammps-jax-pjrt-cpu 0.11.2).
//! Tests of the suites `chlo` and `plugin_faults` fail when it no longer does.

use std::{collections::HashSet, fmt::Write};

use halite_core::Result;
use halite_stablehlo::{
    BinaryOp, ElementClass, ElementType, Function, Module, OpKind, Operation, RankedType, Region,
    Type, ValueId, ValueIds,
};

/// Hides arc tangents: `atan2(x, 1)` becomes `atan(x)`, whose vectorized call returns the lanes of
/// other elements and zeros; so do composites `chlo.atan`. A barrier hides the constant from the
/// compiler, and the decomposition of the composite is called.
pub(crate) fn without_atan(module: &mut Module) {
    for function in &mut module.functions {
        let mut constants = HashSet::new();
        // What a caller gives may be a constant once the call is inlined.
        if function.name != "main" {
            constants.extend(function.body.arguments.iter().copied());
        }
        let (body, types) = (&mut function.body, &mut function.types);
        rewrite(body, types, &mut constants);
    }
}

/// `constants` are values that depend on constants alone, or may.
fn rewrite(region: &mut Region, types: &mut Vec<Type>, constants: &mut HashSet<ValueId>) {
    let mut operations = Vec::with_capacity(region.operations.len());
    for mut operation in std::mem::take(&mut region.operations) {
        for region in &mut operation.regions {
            rewrite(region, types, constants);
        }
        let of_constants = operation.operands.iter().all(|it| constants.contains(it));
        match &operation.kind {
            OpKind::Composite {
                name,
                decomposition,
                ..
            } if name == "chlo.atan" => {
                let function = decomposition.clone();
                operation.kind = OpKind::Call { function };
            }
            OpKind::Binary(BinaryOp::Atan2) if constants.contains(&operation.operands[1]) => {
                let hidden = ValueId(types.len() as u32);
                types.push(types[operation.operands[1].0 as usize].clone());
                operations.push(Operation {
                    kind: OpKind::OptimizationBarrier,
                    operands: ValueIds::from_slice(&operation.operands[1..2]),
                    results: ValueIds::from_slice(&[hidden]),
                    regions: Vec::new(),
                    ..operation.clone()
                });
                operation.operands[1] = hidden;
            }
            _ if of_constants => constants.extend(operation.results.iter().copied()),
            _ => {}
        }
        operations.push(operation);
    }
    region.operations = operations;
}

/// Makes powers of integers calls of functions whose exponents have six bits, of which alone the
/// plugin takes account.
pub(crate) fn without_integer_power(module: &mut Module) -> Result<()> {
    let mut powers = Powers {
        taken: module.functions.iter().map(|it| it.name.clone()).collect(),
        of_types: Vec::new(),
    };
    for function in &mut module.functions {
        powers.replace(&mut function.body, &function.types)?;
    }
    let functions = powers.of_types.into_iter();
    module
        .functions
        .extend(functions.map(|(_, function)| function));
    Ok(())
}

struct Powers {
    /// Names of functions of the program.
    taken: HashSet<String>,
    of_types: Vec<(RankedType, Function)>,
}

impl Powers {
    fn replace(&mut self, region: &mut Region, types: &[Type]) -> Result<()> {
        for operation in &mut region.operations {
            for region in &mut operation.regions {
                self.replace(region, types)?;
            }
            if operation.kind != OpKind::Binary(BinaryOp::Power) {
                continue;
            }
            let ty = types[operation.results[0].0 as usize].as_tensor();
            let is_integer = |ty: &&RankedType| {
                let class = ty.element.class();
                // An exponent of fewer bits is below 64.
                matches!(class, ElementClass::Signed | ElementClass::Unsigned)
                    && ty.element.bits() > DIGIT
            };
            if let Some(ty) = ty.filter(is_integer) {
                let function = self.of(ty)?;
                operation.kind = OpKind::Call { function };
            }
        }
        Ok(())
    }

    /// The name of the function for a type.
    fn of(&mut self, ty: &RankedType) -> Result<String> {
        if let Some((_, known)) = self.of_types.iter().find(|(known, _)| known == ty) {
            return Ok(known.name.clone());
        }
        let name = (0..).map(|number| format!("halite.power.{number}"));
        let mut name = name.filter(|name| !self.taken.contains(name));
        let name = name.next().expect("there are more names than functions");
        self.taken.insert(name.clone());
        let mut function = Module::parse(&power(ty))?.main()?.clone();
        function.name.clone_from(&name);
        self.of_types.push((ty.clone(), function));
        Ok(name)
    }
}

/// Bits of an exponent that the plugin takes account of.
const DIGIT: usize = 6;

/// A program of two integers, a base and an exponent: the product of the powers of the base to 1,
/// 64, 64 * 64, .. by the digits of the exponent. Negative exponents stay with the compiler.
fn power(ty: &RankedType) -> String {
    let is_signed = ty.element.class() == ElementClass::Signed;
    let truth = RankedType::new(ElementType::Bool, &*ty.dims);
    let mut body = format!(
        "%mask = stablehlo.constant dense<63> : {ty}
         %y0 = stablehlo.constant dense<1> : {ty}\n"
    );
    let digits = ty.element.bits().div_ceil(DIGIT);
    for at in 0..digits {
        let (shift, next) = (at * DIGIT, at + 1);
        let _ = writeln!(
            body,
            "%s{at} = stablehlo.constant dense<{shift}> : {ty}
             %n{at} = stablehlo.shift_right_logical %n, %s{at} : {ty}
             %d{at} = stablehlo.and %n{at}, %mask : {ty}
             %p{at} = stablehlo.power %x{at}, %d{at} : {ty}
             %y{next} = stablehlo.multiply %y{at}, %p{at} : {ty}
             %q{at} = stablehlo.power %x{at}, %mask : {ty}
             %x{next} = stablehlo.multiply %q{at}, %x{at} : {ty}"
        );
    }
    let result = if is_signed {
        let _ = writeln!(
            body,
            "%zero = stablehlo.constant dense<0> : {ty}
             %negative = stablehlo.compare LT, %n, %zero, SIGNED : ({ty}, {ty}) -> {truth}
             %whole = stablehlo.power %x0, %n : {ty}
             %y = stablehlo.select %negative, %whole, %y{digits} : {truth}, {ty}"
        );
        "y".to_owned()
    } else {
        format!("y{digits}")
    };
    format!("func.func @main(%x0: {ty}, %n: {ty}) -> {ty} {{\n{body}return %{result} : {ty}\n}}")
}
