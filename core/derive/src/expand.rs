//! Generates the two impls. Generated names begin with two underscores, so that they differ from
//! the user's names.

mod fields;

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::{ConstParam, Member, WherePredicate, ext::IdentExt};

use self::fields::{Borrow, borrowed, mapped, visited};
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
        quote!(::core::option::Option::Some(#tree_with_leaves))
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

        fn try_map_at<__Mapped>(
            self,
            __at: &mut #tree::Path,
            __f: &mut dyn ::core::ops::FnMut(
                &#tree::Path,
                #leaf,
            ) -> ::core::option::Option<__Mapped>,
        ) -> ::core::option::Option<#of_mapped> {
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
