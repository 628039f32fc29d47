//! Descriptions of a model's parameters and state, and their initialization.

mod initialize;

use std::fmt::Write;

use halite_core::{DType, Error, Result, TensorType, Tree};

pub use initialize::init;

use crate::{Init, Pattern};

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
    /// True for [state](Self::state), which layers update while the model is trained.
    pub is_state: bool,
    /// Number of leading dimensions that count layers, as in a [`Stack`](crate::Stack). Each layer is
    /// initialized separately, and optimizers see its dimensions without these.
    pub stacked: usize,
    /// Kind, which says how other frameworks order its dimensions.
    pub kind: ParamKind,
}

halite_core::impl_single_leaf!(Param);

impl Param {
    /// A trained parameter of these dimensions, in `f32`.
    pub fn new(dims: impl AsRef<[usize]>, init: Init) -> Self {
        Param {
            ty: TensorType::new(DType::F32, dims),
            init,
            trainable: true,
            is_state: false,
            stacked: 0,
            kind: ParamKind::Other,
        }
    }

    /// State that is saved with the parameters but not trained, such as running statistics, in
    /// `f32`.
    pub fn state(dims: impl AsRef<[usize]>, init: Init) -> Self {
        Param {
            trainable: false,
            is_state: true,
            ..Param::new(dims, init)
        }
    }

    /// This parameter as one of another kind, for layers of your own: a weight of
    /// [`ParamKind::Linear`] is transposed in PyTorch's files.
    pub fn of_kind(mut self, kind: ParamKind) -> Self {
        self.kind = kind;
        self
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

/// Kind of a layer's parameter whose dimensions frameworks order differently. Layers set it;
/// `NameMap::torch()` takes the layout from it, and [`Lora`](crate::Lora) the layers to adapt.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum ParamKind {
    /// Any other parameter: the same dimensions everywhere.
    #[default]
    Other,
    /// Weight of [`Linear`](crate::Linear) and of the gates of recurrent layers: `[in, out]`.
    Linear,
    /// Weight of [`Conv`](crate::Conv): `[window.., in / groups, out]`.
    Conv,
    /// Kernel of [`ConvTranspose`](crate::ConvTranspose): `[window.., in, out / groups]`.
    ConvTranspose,
    /// Weight `[in, heads, width]` or bias `[heads, width]` of [`ToHeads`](crate::ToHeads).
    ToHeads,
    /// Weight of [`FromHeads`](crate::FromHeads): `[heads, width, out]`.
    FromHeads,
}

/// Describes the parameters of `model` whose path matches the [`Pattern`] as frozen: they have
/// neither a gradient nor slots.
///
/// A frozen layer stays in the mode of the function: in training, a frozen
/// [`BatchNorm`](crate::BatchNorm) normalizes by each batch and updates its running statistics, as in
/// PyTorch. `cx.set_mode(false, None)` before the frozen part of a model, and the mode of training
/// again after it, keep the statistics.
///
/// ```
/// use halite_nn::{Linear, freeze};
///
/// let model = freeze((Linear::new(8, 4), Linear::new(4, 2)), "0.*")?;
/// assert!(!model.0.weight.trainable && model.1.weight.trainable);
/// # Ok::<(), halite_core::Error>(())
/// ```
///
/// # Errors
/// If it is not a valid pattern, or matches no trained parameter.
pub fn freeze<M: Tree<Leaf = Param>>(model: M, pattern: &str) -> Result<M> {
    frozen_where(model, pattern, true)
}

/// Describes all parameters of `model` but those whose path matches the [`Pattern`] as frozen, as
/// for a new head on a trained model.
///
/// # Errors
/// As [`freeze`].
pub fn freeze_except<M: Tree<Leaf = Param>>(model: M, pattern: &str) -> Result<M> {
    frozen_where(model, pattern, false)
}

/// Freezes the trained parameters whose path matches, or those whose path does not.
fn frozen_where<M: Tree<Leaf = Param>>(model: M, pattern: &str, frozen: bool) -> Result<M> {
    let parsed: Pattern = pattern.parse()?;
    let trained: Vec<String> = (model.named().into_iter())
        .filter(|(_, param)| param.trainable)
        .map(|(path, _)| path)
        .collect();
    if !trained.iter().any(|path| parsed.matches(path)) {
        let shown: Vec<String> = trained
            .iter()
            .take(8)
            .map(|path| format!("`{path}`"))
            .collect();
        let more = if trained.len() > 8 { ", .." } else { "" };
        let nearest = parsed.nearest(trained.iter().map(String::as_str));
        let nearest = nearest.map_or(".".into(), |path| format!("; did you mean `{path}`?"));
        let message = format!(
            "`{pattern}` matches no trained parameter{nearest} Trained are {}{more}",
            shown.join(", ")
        );
        return Err(Error::invalid("freeze", message));
    }
    let model = model.map_leaves(|path, param| Param {
        trainable: param.trainable && parsed.matches(&path.to_string()) != frozen,
        ..param
    });
    Ok(M::from_tree(model))
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
