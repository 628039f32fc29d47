//! Batches on the real CPU plugin's devices are what the loader made. The plugin is installed if it
//! is not there.

use std::sync::Arc;

use halite_backends::Accelerator;
use halite_core::{HostArray, Mesh, PartitionSpec, PinnedPool, Result, Sharding};
use halite_data::{DeviceBatch, InMemory, Labeled, LastBatch, Loader, LoaderOptions, Prefetch};

#[test]
fn batches_on_devices_equal_those_of_the_loader() {
    let images: Vec<u8> = (0..1000u32 * 49).map(|i| ((i * i) >> 3) as u8).collect();
    let labels: Vec<i32> = (0..1000).collect();
    let images = HostArray::from_slice(&images, [1000, 7, 7]).unwrap();
    let labels = HostArray::from_slice(&labels, [1000]).unwrap();
    let dataset = InMemory::new([("image", images), ("label", labels)]).unwrap();
    let options = LoaderOptions {
        last: LastBatch::Pad,
        ..LoaderOptions::shuffled(64, 3)
    };
    let loader = Loader::new(dataset, options).unwrap();

    for devices in [1, 4] {
        let client = Accelerator::Cpu {
            devices: Some(devices),
        }
        .open()
        .unwrap();
        let mesh =
            Arc::new(Mesh::new([("data", devices as usize)], client.local_devices()).unwrap());
        let rows = Sharding::new(&mesh, PartitionSpec::first("data")).unwrap();
        let whole = Sharding::replicated(&mesh);
        // All batches are kept, so that each one's memory must be its own.
        let shardings = vec![rows.clone(), rows, whole];
        let uploaded: Vec<_> = Prefetch::new(loader.epoch(5), &client, shardings, 3)
            .unwrap()
            .collect();
        assert_eq!(uploaded.len(), 16);
        for (uploaded, made) in uploaded.into_iter().zip(loader.epoch(5)) {
            let made = made.unwrap().into_tree(&Labeled::TEMPLATE).unwrap();
            let uploaded = uploaded.unwrap().into_tree(&Labeled::TEMPLATE).unwrap();
            assert_eq!(uploaded.input.read().unwrap(), *made.input);
            assert_eq!(uploaded.target.read().unwrap(), *made.target);
            assert_eq!(uploaded.weight.read().unwrap(), *made.weight);
        }
    }
}

#[test]
fn stacked_batches_are_slices_in_order() {
    let samples: Vec<i32> = (0..70).collect();
    let samples = HostArray::from_slice(&samples, [70]).unwrap();
    let options = LoaderOptions {
        last: LastBatch::Pad,
        ..LoaderOptions::shuffled(8, 3)
    };
    let loader = Loader::new(InMemory::new([("sample", samples)]).unwrap(), options).unwrap();
    let client = Accelerator::Cpu { devices: Some(2) }.open().unwrap();
    let mesh = Arc::new(Mesh::new([("data", 2)], client.local_devices()).unwrap());
    let by_samples = vec![Sharding::new(&mesh, PartitionSpec::first("data")).unwrap()];
    let mut prefetch =
        Prefetch::stacked(loader.epoch(5), &client, by_samples, 2, [4, 1, 3]).unwrap();

    let mut single = loader.epoch(5).map(Result::unwrap);
    for (batches, dims) in [(4, &[4, 8][..]), (1, &[8]), (3, &[3, 8]), (1, &[8])] {
        let stacked = prefetch.next().unwrap().unwrap();
        assert_eq!(stacked.batches, batches);
        let group: Vec<_> = single.by_ref().take(batches).collect();
        assert_eq!(stacked.position, group[0].position);
        assert_eq!(
            stacked.count,
            group.iter().map(|batch| batch.count).sum::<usize>()
        );
        let values = |array: &HostArray| array.as_slice::<i32>().unwrap().to_vec();
        let expected: Vec<i32> = group
            .iter()
            .flat_map(|batch| values(&batch.arrays[0]))
            .collect();
        let read = stacked.arrays[0].read().unwrap();
        assert_eq!(read.ty().dims(), dims);
        assert_eq!(values(&read), expected);
    }
    assert!(prefetch.next().is_none());
}

#[test]
fn missing_micro_batches_have_weight_0() {
    let samples: Vec<i32> = (0..22).collect();
    let samples = HostArray::from_slice(&samples, [22]).unwrap();
    let options = LoaderOptions {
        last: LastBatch::Pad,
        ..LoaderOptions::new(4)
    };
    let loader = Loader::new(InMemory::new([("sample", samples)]).unwrap(), options).unwrap();
    let client = Accelerator::Cpu { devices: Some(2) }.open().unwrap();
    let mesh = Arc::new(Mesh::new([("data", 2)], client.local_devices()).unwrap());
    let by_samples = vec![Sharding::new(&mesh, PartitionSpec::first("data")).unwrap()];
    // Six batches: a step of four, and one of two.
    let steps = Prefetch::accumulated(loader.epoch(0), &client, by_samples, 2, 4, [1, 1]).unwrap();
    let steps: Vec<_> = steps.map(Result::unwrap).collect();
    assert_eq!(
        steps.iter().map(|step| step.batches).collect::<Vec<_>>(),
        [4, 2]
    );
    let [sample, weight] = &steps[1].arrays[..] else {
        panic!("a field and the weights");
    };
    let sample = sample.read().unwrap();
    assert_eq!(sample.ty().dims(), [4, 4]);
    assert_eq!(
        sample.as_slice::<i32>().unwrap(),
        [16, 17, 18, 19, 20, 21, 0, 1, 16, 17, 18, 19, 16, 17, 18, 19]
    );
    let mut weights = [0.0f32; 16];
    weights[..6].fill(1.0);
    assert_eq!(weight.read().unwrap().as_slice::<f32>().unwrap(), weights);
}

/// Single batches, and groups of two with the last one alone.
#[test]
fn batches_in_pinned_memory_are_the_same() {
    let samples: Vec<i32> = (0..4000).collect();
    let samples = HostArray::from_slice(&samples, [500, 8]).unwrap();
    let options = LoaderOptions {
        last: LastBatch::Pad,
        ..LoaderOptions::shuffled(10, 3)
    };
    let loader = Loader::new(InMemory::new([("sample", samples)]).unwrap(), options).unwrap();
    let client = "embedded:2".parse::<Accelerator>().unwrap().open().unwrap();
    let mesh = Arc::new(Mesh::new([("data", 2)], client.local_devices()).unwrap());
    let rows = vec![Sharding::new(&mesh, PartitionSpec::first("data")).unwrap()];
    let pool = PinnedPool::new(&client, PinnedPool::DEFAULT_LIMIT)
        .unwrap()
        .unwrap();
    let pinned = loader.clone().with_pinned_memory(&pool);
    for size in [1, 2] {
        let read = |loader: &Loader| -> Vec<_> {
            let sizes = std::iter::repeat(size);
            let batches = Prefetch::stacked(loader.epoch(1), &client, rows.clone(), 2, sizes);
            let arrays = |batch: Result<DeviceBatch>| batch.unwrap().arrays;
            let arrays = batches.unwrap().flat_map(arrays);
            arrays.map(|array| array.read().unwrap()).collect()
        };
        assert_eq!(read(&pinned), read(&loader), "groups of {size}");
    }
    // Of 320 bytes each: 50 batches of two epochs, and 25 of two, share the memory of some.
    assert!(pool.bytes() > 320 && pool.bytes() < 100 * 320, "{pool:?}");
}
