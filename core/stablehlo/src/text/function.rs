//! Functions and regions.

use halite_core::Result;

use super::{
    attribute::Form,
    lexer::Token,
    op::Step,
    parser::{Parser, invalid_at},
    scope::Scope,
};
use crate::{Attribute, Attributes, Function, Position, Region, Type, ValueId};

/// An argument of a function or region, before it is a value.
pub(super) struct Argument<'a> {
    pub(super) name: &'a str,
    pub(super) ty: Type,
    pub(super) position: Position,
}

impl<'a> Parser<'a> {
    /// `func.func public @name(%x: type {..}) -> (type {..}) attributes {..} {..}`.
    pub(super) fn pretty_function(&mut self) -> Result<Function> {
        let position = self.position();
        self.advance();
        if let Token::Word("public" | "private" | "nested") = self.token {
            self.advance();
        }
        let name = self.symbol()?;
        let (mut input_names, mut input_attributes) = (Vec::new(), Vec::new());
        let arguments = self.list('(', ')', |this| {
            let argument = this.argument()?;
            input_attributes.push(this.optional_attributes()?);
            this.location_name = None;
            this.optional_location()?;
            input_names.push(this.location_name.take());
            Ok(argument)
        })?;
        let (mut results, mut output_attributes) = (Vec::new(), Vec::new());
        if self.token == Token::Arrow {
            self.advance();
            match self.token {
                Token::Mark('(') => {
                    self.list('(', ')', |this| {
                        results.push(this.ty()?);
                        output_attributes.push(this.optional_attributes()?);
                        Ok(())
                    })?;
                }
                _ => {
                    results.push(self.ty()?);
                    output_attributes.push(Attributes::default());
                }
            }
        }
        if self.eat_word("attributes") {
            self.attributes()?;
        }
        if self.token != Token::Mark('{') {
            return Err(self.unsupported(&format!("the function `@{name}` has no body")));
        }
        self.scope = Scope::default();
        let body = self.region(arguments)?;
        self.optional_location()?;
        let function = Function {
            name,
            types: std::mem::take(&mut self.scope).types,
            body,
            input_names,
            input_attributes,
            output_attributes,
        };
        check_results(&function, &results, position)?;
        Ok(function)
    }

    /// `"func.func"() <{function_type = .., sym_name = ..}> ({..}) {..} : () -> ()`.
    pub(super) fn generic_function(&mut self) -> Result<Function> {
        let position = self.position();
        self.advance();
        self.expect('(')?;
        self.expect(')')?;
        let mut attributes = self.properties()?;
        self.scope = Scope::default();
        self.expect('(')?;
        let body = self.region(Vec::new())?;
        self.expect(')')?;
        attributes.0.extend(self.optional_attributes()?.0);
        attributes.check_unique(position)?;
        self.expect(':')?;
        self.signature()?;
        self.optional_location()?;
        let Some(Attribute::Str(name)) = attributes.take("sym_name") else {
            return Err(invalid_at(
                position,
                "the function has no name, `sym_name = \"main\"`",
            ));
        };
        let input_attributes = each_attributes(&mut attributes, "arg_attrs", body.arguments.len());
        let output_attributes = each_attributes(&mut attributes, "res_attrs", body.results.len());
        let (Some(input_attributes), Some(output_attributes)) =
            (input_attributes, output_attributes)
        else {
            let message = format!("`@{name}`: `arg_attrs` or `res_attrs` do not fit its values");
            return Err(invalid_at(position, &message));
        };
        let types = std::mem::take(&mut self.scope).types;
        let function = Function {
            name,
            types,
            input_names: vec![None; body.arguments.len()],
            body,
            input_attributes,
            output_attributes,
        };
        if let Some(Attribute::Array(lists)) = attributes.take("function_type")
            && let [Attribute::Array(_), Attribute::Array(results)] = &lists[..]
        {
            let types = results.iter().filter_map(|ty| match ty {
                Attribute::Type(ty) => Some(ty.clone()),
                _ => None,
            });
            check_results(&function, &types.collect::<Vec<_>>(), position)?;
        }
        Ok(function)
    }

