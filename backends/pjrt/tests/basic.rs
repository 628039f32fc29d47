//! Loading, compiling and running on the real CPU plugin.

mod common;

use common::*;
use halite_core::Arg;

#[test]
fn a_program_is_compiled_and_run() {
    let client = cpu(1);
    let add = compile(&client, &add(3, false));
    let (a, b) = (upload(&client, &[1.0f32, 2.0, 3.0], &[3], 0), upload(&client, &[10.0f32, 20.0, 30.0], &[3], 0));
    let sum = run(&add, vec![Arg::Borrow(&a), Arg::Borrow(&b)]).unwrap();
    assert_eq!(read::<f32>(&sum[0]), [11.0, 22.0, 33.0]);
    assert_eq!(read::<f32>(&a), [1.0, 2.0, 3.0]);
}
