//! Functions of the dialect `chlo`, as JAX writes them into text, against golden values. The values
//! are in `golden.json`, with the script that computes them.

mod exact;

use std::{collections::BTreeMap, sync::LazyLock};

use half::{bf16, f16};
use halite_core::{Arg, Array, CompileOptions, DType, HostArray, Result, Sharding, TensorType};
use halite_exchange::Artifact;
use halite_stablehlo::Module;
use halite_tests::eval::{client, named};
use serde::Deserialize;

/// Numbers are strings, since JSON has no infinities.
#[derive(Deserialize)]
struct Golden {
    /// `[x, value]`
    unary: BTreeMap<String, Vec<[String; 2]>>,
    /// `[x, y, value]`
    binary: BTreeMap<String, Vec<[String; 3]>>,
    /// `[real, imaginary, real of the value, imaginary of the value]`
    complex: BTreeMap<String, Vec<[String; 4]>>,
}

static GOLDEN: LazyLock<Golden> =
    LazyLock::new(|| serde_json::from_str(include_str!("chlo/golden.json")).unwrap());

/// A float type with what its rounding errors are measured by.
struct Float {
    dtype: DType,
    epsilon: f64,
    /// The smallest normal number.
    normal: f64,
    largest: f64,
    round: fn(f64) -> f64,
}

const FLOATS: [Float; 4] = [
    Float {
        dtype: DType::F64,
        epsilon: f64::EPSILON,
        normal: f64::MIN_POSITIVE,
        largest: f64::MAX,
        round: |x| x,
    },
    Float {
        dtype: DType::F32,
        epsilon: f32::EPSILON as f64,
        normal: f32::MIN_POSITIVE as f64,
        largest: f32::MAX as f64,
        round: |x| f64::from(x as f32),
    },
    Float {
        dtype: DType::F16,
        epsilon: 9.765_625e-4,
        normal: 6.103_515_625e-5,
        largest: 65_504.0,
        round: |x| f16::from_f64(x).to_f64(),
    },
    Float {
        dtype: DType::Bf16,
        epsilon: 7.812_5e-3,
        normal: f32::MIN_POSITIVE as f64,
        largest: 3.389_531_389_251_535_5e38,
        round: |x| bf16::from_f64(x).to_f64(),
    },
];

impl Float {
    fn array(&self, values: &[f64]) -> HostArray {
        let ty = TensorType::new(self.dtype, [values.len()]);
        let mut bytes = Vec::new();
        for &value in values {
            match self.dtype {
                DType::F64 => bytes.extend(value.to_le_bytes()),
                DType::F32 => bytes.extend((value as f32).to_le_bytes()),
                DType::F16 => bytes.extend(f16::from_f64(value).to_le_bytes()),
                _ => bytes.extend(bf16::from_f64(value).to_le_bytes()),
            }
        }
        HostArray::from_bytes(&bytes, ty).unwrap()
    }

    fn values(&self, array: &HostArray) -> Vec<f64> {
        let bytes = array.bytes();
        let two = |bytes: &[u8]| [bytes[0], bytes[1]];
        match self.dtype {
            DType::F64 => array.as_slice::<f64>().unwrap().to_vec(),
            DType::F32 => {
                let values = array.as_slice::<f32>().unwrap();
                values.iter().map(|&value| value.into()).collect()
            }
            DType::F16 => (bytes.chunks(2))
                .map(|it| f16::from_le_bytes(two(it)).to_f64())
                .collect(),
            _ => (bytes.chunks(2))
                .map(|it| bf16::from_le_bytes(two(it)).to_f64())
                .collect(),
        }
    }

    /// Whether the accelerator computes with a number as it is: XLA takes subnormals for 0.
    fn has(&self, value: f64) -> bool {
        let is_normal = value == 0.0 || value.is_nan() || value.abs() >= self.normal;
        (value.is_nan() || (self.round)(value) == value) && (is_normal || is_embedded())
    }

    /// The error in units of the last place; infinite where the kind of number or the sign of a
    /// zero differs.
    fn error(&self, got: f64, want: f64) -> f64 {
        if want.is_nan() || got.is_nan() {
            return if want.is_nan() && got.is_nan() {
                0.0
            } else {
                f64::INFINITY
            };
        }
        if want == 0.0 && got == 0.0 {
            let same = want.is_sign_negative() == got.is_sign_negative();
            return if same { 0.0 } else { f64::INFINITY };
        }
        if got.is_infinite() || want.is_infinite() {
            // Rounding may pass the largest number.
            let rounded = want.abs() >= self.largest * (1.0 - 4.0 * self.epsilon)
                && got.abs() >= self.largest * (1.0 - 4.0 * self.epsilon);
            let right = rounded && got.is_sign_negative() == want.is_sign_negative();
            return if right { 0.0 } else { f64::INFINITY };
        }
        let least = if is_embedded() {
            self.normal
        } else {
            self.normal / self.epsilon
        };
        (got - want).abs() / (want.abs().max(least) * self.epsilon)
    }
}

