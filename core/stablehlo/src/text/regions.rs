//! Pretty forms of operations with regions.

use halite_core::Result;

use super::{function::Argument, lexer::Token, op::Parts, parser::Parser, types::Signature};
use crate::{Attribute, Attributes, BinaryOp, Dense, RankedType, Region, Type};

impl<'a> Parser<'a> {
    /// `(%i = %0, %x = %1) : types attributes {..} cond {..} do {..}`.
    pub(super) fn pretty_while(&mut self) -> Result<Parts> {
        let mut names = Vec::new();
        let operands = self.list('(', ')', |this| {
            let position = this.position();
            let Token::Value(name) = this.token else {
                return Err(this.expected("`%name = %value`"));
            };
            this.advance();
            this.expect('=')?;
            names.push((name, position));
            this.operand()
        })?;
        let mut types = Vec::new();
        if !operands.is_empty() {
            self.expect(':')?;
            let position = self.position();
            types = self.types()?;
            self.check_operands("while", &operands, &types, position)?;
        }
        let arguments = || {
            let values = names.iter().zip(&types);
            let argument = |(&(name, position), ty): (&(&'a str, _), &Type)| Argument {
                name,
                ty: ty.clone(),
                position,
            };
            values.map(argument).collect()
        };
        let mut attributes = Attributes::default();
        if self.eat_word("attributes") {
            attributes = self.attributes()?;
        }
        self.expect_word("cond")?;
        let condition = self.region(arguments())?;
        self.expect_word("do")?;
        let body = self.region(arguments())?;
        let regions = vec![condition, body];
        Ok(Parts {
            operands,
            attributes,
            regions,
            results: types,
            location: None,
        })
    }

    /// `(%x init: %zero), (..) applies stablehlo.add across dimensions = [0] {..} : types`, or
    /// without `applies` and with `reducer(%a: type, %b: type) (..) {..}` at the end.
    pub(super) fn pretty_reduce(&mut self) -> Result<Parts> {
        let (mut operands, mut initial) = (Vec::new(), Vec::new());
        loop {
            self.expect('(')?;
            operands.push(self.operand()?);
            self.expect_word("init")?;
            self.expect(':')?;
            initial.push(self.operand()?);
            self.expect(')')?;
            if !self.eat(',') {
                break;
            }
        }
        operands.append(&mut initial);
        let mut applies = None;
        if self.eat_word("applies") {
            applies = Some(self.applied_op()?);
        }
        self.expect_word("across")?;
        self.expect_word("dimensions")?;
        self.expect('=')?;
        let dims = self.list('[', ']', |this| this.number("a dimension"))?;
        let dims = Attribute::Dense(Dense::from_integers(dims));
        let mut attributes = self.optional_attributes()?;
        attributes.push("dimensions", dims);
        self.expect(':')?;
        let position = self.position();
        let Signature {
            operands: types,
            results,
        } = self.signature()?;
        self.check_operands("reduce", &operands, &types, position)?;
        let mut location = None;
        let region = match applies {
            Some(op) => {
                location = self.optional_location()?;
                self.applied_region(op, &types)?
            }
            None => self.reducer()?,
        };
        Ok(Parts {
            operands,
            attributes,
            regions: vec![region],
            results,
            location,
        })
    }

    /// `stablehlo.add`.
    fn applied_op(&mut self) -> Result<BinaryOp> {
        let op = match self.token {
            Token::Word(name) | Token::Quoted(name) => name
                .strip_prefix("stablehlo.")
                .and_then(BinaryOp::from_name),
            _ => None,
        };
        let op = op.ok_or_else(|| self.expected("an operation on two values, `stablehlo.add`"))?;
        self.advance();
        Ok(op)
    }

    /// The region `(a, b) -> op(a, b)` on scalars of the first operand's element type.
    fn applied_region(&mut self, op: BinaryOp, types: &[Type]) -> Result<Region> {
        let Some(Type::Tensor(first)) = types.first() else {
            return Err(self.invalid("the first operand of `reduce` is not a tensor"));
        };
        let scalar = Type::Tensor(RankedType::new(first.element, []));
        let arguments = vec![
            self.scope.add(scalar.clone()),
            self.scope.add(scalar.clone()),
        ];
        let operation = self.implied(op.name(), arguments.clone(), scalar)?;
        let results = operation.results.to_vec();
        Ok(Region {
            arguments,
            operations: vec![operation],
            results,
        })
    }

    /// `reducer(%a0: type, %b0: type) (%a1: type, %b1: type) {..}`; the arguments are all `a`, then
    /// all `b`.
    fn reducer(&mut self) -> Result<Region> {
        self.expect_word("reducer")?;
        let (mut arguments, mut second) = (Vec::new(), Vec::new());
        while self.eat('(') {
            arguments.push(self.argument()?);
            self.optional_location()?;
            self.expect(',')?;
            second.push(self.argument()?);
            self.optional_location()?;
            self.expect(')')?;
        }
        arguments.append(&mut second);
        self.region(arguments)
    }

    /// `(%0) in_shardings=[..] out_shardings=[..] manual_axes={..} (%x: type) {..} : types`.
    pub(super) fn pretty_manual_computation(&mut self) -> Result<Parts> {
        let operands = self.list('(', ')', Self::operand)?;
        let mut attributes = Attributes::default();
        for name in ["in_shardings", "out_shardings"] {
            self.expect_word(name)?;
            self.expect('=')?;
            let shardings = self.list('[', ']', Self::sharding)?;
            attributes.push(name, Attribute::Shardings(shardings));
        }
        self.expect_word("manual_axes")?;
        self.expect('=')?;
        let axes = self.axes()?;
        attributes.push("manual_axes", Attribute::Axes(axes));
        let arguments = self.list('(', ')', |this| {
            let argument = this.argument()?;
            this.optional_location()?;
            Ok(argument)
        })?;
        let region = self.region(arguments)?;
        let further = self.optional_attributes()?;
        attributes.0.extend(further.0);
        self.expect(':')?;
        let position = self.position();
        let signature = self.signature()?;
        let op = "sdy.manual_computation";
        self.check_operands(op, &operands, &signature.operands, position)?;
        let results = signature.results;
        Ok(Parts {
            operands,
            attributes,
            regions: vec![region],
            results,
            location: None,
        })
    }
}
