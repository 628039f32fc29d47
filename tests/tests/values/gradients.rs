//! Gradients against finite differences in f64, on the real CPU plugin, and gradients of these: of
//! loops, branches, recomputed parts and collectives, and at special points. Those of single
//! operations at ordinary points are in `edge_values::slopes`.

mod across;
mod control;
mod elementwise;
mod recomputed;
mod scan;
mod windows;

use halite_core::{DType, HostArray};
use halite_tests::{
    differences::{check_differences, differences},
    eval::{Function, host, noise, try_eval_replicas},
};

/// A function to differentiate, and how exactly.
struct Case {
    inputs: Vec<HostArray>,
    /// Of the finite difference.
    step: f64,
    /// Relative to 1, or to the value if that is larger.
    tolerance: f64,
    devices: usize,
}

impl Case {
    /// At `inputs`, of which those of f64 are differentiated by.
    fn at(inputs: &[HostArray]) -> Self {
        Case {
            inputs: inputs.to_vec(),
            step: 1e-5,
            tolerance: 1e-6,
            devices: 1,
        }
    }

    /// At noise of these dimensions between -2 and 2.
    fn noise(dims: &[&[usize]]) -> Self {
        Case::within(-2.0, 2.0, dims)
    }

    /// At noise of these dimensions.
    fn within(low: f64, high: f64, dims: &[&[usize]]) -> Self {
        let inputs: Vec<HostArray> = dims
            .iter()
            .zip(1..)
            .map(|(dims, seed)| noise(seed, dims, low, high))
            .collect();
        Case::at(&inputs)
    }

    /// With further inputs, which are not differentiated by.
    fn with(mut self, inputs: &[HostArray]) -> Self {
        self.inputs.extend_from_slice(inputs);
        self
    }

    /// For functions that round to f32 on the way.
    fn coarse(mut self) -> Self {
        (self.step, self.tolerance) = (1e-2, 1e-3);
        self
    }

    /// Run side by side on devices, each at a point of its own. What is differentiated is the sum
    /// of all their losses.
    fn on_devices(mut self, count: usize) -> Self {
        self.devices = count;
        self
    }

    /// Compares derivatives in one direction, which is noise, in one program: the gradient times
    /// the direction with the central difference along it, and the same of that.
    #[track_caller]
    fn check(self, name: &str, function: impl Function) {
        let Case {
            inputs,
            step,
            tolerance,
            devices,
        } = self;
        let floats: Vec<usize> = (0..inputs.len())
            .filter(|&i| inputs[i].ty().dtype() == DType::F64)
            .collect();
        let directions = floats
            .iter()
            .map(|&i| noise(100 + i as u64, inputs[i].ty().dims(), -1.0, 1.0));
        let count = inputs.len();
        let all: Vec<HostArray> = inputs.iter().cloned().chain(directions).collect();
        let of_device = |device: usize| {
            all.iter()
                .map(|array| stretched(array, device))
                .collect::<Vec<_>>()
        };
        let program = differences(function, count, floats, step);
        let results = try_eval_replicas(&program, &(0..devices).map(of_device).collect::<Vec<_>>());
        let results = results.unwrap_or_else(|error| panic!("{name}: {error}"));
        let sum = |i: usize| {
            results
                .iter()
                .map(|results| results[i].item::<f64>().unwrap())
                .sum::<f64>()
        };
        let values: Vec<f64> = (0..4).map(sum).collect();
        check_differences(name, &values, tolerance);
    }
}

/// The floats of `array`, made others for each device but the first.
fn stretched(array: &HostArray, device: usize) -> HostArray {
    let Ok(values) = array.as_slice::<f64>() else {
        return array.clone();
    };
    let values: Vec<f64> = values
        .iter()
        .map(|value| value * (1.0 + 0.3 * device as f64) + 0.1 * device as f64)
        .collect();
    host(&values, array.ty().dims())
}
