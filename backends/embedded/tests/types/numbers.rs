//! Element types, and numbers of them as bits.

use halite_embedded::Mode;

use crate::common::{open, program, run};

/// A type: its name, and for floats the bits of exponent and mantissa.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Type {
    pub(crate) name: &'static str,
    pub(crate) bits: u32,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Bool,
    Signed,
    Unsigned,
    Float { mantissa: u32 },
}

pub(crate) const fn integer(name: &'static str, bits: u32, kind: Kind) -> Type {
    Type { name, bits, kind }
}

pub(crate) const fn float(name: &'static str, bits: u32, mantissa: u32) -> Type {
    let kind = Kind::Float { mantissa };
    Type { name, bits, kind }
}

pub(crate) const TYPES: [Type; 13] = [
    integer("i1", 1, Kind::Bool),
    integer("i8", 8, Kind::Signed),
    integer("ui8", 8, Kind::Unsigned),
    integer("i16", 16, Kind::Signed),
    integer("ui16", 16, Kind::Unsigned),
    integer("i32", 32, Kind::Signed),
    integer("ui32", 32, Kind::Unsigned),
    integer("i64", 64, Kind::Signed),
    integer("ui64", 64, Kind::Unsigned),
    float("bf16", 16, 7),
    float("f16", 16, 10),
    float("f32", 32, 23),
    float("f64", 64, 52),
];

pub(crate) fn by_name(name: &str) -> Type {
    let found = TYPES.into_iter().find(|ty| ty.name == name);
    found.unwrap_or_else(|| panic!("no type {name}"))
}

impl Type {
    pub(crate) fn size(self) -> usize {
        (self.bits as usize).div_ceil(8)
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self.kind, Kind::Float { .. })
    }

    /// A number, as bits: of any size, a limit of the type, or a small one.
    pub(crate) fn sample(self, random: &mut Random) -> u64 {
        let mask = u64::MAX >> (64 - self.bits);
        let choice = random.below(4);
        let Kind::Float { mantissa } = self.kind else {
            let limits = [0, 1, mask, mask >> 1, (mask >> 1) + 1, mask - 1, 2, 7];
            return mask
                & match choice {
                    0 => random.next(),
                    1 => limits[random.below(limits.len())],
                    _ => (random.below(17) as u64).wrapping_sub(8),
                };
        };
        let sign = (random.next() & 1) << (self.bits - 1);
        let infinity = (mask >> 1) >> mantissa << mantissa;
        let one = ((infinity >> mantissa) / 2) << mantissa;
        let limits = [
            0,
            1,
            (1 << mantissa) - 1,
            1 << mantissa,
            infinity - 1,
            infinity,
            infinity | 1 << (mantissa - 1),
            one,
            one / 2,
        ];
        let magnitude = match choice {
            0 => random.next() % infinity,
            1 => limits[random.below(limits.len())],
            // Around 1, with few bits and with many.
            2 => (one + (random.next() % (8 << mantissa))).wrapping_sub(4 << mantissa),
            _ => one + ((random.next() % 32) << (mantissa - 4)),
        };
        sign | magnitude
    }

    /// The number with these bits.
    pub(crate) fn decode(self, bits: u64) -> f64 {
        match self.kind {
            Kind::Bool | Kind::Unsigned => bits as f64,
            Kind::Signed => ((bits << (64 - self.bits)) as i64 >> (64 - self.bits)) as f64,
            Kind::Float { mantissa: 52 } => f64::from_bits(bits),
            Kind::Float { mantissa: 23 } => f32::from_bits(bits as u32).into(),
            Kind::Float { mantissa: 7 } => f32::from_bits((bits as u32) << 16).into(),
            Kind::Float { .. } => half::f16::from_bits(bits as u16).into(),
        }
    }

    /// The nearest bits of a small number.
    pub(crate) fn encode(self, x: f64) -> u64 {
        match self.kind {
            Kind::Bool => u64::from(x > 0.0),
            Kind::Signed | Kind::Unsigned => x as i64 as u64 & u64::MAX >> (64 - self.bits),
            Kind::Float { mantissa: 52 } => x.to_bits(),
            Kind::Float { mantissa: 23 } => (x as f32).to_bits().into(),
            Kind::Float { mantissa: 7 } => half::bf16::from_f32(x as f32).to_bits().into(),
            Kind::Float { .. } => half::f16::from_f32(x as f32).to_bits().into(),
        }
    }

    pub(crate) fn bytes(self, numbers: impl Iterator<Item = u64>) -> Vec<u8> {
        numbers
            .flat_map(|bits| bits.to_le_bytes().into_iter().take(self.size()))
            .collect()
    }

    pub(crate) fn numbers(self, bytes: &[u8]) -> Vec<u64> {
        let bits = |it: &[u8]| {
            it.iter()
                .rev()
                .fold(0, |bits, &byte| bits << 8 | u64::from(byte))
        };
        bytes.chunks_exact(self.size()).map(bits).collect()
    }
}

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    pub(crate) fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// Runs a program on both executors, and checks the results.
#[track_caller]
pub(crate) fn check(
    text: &str,
    inputs: &[Vec<u8>],
    types: &[Type],
    same: impl Fn(Type, u64, u64) -> bool,
) {
    let program = program(text);
    let on = |mode| {
        run(&open(mode, 1), &program, inputs).unwrap_or_else(|e| panic!("{mode:?}: {e}\n{text}"))
    };
    let (fast, oracle) = (on(Mode::Fast), on(Mode::Oracle));
    for (number, &ty) in types.iter().enumerate() {
        let [fast, oracle] = [&fast, &oracle].map(|it| ty.numbers(&it[number]));
        assert_eq!(fast.len(), oracle.len());
        for (at, (&fast, &oracle)) in fast.iter().zip(&oracle).enumerate() {
            let [x, y] = [fast, oracle].map(|bits| ty.decode(bits));
            assert!(
                same(ty, fast, oracle),
                "result {number}, {} at {at}: {x:e} ({fast:#x}), not {y:e} ({oracle:#x})\n{text}",
                ty.name
            );
        }
    }
}
