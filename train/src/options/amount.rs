//! Amounts of batches, steps and time, as numbers and as text.

use std::{fmt, str::FromStr, time::Duration};

use halite_core::{Error, Result};

/// Part of the batches of an epoch: a number of batches, or a fraction. As text, `100` is a number
/// of batches, and `0.25` a fraction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Number of batches; more than there are is all of them.
    Batches(u64),
    /// Fraction of the batches, above 0 and at most 1, rounded down.
    Fraction(f64),
}

impl Limit {
    /// Number of batches out of `all`.
    ///
    /// # Errors
    /// If it is none, with the name of the option and both numbers.
    pub(crate) fn of(self, name: &str, all: usize) -> Result<usize> {
        let batches = match self {
            Limit::Batches(batches) => usize::try_from(batches).unwrap_or(all).min(all),
            // Rounding must not lose a batch: 0.29 of 100 are 29.
            Limit::Fraction(fraction) => (all as f64 * fraction + 1e-9) as usize,
        };
        if batches > 0 {
            return Ok(batches);
        }
        // One batch, rounded up to two digits.
        let digits = 10_f64.powf((all as f64).log10().ceil() + 1.0);
        let least = (digits / all as f64).ceil() / digits;
        let message = format!(
            "`{name}` is {self}: none of {all} batches; give at least 1 batch, or a fraction of at \
             least {least}"
        );
        Err(Error::invalid("trainer", message))
    }

    /// Whether no batch at all is asked for.
    pub(crate) fn is_none(self) -> bool {
        self == Limit::Batches(0)
    }

    /// # Errors
    /// If the fraction is not above 0 and at most 1.
    pub(crate) fn check(self, name: &str) -> Result<()> {
        match self {
            Limit::Fraction(fraction) if !is_fraction(fraction) => {
                let message = format!(
                    "`{name}` is {fraction}; a fraction is above 0 and at most 1, and a number of \
                     batches is a whole number"
                );
                Err(Error::invalid("trainer", message))
            }
            _ => Ok(()),
        }
    }
}

fn is_fraction(fraction: f64) -> bool {
    fraction > 0.0 && fraction <= 1.0
}

impl From<u64> for Limit {
    fn from(batches: u64) -> Self {
        Limit::Batches(batches)
    }
}

impl From<f64> for Limit {
    fn from(fraction: f64) -> Self {
        Limit::Fraction(fraction)
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fraction = || text.parse().ok().filter(|part| is_fraction(*part));
        let limit = text.parse().ok().map(Limit::Batches);
        let limit = limit.or_else(|| fraction().map(Limit::Fraction));
        limit.ok_or_else(|| {
            "expected a number of batches, such as 100, or a fraction of at most 1, such as 0.25"
                .to_string()
        })
    }
}

impl fmt::Display for Limit {
    /// The text that it is parsed from: a fraction has a point.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Batches(batches) => write!(f, "{batches}"),
            Limit::Fraction(fraction) => write!(f, "{fraction:?}"),
        }
    }
}

/// Distance between two validations. As text, `500` is a number of steps, `0.25` a fraction of an
/// epoch, and `30m` or `00:00:30:00` a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interval {
    /// Optimizer steps of the run.
    Steps(u64),
    /// Fraction of an epoch, above 0 and at most 1.
    Epoch(f64),
    /// Time in training, which differs between runs: the weights do not depend on it.
    Time(Duration),
}

impl Interval {
    /// Whether a multiple of it is reached by the step after which `step` are done of the run, and
    /// `batch` of the `per_epoch` of the epoch. Time is not known here.
    pub(crate) fn is_reached(self, step: u64, batch: usize, per_epoch: usize) -> bool {
        match self {
            Interval::Steps(every) => step.is_multiple_of(every.max(1)),
            Interval::Epoch(fraction) => {
                // Rounding must not move a multiple to the next step.
                let of =
                    |batch: usize| (batch as f64 / (fraction * per_epoch as f64) + 1e-9) as u64;
                batch > 0 && of(batch) > of(batch - 1)
            }
            Interval::Time(_) => false,
        }
    }

    /// # Errors
    /// If it is 0, or a fraction above 1.
    pub(crate) fn check(self, name: &str) -> Result<()> {
        let works = match self {
            Interval::Steps(steps) => steps > 0,
            Interval::Epoch(fraction) => is_fraction(fraction),
            Interval::Time(time) => !time.is_zero(),
        };
        if works {
            return Ok(());
        }
        let message = format!(
            "`{name}` is {self}; give at least 1 step, a fraction of an epoch above 0 and at most \
             1, or a time"
        );
        Err(Error::invalid("trainer", message))
    }
}

impl From<u64> for Interval {
    fn from(steps: u64) -> Self {
        Interval::Steps(steps)
    }
}

impl From<f64> for Interval {
    fn from(fraction: f64) -> Self {
        Interval::Epoch(fraction)
    }
}

impl From<Duration> for Interval {
    fn from(time: Duration) -> Self {
        Interval::Time(time)
    }
}

