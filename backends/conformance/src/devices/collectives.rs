//! Collectives between replicas, from one thread and from two.

use halite_core::{DeviceBuffers, Program, Result};

use super::{
    super::{Subject, support::*},
    launch_all, sharded_step, some, upload_all,
};

/// `(a [2], b [n])` of each replica to the result of each collective.
fn collectives(n: usize) -> Program {
    let all: Vec<_> = (0..n).map(|replica| replica.to_string()).collect();
    let groups = format!(
        "replica_groups = dense<[[{}]]> : tensor<1x{n}xi64>",
        all.join(", ")
    );
    let ring: Vec<_> = (0..n)
        .map(|replica| format!("[{replica}, {}]", (replica + 1) % n))
        .collect();
    let pairs = format!(
        "source_target_pairs = dense<[{}]> : tensor<{n}x2xi64>",
        ring.join(", ")
    );
    let sum = "({ ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %s = stablehlo.add %x, %y : tensor<f32>
        stablehlo.return %s : tensor<f32> })";
    let code = format!(
        r#"module @collectives {{
  func.func public @main(%a: tensor<2xf32>, %b: tensor<{n}xf32>)
      -> (tensor<2xf32>, tensor<{twice}xf32>, tensor<1xf32>, tensor<{n}xf32>, tensor<2xf32>, tensor<ui32>) {{
    %0 = "stablehlo.all_reduce"(%a) {sum} {{{groups}}} : (tensor<2xf32>) -> tensor<2xf32>
    %1 = "stablehlo.all_gather"(%a) {{all_gather_dim = 0 : i64, {groups}}} : (tensor<2xf32>) -> tensor<{twice}xf32>
    %2 = "stablehlo.reduce_scatter"(%b) {sum} {{scatter_dimension = 0 : i64, {groups}}} : (tensor<{n}xf32>) -> tensor<1xf32>
    %3 = "stablehlo.all_to_all"(%b) {{split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = {n} : i64, {groups}}} : (tensor<{n}xf32>) -> tensor<{n}xf32>
    %4 = "stablehlo.collective_permute"(%a) {{{pairs}}} : (tensor<2xf32>) -> tensor<2xf32>
    %5 = stablehlo.replica_id : tensor<ui32>
    return %0, %1, %2, %3, %4, %5 : tensor<2xf32>, tensor<{twice}xf32>, tensor<1xf32>, tensor<{n}xf32>, tensor<2xf32>, tensor<ui32>
  }}
}}"#,
        twice = 2 * n,
    );
    let (inputs, pair) = ([f32s(&[2]), f32s(&[n])], f32s(&[2]));
    let id = ty(halite_core::DType::U32, &[]);
    let outputs = [
        pair.clone(),
        f32s(&[2 * n]),
        f32s(&[1]),
        f32s(&[n]),
        pair,
        id,
    ];
    Program {
        replicas: n,
        ..program("collectives", &code, &inputs, &outputs, &[])
    }
}

pub(super) fn every_collective_works_between_replicas(subject: &Subject) -> Checked {
    let client = subject.client();
    let devices = some(client);
    let n = devices.len();
    let loaded = compile_on(client, &collectives(n), &devices)?;
    let of_a = |replica: usize| vec![replica as f32, 1.0];
    // Encodes replica and element.
    let of_b = |replica: usize, at: usize| (10 * replica + at) as f32;
    let a: Vec<_> = (0..n)
        .map(|replica| upload(client, &of_a(replica), &[2], devices[replica]))
        .collect::<Result<_>>()?;
    let b: Vec<_> = (0..n)
        .map(|replica| {
            upload(
                client,
                &(0..n).map(|at| of_b(replica, at)).collect::<Vec<_>>(),
                &[n],
                devices[replica],
            )
        })
        .collect::<Result<_>>()?;
    let (a, b) = (DeviceBuffers::join(a)?, DeviceBuffers::join(b)?);
    let outputs = launch_all(&loaded, &[&a, &b])?;
    for replica in 0..n {
        let results: Vec<_> = outputs
            .iter()
            .filter_map(|output| output.get(replica))
            .collect();
        let wants = [
            ("all-reduce", vec![(n * (n - 1) / 2) as f32, n as f32]),
            ("all-gather", (0..n).flat_map(of_a).collect()),
            (
                "reduce-scatter",
                vec![(0..n).map(|from| of_b(from, replica)).sum()],
            ),
            (
                "all-to-all",
                (0..n).map(|from| of_b(from, replica)).collect(),
            ),
            ("collective-permute", of_a((replica + n - 1) % n)),
        ];
        for ((what, want), &result) in wants.into_iter().zip(&results) {
            same(
                format!("the {what} on replica {replica} of {n}"),
                read_shard::<f32>(result)?,
                want,
            )?;
        }
        same(
            "the replica id",
            read_shard::<u32>(results[5])?,
            vec![replica as u32],
        )?;
    }
    Ok(())
}

pub(super) fn two_threads_queue_launches_with_collectives(subject: &Subject) -> Checked {
    let client = subject.client();
    let devices = some(client);
    let step = compile_on(client, &sharded_step(devices.len()), &devices)?;
    on_threads(2, |number| {
        let value = (number + 1) as f32;
        let shards = upload_all(client, &[value; 8], &[2, 4], &devices)?;
        let weights = upload_all(client, &[1.0f32; 12], &[4, 3], &devices)?;
        let outputs: Vec<_> = (0..250)
            .map(|_| launch_all(&step, &[&shards, &weights]))
            .collect::<Result<_>>()?;
        let want = value * value * 4.0 * 2.0 * devices.len() as f32;
        for launched in &outputs {
            for gradient in launched[1].iter() {
                same("the gradient", read_shard::<f32>(gradient)?, vec![want; 12])?;
            }
        }
        Ok(())
    })
}
