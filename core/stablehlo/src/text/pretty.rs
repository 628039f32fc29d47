//! Operations in the pretty form.

use halite_core::Result;

use super::{lexer::Token, op::Parts, parser::Parser};
use crate::{
    Attribute, Attributes, Dense, ElementType, PropagationDirection, RankedType, Type,
    build::BROADCAST_SIZES,
    ops::{PRECISION, row},
};

/// The attribute that `key = value` of the pretty form sets.
fn attribute_of(op: &str, key: &str) -> Option<&'static str> {
    let known = row(op).and_then(|row| row.attributes.iter().find(|known| known.key == key));
    if let Some(known) = known {
        return Some(known.name);
    }
    Some(match (op, key) {
        ("broadcast", "sizes") => BROADCAST_SIZES,
        ("dot", "precision") => PRECISION,
        ("dot_general", "algorithm") => "algorithm",
        ("chlo.top_k", "k") => "k",
        ("check.expect_close", "max_ulp_difference") => "max_ulp_difference",
        ("check.expect_close", "min_ulp_difference") => "min_ulp_difference",
        ("check.expect_almost_eq" | "check.expect_almost_eq_const", "tolerance") => "tolerance",
        ("check.expect_serialized_eq", "probe_id") => "probe_id",
        ("check.expect_serialized_eq", "iter") => "iteration",
        _ => return None,
    })
}

