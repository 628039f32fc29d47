//! The attributes that define an operation, in the structures that the text nests them in.

use std::fmt::{Display, Formatter, Result, Write};

use super::{
    attribute::{Text, Value},
    dense::{DenseText, element},
    list,
};
use crate::{
    Attribute, Attributes, Dense, ElementType,
    ops::{ALGORITHM_FIELDS, Enumeration, Named, PRECISION, row},
};

/// Attributes with their text.
pub(super) struct Properties(pub(super) Vec<(String, String)>);

/// A structure: its attribute and its name.
#[derive(PartialEq)]
struct Structure {
    attribute: &'static str,
    name: &'static str,
}

/// The structure that an attribute is a field of.
fn structure(op: &str, known: Option<&Named>) -> Option<Structure> {
    let known = known?;
    let (attribute, name) = match op {
        "dot_general" if ALGORITHM_FIELDS.contains(&known.name) => ("algorithm", "dot_algorithm"),
        _ if !known.nested => return None,
        "dot_general" => ("dot_dimension_numbers", "dot"),
        "gather" => ("dimension_numbers", "gather"),
        _ => ("scatter_dimension_numbers", "scatter"),
    };
    Some(Structure { attribute, name })
}

impl Properties {
    /// The attributes of [`OpKind::to_attributes`](crate::OpKind::to_attributes).
    pub(super) fn new(op: &str, attributes: Attributes) -> Self {
        let mut properties = Properties(Vec::new());
        if op == "convolution" {
            let text = ConvolutionText(&attributes).to_string();
            properties.0.push(("dimension_numbers".into(), text));
        }
        let row = row(op);
        let mut open = None;
        for (name, value) in &attributes.0 {
            let known = row.and_then(|row| row.attribute(name));
            let structure = structure(op, known);
            if open.is_some() && open != structure {
                properties.close();
            }
            match &structure {
                Some(structure) => properties.push_field(structure, name, value),
                None if op == "convolution" && name.ends_with("_dimension") => {}
                None if op == "convolution" && name.ends_with("_spatial_dimensions") => {}
                None => properties.push(name, known, value),
            }
            open = structure;
        }
        if open.is_some() {
            properties.close();
        }
        properties
    }

    /// Ends the structure that the last attribute is.
    fn close(&mut self) {
        if let Some((_, text)) = self.0.last_mut() {
            text.push('>');
        }
    }

    /// Adds a field to its structure, whose `>` is still missing.
    fn push_field(&mut self, structure: &Structure, name: &str, value: &Attribute) {
        let text = format!("{name} = {}", Plain(value));
        match self.0.last_mut() {
            Some((last, fields)) if last == structure.attribute => {
                fields.push_str(", ");
                fields.push_str(&text);
            }
            _ => {
                let start = format!("#stablehlo.{}<{text}", structure.name);
                self.0.push((structure.attribute.into(), start));
            }
        }
    }

    fn push(&mut self, name: &str, known: Option<&Named>, value: &Attribute) {
        let text = match (name, value) {
            ("use_global_device_ids", Attribute::Bool(false)) => return,
            ("use_global_device_ids", Attribute::Bool(true)) => "unit".into(),
            ("channel_id", value) => {
                let handle = Plain(value);
                let text = format!("#stablehlo.channel_handle<handle = {handle}, type = 1>");
                self.0.push(("channel_handle".into(), text));
                return;
            }
            (_, Attribute::Str(case)) => match known.and_then(|it| it.enumeration) {
                Some(Enumeration { text, .. }) => format!("#stablehlo<{text} {case}>"),
                None => Text(case).to_string(),
            },
            (PRECISION, Attribute::Array(cases)) => cases_text("precision", cases),
            ("output_operand_aliases", Attribute::Array(aliases)) => aliases_text(aliases),
            ("operand_layouts" | "result_layouts", Attribute::Array(layouts)) => {
                layouts_text(layouts)
            }
            ("value", value) => Value(value).to_string(),
            (_, Attribute::Dense(dense)) if dense.ty.rank() == 1 => ArrayText(dense).to_string(),
            (_, value) => Value(value).to_string(),
        };
        self.0.push((name.into(), text));
    }
}

