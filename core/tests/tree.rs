//! Trees: derived and built in, visited, mapped, zipped and rebuilt.

use std::marker::PhantomData;

use halite_core::tree::{
    Empty, Family, Leaf, Of, Path, Segment, Tree, TreeError, same_structure, try_zip, unzip, zip,
};
use halite_core::{DType, HostArray, TensorType};

#[derive(Tree, Clone, Debug, PartialEq)]
struct Linear<L = f32> {
    weight: L,
    bias: Option<L>,
}

/// One field of every kind that the derive supports.
#[derive(Tree, Clone, Debug, PartialEq)]
struct Everything<L> {
    one: L,
    maybe: Option<L>,
    list: Vec<Option<L>>,
    array: [L; 2],
    boxed: Box<L>,
    pair: (L, String, Vec<L>),
    part: Linear<L>,
    maybe_part: Option<Linear<L>>,
    parts: Vec<Linear<L>>,
    part_array: [Linear<L>; 2],
    named: Vec<(&'static str, (L, Linear<L>))>,
    leaf: Leaf<L>,
    empty: Empty<L>,
    marker: PhantomData<fn(L)>,
    r#type: L,
    stride: usize,
    #[tree(static)]
    note: String,
}

#[derive(Tree, Clone, Debug, PartialEq)]
struct Wrapper<L>(L, Linear<L>, u8);

#[derive(Tree, Clone, Copy, Debug, PartialEq)]
struct NoLeaves<L>(PhantomData<L>);

/// The leaf may have any name, and const parameters may come in any order.
#[derive(Tree, Clone, Debug, PartialEq)]
struct Grid<Value, const ROWS: usize, const COLUMNS: usize = 2> {
    cells: [[Value; COLUMNS]; ROWS],
}

#[derive(Tree, Clone, Debug, PartialEq)]
struct Chain<L> {
    here: L,
    next: Option<Box<Self>>,
}

#[derive(Tree, Clone, Debug, PartialEq)]
enum Pool<L> {
    Max,
    Learned { weight: L, size: usize },
    Both(L, Linear<L>),
}

// A field named like generated variables, in a scope where names of the prelude are shadowed.
mod shadowed {
    #![allow(dead_code, non_camel_case_types)]
    use halite_core::Tree;

    struct Some;
    struct None;
    struct Ok;
    struct Err;
    struct Result;
    struct Path;
    struct Family;

