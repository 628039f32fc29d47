//! Name maps: fused projections, layers of a stack, layouts; and what a file and a model do not have
//! in common.

mod kinds;

use std::{collections::BTreeMap, sync::Arc};

use expect_test::{Expect, expect};
use halite_core::{
    Array, Client, DType, HostArray, Mesh, PartitionSpec, Sharding, TensorType, Tree,
};
use halite_embedded::{Embedded, Options};
use halite_nn::{Attention, Embedding, Linear, Model, Param, Stack};
use halite_weights::{HostTensors, Layout, NameMap, TensorSource, WeightLoader, WeightSaver, open};

pub(crate) fn client() -> Client {
    let options = Options {
        devices: 2,
        ..Options::default()
    };
    Client::new(Embedded::new(&options).unwrap())
}

/// Different numbers in tensors of these types.
pub(crate) fn tensors(types: &[(&str, &[usize])]) -> HostTensors {
    let mut next = 0;
    let array = |&(name, dims): &(&str, &[usize])| {
        let count: usize = dims.iter().product();
        let values: Vec<f32> = (next..next + count).map(|value| value as f32).collect();
        next += count;
        (
            name.to_owned(),
            HostArray::from_slice(&values, dims).unwrap(),
        )
    };
    types.iter().map(array).collect()
}

/// The value at an index of a tensor.
pub(crate) fn at(source: &HostTensors, name: &str, index: &[usize]) -> f32 {
    let array = source.read(name).unwrap();
    let flat = index
        .iter()
        .zip(array.ty().dims())
        .fold(0, |flat, (i, dim)| flat * dim + i);
    array.as_slice::<f32>().unwrap()[flat]
}

/// Compares an array with a function of its index.
#[track_caller]
pub(crate) fn check(array: &Array, value: impl Fn(&[usize]) -> f32) {
    let dims = array.ty().dims().to_vec();
    for (flat, found) in array.to_vec::<f32>().unwrap().into_iter().enumerate() {
        let (mut rest, mut index) = (flat, vec![0; dims.len()]);
        for dim in (0..dims.len()).rev() {
            index[dim] = rest % dims[dim];
            rest /= dims[dim];
        }
        assert_eq!(found, value(&index), "{index:?}");
    }
}

/// Saves a model, and compares the file with what it was loaded from.
#[track_caller]
pub(crate) fn check_saved<M: Model>(
    model: &M,
    values: &halite_core::tree::Of<M, Array>,
    map: &NameMap,
    source: &HostTensors,
) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("saved.safetensors");
    WeightSaver::new(map).save(model, values, &path).unwrap();
    let saved = open(&path).unwrap();
    assert_eq!(saved.tensors().len(), source.tensors().len());
    for tensor in source.tensors() {
        assert_eq!(
            saved.read(&tensor.name).unwrap(),
            source.read(&tensor.name).unwrap()
        );
    }
}

const HEADS: usize = 2;
const WIDTH: usize = 4;
const FEATURES: usize = 6;

fn attention() -> Stack<Attention<Param>> {
    Stack::new(3, Attention::new(FEATURES, HEADS, WIDTH).kv_heads(1))
}

#[test]
fn fused_projection_is_split_by_heads() {
    let client = client();
    let (q, kv) = (HEADS * WIDTH, WIDTH);
    // GPT-2's form, [in, out], with fewer heads of keys and values.
    let mut types: Vec<(String, Vec<usize>)> = Vec::new();
    for layer in 0..3 {
        types.push((
            format!("h.{layer}.c_attn.weight"),
            vec![FEATURES, q + 2 * kv],
        ));
        types.push((format!("h.{layer}.c_attn.bias"), vec![q + 2 * kv]));
        types.push((format!("h.{layer}.c_proj.weight"), vec![q, FEATURES]));
        types.push((format!("h.{layer}.c_proj.bias"), vec![FEATURES]));
    }
    let types: Vec<(&str, &[usize])> = types
        .iter()
        .map(|(name, dims)| (&**name, &**dims))
        .collect();
    let source = tensors(&types);
    let map = NameMap::torch()
        .fuse(["q", "k", "v"], "h.{layer}.c_attn", 1)
        .rename("o", "h.{layer}.c_proj")
        .layout("q|k|v.weight", Layout::Merged(vec![vec![0], vec![1, 2]]))
        .layout("o.weight", Layout::Merged(vec![vec![0, 1], vec![2]]));
    let model = attention();
    let loaded = WeightLoader::new(&source, &map)
        .load(&client, &model)
        .unwrap()
        .model;
    let values = loaded.stacked();
    for (start, projection) in [(0, &values.q), (q, &values.k), (q + kv, &values.v)] {
        check(&projection.weight, |i| {
            let name = format!("h.{}.c_attn.weight", i[0]);
            at(&source, &name, &[i[1], start + i[2] * WIDTH + i[3]])
        });
        check(projection.bias.as_ref().unwrap(), |i| {
            at(
                &source,
                &format!("h.{}.c_attn.bias", i[0]),
                &[start + i[1] * WIDTH + i[2]],
            )
        });
    }
    check(&values.o.weight, |i| {
        at(
            &source,
            &format!("h.{}.c_proj.weight", i[0]),
            &[i[1] * WIDTH + i[2], i[3]],
        )
    });
    check_saved(&model, &loaded, &map, &source);
}

