//! Products whose results are sharded over the axes that are summed over.

use halite_core::{Client, DType, Faults, HostArray, PartitionSpec};
use halite_ir::DotAttributes;
use halite_nn::jit;
use halite_tests::{
    eval::{host, try_eval_on},
    random::Random,
};

use crate::plugin_faults::support::{Devices, embedded, plugin, setting, with_faults};

const MESHES: [&[(&str, usize)]; 5] = [
    &[("x", 2), ("y", 2)],
    &[("x", 3), ("y", 2)],
    &[("x", 2), ("y", 4)],
    &[("x", 4), ("y", 2)],
    &[("x", 2), ("y", 2), ("z", 2)],
];

/// A product of two tensors whose dimensions have letters, as in `einsum`: letters of batches, summed
/// letters, and others.
#[derive(Clone, Debug)]
struct Product {
    axes: &'static [(&'static str, usize)],
    left: String,
    right: String,
    batch: String,
    /// Sizes of letters.
    sizes: Vec<(char, usize)>,
    /// Of the operands and the result.
    specs: [String; 3],
}

impl Product {
    /// Four elements in each dimension.
    fn new(mesh: usize, [left, right, batch]: [&str; 3], specs: [&str; 3]) -> Self {
        let letters = left.chars().chain(right.chars());
        Product {
            axes: MESHES[mesh],
            left: left.into(),
            right: right.into(),
            batch: batch.into(),
            sizes: letters.map(|letter| (letter, 4)).collect(),
            specs: specs.map(str::to_owned),
        }
    }

    fn draw(random: &mut Random) -> Self {
        let axes = *random.pick(&MESHES);
        let mut some = |of: &str, least: usize| -> String {
            let count = least + random.below(of.len() + 1 - least);
            of.chars().take(count).collect()
        };
        let (batch, summed) = (some("bh", 0), some("st", 1));
        let (left, right) = (some("mn", 0), some("pq", 0));
        let letters: Vec<char> = "bhstmnpq".chars().collect();
        let mut product = Product {
            axes,
            left: shuffled(random, &[&*batch, &summed, &left].concat()),
            right: shuffled(random, &[&*batch, &summed, &right].concat()),
            batch,
            sizes: (letters.iter())
                .map(|&letter| (letter, *random.pick(&[2, 4, 4, 8, 12])))
                .collect(),
            specs: Default::default(),
        };
        let dims = [&product.left, &product.right, &product.result()];
        product.specs = dims.map(|letters| product.draw_spec(random, letters));
        product
    }

    /// Axes of the mesh on dimensions that they divide.
    fn draw_spec(&self, random: &mut Random, letters: &str) -> String {
        let mut open = self.sizes_of(letters);
        let mut dims = vec![Vec::new(); open.len()];
        for &(axis, parts) in self.axes {
            let dim = random.below(dims.len().max(1));
            if random.percent(80) && !open.is_empty() && open[dim].is_multiple_of(parts) {
                dims[dim].push(axis.to_owned());
                open[dim] /= parts;
            }
        }
        PartitionSpec::new(dims).to_string()
    }

    /// The letters of the result.
    fn result(&self) -> String {
        let only = |of: &str, other: &str| -> String {
            of.chars()
                .filter(|&letter| !other.contains(letter))
                .collect()
        };
        let free = [only(&self.left, &self.right), only(&self.right, &self.left)];
        format!("{}{}{}", self.batch, free[0], free[1])
    }

    fn sizes_of(&self, letters: &str) -> Vec<usize> {
        let size = |letter| {
            self.sizes
                .iter()
                .find(|(of, _)| *of == letter)
                .expect("a size")
                .1
        };
        letters.chars().map(size).collect()
    }