    #[derive(Tree, Default)]
    pub(super) struct Odd<L> {
        pub(super) at: L,
        pub(super) f: std::option::Option<L>,
        pub(super) __at: std::vec::Vec<L>,
    }
}

/// A crate that re-exports `tree`.
mod facade {
    pub(crate) use halite_core::tree;
}

#[derive(Tree)]
#[tree(crate = "crate::tree::facade")]
struct Elsewhere<L>(L);

fn linear(weight: i64, bias: Option<i64>) -> Linear<i64> {
    Linear { weight, bias }
}

/// Leaves 0, 1, 2 .. in the expected order.
fn everything() -> Everything<i64> {
    Everything {
        one: 0,
        maybe: Some(1),
        list: vec![Some(2), None, Some(3)],
        array: [4, 5],
        boxed: Box::new(6),
        pair: (7, "kept".into(), vec![8, 9]),
        part: linear(10, Some(11)),
        maybe_part: None,
        parts: vec![linear(12, None), linear(13, Some(14))],
        part_array: [linear(15, None), linear(16, None)],
        named: vec![("first", (17, linear(18, None)))],
        leaf: Leaf(19),
        empty: Empty::new(),
        marker: PhantomData,
        r#type: 20,
        stride: 3,
        note: "kept too".into(),
    }
}

#[test]
fn leaves_follow_the_order_of_fields() {
    let tree = everything();
    let names = [
        "one",
        "maybe",
        "list.0",
        "list.2",
        "array.0",
        "array.1",
        "boxed",
        "pair.0",
        "pair.2.0",
        "pair.2.1",
        "part.weight",
        "part.bias",
        "parts.0.weight",
        "parts.1.weight",
        "parts.1.bias",
        "part_array.0.weight",
        "part_array.1.weight",
        "named.0.1.0",
        "named.0.1.1.weight",
        "leaf",
        "type",
    ];
    assert_eq!(tree.paths(), names);
    assert_eq!(tree.leaf_count(), names.len());
    assert_eq!(
        tree.leaves(),
        (0..21).collect::<Vec<_>>().iter().collect::<Vec<_>>()
    );
    assert_eq!(tree.named()[11], ("part.bias".to_owned(), &11));
    let mut mapped = Vec::new();
    tree.clone()
        .map_leaves(|at, leaf| mapped.push((at.to_string(), leaf)));
    assert_eq!(
        mapped,
        names
            .map(str::to_owned)
            .into_iter()
            .zip(0..21)
            .collect::<Vec<_>>()
    );
    assert_eq!(tree.into_leaves(), (0..21).collect::<Vec<_>>());
}

#[test]
fn map_leaves_keeps_static_fields() {
    let texts: Everything<String> = everything().map_leaves(|at, leaf| format!("{at}={leaf}"));
    assert_eq!(texts.parts[1].bias.as_deref(), Some("parts.1.bias=14"));
    assert_eq!(
        (
            texts.pair.1.as_str(),
            texts.named[0].0,
            texts.stride,
            texts.note.as_str()
        ),
        ("kept", "first", 3, "kept too")
    );
    assert_eq!(everything().map_leaves(|_, leaf| leaf), everything());
}

#[test]
fn leaf_references_read_or_write_the_tree() {
    let mut tree = everything();
    let doubled: Everything<i64> = tree.leaf_refs().map_leaves(|_, leaf| leaf * 2);
    tree.leaf_refs_mut().map_leaves(|_, leaf| *leaf *= 2);
    assert_eq!(tree, doubled);
    assert_eq!(tree.named[0].1.1.weight, 36);
}

#[test]
fn first_none_ends_a_map() {
    let mut at = Path::new();
    let mut outer = at.field("model");
    let mut seen = 0;
    let mut last = String::new();
    let failed = everything().try_map_at(&mut outer, &mut |at, leaf| {
        seen += 1;
        last = at.to_string();
        (leaf != 16).then_some(leaf)
    });
    assert!(failed.is_none());
    assert_eq!(last, "model.part_array.1.weight");
    assert_eq!(seen, 17);
    assert_eq!(outer.to_string(), "model");
    drop(outer);
    assert!(at.is_empty());
}

#[test]
fn first_error_ends_a_map() {
    let mut seen = 0;
    let failed = everything().try_map_leaves(|at, leaf| {
        seen += 1;
        if leaf == 16 {
            Err(at.to_string())
        } else {
            Ok(leaf)
        }
    });
    assert_eq!(failed, Err("part_array.1.weight".to_owned()));
    assert_eq!(seen, 17);
}

#[test]
fn path_below_several_segments_is_left_at_once() {
    let mut at = Path::new();
    let mut outer = at.field("model");
    let segments = [Segment::Field("blocks"), Segment::Index(3)];
    assert_eq!(
        outer.below(&segments).field("bias").to_string(),
        "model.blocks.3.bias"
    );
    assert_eq!(outer.below(&[]).to_string(), "model");
    assert_eq!(outer.to_string(), "model");
}

#[test]
fn unusual_structs_derive_tree() {
    assert_eq!(
        Wrapper(1, linear(2, Some(3)), 9).paths(),
        ["0", "1.weight", "1.bias"]
    );
    assert_eq!(
        NoLeaves::<i64>(PhantomData)
            .map_leaves(|_, _| "")
            .leaf_count(),
        0
    );
    assert_eq!(Elsewhere(1).leaves(), [&1]);
    let grid = Grid {
        cells: [[1, 2, 3], [4, 5, 6]],
    };
    assert_eq!(
        grid.paths(),
        [
            "cells.0.0",
            "cells.0.1",
            "cells.0.2",
            "cells.1.0",
            "cells.1.1",
            "cells.1.2"
        ]
    );
    assert_eq!(
        grid.map_leaves(|_, leaf| leaf * 10),
        Grid {
            cells: [[10, 20, 30], [40, 50, 60]]
        }
    );
    let chain = Chain {
        here: 1,
        next: Some(Box::new(Chain {
            here: 2,
            next: None,
        })),
    };
    assert_eq!(chain.paths(), ["here", "next.here"]);
    assert_eq!(chain.clone().map_leaves(|_, leaf| leaf), chain);
    let odd = shadowed::Odd {
        at: 1,
        f: Some(2),
        __at: vec![3],
    };
    assert_eq!(odd.paths(), ["at", "f", "__at.0"]);
}

#[test]
fn enum_variants_are_not_in_paths() {
    let table: [(Pool<i64>, &[&str]); 3] = [
        (Pool::Max, &[]),
        (Pool::Learned { weight: 1, size: 2 }, &["weight"]),
        (Pool::Both(1, linear(2, None)), &["0", "1.weight"]),
    ];
    for (pool, paths) in table {
        assert_eq!(pool.paths(), paths);
        assert_eq!(pool.leaf_refs().map_leaves(|_, &leaf| leaf), pool);
    }
    assert_eq!(
        Pool::Learned { weight: 1, size: 2 }.map_leaves(|_, w| w as f32),
        Pool::Learned {
            weight: 1.0,
            size: 2
        }
    );
}

#[test]
fn containers_of_trees_are_trees() {
    let tree = (
        vec![linear(1, Some(2))],
        [Leaf(3), Leaf(4)],
        Some(Box::new(Leaf(5))),
        (Empty::<i64>::new(),),
        Leaf(6),
    );
    assert_eq!(
        tree.paths(),
        ["0.0.weight", "0.0.bias", "1.0", "1.1", "2", "4"]
    );
    assert_eq!(tree.clone().map_leaves(|_, leaf| leaf), tree);
    assert_eq!(tree.clone().into_leaves(), [1, 2, 3, 4, 5, 6]);
    let failed = tree.try_map_leaves(
        |at, leaf| {
            if leaf == 4 { Err(at.clone()) } else { Ok(leaf) }
        },
    );
    assert_eq!(
        failed.unwrap_err().segments(),
        [Segment::Index(1), Segment::Index(1)]
    );
    let eight = (
        Leaf(0),
        Leaf(1),
        Leaf(2),
        Leaf(3),
        Leaf(4),
        Leaf(5),
        Leaf(6),
        Leaf(7),
    );
    assert_eq!(eight.leaves(), [&0, &1, &2, &3, &4, &5, &6, &7]);
    assert_eq!(Leaf(7).paths(), [""]);
}

#[test]
fn leaves_need_neither_clone_nor_static() {
    struct Borrowed<'t>(&'t str);
    let text = String::from("local");
    let tree = Linear {
        weight: Borrowed(&text),
        bias: None,
    };
    let (left, right) = unzip(tree.map_leaves(|_, leaf| (Borrowed(leaf.0), leaf.0.len())));
    assert_eq!((left.weight.0, right.weight), ("local", 5));
}

