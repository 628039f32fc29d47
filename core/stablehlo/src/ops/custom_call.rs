//! Fields of `custom_call`.

use halite_core::Result;

use super::{
    enumeration::Enumeration,
    fields::{Field, Fields, Structure},
    kinds::{any, flag, symbols, text, version},
    macros::{attributes, fields},
    read,
    row::Named,
    take::Take,
    value::Value,
};
use crate::Attribute;

attributes! {
    /// Attributes of `custom_call`.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct CustomCallAttributes {
        /// `call_target_name`.
        pub target: String = text("call_target_name"),
        /// `has_side_effect`.
        pub side_effect: bool = flag("has_side_effect"),
        /// `backend_config`: a string, or a dictionary.
        pub config: Option<Attribute> = config("backend_config"),
        /// `api_version`.
        pub api_version: i64 = api_version("api_version"),
        /// `called_computations`: functions of the module.
        pub functions: Vec<String> = symbols("called_computations"),
        /// `output_operand_aliases`, as read.
        pub aliases: Option<Attribute> = aliases("output_operand_aliases"),
        /// `operand_layouts`, as read.
        pub operand_layouts: Option<Attribute> = any("operand_layouts"),
        /// `result_layouts`, as read.
        pub result_layouts: Option<Attribute> = any("result_layouts"),
    }
}

impl CustomCallAttributes {
    /// A call of a target, with defaults.
    pub(crate) fn new(target: &str) -> Self {
        CustomCallAttributes {
            target: target.into(),
            api_version: ORIGINAL_API_VERSION,
            ..CustomCallAttributes::default()
        }
    }

    /// Removes empty lists of layouts: layouts are of all operands and results, or of none.
    pub(crate) fn drop_empty_layouts(&mut self) {
        let layouts = [&self.operand_layouts, &self.result_layouts];
        if !layouts.into_iter().flatten().any(has_elements) {
            (self.operand_layouts, self.result_layouts) = (None, None);
        }
    }
}

/// Names of the versions of the interface of `custom_call`, by number.
const API_VERSIONS: [&str; 5] = [
    "API_VERSION_UNSPECIFIED",
    "API_VERSION_ORIGINAL",
    "API_VERSION_STATUS_RETURNING",
    "API_VERSION_STATUS_RETURNING_UNIFIED",
    "API_VERSION_TYPED_FFI",
];

/// `API_VERSION_ORIGINAL`, the version of a `custom_call` that names none.
const ORIGINAL_API_VERSION: i64 = 1;

/// A number or a name of [`API_VERSIONS`].
fn api_version(name: &'static str) -> Field<i64> {
    let read = |take: &Take<'_>, name: &str, value| {
        if let Attribute::Str(_) = value {
            return Ok(read::position(take, name, value, &API_VERSIONS)? as i64);
        }
        let end = API_VERSIONS.len() as i64;
        match read::int(take, name, value)? {
            version if (0..end).contains(&version) => Ok(version),
            version => Err(take.wrong(name, version, &format!("less than {end}"))),
        }
    };
    version(name)
        .read_by(read)
        .or(|_, _| Ok(ORIGINAL_API_VERSION))
        .enumeration(Enumeration::new(5, "", &API_VERSIONS))
}

/// A string or a dictionary. An empty one is the same as none.
fn config(name: &'static str) -> Field<Option<Attribute>> {
    any(name).read_by(|take, name, value| match &value {
        Attribute::Str(text) if text.is_empty() => Ok(None),
        Attribute::Dict(fields) if fields.0.is_empty() => Ok(None),
        Attribute::Str(_) | Attribute::Bytes(_) | Attribute::Dict(_) => Ok(Some(value)),
        _ => Err(take.bad(name, "is neither a string nor a dictionary")),
    })
}

/// A list of aliases. An empty one is the same as none.
fn aliases(name: &'static str) -> Field<Option<Attribute>> {
    any(name).read_by(|take, name, value| match &value {
        Attribute::Array(items) if items.iter().all(is_alias) => {
            Ok(Some(value).filter(has_elements))
        }
        Attribute::Array(_) => Err(take.bad(
            name,
            "is not a list of `#stablehlo.output_operand_alias` with the fields \
             output_tuple_indices, operand_index and operand_tuple_indices",
        )),
        _ => Err(take.bad(name, "is not a list")),
    })
}

/// Returns true for an attribute with the fields of `#stablehlo.output_operand_alias`, and no
/// other.
fn is_alias(attribute: &Attribute) -> bool {
    let is_int = |value: &Attribute| matches!(value, Attribute::Int(..));
    let is_list = |value: Option<&Attribute>| match value {
        Some(Attribute::Array(values)) => values.iter().all(is_int),
        _ => false,
    };
    let Attribute::Dict(fields) = attribute else {
        return false;
    };
    fields.0.len() == 3
        && fields.get("operand_index").is_some_and(is_int)
        && is_list(fields.get("output_tuple_indices"))
        && is_list(fields.get("operand_tuple_indices"))
}

fn has_elements(attribute: &Attribute) -> bool {
    !matches!(attribute, Attribute::Array(list) if list.is_empty())
}