impl FromStr for Interval {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let interval = match (text.parse::<u64>(), text.parse::<f64>()) {
            (Ok(steps), _) => Some(Interval::Steps(steps)),
            (_, Ok(fraction)) => Some(Interval::Epoch(fraction)),
            _ => time(text).ok().map(Interval::Time),
        };
        interval
            .filter(|interval| interval.check("").is_ok())
            .ok_or_else(|| {
                "expected a number of steps, such as 500, a fraction of an epoch of at most 1, such \
                 as 0.25, or a time, such as 30m"
                    .to_string()
            })
    }
}

impl fmt::Display for Interval {
    /// The text that it is parsed from.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Interval::Steps(steps) => write!(f, "{steps}"),
            Interval::Epoch(fraction) => write!(f, "{fraction:?}"),
            Interval::Time(time) => write!(f, "{}s", time.as_secs_f64()),
        }
    }
}

/// Parses a time: seconds, a number with the unit `s`, `m`, `h` or `d`, or `DD:HH:MM:SS`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    const DAY: f64 = 86_400.0;
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| *number >= 0.0);
    let units = [('s', 1.0), ('m', 60.0), ('h', 3600.0), ('d', DAY)];
    let with_unit =
        |(unit, seconds): (char, f64)| Some(number(text.strip_suffix(unit)?)? * seconds);
    let parts: Vec<&str> = text.split(':').collect();
    let seconds = match parts[..] {
        [_] => number(text).or_else(|| units.into_iter().find_map(with_unit)),
        [days, hours, minutes, seconds] => [days, hours, minutes, seconds]
            .into_iter()
            .zip([DAY, 3600.0, 60.0, 1.0])
            .map(|(part, seconds)| Some(number(part)? * seconds))
            .sum(),
        _ => None,
    };
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = time.filter(|time| !time.is_zero());
    time.ok_or_else(|| {
        "expected a time above 0: seconds, a number with a unit, such as 90m, 12h or 2d, or \
         DD:HH:MM:SS"
            .to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn point_makes_a_fraction() {
        assert_eq!("1".parse(), Ok(Limit::Batches(1)));
        assert_eq!("1.0".parse(), Ok(Limit::Fraction(1.0)));
        for text in ["1.5", "-1", "0.0", "NaN", "all"] {
            assert!(text.parse::<Limit>().is_err(), "{text}");
        }
        for limit in [
            Limit::Batches(7),
            Limit::Fraction(1.0),
            Limit::Fraction(0.1),
        ] {
            assert_eq!(limit.to_string().parse(), Ok(limit));
        }
    }

    #[test]
    fn limit_of_no_batch_names_both_numbers() {
        assert_eq!(Limit::Fraction(0.5).of("limit", 5).unwrap(), 2);
        assert_eq!(Limit::Batches(9).of("limit", 5).unwrap(), 5);
        let error = Limit::Fraction(0.1).of("limit", 5).unwrap_err().to_string();
        assert!(
            error.contains(
                "`limit` is 0.1: none of 5 batches; give at least 1 batch, or a fraction"
            ),
            "{error}"
        );
    }

    #[test]
    fn advice_for_a_fraction_works() {
        assert_eq!(Limit::Fraction(0.29).of("limit", 100).unwrap(), 29);
        for (all, least) in [(2, 0.5), (5, 0.2), (300, 0.0034), (1_000_000, 1e-6)] {
            let error = Limit::Fraction(1e-9).of("limit", all).unwrap_err();
            let advised = format!("a fraction of at least {least}");
            assert!(error.to_string().ends_with(&advised), "{error}");
            assert_eq!(Limit::Fraction(least).of("limit", all).unwrap(), 1);
        }
    }

    #[test]
    fn times_have_units() {
        for (text, seconds) in [
            ("90", 90.0),
            ("0.5", 0.5),
            ("1.5h", 5400.0),
            ("2d", 172_800.0),
            ("00:01:30:00", 5400.0),
        ] {
            assert_eq!(time(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["0", "-1", "1w", "1:30", "", "1e400"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn fractions_of_an_epoch_end_with_it() {
        let of = |fraction: f64, per_epoch: usize| {
            let interval = Interval::Epoch(fraction);
            (1..=per_epoch)
                .filter(|batch| interval.is_reached(0, *batch, per_epoch))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(0.25, 8), [2, 4, 6, 8]);
        assert_eq!(of(0.5, 7), [4, 7]);
        assert_eq!(of(0.1, 10), (1..=10).collect::<Vec<_>>());
        assert_eq!(of(1.0, 3), [3]);
        // More often than there are steps is after each.
        assert_eq!(of(0.01, 3), [1, 2, 3]);
    }

    #[test]
    fn interval_is_its_text() {
        for interval in [
            Interval::Steps(500),
            Interval::Epoch(0.25),
            Interval::Time(Duration::from_millis(1500)),
        ] {
            assert_eq!(interval.to_string().parse(), Ok(interval));
        }
        for text in ["0", "0.0", "1.5", "0s", "never"] {
            assert!(text.parse::<Interval>().is_err(), "{text}");
        }
    }
}
