//! Constants.

use halite_core::{Result, format_count};

use super::{
    lexer::Token,
    narrow,
    parser::{Parser, hex_digit},
    types::ElementNames,
};
use crate::{Dense, ElementClass, ElementType, RankedType, types::canonical};

impl<'a> Parser<'a> {
    /// `dense<..> : tensor<..>`. The elements come before their type, so they are skipped first.
    pub(super) fn dense(&mut self) -> Result<Dense> {
        self.advance();
        if self.token != Token::Mark('<') {
            return Err(self.expected("`<`"));
        }
        let elements = self.end;
        let rest = &self.text.as_bytes()[elements.offset..];
        let Some(length) = rest.iter().position(|&byte| byte == b'>') else {
            return Err(self.invalid("`dense<` has no `>`"));
        };
        let mut after = elements;
        after.skip(&rest[..=length]);
        self.move_to(after);
        self.expect(':')?;
        let ty = self.tensor(ElementNames::OfAttributes)?;
        self.at(elements, |this| this.elements(ty))
    }

    /// The elements of a constant, up to `>`.
    fn elements(&mut self, ty: RankedType) -> Result<Dense> {
        let count = ty.elements();
        let mut bytes = Vec::new();
        match self.token {
            Token::Quoted(raw) => {
                bytes = self.blob(raw, &ty)?;
                self.advance();
            }
            Token::Mark('>') if count == 0 => {}
            Token::Mark('[') => self.nest(&ty, &ty.dims, &mut bytes)?,
            _ => {
                self.push_element(ty.element, &mut bytes)?;
                if count == 0 {
                    bytes.clear();
                }
            }
        }
        match self.token {
            Token::Mark('>') => Ok(Dense::new(ty, bytes)),
            _ => Err(self.expected("`>`")),
        }
    }

    /// `[[1, 2], [3, 4]]`, of as many elements as the type has.
    fn nest(&mut self, ty: &RankedType, dims: &[usize], bytes: &mut Vec<u8>) -> Result<()> {
        let Some((&size, inner)) = dims.split_first() else {
            return self.push_element(ty.element, bytes);
        };
        self.nested(|this| {
            let start = this.start;
            let items = this
                .list('[', ']', |this| this.nest(ty, inner, bytes))?
                .len();
            if items != size {
                this.start = start;
                let items = format_count(items as u64);
                return Err(this.invalid(&format!("a list of {items} is in a constant of {ty}")));
            }
            Ok(())
        })
    }

    /// The bytes of `"0x.."`. Booleans have a byte each, or a bit each in older programs.
    fn blob(&self, raw: &str, ty: &RankedType) -> Result<Vec<u8>> {
        let Some(digits) = raw.strip_prefix("0x").map(str::as_bytes) else {
            return Err(self.invalid("the string is not hexadecimal: \"0x00ff\""));
        };
        if digits.len() % 2 != 0 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(self.invalid("the string is not pairs of hexadecimal digits"));
        }
        let pairs = digits.chunks_exact(2);
        let mut bytes: Vec<u8> = pairs
            .map(|pair| 16 * hex_digit(pair[0]) + hex_digit(pair[1]))
            .collect();
        let (count, size) = (ty.elements(), ty.element.size());
        let all = bytes.len() == ty.bytes();
        let splat = count > 0 && bytes.len() == size;
        let packed = ty.element == ElementType::Bool && bytes.len() == count.div_ceil(8);
        if !all && !splat && packed {
            return Ok((0..count)
                .map(|index| bytes[index / 8] >> (index % 8) & 1)
                .collect());
        }
        if !all && !splat {
            return Err(self.invalid(&format!(
                "the string has {} of the {} bytes of {ty}",
                format_count(bytes.len() as u64),
                format_count(ty.bytes() as u64)
            )));
        }
        if size == 1 {
            for byte in &mut bytes {
                *byte = canonical(ty.element, *byte);
            }
        }
        Ok(bytes)
    }

    /// One element: `-1`, `1.5`, `0x7F800000`, `true`, `(1.0, 2.0)`.
    pub(super) fn push_element(&mut self, element: ElementType, bytes: &mut Vec<u8>) -> Result<()> {
        if let Some(part) = element.part() {
            self.expect('(')?;
            self.push_element(part, bytes)?;
            self.expect(',')?;
            self.push_element(part, bytes)?;
            return self.expect(')');
        }
        if element == ElementType::Bool
            && let Token::Word(word @ ("true" | "false")) = self.token
        {
            bytes.push(u8::from(word == "true"));
            self.advance();
            return Ok(());
        }
        let negative = self.eat('-');
        let Token::Number(digits) = self.token else {
            return Err(self.expected(&format!("a number of type {element}")));
        };
        self.push_number(negative, digits, element, bytes)?;
        self.advance();
        Ok(())
    }

    /// The bytes of a number, which is an integer, a float, or bits `0x..` of either.
    pub(super) fn push_number(
        &self,
        negative: bool,
        digits: &str,
        element: ElementType,
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        let sign = if negative { "-" } else { "" };
        let wrong = || {
            self.invalid(&format!(
                "`{sign}{digits}` is not a number of type {element}"
            ))
        };
        let hex = digits.strip_prefix("0x");
        let integer = match hex {
            Some(hex) => i128::from_str_radix(hex, 16).ok(),
            None => digits.parse::<i128>().ok(),
        };
        let size = element.size();
        let float = element.class() == ElementClass::Float;
        if !float || hex.is_some() {
            let value = integer.ok_or_else(wrong)?;
            let value = if negative { -value } else { value };
            let bits = element.bits() as u32;
            let lowest = match element.class() {
                ElementClass::Signed => -(1_i128 << (bits - 1)),
                _ => 0,
            };
            if value < lowest || value >= 1_i128 << bits {
                return Err(wrong());
            }
            bytes.extend_from_slice(&value.to_le_bytes()[..size]);
            if size == 1
                && let Some(byte) = bytes.last_mut()
            {
                *byte = canonical(element, *byte);
            }
            return Ok(());
        }
        let value: f64 = digits.parse().map_err(|_| wrong())?;
        let value = if negative { -value } else { value };
        match element {
            ElementType::F64 => bytes.extend(value.to_le_bytes()),
            ElementType::F32 => bytes.extend((value as f32).to_le_bytes()),
            ElementType::F16 => bytes.extend(half::f16::from_f64(value).to_le_bytes()),
            ElementType::Bf16 => bytes.extend(half::bf16::from_f64(value).to_le_bytes()),
            _ => bytes.push(narrow::encode(element, value)),
        }
        Ok(())
    }
}
