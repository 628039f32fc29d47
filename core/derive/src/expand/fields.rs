//! Code for the value of a field, by its shape: a leaf, a subtree, or a collection of them.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::Member;

use super::inside;
use crate::shape::Shape;

#[derive(Clone, Copy)]
pub(super) enum Borrow {
    Shared,
    Mutable,
}

/// Code that turns `value`, a reference to data of `shape`, into data with references at its
/// leaves.
pub(super) fn borrowed(
    shape: &Shape,
    value: TokenStream,
    tree: &TokenStream,
    borrow: Borrow,
) -> TokenStream {
    let inner = |shape| borrowed(shape, quote!(__item), tree, borrow);
    match shape {
        Shape::Leaf => value,
        Shape::Static(span) => quote_spanned!(*span=> ::core::clone::Clone::clone(&*#value)),
        Shape::Phantom => quote!(::core::marker::PhantomData),
        Shape::Option(shape) => {
            let item = inner(shape);
            quote!(match #value {
                ::core::option::Option::Some(__item) => ::core::option::Option::Some(#item),
                ::core::option::Option::None => ::core::option::Option::None,
            })
        }
        Shape::Vec(shape) => {
            let item = inner(shape);
            let iter = match borrow {
                Borrow::Shared => quote!(iter()),
                Borrow::Mutable => quote!(iter_mut()),
            };
            quote!({
                let mut __borrowed = ::std::vec::Vec::with_capacity(#value.len());
                for __item in #value.#iter {
                    __borrowed.push(#item);
                }
                __borrowed
            })
        }
        Shape::Array(shape) => {
            let item = inner(shape);
            let each = match borrow {
                Borrow::Shared => quote!(each_ref()),
                Borrow::Mutable => quote!(each_mut()),
            };
            quote!(#value.#each.map(|__item| #item))
        }
        Shape::Boxed(shape) => {
            let item = inner(shape);
            let reference = match borrow {
                Borrow::Shared => quote!(&**#value),
                Borrow::Mutable => quote!(&mut **#value),
            };
            quote!({
                let __item = #reference;
                ::std::boxed::Box::new(#item)
            })
        }
        Shape::Tuple(shapes) => {
            let (names, items) = tuple(shapes, |shape, name| borrowed(shape, name, tree, borrow));
            quote!({
                let (#(#names,)*) = #value;
                (#(#items,)*)
            })
        }
        Shape::Tree(span) => match borrow {
            Borrow::Shared => quote_spanned!(*span=> #tree::Tree::leaf_refs(#value)),
            Borrow::Mutable => quote_spanned!(*span=> #tree::Tree::leaf_refs_mut(#value)),
        },
    }
}

/// Code that replaces the leaves of `value`, data of `shape`, by the results of `__f`. It returns
/// from the function at a `None`.
pub(super) fn mapped(shape: &Shape, value: TokenStream, tree: &TokenStream) -> TokenStream {
    let inner = |shape| mapped(shape, quote!(__item), tree);
    match shape {
        Shape::Leaf => quote!(__f(__at, #value)?),
        Shape::Static(_) => value,
        Shape::Phantom => quote!(::core::marker::PhantomData),
        Shape::Option(shape) => {
            let item = inner(shape);
            quote!(match #value {
                ::core::option::Option::Some(__item) => ::core::option::Option::Some(#item),
                ::core::option::Option::None => ::core::option::Option::None,
            })
        }
        Shape::Vec(shape) => {
            let item = inner(shape);
            quote!({
                let mut __mapped = ::std::vec::Vec::with_capacity(#value.len());
                for (__index, __item) in ::core::iter::Iterator::enumerate(
                    ::core::iter::IntoIterator::into_iter(#value),
                ) {
                    let mut __scope = __at.index(__index);
                    let __at = &mut *__scope;
                    __mapped.push(#item);
                }
                __mapped
            })
        }
        Shape::Array(shape) => {
            let item = inner(shape);
            quote!(#tree::support::try_map_array(#value, |__index, __item| {
                let mut __scope = __at.index(__index);
                let __at = &mut *__scope;
                ::core::option::Option::Some(#item)
            })?)
        }
        Shape::Boxed(shape) => {
            let item = inner(shape);
            quote!({
                let __item = *#value;
                ::std::boxed::Box::new(#item)
            })
        }
        Shape::Tuple(shapes) => {
            let (names, items) = tuple_at_paths(shapes, |shape, name| mapped(shape, name, tree));
            quote!({
                let (#(#names,)*) = #value;
                (#(#items,)*)
            })
        }
        Shape::Tree(span) => {
            quote_spanned!(*span=> #tree::Tree::try_map_at(#value, __at, __f)?)
        }
    }
}

/// Statements that call `__f` with every leaf of `value`, a reference to data of `shape`.
pub(super) fn visited(shape: &Shape, value: TokenStream, tree: &TokenStream) -> TokenStream {
    let inner = |shape| visited(shape, quote!(__item), tree);
    match shape {
        Shape::Leaf => quote!(__f(__at, #value)),
        Shape::Static(_) | Shape::Phantom => quote!(()),
        Shape::Option(shape) => {
            let item = inner(shape);
            quote!(if let ::core::option::Option::Some(__item) = #value {
                #item
            })
        }
        Shape::Vec(shape) | Shape::Array(shape) => {
            let item = inner(shape);
            quote!(for (__index, __item) in ::core::iter::Iterator::enumerate(#value.iter()) {
                let mut __scope = __at.index(__index);
                let __at = &mut *__scope;
                #item
            })
        }
        Shape::Boxed(shape) => {
            let item = inner(shape);
            quote!({
                let __item = &**#value;
                #item
            })
        }
        Shape::Tuple(shapes) => {
            let (names, items) = tuple_at_paths(shapes, |shape, name| visited(shape, name, tree));
            quote!({
                let (#(#names,)*) = #value;
                #(#items;)*
            })
        }
        Shape::Tree(span) => quote_spanned!(*span=> #tree::Tree::visit(#value, __at, __f)),
    }
}

/// Names for the elements of a tuple, and the code of `make` for each.
fn tuple(
    shapes: &[Shape],
    make: impl Fn(&Shape, TokenStream) -> TokenStream,
) -> (Vec<Ident>, Vec<TokenStream>) {
    let named = shapes.iter().enumerate().map(|(index, shape)| {
        let name = format_ident!("__item_{index}");
        let made = make(shape, quote!(#name));
        (name, made)
    });
    named.unzip()
}

/// Like `tuple`, with `__at` inside the element.
fn tuple_at_paths(
    shapes: &[Shape],
    make: impl Fn(&Shape, TokenStream) -> TokenStream,
) -> (Vec<Ident>, Vec<TokenStream>) {
    let (names, made) = tuple(shapes, make);
    let at_paths = made.into_iter().zip(shapes).enumerate();
    let at_paths = at_paths.map(|(index, (made, shape))| inside(&Member::from(index), shape, made));
    (names, at_paths.collect())
}
