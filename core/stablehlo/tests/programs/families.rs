//! Programs that break one constraint of an operation.

use expect_test::expect;
use halite_stablehlo::{
    Attribute, BinaryOp, ComparisonOrder, ElementType, FftKind, OpKind, UnaryOp,
};

use crate::{
    program::{Edit, attribute, program, refused},
    valid,
};

#[test]
fn elementwise() {
    refused(valid::add().operand(1, "3xf32"), expect![]);
    refused(valid::add().operand(1, "token"), expect![]);
    refused(valid::add().result(0, "2x3xf64"), expect![]);
    refused(valid::add().edit(|op| _ = op.operands.pop()), expect![]);
    refused(valid::add().edit(|op| _ = op.results.pop()), expect![]);
    refused(valid::unary(UnaryOp::Tanh, "2xi32", "2xi32"), expect![]);
    refused(
        valid::unary(UnaryOp::Abs, "2xcomplex<f32>", "2xcomplex<f32>"),
        expect![],
    );
    let and = OpKind::Binary(BinaryOp::And);
    refused(program(and, "2xf32 2xf32", "2xf32"), expect![]);
    let complex = OpKind::Binary(BinaryOp::Complex);
    refused(program(complex, "bf16 bf16", "complex<f32>"), expect![]);
}

#[test]
fn comparisons() {
    refused(valid::compare().result(0, "2x3xi8"), expect![]);
    let signed = Some(ComparisonOrder::Signed);
    refused(
        attribute!(valid::compare(), OpKind::Compare { order, .. } => *order = signed),
        expect![],
    );
    refused(valid::select().operand(0, "2xi1"), expect![]);
    refused(valid::select().operand(0, "f32"), expect![]);
    refused(valid::clamp().operand(2, "2xf32"), expect![]);
    refused(valid::clamp().operand(0, "f64"), expect![]);
}

#[test]
fn conversions() {
    refused(program(OpKind::Convert, "2xf32", "3xi32"), expect![]);
    refused(valid::bitcast_convert().operand(0, "2x3xi8"), expect![]);
    refused(valid::bitcast_convert().result(0, "4xf32"), expect![]);
    refused(
        valid::bitcast_convert().result(0, "2xcomplex<f32>"),
        expect![],
    );
    refused(
        attribute!(
            valid::reduce_precision(),
            OpKind::ReducePrecision { exponent, .. } => *exponent = 0
        ),
        expect![],
    );
}

#[test]
fn constants() {
    let set = |bytes: Vec<u8>| attribute!(valid::constant(), OpKind::Constant(value) => value.bytes = bytes.into());
    set(vec![0; 24]).verify().unwrap();
    refused(set(vec![0; 23]), expect![]);
    refused(set(Vec::new()), expect![]);
    refused(valid::constant().result(0, "2x4xf32"), expect![]);
    let with = |element, byte: u8| {
        let edited = attribute!(valid::constant(), OpKind::Constant(value) => {
            value.ty.element = element;
            value.bytes = [byte].into();
        });
        edited.result(0, &format!("2x3x{element}"))
    };
    with(ElementType::S4, 0xf8).verify().unwrap();
    refused(with(ElementType::Bool, 2), expect![]);
    refused(with(ElementType::S4, 8), expect![]);
    refused(with(ElementType::F6E2M3Fn, 64), expect![]);
}

#[test]
fn shapes() {
    refused(
        attribute!(valid::iota(), OpKind::Iota { dim } => *dim = 2),
        expect![],
    );
    let broadcast = valid::broadcast_in_dim;
    refused(broadcast().operand(0, "2x1xf32"), expect![]);
    let set = |dims: Vec<usize>| attribute!(broadcast(), OpKind::BroadcastInDim { mapping } => *mapping = dims);
    refused(set(vec![2]), expect![]);
    refused(set(vec![2, 2]), expect![]);
    refused(set(vec![2, usize::MAX]), expect![]);
    refused(program(OpKind::Reshape, "2x3xf32", "4xf32"), expect![]);
    refused(valid::transpose().result(0, "2x3x4xf32"), expect![]);
    refused(
        program(OpKind::Reverse { dims: vec![0, 0] }, "2xf32", "2xf32"),
        expect![],
    );
    refused(valid::concatenate().operand(1, "3x1xf32"), expect![]);
    refused(
        program(OpKind::Concatenate { dim: 0 }, "", "0xf32"),
        expect![],
    );
    refused(
        program(OpKind::GetDimensionSize { dim: 1 }, "2xf32", "i32"),
        expect![],
    );
}

