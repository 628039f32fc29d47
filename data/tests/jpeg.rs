//! JPEG files of every sampling and order of scans, which common encoders do not write.

use halite_data::images::decode_image;

/// Height and width, of which neither is a multiple of a block.
const HEIGHT: usize = 45;
const WIDTH: usize = 67;

/// Sampling factors of luma and the chroma components: horizontal, vertical.
type Factors = [[usize; 2]; 3];

/// A baseline file whose blocks have one value each: no coefficients but those of averages.
struct File {
    factors: Factors,
    largest: [usize; 2],
}

impl File {
    fn new(factors: Factors) -> Self {
        let largest = [0, 1].map(|axis| factors.map(|of| of[axis]).into_iter().max().unwrap());
        File { factors, largest }
    }

    fn has_middle_factor(&self) -> bool {
        let is_middle =
            |of: &[usize; 2]| (0..2).any(|axis| of[axis] > 1 && of[axis] < self.largest[axis]);
        self.factors.iter().any(is_middle)
    }

    /// Value of a block of a component, from 0 to 255.
    fn value(component: usize, row: usize, column: usize) -> usize {
        match component {
            0 => 60 + (37 * row + 23 * column) % 120,
            1 => 100 + (29 * row + 17 * column) % 56,
            _ => 100 + (13 * row + 31 * column) % 56,
        }
    }

    /// Pixels that a block of a component covers, `[width, height]`.
    fn covered(&self, component: usize) -> [usize; 2] {
        [0, 1].map(|axis| 8 * self.largest[axis] / self.factors[component][axis])
    }

    /// Writes scans of these components: in one together, or one after the other.
    fn write(&self, scans: &[&[usize]]) -> Vec<u8> {
        let mut file = vec![0xff, 0xd8];
        let segment = |file: &mut Vec<u8>, marker: u8, content: &[u8]| {
            file.extend([0xff, marker]);
            file.extend((content.len() as u16 + 2).to_be_bytes());
            file.extend(content);
        };
        segment(&mut file, 0xe0, b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0");
        // The average of 64 values of a block is an eighth of its first coefficient.
        segment(&mut file, 0xdb, &[&[0][..], &[8; 64]].concat());
        let mut frame = vec![8, 0, HEIGHT as u8, 0, WIDTH as u8, 3];
        for (id, [h, v]) in (1..).zip(self.factors) {
            frame.extend([id, (h << 4 | v) as u8, 0]);
        }
        segment(&mut file, 0xc0, &frame);
        // Twelve codes of four bits, the sizes of differences; one of one bit, the end of a block.
        let sizes: Vec<u8> = (0..12).collect();
        let dc = [&[0, 0, 0, 0, 12][..], &[0; 12], &sizes];
        segment(&mut file, 0xc4, &dc.concat());
        segment(&mut file, 0xc4, &[&[0x10, 1][..], &[0; 15], &[0]].concat());
        for scan in scans {
            let ids = scan.iter().flat_map(|&component| [component as u8 + 1, 0]);
            let header = [
                &[scan.len() as u8][..],
                &ids.collect::<Vec<_>>(),
                &[0, 63, 0],
            ];
            segment(&mut file, 0xda, &header.concat());
            let (mut bits, mut before) = (Bits::default(), [128; 3]);
            for (component, row, column) in self.blocks(scan) {
                let value = File::value(component, row, column);
                bits.difference(value as i32 - before[component]);
                before[component] = value as i32;
                bits.put(0, 1);
            }
            file.extend(bits.finish());
        }
        file.extend([0xff, 0xd9]);
        file
    }

    /// The blocks of a scan in their order: component, row, column.
    fn blocks(&self, scan: &[usize]) -> Vec<(usize, usize, usize)> {
        let mut blocks = Vec::new();
        let [wide, high] = self.largest.map(|factor| 8 * factor);
        if let [component] = scan {
            let [width, height] = self.covered(*component);
            for row in 0..HEIGHT.div_ceil(height) {
                blocks.extend((0..WIDTH.div_ceil(width)).map(|column| (*component, row, column)));
            }
            return blocks;
        }
        for row in 0..HEIGHT.div_ceil(high) {
            for column in 0..WIDTH.div_ceil(wide) {
                for &component in scan {
                    let [h, v] = self.factors[component];
                    let places = (0..v).flat_map(|below| (0..h).map(move |right| (below, right)));
                    blocks
                        .extend(places.map(|(below, right)| {
                            (component, row * v + below, column * h + right)
                        }));
                }
            }
        }
        blocks
    }

    /// Largest difference of pixels that lie in the middle of a block of each component, where
    /// interpolation changes nothing.
    fn difference(&self, pixels: &[u8]) -> u8 {
        let mut largest = 0;
        for (at, found) in pixels.chunks(3).enumerate() {
            let place = [at % WIDTH, at / WIDTH];
            let is_inner = (0..3).all(|component| {
                let covered = self.covered(component);
                [0, 1].into_iter().all(|axis| {
                    let (within, scale) = (place[axis] % covered[axis], covered[axis] / 8);
                    within >= scale && within < covered[axis] - scale
                })
            });
            if is_inner {
                let [y, cb, cr] = [0, 1, 2].map(|component| {
                    let [width, height] = self.covered(component);
                    File::value(component, place[1] / height, place[0] / width) as f64
                });
                let expected = [
                    y + 1.402 * (cr - 128.0),
                    y - 0.344_136 * (cb - 128.0) - 0.714_136 * (cr - 128.0),
                    y + 1.772 * (cb - 128.0),
                ];
                for (found, expected) in found.iter().zip(expected) {
                    largest = largest.max(found.abs_diff(expected.clamp(0.0, 255.0).round() as u8));
                }
            }
        }
        largest
    }
}

#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    rest: u32,
    count: u32,
}

