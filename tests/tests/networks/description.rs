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
        let windows = |window: usize, stride: usize, same: bool, features: usize| {
            let fits = rank == 4 && dims[1] >= window && dims[2] >= window;
            let count = |size: usize| {
                if same {
                    size.div_ceil(stride)
                } else {
                    (size - window) / stride + 1
                }
            };
            fits.then(|| vec![dims[0], count(dims[1]), count(dims[2]), features])
        };
        match self {
            &Block::Conv {
                features,
                window,
                stride,
                same,
            } => windows(window, stride, same, features),
            &Block::MaxPool {
                window,
                stride,
                same,
            }
            | &Block::AvgPool {
                window,
                stride,
                same,
            } => windows(window, stride, same, features),
            &Block::Dense { features } | &Block::Maxout { features } => Some(with(last, features)),
            &Block::GroupNorm { groups } => {
                (rank > 2 && features.is_multiple_of(groups)).then(|| dims.to_vec())
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

/// Dimensions after all `blocks`; `None` if one does not apply.
pub(crate) fn outputs(blocks: &[Block], dims: &[usize]) -> Option<Vec<usize>> {
    blocks
        .iter()
        .try_fold(dims.to_vec(), |dims, block| block.output(&dims))
}

impl Network {
    /// The network of a seed.
    pub(crate) fn draw(seed: u64) -> Network {
        let mut draw = Draw {
            state: mix(seed),
            count: 0,
        };
        let batch = draw.from(&[1, 2, 2, 3]);
        let start = match draw.below(10) {
            0..6 => {
                let (height, width) = (
                    draw.from(&[8, 13, 16, 24, 32]),
                    draw.from(&[8, 14, 20, 28, 40]),
                );
                Start::Dense {
                    dims: vec![batch, height, width, draw.from(&[1, 3, 4, 8])],
                }
            }
            6..8 => Start::Dense {
                dims: vec![
                    batch,
                    draw.from(&[6, 17, 32, 64]),
                    draw.from(&[4, 8, 12, 16]),
                ],
            },
            _ => {
                let (time, vocabulary) = (draw.from(&[5, 16, 32]), draw.from(&[7, 50]));
                Start::Tokens {
                    batch,
                    time,
                    vocabulary,
                    width: draw.from(&[8, 12, 16]),
                }
            }
        };
        let mut blocks = Vec::new();
        let mut dims = start.dims();
        let count = 2 + draw.below(5);
        // Two pooled stages are what a wrong gradient of max_pool once needed.
        if dims.len() == 4 && draw.chance(50) {
            let stages = [draw.pooled_stage(), draw.pooled_stage()].concat();
            if let Some(after) = outputs(&stages, &dims) {
                (dims, blocks) = (after, stages);
            }
        }
        while blocks.len() < count {
            for block in draw.part(&dims) {
                if let Some(after) = block
                    .output(&dims)
                    .filter(|dims| dims.iter().product::<usize>() <= 60_000)
                {
                    dims = after;
                    blocks.push(block);
                }
            }
        }
        Network {
            seed,
            start,
            blocks,
        }
    }

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

/// Draws small numbers by counter.
struct Draw {
    state: u64,
    count: u64,
}

/// The finalizer of SplitMix64. `tests/golden/random_networks.py` has the same.
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Draw {
    fn below(&mut self, limit: usize) -> usize {
        self.count += 1;
        (mix(self.state ^ self.count) % limit as u64) as usize
    }

    fn from<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// A few blocks for an input of `dims`. Some may not apply to it.
    fn part(&mut self, dims: &[usize]) -> Vec<Block> {
        match self.below(10) {
            4 if dims.len() == 4 && dims[1] * dims[2] <= 128 => vec![Block::Flatten],
            0..5 if dims.len() == 4 => self.stage(),
            0..2 => vec![Block::Residual {
                blocks: self.same_size(dims, 2),
            }],
            2 => {
                let (dots, count) = (self.chance(40), 1 + self.below(3));
                vec![Block::Checkpoint {
                    dots,
                    blocks: self.same_size(dims, count),
                }]
            }
            3 => {
                let (length, count) = (2 + self.below(3), 1 + self.below(3));
                vec![Block::Scan {
                    length,
                    blocks: self.same_size(dims, count),
                }]
            }
            4 => vec![Block::Global {
                kind: self.from(&[Kind::Mean, Kind::Max, Kind::Min, Kind::LogSumExp]),
            }],
            _ => vec![self.block(dims, true)],
        }
    }

    /// Convolution, norm, activation and pool, each of the last three in most cases.
    fn stage(&mut self) -> Vec<Block> {
        let features = self.from(&[4, 8, 12, 16]);
        let mut blocks = vec![Block::Conv {
            features,
            window: self.from(&[1, 2, 3, 3, 3, 5]),
            stride: self.from(&[1, 1, 1, 2]),
            same: self.chance(70),
        }];
        if self.chance(75) {
            blocks.push(self.norm(features));
        }
        if self.chance(80) {
            blocks.push(self.activation());
        }
        if self.chance(65) {
            blocks.push(self.pool());
        }
        blocks
    }

    /// Convolution, group norm, activation and max pool.
    fn pooled_stage(&mut self) -> Vec<Block> {
        vec![
            Block::Conv {
                features: self.from(&[8, 16]),
                window: 3,
                stride: 1,
                same: true,
            },
            Block::GroupNorm {
                groups: self.from(&[1, 2, 4]),
            },
            Block::Activation {
                name: self.from(&["relu", "gelu"]).to_owned(),
            },
            Block::MaxPool {
                window: 2,
                stride: 2,
                same: false,
            },
        ]
    }

    /// Blocks that leave `dims` as they are, for the bodies of containers.
    fn same_size(&mut self, dims: &[usize], count: usize) -> Vec<Block> {
        let mut blocks = Vec::new();
        while blocks.len() < count {
            let block = self.block(dims, false);
            if block.output(dims).as_deref() == Some(dims) {
                blocks.push(block);
            }
        }
        blocks
    }

    fn norm(&mut self, features: usize) -> Block {
        match self.below(6) {
            0..3 => Block::GroupNorm {
                groups: self.from(&[1, 2, 4]).min(features),
            },
            3 => Block::LayerNorm,
            4 => Block::RmsNorm,
            _ => Block::BatchNorm,
        }
    }

    fn activation(&mut self) -> Block {
        let names = [
            "relu",
            "relu",
            "relu",
            "gelu",
            "gelu",
            "silu",
            "tanh",
            "sigmoid",
            "softplus",
            "relu6",
            "leaky_relu",
            "elu",
            "gelu_tanh",
            "hard_swish",
            "abs",
            "square",
        ];
        Block::Activation {
            name: self.from(&names).to_owned(),
        }
    }

    fn pool(&mut self) -> Block {
        let (window, stride) = self.from(&[(2, 2), (2, 2), (2, 2), (3, 2), (3, 3), (3, 1), (2, 1)]);
        let same = self.chance(30);
        match self.below(4) {
            0 => Block::AvgPool {
                window,
                stride,
                same,
            },
            _ => Block::MaxPool {
                window,
                stride,
                same,
            },
        }
    }

    /// Any block; `outside`: of a container.
    fn block(&mut self, dims: &[usize], outside: bool) -> Block {
        let features = dims[dims.len() - 1];
        let dim = 1 + self.below(dims.len() - 1);
        let kinds = [
            Kind::Mean,
            Kind::Max,
            Kind::Max,
            Kind::Min,
            Kind::LogSumExp,
            Kind::ArgMax,
        ];
        match self.below(22) {
            0 if dims.len() == 4 => Block::Conv {
                features,
                window: self.from(&[1, 3]),
                stride: 1,
                same: true,
            },
            1 if dims.len() == 4 => Block::MaxPool {
                window: self.from(&[2, 3]),
                stride: 1,
                same: true,
            },
            2 if outside => self.pool(),
            3 => {
                let features = if outside {
                    self.from(&[4, 8, 10, 16])
                } else {
                    features
                };
                Block::Dense { features }
            }
            4 => {
                let features = if outside {
                    self.from(&[4, 8, 10, 16])
                } else {
                    features
                };
                Block::Maxout { features }
            }
            5 | 6 => match self.norm(features) {
                Block::BatchNorm if !outside => Block::LayerNorm,
                norm => norm,
            },
            7..10 => self.activation(),
            10 => Block::Centre {
                kind: self.from(&kinds),
                dim,
            },
            11 => Block::Centre {
                kind: Kind::Max,
                dim,
            },
            12 => Block::Cumulative {
                kind: self.from(&[Kind::Max, Kind::Min, Kind::LogSumExp, Kind::Sum]),
                dim,
            },
            13 => Block::Softmax { dim },
            14 => Block::LogSoftmax { dim },
            15 => Block::Sort {
                dim,
                descending: self.chance(50),
            },
            16 => Block::SortBy { dim },
            17 if outside => Block::TopK {
                count: self.from(&[1, 2, 3, 5]),
                dim,
            },
            18 => {
                let high = self.from(&[0.5, 1.0, 2.0]);
                Block::Clamp {
                    low: self.from(&[-1.0, -0.5, 0.0]),
                    high,
                }
            }
            19 => Block::LearnedClamp,
            20 => Block::Attention {
                heads: self.from(&[1, 2, 4]),
                causal: self.chance(50),
            },
            _ => Block::Gate,
        }
    }
}
