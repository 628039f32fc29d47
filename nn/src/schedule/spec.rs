//! Learning-rate schedules as text, of flags and configuration files. Their peak and the length of
//! the run are given later.

use std::{fmt, str::FromStr};

use halite_core::{Error, Result};

use super::{Mode, Plateau, Schedule};

/// A learning-rate schedule as a flag or a configuration file names it: `NAME`, or
/// `NAME:KEY=VALUE,KEY=VALUE`.
///
/// | name | keys and defaults | rate |
/// |---|---|---|
/// | `constant` | `warmup=0` | the peak |
/// | `linear` | `end=0,warmup=0` | straight to `end` |
/// | `cosine` | `end=0,warmup=0` | half a cosine to `end` |
/// | `polynomial` | `power=1,end=0,warmup=0` | [`Schedule::polynomial`] |
/// | `step` | `every=30ep,factor=0.1,warmup=0` | multiplied by `factor` after `every` |
/// | `exponential` | `every=1ep,factor=0.9,warmup=0` | the same, smooth |
/// | `one-cycle` | | [`Schedule::one_cycle`] |
/// | `inverse-sqrt` | `warmup=10%` | [`Schedule::inverse_sqrt`] |
/// | `warm-restarts` | `first=10ep,multiplier=1,end=0,warmup=0` | [`Schedule::warm_restarts`] |
/// | `plateau` | `monitor=loss,mode=auto,factor=0.1,patience=10,threshold=0.0001,cooldown=0,min=0,warmup=0` | the peak, reduced by a [`Plateau`] |
///
/// A length is a number of steps, of epochs (`3ep`, `0.5ep`), or a part of the run (`10%`). `end`
/// and `min` are fractions of the peak.
///
/// ```
/// use halite_nn::{Schedule, ScheduleSpec, schedule::RunLength};
///
/// let spec: ScheduleSpec = "cosine:warmup=10%".parse()?;
/// let run = RunLength { steps: 1000, steps_per_epoch: 50 };
/// assert_eq!(spec.schedule(1e-3, run)?, Schedule::cosine(1e-3, 1000).with_warmup(100));
/// assert_eq!(spec.to_string(), "cosine:warmup=10%");
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleSpec {
    name: &'static str,
    /// One for each key of the table.
    values: Vec<(&'static str, Value)>,
}

/// Length of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RunLength {
    /// Optimizer steps of the whole run.
    pub steps: u64,
    /// Optimizer steps of an epoch.
    pub steps_per_epoch: u64,
}

/// A key, what its value is, and its default.
type Key = (&'static str, Type, &'static str);

#[derive(Clone, Copy)]
enum Type {
    Number,
    Count,
    Length,
    Text,
    Mode,
}

const WARMUP: Key = ("warmup", Type::Length, "0");
const END: Key = ("end", Type::Number, "0");

const SCHEDULES: [(&str, &[Key]); 10] = [
    ("constant", &[WARMUP]),
    ("linear", &[END, WARMUP]),
    ("cosine", &[END, WARMUP]),
    ("polynomial", &[("power", Type::Number, "1"), END, WARMUP]),
    (
        "step",
        &[
            ("every", Type::Length, "30ep"),
            ("factor", Type::Number, "0.1"),
            WARMUP,
        ],
    ),
    (
        "exponential",
        &[
            ("every", Type::Length, "1ep"),
            ("factor", Type::Number, "0.9"),
            WARMUP,
        ],
    ),
    ("one-cycle", &[]),
    ("inverse-sqrt", &[("warmup", Type::Length, "10%")]),
    (
        "warm-restarts",
        &[
            ("first", Type::Length, "10ep"),
            ("multiplier", Type::Count, "1"),
            END,
            WARMUP,
        ],
    ),
    (
        "plateau",
        &[
            ("monitor", Type::Text, "loss"),
            ("mode", Type::Mode, "auto"),
            ("factor", Type::Number, "0.1"),
            ("patience", Type::Count, "10"),
            ("threshold", Type::Number, "0.0001"),
            ("cooldown", Type::Count, "0"),
            ("min", Type::Number, "0"),
            WARMUP,
        ],
    ),
];

