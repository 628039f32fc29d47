//! Image classifiers, compared with torchvision and timm (`golden/vision.py`).

use std::{collections::BTreeMap, fs, path::PathBuf};

use halite_core::{Array, DType, Error, HostArray, Result, Sharding, TensorType, Tree};
use halite_models::{
    ColorImageModel, EfficientNet, EfficientNetConfig, ResNet, ResNetConfig, Vit, VitConfig,
};
use halite_nn::{Mean, Model, Param, cross_entropy, grad, jit_vec};
use halite_tests::eval::client;
use halite_weights::{
    HostTensors, NameMap, TensorInfo, TensorSource, WeightLoader, WeightSaver, open,
};
use serde::{Deserialize, de::DeserializeOwned};

pub(crate) fn golden<T: DeserializeOwned>(name: &str) -> T {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    serde_json::from_str(&text).expect("the golden file is as vision.py writes it")
}

/// A small model whose weights are a formula of their names.
#[derive(Deserialize)]
struct Case {
    tensors: BTreeMap<String, Vec<usize>>,
    images: Vec<usize>,
    logits: Vec<f64>,
    loss: f64,
    /// Projection on a direction, and norm.
    gradients: BTreeMap<String, [f64; 2]>,
}

/// As `formula` of `vision.py`.
fn formula(name: &str, dims: &[usize]) -> HostArray {
    let places = name.bytes().enumerate();
    let hash = places
        .map(|(place, byte)| usize::from(byte) * (place + 1))
        .sum::<usize>()
        % 1000;
    let count: usize = dims.iter().product();
    let value = |element: usize| {
        let wave = (12.9898 * (element + 1) as f64 + hash as f64).sin();
        if name.ends_with("running_var") {
            1.0 + 0.5 * wave
        } else if dims.len() > 1 {
            wave * (6.0 / (count / dims[0]) as f64).sqrt()
        } else {
            0.2 * wave + f64::from(u8::from(name.ends_with("weight")))
        }
    };
    let values: Vec<f64> = (0..count).map(value).collect();
    HostArray::from_slice(&values, dims).unwrap()
}

/// Largest difference, relative to 1 or to larger values. Batch norm of few values, in many layers,
/// amplifies rounding.
const TOLERANCE: f64 = 1e-9;

#[track_caller]
fn close(what: &str, found: f64, expected: f64) {
    let off = (found - expected).abs();
    assert!(
        off <= TOLERANCE * (1.0 + expected.abs()),
        "{what} is {found}, not {expected}: off by {off:e}"
    );
}

/// Compares logits of evaluation, and loss and gradients of training, in `f64`.
#[track_caller]
fn check<M: ColorImageModel>(case: &str, net: M::Of<Param>, names: &NameMap) {
    let case = &golden::<BTreeMap<String, Case>>("vision.json")[case];
    let described = (case.tensors.iter()).map(|(name, dims)| (name, formula(name, dims)));
    let weights: HostTensors = described.collect();
    let net = net.map_leaves(|_, param| param.with_dtype(DType::F64));
    let loaded = WeightLoader::new(&weights, names).load(client(), &net);
    let loaded = loaded.unwrap_or_else(|error| panic!("{error}"));
    assert!(loaded.report.unused_rules.is_empty(), "{}", loaded.report);

    let pixels: usize = case.images.iter().product();
    let pixels: Vec<f64> = (0..pixels)
        .map(|place| (0.7 * place as f64).sin())
        .collect();
    let classes = case.logits.len() / case.images[0];
    let labels: Vec<i32> = (0..case.images[0])
        .map(|row| (row % classes) as i32)
        .collect();
    let device = Sharding::single(client().local_devices()[0]);
    let upload = |host: HostArray| Array::upload(client(), &host, &device).unwrap();
    let x = upload(HostArray::from_slice(&pixels, &case.images).unwrap());
    let y = upload(HostArray::from_slice(&labels, [labels.len()]).unwrap());

    let description = net.clone();
    let step = jit_vec(client(), move |cx, inputs| {
        let (leaves, data) = inputs.split_at(inputs.len() - 2);
        let model = description.rebuild(leaves.iter().copied());
        cx.set_mode(false, None);
        let logits = M::logits(&model, data[0]);
        cx.set_mode(true, None);
        let loss = Mean::of(cross_entropy(M::logits(&model, data[0]), data[1])).value();
        let gradients = grad(loss, &model).into_leaves();
        cx.discard_updates();
        [logits, loss].into_iter().chain(gradients).collect()
    });
    let mut inputs = loaded.model.into_leaves();
    inputs.extend([x, y]);
    let mut results = step.run(&inputs).unwrap_or_else(|error| panic!("{error}"));
    let gradients = net.rebuild(results.split_off(2));
    let logits = results[0].read().unwrap();
    for (place, (found, expected)) in logits
        .as_slice::<f64>()
        .unwrap()
        .iter()
        .zip(&case.logits)
        .enumerate()
    {
        close(&format!("logit {place}"), *found, *expected);
    }
    close("loss", results[1].item().unwrap(), case.loss);

    // In the layouts of the original.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gradients.safetensors");
    WeightSaver::new(names)
        .save(&net, &gradients, &path)
        .unwrap();
    let gradients = open(&path).unwrap();
    for (name, [projection, norm]) in &case.gradients {
        let gradient = gradients.read(name).unwrap();
        let (mut along, mut square) = (0.0, 0.0);
        for (place, value) in gradient.as_slice::<f64>().unwrap().iter().enumerate() {
            along += value * (0.7 * place as f64 + 1.0).sin();
            square += value * value;
        }
        close(
            &format!("projection of the gradient of {name}"),
            along,
            *projection,
        );
        close(
            &format!("norm of the gradient of {name}"),
            square.sqrt(),
            *norm,
        );
    }
}

