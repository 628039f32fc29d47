//! `halite train ct`: from JPEG files and a table to ROC-AUC.

use std::{collections::BTreeMap, fs, path::Path};

use halite::{
    HostArray,
    backends::Accelerator,
    data::{Table, group_k_fold, images::CT_LABELS},
    models::ResNet,
    train::Trainer,
    weights::{SafetensorsWriter, TensorInfo},
};

use super::support::{assert_contains, fails, halite, succeeds};

/// 20 images of five studies.
fn generated(dir: &Path) {
    let fake = "data fake ct --out ./ct --studies 5 --slices 4 --side 40";
    succeeds(halite(fake).current_dir(dir));
}

/// A run of two epochs with random transforms.
const RUN: &str = "train ct --data ./ct --model resnet18 --max-epochs 2 --quiet --log-every 1 \
                   --transforms 32,random-resized-crop=0.6..1,rotate=10,brightness=0.2";

#[test]
fn unusable_tables_of_ct_are_named() {
    let dir = tempfile::tempdir().unwrap();
    generated(dir.path());
    let error = |rest: &str| fails(halite(&format!("{RUN} {rest}")).current_dir(dir.path()));
    assert_contains(&error("--fold 5"), &["--fold 5 of --folds 5"]);
    assert_contains(&error("--labels absent"), &["no column `absent`"]);
    assert_contains(&error("--folds 6"), &["5", "6"]);
    let path = dir.path().join("ct/train.csv");
    let text = fs::read_to_string(&path).unwrap();
    let first = text.lines().nth(1).unwrap();
    let (ids, _) = first.rsplit_once(',').unwrap();
    fs::write(&path, format!("{text}{ids},2\n")).unwrap();
    assert_contains(&error(""), &["line 22", "2 is out of range"]);
    fs::write(&path, format!("{text}{}\n", first.replacen(',', "x,", 1))).unwrap();
    assert_contains(&error(""), &["line 22"]);
}

/// Names and dimensions of the state dict of torchvision's `resnet18`.
fn torchvision_resnet18(classes: usize) -> Vec<(String, Vec<usize>)> {
    let mut tensors = Vec::new();
    let mut conv = |conv: String, norm: String, dims: [usize; 4]| {
        tensors.push((format!("{conv}.weight"), dims.to_vec()));
        for name in ["weight", "bias", "running_mean", "running_var"] {
            tensors.push((format!("{norm}.{name}"), vec![dims[0]]));
        }
        tensors.push((format!("{norm}.num_batches_tracked"), vec![]));
    };
    conv("conv1".into(), "bn1".into(), [64, 3, 7, 7]);
    for stage in 0..4 {
        let outputs = 64 << stage;
        for block in 0..2 {
            let inputs = if block == 0 && stage > 0 {
                outputs / 2
            } else {
                outputs
            };
            let at = format!("layer{}.{block}", stage + 1);
            conv(
                format!("{at}.conv1"),
                format!("{at}.bn1"),
                [outputs, inputs, 3, 3],
            );
            conv(
                format!("{at}.conv2"),
                format!("{at}.bn2"),
                [outputs, outputs, 3, 3],
            );
            if inputs != outputs {
                let (convolution, norm) =
                    (format!("{at}.downsample.0"), format!("{at}.downsample.1"));
                conv(convolution, norm, [outputs, inputs, 1, 1]);
            }
        }
    }
    tensors.push(("fc.weight".into(), vec![classes, 512]));
    tensors.push(("fc.bias".into(), vec![classes]));
    tensors
}

