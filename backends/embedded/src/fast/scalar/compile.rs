//! From regions to functions of scalars.

use std::collections::HashMap;

use halite_stablehlo::{
    self as stablehlo, BinaryOp, ComparisonDirection, ComparisonOrder, Dense, Module, OpKind,
    Operation, Region, ValueId,
};

use super::{
    Format, Function,
    step::{Op, Step},
};

/// Depth of calls beyond which a region is left to the oracle.
const DEEPEST_CALL: usize = 8;

/// Steps beyond which a region is left to the oracle.
const MOST_STEPS: usize = 256;

/// A step whose registers are not numbered yet.
type Draft = (Op, Format, Format, [Source; 3]);

/// Where an operand of a step is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Source {
    Argument(usize),
    Constant(u64),
    Step(usize),
}

/// Registers of values, with their formats.
type Values = HashMap<ValueId, (Source, Format)>;

impl Function {
    /// The function that a region of scalars is. `None` if it uses values of enclosing regions,
    /// other element types or other operations.
    pub(in super::super) fn new(
        module: &Module,
        of: &stablehlo::Function,
        region: &Region,
    ) -> Option<Self> {
        let mut compiler = Compiler {
            module,
            steps: Vec::new(),
        };
        let mut arguments = Vec::with_capacity(region.arguments.len());
        let mut values = Values::new();
        for (number, &id) in region.arguments.iter().enumerate() {
            let format = scalar_format(of, id)?;
            arguments.push(format);
            values.insert(id, (Source::Argument(number), format));
        }
        let results = compiler.region(of, region, values, 0)?;
        Some(numbered(arguments, compiler.steps, &results))
    }

    /// The order by which a comparator sorts, if it compares a function of one operand.
    pub(in super::super) fn order(&self) -> Option<Order> {
        let (last, _) = self.steps.split_last()?;
        if self.results != [self.first_step() + self.steps.len() - 1] {
            return None;
        }
        if let Op::Compare { total, .. } = last.op() {
            return self.comparison(last, ties(total));
        }
        // `a < b | (a == a & b != b)`: only the larger one is NaN.
        let [compared, only_larger, _] = last.operands();
        let (compared, both) = (self.step(compared)?, self.step(only_larger)?);
        let [is_number, is_nan, _] = both.operands();
        let (is_number, is_nan) = (self.step(is_number)?, self.step(is_nan)?);
        let [x, y, _] = compared.operands();
        let Op::Compare {
            direction,
            total: false,
        } = compared.op()
        else {
            return None;
        };
        let (smaller, larger) = match direction {
            ComparisonDirection::Lt => (x, y),
            _ => (y, x),
        };
        let tests = |step: &Step, wanted, x: usize| {
            let direction = Op::Compare {
                direction: wanted,
                total: false,
            };
            step.op() == direction && step.operands()[..2] == [x, x]
        };
        let is_known = last.op() == Op::Binary(BinaryOp::Or)
            && both.op() == Op::Binary(BinaryOp::And)
            && tests(is_number, ComparisonDirection::Eq, smaller)
            && tests(is_nan, ComparisonDirection::Ne, larger);
        let order = || self.comparison(compared, Floats::NanIsLargest);
        is_known.then(order)?
    }

    /// The orders by which a comparator sorts, of which each decides where all before it find two
    /// elements equal; none if it does not sort by orders.
    pub(in super::super) fn orders(&self) -> Vec<Order> {
        let orders = || match self.results[..] {
            [result] => self.lexicographic(result),
            _ => None,
        };
        let one = self.order().map(|order| vec![order]);
        one.or_else(orders).unwrap_or_default()
    }

    /// As [`orders`](Self::orders), of `a < b | (a == b & next)` in a register.
    fn lexicographic(&self, register: usize) -> Option<Vec<Order>> {
        let step = self.step(register)?;
        let [x, y, _] = step.operands();
        if let Op::Compare { total, .. } = step.op() {
            return Some(vec![self.comparison(step, ties(total))?]);
        }
        let either = [[x, y], [y, x]].into_iter();
        either
            .filter(|_| step.op() == Op::Binary(BinaryOp::Or))
            .find_map(|[less, next]| {
                let (less, next) = (self.step(less)?, self.step(next)?);
                let Op::Compare { total, .. } = less.op() else {
                    return None;
                };
                let [x, y, _] = next.operands();
                let either = [[x, y], [y, x]].into_iter();
                either
                    .filter(|_| next.op() == Op::Binary(BinaryOp::And))
                    .find_map(|[equal, next]| {
                        let equal = self.step(equal)?;
                        let wanted = Op::Compare {
                            direction: ComparisonDirection::Eq,
                            total,
                        };
                        let [a, b, _] = less.operands();
                        let [c, d, _] = equal.operands();
                        let is_same = equal.op() == wanted
                            && equal.from() == less.from()
                            && ([c, d] == [a, b] || [c, d] == [b, a]);
                        let first = is_same.then(|| self.comparison(less, ties(total)))??;
                        let mut orders = vec![first];
                        orders.append(&mut self.lexicographic(next)?);
                        Some(orders)
                    })
            })
    }