fn is_embedded() -> bool {
    named().is_some_and(|it| it.to_string().starts_with("embedded"))
}

/// Runs a function of the dialect on arrays of one type.
fn run(code: &str, inputs: &[HostArray]) -> Result<Vec<HostArray>> {
    let client = client();
    let program = Artifact::read(code.as_bytes())?.compile(client)?;
    let arrays: Vec<_> = (inputs.iter())
        .map(|it| Array::upload(client, it, program.sharding()))
        .collect::<Result<_>>()?;
    let results = program.run(&arrays.iter().collect::<Vec<_>>())?;
    results.iter().map(Array::read).collect()
}

/// The text of a program of one operation of vectors.
fn program(name: &str, element: &str, count: usize, operands: usize) -> String {
    let ty = format!("tensor<{count}x{element}>");
    let list = |item: &dyn Fn(usize) -> String| -> String {
        (0..operands).map(item).collect::<Vec<_>>().join(", ")
    };
    format!(
        "func.func @main({}) -> {ty} {{ %y = chlo.{name} {} : {} -> {ty}\n return %y : {ty} }}",
        list(&|at| format!("%x{at}: {ty}")),
        list(&|at| format!("%x{at}")),
        list(&|_| ty.clone()),
    )
}

fn number(text: &str) -> f64 {
    text.parse().unwrap()
}

/// Checks a function in every type. `rows` are operands, then the value.
fn check(name: &str, rows: &[Vec<f64>], bound: &Bound) {
    let mut failures = Vec::new();
    for float in &FLOATS {
        let fits = |row: &&Vec<f64>| row[..row.len() - 1].iter().all(|&x| float.has(x));
        let rows: Vec<_> = rows.iter().filter(fits).collect();
        let operands = rows[0].len() - 1;
        let inputs: Vec<_> = (0..operands)
            .map(|at| float.array(&rows.iter().map(|row| row[at]).collect::<Vec<_>>()))
            .collect();
        let element = float.dtype.name();
        let code = program(name, element, rows.len(), operands);
        let results = run(&code, &inputs).unwrap_or_else(|error| panic!("{name}: {error}"));
        let narrow = matches!(float.dtype, DType::F16 | DType::Bf16);
        let mut worst = (0.0, f64::NAN);
        for (row, got) in rows.iter().zip(float.values(&results[0])) {
            let want = row[operands];
            let mut error = float.error(got, want);
            // Where values cross 0, the error is that of numbers of this size.
            if want.abs() < bound.around {
                error = error.min((got - want).abs() / (bound.around * float.epsilon));
            }
            if error > worst.0 {
                worst = (error, row[0]);
            }
            if error > if narrow { 1.0 } else { bound.ulps } {
                failures.push(format!(
                    "{name} {element} {row:?}: got {got:e}, {error:.1} ulp"
                ));
            }
        }
        println!(
            "{name} {element}: {} values, {:.2} ulp at {:e}",
            rows.len(),
            worst.0,
            worst.1
        );
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Accuracy of a function.
struct Bound {
    /// Error in units of the last place.
    ulps: f64,
    /// Values below this size have the error of values of this size.
    around: f64,
}

fn bound(name: &str) -> Bound {
    let (ulps, around) = match name {
        "lgamma" | "digamma" => (6.0, 1.0),
        "polygamma" => (16.0, 1.0),
        "zeta" => (8.0, 0.0),
        "bessel_i1e" => (9.0, 0.0),
        "erfc" => (6.0, 0.0),
        "sinh" => (4.0, 0.0),
        _ => (2.0, 0.0),
    };
    Bound { ulps, around }
}

macro_rules! functions {
    ($($name:ident)*) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];
        $(#[test]
        fn $name() {
            let golden = &*GOLDEN;
            let name = stringify!($name);
            let numbers = |row: &[String]| row.iter().map(|it| number(it)).collect::<Vec<_>>();
            let rows: Vec<_> = match golden.unary.get(name) {
                Some(rows) => rows.iter().map(|row| numbers(row)).collect(),
                None => golden.binary[name].iter().map(|row| numbers(row)).collect(),
            };
            check(name, &rows, &bound(name));
        })*
    };
}
functions! {
    acos acosh asin asinh atan atanh bessel_i1e cosh digamma erf erf_inv erfc lgamma polygamma sinh
    square tan zeta
}

