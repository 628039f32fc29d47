//! Structure of a field's type around the leaf, by its syntax, since a macro knows no types.

use std::fmt::{self, Display};

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{
    Error, GenericArgument, Ident, PathArguments, PathSegment, Type, TypePath, spanned::Spanned,
};

/// Structure of a type, which decides how a value is rebuilt with other leaves.
pub(crate) enum Shape {
    /// Exactly the leaf parameter.
    Leaf,
    /// Does not mention the leaf parameter; cloned or moved. The span is that of the type.
    Static(Span),
    /// `PhantomData` of something with the leaf: no value, but another type after a change of
    /// leaves.
    Phantom,
    Option(Box<Shape>),
    Vec(Box<Shape>),
    Boxed(Box<Shape>),
    Array(Box<Shape>),
    Tuple(Vec<Shape>),
    /// Some other type that mentions the leaf: must be a `Tree`. The span is that of the type.
    Tree(Span),
}

/// The type parameters of the type that derives `Tree`.
pub(crate) struct Parameters {
    /// Stands for the leaf.
    pub(crate) leaf: Option<Ident>,
    /// Stand for trees: `#[tree(subtrees(M))]`.
    pub(crate) subtrees: Vec<Ident>,
}

impl Parameters {
    fn contain(&self, ident: &Ident) -> bool {
        self.leaf.as_ref() == Some(ident) || self.subtrees.contains(ident)
    }
}

/// Name for messages: that of the leaf if there is one.
impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.leaf
            .iter()
            .chain(&self.subtrees)
            .next()
            .map_or(Ok(()), |name| name.fmt(f))
    }
}

impl Shape {
    /// Returns `true` if there may be leaves in it.
    pub(crate) fn has_leaves(&self) -> bool {
        !matches!(self, Shape::Static(_) | Shape::Phantom)
    }

    /// The shape of `ty`.
    pub(crate) fn of(ty: &Type, leaf: &Parameters) -> Result<Shape, Error> {
        if !mentions(ty, leaf) {
            return Ok(Shape::Static(ty.span()));
        }
        let inner = |ty| Shape::of(ty, leaf).map(Box::new);
        match ty {
            Type::Group(group) => Shape::of(&group.elem, leaf),
            Type::Paren(paren) => Shape::of(&paren.elem, leaf),
            Type::Array(array) => Ok(Shape::Array(inner(&array.elem)?)),
            Type::Tuple(tuple) => {
                let elements = tuple.elems.iter().map(|element| Shape::of(element, leaf));
                Ok(Shape::Tuple(elements.collect::<Result<_, _>>()?))
            }
            Type::Path(path) => Shape::of_path(path, leaf),
            Type::Reference(_) | Type::Ptr(_) => Err(refuse(
                ty,
                format!(
                    "a tree owns its leaves, so a field cannot point to them; use `{leaf}` itself: with references \
                         at the leaves it is what `as_ref()` returns"
                ),
            )),
            Type::FnPtr(_) => Err(refuse(
                ty,
                format!(
                    "a function has no leaves inside; leave `{leaf}` out of its type, or put the function elsewhere"
                ),
            )),
            Type::TraitObject(_) | Type::ImplTrait(_) => Err(refuse(
                ty,
                format!(
                    "leaves behind a trait cannot be reached; use an enum or a struct of `{leaf}`"
                ),
            )),
            Type::Slice(_) => Err(refuse(
                ty,
                format!("a slice has no fixed size; use `Vec<{leaf}>` or `[{leaf}; 4]`"),
            )),
            Type::Macro(_) => Err(refuse(ty, "the type is hidden in a macro; write it out")),
            _ => Err(refuse(ty, "this type cannot be taken apart into leaves")),
        }
    }

    fn of_path(ty: &TypePath, leaf: &Parameters) -> Result<Shape, Error> {
        let last = ty
            .path
            .segments
            .last()
            .expect("a path has at least one segment");
        if ty.qself.is_none()
            && let Some(ident) = ty.path.get_ident()
            && leaf.contain(ident)
        {
            return Ok(if leaf.leaf.as_ref() == Some(ident) {
                Shape::Leaf
            } else {
                Shape::Tree(ty.span())
            });
        }
        let before_last = ty.path.segments.iter().rev().skip(1);
        if ty.qself.is_some()
            || before_last
                .into_iter()
                .any(|segment| mentions(segment, leaf))
        {
            return Err(refuse(
                ty,
                format!(
                    "a type that belongs to `{leaf}` (an associated type) changes with the leaf; use `{leaf}` itself"
                ),
            ));
        }
        let name = last.ident.to_string();
        if let Some(reason) = reason_against(&name, leaf) {
            return Err(refuse(ty, reason));
        }
        let inner = || Shape::of(only_argument(last)?, leaf).map(Box::new);
        match name.as_str() {
            "PhantomData" => Ok(Shape::Phantom),
            "Option" => Ok(Shape::Option(inner()?)),
            "Vec" => Ok(Shape::Vec(inner()?)),
            "Box" => Ok(Shape::Boxed(inner()?)),
            _ => Ok(Shape::Tree(ty.span())),
        }
    }
}

