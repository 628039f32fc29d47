//! Reductions, windows and scatters by regions of scalars.

use halite_stablehlo::{
    BinaryOp, Function, Operation, RankedType, ScatterAttributes, WindowAttributes,
};

use super::{
    super::{
        direct::{
            Lines,
            indices::{Combine, Scatter, Slices},
            reduce::{Direction, Reduce},
            sliding::Sliding,
            window::{ReduceWindow, SelectAndScatter, Windows},
        },
        elementwise::format,
        place::Place,
        scalar::{self, Format},
    },
    build::Builder,
    known::operator,
};

impl Builder<'_> {
    pub(super) fn reduce_by_function(
        &mut self,
        function: &Function,
        operation: &Operation,
        operands: &[Place],
        dims: &[usize],
        types: &[&RankedType],
    ) -> Option<Vec<Place>> {
        let (x, initial) = operands.split_at(operands.len() / 2);
        let (combine, formats) = self.combiner(function, operation, x, types)?;
        let mut lines = None;
        let mut moved = Vec::with_capacity(x.len());
        for x in x {
            // Other types have no views.
            let of = self.lines(x, dims, format(x.element).is_some())?;
            moved.push(of.0);
            lines = Some(of.1);
        }
        let (inputs, mut operands) = match dims {
            &[dim] => self.inputs(&moved, Some(dim)),
            _ => self.inputs(&moved, None),
        };
        operands.extend_from_slice(initial);
        let kernel = Reduce {
            lines: lines?,
            inputs,
            function: combine,
            formats,
            scan: None,
        };
        Some(self.direct_of(kernel, &operands, types))
    }

    /// The function of accumulators and elements of a reduction, and the formats of these in
    /// memory.
    fn combiner(
        &self,
        function: &Function,
        operation: &Operation,
        x: &[Place],
        types: &[&RankedType],
    ) -> Option<(scalar::Function, Vec<Format>)> {
        let is_same = x.iter().zip(types).all(|(x, ty)| x.element == ty.element);
        let formats = x.iter().map(|x| Format::of(x.element));
        let formats: Vec<Format> = formats.collect::<Option<_>>()?;
        if !is_same {
            return None;
        }
        let combine = match (operator(function, &operation.regions), &formats[..]) {
            // Sums and products are rounded once, after the last element.
            (Some(op @ (BinaryOp::Add | BinaryOp::Multiply)), [format]) => {
                scalar::Function::binary(op, format.wide())?
            }
            _ => scalar::Function::new(self.module, function, operation.regions.first()?)?,
        };
        (combine.arguments.len() == 2 * x.len()).then_some((combine, formats))
    }

    /// Windows over a whole dimension, which end or start at each element: a running reduction.
    pub(super) fn scan(
        &mut self,
        function: &Function,
        operation: &Operation,
        operands: &[Place],
        attributes: &WindowAttributes,
        types: &[&RankedType],
    ) -> Option<Vec<Place>> {
        let (x, initial) = operands.split_at(operands.len() / 2);
        let dims = x.first()?.ty().dims;
        let (dim, direction) = whole_axis(attributes, &dims)?;
        let (combine, formats) = self.combiner(function, operation, x, types)?;
        let (inputs, mut operands) = self.inputs(x, Some(dim));
        operands.extend_from_slice(initial);
        let kernel = Reduce {
            lines: Lines::along(&dims, dim),
            inputs,
            function: combine,
            formats,
            scan: Some(direction),
        };
        Some(self.direct_of(kernel, &operands, types))
    }

    /// Windows in general: by one operation, however large, or by a function.
    pub(super) fn windows(
        &mut self,
        function: &Function,
        operation: &Operation,
        operands: &[Place],
        attributes: &WindowAttributes,
        types: &[&RankedType],
    ) -> Option<Vec<Place>> {
        let x = &operands[..operands.len() / 2];
        let (combine, formats) = self.combiner(function, operation, x, types)?;
        let windows = Windows {
            attributes: attributes.clone(),
            dims: x.first()?.ty().dims.to_vec(),
            counts: types.first()?.dims.to_vec(),
        };
        let op = operator(function, &operation.regions).filter(|_| windows.is_bounded());
        let identity = op.and_then(|op| combine.arguments[0].identity(op));
        if let (&[format], Some(identity)) = (&formats[..], identity) {
            let kernel = Sliding {
                windows,
                function: combine,
                format,
                identity,
            };
            return Some(self.direct_of(kernel, operands, types));
        }
        let kernel = ReduceWindow {
            windows,
            function: combine,
            formats,
        };
        Some(self.direct_of(kernel, operands, types))
    }

    pub(super) fn select_and_scatter(
        &mut self,
        function: &Function,
        operation: &Operation,
        operands: &[Place],
        attributes: &WindowAttributes,
        types: &[&RankedType],
    ) -> Option<Vec<Place>> {
        let ([x, source, _], [select, _]) = (operands, &operation.regions[..]) else {
            return None;
        };
        let combine = Operation {
            regions: operation.regions[1..].to_vec(),
            ..operation.clone()
        };
        let of_source = std::slice::from_ref(source);
        let (combine, formats) = self.combiner(function, &combine, of_source, types)?;
        let kernel = SelectAndScatter {
            windows: Windows {
                attributes: attributes.clone(),
                dims: x.ty().dims.to_vec(),
                counts: source.ty().dims.to_vec(),
            },
            select: scalar::Function::new(self.module, function, select)?,
            combine,
            formats: [Format::of(x.element)?, formats[0]],
        };
        Some(self.direct_of(kernel, operands, types))
    }

    pub(super) fn scatter(
        &mut self,
        function: &Function,
        operation: &Operation,
        operands: &[Place],
        attributes: &ScatterAttributes,
        types: &[&RankedType],
    ) -> Option<Vec<Place>> {
        let count = types.len();
        let (x, indices, updates) = (&operands[..count], &operands[count], &operands[count + 1..]);
        let region = operation.regions.first()?;
        let is_replaced =
            region.operations.is_empty() && region.results == region.arguments[count..];
        let combine = if is_replaced && count == 1 {
            Combine::Replace
        } else {
            let (function, formats) = self.combiner(function, operation, updates, types)?;
            if formats == [Format::F32] && function.is_sum() {
                Combine::Add
            } else {
                Combine::By(function, formats)
            }
        };
        let kernel = Scatter {
            slices: Slices::of_scatter(attributes, &x[0].ty(), &indices.ty(), &updates[0].ty()),
            combine,
            count,
        };
        Some(self.direct_of(kernel, operands, types))
    }
}

/// The dimension that windows are over, all others having windows of one element.
fn whole_axis(attributes: &WindowAttributes, dims: &[usize]) -> Option<(usize, Direction)> {
    let WindowAttributes {
        sizes,
        strides,
        base_dilations,
        window_dilations,
        padding,
    } = attributes;
    let are_ones = |of: &[usize]| of.iter().all(|&it| it == 1);
    if !are_ones(strides) || !are_ones(base_dilations) || !are_ones(window_dilations) {
        return None;
    }
    let dim = (0..dims.len()).find(|&dim| sizes[dim] != 1)?;
    let is_flat = |other: usize| sizes[other] == 1 && padding[other] == (0, 0);
    let before = dims[dim].checked_sub(1)? as i64;
    let direction = match padding[dim] {
        padding if padding == (before, 0) => Direction::Forward,
        padding if padding == (0, before) => Direction::Backward,
        _ => return None,
    };
    let is_whole = sizes[dim] == dims[dim] && (0..dims.len()).all(|it| it == dim || is_flat(it));
    is_whole.then_some((dim, direction))
}
