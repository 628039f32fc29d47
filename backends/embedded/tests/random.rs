//! Random programs in the fast mode, against the oracle.
//!
//! Operations that round once (`add`, `sqrt`, ..) have the oracle's bits. Results of others (sums,
//! `exponential`, ..) are compared with a tolerance, and only moves of elements follow them.

use std::{cell::RefCell, collections::BTreeMap, fmt::Write};

use halite_core::DType;
use halite_embedded::Mode;
use halite_stablehlo::Module;
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};

use crate::common::{floats, open, program, run};

const SIZES: [usize; 9] = [0, 1, 1, 2, 3, 5, 8, 17, 40];

/// A value of the program that is written.
#[derive(Clone, Debug)]
struct Value {
    name: String,
    dims: Vec<usize>,
    element: &'static str,
    /// Whether it has the oracle's bits.
    is_exact: bool,
    /// Limit of the absolute values of finite elements.
    bound: f64,
}

impl Value {
    fn ty(&self) -> String {
        let dims: String = self.dims.iter().map(|dim| format!("{dim}x")).collect();
        format!("tensor<{dims}{}>", self.element)
    }
}

/// Writes a program from random numbers.
struct Writer<'c> {
    choices: std::slice::Iter<'c, u32>,
    body: String,
    values: Vec<Value>,
}

