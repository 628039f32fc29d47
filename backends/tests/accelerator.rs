//! Opening accelerators. The CPU plugin is installed in the user's cache if it is not there.

use std::{fs, path::PathBuf};

use halite_backends::{Accelerator, Devices, Driver, OpenOptions, Search, Source, cuda, tpu};
use halite_core::{Array, Error, ErrorKind, HostArray, Mesh, PartitionSpec, Sharding};
use halite_fetch::{Bar, Cache, Quiet};

#[test]
fn names_round_trip() {
    let cases = [
        ("auto", Accelerator::auto()),
        ("cpu", Accelerator::cpu()),
        ("cpu:8", Accelerator::Cpu { devices: Some(8) }),
        (
            "cuda",
            Accelerator::Cuda {
                devices: Devices::All,
            },
        ),
        (
            "cuda:[0,3]",
            Accelerator::Cuda {
                devices: Devices::Indices(vec![0, 3]),
            },
        ),
        (
            "tpu:2",
            Accelerator::Tpu {
                chips: Devices::Count(2),
            },
        ),
        (
            "plugin:/opt/a:b.so",
            Accelerator::Plugin("/opt/a:b.so".into()),
        ),
    ];
    for (text, accelerator) in cases {
        assert_eq!(text.parse::<Accelerator>().unwrap(), accelerator);
        assert_eq!(accelerator.to_string(), text);
    }
}

#[test]
fn unknown_names_list_the_known_ones() {
    let cases = [
        ("gpu", "expected one of auto, cpu, cpu:8"),
        ("", "expected one of auto, cpu, cpu:8"),
        ("CPU", "expected one of auto, cpu, cpu:8"),
        ("auto:2", "expected one of auto, cpu, cpu:8"),
        ("cpu:", "`` is not a number of devices"),
        ("cpu:0", "`0` is not a number of devices from 1 to 1024"),
        ("cpu:-1", "`-1` is not a number"),
        ("cpu:99999999999", "is not a number of devices"),
        (
            "cuda:0,x",
            "expected cuda, cuda:2 (a number, from 1), or cuda:[5]",
        ),
        (
            "cuda:",
            "expected cuda, cuda:2 (a number, from 1), or cuda:[5]",
        ),
        (
            "cuda:0",
            "expected cuda, cuda:2 (a number, from 1), or cuda:[5]",
        ),
        ("cpu:[0]", "virtual devices, which have no indices"),
        ("cuda:1,2,1", "device 1 is named twice"),
        ("plugin:", "expected plugin:/path/to/plugin.so"),
        ("plugin", "expected plugin:/path/to/plugin.so"),
    ];
    for (text, words) in cases {
        let error = text.parse::<Accelerator>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(
            error.to_string().contains(words) && error.to_string().contains(text),
            "{text}: {error}"
        );
    }
}

#[test]
fn cpu_opens_with_the_requested_number_of_devices() {
    for (accelerator, devices) in [
        (Accelerator::auto(), 1),
        (Accelerator::cpu(), 1),
        (Accelerator::Cpu { devices: Some(8) }, 8),
    ] {
        let opened = accelerator
            .open_with(&OpenOptions::default(), &mut Bar::default())
            .unwrap();
        assert_eq!(
            opened.client.local_devices().len(),
            devices,
            "{accelerator}"
        );
        let Driver::Plugin { plugin, located } = opened.driver else {
            panic!("{accelerator} is a plugin")
        };
        assert_eq!(plugin.path(), located.path.canonicalize().unwrap());
        let mesh = std::sync::Arc::new(
            Mesh::new([("data", devices)], opened.client.local_devices()).unwrap(),
        );
        let host = HostArray::from_slice(&(0..32).collect::<Vec<i32>>(), [16, 2]).unwrap();
        let array = Array::upload(
            &opened.client,
            &host,
            &Sharding::new(&mesh, PartitionSpec::first("data")).unwrap(),
        )
        .unwrap();
        assert_eq!(array.shards().len(), devices);
        assert_eq!(array.read().unwrap(), host);
    }
    assert!(Accelerator::cpu().open().is_ok());
}

