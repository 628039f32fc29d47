//! Elementwise operations on complex numbers: those that programs with Fourier transforms need.

use halite_core::Result;
use halite_stablehlo::{BinaryOp, ElementType, OpKind, UnaryOp};
use rustfft::{FftNum, num_complex::Complex};

use super::{Call, Direct};
use crate::oracle::allocate;

/// A part of a complex number.
pub(super) trait Part: Copy + Send + Sync + 'static {
    const SIZE: usize;

    fn read(bytes: &[u8]) -> Self;

    fn write(self, bytes: &mut [u8]);
}

macro_rules! part {
    ($part:ty) => {
        impl Part for $part {
            const SIZE: usize = size_of::<$part>();

            fn read(bytes: &[u8]) -> Self {
                let mut all = [0; size_of::<$part>()];
                all.copy_from_slice(bytes);
                <$part>::from_le_bytes(all)
            }

            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
        }
    };
}

part!(f32);
part!(f64);

/// What an element consists of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Parts {
    Real,
    Complex,
}

/// The elements of a tensor.
pub(super) fn numbers<T: Part + FftNum>(bytes: &[u8], parts: Parts) -> Result<Vec<Complex<T>>> {
    let size = T::SIZE;
    Ok(match parts {
        Parts::Real => {
            let mut numbers = allocate(bytes.len() / size)?;
            let each = bytes.chunks_exact(size);
            numbers.extend(each.map(|part| Complex::new(T::read(part), T::zero())));
            numbers
        }
        Parts::Complex => {
            let mut numbers = allocate(bytes.len() / (2 * size))?;
            let number = |number: &[u8]| {
                let (re, im) = number.split_at(size);
                Complex::new(T::read(re), T::read(im))
            };
            numbers.extend(bytes.chunks_exact(2 * size).map(number));
            numbers
        }
    })
}

/// Stores numbers, or their real parts.
pub(super) fn push<T: Part>(numbers: &[Complex<T>], parts: Parts, bytes: &mut [u8]) {
    let size = T::SIZE;
    match parts {
        Parts::Real => {
            for (bytes, number) in bytes.chunks_exact_mut(size).zip(numbers) {
                number.re.write(bytes);
            }
        }
        Parts::Complex => {
            for (bytes, number) in bytes.chunks_exact_mut(2 * size).zip(numbers) {
                let (re, im) = bytes.split_at_mut(size);
                number.re.write(re);
                number.im.write(im);
            }
        }
    }
}

/// An operation on complex numbers, or parts of them, computed in `f64`.
#[derive(Debug)]
pub(in super::super) struct Complexes {
    op: Op,
    is_double: bool,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    /// A complex number of two real numbers.
    Join,
    Real,
    Imag,
    Negate,
    Add,
    Subtract,
    Multiply,
}

impl Complexes {
    /// The operation on elements of `from`. `None` if it is of another family.
    pub(in super::super) fn new(kind: &OpKind, from: ElementType) -> Option<Self> {
        let is_real = matches!(from, ElementType::F32 | ElementType::F64);
        let op = match kind {
            OpKind::Binary(BinaryOp::Complex) if is_real => Op::Join,
            _ if !matches!(from, ElementType::C64 | ElementType::C128) => return None,
            OpKind::Unary(UnaryOp::Real) => Op::Real,
            OpKind::Unary(UnaryOp::Imag) => Op::Imag,
            OpKind::Unary(UnaryOp::Negate) => Op::Negate,
            OpKind::Binary(BinaryOp::Add) => Op::Add,
            OpKind::Binary(BinaryOp::Subtract) => Op::Subtract,
            OpKind::Binary(BinaryOp::Multiply) => Op::Multiply,
            _ => return None,
        };
        let is_double = matches!(from, ElementType::F64 | ElementType::C128);
        Some(Complexes { op, is_double })
    }
}

impl Direct for Complexes {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let mut result = call.take(0)?;
        let x = call.operand(0)?;
        let y = call.operand(call.operands.len() - 1)?;
        let out = result.bytes_mut();
        if self.is_double {
            compute(self.op, x, y, out, |x: f64| x, |x| x);
        } else {
            compute(self.op, x, y, out, |x: f32| f64::from(x), |x| x as f32);
        }
        call.set(0, result);
        Ok(())
    }
}

fn compute<T: Part>(
    op: Op,
    x: &[u8],
    y: &[u8],
    out: &mut [u8],
    wide: impl Fn(T) -> f64,
    narrow: impl Fn(f64) -> T,
) {
    let size = T::SIZE;
    let number = |bytes: &[u8]| {
        let (re, im) = bytes.split_at(size);
        Complex::new(wide(T::read(re)), wide(T::read(im)))
    };
    let one = |f: fn(Complex<f64>) -> Complex<f64>, out: &mut [u8]| {
        for (out, x) in out.chunks_exact_mut(2 * size).zip(x.chunks_exact(2 * size)) {
            let Complex { re, im } = f(number(x));
            push(&[Complex::new(narrow(re), narrow(im))], Parts::Complex, out);
        }
    };
    let two = |f: fn(Complex<f64>, Complex<f64>) -> Complex<f64>, out: &mut [u8]| {
        let pairs = x.chunks_exact(2 * size).zip(y.chunks_exact(2 * size));
        for (out, (x, y)) in out.chunks_exact_mut(2 * size).zip(pairs) {
            let Complex { re, im } = f(number(x), number(y));
            push(&[Complex::new(narrow(re), narrow(im))], Parts::Complex, out);
        }
    };
    let copy = |out: &mut [u8], from: &[u8], at: usize, step: usize| {
        // One part of each element of either.
        let each = from.chunks_exact(step).map(|it| &it[at..at + size]);
        out.chunks_exact_mut(size)
            .zip(each)
            .for_each(|(out, part)| out.copy_from_slice(part));
    };
    match op {
        Op::Real => copy(out, x, 0, 2 * size),
        Op::Imag => copy(out, x, size, 2 * size),
        Op::Join => {
            let pairs = x.chunks_exact(size).zip(y.chunks_exact(size));
            for (out, (re, im)) in out.chunks_exact_mut(2 * size).zip(pairs) {
                out[..size].copy_from_slice(re);
                out[size..].copy_from_slice(im);
            }
        }
        Op::Negate => one(|x| -x, out),
        Op::Add => two(|x, y| x + y, out),
        Op::Subtract => two(|x, y| x - y, out),
        Op::Multiply => two(multiply, out),
    }
}

/// The product; that of an infinity and a number other than 0 is infinite, as in the C standard
/// (G.5.1).
fn multiply(x: Complex<f64>, y: Complex<f64>) -> Complex<f64> {
    let product = x * y;
    let is_infinite = |x: Complex<f64>| x.re.is_infinite() || x.im.is_infinite();
    let is_known = !(product.re.is_nan() && product.im.is_nan());
    if is_known || !is_infinite(x) && !is_infinite(y) {
        return product;
    }
    // The direction of an infinity; the parts of other numbers that are not NaN.
    let direction = |x: Complex<f64>| {
        let of_part = |part: f64| match (is_infinite(x), part.is_nan()) {
            (true, _) => f64::from(u8::from(part.is_infinite())).copysign(part),
            (false, true) => 0f64.copysign(part),
            (false, false) => part,
        };
        Complex::new(of_part(x.re), of_part(x.im))
    };
    let Complex { re, im } = direction(x) * direction(y);
    Complex::new(re * f64::INFINITY, im * f64::INFINITY)
}
