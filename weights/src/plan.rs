//! The tensors of a file that a model needs, and how each is copied.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use halite_core::{Error, ErrorKind, Result, TensorType, tree::Tree};
use halite_nn::{Param, Pattern};

use crate::{
    NameMap, TensorInfo, TensorSource,
    convert::converts,
    layout::View,
    names::Part,
    problems::Problems,
    report::{Mismatch, Report},
    strides::Axis,
};

/// A parameter of a model.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    pub(crate) path: String,
    pub(crate) ty: TensorType,
    /// Whether the first dimension counts layers, each of which is a tensor in the file.
    by_layer: bool,
    /// Tensors of the file: their positions in the plan, by layer.
    pub(crate) pieces: Vec<Piece>,
}

/// A parameter, or a layer of it, as a part of a tensor in the file.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// Position of the tensor in the plan.
    pub(crate) original: usize,
    view: View,
    part: Option<Part>,
}

/// A tensor of the file.
#[derive(Clone, Debug)]
pub(crate) struct Original {
    pub(crate) info: TensorInfo,
    /// Parameters and layers that are parts of it, in order.
    pub(crate) parts: Vec<(usize, usize)>,
}

/// A copy between a tensor of the file and a part of a parameter.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) original: usize,
    /// First element in the tensor of the file.
    pub(crate) base: usize,
    pub(crate) axes: Vec<Axis>,
    /// First element in the part of the parameter.
    pub(crate) start: usize,
}

/// All tensors of the file that a model needs.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) leaves: Vec<Leaf>,
    pub(crate) originals: Vec<Original>,
    /// Rules of the map that no parameter matches.
    unused_rules: Vec<String>,
}

impl Plan {
    /// The plan for a model.
    ///
    /// # Errors
    /// All parameters that the map does not fit.
    pub(crate) fn new<M: Tree<Leaf = Param>>(map: &NameMap, model: &M) -> Result<Self> {
        map.check()?;
        let mut problems = Problems::default();
        let (mut leaves, mut originals) = (Vec::new(), Vec::new());
        let mut by_name: HashMap<String, usize> = HashMap::new();
        for (path, param) in model.named() {
            let number = leaves.len();
            match leaf(map, path, param, number, &mut originals, &mut by_name) {
                Ok(leaf) => leaves.push(leaf),
                Err(error) => problems.push(error.message()),
            }
        }
        problems.into_result(ErrorKind::InvalidArgument, "name map")?;
        let paths: Vec<&str> = leaves.iter().map(|leaf: &Leaf| &*leaf.path).collect();
        let unused_rules = map.unused_rules(&paths);
        let mut plan = Plan {
            leaves,
            originals,
            unused_rules,
        };
        plan.join_parts()?;
        Ok(plan)
    }

    /// Sorts the parts of each tensor, and sets its dimensions.
    fn join_parts(&mut self) -> Result<()> {
        let mut problems = Problems::default();
        for number in 0..self.originals.len() {
            let mut parts = self.originals[number].parts.clone();
            parts.sort_by_key(|&(leaf, layer)| self.part_of(leaf, layer).map(|part| part.number));
            let paths = || {
                let path = |&(leaf, _): &(usize, usize)| format!("`{}`", self.leaves[leaf].path);
                parts.iter().map(path).collect::<Vec<_>>().join(", ")
            };
            let name = self.originals[number].info.name.clone();
            let numbers = parts.iter().map(|&(leaf, layer)| self.part_of(leaf, layer));
            let wanted = match self.part_of(parts[0].0, parts[0].1) {
                None => vec![None],
                Some(first) => (0..first.count)
                    .map(|number| Some(Part { number, ..first }))
                    .collect(),
            };
            if !numbers.eq(wanted.iter().copied()) {
                problems.push(match wanted.len() {
                    1 if wanted[0].is_none() => format!(
                        "`{name}` is the name of {}; use `fuse` if they are parts of one tensor",
                        paths()
                    ),
                    count => format!("`{name}` is {}; it has {count} parts", paths()),
                });
                continue;
            }
            let axis = wanted[0].map(|part| part.axis);
            match self.joined(&parts, axis) {
                Some(ty) => {
                    self.originals[number] = Original {
                        info: TensorInfo { name, ty },
                        parts,
                    }
                }
                None => problems.push(format!(
                    "`{name}` is {} along dimension {}, whose types differ or lack it",
                    paths(),
                    axis.unwrap_or(0)
                )),
            }
        }
        problems.into_result(ErrorKind::InvalidArgument, "name map")
    }

    fn part_of(&self, leaf: usize, layer: usize) -> Option<Part> {
        self.leaves[leaf].pieces[layer].part
    }

    /// The type of a tensor of these parts.
    fn joined(&self, parts: &[(usize, usize)], axis: Option<usize>) -> Option<TensorType> {
        let (first, layer) = parts[0];
        let dtype = self.leaves[first].ty.dtype();
        let mut dims = self.leaves[first].pieces[layer].view.dims();
        let is_part = axis.is_some();
        let axis = axis_of(axis, dims.len());
        if is_part && axis >= dims.len() {
            return None;
        }
        for &(leaf, layer) in &parts[1..] {
            let leaf = &self.leaves[leaf];
            let mut other = leaf.pieces[layer].view.dims();
            if other.len() != dims.len() || leaf.ty.dtype() != dtype {
                return None;
            }
            let size = other.get(axis).copied()?;
            other[axis] = dims[axis];
            if other != dims {
                return None;
            }
            dims[axis] += size;
        }
        Some(TensorType::new(dtype, dims))
    }

