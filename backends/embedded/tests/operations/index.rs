//! Gathers and scatters.

use halite_stablehlo::{ElementClass, ElementType, RankedType};

use crate::operations::{
    compare::Tolerance,
    draft::{Draft, Value, join},
    family::{Family, accumulations},
    moves::permutation,
    numbers::Range,
    reduce::{accumulation, region},
};

pub(crate) fn families() -> Vec<Family> {
    let mut families = vec![
        Family::new("gather", gather),
        Family::new("scatter", replace).variant("replace"),
        Family::new("scatter", scatter_pairs).variant("of pairs"),
    ];
    families.extend(accumulations("scatter", scatter));
    families
}

/// Slices of a tensor at random positions, and the tensor of them: what gather reads from the first
/// to the second, and scatter writes from the second to the first.
struct Slices {
    dims: Vec<usize>,
    indices: Value,
    result: Vec<usize>,
    sizes: Vec<usize>,
    offset: Vec<usize>,
    collapsed: Vec<usize>,
    batching: Vec<usize>,
    indices_batching: Vec<usize>,
    index_map: Vec<usize>,
    vector_dim: usize,
}

impl Slices {
    /// Slices of a tensor of at least this rank.
    fn draw(draft: &mut Draft<'_>, least: usize) -> Slices {
        let rank = least + draft.random.below(4 - least);
        let mut dims = draft.dims_of_rank(rank);
        let batching: Vec<_> = (0..rank).filter(|_| draft.random.percent(20)).collect();
        let others: Vec<_> = (0..rank).filter(|dim| !batching.contains(dim)).collect();
        let collapsed: Vec<_> = others
            .iter()
            .copied()
            .filter(|_| draft.random.percent(40))
            .collect();
        for &dim in batching.iter().chain(&collapsed) {
            dims[dim] = dims[dim].max(1);
        }
        let sizes: Vec<_> = (0..rank)
            .map(|dim| {
                let is_single = batching.contains(&dim) || collapsed.contains(&dim);
                if is_single {
                    1
                } else {
                    draft.random.below(dims[dim] + 1)
                }
            })
            .collect();
        let index_map: Vec<_> = permutation(draft, others.len())
            .into_iter()
            .map(|at| others[at])
            .filter(|_| draft.random.percent(75))
            .collect();
        // The dimensions of the indices: those that are paired with batching dimensions, others,
        // and that of an index vector.
        let mut outer: Vec<Option<usize>> = batching.iter().map(|&dim| Some(dim)).collect();
        outer.extend((0..draft.random.below(3)).map(|_| None));
        let outer: Vec<_> = permutation(draft, outer.len())
            .into_iter()
            .map(|at| outer[at])
            .collect();
        let outer_dims: Vec<_> = outer
            .iter()
            .map(|dim| dim.map_or_else(|| draft.choose(&[1, 2, 3, 5]), |dim| dims[dim]))
            .collect();
        let is_implicit = index_map.len() == 1 && draft.random.percent(40);
        let at = if is_implicit {
            outer.len()
        } else {
            draft.random.below(outer.len() + 1)
        };
        let mut index_dims = outer_dims.clone();
        if !is_implicit {
            index_dims.insert(at, index_map.len());
        }
        let position = |dim: &usize| {
            let found = outer.iter().position(|paired| *paired == Some(*dim));
            let found = found.expect("each batching dimension has one of the indices");
            found + usize::from(!is_implicit && found >= at)
        };
        let indices_batching = batching.iter().map(position).collect();
        let inner: Vec<_> = others
            .iter()
            .copied()
            .filter(|dim| !collapsed.contains(dim))
            .collect();
        let mut offset: Vec<_> = permutation(draft, outer.len() + inner.len());
        offset.truncate(inner.len());
        offset.sort_unstable();
        let (mut outer_sizes, mut inner_sizes) =
            (outer_dims.iter(), inner.iter().map(|&dim| sizes[dim]));
        let result = (0..outer.len() + inner.len()).map(|dim| {
            let size = if offset.contains(&dim) {
                inner_sizes.next()
            } else {
                outer_sizes.next().copied()
            };
            size.expect("each dimension of the result is of one kind")
        });
        let result = result.collect();
        let indices = indices(draft, &index_dims);
        Slices {
            dims,
            indices,
            result,
            sizes,
            offset,
            collapsed,
            batching,
            indices_batching,
            index_map,
            vector_dim: at,
        }
    }

    /// Slices for a scatter. All have indices: XLA's simplifier of scatters fails or drops updates
    /// where index vectors are empty.
    fn of_scatter(draft: &mut Draft<'_>) -> Slices {
        loop {
            let slices = Slices::draw(draft, 1);
            if !slices.index_map.is_empty() {
                return slices;
            }
            draft.reset();
        }
    }

    /// How many elements can be written to one position.
    fn writes(&self) -> usize {
        self.result.iter().product()
    }

