//! Numbers, losses and random draws.

use expect_test::expect;
use halite_core::{DType, TensorType};
use halite_nn::{CrossEntropy, Mean, rng};

use crate::shared::{check, input};

#[test]
fn unrepresentable_number_is_a_mistake() {
    check(
        |cx| {
            let labels = cx.input(TensorType::new(DType::U8, [2]), "labels");
            let _ = labels.eq(-1);
            let _ = labels.ge(300);
            let _ = labels.convert(DType::Bool).eq(2);
            let _ = labels.convert(DType::S64) + 9_223_372_036_854_775_808.0;
            let _ = labels.convert(DType::S32).eq(f64::NAN);
            let held = [
                labels.eq(255),
                labels.convert(DType::S8).ge(-128),
                labels.convert(DType::Bool).eq(1),
            ];
            assert!(held.iter().all(|held| !held.is_error()));
        },
        expect![[r#"
            +3: number: u8 cannot represent -1; convert the tensor first
            +4: number: u8 cannot represent 300; convert the tensor first
            +5: number: bool cannot represent 2; convert the tensor first
            +6: number: s64 cannot represent 9223372036854776000; convert the tensor first
            +7: number: s32 cannot represent NaN; convert the tensor first
        "#]],
    );
}

#[test]
fn loss_weights_do_not_broadcast() {
    check(
        |cx| {
            let losses = input(cx, "losses", &[4]);
            let weights = input(cx, "weights", &[4, 1]);
            let _ = Mean::weighted(losses, weights);
            let (logits, target) = (
                input(cx, "logits", &[4, 3]),
                cx.input(TensorType::new(DType::U8, [4]), "target"),
            );
            let _ = CrossEntropy::new().weights(weights).loss(logits, target);
            let _ = CrossEntropy::new()
                .class_weights(losses)
                .loss(logits, target);
        },
        expect![[r#"
            +4: weighted mean: values f32[4] and weights f32[4, 1]; expected equal dimensions
            +9: cross entropy: weights f32[4, 1] for logits f32[4, 3]; expected dimensions [4]
            +12: cross entropy: class weights f32[4] for logits f32[4, 3]; expected dimensions [3]
        "#]],
    );
}

#[test]
fn oversized_random_draw_is_one_mistake() {
    check(
        |cx| {
            let key = rng::constant_key(cx, rng::key(0));
            let dims = [usize::MAX, 3];
            let noise = rng::normal(key, dims, DType::F32);
            let _ = (noise.flatten(), Mean::of(noise).value());
            let _ = rng::bits(key, [0, usize::MAX, usize::MAX], DType::U64);
            let _ = rng::integers(key, dims, 0, 9);
            let _ = rng::permutation(key, usize::MAX);
            let _ = rng::split_many(key, usize::MAX);
            let _ = rng::categorical(key, noise);
        },
        expect![[r#"
            +4: random normal: f32[18446744073709551615, 3] is larger than any address space
            +6: random bits: u64[0, 18446744073709551615, 18446744073709551615] is larger than any address space
            +7: random integers: s32[18446744073709551615, 3] is larger than any address space
            +8: random permutation: s32[18446744073709551615] is larger than any address space
            +9: random split: u32[18446744073709551615, 2] is larger than any address space
        "#]],
    );
}

#[test]
fn counting_beyond_an_integer_type_is_a_mistake() {
    check(
        |cx| {
            let _ = (
                cx.arange(256, DType::U8),
                cx.arange(128, DType::S8),
                cx.arange(0, DType::S8),
            );
            let _ = cx.arange(257, DType::U8);
            let _ = cx.iota(&TensorType::new(DType::S8, [2, 129]), 1);
            let _ = cx.arange(70_000, DType::U16);
        },
        expect![[r#"
            +7: iota: u8[257] counts to 256 along dimension 0, which u8 cannot represent; count in s32 and convert
            +8: iota: s8[2, 129] counts to 128 along dimension 1, which s8 cannot represent; count in s32 and convert
            +9: iota: u16[70000] counts to 69999 along dimension 0, which u16 cannot represent; count in s32 and convert
        "#]],
    );
}