impl Writer<'_> {
    fn choose(&mut self, count: usize) -> usize {
        self.choices
            .next()
            .map_or(0, |&choice| choice as usize % count.max(1))
    }

    fn pick(&mut self, suits: impl Fn(&Value) -> bool) -> Option<Value> {
        let known: Vec<_> = self
            .values
            .iter()
            .filter(|value| suits(value))
            .cloned()
            .collect();
        let at = self.choose(known.len());
        known.get(at).cloned()
    }

    /// Adds a value, and writes the operation that computes it.
    fn push(&mut self, mut value: Value, operation: impl FnOnce(&str) -> String) -> Value {
        value.name = format!("%{}", self.values.len());
        let line = operation(&value.ty());
        writeln!(self.body, "    {} = {line}", value.name).expect("strings grow");
        self.values.push(value.clone());
        value
    }

    fn step(&mut self) -> Option<()> {
        match self.choose(16) {
            0 | 1 => self.exact_unary(),
            2..=4 => self.binary(),
            5 => self.compare_select(),
            6 => self.inexact_unary(),
            7 => self.integers(),
            8 => self.broadcast(),
            9 => self.transpose(),
            10 => self.slice(),
            11 => self.pad(),
            12 => self.reduce(),
            13 => self.dot(),
            14 => self.concatenate(),
            _ => self.reduce_window(),
        }
    }

    fn exact_unary(&mut self) -> Option<()> {
        let x = self.pick(|x| x.is_exact && x.element == "f32")?;
        let names = [
            "abs",
            "negate",
            "floor",
            "ceil",
            "sign",
            "sqrt",
            "round_nearest_even",
        ];
        let op = names[self.choose(names.len())];
        let bound = x.bound + 1.0;
        self.push(Value { bound, ..x.clone() }, |ty| {
            format!("stablehlo.{op} {} : {ty}", x.name)
        });
        Some(())
    }

    fn inexact_unary(&mut self) -> Option<()> {
        let x = self.pick(|x| x.is_exact && x.element == "f32")?;
        let names = [
            "exponential",
            "exponential_minus_one",
            "log",
            "log_plus_one",
            "tanh",
            "logistic",
            "rsqrt",
            "cosine",
            "sine",
            "cbrt",
        ];
        let op = names[self.choose(names.len())];
        let value = Value {
            is_exact: false,
            bound: f64::INFINITY,
            ..x.clone()
        };
        self.push(value, |ty| format!("stablehlo.{op} {} : {ty}", x.name));
        Some(())
    }

    fn binary(&mut self) -> Option<()> {
        let x = self.pick(|x| x.is_exact && x.element == "f32")?;
        let y = self.pick(|y| y.is_exact && y.element == "f32" && y.dims == x.dims)?;
        let (op, bound) = match self.choose(6) {
            0 => ("add", x.bound + y.bound),
            1 => ("subtract", x.bound + y.bound),
            2 => ("multiply", x.bound * y.bound),
            3 => ("maximum", x.bound.max(y.bound)),
            4 => ("minimum", x.bound.max(y.bound)),
            _ => ("divide", f64::INFINITY),
        };
        let operands = format!("{}, {}", x.name, y.name);
        self.push(Value { bound, ..x }, |ty| {
            format!("stablehlo.{op} {operands} : {ty}")
        });
        Some(())
    }

    fn compare_select(&mut self) -> Option<()> {
        let x = self.pick(|x| x.is_exact && x.element == "f32")?;
        let y = self.pick(|y| y.is_exact && y.element == "f32" && y.dims == x.dims)?;
        let direction = ["EQ", "NE", "LT", "LE", "GT", "GE"][self.choose(6)];
        let of = x.ty();
        let predicate = self.push(
            Value {
                element: "i1",
                ..x.clone()
            },
            |ty| {
                let operands = format!("{}, {}", x.name, y.name);
                format!("stablehlo.compare {direction}, {operands}, FLOAT : ({of}, {of}) -> {ty}")
            },
        );
        let (first, operands) = (
            predicate.ty(),
            format!("{}, {}, {}", predicate.name, y.name, x.name),
        );
        let bound = x.bound.max(y.bound);
        self.push(Value { bound, ..x }, |ty| {
            format!("stablehlo.select {operands} : {first}, {ty}")
        });
        Some(())
    }

    fn integers(&mut self) -> Option<()> {
        let x = self.pick(|x| x.is_exact && x.element == "f32" && x.bound < 1e6)?;
        let of = x.ty();
        let element = ["i32", "ui8", "ui32", "i8"][self.choose(4)];
        let y = self.push(
            Value {
                element,
                ..x.clone()
            },
            |ty| format!("stablehlo.convert {} : ({of}) -> {ty}", x.name),
        );
        let op = ["maximum", "minimum", "and", "or", "xor"][self.choose(5)];
        let z = self.push(y.clone(), |ty| {
            format!("stablehlo.{op} {0}, {0} : {ty}", y.name)
        });
        let of = z.ty();
        let bound = 4e9;
        self.push(
            Value {
                element: "f32",
                bound,
                ..z.clone()
            },
            |ty| format!("stablehlo.convert {} : ({of}) -> {ty}", z.name),
        );
        Some(())
    }

    fn broadcast(&mut self) -> Option<()> {
        let x = self.pick(|x| x.dims.len() <= 2)?;
        let (at, size) = (
            self.choose(x.dims.len() + 1),
            SIZES[self.choose(SIZES.len())],
        );
        let mut dims = x.dims.clone();
        dims.insert(at, size);
        let mapping: Vec<_> = (0..dims.len()).filter(|&dim| dim != at).collect();
        let of = x.ty();
        self.push(Value { dims, ..x.clone() }, |ty| {
            format!(
                "stablehlo.broadcast_in_dim {}, dims = {mapping:?} : ({of}) -> {ty}",
                x.name
            )
        });
        Some(())
    }

    fn transpose(&mut self) -> Option<()> {
        let x = self.pick(|x| x.dims.len() >= 2)?;
        let of = x.ty();
        match self.choose(3) {
            0 => {
                let dims = vec![x.dims.iter().product()];
                self.push(Value { dims, ..x.clone() }, |ty| {
                    format!("stablehlo.reshape {} : ({of}) -> {ty}", x.name)
                });
            }
            1 => {
                let dim = self.choose(x.dims.len());
                self.push(x.clone(), |ty| {
                    format!("stablehlo.reverse {}, dims = [{dim}] : {ty}", x.name)
                });
            }
            _ => {
                let mut permutation: Vec<_> = (0..x.dims.len()).collect();
                permutation.rotate_left(1);
                let dims = permutation.iter().map(|&dim| x.dims[dim]).collect();
                self.push(Value { dims, ..x.clone() }, |ty| {
                    format!(
                        "stablehlo.transpose {}, dims = {permutation:?} : ({of}) -> {ty}",
                        x.name
                    )
                });
            }
        }
        Some(())
    }

    fn slice(&mut self) -> Option<()> {
        let x = self.pick(|x| !x.dims.is_empty())?;
        let (mut dims, mut ranges) = (Vec::new(), Vec::new());
        for &size in &x.dims {
            let start = self.choose(size + 1);
            let limit = start + self.choose(size - start + 1);
            let stride = 1 + self.choose(3);
            dims.push((limit - start).div_ceil(stride));
            ranges.push(format!("{start}:{limit}:{stride}"));
        }
        let (of, ranges) = (x.ty(), ranges.join(", "));
        self.push(Value { dims, ..x.clone() }, |ty| {
            format!("stablehlo.slice {} [{ranges}] : ({of}) -> {ty}", x.name)
        });
        Some(())
    }

    fn pad(&mut self) -> Option<()> {
        let x = self.pick(|x| x.element == "f32" && !x.dims.is_empty())?;
        let fill = self.push(
            Value {
                dims: Vec::new(),
                is_exact: true,
                bound: 1.5,
                ..x.clone()
            },
            |ty| format!("stablehlo.constant dense<1.5> : {ty}"),
        );
        let (mut dims, mut low, mut high, mut interior) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for &size in &x.dims {
            let (before, after, within) = (self.choose(3), self.choose(3), self.choose(3));
            dims.push(before + after + size + size.saturating_sub(1) * within);
            low.push(before);
            high.push(after);
            interior.push(within);
        }
        let operands = format!("{}, {}", x.name, fill.name);
        let types = format!("({}, {})", x.ty(), fill.ty());
        self.push(Value { dims, bound: x.bound.max(1.5), ..x.clone() }, |ty| {
            format!(
                "stablehlo.pad {operands}, low = {low:?}, high = {high:?}, interior = {interior:?} \
                 : {types} -> {ty}"
            )
        });
        Some(())
    }

    fn reduce(&mut self) -> Option<()> {
        let x = self.pick(|x| x.is_exact && x.bound < 1e3 && x.element == "f32")?;
        let mask = self.choose(1 << x.dims.len());
        let (reduced, rest): (Vec<_>, Vec<_>) =
            (0..x.dims.len()).partition(|&dim| mask >> dim & 1 == 1);
        let dims = rest.iter().map(|&dim| x.dims[dim]).collect();
        let (op, initial) = [
            ("add", "0.5"),
            ("maximum", "0xFF800000"),
            ("minimum", "0x7F800000"),
        ][self.choose(3)];
        let scalar = Value {
            dims: Vec::new(),
            is_exact: true,
            bound: f64::INFINITY,
            ..x.clone()
        };
        let initial = self.push(scalar, |ty| {
            format!("stablehlo.constant dense<{initial}> : {ty}")
        });
        let types = format!("({}, {})", x.ty(), initial.ty());
        let is_exact = op != "add";
        let count: usize = reduced.iter().map(|&dim| x.dims[dim]).product();
        let bound = if is_exact {
            x.bound
        } else {
            x.bound * count as f64 + 1.0
        };
        self.push(
            Value {
                dims,
                is_exact,
                bound,
                ..x.clone()
            },
            |ty| {
                format!(
                    "stablehlo.reduce({} init: {}) applies stablehlo.{op} across dimensions = \
                 {reduced:?} : {types} -> {ty}",
                    x.name, initial.name
                )
            },
        );
        Some(())
    }

    fn dot(&mut self) -> Option<()> {
        let suits =
            |x: &Value| x.is_exact && x.bound < 1e3 && x.element == "f32" && x.dims.len() >= 2;
        let x = self.pick(suits)?;
        let y = self.pick(|y| suits(y) && y.dims[0] == x.dims[0])?;
        let dims = [&x.dims[1..], &y.dims[1..]].concat();
        if dims.iter().product::<usize>() > 100_000 {
            return None;
        }
        let (operands, types) = (
            format!("{}, {}", x.name, y.name),
            format!("({}, {})", x.ty(), y.ty()),
        );
        let bound = x.bound * y.bound * x.dims[0] as f64;
        self.push(Value { dims, is_exact: false, bound, ..x.clone() }, |ty| {
            format!(
                "stablehlo.dot_general {operands}, contracting_dims = [0] x [0] : {types} -> {ty}"
            )
        });
        Some(())
    }

    fn concatenate(&mut self) -> Option<()> {
        let x = self.pick(|x| !x.dims.is_empty())?;
        let y = self.pick(|y| y.dims == x.dims && y.element == x.element)?;
        let dim = self.choose(x.dims.len());
        let mut dims = x.dims.clone();
        dims[dim] *= 2;
        let (operands, types) = (
            format!("{}, {}", x.name, y.name),
            format!("({}, {})", x.ty(), y.ty()),
        );
        let (is_exact, bound) = (x.is_exact && y.is_exact, x.bound.max(y.bound));
        self.push(
            Value {
                dims,
                is_exact,
                bound,
                ..x.clone()
            },
            |ty| format!("stablehlo.concatenate {operands}, dim = {dim} : {types} -> {ty}"),
        );
        Some(())
    }

    fn reduce_window(&mut self) -> Option<()> {
        let x = self.pick(|x| {
            x.is_exact && x.element == "f32" && x.dims.len() == 2 && x.dims.iter().all(|&it| it > 1)
        })?;
        let scalar = Value {
            dims: Vec::new(),
            is_exact: true,
            bound: f64::INFINITY,
            ..x.clone()
        };
        let initial = self.push(scalar, |ty| {
            format!("stablehlo.constant dense<0xFF800000> : {ty}")
        });
        let (step, padding) = (1 + self.choose(2), self.choose(2));
        let dims = x
            .dims
            .iter()
            .map(|size| (size + 2 * padding - 2) / step + 1)
            .collect();
        let types = format!("({}, {})", x.ty(), initial.ty());
        self.push(Value { dims, ..x.clone() }, |ty| {
            format!(
                "\"stablehlo.reduce_window\"({}, {}) <{{padding = dense<{padding}> : \
                 tensor<2x2xi64>, window_dimensions = array<i64: 2, 2>, window_strides = \
                 array<i64: {step}, {step}>}}> ({{\n      ^bb0(%a: tensor<f32>, %b: \
                 tensor<f32>):\n        %c = stablehlo.maximum %a, %b : tensor<f32>\n        \
                 stablehlo.return %c : tensor<f32>\n    }}) : {types} -> {ty}",
                x.name, initial.name
            )
        });
        Some(())
    }
}

