//! Shapes of convolutions in published networks.

use halite::nn::{ConvOptions, Padding};

/// A convolution of sequences, of square images or of cubes.
#[derive(Clone, Debug, PartialEq)]
pub struct ConvShape {
    /// Network, or kind of networks, that has it.
    pub network: &'static str,
    /// Spatial dimensions: 1, 2 or 3.
    pub dims: usize,
    /// Number of images.
    pub batch: usize,
    /// Size of an image along each dimension.
    pub size: usize,
    /// Input features.
    pub features: usize,
    /// Output features.
    pub outputs: usize,
    /// Groups of features.
    pub groups: usize,
    /// Size of the kernel along each dimension.
    pub kernel: usize,
    /// Distance of windows.
    pub stride: usize,
    /// Distance of elements of a window.
    pub dilation: usize,
    /// Distance of elements of the input.
    pub input_dilation: usize,
    /// Zeros before and after the dilated input.
    pub padding: usize,
}

/// Most multiplications of a drawn shape.
const MOST_WORK: f64 = 1.5e8;

/// Numbers that depend on a seed.
struct Random(u64);

impl Random {
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        const FACTOR: u64 = 6_364_136_223_846_793_005;
        self.0 = self
            .0
            .wrapping_mul(FACTOR)
            .wrapping_add(1_442_695_040_888_963_407);
        of[(self.0 >> 33) as usize % of.len()]
    }
}

impl ConvShape {
    /// Draws `count` shapes.
    pub fn draw(count: usize, seed: u64) -> Vec<Self> {
        let mut random = Random(seed);
        (0..3).for_each(|_| {
            random.pick(&[()]);
        });
        (0..count).map(|_| Self::draw_one(&mut random)).collect()
    }

    /// Shapes of V-Nets and other networks of volumes, whose levels halve the size and double the
    /// width.
    pub fn volumes() -> Vec<Self> {
        let volume = |size, features, outputs, kernel, stride| ConvShape {
            dims: 3,
            ..Self::same([size, features, outputs], kernel, stride)
        };
        let mut all = vec![
            volume(32, 1, 8, 3, 1),
            volume(32, 1, 16, 5, 1),
            volume(32, 8, 2, 1, 1),
            volume(24, 3, 16, 7, 2),
        ];
        for level in 0..3 {
            let (size, width) = (24 >> level, 8 << level);
            let down = volume(size, width, 2 * width, 2, 2);
            all.extend([
                volume(size, width, width, 3, 1),
                volume(size, 2 * width, width, 3, 1),
                volume(size, width, width, 1, 1),
                volume(size, width, width, 5, 1),
                volume(size, width, 2 * width, 3, 2),
                ConvShape { padding: 0, ..down },
                ConvShape {
                    input_dilation: 2,
                    padding: 1,
                    ..volume(size / 2, 2 * width, width, 2, 1)
                },
            ]);
        }
        all.extend([
            volume(12, 32, 0, 3, 1).depthwise(),
            volume(6, 64, 64, 3, 1),
            ConvShape {
                dilation: 2,
                padding: 2,
                ..volume(16, 16, 16, 3, 1)
            },
        ]);
        all.into_iter().map(|shape| shape.of("V-Net")).collect()
    }

    fn draw_one(random: &mut Random) -> Self {
        let draw = random.pick(&[
            resnet,
            resnet,
            resnext,
            mobilenet,
            mobilenet,
            efficientnet,
            efficientnet,
            convnext,
            convnext,
            unet,
            unet,
            decoder,
            decoder,
            wavenet,
        ]);
        let mut shape = draw(random);
        shape.batch = random.pick(&[1, 4, 8, 16, 32]);
        while shape.batch > 1 && shape.multiplications() > MOST_WORK {
            shape.batch /= 2;
        }
        shape
    }

    /// A square convolution whose result has the size of the input over the stride.
    fn same([size, features, outputs]: [usize; 3], kernel: usize, stride: usize) -> Self {
        ConvShape {
            network: "",
            dims: 2,
            batch: 1,
            size,
            features,
            outputs,
            groups: 1,
            kernel,
            stride,
            dilation: 1,
            input_dilation: 1,
            padding: kernel / 2,
        }
    }

    fn of(self, network: &'static str) -> Self {
        ConvShape { network, ..self }
    }

