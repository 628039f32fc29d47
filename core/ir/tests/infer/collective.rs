//! Collectives and sharding constraints.

use expect_test::expect;
use halite_core::PartitionSpec;
use halite_ir::{Groups, Op, Reduction};

use crate::infer::check;

/// All operands are of this type.
const X: &str = "f32[4,3]";

#[test]
fn all_reduce_errors() {
    let all_reduce = |kind, groups| Op::AllReduce { kind, groups };
    check(
        [
            (all_reduce(Reduction::Sum, vec![vec![0, 0]].into()), X),
            (all_reduce(Reduction::Sum, vec![vec![]].into()), X),
            (all_reduce(Reduction::Or, Groups::All), X),
        ],
        expect![[r#"
            all_reduce: device 0 appears twice in groups [[0, 0]]
            all_reduce: groups [[]] must have equally many members, one or more
            all_reduce: takes bool and integers, not f32[4, 3]
        "#]],
    );
}

#[test]
fn all_gather_errors() {
    let all_gather = |dim, groups| Op::AllGather { dim, groups };
    check(
        [
            (all_gather(0, Groups::All), X),
            (all_gather(2, vec![vec![0, 1]].into()), X),
            (all_gather(0, vec![vec![0, 1], vec![2]].into()), X),
            (all_gather(0, vec![vec![0, 1], vec![1, 2]].into()), X),
            (all_gather(0, vec![vec![0, usize::MAX]].into()), X),
        ],
        expect![[r#"
            all_gather: the groups are empty, and the result depends on their size: name the devices, such as [[0, 1]]
            all_gather: dimension 2 of f32[4, 3], whose dimensions are 0 to 1
            all_gather: groups [[0, 1], [2]] must have equally many members, one or more
            all_gather: device 1 appears twice in groups [[0, 1], [1, 2]]
            all_gather: device 18446744073709551615 is not a valid device number
        "#]],
    );
}

#[test]
fn exchange_errors() {
    let pair = || Groups::from(vec![vec![0, 1]]);
    let reduce_scatter = Op::ReduceScatter {
        kind: Reduction::Sum,
        dim: 1,
        groups: pair(),
    };
    let all_to_all = |split, concat| Op::AllToAll {
        split,
        concat,
        groups: pair(),
    };
    let permute = |pairs: [(usize, usize); 2]| Op::CollectivePermute {
        pairs: pairs.to_vec(),
        groups: Groups::All,
    };
    check(
        [
            (reduce_scatter, X),
            (all_to_all(1, 0), X),
            (all_to_all(0, 2), X),
            (permute([(0, 1), (0, 2)]), X),
            (permute([(0, 1), (2, 1)]), X),
        ],
        expect![[r#"
            reduce_scatter: dimension 1 of f32[4, 3] is 3, not a multiple of the 2 members of a group
            all_to_all: dimension 1 of f32[4, 3] is 3, not a multiple of the 2 members of a group
            all_to_all: concatenated dimension 2 of f32[4, 3], whose dimensions are 0 to 1
            collective_permute: device 0 sends twice in [(0, 1), (0, 2)]
            collective_permute: device 1 is sent to twice in [(0, 1), (2, 1)]
        "#]],
    );
}

#[test]
fn device_operand_types() {
    let constraint = |spec: &str| Op::ShardingConstraint(spec.parse::<PartitionSpec>().unwrap());
    check(
        [
            (Op::PartitionId, X),
            (constraint("(a, None, b)"), X),
            (constraint("(a, a)"), X),
        ],
        expect![[r#"
            partition_id: takes 0 operands, got 1 (f32[4, 3])
            sharding_constraint: (a, None, b) has 3 dimensions, f32[4, 3] has 2
            sharding_constraint: (a, a) uses axis `a` twice; an axis can split one dimension
        "#]],
    );
}
