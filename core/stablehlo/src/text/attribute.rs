//! Attributes.

use std::collections::HashSet;

use halite_core::Result;

use super::{
    lexer::Token,
    parser::{Parser, invalid_at},
    types::ElementNames,
};
use crate::{Attribute, Attributes, Dense, ElementType, Position, RankedType, Type};

/// How the value of an attribute is written.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Form {
    /// With its type: `1 : i64`, `#stablehlo<precision HIGH>`.
    Typed,
    /// As in the fields of a structure, where the type is known: `1`, `HIGH`, `tf32`.
    Plain,
}

/// Structures of the text whose fields are attributes of their own in [`OpKind`](crate::OpKind).
const FLATTENED: [&str; 4] = [
    "algorithm",
    "dimension_numbers",
    "dot_dimension_numbers",
    "scatter_dimension_numbers",
];

impl<'a> Parser<'a> {
    /// `{name = value, ..}`, if it is next.
    pub(super) fn optional_attributes(&mut self) -> Result<Attributes> {
        match self.token {
            Token::Mark('{') => self.attributes(),
            _ => Ok(Attributes::default()),
        }
    }

    /// `{name = value, ..}`.
    pub(super) fn attributes(&mut self) -> Result<Attributes> {
        let start = self.position();
        let mut attributes = Attributes::default();
        self.list('{', '}', |this| {
            let name: String = match this.token {
                Token::Quoted(_) => this.string()?,
                _ => this.word("the name of an attribute")?.into(),
            };
            let value = match this.eat('=') {
                true => this.attribute(Form::Typed)?,
                false => Attribute::Unit,
            };
            attributes.push_flat(name, value);
            Ok(())
        })?;
        attributes.check_unique(start)?;
        Ok(attributes)
    }

    /// The value of an attribute.
    pub(super) fn attribute(&mut self, form: Form) -> Result<Attribute> {
        self.nested(|this| match this.token {
            Token::Quoted(_) => Ok(Attribute::string(this.bytes()?)),
            Token::Symbol(_) | Token::Mark('@') => this.symbol_reference(),
            Token::Number(_) | Token::Mark('-') => this.number_attribute(form),
            Token::Mark('[') => {
                let items = this.list('[', ']', |this| this.attribute(form))?;
                Ok(Attribute::Array(items))
            }
            Token::Mark('{') => Ok(Attribute::Dict(this.attributes()?)),
            Token::Mark('<') if form == Form::Plain => Ok(Attribute::Dict(this.fields()?)),
            Token::Mark('(') => this.function_type(),
            Token::Hash(name) => this.hash_attribute(name),
            Token::Word(word) => this.word_attribute(word, form),
            Token::Bang(_) => Ok(Attribute::Type(this.ty()?)),
            _ => Err(this.expected("an attribute")),
        })
    }

    /// `@name` or `@name::@nested`.
    fn symbol_reference(&mut self) -> Result<Attribute> {
        let name = self.symbol()?;
        if self.token == Token::Mark(':') && self.text[self.end.offset..].starts_with(':') {
            return Err(self.unsupported("symbols of nested modules are not supported"));
        }
        Ok(Attribute::Symbol(name))
    }

    /// An integer or a float, by default of type `i64` or `f64`.
    fn number_attribute(&mut self, form: Form) -> Result<Attribute> {
        let number = self.start;
        let negative = self.eat('-');
        let Token::Number(digits) = self.token else {
            return Err(self.expected("a number"));
        };
        self.advance();
        let float = digits.contains('.');
        let typed = form == Form::Typed && self.eat(':');
        let element = match typed {
            true => self.element(ElementNames::OfAttributes)?,
            false if float => ElementType::F64,
            false => ElementType::S64,
        };
        let mut bytes = Vec::with_capacity(8);
        let after = self.start;
        self.start = number;
        self.push_number(negative, digits, element, &mut bytes)?;
        self.start = after;
        Ok(scalar(element, &bytes))
    }

    /// `(types) -> types`, as a list of two lists of types.
    fn function_type(&mut self) -> Result<Attribute> {
        let signature = self.signature()?;
        let list =
            |types: Vec<Type>| Attribute::Array(types.into_iter().map(Attribute::Type).collect());
        let lists = vec![list(signature.operands), list(signature.results)];
        Ok(Attribute::Array(lists))
    }

