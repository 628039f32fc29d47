//! `halite classify` and `halite train imagenet`.

use std::{fs, path::Path};

use halite::{
    HostArray,
    backends::Accelerator,
    data::Table,
    exchange::npy,
    models::{ClassifyColor, Normalization, ResNet},
    train::Trainer,
};

use super::support::{assert_contains, fails, halite, halite_alone, report, run, succeeds};

/// A PNG of one color, 8x8, in a folder of a class.
pub(crate) fn write(dir: &Path, name: &str, color: [u8; 3]) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 8, 8);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&color.repeat(64)).unwrap();
    drop(writer);
    fs::write(path, file).unwrap();
}

#[test]
fn folders_train_a_classifier_that_classifies() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..20u8 {
        let file = |class: &str| format!("pictures/{class}/{number}.png");
        write(dir.path(), &file("green"), [10, 200 + number, 30]);
        write(dir.path(), &file("red"), [200 + number, 10, 30]);
    }
    let arguments = "train imagenet --data ./pictures --model resnet18 --side 16 --batch-size 4 --quiet \
                     --max-steps 20 --benchmark --learning-rate 0.01 --out ./run --accelerator cpu:1";
    let ended = succeeds(halite(arguments).current_dir(dir.path()));
    let summary = "benchmark: samples a second over 3 groups of 5 steps: mean ";
    assert_contains(
        &ended.stdout,
        &[summary, "median ", "90th percentile ", "deviation "],
    );
    let names = fs::read_to_string(dir.path().join("run/classes.txt")).unwrap();
    assert_eq!(names, "green\nred\n");
    let report = report(&dir.path().join("run"));
    assert_eq!(report["steps"].as_u64(), Some(20), "{report}");

    // Exported, it gives the probabilities of the library.
    let export = "export ./run --output ./run.jax --batch-size 2";
    succeeds(halite(export).current_dir(dir.path()));
    let pixels: Vec<u8> = (0..2 * 16 * 16 * 3).map(|i| (i * 37 % 251) as u8).collect();
    let images = HostArray::from_slice(&pixels, [2, 16, 16, 3]).unwrap();
    fs::write(dir.path().join("images.npy"), npy::write(&images)).unwrap();
    let run = "run ./run.jax -i ./images.npy --output ./results --accelerator embedded:1";
    succeeds(halite(run).current_dir(dir.path()));
    let logits = npy::read(&fs::read(dir.path().join("results/0.npy")).unwrap()).unwrap();
    let client = Accelerator::embedded().open().unwrap();
    let trainer = Trainer::builder(&client).build().unwrap();
    let model = trainer
        .load(&ResNet::resnet18(2), dir.path().join("run"))
        .unwrap();
    let task = ClassifyColor::<ResNet<()>>::new(Normalization::IMAGENET);
    let expected = task.probabilities(&client, &model, &images).unwrap();
    let logits = logits.as_slice::<f32>().unwrap().chunks(2);
    for (logits, expected) in logits.zip(expected.as_slice::<f32>().unwrap().chunks(2)) {
        let probability = 1.0 / (1.0 + (logits[1] - logits[0]).exp());
        assert!(
            (probability - expected[0]).abs() < 1e-5,
            "{logits:?}: {expected:?}"
        );
    }

    // So do `predict` and `classify`.
    let pixels = [[10, 203, 30], [207, 10, 30]].map(|color: [u8; 3]| color.repeat(16 * 16));
    let images = HostArray::from_slice(&pixels.concat(), [2, 16, 16, 3]).unwrap();
    let expected = task.probabilities(&client, &model, &images).unwrap();
    let expected = expected.as_slice::<f32>().unwrap();
    let predict = "predict ./run --images ./pictures --out ./classes.csv --batch-size 7 --accelerator embedded:2";
    let ended = succeeds(halite(predict).current_dir(dir.path()));
    assert_eq!(ended.stdout, "classes.csv: 40 images, 2 classes\n");
    let table = Table::read(dir.path().join("classes.csv")).unwrap();
    assert_eq!(table.columns(), ["file", "class", "green", "red"]);
    let files = table.strings("file").unwrap();
    let classify = "classify --run ./run ./pictures/green/3.png ./pictures/red/7.png --top 1 --accelerator \
                    embedded:1";
    let printed = succeeds(halite(classify).current_dir(dir.path())).stdout;
    let printed: Vec<&str> = printed.lines().collect();
    for (image, file) in ["green/3.png", "red/7.png"].into_iter().enumerate() {
        let row = files.iter().position(|name| *name == file).unwrap();
        let found = ["green", "red"].map(|name| table.column::<f32>(name).unwrap()[row]);
        let expected = &expected[2 * image..][..2];
        assert!(
            (found[0] - expected[0]).abs() < 1e-5,
            "{found:?}: {expected:?}"
        );
        assert!((found[0] + found[1] - 1.0).abs() < 1e-5, "{found:?}");
        let class = if found[0] > found[1] { "green" } else { "red" };
        assert_eq!(table.strings("class").unwrap()[row], class);
        let percent = 100.0 * found[0].max(found[1]);
        let line = format!(
            "  {percent:5.1} %  {:>4}  {class}",
            usize::from(class == "red")
        );
        assert_eq!(printed[2 * image + 1], line);
    }
    let error =
        fails(halite("classify --weights ./run ./pictures/red/7.png").current_dir(dir.path()));
    assert_contains(&error, &["a run of `halite train` is given by --run"]);
}

