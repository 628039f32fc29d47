//! Enumerations of the values of attributes.

/// An enumeration as text and bytecode have it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Enumeration {
    /// Code of its attributes in VHLO.
    pub(crate) code: u64,
    /// Name in generic text: `fft_type` in `#stablehlo<fft_type FFT>`.
    pub(crate) text: &'static str,
    /// Number of the first case in VHLO.
    first: u64,
    /// Name of a case before the first, which is no value.
    none: Option<&'static str>,
    /// Names of the cases.
    pub(super) cases: &'static [&'static str],
}

impl Enumeration {
    pub(crate) const fn new(code: u64, text: &'static str, cases: &'static [&'static str]) -> Self {
        Enumeration {
            code,
            text,
            first: 0,
            none: None,
            cases,
        }
    }

    /// The cases begin at 1.
    pub(super) const fn after(self, none: Option<&'static str>) -> Self {
        let first = 1;
        Enumeration {
            first,
            none,
            ..self
        }
    }

    /// The case with this number.
    pub(crate) fn case(&self, number: u64) -> Option<&'static str> {
        match number.checked_sub(self.first) {
            Some(index) => self.cases.get(usize::try_from(index).ok()?).copied(),
            None => self.none,
        }
    }

    /// Number of the case with this name.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        if self.none == Some(name) {
            return Some(0);
        }
        let index = self.cases.iter().position(|case| *case == name)?;
        Some(self.first + index as u64)
    }
}

/// A type whose values are the cases of an enumeration.
pub(crate) trait Case: Copy + 'static {
    const ENUMERATION: Enumeration;
    const ALL: &'static [Self];

    fn name(self) -> &'static str;
}