impl ScheduleSpec {
    /// Names of the schedules.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SCHEDULES.into_iter().map(|(name, _)| name)
    }

    /// The schedule with this peak, for a run of this length.
    ///
    /// # Errors
    /// As [`Schedule::check`]: if the warmup is not shorter than the schedule.
    pub fn schedule(&self, peak: f64, run: RunLength) -> Result<Schedule> {
        let steps = |key| self.steps(key, run);
        let end = || peak * self.number("end");
        let schedule = match self.name {
            "linear" => Schedule::linear(peak, end(), run.steps),
            "cosine" => Schedule::cosine_to(peak, end(), run.steps),
            "polynomial" => Schedule::polynomial(peak, end(), self.number("power"), run.steps),
            "step" => Schedule::step_decay(peak, self.number("factor"), steps("every")),
            "exponential" => Schedule::exponential(peak, self.number("factor"), steps("every")),
            "one-cycle" => return Ok(Schedule::one_cycle(peak, run.steps)),
            "inverse-sqrt" => return Ok(Schedule::inverse_sqrt(peak, steps("warmup"))),
            "warm-restarts" => {
                Schedule::warm_restarts(peak, end(), steps("first"), self.count("multiplier"))
            }
            // The factor of a plateau is computed during the run.
            _ => Schedule::constant(peak),
        };
        let schedule = schedule.with_warmup(steps("warmup"));
        schedule.check()?;
        Ok(schedule)
    }

    /// Whether its rates depend on the number of steps of the run.
    pub fn needs_length(&self) -> bool {
        let is_part = |(_, value): &(&str, Value)| matches!(value, Value::Percent(_));
        ["linear", "cosine", "polynomial", "one-cycle"].contains(&self.name)
            || self.values.iter().any(is_part)
    }

    /// The rule that reduces the rate during the run, of a `plateau`.
    pub fn plateau(&self) -> Option<Plateau> {
        (self.name == "plateau").then(|| Plateau {
            monitor: self.value("monitor").to_string(),
            mode: match self.value("mode") {
                Value::Mode(mode) => *mode,
                _ => None,
            },
            factor: self.number("factor"),
            patience: self.count("patience"),
            threshold: self.number("threshold"),
            cooldown: self.count("cooldown"),
            min_factor: self.number("min"),
        })
    }

    fn value(&self, key: &str) -> &Value {
        let found = self.values.iter().find(|(name, _)| *name == key);
        &found
            .expect("a schedule has a value for each of its keys")
            .1
    }

    fn number(&self, key: &str) -> f64 {
        match self.value(key) {
            Value::Number(number) => *number,
            _ => f64::NAN,
        }
    }

    fn count(&self, key: &str) -> u64 {
        match self.value(key) {
            Value::Count(count) => *count,
            _ => 0,
        }
    }

    fn steps(&self, key: &str, run: RunLength) -> u64 {
        match self.value(key) {
            Value::Steps(steps) => *steps,
            Value::Epochs(epochs) => (epochs * run.steps_per_epoch as f64).round() as u64,
            Value::Percent(percent) => (run.steps as f64 * percent / 100.0) as u64,
            _ => 0,
        }
    }
}

