//! Functions of scalars, such as comparators of sorts and regions of reductions, which are applied
//! to many elements at a time.
//!
//! A register has the bits of one element for each *lane*. Each step decodes its operands, computes
//! in 64 bits and rounds once to the type of its result.

mod compile;
mod step;

use halite_stablehlo::{BinaryOp, ElementClass, ElementType};

use self::step::{Op, Step};
pub(super) use self::{
    compile::{Floats, Order},
    step::{Combine, convert, decode, encode, extended, sortable},
};

/// Elements for which a function is computed at a time.
pub(super) const LANES: usize = 64;

/// The bits of elements, extended by zeros.
pub(super) type Lanes = [u64; LANES];

/// How elements are encoded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Format {
    /// Integers of these bits, and booleans of one.
    Unsigned(u32),
    Signed(u32),
    F16,
    Bf16,
    F32,
    F64,
}

impl Format {
    /// The format of an element type. `None` if functions cannot compute with it.
    pub(super) fn of(element: ElementType) -> Option<Self> {
        Some(match element {
            ElementType::F16 => Format::F16,
            ElementType::Bf16 => Format::Bf16,
            ElementType::F32 => Format::F32,
            ElementType::F64 => Format::F64,
            _ if !element.bits().is_multiple_of(8) && element != ElementType::Bool => return None,
            _ => match element.class() {
                ElementClass::Bool => Format::Unsigned(1),
                ElementClass::Signed => Format::Signed(element.bits() as u32),
                ElementClass::Unsigned => Format::Unsigned(element.bits() as u32),
                _ => return None,
            },
        })
    }

    pub(super) fn is_float(self) -> bool {
        !matches!(self, Format::Unsigned(_) | Format::Signed(_))
    }

    /// The number of bits.
    pub(super) fn bits(self) -> u32 {
        match self {
            Format::Unsigned(bits) | Format::Signed(bits) => bits,
            Format::F16 | Format::Bf16 => 16,
            Format::F32 => 32,
            Format::F64 => 64,
        }
    }

    /// What an operation combines with every element without a change. `None` if there is nothing.
    pub(super) fn identity(self, op: BinaryOp) -> Option<u64> {
        let all = u64::MAX >> (64 - self.bits());
        let sign = 1 << (self.bits() - 1);
        let is_signed = matches!(self, Format::Signed(_));
        Some(match op {
            BinaryOp::Add if self.is_float() => encode(-0.0, self),
            BinaryOp::Multiply if self.is_float() => encode(1.0, self),
            BinaryOp::Maximum if self.is_float() => encode(f64::NEG_INFINITY, self),
            BinaryOp::Minimum if self.is_float() => encode(f64::INFINITY, self),
            BinaryOp::Add | BinaryOp::Or | BinaryOp::Xor => 0,
            BinaryOp::Multiply => 1,
            BinaryOp::And => all,
            BinaryOp::Maximum if is_signed => sign,
            BinaryOp::Minimum if is_signed => all ^ sign,
            BinaryOp::Maximum => 0,
            BinaryOp::Minimum => all,
            _ => return None,
        })
    }

    /// The format of accumulators that are rounded once, after the last element.
    pub(super) fn wide(self) -> Self {
        if self.is_float() { Format::F64 } else { self }
    }
}

/// A function of scalars.
#[derive(Clone, Debug)]
pub(super) struct Function {
    /// The formats of its arguments.
    pub(super) arguments: Vec<Format>,
    /// Registers with the results.
    pub(super) results: Vec<usize>,
    /// After the arguments.
    constants: Vec<u64>,
    /// Each has the next register.
    steps: Vec<Step>,
}

impl Function {
    /// The function `(a, b) -> a op b`.
    pub(super) fn binary(op: BinaryOp, format: Format) -> Option<Self> {
        let step = Step::new(Op::Binary(op), format, format, [0, 1, 0])?;
        Some(Function {
            arguments: vec![format; 2],
            results: vec![2],
            constants: Vec::new(),
            steps: vec![step],
        })
    }

    /// Whether the result is the sum of two arguments.
    pub(super) fn is_sum(&self) -> bool {
        let is_all = self.arguments.len() == 2 && self.constants.is_empty();
        matches!(&self.steps[..], [step] if is_all && step.is_sum() && self.results == [2])
    }

    /// The function of two elements, if it is a single operation.
    pub(super) fn of_two(&self) -> Option<Box<Combine>> {
        let is_all = self.arguments.len() == 2 && self.constants.is_empty();
        match &self.steps[..] {
            [step] if is_all && self.results == [2] => step.of_two(),
            _ => None,
        }
    }

    /// Registers for this function. The first ones are those of the arguments.
    pub(super) fn registers(&self) -> Vec<Lanes> {
        let count = self.arguments.len() + self.constants.len() + self.steps.len();
        let mut registers = vec![[0; LANES]; count];
        let constants = registers[self.arguments.len()..].iter_mut();
        constants
            .zip(&self.constants)
            .for_each(|(register, &bits)| register.fill(bits));
        registers
    }

    /// Computes the results of the first `count` lanes.
    pub(super) fn run(&self, registers: &mut [Lanes], count: usize) {
        let first = self.arguments.len() + self.constants.len();
        for (number, step) in self.steps.iter().enumerate() {
            let (before, rest) = registers.split_at_mut(first + number);
            step.run(before, &mut rest[0][..count]);
        }
    }
}

/// Loads `count` elements of `size` bytes, the first at `at` and each `stride` after the last.
pub(super) fn load(bytes: &[u8], size: usize, at: usize, stride: usize, out: &mut [u64]) {
    fn each<const N: usize>(
        bytes: &[u8],
        at: usize,
        stride: usize,
        out: &mut [u64],
        decode: impl Fn([u8; N]) -> u64,
    ) {
        let elements = &bytes.as_chunks::<N>().0[at..];
        if stride == 1 {
            let each = out.iter_mut().zip(elements);
            each.for_each(|(out, &element)| *out = decode(element));
        } else {
            let each = out.iter_mut().zip(elements.iter().step_by(stride));
            each.for_each(|(out, &element)| *out = decode(element));
        }
    }
    if out.is_empty() {
        return;
    }
    match size {
        1 => each(bytes, at, stride, out, |[byte]| byte.into()),
        2 => each(bytes, at, stride, out, |it| u16::from_le_bytes(it).into()),
        4 => each(bytes, at, stride, out, |it| u32::from_le_bytes(it).into()),
        _ => each(bytes, at, stride, out, u64::from_le_bytes),
    }
}

/// Stores elements of `size` bytes next to each other, the first at `at`.
pub(super) fn store(values: &[u64], bytes: &mut [u8], size: usize, at: usize) {
    fn each<const N: usize>(values: &[u64], bytes: &mut [u8], at: usize) {
        let elements = &mut bytes.as_chunks_mut::<N>().0[at..];
        for (element, value) in elements.iter_mut().zip(values) {
            element.copy_from_slice(&value.to_le_bytes()[..N]);
        }
    }
    match size {
        1 => each::<1>(values, bytes, at),
        2 => each::<2>(values, bytes, at),
        4 => each::<4>(values, bytes, at),
        _ => each::<8>(values, bytes, at),
    }
}
