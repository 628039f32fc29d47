//! Meshes and shardings of Shardy.

use halite_core::Result;

use super::{lexer::Token, parser::Parser};
use crate::{Attribute, ShardyAxis, ShardyDim, ShardyMesh, ShardySharding};

impl Parser<'_> {
    /// `#sdy.sharding<..>`, `#sdy.sharding_per_value<[..]>` or `#sdy<manual_axes{..}>`. Rules by which
    /// a partitioner propagates shardings have no value.
    pub(super) fn shardy_attribute(&mut self, name: &str) -> Result<Attribute> {
        match name {
            "sdy.sharding" => {
                self.advance();
                Ok(Attribute::Sharding(self.sharding()?))
            }
            "sdy.sharding_per_value" => {
                self.advance();
                self.expect('<')?;
                let shardings = self.list('[', ']', Self::sharding)?;
                self.expect('>')?;
                Ok(Attribute::Shardings(shardings))
            }
            "sdy" => {
                self.advance();
                self.expect('<')?;
                self.expect_word("manual_axes")?;
                let axes = self.axes()?;
                self.expect('>')?;
                Ok(Attribute::Axes(axes))
            }
            "sdy.op_sharding_rule" => {
                self.advance();
                self.skip_brackets()?;
                Ok(Attribute::Unit)
            }
            _ => Err(self.unsupported(&format!("the attribute `#{name}` is not supported"))),
        }
    }

    /// Skips `<..>`.
    fn skip_brackets(&mut self) -> Result<()> {
        self.expect('<')?;
        let mut open = 1;
        while open > 0 {
            match self.advance() {
                Token::Mark('<') => open += 1,
                Token::Mark('>') => open -= 1,
                Token::End => return Err(self.expected("`>`")),
                _ => {}
            }
        }
        Ok(())
    }

    /// `<["x"=4, "y"=2], device_ids=[..]>`.
    pub(super) fn mesh(&mut self, name: String) -> Result<ShardyMesh> {
        self.expect('<')?;
        let axes = self.list('[', ']', |this| {
            let axis = this.string()?;
            this.expect('=')?;
            Ok((axis, this.number("the size of an axis")?))
        })?;
        let mut devices = Vec::new();
        if self.eat(',') {
            self.expect_word("device_ids")?;
            self.expect('=')?;
            devices = self.list('[', ']', |this| this.number("the number of a device"))?;
        }
        self.expect('>')?;
        Ok(ShardyMesh {
            name,
            axes,
            devices,
        })
    }

    /// `<@mesh, [{"x"}, {}], replicated={"y"}, unreduced={"z"}>`.
    pub(super) fn sharding(&mut self) -> Result<ShardySharding> {
        self.expect('<')?;
        if self.token == Token::Word("mesh") {
            return Err(self.unsupported("a mesh inside a sharding is not supported; name it"));
        }
        let mesh = self.symbol()?;
        self.expect(',')?;
        let dims = self.list('[', ']', Self::dim_sharding)?;
        let (mut replicated, mut unreduced) = (Vec::new(), Vec::new());
        while self.eat(',') {
            let axes = match self.word("`replicated` or `unreduced`")? {
                "replicated" => &mut replicated,
                "unreduced" => &mut unreduced,
                other => {
                    let message = format!("`{other}` of a sharding is not supported");
                    return Err(self.unsupported(&message));
                }
            };
            self.expect('=')?;
            *axes = self.axes()?;
        }
        self.expect('>')?;
        Ok(ShardySharding {
            mesh,
            dims,
            replicated,
            unreduced,
        })
    }

    /// `{"x", "y":(1)2, ?}p1`.
    fn dim_sharding(&mut self) -> Result<ShardyDim> {
        let mut open = false;
        let mut axes = Vec::new();
        self.list('{', '}', |this| {
            if open {
                return Err(this.expected("`}` after `?`"));
            }
            open = this.eat('?');
            if !open {
                axes.push(this.axis()?);
            }
            Ok(())
        })?;
        let mut priority = None;
        if let Token::Word(word) = self.token
            && let Some(digits) = word.strip_prefix('p')
        {
            let number = digits.parse();
            priority = Some(number.map_err(|_| self.expected("a priority, `p1`"))?);
            self.advance();
        }
        Ok(ShardyDim {
            axes,
            open,
            priority,
        })
    }

    /// `{"x", "y"}`.
    pub(super) fn axes(&mut self) -> Result<Vec<ShardyAxis>> {
        self.list('{', '}', Self::axis)
    }

    /// `"x"` or `"x":(2)4`.
    fn axis(&mut self) -> Result<ShardyAxis> {
        let name = self.string()?;
        let mut part = None;
        if self.eat(':') {
            self.expect('(')?;
            let before = self.number("the size before the part")?;
            self.expect(')')?;
            part = Some((before, self.number("the size of the part")?));
        }
        Ok(ShardyAxis { name, part })
    }
}
