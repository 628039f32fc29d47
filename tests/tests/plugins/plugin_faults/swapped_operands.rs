//! Convolutions of dilated inputs with fewer places than the kernel, which end the process.

use std::{env, time::Duration};

use halite_core::HostArray;
use halite_nn::{ConvOptions, Padding};
use halite_tests::{
    eval::{host, try_eval_on},
    process::Running,
};

use crate::plugin_faults::support::{embedded, plugin, run_text};

const PROGRAM: &str = "\
module @small {
  func.func public @main(%x: tensor<1x1x3x1xf32>, %k: tensor<2x2x1x1xf32>) -> tensor<1x1x4x1xf32> {
    %y = stablehlo.convolution(%x, %k)
      dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
      window = {pad = [[1, 0], [0, 0]], lhs_dilate = [1, 2]}
      {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
      : (tensor<1x1x3x1xf32>, tensor<2x2x1x1xf32>) -> tensor<1x1x4x1xf32>
    return %y : tensor<1x1x4x1xf32>
  }
}
";

/// The inputs of [`PROGRAM`].
fn inputs() -> [HostArray; 2] {
    let x = host(&[1f32, 2.0, 3.0], &[1, 1, 3, 1]);
    [x, host(&[10f32, 20.0, 30.0, 40.0], &[2, 2, 1, 1])]
}

/// Makes [`plugin_still_ends_the_process`] run [`PROGRAM`].
const CHILD: &str = "HALITE_SWAPPING_CHILD";

#[test]
fn plugin_still_ends_the_process() {
    if env::var_os(CHILD).is_some() {
        run_text(PROGRAM, &inputs());
        return;
    }
    let mut command = std::process::Command::new(env::current_exe().expect("a test has a path"));
    command
        .env(CHILD, "1")
        .args(["plugin_still_ends_the_process"]);
    let child = Running::start(&mut command).expect("a test executable starts");
    let ended = child.end(Duration::from_secs(300));
    assert!(
        !ended.succeeded(),
        "the plugin compiles small dilated convolutions: this version needs no \
         `Faults::swapped_operands` (backends/pjrt/src/quirks.rs)"
    );
    assert!(
        ended.stderr.contains("Window dimensions"),
        "{}",
        ended.stderr
    );
}

#[test]
fn small_dilated_inputs_are_convolved() {
    let options = ConvOptions {
        padding: Padding::Explicit(vec![(1, 0), (0, 0)]),
        input_dilation: vec![1, 2],
        ..ConvOptions::default()
    };
    for client in [plugin(), embedded()] {
        let options = options.clone();
        let result = try_eval_on(
            client,
            move |_, x| vec![x[0].conv(x[1], &options)],
            &inputs(),
        );
        // The second row of the kernel, along 1, 0, 2, 0, 3.
        assert_eq!(
            result.unwrap()[0].as_slice::<f32>().unwrap(),
            [30.0, 80.0, 60.0, 120.0]
        );
    }
}
