//! Loops, branches and checkpoints: signatures of their regions.

use expect_test::expect;
use halite_ir::{CustomCall, Graph, Op, Remat, infer};

use crate::infer::{check, types};

/// A graph of inputs of these types that returns some of them.
fn region(inputs: &str, outputs: &[usize]) -> Graph {
    let mut graph = Graph::new();
    let inputs = types(inputs).into_iter().map(|ty| graph.input(ty));
    let inputs: Vec<_> = inputs.collect();
    graph.set_outputs(outputs.iter().map(|&i| inputs[i]).collect());
    graph
}

fn while_loop(carried: usize, condition: Graph, body: Graph) -> Op {
    Op::While {
        carried,
        condition: Box::new(condition),
        body: Box::new(body),
    }
}

fn scan(carried: usize, scanned: usize, length: usize, body: Graph) -> Op {
    Op::Scan {
        carried,
        scanned,
        length,
        reverse: false,
        residuals: 0,
        body: Box::new(body),
    }
}

#[test]
fn while_signatures() {
    const S: &str = "bool[] f32[2]";
    // A value of another, larger graph.
    let mut foreign = region(S, &[0]);
    let other = region("bool[] bool[] bool[]", &[2]);
    foreign.set_outputs(other.outputs().to_vec());
    check(
        [
            (while_loop(0, region(S, &[0]), region(S, &[])), S),
            (while_loop(3, region(S, &[0]), region(S, &[])), S),
            (while_loop(2, region(S, &[1]), region(S, &[0, 1])), S),
            (while_loop(2, region("bool[]", &[0]), region(S, &[0, 1])), S),
            (
                while_loop(2, region(S, &[0]), region("bool[] f32[3]", &[0, 1])),
                S,
            ),
            (while_loop(2, region(S, &[0]), region(S, &[1, 0])), S),
            (while_loop(2, region(S, &[0]), region(S, &[0])), S),
            (while_loop(2, foreign, region(S, &[0])), S),
        ],
        expect![[r#"
            while: 0 carried values of operands 2 (bool[], f32[2]); at least one is carried
            while: 3 carried values of operands 2 (bool[], f32[2]); at least one is carried
            while: the condition returns [f32[2]]; it must return [bool[]]
            while: the condition takes [bool[]], the operands are [bool[], f32[2]]; they are 1 and 2
            while: the body takes [bool[], f32[3]], the operands are [bool[], f32[2]]; number 1 is f32[3] and f32[2]
            while: the body returns [f32[2], bool[]], the carried values are [bool[], f32[2]]; number 0 is f32[2] and bool[]
            while: the body returns [bool[]], the carried values are [bool[], f32[2]]; they are 1 and 2
            while: the condition returns value 2, it has 2
        "#]],
    );
}

#[test]
fn case_signatures() {
    const S: &str = "bool[] f32[2]";
    let case = |branches: &[Graph]| Op::Case {
        branches: branches.to_vec(),
    };
    check(
        [
            (case(&[]), ""),
            (case(&[]), "s32[]"),
            (case(&[region("", &[])]), "u32[]"),
            (
                case(&[region("", &[]), region("bool[] f32[3]", &[0, 1])]),
                "s32[]",
            ),
            (
                case(&[region(S, &[0]), region(S, &[1])]),
                "s32[] bool[] f32[2]",
            ),
            (Op::OptimizationBarrier, ""),
        ],
        expect![[r#"
            case: takes an index and the inputs of its branches, got none
            case: takes one branch or more, got none
            case: the index is u32[]; it must be s32[]
            case: branch 1 takes [bool[], f32[3]], the operands are []; they are 2 and 0
            case: branch 0 returns [bool[]], branch 1 returns [f32[2]]; number 0 is f32[2] and bool[]
            optimization_barrier: takes one operand or more, got none
        "#]],
    );
}

#[test]
fn scan_signatures() {
    const ROWS: &str = "f32[2] f32[2]";
    const CARRY_AND_SCAN: &str = "f32[2] f32[4,2]";
    const LARGE: &str = "f32[8589934592,4]";
    check(
        [
            (scan(2, 1, 4, region(ROWS, &[0])), CARRY_AND_SCAN),
            (scan(usize::MAX, 1, 4, region(ROWS, &[0])), CARRY_AND_SCAN),
            (scan(1, 1, usize::MAX, region(ROWS, &[0])), CARRY_AND_SCAN),
            (scan(1, 1, 3, region(ROWS, &[0])), CARRY_AND_SCAN),
            (scan(1, 1, 4, region(ROWS, &[0])), "f32[2] f32[]"),
            (scan(1, 1, 4, region(CARRY_AND_SCAN, &[0])), CARRY_AND_SCAN),
            (scan(1, 1, 4, region(ROWS, &[])), CARRY_AND_SCAN),
            (scan(1, 0, 4, region(CARRY_AND_SCAN, &[1])), CARRY_AND_SCAN),
            (scan(0, 1, 4, region(ROWS, &[])), CARRY_AND_SCAN),
            (scan(0, 0, usize::MAX >> 33, region(LARGE, &[0])), LARGE),
        ],
        expect![[r#"
            scan: 2 carried and 1 scanned values of operands 2 (f32[2], f32[4, 2])
            scan: 18446744073709551615 carried and 1 scanned values of operands 2 (f32[2], f32[4, 2])
            scan: 18446744073709551615 iterations exceed the range of s32
            scan: scanned operand 0 is f32[4, 2]; for 3 iterations its first dimension must be 3
            scan: scanned operand 0 is f32[]; for 4 iterations its first dimension must be 4
            scan: the body takes [f32[2], f32[4, 2]], the operands are [f32[2], f32[2]]; number 1 is f32[4, 2] and f32[2]
            scan: the body returns [], the carried values are [f32[2]]; they are 0 and 1
            scan: the body returns [f32[4, 2]], the carried values are [f32[2]]; number 0 is f32[4, 2] and f32[2]
            scan: the body returns nothing; it must return one value or more
            scan: f32[2147483647, 8589934592, 4] is larger than any address space
        "#]],
    );
}

#[test]
fn residuals_of_a_scan_are_stacked_results() {
    let mut op = scan(1, 1, 4, region("f32[2] f32[2]", &[0, 1]));
    let Op::Scan { residuals, .. } = &mut op else {
        unreachable!("it is a scan")
    };
    *residuals = 2;
    check(
        [(op, "f32[2] f32[4,2]")],
        expect![[r#"
            scan: 2 residuals of 1 stacked results
        "#]],
    );
}

#[test]
fn scan_stacks_further_results() {
    let body = region("f32[2] f32[4,2] f32[2]", &[0, 1, 2]);
    let operands = types("f32[2] f32[4,2] f32[4,2]");
    let results = infer(&scan(1, 1, 4, body), &operands.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(format!("{results:?}"), "[f32[2], f32[4, 4, 2], f32[4, 2]]");
}

#[test]
fn checkpoint_signatures() {
    const ROWS: &str = "f32[2] f32[2]";
    let checkpoint = |body| Op::Checkpoint {
        body: Box::new(body),
        remat: Remat::Full,
    };
    check(
        [
            (checkpoint(region(ROWS, &[0])), "f32[2]"),
            (checkpoint(region(ROWS, &[])), ROWS),
        ],
        expect![[r#"
            checkpoint: the body takes [f32[2], f32[2]], the operands are [f32[2]]; they are 2 and 1
            checkpoint: the body returns nothing; it must return one value or more
        "#]],
    );
}

#[test]
fn decomposition_signatures() {
    let call = |body, results| {
        Op::CustomCall(CustomCall {
            target: "target".to_owned(),
            results: types(results),
            decomposition: Some(Box::new(body)),
            ..CustomCall::default()
        })
    };
    check(
        [
            (call(region("f32[2]", &[0]), "f32[2]"), "f32[3]"),
            (call(region("f32[2]", &[0]), "f32[3]"), "f32[2]"),
        ],
        expect![[r#"
            custom_call: the decomposition takes [f32[2]], the operands are [f32[3]]; number 0 is f32[2] and f32[3]
            custom_call: the decomposition returns [f32[2]], the call [f32[3]]
        "#]],
    );
}
