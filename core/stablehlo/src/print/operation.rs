//! The form of an operation, and the pretty form that needs no code for an operation: operands,
//! `key = value` of its row, and types.

use super::{function::Printer, text::Text};
use crate::{
    BinaryOp, OpKind, Operation, RankedType, Type, UnaryOp, ValueId,
    ops::{Named, Value},
};

impl<'m> Printer<'m, '_> {
    /// Writes an operation on its own line or lines.
    pub(super) fn operation(&mut self, operation: &'m Operation) {
        self.out.line(self.depth);
        match &operation.kind {
            OpKind::While if self.is_loop(operation) => self.while_loop(operation),
            OpKind::ManualComputation(manual) if operation.regions.len() == 1 => {
                self.manual_computation(operation, manual);
            }
            kind => {
                self.results(&operation.results);
                match kind {
                    OpKind::Reduce { dims } if self.is_reduction(operation) => {
                        self.reduce(operation, dims);
                    }
                    // MLIR reads the attributes of a barrier at another place.
                    OpKind::OptimizationBarrier if !operation.attributes.0.is_empty() => {
                        self.generic(operation);
                    }
                    _ if !operation.regions.is_empty() => self.generic(operation),
                    _ => self.form(operation),
                }
            }
        }
        self.location(&operation.location);
        self.out.flush();
    }

    /// Writes an operation without regions, after its results.
    fn form(&mut self, operation: &'m Operation) {
        match &operation.kind {
            OpKind::Unary(UnaryOp::Erf) => self.erf(operation),
            OpKind::Unary(op) => self.elementwise(operation, op.name()),
            OpKind::Binary(op) => self.elementwise(operation, op.name()),
            OpKind::Constant(value) => self.constant(operation, value),
            OpKind::Compare { direction, order } => self.compare(operation, *direction, *order),
            OpKind::ReducePrecision { exponent, mantissa } => {
                self.reduce_precision(operation, *exponent, *mantissa);
            }
            OpKind::Slice {
                starts,
                limits,
                strides,
            } if starts.len() == limits.len() && starts.len() == strides.len() => {
                let limits = limits.iter().zip(strides);
                self.slice(operation, starts.iter().zip(limits));
            }
            OpKind::DotGeneral(dot) => self.dot(operation, dot),
            OpKind::Convolution(convolution) => self.convolution(operation, convolution),
            OpKind::Call { function } => self.call(operation, function),
            OpKind::CustomCall(call) => self.custom_call(operation, call),
            OpKind::GetTupleElement { index } => self.get_tuple_element(operation, *index),
            OpKind::ShardingConstraint(sharding) => {
                self.sharding_constraint(operation, sharding);
            }
            OpKind::PropagationBarrier(direction) => {
                self.propagation_barrier(operation, *direction);
            }
            _ => self.keyed(operation),
        }
    }

    fn elementwise(&mut self, operation: &'m Operation, name: &str) {
        self.head(name, &operation.operands);
        self.tail(operation);
    }

    /// Writes `stablehlo.op %0, %1, key = value : types`, or the generic form if attributes have no
    /// keys: all of an operation have one, or none.
    fn keyed(&mut self, operation: &'m Operation) {
        let (kind, operands) = (&operation.kind, &operation.operands);
        let (mut first, mut keyed) = (true, true);
        kind.visit(&mut |named: &Named, value| {
            keyed &= !named.key.is_empty();
            if !keyed {
                return;
            }
            if first {
                self.head(kind.name(), operands);
            }
            let comma = !first || !operands.is_empty();
            self.out.text(if comma { ", " } else { " " });
            self.out.text(named.key).text(" = ").plain(value);
            first = false;
        });
        if !keyed {
            return self.generic(operation);
        }
        if first {
            self.head(kind.name(), operands);
        }
        self.tail(operation);
    }

    /// Writes `stablehlo.op %0, %1`.
    pub(super) fn head(&mut self, name: &str, operands: &[ValueId]) {
        self.op_name(name);
        if !operands.is_empty() {
            self.out.char(' ');
            self.values(operands);
        }
    }

    pub(super) fn op_name(&mut self, name: &str) {
        if !name.contains('.') {
            self.out.text("stablehlo.");
        }
        self.out.text(name);
    }

    /// Writes further attributes and the types: ` {..} : types`.
    pub(super) fn tail(&mut self, operation: &'m Operation) {
        let Operation {
            kind,
            operands,
            results,
            ..
        } = operation;
        self.out.optional_dictionary(&operation.attributes);
        if let (OpKind::OptimizationBarrier, [], []) = (kind, &operands[..], &results[..]) {
            return;
        }
        self.out.text(" : ");
        match self.short_types(operation) {
            Some(types) => self.types(types),
            None => self.function_type(operands, results),
        }
    }

    /// The values whose types stand for those of all operands and results, if the operation has
    /// such a form.
    fn short_types(&self, operation: &'m Operation) -> Option<&'m [ValueId]> {
        let Operation {
            kind,
            operands,
            results,
            ..
        } = operation;
        if let OpKind::OptimizationBarrier = kind {
            let types = |values: &'m [ValueId]| values.iter().map(|&value| self.type_of(value));
            return types(operands).eq(types(results)).then_some(operands);
        }
        let &[result] = &results[..] else {
            return None;
        };
        let ty = self.type_of(result)?;
        let same = |values: &[ValueId]| values.iter().all(|&it| self.type_of(it) == Some(ty));
        let short = match kind {
            OpKind::Binary(BinaryOp::Complex) => self.are_parts(operands, ty),
            OpKind::Unary(_)
            | OpKind::Binary(_)
            | OpKind::ReducePrecision { .. }
            | OpKind::Reverse { .. }
            | OpKind::Cholesky { .. }
            | OpKind::AfterAll
            | OpKind::ShardingConstraint(_)
            | OpKind::PropagationBarrier(_) => same(operands),
            OpKind::Select => {
                let choices = operands.get(1..).unwrap_or_default();
                return (operands.len() == 3 && same(choices)).then(|| &operands[..2]);
            }
            OpKind::Tuple => match ty {
                Type::Tuple(types) => {
                    let operands = operands.iter().map(|&value| self.type_of(value));
                    operands.eq(types.iter().map(Some))
                }
                _ => false,
            },
            _ => operands.is_empty(),
        };
        short.then_some(results)
    }

    /// Whether all operands have the type of the parts of complex numbers of type `ty`.
    fn are_parts(&self, operands: &[ValueId], ty: &Type) -> bool {
        let Type::Tensor(RankedType { element, dims }) = ty else {
            return false;
        };
        let part = element.part();
        operands.iter().all(|&value| match self.type_of(value) {
            Some(Type::Tensor(ty)) => Some(ty.element) == part && ty.dims == *dims,
            _ => false,
        })
    }
}

