//! Programs as portable bytecode, for readers that know StableHLO and no other dialect.

use std::borrow::Cow;

use halite_core::{
    Capabilities, DType, Error, ErrorKind, MeshShape, Result, TensorType,
    tree::{Empty, Leaf},
};
use halite_nn::{Function, ShardedType, Tensor, lower};
use halite_stablehlo::{
    Attributes, Function as Callee, Module, OpKind, Operation, Region, Type, Version,
};

/// Versions to write a program in: the first that has everything in the program is the one that
/// most readers know.
const VERSIONS: [Version; 4] = [
    Version::new(1, 0, 0),
    Version::new(1, 9, 0),
    Version::new(1, 13, 0),
    Version::new(1, 17, 0),
];

/// Writes a program as portable bytecode of `version`; by default of the oldest of 1.0.0, 1.9.0,
/// 1.13.0 and 1.17.0 that has what the program uses.
///
/// `erf`, which is not in StableHLO, becomes the composite `chlo.erf`, as in programs of JAX:
/// compilers that do not know it run its decomposition.
///
/// # Errors
/// If the version does not have what the program uses; by default, if the newest does not.
pub fn portable(module: &Module, version: Option<Version>) -> Result<Vec<u8>> {
    let module = with_composites(module)?;
    if let Some(version) = version {
        return module.to_bytecode(version);
    }
    let (last, older) = VERSIONS.split_last().expect("there are versions");
    let written = older
        .iter()
        .find_map(|&version| module.to_bytecode(version).ok());
    written.map_or_else(|| module.to_bytecode(*last), Ok)
}

/// Returns the program with composites in place of calls of `mhlo.erf`.
fn with_composites(module: &Module) -> Result<Cow<'_, Module>> {
    let mut next = Cow::Borrowed(module);
    for index in 0..module.functions.len() {
        if !contains_erf(&module.functions[index].body) {
            continue;
        }
        let Module { functions, .. } = next.to_mut();
        let mut decompositions = Vec::new();
        let function = &mut functions[index];
        replace(&mut function.body, &function.types, &mut decompositions)?;
        for decomposition in decompositions {
            if functions
                .iter()
                .all(|known| known.name != decomposition.name)
            {
                functions.push(decomposition);
            }
        }
    }
    Ok(next)
}

fn is_erf(operation: &Operation) -> bool {
    let OpKind::CustomCall(call) = &operation.kind else {
        return false;
    };
    call.target == "mhlo.erf" && operation.operands.len() == 1 && operation.results.len() == 1
}

fn contains_erf(region: &Region) -> bool {
    let contains =
        |operation: &Operation| is_erf(operation) || operation.regions.iter().any(contains_erf);
    region.operations.iter().any(contains)
}

/// Replaces the calls of a region by composites, and adds their decompositions.
fn replace(region: &mut Region, types: &[Type], decompositions: &mut Vec<Callee>) -> Result<()> {
    for operation in &mut region.operations {
        for region in &mut operation.regions {
            replace(region, types, decompositions)?;
        }
        if !is_erf(operation) {
            continue;
        }
        let ty = &types[operation.operands[0].0 as usize];
        let tensor = ty.as_tensor().and_then(|ty| ty.tensor_type());
        let Some(tensor) = tensor.filter(|ty| ty.dtype().is_float()) else {
            let message = format!("{operation}: erf of {ty}; expected a tensor of floats");
            return Err(Error::new(ErrorKind::Unsupported, "portable", message));
        };
        let name = decomposition_name(&tensor);
        if decompositions.iter().all(|known| known.name != name) {
            decompositions.push(decomposition(&name, tensor)?);
        }
        operation.kind = OpKind::Composite {
            name: "chlo.erf".to_owned(),
            attributes: Attributes::default(),
            decomposition: name,
            version: 1,
        };
        // `mhlo.version` and `mhlo.attributes`, if the program has them, are of the call.
        operation.attributes = Attributes::default();
    }
    Ok(())
}

