//! Random networks. A seed of a found bug stays valid only as long as the draws keep their order.

use crate::networks::description::{Block, Kind, Network, Start, mix, outputs};

impl Network {
    /// The network of a seed.
    pub(crate) fn draw(seed: u64) -> Network {
        let mut draw = Draw {
            state: mix(seed),
            count: 0,
        };
        let batch = draw.from(&[1, 2, 2, 3]);
        let start = draw.start(batch);
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
}

/// Draws small numbers by counter.
struct Draw {
    state: u64,
    count: u64,
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

    fn start(&mut self, batch: usize) -> Start {
        match self.below(10) {
            0..6 => {
                let (height, width) = (
                    self.from(&[8, 13, 16, 24, 32]),
                    self.from(&[8, 14, 20, 28, 40]),
                );
                Start::Dense {
                    dims: vec![batch, height, width, self.from(&[1, 3, 4, 8])],
                }
            }
            6..8 => Start::Dense {
                dims: vec![
                    batch,
                    self.from(&[6, 17, 32, 64]),
                    self.from(&[4, 8, 12, 16]),
                ],
            },
            _ => {
                let (time, vocabulary) = (self.from(&[5, 16, 32]), self.from(&[7, 50]));
                Start::Tokens {
                    batch,
                    time,
                    vocabulary,
                    width: self.from(&[8, 12, 16]),
                }
            }
        }
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
            choice @ (3 | 4) => {
                let features = match outside {
                    true => self.from(&[4, 8, 10, 16]),
                    false => features,
                };
                match choice {
                    3 => Block::Dense { features },
                    _ => Block::Maxout { features },
                }
            }
            5 | 6 => match self.norm(features) {
                Block::BatchNorm if !outside => Block::LayerNorm,
                norm => norm,
            },
            7..10 => self.activation(),
            choice @ 10..17 => self.along(dim, choice),
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

    /// A block that works along one dimension and preserves its size.
    fn along(&mut self, dim: usize, choice: usize) -> Block {
        match choice {
            10 => Block::Centre {
                kind: self.from(&[
                    Kind::Mean,
                    Kind::Max,
                    Kind::Max,
                    Kind::Min,
                    Kind::LogSumExp,
                    Kind::ArgMax,
                ]),
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
            _ => Block::SortBy { dim },
        }
    }
}