    /// Compares with the tensors of `source`: what is wrong, and which it is for each of the plan's
    /// tensors. Parameters that match `replaced` are wanted from nowhere.
    pub(crate) fn compare(
        &self,
        source: &dyn TensorSource,
        map: &NameMap,
        replaced: &[Pattern],
    ) -> (Report, Vec<Option<usize>>) {
        let tensors = source.tensors();
        let by_name: BTreeMap<&str, usize> = (tensors.iter().enumerate())
            .map(|(index, tensor)| (&*tensor.name, index))
            .collect();
        let mut report = Report {
            origin: source.origin(),
            unused_rules: self.unused_rules.clone(),
            ..Report::default()
        };
        let mut found = Vec::with_capacity(self.originals.len());
        let mut known = vec![false; tensors.len()];
        for Original { info, parts } in &self.originals {
            let older = || {
                map.older_names(&info.name)
                    .find_map(|name| by_name.get(&*name))
            };
            let index = by_name.get(&*info.name).or_else(older).copied();
            index.into_iter().for_each(|index| known[index] = true);
            let ty = index.map(|index| tensors[index].ty.clone());
            let paths = parts
                .iter()
                .map(|&(leaf, _)| self.leaves[leaf].path.clone());
            // Parts of a fused tensor are replaced one by one.
            let (replaced, wanted): (Vec<String>, Vec<String>) =
                paths.partition(|path| replaced.iter().any(|pattern| pattern.matches(path)));
            let mismatch = |paths| Mismatch {
                paths,
                name: info.name.clone(),
                expected: info.ty.clone(),
                found: ty.clone(),
            };
            if !replaced.is_empty() {
                report.replaced.push(mismatch(replaced));
            }
            let list = match &ty {
                _ if wanted.is_empty() => {
                    found.push(None);
                    continue;
                }
                None => &mut report.missing,
                Some(ty) if ty.dims() != info.ty.dims() => &mut report.shape_mismatches,
                Some(ty) if !converts(ty.dtype(), info.ty.dtype()) => &mut report.dtype_mismatches,
                Some(_) => {
                    found.push(index);
                    continue;
                }
            };
            found.push(None);
            list.push(mismatch(wanted));
        }
        let unexpected = tensors
            .iter()
            .zip(known)
            .filter(|(tensor, known)| !known && !map.ignores(&tensor.name));
        report.unexpected = unexpected.map(|(tensor, _)| tensor.clone()).collect();
        (report, found)
    }

    /// The copies of the part `ranges` of a parameter.
    pub(crate) fn copies(&self, leaf: usize, ranges: &[Range<usize>]) -> Result<Vec<Copy>> {
        let leaf_info = &self.leaves[leaf];
        let (layers, ranges) = match ranges.split_first() {
            Some((layers, ranges)) if leaf_info.by_layer => (layers.clone(), ranges),
            _ => (0..1, ranges),
        };
        let size: usize = ranges.iter().map(Range::len).product();
        let copy = |layer: usize| {
            let piece = &leaf_info.pieces[layer];
            let original = &self.originals[piece.original];
            let dims = original.info.ty.dims();
            let (mut base, axes) = piece.view.axes(dims, ranges)?;
            if let Some(part) = piece.part {
                let axis = axis_of(Some(part.axis), dims.len());
                let before = original.parts.iter().take(part.number);
                let before =
                    before.map(|&(leaf, layer)| self.leaves[leaf].pieces[layer].view.dims()[axis]);
                base += before.sum::<usize>() * dims[axis + 1..].iter().product::<usize>();
            }
            let start = (layer - layers.start) * size;
            Ok(Copy {
                original: piece.original,
                base,
                axes,
                start,
            })
        };
        layers.clone().map(copy).collect()
    }
}

/// The dimension along which parts follow each other: of a vector, the only one.
fn axis_of(axis: Option<usize>, rank: usize) -> usize {
    if rank == 1 { 0 } else { axis.unwrap_or(0) }
}

/// A parameter with its tensors, which are added to `originals`.
fn leaf(
    map: &NameMap,
    path: String,
    param: &Param,
    number: usize,
    originals: &mut Vec<Original>,
    by_name: &mut HashMap<String, usize>,
) -> Result<Leaf> {
    let layer_type = param.layer_type();
    let named = map.named(&path, param)?;
    let (layers, dims) = if named.by_layer {
        (param.ty.dims()[0], layer_type.dims())
    } else {
        (1, param.ty.dims())
    };
    let view = named
        .layout
        .view(dims)
        .map_err(|error| Error::invalid("name map", format!("`{path}`: {}", error.message())))?;
    let mut pieces = Vec::with_capacity(layers);
    for layer in 0..layers {
        let name = named.name(layer)?;
        let original = *by_name.entry(name).or_insert_with_key(|name| {
            let info = TensorInfo {
                name: name.clone(),
                ty: param.ty.with_dims(view.dims()),
            };
            originals.push(Original {
                info,
                parts: Vec::new(),
            });
            originals.len() - 1
        });
        originals[original].parts.push((number, layer));
        let (view, part) = (view.clone(), named.part);
        pieces.push(Piece {
            original,
            view,
            part,
        });
    }
    Ok(Leaf {
        path,
        ty: param.ty.clone(),
        by_layer: named.by_layer,
        pieces,
    })
}