/// A program, and the values that it returns.
fn write(dims: &[usize], choices: &[u32]) -> (String, Vec<Value>) {
    let mut writer = Writer {
        choices: choices.iter(),
        body: String::new(),
        values: Vec::new(),
    };
    for (number, dims) in [dims, dims, &dims[1..], &[]].into_iter().enumerate() {
        writer.values.push(Value {
            name: format!("%{number}"),
            dims: dims.to_vec(),
            element: "f32",
            is_exact: true,
            bound: 4.0,
        });
    }
    let inputs: Vec<_> = writer
        .values
        .iter()
        .map(|value| format!("{}: {}", value.name, value.ty()))
        .collect();
    while writer.choices.len() > 0 && writer.values.len() < 40 {
        writer.step();
        let is_large = |value: &Value| value.dims.iter().product::<usize>() > 300_000;
        writer
            .values
            .iter_mut()
            .filter(|value| is_large(value))
            .for_each(|value| {
                // Not an operand of anything that makes it larger.
                value.is_exact = false;
            });
    }
    let outputs: Vec<_> = writer.values[4..].to_vec();
    let types: Vec<_> = outputs.iter().map(Value::ty).collect();
    let names: Vec<_> = outputs.iter().map(|value| value.name.clone()).collect();
    let text = format!(
        "func.func public @main({}) -> ({}) {{\n{}    return {} : {}\n}}\n",
        inputs.join(", "),
        types.join(", "),
        writer.body,
        names.join(", "),
        types.join(", "),
    );
    (text, outputs)
}

