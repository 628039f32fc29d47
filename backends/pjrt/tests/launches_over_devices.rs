//! Launches over several devices: from many callbacks at once, and from several threads.

use std::{
    sync::{
        Arc, Barrier,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use halite_core::{Arg, Backend, Buffer, Event, Executable, Launch, Program};
use halite_pjrt::{Pjrt, PjrtBuffer, PjrtExecutable};

use crate::common::*;

/// Longer than all of this takes on a machine that is very busy.
const DEADLINE: Duration = Duration::from_secs(120);

/// `x [DEVICES, 64]` cut over the devices by rows, `w [64, 64]` whole on each: gives `x w` and the
/// sum of its elements.
fn product(devices: usize) -> Program {
    let code = format!(
        r#"module @product {{
  sdy.mesh @mesh = <["data"={devices}]>
  func.func public @main(%x: tensor<{devices}x64xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"data"}}, {{}}]>}},
                         %w: tensor<64x64xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{}}, {{}}]>}})
      -> (tensor<{devices}x64xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"data"}}, {{}}]>}},
          tensor<f32> {{sdy.sharding = #sdy.sharding<@mesh, []>}}) {{
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<{devices}x64xf32>, tensor<64x64xf32>) -> tensor<{devices}x64xf32>
    %sum = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0, 1]
      : (tensor<{devices}x64xf32>, tensor<f32>) -> tensor<f32>
    return %y, %sum : tensor<{devices}x64xf32>, tensor<f32>
  }}
}}"#
    );
    let mut product = program(
        &code,
        &[f32s(&[1, 64]), f32s(&[64, 64])],
        &[f32s(&[1, 64]), f32s(&[])],
        &[],
    );
    product.partitions = devices;
    product
}

struct Work {
    product: PjrtExecutable,
    rows: Vec<PjrtBuffer>,
    weights: Vec<PjrtBuffer>,
}

impl Work {
    fn new(client: &Pjrt, devices: usize) -> Work {
        Self::of_rows(client, devices, 1.0)
    }

    /// With this value in the rows.
    fn of_rows(client: &Pjrt, devices: usize, value: f32) -> Work {
        let product = if devices == 1 {
            Self::alone()
        } else {
            product(devices)
        };
        let upload_all = |value: f32, dims: [usize; 2]| {
            let values = vec![value; dims[0] * dims[1]];
            (0..devices as u32)
                .map(|device| upload(client, &values, &dims, device))
                .collect()
        };
        Work {
            product: compile(client, &product),
            rows: upload_all(value, [1, 64]),
            weights: upload_all(0.5, [64, 64]),
        }
    }

    fn alone() -> Program {
        let mut program = product(1);
        let code = std::str::from_utf8(program.code.bytes())
            .unwrap()
            .to_owned();
        let code: String = code
            .split(" {sdy.sharding")
            .enumerate()
            .map(|(index, part)| {
                if index == 0 {
                    part
                } else {
                    part.split_once("]>}").unwrap().1
                }
            })
            .collect();
        program.code = code
            .replace("  sdy.mesh @mesh = <[\"data\"=1]>\n", "")
            .into_bytes()
            .into();
        program
    }

    fn launch(&self) -> Vec<Vec<PjrtBuffer>> {
        let args = self
            .rows
            .iter()
            .zip(&self.weights)
            .map(|(x, w)| vec![Arg::Borrow(x), Arg::Borrow(w)])
            .collect();
        self.product.launch(Launch { args }).unwrap().outputs
    }
}

/// Launches `rounds` times from a thread, and once from each of the `callbacks` of each launch.
/// Gives the sums that the launches of the callbacks computed.
fn launches_from_callbacks(
    devices: usize,
    rounds: usize,
    callbacks: usize,
) -> Receiver<Vec<Vec<PjrtBuffer>>> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let client = cpu(devices as i64);
        // A failure is an error then, not a test that hangs.
        client.set_wait_limit(DEADLINE);
        let work = Arc::new(Work::new(&client, devices));
        for _ in 0..rounds {
            let outputs = work.launch();
            for callback in 0..callbacks {
                let (work, send) = (work.clone(), send.clone());
                let event = outputs[callback % devices][1].ready().unwrap();
                event.on_ready(Box::new(move |result| {
                    result.unwrap();
                    _ = send.send(work.launch());
                }));
            }
        }
    });
    receive
}

