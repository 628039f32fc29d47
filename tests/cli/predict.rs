//! Classes in a table, from `halite train ct` to `halite predict`.

use std::{fs, path::Path};

use halite::data::{Table, group_k_fold};

use super::{
    images::write,
    support::{assert_contains, fails, halite, report, succeeds},
};

const KINDS: [&str; 3] = ["dog, small", "cat", "bird"];

/// 15 images of three kinds, and a table of them, separated by semicolons.
fn pets(dir: &Path) {
    let mut table = "file;owner;kind\n".to_owned();
    for number in 0..15usize {
        let kind = number % 3;
        let mut color = [20 + 5 * number as u8; 3];
        color[kind] = 220;
        write(dir, &format!("pets/{number:02}.png"), color);
        table += &format!("{number:02};P{};{}\n", number / 3, KINDS[kind]);
    }
    fs::write(dir.join("pets/train.csv"), table).unwrap();
}

const RUN: &str = "train ct --data ./pets --ids file --group owner --model resnet18 --side 16 \
                   --batch-size 4 --accelerator embedded:1 --quiet --out ./run";

#[test]
fn text_column_is_classes_by_softmax() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    pets(dir.path());
    let run = format!("{RUN} --max-epochs 3 --learning-rate 1e-3");
    let ended = succeeds(halite(&run).current_dir(dir.path()));
    let classes = "3 classes by `kind`: bird 5, cat 5, dog, small 5";
    assert_contains(&ended.stderr, &[classes, "5 groups by `owner`"]);
    let names = fs::read_to_string(path("run/classes.txt")).unwrap();
    assert_eq!(names, "bird\ncat\ndog, small\n");
    let metrics = Table::read(path("run/metrics.csv")).unwrap();
    for column in ["accuracy", "roc_auc", "roc_auc/dog, small"] {
        assert!(metrics.has_column(column), "{:?}", metrics.columns());
    }

    // Folder, table and columns are those of the training, except for the name of the table.
    let predict = "predict ./run --csv ./pets/train.csv --out ./pets.csv --accelerator embedded:2";
    let ended = succeeds(halite(predict).current_dir(dir.path()));
    assert_eq!(ended.stdout, "pets.csv: 15 images, 3 classes\n");
    let found = Table::read(path("pets.csv")).unwrap();
    let columns = ["file", "class", "bird", "cat", "dog, small"];
    assert_eq!(found.columns(), columns);

    // The images of validation give the loss that the run reported.
    let truth = Table::read(path("pets/train.csv")).unwrap();
    let (kinds, owners) = (
        truth.strings("kind").unwrap(),
        truth.strings("owner").unwrap(),
    );
    let folds = group_k_fold(&owners, 5).unwrap();
    let rows: Vec<usize> = (0..15).filter(|&row| folds[row] == 0).collect();
    let of_row = |&row: &usize| -found.column::<f64>(kinds[row]).unwrap()[row].ln();
    let loss = rows.iter().map(of_row).sum::<f64>() / rows.len() as f64;
    let [splits, losses] = ["split", "loss"].map(|column| metrics.strings(column).unwrap());
    let losses = splits
        .iter()
        .zip(losses)
        .filter(|(split, _)| **split == "validation");
    let losses: Vec<f64> = losses.map(|(_, loss)| loss.parse().unwrap()).collect();
    let best = losses.iter().copied().fold(f64::INFINITY, f64::min);
    assert_eq!((rows.len(), losses.len()), (3, 3));
    assert!((loss - best).abs() < 1e-5, "{loss}, reported {losses:?}");
    let reported = report(&path("run"))["best_metrics"]["loss"].as_f64();
    assert_eq!(reported, Some(best));

    // A file is replaced on demand; images that cannot be read have no prediction.
    let error =
        |rest: &str| fails(halite(&format!("predict ./run {rest}")).current_dir(dir.path()));
    let exists = error("--images ./pets --out ./pets.csv");
    assert_contains(
        &exists,
        &["cannot write pets.csv: it exists; --force replaces it"],
    );
    assert_contains(
        &error("--out ./x.csv"),
        &["the run has no pets/test.csv; --csv FILE is"],
    );
    let folder = error("--csv ./pets/train.csv --ids ./pets --out ./x.csv");
    assert_contains(
        &folder,
        &["--ids pets is a folder; expected columns of pets/train.csv"],
    );
    fs::write(path("pets/03.png"), "hello").unwrap();
    let accelerator = "--accelerator embedded:1";
    let refused = error(&format!("--images ./pets --out ./x.csv {accelerator}"));
    assert_contains(&refused, &["pets/03.png", "--bad-samples skip:N"]);
    let few = error(&format!(
        "--images ./pets --out ./x.csv --bad-samples skip:0 {accelerator}"
    ));
    assert_contains(&few, &["more than 0 images cannot be read"]);
    let predict = "predict ./run --images ./pets --out ./pets.csv --force --bad-samples skip:1";
    let ended = succeeds(halite(&format!("{predict} {accelerator}")).current_dir(dir.path()));
    assert_eq!(
        ended.stdout,
        "pets.csv: 15 images, 3 classes; 1 without a prediction\n"
    );
    assert_contains(&ended.stderr, &["no prediction: ", "pets/03.png"]);
    let skipped = fs::read_to_string(path("pets.csv")).unwrap();
    assert!(skipped.contains("\n03.png,,,,\n"), "{skipped}");
    let cells = |text: &str, file: &str| {
        let line = text.lines().find(|line| line.starts_with(file)).unwrap();
        line.split(',')
            .skip(1)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(cells(&skipped, "04.png").len(), 4);
}

