//! Functions of the dialect `chlo` in a trace: their gradients are their slopes.

use halite_core::{
    Array, Client, HostArray, Sharding,
    tree::{Empty, Leaf, Tree},
};
use halite_embedded::{Embedded, Options};
use halite_exchange::Artifact;
use halite_nn::{Jit, Tensor, grad};

/// Points, in `f64`, where a function is smooth: at 0 no rule of an absolute value may cut the slope,
/// and at a large one no branch that is not taken may
/// have a derivative that is not finite.
const FUNCTIONS: &[(&str, &[f64])] = &[
    ("acos", &[-0.9, 0.1, 0.7]),
    ("acosh", &[1.1, 3.0, 1e12]),
    ("asin", &[-0.9, 0.1, 0.7, 0.0]),
    ("asinh", &[-2.0, 0.3, 1e12, 0.0]),
    ("atan", &[-2.0, 0.3, 50.0, 0.0]),
    ("atanh", &[-0.9, 0.1, 0.7, 0.0]),
    ("bessel_i1e", &[-3.0, 0.5, 40.0, 0.0]),
    ("cosh", &[-2.0, 0.3, 700.0, 0.0]),
    ("digamma", &[-0.7, 0.5, 3.0, 1e6]),
    ("erf_inv", &[-0.999, 0.1, 0.5, 0.9999, 0.0]),
    ("erfc", &[-3.0, 0.5, 2.0, 9.0, 0.0]),
    ("lgamma", &[-1.3, 0.3, 0.8, 1.1, 1.5, 1.9, 2.5, 6.2, 1e6]),
    ("sinh", &[-2.0, 0.3, 700.0, 0.0]),
    ("square", &[-2.0, 0.3, 700.0, 0.0]),
    ("tan", &[-2.0, 0.3, 1.5, 0.0]),
];

/// Values and gradients of a function at these points.
fn values(client: &Client, name: &str, points: &[f64]) -> [Vec<f64>; 2] {
    let ty = format!("tensor<{}xf64>", points.len());
    let code = format!(
        "func.func @main(%x: {ty}) -> {ty} {{
           %y = chlo.{name} %x : {ty} -> {ty}
           return %y : {ty} }}"
    );
    let function = Artifact::read(code.as_bytes()).unwrap().function().unwrap();
    type One = Vec<Leaf<()>>;
    let both = Jit::<Empty<()>, One, One>::new(client, move |cx, _, inputs| {
        let x: Vec<Tensor> = Tree::into_leaves(inputs);
        let y = function.call(cx, &x)[0];
        let wrt = [Leaf(x[0])].to_vec();
        let slope = grad(y.sum_all(), &wrt).into_leaves()[0];
        (Empty::new(), vec![Leaf(y), Leaf(slope)])
    });
    let device = Sharding::single(client.local_devices()[0]);
    let x = HostArray::from_slice(points, [points.len()]).unwrap();
    let x = vec![Leaf(Array::upload(client, &x, &device).unwrap())];
    let (_, results) = both.on(device.mesh()).call(Empty::new(), &x).unwrap();
    [0, 1].map(|at| results[at].to_vec::<f64>().unwrap())
}

#[test]
fn gradients_are_slopes() {
    let client = Client::new(Embedded::new(&Options::default()).unwrap());
    for &(name, points) in FUNCTIONS {
        let [_, gradient] = values(&client, name, points);
        for (&x, gradient) in points.iter().zip(gradient) {
            let step = 1e-6 * f64::max(x.abs(), 1e-2);
            let [low, high] = [x - step, x + step];
            let [ends, _] = values(&client, name, &[low, high]);
            let slope = (ends[1] - ends[0]) / (high - low);
            let error = (gradient - slope).abs()
                / slope.abs().max(1e-3 * ends[0].abs() / x.abs().max(1e-2));
            assert!(
                error < 1e-4,
                "{name}'({x}) is {gradient}, the slope {slope}"
            );
        }
    }
}