fn check(devices: usize, callbacks: usize) {
    const ROUNDS: usize = 15;
    let receive = launches_from_callbacks(devices, ROUNDS, callbacks);
    for done in 0..ROUNDS * callbacks {
        match receive.recv_timeout(DEADLINE) {
            Ok(outputs) => {
                let last = outputs.last().unwrap();
                assert_eq!(read::<f32>(&last[1]), [64.0 * 32.0 * devices as f32]);
            }
            Err(RecvTimeoutError::Timeout) => {
                panic!("{done} of {} launches done, then none", ROUNDS * callbacks)
            }
            Err(RecvTimeoutError::Disconnected) => panic!("a callback did not launch"),
        }
    }
}

/// Two threads launch on two devices of a plugin that calls itself `platform`. Gives whether a
/// launch began while another was being queued.
fn launches_overlap(platform: &str) -> bool {
    let directory = directory();
    let seen = directory.path().join("overlap");
    let code = format!(
        r#"
        struct name {{ size_t size; void* extension; void* client; const char* name; size_t name_size; }};
        static void* name(struct name* args) {{
            args->name = "{platform}";
            args->name_size = strlen(args->name);
            return 0;
        }}
        static int inside;
        static void* execute(void* args) {{
            if (__sync_add_and_fetch(&inside, 1) > 1) fclose(fopen("{}", "w"));
            usleep(3000);
            void* error = REAL(PJRT_LoadedExecutable_Execute)(args);
            __sync_sub_and_fetch(&inside, 1);
            return error;
        }}
        static void replace(void** table) {{
            table[PJRT_Client_PlatformName] = name;
            table[PJRT_LoadedExecutable_Execute] = execute;
        }}
        "#,
        seen.display()
    );
    let replaced = ["PJRT_Client_PlatformName", "PJRT_LoadedExecutable_Execute"];
    let plugin = shim(directory.path(), platform, &replaced, &code);
    let client = plugin
        .client(vec![("cpu_device_count".into(), 2i64.into())])
        .unwrap();
    assert_eq!(&*client.platform().name, platform);
    client.set_wait_limit(DEADLINE);
    let work = Work::new(&client, 2);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let outputs = work.launch();
                    assert_eq!(read::<f32>(&outputs[1][1]), [64.0 * 32.0 * 2.0]);
                }
            });
        }
    });
    seen.exists()
}

#[test]
fn threads_take_turns_on_the_cpu() {
    assert!(!launches_overlap("cpu"));
}

#[test]
fn threads_take_turns_on_every_platform() {
    assert!(!launches_overlap("shim"));
}

/// XLA's CPU runtime finds the participants of a collective by the launch's id, in a table of the
/// process: ids that two clients share mix their values.
#[test]
fn clients_of_one_process_share_no_launch_ids() {
    const DEVICES: usize = 4;
    let together = Barrier::new(3);
    thread::scope(|scope| {
        for value in [1.0, 2.0, 3.0] {
            let together = &together;
            scope.spawn(move || {
                let client = cpu(DEVICES as i64);
                client.set_wait_limit(DEADLINE);
                let work = Work::of_rows(&client, DEVICES, value);
                for launch in 0..200 {
                    together.wait();
                    let outputs = work.launch();
                    let sums: Vec<f32> = outputs.iter().flat_map(|row| read(&row[1])).collect();
                    let expected = 64.0 * 32.0 * value * DEVICES as f32;
                    assert_eq!(sums, [expected; DEVICES], "launch {launch}");
                }
            });
        }
    });
}

#[test]
fn one_callback_launches_on_eight_devices() {
    check(8, 1);
}

#[test]
fn four_callbacks_launch_on_eight_devices() {
    check(8, 4);
}

#[test]
fn eight_callbacks_launch_on_eight_devices() {
    check(8, 8);
}

#[test]
fn sixteen_callbacks_launch_on_eight_devices() {
    check(8, 16);
}

#[test]
fn sixteen_callbacks_launch_on_two_devices() {
    check(2, 16);
}

#[test]
fn callbacks_launch_on_a_client_of_one_device() {
    check(1, 64);
}