    fn numbers(&self, attribute: &str) -> String {
        let scatter = [
            ("update_window_dims", &self.offset),
            ("inserted_window_dims", &self.collapsed),
            ("input_batching_dims", &self.batching),
            ("scatter_indices_batching_dims", &self.indices_batching),
            ("scatter_dims_to_operand_dims", &self.index_map),
        ];
        let gather = [
            ("offset_dims", &self.offset),
            ("collapsed_slice_dims", &self.collapsed),
            ("operand_batching_dims", &self.batching),
            ("start_indices_batching_dims", &self.indices_batching),
            ("start_index_map", &self.index_map),
        ];
        let fields = if attribute == "gather" {
            gather
        } else {
            scatter
        };
        let fields = fields.iter().filter(|(_, dims)| !dims.is_empty());
        let mut fields: Vec<_> = fields
            .map(|(name, dims)| format!("{name} = {dims:?}"))
            .collect();
        fields.push(format!("index_vector_dim = {}", self.vector_dim));
        format!("#stablehlo.{attribute}<{}>", join(&fields))
    }
}

/// Positions, some of which are out of range.
fn indices(draft: &mut Draft<'_>, dims: &[usize]) -> Value {
    let element = draft.choose(&[
        ElementType::S32,
        ElementType::S32,
        ElementType::S64,
        ElementType::U32,
        ElementType::S8,
        ElementType::U8,
    ]);
    let count = dims.iter().product();
    let each = (0..count).map(|_| match draft.random.below(12) {
        0 => draft.choose(&[-1, i64::MAX, i64::MIN, 100]),
        _ => draft.random.below(5) as i64,
    });
    let values: Vec<_> = each.collect();
    draft.integers(element, dims, &values)
}

fn gather(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    let slices = Slices::draw(draft, 0);
    let x = draft.input(element, &slices.dims, Range::Any);
    let text = format!(
        "gather {{dimension_numbers = {}, indices_are_sorted = false, slice_sizes = {}}}",
        slices.numbers("gather"),
        crate::operations::moves::array(&slices.sizes)
    );
    let y = draft.op(
        text,
        &[&x, &slices.indices],
        RankedType::new(element, slices.result),
    );
    draft.output(y);
    Some(Tolerance::Bits)
}

fn attributes(slices: &Slices) -> String {
    format!(
        "{{indices_are_sorted = false, scatter_dimension_numbers = {}, unique_indices = false}}",
        slices.numbers("scatter")
    )
}

fn scatter(draft: &mut Draft<'_>, combiner: &str, element: ElementType) -> Option<Tolerance> {
    let slices = Slices::of_scatter(draft);
    let (range, tolerance) = accumulation(combiner, element, slices.writes());
    if combiner == "multiply" && slices.writes() > 8 && range == Range::Positive {
        return scatter(draft, combiner, element);
    }
    let x = draft.input(element, &slices.dims, range);
    let updates = draft.input(element, &slices.result, range);
    let text = format!(
        "scatter {} {}",
        region(combiner, element),
        attributes(&slices)
    );
    let y = draft.op(text, &[&x, &slices.indices, &updates], x.ty.clone());
    draft.output(y);
    Some(tolerance)
}

/// Replaces elements, all by one value where they may be written more than once.
fn replace(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    let slices = Slices::of_scatter(draft);
    let x = draft.input(element, &slices.dims, Range::Any);
    let ty = RankedType::new(element, []);
    let windows = slices.indices.ty.elements() / slices.index_map.len().max(1);
    let updates = if windows > 1 {
        let value = draft.input(element, &[], Range::Any);
        let ty = RankedType::new(element, &*slices.result);
        draft.op(
            "broadcast_in_dim {broadcast_dimensions = array<i64>}",
            &[&value],
            ty,
        )
    } else {
        draft.input(element, &slices.result, Range::Any)
    };
    let text = format!(
        "scatter ({{\n    ^bb0(%x: {ty}, %y: {ty}):\n      stablehlo.return %y : {ty}\n  }}) {}",
        attributes(&slices)
    );
    let y = draft.op(text, &[&x, &slices.indices, &updates], x.ty.clone());
    draft.output(y);
    Some(Tolerance::Bits)
}

/// Scatters two tensors at once.
fn scatter_pairs(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    if element.class() == ElementClass::Complex {
        return None;
    }
    let slices = Slices::of_scatter(draft);
    let other = ElementType::S32;
    let x = draft.input(element, &slices.dims, Range::Any);
    let y = draft.input(other, &slices.dims, Range::Any);
    let updates = [element, other].map(|ty| draft.input(ty, &slices.result, Range::Any));
    let (ty, of) = (RankedType::new(element, []), RankedType::new(other, []));
    let text = format!(
        "scatter ({{
    ^bb0(%x: {ty}, %y: {of}, %u: {ty}, %v: {of}):
      %z = stablehlo.maximum %x, %u : {ty}
      %w = stablehlo.add %y, %v : {of}
      stablehlo.return %z, %w : {ty}, {of}
  }}) {}",
        attributes(&slices)
    );
    let types = [x.ty.clone(), y.ty.clone()];
    let operands = [&x, &y, &slices.indices, &updates[0], &updates[1]];
    let results = draft.ops(text, &operands, &types);
    results.into_iter().for_each(|result| draft.output(result));
    Some(Tolerance::Exact)
}
