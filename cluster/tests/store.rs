//! The key-value store of a job, between real processes.

use std::{thread, time::Duration};

use halite_cluster::spawn;
use halite_core::ErrorKind;

const SOON: Duration = Duration::from_secs(60);

#[test]
fn values_reach_all_processes() {
    spawn(3, |job| {
        let (group, rank) = (job.group(), job.rank());
        let store = group.store("devices")?;
        store.put(&format!("local/{rank}"), &[rank as u8; 3])?;
        // Large, empty, and not there.
        if rank == 1 {
            store.put("large", &vec![7; 3 << 20])?;
            store.put("empty", &[])?;
        }
        for other in 0..3 {
            assert_eq!(
                store.get(&format!("local/{other}"), SOON)?,
                [other as u8; 3]
            );
        }
        assert_eq!(store.get("large", SOON)?, vec![7; 3 << 20]);
        assert!(store.get("empty", SOON)?.is_empty());
        assert_eq!(store.try_get("empty")?, Some(Vec::new()));
        assert_eq!(store.try_get("absent")?, None);
        // Another store has keys of its own.
        assert_eq!(group.store("others")?.try_get("large")?, None);
        Ok(())
    })
    .unwrap();
}

#[test]
fn threads_wait_for_keys_at_once() {
    spawn(2, |job| {
        let (store, rank) = (job.group().store("devices")?, job.rank());
        thread::scope(|scope| {
            // Each process waits for keys that the other puts later, in another order.
            let wait = |key: u32| {
                let store = store.clone();
                move || store.get(&format!("{}/{key}", 1 - rank), SOON).unwrap()
            };
            let waiting: Vec<_> = (0..8).map(|key| scope.spawn(wait(key))).collect();
            thread::sleep(Duration::from_millis(100));
            for key in (0..8u32).rev() {
                store
                    .put(&format!("{rank}/{key}"), &key.to_le_bytes())
                    .unwrap();
            }
            for (key, waiting) in waiting.into_iter().enumerate() {
                assert_eq!(waiting.join().unwrap(), (key as u32).to_le_bytes());
            }
        });
        Ok(())
    })
    .unwrap();
}

#[test]
fn late_key_names_the_processes() {
    spawn(3, |job| {
        let store = job.group().store("devices")?;
        if job.rank() < 2 {
            let patience = Duration::from_millis(2_500);
            let error = store.get("local/2", patience).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
            let text = error.to_string();
            let start = "key `local/2` of store `devices`: waited 2.5s for the value, which one of \
                         them has not put: process 2 on ";
            assert!(text.starts_with(start), "{text}");
        }
        // Process 2 waits for another call than the others.
        job.group().barrier("late", SOON)
    })
    .unwrap();
}
