//! CT slices with ten labels: JPEG files and a CSV file in, a ResNet-34 and ROC-AUC out. The command
//! `halite train ct` does the same, with options.
//!
//! `halite data fake ct --out ct` generates a set; `cargo run --release --example ct -- ct` trains on
//! it, and from torchvision's weights if a file follows: `-- ct resnet34.pth`.
use std::path::Path;

use halite::{
    data::{
        Table, group_k_fold,
        images::{CT_IDS, CT_LABELS, ImageTable, Transforms},
    },
    models::{Normalization, ResNet},
    prelude::*,
    train::metrics::RocAuc,
    weights::{self, WeightLoader},
};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let dir = Path::new(arguments.first().map_or("ct", String::as_str));

    // One description of the images; validation leaves the random steps out.
    let transforms = Transforms::new(128)
        .random_resized_crop(0.8..=1.0)
        .rotate(10.0);
    let table = Table::read(dir.join("train.csv"))?;
    let images = ImageTable::open(dir.join("train"), &table, &CT_IDS, transforms)?
        .with_labels(&table, &CT_LABELS)?;

    // Images of one study are in one fold: they are alike.
    let folds = group_k_fold(&table.strings("StudyInstanceUID")?, 5)?;
    let (valid, train): (Vec<usize>, Vec<usize>) =
        (0..table.len()).partition(|&row| folds[row] == 0);
    let valid = images.clone().for_validation().subset(valid)?;
    let train = images.subset(train)?;

    // 128 images a device, and the rate of one device times their number, halved each epoch.
    let client = Accelerator::auto().open()?;
    let devices = client.local_devices().len();
    let batch_size = (128 * devices).min(train.len());
    let steps = (train.len() / batch_size).min(1000) as u64;
    let rate = Schedule::step_decay(1e-4 * devices as f64, 0.5, 1).per_epoch(steps);

    let net = ResNet::resnet34(CT_LABELS.len());
    let task = task(&net, |cx, net, batch| {
        let logits = net.forward(Normalization::IMAGENET.forward(batch.input));
        let auc = RocAuc::by_label(&CT_LABELS);
        cx.collect("roc_auc", auc, logits, batch.target, batch.weight);
        batch.mean(bce_with_logits(logits, batch.target).mean([1]))
    });
    let trainer = Trainer::builder(&client)
        .max_epochs(3)
        .batch_size(batch_size)
        .limit_train_batches(1000u64)
        .print_every(100)
        .out("runs/ct-example")
        .build()?;
    let adam = Adam::new(rate);
    let fitted = match arguments.get(1) {
        Some(file) => {
            let file = weights::open(file)?;
            let names = net.names();
            let loader = WeightLoader::new(&file, &names).replace("head");
            let loaded = loader.load(&client, &net)?;
            trainer.fit_from(task, net, loaded.model, adam, train, valid)?
        }
        None => trainer.fit(task, net, adam, train, valid)?,
    };
    println!("{fitted}");
    Ok(())
}