impl Bits {
    fn put(&mut self, code: u32, count: u32) {
        for bit in (0..count).rev() {
            self.rest = self.rest << 1 | (code >> bit & 1);
            self.count += 1;
            if self.count == 8 {
                self.bytes.push(self.rest as u8);
                if self.rest == 0xff {
                    self.bytes.push(0);
                }
                (self.rest, self.count) = (0, 0);
            }
        }
    }

    fn difference(&mut self, value: i32) {
        let size = 32 - value.unsigned_abs().leading_zeros();
        self.put(size, 4);
        let bits = if value < 0 { value - 1 } else { value };
        self.put(bits as u32, size);
    }

    fn finish(mut self) -> Vec<u8> {
        while self.count > 0 {
            self.put(1, 1);
        }
        self.bytes
    }
}

/// Scans, each with its components.
type Scans = &'static [&'static [usize]];

const TOGETHER: Scans = &[&[0, 1, 2]];
const APART: Scans = &[&[0], &[1], &[2]];

/// All factors that divide the largest ones, as all decoders want them.
fn all_factors() -> Vec<Factors> {
    let pairs: Vec<[usize; 2]> = (1..=4).flat_map(|h| (1..=4).map(move |v| [h, v])).collect();
    let mut all = Vec::new();
    for &luma in &pairs {
        for &blue in &pairs {
            for &red in &pairs {
                let factors = [luma, blue, red];
                let largest = File::new(factors).largest;
                if factors
                    .iter()
                    .all(|of| largest[0].is_multiple_of(of[0]) && largest[1].is_multiple_of(of[1]))
                {
                    all.push(factors);
                }
            }
        }
    }
    all
}

/// As it is, or refused by its name.
#[test]
fn every_sampling_is_decoded() {
    let mut count = 0;
    for factors in all_factors() {
        let file = File::new(factors);
        let blocks: usize = factors.iter().map(|[h, v]| h * v).sum();
        let orders: [Scans; 4] = [TOGETHER, APART, &[&[2], &[0], &[1]], &[&[0], &[1, 2]]];
        for scans in orders {
            // A unit of more than ten blocks is not allowed.
            if scans.len() < 3 && blocks > 10 {
                continue;
            }
            let image = match decode_image(&file.write(scans)) {
                Ok(image) => image,
                // A factor of 2 or 3 among larger ones, where no decoder counts the blocks.
                Err(error) if scans.len() > 1 && file.has_middle_factor() => {
                    let part = "a JPEG of several scans and sampling factors";
                    assert!(error.message().contains(part), "{error}");
                    continue;
                }
                Err(error) => panic!("{factors:?} {scans:?}: {error}"),
            };
            assert_eq!(image.ty().dims(), [HEIGHT, WIDTH, 3]);
            let difference = file.difference(image.bytes());
            assert!(difference <= 3, "{factors:?} {scans:?}: {difference}");
            count += 1;
        }
    }
    assert!(count > 1400, "{count}");
}

/// A file that lacks its end may lack blocks, of which a decoder makes up the pixels.
#[test]
fn files_that_are_cut_off_are_errors() {
    for (factors, scans) in [
        ([[2, 2], [1, 1], [1, 1]], TOGETHER),
        ([[1, 1], [1, 1], [1, 1]], TOGETHER),
        ([[2, 2], [1, 1], [1, 1]], APART),
    ] {
        let whole = File::new(factors).write(scans);
        decode_image(&whole).unwrap();
        for length in 0..whole.len() {
            let error = decode_image(&whole[..length]).unwrap_err().to_string();
            assert!(!error.contains("panicked"), "{length}: {error}");
        }
        let garbage = [&whole[..], &[0; 100]].concat();
        assert_eq!(
            decode_image(&garbage).unwrap(),
            decode_image(&whole).unwrap()
        );
    }
}

/// Decoders differ in which of two scans of a component they take.
#[test]
fn component_of_two_scans_is_an_error() {
    let file = File::new([[1, 1]; 3]);
    for scans in [&[TOGETHER[0], &[1]][..], &[&[0], &[0], &[1, 2]]] {
        let error = decode_image(&file.write(scans)).unwrap_err().to_string();
        assert!(error.contains("two scans of one component"), "{error}");
    }
}

#[test]
fn other_codings_are_named() {
    let whole = File::new([[1, 1]; 3]).write(TOGETHER);
    let frame = whole
        .windows(2)
        .position(|pair| pair == [0xff, 0xc0])
        .unwrap();
    let change = |at: usize, byte: u8| {
        let mut file = whole.clone();
        file[frame + at] = byte;
        decode_image(&file).unwrap_err().to_string()
    };
    for (at, byte, part) in [
        (1, 0xc3, "a JPEG with lossless coding; expected a baseline"),
        (1, 0xc9, "a JPEG with arithmetic coding"),
        (4, 12, "a JPEG of 12 bits a channel; expected 8"),
        (9, 2, "a JPEG of 2 channels; expected 1, 3 or 4"),
        (11, 0x51, "sampling factors out of range"),
    ] {
        let error = change(at, byte);
        assert!(error.contains(part), "{error}");
    }
}
