//! Batches on the real CPU plugin's devices are what the loader made. The plugin is installed if it
//! is not there.

use std::sync::Arc;

use halite_backends::Accelerator;
use halite_core::{HostArray, Mesh, PartitionSpec, Sharding};
use halite_data::{InMemory, Labeled, LastBatch, Loader, LoaderOptions, Prefetch};

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
