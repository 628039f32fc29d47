//! Descriptions of a model's parameters and state, without values.

use std::fmt::Write;

use halite_core::{DType, TensorType, Tree};

use crate::Init;

/// Description of one parameter: type, initialization, and whether it is trained.
///
/// ```
/// use halite_core::DType;
/// use halite_nn::{Init, Param};
///
/// let weight = Param::new([784, 512], Init::he_normal());
/// assert_eq!(weight.ty.to_string(), "f32[784, 512]");
/// let running_mean = Param::state([512], Init::Zeros).with_dtype(DType::F64);
/// assert!(!running_mean.trainable);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Element type and dimensions.
    pub ty: TensorType,
    /// Initialization.
    pub init: Init,
    /// True if the optimizer updates it. State that is not trained, such as running statistics, is
    /// updated by [`Trace::update`](crate::Trace::update).
    pub trainable: bool,
    /// Number of leading dimensions that count layers, as in a [`Stack`](crate::Stack). Each layer is
    /// initialized separately, and optimizers see its dimensions without these.
    pub stacked: usize,
}

halite_core::impl_single_leaf!(Param);

impl Param {
    /// A trained parameter of these dimensions, in `f32`.
    pub fn new(dims: impl AsRef<[usize]>, init: Init) -> Self {
        Param {
            ty: TensorType::new(DType::F32, dims),
            init,
            trainable: true,
            stacked: 0,
        }
    }

    /// State that is saved with the parameters but not trained, such as running statistics, in
    /// `f32`.
    pub fn state(dims: impl AsRef<[usize]>, init: Init) -> Self {
        Param {
            trainable: false,
            ..Param::new(dims, init)
        }
    }

    /// This parameter with another element type.
    pub fn with_dtype(mut self, dtype: DType) -> Self {
        self.ty = self.ty.with_dtype(dtype);
        self
    }

    /// This parameter for `layers` layers, with a leading dimension that counts them.
    pub fn stacked(mut self, layers: usize) -> Self {
        self.ty = self.ty.with_dims([&[layers], self.ty.dims()].concat());
        self.stacked += 1;
        self
    }

    /// Type of one layer's part: the whole type, unless it is in a [`Stack`](crate::Stack).
    pub fn layer_type(&self) -> TensorType {
        self.ty
            .with_dims(&self.ty.dims()[self.stacked.min(self.ty.rank())..])
    }

    /// This parameter, not trained.
    pub fn frozen(mut self) -> Self {
        self.trainable = false;
        self
    }
}

/// A table of a model's leaves: path, type, elements and bytes, with totals.
///
/// ```
/// use halite_nn::{Linear, summary};
///
/// let table = summary(&Linear::new(784, 10));
/// assert!(table.lines().next().unwrap().starts_with("path"));
/// assert!(table.contains("weight  f32[784, 10]"));
/// assert!(table.contains("7,850 parameters"));
/// ```
pub fn summary<M: Tree<Leaf = Param>>(model: &M) -> String {
    let named = model.named();
    let rows: Vec<[String; 4]> = named
        .iter()
        .map(|(path, param)| {
            let state = if param.trainable { "" } else { " (state)" };
            let ty = &param.ty;
            [
                format!("{path}{state}"),
                ty.to_string(),
                thousands(ty.elements()),
                thousands(ty.bytes()),
            ]
        })
        .collect();
    let header = ["path", "type", "elements", "bytes"].map(String::from);
    let width = |column: usize| {
        rows.iter()
            .chain([&header])
            .map(|row| row[column].chars().count())
            .max()
            .expect("the header is a row")
    };
    let widths: [usize; 4] = std::array::from_fn(width);
    let mut table = String::new();
    for [path, ty, elements, bytes] in [&header].into_iter().chain(&rows) {
        let [a, b, c, d] = widths;
        let line = format!("{path:a$}  {ty:b$}  {elements:>c$}  {bytes:>d$}");
        writeln!(table, "{}", line.trim_end()).expect("writing to a string does not fail");
    }
    let total = |trainable: bool| {
        let leaves = named
            .iter()
            .filter(|(_, param)| param.trainable == trainable);
        leaves.fold((0, 0), |(elements, bytes), (_, param)| {
            (elements + param.ty.elements(), bytes + param.ty.bytes())
        })
    };
    let (parameters, parameter_bytes) = total(true);
    let (state, state_bytes) = total(false);
    write!(
        table,
        "{} parameters in {}",
        thousands(parameters),
        size(parameter_bytes)
    )
    .expect("writing to a string does not fail");
    if state > 0 {
        write!(
            table,
            ", {} elements of state in {}",
            thousands(state),
            size(state_bytes)
        )
        .expect("writing to a string does not fail");
    }
    table.push('\n');
    table
}

/// `1,234,567`
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `12 B`, `3.4 MiB`
fn size(bytes: usize) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" {
                format!("{bytes} B")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_sizes_have_units() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(thousands(number), text);
        }
        for (bytes, text) in [(12, "12 B"), (1536, "1.5 KiB"), (3 << 40, "3.0 TiB")] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn summary_counts_state_separately() {
        let model = vec![
            Param::new([3, 4], Init::Ones),
            Param::state([4], Init::Zeros),
        ];
        let table = summary(&model);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines,
            [
                "path       type       elements  bytes",
                "0          f32[3, 4]        12     48",
                "1 (state)  f32[4]            4     16",
                "12 parameters in 48 B, 4 elements of state in 16 B",
            ]
        );
    }
}
