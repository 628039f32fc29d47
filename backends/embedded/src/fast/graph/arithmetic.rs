//! Elementwise operations, and the types with which operations compute.

use halite_kernels::{Binary, Operation};
use halite_stablehlo::{BinaryOp, DotAttributes, ElementClass, ElementType, OpKind, RankedType};

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
        let element = contracted_element(operands, ty)?;
        Some(operands.map(|place| {
            let place = self.without_gaps(place);
            self.converted(&place, element)
        }))
    }

    /// The operands of a product of matrices, as [`contracted`](Self::contracted) returns them, but
    /// for a right one of bf16 with more elements than the left one, such as weights: the kernel
    /// widens what it reads, where a conversion writes all elements and reads them again.
    pub(super) fn multiplied(
        &mut self,
        operands: [&Place; 2],
        ty: &RankedType,
    ) -> Option<[Place; 2]> {
        let [left, right] = operands;
        let right = self.before_widening(right).unwrap_or_else(|| right.clone());
        let stays = contracted_element(operands, ty)? == ElementType::F32
            && right.element == ElementType::Bf16
            && right.elements() > left.elements();
        if !stays {
            return self.contracted(operands, ty);
        }
        let [left, right] = [left, &right].map(|place| self.without_gaps(place));
        Some([self.converted(&left, ElementType::F32), right])
    }

    /// The elements of bf16 that were [`converted`](Self::converted) to f32.
    fn before_widening(&self, place: &Place) -> Option<Place> {
        let mut conversions = self.converted.iter();
        let (&(base, _), _) = conversions.find(|&(&(base, to), &result)| {
            let from = self.graph.bases[base].ty.element;
            result == place.base && (from, to) == (ElementType::Bf16, ElementType::F32)
        })?;
        Some(Place {
            base,
            element: ElementType::Bf16,
            view: place.view.clone(),
        })
    }

    /// A product with a vector as products of elements and their sums: the kernel of products
    /// computes whole blocks of columns. `None` if that is faster, or both operands have several
    /// rows and columns.
    pub(super) fn vector_product(
        &mut self,
        operands: [&Place; 2],
        attributes: &DotAttributes,
        ty: &RankedType,
    ) -> Option<Place> {
        let [x, y] = operands;
        let left = (x, &attributes.lhs_batching, &attributes.lhs_contracting);
        let right = (y, &attributes.rhs_batching, &attributes.rhs_contracting);
        let count = |(place, batch, terms): (&Place, &Vec<usize>, &Vec<usize>)| -> usize {
            let dims = place.view.dims.iter().enumerate();
            let free = dims.filter(|(dim, _)| !batch.contains(dim) && !terms.contains(dim));
            free.map(|(_, of)| of.size).product()
        };
        let (rows, columns) = (count(left), count(right));
        let is_fast = x.element == ElementType::F32 && rows * columns != 1;
        let ((matrix, batch, terms), (vector, of_batch, of_terms)) = match (rows, columns) {
            _ if is_fast => return None,
            (_, 1) => (left, right),
            (1, _) => (right, left),
            _ => return None,
        };
        // The products take no more memory than the operand.
        let elements = self.graph.bases[matrix.base].ty.elements();
        if matrix.elements() > elements.max(MOST_PRODUCTS) {
            return None;
        }
        let whole = matrix.ty();
        let (mut line, mut mapping) = (vector.clone(), Vec::new());
        line.view.dims.clear();
        for (dim, of) in vector.view.dims.iter().enumerate() {
            let among = |from: &[usize], to: &[usize]| {
                let at = from.iter().position(|&it| it == dim)?;
                Some(to[at])
            };
            // Other dimensions have one element.
            if let Some(to) = among(of_batch, batch).or_else(|| among(of_terms, terms)) {
                line.view.dims.push(*of);
                mapping.push(to);
            }
        }
        let line = Place::moved(&line, &OpKind::BroadcastInDim { mapping }, &whole, None)?;
        let multiply = OpKind::Binary(BinaryOp::Multiply);
        let products = self.arithmetic(&multiply, x.element, &[matrix.clone(), line], &whole)?;
        let scalar = RankedType::new(x.element, []);
        let zero = Tensor::new(scalar.clone(), vec![0; x.element.size()]);
        let zero = Place::splat(self.base(&scalar, Some(zero)), &scalar);
        let kept: Vec<usize> = (0..whole.rank())
            .filter(|dim| !terms.contains(dim))
            .collect();
        let sizes =
            |dims: &[usize]| -> Vec<usize> { dims.iter().map(|&dim| whole.dims[dim]).collect() };
        let of_sums = RankedType::new(x.element, sizes(&kept));
        let sums = self.reduce(Some(BinaryOp::Add), &products, &zero, terms, &of_sums)?;
        let free = kept.iter().filter(|dim| !batch.contains(dim));
        let order: Vec<usize> = batch.iter().chain(free).copied().collect();
        let permutation = order.iter().map(|dim| kept.iter().position(|it| it == dim));
        let permutation = permutation.collect::<Option<Vec<_>>>()?;
        let moved = RankedType::new(x.element, sizes(&order));
        let sums = Place::moved(&sums, &OpKind::Transpose { permutation }, &moved, None)?;
        let wide = RankedType::new(x.element, &ty.dims[..]);
        let reshaped = |x: &Place| Place::moved(x, &OpKind::Reshape, &wide, None);
        let result = reshaped(&sums).or_else(|| reshaped(&self.whole(&sums)))?;
        Some(self.converted(&result, ty.element))
    }
}

/// The type that a contraction with a result of type `ty` is computed in. `None` if no kernel does.
fn contracted_element(operands: [&Place; 2], ty: &RankedType) -> Option<ElementType> {
    let is_float = |element: &ElementType| element.class() == ElementClass::Float;
    let is_wide = |element: &ElementType| element.size() == size_of::<u64>();
    let all = [operands[0].element, operands[1].element, ty.element];
    if all.iter().all(is_float) {
        return Some(match all.iter().any(is_wide) {
            true => ElementType::F64,
            false => ElementType::F32,
        });
    }
    if all.iter().any(is_float) {
        return None;
    }
    Some(match is_wide(&ty.element) {
        true => ElementType::U64,
        false => ElementType::U32,
    })
}

/// Most products of elements whose sums a product of matrices is, unless an operand has more.
const MOST_PRODUCTS: usize = 1 << 20;