impl Display for Properties {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str("{")?;
        list(f, &self.0, |f, (name, text)| write!(f, "{name} = {text}"))?;
        f.write_str("}")
    }
}

fn cases_text(kind: &str, cases: &[Attribute]) -> String {
    let cases = cases
        .iter()
        .map(|case| format!("#stablehlo<{kind} {}>", Plain(case)));
    format!("[{}]", cases.collect::<Vec<_>>().join(", "))
}

fn aliases_text(aliases: &[Attribute]) -> String {
    let aliases = aliases.iter().map(|alias| match alias {
        Attribute::Dict(fields) => {
            let fields = fields
                .0
                .iter()
                .map(|(name, value)| format!("{name} = {}", Plain(value)));
            let fields = fields.collect::<Vec<_>>().join(", ");
            format!("#stablehlo.output_operand_alias<{fields}>")
        }
        other => Value(other).to_string(),
    });
    format!("[{}]", aliases.collect::<Vec<_>>().join(", "))
}

/// Layouts, whose elements are of type `index`.
fn layouts_text(layouts: &[Attribute]) -> String {
    let layouts = layouts.iter().map(|layout| match layout {
        Attribute::Dense(dense) => {
            let text = DenseText(dense).to_string();
            text.strip_suffix("i64>")
                .map_or(text.clone(), |start| format!("{start}index>"))
        }
        other => Value(other).to_string(),
    });
    format!("[{}]", layouts.collect::<Vec<_>>().join(", "))
}

/// `array<i64: 1, 2>`.
struct ArrayText<'a>(&'a Dense);

impl Display for ArrayText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Dense { ty, bytes } = self.0;
        write!(f, "array<{}", ty.element)?;
        let size = ty.element.size();
        for index in 0..ty.elements() {
            f.write_str(if index == 0 { ": " } else { ", " })?;
            let start = if bytes.len() == size { 0 } else { index * size };
            element(f, ty.element, &bytes[start..start + size])?;
        }
        f.write_str(">")
    }
}

/// A value in a structure, where its type is known.
struct Plain<'a>(&'a Attribute);

impl Display for Plain<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self.0 {
            Attribute::Int(value, _) => write!(f, "{value}"),
            Attribute::Str(word) => f.write_str(word),
            Attribute::Array(items) => {
                f.write_str("[")?;
                list(f, items, |f, item| write!(f, "{}", Plain(item)))?;
                f.write_str("]")
            }
            Attribute::Dense(dense) => {
                let text = ArrayText(dense).to_string();
                let inner = text.trim_end_matches('>');
                let values = inner.split_once(": ").map_or("", |(_, values)| values);
                write!(f, "[{values}]")
            }
            value => write!(f, "{}", Value(value)),
        }
    }
}

/// `#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>`.
struct ConvolutionText<'a>(&'a Attributes);

impl Display for ConvolutionText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str("#stablehlo.conv<")?;
        self.tensor(f, "input", [("batch", 'b'), ("feature", 'f')])?;
        f.write_char('x')?;
        self.tensor(
            f,
            "kernel",
            [("input_feature", 'i'), ("output_feature", 'o')],
        )?;
        f.write_str("->")?;
        self.tensor(f, "output", [("batch", 'b'), ("feature", 'f')])?;
        f.write_str(">")
    }
}

impl ConvolutionText<'_> {
    fn tensor(&self, f: &mut Formatter<'_>, tensor: &str, roles: [(&str, char); 2]) -> Result {
        let mut dims: Vec<(i64, String)> = Vec::new();
        for (role, letter) in roles {
            if let Some(&Attribute::Int(position, ElementType::S64)) =
                self.0.get(&format!("{tensor}_{role}_dimension"))
            {
                dims.push((position, letter.to_string()));
            }
        }
        if let Some(Attribute::Dense(spatial)) = self.0.get(&format!("{tensor}_spatial_dimensions"))
        {
            let positions = spatial.integers().unwrap_or_default();
            dims.extend(
                (0_u32..)
                    .zip(positions)
                    .map(|(n, position)| (position, n.to_string())),
            );
        }
        dims.sort();
        f.write_str("[")?;
        list(f, dims, |f, (_, text)| f.write_str(&text))?;
        f.write_str("]")
    }
}