#[test]
fn resnet_matches_torchvision() {
    let net = ResNet::new(&ResNetConfig {
        blocks: [1, 2, 1, 1],
        bottleneck: false,
        width: 4,
        classes: 5,
    });
    let names = net.names();
    check::<ResNet<()>>("resnet", net, &names);
}

#[test]
fn bottleneck_resnet_matches_torchvision() {
    let net = ResNet::new(&ResNetConfig {
        blocks: [1, 2, 1, 1],
        bottleneck: true,
        width: 2,
        classes: 7,
    });
    let net = net.cifar_stem();
    let names = net.names();
    check::<ResNet<()>>("resnet_bottleneck", net, &names);
}

#[test]
fn efficientnet_matches_timm() {
    let net = EfficientNet::new(&EfficientNetConfig {
        width: 0.5,
        depth: 1.1,
        dropout: 0.0,
        stochastic_depth: 0.0,
        classes: 6,
    });
    let names = net.timm_names();
    check::<EfficientNet<()>>("efficientnet", net, &names);
}

#[test]
fn vit_matches_torchvision() {
    let net = Vit::new(&VitConfig {
        image: 8,
        patch: 4,
        layers: 3,
        hidden_size: 8,
        heads: 2,
        mlp_size: 12,
        classes: 5,
        dropout: 0.0,
        remat: None,
    });
    let net = net.unwrap();
    let names = net.names();
    check::<Vit<()>>("vit", net, &names);
}

/// Names and types of a file that has no data.
struct Header(Vec<TensorInfo>);

impl TensorSource for Header {
    fn origin(&self) -> String {
        "a list of names".to_owned()
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.0
    }

    fn read_elements(&self, _: usize, _: std::ops::Range<usize>, _: &mut [u8]) -> Result<()> {
        Err(Error::invalid("header", "it has no data"))
    }
}

/// The tensors of a whole model in torchvision or timm are those of the map.
#[track_caller]
fn check_names<M: Tree<Leaf = Param>>(model: &str, net: &M, names: &NameMap) {
    let golden = golden::<BTreeMap<String, BTreeMap<String, Vec<usize>>>>("vision_names.json");
    let infos = golden[model].iter().map(|(name, dims)| TensorInfo {
        name: name.clone(),
        ty: TensorType::new(DType::F32, dims),
    });
    let header = Header(infos.collect());
    let report = WeightLoader::new(&header, names).report(net).unwrap();
    assert!(report.is_complete(), "{model}: {report}");
    assert!(report.unused_rules.is_empty(), "{model}: {report}");
}

