//! `f64` in JSON bit for bit, NaN and infinities included: the bits in hexadecimal.
//!
//! JSON numbers lose NaN, infinities and the sign of 0, and not every reader gets the last bit
//! right.
//!
//! ```
//! use halite_train::checkpoint::exact_f64;
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Sums {
//!     #[serde(with = "exact_f64")]
//!     loss: f64,
//! }
//! let text = serde_json::to_string(&Sums { loss: -0.0 }).unwrap();
//! assert_eq!(text, r#"{"loss":"8000000000000000"}"#);
//! let back: Sums = serde_json::from_str(&text).unwrap();
//! assert_eq!(back.loss.to_bits(), (-0.0f64).to_bits());
//! ```

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

/// A float that comes back from JSON with the same bits.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct Exact(#[serde(with = "crate::checkpoint::exact_f64")] pub(crate) f64);

/// The bits of `value` as 16 hexadecimal digits.
pub fn to_value(value: f64) -> Value {
    Value::String(format!("{:016x}", value.to_bits()))
}

/// The value with these bits; `None` if `value` is not a string of 16 hexadecimal digits.
pub fn from_value(value: &Value) -> Option<f64> {
    parse(value.as_str()?)
}

/// For `#[serde(with = "exact_f64")]`.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format!("{:016x}", value.to_bits()))
}

/// For `#[serde(with = "exact_f64")]`.
///
/// # Errors
/// If it is not a string of 16 hexadecimal digits.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).ok_or_else(|| {
        de::Error::custom(format!(
            "`{text}` is not the 16 hexadecimal digits of an f64"
        ))
    })
}

fn parse(text: &str) -> Option<f64> {
    let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits
        .then(|| u64::from_str_radix(text, 16).ok().map(f64::from_bits))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_float_round_trips_bit_for_bit() {
        let odd = f64::from_bits(0x7ff8_0000_dead_beef);
        for value in [
            0.0,
            -0.0,
            0.1,
            f64::MAX,
            f64::MIN_POSITIVE / 2.0,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            odd,
        ] {
            let text = serde_json::to_string(&to_value(value)).unwrap();
            let back = from_value(&serde_json::from_str(&text).unwrap()).unwrap();
            assert_eq!(back.to_bits(), value.to_bits());
        }
    }

    #[test]
    fn text_that_is_not_16_digits_is_rejected() {
        for text in [
            "",
            "0",
            "+000000000000000",
            "00000000000000000",
            "000000000000000g",
            "é0000000000000",
        ] {
            assert_eq!(from_value(&Value::from(text)), None, "{text}");
        }
        assert_eq!(from_value(&Value::from(0.5)), None);
    }
}