    fn word_attribute(&mut self, word: &'a str, form: Form) -> Result<Attribute> {
        match word {
            "true" | "false" => {
                self.advance();
                Ok(Attribute::Bool(word == "true"))
            }
            "unit" => {
                self.advance();
                Ok(Attribute::Unit)
            }
            "dense" => Ok(Attribute::Dense(self.dense()?)),
            "array" => Ok(Attribute::Dense(self.array()?)),
            "tensor" | "tuple" => Ok(Attribute::Type(self.ty()?)),
            "dense_resource" => {
                Err(self.unsupported("`dense_resource` is not supported; write `dense<..>`"))
            }
            "loc" => {
                self.location()?;
                Ok(Attribute::Unit)
            }
            _ if form == Form::Plain => {
                self.advance();
                Ok(Attribute::Str(word.into()))
            }
            // A scalar type, `f32`, is that of a tensor without dimensions.
            _ => match ElementType::from_name(word) {
                Some(element) => {
                    self.advance();
                    Ok(Attribute::Type(Type::Tensor(RankedType::new(element, []))))
                }
                None => Err(self.unsupported(&format!("the attribute `{word}` is not supported"))),
            },
        }
    }

    /// `array<i64: 1, 2>`.
    fn array(&mut self) -> Result<Dense> {
        self.advance();
        self.expect('<')?;
        let element = self.element(ElementNames::OfValues)?;
        let mut bytes = Vec::new();
        if !self.eat('>') {
            self.expect(':')?;
            loop {
                self.push_element(element, &mut bytes)?;
                if self.eat('>') {
                    break;
                }
                self.expect(',')?;
            }
        }
        let ty = RankedType::new(element, [bytes.len() / element.size()]);
        Ok(Dense::new(ty, bytes))
    }

    /// `#name`, `#dialect.name<..>` or `#dialect<name ..>`.
    fn hash_attribute(&mut self, name: &'a str) -> Result<Attribute> {
        if let Some(definition) = self.alias(&format!("#{name}")) {
            let value = self.at(definition, |this| this.attribute(Form::Typed))?;
            self.advance();
            return Ok(value);
        }
        match name {
            "stablehlo" => {
                self.advance();
                self.expect('<')?;
                self.word("the name of an enumeration")?;
                let case = self.word("a case of the enumeration")?;
                self.expect('>')?;
                Ok(Attribute::Str(case.into()))
            }
            "stablehlo.conv" => {
                self.advance();
                self.expect('<')?;
                let fields = match self.eat_word("raw") {
                    true => self.fields_until('>')?,
                    false => {
                        let fields = self.convolution_dims()?;
                        self.expect('>')?;
                        fields
                    }
                };
                Ok(Attribute::Dict(fields))
            }
            "stablehlo.bounds" | "stablehlo.type_extensions" => {
                Err(self.unsupported("dynamic dimensions are not supported"))
            }
            _ if name.starts_with("stablehlo.") => {
                self.advance();
                self.structure()
            }
            _ if name == "sdy" || name.starts_with("sdy.") => self.shardy_attribute(name),
            _ => Err(self.unsupported(&format!("the attribute `#{name}` is not supported"))),
        }
    }

    /// `<CASE>` or `<name = value, ..>`.
    fn structure(&mut self) -> Result<Attribute> {
        self.expect('<')?;
        if let Token::Word(case) = self.token
            && self.text[self.end.offset..].starts_with('>')
        {
            self.advance();
            self.advance();
            return Ok(Attribute::Str(case.into()));
        }
        Ok(Attribute::Dict(self.fields_until('>')?))
    }

    /// `<name = value, ..>`.
    fn fields(&mut self) -> Result<Attributes> {
        self.expect('<')?;
        self.fields_until('>')
    }

    fn fields_until(&mut self, close: char) -> Result<Attributes> {
        let start = self.position();
        let mut fields = Attributes::default();
        while !self.eat(close) {
            let name = self.word("the name of a field")?;
            self.expect('=')?;
            let value = self.attribute(Form::Plain)?;
            fields.push(name, value);
            if !self.eat(',') && self.token != Token::Mark(close) {
                return Err(self.expected(&format!("`,` or `{close}`")));
            }
        }
        fields.check_unique(start)?;
        Ok(fields)
    }