#[test]
fn fused_projection_of_pytorch_is_split() {
    let client = client();
    let source = tensors(&[
        ("in_proj_weight", &[3 * HEADS * WIDTH, FEATURES]),
        ("in_proj_bias", &[3 * HEADS * WIDTH]),
        ("out_proj.weight", &[FEATURES, HEADS * WIDTH]),
        ("out_proj.bias", &[FEATURES]),
    ]);
    let map = NameMap::torch()
        .fuse(["q.weight", "k.weight", "v.weight"], "in_proj_weight", 0)
        .fuse(["q.bias", "k.bias", "v.bias"], "in_proj_bias", 0)
        .rename("o", "out_proj");
    let model = Attention::new(FEATURES, HEADS, WIDTH);
    let loaded = WeightLoader::new(&source, &map)
        .load(&client, &model)
        .unwrap()
        .model;
    check(&loaded.k.weight, |i| {
        at(
            &source,
            "in_proj_weight",
            &[HEADS * WIDTH + i[1] * WIDTH + i[2], i[0]],
        )
    });
    check(&loaded.o.weight, |i| {
        at(&source, "out_proj.weight", &[i[2], i[0] * WIDTH + i[1]])
    });
    check_saved(&model, &loaded, &map, &source);
}

/// llama.cpp's conversion: `w.reshape(heads, 2, width / 2, in).swapaxes(1, 2).reshape(w.shape)`.
#[test]
fn interleaved_heads_are_those_of_llama_cpp() {
    let client = client();
    let source = tensors(&[("attn_q.weight", &[HEADS * WIDTH, FEATURES])]);
    let map = NameMap::torch()
        .rename("", "attn_q")
        .layout("weight", Layout::ToHeadsInterleaved);
    let model = Attention::new(FEATURES, HEADS, WIDTH).without_bias().q;
    let loaded = WeightLoader::new(&source, &map)
        .load(&client, &model)
        .unwrap()
        .model;
    check(&loaded.weight, |i| {
        let [input, head, w] = [i[0], i[1], i[2]];
        let (half, pair) = (w / (WIDTH / 2), w % (WIDTH / 2));
        at(
            &source,
            "attn_q.weight",
            &[head * WIDTH + pair * 2 + half, input],
        )
    });
    check_saved(&model, &loaded, &map, &source);
}

/// A file without one layer of a stack.
#[test]
fn layers_that_are_there_are_loaded_leniently() {
    let client = client();
    let source = tensors(&[("h.0.weight", &[4, 3]), ("h.2.weight", &[4, 3])]);
    let map = NameMap::torch().rename("", "h.{layer}");
    let model = Stack::new(3, Linear::new(3, 4).without_bias());
    let mesh = Arc::new(Mesh::new([("rows", 2)], client.local_devices()).unwrap());
    let new = model.initialize(&client, 7).unwrap();
    let new = new.stacked().weight.to_vec::<f32>().unwrap();
    for spec in [vec![vec![], vec![]], vec![vec![], vec![], vec!["rows"]]] {
        let sharding = Sharding::new(&mesh, PartitionSpec::new(spec)).unwrap();
        let loaded = WeightLoader::new(&source, &map)
            .seed(7)
            .lenient()
            .sharded(move |_, _| Ok(sharding.clone()))
            .load(&client, &model)
            .unwrap();
        assert_eq!(loaded.report.missing.len(), 1);
        check(&loaded.model.stacked().weight, |i| match i[0] {
            1 => new[12 + i[1] * 4 + i[2]],
            layer => at(&source, &format!("h.{layer}.weight"), &[i[2], i[1]]),
        });
    }
}

/// `q` is new, `k` and `v` of the same tensor are those of the file.
#[test]
fn replaced_part_of_a_fused_tensor_is_alone() {
    let client = client();
    let source = tensors(&[
        ("in_proj", &[3 * HEADS * WIDTH, FEATURES]),
        ("o.weight", &[FEATURES, HEADS * WIDTH]),
    ]);
    let map = NameMap::torch().fuse(["q.weight", "k.weight", "v.weight"], "in_proj", 0);
    let model = Attention::new(FEATURES, HEADS, WIDTH).without_bias();
    let loaded = WeightLoader::new(&source, &map)
        .replace("q")
        .seed(7)
        .load(&client, &model)
        .unwrap();
    assert_eq!(loaded.report.replaced.len(), 1);
    assert_eq!(loaded.report.replaced[0].paths, ["q.weight"]);
    let new = model.initialize(&client, 7).unwrap();
    assert_eq!(
        loaded.model.q.weight.read().unwrap(),
        new.q.weight.read().unwrap()
    );
    for (part, projection) in [(1, &loaded.model.k), (2, &loaded.model.v)] {
        check(&projection.weight, |i| {
            let row = (part * HEADS + i[1]) * WIDTH + i[2];
            at(&source, "in_proj", &[row, i[0]])
        });
    }
}