/// The name of the decomposition for operands of this type, such as `chlo.erf.impl.f32.2x3`.
fn decomposition_name(ty: &TensorType) -> String {
    let dims: Vec<String> = ty.dims().iter().map(usize::to_string).collect();
    format!("chlo.erf.impl.{}.{}", ty.dtype(), dims.join("x"))
}

/// The error function of a tensor as a StableHLO function.
fn decomposition(name: &str, ty: TensorType) -> Result<Callee> {
    let function =
        Function::<Empty<()>, Leaf<()>, Leaf<()>>::stateless(|_cx, Leaf(x)| Leaf(erf(x)));
    let mesh = MeshShape::new([("device", 1)])?;
    let input = Leaf(ShardedType::replicated(ty));
    let lowered = lower(
        &function,
        &Empty::new(),
        &input,
        &mesh,
        &Capabilities::PORTABLE,
    )?;
    let mut main = Module::read(&lowered.program.code)?.main()?.clone();
    main.name = name.to_owned();
    main.input_attributes = vec![Attributes::default()];
    main.output_attributes = vec![Attributes::default()];
    for operation in &mut main.body.operations {
        operation.location = None;
    }
    Ok(main)
}

/// The error function in arithmetic: rational functions of x² below 1, and of |x| for `erfc` beyond
/// (S. L. Moshier, Cephes Mathematical Library, `ndtr.c`, 1992). Relative error in `f64`: 4e-16.
fn erf(x: Tensor<'_>) -> Tensor<'_> {
    if !matches!(x.dtype(), DType::F32 | DType::F64) {
        return erf(x.convert(DType::F32)).convert(x.dtype());
    }
    let square = x * x;
    let center =
        x * polynomial(square, &CENTER_NUMERATOR) / polynomial(square, &CENTER_DENOMINATOR);
    // From 6 on, erf is 1 in both types; beyond the bound, the polynomials would overflow.
    let size = x.abs().minimum(6.0);
    let complement = (-(size * size)).exp() * polynomial(size, &TAIL_NUMERATOR)
        / polynomial(size, &TAIL_DENOMINATOR);
    let tail = x.sign() * (1.0 - complement);
    x.abs().lt(1.0).select(center, tail)
}

/// A polynomial, highest power first.
fn polynomial<'t>(x: Tensor<'t>, coefficients: &[f64]) -> Tensor<'t> {
    let [first, second, rest @ ..] = coefficients else {
        unreachable!("the polynomials below have coefficients");
    };
    let linear = x * *first + *second;
    rest.iter()
        .fold(linear, |sum, &coefficient| sum * x + coefficient)
}

/// Numerator of erf(x) / x, in x².
const CENTER_NUMERATOR: [f64; 5] = [
    9.604_973_739_870_516,
    90.026_019_720_384_27,
    2_232.005_345_946_843,
    7_003.325_141_128_051,
    55_592.301_301_039_49,
];

/// Its denominator.
const CENTER_DENOMINATOR: [f64; 6] = [
    1.0,
    33.561_714_164_750_31,
    521.357_949_780_152_7,
    4_594.323_829_709_801,
    22_629.000_061_389_095,
    49_267.394_260_863_59,
];

/// Numerator of erfc(x) exp(x²), in x.
const TAIL_NUMERATOR: [f64; 9] = [
    2.461_969_814_735_305e-10,
    0.564_189_564_831_068_9,
    7.463_210_564_422_699,
    48.637_197_098_568_14,
    196.520_832_956_077_1,
    526.445_194_995_477_3,
    934.528_527_171_957_6,
    1_027.551_886_895_157_2,
    557.535_335_369_399_4,
];

/// Its denominator.
const TAIL_DENOMINATOR: [f64; 9] = [
    1.0,
    13.228_195_115_474_499,
    86.707_214_088_598_97,
    354.937_778_887_819_9,
    975.708_501_743_205_5,
    1_823.909_166_879_097_3,
    2_246.337_608_187_109_7,
    1_656.663_091_941_613_4,
    557.535_340_817_727_7,
];
