//! Values of a report that JSON cannot represent directly.

/// Paths as JSON strings. Paths that are not UTF-8 are written as serde writes an `OsString`, so that
/// every path is read back unchanged.
pub(super) mod path {
    use std::{ffi::OsString, path::PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize, Serialize)]
    #[serde(untagged)]
    enum Written {
        Text(String),
        Bytes(OsString),
    }

    pub(in super::super) fn serialize<S: Serializer>(
        path: &Option<PathBuf>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let written = |path: &PathBuf| match path.clone().into_os_string().into_string() {
            Ok(text) => Written::Text(text),
            Err(bytes) => Written::Bytes(bytes),
        };
        path.as_ref().map(written).serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        let path = |written| match written {
            Written::Text(text) => PathBuf::from(text),
            Written::Bytes(bytes) => PathBuf::from(bytes),
        };
        Ok(Option::<Written>::deserialize(deserializer)?.map(path))
    }
}

/// JSON has no NaN and no infinities: they are `"NaN"`, `"inf"` and `"-inf"`.
pub(super) mod metrics {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    #[derive(Deserialize, Serialize)]
    #[serde(untagged)]
    enum Number {
        Finite(f64),
        Other(String),
    }

    pub(in super::super) fn serialize<S: Serializer>(
        metrics: &BTreeMap<String, f64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let number = |value: &f64| {
            if value.is_finite() {
                Number::Finite(*value)
            } else {
                Number::Other(value.to_string())
            }
        };
        metrics
            .iter()
            .map(|(name, value)| (name, number(value)))
            .collect::<BTreeMap<_, _>>()
            .serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<String, f64>, D::Error> {
        let numbers = BTreeMap::<String, Number>::deserialize(deserializer)?;
        let value = |(name, number): (String, Number)| match number {
            Number::Finite(value) => Ok((name, value)),
            Number::Other(text) => match text.parse() {
                Ok(value) => Ok((name, value)),
                Err(_) => Err(D::Error::custom(format!(
                    "`{text}` is not a value of `{name}`"
                ))),
            },
        };
        numbers.into_iter().map(value).collect()
    }
}