/// Writes weights with torchvision's names, all of one value.
fn write_torchvision(path: &Path, classes: usize, value: f32) {
    let array = |(name, dims): (String, Vec<usize>)| {
        let count = dims.iter().product();
        let array = match name.ends_with("num_batches_tracked") {
            true => HostArray::from_slice(&[1i64], dims).unwrap(),
            false => HostArray::from_slice(&vec![value; count], dims).unwrap(),
        };
        (name, array)
    };
    let tensors: Vec<_> = torchvision_resnet18(classes)
        .into_iter()
        .map(array)
        .collect();
    let info = |(name, array): &(String, HostArray)| TensorInfo {
        name: name.clone(),
        ty: array.ty().clone(),
    };
    let infos: Vec<TensorInfo> = tensors.iter().map(info).collect();
    let mut file = SafetensorsWriter::create(path, &infos, &BTreeMap::new()).unwrap();
    for (_, array) in &tensors {
        file.write(array).unwrap();
    }
    file.finish().unwrap();
}

/// Trains a step at a rate that changes nothing, from a file of weights of 0.01 with this many
/// classes. Returns the bias of the head, and what the command printed.
fn trained_from_torchvision(classes: usize, options: &str) -> (Vec<f32>, String) {
    let dir = tempfile::tempdir().unwrap();
    generated(dir.path());
    write_torchvision(&dir.path().join("resnet18.safetensors"), classes, 0.01);
    let arguments = format!(
        "{RUN} --accelerator embedded:1 --batch-size 2 --max-steps 1 --learning-rate 1e-30 --out ./run \
         --weights ./resnet18.safetensors {options}"
    );
    let ended = succeeds(halite(&arguments).current_dir(dir.path()));
    let client = Accelerator::embedded().open().unwrap();
    let trainer = Trainer::builder(&client).build().unwrap();
    let net = ResNet::resnet18(CT_LABELS.len());
    let net = trainer.load(&net, dir.path().join("run")).unwrap();
    let last = &net.stages[3][1].convolutions[1].conv.weight;
    assert!(last.to_vec::<f32>().unwrap() == vec![0.01; 9 << 18]);
    (net.head.bias.unwrap().to_vec().unwrap(), ended.stderr)
}

#[test]
fn torchvision_weights_lose_only_their_head() {
    let (bias, printed) = trained_from_torchvision(1000, "");
    assert!(!bias.contains(&0.01), "{bias:?}");
    let at = printed.find("replaced:").expect("a report");
    let report: Vec<&str> = printed[at..].lines().take(4).collect();
    assert_contains(report[1], &["`head.weight`: `fc.weight` "]);
    assert_contains(report[2], &["`head.bias`: `fc.bias` "]);
    let next = report.get(3);
    assert!(next.is_none_or(|line| !line.starts_with("  ")), "{printed}");
    assert!(!printed.contains("unexpected"), "{printed}");
}

#[test]
fn head_of_weights_is_kept_if_asked() {
    let (bias, _) = trained_from_torchvision(CT_LABELS.len(), "--keep-head");
    assert_eq!(bias, [0.01; 10]);
}

/// Mean binary cross entropy of probabilities, over rows and labels.
fn loss(predictions: &Table, truth: &Table) -> f64 {
    let of_label = |label: &&str| -> f64 {
        let [predictions, truth] =
            [predictions, truth].map(|table| table.column::<f64>(label).unwrap());
        let of_row = |(p, y): (&f64, &f64)| -(y * p.ln() + (1.0 - y) * (1.0 - p).ln());
        predictions.iter().zip(&truth).map(of_row).sum()
    };
    let sum: f64 = CT_LABELS.iter().map(of_label).sum();
    sum / (truth.len() * CT_LABELS.len()) as f64
}