#[test]
fn slices() {
    let slice = |edit: fn(&mut Vec<usize>, &mut Vec<usize>, &mut Vec<usize>)| {
        attribute!(
            valid::slice(),
            OpKind::Slice { starts, limits, strides } => edit(starts, limits, strides)
        )
    };
    refused(slice(|_, limits, _| limits[1] = 7), expect![]);
    refused(slice(|starts, _, _| starts[0] = 5), expect![]);
    refused(slice(|_, _, strides| strides[0] = 0), expect![]);
    refused(slice(|_, _, strides| _ = strides.pop()), expect![]);
    refused(valid::slice().result(0, "3x3xf32"), expect![]);
    refused(valid::dynamic_slice().operand(2, "i64"), expect![]);
    refused(
        valid::dynamic_slice().edit(|op| _ = op.operands.pop()),
        expect![],
    );
    refused(
        attribute!(valid::dynamic_slice(), OpKind::DynamicSlice { sizes } => sizes[0] = 6),
        expect![],
    );
    refused(
        valid::dynamic_update_slice().operand(1, "6x6xf32"),
        expect![],
    );
    refused(
        valid::dynamic_update_slice().edit(|op| op.operands.truncate(1)),
        expect![],
    );
}

#[test]
fn padding() {
    let pad = |edit: fn(&mut Vec<i64>, &mut Vec<usize>)| attribute!(valid::pad(), OpKind::Pad { low, interior, .. } => edit(low, interior));
    refused(pad(|low, _| low[0] = -5), expect![]);
    refused(pad(|low, _| low[0] = i64::MIN), expect![]);
    refused(pad(|_, interior| interior[0] = usize::MAX), expect![]);
    refused(pad(|low, _| low.push(0)), expect![]);
    refused(valid::pad().operand(1, "1xf32"), expect![]);
    refused(valid::pad().operand(1, "f64"), expect![]);
}

#[test]
fn gathers() {
    let gather = |edit: fn(&mut halite_stablehlo::GatherAttributes)| attribute!(valid::gather(), OpKind::Gather(attributes) => edit(attributes));
    refused(gather(|g| g.offset_dims[0] = 2), expect![]);
    refused(gather(|g| g.offset_dims.push(0)), expect![]);
    refused(gather(|g| g.collapsed_slice_dims[0] = 2), expect![]);
    refused(gather(|g| g.collapsed_slice_dims[0] = 1), expect![]);
    refused(gather(|g| g.start_index_map.push(1)), expect![]);
    refused(gather(|g| g.index_vector_dim = 3), expect![]);
    refused(gather(|g| g.slice_sizes[1] = 4), expect![]);
    refused(gather(|g| g.slice_sizes[0] = 0), expect![]);
    refused(gather(|g| _ = g.slice_sizes.pop()), expect![]);
    refused(valid::gather().operand(1, "7x1xf32"), expect![]);
    refused(valid::gather().operand(0, "0x3xf32"), expect![]);
    let batched = |edit: fn(&mut halite_stablehlo::GatherAttributes)| attribute!(valid::batched_gather(), OpKind::Gather(attributes) => edit(attributes));
    refused(batched(|g| g.start_indices_batching_dims[0] = 0), expect![]);
    refused(batched(|g| g.start_indices_batching_dims[0] = 2), expect![]);
    refused(
        batched(|g| g.start_indices_batching_dims.clear()),
        expect![],
    );
    refused(batched(|g| g.start_index_map[0] = 0), expect![]);
}

#[test]
fn scatters() {
    let scatter = |edit: fn(&mut halite_stablehlo::ScatterAttributes)| attribute!(valid::scatter(), OpKind::Scatter(attributes) => edit(attributes));
    refused(scatter(|s| s.update_window_dims[0] = 0), expect![]);
    refused(scatter(|s| s.update_window_dims[0] = 2), expect![]);
    refused(scatter(|s| s.inserted_window_dims.clear()), expect![]);
    refused(valid::scatter().operand(2, "7x4xf32"), expect![]);
    refused(valid::scatter().operand(2, "6x3xf32"), expect![]);
    refused(valid::scatter().operand(2, "7x3x1xf32"), expect![]);
    refused(valid::scatter().operand(2, "7x3xf64"), expect![]);
    refused(valid::scatter().edit(|op| _ = op.operands.pop()), expect![]);
    refused(valid::scatter().edit(|op| op.regions.clear()), expect![]);
}

