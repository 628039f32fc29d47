//! Events of plugins that violate the API: each wait ends, and no callback runs twice.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use halite_core::{Arg, Backend, Buffer, DeviceId, ErrorKind, Event, HostArray, HostBytes};
use halite_pjrt::Pjrt;

use crate::common::*;

const MINUTE: Duration = Duration::from_secs(60);

/// A client of the CPU plugin whose `PJRT_Event_OnReady` is `on_ready`, a C function.
fn with_on_ready(name: &str, on_ready: &str) -> Pjrt {
    let directory = directory();
    let code = format!(
        r#"
        typedef void (*callback)(void* error, void* argument);
        struct on_ready {{ size_t size; void* extension; void* event; callback callback; void* argument; }};
        struct is_ready {{ size_t size; void* extension; void* event; _Bool is_ready; }};
        static callback halites;
        static void twice(void* error, void* argument) {{ halites(error, argument); halites(error, argument); }}
        /* An error of the real plugin: the size is wrong. */
        static void* refuse(void) {{ struct on_ready wrong = {{1}}; return REAL(PJRT_Event_OnReady)(&wrong); }}
        static void* never(struct is_ready* args) {{ args->is_ready = 0; return 0; }}
        static void* on_ready(struct on_ready* args) {{ {on_ready} }}
        static void replace(void** table) {{
            table[PJRT_Event_OnReady] = on_ready;
            if (!strcmp("{name}", "never")) table[PJRT_Event_IsReady] = never;
        }}
        "#
    );
    let plugin = shim(
        directory.path(),
        name,
        &["PJRT_Event_OnReady", "PJRT_Event_IsReady"],
        &code,
    );
    plugin
        .client(vec![("cpu_device_count".into(), 1i64.into())])
        .unwrap()
}

/// Adds two vectors that were uploaded in shared memory, and fetches the sum.
fn sum(client: &Pjrt) -> Vec<f32> {
    let sum = compile(client, &add(1024, false));
    let host = Arc::new(HostArray::from_slice(&[1.0f32; 1024], [1024]).unwrap());
    let shared = client
        .upload(
            HostBytes::Shared(host.clone()),
            host.ty(),
            DeviceId(0).into(),
        )
        .unwrap();
    read::<f32>(&run(&sum, vec![Arg::Borrow(&shared), Arg::Borrow(&shared)]).unwrap()[0])
}

#[test]
fn callback_called_twice_runs_once() {
    let client = with_on_ready(
        "twice",
        "halites = args->callback; args->callback = twice; return REAL(PJRT_Event_OnReady)(args);",
    );
    assert_eq!(sum(&client), [2.0; 1024]);
    let (send, receive) = mpsc::channel();
    let there = upload(&client, &[1.0f32], &[1], 0);
    there
        .ready()
        .unwrap()
        .on_ready(Box::new(move |_| send.send(()).unwrap()));
    assert_eq!(receive.iter().count(), 1);
}

#[test]
fn plugin_without_callbacks_is_polled() {
    let client = with_on_ready("refuses", "return refuse();");
    assert_eq!(sum(&client), [2.0; 1024]);
    let (send, receive) = mpsc::channel();
    let there = upload(&client, &[1.0f32], &[1], 0);
    there
        .ready()
        .unwrap()
        .on_ready(Box::new(move |result| send.send(result).unwrap()));
    let error = receive.recv_timeout(MINUTE).unwrap().unwrap_err();
    assert!(
        error.message().contains("Unexpected PJRT_Event_OnReady"),
        "{error}"
    );
    // The wait for a copy to the host polls its event.
    let (send, receive) = mpsc::channel::<usize>();
    there.fetch(Box::new(move |bytes| {
        send.send(bytes.unwrap().len()).unwrap()
    }));
    assert_eq!(receive.recv_timeout(MINUTE), Ok(4));
}

#[test]
fn callback_counts_although_an_error_follows() {
    let client = with_on_ready(
        "fires and refuses",
        "REAL(PJRT_Event_OnReady)(args); usleep(50000); return refuse();",
    );
    assert_eq!(sum(&client), [2.0; 1024]);
    let (send, receive) = mpsc::channel();
    let there = upload(&client, &[1.0f32], &[1], 0);
    there
        .ready()
        .unwrap()
        .on_ready(Box::new(move |result| send.send(result).unwrap()));
    receive.recv_timeout(MINUTE).unwrap().unwrap();
}

#[test]
fn wait_for_an_event_that_never_completes_ends() {
    let client = with_on_ready("never", "return 0;");
    client.set_wait_limit(Duration::from_millis(20));
    let there = upload(&client, &[1.0f32], &[1], 0);
    let error = there.ready().unwrap().wait().unwrap_err();
    assert_eq!(
        (error.kind(), error.op()),
        (ErrorKind::DeadlineExceeded, "compute")
    );
    assert!(
        error.message().starts_with("nothing arrived within 20ms"),
        "{error}"
    );
    let error = there.read(&mut [0; 4]).unwrap_err();
    assert_eq!(
        (error.kind(), error.op()),
        (ErrorKind::DeadlineExceeded, "read")
    );
}
