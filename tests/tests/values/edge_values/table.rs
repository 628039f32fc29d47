//! The table of rows: what the campaign calls, of which element types, in which form of inputs.

use halite_core::{DType, TensorType};
use halite_nn::Tensor;

/// How inputs are given; see `reference/values.py`.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Form {
    /// One tensor of all values at the edges of the element type.
    Each,
    /// Two tensors of all pairs of a selection.
    Pairs,
    /// `[patterns, size]`, where each row has another kind of edge.
    Rows,
    /// All integers of a type, and a table of five `f32`.
    Indices,
    /// All integers of a type, and as many rows of four logits.
    Labels,
    /// `[4, 6, size]` of small numbers, whose sums and products are exact.
    Cubes,
}

/// Sizes of the last dimension of [`Form::Rows`]: none, one, two, a prime, and one beyond a power
/// of 2.
pub(crate) const SIZES: [usize; 5] = [0, 1, 2, 13, 17];

/// Sizes of the last dimension of [`Form::Cubes`].
const CUBES: [usize; 2] = [0, 8];

/// Builds the results of a row from its inputs.
pub(crate) type Build = for<'t> fn(&[Tensor<'t>]) -> Vec<Tensor<'t>>;

/// Calls of one or several public functions.
#[derive(Debug)]
pub(crate) struct Row {
    /// Its name in the golden file.
    pub(crate) name: &'static str,
    pub(crate) form: Form,
    /// The element types that it accepts; of the indices for [`Form::Indices`] and
    /// [`Form::Labels`].
    pub(crate) dtypes: &'static [DType],
    /// Numbers of the inputs that gradients are taken of, if they are floats.
    pub(crate) gradients: &'static [usize],
    /// The public functions that it tests: methods of `Tensor` and free functions by their names,
    /// others as `Type::method`.
    pub(crate) covers: &'static [&'static str],
    pub(crate) build: Build,
}

pub(crate) const FLOATS: &[DType] = &[DType::F16, DType::Bf16, DType::F32, DType::F64];
pub(crate) const SIGNED: &[DType] = &[DType::S8, DType::S16, DType::S32, DType::S64];
pub(crate) const NARROW: &[DType] = &[DType::F16, DType::Bf16];
pub(crate) const F32: &[DType] = &[DType::F32];
/// What decompositions and systems of equations are solved in.
pub(crate) const SOLVED: &[DType] = &[DType::F32, DType::F64];
pub(crate) const BOOL: &[DType] = &[DType::Bool];
const EVERY: [DType; 13] = [
    DType::Bool,
    DType::S8,
    DType::S16,
    DType::S32,
    DType::S64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::F16,
    DType::Bf16,
    DType::F32,
    DType::F64,
];
pub(crate) const ALL: &[DType] = &EVERY;
pub(crate) const NUMBERS: &[DType] = EVERY.split_at(1).1;
pub(crate) const INTEGERS: &[DType] = EVERY.split_at(9).0.split_at(1).1;
pub(crate) const BITS: &[DType] = EVERY.split_at(9).0;

/// Rows: `"name" Form DTYPES [gradients] [covered functions] |inputs| results;`
macro_rules! rows {
    ($($name:literal $form:ident $dtypes:ident [$($gradient:literal),*] [$($covers:literal),*]
       |$x:ident| $body:expr;)*) => {
        pub(crate) const ROWS: &[$crate::edge_values::table::Row] = &[$({
            fn build<'t>($x: &[halite_nn::Tensor<'t>]) -> Vec<halite_nn::Tensor<'t>> {
                halite_tests::golden::Outputs::list($body)
            }
            $crate::edge_values::table::Row {
                name: $name,
                form: $crate::edge_values::table::Form::$form,
                dtypes: $crate::edge_values::table::$dtypes,
                gradients: &[$($gradient),*],
                covers: &[$($covers),*],
                build,
            }
        }),*];
    };
}
pub(crate) use rows;

/// All rows.
pub(crate) fn all() -> impl Iterator<Item = &'static Row> {
    crate::edge_values::rows::TABLES.iter().copied().flatten()
}

impl Form {
    pub(crate) const ALL: [Form; 6] = [
        Form::Each,
        Form::Pairs,
        Form::Rows,
        Form::Indices,
        Form::Labels,
        Form::Cubes,
    ];

    /// Sizes of the last dimension, if they vary.
    pub(crate) fn sizes(self) -> &'static [usize] {
        match self {
            Form::Rows => &SIZES,
            Form::Cubes => &CUBES,
            _ => &[0],
        }
    }

    /// The types of inputs of this form. The sizes stand for others of [`Form::Each`] and of
    /// patterns.
    pub(crate) fn types(self, dtype: DType) -> Vec<TensorType> {
        let of = |dims: &[usize]| TensorType::new(dtype, dims);
        let f32s = |dims: &[usize]| TensorType::new(DType::F32, dims);
        match self {
            Form::Each => vec![of(&[7])],
            Form::Pairs => vec![of(&[7]), of(&[7])],
            Form::Rows => vec![of(&[16, 13])],
            Form::Indices => vec![of(&[7]), f32s(&[5])],
            Form::Labels => vec![of(&[7]), f32s(&[7, 4])],
            Form::Cubes => vec![of(&[4, 6, 8])],
        }
    }

    /// Where the golden file has inputs and results.
    pub(crate) fn place(self, dtype: DType, size: usize) -> String {
        match self {
            Form::Each => format!("each/{dtype}"),
            Form::Pairs => format!("pairs/{dtype}"),
            Form::Rows => format!("rows/{dtype}/{size}"),
            Form::Indices => format!("indices/{dtype}"),
            Form::Labels => format!("labels/{dtype}"),
            Form::Cubes => format!("cubes/{dtype}/{size}"),
        }
    }
}