#[test]
fn contractions() {
    let dot = |edit: fn(&mut halite_stablehlo::DotAttributes)| attribute!(valid::dot(), OpKind::DotGeneral(attributes) => edit(attributes));
    refused(dot(|d| d.lhs_batching[0] = 2), expect![]);
    refused(dot(|d| d.rhs_batching.clear()), expect![]);
    refused(dot(|d| d.rhs_contracting[0] = 1), expect![]);
    refused(dot(|d| d.rhs_contracting[0] = 3), expect![]);
    refused(valid::dot().result(0, "4x2x5xi32"), expect![]);
    refused(valid::dot().result(0, "4x5x2xf32"), expect![]);
    let conv = |edit: fn(&mut halite_stablehlo::ConvolutionAttributes)| attribute!(valid::convolution(), OpKind::Convolution(attributes) => edit(attributes));
    refused(conv(|c| c.input.batch = 3), expect![]);
    refused(conv(|c| c.kernel.spatial.push(0)), expect![]);
    refused(conv(|c| c.output.feature = 4), expect![]);
    refused(conv(|c| c.strides[0] = 0), expect![]);
    refused(conv(|c| c.padding[0] = (i64::MAX, i64::MAX)), expect![]);
    refused(conv(|c| c.padding[0] = (2, 1)), expect![]);
    refused(conv(|c| _ = c.padding.pop()), expect![]);
    refused(conv(|c| c.feature_groups = 0), expect![]);
    refused(conv(|c| c.feature_groups = 4), expect![]);
    refused(conv(|c| c.batch_groups = 2), expect![]);
    refused(valid::convolution().operand(1, "3x3x4x6xf32"), expect![]);
    refused(valid::convolution().operand(1, "3x3xf32"), expect![]);
}

#[test]
fn reductions() {
    let reduce = valid::reduce;
    refused(reduce().edit(|op| _ = op.operands.pop()), expect![]);
    refused(reduce().edit(|op| op.operands.clear()), expect![]);
    refused(reduce().operand(1, "1xf32"), expect![]);
    refused(reduce().operand(1, "f64"), expect![]);
    refused(
        attribute!(reduce(), OpKind::Reduce { dims } => dims[0] = 3),
        expect![],
    );
    refused(
        reduce().edit(|op| _ = op.regions[0].results.pop()),
        expect![],
    );
    refused(
        reduce().edit(|op| op.regions.push(Default::default())),
        expect![],
    );
    refused(valid::reduce_two().operand(1, "3x2xi32"), expect![]);
    refused(
        valid::sort().edit(|op| _ = op.regions[0].results.pop()),
        expect![],
    );
    refused(
        attribute!(valid::sort(), OpKind::Sort { dim, .. } => *dim = 1),
        expect![],
    );
    refused(valid::map().result(0, "2x3xf32"), expect![]);
    refused(
        attribute!(valid::map(), OpKind::Map { dims } => dims.reverse()),
        expect![],
    );
}

#[test]
fn windows() {
    let windows = |edit: fn(&mut halite_stablehlo::WindowAttributes)| attribute!(valid::reduce_window(), OpKind::ReduceWindow(attributes) => edit(attributes));
    refused(windows(|w| w.sizes[1] = 0), expect![]);
    refused(windows(|w| w.strides[1] = 0), expect![]);
    refused(windows(|w| w.strides[1] = 3), expect![]);
    refused(windows(|w| w.base_dilations[1] = usize::MAX), expect![]);
    refused(windows(|w| _ = w.padding.pop()), expect![]);
    let select = |edit: fn(&mut halite_stablehlo::WindowAttributes)| {
        let program = valid::select_and_scatter();
        attribute!(program, OpKind::SelectAndScatter(attributes) => edit(attributes))
    };
    refused(select(|w| w.sizes[1] = 5), expect![]);
    refused(select(|w| w.base_dilations[1] = 2), expect![]);
    refused(
        valid::select_and_scatter().edit(|op| op.regions.swap(0, 1)),
        expect![],
    );
}

