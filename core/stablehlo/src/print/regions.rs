//! Pretty forms of operations with regions, and the regions of the generic form.

use super::function::{Name, Printer};
use crate::{BinaryOp, ManualAttributes, Operation, RankedType, Region, Type, ValueId};

impl<'m> Printer<'m, '_> {
    /// Writes a region of the generic form up to its `}`.
    pub(super) fn block(&mut self, region: &'m Region, terminator: &str) {
        if !region.arguments.is_empty() {
            let first = self.fresh(region.arguments.len());
            self.out.line(self.depth + 1).text("^bb0(");
            self.parameters(&region.arguments, first);
            self.out.text("):");
        }
        self.operations(region, terminator);
        self.out.line(self.depth);
    }

    /// Names arguments by the numbers from `first` on and writes `%i1: t, %i2: t`.
    fn parameters(&mut self, arguments: &[ValueId], first: u32) {
        for (index, &argument) in arguments.iter().enumerate() {
            self.out.comma(index);
            self.parameter(argument, Name::Region(first + index as u32));
        }
    }

    /// Whether both regions of a loop take what it takes and returns, and it takes a value.
    pub(super) fn is_loop(&self, operation: &'m Operation) -> bool {
        let operands = &operation.operands;
        let same = |values: &[ValueId]| {
            let types = values.iter().map(|&value| self.type_of(value));
            types.eq(operands.iter().map(|&value| self.type_of(value)))
        };
        let [condition, body] = &operation.regions[..] else {
            return false;
        };
        !operands.is_empty()
            && same(&operation.results)
            && same(&condition.arguments)
            && same(&body.arguments)
    }

    /// Writes `%3:2 = stablehlo.while(%i1 = %0, %i2 = %1) : t, t`, and the regions. Arguments have
    /// the same names in both.
    pub(super) fn while_loop(&mut self, operation: &'m Operation) {
        let first = self.fresh(operation.operands.len());
        self.results(&operation.results);
        self.out.text("stablehlo.while(");
        for (number, &operand) in (first..).zip(&operation.operands) {
            self.out.comma((number - first) as usize);
            self.name(Name::Region(number));
            self.out.text(" = ");
            self.value(operand);
        }
        self.out.text(") : ");
        self.types(&operation.operands);
        if !operation.attributes.0.is_empty() {
            self.out.text(" attributes ");
            self.out.dictionary(&operation.attributes);
        }
        for (region, keyword) in operation.regions.iter().zip([" cond {", " } do {"]) {
            self.out.line(self.depth).text(keyword);
            for (number, &argument) in (first..).zip(&region.arguments) {
                self.define(argument, Name::Region(number));
            }
            self.operations(region, "stablehlo.return");
        }
        self.out.line(self.depth).text(" }");
    }

    /// Whether a reduction has an initial value for each input, and two arguments of its region.
    pub(super) fn is_reduction(&self, operation: &'m Operation) -> bool {
        let [region] = &operation.regions[..] else {
            return false;
        };
        let count = operation.operands.len();
        count >= 2 && count.is_multiple_of(2) && region.arguments.len() == count
    }

    /// Writes `stablehlo.reduce(%0 init: %1) applies stablehlo.add across dimensions = [0]
    /// : (t, t) -> t`, or the region after it.
    pub(super) fn reduce(&mut self, operation: &'m Operation, dims: &[usize]) {
        let (inputs, initial) = operation.operands.split_at(operation.operands.len() / 2);
        self.out.text("stablehlo.reduce");
        for (index, (&input, &initial)) in inputs.iter().zip(initial).enumerate() {
            self.out.comma(index).char('(');
            self.value(input);
            self.out.text(" init: ");
            self.value(initial);
            self.out.char(')');
        }
        let applied = self.applied(operation);
        if let Some(op) = applied {
            self.out.text(" applies stablehlo.").text(op.name());
        }
        self.out.text(" across dimensions = ").sizes(dims);
        self.out.optional_dictionary(&operation.attributes);
        self.out.text(" : ");
        self.function_type(&operation.operands, &operation.results);
        if applied.is_some() {
            return;
        }
        let region = &operation.regions[0];
        let (left, right) = region.arguments.split_at(inputs.len());
        self.out.line(self.depth).text(" reducer");
        for (index, (&left, &right)) in left.iter().zip(right).enumerate() {
            self.out.text(if index == 0 { "(" } else { " (" });
            let first = self.fresh(2);
            self.parameters(&[left, right], first);
            self.out.char(')');
        }
        self.out.text(" {");
        self.operations(region, "stablehlo.return");
        self.out.line(self.depth).char('}');
    }

    /// The operation that stands for the region of a reduction: it has nothing else, and is on
    /// scalars of the input's element type.
    fn applied(&self, operation: &'m Operation) -> Option<BinaryOp> {
        let op = operation.reduction()?;
        let [region] = &operation.regions[..] else {
            return None;
        };
        let [inner] = &region.operations[..] else {
            return None;
        };
        let Type::Tensor(input) = self.type_of(*operation.operands.first()?)? else {
            return None;
        };
        let scalar = |ty: &RankedType| ty.dims.is_empty() && ty.element == input.element;
        let mut values = region.arguments.iter().chain(&inner.results);
        let scalars = values.all(|&value| match self.type_of(value) {
            Some(Type::Tensor(ty)) => scalar(ty),
            _ => false,
        });
        let bare = inner.location.is_none() && inner.attributes.0.is_empty();
        (scalars && bare && inner.regions.is_empty()).then_some(op)
    }

    /// Writes `%1 = sdy.manual_computation(%0) in_shardings=[..] out_shardings=[..]
    /// manual_axes={..} (%i0: t) {..} : (t) -> t`.
    pub(super) fn manual_computation(
        &mut self,
        operation: &'m Operation,
        manual: &ManualAttributes,
    ) {
        let region = &operation.regions[0];
        let first = self.fresh(region.arguments.len());
        self.results(&operation.results);
        self.out.text("sdy.manual_computation(");
        self.values(&operation.operands);
        self.out.text(") in_shardings=").shardings(&manual.inputs);
        self.out.text(" out_shardings=").shardings(&manual.outputs);
        self.out.text(" manual_axes=").axes(&manual.axes);
        self.out.text(" (");
        self.parameters(&region.arguments, first);
        self.out.text(") {");
        self.operations(region, "sdy.return");
        self.out.line(self.depth).char('}');
        self.out.optional_dictionary(&operation.attributes);
        self.out.text(" : ");
        self.function_type(&operation.operands, &operation.results);
    }
}
