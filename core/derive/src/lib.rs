//! The derive macro of `halite_core::tree`; use it from there, or from the facade `halite`.
//!
//! ```
//! use halite_core::tree::Tree;
//!
//! #[derive(Tree)]
//! struct Layer<L> {
//!     weight: L,
//!     bias: Option<L>,
//!     width: usize, // does not mention `L`: a static field
//! }
//!
//! let described = Layer { weight: "f32[4, 3]", bias: Some("f32[3]"), width: 3 };
//! let counted: Layer<usize> = described.map_leaves(|_path, ty| ty.len());
//! assert_eq!(counted.named(), [("weight".to_string(), &9), ("bias".to_string(), &6)]);
//! assert_eq!(counted.width, 3);
//! ```
//!
//! It reads the deriving struct, and the package's `Cargo.toml` for the name of the crate, and
//! expands to safe code.
#![forbid(unsafe_code)]

mod crate_path;
mod expand;
mod input;
mod shape;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Implements `Tree` for a struct or enum with one type parameter, its leaf, and `Family` for the
/// same with `()` for the leaf.
///
/// ```
/// # use halite_core::Tree;
/// #[derive(Tree)]
/// struct Linear<L> {
///     weight: L,
/// }
///
/// #[derive(Tree)]
/// struct Block<L> {
///     scale: L,                     // a leaf: `scale`
///     bias: Option<L>,              // an optional leaf: `bias`
///     q_k_v: [L; 3],                // leaves: `q_k_v.0`, `q_k_v.1`, `q_k_v.2`
///     out: Linear<L>,               // another tree: `out.weight`
///     experts: Vec<(Linear<L>, L)>, // `experts.0.0.weight`, `experts.0.1` ..
///     heads: usize,                 // does not mention `L`: static (moved or cloned), not a leaf
/// }
///
/// let block = Block {
///     scale: 1.0,
///     bias: None,
///     q_k_v: [2.0, 3.0, 4.0],
///     out: Linear { weight: 5.0 },
///     experts: vec![(Linear { weight: 6.0 }, 7.0)],
///     heads: 8,
/// };
/// assert_eq!(
///     block.paths(),
///     ["scale", "q_k_v.0", "q_k_v.1", "q_k_v.2", "out.weight", "experts.0.0.weight", "experts.0.1"],
/// );
/// assert_eq!(block.map_leaves(|_path, leaf| leaf as i32).heads, 8);
/// ```
///
/// The leaf parameter may have any name and a default (`struct Linear<L = Array>`), but no bounds:
/// leaves can have any type. Const parameters are allowed, lifetimes are not. `Option`, `Vec`,
/// `Box`, arrays, tuples and `PhantomData` are recognized by name and may be nested; every other
/// type that mentions the leaf must be a `Tree` itself, with that leaf. A type that does not
/// mention the leaf needs `Clone`. An enum's variants are not part of the paths.
///
/// # Attributes
/// - `#[tree(static)]` on a field states that it is not a leaf, for readers.
/// - `#[tree(subtrees(M))]` on the type: the type parameter `M` stands for a tree, not for a leaf.
///   A wrapper of any layer is
///   `#[derive(Tree)] #[tree(subtrees(M))] struct Residual<M> { layer: M }`. The other type
///   parameter, if there is one, is the leaf of all of them.
/// - `#[tree(crate = "path")]` on the type sets the path of the crate with the module `tree`.
///   Without it, the package's `Cargo.toml` decides: `halite-core` if it is a dependency, else
///   `halite`, under the names given there.
#[proc_macro_derive(Tree, attributes(tree))]
pub fn derive_tree(tokens: TokenStream) -> TokenStream {
    let input = parse_macro_input!(tokens as DeriveInput);
    match input::Input::new(input) {
        Ok(input) => expand::expand(&input).into(),
        Err(error) => error.into_compile_error().into(),
    }
}
