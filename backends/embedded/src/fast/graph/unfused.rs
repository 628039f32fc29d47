//! Operations that are never part of a group, and have a kernel for every size of elements.

use halite_core::Result;
use halite_stablehlo::{
    Attribute, CustomCallAttributes, ElementType, Function, OpKind, Operation, RankedType,
};

use super::{
    super::{
        direct::{
            Direct, Input,
            complex::Complexes,
            concatenate::Concatenate,
            fft::Transform,
            indices::{Gather, Slices},
            matrix::{Cholesky, Qr, Solve},
            random::RandomBits,
            slice::{DynamicSlice, DynamicUpdate},
            sort::Comparator,
        },
        elementwise::format,
        place::{Base, Place},
        scalar::{self, Format, Order},
    },
    Kind,
    build::{Builder, tensor},
    sort::comparator_of,
};

impl Builder<'_> {
    /// The results of an operation with a kernel of its own. `None` if it has none.
    pub(super) fn unfused(
        &mut self,
        function: &Function,
        operation: &Operation,
        operands: &[Place],
    ) -> Result<Option<Vec<Place>>> {
        let types = operation.results.iter().map(|&id| tensor(function, id));
        let types: Vec<&RankedType> = types.collect();
        let [ty] = types[..] else {
            return self.of_several(function, operation, operands, &types);
        };
        let one = match (&operation.kind, operands) {
            (OpKind::Concatenate { dim }, parts) => self.concatenate(parts, *dim, ty),
            (OpKind::DynamicSlice { .. }, _) => self.direct(DynamicSlice, operands, ty),
            (OpKind::DynamicUpdateSlice, [x, part, starts @ ..]) => {
                let dims = part.ty().dims.to_vec();
                let mut operands = vec![x.clone(), self.in_order(part)];
                operands.extend_from_slice(starts);
                self.direct(DynamicUpdate { dims }, &operands, ty)
            }
            (OpKind::Gather(attributes), [x, indices]) => {
                let slices = Slices::of_gather(attributes, &x.ty(), &indices.ty(), ty);
                self.direct(Gather(slices), operands, ty)
            }
            (OpKind::Fft { transform, lengths }, [x]) => {
                let is_single = matches!(x.element, ElementType::F32 | ElementType::C64);
                let result = match is_single {
                    true => Transform::<f32>::new(*transform, lengths)
                        .map(|kernel| self.direct(kernel, operands, ty)),
                    false => Transform::<f64>::new(*transform, lengths)
                        .map(|kernel| self.direct(kernel, operands, ty)),
                };
                return Ok(result.map(|one| vec![one]));
            }
            (OpKind::Cholesky { lower }, [x]) if is_real(x.element) => {
                self.direct(Cholesky { is_lower: *lower }, operands, ty)
            }
            (
                &OpKind::TriangularSolve {
                    left_side,
                    lower,
                    unit_diagonal,
                    transpose,
                },
                [a, b],
            ) if is_real(a.element) && a.element == b.element => {
                let kernel = Solve {
                    is_left: left_side,
                    is_lower: lower,
                    has_unit_diagonal: unit_diagonal,
                    transpose,
                };
                self.direct(kernel, operands, ty)
            }
            (kind, [x, ..]) => match Complexes::new(kind, x.element) {
                Some(kernel) => self.direct(kernel, operands, ty),
                None => return self.of_several(function, operation, operands, &types),
            },
            _ => return self.of_several(function, operation, operands, &types),
        };
        Ok(Some(vec![one]))
    }

    /// As [`unfused`](Self::unfused), of operations with any number of results.
    fn of_several(
        &mut self,
        function: &Function,
        operation: &Operation,
        operands: &[Place],
        types: &[&RankedType],
    ) -> Result<Option<Vec<Place>>> {
        match &operation.kind {
            OpKind::Reduce { dims } => {
                Ok(self.reduce_by_function(function, operation, operands, dims, types))
            }
            OpKind::ReduceWindow(attributes) => {
                let scan = self.scan(function, operation, operands, attributes, types);
                Ok(scan.or_else(|| self.windows(function, operation, operands, attributes, types)))
            }
            OpKind::SelectAndScatter(attributes) => {
                Ok(self.select_and_scatter(function, operation, operands, attributes, types))
            }
            OpKind::Scatter(attributes) => {
                Ok(self.scatter(function, operation, operands, attributes, types))
            }
            OpKind::Sort { dim, .. } => {
                Ok(self.sort_by_region(function, operation, operands, *dim))
            }
            &OpKind::RngBitGenerator { algorithm } => {
                let [state, bits] = types else {
                    return Ok(None);
                };
                let is_known = state.element.size() == 8
                    && matches!(state.dims[..], [2 | 3])
                    && bits.element.bits() == 8 * bits.element.size()
                    && matches!(bits.element.size(), 1 | 2 | 4 | 8);
                let kernel = RandomBits { algorithm };
                Ok(is_known.then(|| self.direct_of(kernel, operands, types)))
            }
            OpKind::CustomCall(attributes) if attributes.target == "Qr" => {
                let is_real = operands.first().is_some_and(|x| is_real(x.element));
                Ok(is_real.then(|| self.direct_of(Qr, operands, types)))
            }
            OpKind::CustomCall(attributes) => self.top_k(operation, attributes, operands, types),
            _ => Ok(None),
        }
    }

    /// Adds a node of an operation on whole buffers.
    pub(super) fn direct(
        &mut self,
        kernel: impl Direct + 'static,
        operands: &[Place],
        ty: &RankedType,
    ) -> Place {
        self.direct_of(kernel, operands, &[ty]).remove(0)
    }

    /// As [`direct`](Self::direct), with several results.
    pub(super) fn direct_of(
        &mut self,
        kernel: impl Direct + 'static,
        operands: &[Place],
        types: &[&RankedType],
    ) -> Vec<Place> {
        let operands = operands.iter().map(|place| self.whole(place)).collect();
        let results: Vec<Base> = types.iter().map(|ty| self.base(ty, None)).collect();
        self.nodes_of(Kind::Direct(Box::new(kernel)), operands, results.clone());
        let whole = |(base, ty): (Base, &&RankedType)| Place::whole(base, ty);
        results.into_iter().zip(types).map(whole).collect()
    }

    fn concatenate(&mut self, parts: &[Place], dim: usize, ty: &RankedType) -> Place {
        let behind: usize = ty.dims[dim + 1..].iter().product();
        let row = |part: &Place| part.view.dims[dim].size * behind * ty.element.size();
        let bytes = parts.iter().map(row).collect();
        self.direct(Concatenate { bytes }, parts, ty)
    }

    /// Inputs of an operation on lines along `dim`, and the operands that they are.
    pub(super) fn inputs(&self, places: &[Place], dim: Option<usize>) -> (Vec<Input>, Vec<Place>) {
        let mut operands = Vec::new();
        let mut inputs = Vec::with_capacity(places.len());
        for place in places {
            if dim.is_some_and(|dim| self.counts(place, dim)) {
                inputs.push(Input::Counter);
            } else {
                inputs.push(Input::Operand(operands.len()));
                operands.push(place.clone());
            }
        }
        (inputs, operands)
    }

    /// Returns whether elements are their positions along a dimension.
    fn counts(&self, place: &Place, dim: usize) -> bool {
        let is_along = place.view.offset == 0
            && !place.view.has_gaps()
            && (place.view.dims.iter().enumerate())
                .all(|(at, of)| of.size == 1 || of.stride == isize::from(at == dim));
        let size = place.element.size();
        let constant = &self.graph.bases[place.base].constant;
        let counts = |bytes: &[u8]| {
            let elements = bytes.chunks_exact(size).take(place.view.dims[dim].size);
            let is_integer = Format::of(place.element).is_some_and(|it| !it.is_float());
            is_integer
                && (0u64..)
                    .zip(elements)
                    .all(|(at, bytes)| *bytes == at.to_le_bytes()[..size])
        };
        is_along && constant.as_ref().is_some_and(|it| counts(&it.bytes))
    }

    /// Custom calls that return the first elements of a sorted dimension.
    fn top_k(
        &mut self,
        operation: &Operation,
        attributes: &CustomCallAttributes,
        operands: &[Place],
        types: &[&RankedType],
    ) -> Result<Option<Vec<Place>>> {
        // Other types have no views.
        if types.iter().any(|ty| format(ty.element).is_none()) {
            return Ok(None);
        }
        let sorted = match &*attributes.target {
            "ApproxTopK" | "PartialReduce" => {
                let [name] = &attributes.functions[..] else {
                    return Ok(None);
                };
                let Some(function) = self.module.function(name) else {
                    return Ok(None);
                };
                let x = &operands[..operands.len() / 2];
                let dims = &x[0].ty().dims;
                let narrowed = (0..dims.len()).find(|&dim| types[0].dims[dim] != dims[dim]);
                let dim = config_int(operation, attributes, "reduction_dim").or(narrowed);
                scalar::Function::new(self.module, function, &function.body)
                    .map(|it| self.sort(comparator_of(it), x, dim.unwrap_or(0)))
            }
            "TopK" | "mhlo.topk" => {
                let [x] = operands else {
                    return Ok(None);
                };
                let Some(format) = Format::of(x.element) else {
                    return Ok(None);
                };
                let is_largest = match operation.attributes.get("mhlo.attributes") {
                    Some(Attribute::Dict(of)) => of.get("largest") != Some(&Attribute::Bool(false)),
                    _ => true,
                };
                let dim = x.view.dims.len() - 1;
                let of_indices = RankedType::new(types[1].element, &*x.ty().dims);
                let Some(indices) = self.iota(dim, &of_indices)? else {
                    return Ok(None);
                };
                let comparator = Comparator::Orders(vec![Order::by_value(format, is_largest)]);
                Some(self.sort(comparator, &[x.clone(), indices], dim))
            }
            _ => None,
        };
        let first = |(place, ty): (Place, &&RankedType)| {
            let kind = OpKind::Slice {
                starts: vec![0; ty.rank()],
                limits: ty.dims.to_vec(),
                strides: vec![1; ty.rank()],
            };
            Place::moved(&place, &kind, ty, None)
        };
        Ok(sorted.and_then(|all| all.into_iter().zip(types).map(first).collect()))
    }
}

/// Whether matrices of such elements have kernels.
fn is_real(element: ElementType) -> bool {
    matches!(element, ElementType::F32 | ElementType::F64)
}

/// An integer in the configuration of a custom call.
fn config_int(
    operation: &Operation,
    attributes: &CustomCallAttributes,
    name: &str,
) -> Option<usize> {
    let of_operation = operation.attributes.get("mhlo.backend_config");
    let dictionary = match (&attributes.config, of_operation) {
        (Some(Attribute::Dict(config)), _) | (_, Some(Attribute::Dict(config))) => config,
        _ => return None,
    };
    match dictionary.get(name) {
        Some(&Attribute::Int(value, _)) => usize::try_from(value).ok(),
        _ => None,
    }
}
