//! Photographs, classified by published weights of EfficientNet-Lite0 (`golden/vision.py`).

use std::collections::BTreeMap;

use halite_core::{Array, HostArray, Sharding};
use halite_data::images::read_image;
use halite_fetch::{Cache, Client, FileSpec, Package, Quiet};
use halite_models::{
    Classifier, ClassifyColor, EfficientNet, LITE0_FILE, LITE0_WEIGHTS, Normalization,
};
use halite_tests::eval::client;
use halite_weights::{WeightLoader, open};
use serde::Deserialize;

use crate::vision::golden;

/// Photographs of the package `scikit-image`.
const PHOTOGRAPHS: Package = Package {
    client: Client::Wheel {
        python: "3.11",
        platform: "manylinux_2_28_x86_64",
    },
    name: "scikit-image",
    version: "0.26.0",
    archive_size: 13_711_217,
    archive_sha256: Some("74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af"),
    files: &[
        FileSpec::plain(
            "skimage/data/astronaut.png",
            "astronaut.png",
            791_555,
            "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5",
        ),
        FileSpec::plain(
            "skimage/data/camera.png",
            "camera.png",
            139_512,
            "b0793d2adda0fa6ae899c03989482bff9a42d3d5690fc7e3648f2795d730c23a",
        ),
        FileSpec::plain(
            "skimage/data/chelsea.png",
            "chelsea.png",
            240_512,
            "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb",
        ),
        FileSpec::plain(
            "skimage/data/coffee.png",
            "coffee.png",
            466_706,
            "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7",
        ),
        FileSpec::plain(
            "skimage/data/motorcycle_left.png",
            "motorcycle_left.png",
            644_701,
            "db18e9c4157617403c3537a6ba355dfeafe9a7eabb6b9b94cb33f6525dd49179",
        ),
    ],
    parts: &[],
};

#[derive(Deserialize)]
struct Photograph {
    pixel_sum: u64,
    logits: Vec<f64>,
}

/// The central square, averaged over squares of whole pixels to 224x224: as `shrunk` of `vision.py`.
fn shrunk(image: &HostArray) -> Vec<u8> {
    let [height, width] = [image.ty().dims()[0], image.ty().dims()[1]];
    let factor = (height.min(width) / SIDE).max(1);
    let area = factor * factor;
    let [top, left] = [height, width].map(|side| (side - factor * SIDE) / 2);
    let mut pixels = Vec::with_capacity(3 * SIDE * SIDE);
    for row in 0..SIDE {
        for column in 0..SIDE {
            for channel in 0..3 {
                let value = |place: usize| {
                    let row = top + factor * row + place / factor;
                    let column = left + factor * column + place % factor;
                    usize::from(image.bytes()[3 * (row * width + column) + channel])
                };
                let sum: usize = (0..area).map(value).sum();
                pixels.push(((sum + area / 2) / area) as u8);
            }
        }
    }
    pixels
}

const SIDE: usize = 224;

/// Published weights of EfficientNet-Lite0 name five photographs, with the logits of PyTorch.
#[test]
fn photographs_have_logits_of_pytorch() {
    let cache = Cache::open(None).unwrap();
    let photographs = cache.ensure(&PHOTOGRAPHS, &mut Quiet).unwrap();
    let weights = cache.ensure(&LITE0_WEIGHTS, &mut Quiet).unwrap();
    let golden = golden::<BTreeMap<String, Photograph>>("photographs.json");
    let mut pixels = Vec::new();
    for (name, expected) in &golden {
        let image = shrunk(&read_image(photographs.path(name)).unwrap());
        let sum: u64 = image.iter().map(|&pixel| u64::from(pixel)).sum();
        assert_eq!(sum, expected.pixel_sum, "{name}");
        pixels.extend(image);
    }
    let images = HostArray::from_slice(&pixels, [golden.len(), SIDE, SIDE, 3]).unwrap();
    let file = open(weights.path(LITE0_FILE)).unwrap();
    let net = EfficientNet::lite0(1000);
    let loaded = WeightLoader::new(&file, &net.names())
        .load(client(), &net)
        .unwrap();
    let normalization = Normalization::EFFICIENTNET_LITE;
    let device = Sharding::single(client().local_devices()[0]);
    let images = Array::upload(client(), &images, &device).unwrap();
    let forward = halite_nn::jit_like(client(), (&loaded.model, &images), move |cx, (model, x)| {
        cx.set_mode(false, None);
        [model.forward(normalization.forward(x))]
    });
    let [logits] = forward.run((&loaded.model, &images)).unwrap();
    let logits = logits.to_vec::<f32>().unwrap();
    let mut named = Vec::new();
    for (logits, (name, expected)) in logits.chunks(1000).zip(&golden) {
        for (found, expected) in logits.iter().zip(&expected.logits) {
            let off = (f64::from(*found) - expected).abs();
            assert!(
                off <= 1e-4,
                "{name}: {found}, not {expected}: off by {off:e}"
            );
        }
        let best = (0..1000).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
        named.push((name.as_str(), best.unwrap()));
    }
    // Football helmet, tripod, tiger cat, espresso, moped.
    let expected = [
        ("astronaut.png", 560),
        ("camera.png", 872),
        ("chelsea.png", 282),
        ("coffee.png", 967),
        ("motorcycle_left.png", 665),
    ];
    assert_eq!(named, expected);

    let host = HostArray::from_slice(&pixels[..3 * SIDE * SIDE], [1, SIDE, SIDE, 3]).unwrap();
    let classifier: Classifier = "efficientnet-lite0".parse().unwrap();
    let probabilities = classifier.probabilities(client(), &file, &host).unwrap();
    let best = probabilities.as_slice::<f32>().unwrap()[560];
    assert!((best - 0.189).abs() < 1e-3, "{best}");
    let task = ClassifyColor::<EfficientNet<()>>::new(normalization);
    let gray = HostArray::from_slice(&[0u8; 16], [1, 4, 4]).unwrap();
    let error = task
        .probabilities(client(), &loaded.model, &gray)
        .unwrap_err();
    assert!(error.to_string().contains("u8[1, 4, 4]"), "{error}");
}
