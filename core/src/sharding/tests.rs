use super::*;
use crate::{DType, Error};

fn mesh() -> Arc<Mesh> {
    Arc::new(Mesh::new([("data", 2), ("model", 4)], (0..8).map(DeviceId)).unwrap())
}

#[test]
fn shards_are_row_major_over_axes() {
    let ty = TensorType::new(DType::F32, [4, 8]);
    let both = Sharding::new(&mesh(), PartitionSpec::new([vec!["data"], vec!["model"]])).unwrap();
    assert_eq!(both.shard_type(&ty).unwrap().dims(), [2, 2]);
    assert_eq!(both.shard_ranges(&ty, 6).unwrap(), [2..4, 4..6]);
    let one = Sharding::new(&mesh(), PartitionSpec::new([vec![], vec!["model", "data"]])).unwrap();
    assert_eq!(
        one.shard_ranges(&ty, 6).unwrap(),
        [0..4, 5..6],
        "model 2 of 4 is the slow axis, data 1 of 2 the fast one"
    );
}

#[test]
fn shard_numbers_agree_with_ranges() {
    let ty = TensorType::new(DType::F32, [8, 16]);
    for text in [
        "()",
        "(data)",
        "(None, model)",
        "(model, data)",
        "((data, model))",
        "(None, (model, data))",
    ] {
        let sharding = Sharding::new(&mesh(), text.parse().unwrap()).unwrap();
        let (tiling, part) = (sharding.hlo_sharding(2), sharding.shard_type(&ty).unwrap());
        for (device, &number) in tiling.of_device.iter().enumerate() {
            let place = [number / tiling.parts[1], number % tiling.parts[1]];
            let ranges = [0, 1]
                .map(|dim| place[dim] * part.dims()[dim]..(place[dim] + 1) * part.dims()[dim]);
            assert_eq!(
                sharding.shard_ranges(&ty, device).unwrap(),
                ranges,
                "{text}"
            );
        }
    }
}

#[test]
fn partition_spec_round_trips_through_text() {
    for text in [
        "()",
        "(data)",
        "(None, model)",
        "((data, model))",
        "(data, (model, fsdp), None)",
        "((a, b), (c, d))",
    ] {
        assert_eq!(text.parse::<PartitionSpec>().unwrap().to_string(), text);
    }
    assert_eq!(
        " None,model ".parse::<PartitionSpec>().unwrap().to_string(),
        "(None, model)"
    );
    assert_eq!(
        "(a, b), c".parse::<PartitionSpec>().unwrap().to_string(),
        "((a, b), c)"
    );
    for text in [
        "(data",
        "data)",
        "data,",
        "(data,)",
        "a b",
        "((a, (b)))",
        "(a)b",
        "[a]",
        ",a",
    ] {
        let error = text.parse::<PartitionSpec>().unwrap_err().to_string();
        assert!(
            error.contains(&format!("invalid partition spec `{text}`")),
            "{error}"
        );
    }
}

#[test]
fn mesh_shape_round_trips_through_text() {
    let axes = |text: &str| {
        text.parse::<MeshShape>()
            .map(|axes| axes.to_string())
            .map_err(|error| error.to_string())
    };
    assert_eq!(axes("data=2, model=4").unwrap(), "data=2,model=4");
    for text in [
        "",
        "data",
        "data=",
        "data=0",
        "=2",
        "data=2,,model=4",
        "data=two",
        "a b=2",
        "data=-1",
        "None=2",
    ] {
        assert!(
            axes(text)
                .unwrap_err()
                .contains("expected names and sizes, such as data=2,model=4"),
            "{text}"
        );
    }
    assert_eq!(
        axes("a=1,b=2,a=3").unwrap_err(),
        "mesh: mesh(a=1, b=2, a=3) has two axes named `a`"
    );
}

#[test]
fn without_removes_axes_split_adds_them() {
    let spec: PartitionSpec = "((data, expert), model)".parse().unwrap();
    assert_eq!(
        spec.without(&["data".into(), "model".into()]).to_string(),
        "(expert, None)"
    );
    assert_eq!(
        spec.split(1, &["pod".into()]).to_string(),
        "((data, expert), (model, pod))"
    );
    assert_eq!(
        PartitionSpec::replicated()
            .split(2, &["data".into()])
            .to_string(),
        "(None, None, data)"
    );
}