#[test]
fn generic_code_names_other_leaf_types() {
    fn scaled<F: Family>(tree: &F::Of<i64>, by: i64) -> F::Of<f64> {
        tree.leaf_refs().map_leaves(|_, &leaf| (leaf * by) as f64)
    }
    fn counted<T: Tree>(tree: T) -> (Of<T, usize>, usize) {
        let mut count = 0;
        let numbered = tree.map_leaves(|_, _| {
            count += 1;
            count - 1
        });
        (numbered, count)
    }
    assert_eq!(
        scaled::<Linear<()>>(&linear(2, Some(3)), 10),
        Linear {
            weight: 20.0,
            bias: Some(30.0)
        }
    );
    assert_eq!(
        scaled::<Vec<Linear<()>>>(&vec![linear(2, None)], 10),
        [Linear {
            weight: 20.0,
            bias: None
        }]
    );
    assert_eq!(
        counted(linear(9, Some(9))),
        (
            Linear {
                weight: 0,
                bias: Some(1)
            },
            2
        )
    );
}

#[test]
fn wrong_leaf_count_names_both_counts() {
    let tree = linear(1, Some(2));
    let refused = |leaves: Vec<u8>| tree.try_rebuild(leaves).unwrap_err().to_string();
    assert_eq!(
        refused(vec![1]),
        "the number of leaves differs: 2 in the tree, 1 given"
    );
    assert_eq!(
        refused(vec![1, 2, 3, 4]),
        "the number of leaves differs: 2 in the tree, 4 given"
    );
    let endless = tree.try_rebuild(std::iter::repeat(0)).unwrap_err();
    assert!(
        matches!(
            endless,
            TreeError::LeafCount {
                expected: 2,
                or_more: true,
                ..
            }
        ),
        "{endless:?}"
    );
    assert_eq!(tree.try_rebuild([3, 4]), Ok(linear(3, Some(4))));
}