/// The probes' own tests check their messages; this one checks that a machine without the hardware
/// gets an error at once.
#[test]
fn absent_accelerator_is_refused_before_any_download() {
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("cache");
    let mut skipped = 0;
    for (name, here) in [
        ("cuda", cuda::probe().is_ok()),
        ("cuda:1", cuda::probe().is_ok()),
        ("tpu", tpu::probe().is_ok()),
    ] {
        if here {
            skipped += 1;
            continue;
        }
        let options = OpenOptions {
            cache: Some(cache.clone()),
            ..OpenOptions::default()
        };
        let error = name
            .parse::<Accelerator>()
            .unwrap()
            .open_with(&options, &mut Quiet)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(
            error
                .to_string()
                .starts_with(&format!("accelerator {name}: no ")),
            "{error}"
        );
    }
    println!("skipped: {skipped} accelerators that are here");
    assert!(!cache.exists());
}

/// Uploads to and reads from the GPUs or chips of this machine, if there are any.
#[test]
fn present_accelerators_return_uploaded_data() {
    for (name, here) in [
        ("cuda", cuda::probe().map(drop)),
        ("tpu", tpu::probe().map(drop)),
    ] {
        if let Err(why) = here {
            println!("skipped: {name}: {why}");
            continue;
        }
        let opened = name
            .parse::<Accelerator>()
            .unwrap()
            .open_with(&OpenOptions::default(), &mut Bar::default())
            .unwrap();
        let device = Sharding::single(opened.client.local_devices()[0]);
        let host = HostArray::from_slice(&[1.0f32, -2.0, 3.5], [3]).unwrap();
        assert_eq!(
            Array::upload(&opened.client, &host, &device)
                .unwrap()
                .read()
                .unwrap(),
            host
        );
    }
}

#[test]
fn offline_error_lists_every_searched_place() {
    if std::env::var_os("HALITE_CPU_PLUGIN").is_some() {
        println!("skipped: HALITE_CPU_PLUGIN is set");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let options = OpenOptions {
        cache: Some(directory.path().join("cache")),
        offline: true,
        ..OpenOptions::default()
    };
    let error = Accelerator::cpu()
        .open_with(&options, &mut Quiet)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let words = [
        "accelerator cpu: no working plugin",
        "not installed in",
        "halite plugins install cpu",
    ];
    assert!(
        words.iter().all(|word| error.to_string().contains(word)),
        "{error}"
    );
    assert!(!directory.path().join("cache").exists());
}

#[test]
fn auto_is_embedded_where_no_plugin_can_be_had() {
    if std::env::var_os("HALITE_CPU_PLUGIN").is_some() {
        println!("skipped: HALITE_CPU_PLUGIN is set");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let options = OpenOptions {
        cache: Some(directory.path().join("cache")),
        offline: true,
        ..OpenOptions::default()
    };
    let opened = Accelerator::auto().open_with(&options, &mut Quiet).unwrap();
    assert!(matches!(opened.driver, Driver::Embedded), "{opened:?}");
    let starts = ["tpu: no TPU devices", "cuda: no NVIDIA driver", "cpu: no"];
    for (reason, start) in opened.refused.iter().zip(starts) {
        assert!(reason.starts_with(start), "{reason}");
    }
}

#[test]
fn unusable_plugin_file_is_an_error() {
    let cache = Cache::open(None).unwrap();
    let library = Search::cpu(&cache)
        .ensure(&mut Bar::default())
        .unwrap()
        .path;
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| -> PathBuf {
        fs::write(directory.path().join(name), bytes).unwrap();
        directory.path().join(name)
    };
    let mut start = vec![0; 1 << 20];
    std::io::Read::read_exact(&mut fs::File::open(&library).unwrap(), &mut start).unwrap();
    let mut elsewhere = start.clone();
    elsewhere[18] = 183; // EM_AARCH64
    let cases = [
        (directory.path().join("missing.so"), "cannot be read"),
        (directory.path().to_path_buf(), "not a file"),
        (file("empty.so", b""), "not a shared library"),
        (file("text.so", b"hello"), "not a shared library"),
        (file("cut.so", &start), "1048576"),
        (file("elsewhere.so", &elsewhere), "this machine is"),
    ];
    for (path, words) in cases {
        let refused = |error: Error| {
            assert!(
                error.to_string().contains(words)
                    && error.to_string().contains(path.to_str().unwrap()),
                "{error}"
            );
        };
        refused(Accelerator::Plugin(path.clone()).open().unwrap_err());
    }
    let by_path = Accelerator::Plugin(library)
        .open_with(&OpenOptions::default(), &mut Quiet)
        .unwrap();
    let Driver::Plugin { located, .. } = by_path.driver else {
        panic!("a path is a plugin's")
    };
    assert_eq!(located.source, Source::Given);
}
