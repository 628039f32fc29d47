//! Batches on devices.

use super::*;

/// 8 steps among 400 batches of three arrays, as in a run with more validation than training data.
#[test]
fn batches_are_not_reported_as_frequent_uploads() {
    let client = Client::new(Null::new(1)).measured();
    let device = Sharding::single(client.local_devices()[0]);
    let loader = loader(1600, LoaderOptions::new(4));
    let batches = Prefetch::new(loader.epoch(0), &client, vec![device.clone()], 2).unwrap();
    assert_eq!(batches.map(Result::unwrap).count(), 400);
    for _ in 0..8 {
        client.metrics().step();
    }
    assert_eq!(client.counters().snapshot().uploads, 1200);
    let activity = client.metrics().activity();
    assert!(activity.uploads.is_empty(), "{:?}", activity.uploads);
    // Nothing is trained here, so that the wait for batches is found.
    let findings = |client: &Client| -> Vec<String> {
        let findings = client.metrics().activity().findings().into_iter();
        let uploads = findings.filter(|finding| finding.kind == FindingKind::ManyUploads);
        uploads.map(|finding| finding.message).collect()
    };
    assert_eq!(findings(&client), Vec::<String>::new());

    // What a line of the user uploads is found, and it is the line that is named.
    let line = line!() + 2;
    for _ in 0..160 {
        Array::scalar(&client, 1.0f32).unwrap();
    }
    let found = findings(&client);
    let place = format!(
        "20 uploads per step (160 uploads to 1 device), 100 % of them at {}:{line}:",
        file!()
    );
    assert!(
        matches!(&found[..], [one] if one.contains(&place)),
        "{found:?}"
    );
}

#[test]
fn prefetched_batches_have_sharding_order_structure() {
    let client = Client::new(Null::new(4));
    let mesh = Arc::new(Mesh::new([("data", 4)], client.local_devices()).unwrap());
    let rows = Sharding::new(&mesh, PartitionSpec::first("data")).unwrap();
    let loader = loader(
        100,
        LoaderOptions {
            order: Order::Shuffled { seed: 1 },
            ..LoaderOptions::new(16)
        },
    );
    let mut prefetch = Prefetch::new(
        loader.epoch_from(Position { epoch: 0, batch: 2 }),
        &client,
        vec![rows.clone()],
        2,
    )
    .unwrap();
    for batch in 2..7 {
        assert_eq!(prefetch.next_position(), Position { epoch: 0, batch });
        let uploaded = prefetch.next().unwrap().unwrap();
        assert_eq!(
            (uploaded.position.batch, uploaded.count),
            (batch, if batch < 6 { 16 } else { 4 })
        );
        let tree = uploaded.into_tree(&Labeled::TEMPLATE).unwrap();
        assert_eq!(
            tree.target.shards().get(3).unwrap().tensor_type(),
            &TensorType::new(DType::F64, [4, 2])
        );
        assert_eq!(tree.weight.ty(), &TensorType::new(DType::F32, [16]));
    }
    assert!(prefetch.next().is_none());

    let refused = |shardings| {
        Prefetch::new(loader.epoch(0), &client, shardings, 1)
            .unwrap_err()
            .to_string()
    };
    assert!(refused(vec![rows.clone(); 2]).contains("2 shardings given for 3 arrays"));
    let odd = Loader::new(squares(100, |_| Ok(())), LoaderOptions::new(6)).unwrap();
    assert!(
        Prefetch::new(odd.epoch(0), &client, vec![rows], 1).is_err(),
        "6 rows do not divide over 4 devices"
    );
}

#[test]
fn batch_of_another_structure_is_rejected() {
    let batch = || {
        loader(8, LoaderOptions::new(8))
            .epoch(0)
            .next()
            .unwrap()
            .unwrap()
    };
    // A template without a leaf for the weights.
    let pair = batch().into_tree(&[Leaf(()), Leaf(())]).unwrap();
    assert_eq!(pair[0].0.ty().dims(), [8]);
    let error = batch()
        .into_tree(&vec![Leaf(()); 5])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("5 leaves (0, 1, 2, 3, 4)") && error.contains("2 fields and weights"),
        "{error}"
    );
}
