//! Parses the deriving type, and rejects what cannot be a tree.

use std::fmt::Display;

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{
    Attribute, Data, DeriveInput, Error, Field, Fields, GenericParam, Generics, Ident, LitStr,
    Member, Token, token,
};

use crate::{
    crate_path,
    shape::{Parameters, Shape, mentions},
};

/// A struct or enum that can be a tree.
pub(crate) struct Input {
    pub(crate) name: Ident,
    pub(crate) generics: Generics,
    /// The roles of its type parameters.
    pub(crate) parameters: Parameters,
    /// One for each variant of an enum; a struct is its only variant.
    pub(crate) variants: Vec<Variant>,
    /// The crate with the module `tree`.
    pub(crate) crate_path: syn::Path,
}

pub(crate) struct Variant {
    /// `None` for a struct.
    pub(crate) name: Option<Ident>,
    pub(crate) fields: Vec<(Member, Shape)>,
}

impl Input {
    pub(crate) fn new(input: DeriveInput) -> Result<Self, Error> {
        let name = input.ident;
        if let Data::Union(data) = &input.data {
            let message = format!(
                "derive(Tree): `{name}` is a union, and which leaves a union has is not known; use an enum"
            );
            return Err(Error::new(data.union_token.span, message));
        }
        let options = type_options(&input.attrs)?;
        let parameters = parameters_of(&name, &input.generics, options.subtrees)?;
        let variants = match &input.data {
            Data::Struct(data) => vec![Variant {
                name: None,
                fields: shapes(&data.fields, &parameters)?,
            }],
            Data::Enum(data) => {
                let mut variants = Vec::new();
                let mut errors = Errors::default();
                for variant in &data.variants {
                    errors.keep(refuse_attributes(&variant.attrs, "a variant"));
                    if let Some(fields) = errors.keep(shapes(&variant.fields, &parameters)) {
                        variants.push(Variant {
                            name: Some(variant.ident.clone()),
                            fields,
                        });
                    }
                }
                errors.finish(variants)?
            }
            Data::Union(_) => unreachable!("refused above"),
        };
        let crate_path = options.crate_path.unwrap_or_else(crate_path::detect);
        Ok(Input {
            name,
            generics: input.generics,
            parameters,
            variants,
            crate_path,
        })
    }