#[test]
fn predictions_are_of_averaged_weights() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..4u8 {
        write(
            dir.path(),
            &format!("pictures/green/{number}.png"),
            [10, 200, number],
        );
        write(
            dir.path(),
            &format!("pictures/red/{number}.png"),
            [200, 10, number],
        );
    }
    let arguments = "train imagenet --data ./pictures --model resnet18 --side 16 --batch-size 4 --quiet \
                     --max-steps 3 --learning-rate 0.001 --ema 0.5 --out ./run --accelerator embedded:1";
    succeeds(halite(arguments).current_dir(dir.path()));
    let predict =
        "predict ./run --images ./pictures/green --out ./classes.csv --accelerator embedded:1";
    succeeds(halite(predict).current_dir(dir.path()));
    let table = Table::read(dir.path().join("classes.csv")).unwrap();
    let client = Accelerator::embedded().open().unwrap();
    let trainer = Trainer::builder(&client).build().unwrap();
    let net = ResNet::resnet18(2);
    let run = dir.path().join("run");
    let task = ClassifyColor::<ResNet<()>>::new(Normalization::IMAGENET);
    let image = HostArray::from_slice(&[10, 200, 0u8].repeat(256), [1, 16, 16, 3]).unwrap();
    let green = |model| {
        let found = task.probabilities(&client, &model, &image).unwrap();
        found.as_slice::<f32>().unwrap()[0]
    };
    let last = green(trainer.load(&net, &run).unwrap());
    let average = green(trainer.load_average(&net, &run).unwrap());
    let predicted = table.column::<f32>("green").unwrap()[0];
    assert!((predicted - average).abs() < 1e-5, "{predicted} {average}");
    assert!((predicted - last).abs() > 1e-4, "{predicted} {last}");
}

#[test]
fn statistics_count_damaged_images() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "set/a/1.png", [200, 0, 0]);
    write(dir.path(), "set/b/2.png", [0, 200, 0]);
    fs::write(dir.path().join("set/b/empty.png"), "").unwrap();
    let ended = succeeds(halite("data stats ./set").current_dir(dir.path()));
    assert_contains(
        &ended.stdout,
        &[
            "images     3, 2 of them decoded, 1 damaged",
            "8x8 (2)",
            "labels     of all 3 images",
        ],
    );
    // The table and the images of `halite train ct --data flat`.
    write(dir.path(), "flat/1.png", [200, 0, 0]);
    write(dir.path(), "flat/2.png", [0, 200, 0]);
    write(dir.path(), "flat/3.png", [0, 0, 0]);
    let table = "file,kind\n1.png,7\n2.png,8\n3.png,8\n";
    fs::write(dir.path().join("flat/train.csv"), table).unwrap();
    let stats = "data stats ./flat --ids file --class kind --count 2";
    let ended = succeeds(halite(stats).current_dir(dir.path()));
    assert_contains(
        &ended.stdout,
        &["3, 2 of them decoded, 1 not read", "8         2   66.7 %"],
    );
}

