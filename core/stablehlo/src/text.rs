//! Reader of MLIR text: StableHLO with `func`, Shardy and the test dialect `check`.
//!
//! A recursive-descent parser with one token of lookahead. Operations have two forms. The generic
//! one is the same for all: `"stablehlo.add"(%0, %1) <{..}> ({..}) {..} : (..) -> ..`. In the
//! pretty one, most operations are operands and `key = value` pairs, then types (`pretty.rs` has
//! the keys); loops, reductions and the like have a syntax of their own (`regions.rs`). Both become
//! an [`OpKind`](crate::OpKind) through its attributes by name.
//!
//! Memory and time are bounded by the length of the text: constants with one element for all stay
//! one element, and nesting and the expansion of aliases have limits.

mod attribute;
mod dense;
mod function;
mod lexer;
mod location;
mod narrow;
mod op;
mod parser;
mod pretty;
mod regions;
mod scope;
mod shardy;
mod types;

use halite_core::Result;

use self::{lexer::Token, parser::Parser};
use crate::{Attribute, Attributes, Module, ShardyMesh, chlo};

impl Module {
    /// Reads a program in MLIR's text form, pretty or generic: a `module`, or functions alone.
    ///
    /// The program is not verified beyond its syntax, the attributes of its operations, and the
    /// types of values where they are used.
    ///
    /// ```
    /// # fn main() -> halite_core::Result<()> {
    /// let program = halite_stablehlo::Module::parse(
    ///     "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
    ///        %y = stablehlo.tanh %x : tensor<2xf32>
    ///        return %y : tensor<2xf32>
    ///      }",
    /// )?;
    /// assert_eq!(program.main()?.body.operations.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the text is not a program of this form, or uses operations or types that are not
    /// supported. Errors name line and column.
    pub fn parse(text: &str) -> Result<Module> {
        Parser::new(text)?.program()
    }
}

impl Parser<'_> {
    fn program(mut self) -> Result<Module> {
        let mut module = Module::default();
        self.skip_definitions()?;
        match self.token {
            Token::Word("module" | "builtin.module") => self.pretty_module(&mut module)?,
            Token::Quoted("builtin.module") => self.generic_module(&mut module)?,
            _ => {
                while self.token != Token::End {
                    self.module_item(&mut module)?;
                    self.skip_definitions()?;
                }
            }
        }
        self.skip_definitions()?;
        match self.token {
            Token::End if self.text.len() == self.end.offset => {}
            _ => return Err(self.expected("the end of the program")),
        }
        chlo::lower(&mut module)?;
        Ok(module)
    }

    /// Skips definitions of aliases.
    fn skip_definitions(&mut self) -> Result<()> {
        while let Token::Hash(_) | Token::Bang(_) = self.token {
            self.skip_definition()?;
        }
        Ok(())
    }

    /// `module @name attributes {..} {..}`.
    fn pretty_module(&mut self, module: &mut Module) -> Result<()> {
        self.advance();
        if let Token::Symbol(_) | Token::Mark('@') = self.token {
            module.name = self.symbol()?;
        }
        if self.eat_word("attributes") {
            module.attributes = self.attributes()?;
        }
        self.module_body(module)?;
        self.optional_location()?;
        Ok(())
    }

    /// `"builtin.module"() <{..}> ({..}) {..} : () -> ()`.
    fn generic_module(&mut self, module: &mut Module) -> Result<()> {
        self.advance();
        self.expect('(')?;
        self.expect(')')?;
        let mut properties = self.properties()?;
        if let Some(Attribute::Str(name)) = properties.take("sym_name") {
            module.name = name;
        }
        self.expect('(')?;
        self.module_body(module)?;
        self.expect(')')?;
        module.attributes = self.optional_attributes()?;
        self.expect(':')?;
        self.signature()?;
        self.optional_location()?;
        Ok(())
    }

    fn module_body(&mut self, module: &mut Module) -> Result<()> {
        self.expect('{')?;
        while !self.eat('}') {
            self.module_item(module)?;
            self.skip_definitions()?;
        }
        Ok(())
    }

    /// A function or a mesh.
    fn module_item(&mut self, module: &mut Module) -> Result<()> {
        match self.token {
            Token::Word("func.func") => module.functions.push(self.pretty_function()?),
            Token::Quoted("func.func") => module.functions.push(self.generic_function()?),
            Token::Word("sdy.mesh") => {
                self.advance();
                let name = self.symbol()?;
                self.expect('=')?;
                module.meshes.push(self.mesh(name)?);
                self.optional_attributes()?;
                self.optional_location()?;
            }
            Token::Quoted("sdy.mesh") => module.meshes.push(self.generic_mesh()?),
            Token::Word("module" | "builtin.module") | Token::Quoted("builtin.module") => {
                return Err(self.unsupported("a module inside a module is not supported"));
            }
            _ => return Err(self.expected("`func.func` or `sdy.mesh`")),
        }
        Ok(())
    }

    /// `"sdy.mesh"() <{mesh = #sdy.mesh<..>, sym_name = ".."}> : () -> ()`.
    fn generic_mesh(&mut self) -> Result<ShardyMesh> {
        self.advance();
        self.expect('(')?;
        self.expect(')')?;
        self.expect('<')?;
        let (mut mesh, mut name) = (None, None);
        self.list('{', '}', |this| {
            match this.word("`mesh` or `sym_name`")? {
                "mesh" => {
                    this.expect('=')?;
                    match this.advance() {
                        Token::Hash("sdy.mesh") => mesh = Some(this.mesh(String::new())?),
                        _ => return Err(this.invalid("`mesh` is not a mesh `#sdy.mesh<..>`")),
                    }
                }
                "sym_name" => {
                    this.expect('=')?;
                    name = Some(this.string()?);
                }
                other => {
                    return Err(this.unsupported(&format!("`{other}` of a mesh is not supported")));
                }
            }
            Ok(())
        })?;
        self.expect('>')?;
        let (Some(mut mesh), Some(name)) = (mesh, name) else {
            return Err(self.invalid("the mesh has no `mesh` or no `sym_name`"));
        };
        mesh.name = name;
        self.optional_attributes()?;
        self.expect(':')?;
        self.signature()?;
        self.optional_location()?;
        Ok(mesh)
    }

    /// `<{name = value, ..}>` of the generic form, if it is next.
    fn properties(&mut self) -> Result<Attributes> {
        if !self.eat('<') {
            return Ok(Attributes::default());
        }
        let properties = self.attributes()?;
        self.expect('>')?;
        Ok(properties)
    }
}
