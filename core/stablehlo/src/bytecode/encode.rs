//! Encoding of attributes and types.

use half::{bf16, f16};
use halite_core::{Error, ErrorKind, Result};

use super::{
    encoder::Encoder,
    interned::{BUILTIN, Entry, Tables, VHLO},
    pack::pack,
};
use crate::{
    Attribute, Attributes, Dense, ElementClass, ElementType, SourceLine, Type, Version, vhlo,
};

/// The first version in which other dialects can be mixed with VHLO.
pub(super) const MIXED: Version = Version::new(1, 11, 0);

/// The dialect of attributes and types that VHLO and MLIR both have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    Vhlo,
    Builtin,
}

impl Form {
    fn dialect(self) -> usize {
        match self {
            Form::Vhlo => VHLO,
            Form::Builtin => BUILTIN,
        }
    }

    /// The beginning of an attribute or type with these codes.
    fn begin(self, vhlo: u64, builtin: u64) -> Encoder {
        let mut encoder = Encoder::default();
        encoder.varint(match self {
            Form::Vhlo => vhlo,
            Form::Builtin => builtin,
        });
        encoder
    }
}

impl Tables {
    /// Index of an attribute.
    pub(super) fn attribute(&mut self, attribute: &Attribute, form: Form) -> Result<usize> {
        let contents = match attribute {
            Attribute::Unit => {
                if form == Form::Vhlo {
                    self.require("an attribute without a value", MIXED)?;
                }
                return Ok(self.entry(BUILTIN, begin(7)));
            }
            Attribute::Sharding(sharding) => return self.sharding(sharding),
            Attribute::Shardings(shardings) => return self.shardings(shardings),
            Attribute::Axes(axes) => return self.manual_axes(axes),
            Attribute::Bool(value) => self.boolean(*value, form)?,
            Attribute::Int(value, ty) => {
                let mut integer = form.begin(9, 8);
                integer.size(self.element(*ty, form)?);
                write_integer(&mut integer, *value, *ty);
                integer
            }
            Attribute::Float(value, ty) => {
                let mut float = form.begin(8, 9);
                float.size(self.element(*ty, form)?);
                write_float(&mut float, *value, *ty)?;
                float
            }
            Attribute::Str(text) => self.text(text, form),
            Attribute::Bytes(bytes) => self.text(bytes, form),
            Attribute::Symbol(name) => match form {
                Form::Vhlo => self.text(name, form),
                Form::Builtin => return Ok(self.symbol(name)),
            },
            Attribute::Type(ty) => {
                let mut contents = form.begin(17, 6);
                contents.size(self.ty(ty, form)?);
                contents
            }
            Attribute::Array(list) => {
                let indices = list.iter().map(|item| self.attribute(item, form));
                let indices = indices.collect::<Result<Vec<_>>>()?;
                let mut contents = form.begin(1, 0);
                contents.indices(&indices);
                contents
            }
            Attribute::Dict(fields) => self.dictionary(fields, form, form)?,
            Attribute::Dense(dense) => {
                let ty = self.ty(&Type::Tensor(dense.ty.clone()), form)?;
                constant(form.begin(15, 18), ty, dense)
            }
        };
        Ok(self.entry(form.dialect(), contents))
    }

    /// Index of the discardable attributes of an operation: a builtin dictionary, whose values have
    /// the form of the operation's dialect.
    pub(super) fn discardable(&mut self, attributes: &Attributes, form: Form) -> Result<usize> {
        let contents = self.dictionary(attributes, Form::Builtin, form)?;
        Ok(self.entry(BUILTIN, contents))
    }

    fn dictionary(&mut self, fields: &Attributes, form: Form, values: Form) -> Result<Encoder> {
        let mut fields: Vec<_> = fields.0.iter().collect();
        // MLIR finds attributes by binary search.
        fields.sort_by(|left, right| left.0.cmp(&right.0));
        let mut contents = form.begin(6, 1);
        contents.size(fields.len());
        for (name, value) in fields {
            let name = self.text(name, form);
            let name = self.entry(form.dialect(), name);
            contents.size(name).size(self.attribute(value, values)?);
        }
        Ok(contents)
    }

    pub(super) fn text(&mut self, text: impl AsRef<[u8]>, form: Form) -> Encoder {
        let mut contents = form.begin(14, 2);
        contents.size(self.string(text));
        contents
    }

    fn boolean(&mut self, value: bool, form: Form) -> Result<Encoder> {
        let mut contents = form.begin(2, 8);
        match form {
            Form::Vhlo => contents.varint(value.into()),
            Form::Builtin => {
                let ty = self.element(ElementType::Bool, form)?;
                contents.size(ty).byte(value.into())
            }
        };
        Ok(contents)
    }

