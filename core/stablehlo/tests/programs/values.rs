//! Definitions and uses of values, nesting, calls, and types.

use expect_test::expect;
use halite_stablehlo::{BinaryOp, Module, OpKind, Position, ValueId};

use crate::programs::{
    program::{Builder, Edit, module, on, program, refused, ty},
    valid,
};

#[test]
fn errors_name_operation_position_line() {
    let program = valid::add().operand(1, "2x4xf32");
    let error = program.verify().unwrap_err().to_string();
    let expected =
        "program: stablehlo.add at line 1, column 5 (model.py:7): tensor<2x3xf32> and tensor";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn unknown_positions_are_left_out() {
    let program = valid::add().operand(1, "2x4xf32").edit(|op| {
        op.position = Position::Unknown;
        op.location = None;
    });
    refused(
        program,
        expect![[r#"
            stablehlo.add: tensor<2x3xf32> and tensor<2x4xf32> differ; elementwise
            operations need equal types (broadcast first)"#]],
    );
}

#[test]
fn main_must_exist() {
    refused(
        module(vec![Builder::new("start", "").finish(vec![])]),
        expect!["it has no function `main`; name the function that runs so"],
    );
}

#[test]
fn function_names_are_unique() {
    let function = || Builder::new("main", "").finish(vec![]);
    refused(
        module(vec![function(), function()]),
        expect!["function `main`: two functions have this name"],
    );
}

#[test]
fn values_must_exist() {
    refused(
        valid::add().edit(|op| op.operands[1] = ValueId(9)),
        expect!["value 9 does not exist; the function has 3 values"],
    );
    refused(
        valid::add().edit(|op| op.results[0] = ValueId(u32::MAX)),
        expect!["value 4294967295 does not exist; the function has 3 values"],
    );
    let mut program = valid::add();
    program.main_mut().body.results[0] = ValueId(7);
    refused(
        program,
        expect!["function `main`: value 7 does not exist; the function has 3 values"],
    );
}

#[test]
fn values_are_defined_before_use() {
    refused(
        valid::add().edit(|op| op.operands[0] = op.results[0]),
        expect!["value 2 is used before its definition"],
    );
}

#[test]
fn values_are_defined_once() {
    refused(
        valid::add().edit(|op| op.results[0] = op.operands[0]),
        expect!["value 0 is defined twice"],
    );
}

#[test]
fn values_of_regions_stay_inside() {
    let mut program = valid::reduce();
    program.main_mut().body.results = vec![ValueId(2)];
    refused(
        program,
        expect!["function `main`: value 2 is used outside of the region that defines it"],
    );
}

#[test]
fn calls_must_fit() {
    refused(
        valid::call().operand(0, "3xf32"),
        expect!["operand 0 is tensor<3xf32>; it must be tensor<2xf32>"],
    );
    refused(
        valid::call().result(0, "3xf32"),
        expect!["result 0 is tensor<3xf32>; it must be tensor<2xf32>"],
    );
    let unknown = |op: &mut halite_stablehlo::Operation| {
        op.kind = OpKind::Call {
            function: "h".into(),
        };
    };
    refused(
        valid::call().edit(unknown),
        expect!["the module has no function `h`"],
    );
}

#[test]
fn recursion_is_refused() {
    let mut program = valid::call();
    program.functions[1].body.operations[0].kind = OpKind::Call {
        function: "main".into(),
    };
    refused(
        program,
        expect![[r#"
        the function calls itself, directly or through others; calls must not be
        recursive"#]],
    );
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
    refused(
        chain(1, Module::MAX_NESTING + 1),
        expect!["regions and calls are nested more than 256 deep"],
    );
    chain(Module::MAX_NESTING + 1, 0).verify().unwrap();
    refused(
        chain(Module::MAX_NESTING + 2, 0),
        expect!["regions and calls are nested more than 256 deep"],
    );
    refused(
        chain(60, 4),
        expect!["regions and calls are nested more than 256 deep"],
    );
}

#[test]
fn long_chains_of_calls_do_not_overflow_the_stack() {
    refused(
        chain(100_000, 0),
        expect!["regions and calls are nested more than 256 deep"],
    );
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
        expect![[r#"
            function `main`: tensor<0x1099511627776x1099511627776xf32> is larger than this
            machine's address space"#]],
    );
}

#[test]
fn process_counts_must_fit() {
    refused(
        on(valid::add(), 0, 1),
        expect!["`mhlo.num_partitions` is Int(0, S32); it must be an integer from 1"],
    );
    refused(
        on(valid::add(), 1 << 20, 1 << 20),
        expect![[r#"
        it has 1048576 partitions in each of 1048576 replicas; their product must not
        exceed 1048576"#]],
    );
}

#[test]
fn ranks_are_bounded() {
    let dims = "1x".repeat(Module::MAX_RANK + 1);
    let huge = format!("{dims}f32");
    refused(
        program(OpKind::Reshape, &huge, "1xf32"),
        expect!["function `main`: a tensor type has 65 dimensions; it must have at most 64"],
    );
}

#[test]
fn tuples_are_not_nested_deeply() {
    let mut program = valid::tuple();
    let nested = (0..100).fold(ty("f32"), |inner, _| {
        halite_stablehlo::Type::Tuple(vec![inner])
    });
    program.main_mut().types[0] = nested;
    refused(
        program,
        expect!["function `main`: a tuple type is nested more than 16 deep"],
    );
}
