//! Generates the two impls. Generated names begin with two underscores, so that they differ from
//! the user's names.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::{ConstParam, Member, WherePredicate, ext::IdentExt};

use crate::{
    input::{Input, Variant},
    shape::Shape,
};

pub(crate) fn expand(input: &Input) -> TokenStream {
    let header = Header::of(input);
    let (family, tree) = (family_impl(input, &header), tree_impl(input, &header));
    quote!(#family #tree)
}

/// Parts of the headers of both impls.
struct Header<'a> {
    /// Path of the module `tree`.
    tree: TokenStream,
    /// The leaf type of the derived type.
    leaf: TokenStream,
    constants: Vec<TokenStream>,
    predicates: Vec<&'a WherePredicate>,
}

impl<'a> Header<'a> {
    fn of(input: &'a Input) -> Self {
        let crate_path = &input.crate_path;
        let predicates = input.generics.where_clause.iter();
        Header {
            tree: quote!(#crate_path::tree),
            // A wrapper without a leaf of its own has that of its subtrees.
            leaf: match &input.parameters.leaf {
                Some(leaf) => quote!(#leaf),
                None => quote!(__Leaf),
            },
            constants: input.generics.const_params().map(without_default).collect(),
            predicates: predicates.flat_map(|clause| &clause.predicates).collect(),
        }
    }
}

fn family_impl(input: &Input, header: &Header<'_>) -> TokenStream {
    let Header {
        tree,
        constants,
        predicates,
        ..
    } = header;
    let subtrees = &input.parameters.subtrees;
    let self_family = input.with_arguments(quote!(()), |subtree| quote!(#subtree));
    let family_of = input.with_arguments(
        quote!(__Mapped),
        |subtree| quote!(<#subtree as #tree::Family>::Of<__Mapped>),
    );
    quote! {
        #[automatically_derived]
        impl<#(#subtrees: #tree::Family,)* #(#constants),*> #tree::Family for #self_family
        where
            #(#predicates,)*
        {
            type Of<__Mapped> = #family_of;
            type Bare<__Mapped> = #family_of;

            fn into_bare<__Mapped>(__tree: #family_of) -> #family_of {
                __tree
            }

            fn from_bare<__Mapped>(__bare: #family_of) -> #family_of {
                __bare
            }
        }
    }
}

fn tree_impl(input: &Input, header: &Header<'_>) -> TokenStream {
    let Header {
        tree,
        leaf,
        constants,
        predicates,
    } = header;
    let subtrees = &input.parameters.subtrees;
    let family = input.with_arguments(
        quote!(()),
        |subtree| quote!(<#subtree as #tree::Tree>::Family),
    );
    let self_type = input.with_arguments(leaf, |subtree| quote!(#subtree));
    let methods = tree_methods(input, tree, leaf);
    quote! {
        #[automatically_derived]
        #[allow(unused_variables, clippy::all, clippy::pedantic)]
        impl<#leaf, #(#subtrees,)* #(#constants),*> #tree::Tree for #self_type
        where
            #(
                #subtrees: #tree::Tree<Leaf = #leaf>,
                <#subtrees as #tree::Tree>::Family: #tree::Family<Of<#leaf> = #subtrees>,
            )*
            #(#predicates,)*
        {
            type Leaf = #leaf;
            type Family = #family;

            #methods
        }
    }
}

fn tree_methods(input: &Input, tree: &TokenStream, leaf: &TokenStream) -> TokenStream {
    let of = |leaf: TokenStream| {
        input.with_arguments(&leaf, |subtree| quote!(#tree::Of<#subtree, #leaf>))
    };
    let of_mapped = of(quote!(__Mapped));
    let of_ref = of(quote!(&#leaf));
    let of_mut = of(quote!(&mut #leaf));

    let as_ref = arms(input, |variant| {
        variant.rebuilt(|shape, value| borrowed(shape, value, tree, Borrow::Shared))
    });
    let as_mut = arms(input, |variant| {
        variant.rebuilt(|shape, value| borrowed(shape, value, tree, Borrow::Mutable))
    });
    let try_map = arms(input, |variant| {
        let tree_with_leaves = variant.rebuilt_at_paths(|shape, value| mapped(shape, value, tree));
        quote!(::core::result::Result::Ok(#tree_with_leaves))
    });
    let visit = arms(input, |variant| {
        variant.each_at_path(|shape, value| visited(shape, value, tree))
    });
    quote! {
        fn from_tree(__tree: Self) -> Self {
            __tree
        }

        fn leaf_refs(&self) -> #of_ref {
            match self { #as_ref }
        }

        fn leaf_refs_mut(&mut self) -> #of_mut {
            match self { #as_mut }
        }

        fn try_map_at<__Mapped, __Error>(
            self,
            __at: &mut #tree::Path,
            __f: &mut dyn ::core::ops::FnMut(
                &#tree::Path,
                #leaf,
            ) -> ::core::result::Result<__Mapped, __Error>,
        ) -> ::core::result::Result<#of_mapped, __Error> {
            match self { #try_map }
        }

        fn visit<'__a>(
            &'__a self,
            __at: &mut #tree::Path,
            __f: &mut dyn ::core::ops::FnMut(&#tree::Path, &'__a #leaf),
        ) {
            match self { #visit }
        }
    }
}

/// `const N: usize` of `const N: usize = 4`, which an `impl` does not allow.
fn without_default(constant: &ConstParam) -> TokenStream {
    let ConstParam { ident, ty, .. } = constant;
    quote!(const #ident: #ty)
}

/// A match arm for each variant, with all fields bound.
fn arms(input: &Input, body: impl Fn(&BoundVariant) -> TokenStream) -> TokenStream {
    let arms = input.variants.iter().map(|variant| {
        let variant = BoundVariant::new(&input.name, variant);
        let BoundVariant { constructor, .. } = &variant;
        let patterns = variant
            .fields
            .iter()
            .map(|(member, _, value)| quote!(#member: #value));
        let body = body(&variant);
        quote!(#constructor { #(#patterns),* } => #body,)
    });
    quote!(#(#arms)*)
}

/// A struct, or a variant of an enum, whose fields are bound to variables.
struct BoundVariant<'a> {
    constructor: TokenStream,
    fields: Vec<(&'a Member, &'a Shape, Ident)>,
}

impl<'a> BoundVariant<'a> {
    fn new(name: &Ident, variant: &'a Variant) -> Self {
        let constructor = match &variant.name {
            Some(variant) => quote!(#name::#variant),
            None => quote!(#name),
        };
        let fields = variant.fields.iter().enumerate();
        let fields = fields
            .map(|(i, (member, shape))| (member, shape, format_ident!("__field_{i}")))
            .collect();
        BoundVariant {
            constructor,
            fields,
        }
    }

    /// Rebuilds the variant with the code of `make` for each field.
    fn rebuilt(&self, make: impl Fn(&Shape, TokenStream) -> TokenStream) -> TokenStream {
        let BoundVariant {
            constructor,
            fields,
        } = self;
        let made = fields.iter().map(|(member, shape, value)| {
            let made = make(shape, quote!(#value));
            quote!(#member: #made)
        });
        quote!(#constructor { #(#made),* })
    }

    /// Like `rebuilt`, with `__at` inside the field.
    fn rebuilt_at_paths(&self, make: impl Fn(&Shape, TokenStream) -> TokenStream) -> TokenStream {
        let BoundVariant {
            constructor,
            fields,
        } = self;
        let made = fields.iter().map(|(member, shape, value)| {
            let made = inside(member, shape, make(shape, quote!(#value)));
            quote!(#member: #made)
        });
        quote!(#constructor { #(#made),* })
    }

    /// Statements of `make` for each field, with `__at` inside the field.
    fn each_at_path(&self, make: impl Fn(&Shape, TokenStream) -> TokenStream) -> TokenStream {
        let made = self
            .fields
            .iter()
            .map(|(member, shape, value)| inside(member, shape, make(shape, quote!(#value))));
        quote!({ #(#made;)* })
    }
}

/// `body` with `__at` inside the field or element `member`.
fn inside(member: &Member, shape: &Shape, body: TokenStream) -> TokenStream {
    if !shape.has_leaves() {
        return body;
    }
    let enter = match member {
        Member::Named(name) => {
            let name = name.unraw().to_string();
            quote!(field(#name))
        }
        Member::Unnamed(index) => {
            let index = index.index as usize;
            quote!(index(#index))
        }
    };
    quote!({
        let mut __scope = __at.#enter;
        let __at = &mut *__scope;
        #body
    })
}

#[derive(Clone, Copy)]
enum Borrow {
    Shared,
    Mutable,
}

/// Code that turns `value`, a reference to data of `shape`, into data with references at its leaves.
fn borrowed(shape: &Shape, value: TokenStream, tree: &TokenStream, borrow: Borrow) -> TokenStream {
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
            quote!(::core::iter::Iterator::collect(::core::iter::Iterator::map(#value.#iter, |__item| #item)))
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
/// from the function on errors.
fn mapped(shape: &Shape, value: TokenStream, tree: &TokenStream) -> TokenStream {
    let inner = |shape| mapped(shape, quote!(__item), tree);
    match shape {
        Shape::Leaf => or_return(quote!(__f(__at, #value))),
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
            or_return(
                quote!(#tree::support::try_map_array(#value, |__index, __item| {
                    let mut __scope = __at.index(__index);
                    let __at = &mut *__scope;
                    ::core::result::Result::Ok(#item)
                })),
            )
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
            or_return(quote_spanned!(*span=> #tree::Tree::try_map_at(#value, __at, __f)))
        }
    }
}

/// Statements that call `__f` with every leaf of `value`, a reference to data of `shape`.
fn visited(shape: &Shape, value: TokenStream, tree: &TokenStream) -> TokenStream {
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

/// Unwraps a `Result` and returns errors unchanged. (`?` would also convert them, to an unknown
/// type.)
fn or_return(result: TokenStream) -> TokenStream {
    quote!(match #result {
        ::core::result::Result::Ok(__ok) => __ok,
        ::core::result::Result::Err(__error) => return ::core::result::Result::Err(__error),
    })
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
