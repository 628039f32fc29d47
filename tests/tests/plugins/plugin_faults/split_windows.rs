//! Windows along sharded dimensions. Programs that are lowered as if the partitioner had no fault show
//! that it still has it.

use std::{env, time::Duration};

use halite_core::{Client, DType, Faults, PartitionSpec};
use halite_nn::{ConvOptions, Padding, grad, jit};
use halite_tests::process::Running;

use crate::plugin_faults::support::{Devices, embedded, plugin, with_faults};

/// The plugin as if its partitioner had no fault.
fn trusted() -> Client {
    let mut faults = Faults::ALL;
    faults.split_windows = false;
    with_faults(plugin(), faults)
}

/// Two pads of a sharded dimension.
fn pads(client: &Client) -> [Vec<f32>; 2] {
    let devices = Devices::new(client, &[("data", 2)]);
    let x = devices.upload(&[10.0, 11.0, 12.0, 13.0], &[4], "(data)");
    devices.run(
        |_, [x]| [x.pad(1.0, [(1, -1)]), x.pad(5.0, [(1, -1)])],
        [&x],
    )
}

fn right_pads() -> [Vec<f32>; 2] {
    [1.0, 5.0].map(|first| vec![first, 10.0, 11.0, 12.0])
}

/// A convolution and the gradient of its kernel, with the length sharded over one of two axes.
fn convolution(client: &Client) -> [Vec<f32>; 2] {
    let devices = Devices::new(client, &[("data", 2), ("model", 2)]);
    let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    let x = devices.upload(&x, &[1, 8, 1], "(None, data)");
    let kernel = devices.upload(&[1.0, 10.0, 100.0], &[3, 1, 1], "()");
    devices.run(
        |_, [x, kernel]| {
            let y = x.conv(kernel, &ConvOptions::default());
            [y, grad(y.sum_all(), &kernel)]
        },
        [&x, &kernel],
    )
}

fn right_convolution() -> [Vec<f32>; 2] {
    let y = vec![321.0, 432.0, 543.0, 654.0, 765.0, 876.0];
    [y, vec![21.0, 27.0, 33.0]]
}

/// The last six elements of eight, from a start that is out of range, sharded.
fn last_elements(client: &Client) -> Vec<f32> {
    let devices = Devices::new(client, &[("data", 2)]);
    let x = devices.upload(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], &[8], "(data)");
    let start = devices.upload(&[5.0], &[], "()");
    let slice = jit(client, |_, [x, start]| {
        [x.dynamic_slice(&[start.convert(DType::S32)], [6])]
    });
    let slice = slice
        .on(&devices.mesh)
        .output_specs(|_, _| PartitionSpec::first("data"));
    slice.run([&x, &start]).unwrap()[0].to_vec().unwrap()
}

const LAST_ELEMENTS: [f32; 6] = [2.0, 3.0, 4.0, 5.0, 6.0, 7.0];

/// A convolution in two groups and the gradient of its kernel, with the batch sharded over one of two
/// axes.
fn grouped(client: &Client) -> [Vec<f32>; 2] {
    let devices = Devices::new(client, &[("data", 2), ("model", 2)]);
    let x = devices.upload(&[1.0, 2.0, 3.0, 4.0], &[2, 1, 2], "(data)");
    let kernel = devices.upload(&[1.0, 10.0], &[1, 1, 2], "()");
    devices.run(
        |_, [x, kernel]| {
            let options = ConvOptions {
                groups: 2,
                ..ConvOptions::default()
            };
            let y = x.conv(kernel, &options);
            [y, grad(y.sum_all(), &kernel)]
        },
        [&x, &kernel],
    )
}

fn right_grouped() -> [Vec<f32>; 2] {
    [vec![1.0, 20.0, 3.0, 40.0], vec![4.0, 6.0]]
}

/// Sums at three places of a sharded dimension, which are not in equal parts, and a padded copy.
fn scattered(client: &Client) -> [Vec<f32>; 2] {
    let devices = Devices::new(client, &[("data", 2), ("model", 4)]);
    let values: Vec<f32> = (0..72u8).map(f32::from).collect();
    let x = devices.upload(&values, &[12, 6], "(None, data)");
    devices.run(
        |cx, [x]| {
            let places = cx.arange(3, DType::S32) * -2.0 + 5.0;
            let sums = x.scatter_add(places, x.slice_dim(1, ..3), 1);
            [
                sums.slice_dim(0, ..1),
                x.pad(5.0, [(1, -1), (0, 0)]).slice_dim(0, ..1),
            ]
        },
        [&x],
    )
}

fn right_scattered() -> [Vec<f32>; 2] {
    [vec![0.0, 3.0, 2.0, 4.0, 4.0, 5.0], vec![5.0; 6]]
}