fn same(value: &Value, fast: f32, oracle: f32) -> bool {
    if fast == oracle || fast.is_nan() && oracle.is_nan() {
        return true;
    }
    let tolerance = if value.bound.is_finite() {
        2e-6 * value.bound
    } else {
        2e-7 * f64::from(oracle.abs()) + 1e-44
    };
    !value.is_exact && f64::from((fast - oracle).abs()) <= tolerance
}

/// The numbers with the same bits for every NaN, whose sign IEEE 754 leaves open: it depends on the
/// register of an element in the kernel of products.
fn with_positive_nan(bytes: &[u8]) -> Vec<u8> {
    let (numbers, _) = bytes.as_chunks();
    let numbers = numbers.iter().map(|&bytes| f32::from_le_bytes(bytes));
    let same = |x: f32| if x.is_nan() { f32::NAN } else { x };
    numbers.flat_map(|x| same(x).to_le_bytes()).collect()
}

/// Checks one program, and returns its text.
fn check(dims: &[usize], choices: &[u32], numbers: &[f32]) -> String {
    let (text, outputs) = write(dims, choices);
    if outputs.is_empty() {
        return text;
    }
    let program = program(&text);
    let mut numbers = numbers.iter().cycle();
    let inputs: Vec<Vec<u8>> = (program.signature.inputs.iter())
        .map(|ty| {
            let floats = (0..ty.elements()).map(|_| *numbers.next().expect("there are some"));
            floats.flat_map(f32::to_le_bytes).collect()
        })
        .collect();
    let on = |mode, threads| {
        run(&open(mode, threads), &program, &inputs).unwrap_or_else(|e| panic!("{e}\n{text}"))
    };
    let (fast, oracle) = (on(Mode::Fast, 1), on(Mode::Oracle, 1));
    let three = on(Mode::Fast, 3);
    for ((one, three), ty) in fast.iter().zip(&three).zip(&program.signature.outputs) {
        let [one, three] = [one, three].map(|bytes| match ty.dtype() {
            DType::F32 => with_positive_nan(bytes),
            _ => bytes.clone(),
        });
        assert!(one == three, "bits depend on threads\n{text}");
    }
    for (number, value) in outputs.iter().enumerate() {
        let (fast, oracle) = (&fast[number], &oracle[number]);
        if program.signature.outputs[number].dtype() != DType::F32 {
            assert_eq!(fast, oracle, "{}\n{text}", value.name);
            continue;
        }
        for (at, (&fast, &oracle)) in floats(fast).iter().zip(&floats(oracle)).enumerate() {
            let name = &value.name;
            assert!(
                same(value, fast, oracle),
                "{name} at {at}: {fast}, not {oracle}\n{text}"
            );
        }
    }
    text
}