#[test]
fn zip_names_the_first_difference() {
    let tree = |biases: &[Option<i64>]| {
        biases
            .iter()
            .map(|&bias| linear(0, bias))
            .collect::<Vec<_>>()
    };
    let table = [
        (
            tree(&[None]),
            tree(&[Some(1)]),
            "only the right has `0.bias` (number of leaves: 1 left, 2 right)",
        ),
        (
            tree(&[None, None]),
            tree(&[None]),
            "only the left has `1.weight` (number of leaves: 2 left, 1 right)",
        ),
        (
            tree(&[Some(1), None]),
            tree(&[None, Some(1)]),
            "where the left has `0.bias` the right has `1.weight` (number of leaves: 3 left, 3 right)",
        ),
    ];
    for (left, right, difference) in table {
        let expected = format!("the trees differ in structure: {difference}");
        assert_eq!(
            same_structure(&left, &right).unwrap_err().to_string(),
            expected
        );
        assert_eq!(try_zip(left, right).unwrap_err().to_string(), expected);
    }
    assert_eq!(
        zip(linear(1, None), linear(2, None)),
        Linear {
            weight: (1, 2),
            bias: None
        }
    );
}

#[test]
fn public_types_cross_threads() {
    fn crosses<T: Send + Sync + 'static>() {}
    crosses::<Path>();
    crosses::<Segment>();
    crosses::<TreeError>();
    crosses::<Leaf<i64>>();
    crosses::<Empty<*const u8>>();
    crosses::<Everything<i64>>();
}

/// A wrapper of any layer.
#[derive(Tree, Clone, Debug, PartialEq)]
#[tree(subtrees(M))]
struct Residual<M> {
    layer: M,
    branches: Vec<M>,
    scale: u8,
}

/// Subtrees and leaves side by side.
#[derive(Tree, Clone, Debug, PartialEq)]
#[tree(subtrees(A, B))]
struct Pair<A, L, B> {
    first: A,
    gain: L,
    second: Option<B>,
}

fn weight_only(weight: i32) -> Linear<i32> {
    Linear { weight, bias: None }
}

#[test]
fn generic_wrappers_derive_tree() {
    let residual = Residual {
        layer: weight_only(1),
        branches: vec![weight_only(2)],
        scale: 3,
    };
    assert_eq!(residual.paths(), ["layer.weight", "branches.0.weight"]);
    let doubled: Residual<Linear<f64>> = residual.clone().map_leaves(|_, leaf| f64::from(2 * leaf));
    assert_eq!(doubled.branches[0].weight, 4.0);
    assert_eq!(residual.with_leaves([5, 6]).layer, weight_only(5));

    let pair = Pair {
        first: weight_only(1),
        gain: 2,
        second: Some(residual),
    };
    assert_eq!(pair.paths()[..2], ["first.weight", "gain"]);
    let text: Pair<Linear<String>, String, Residual<Linear<String>>> =
        pair.map_leaves(|path, leaf| format!("{path}={leaf}"));
    assert_eq!(text.gain, "gain=2");
    assert_eq!(text.second.unwrap().layer.weight, "second.layer.weight=1");
}

#[test]
fn arrays_are_trees_of_one_leaf() {
    let ty = |size: usize| TensorType::new(DType::F32, [size]);
    let host = |size: usize| HostArray::zeros(ty(size));
    let both = (
        host(1),
        Linear {
            weight: host(2),
            bias: Some(host(3)),
        },
    );
    assert_eq!(both.paths(), ["0", "1.weight", "1.bias"]);
    let types = both.leaf_refs().map_leaves(|_, host| host.ty().clone());
    assert_eq!(types.0, Leaf(ty(1)));
    let shorter: (HostArray, Linear<HostArray>) = both.with_leaves([host(4), host(5), host(6)]);
    assert_eq!(shorter.0.ty(), &ty(4));
    assert_eq!(host(7).with_leaves([host(8)]), host(8));
}

#[test]
fn bare_form_has_no_leaf_wrapper() {
    type Inputs = ([Leaf<()>; 2], Vec<Option<Leaf<()>>>, Box<Linear<()>>);
    let bare = ([1, 2], vec![Some(3), None], Box::new(weight_only(4)));
    let tree = <Inputs as Family>::from_bare(bare.clone());
    assert_eq!(tree.leaves(), [&1, &2, &3, &4]);
    assert_eq!(<Inputs as Family>::into_bare(tree), bare);
}
