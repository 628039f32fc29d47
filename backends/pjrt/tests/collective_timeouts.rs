//! Collectives whose devices arrive far apart: XLA's limit of 40 seconds, which ends the process,
//! is lifted.

use std::{
    fs,
    process::{Command, Output},
    sync::mpsc,
    time::{Duration, Instant},
};

use halite_core::{Arg, Buffer, DType, ErrorKind, Event, Executable, Launch, Program};
use halite_pjrt::{Pjrt, PjrtBuffer, PjrtExecutable};

use crate::common::*;

/// Two replicas that repeat a product of matrices as often as their input says, then add up the
/// results, if they are to meet.
fn uneven(meet: bool) -> Program {
    let code = r#"module @uneven {
  func.func public @main(%n: tensor<i32>) -> tensor<f32> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %half = stablehlo.constant dense<0.001> : tensor<384x384xf32>
    %i, %last = stablehlo.while(%at = %zero, %x = %half) : tensor<i32>, tensor<384x384xf32>
      cond {
        %more = stablehlo.compare LT, %at, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %more : tensor<i1>
      } do {
        %next = stablehlo.add %at, %one : tensor<i32>
        %y = stablehlo.dot_general %x, %half, contracting_dims = [1] x [0]
          : (tensor<384x384xf32>, tensor<384x384xf32>) -> tensor<384x384xf32>
        stablehlo.return %next, %y : tensor<i32>, tensor<384x384xf32>
      }
    %rounds = stablehlo.convert %i : (tensor<i32>) -> tensor<f32>
    %corner = stablehlo.slice %last [0:1, 0:1] : (tensor<384x384xf32>) -> tensor<1x1xf32>
    %scalar = stablehlo.reshape %corner : (tensor<1x1xf32>) -> tensor<f32>
    %none = stablehlo.constant dense<0.0> : tensor<f32>
    %nothing = stablehlo.multiply %scalar, %none : tensor<f32>
    %mine = stablehlo.add %rounds, %nothing : tensor<f32>
    %sum = "stablehlo.all_reduce"(%mine) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %c : tensor<f32>
    }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<f32>) -> tensor<f32>
    return %sum : tensor<f32>
  }
}"#;
    let alone = code.replace(
        "return %sum : tensor<f32>\n  }\n}",
        "return %mine : tensor<f32>\n  }\n}",
    );
    let code = if meet { code } else { &alone };
    let mut program = program(code, &[ty(DType::S32, &[])], &[f32s(&[])], &[]);
    program.replicas = 2;
    program
}

fn launch(uneven: &PjrtExecutable, rounds: &[PjrtBuffer; 2]) -> Vec<Vec<PjrtBuffer>> {
    uneven
        .launch(Launch {
            args: rounds.iter().map(|n| vec![Arg::Borrow(n)]).collect(),
        })
        .unwrap()
        .outputs
}

/// `xla_cpu_collective_call_terminate_timeout_seconds` in a compiled program's configuration, as
/// XLA parsed it.
fn limit_in(program: &[u8]) -> Option<u64> {
    // Field 417 of `DebugOptions`, a varint.
    let at = program.windows(2).position(|two| two == [0x88, 0x1a])? + 2;
    let length = program[at..].iter().position(|byte| byte & 0x80 == 0)? + 1;
    Some(
        program[at..at + length]
            .iter()
            .rev()
            .fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f)),
    )
}

/// Prints the flags that XLA read, and runs two devices whose work differs by the seconds in
/// `SKEW`.
#[test]
fn child() {
    let Ok(skew) = std::env::var("SKEW") else {
        return;
    };
    let skew: f64 = skew.parse().unwrap();
    let client = cpu(2);
    println!(
        "variable after the client: {:?}",
        std::env::var("XLA_FLAGS").ok()
    );
    let uneven = compile(&client, &uneven(true));
    let (_, optimized) = uneven.program().optimized().unwrap();
    println!("limit: {:?}", limit_in(&optimized));
    let rounds = |n: [i32; 2]| {
        [
            upload(&client, &[n[0]], &[], 0),
            upload(&client, &[n[1]], &[], 1),
        ]
    };
    let count = if skew > 0.0 {
        rounds_for(skew, &client, &uneven)
    } else {
        8
    };
    let started = Instant::now();
    let sum = read::<f32>(&launch(&uneven, &rounds([0, count]))[0][0]);
    println!("sum is right: {}", sum == [count as f32]);
    eprintln!("{:?}", started.elapsed());
    println!("IEEE: {}", ieee(&client));
}

/// Number of rounds that take this many seconds on one device of this machine.
fn rounds_for(seconds: f64, client: &Pjrt, uneven: &PjrtExecutable) -> i32 {
    let mut count = 8;
    loop {
        let rounds = [
            upload(client, &[0], &[], 0),
            upload(client, &[count], &[], 1),
        ];
        let started = Instant::now();
        read::<f32>(&launch(uneven, &rounds)[1][0]);
        let took = started.elapsed().as_secs_f64();
        if took > 0.3 {
            return (f64::from(count) * seconds / took) as i32;
        }
        count *= 2;
    }
}

/// Returns whether `(1 + x) - x` is computed as written, which fast math does not.
fn ieee(client: &halite_pjrt::Pjrt) -> bool {
    let code = "func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
        %one = stablehlo.constant dense<1.0> : tensor<4xf32>
        %more = stablehlo.add %one, %x : tensor<4xf32>
        %less = stablehlo.subtract %more, %x : tensor<4xf32>
        return %less : tensor<4xf32> }";
    let program = compile(client, &program(code, &[f32s(&[4])], &[f32s(&[4])], &[]));
    let x = upload(client, &[1e10f32; 4], &[4], 0);
    read::<f32>(&run(&program, vec![Arg::Borrow(&x)]).unwrap()[0]) == [0.0; 4]
}

