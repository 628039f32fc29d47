//! A function of StableHLO operations, built as expressions of values.

use std::{
    cell::RefCell,
    ops::{Add, Div, Mul, Neg, Sub},
};

use half::{bf16, f16};

use crate::{
    Attributes, BinaryOp, ComparisonDirection, ComparisonOrder, Dense, ElementClass, ElementType,
    Function, OpKind, Operation, Position, RankedType, Region, Type, UnaryOp, ValueId, ValueIds,
};

/// A function in the making.
pub(super) struct Builder {
    function: RefCell<Function>,
    /// Operations of the innermost region last.
    open: RefCell<Vec<Vec<Operation>>>,
}

/// A value of a [`Builder`]. All operands of an operation have one shape.
#[derive(Clone, Copy)]
pub(super) struct Value<'b> {
    builder: &'b Builder,
    pub(super) id: ValueId,
}

impl Builder {
    /// A function with these arguments.
    pub(super) fn new(name: String, arguments: &[RankedType]) -> Self {
        let mut function = Function {
            name,
            types: Vec::new(),
            body: Region::default(),
            input_names: vec![None; arguments.len()],
            input_attributes: vec![Attributes::default(); arguments.len()],
            output_attributes: Vec::new(),
        };
        let arguments = arguments.iter().cloned().map(Type::Tensor);
        function.body.arguments = arguments.map(|ty| function.value(ty)).collect();
        Builder {
            function: RefCell::new(function),
            open: RefCell::new(vec![Vec::new()]),
        }
    }

    /// The arguments, in order.
    pub(super) fn arguments(&self) -> Vec<Value<'_>> {
        let ids = self.function.borrow().body.arguments.clone();
        ids.into_iter().map(|id| self.value(id)).collect()
    }

    /// The function that returns these values of it.
    pub(super) fn finish(&self, results: &[Value<'_>]) -> Function {
        let mut function = self.function.borrow().clone();
        function.body.operations = self.open.borrow_mut().pop().unwrap_or_default();
        function.body.results = results.iter().map(|value| value.id).collect();
        function.output_attributes = vec![Attributes::default(); results.len()];
        function
    }

    fn value(&self, id: ValueId) -> Value<'_> {
        Value { builder: self, id }
    }

    /// Adds an operation with results of these types.
    pub(super) fn push(
        &self,
        kind: OpKind,
        operands: &[Value<'_>],
        regions: Vec<Region>,
        results: Vec<RankedType>,
    ) -> Vec<Value<'_>> {
        let mut function = self.function.borrow_mut();
        let results = results.into_iter().map(Type::Tensor);
        let results: ValueIds = results.map(|ty| function.value(ty)).collect();
        let mut open = self.open.borrow_mut();
        let innermost = open.last_mut().expect("the body of the function is open");
        innermost.push(Operation {
            kind,
            operands: operands.iter().map(|value| value.id).collect(),
            results: results.clone(),
            regions,
            attributes: Attributes::default(),
            position: Position::Unknown,
            location: None,
        });
        results.into_iter().map(|id| self.value(id)).collect()
    }

    /// A region with these arguments, which returns what `body` does.
    pub(super) fn region<'b>(
        &'b self,
        arguments: &[RankedType],
        body: impl FnOnce(&[Value<'b>]) -> Value<'b>,
    ) -> Region {
        let arguments: Vec<_> = {
            let mut function = self.function.borrow_mut();
            let arguments = arguments.iter().cloned().map(Type::Tensor);
            arguments.map(|ty| function.value(ty)).collect()
        };
        self.open.borrow_mut().push(Vec::new());
        let values: Vec<_> = arguments.iter().map(|&id| self.value(id)).collect();
        let result = body(&values);
        Region {
            arguments,
            operations: self.open.borrow_mut().pop().unwrap_or_default(),
            results: vec![result.id],
        }
    }
}

