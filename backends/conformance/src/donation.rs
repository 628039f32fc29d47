//! Donation: arguments whose memory a program may reuse.

use std::sync::Arc;

use halite_core::{AlignedBytes, Arg, ErrorKind, HostBytes};

use super::{Case, Subject, support::*};

pub(super) const CASES: &[Case] = &[
    case!("donation", state_donated_every_step_is_correct).except(HOLDS_ZEROS),
    case!("donation", borrowed_argument_of_donating_program_stays).except(HOLDS_ZEROS),
    case!("donation", one_buffer_can_be_two_arguments).except(HOLDS_ZEROS),
    case!("donation", donated_shared_host_memory_is_not_written).except(HOLDS_ZEROS),
    case!("donation", fetch_before_donation_returns_old_values).except(HOLDS_ZEROS),
    case!("donation", donating_a_read_only_argument_is_rejected)
        .except(&[("null", "it has no memory to reuse, so it does not check")]),
    case!("donation", rejected_launch_keeps_borrowed_arguments),
];

fn state_donated_every_step_is_correct(subject: &Subject) -> Checked {
    let client = subject.client();
    for device in client.local_devices().into_iter().take(2) {
        let step = compile_on(client, &add(1000, true), &[device])?;
        let one = upload(client, &[1.0f32; 1000], &[1000], device)?;
        let mut state = upload(client, &[0.0f32; 1000], &[1000], device)?;
        for _ in 0..200 {
            state = launch_for_one(&step, vec![Arg::Donate(state), Arg::Borrow(&one)])?;
        }
        same(
            format!("1 added 200 times on device {}", device.0),
            read::<f32>(&state)?,
            vec![200.0; 1000],
        )?;
        same("what was added", read::<f32>(&one)?, vec![1.0; 1000])?;
    }
    Ok(())
}

fn borrowed_argument_of_donating_program_stays(subject: &Subject) -> Checked {
    let client = subject.client();
    let step = compile(client, &add(1000, true))?;
    let one = upload(client, &[1.0f32; 1000], &[1000], first(client))?;
    let state = upload(client, &[5.0f32; 1000], &[1000], first(client))?;
    let sums: Vec<_> = (0..3)
        .map(|_| launch_for_one(&step, vec![Arg::Borrow(&state), Arg::Borrow(&one)]))
        .collect::<Result<_, _>>()?;
    for sum in &sums {
        same("the sum", read::<f32>(sum)?, vec![6.0; 1000])?;
    }
    same(
        "the borrowed argument",
        read::<f32>(&state)?,
        vec![5.0; 1000],
    )?;
    let sum = launch_for_one(&step, vec![Arg::Donate(state), Arg::Borrow(&one)])?;
    same(
        "the sum when it is donated at last",
        read::<f32>(&sum)?,
        vec![6.0; 1000],
    )
}

fn one_buffer_can_be_two_arguments(subject: &Subject) -> Checked {
    let client = subject.client();
    // That one buffer is donated and borrowed in one launch does not compile: donation moves it.
    for donated in [false, true] {
        let add = compile(client, &add(100, donated))?;
        let x = upload(client, &[3.0f32; 100], &[100], first(client))?;
        let sum = launch_for_one(&add, vec![Arg::Borrow(&x), Arg::Borrow(&x)])?;
        same("x + x", read::<f32>(&sum)?, vec![6.0; 100])?;
        same("x afterwards", read::<f32>(&x)?, vec![3.0; 100])?;
    }
    Ok(())
}

fn donated_shared_host_memory_is_not_written(subject: &Subject) -> Checked {
    let client = subject.client();
    let step = compile(client, &add(4096, true))?;
    let one = upload(client, &[1.0f32; 4096], &[4096], first(client))?;
    let values: Vec<u8> = 2.0f32.to_ne_bytes().repeat(4096);
    let owner = Arc::new(AlignedBytes::copy_of(&values));
    let state = client.upload(
        HostBytes::Shared(owner.clone()),
        &f32s(&[4096]),
        first(client).into(),
    )?;
    let sum = launch_for_one(&step, vec![Arg::Donate(state), Arg::Borrow(&one)])?;
    same("the sum", read::<f32>(&sum)?, vec![3.0; 4096])?;
    same_bytes(
        "the host memory that was uploaded by sharing it",
        (*owner).as_ref(),
        &values,
    )
}

fn fetch_before_donation_returns_old_values(subject: &Subject) -> Checked {
    let client = subject.client();
    let count = 1 << 20;
    let step = compile(client, &add(count, true))?;
    let one = upload(client, &vec![1.0f32; count], &[count], first(client))?;
    let mut state = upload(client, &vec![0.0f32; count], &[count], first(client))?;
    let mut fetches = Vec::new();
    for _ in 0..8 {
        fetches.push(state.first().fetch());
        state = launch_for_one(&step, vec![Arg::Donate(state), Arg::Borrow(&one)])?;
    }
    for (step, fetch) in fetches.into_iter().enumerate() {
        let want = (step as f32).to_ne_bytes().repeat(count);
        same_bytes(
            format!("fetched before step {step} reused it"),
            &fetch.wait_for(PATIENCE)?,
            &want,
        )?;
    }
    Ok(())
}

fn donating_a_read_only_argument_is_rejected(subject: &Subject) -> Checked {
    let client = subject.client();
    let step = compile(client, &add(4, true))?;
    let values = |value: f32| upload(client, &[value; 4], &[4], first(client));
    let wrong = launch_for_one(
        &step,
        vec![Arg::Donate(values(1.0)?), Arg::Donate(values(2.0)?)],
    );
    expect_error(
        "the donation of argument 1, which is not donatable",
        wrong,
        ErrorKind::InvalidArgument,
        &["donate"],
    )?;
    let right = launch_for_one(
        &step,
        vec![Arg::Donate(values(1.0)?), Arg::Borrow(&values(2.0)?)],
    )?;
    same(
        "a valid launch afterwards",
        read::<f32>(&right)?,
        vec![3.0; 4],
    )
}

fn rejected_launch_keeps_borrowed_arguments(subject: &Subject) -> Checked {
    let client = subject.client();
    let step = compile(client, &add(4, true))?;
    let lost = upload(client, &[1.0f32; 4], &[4], first(client))?;
    let kept = upload(client, &[0.0f32; 4], &[4], first(client))?;
    let args = vec![Arg::Donate(lost), Arg::Borrow(&kept), Arg::Borrow(&kept)];
    expect_error(
        "a launch with three arguments for two",
        step.launch(args),
        ErrorKind::InvalidArgument,
        &[],
    )?;
    same("the borrowed argument", read::<f32>(&kept)?, vec![0.0; 4])?;
    let state = upload(client, &[0.0f32; 4], &[4], first(client))?;
    let sum = launch_for_one(&step, vec![Arg::Donate(state), Arg::Borrow(&kept)])?;
    same(
        "a valid launch afterwards",
        read::<f32>(&sum)?,
        vec![0.0; 4],
    )
}