    /// Index of a builtin symbol.
    pub(super) fn symbol(&mut self, name: &str) -> usize {
        let name = self.text(name, Form::Builtin);
        let name = self.entry(BUILTIN, name);
        let mut contents = begin(4);
        contents.size(name);
        self.entry(BUILTIN, contents)
    }

    /// Index of a type.
    pub(super) fn ty(&mut self, ty: &Type, form: Form) -> Result<usize> {
        let contents = match ty {
            Type::Tensor(ty) => {
                let element = self.element(ty.element, form)?;
                tensor(form.begin(20, 13), &ty.dims, element)
            }
            Type::Tuple(types) => {
                let types = self.types(types, form)?;
                let mut contents = form.begin(23, 15);
                contents.indices(&types);
                contents
            }
            // Tokens have no builtin type.
            Type::Token => return Ok(self.encoded_type(VHLO, begin(22))),
        };
        Ok(self.encoded_type(form.dialect(), contents))
    }

    pub(super) fn types<'t>(
        &mut self,
        types: impl IntoIterator<Item = &'t Type>,
        form: Form,
    ) -> Result<Vec<usize>> {
        types.into_iter().map(|ty| self.ty(ty, form)).collect()
    }

    fn encoded_type(&mut self, dialect: usize, contents: Encoder) -> usize {
        self.types.index(Entry {
            dialect,
            encoded: true,
            contents,
        })
    }

    /// Index of an element type.
    fn element(&mut self, ty: ElementType, form: Form) -> Result<usize> {
        if let Some(part) = ty.part() {
            let mut contents = form.begin(1, 9);
            contents.size(self.element(part, form)?);
            return Ok(self.encoded_type(form.dialect(), contents));
        }
        if form == Form::Builtin {
            return Ok(self.builtin_element(ty));
        }
        let code = ty.vhlo_number().zip(ty.vhlo_since());
        let (code, (major, minor)) = code.expect("every element type but complex has a code");
        let since = Version::new(major, minor, 0);
        self.require(format_args!("the element type {ty}"), since)?;
        Ok(self.encoded_type(VHLO, begin(code.into())))
    }

    fn builtin_element(&mut self, ty: ElementType) -> usize {
        let integer = |signedness: u64| {
            let mut contents = begin(0);
            contents.varint((ty.bits() as u64) << 2 | signedness);
            contents
        };
        let contents = match (ty.class(), ty.builtin_number()) {
            (ElementClass::Bool | ElementClass::Signed, _) => integer(0),
            (ElementClass::Unsigned, _) => integer(2),
            (_, Some(code)) if ty.bits() >= 16 => begin(code.into()),
            _ => {
                // Old versions of MLIR have no codes of narrow floats, but read their text.
                let mut contents = Encoder::default();
                contents.bytes(ty.name().as_bytes()).byte(0);
                return self.types.index(Entry {
                    dialect: BUILTIN,
                    encoded: false,
                    contents,
                });
            }
        };
        self.encoded_type(BUILTIN, contents)
    }

    /// Index of an attribute that is a type of VHLO with this code and these types.
    fn type_attribute(&mut self, contents: Encoder) -> usize {
        let ty = self.encoded_type(VHLO, contents);
        let mut contents = begin(17);
        contents.size(ty);
        self.entry(VHLO, contents)
    }

    /// Index of the type of a function, as an attribute.
    pub(super) fn function_type(&mut self, inputs: &[usize], outputs: &[usize]) -> usize {
        let mut contents = begin(8);
        contents.indices(inputs).indices(outputs);
        self.type_attribute(contents)
    }

    /// Index of the type `none`, which stands for a missing attribute.
    pub(super) fn none(&mut self) -> usize {
        self.type_attribute(begin(33))
    }

    /// Index of the name of a type, as an attribute of a dot's algorithm.
    pub(super) fn named_type(&mut self, name: &str) -> Result<usize> {
        let ty = match (name, ElementType::from_name(name)) {
            ("tf32", _) => self.encoded_type(VHLO, begin(34)),
            (_, Some(ty)) => self.element(ty, Form::Vhlo)?,
            _ => {
                let message = format!("`{name}` is not a type of a dot's algorithm");
                return Err(Error::invalid("bytecode", message));
            }
        };
        let mut contents = begin(17);
        contents.size(ty);
        Ok(self.entry(VHLO, contents))
    }

    /// Index of a case of an enumeration.
    pub(super) fn case(&mut self, code: u64, number: u64) -> usize {
        let mut contents = begin(code);
        contents.varint(number);
        self.entry(VHLO, contents)
    }

    /// Index of a list of attributes.
    pub(super) fn list(&mut self, indices: &[usize]) -> usize {
        let mut contents = begin(1);
        contents.indices(indices);
        self.entry(VHLO, contents)
    }

    /// Index of a layout: a constant of type `index`.
    pub(super) fn layout(&mut self, layout: &Dense) -> usize {
        let element = self.encoded_type(VHLO, begin(9));
        let ty = tensor(begin(20), &layout.ty.dims, element);
        let ty = self.encoded_type(VHLO, ty);
        self.entry(VHLO, constant(begin(15), ty, layout))
    }

    /// Index of an alias of an operand and a result; `None` if its fields are not those of one.
    pub(super) fn output_operand_alias(&mut self, alias: &Attribute) -> Option<usize> {
        let Attribute::Dict(fields) = alias else {
            return None;
        };
        let integer = |value: &Attribute| match value {
            Attribute::Int(value, _) => Some(*value),
            _ => None,
        };
        let list = |name| match fields.get(name)? {
            Attribute::Array(values) => values.iter().map(integer).collect::<Option<Vec<_>>>(),
            _ => None,
        };
        let index = integer(fields.get("operand_index")?)?;
        let mut contents = begin(10);
        contents.signed_list(&list("output_tuple_indices")?);
        contents
            .signed(index)
            .signed_list(&list("operand_tuple_indices")?);
        Some(self.entry(VHLO, contents))
    }

    /// Index of an accuracy, by default the one that asks for nothing; `None` if its fields are not
    /// those of one.
    pub(super) fn result_accuracy(&mut self, accuracy: Option<&Attribute>) -> Option<usize> {
        let (atol, rtol, ulps, mode) = match accuracy {
            None => (0.0, 0.0, 0, "DEFAULT"),
            Some(Attribute::Dict(fields)) => {
                let float = |name| match fields.get(name) {
                    Some(Attribute::Float(value, _)) => Some(*value),
                    _ => None,
                };
                let (Some(Attribute::Int(ulps, _)), Some(Attribute::Str(mode))) =
                    (fields.get("ulps"), fields.get("mode"))
                else {
                    return None;
                };
                (float("atol")?, float("rtol")?, *ulps, mode.as_str())
            }
            Some(_) => return None,
        };
        let mode = self.case(vhlo::MODE.code, vhlo::MODE.number(mode)?);
        let mut contents = begin(20);
        contents
            .signed(atol.to_bits() as i64)
            .signed(rtol.to_bits() as i64);
        contents.signed(ulps).size(mode);
        Some(self.entry(VHLO, contents))
    }

    /// Index of a builtin location.
    pub(super) fn location(&mut self, line: Option<&SourceLine>) -> usize {
        let Some(SourceLine { file, line, column }) = line else {
            return self.entry(BUILTIN, begin(15));
        };
        let file = self.text(file, Form::Builtin);
        let file = self.entry(BUILTIN, file);
        let mut contents = begin(11);
        contents.size(file).varint((*line).into());
        contents.varint((*column).into());
        self.entry(BUILTIN, contents)
    }
}