impl<'b> Value<'b> {
    pub(super) fn builder(self) -> &'b Builder {
        self.builder
    }

    pub(super) fn ty(self) -> RankedType {
        let function = self.builder.function.borrow();
        let ty = function.ty(self.id).as_tensor().cloned();
        ty.expect("values of a builder are tensors")
    }

    pub(super) fn element(self) -> ElementType {
        self.ty().element
    }

    /// A result of this shape.
    fn push(self, kind: OpKind, others: &[Value<'b>], element: ElementType) -> Value<'b> {
        let operands = [&[self], others].concat();
        let ty = RankedType::new(element, self.ty().dims);
        self.builder.push(kind, &operands, Vec::new(), vec![ty])[0]
    }

    /// Elements of this type and shape with these bytes.
    fn splat(self, bytes: &[u8]) -> Value<'b> {
        let ty = self.ty();
        let value = Dense {
            ty: ty.clone(),
            bytes: bytes[..ty.element.size()].into(),
        };
        self.builder
            .push(OpKind::Constant(value), &[], Vec::new(), vec![ty])[0]
    }

    /// A float of this type and shape.
    pub(super) fn constant(self, value: f64) -> Value<'b> {
        match self.element() {
            ElementType::F64 => self.splat(&value.to_le_bytes()),
            ElementType::F32 => self.splat(&(value as f32).to_le_bytes()),
            ElementType::F16 => self.splat(&f16::from_f64(value).to_le_bytes()),
            ElementType::Bf16 => self.splat(&bf16::from_f64(value).to_le_bytes()),
            narrow => super::computed(self).constant(value).convert(narrow),
        }
    }

    /// An integer of this type and shape.
    pub(super) fn integer(self, value: i64) -> Value<'b> {
        self.splat(&value.to_le_bytes())
    }

    pub(super) fn unary(self, op: UnaryOp) -> Value<'b> {
        let element = match op {
            UnaryOp::Abs | UnaryOp::Real | UnaryOp::Imag => {
                self.element().part().unwrap_or(self.element())
            }
            _ => self.element(),
        };
        self.push(OpKind::Unary(op), &[], element)
    }

    pub(super) fn binary(self, op: BinaryOp, other: Value<'b>) -> Value<'b> {
        self.push(OpKind::Binary(op), &[other], self.element())
    }

    pub(super) fn compare(self, direction: ComparisonDirection, other: Value<'b>) -> Value<'b> {
        let order = match self.element().class() {
            ElementClass::Signed => ComparisonOrder::Signed,
            ElementClass::Unsigned | ElementClass::Bool => ComparisonOrder::Unsigned,
            ElementClass::Float | ElementClass::Complex => ComparisonOrder::Float,
        };
        self.ordered(direction, order, other)
    }

    pub(super) fn ordered(
        self,
        direction: ComparisonDirection,
        order: ComparisonOrder,
        other: Value<'b>,
    ) -> Value<'b> {
        let order = Some(order);
        let kind = OpKind::Compare { direction, order };
        self.push(kind, &[other], ElementType::Bool)
    }

    /// Selects by this predicate.
    pub(super) fn select(self, on_true: Value<'b>, on_false: Value<'b>) -> Value<'b> {
        let element = on_true.element();
        self.push(OpKind::Select, &[on_true, on_false], element)
    }

    pub(super) fn convert(self, element: ElementType) -> Value<'b> {
        match self.element() == element {
            true => self,
            false => self.push(OpKind::Convert, &[], element),
        }
    }

    /// The same bits as elements of a type of equal width.
    pub(super) fn bitcast(self, element: ElementType) -> Value<'b> {
        self.push(OpKind::BitcastConvert, &[], element)
    }

    pub(super) fn reduce_precision(self, exponent: u32, mantissa: u32) -> Value<'b> {
        let kind = OpKind::ReducePrecision { exponent, mantissa };
        self.push(kind, &[], self.element())
    }

    /// The complex number with this real part.
    pub(super) fn complex(self, imaginary: Value<'b>) -> Value<'b> {
        let element = match self.element() {
            ElementType::F64 => ElementType::C128,
            _ => ElementType::C64,
        };
        self.push(OpKind::Binary(BinaryOp::Complex), &[imaginary], element)
    }

    /// A polynomial of this value, highest power first.
    pub(super) fn polynomial(self, coefficients: &[f64]) -> Value<'b> {
        let (&first, rest) = coefficients
            .split_first()
            .expect("polynomials have coefficients");
        rest.iter()
            .fold(self.constant(first), |sum, &it| sum * self + it)
    }
}

macro_rules! methods {
    ([$($name:ident $op:ident,)*] [$($name2:ident $op2:ident,)*] [$($name3:ident $op3:ident,)*])
    => {
        impl<'b> Value<'b> {
            $(pub(super) fn $name(self) -> Value<'b> { self.unary(UnaryOp::$op) })*
            $(pub(super) fn $name2(self, other: Value<'b>) -> Value<'b> {
                self.binary(BinaryOp::$op2, other)
            })*
            $(pub(super) fn $name3(self, other: impl Operand<'b>) -> Value<'b> {
                self.compare(ComparisonDirection::$op3, other.like(self))
            })*
        }
    };
}

methods! {
    [abs Abs, cos Cosine, exp Exponential, exp_m1 ExponentialMinusOne, floor Floor, ln Log,
        ln_1p LogPlusOne, round RoundNearestEven, sign Sign, sin Sine, sqrt Sqrt, tan Tan,
        real Real, imag Imag,]
    [and And, atan2 Atan2, max Maximum, min Minimum, or Or, pow Power,
        shift_right ShiftRightLogical,]
    [eq Eq, ge Ge, le Le, lt Lt, ne Ne,]
}

/// A value, or a float that stands for one.
pub(super) trait Operand<'b> {
    /// As a value of this type and shape.
    fn like(self, value: Value<'b>) -> Value<'b>;
}

impl<'b> Operand<'b> for Value<'b> {
    fn like(self, _: Value<'b>) -> Value<'b> {
        self
    }
}

impl<'b> Operand<'b> for f64 {
    fn like(self, value: Value<'b>) -> Value<'b> {
        value.constant(self)
    }
}

macro_rules! arithmetic {
    ($($name:ident $method:ident $op:ident,)*) => { $(
        impl<'b, O: Operand<'b>> $name<O> for Value<'b> {
            type Output = Value<'b>;
            fn $method(self, other: O) -> Value<'b> {
                self.binary(BinaryOp::$op, other.like(self))
            }
        }
        impl<'b> $name<Value<'b>> for f64 {
            type Output = Value<'b>;
            fn $method(self, other: Value<'b>) -> Value<'b> {
                other.constant(self).binary(BinaryOp::$op, other)
            }
        }
    )* };
}

arithmetic! { Add add Add, Div div Divide, Mul mul Multiply, Sub sub Subtract, }

impl<'b> Neg for Value<'b> {
    type Output = Value<'b>;
    fn neg(self) -> Value<'b> {
        self.unary(UnaryOp::Negate)
    }
}