    fn dot(&self) -> DotAttributes {
        let summed: String = (self.left.chars())
            .filter(|&letter| self.right.contains(letter) && !self.batch.contains(letter))
            .collect();
        let of = |operand: &str, letters: &str| -> Vec<usize> {
            letters
                .chars()
                .map(|letter| operand.find(letter).expect("a dimension"))
                .collect()
        };
        DotAttributes {
            lhs_batching: of(&self.left, &self.batch),
            rhs_batching: of(&self.right, &self.batch),
            lhs_contracting: of(&self.left, &summed),
            rhs_contracting: of(&self.right, &summed),
            ..DotAttributes::default()
        }
    }

    /// Small integers, whose products are exact.
    fn inputs(&self) -> [HostArray; 2] {
        [(&self.left, 7), (&self.right, 11)].map(|(letters, rate)| {
            let dims = self.sizes_of(letters);
            let count: usize = dims.iter().product();
            let values: Vec<f32> = (0..count).map(|i| ((i * rate) % 13) as f32 - 6.0).collect();
            host(&values, &dims)
        })
    }

    fn on(&self, client: &Client) -> Vec<f32> {
        let devices = Devices::new(client, self.axes);
        let [x, y] = [0, 1].map(|index| {
            let input = &self.inputs()[index];
            let values = input.as_slice::<f32>().unwrap();
            devices.upload(values, input.ty().dims(), &self.specs[index])
        });
        let (dot, spec) = (self.dot(), self.specs[2].clone());
        let product = jit(client, move |_, [x, y]| {
            [x.dot_general(y, dot.clone(), DType::F32)]
        });
        let product = (product.on(&devices.mesh))
            .output_specs(move |_, _| spec.parse().expect("the text of a spec"));
        let [result] = product.run([&x, &y]).unwrap();
        result.to_vec().unwrap()
    }

    /// On one device.
    fn expected(&self) -> Vec<f32> {
        let dot = self.dot();
        let inputs = &self.inputs();
        let results = try_eval_on(
            embedded(),
            move |_, x| vec![x[0].dot_general(x[1], dot.clone(), DType::F32)],
            inputs,
        );
        let results = results.unwrap();
        results[0].as_slice::<f32>().unwrap().to_vec()
    }
}

fn shuffled(random: &mut Random, letters: &str) -> String {
    let mut letters: Vec<char> = letters.chars().collect();
    for last in (1..letters.len()).rev() {
        letters.swap(last, random.below(last + 1));
    }
    letters.into_iter().collect()
}

/// The gradient of the keys of attention; a dense layer; operands that sum over different axes.
fn products() -> [Product; 3] {
    [
        Product::new(
            0,
            ["bht", "bth", "bh"],
            ["(y, None, x)", "(y, x, None)", "(x, y)"],
        ),
        Product::new(4, ["mt", "tn", ""], ["((x, z), y)", "(y, z)", "(None, y)"]),
        Product::new(
            4,
            ["bt", "btf", "b"],
            ["((x, z), y)", "(z, x, None)", "(x, (y, z))"],
        ),
    ]
}

#[test]
fn plugin_still_reorders_products() {
    let mut faults = Faults::ALL;
    faults.split_products = false;
    let trusted = with_faults(plugin(), faults);
    for product in products() {
        assert_ne!(
            product.on(&trusted),
            product.expected(),
            "{product:?}: the partitioner of this version is right: it needs no \
             `Faults::split_products` (backends/pjrt/src/quirks.rs)"
        );
    }
}

#[test]
fn products_of_summed_axes_are_right() {
    for product in products() {
        for client in [plugin(), embedded()] {
            assert_eq!(product.on(client), product.expected(), "{product:?}");
        }
    }
}

#[test]
fn random_products_agree() {
    let count = setting("HALITE_PRODUCTS", 24);
    let seed = setting("HALITE_PRODUCTS_SEED", 1);
    let wrong: Vec<String> = (0..count)
        .map(|number| (number, Product::draw(&mut Random::new(seed, number))))
        .filter(|(_, product)| product.on(plugin()) != product.expected())
        .map(|(number, product)| format!("{number}: {product:?}"))
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {count} differ (HALITE_PRODUCTS_SEED={seed}):\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
