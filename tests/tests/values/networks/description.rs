//! Networks as data: what they are made of, how random ones are drawn, and how a failing one is
//! made smaller.

use serde::{Deserialize, Serialize};

/// A network of blocks, applied one after the other. The loss is a weighted sum over the last
/// result and its squares.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Network {
    /// Seed of its inputs and parameters.
    pub(crate) seed: u64,
    pub(crate) start: Start,
    pub(crate) blocks: Vec<Block>,
}

/// Input of a network.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "start", rename_all = "snake_case")]
pub(crate) enum Start {
    /// Floats of `[batch, .., features]`, which gradients are taken by too.
    Dense { dims: Vec<usize> },
    /// Token ids of `[batch, time]`, embedded to `width` features.
    Tokens {
        batch: usize,
        time: usize,
        vocabulary: usize,
        width: usize,
    },
}

/// One step of a network. Images are `[batch, height, width, features]`, sequences
/// `[batch, time, features]`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "block", rename_all = "snake_case")]
pub(crate) enum Block {
    Conv {
        features: usize,
        window: usize,
        stride: usize,
        same: bool,
    },
    Dense {
        features: usize,
    },
    GroupNorm {
        groups: usize,
    },
    LayerNorm,
    RmsNorm,
    BatchNorm,
    Activation {
        name: String,
    },
    MaxPool {
        window: usize,
        stride: usize,
        same: bool,
    },
    AvgPool {
        window: usize,
        stride: usize,
        same: bool,
    },
    /// `[batch, height, width, features]` to `[batch, height * width, features]`.
    Flatten,
    /// Reduces all dimensions but the first and the last.
    Global {
        kind: Kind,
    },
    /// Subtracts the reduction over a dimension.
    Centre {
        kind: Kind,
        dim: usize,
    },
    Cumulative {
        kind: Kind,
        dim: usize,
    },
    Softmax {
        dim: usize,
    },
    LogSoftmax {
        dim: usize,
    },
    Sort {
        dim: usize,
        descending: bool,
    },
    /// Reorders by keys, which are the input times a parameter per feature.
    SortBy {
        dim: usize,
    },
    TopK {
        count: usize,
        dim: usize,
    },
    Clamp {
        low: f64,
        high: f64,
    },
    /// Clamps to `[-s, s]`, where `s` is a parameter.
    LearnedClamp,
    /// The larger of two dense layers.
    Maxout {
        features: usize,
    },
    /// Times the sigmoid of a dense layer of the mean over space (squeeze and excitation).
    Gate,
    Attention {
        heads: usize,
        causal: bool,
    },
    /// `x + blocks(x)`
    Residual {
        blocks: Vec<Block>,
    },
    /// Computed again in the backward pass; `dots`: but for products.
    Checkpoint {
        dots: bool,
        blocks: Vec<Block>,
    },
    /// The blocks `length` times, with parameters of their own each.
    Scan {
        length: usize,
        blocks: Vec<Block>,
    },
}

/// A reduction.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Sum,
    Mean,
    Max,
    Min,
    LogSumExp,
    /// The value of `arg_reduce`.
    ArgMax,
}

impl Start {
    pub(crate) fn dims(&self) -> Vec<usize> {
        match self {
            Start::Dense { dims } => dims.clone(),
            &Start::Tokens {
                batch, time, width, ..
            } => vec![batch, time, width],
        }
    }
}