#[test]
fn run_that_trained_nothing_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    for class in ["a", "b"] {
        write(dir.path(), &format!("set/{class}/1.png"), [200, 0, 0]);
    }
    let broken = dir.path().join("set/a/0.png");
    fs::write(&broken, "").unwrap();
    let arguments = "train imagenet --data ./set --model resnet18 --side 16 --batch-size 3 --quiet \
                     --max-steps 1 --out ./run --accelerator embedded:1";
    let error = fails(halite(arguments).current_dir(dir.path()));
    assert_contains(&error, &["0.png", "it is empty"]);
    write(dir.path(), "set/a/0.png", [0, 200, 0]);
    succeeds(halite(arguments).current_dir(dir.path()));
}

#[test]
fn class_without_training_image_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut table = "file,patient,kind\n".to_string();
    // Patients 4, 2 and 0 are in the fold of the validation.
    for (patient, kind) in ["rare", "a", "a", "b", "b"].into_iter().enumerate() {
        for file in [2 * patient, 2 * patient + 1] {
            write(dir.path(), &format!("pets/{file}.png"), [200, 0, 0]);
            table += &format!("{file}.png,{patient},{kind}\n");
        }
    }
    fs::write(dir.path().join("pets/train.csv"), table).unwrap();
    let arguments = "train ct --data ./pets --ids file --group patient --labels kind --folds 2 --model \
                     resnet18 --side 16 --batch-size 2 --fast-dev-run --quiet --accelerator embedded:1";
    let ended = succeeds(halite(arguments).current_dir(dir.path()));
    assert_contains(
        &ended.stderr,
        &["no training image has `rare`, which the model cannot learn"],
    );
}