    /// The type with other arguments: `Mlp<leaf, subtree(M), N>`.
    pub(crate) fn with_arguments(
        &self,
        leaf: impl ToTokens,
        subtree: impl Fn(&Ident) -> TokenStream,
    ) -> TokenStream {
        let name = &self.name;
        let arguments = self
            .generics
            .params
            .iter()
            .map(|parameter| match parameter {
                GenericParam::Const(constant) => constant.ident.to_token_stream(),
                GenericParam::Type(ty) if self.parameters.subtrees.contains(&ty.ident) => {
                    subtree(&ty.ident)
                }
                GenericParam::Type(_) | GenericParam::Lifetime(_) => leaf.to_token_stream(),
            });
        quote!(#name<#(#arguments),*>)
    }
}

/// The roles of the type parameters. They must be free to stand for any type or tree.
fn parameters_of(
    name: &Ident,
    generics: &Generics,
    subtrees: Vec<Ident>,
) -> Result<Parameters, Error> {
    if let Some(lifetime) = generics.lifetimes().next() {
        let message = format!(
            "derive(Tree): `{name}` has the lifetime `{0}`, and a family of trees has none; make the leaf the thing that \
             borrows, e.g. `struct {name}<L> {{ weight: L }}` used as `{name}<&{0} f32>`",
            lifetime.lifetime
        );
        return Err(Error::new_spanned(lifetime, message));
    }
    let declared = |ident: &Ident| generics.type_params().any(|ty| ty.ident == *ident);
    if let Some(unknown) = subtrees.iter().find(|ident| !declared(ident)) {
        let message = format!("derive(Tree): `{name}` has no type parameter `{unknown}`");
        return Err(Error::new_spanned(unknown, message));
    }
    let leaves: Vec<_> = generics
        .type_params()
        .filter(|ty| !subtrees.contains(&ty.ident))
        .collect();
    if leaves.len() > 1 || leaves.is_empty() && subtrees.is_empty() {
        return Err(wrong_number_of_parameters(name, generics, &leaves));
    }
    for ty in generics.type_params() {
        if let Some(bound) = ty.bounds.first() {
            return Err(bounded(bound, &ty.ident));
        }
    }
    let parameters = Parameters {
        leaf: leaves.first().map(|leaf| leaf.ident.clone()),
        subtrees,
    };
    if let Some(clause) = &generics.where_clause
        && let Some(predicate) = clause
            .predicates
            .iter()
            .find(|predicate| mentions(predicate, &parameters))
    {
        return Err(bounded(predicate, &parameters));
    }
    Ok(parameters)
}

fn wrong_number_of_parameters(
    name: &Ident,
    generics: &Generics,
    parameters: &[&syn::TypeParam],
) -> Error {
    if parameters.is_empty() {
        let message = format!(
            "derive(Tree): `{name}` needs one type parameter for its leaves, e.g. `struct {name}<L> {{ weight: L }}` (a \
             struct without leaves needs no Tree: as a field of a tree it is copied unchanged)"
        );
        return Error::new_spanned(name, message);
    }
    let names: Vec<_> = parameters
        .iter()
        .map(|parameter| format!("`{}`", parameter.ident))
        .collect();
    let message = format!(
        "derive(Tree): `{name}` has {} type parameters ({}), and one is its leaf; mark those that stand for trees with \
         `#[tree(subtrees(..))]`, and use concrete types for the others",
        names.len(),
        names.join(", ")
    );
    Error::new_spanned(&generics.params, message)
}

fn bounded(bound: &impl ToTokens, leaf: &impl Display) -> Error {
    let message = format!(
        "derive(Tree): any type can stand at the leaves, so `{leaf}` can have no bounds here; put them on the `impl` blocks \
         that need them"
    );
    Error::new_spanned(bound, message)
}

/// The shapes of all fields, or the errors of all fields.
fn shapes(fields: &Fields, leaf: &Parameters) -> Result<Vec<(Member, Shape)>, Error> {
    let mut shapes = Vec::new();
    let mut errors = Errors::default();
    for (member, field) in fields.members().zip(fields) {
        if let Some(shape) = errors.keep(shape_of(field, leaf)) {
            shapes.push((member, shape));
        }
    }
    errors.finish(shapes)
}

fn shape_of(field: &Field, leaf: &Parameters) -> Result<Shape, Error> {
    let is_static = static_attribute(&field.attrs)?;
    if is_static && mentions(&field.ty, leaf) {
        let message = format!(
            "derive(Tree): a static field keeps its type when the leaves change theirs, so it cannot mention `{leaf}`"
        );
        return Err(Error::new_spanned(&field.ty, message));
    }
    Shape::of(&field.ty, leaf)
}

/// Returns `true` if the field has `#[tree(static)]`.
fn static_attribute(attributes: &[Attribute]) -> Result<bool, Error> {
    let mut found = false;
    for attribute in attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("tree"))
    {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("static") {
                return Err(meta.error("derive(Tree): a field has one option: `#[tree(static)]`"));
            }
            found = true;
            Ok(())
        })?;
    }
    Ok(found)
}

/// Options of the type: `#[tree(crate = "path", subtrees(A, B))]`.
#[derive(Default)]
struct TypeOptions {
    crate_path: Option<syn::Path>,
    subtrees: Vec<Ident>,
}

fn type_options(attributes: &[Attribute]) -> Result<TypeOptions, Error> {
    let mut options = TypeOptions::default();
    for attribute in attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("tree"))
    {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("subtrees") && meta.input.peek(token::Paren) {
                return meta.parse_nested_meta(|name| {
                    options.subtrees.push(name.path.require_ident()?.clone());
                    Ok(())
                });
            }
            if !meta.path.is_ident("crate") || !meta.input.peek(Token![=]) {
                return Err(meta.error(
                    "derive(Tree): a type has two options: `#[tree(crate = \"path\")]` and \
                     `#[tree(subtrees(M))]`",
                ));
            }
            options.crate_path = Some(
                meta.value()?
                    .parse::<LitStr>()?
                    .parse_with(syn::Path::parse_mod_style)?,
            );
            Ok(())
        })?;
    }
    Ok(options)
}

fn refuse_attributes(attributes: &[Attribute], place: &str) -> Result<(), Error> {
    match attributes
        .iter()
        .find(|attribute| attribute.path().is_ident("tree"))
    {
        Some(attribute) => Err(Error::new_spanned(
            attribute,
            format!("derive(Tree): {place} has no options"),
        )),
        None => Ok(()),
    }
}

/// Collects errors, so that all are reported at once.
#[derive(Default)]
struct Errors(Option<Error>);

impl Errors {
    fn keep<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        match (result, &mut self.0) {
            (Ok(value), _) => return Some(value),
            (Err(error), Some(errors)) => errors.combine(error),
            (Err(error), none) => *none = Some(error),
        }
        None
    }

    fn finish<T>(self, value: T) -> Result<T, Error> {
        self.0.map_or(Ok(value), Err)
    }
}