#[test]
fn names_are_those_of_torchvision() {
    for (name, net) in [
        ("resnet18", ResNet::resnet18(1000)),
        ("resnet34", ResNet::resnet34(1000)),
        ("resnet50", ResNet::resnet50(1000)),
    ] {
        check_names(name, &net, &net.names());
    }
    let vit = Vit::new(&VitConfig::b16(1000)).unwrap();
    check_names("vit_b_16", &vit, &vit.names());
}

#[test]
fn names_are_those_of_timm() {
    let (lite1, lite4) = (EfficientNet::lite1(1000), EfficientNet::lite4(1000));
    check_names("efficientnet_lite1", &lite1, &lite1.timm_names());
    check_names("efficientnet_lite4", &lite4, &lite4.timm_names());
    let vit = Vit::new(&VitConfig::s16(1000)).unwrap();
    check_names("vit_small_patch16_224", &vit, &vit.timm_names());
}

#[test]
fn parameters_are_those_of_the_originals() {
    let count = |leaves: Vec<&Param>| -> usize {
        let trained = leaves.into_iter().filter(|param| param.trainable);
        trained.map(|param| param.ty.elements()).sum()
    };
    for (net, expected) in [
        (ResNet::resnet18(1000), 11_689_512),
        (ResNet::resnet34(1000), 21_797_672),
        (ResNet::resnet50(1000), 25_557_032),
    ] {
        assert_eq!(count(net.leaves()), expected);
    }
    for (net, expected) in [
        (EfficientNet::lite0(1000), 4_652_008),
        (EfficientNet::lite2(1000), 6_092_072),
        (EfficientNet::lite3(1000), 8_197_096),
    ] {
        assert_eq!(count(net.leaves()), expected);
    }
    for (config, expected) in [
        (VitConfig::s16(1000), 22_050_664),
        (VitConfig::l16(1000), 304_326_632),
        (VitConfig::ten_billion(1000), 10_077_927_400),
    ] {
        assert_eq!(count(Vit::new(&config).unwrap().leaves()), expected);
    }
}

/// A head for other classes is trained, saved under torchvision's names, and loaded again.
#[test]
fn resnet_with_new_head_is_saved_by_original_names() {
    let narrow = |classes| {
        ResNet::new(&ResNetConfig {
            blocks: [1, 1, 1, 1],
            bottleneck: false,
            width: 4,
            classes,
        })
        .cifar_stem()
    };
    let dir = tempfile::tempdir().unwrap();
    let [published, tuned] = ["published", "tuned"].map(|name| dir.path().join(name));
    let (old, new) = (narrow(5), narrow(3));
    let names = old.names();
    let values = old.initialize(client(), 1).unwrap();
    WeightSaver::new(&names)
        .save(&old, &values, &published)
        .unwrap();
    let file = open(&published).unwrap();
    let loaded = WeightLoader::new(&file, &names)
        .replace("head")
        .load(client(), &new);
    let loaded = loaded.unwrap();
    assert_eq!(loaded.report.replaced.len(), 2);
    WeightSaver::new(&names)
        .save(&new, &loaded.model, &tuned)
        .unwrap();
    let [before, after] = [published, tuned].map(|path| open(path).unwrap());
    for tensor in before.tensors() {
        let [before, after] = [&before, &after].map(|file| file.read(&tensor.name).unwrap());
        match tensor.name.starts_with("fc.") {
            true => assert_eq!(after.ty().dims()[0], 3),
            false => assert_eq!(before, after),
        }
    }
}

#[test]
fn vit_refuses_images_of_another_size() {
    let config = VitConfig {
        image: 30,
        heads: 7,
        ..VitConfig::s16(10)
    };
    let error = Vit::new(&config).unwrap_err().to_string();
    assert!(
        error.contains("30 is not a multiple of patch 16"),
        "{error}"
    );
    assert!(
        error.contains("384 is not a multiple of heads 7"),
        "{error}"
    );
    let cx = halite_nn::Trace::new();
    let vit = Vit::new(&VitConfig::s16(10)).unwrap();
    let vit = vit.map_leaves(|path, param: Param| cx.input(param.ty, path.to_string()));
    let images = cx.input(TensorType::new(DType::F32, [2, 32, 224, 3]), "images");
    let _ = vit.forward(images);
    let mistakes = cx.mistakes();
    assert_eq!(mistakes.len(), 1);
    let message = mistakes[0].to_string();
    assert!(
        message.contains("expected [batch, 224, 224, 3]"),
        "{message}"
    );
}