impl Parser<'_> {
    /// An operation after its name: `%0, %1, dims = [0] {..} : types loc(..)`.
    pub(super) fn pretty(&mut self, op: &str) -> Result<Parts> {
        let mut parts = match op {
            "constant" => self.pretty_constant()?,
            "while" => self.pretty_while()?,
            "reduce" => self.pretty_reduce()?,
            "sdy.manual_computation" => self.pretty_manual_computation()?,
            _ => self.pretty_items(op)?,
        };
        if let Some(location) = self.optional_location()? {
            parts.location = Some(location);
        }
        Ok(parts)
    }

    /// `{..} dense<..> : type`, or the generic form without the quoted name.
    fn pretty_constant(&mut self) -> Result<Parts> {
        let generic = self.eat('(');
        if generic {
            self.expect(')')?;
        }
        let mut attributes = self.properties()?;
        attributes.0.extend(self.optional_attributes()?.0);
        if generic {
            self.expect(':')?;
            let results = self.signature()?.results;
            return Ok(Parts {
                attributes,
                results,
                ..Parts::default()
            });
        }
        let Token::Word("dense" | "dense_resource") = self.token else {
            return Err(self.expected("a constant, `dense<1.0> : tensor<2xf32>`"));
        };
        let value = self.attribute(super::attribute::Form::Typed)?;
        let ty = match &value {
            Attribute::Dense(dense) => Type::Tensor(dense.ty.clone()),
            _ => return Err(self.expected("a constant")),
        };
        attributes.push("value", value);
        Ok(Parts {
            attributes,
            results: vec![ty],
            ..Parts::default()
        })
    }

    fn pretty_items(&mut self, op: &str) -> Result<Parts> {
        let mut parts = Parts::default();
        if let ("composite", Token::Quoted(_)) = (op, self.token) {
            let name = self.string()?;
            parts.attributes.push("name", Attribute::Str(name));
        }
        if let Token::Symbol(_) | Token::Mark('@') = self.token {
            let name = Attribute::Symbol(self.symbol()?);
            let target = if op == "custom_call" {
                "call_target_name"
            } else {
                "callee"
            };
            parts.attributes.push(target, name);
        }
        if self.token == Token::Mark('(') {
            self.list('(', ')', |this| match this.token {
                Token::Word(_) if op == "chlo.top_k" => this.item(op, &mut parts).map(|_| ()),
                _ => {
                    parts.operands.push(this.operand()?);
                    Ok(())
                }
            })?;
        }
        if self.item(op, &mut parts)? {
            while self.eat(',') {
                if !self.item(op, &mut parts)? {
                    return Err(self.expected("an operand or `key = value`"));
                }
            }
        }
        match op {
            "slice" => self.slice_ranges(&mut parts.attributes)?,
            "get_tuple_element" => {
                self.expect('[')?;
                let index = self.number("the index of an element")?;
                parts
                    .attributes
                    .push("index", Attribute::Int(index, ElementType::S32));
                self.expect(']')?;
            }
            "sdy.sharding_constraint" => {
                let sharding = self.sharding()?;
                parts
                    .attributes
                    .push("sharding", Attribute::Sharding(sharding));
            }
            "sdy.propagation_barrier" => {
                let direction = self.direction()?;
                parts.attributes.push("allowed_direction", direction);
            }
            _ => {}
        }
        let attributes = self.optional_attributes()?;
        parts.attributes.0.extend(attributes.0);
        self.pretty_types(op, &mut parts)?;
        Ok(parts)
    }

    /// `allowed_direction=FORWARD`; the attribute is its number.
    fn direction(&mut self) -> Result<Attribute> {
        self.expect_word("allowed_direction")?;
        self.expect('=')?;
        let direction = match self.token {
            Token::Word(word) => PropagationDirection::from_name(word),
            _ => None,
        };
        let Some(direction) = direction else {
            return Err(self.expected("NONE, FORWARD, BACKWARD or BOTH"));
        };
        self.advance();
        Ok(Attribute::Int(direction as i64, ElementType::S32))
    }

    /// An operand, a case of an enumeration, or `key = value`; returns whether there was one.
    fn item(&mut self, op: &str, parts: &mut Parts) -> Result<bool> {
        let attributes = &mut parts.attributes;
        match self.token {
            Token::Value(_) => parts.operands.push(self.operand()?),
            Token::Word("dense") => {
                let value = self.dense()?;
                attributes.push("value", Attribute::Dense(value));
            }
            Token::Word(case) if op == "compare" => {
                let name = match attributes.get("comparison_direction") {
                    None => "comparison_direction",
                    Some(_) => "compare_type",
                };
                attributes.push(name, Attribute::Str(case.into()));
                self.advance();
            }
            // What follows an operation: its location, or another operation.
            Token::Word(word) if word == "loc" || word.contains('.') => return Ok(false),
            Token::Word(key) => {
                let start = self.start;
                self.advance();
                match (op, key) {
                    ("dot_general", "batching_dims" | "contracting_dims") => {
                        let role = key.trim_end_matches("_dims");
                        self.dot_dims(role, attributes)?;
                    }
                    ("reduce_precision", "format") => self.float_format(attributes)?,
                    ("convolution", "dim_numbers") => {
                        self.expect('=')?;
                        attributes.0.extend(self.convolution_dims()?.0);
                    }
                    ("convolution", "window") => self.window(attributes)?,
                    _ => match attribute_of(op, key) {
                        Some(name) => {
                            let value = self.plain_value()?;
                            attributes.push_flat(name.into(), value);
                        }
                        None => {
                            self.move_to(start);
                            return Err(self.expected(&format!("operands of `{op}` or `:`")));
                        }
                    },
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `= [0] x [1]`: dimensions of both operands of a dot.
    fn dot_dims(&mut self, role: &str, attributes: &mut Attributes) -> Result<()> {
        let left = self.plain_value()?;
        self.expect_word("x")?;
        let right = self.attribute(super::attribute::Form::Plain)?;
        attributes.push(format!("lhs_{role}_dimensions"), left);
        attributes.push(format!("rhs_{role}_dimensions"), right);
        Ok(())
    }

    /// `= e5m10`.
    fn float_format(&mut self, attributes: &mut Attributes) -> Result<()> {
        self.expect('=')?;
        let bits = match self.token {
            Token::Word(word) => word.strip_prefix('e').and_then(|word| word.split_once('m')),
            _ => None,
        };
        let bits = bits.and_then(|(e, m)| Some((e.parse::<u32>().ok()?, m.parse::<u32>().ok()?)));
        let Some((exponent, mantissa)) = bits else {
            return Err(self.expected("a float format, `e5m10`"));
        };
        self.advance();
        let int = |bits: u32| Attribute::Int(i64::from(bits), ElementType::S32);
        attributes.push("exponent_bits", int(exponent));
        attributes.push("mantissa_bits", int(mantissa));
        Ok(())
    }

    /// `= {stride = [1, 1], pad = [[0, 0], [1, 1]], lhs_dilate = .., rhs_dilate = .., reverse = ..}`.
    fn window(&mut self, attributes: &mut Attributes) -> Result<()> {
        self.expect('=')?;
        self.list('{', '}', |this| {
            let name = match this.token {
                Token::Word("stride") => "window_strides",
                Token::Word("pad") => "padding",
                Token::Word("lhs_dilate") => "lhs_dilation",
                Token::Word("rhs_dilate") => "rhs_dilation",
                Token::Word("reverse") => "window_reversal",
                _ => {
                    return Err(
                        this.expected("`stride`, `pad`, `lhs_dilate`, `rhs_dilate` or `reverse`")
                    );
                }
            };
            this.advance();
            let value = match name {
                "padding" => this.padding()?,
                _ => this.plain_value()?,
            };
            attributes.push(name, value);
            Ok(())
        })?;
        Ok(())
    }

    /// `= [[0, 0], [1, 1]]`.
    fn padding(&mut self) -> Result<Attribute> {
        self.expect('=')?;
        let mut bytes = Vec::new();
        let rows = self.list('[', ']', |this| {
            this.expect('[')?;
            this.push_element(ElementType::S64, &mut bytes)?;
            this.expect(',')?;
            this.push_element(ElementType::S64, &mut bytes)?;
            this.expect(']')
        })?;
        let ty = RankedType::new(ElementType::S64, [rows.len(), 2]);
        Ok(Attribute::Dense(Dense::new(ty, bytes)))
    }

    /// `[0:4:2, 1:3]`: starts, limits and strides.
    fn slice_ranges(&mut self, attributes: &mut Attributes) -> Result<()> {
        let (mut starts, mut limits, mut strides) = (Vec::new(), Vec::new(), Vec::new());
        self.list('[', ']', |this| {
            starts.push(this.number("a start")?);
            this.expect(':')?;
            limits.push(this.number("a limit")?);
            strides.push(match this.eat(':') {
                true => this.number("a stride")?,
                false => 1,
            });
            Ok(())
        })?;
        for (name, list) in [
            ("start_indices", starts),
            ("limit_indices", limits),
            ("strides", strides),
        ] {
            attributes.push(name, Attribute::Dense(Dense::from_integers(list)));
        }
        Ok(())
    }

    /// `: types`, from which the types of the results follow.
    fn pretty_types(&mut self, op: &str, parts: &mut Parts) -> Result<()> {
        let operands = &parts.operands;
        let constant_check = op.starts_with("check.") && op.ends_with("_const");
        if constant_check || (op == "optimization_barrier" && operands.is_empty()) {
            return Ok(());
        }
        self.expect(':')?;
        let position = self.position();
        if self.token == Token::Mark('(') {
            let signature = self.signature()?;
            self.check_operands(op, operands, &signature.operands, position)?;
            parts.results = signature.results;
            return Ok(());
        }
        let types = self.types()?;
        if op.starts_with("chlo.") {
            self.expect_arrow()?;
            self.check_operands(op, operands, &types, position)?;
            parts.results = match self.token {
                Token::Mark('(') => self.list('(', ')', Self::ty)?,
                _ => vec![self.ty()?],
            };
            return Ok(());
        }
        let part = part(&types[0]);
        let all = || types.iter().collect();
        let same = |ty| vec![ty; operands.len()];
        let (inputs, results): (Vec<&Type>, _) = match (op, &types[..]) {
            ("optimization_barrier", _) => (all(), types.clone()),
            ("check.expect_close", _) => (all(), Vec::new()),
            ("select", [predicate, ty]) => (vec![predicate, ty, ty], vec![ty.clone()]),
            ("tuple", [Type::Tuple(elements)]) => (elements.iter().collect(), types.clone()),
            ("complex", [_]) => (same(&part), types.clone()),
            (check, [ty]) if check.starts_with("check.") => (same(ty), Vec::new()),
            (_, [ty]) => (same(ty), types.clone()),
            (_, _) => {
                let message = format!("`{op}` has {} types; expected one", types.len());
                return Err(self.invalid(&message));
            }
        };
        self.check_operands(op, operands, &inputs, position)?;
        parts.results = results;
        Ok(())
    }
}

/// The type of the parts of complex numbers; another type is the same.
fn part(ty: &Type) -> Type {
    match ty {
        Type::Tensor(RankedType { element, dims }) => Type::Tensor(RankedType {
            element: element.part().unwrap_or(*element),
            dims: dims.clone(),
        }),
        other => other.clone(),
    }
}
