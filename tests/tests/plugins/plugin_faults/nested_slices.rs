//! Slices of dynamic slices, whose starts the plugin adds before they are in range.

use halite_core::{Client, DType, Faults, HostArray};
use halite_tests::eval::{host, try_eval_on};

use crate::plugin_faults::support::{embedded, plugin, with_faults};

/// Starts of a slice of five of seven elements, and of a slice of three of these.
const STARTS: [[i32; 2]; 5] = [[6, 0], [0, 9], [-3, 4], [2, 1], [9, -9]];

/// For each pair of starts, the slice of the slice, the same of a reshaped one, and the element at the
/// second start.
fn slices(client: &Client) -> Vec<Vec<f32>> {
    let x: Vec<f32> = (0..7u8).map(f32::from).collect();
    let inputs = [host(&x, &[7]), host(STARTS.as_flattened(), &[5, 2])];
    let results = try_eval_on(
        client,
        |cx, x| {
            let zero = cx.scalar(0.0, DType::S32);
            let each = (0..STARTS.len()).flat_map(|pair| {
                let [i, j] = [0, 1].map(|at| x[1].index(0, pair).index(0, at));
                let part = x[0].dynamic_slice(&[i], [5]);
                let row = part.reshape([1, 5]).dynamic_slice(&[zero, j], [1, 3]);
                [part.dynamic_slice(&[j], [3]), row, part.take(j, 0)]
            });
            each.collect()
        },
        &inputs,
    );
    let values = |array: &HostArray| array.as_slice::<f32>().unwrap().to_vec();
    results.unwrap().iter().map(values).collect()
}

fn are_right(client: &Client) -> bool {
    let expected = STARTS.iter().flat_map(|&[i, j]| {
        let first = i.clamp(0, 2);
        let [of_slice, of_element] = [2, 4].map(|last| first + j.clamp(0, last));
        let slice: Vec<f32> = (of_slice..of_slice + 3).map(|at| at as f32).collect();
        [slice.clone(), slice, vec![of_element as f32]]
    });
    slices(client) == expected.collect::<Vec<_>>()
}

#[test]
fn plugin_still_adds_starts_out_of_range() {
    let trusted = with_faults(plugin(), Faults::NONE);
    let mended = "this version is right: turn the fault off in backends/pjrt/src/quirks.rs";
    assert!(!are_right(&trusted), "{mended}");
}

#[test]
fn slices_of_slices_are_in_range() {
    assert!(are_right(plugin()));
    assert!(are_right(embedded()));
}
