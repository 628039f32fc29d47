//! Every gradient rule against finite differences in f64, on the real CPU plugin; and the gradient of that gradient.

mod across;
mod control;
mod elementwise;
mod index;
mod product;
mod reduce;
mod shape;

use halite_core::{DType, HostArray};
use halite_nn::{Tensor, Trace, grad};
use halite_tests::eval::{Function, host, noise, try_eval_replicas};

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
        Case { inputs: inputs.to_vec(), step: 1e-5, tolerance: 1e-6, devices: 1 }
    }

    /// At noise of these dimensions between -2 and 2.
    fn noise(dims: &[&[usize]]) -> Self {
        Case::within(-2.0, 2.0, dims)
    }

    /// At noise of these dimensions.
    fn within(low: f64, high: f64, dims: &[&[usize]]) -> Self {
        let inputs: Vec<HostArray> = dims.iter().zip(1..).map(|(dims, seed)| noise(seed, dims, low, high)).collect();
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

    /// Run side by side on devices, each at a point of its own. What is differentiated is the sum of all their losses.
    fn on_devices(mut self, count: usize) -> Self {
        self.devices = count;
        self
    }

    /// Compares derivatives in one direction, which is noise, in one program: the gradient times the direction with the
    /// central difference along it, and the same of that.
    #[track_caller]
    fn check(self, name: &str, function: impl Function) {
        let Case { inputs, step, tolerance, devices } = self;
        let floats: Vec<usize> = (0..inputs.len()).filter(|&i| inputs[i].ty().dtype() == DType::F64).collect();
        let directions = floats.iter().map(|&i| noise(100 + i as u64, inputs[i].ty().dims(), -1.0, 1.0));
        let count = inputs.len();
        let all: Vec<HostArray> = inputs.iter().cloned().chain(directions).collect();
        let of_device = |device: usize| all.iter().map(|array| stretched(array, device)).collect::<Vec<_>>();
        let program = traced(move |cx, all| {
            let (x, along) = all.split_at(count);
            let line = Line { x, along, floats: &floats };
            let (ahead, behind) = (line.moved(step), line.moved(-step));
            let slope = line.slope(cx, &function, x);
            let difference = loss(cx, &function, &ahead) - loss(cx, &function, &behind);
            let second = line.derivative(slope, x);
            let second_difference = line.slope(cx, &function, &ahead) - line.slope(cx, &function, &behind);
            vec![slope, difference / (2.0 * step), second, second_difference / (2.0 * step)]
        });
        let results = try_eval_replicas(&program, &(0..devices).map(of_device).collect::<Vec<_>>());
        let results = results.unwrap_or_else(|error| panic!("{name}: {error}"));
        let sum = |i: usize| results.iter().map(|results| results[i].item::<f64>().unwrap()).sum::<f64>();
        let values: Vec<f64> = (0..4).map(sum).collect();
        for (order, pair) in values.chunks(2).enumerate() {
            let (given, measured) = (pair[0], pair[1]);
            let wrong = (given - measured).abs() / measured.abs().max(1.0);
            assert!(wrong <= tolerance, "{name}: derivative {} is {given}, measured {measured}", order + 1);
        }
        assert!(values[0].abs() > 1e-9, "{name}: the derivative is {}, which tests nothing", values[0]);
    }
}

/// Says that a closure is a [`Function`], so that its lifetimes are understood.
fn traced<F: Function>(function: F) -> F {
    function
}

/// The floats of `array`, made others for each device but the first.
fn stretched(array: &HostArray, device: usize) -> HostArray {
    let Ok(values) = array.as_slice::<f64>() else {
        return array.clone();
    };
    let values: Vec<f64> = values.iter().map(|value| value * (1.0 + 0.3 * device as f64) + 0.1 * device as f64).collect();
    host(&values, array.ty().dims())
}

/// A point and a direction.
struct Line<'a, 't> {
    x: &'a [Tensor<'t>],
    along: &'a [Tensor<'t>],
    floats: &'a [usize],
}

impl<'t> Line<'_, 't> {
    fn moved(&self, step: f64) -> Vec<Tensor<'t>> {
        let mut moved = self.x.to_vec();
        for (&i, &along) in self.floats.iter().zip(self.along) {
            moved[i] = self.x[i] + along * step;
        }
        moved
    }

    fn slope(&self, cx: &'t Trace, function: &impl Function, at: &[Tensor<'t>]) -> Tensor<'t> {
        self.derivative(loss(cx, function, at), at)
    }

    /// Of a scalar at `at`, along the direction.
    fn derivative(&self, scalar: Tensor<'t>, at: &[Tensor<'t>]) -> Tensor<'t> {
        let wrt: Vec<_> = self.floats.iter().map(|&i| halite_core::tree::Leaf(at[i])).collect();
        let gradients = grad(scalar, &wrt);
        let parts = gradients.iter().zip(self.along).map(|(gradient, &along)| (gradient.0 * along).sum_all());
        parts.reduce(|a, b| a + b).expect("there is something to differentiate by")
    }
}

/// A scalar that depends on each element of the results in its own way, and not only linearly.
fn loss<'t>(cx: &'t Trace, function: &impl Function, at: &[Tensor<'t>]) -> Tensor<'t> {
    let mut total = cx.scalar(0.0, DType::F64);
    for (i, result) in function(cx, at).into_iter().enumerate() {
        if result.dtype().is_float() {
            let flat = result.convert(DType::F64).flatten();
            let weight = (cx.arange(flat.dims()[0], DType::F64) * 1.7 + (i as f64 + 0.5)).sin();
            total = total + (weight * (flat + flat.square() * 0.3)).sum_all();
        }
    }
    total
}