#[test]
fn generated_images_need_no_data() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = "train imagenet --fake-data --model resnet18 --side 16 --batch-size 2 --max-steps 3 \
                     --quiet --out ./run --accelerator embedded:1";
    succeeds(halite(arguments).current_dir(dir.path()));
    let report = report(&dir.path().join("run"));
    assert_eq!(report["steps"].as_u64(), Some(3), "{report}");
    assert!(!dir.path().join("run/classes.txt").exists());
    let common = "--fake-data --batch-size 2 --max-steps 2 --quiet --accelerator embedded:1";
    let validated = "--limit-val-batches 1";
    for (data, options) in [
        ("mnist", "--model mlp --limit 8"),
        (
            "text",
            "--model tiny --context 16 --sample 4 --tokenizer bytes",
        ),
    ] {
        let arguments = format!("train {data} {options} {common} {validated} --out ./{data}");
        succeeds(halite_alone(&arguments).current_dir(dir.path()));
        let report = self::report(&dir.path().join(data));
        assert_eq!(report["steps"].as_u64(), Some(2), "{report}");
        assert!(report["metrics"]["loss"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn photograph_is_named_by_published_weights() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "blue.png", [20, 30, 220]);
    let arguments = "classify ./blue.png --top 2 --accelerator cpu:1";
    let ended = succeeds(halite(arguments).current_dir(dir.path()));
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!((lines.len(), lines[0]), (3, "blue.png"), "{ended:?}");
    assert!(lines[1].contains(" %  "), "{ended:?}");
}

#[test]
fn bad_images_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "one/red.png", [200, 0, 0]);
    fs::write(dir.path().join("text.png"), "hello").unwrap();
    fs::write(dir.path().join("empty.jpg"), "").unwrap();
    write(dir.path(), "pictures/one/red.png", [200, 0, 0]);
    write(dir.path(), "pictures/two/blue.png", [0, 0, 200]);
    fs::write(dir.path().join("pictures/two/broken.png"), "hello").unwrap();
    write(dir.path(), "lines/a\nb/1.png", [200, 0, 0]);
    for name in ["train/car", "train/bus", "test/car", "test/bus", "plane"] {
        write(dir.path(), &format!("vehicles/{name}/1.png"), [200, 0, 0]);
    }
    for (arguments, parts) in [
        (
            "classify ./text.png",
            &["text.png", "neither PNG nor JPEG"][..],
        ),
        (
            "classify ./one/red.png --model resnet50",
            &["resnet50 needs --weights FILE"],
        ),
        (
            "train imagenet --data ./one",
            &["one has no folders; expected one for each class"],
        ),
        ("train imagenet --data ./none", &["none"]),
        (
            "train imagenet --data ./vehicles",
            &[
                "`plane`, `test`, `train`, which may be classes or parts",
                "--parts",
            ],
        ),
        (
            "data stats ./vehicles",
            &["may be classes or parts", "--parts"],
        ),
        (
            "train imagenet --data ./lines",
            &["lines: ", "\"a\\nb\"", "line break"],
        ),
        (
            "classify ./one",
            &["one: it is a directory, not a plain file"],
        ),
        ("classify ./empty.jpg", &["empty.jpg", "it is empty"]),
        ("classify ./one/red.png --side 100000", &["side 100000"]),
        (
            "classify ./one/red.png --weights ./text.png",
            &["text.png", "expected safetensors"],
        ),
        (
            "train imagenet --data ./pictures --model resnet18 --side 40 --batch-size 1 --quiet --out ./run --accelerator embedded",
            &["pictures/two/broken.png", "neither PNG nor JPEG"],
        ),
    ] {
        let error = fails(halite(arguments).current_dir(dir.path()));
        assert_contains(&error, parts);
    }
    let vehicles =
        succeeds(halite("data stats ./vehicles --parts train,test").current_dir(dir.path()));
    assert_contains(&vehicles.stdout, &["bus", "car"]);
    for (arguments, part) in [
        ("train imagenet", "--data <DIR>"),
        ("train ct", "--data <DIR>"),
        (
            "train mnist --fake-data --data fashion",
            "cannot be used with",
        ),
        ("train ct --fake-data --csv x", "cannot be used with"),
        (
            "train imagenet --fake-data --data one",
            "cannot be used with",
        ),
        (
            "train imagenet --fake-data --model resnet51",
            "expected one of resnet18",
        ),
        ("classify", "<IMAGE>"),
    ] {
        let ended = run(halite(arguments).current_dir(dir.path()));
        assert_eq!(ended.code(), Some(2), "{ended:?}");
        assert_contains(&ended.stderr, &[part]);
    }
}

#[test]
fn generated_ct_set_is_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let command = |arguments: &str| run(halite(arguments).current_dir(dir.path()));
    let fake = command("data fake ct --out ./ct --studies 2 --slices 3 --side 32");
    assert!(fake.status.success(), "{fake:?}");
    let stats = command("data stats ./ct");
    let text = &stats.stdout;
    for part in [
        "images     6, 6 of them decoded",
        "32x32 (6)",
        "rv_lv_ratio_lt_1",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let view = command("data view ./ct --transforms 24,rotate=10 --columns 3 --out ./sheet.png");
    assert!(view.status.success(), "{view:?}");
    let sheet = halite::data::read_image(dir.path().join("sheet.png")).unwrap();
    // Two rows of three, with captions of nine pixels and gaps of four.
    assert_eq!(sheet.ty().to_string(), "u8[78, 88, 3]");
    let unknown = command("data view ./ct --transforms 24,flop=1");
    let text = &unknown.stderr;
    assert!(text.contains("unknown step `flop`"), "{text}");
}