#[test]
fn best_checkpoint_predicts_without_labels() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    generated(dir.path());
    let run = format!("{RUN} --accelerator embedded:1 --batch-size 4 --out ./run");
    succeeds(halite(&run).current_dir(dir.path()));

    // The images of validation give the loss that the run reported.
    let text = fs::read_to_string(path("ct/train.csv")).unwrap();
    let table = Table::read(path("ct/train.csv")).unwrap();
    let folds = group_k_fold(&table.strings("StudyInstanceUID").unwrap(), 5).unwrap();
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(number, _)| *number == 0 || folds[number - 1] == 0);
    let lines: Vec<&str> = lines.map(|(_, line)| line).collect();
    fs::write(path("truth.csv"), lines.join("\n")).unwrap();
    let ids = |line: &&str| line.split(',').take(3).collect::<Vec<_>>().join(",");
    let unlabeled: Vec<String> = lines.iter().map(ids).collect();
    fs::write(path("unlabeled.csv"), unlabeled.join("\n")).unwrap();
    let predict = "predict ./run --data ./ct --csv ./unlabeled.csv --images ./ct/train --out ./valid.csv \
                   --batch-size 3 --accelerator embedded:2";
    let ended = succeeds(halite(predict).current_dir(dir.path()));
    assert_eq!(ended.stdout, "valid.csv: 4 images, 10 labels\n");
    let [predictions, truth] =
        ["valid.csv", "truth.csv"].map(|name| Table::read(path(name)).unwrap());
    assert_eq!(predictions.columns(), truth.columns());
    assert_eq!(
        predictions.strings("SOPInstanceUID").unwrap(),
        truth.strings("SOPInstanceUID").unwrap()
    );
    let losses = validation_losses(&path("run"));
    let best = losses.iter().copied().fold(f64::INFINITY, f64::min);
    let found = loss(&predictions, &truth);
    assert_eq!(losses.len(), 2);
    assert!((found - best).abs() < 1e-5, "{found}, reported {losses:?}");

    // By default the images of test.csv.
    let predict = "predict ./run --data ./ct --out ./test.csv --accelerator embedded:1";
    let ended = succeeds(halite(predict).current_dir(dir.path()));
    assert_eq!(ended.stdout, "test.csv: 4 images, 10 labels\n");
    let export = "export ./run --output ./ct.jax --batch-size 2";
    succeeds(halite(export).current_dir(dir.path()));

    let error = |rest: &str| fails(halite(&format!("predict {rest}")).current_dir(dir.path()));
    assert_contains(&error("./none --data ./ct --out ./x.csv"), &["none"]);
    let absent = error("./run --data ./ct --csv ./absent.csv --out ./x.csv");
    assert_contains(&absent, &["absent.csv"]);
    let folder = error("./run --data ./ct --out ./ct --accelerator embedded:1");
    assert_contains(&folder, &["cannot write ct"]);
}

/// Validation loss of each epoch.
fn validation_losses(run: &Path) -> Vec<f64> {
    let metrics = Table::read(run.join("metrics.csv")).unwrap();
    let [splits, losses] = ["split", "loss"].map(|column| metrics.strings(column).unwrap());
    let validation = splits.iter().zip(losses);
    let validation = validation.filter(|(split, _)| **split == "validation");
    validation.map(|(_, loss)| loss.parse().unwrap()).collect()
}

#[test]
fn ct_folds_keep_the_groups_of_a_flat_folder() {
    let dir = tempfile::tempdir().unwrap();
    generated(dir.path());
    let flat = dir.path().join("flat");
    fs::create_dir(&flat).unwrap();
    let folders = |path: &Path| {
        fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path())
    };
    for study in folders(&dir.path().join("ct/train")) {
        for image in folders(&study).flat_map(|series| folders(&series).collect::<Vec<_>>()) {
            fs::rename(&image, flat.join(image.file_name().unwrap())).unwrap();
        }
    }
    let run = |rest: &str| {
        let flags = format!(
            "{RUN} --accelerator embedded --images ./flat --ids SOPInstanceUID --labels \
             pe_present_on_image --batch-size 4 --fast-dev-run 1 {rest}"
        );
        succeeds(halite(&flags).current_dir(dir.path())).stderr
    };
    let grouped = run("--group StudyInstanceUID");
    let parts = [
        "5 groups by `StudyInstanceUID`, each in one of 5 folds",
        "16 images of training, 4 of validation",
    ];
    assert_contains(&grouped, &parts);
    assert_contains(&run(""), &["--group COLUMN keeps them together"]);
}
