//! Operations in the generic form, and what all forms share.

use std::sync::Arc;

use halite_core::{Error, Result};

use super::{lexer::Token, parser::Parser};
use crate::{
    Attributes, OpKind, Operation, Position, Region, SourceLine, Type, ValueId,
    build::{check_broadcast, refusal},
};

/// An operation of a region, or its terminator.
pub(super) enum Step {
    Operation(Box<Operation>),
    Return(Vec<ValueId>),
}

/// An operation as it is written, without its results.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) operands: Vec<ValueId>,
    /// Defining and other attributes, flat.
    pub(super) attributes: Attributes,
    pub(super) regions: Vec<Region>,
    /// Types of the results.
    pub(super) results: Vec<Type>,
    pub(super) location: Option<Arc<SourceLine>>,
}

/// A name of results: `%name:count`.
struct ResultName<'a> {
    name: &'a str,
    count: u32,
    position: Position,
}

impl<'a> Parser<'a> {
    /// An operation with its results: `%0:2, %1 = "name"(..) ..` or `%0 = name ..`.
    pub(super) fn operation(&mut self) -> Result<Step> {
        let names = self.result_names()?;
        let position = self.position();
        let (name, generic) = match self.token {
            Token::Quoted(name) => (name, true),
            Token::Word("return") => ("func.return", false),
            Token::Word("call") => ("func.call", false),
            Token::Word(name) => (name, false),
            _ => return Err(self.expected("an operation or the terminator of the region")),
        };
        self.advance();
        let step = match name {
            "stablehlo.return" | "func.return" | "sdy.return" => {
                return self.terminator(name, generic).map(Step::Return);
            }
            _ => {
                let short = name.strip_prefix("stablehlo.").unwrap_or(name);
                let parts = match generic {
                    true => self.generic(name),
                    false => self.pretty(short),
                };
                let made = parts.and_then(|parts| self.finish(short, parts, names, position));
                made.map(|operation| Step::Operation(Box::new(operation)))
            }
        };
        // An operation that is not supported may have a syntax that is not known either.
        step.map_err(
            |error| match refusal(name.strip_prefix("stablehlo.").unwrap_or(name)) {
                Some(refusal) => at_position(position, &refusal),
                None => error,
            },
        )
    }

    /// `%0:2, %1 =`, if it is next.
    fn result_names(&mut self) -> Result<Vec<ResultName<'a>>> {
        let mut names = Vec::new();
        while let Token::Value(name) = self.token {
            let position = self.position();
            self.advance();
            let count = match self.eat(':') {
                true => self.number("a number of results")?,
                false => 1,
            };
            names.push(ResultName {
                name,
                count,
                position,
            });
            if !self.eat(',') {
                self.expect('=')?;
                break;
            }
        }
        Ok(names)
    }

    /// `(%0, %1) <{..}> ({..}, {..}) {..} : (..) -> .. loc(..)`.
    fn generic(&mut self, name: &str) -> Result<Parts> {
        let operands = self.list('(', ')', Self::operand)?;
        if self.token == Token::Mark('[') {
            return Err(self.unsupported("operations with successor blocks are not supported"));
        }
        let mut attributes = self.properties()?;
        let regions = match self.token {
            Token::Mark('(') => self.list('(', ')', |this| this.region(Vec::new()))?,
            _ => Vec::new(),
        };
        attributes.0.extend(self.optional_attributes()?.0);
        self.expect(':')?;
        let position = self.position();
        let signature = self.signature()?;
        self.check_operands(name, &operands, &signature.operands, position)?;
        let location = self.optional_location()?;
        Ok(Parts {
            operands,
            attributes,
            regions,
            results: signature.results,
            location,
        })
    }

    /// The operands of a terminator: `%0, %1 : types`, or the generic form.
    fn terminator(&mut self, name: &str, generic: bool) -> Result<Vec<ValueId>> {
        let parts = match generic {
            true => self.generic(name)?,
            false => {
                let operands = self.operands()?;
                self.optional_attributes()?;
                if !operands.is_empty() {
                    self.expect(':')?;
                    let position = self.position();
                    let types = self.types()?;
                    self.check_operands(name, &operands, &types, position)?;
                }
                self.optional_location()?;
                Parts {
                    operands,
                    ..Parts::default()
                }
            }
        };
        Ok(parts.operands)
    }

    fn finish(
        &mut self,
        name: &str,
        parts: Parts,
        names: Vec<ResultName<'a>>,
        position: Position,
    ) -> Result<Operation> {
        let Parts {
            operands,
            mut attributes,
            regions,
            results,
            location,
        } = parts;
        let operand = operands
            .first()
            .map(|value| &self.scope.types[value.0 as usize]);
        attributes.check_unique(position)?;
        let kind = check_broadcast(name, &attributes, operand, &results)
            .and_then(|()| OpKind::from_attributes(name, &mut attributes, operand))
            .map_err(|error| at_position(position, &error))?;
        let named: u64 = names.iter().map(|name| u64::from(name.count)).sum();
        if !names.is_empty() && named != results.len() as u64 {
            let count = results.len();
            let message = format!("`{name}`: {named} results are named; it has {count}");
            return Err(super::parser::invalid_at(position, &message));
        }
        let results: Vec<ValueId> = results.into_iter().map(|ty| self.scope.add(ty)).collect();
        let mut rest = &results[..];
        for ResultName {
            name,
            count,
            position,
        } in names
        {
            if let Some((&first, _)) = rest.split_first() {
                self.define(name, first, count, position)?;
            }
            rest = &rest[count as usize..];
        }
        Ok(Operation {
            kind,
            operands: operands.into(),
            results: results.into(),
            regions,
            attributes,
            position,
            location,
        })
    }

    /// An operation in a region that the text leaves out: `reduce(..) applies stablehlo.add`.
    pub(super) fn implied(
        &mut self,
        name: &str,
        operands: Vec<ValueId>,
        ty: Type,
    ) -> Result<Operation> {
        let position = self.position();
        let parts = Parts {
            operands,
            results: vec![ty],
            ..Parts::default()
        };
        self.finish(name, parts, Vec::new(), position)
    }
}

/// The error, at a position.
fn at_position(position: Position, error: &Error) -> Error {
    Error::new(
        error.kind(),
        "program",
        format!("{position}: {}", error.message()),
    )
}
