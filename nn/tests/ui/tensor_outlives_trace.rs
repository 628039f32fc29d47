//! A tensor cannot outlive its trace.

use halite_core::DType;
use halite_nn::Trace;

fn main() {
    let x = {
        let cx = Trace::new();
        cx.scalar(1.0, DType::F32)
    };
    println!("{:?}", x + 1.0);
}
