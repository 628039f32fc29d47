//! Trainings on pipelines of data: augmented images of a table and of records, mixed and streamed.

use std::{fs::File, io::BufReader, sync::Arc};

use halite::{
    data::{
        Field, Mix, Random, Sample, SampleMut, StreamDataset, Table,
        images::{CT_IDS, CT_LABELS, ImageTable, Transforms, decode_image},
        records::{Example, IndexedRecords, Records},
    },
    prelude::*,
    train::{
        TrainerOptions,
        metrics::RocAuc,
        signals::{StopFlag, StopReason},
    },
};

use super::Data;

/// Height and width of the images in a batch.
const SIDE: usize = 16;

#[derive(Debug, Tree)]
struct Net<L> {
    first: Conv2d<L>,
    out: Linear<L>,
}

/// All random steps that images have.
fn transforms() -> Result<Transforms> {
    "16,random-resized-crop=0.5..1,flip=0.5,rotate=15,brightness=0.2,contrast=0.2,blur=0.1..1,erase=0.3"
        .parse()
}

fn fields() -> [Field; 2] {
    [
        Field::new("image", TensorType::new(DType::U8, [SIDE, SIDE, 3])),
        Field::new("label", TensorType::new(DType::F32, [CT_LABELS.len()])),
    ]
}

/// Decodes a record, and transforms its image at random.
fn decode(transforms: &Transforms, payload: &[u8], into: &mut SampleMut<'_>) -> Result<()> {
    let example = Example::parse(payload)?;
    for file in example.bytes("image/encoded")? {
        let image = transforms.apply(&decode_image(file)?, into.key())?;
        into.write(0, image.as_slice::<u8>()?)?;
    }
    into.write(1, example.floats("image/labels")?)
}

/// The images of the table, augmented, and in validation not.
fn images(data: &Data) -> Result<[ImageTable; 2]> {
    let table = Table::read(data.data.join("train.csv"))?;
    let root = data.data.join("train");
    let images = ImageTable::open(root, &table, &CT_IDS, transforms()?)?;
    let images = images.with_labels(&table, &CT_LABELS)?;
    Ok([images.clone(), images.for_validation()])
}

/// Two thirds images of files, one third of records: 96 samples an epoch.
fn mix(data: &Data) -> Result<Mix> {
    let [files, _] = images(data)?;
    let transforms = transforms()?;
    let records = IndexedRecords::open([data.data.join("train.tfrecord")])?
        .dataset(fields(), move |payload: &[u8], into: &mut SampleMut<'_>| {
            decode(&transforms, payload, into)
        });
    let sources: [(Arc<dyn Dataset>, f64); 2] = [(Arc::new(files), 2.0), (Arc::new(records), 1.0)];
    Mix::new(sources, 96)
}

/// Inverts the colors of one image of two.
fn invert(sample: Sample<'_>, random: &mut Random, into: &mut SampleMut<'_>) -> Result<()> {
    let mask = if random.chance(0.5) { 255 } else { 0 };
    for (to, from) in into.bytes_mut(0).iter_mut().zip(sample.bytes(0)) {
        *to = from ^ mask;
    }
    into.write(1, sample.values::<f32>(1)?)
}

/// The records in their order, read through one file at a time, and augmented twice.
fn stream(data: &Data) -> Result<impl Dataset + use<>> {
    let path = data.data.join("train.tfrecord");
    let len = IndexedRecords::open([&path])?.len();
    let transforms = transforms()?;
    let open = move |start| Ok(Records::new(BufReader::new(File::open(&path)?)).skip(start));
    let stream = StreamDataset::new(fields(), len, open, move |payload: Vec<u8>, into| {
        decode(&transforms, &payload, into)
    });
    Ok(stream.version("1").map_random("invert", fields(), invert))
}

pub(super) fn mixed(
    data: &Data,
    options: TrainerOptions,
    stop: &StopFlag,
) -> Result<Option<StopReason>> {
    let train = mix(data)?.map_random("invert", fields(), invert);
    fit(data, train, options, stop)
}

pub(super) fn streamed(
    data: &Data,
    options: TrainerOptions,
    stop: &StopFlag,
) -> Result<Option<StopReason>> {
    fit(data, stream(data)?, options, stop)
}

fn fit(
    data: &Data,
    train: impl Dataset + 'static,
    options: TrainerOptions,
    stop: &StopFlag,
) -> Result<Option<StopReason>> {
    let [_, validation] = images(data)?;
    let client = data.accelerator.open()?;
    let net: Net<Param> = Net {
        first: Conv2d::new(3, 8, 3).stride(2).same(),
        out: Linear::new(8 * SIDE * SIDE / 4, CT_LABELS.len()),
    };
    let task = task(&net, |cx, net, batch| {
        let pixels = batch.input.convert(DType::F32) * (1.0 / 255.0);
        let logits = net
            .out
            .forward(net.first.forward(pixels).relu().flatten_from(1));
        let auc = RocAuc::by_label(&CT_LABELS);
        cx.collect("roc_auc", auc, logits, batch.target, batch.weight);
        batch.mean(bce_with_logits(logits, batch.target).mean([1]))
    });
    let trainer = Trainer::builder(&client)
        .options(options)
        .stop_flag(stop)
        .build()?;
    let fitted = trainer.fit(task, net, Adam::new(1e-3), train, validation)?;
    Ok(fitted.stopped_by)
}
