//! Valid programs, at least one of each family. Each ends with the operation it is for.

mod control;
mod data;
mod parallel;

use halite_stablehlo::{BinaryOp, Dense, FftKind, Module, OpKind, UnaryOp};

use crate::{programs::program::program, text::without_positions};

pub(crate) use self::{control::*, data::*, parallel::*};

/// A program of each family.
pub(crate) fn all() -> Vec<Module> {
    vec![
        add(),
        unary(UnaryOp::Abs, "2xcomplex<f32>", "2xf32"),
        unary(UnaryOp::IsFinite, "2xbf16", "2xi1"),
        unary(UnaryOp::Not, "2xi1", "2xi1"),
        program(
            OpKind::Binary(BinaryOp::Complex),
            "2xf64 2xf64",
            "2xcomplex<f64>",
        ),
        compare(),
        select(),
        clamp(),
        program(OpKind::Convert, "2xf32", "2xi4"),
        bitcast_convert(),
        program(OpKind::BitcastConvert, "2xui64", "2x4xbf16"),
        reduce_precision(),
        constant(),
        program(
            OpKind::Constant(Dense::from_integers([1, 2, 3])),
            "",
            "3xi64",
        ),
        iota(),
        broadcast_in_dim(),
        program(OpKind::Reshape, "2x3xf32", "3x1x2xf32"),
        transpose(),
        program(OpKind::Reverse { dims: vec![1] }, "2x3xf32", "2x3xf32"),
        concatenate(),
        slice(),
        dynamic_slice(),
        dynamic_update_slice(),
        pad(),
        gather(),
        batched_gather(),
        scatter(),
        dot(),
        convolution(),
        reduce(),
        reduce_two(),
        reduce_window(),
        select_and_scatter(),
        sort(),
        map(),
        while_loop(),
        if_else(),
        case(),
        call(),
        composite(),
        custom_call(),
        tuple(),
        get_tuple_element(),
        program(OpKind::AfterAll, "token token", "token"),
        program(OpKind::OptimizationBarrier, "2xf32 token", "2xf32 token"),
        program(OpKind::GetDimensionSize { dim: 0 }, "2xf32", "i32"),
        fft(FftKind::Fft, "2x4x6xcomplex<f32>", "2x4x6xcomplex<f32>"),
        fft(FftKind::Rfft, "2x4x6xf32", "2x4x4xcomplex<f32>"),
        fft(FftKind::Irfft, "2x4x4xcomplex<f64>", "2x4x6xf64"),
        triangular_solve(),
        cholesky(),
        program(
            OpKind::BatchNormTraining {
                epsilon: 0.1,
                feature: 1,
            },
            "2x3xf32 3xf32 3xf32",
            "2x3xf32 3xf32 3xf32",
        ),
        program(
            OpKind::BatchNormInference {
                epsilon: 0.1,
                feature: 0,
            },
            "2x3xf32 2xf32 2xf32 2xf32 2xf32",
            "2x3xf32",
        ),
        batch_norm_grad(),
        rng(),
        rng_bit_generator(),
        all_reduce(),
        all_gather(),
        all_to_all(),
        reduce_scatter(),
        collective_permute(),
        collective_broadcast(),
        program(OpKind::PartitionId, "", "ui32"),
        program(OpKind::ReplicaId, "", "ui32"),
        sharding_constraint(),
        propagation_barrier(),
        manual_computation(),
    ]
}

#[test]
fn valid_programs_pass() {
    for program in all() {
        if let Err(error) = program.verify() {
            panic!("{error}\n{:#?}", program.functions[0].body.operations);
        }
    }
}

#[test]
fn valid_programs_are_read_from_their_texts() {
    for program in all() {
        let text = program.to_text();
        let read = Module::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(
            without_positions(read),
            without_positions(program),
            "{text}"
        );
    }
}
