//! Random numbers of many leaves, drawn by one loop. A compiler takes as long for the generator as for
//! a layer of the step, so that one for each leaf would take longer than the rest of a program.

use std::collections::HashMap;

use halite_core::{
    DType,
    tree::{Empty, Leaf},
};
use halite_ir::{Literal, Op};

use crate::{Param, Tensor, rng, special::wide};

/// Elements that one iteration draws: small leaves waste few, and large ones need few iterations.
const PART: usize = 4096;
/// Most elements of a leaf that is drawn here. A larger one is worth its own program: all of it at
/// once, and on a mesh each device its own shard.
const LARGEST: usize = 1 << 20;
/// Most parts of a loop, whose elements stay in memory until they are cut up.
const MOST_PARTS: usize = 4096;

/// The leaves of one loop, as positions with numbers of parts.
type Group = Vec<(usize, usize)>;

/// Uniform numbers in `[0, 1)` for the leaves that share a loop; `None` for all others. Leaves are
/// given with the hashes of their paths.
#[track_caller]
pub(super) fn draw<'t>(key: Tensor<'t>, leaves: &[(u64, &Param)]) -> Vec<Option<Tensor<'t>>> {
    let mut draws = vec![None; leaves.len()];
    for (dtype, group) in groups(leaves) {
        let parts = draw_parts(key, dtype, leaves, &group);
        let mut first = 0;
        for (leaf, count) in group {
            draws[leaf] = Some(cut(parts, first, count, leaves[leaf].1));
            first += count;
        }
    }
    draws
}

/// The loops, in the order of their first leaves, each of two leaves or more.
fn groups(leaves: &[(u64, &Param)]) -> Vec<(DType, Group)> {
    let mut groups: Vec<(DType, Group)> = Vec::new();
    let mut open: HashMap<DType, usize> = HashMap::new();
    for (index, (_, param)) in leaves.iter().enumerate() {
        let (dtype, dims) = (param.ty.dtype(), param.ty.dims());
        let elements = dims
            .iter()
            .try_fold(1, |all: usize, &size| all.checked_mul(size));
        let is_small = elements.is_some_and(|elements| (1..=LARGEST).contains(&elements));
        if !param.init.is_random() || param.stacked > 0 || !dtype.is_float() || !is_small {
            continue;
        }
        let kind = wide(dtype);
        let count = param.ty.elements().div_ceil(PART);
        let parts = |group: &Group| group.iter().map(|(_, parts)| parts).sum::<usize>();
        match open.get(&kind) {
            Some(&at) if parts(&groups[at].1) + count <= MOST_PARTS => {
                groups[at].1.push((index, count));
            }
            _ => {
                open.insert(kind, groups.len());
                groups.push((kind, vec![(index, count)]));
            }
        }
    }
    groups.retain(|(_, group)| group.len() > 1);
    groups
}

/// The parts of all leaves of a group: `[parts, PART]`.
#[track_caller]
fn draw_parts<'t>(
    key: Tensor<'t>,
    dtype: DType,
    leaves: &[(u64, &Param)],
    group: &Group,
) -> Tensor<'t> {
    let cx = key.trace();
    let (mut hashes, mut starts) = (Vec::new(), Vec::new());
    for &(leaf, count) in group {
        hashes.extend(std::iter::repeat_n(leaves[leaf].0, count));
        starts.extend((0..count).map(|part| (part * PART) as u32));
    }
    let keys = rng::fold_in_many(key, &hashes);
    let starts = Literal::new(&starts, [starts.len()]).expect("one start for each part");
    let (_, Leaf(parts)) = cx.scan(
        Empty::new(),
        [Leaf(keys), Leaf(cx.literal(starts))],
        |nothing: Empty<Tensor<'t>>, [Leaf(key), Leaf(start)]| {
            (nothing, Leaf(rng::unit_part(key, start, PART, dtype)))
        },
    );
    parts
}

/// The elements of the leaf whose parts begin at `first`, with its dimensions.
#[track_caller]
fn cut<'t>(parts: Tensor<'t>, first: usize, count: usize, param: &Param) -> Tensor<'t> {
    let slice = |of: Tensor<'t>, starts: Vec<usize>, limits: Vec<usize>| {
        let strides = vec![1; starts.len()];
        let op = Op::Slice {
            starts,
            limits,
            strides,
        };
        of.trace().push_one(op, &[of])
    };
    let own = slice(parts, vec![first, 0], vec![first + count, PART]).reshape([count * PART]);
    slice(own, vec![0], vec![param.ty.elements()]).reshape(param.ty.dims())
}
