//! Elementwise operations, and the types with which operations compute.

use halite_kernels::{Binary, Operation};
use halite_stablehlo::{BinaryOp, ElementClass, ElementType, OpKind, RankedType};

use super::{
    super::{
        elementwise::{Elementwise, Recipe, computed},
        place::Place,
    },
    Kind,
    build::Builder,
};
use crate::oracle::Tensor;

impl Builder<'_> {
    /// An elementwise operation, whose operands have elements of type `from` where they are
    /// numbers. `None` if it has no kernel.
    pub(super) fn arithmetic(
        &mut self,
        kind: &OpKind,
        from: ElementType,
        operands: &[Place],
        ty: &RankedType,
    ) -> Option<Place> {
        let spread = |x: &Place| {
            // Scalar predicates and limits are broadcast.
            let is_scalar = x.view.dims.len() != ty.rank();
            let kind = OpKind::BroadcastInDim {
                mapping: Vec::new(),
            };
            let spread = is_scalar
                .then(|| Place::moved(x, &kind, &RankedType::new(x.element, &ty.dims[..]), None));
            spread.flatten().unwrap_or_else(|| x.clone())
        };
        let operands: Vec<_> = operands.iter().map(spread).collect();
        if let (OpKind::Clamp, [low, x, high]) = (kind, &operands[..]) {
            let [maximum, minimum] = [BinaryOp::Maximum, BinaryOp::Minimum].map(OpKind::Binary);
            let parts = [x.clone(), low.clone()];
            let lower = self.arithmetic(&maximum, from, &parts, ty)?;
            return self.arithmetic(&minimum, from, &[lower, high.clone()], ty);
        }
        let recipe = Recipe::new(kind, from, ty.element)?;
        Some(self.follow(recipe, operands, ty))
    }

    /// The nodes of a recipe.
    fn follow(&mut self, recipe: Recipe, mut operands: Vec<Place>, ty: &RankedType) -> Place {
        let wide = |element| RankedType::new(computed(element), &ty.dims[..]);
        if let (Some(op), Some(first)) = (recipe.before, operands.first_mut()) {
            let apply = Kind::Elementwise(Elementwise::Apply(op));
            *first = self.node(apply, vec![first.clone()], &wide(first.element));
        }
        let op = Kind::Elementwise(recipe.op);
        let Some(after) = recipe.after else {
            return self.node(op, operands, ty);
        };
        let result = self.node(op, operands, &wide(ty.element));
        let after = Kind::Elementwise(Elementwise::Apply(after));
        self.node(after, vec![result], ty)
    }

    /// Floats rounded to a format of as many bits of exponent and mantissa, or their own if it has
    /// fewer. `None` for f16, whose subnormal numbers registers have as normal ones.
    pub(super) fn reduce_precision(
        &mut self,
        x: &Place,
        format: [u32; 2],
        ty: &RankedType,
    ) -> Option<Place> {
        let own = match ty.element {
            ElementType::F64 => [11, 52],
            ElementType::F32 => [8, 23],
            ElementType::Bf16 => [8, 7],
            _ => return None,
        };
        let [exponent, mantissa] = [0, 1].map(|part| format[part].min(own[part]));
        let element = computed(ty.element);
        let scalar = RankedType::new(element, []);
        let format = (u64::from(exponent) << 8 | u64::from(mantissa)).to_le_bytes();
        let format = Tensor::new(scalar.clone(), format[..element.size()].to_vec());
        let format = self.base(&scalar, Some(format));
        let wide = RankedType::new(element, &ty.dims[..]);
        let operands = vec![self.converted(x, element), Place::splat(format, &wide)];
        let round = Elementwise::Apply(Operation::Binary(Binary::ReducePrecision));
        let rounded = self.node(Kind::Elementwise(round), operands, &wide);
        Some(self.converted(&rounded, ty.element))
    }

    /// The same numbers as elements of another type that registers can hold.
    pub(super) fn converted(&mut self, place: &Place, to: ElementType) -> Place {
        if place.element == to {
            return place.clone();
        }
        let convert = |builder: &mut Self, place: &Place| {
            let ty = RankedType::new(to, &place.ty().dims[..]);
            let converted = builder.arithmetic(
                &OpKind::Convert,
                place.element,
                std::slice::from_ref(place),
                &ty,
            );
            converted.expect("all types of registers convert into each other")
        };
        let base_ty = &self.graph.bases[place.base].ty;
        if place.view.has_gaps() || base_ty.elements() > place.elements() {
            return convert(self, place);
        }
        // All of the buffer, in its order, once for all of its views.
        let all = Place::whole(place.base, base_ty);
        let base = match self.converted.get(&(place.base, to)) {
            Some(&base) => base,
            None => convert(self, &all).base,
        };
        self.converted.insert((place.base, to), base);
        Place {
            base,
            element: to,
            view: place.view.clone(),
        }
    }

    /// The operands of a contraction with a result of type `ty`, as views without gaps of elements
    /// that a kernel multiplies. `None` if there is none.
    pub(super) fn contracted(
        &mut self,
        operands: [&Place; 2],
        ty: &RankedType,
    ) -> Option<[Place; 2]> {
        let is_float = |element: &ElementType| element.class() == ElementClass::Float;
        let elements = operands.map(|place| place.element);
        let is_wide = |element: &ElementType| element.size() == size_of::<u64>();
        let all = [elements[0], elements[1], ty.element];
        let element = if all.iter().all(is_float) {
            match all.iter().any(is_wide) {
                true => ElementType::F64,
                false => ElementType::F32,
            }
        } else if all.iter().any(is_float) {
            return None;
        } else if is_wide(&ty.element) {
            ElementType::U64
        } else {
            ElementType::U32
        };
        Some(operands.map(|place| {
            let place = self.without_gaps(place);
            self.converted(&place, element)
        }))
    }
}