#[test]
fn control_flow() {
    refused(
        valid::while_loop().edit(|op| op.regions.swap(0, 1)),
        expect![],
    );
    refused(valid::while_loop().result(1, "f64"), expect![]);
    refused(
        valid::while_loop().edit(|op| _ = op.regions.pop()),
        expect![],
    );
    refused(valid::if_else().operand(0, "1xi1"), expect![]);
    refused(
        valid::if_else().edit(|op| op.regions[1].results.clear()),
        expect![],
    );
    refused(valid::case().edit(|op| op.regions.clear()), expect![]);
    refused(valid::case().operand(0, "i64"), expect![]);
    refused(valid::composite().result(0, "3xf32"), expect![]);
    refused(
        attribute!(valid::custom_call(), OpKind::CustomCall(call) => {
            call.functions.push("f".into());
        }),
        expect![],
    );
    refused(valid::tuple().result(0, "tuple<2xf32>"), expect![]);
    refused(
        attribute!(
            valid::get_tuple_element(),
            OpKind::GetTupleElement { index } => *index = 2
        ),
        expect![],
    );
    refused(program(OpKind::AfterAll, "f32", "token"), expect![]);
}

#[test]
fn linear_algebra() {
    let lengths = |edit: fn(&mut Vec<usize>)| {
        let program = valid::fft(FftKind::Rfft, "2x4x6xf32", "2x4x4xcomplex<f32>");
        attribute!(program, OpKind::Fft { lengths, .. } => edit(lengths))
    };
    refused(lengths(|lengths| lengths[0] = 5), expect![]);
    refused(lengths(|lengths| lengths.clear()), expect![]);
    refused(
        valid::fft(FftKind::Rfft, "4x6xbf16", "4x4xcomplex<f32>"),
        expect![],
    );
    refused(
        valid::fft(FftKind::Irfft, "4x6xcomplex<f32>", "4x6xf32"),
        expect![],
    );
    refused(valid::fft(FftKind::Fft, "4x6xf32", "4x6xf32"), expect![]);
    refused(valid::cholesky().operand(0, "2x3x4xf64"), expect![]);
    refused(valid::cholesky().operand(0, "3xf64"), expect![]);
    refused(valid::triangular_solve().operand(1, "2x3x4xf32"), expect![]);
    refused(valid::triangular_solve().operand(1, "3x4x3xf32"), expect![]);
    refused(valid::batch_norm_grad().operand(3, "2xf32"), expect![]);
    refused(valid::batch_norm_grad().operand(4, "3x2xf32"), expect![]);
}

#[test]
fn random_numbers() {
    refused(valid::rng().operand(0, "i32").operand(1, "i32"), expect![]);
    refused(valid::rng().operand(2, "3xi64"), expect![]);
    refused(valid::rng_bit_generator().operand(0, "3xui64"), expect![]);
    refused(valid::rng_bit_generator().operand(0, "4xui32"), expect![]);
    refused(valid::rng_bit_generator().result(1, "5xi1"), expect![]);
}

#[test]
fn groups_of_processes() {
    let all_reduce = |groups: &[&[usize]]| {
        let groups = valid::groups(groups, None);
        attribute!(valid::all_reduce(), OpKind::AllReduce(collective) => *collective = groups)
    };
    all_reduce(&[]).verify().unwrap();
    refused(all_reduce(&[&[0, 1], &[2]]), expect![]);
    refused(all_reduce(&[&[0, 1], &[2, 2]]), expect![]);
    refused(all_reduce(&[&[0, 1, 2, 3, 4]]), expect![]);
    refused(all_reduce(&[&[0, 1, 2, 3], &[]]), expect![]);
    let all_gather = |edit: fn(&mut halite_stablehlo::CollectiveAttributes)| {
        attribute!(
            valid::all_gather(),
            OpKind::AllGather { collective, .. } => edit(collective)
        )
    };
    refused(all_gather(|c| c.channel = None), expect![]);
    refused(all_gather(|c| c.groups.clear()), expect![]);
    refused(
        all_gather(|c| c.groups = vec![vec![0, 1, 2], vec![3]]),
        expect![],
    );
    refused(
        all_gather(|c| c.groups = vec![vec![0], vec![1], vec![2], vec![3]]),
        expect![],
    );
}