/// Complex numbers of `f64` and `f32`.
fn check_complex(name: &str, rows: &[[f64; 4]]) {
    let mut failures = Vec::new();
    for (float, dtype) in FLOATS.iter().zip([DType::C128, DType::C64]) {
        let fits = |row: &&[f64; 4]| float.has(row[0]) && float.has(row[1]);
        let rows: Vec<_> = rows.iter().filter(fits).collect();
        let parts: Vec<f64> = rows.iter().flat_map(|row| [row[0], row[1]]).collect();
        let ty = TensorType::new(dtype, [rows.len()]);
        let inputs = [HostArray::from_bytes(float.array(&parts).bytes(), ty).unwrap()];
        let element = match dtype {
            DType::C128 => "complex<f64>",
            _ => "complex<f32>",
        };
        let results = run(&program(name, element, rows.len(), 1), &inputs).unwrap();
        let ty = TensorType::new(float.dtype, [parts.len()]);
        let values = HostArray::from_bytes(results[0].bytes(), ty).unwrap();
        let mut worst = (0.0, [f64::NAN; 2]);
        for (row, got) in rows.iter().zip(float.values(&values).chunks(2)) {
            let want = [row[2], row[3]];
            let size = want[0].hypot(want[1]);
            // The error is that of the number as a whole where it is finite.
            let error = (got.iter().zip(want)).map(|(&got, want)| {
                let error = float.error(got, want);
                match size.is_finite() && got != 0.0 {
                    true => error.min((got - want).abs() / (size * float.epsilon)),
                    false => error,
                }
            });
            let error = error.fold(0.0, f64::max);
            if error > worst.0 {
                worst = (error, [row[0], row[1]]);
            }
            if error > 8.0 {
                failures.push(format!(
                    "{name} {element} {row:?}: got {got:?}, {error:.1} ulp"
                ));
            }
        }
        println!(
            "{name} {element}: {} values, {:.2} ulp at {:?}",
            rows.len(),
            worst.0,
            worst.1
        );
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

macro_rules! complex_functions {
    ($($name:ident $function:literal)*) => {
        const COMPLEX: &[&str] = &[$($function),*];
        $(#[test]
        fn $name() {
            let rows = &GOLDEN.complex[$function];
            let rows: Vec<_> = rows.iter().map(|row| row.each_ref().map(|it| number(it))).collect();
            check_complex($function, &rows);
        })*
    };
}
complex_functions! {
    complex_acos "acos" complex_acosh "acosh" complex_asin "asin" complex_asinh "asinh"
    complex_atan "atan" complex_atanh "atanh" complex_cosh "cosh" complex_sinh "sinh"
}

/// The fault that `without_atan` of `halite_exchange` (`cpu_plugin.rs`) is for: once this test fails,
/// the plugin is mended, and both can be removed.
#[test]
fn atan_of_the_cpu_plugin_is_wrong() {
    let client = client();
    if &*client.platform().name != "cpu" {
        return;
    }
    let ty = TensorType::new(DType::F32, [64]);
    let code = "func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {
        %one = stablehlo.constant dense<1.0> : tensor<64xf32>
        %y = stablehlo.atan2 %x, %one : tensor<64xf32>
        return %y : tensor<64xf32> }";
    let x: Vec<f32> = (0..64).map(|at| at as f32 / 8.0).collect();
    let input = HostArray::from_slice(&x, [64]).unwrap();
    let sharding = Sharding::single(client.local_devices()[0]);
    let interface = Module::parse(code).unwrap().interface().unwrap();
    let options = CompileOptions {
        devices: vec![client.local_devices()[0]],
        ..Default::default()
    };
    let loaded = client.compile(&interface.program(code), &options).unwrap();
    let x_on_device = Array::upload(client, &input, &sharding).unwrap();
    let results = loaded
        .launch(vec![Arg::Borrow(x_on_device.shards())])
        .unwrap();
    let result = Array::from_shards(ty, &sharding, results.into_iter().next().unwrap()).unwrap();
    let wrong = |values: Vec<f32>| {
        values
            .iter()
            .zip(&x)
            .any(|(y, x)| (y - x.atan()).abs() > 1e-5)
    };
    assert!(
        wrong(result.to_vec().unwrap()),
        "the plugin computes atan2(x, 1)"
    );
    let run = run(code, &[input]).unwrap();
    assert!(!wrong(run[0].as_slice::<f32>().unwrap().to_vec()));
}

#[test]
fn every_golden_function_is_tested() {
    let stored = GOLDEN.unary.keys().chain(GOLDEN.binary.keys());
    let mut stored: Vec<&str> = stored.map(String::as_str).collect();
    stored.sort_unstable();
    assert_eq!(stored, NAMES);
    assert!(GOLDEN.complex.keys().eq(COMPLEX));
}
