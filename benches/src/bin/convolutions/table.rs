//! The table from which programs choose.

use std::{collections::BTreeMap, fs};

use halite::{DType, Error, Result};
use halite_benches::ConvShape;

use super::measure::{Clients, Measured};

/// Shapes of the table, of another seed than those of the comparison.
const COUNT: usize = 80;
const SEED: u64 = 20_000;

const HEAD: &str = "\
# Convolutions on XLA's CPU plugin: processor time of XLA's code as a multiple of that of halite's kernel.
# Written by `cargo run --release -p halite-benches --bin convolutions -- --table FILE`; do not edit.
# Columns: bits of a vector, threads, dtype; spatial dimensions, at least 2; features and outputs of a
# group, groups; products over the spatial dimensions of kernel, stride, dilation and input dilation;
# multiplications; ratios of the result, the input gradient and the kernel gradient.
";

/// Measures the shapes whose names contain the filter, and writes their lines to the file. Without
/// a filter, lines of this processor and type that are there go.
pub(crate) fn write(clients: &Clients, dtype: DType, filter: &str, path: &str) -> Result<()> {
    let processor = clients.chosen.capabilities().processor;
    let own = format!("{} {} {dtype} ", processor.vector_bits, processor.threads);
    let mut lines = BTreeMap::new();
    let before = fs::read_to_string(path).unwrap_or_default();
    for line in before.lines().filter(|line| !line.starts_with('#')) {
        if let Some((key, ratios)) = split(line)
            && !(filter.is_empty() && line.starts_with(&own))
        {
            lines.insert(key, ratios);
        }
    }
    for shape in shapes().filter(|shape| shape.to_string().contains(filter)) {
        let Measured(passes) = Measured::of(clients, &shape, dtype, None)?;
        let power = |size: usize| size.pow(shape.dims as u32);
        let ratios = passes.map(|it| format!("{:.2}", it.ratio().clamp(0.01, 1000.0)));
        let line = format!(
            "{own}{} {} {} {} {} {} {} {} {:.2e} {}",
            shape.dims.max(2),
            shape.features / shape.groups,
            shape.outputs / shape.groups,
            shape.groups,
            power(shape.kernel),
            power(shape.stride),
            power(shape.dilation),
            power(shape.input_dilation),
            shape.multiplications(),
            ratios.join(" ")
        );
        eprintln!("{shape}: {line}");
        lines.extend(split(&line));
    }
    let lines = lines
        .iter()
        .map(|(key, ratios)| format!("{key} {ratios}\n"));
    let text = format!("{HEAD}{}", lines.collect::<String>());
    fs::write(path, text).map_err(|error| Error::invalid("table", format!("{path}: {error}")))
}

/// What a line is of, and its ratios.
fn split(line: &str) -> Option<(String, String)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (key, ratios) = words.split_at_checked(words.len().checked_sub(3)?)?;
    Some((key.join(" "), ratios.join(" ")))
}

/// Shapes of networks, of images and volumes, and tiny ones, for which calling may cost more than it saves.
fn shapes() -> impl Iterator<Item = ConvShape> {
    let drawn = ConvShape::draw(COUNT, SEED);
    let tiny = ConvShape::draw(COUNT / 4, SEED + 1)
        .into_iter()
        .map(|shape| ConvShape {
            batch: 1,
            size: match shape.dims {
                1 => shape.size / 32 + shape.dilation * shape.kernel,
                _ => (shape.size / 8).max(shape.kernel),
            },
            ..shape
        });
    drawn.into_iter().chain(tiny).chain(ConvShape::volumes())
}