impl Text<'_> {
    /// Writes a value where its type is known: in `key = value`, and in a structure.
    pub(super) fn plain(&mut self, value: Value<'_>) -> &mut Self {
        match value {
            Value::Int(value, _) => self.integer(value),
            Value::Float(value) => self.float(crate::ElementType::F32, value.to_bits().into()),
            Value::Case(name) => self.text(name),
            Value::Texts(words) => self.list(words, |text, word| {
                text.text(word);
            }),
            Value::Sizes(sizes) => self.sizes(sizes),
            Value::Ints(numbers) => self.integers(numbers.iter().copied()),
            Value::Flags(flags) => self.flags(flags),
            Value::Any(value) => self.plain_attribute(value),
            value => self.property(value),
        }
    }

    /// Writes `[true, false]`.
    pub(super) fn flags(&mut self, flags: &[bool]) -> &mut Self {
        self.list(flags, |text, &flag| {
            text.boolean(flag);
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::rows;

    #[test]
    fn attributes_have_keys_all_or_none() {
        for row in rows().filter(|row| row.name != "dot_general") {
            let keyed = row
                .attributes
                .iter()
                .filter(|it| !it.key.is_empty())
                .count();
            assert!([0, row.attributes.len()].contains(&keyed), "{}", row.name);
        }
    }
}