/// The beginning of an attribute or type with this code.
pub(super) fn begin(code: u64) -> Encoder {
    let mut encoder = Encoder::default();
    encoder.varint(code);
    encoder
}

fn tensor(mut contents: Encoder, dims: &[usize], element: usize) -> Encoder {
    let dims: Vec<_> = dims.iter().map(|dim| *dim as i64).collect();
    contents.signed_list(&dims).size(element);
    contents
}

fn constant(mut contents: Encoder, ty: usize, dense: &Dense) -> Encoder {
    let blob = pack(dense);
    contents.size(ty).size(blob.len()).bytes(&blob);
    contents
}

fn write_integer(contents: &mut Encoder, value: i64, ty: ElementType) {
    match ty.bits() {
        bits @ 1..=8 => contents.byte(value as u8 & (0xff >> (8 - bits))),
        64.. => contents.signed(value),
        // MLIR writes the bits, without the sign.
        bits => contents.signed(value & ((1 << bits) - 1)),
    };
}

fn write_float(contents: &mut Encoder, value: f64, ty: ElementType) -> Result<()> {
    contents.signed(match ty {
        ElementType::Bf16 => bf16::from_f64(value).to_bits().into(),
        ElementType::F16 => f16::from_f64(value).to_bits().into(),
        ElementType::F32 => (value as f32).to_bits().into(),
        ElementType::F64 => value.to_bits() as i64,
        _ => {
            let message = format!("a float attribute of type {ty}");
            return Err(Error::new(ErrorKind::Unsupported, "bytecode", message));
        }
    });
    Ok(())
}
