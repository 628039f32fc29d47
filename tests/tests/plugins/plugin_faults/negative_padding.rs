//! Convolutions whose padding is negative before and positive after.

use std::iter;

use halite_core::{Faults, HostArray, tree::Leaf};
use halite_nn::{ConvOptions, Padding, grad};
use halite_tests::eval::{host, try_eval_on};

use crate::plugin_faults::support::{embedded, plugin, run_text, with_faults};

/// Shifts an input of two samples with six elements by two and appends a zero.
const PROGRAM: &str = "\
module @crop {
  func.func public @main(%x: tensor<2x6x8xf32>, %k: tensor<1x8x8xf32>) -> tensor<2x2x8xf32> {
    %y = stablehlo.convolution(%x, %k)
      dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
      window = {pad = [[-5, 1]]}
      {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
      : (tensor<2x6x8xf32>, tensor<1x8x8xf32>) -> tensor<2x2x8xf32>
    return %y : tensor<2x2x8xf32>
  }
}
";

/// The inputs of [`PROGRAM`], with the identity as the kernel.
fn inputs() -> [HostArray; 2] {
    let x: Vec<f32> = (1..=96).map(|i| i as f32).collect();
    let k: Vec<f32> = (0..64)
        .map(|i| if i / 8 == i % 8 { 1.0 } else { 0.0 })
        .collect();
    [host(&x, &[2, 6, 8]), host(&k, &[1, 8, 8])]
}

/// The last element of each sample, then zeros.
fn expected() -> Vec<f32> {
    let last = |sample: usize| (1..=8).map(move |feature| (48 * sample + 40 + feature) as f32);
    let zeros = || iter::repeat_n(0.0, 8);
    last(0)
        .chain(zeros())
        .chain(last(1))
        .chain(zeros())
        .collect()
}

#[test]
fn plugin_still_reads_outside_of_the_input() {
    let results = run_text(PROGRAM, &inputs());
    let got = results[0].as_slice::<f32>().unwrap();
    assert_ne!(
        got,
        expected(),
        "the plugin computes convolutions with negative padding correctly: this version needs no \
         `Faults::negative_padding` (backends/pjrt/src/quirks.rs)"
    );
}

#[test]
fn crop_by_padding_pads_with_zeros() {
    let options = ConvOptions {
        padding: Padding::Explicit(vec![(-5, 1)]),
        ..ConvOptions::default()
    };
    for client in [plugin(), embedded()] {
        let options = options.clone();
        let results = try_eval_on(
            client,
            move |_, x| vec![x[0].conv(x[1], &options)],
            &inputs(),
        );
        assert_eq!(results.unwrap()[0].as_slice::<f32>().unwrap(), expected());
    }
}

/// Padding by more than the kernel's extent, whose gradient is a convolution that is cut before.
#[test]
fn gradient_of_wide_padding_is_right() {
    let options = ConvOptions {
        padding: Padding::Explicit(vec![(3, 0)]),
        ..ConvOptions::default()
    };
    let inputs = [host(&[1f32; 4], &[2, 2, 1]), host(&[1f32; 4], &[2, 1, 2])];
    for client in [plugin(), embedded()] {
        let options = options.clone();
        let gradient = try_eval_on(
            client,
            move |cx, x| {
                let y = x[0].conv(x[1], &options);
                let weights = cx.iota(&y.ty(), 1) + 1.0;
                vec![grad((y * weights).sum_all(), &Leaf(x[0])).0]
            },
            &inputs,
        );
        let gradient = gradient.unwrap();
        assert_eq!(
            gradient[0].as_slice::<f32>().unwrap(),
            [14.0, 8.0, 14.0, 8.0]
        );
    }
}

/// A program that halite did not lower is not changed: it is refused on a client with the fault.
#[test]
fn foreign_programs_are_refused() {
    let artifact = halite_exchange::Artifact::read(PROGRAM.as_bytes()).unwrap();
    let client = with_faults(plugin(), Faults::ALL);
    let error = artifact.compile(&client).unwrap_err().to_string();
    assert!(
        error.contains("padding (-5, 1)") && error.contains("embedded"),
        "{error}"
    );
    artifact
        .compile(embedded())
        .expect("the embedded executor is right");
}
