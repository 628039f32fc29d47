//! Fine-tuning: torchvision's ResNet-34 with a new head, on photographs in class folders, saved for
//! PyTorch.
//!
//! In Python:
//! `torch.save(torchvision.models.resnet34(weights="DEFAULT").state_dict(), "resnet34.pth")`
//!
//! `cargo run --release --example fine_tune -- resnet34.pth pictures tuned.safetensors`
use halite::{
    data::images::{Framing, ImageFolder},
    models::{Normalization, ResNet},
    prelude::*,
    weights::{self, WeightLoader, WeightSaver},
};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [weights, folder, tuned] = &arguments[..] else {
        return Err(Error::invalid("fine_tune", "expected WEIGHTS FOLDER TUNED"));
    };
    let client = Accelerator::auto().open()?;

    // pictures/cat/1.jpg, pictures/dog/7.png, ..; one in ten is for validation.
    let data = ImageFolder::open(folder, Framing::new(224))?;
    println!("{} images of {:?}", data.len(), data.classes());
    let (classes, held_out) = (data.classes().len(), data.len() / 10);
    let [test, train] = data.split(held_out, 0)?;

    // The description of the model, and the names of its parameters in PyTorch.
    let net = ResNet::resnet34(classes);
    let names = net.names();
    let file = weights::open(weights)?;
    let loaded = WeightLoader::new(&file, &names)
        .replace("head")
        .load(&client, &net)?;
    println!("{}", loaded.report);

    let task = task(&net, |cx, net, batch| {
        let logits = net.forward(Normalization::IMAGENET.forward(batch.input));
        cx.metric("accuracy", batch.mean(correct(logits, batch.target)));
        batch.mean(cross_entropy(logits, batch.target))
    });
    let trainer = Trainer::builder(&client).epochs(3).batch_size(16).build()?;
    let optimizer = Sgd::new(1e-3).momentum(0.9);
    let fitted = trainer.fit_from(task, net.clone(), loaded.model, optimizer, train, test)?;
    println!("{fitted}");

    // `model.load_state_dict(safetensors.torch.load_file("tuned.safetensors"))` reads it.
    WeightSaver::new(&names).save(&net, &fitted.model, tuned)
}