fn run_child(skew: &str, flags: Option<&str>) -> Output {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "collective_timeouts::child", "--nocapture"])
        .env("SKEW", skew)
        .env_remove("XLA_FLAGS");
    child
        .envs(flags.map(|flags| ("XLA_FLAGS", flags)))
        .output()
        .unwrap()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

const A_YEAR: &str = "limit: Some(31536000)";

#[test]
fn collectives_may_wait_a_year_by_default() {
    let text = printed(&run_child("0", None));
    assert!(text.contains(A_YEAR), "{text}");
    assert!(text.contains("sum is right: true"), "{text}");
    assert!(text.contains("variable after the client: None"), "{text}");
}

#[test]
fn flags_of_the_user_stay_beside_the_lifted_limit() {
    let text = printed(&run_child("0", Some("--xla_cpu_enable_fast_math=true")));
    assert!(
        text.contains(A_YEAR) && text.contains("IEEE: false"),
        "{text}"
    );
    assert!(
        text.contains(r#"variable after the client: Some("--xla_cpu_enable_fast_math=true")"#),
        "{text}"
    );
}

#[test]
fn users_flag_file_is_read() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, "\n--xla_cpu_enable_fast_math=true\n").unwrap();
    let path = file.path().to_str().unwrap();
    let text = printed(&run_child("0", Some(path)));
    assert!(
        text.contains(A_YEAR) && text.contains("IEEE: false"),
        "{text}"
    );
    assert!(
        text.contains(&format!("variable after the client: Some({path:?})")),
        "{text}"
    );
}

#[test]
fn users_limit_stays() {
    let flags = "--xla_cpu_collective_call_terminate_timeout_seconds=2 \
     --xla_cpu_collective_call_warn_stuck_timeout_seconds=1";
    // It does not take that long: the process ends after two or three seconds.
    let output = run_child("60", Some(flags));
    let text = printed(&output);
    // XLA ends the process then: this is also what shows that the limit is in force.
    assert!(
        !output.status.success() && text.contains("limit: Some(2)"),
        "{text}"
    );
    assert!(text.contains("Termination timeout"), "{text}");
}

/// The error of a wait that is shorter than the work of device 1, and whether the client was gone
/// before the work was done.
fn late_wait(meet: bool) -> (halite_core::Error, bool) {
    let client = cpu(2);
    let uneven = compile(&client, &uneven(meet));
    let count = rounds_for(2.0, &client, &uneven);
    let rounds = [
        upload(&client, &[0], &[], 0),
        upload(&client, &[count], &[], 1),
    ];
    let outputs = launch(&uneven, &rounds);
    if !meet {
        // A busy machine may take longer than the limit for the device without work.
        outputs[0][0].ready().unwrap().wait().unwrap();
    }
    client.set_wait_limit(Duration::from_millis(50));
    let event = outputs[1][0].ready().unwrap();
    let (send, done) = mpsc::channel();
    event.notify_when_ready(Box::new(move |_| _ = send.send(())));
    let error = event.wait().unwrap_err();
    assert!(
        event.unfinished().starts_with("`test`, launched "),
        "{}",
        event.unfinished()
    );
    drop((event, outputs, rounds, uneven, client));
    let gone_before = done.try_recv().is_err();
    if gone_before {
        done.recv_timeout(Duration::from_secs(120))
            .expect("the work is done at last");
    }
    (error, gone_before)
}

#[test]
fn late_wait_names_launch_with_its_devices() {
    let (error, _) = late_wait(false);
    assert_eq!(
        (error.kind(), error.op(), error.platform()),
        (ErrorKind::DeadlineExceeded, "compute", Some("cpu"))
    );
    let text = error.to_string();
    assert!(
        text.contains("nothing arrived within 50ms; `test`, launched "),
        "{text}"
    );
    assert!(
        text.contains(" ago, is not done on devices [1] of 2"),
        "{text}"
    );
    // In a collective each device waits for the other.
    let text = late_wait(true).0.to_string();
    assert!(
        text.contains(" ago, is not done on devices [0, 1] of 2"),
        "{text}"
    );
}

#[test]
fn client_with_late_work_is_dropped_at_once() {
    assert!(late_wait(false).1);
}

#[test]
fn launch_without_a_free_place_fails_with_the_reason() {
    let client = cpu(2);
    let uneven = compile(&client, &uneven(true));
    let count = rounds_for(3.0, &client, &uneven);
    let rounds = [
        upload(&client, &[0], &[], 0),
        upload(&client, &[count], &[], 1),
    ];
    client.set_wait_limit(Duration::from_millis(50));
    // Eight are in flight at once; the rest are short.
    let short = [upload(&client, &[0], &[], 0), upload(&client, &[0], &[], 1)];
    let mut outputs = vec![launch(&uneven, &rounds)];
    outputs.extend((0..7).map(|_| launch(&uneven, &short)));
    let args = short.iter().map(|n| vec![Arg::Borrow(n)]).collect();
    let error = uneven.launch(Launch { args }).unwrap_err();
    assert_eq!(
        (error.kind(), error.op()),
        (ErrorKind::DeadlineExceeded, "launch")
    );
    let text = error.to_string();
    assert!(
        text.contains("`test` waits for a place") && text.contains("and 7 launches behind it"),
        "{text}"
    );
    client.set_wait_limit(Duration::from_secs(120));
    assert_eq!(read::<f32>(&outputs[7][0][0]), [0.0]);
}