    /// The order of a comparison of two neighbors among the arguments by LT or GT.
    fn comparison(&self, step: &Step, floats: Floats) -> Option<Order> {
        let Op::Compare { direction, .. } = step.op() else {
            return None;
        };
        let [x, y, _] = step.operands();
        // The arguments that each side reads: one alone, and it is the left or the right one.
        let (mut left, mut right) = (None, None);
        if !self.is_same(x, y, &mut left, &mut right) {
            return None;
        }
        let (left, right) = (left?, right?);
        let is_exchanged = match (left, right) {
            _ if left % 2 == 0 && right == left + 1 => false,
            _ if right % 2 == 0 && left == right + 1 => true,
            _ => return None,
        };
        let is_descending = match direction {
            ComparisonDirection::Lt => is_exchanged,
            ComparisonDirection::Gt => !is_exchanged,
            _ => return None,
        };
        let count = (x + 1).saturating_sub(self.first_step());
        Some(Order {
            argument: left,
            is_descending,
            floats,
            format: step.from(),
            key: Function {
                arguments: self.arguments.clone(),
                constants: self.constants.clone(),
                results: vec![x],
                steps: self.steps[..count].to_vec(),
            },
        })
    }

    /// The register of the first step.
    fn first_step(&self) -> usize {
        self.arguments.len() + self.constants.len()
    }

    fn step(&self, register: usize) -> Option<&Step> {
        self.steps.get(register.checked_sub(self.first_step())?)
    }

    /// Whether two registers have the same function of one argument each.
    fn is_same(
        &self,
        x: usize,
        y: usize,
        left: &mut Option<usize>,
        right: &mut Option<usize>,
    ) -> bool {
        let count = self.arguments.len();
        let first = self.first_step();
        if x < count || y < count {
            let is_argument = x < count && y < count;
            return is_argument && *left.get_or_insert(x) == x && *right.get_or_insert(y) == y;
        }
        if x < first || y < first {
            return x < first
                && y < first
                && self.constants[x - count] == self.constants[y - count];
        }
        let (x, y) = (&self.steps[x - first], &self.steps[y - first]);
        x.does_the_same(y)
            && (0..x.op().operands())
                .all(|at| self.is_same(x.operands()[at], y.operands()[at], left, right))
    }
}

/// How a comparison orders floats.
fn ties(total: bool) -> Floats {
    if total {
        Floats::Total
    } else {
        Floats::Partial
    }
}

/// An order of elements by a key.
#[derive(Clone, Debug)]
pub(in super::super) struct Order {
    /// The argument of the key's function: the elements are those of operand `argument / 2`.
    pub(in super::super) argument: usize,
    pub(in super::super) is_descending: bool,
    pub(in super::super) floats: Floats,
    /// The format of the key.
    pub(in super::super) format: Format,
    pub(in super::super) key: Function,
}

/// How floats are ordered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in super::super) enum Floats {
    /// By value: no order if there are NaNs.
    Partial,
    /// By value, and NaNs are equal and largest.
    NanIsLargest,
    /// By bits.
    Total,
}

impl Order {
    /// The order of elements by value; NaNs are equal and largest.
    pub(in super::super) fn by_value(format: Format, is_descending: bool) -> Self {
        Order {
            argument: 0,
            is_descending,
            floats: Floats::NanIsLargest,
            format,
            key: Function {
                arguments: vec![format; 2],
                results: vec![0],
                constants: Vec::new(),
                steps: Vec::new(),
            },
        }
    }
}

struct Compiler<'m> {
    module: &'m Module,
    steps: Vec<Draft>,
}