impl FromStr for ScheduleSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = |reason: String| Error::invalid("schedule", format!("`{text}`: {reason}"));
        let (name, fields) = text.split_once(':').unwrap_or((text, ""));
        let known = SCHEDULES.into_iter().find(|(known, _)| *known == name);
        let Some((name, keys)) = known else {
            let names = ScheduleSpec::names().collect::<Vec<_>>().join(", ");
            let reason = format!("unknown schedule `{name}`; expected one of {names}");
            return Err(refused(reason));
        };
        let mut given: Vec<(&str, &str)> = Vec::new();
        for field in fields.split(',').filter(|field| !field.is_empty()) {
            let (key, value) = field.split_once('=').ok_or_else(|| {
                refused(format!("`{field}` is not KEY=VALUE, such as warmup=100"))
            })?;
            if !keys.iter().any(|(known, ..)| *known == key) {
                let keys: Vec<&str> = keys.iter().map(|(key, ..)| *key).collect();
                let keys = match &keys[..] {
                    [] => "has no keys".to_owned(),
                    keys => format!("has {}", keys.join(", ")),
                };
                return Err(refused(format!("unknown key `{key}`; `{name}` {keys}")));
            }
            if given.iter().any(|(known, _)| *known == key) {
                return Err(refused(format!("`{key}` is given twice")));
            }
            given.push((key, value));
        }
        let values = keys.iter().map(|&(key, ty, default)| {
            let given = given.iter().find(|(known, _)| *known == key);
            let text = given.map_or(default, |(_, text)| text);
            let value = Value::parse(ty, text).ok_or_else(|| {
                refused(format!("`{key}` is `{text}`; expected {}", ty.expected()))
            })?;
            Ok((key, value))
        });
        let spec = ScheduleSpec {
            name,
            values: values.collect::<Result<_>>()?,
        };
        if let Some(plateau) = spec.plateau() {
            plateau.check()?;
        }
        Ok(spec)
    }
}

/// With the keys that differ from their defaults; it parses to the same.
impl fmt::Display for ScheduleSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        let default: ScheduleSpec = self.name.parse().map_err(|_| fmt::Error)?;
        let given = self.values.iter().zip(&default.values);
        let given = given.filter(|(given, default)| given != default);
        for (position, ((key, value), _)) in given.enumerate() {
            let before = if position == 0 { ":" } else { "," };
            write!(f, "{before}{key}={value}")?;
        }
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Number(f64),
    Count(u64),
    Steps(u64),
    Epochs(f64),
    Percent(f64),
    Text(String),
    Mode(Option<Mode>),
}

impl Value {
    fn parse(ty: Type, text: &str) -> Option<Self> {
        let number = |text: &str| {
            let number: f64 = text.parse().ok()?;
            (number.is_finite() && number >= 0.0).then_some(number)
        };
        match ty {
            Type::Number => number(text).map(Value::Number),
            Type::Count => text.parse().ok().map(Value::Count),
            Type::Length => match (text.strip_suffix("ep"), text.strip_suffix('%')) {
                (Some(epochs), _) => number(epochs).map(Value::Epochs),
                (_, Some(percent)) => number(percent)
                    .filter(|percent| *percent <= 100.0)
                    .map(Value::Percent),
                _ => text.parse().ok().map(Value::Steps),
            },
            Type::Text => (!text.is_empty()).then(|| Value::Text(text.into())),
            Type::Mode => match text {
                "auto" => Some(Value::Mode(None)),
                mode => mode.parse().ok().map(Some).map(Value::Mode),
            },
        }
    }
}

impl Type {
    fn expected(self) -> &'static str {
        match self {
            Type::Number => "0 or a positive number, such as 0.1",
            Type::Count => "a whole number",
            Type::Length => "a length: steps (100), epochs (3ep), or a part of the run (10%)",
            Type::Text => "a name",
            Type::Mode => "auto, min or max",
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => write!(f, "{number}"),
            Value::Count(count) | Value::Steps(count) => write!(f, "{count}"),
            Value::Epochs(epochs) => write!(f, "{epochs}ep"),
            Value::Percent(percent) => write!(f, "{percent}%"),
            Value::Text(text) => f.write_str(text),
            Value::Mode(None) => f.write_str("auto"),
            Value::Mode(Some(mode)) => write!(f, "{mode}"),
        }
    }
}