#[test]
fn columns_of_classes_are_chosen_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    pets(dir.path());
    let stats = "data stats ./pets --csv ./pets/train.csv --ids file --labels kind";
    let stats = succeeds(halite(stats).current_dir(dir.path())).stdout;
    assert_contains(&stats, &["  dog, small         5   33.3 %"]);
    let mut table = "file;sick;kind;note;age\n".to_owned();
    for number in 0..15 {
        table += &format!(
            "{number:02};{};{};n{};{}\n",
            number % 2,
            KINDS[number % 3],
            number % 4,
            number % 3
        );
    }
    fs::write(dir.path().join("pets/train.csv"), table).unwrap();
    let run = "train ct --data ./pets --ids file --model resnet18 --side 16 --batch-size 4 --accelerator \
               embedded:1 --quiet --fast-dev-run";
    let command = |rest: &str| {
        let mut command = halite(&format!("{run} {rest}"));
        command.current_dir(dir.path());
        command
    };
    for (rest, part) in [
        (
            "",
            "columns of text among 4 columns of labels: `kind`, `note`; --class COLUMN names",
        ),
        (
            "--labels sick,kind",
            "columns of text among 2 columns of labels: `kind`; --class",
        ),
        (
            "--labels age",
            "the label 2 is out of range; expected 0 or 1; `--class age` makes a class",
        ),
        ("--class file", "another text in each of 15 rows"),
        (
            "--class kinds",
            "no column `kinds`; it has `file`, `sick`, `kind`",
        ),
        (
            "--class kind --monitor val_f1",
            "the run has no metric `val_f1`; it has",
        ),
    ] {
        assert_contains(&fails(&mut command(rest)), &[part]);
    }
    let numbers = succeeds(&mut command("--class age --mixup 0.4")).stderr;
    assert_contains(&numbers, &["3 classes by `age`: 0 5, 1 5, 2 5"]);
    succeeds(&mut command("--labels sick --mixup 0.4"));
    let mixed = "train imagenet --data ./classes --model resnet18 --side 16 --batch-size 4 --accelerator \
                 embedded:1 --quiet --fast-dev-run --mixup 0.4";
    for number in 0..10 {
        for (kind, color) in [("a", [0, 0, 90]), ("b", [90, 0, 0])] {
            write(dir.path(), &format!("classes/{kind}/{number}.png"), color);
        }
    }
    succeeds(halite(mixed).current_dir(dir.path()));
}