impl Compiler<'_> {
    fn region(
        &mut self,
        of: &stablehlo::Function,
        region: &Region,
        mut values: Values,
        depth: usize,
    ) -> Option<Vec<(Source, Format)>> {
        if depth > DEEPEST_CALL {
            return None;
        }
        for operation in &region.operations {
            let operands: Vec<_> = operation
                .operands
                .iter()
                .map(|id| values.get(id).copied())
                .collect::<Option<_>>()?;
            let results = self.operation(of, operation, &operands, depth)?;
            values.extend(operation.results.iter().copied().zip(results));
        }
        let results = region.results.iter().map(|id| values.get(id).copied());
        results.collect()
    }

    fn operation(
        &mut self,
        of: &stablehlo::Function,
        operation: &Operation,
        operands: &[(Source, Format)],
        depth: usize,
    ) -> Option<Vec<(Source, Format)>> {
        if let OpKind::Call { function } = &operation.kind {
            let callee = self.module.function(function)?;
            let arguments = callee.body.arguments.iter().copied();
            let values = arguments.zip(operands.iter().copied()).collect();
            return self.region(callee, &callee.body, values, depth + 1);
        }
        let &[result] = &operation.results[..] else {
            return None;
        };
        let to = scalar_format(of, result)?;
        let one = |source| Some(vec![(source, to)]);
        match (&operation.kind, operands) {
            (OpKind::Constant(dense), []) => return one(Source::Constant(scalar_bits(dense)?)),
            (OpKind::Reshape | OpKind::BroadcastInDim { .. }, &[(x, _)]) => return one(x),
            (OpKind::Convert, &[(x, from)]) if from == to => return one(x),
            (OpKind::BitcastConvert, &[(x, from)]) if from.bits() == to.bits() => return one(x),
            _ => {}
        }
        let op = match operation.kind {
            OpKind::Unary(op) => Op::Unary(op),
            OpKind::Binary(op) => Op::Binary(op),
            OpKind::Compare { direction, order } => Op::Compare {
                direction,
                total: order == Some(ComparisonOrder::TotalOrder),
            },
            OpKind::Select => Op::Select,
            OpKind::Convert => Op::Convert,
            _ => return None,
        };
        let &(_, from) = operands.first()?;
        let mut sources = [operands[0].0; 3];
        let given = operands.iter().map(|&(source, _)| source);
        sources
            .iter_mut()
            .zip(given)
            .for_each(|(to, from)| *to = from);
        Step::new(op, from, to, [0; 3])?;
        if self.steps.len() == MOST_STEPS {
            return None;
        }
        self.steps.push((op, from, to, sources));
        one(Source::Step(self.steps.len() - 1))
    }
}

/// Numbers the registers: arguments, constants, steps.
fn numbered(arguments: Vec<Format>, steps: Vec<Draft>, results: &[(Source, Format)]) -> Function {
    let mut constants = Vec::new();
    let used = steps.iter().flat_map(|(_, _, _, sources)| sources);
    for source in used.chain(results.iter().map(|(source, _)| source)) {
        if let Source::Constant(bits) = source
            && !constants.contains(bits)
        {
            constants.push(*bits);
        }
    }
    let count = arguments.len();
    let number = |source: &Source| match source {
        Source::Argument(number) => *number,
        Source::Constant(bits) => {
            let at = constants.iter().position(|it| it == bits);
            count + at.expect("all constants are among them")
        }
        Source::Step(step) => count + constants.len() + step,
    };
    let step = |(op, from, to, sources): &Draft| {
        let operands = [0, 1, 2].map(|at| number(&sources[at]));
        Step::new(*op, *from, *to, operands).expect("it was known before")
    };
    let steps = steps.iter().map(step).collect();
    let results = results.iter().map(|(source, _)| number(source)).collect();
    Function {
        results,
        steps,
        arguments,
        constants,
    }
}

/// The format of a scalar.
fn scalar_format(of: &stablehlo::Function, id: ValueId) -> Option<Format> {
    let ty = of.ty(id).as_tensor()?;
    (ty.rank() == 0).then(|| Format::of(ty.element))?
}

fn scalar_bits(dense: &Dense) -> Option<u64> {
    let mut bits = [0; 8];
    let size = dense.bytes.len();
    (size == dense.ty.element.size()).then_some(())?;
    bits.get_mut(..size)?.copy_from_slice(&dense.bytes);
    Some(u64::from_le_bytes(bits))
}