impl Block {
    /// Dimensions of the result for an input of `dims`; `None` if the block does not apply to it.
    pub(crate) fn output(&self, dims: &[usize]) -> Option<Vec<usize>> {
        let (rank, last) = (dims.len(), dims.len() - 1);
        let features = dims[last];
        let with = |dim: usize, size: usize| {
            let mut dims = dims.to_vec();
            dims[dim] = size;
            dims
        };
        match self {
            &Block::Conv {
                features,
                window,
                stride,
                same,
            } => windows(&with(last, features), window, stride, same),
            &Block::MaxPool {
                window,
                stride,
                same,
            }
            | &Block::AvgPool {
                window,
                stride,
                same,
            } => windows(dims, window, stride, same),
            &Block::Dense { features } | &Block::Maxout { features } => Some(with(last, features)),
            &Block::GroupNorm { groups } => {
                let space = dims[1..last].iter().product::<usize>();
                let has_several = features.is_multiple_of(groups) && space * features > groups;
                (rank > 2 && has_several).then(|| dims.to_vec())
            }
            Block::BatchNorm => (dims[..last].iter().product::<usize>() > 1).then(|| dims.to_vec()),
            Block::LayerNorm | Block::RmsNorm => (features > 2).then(|| dims.to_vec()),
            Block::Activation { .. } | Block::Clamp { .. } | Block::LearnedClamp | Block::Gate => {
                Some(dims.to_vec())
            }
            Block::Flatten => (rank == 4).then(|| vec![dims[0], dims[1] * dims[2], features]),
            Block::Global { .. } => (rank > 2).then(|| vec![dims[0], features]),
            &Block::Centre { dim, .. }
            | &Block::Cumulative { dim, .. }
            | &Block::Softmax { dim }
            | &Block::LogSoftmax { dim }
            | &Block::Sort { dim, .. }
            | &Block::SortBy { dim } => (dim < rank && dims[dim] > 1).then(|| dims.to_vec()),
            &Block::TopK { count, dim } => {
                (dim < rank && dims[dim] > count).then(|| with(dim, count))
            }
            &Block::Attention { heads, .. } => {
                (rank == 3 && features.is_multiple_of(heads) && dims[1] <= 128)
                    .then(|| dims.to_vec())
            }
            Block::Residual { blocks } | Block::Scan { blocks, .. } => {
                (outputs(blocks, dims)? == dims).then(|| dims.to_vec())
            }
            Block::Checkpoint { blocks, .. } => outputs(blocks, dims),
        }
    }

    fn inner(&self) -> Option<&[Block]> {
        match self {
            Block::Residual { blocks }
            | Block::Checkpoint { blocks, .. }
            | Block::Scan { blocks, .. } => Some(blocks),
            _ => None,
        }
    }

    fn with_inner(&self, blocks: Vec<Block>) -> Block {
        match *self {
            Block::Checkpoint { dots, .. } => Block::Checkpoint { dots, blocks },
            Block::Scan { length, .. } => Block::Scan { length, blocks },
            _ => Block::Residual { blocks },
        }
    }
}

/// Dimensions after a window was moved over images; `None` if it is larger than they are.
fn windows(dims: &[usize], window: usize, stride: usize, same: bool) -> Option<Vec<usize>> {
    let &[batch, height, width, features] = dims else {
        return None;
    };
    let count = |size: usize| match same {
        true => size.div_ceil(stride),
        false => (size - window) / stride + 1,
    };
    (height >= window && width >= window)
        .then(|| vec![batch, count(height), count(width), features])
}

/// Dimensions after all `blocks`; `None` if one does not apply.
pub(crate) fn outputs(blocks: &[Block], dims: &[usize]) -> Option<Vec<usize>> {
    blocks
        .iter()
        .try_fold(dims.to_vec(), |dims, block| block.output(&dims))
}

impl Network {
    /// Whether every block applies to what the ones before give.
    pub(crate) fn fits(&self) -> bool {
        outputs(&self.blocks, &self.start.dims()).is_some()
    }

    /// A network as small as possible that still `fails`, by trying at most `attempts` smaller
    /// ones.
    pub(crate) fn shrink(self, mut attempts: u64, fails: impl Fn(&Network) -> bool) -> Network {
        let mut smallest = self;
        'smaller: loop {
            for blocks in smaller(&smallest.blocks) {
                let network = Network {
                    blocks,
                    ..smallest.clone()
                };
                if !network.fits() {
                    continue;
                }
                if attempts == 0 {
                    return smallest;
                }
                attempts -= 1;
                if fails(&network) {
                    smallest = network;
                    continue 'smaller;
                }
            }
            return smallest;
        }
    }
}

/// Lists with less in them: without one block, or with a container's blocks in its place.
fn smaller(blocks: &[Block]) -> Vec<Vec<Block>> {
    let mut all = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        let replaced = |by: &[Block]| [&blocks[..at], by, &blocks[at + 1..]].concat();
        all.push(replaced(&[]));
        if let Some(inner) = block.inner() {
            all.push(replaced(inner));
            all.extend(
                smaller(inner)
                    .into_iter()
                    .map(|inner| replaced(&[block.with_inner(inner)])),
            );
        }
    }
    all
}

/// The finalizer of SplitMix64. `tests/golden/random_networks.py` has the same.
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
