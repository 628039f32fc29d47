//! Types.

use std::borrow::Borrow;

use halite_core::Result;

use super::{
    lexer::Token,
    parser::{Parser, invalid_at},
};
use crate::{ElementType, Module, Position, RankedType, Type};

/// Types of operands and results: `(tensor<2xf32>) -> tensor<f32>`.
pub(super) struct Signature {
    pub(super) operands: Vec<Type>,
    pub(super) results: Vec<Type>,
}

impl Parser<'_> {
    /// The type of a value.
    pub(super) fn ty(&mut self) -> Result<Type> {
        match self.token {
            Token::Word("tensor") => Ok(Type::Tensor(self.tensor(ElementNames::OfValues)?)),
            Token::Word("tuple") => {
                self.advance();
                let types = self.nested(|this| this.list('<', '>', Self::ty))?;
                Ok(Type::Tuple(types))
            }
            Token::Bang("stablehlo.token") => {
                self.advance();
                Ok(Type::Token)
            }
            Token::Bang(name) => match self.alias(&format!("!{name}")) {
                Some(definition) => {
                    let ty = self.at(definition, Self::ty)?;
                    self.advance();
                    Ok(ty)
                }
                None => Err(self.unsupported(&format!("the type `!{name}` is not supported"))),
            },
            Token::Word(name @ ("memref" | "vector" | "index" | "none")) => {
                Err(self.unsupported(&format!("the type `{name}` is not supported")))
            }
            _ => Err(self.expected("a type: `tensor<2x3xf32>`, `tuple<..>`, `!stablehlo.token`")),
        }
    }

    /// Types separated by commas, at least one.
    pub(super) fn types(&mut self) -> Result<Vec<Type>> {
        let mut types = vec![self.ty()?];
        while self.eat(',') {
            types.push(self.ty()?);
        }
        Ok(types)
    }

    /// `(operands) -> results`.
    pub(super) fn signature(&mut self) -> Result<Signature> {
        let operands = self.list('(', ')', Self::ty)?;
        self.expect_arrow()?;
        let results = match self.token {
            Token::Mark('(') => self.list('(', ')', Self::ty)?,
            _ => vec![self.ty()?],
        };
        Ok(Signature { operands, results })
    }

    /// `tensor<2x3xf32>`. The dimensions are read by character: `0x3xf32` would be the number `0x3`.
    pub(super) fn tensor(&mut self, names: ElementNames) -> Result<RankedType> {
        self.end.skip_blank(self.text);
        self.advance();
        if self.token != Token::Mark('<') {
            return Err(self.expected("`<`"));
        }
        let bytes = self.text.as_bytes();
        let mut dims = Vec::new();
        loop {
            self.end.skip_blank(self.text);
            let from = self.end.offset;
            let length = bytes[from..]
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count();
            if length == 0 {
                break;
            }
            self.start = self.end;
            let digits = &self.text[from..from + length];
            let dim = digits.parse().map_err(|_| {
                self.unsupported(&format!("the dimension {digits} is not supported"))
            })?;
            if dims.len() == Module::MAX_RANK {
                let most = Module::MAX_RANK;
                let message = format!("a tensor of more than {most} dimensions is not supported");
                return Err(self.unsupported(&message));
            }
            dims.push(dim);
            self.end.offset += length;
            self.end.skip_blank(self.text);
            if bytes.get(self.end.offset) != Some(&b'x') {
                self.advance();
                return Err(self.expected("`x`"));
            }
            self.end.offset += 1;
        }
        self.advance();
        let element = self.element(names)?;
        match self.token {
            Token::Mark('>') => {}
            Token::Mark(',') => {
                return Err(self.unsupported("tensors with an encoding are not supported"));
            }
            _ => return Err(self.expected("`>`")),
        }
        let ty = RankedType { element, dims };
        if ty.bytes() > isize::MAX as usize {
            return Err(self.unsupported(&format!("{ty} has more bytes than memory can have")));
        }
        self.advance();
        Ok(ty)
    }

    /// An element type: `f32`, `complex<f32>`.
    pub(super) fn element(&mut self, names: ElementNames) -> Result<ElementType> {
        let element = match self.token {
            Token::Word("f32") => ElementType::F32,
            Token::Word("complex") => {
                self.advance();
                self.expect('<')?;
                let element = match self.token {
                    Token::Word("f32") => ElementType::C64,
                    Token::Word("f64") => ElementType::C128,
                    _ => return Err(self.expected("`f32` or `f64`")),
                };
                self.advance();
                if self.token != Token::Mark('>') {
                    return Err(self.expected("`>`"));
                }
                element
            }
            Token::Word("index") if names == ElementNames::OfAttributes => ElementType::S64,
            Token::Word(name) => match ElementType::from_name(name) {
                Some(element) => element,
                None => {
                    let message = format!("the element type `{name}` is not supported");
                    return Err(self.unsupported(&message));
                }
            },
            Token::Bang(name) if name.starts_with("quant.") => {
                return Err(self.unsupported("quantized types are not supported"));
            }
            Token::Mark('?') => {
                return Err(self.unsupported("dynamic dimensions `?` are not supported"));
            }
            Token::Mark('*') => return Err(self.unsupported("unranked tensors are not supported")),
            _ => return Err(self.expected("an element type: `f32`, `i32`, `i1`")),
        };
        self.advance();
        Ok(element)
    }

    /// Refuses operand types, written at `position`, that are not those of the values.
    pub(super) fn check_operands(
        &self,
        op: &str,
        operands: &[crate::ValueId],
        types: &[impl Borrow<Type>],
        position: Position,
    ) -> Result<()> {
        if operands.len() != types.len() {
            let (given, typed) = (operands.len(), types.len());
            let message = format!("`{op}` has {given} operands, types are given for {typed}");
            return Err(invalid_at(position, &message));
        }
        for (index, (value, given)) in operands.iter().zip(types).enumerate() {
            let (defined, given): (_, &Type) =
                (&self.scope.types[value.0 as usize], given.borrow());
            if defined != given {
                let message = format!(
                    "`{op}`: operand {index} has the type {given} here; it is defined with the \
                     type {defined}"
                );
                return Err(invalid_at(position, &message));
            }
        }
        Ok(())
    }
}

/// Which element types a tensor may have.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum ElementNames {
    /// Those of [`ElementType`].
    OfValues,
    /// Also `index`, which becomes `i64`.
    OfAttributes,
}