const MENDED: &str = "the partitioner of this version is right: it needs no \
                      `Faults::split_windows` (backends/pjrt/src/quirks.rs)";

#[test]
fn plugin_still_shares_padded_copies() {
    assert_ne!(pads(&trusted()), right_pads(), "{MENDED}");
}

#[test]
fn plugin_still_adds_copies_of_convolutions() {
    assert_ne!(convolution(&trusted()), right_convolution(), "{MENDED}");
}

#[test]
fn plugin_still_adds_copies_of_groups() {
    assert_ne!(grouped(&trusted()), right_grouped(), "{MENDED}");
}

#[test]
fn plugin_still_leaves_starts_as_they_are() {
    assert_ne!(last_elements(&trusted()), LAST_ELEMENTS, "{MENDED}");
}

/// A pad with gaps that cuts before, on the partitioner that is trusted. Aborts the process.
fn cut_with_gaps(client: &Client) -> [Vec<f32>; 2] {
    let devices = Devices::new(client, &[("data", 2)]);
    let x = devices.upload(&[1.0, 2.0, 3.0, 4.0], &[4], "(data)");
    devices.run(
        |_, [x]| [x.pad_interior(0.0, [-1], [2], [1]), x + 1.0],
        [&x],
    )
}

/// Makes [`plugin_aborts_in_a_child`] run [`cut_with_gaps`].
const CHILD: &str = "HALITE_ABORTING_CHILD";

#[test]
fn plugin_aborts_in_a_child() {
    if env::var_os(CHILD).is_some() {
        cut_with_gaps(&trusted());
        return;
    }
    let mut command = std::process::Command::new(env::current_exe().expect("a test has a path"));
    command.env(CHILD, "1").args(["plugin_aborts_in_a_child"]);
    let child = Running::start(&mut command).expect("a test executable starts");
    let ended = child.end(Duration::from_secs(300));
    assert!(!ended.succeeded(), "{MENDED}");
    assert!(
        ended.stderr.contains("spmd_partitioner"),
        "{}",
        ended.stderr
    );
}

#[test]
fn plugin_still_adds_what_fills_up_parts() {
    assert_ne!(scattered(&trusted()), right_scattered(), "{MENDED}");
}

#[test]
fn windows_of_sharded_dimensions_are_right() {
    for client in [plugin(), embedded()] {
        assert_eq!(pads(client), right_pads());
        assert_eq!(convolution(client), right_convolution());
        assert_eq!(grouped(client), right_grouped());
        assert_eq!(scattered(client), right_scattered());
        assert_eq!(last_elements(client), LAST_ELEMENTS);
        let gaps = vec![0.0, 2.0, 0.0, 3.0, 0.0, 4.0, 0.0, 0.0];
        assert_eq!(cut_with_gaps(client), [gaps, vec![2.0, 3.0, 4.0, 5.0]]);
    }
}

#[test]
fn cumulative_extremes_of_a_sharded_dimension() {
    for client in [plugin(), embedded()] {
        let devices = Devices::new(client, &[("data", 2)]);
        let x = devices.upload(&[-1.0, -2.0, -3.0, -4.0], &[4], "(data)");
        let [least, most] = devices.run(|_, [x]| [x.cummin(0), x.cummax(0)], [&x]);
        assert_eq!(least, [-1.0, -2.0, -3.0, -4.0]);
        assert_eq!(most, [-1.0; 4]);
    }
}

#[test]
fn pools_of_a_sharded_length() {
    for client in [plugin(), embedded()] {
        let devices = Devices::new(client, &[("data", 2)]);
        let x = devices.upload(&[-1.0, -2.0, -3.0, -4.0], &[1, 4, 1], "(None, data)");
        let before = || Padding::Explicit(vec![(1, 0)]);
        let [mean, most] = devices.run(
            move |_, [x]| {
                [
                    x.avg_pool([2], [1], before()),
                    x.max_pool([2], [1], before()),
                ]
            },
            [&x],
        );
        assert_eq!(mean, [-0.5, -1.5, -2.5, -3.5]);
        assert_eq!(most, [-1.0, -1.0, -2.0, -3.0]);
    }
}

/// Kernels that are sharded along their length, too.
#[test]
fn convolution_with_a_sharded_kernel() {
    for client in [plugin(), embedded()] {
        let devices = Devices::new(client, &[("data", 2), ("model", 2)]);
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let x = devices.upload(&x, &[1, 8, 1], "(None, data)");
        let kernel = devices.upload(&[1.0, 2.0, 3.0, 4.0], &[4, 1, 1], "(data)");
        let [y, _] = devices.run(
            |_, [x, kernel]| {
                let y = x.conv(kernel, &ConvOptions::default());
                [y, y]
            },
            [&x, &kernel],
        );
        assert_eq!(y, [30.0, 40.0, 50.0, 60.0, 70.0]);
    }
}