/// Returns `true` if a type parameter, or `Self`, is among the tokens of a type. A path such as
/// `module::L` is something else.
pub(crate) fn mentions(ty: &impl ToTokens, leaf: &Parameters) -> bool {
    fn among(tokens: TokenStream, leaf: &Parameters) -> bool {
        let mut colons = 0;
        tokens.into_iter().any(|token| match token {
            TokenTree::Ident(ident) => {
                let of_a_module = colons == 2;
                colons = 0;
                !of_a_module && (leaf.contain(&ident) || ident == "Self")
            }
            TokenTree::Punct(punct) => {
                colons = if punct.as_char() == ':' {
                    colons + 1
                } else {
                    0
                };
                false
            }
            TokenTree::Group(group) => {
                colons = 0;
                among(group.stream(), leaf)
            }
            TokenTree::Literal(_) => false,
        })
    }
    among(ty.to_token_stream(), leaf)
}

/// The reason why a well-known type cannot hold leaves, with an alternative.
fn reason_against(name: &str, leaf: &Parameters) -> Option<String> {
    let reason = match name {
        "HashMap" | "HashSet" | "IndexMap" | "IndexSet" => {
            format!(
                "maps have no fixed order; use `Vec<(String, {leaf})>` or a struct with a field for each name"
            )
        }
        "BTreeMap" | "BTreeSet" => format!(
            "leaves are named by fields and indices, not by keys; use `Vec<(String, {leaf})>` or a struct with a field \
             for each name"
        ),
        "VecDeque" | "LinkedList" | "BinaryHeap" => {
            format!("use `Vec<{leaf}>`, or `[{leaf}; 4]` for a fixed number")
        }
        "Rc" | "Arc" | "Weak" => format!(
            "a tree owns its leaves, so that they can be taken out; use `Box<{leaf}>` or `{leaf}` itself (to tie weights, \
             use one field twice)"
        ),
        "Cell" | "RefCell" | "OnceCell" | "Mutex" | "RwLock" | "OnceLock" => {
            format!("leaves are reached by plain references, without a lock; use `{leaf}` itself")
        }
        _ => return None,
    };
    Some(reason)
}

/// The `T` of `Option<T>`.
fn only_argument(segment: &PathSegment) -> Result<&Type, Error> {
    if let PathArguments::AngleBracketed(arguments) = &segment.arguments
        && let (1, Some(GenericArgument::Type(ty))) = (arguments.args.len(), arguments.args.first())
    {
        return Ok(ty);
    }
    Err(refuse(
        segment,
        format!("`{}` has one type inside, and nothing else", segment.ident),
    ))
}

fn refuse(ty: &impl ToTokens, reason: impl Display) -> Error {
    Error::new_spanned(
        ty,
        format!(
            "derive(Tree): `{}` cannot be a field: {reason}",
            written(ty)
        ),
    )
}

/// A type as a person writes it; tokens print as `Vec < L >`.
fn written(ty: &impl ToTokens) -> String {
    let tokens = ty.to_token_stream().to_string();
    let mut text = String::new();
    for word in tokens.split_whitespace() {
        let is_name = |character: char| character.is_alphanumeric() || character == '_';
        if text.ends_with(is_name) && word.starts_with(is_name) {
            text.push(' ');
        }
        text.push_str(word);
    }
    text.replace(',', ", ")
        .replace(';', "; ")
        .replace("->", " -> ")
}

#[cfg(test)]
mod tests {
    use quote::format_ident;
    use syn::{Type, parse_str};

    use super::{Parameters, Shape};

    fn leaf() -> Parameters {
        Parameters {
            leaf: Some(format_ident!("L")),
            subtrees: vec![],
        }
    }

    #[test]
    fn associated_type_of_leaf_is_rejected() {
        for (ty, written) in [
            ("L::Item", "L::Item"),
            ("Vec<<L as Iterator>::Item>", "<L as Iterator>::Item"),
            ("Linear<L>::Part", "Linear<L>::Part"),
        ] {
            let error = Shape::of(&parse_str(ty).unwrap(), &leaf())
                .err()
                .unwrap()
                .to_string();
            let expected =
                format!("derive(Tree): `{written}` cannot be a field: a type that belongs to `L`");
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn path_ending_in_leaf_name_is_static() {
        for ty in ["sizes::L", "Vec<crate::sizes::L>", "usize", "[f32; 4]"] {
            let ty: Type = parse_str(ty).unwrap();
            assert!(matches!(Shape::of(&ty, &leaf()), Ok(Shape::Static(_))));
        }
    }
}