#[test]
fn within_drops_axes_the_mesh_lacks() {
    let spec: PartitionSpec = "((data, expert), sequence, model)".parse().unwrap();
    assert_eq!(spec.within(&mesh()).to_string(), "(data, None, model)");
}

#[test]
fn hybrid_mesh_puts_slices_outermost() {
    let of = |axes: &[(&str, usize, usize)], slice: fn(u32) -> usize| {
        let mesh = Mesh::hybrid(
            axes.iter().copied(),
            (0..8).map(|id| (DeviceId(id), slice(id))),
        )?;
        Ok::<_, Error>(
            mesh.devices()
                .iter()
                .map(|device| device.0)
                .collect::<Vec<_>>(),
        )
    };
    // Two slices of four; then devices that alternate between slices.
    assert_eq!(
        of(&[("data", 2, 1), ("model", 1, 4)], |id| id as usize / 4).unwrap(),
        [0, 1, 2, 3, 4, 5, 6, 7]
    );
    assert_eq!(
        of(&[("data", 2, 1), ("model", 1, 4)], |id| id as usize % 2).unwrap(),
        [0, 2, 4, 6, 1, 3, 5, 7]
    );
    // An inner axis across slices: each row goes through both.
    assert_eq!(
        of(&[("data", 1, 2), ("model", 2, 2)], |id| id as usize / 4).unwrap(),
        [0, 1, 4, 5, 2, 3, 6, 7]
    );
    // Four slices over two axes.
    assert_eq!(
        of(&[("data", 2, 1), ("model", 2, 2)], |id| id as usize / 2).unwrap(),
        [0, 1, 2, 3, 4, 5, 6, 7]
    );
    let error = |axes: &[(&str, usize, usize)], slice| of(axes, slice).unwrap_err().to_string();
    assert_eq!(
        error(&[("data", 4, 1), ("model", 1, 2)], |id| id as usize / 4),
        "mesh: mesh(data=4x1, model=1x2) needs 4 slices, got 2"
    );
    assert_eq!(
        error(&[("data", 2, 1), ("model", 1, 4)], |id| usize::from(id > 2)),
        "mesh: mesh(data=2x1, model=1x4) needs 4 devices in each slice, got 3 in slice 0"
    );
    assert!(
        error(&[("data", 2, 0)], |id| id as usize / 4)
            .contains("needs 0 devices in each slice, got 4 in slice 0")
    );
    assert!(error(&[("data", usize::MAX, 1), ("model", 2, 1)], |_| 0).contains("got 1"));
}

#[test]
fn errors_name_the_axis_with_sizes() {
    let error = |spec| Sharding::new(&mesh(), spec).unwrap_err().to_string();
    assert_eq!(
        error(PartitionSpec::first("batch")),
        "sharding: (batch) names axis `batch`, which mesh(data=2, model=4) does not have"
    );
    assert!(error(PartitionSpec::new([vec!["data"], vec!["data"]])).contains("twice"));
    let odd = Sharding::new(&mesh(), PartitionSpec::first("model")).unwrap();
    let error = odd
        .shard_type(&TensorType::new(DType::F32, [6]))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("dimension 0 of f32[6] is split 4 ways"),
        "{error}"
    );
    let error = Mesh::new([("data", 3)], (0..8).map(DeviceId))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "mesh: mesh(data=3) needs 3 devices, but 8 were given"
    );
}

#[test]
fn mesh_shape_rejects_sizes_that_overflow_or_are_zero() {
    let error = |axes: &[(&'static str, usize)]| {
        MeshShape::new(axes.iter().copied())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error(&[("data", 0)]),
        "mesh: mesh(data=0) has an axis of size 0; sizes are at least 1"
    );
    assert!(error(&[("a", usize::MAX), ("b", 2)]).contains("more devices than fit in a usize"));
    assert!("a=18446744073709551615,b=2".parse::<MeshShape>().is_err());
}
