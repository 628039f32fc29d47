//! Definitions and uses of values, nesting, calls, and types.

use expect_test::expect;
use halite_stablehlo::{BinaryOp, Module, OpKind, Position, ValueId};

use crate::{
    program::{Builder, Edit, module, on, program, refused, ty},
    valid,
};

#[test]
fn errors_name_operation_position_line() {
    let program = valid::add().operand(1, "2x4xf32");
    let error = program.verify().unwrap_err().to_string();
    let expected = "program: stablehlo.add at line 1, column 5 (model.py:7): operands are";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn unknown_positions_are_left_out() {
    let program = valid::add().operand(1, "2x4xf32").edit(|op| {
        op.position = Position::Unknown;
        op.location = None;
    });
    refused(program, expect![]);
}

#[test]
fn main_must_exist() {
    refused(
        module(vec![Builder::new("start", "").finish(vec![])]),
        expect![],
    );
}

#[test]
fn function_names_are_unique() {
    let function = || Builder::new("main", "").finish(vec![]);
    refused(module(vec![function(), function()]), expect![]);
}

#[test]
fn values_must_exist() {
    refused(
        valid::add().edit(|op| op.operands[1] = ValueId(9)),
        expect![],
    );
    refused(
        valid::add().edit(|op| op.results[0] = ValueId(u32::MAX)),
        expect![],
    );
    let mut program = valid::add();
    program.main_mut().body.results[0] = ValueId(7);
    refused(program, expect![]);
}

#[test]
fn values_are_defined_before_use() {
    refused(
        valid::add().edit(|op| op.operands[0] = op.results[0]),
        expect![],
    );
}

#[test]
fn values_are_defined_once() {
    refused(
        valid::add().edit(|op| op.results[0] = op.operands[0]),
        expect![],
    );
}

#[test]
fn values_of_regions_stay_inside() {
    let mut program = valid::reduce();
    program.main_mut().body.results = vec![ValueId(2)];
    refused(program, expect![]);
}

#[test]
fn calls_must_fit() {
    refused(valid::call().operand(0, "3xf32"), expect![]);
    refused(valid::call().result(0, "3xf32"), expect![]);
    let unknown = |op: &mut halite_stablehlo::Operation| {
        op.kind = OpKind::Call {
            function: "h".into(),
        };
    };
    refused(valid::call().edit(unknown), expect![]);
}

#[test]
fn recursion_is_refused() {
    let mut program = valid::call();
    program.functions[1].body.operations[0].kind = OpKind::Call {
        function: "main".into(),
    };
    refused(program, expect![]);
}

/// `main` calls a chain of functions, each inside of `regions` conditionals.
fn chain(functions: usize, regions: usize) -> Module {
    let function = |index: usize| {
        let name = if index == 0 {
            "main".to_owned()
        } else {
            format!("f{index}")
        };
        let mut builder = Builder::new(&name, "i1");
        let result = calls(&mut builder, index + 1 < functions, index + 1, regions);
        builder.finish(vec![result])
    };
    module((0..functions).map(function).collect())
}

fn calls(builder: &mut Builder, calls_next: bool, next: usize, regions: usize) -> ValueId {
    let input = builder.inputs()[0];
    if regions == 0 {
        let function = format!("f{next}");
        return match calls_next {
            true => builder.op(OpKind::Call { function }, &[input], "i1")[0],
            false => input,
        };
    }
    let mut branch = || {
        builder.region("", |builder, _| {
            vec![calls(builder, calls_next, next, regions - 1)]
        })
    };
    let branches = vec![branch(), builder.region("", |_, _| vec![input])];
    builder.op_with(OpKind::If, &[input], branches, "i1")[0]
}

#[test]
fn nesting_is_bounded() {
    chain(1, Module::MAX_NESTING).verify().unwrap();
    refused(chain(1, Module::MAX_NESTING + 1), expect![]);
    chain(Module::MAX_NESTING + 1, 0).verify().unwrap();
    refused(chain(Module::MAX_NESTING + 2, 0), expect![]);
    refused(chain(60, 4), expect![]);
}

#[test]
fn long_chains_of_calls_do_not_overflow_the_stack() {
    refused(chain(100_000, 0), expect![]);
}

#[test]
fn sizes_must_fit_the_address_space() {
    let huge = format!("0x{}x{}xf32", 1usize << 40, 1usize << 40);
    refused(
        program(
            OpKind::Binary(BinaryOp::Add),
            &format!("{huge} {huge}"),
            &huge,
        ),
        expect![],
    );
}

#[test]
fn process_counts_must_fit() {
    refused(on(valid::add(), 0, 1), expect![]);
    refused(on(valid::add(), 1 << 20, 1 << 20), expect![]);
}

#[test]
fn ranks_are_bounded() {
    let dims = "1x".repeat(Module::MAX_RANK + 1);
    let huge = format!("{dims}f32");
    refused(program(OpKind::Reshape, &huge, "1xf32"), expect![]);
}

#[test]
fn tuples_are_not_nested_deeply() {
    let mut program = valid::tuple();
    let nested = (0..100).fold(ty("f32"), |inner, _| {
        halite_stablehlo::Type::Tuple(vec![inner])
    });
    program.main_mut().types[0] = nested;
    refused(program, expect![]);
}