    /// `%name: type`.
    pub(super) fn argument(&mut self) -> Result<Argument<'a>> {
        let position = self.position();
        let Token::Value(name) = self.token else {
            return Err(self.expected("an argument, `%x: tensor<f32>`"));
        };
        self.advance();
        self.expect(':')?;
        Ok(Argument {
            name,
            ty: self.ty()?,
            position,
        })
    }

    /// `{..}` up to its terminator. Its arguments are given, or follow `^bb0`.
    pub(super) fn region(&mut self, arguments: Vec<Argument<'a>>) -> Result<Region> {
        self.nested(|this| {
            let mut region = Region::default();
            this.expect('{')?;
            let mark = this.scope.open();
            this.define_arguments(&mut region, arguments)?;
            if let Token::Caret(_) = this.token {
                this.advance();
                if this.token == Token::Mark('(') {
                    let arguments = this.list('(', ')', |this| {
                        let argument = this.argument()?;
                        this.optional_location()?;
                        Ok(argument)
                    })?;
                    this.define_arguments(&mut region, arguments)?;
                }
                this.expect(':')?;
            }
            loop {
                match this.operation()? {
                    Step::Operation(operation) => region.operations.push(*operation),
                    Step::Return(results) => {
                        region.results = results;
                        break;
                    }
                }
            }
            if let Token::Caret(_) = this.token {
                return Err(this.unsupported("regions of several blocks are not supported"));
            }
            this.scope.close(mark);
            match this.eat('}') {
                true => Ok(region),
                false => Err(this.expected("`}` after the last operation of a region")),
            }
        })
    }

    fn define_arguments(
        &mut self,
        region: &mut Region,
        arguments: Vec<Argument<'a>>,
    ) -> Result<()> {
        for argument in arguments {
            let value = self.scope.add(argument.ty);
            region.arguments.push(value);
            self.define(argument.name, value, 1, argument.position)?;
        }
        Ok(())
    }

    /// Names values that were added to the scope.
    pub(super) fn define(
        &mut self,
        name: &'a str,
        first: ValueId,
        count: u32,
        position: Position,
    ) -> Result<()> {
        match self.scope.name(name, first, count) {
            true => Ok(()),
            false => Err(invalid_at(position, &format!("`%{name}` is defined twice"))),
        }
    }

    /// A value that is defined before: `%name` or `%name#1`.
    pub(super) fn operand(&mut self) -> Result<ValueId> {
        let Token::Value(name) = self.token else {
            return Err(self.expected("a value, `%name`"));
        };
        let position = self.position();
        self.advance();
        let mut index = 0;
        if let Token::Hash(digits) = self.token
            && let Ok(number) = digits.parse()
        {
            index = number;
            self.advance();
        }
        self.scope.find(name, index).map_err(|count| {
            let message = match count {
                0 => format!("`%{name}` is not defined in this function before"),
                count => format!(
                    "`%{name}#{index}` is not defined; the last one is `%{name}#{}`",
                    count - 1
                ),
            };
            invalid_at(position, &message)
        })
    }

    /// Values separated by commas, without parentheses; may be empty.
    pub(super) fn operands(&mut self) -> Result<Vec<ValueId>> {
        let mut operands = Vec::new();
        if let Token::Value(_) = self.token {
            operands.push(self.operand()?);
            while self.eat(',') {
                operands.push(self.operand()?);
            }
        }
        Ok(operands)
    }

    /// The value of `key = value`, where its type is known.
    pub(super) fn plain_value(&mut self) -> Result<Attribute> {
        self.expect('=')?;
        self.attribute(Form::Plain)
    }
}

/// Attributes of each argument or result: an empty list if there is none.
fn each_attributes(
    attributes: &mut Attributes,
    name: &str,
    count: usize,
) -> Option<Vec<Attributes>> {
    let Some(value) = attributes.take(name) else {
        return Some(vec![Attributes::default(); count]);
    };
    let Attribute::Array(list) = value else {
        return None;
    };
    let dicts = list.into_iter().map(|item| match item {
        Attribute::Dict(attributes) => Some(attributes),
        _ => None,
    });
    let dicts: Vec<_> = dicts.collect::<Option<_>>()?;
    (dicts.len() == count).then_some(dicts)
}

/// Refuses a function whose declared results are not those that it returns.
fn check_results(function: &Function, declared: &[Type], position: Position) -> Result<()> {
    let returned = function
        .body
        .results
        .iter()
        .map(|&value| function.ty(value));
    if returned.clone().eq(declared) {
        return Ok(());
    }
    let list = |types: &mut dyn Iterator<Item = &Type>| {
        types.map(Type::to_string).collect::<Vec<_>>().join(", ")
    };
    let message = format!(
        "the function `@{}` has results ({}), but returns ({})",
        function.name,
        list(&mut declared.iter()),
        list(&mut returned.into_iter())
    );
    Err(invalid_at(position, &message))
}
