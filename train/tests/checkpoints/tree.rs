//! Trees of arrays in a file: `Checkpoint::save` and `Checkpoint::load`.

use std::{fs, path::Path};

use halite_backends::Accelerator;
use halite_core::{Array, DType, HostArray, TensorType, tree::Tree};
use halite_nn::{Linear, Param};
use halite_train::{
    Checkpoint,
    checkpoint::{CheckpointStore, Snapshot},
};

use crate::checkpoints::{array, names_in, snapshot};

#[derive(Tree, Debug)]
struct Net<L> {
    hidden: Linear<L>,
    scale: L,
}

fn net(width: usize) -> Net<Param> {
    Net {
        hidden: Linear::new(4, width),
        scale: Param::new([], halite_nn::Init::Zeros).with_dtype(DType::Bf16),
    }
}

/// A net with other bits in every element.
fn arrays(width: usize) -> Net<HostArray> {
    let net = net(width);
    let types = net.leaves().into_iter().map(|param| param.ty.clone());
    let arrays: Vec<_> = (0..)
        .zip(types)
        .map(|(seed, ty)| array(ty.dtype(), ty.dims(), seed))
        .collect();
    net.rebuild(arrays)
}

fn error_of<T: std::fmt::Debug>(loaded: halite_core::Result<T>, path: &Path) -> String {
    let error = loaded.unwrap_err().to_string();
    error.replace(&path.display().to_string(), "FILE")
}

#[test]
fn tree_is_loaded_as_it_was_saved() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("net.safetensors");
    let saved = arrays(3);
    for _ in 0..2 {
        Checkpoint::save(&saved, &path).unwrap();
        assert_eq!(names_in(dir.path()), ["net.safetensors"]);
    }
    let loaded = Checkpoint::load(&net(3), &path).unwrap();
    assert_eq!(loaded.leaves(), saved.leaves());
    let types = saved.leaf_refs().map_leaves(|_, array| array.ty().clone());
    let by_types = Checkpoint::load(&types, &path).unwrap();
    assert_eq!(by_types.leaves(), saved.leaves());

    // By any other program.
    let bytes = fs::read(&path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.tensor("hidden.weight").unwrap().shape(), [4, 3]);
}

#[test]
fn arrays_of_devices_are_saved_or_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("net.safetensors");
    let client = "embedded".parse::<Accelerator>().unwrap().open().unwrap();
    Checkpoint::save(&arrays(3), &path).unwrap();
    let on_device: Net<Array> = Checkpoint::load_on(&client, &net(3), &path).unwrap();
    let again = dir.path().join("again.safetensors");
    Checkpoint::save(&on_device, &again).unwrap();
    assert_eq!(fs::read(&again).unwrap(), fs::read(&path).unwrap());
    let like: Net<HostArray> = Checkpoint::load(&on_device, &again).unwrap();
    assert_eq!(like.leaves(), arrays(3).leaves());
}

#[test]
fn single_arrays_or_tuples_are_trees() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("one.safetensors");
    let one = array(DType::F32, &[2, 3], 1);
    Checkpoint::save(&one, &path).unwrap();
    assert_eq!(Checkpoint::load(&one, &path).unwrap(), one);
    let pair = (
        one,
        vec![array(DType::U8, &[0], 2), array(DType::S64, &[1], 3)],
    );
    Checkpoint::save(&pair, &path).unwrap();
    assert_eq!(Checkpoint::load(&pair, &path).unwrap(), pair);
}

#[test]
fn other_tree_is_rejected_with_every_difference() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("net.safetensors");
    Checkpoint::save(&arrays(3), &path).unwrap();
    let error = error_of(Checkpoint::load(&net(5), &path), &path);
    let want = "restore: FILE is of another model, 2 differences:
  `hidden.weight` is f32[4, 3] in the file, the model has f32[4, 5]
  `hidden.bias` is f32[3] in the file, the model has f32[5]";
    assert_eq!(error, want);
    let client = "embedded".parse::<Accelerator>().unwrap().open().unwrap();
    let part = Checkpoint::load_on(&client, &net(3).hidden, &path);
    let error = error_of(part, &path);
    assert!(
        error.contains("`weight` is not in the file, the model has f32[4, 3]")
            && error.contains("`scale` is bf16[] in the file, the model has no such array"),
        "{error}"
    );
}

#[test]
fn failed_save_keeps_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("net.safetensors");
    Checkpoint::save(&arrays(3), &path).unwrap();
    let before = fs::read(&path).unwrap();
    // safetensors files cannot hold this type.
    let bad = HostArray::zeros(TensorType::new(DType::C128, [1]));
    let error = Checkpoint::save(&bad, &path).unwrap_err().to_string();
    assert!(
        error.contains("`array` has elements of type c128"),
        "{error}"
    );
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(names_in(dir.path()), ["net.safetensors"]);

    let error = Checkpoint::save(&arrays(3), dir.path())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("is a directory; give the path of a file"),
        "{error}"
    );
    let nowhere = dir.path().join("none/net.safetensors");
    let error = Checkpoint::save(&arrays(3), &nowhere)
        .unwrap_err()
        .to_string();
    assert!(error.contains("No such file or directory"), "{error}");
}

#[test]
fn damaged_file_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("net.safetensors");
    Checkpoint::save(&arrays(3), &path).unwrap();
    let good = fs::read(&path).unwrap();
    for length in [0, 4, 20, good.len() - 1] {
        fs::write(&path, &good[..length]).unwrap();
        let error = error_of(Checkpoint::load(&net(3), &path), &path);
        assert!(
            error.contains("net.safetensors is not a file of arrays: "),
            "{length}: {error}"
        );
    }
    fs::remove_file(&path).unwrap();
    let error = error_of(Checkpoint::load(&net(3), &path), &path);
    assert!(error.contains("cannot read FILE"), "{error}");
}

#[test]
fn model_of_a_run_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let store = CheckpointStore::open(run.join("checkpoints"), 2).unwrap();
    let mut folder = None;
    for step in [1, 2] {
        let model = arrays(3 + step as usize);
        let named = model.named().into_iter();
        let mut all: Vec<_> = named
            .map(|(path, array)| (format!("model.{path}"), array.clone()))
            .collect();
        all.push(("step".into(), HostArray::scalar(step as u32)));
        let saved = store.save(Snapshot {
            arrays: all,
            best: (step == 1).then(|| ("loss".into(), 0.5)),
            ..snapshot(step)
        });
        folder = Some(saved.unwrap());
    }
    let best = Checkpoint::load(&net(4), &run).unwrap();
    assert_eq!(best.leaves(), arrays(4).leaves());
    let newest = Checkpoint::load(&net(5), folder.unwrap()).unwrap();
    assert_eq!(newest.leaves(), arrays(5).leaves());
    let error = Checkpoint::load(&net(5), &run).unwrap_err().to_string();
    assert!(
        error.contains(
            "`model.hidden.weight` is f32[4, 4] in the checkpoint, the model has f32[4, 5]"
        ),
        "{error}"
    );
}

#[test]
fn threads_may_write_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.safetensors");
    // Left by processes that had the same number.
    let names = (0..50).map(|count| format!("{}.{count}", std::process::id()));
    let names = names.chain([std::process::id().to_string()]);
    let left: Vec<_> = names
        .map(|name| dir.path().join(format!(".a.safetensors.{name}.tmp")))
        .collect();
    for file in &left {
        fs::write(file, "left").unwrap();
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    Checkpoint::save(&arrays(3), &path).unwrap();
                }
            });
        }
    });
    assert!(left.iter().all(|file| file.is_file()));
    // Those, and the file.
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), left.len() + 1);
}