    fn depthwise(self) -> Self {
        ConvShape {
            groups: self.features,
            outputs: self.features,
            ..self
        }
    }

    /// Size of the result along each dimension.
    pub fn result(&self) -> usize {
        let extent = (self.kernel - 1) * self.dilation + 1;
        let input = (self.size - 1) * self.input_dilation + 1 + 2 * self.padding;
        input.saturating_sub(extent) / self.stride + 1
    }

    /// Multiplications of one pass, without those with zeros between elements.
    pub fn multiplications(&self) -> f64 {
        let dims = self.dims as i32;
        let taps = (self.kernel as f64 / self.input_dilation as f64)
            .max(1.0)
            .powi(dims);
        let positions = (self.result() as f64).powi(dims) * self.batch as f64;
        positions * taps * (self.features / self.groups * self.outputs) as f64
    }

    /// Dimensions of input, kernel and result.
    pub fn tensors(&self) -> [Vec<usize>; 3] {
        let spatial = |size: usize| vec![size; self.dims];
        let image = |size: usize, features: usize| {
            [&[self.batch], &spatial(size)[..], &[features]].concat()
        };
        let kernel = [
            &spatial(self.kernel)[..],
            &[self.features / self.groups, self.outputs],
        ];
        [
            image(self.size, self.features),
            kernel.concat(),
            image(self.result(), self.outputs),
        ]
    }

    /// Options of the convolution.
    pub fn options(&self) -> ConvOptions {
        let padding = (self.padding as i64, self.padding as i64);
        ConvOptions {
            strides: vec![self.stride; self.dims],
            padding: Padding::Explicit(vec![padding; self.dims]),
            input_dilation: vec![self.input_dilation; self.dims],
            kernel_dilation: vec![self.dilation; self.dims],
            groups: self.groups,
        }
    }
}

impl std::fmt::Display for ConvShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ConvShape {
            network,
            batch,
            features,
            outputs,
            kernel,
            ..
        } = self;
        let sizes = vec![self.size.to_string(); self.dims].join("x");
        write!(
            f,
            "{network} {batch}x{sizes} {features}-{outputs} k{kernel}"
        )?;
        let rest = [
            ("s", self.stride),
            ("d", self.dilation),
            ("t", self.input_dilation),
            ("g", self.groups),
        ];
        rest.iter()
            .filter(|(_, value)| *value != 1)
            .try_for_each(|(name, value)| write!(f, " {name}{value}"))
    }
}

fn resnet(random: &mut Random) -> ConvShape {
    let stage = random.pick(&[0, 1, 2, 3]);
    let (width, size) = (64 << stage, random.pick(&[56, 32]) >> stage);
    let shape = match random.pick(&[0, 0, 1, 2, 3, 4, 5]) {
        0 => ConvShape::same([size, width, width], 3, 1),
        1 => ConvShape::same([size, width, 4 * width], 1, 1),
        2 => ConvShape::same([size, 4 * width, width], 1, 1),
        3 => ConvShape::same([2 * size, width / 2, width], 3, 2),
        4 => ConvShape::same([2 * size, width / 2, width], 1, 2),
        _ => ConvShape::same([random.pick(&[64, 112]), 3, 64], 7, 2),
    };
    shape.of("ResNet")
}

fn resnext(random: &mut Random) -> ConvShape {
    let stage = random.pick(&[0, 1, 2]);
    let shape = ConvShape::same(
        [56 >> stage, 128 << stage, 128 << stage],
        3,
        random.pick(&[1, 1, 2]),
    );
    ConvShape {
        groups: 32,
        ..shape
    }
    .of("ResNeXt")
}

fn mobilenet(random: &mut Random) -> ConvShape {
    let blocks = [
        [112, 16, 24],
        [56, 24, 32],
        [28, 32, 64],
        [14, 64, 96],
        [14, 96, 160],
        [7, 160, 320],
    ];
    let [size, width, next] = random.pick(&blocks);
    let shape = match random.pick(&[0, 0, 1, 2, 3]) {
        0 => ConvShape::same([size, 6 * width, 0], 3, random.pick(&[1, 1, 2])).depthwise(),
        1 => ConvShape::same([size, width, 6 * width], 1, 1),
        2 => ConvShape::same([size, 6 * width, next], 1, 1),
        _ => ConvShape::same([random.pick(&[64, 112, 224]), 3, 32], 3, 2),
    };
    shape.of("MobileNet")
}

