//! Source lines.

use std::sync::Arc;

use halite_core::Result;

use super::{
    lexer::{Cursor, Token},
    parser::Parser,
};
use crate::SourceLine;

type Location = Option<Arc<SourceLine>>;

impl Parser<'_> {
    /// `loc(..)`, if it is next: the first line of a file that it names.
    pub(super) fn optional_location(&mut self) -> Result<Location> {
        match self.token {
            Token::Word("loc") => self.location(),
            _ => Ok(None),
        }
    }

    /// `loc(..)`.
    pub(super) fn location(&mut self) -> Result<Location> {
        self.expect_word("loc")?;
        self.expect('(')?;
        let location = self.location_body()?;
        self.expect(')')?;
        Ok(location)
    }

    fn location_body(&mut self) -> Result<Location> {
        self.nested(|this| match this.token {
            Token::Word("unknown") => {
                this.advance();
                Ok(None)
            }
            Token::Word("callsite") => {
                this.advance();
                this.expect('(')?;
                let callee = this.location_body()?;
                this.expect_word("at")?;
                let caller = this.location_body()?;
                this.expect(')')?;
                Ok(callee.or(caller))
            }
            Token::Word("fused") => {
                this.advance();
                if this.eat('<') {
                    this.attribute(super::attribute::Form::Typed)?;
                    this.expect('>')?;
                }
                let lines = this.list('[', ']', Self::location_body)?;
                Ok(lines.into_iter().flatten().next())
            }
            Token::Hash(_) => {
                let location = this.location_alias()?;
                this.advance();
                Ok(location)
            }
            Token::Quoted(_) => this.named_location(),
            _ => Err(this.expected("a location: `\"file\":1:2`, `\"name\"(..)`, `unknown`")),
        })
    }

    /// `#loc1`, which is read once.
    fn location_alias(&mut self) -> Result<Location> {
        let Token::Hash(name) = self.token else {
            return Err(self.expected("the name of a location"));
        };
        if let Some(known) = self.locations.get(name) {
            return Ok(known.clone());
        }
        let Some(definition) = self.alias(&format!("#{name}")) else {
            return Err(self.invalid(&format!("the location `#{name}` is not defined")));
        };
        let location = self.at(definition, Self::location)?;
        self.locations.insert(name, location.clone());
        Ok(location)
    }

    /// `"file":1:2`, `"file":1:2 to 3:4`, `"name"` or `"name"(location)`.
    fn named_location(&mut self) -> Result<Location> {
        let file = self.string()?;
        if self.eat('(') {
            let location = self.location_body()?;
            self.expect(')')?;
            return Ok(location);
        }
        if !self.eat(':') {
            self.location_name = Some(file);
            return Ok(None);
        }
        let line = self.number("a line")?;
        self.expect(':')?;
        let column = self.number("a column")?;
        if self.eat_word("to") {
            if self.token != Token::Mark(':') {
                self.number::<u32>("a line")?;
            }
            self.expect(':')?;
            self.number::<u32>("a column")?;
        }
        Ok(Some(Arc::new(SourceLine { file, line, column })))
    }

    /// Skips the definition of an alias, `#name = ..`, which was found before.
    pub(super) fn skip_definition(&mut self) -> Result<()> {
        self.advance();
        self.expect('=')?;
        let mut open = 0_usize;
        loop {
            let line = self.start.line;
            match self.advance() {
                Token::Mark('(' | '[' | '{' | '<') => open += 1,
                Token::Mark(')' | ']' | '}' | '>') => open = open.saturating_sub(1),
                _ => {}
            }
            let next: Cursor = self.start;
            if self.token == Token::End || (open == 0 && next.line > line) {
                return Ok(());
            }
        }
    }
}