    /// `[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]`, by field.
    pub(super) fn convolution_dims(&mut self) -> Result<Attributes> {
        let mut fields = Attributes::default();
        self.tensor_dims(&mut fields, "input", &[("b", "batch"), ("f", "feature")])?;
        self.expect_word("x")?;
        let kernel = [("o", "output_feature"), ("i", "input_feature")];
        self.tensor_dims(&mut fields, "kernel", &kernel)?;
        self.expect_arrow()?;
        self.tensor_dims(&mut fields, "output", &[("b", "batch"), ("f", "feature")])?;
        Ok(fields)
    }

    /// `[b, 0, 1, f]`: the roles of the dimensions of one tensor of a convolution.
    fn tensor_dims(
        &mut self,
        fields: &mut Attributes,
        tensor: &str,
        letters: &[(&str, &str)],
    ) -> Result<()> {
        let start = self.start;
        let mut position = 0;
        let mut spatial = Vec::new();
        self.list('[', ']', |this| {
            match this.token {
                Token::Word(letter) => {
                    let Some((_, role)) = letters.iter().find(|(known, _)| *known == letter) else {
                        let known = format!("`{}`, `{}` or a number", letters[0].0, letters[1].0);
                        return Err(this.expected(&known));
                    };
                    let name = format!("{tensor}_{role}_dimension");
                    if fields.get(&name).is_some() {
                        return Err(this.invalid(&format!("`{letter}` occurs twice")));
                    }
                    fields.push(name, Attribute::Int(position, ElementType::S64));
                    this.advance();
                }
                Token::Mark('?') => {
                    return Err(this.unsupported("unknown dimensions `?` are not supported"));
                }
                _ => spatial.push((this.number::<u32>("a dimension")?, position)),
            }
            position += 1;
            Ok(())
        })?;
        spatial.sort_unstable();
        if spatial
            .iter()
            .enumerate()
            .any(|(index, &(number, _))| number as usize != index)
        {
            self.start = start;
            return Err(self.invalid("the spatial dimensions are not numbered 0, 1, .."));
        }
        let spatial = Dense::from_integers(spatial.into_iter().map(|(_, position)| position));
        fields.push(
            format!("{tensor}_spatial_dimensions"),
            Attribute::Dense(spatial),
        );
        Ok(())
    }
}

impl Attributes {
    /// Adds an attribute; the fields of a structure are added one by one. `sdy.sharding_rule`, a
    /// hint to partitioners, is left out.
    pub(super) fn push_flat(&mut self, name: String, value: Attribute) {
        match value {
            Attribute::Dict(fields) if FLATTENED.contains(&name.as_str()) => {
                self.0.extend(fields.0);
            }
            Attribute::Dict(mut fields) if name == "channel_handle" => {
                if let Some(handle) = fields.take("handle") {
                    self.push("channel_id", handle);
                }
            }
            _ if name == "sdy.sharding_rule" => {}
            value => self.push(name, value),
        }
    }

    /// Checks that no two attributes of the operation or structure at `position` have one name.
    pub(super) fn check_unique(&self, position: Position) -> Result<()> {
        let mut names = HashSet::new();
        match self.0.iter().find(|(name, _)| !names.insert(name)) {
            Some((name, _)) => {
                let message = format!("there are two attributes `{name}`");
                Err(invalid_at(position, &message))
            }
            None => Ok(()),
        }
    }
}

/// The attribute of a number.
fn scalar(element: ElementType, bytes: &[u8]) -> Attribute {
    let mut wide = [0; 8];
    wide[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
    let dense = Dense::new(RankedType::new(element, []), bytes.to_vec());
    match element {
        ElementType::F32 => {
            let [a, b, c, d, ..] = wide;
            Attribute::Float(f64::from(f32::from_le_bytes([a, b, c, d])), element)
        }
        ElementType::F64 => Attribute::Float(f64::from_le_bytes(wide), element),
        ElementType::Bool => Attribute::Bool(bytes == [1]),
        _ => match dense.integers() {
            Ok(values) => Attribute::Int(values[0], element),
            // A narrow float or a complex number.
            Err(_) => Attribute::Dense(dense),
        },
    }
}