#[test]
fn collectives() {
    refused(valid::all_reduce().operand(1, "3xf64"), expect![]);
    refused(
        attribute!(valid::all_gather(), OpKind::AllGather { dim, .. } => *dim = 2),
        expect![],
    );
    refused(valid::all_to_all().operand(0, "2x5xf32"), expect![]);
    refused(
        attribute!(valid::all_to_all(), OpKind::AllToAll { parts, .. } => *parts = 4),
        expect![],
    );
    refused(valid::reduce_scatter().operand(0, "9x3xf32"), expect![]);
    let permute = |pair| {
        attribute!(
            valid::collective_permute(),
            OpKind::CollectivePermute { pairs, .. } => pairs[0] = pair
        )
    };
    refused(permute((1, 0)), expect![]);
    refused(permute((0, 4)), expect![]);
    refused(
        attribute!(valid::collective_broadcast(), OpKind::CollectiveBroadcast(c) => {
            c.groups[0][0] = 4;
        }),
        expect![],
    );
}

#[test]
fn meshes() {
    let mesh = |edit: fn(&mut halite_stablehlo::ShardyMesh)| {
        let mut program = valid::sharding_constraint();
        edit(&mut program.meshes[0]);
        program
    };
    mesh(|m| m.devices = vec![7, 6, 5, 4, 3, 2, 1, 0])
        .verify()
        .unwrap();
    refused(mesh(|m| m.devices = vec![0; 8]), expect![]);
    refused(mesh(|m| m.axes[1].0 = "x".into()), expect![]);
    refused(mesh(|m| m.axes[0].1 = 0), expect![]);
    refused(mesh(|m| m.axes[0].1 = usize::MAX), expect![]);
    let mut twice = valid::sharding_constraint();
    twice.meshes.push(twice.meshes[0].clone());
    refused(twice, expect![]);
}

#[test]
fn shardings() {
    let with = |sharding| {
        attribute!(
            valid::sharding_constraint(),
            OpKind::ShardingConstraint(constraint) => *constraint = sharding
        )
    };
    refused(with(valid::sharding(&["z", ""])), expect![]);
    refused(with(valid::sharding(&["x", "x"])), expect![]);
    refused(with(valid::sharding(&["x"])), expect![]);
    let mut elsewhere = valid::sharding(&["x", ""]);
    elsewhere.mesh = "other".into();
    refused(with(elsewhere), expect![]);
    let parts = |first, second| {
        let mut sharding = valid::sharding(&["x", "x"]);
        sharding.dims[0].axes[0].part = Some(first);
        sharding.dims[1].axes[0].part = Some(second);
        with(sharding)
    };
    parts((1, 2), (2, 2)).verify().unwrap();
    refused(parts((1, 2), (1, 4)), expect![]);
    refused(parts((1, 3), (1, 1)), expect![]);
    refused(parts((usize::MAX, 2), (0, 0)), expect![]);
}

#[test]
fn shardings_of_inputs() {
    let mut program = valid::with_mesh(valid::add());
    let sharding = |dims: &[&str]| Attribute::Sharding(valid::sharding(dims));
    program.main_mut().input_attributes[0].push("sdy.sharding", sharding(&["x", ""]));
    program.verify().unwrap();
    program.main_mut().output_attributes[0].push("sdy.sharding", sharding(&["x", "z"]));
    refused(program, expect![]);
    let mut program = valid::add();
    program.main_mut().input_attributes.pop();
    refused(program, expect![]);
    let shardings = Attribute::Shardings(vec![valid::sharding(&["x", ""]); 2]);
    let program = valid::with_mesh(valid::add());
    refused(
        program.edit(|op| op.attributes.push("sdy.sharding", shardings)),
        expect![],
    );
}

#[test]
fn manual_computations() {
    let manual = |edit: fn(&mut halite_stablehlo::ManualAttributes)| {
        let program = valid::manual_computation();
        attribute!(program, OpKind::ManualComputation(attributes) => edit(attributes))
    };
    refused(manual(|m| _ = m.axes.pop()), expect![]);
    refused(manual(|m| m.inputs.clear()), expect![]);
    refused(manual(|m| m.axes.push(valid::axis("z"))), expect![]);
    refused(
        manual(|m| m.inputs[0] = valid::sharding(&["y", "x"])),
        expect![],
    );
    refused(
        manual(|m| m.outputs[0] = valid::sharding(&["", ""])),
        expect![],
    );
    let mut program = valid::manual_computation();
    program.meshes[0].axes[0].1 = 2;
    refused(program, expect![]);
}
