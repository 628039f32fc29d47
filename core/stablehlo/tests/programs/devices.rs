//! Control flow, collectives and shardings that break a constraint.

use expect_test::expect;
use halite_stablehlo::{Attribute, OpKind};

use crate::programs::{
    program::{Edit, attribute, program, refused},
    valid,
};

#[test]
fn control_flow_types_must_agree() {
    refused(
        valid::while_loop().edit(|op| op.regions.swap(0, 1)),
        expect!["region 0: result count is 3; it must be 1"],
    );
    refused(
        valid::while_loop().result(1, "f64"),
        expect!["result 1 is tensor<f64>; it must be tensor<f32>"],
    );
    refused(
        valid::while_loop().edit(|op| _ = op.regions.pop()),
        expect!["region count is 1; it must be 2"],
    );
    refused(
        valid::if_else().operand(0, "1xi1"),
        expect!["operand 0 is tensor<1xi1>; it must be tensor<i1>"],
    );
    refused(
        valid::if_else().edit(|op| op.regions[1].results.clear()),
        expect!["region 1: result count is 0; it must be 1"],
    );
    refused(
        valid::case().edit(|op| op.regions.clear()),
        expect!["it must have a branch"],
    );
    refused(
        valid::case().operand(0, "i64"),
        expect!["operand 0 is tensor<i64>; it must be tensor<i32>"],
    );
    refused(
        valid::composite().result(0, "3xf32"),
        expect!["result 0 is tensor<3xf32>; it must be tensor<2xf32>"],
    );
    refused(
        attribute!(valid::custom_call(), OpKind::CustomCall(call) => {
            call.functions.push("f".into());
        }),
        expect!["the module has no function `f`"],
    );
    refused(
        valid::tuple().result(0, "tuple<2xf32>"),
        expect![[r#"
        result 0 is tuple<tensor<2xf32>>; it must be tuple<tensor<2xf32>,
        !stablehlo.token>"#]],
    );
    refused(
        attribute!(
            valid::get_tuple_element(),
            OpKind::GetTupleElement { index } => *index = 2
        ),
        expect!["`index` is 2; it must be below the size of the tuple, 2"],
    );
    refused(
        program(OpKind::AfterAll, "f32", "token"),
        expect!["operand 0 is tensor<f32>; it must be !stablehlo.token"],
    );
}

#[test]
fn groups_have_each_process_once() {
    let all_reduce = |groups: &[&[usize]]| {
        let groups = valid::groups(groups, None);
        attribute!(valid::all_reduce(), OpKind::AllReduce(collective) => *collective = groups)
    };
    all_reduce(&[]).verify().unwrap();
    refused(
        all_reduce(&[&[0, 1], &[2]]),
        expect!["`replica_groups` has 3 ids; it must have all 4"],
    );
    refused(
        all_reduce(&[&[0, 1], &[2, 2]]),
        expect!["`replica_groups` has the id 2 twice"],
    );
    refused(
        all_reduce(&[&[0, 1, 2, 3, 4]]),
        expect!["`replica_groups` has the id 4; ids must be below 4"],
    );
    refused(
        all_reduce(&[&[0, 1, 2, 3], &[]]),
        expect!["`replica_groups` has an empty group"],
    );
    let all_gather = |edit: fn(&mut halite_stablehlo::CollectiveAttributes)| {
        attribute!(
            valid::all_gather(),
            OpKind::AllGather { collective, .. } => edit(collective)
        )
    };
    refused(
        all_gather(|c| c.channel = None),
        expect!["`use_global_device_ids` is set; it needs a channel"],
    );
    refused(
        all_gather(|c| c.groups.clear()),
        expect!["`replica_groups` is empty; with `use_global_device_ids` it must have all ids"],
    );
    refused(
        all_gather(|c| c.groups = vec![vec![0, 1, 2], vec![3]]),
        expect!["`replica_groups` has groups of different sizes"],
    );
    refused(
        all_gather(|c| c.groups = vec![vec![0], vec![1], vec![2], vec![3]]),
        expect!["result 0 is tensor<4x3xf32>; it must be tensor<2x3xf32>"],
    );
}

#[test]
fn collectives_must_fit() {
    refused(
        valid::all_reduce().operand(1, "3xf64"),
        expect!["region 0: argument 0 is tensor<f32>; it must be tensor<f64>"],
    );
    refused(
        attribute!(valid::all_gather(), OpKind::AllGather { dim, .. } => *dim = 2),
        expect!["gathered dimension 2 of tensor<2x3xf32>, whose dimensions are 0 to 1"],
    );
    refused(
        valid::all_to_all().operand(0, "2x5xf32"),
        expect![[r#"
        dimension 1 of tensor<2x5xf32> is split into 2 parts; it must be a multiple of
        them"#]],
    );
    refused(
        attribute!(valid::all_to_all(), OpKind::AllToAll { parts, .. } => *parts = 4),
        expect!["`split_count` is 4; it must be the size of a group, 2"],
    );
    refused(
        valid::reduce_scatter().operand(0, "9x3xf32"),
        expect![[r#"
        dimension 0 of tensor<9x3xf32> is split into 8 parts; it must be a multiple of
        them"#]],
    );
    let permute = |pair| {
        attribute!(
            valid::collective_permute(),
            OpKind::CollectivePermute { pairs, .. } => pairs[0] = pair
        )
    };
    refused(
        permute((1, 0)),
        expect![[r#"
        `source_target_pairs` has the pair (1, 2), and another with its source or
        target"#]],
    );
    refused(
        permute((0, 4)),
        expect!["`source_target_pairs` has the pair (0, 4); ids must be below 4"],
    );
    refused(
        attribute!(valid::collective_broadcast(), OpKind::CollectiveBroadcast(c) => {
            c.groups[0][0] = 4;
        }),
        expect!["`replica_groups` has the id 4; ids must be below 4"],
    );
}

#[test]
fn meshes_are_checked() {
    let mesh = |edit: fn(&mut halite_stablehlo::ShardyMesh)| {
        let mut program = valid::sharding_constraint();
        edit(&mut program.meshes[0]);
        program
    };
    mesh(|m| m.devices = vec![7, 6, 5, 4, 3, 2, 1, 0])
        .verify()
        .unwrap();
    refused(
        mesh(|m| m.devices = vec![0; 8]),
        expect!["the devices of mesh `mesh` must be the numbers below 8, in any order"],
    );
    refused(
        mesh(|m| m.axes[1].0 = "x".into()),
        expect!["mesh `mesh` has axis `x` twice"],
    );
    refused(
        mesh(|m| m.axes[0].1 = 0),
        expect!["axis `x` of mesh `mesh` has the size 0"],
    );
    refused(
        mesh(|m| m.axes[0].1 = usize::MAX),
        expect!["mesh `mesh` has more than 1048576 devices"],
    );
    let mut twice = valid::sharding_constraint();
    twice.meshes.push(twice.meshes[0].clone());
    refused(twice, expect!["mesh `mesh` is defined twice"]);
}

#[test]
fn shardings_name_axes_once() {
    let with = |sharding| {
        attribute!(
            valid::sharding_constraint(),
            OpKind::ShardingConstraint(constraint) => *constraint = sharding
        )
    };
    refused(
        with(valid::sharding(&["z", ""])),
        expect!["mesh `mesh` has no axis `z`"],
    );
    refused(
        with(valid::sharding(&["x", "x"])),
        expect!["the sharding uses axis `x` twice"],
    );
    refused(
        with(valid::sharding(&["x"])),
        expect!["the sharding has 1 dimensions; it must have those of tensor<8x3xf32>"],
    );
    let mut elsewhere = valid::sharding(&["x", ""]);
    elsewhere.mesh = "other".into();
    refused(with(elsewhere), expect!["the module has no mesh `other`"]);
    let parts = |first, second| {
        let mut sharding = valid::sharding(&["x", "x"]);
        sharding.dims[0].axes[0].part = Some(first);
        sharding.dims[1].axes[0].part = Some(second);
        with(sharding)
    };
    parts((1, 2), (2, 2)).verify().unwrap();
    refused(
        parts((1, 2), (1, 4)),
        expect!["the sharding uses axis `x` twice"],
    );
    refused(
        parts((1, 3), (1, 1)),
        expect!["(1)3 of axis `x` does not divide its size, 4"],
    );
    refused(
        parts((usize::MAX, 2), (0, 0)),
        expect!["(18446744073709551615)2 of axis `x` does not divide its size, 4"],
    );
}

#[test]
fn shardings_of_values_must_fit() {
    let mut program = valid::with_mesh(valid::add());
    let sharding = |dims: &[&str]| Attribute::Sharding(valid::sharding(dims));
    program.main_mut().input_attributes[0].push("sdy.sharding", sharding(&["x", ""]));
    program.verify().unwrap();
    program.main_mut().output_attributes[0].push("sdy.sharding", sharding(&["x", "z"]));
    refused(
        program,
        expect!["function `main`: `sdy.sharding`: mesh `mesh` has no axis `z`"],
    );
    let mut program = valid::add();
    program.main_mut().input_attributes.pop();
    refused(
        program,
        expect!["function `main`: it has 2 inputs, and attributes of 1"],
    );
    let shardings = Attribute::Shardings(vec![valid::sharding(&["x", ""]); 2]);
    let program = valid::with_mesh(valid::add());
    refused(
        program.edit(|op| op.attributes.push("sdy.sharding", shardings)),
        expect!["`sdy.sharding` has 2 shardings; it must have 1"],
    );
}

#[test]
fn manual_computations_take_shards() {
    let manual = |edit: fn(&mut halite_stablehlo::ManualAttributes)| {
        let program = valid::manual_computation();
        attribute!(program, OpKind::ManualComputation(attributes) => edit(attributes))
    };
    refused(
        manual(|m| _ = m.axes.pop()),
        expect!["region 0: argument 0 is tensor<2x3xf32>; it must be tensor<2x6xf32>"],
    );
    refused(
        manual(|m| m.inputs.clear()),
        expect!["`in_shardings` has 0 shardings; it must have 1"],
    );
    refused(
        manual(|m| m.axes.push(valid::axis("z"))),
        expect!["mesh `mesh` has no axis `z`"],
    );
    refused(
        manual(|m| m.inputs[0] = valid::sharding(&["y", "x"])),
        expect![[r#"
            `in_shardings` splits a dimension of tensor<8x6xf32> into 4 parts; it must be a
            multiple"#]],
    );
    refused(
        manual(|m| m.outputs[0] = valid::sharding(&["", ""])),
        expect!["region 0: result 0 is tensor<2x3xf32>; it must be tensor<2x6xf32>"],
    );
    let mut program = valid::manual_computation();
    program.meshes[0].axes[0].1 = 2;
    refused(
        program,
        expect!["mesh `mesh` has 4 devices; the module has 8 partitions"],
    );
}

#[test]
fn manual_axes_are_whole() {
    let manual = |edit: fn(&mut halite_stablehlo::ManualAttributes)| {
        let program = valid::manual_computation();
        attribute!(program, OpKind::ManualComputation(attributes) => edit(attributes))
    };
    refused(
        manual(|m| m.axes.push(valid::axis("x"))),
        expect!["`manual_axes` has axis `x` twice"],
    );
    refused(
        manual(|m| m.inputs[0].dims[0].axes[0].part = Some((1, 2))),
        expect!["a dimension has a part of the manual axis `x`"],
    );
}

#[test]
fn manual_computations_capture_nothing() {
    let mut program = valid::manual_computation();
    let main = program.main_mut();
    let outer = main.body.arguments[0];
    let manual = &mut main.body.operations[0];
    manual.regions[0].operations[0].operands = [outer][..].into();
    refused(
        program,
        expect![[r#"
            value 0 is defined outside of the manual computation that uses it; it must be
            an operand of it"#]],
    );
}
