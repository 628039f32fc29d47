//! Properties of trees, checked on random ones.

use std::collections::HashSet;

use halite_core::tree::{Path, Tree, same_structure, try_zip, unzip, zip};
use proptest::{collection::vec, option, prelude::*};

/// Any number of leaves at any depth.
#[derive(Tree, Clone, Debug, PartialEq)]
struct Node<L> {
    one: Option<L>,
    list: Vec<Option<L>>,
    pair: (L, [Option<L>; 2]),
    children: Vec<Node<L>>,
    kind: Kind<L>,
    size: usize,
}

#[derive(Tree, Clone, Debug, PartialEq)]
enum Kind<L> {
    Plain,
    Weighted {
        weight: L,
        children: Vec<(L, String)>,
    },
    Boxed(Option<Box<L>>),
}

fn nodes() -> impl Strategy<Value = Node<u32>> {
    let leaf = any::<u32>;
    let kind = prop_oneof![
        Just(Kind::Plain),
        (leaf(), vec((leaf(), "[a-z]{0,3}"), 0..3))
            .prop_map(|(weight, children)| Kind::Weighted { weight, children }),
        option::of(leaf().prop_map(Box::new)).prop_map(Kind::Boxed),
    ];
    let without_children = (
        option::of(leaf()),
        vec(option::of(leaf()), 0..3),
        (leaf(), [option::of(leaf()), option::of(leaf())]),
        kind,
        any::<usize>(),
    );
    let without_children = without_children.prop_map(|(one, list, pair, kind, size)| Node {
        one,
        list,
        pair,
        children: Vec::new(),
        kind,
        size,
    });
    without_children.prop_recursive(3, 12, 3, |inner| {
        (inner.clone(), vec(inner, 0..3)).prop_map(|(node, children)| Node { children, ..node })
    })
}

proptest! {
    #[test]
    fn identity_map_changes_nothing(tree in nodes()) {
        prop_assert_eq!(tree.clone().map_leaves(|_, leaf| leaf), tree.clone());
        prop_assert_eq!(tree.leaf_refs().map_leaves(|_, leaf| *leaf), tree);
    }

    #[test]
    fn all_visitors_see_the_same_paths(mut tree in nodes()) {
        let named: Vec<(String, u32)> = tree.named().into_iter().map(|(name, leaf)| (name, *leaf)).collect();
        prop_assert_eq!(named.iter().map(|(name, _)| name).collect::<HashSet<_>>().len(), named.len());
        prop_assert_eq!(tree.leaf_count(), named.len());
        let by_reference: Vec<_> = tree.leaf_refs().named().into_iter().map(|(name, leaf)| (name, **leaf)).collect();
        prop_assert_eq!(&by_reference, &named);
        let by_mutable_reference: Vec<_> =
            tree.leaf_refs_mut().named().into_iter().map(|(name, leaf)| (name, **leaf)).collect();
        prop_assert_eq!(&by_mutable_reference, &named);
        let mut mapped = Vec::new();
        tree.clone().map_leaves(|at, leaf| mapped.push((at.to_string(), leaf)));
        prop_assert_eq!(&mapped, &named);
        let (names, leaves): (Vec<_>, Vec<_>) = named.into_iter().unzip();
        prop_assert_eq!(tree.paths(), names);
        prop_assert_eq!(tree.leaves(), leaves.iter().collect::<Vec<_>>());
        prop_assert_eq!(tree.into_leaves(), leaves);
    }

    #[test]
    fn rebuild_needs_the_exact_leaf_count(tree in nodes(), extra in 1..3usize) {
        let leaves = tree.clone().into_leaves();
        prop_assert_eq!(tree.rebuild(leaves.clone()), tree.clone());
        prop_assert!(tree.try_rebuild(leaves.iter().chain(std::iter::repeat_n(&0, extra))).is_err());
        prop_assert!(tree.try_rebuild(&leaves[..leaves.len().saturating_sub(extra)]).is_err() || leaves.is_empty());
    }

    #[test]
    fn unzip_undoes_zip(tree in nodes()) {
        let names = tree.leaf_refs().map_leaves(|at, _| at.to_string());
        let (left, right) = unzip(zip(tree.clone(), names.clone()));
        prop_assert_eq!(left, tree);
        prop_assert_eq!(right, names);
    }

    #[test]
    fn trees_zip_iff_their_paths_agree(left in nodes(), right in nodes()) {
        let same = left.paths() == right.paths();
        prop_assert_eq!(same_structure(&left, &right).is_ok(), same);
        prop_assert_eq!(try_zip(left, right).is_ok(), same);
    }

    #[test]
    fn failed_map_restores_the_path(tree in nodes(), at in any::<prop::sample::Index>()) {
        let paths = tree.paths();
        let failing = at.index(paths.len());
        let mut seen = 0;
        let mut path = Path::new();
        let mut last = String::new();
        let failed = tree.try_map_at(&mut path, &mut |at, leaf| {
            seen += 1;
            last = at.to_string();
            (seen != failing + 1).then_some(leaf)
        });
        prop_assert!(failed.is_none());
        prop_assert_eq!(&last, &paths[failing]);
        prop_assert_eq!(seen, failing + 1);
        prop_assert!(path.is_empty());
    }
}
