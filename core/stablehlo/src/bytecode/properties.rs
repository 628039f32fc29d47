//! Properties of operations of VHLO at a version.

use halite_core::{Error, ErrorKind, Result};

use super::{encode::Form, encoder::Encoder, interned::Tables};
use crate::{
    Attribute, Attributes, ElementType, Operation, Version,
    ops::{ACCURACY, ALGORITHM_FIELDS, DYNAMIC_ROOT, Enumeration, PRECISION},
    vhlo::{VhloOp, enumeration},
};

impl Tables {
    /// The version of an operation, and its properties, from the attributes that define it. Takes
    /// its accuracy out of the others.
    pub(super) fn properties(
        &mut self,
        name: &str,
        operation: &Operation,
        mut inherent: Attributes,
        discardable: &mut Attributes,
    ) -> Result<(&'static VhloOp, Encoder)> {
        let op = self.op(name)?;
        if let Some(accuracy) = discardable.take(ACCURACY) {
            inherent.push(ACCURACY, accuracy);
        }
        self.check_use(op, operation, &inherent)?;
        let mut properties = Encoder::default();
        for name in &op.attributes {
            let value = inherent.take(name);
            properties.size(self.inherent(name, value)?);
        }
        let Some((attribute, _)) = inherent.0.iter().find(|(_, value)| !is_empty(value)) else {
            return Ok((op, properties));
        };
        let what = format!("`{name}` with `{attribute}`");
        let known = VhloOp::versions(name).find(|op| op.attributes.contains(&attribute.as_str()));
        if let Some(op) = known {
            self.require(&what, op.since)?;
        }
        let message = format!("{what}, which the operation does not have");
        Err(Error::new(ErrorKind::InvalidArgument, "bytecode", message))
    }

    /// The version of an operation.
    fn op(&self, name: &str) -> Result<&'static VhloOp> {
        if let Some(op) = VhloOp::at(name, self.version()) {
            return Ok(op);
        }
        if let Some(first) = VhloOp::versions(name).next() {
            self.require(format_args!("`{name}`"), first.since)?;
        }
        let message = format!("`{name}` is not an operation of VHLO");
        Err(Error::new(ErrorKind::Unsupported, "bytecode", message))
    }

    /// Checks what the attributes of VHLO do not show: numbers of operands, kinds of values.
    fn check_use(&self, op: &VhloOp, operation: &Operation, inherent: &Attributes) -> Result<()> {
        let several = operation.operands.len() != 1 || operation.results.len() != 1;
        let name = op.name;
        match (name, op.number) {
            ("all_gather" | "all_reduce" | "all_to_all", 1) if several => self.require(
                format_args!("`{name}` of several operands"),
                Version::new(1, 5, 0),
            ),
            ("custom_call", _)
                if matches!(inherent.get("backend_config"), Some(Attribute::Dict(_))) =>
            {
                let what = "`custom_call` with a dictionary as `backend_config`";
                self.require(what, Version::new(1, 3, 0))
            }
            _ => Ok(()),
        }
    }

    /// Index of an attribute that defines an operation.
    fn inherent(&mut self, name: &str, value: Option<Attribute>) -> Result<usize> {
        let Some(value) = value else {
            return self.default(name);
        };
        let index = match (name, &value, enumeration(name)) {
            (PRECISION, Attribute::Array(cases), Some(enumeration)) if !cases.is_empty() => {
                return self.list_of(name, cases, |this, case| this.case_of(enumeration, case));
            }
            (PRECISION, ..) => return self.default(name),
            (_, value, Some(enumeration)) => self.case_of(enumeration, value),
            ("lhs_precision_type" | "rhs_precision_type" | "accumulation_type", value, _) => {
                match value {
                    Attribute::Str(name) => return self.named_type(name),
                    _ => None,
                }
            }
            ("operand_layouts" | "result_layouts", Attribute::Array(layouts), _) => {
                return self.list_of(name, layouts, |this, layout| match layout {
                    Attribute::Dense(layout) => Some(this.layout(layout)),
                    _ => None,
                });
            }
            ("output_operand_aliases", Attribute::Array(aliases), _) => {
                return self.list_of(name, aliases, Self::output_operand_alias);
            }
            (ACCURACY, value, _) => self.result_accuracy(Some(value)),
            (_, value, _) => return self.attribute(value, Form::Vhlo),
        };
        index.ok_or_else(|| inexpressible(name, &value))
    }

    /// Index of a list of an attribute, of the index of each item.
    fn list_of(
        &mut self,
        name: &str,
        items: &[Attribute],
        index: impl Fn(&mut Self, &Attribute) -> Option<usize>,
    ) -> Result<usize> {
        let indices = items
            .iter()
            .map(|item| index(self, item).ok_or_else(|| inexpressible(name, item)));
        let indices = indices.collect::<Result<Vec<_>>>()?;
        Ok(self.list(&indices))
    }

    /// Index of a case by its name or number.
    fn case_of(&mut self, enumeration: Enumeration, value: &Attribute) -> Option<usize> {
        let number = match value {
            Attribute::Str(case) => enumeration.number(case)?,
            Attribute::Int(number, _) => u64::try_from(*number).ok()?,
            _ => return None,
        };
        enumeration.case(number)?;
        Some(self.case(enumeration.code, number))
    }

    /// Index of the default of an attribute.
    fn default(&mut self, name: &str) -> Result<usize> {
        let value = match name {
            ACCURACY => {
                let index = self.result_accuracy(None);
                return index.ok_or_else(|| inexpressible(name, &Attribute::Unit));
            }
            "channel_id" => Attribute::Int(0, ElementType::S64),
            "backend_config" => Attribute::Str(String::new()),
            DYNAMIC_ROOT => Attribute::Bool(false),
            "operand_layouts" | "result_layouts" | "output_operand_aliases" | "result_tilings" => {
                Attribute::Array(Vec::new())
            }
            "compare_type" => return Ok(self.case(4, 0)),
            PRECISION => {
                let default = self.case(11, 0);
                return Ok(self.list(&[default, default]));
            }
            _ if ALGORITHM_FIELDS.contains(&name) => return Ok(self.none()),
            _ => {
                let message = format!("attribute `{name}` is missing");
                return Err(Error::new(ErrorKind::InvalidArgument, "bytecode", message));
            }
        };
        self.attribute(&value, Form::Vhlo)
    }
}

fn inexpressible(name: &str, value: &Attribute) -> Error {
    let message = format!("attribute `{name}` is {value:?}, which VHLO cannot express");
    Error::new(ErrorKind::InvalidArgument, "bytecode", message)
}

/// Returns whether older versions of an operation, without the attribute, mean the same.
pub(super) fn is_empty(value: &Attribute) -> bool {
    match value {
        Attribute::Array(list) => list.is_empty(),
        Attribute::Dense(dense) => dense.ty.elements() == 0,
        Attribute::Bool(value) => !value,
        _ => false,
    }
}