fn efficientnet(random: &mut Random) -> ConvShape {
    let blocks = [
        [112, 16, 3],
        [56, 24, 5],
        [28, 40, 3],
        [14, 80, 5],
        [14, 112, 5],
        [7, 192, 3],
    ];
    let [size, width, kernel] = random.pick(&blocks);
    let shape = match random.pick(&[0, 0, 1, 2, 3]) {
        0 => ConvShape::same([size, 6 * width, 0], kernel, random.pick(&[1, 2])).depthwise(),
        1 => ConvShape::same([size, width, 6 * width], 1, 1),
        2 => ConvShape::same([size, 6 * width, width], 1, 1),
        _ => ConvShape::same([1, 6 * width, (width / 4).max(4)], 1, 1),
    };
    shape.of("EfficientNet")
}

fn convnext(random: &mut Random) -> ConvShape {
    let stage = random.pick(&[0, 1, 2, 3]);
    let width = random.pick(&[32, 96]) << stage;
    let size = random.pick(&[56, 32]) >> stage;
    let patches = |size: usize, inputs: usize, kernel: usize| ConvShape {
        padding: 0,
        ..ConvShape::same([size, inputs, width], kernel, kernel)
    };
    let shape = match random.pick(&[0, 0, 1, 2]) {
        0 => ConvShape::same([size, width, 0], 7, 1).depthwise(),
        1 if stage == 0 => patches(4 * size, 3, 4),
        1 => patches(2 * size, width / 2, 2),
        _ => ConvShape::same([size, width, 4 * width], 1, 1),
    };
    shape.of("ConvNeXt")
}

fn unet(random: &mut Random) -> ConvShape {
    let level = random.pick(&[0, 1, 2]);
    let (width, size) = (
        random.pick(&[16, 32, 64]) << level,
        random.pick(&[64, 128]) >> level,
    );
    let shape = match random.pick(&[0, 1, 2, 3, 4]) {
        0 => ConvShape::same([size, width, width], 3, 1),
        1 => ConvShape::same([size, 2 * width, width], 3, 1),
        // A transposed convolution of windows that do not overlap.
        2 => ConvShape {
            input_dilation: 2,
            padding: 1,
            ..ConvShape::same([size / 2, 2 * width, width], 2, 1)
        },
        3 => ConvShape::same([size, random.pick(&[1, 3]), width], 3, 1),
        _ => ConvShape::same([size, width, random.pick(&[1, 2, 21])], 1, 1),
    };
    shape.of("U-Net")
}

/// Decoders of variational autoencoders, and generators and discriminators of GANs.
fn decoder(random: &mut Random) -> ConvShape {
    let level = random.pick(&[0, 1, 2, 3]);
    let (width, size) = (
        random.pick(&[32, 64]) << level,
        random.pick(&[64, 56]) >> level,
    );
    let transposed = |outputs: usize| ConvShape {
        input_dilation: 2,
        padding: 2,
        ..ConvShape::same([size / 2, width, outputs], 4, 1)
    };
    let shape = match random.pick(&[0, 0, 1, 2, 3]) {
        0 => transposed(width / 2),
        1 => transposed(random.pick(&[1, 3])),
        2 => ConvShape {
            padding: 1,
            ..ConvShape::same([size, width / 2, width], 4, 2)
        },
        _ => ConvShape::same([size, width, random.pick(&[1, 3])], 3, 1),
    };
    shape.of("decoder")
}

fn wavenet(random: &mut Random) -> ConvShape {
    let width = random.pick(&[32, 64, 128]);
    let dilation = random.pick(&[1, 2, 8, 64, 256]);
    let size = random.pick(&[2048, 4096]);
    let shape = match random.pick(&[0, 0, 1]) {
        0 => {
            let kernel = random.pick(&[2, 3]);
            ConvShape {
                dilation,
                padding: if kernel == 3 { dilation } else { 0 },
                ..ConvShape::same([size, width, random.pick(&[1, 2]) * width], kernel, 1)
            }
        }
        _ => ConvShape::same([size, width, width], 1, 1),
    };
    ConvShape { dims: 1, ..shape }.of("WaveNet")
}