#[derive(Tree, Clone, Debug)]
struct Model2<L> {
    words: Embedding<L>,
    body: Vec<Linear<L>>,
    head: Linear<L>,
}

fn model() -> Model2<Param> {
    Model2 {
        words: Embedding::new(5, 4),
        body: vec![Linear::new(4, 3), Linear::new(3, 4)],
        head: Linear::new(4, 2),
    }
}

#[track_caller]
fn check_error(source: &HostTensors, map: &NameMap, expected: &Expect) {
    let error = WeightLoader::new(source, map)
        .load(&client(), &model())
        .unwrap_err();
    expected.assert_eq(&format!("{error}\n"));
}

#[test]
fn all_differences_are_one_error() {
    let mut arrays = BTreeMap::new();
    for (name, dtype, dims) in [
        ("model.words.weight", DType::F16, &[5, 4][..]), // converted
        ("model.body.0.weight", DType::F32, &[4, 3]),    // not transposed
        ("model.body.0.bias", DType::S64, &[3]),
        ("model.body.1.weight", DType::F32, &[4, 3]),
        ("model.body.2.weight", DType::F32, &[9]),
        ("model.head.bias", DType::F32, &[3]),
        ("model.extra", DType::U8, &[]),
        ("model.norm.num_batches_tracked", DType::S64, &[]), // ignored
    ] {
        arrays.insert(
            name.to_owned(),
            HostArray::zeros(TensorType::new(dtype, dims)),
        );
    }
    let source = HostTensors::from(arrays);
    let map = NameMap::torch()
        .rename("stem", "conv1")
        .rename("", "model")
        .layout("stem.*", Layout::Linear);
    check_error(
        &source,
        &map,
        &expect![[r#"
            load weights: memory does not fit the model: 7 mismatches; nothing was loaded
            missing:
              `body.1.bias`: `model.body.1.bias` f32[4]
              `head.weight`: `model.head.weight` f32[2, 4]
            shape mismatch:
              `body.0.weight`: `model.body.0.weight` f32[3, 4], the file has f32[4, 3]
              `head.bias`: `model.head.bias` f32[2], the file has f32[3]
            dtype mismatch:
              `body.0.bias`: `model.body.0.bias` f32[3], the file has s64[3]
            unexpected:
              `model.body.2.weight` f32[9]
              `model.extra` u8[]
            rules without a parameter:
              `stem` -> `conv1`
              `stem.*`: Linear
        "#]],
    );
    let report = WeightLoader::new(&source, &map).report(&model()).unwrap();
    assert_eq!((report.missing.len(), report.unexpected.len()), (2, 2));
    assert!(!report.is_complete());
    // Leniently, all of these are initialized, and what fits is loaded.
    let loaded = WeightLoader::new(&source, &map)
        .lenient()
        .load(&client(), &model())
        .unwrap();
    assert_eq!(loaded.report, report);
    assert_eq!(loaded.model.words.table.to_vec::<f32>().unwrap(), [0.0; 20]);
    assert_ne!(loaded.model.head.weight.to_vec::<f32>().unwrap(), [0.0; 8]);
}

#[test]
fn maps_that_do_not_fit_the_model_are_errors() {
    let source = tensors(&[]);
    for (map, expected) in [
        (
            NameMap::torch().rename("head", "fc{"),
            "`fc{`: a placeholder is",
        ),
        (
            NameMap::torch().rename("head", "fc.{i}"),
            "`{i}` in `fc.{i}` is not in the pattern",
        ),
        (
            NameMap::torch().rename("head", "body.0"),
            "`body.0.bias` is the name of `body.0.bias`, `head.bias`; use `fuse` if they are parts",
        ),
        (
            NameMap::torch().fuse(["head", "other"], "fused", 0),
            "`fused.bias` is `head.bias`; it has 2 parts",
        ),
        (
            NameMap::torch().fuse(["head"], "fused", 2),
            "`fused.weight` is `head.weight` along dimension 2, whose types differ or lack it",
        ),
        (
            NameMap::torch().rename("body.{i+1}", "layer{i}"),
            "`body.{i+1}`: a pattern has `{i}` once",
        ),
        (
            NameMap::torch().rename("head", "h.{layer}"),
            "`head.bias` becomes `h.{layer}`, and is not in one stack",
        ),
        (
            NameMap::torch().layout("head.weight", Layout::FromHeads),
            "`head.weight`: layout FromHeads of a parameter",
        ),
    ] {
        let error = WeightLoader::new(&source, &map)
            .report(&model())
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
    }
    let map = NameMap::torch();
    let error = WeightLoader::new(&source, &map)
        .report(&attention())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("`q.weight` is stacked; the name of its tensors needs `{layer}`"),
        "{error}"
    );
    // Files of halite's own have stacked parameters as they are.
    let own = NameMap::paths();
    let report = WeightLoader::new(&source, &own)
        .report(&attention())
        .unwrap();
    assert_eq!(
        report.missing[0].expected.dims(),
        [3, FEATURES, HEADS, WIDTH]
    );
}