/// Numbers of operations, by name and element type.
type Counts = BTreeMap<String, BTreeMap<&'static str, usize>>;

fn random_programs(number: impl Strategy<Value = f32>, cases: u32) {
    let dims = vec(0..SIZES.len(), 1..4);
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let inputs = (dims, vec(any::<u32>(), 10..120), vec(number, 97));
    let counts = RefCell::new(Counts::new());
    let result = TestRunner::new(config).run(&inputs, |(dims, choices, numbers)| {
        let dims: Vec<_> = dims.into_iter().map(|at| SIZES[at]).collect();
        let text = check(&dims, &choices, &numbers);
        let module = Module::read(text.as_bytes()).expect("it ran");
        let main = module.main().expect("it ran");
        for operation in &main.body.operations {
            let element = main
                .ty(operation.results[0])
                .as_tensor()
                .map(|ty| ty.element.name());
            let name = operation.kind.to_attributes().0.to_string();
            let mut counts = counts.borrow_mut();
            let elements = counts.entry(name).or_default();
            *elements.entry(element.unwrap_or("token")).or_default() += 1;
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    let counts = counts.into_inner();
    println!("operations in the programs, by element type of the result:");
    for (operation, elements) in &counts {
        println!("{operation:24} {elements:?}");
    }
    assert!(counts.len() > 35, "{counts:?}");
}

#[test]
fn random_programs_agree_with_the_oracle() {
    random_programs(-4.0f32..4.0, 200);
}

#[test]
fn special_values_agree_with_the_oracle() {
    let specials = [
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        3.75,
        1e-40,
    ];
    random_programs(proptest::sample::select(specials.to_vec()), 200);
}
