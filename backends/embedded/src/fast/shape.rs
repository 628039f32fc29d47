//! Shapes of groups: matrices whose rows and columns are reduced in the pass that computes them.

use std::collections::HashMap;

use halite_kernels::{Extent, Reduction, View};

use super::{
    graph::{Graph, Kind, Node},
    place::Place,
};

/// Most elements of a row, which registers have as a whole.
const LONGEST_ROW: usize = 4096;

/// The matrix that a group computes. Without reductions it has one column.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Shape {
    pub(super) rows: usize,
    pub(super) columns: usize,
}

/// The words of a node's result in the shape of its group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Words {
    Of(Extent),
    /// One for each column, complete after the last row only.
    Columns,
}

/// The shapes of a graph's nodes, by their numbers of elements.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    /// Columns of results that have all elements of a shape.
    elements: HashMap<usize, usize>,
    /// Columns of shapes, by the elements of results that have one element for each row.
    rows: HashMap<usize, usize>,
}

impl Shapes {
    /// Shapes for as many reductions as possible, the largest ones first. Those that remain run on
    /// their own.
    pub(super) fn new(graph: &Graph) -> Self {
        let mut reductions: Vec<_> = graph.nodes.iter().filter_map(matrix).collect();
        reductions.sort_by_key(|&(shape, of_rows)| (!of_rows, usize::MAX - shape.elements()));
        let mut shapes = Shapes::default();
        for (shape, of_rows) in reductions {
            shapes.add(shape, of_rows);
        }
        shapes
    }

    fn add(&mut self, shape: Shape, of_rows: bool) {
        let (elements, Shape { rows, columns }) = (shape.elements(), shape);
        let fits = (2..=LONGEST_ROW).contains(&columns) && !self.rows.contains_key(&elements);
        if !fits || *self.elements.entry(elements).or_insert(columns) != columns {
            return;
        }
        if of_rows && !self.elements.contains_key(&rows) {
            self.rows.entry(rows).or_insert(columns);
        }
    }

    /// The shape of a node that groups can have, and the words of its result.
    pub(super) fn of(&self, graph: &Graph, node: &Node) -> Option<(Shape, Words)> {
        match node.kind {
            Kind::Elementwise(_) => {
                let elements = graph.bases[node.results[0]].ty.elements();
                let (columns, extent) = match self.elements.get(&elements) {
                    Some(&columns) => (columns, Extent::Elements),
                    None => match self.rows.get(&elements) {
                        Some(&columns) => (columns, Extent::Rows),
                        None => (1, Extent::Elements),
                    },
                };
                let rows = match extent {
                    Extent::Elements => elements / columns,
                    Extent::Rows => elements,
                };
                Some((Shape { rows, columns }, Words::Of(extent)))
            }
            Kind::Reduce { .. } => {
                let (shape, of_rows) = matrix(node)?;
                let words = if of_rows {
                    Words::Of(Extent::Rows)
                } else {
                    Words::Columns
                };
                let has_shape = self.elements.get(&shape.elements()) == Some(&shape.columns);
                has_shape.then_some((shape, words))
            }
            _ => None,
        }
    }

    /// Returns whether `node` can read the operand from a register.
    pub(super) fn shares_registers(&self, graph: &Graph, node: &Node, operand: &Place) -> bool {
        let of_source = graph.bases[operand.base].node.map(|it| &graph.nodes[it]);
        let source = of_source.and_then(|source| self.of(graph, source));
        let (Some((shape, from)), Some((own, into))) = (source, self.of(graph, node)) else {
            return false;
        };
        let is_reduction = matches!(node.kind, Kind::Reduce { .. });
        let reads = if is_reduction {
            Words::Of(Extent::Elements)
        } else {
            into
        };
        let is_whole = || {
            operand.view.is_contiguous()
                && operand.elements() == graph.bases[operand.base].ty.elements()
        };
        shape == own
            && match (from, reads) {
                (Words::Of(from), Words::Of(into)) if from == into => is_whole(),
                (Words::Of(Extent::Rows), Words::Of(Extent::Elements)) => {
                    repeats_rows(&operand.view, shape)
                }
                _ => false,
            }
    }
}

impl Shape {
    pub(super) fn elements(self) -> usize {
        self.rows.saturating_mul(self.columns)
    }
}

/// The matrix that a node reduces, and whether the results are of rows. `None` if it is not a
/// reduction of a matrix.
fn matrix(node: &Node) -> Option<(Shape, bool)> {
    let Kind::Reduce {
        sizes:
            Reduction {
                outer,
                reduced,
                inner,
                ..
            },
        ..
    } = node.kind
    else {
        return None;
    };
    let shape = |rows, columns| Shape { rows, columns };
    match (outer, inner) {
        (_, 1) => Some((shape(outer, reduced), true)),
        (1, _) => Some((shape(reduced, inner), false)),
        _ => None,
    }
}

/// Returns whether a view of one value for each row has it for all elements of the row.
fn repeats_rows(view: &View, shape: Shape) -> bool {
    let mut repeated = View::contiguous(&[shape.rows, shape.columns]);
    repeated.dims[0].stride = 1;
    repeated.dims[1].stride = 0;
    *view == repeated || view.collapsed() == repeated.collapsed()
}
