//! BERT and sentence encoders, against `transformers` (`golden/bert.py`).

use std::path::PathBuf;

use halite_core::{
    Array, Client, DType, HostArray, Tree,
    tree::{Empty, Leaf},
};
use halite_models::{Bert, EmbedOptions, Pooling, SentenceEncoder};
use halite_nn::{Jit, Param, Tensor, grad};
use halite_weights::{
    Below, SafetensorsWriter, TensorInfo, TensorSource, WeightFile, WeightLoader, open,
};

use crate::{common::clients, packages::minilm};

/// A file of `golden/`.
pub(crate) fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

/// Largest distance of two arrays of `f64`.
#[track_caller]
pub(crate) fn distance(a: &HostArray, b: &HostArray) -> f64 {
    assert_eq!(a.ty(), b.ty());
    let (a, b) = (a.as_slice::<f64>().unwrap(), b.as_slice::<f64>().unwrap());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max)
}

type Results = (Leaf<()>, Leaf<()>, Bert<()>);
type Program = Jit<Empty<()>, (Bert<()>, [Leaf<()>; 3]), Results>;

/// Features at tokens, pooled features, and the gradients of the sum of squares of the first plus
/// the sum of the second.
fn program(client: &Client) -> Program {
    Jit::function(client, |cx, (model, inputs): (Bert<Tensor<'_>>, _)| {
        let [Leaf(tokens), Leaf(types), Leaf(mask)]: [Leaf<Tensor<'_>>; 3] = inputs;
        cx.set_mode(false, None);
        let features = model.forward_pair(tokens, types, mask);
        let kept = mask.unsqueeze(2).broadcast_to(features.dims());
        let kept = kept.select(features, features.zeros_like());
        let pooled = model.pooled(features).expect("it has a pooler");
        let loss = kept.square().sum_all() + pooled.sum_all();
        let gradients = grad(loss, &model);
        (Leaf(kept), Leaf(pooled), gradients)
    })
}

/// The description in `f64`.
fn small() -> (Bert<Param>, WeightFile) {
    let opened = Bert::from_pretrained(golden("bert")).unwrap();
    let model = opened
        .model
        .map_leaves(|_, param| param.with_dtype(DType::F64));
    (model, open(golden("bert.safetensors")).unwrap())
}

#[test]
fn features_are_those_of_transformers_in_f64() {
    let (model, expected) = small();
    let names = model.names();
    let weights = open(golden("bert")).unwrap();
    let slopes = Below::new(open(golden("bert.safetensors")).unwrap(), "gradient").unwrap();
    for client in clients() {
        let loaded = WeightLoader::new(&weights, &names)
            .load(client, &model)
            .unwrap()
            .model;
        let input = |name: &str| {
            let read = expected.read(name).unwrap();
            let device = client.local_devices()[0];
            Array::upload(client, &read, &halite_core::Sharding::single(device)).unwrap()
        };
        let inputs = ["tokens", "types", "mask"].map(|name| Leaf(input(name)));
        let (Leaf(features), Leaf(pooled), gradients) = program(client)
            .run_with((Tree::leaf_refs(&loaded), Tree::leaf_refs(&inputs)))
            .unwrap();
        for (name, array) in [("features", &features), ("pooled", &pooled)] {
            let distance = distance(&array.read().unwrap(), &expected.read(name).unwrap());
            assert!(distance < 1e-12, "{name}: {distance}");
        }
        let slopes = WeightLoader::new(&slopes, &names)
            .load(client, &model)
            .unwrap()
            .model;
        for ((path, gradient), slope) in gradients.named().into_iter().zip(slopes.leaves()) {
            let distance = distance(&gradient.read().unwrap(), &slope.read().unwrap());
            assert!(distance < 1e-10, "{path}: {distance}");
        }
    }
}

#[test]
fn embeddings_of_minilm_are_those_of_transformers() {
    let file = open(golden("minilm.safetensors")).unwrap();
    let texts: Vec<String> =
        serde_json::from_str(file.metadata()["texts"].as_str().unwrap()).unwrap();
    let expected = file.read("embeddings").unwrap();
    let expected = expected.as_slice::<f32>().unwrap();
    for client in clients() {
        let encoder = SentenceEncoder::from_pretrained(client, minilm()).unwrap();
        // All in one batch, of other lengths; one alone.
        let embeddings = encoder.embed(&texts).unwrap();
        let embeddings = embeddings.as_slice::<f32>().unwrap();
        let differences = embeddings.iter().zip(expected).map(|(a, b)| (a - b).abs());
        let largest = differences.fold(0.0, f32::max);
        assert!(largest < 1e-5, "{client:?}: {largest}");
        let alone = encoder.embed(&texts[1..2]).unwrap();
        let alone = alone.as_slice::<f32>().unwrap();
        let differences = embeddings[384..768]
            .iter()
            .zip(alone)
            .map(|(a, b)| (a - b).abs());
        let largest = differences.fold(0.0, f32::max);
        assert!(
            largest < 1e-6,
            "{client:?}: a text alone differs by {largest}"
        );
    }
}

#[test]
fn config_that_contradicts_the_weights_is_one_error() {
    let dir = tempfile::tempdir().unwrap();
    let config = std::fs::read_to_string(golden("bert/config.json")).unwrap();
    let config = config
        .replace("\"hidden_size\": 12", "\"hidden_size\": 24")
        .replace("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
    std::fs::write(dir.path().join("config.json"), config).unwrap();
    std::fs::copy(
        golden("bert/model.safetensors"),
        dir.path().join("model.safetensors"),
    )
    .unwrap();
    let error = Bert::from_pretrained(dir.path()).unwrap_err().to_string();
    for part in [
        "encoder.layer.2.output.dense.weight",
        "f32[29, 24]",
        "[29, 12]",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn pooling_leaves_out_padding() {
    let client = clients()[1];
    let program = Jit::<Empty<()>, [Leaf<()>; 2], [Leaf<()>; 4]>::function(
        client,
        |_, [Leaf(features), Leaf(mask)]: [Leaf<Tensor<'_>>; 2]| {
            let poolings = [
                Pooling::Mean,
                Pooling::Cls,
                Pooling::Max,
                Pooling::LastToken,
            ];
            poolings.map(|pooling| Leaf(pooling.pool(features, mask)))
        },
    );
    let features = [1.0f32, 3.0, 5.0, f32::NAN, 4.0, 2.0, f32::NAN, f32::NAN];
    let mask = [true, true, true, false, true, true, false, false];
    let features = Leaf(Array::from_slice(client, &features, [2, 4, 1]).unwrap());
    let mask = Leaf(Array::from_slice(client, &mask, [2, 4]).unwrap());
    let inputs = [features, mask];
    let pooled = program.run_with(Tree::leaf_refs(&inputs)).unwrap();
    let pooled = pooled.map(|Leaf(pooled)| pooled.to_vec::<f32>().unwrap());
    let expected = [[3.0, 3.0], [1.0, 4.0], [5.0, 4.0], [5.0, 2.0]];
    assert_eq!(pooled, expected.map(Vec::from));
}

/// A small model in a directory, to which files of sentence-transformers are added.
struct Sentence(tempfile::TempDir);

impl Sentence {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["config.json", "model.safetensors"] {
            std::fs::copy(golden("bert").join(name), dir.path().join(name)).unwrap();
        }
        let sentence = Sentence(dir);
        sentence.modules(&["Transformer", "Pooling", "Normalize"]);
        sentence
    }

    fn write(&self, file: &str, content: &str) -> &Self {
        let path = self.0.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        self
    }

    /// Writes `modules.json` with these modules; each has a folder but for the first.
    fn modules(&self, names: &[&str]) -> &Self {
        let module = |(place, name): (usize, &&str)| {
            let path = if place == 0 {
                String::new()
            } else {
                format!("{place}_{name}")
            };
            format!(r#"{{"path": "{path}", "type": "sentence_transformers.models.{name}"}}"#)
        };
        let modules: Vec<String> = names.iter().enumerate().map(module).collect();
        self.write("modules.json", &format!("[{}]", modules.join(", ")))
    }

    fn options(&self) -> Result<EmbedOptions, String> {
        let source = Bert::from_pretrained(self.0.path()).unwrap().source;
        EmbedOptions::of(&source, 9).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn refused(&self, part: &str) {
        let error = self.options().unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

const POOLING: &str = "1_Pooling/config.json";

#[test]
fn pooling_is_read_from_both_forms() {
    let sentence = Sentence::new();
    for (config, pooling) in [
        (r#"{"pooling_mode_mean_tokens": true}"#, Pooling::Mean),
        (r#"{"pooling_mode_cls_token": true}"#, Pooling::Cls),
        (r#"{"word_embedding_dimension": 12}"#, Pooling::Mean),
        (
            r#"{"pooling_mode": "cls", "embedding_dimension": 12}"#,
            Pooling::Cls,
        ),
        (
            r#"{"pooling_mode": ["max"], "include_prompt": true}"#,
            Pooling::Max,
        ),
        (r#"{"pooling_mode_lasttoken": true}"#, Pooling::LastToken),
    ] {
        let options = sentence.write(POOLING, config).options().unwrap();
        assert_eq!(options.pooling, pooling, "{config}");
        assert!(options.normalize && !options.lowercase);
    }
    for (config, part) in [
        (
            r#"{"pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": true}"#,
            "pooling by `mean`, `max`; supported: one of mean, cls, max, lasttoken",
        ),
        (
            r#"{"pooling_mode": "weightedmean"}"#,
            "pooling by `weightedmean`",
        ),
        (
            r#"{"pooling_mode": "mean", "scale": 2}"#,
            "`scale` is 2, which halite does not know",
        ),
    ] {
        sentence.write(POOLING, config).refused(part);
    }
}

#[test]
fn modules_are_read_from_their_folders() {
    let sentence = Sentence::new();
    let cls = r#"{"pooling_mode": "cls"}"#;
    sentence
        .modules(&["Transformer", "Pooling"])
        .write(POOLING, cls);
    assert!(!sentence.options().unwrap().normalize);
    let modules = r#"[{"path": "", "type": "sentence_transformers.models.Transformer"},
        {"path": "Other", "type": "sentence_transformers.sentence_transformer.modules.pooling.Pooling"}]"#;
    sentence.write("modules.json", modules);
    sentence.refused("names `Other`, which has no config.json");
    sentence.write("Other/config.json", r#"{"pooling_mode_max_tokens": true}"#);
    assert_eq!(sentence.options().unwrap().pooling, Pooling::Max);
    for (modules, part) in [
        (
            modules.replace("\"Other\"", "\"../x\""),
            "the folder `../x` is not below it",
        ),
        (
            modules.replace("models.Transformer", "models.CNN"),
            "a module `sentence_transformers.models.CNN`",
        ),
        (
            modules.replace("sentence_transformers.models.", "custom."),
            "a module `custom.Transformer`",
        ),
        (
            modules.replace("Other", "Other\", \"kwargs\": [\"task\"], \"x\": \"1"),
            "`kwargs` is [\"task\"]",
        ),
    ] {
        sentence.write("modules.json", &modules).refused(part);
    }
    sentence
        .modules(&["Transformer", "Normalize", "Pooling"])
        .refused("after a module");
    sentence
        .modules(&["Transformer", "Normalize"])
        .refused("has no `Pooling`");
}

#[test]
fn lengths_of_texts_are_those_of_the_model() {
    let sentence = Sentence::new();
    sentence.write(POOLING, "{}");
    let longest = |sentence: &Sentence| sentence.options().unwrap().longest;
    assert_eq!(longest(&sentence), 9);
    sentence.write(
        "tokenizer_config.json",
        r#"{"model_max_length": 1e30, "anything": 1}"#,
    );
    assert_eq!(longest(&sentence), 9);
    sentence.write("tokenizer_config.json", r#"{"model_max_length": 7}"#);
    assert_eq!(longest(&sentence), 7);
    let file = "sentence_bert_config.json";
    sentence.write(file, r#"{"max_seq_length": 5, "do_lower_case": true}"#);
    assert_eq!(longest(&sentence), 5);
    assert!(sentence.options().unwrap().lowercase);
    sentence.write(
        file,
        r#"{"modality_config": {"text": {"method": "get_text_features"}}}"#,
    );
    sentence.refused("`modality_config.text.method` is `get_text_features`; supported: `forward`");
    sentence.write(
        file,
        r#"{"modality_config": {"image": {"method": "forward"}}}"#,
    );
    sentence.refused("`modality_config.image` is ");
    sentence.write(file, "{}");
    let prompts = r#"{"prompts": {"query": "query: "}, "default_prompt_name": "query"}"#;
    sentence.write("config_sentence_transformers.json", prompts);
    sentence.refused("`default_prompt_name` is \"query\"");
}

/// Files of the packages before `transformers`.
#[test]
fn norms_of_old_files_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = open(golden("bert")).unwrap();
    let infos: Vec<TensorInfo> = (file.tensors().iter())
        .map(|info| TensorInfo {
            name: info
                .name
                .replace("LayerNorm.weight", "LayerNorm.gamma")
                .replace("LayerNorm.bias", "LayerNorm.beta"),
            ty: info.ty.clone(),
        })
        .collect();
    assert!(
        infos
            .iter()
            .any(|info| info.name == "embeddings.LayerNorm.gamma")
    );
    let path = dir.path().join("model.safetensors");
    let mut writer = SafetensorsWriter::create(&path, &infos, &Default::default()).unwrap();
    for info in file.tensors() {
        writer.write(&file.read(&info.name).unwrap()).unwrap();
    }
    writer.finish().unwrap();
    std::fs::copy(golden("bert/config.json"), dir.path().join("config.json")).unwrap();
    let client = clients()[1];
    let [old, new] = [dir.path().to_owned(), golden("bert")]
        .map(|path| Bert::from_pretrained(path).unwrap().load(client).unwrap());
    for (old, new) in old.leaves().into_iter().zip(new.leaves()) {
        assert_eq!(old.read().unwrap(), new.read().unwrap());
    }
}

#[test]
fn mean_of_f16_does_not_overflow() {
    let client = clients()[1];
    let program = Jit::<Empty<()>, [Leaf<()>; 2], Leaf<()>>::function(
        client,
        |_, [Leaf(features), Leaf(mask)]: [Leaf<Tensor<'_>>; 2]| {
            let mean = Pooling::Mean.pool(features.convert(DType::F16), mask);
            Leaf(mean.convert(DType::F32))
        },
    );
    let features = Leaf(Array::from_slice(client, &[300.0f32; 300], [1, 300, 1]).unwrap());
    let mask = Leaf(Array::from_slice(client, &[true; 300], [1, 300]).unwrap());
    let Leaf(mean) = program
        .run_with(Tree::leaf_refs(&[features, mask]))
        .unwrap();
    assert_eq!(mean.to_vec::<f32>().unwrap(), [300.0]);
}
