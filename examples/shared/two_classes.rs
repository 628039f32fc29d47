/// Trains a small network to tell dark images from bright ones, with a trainer that `with` changes.
pub(crate) fn fit_two_classes(
    rate: impl Into<halite::nn::Schedule>,
    with: impl FnOnce(halite::train::TrainerBuilder) -> halite::train::TrainerBuilder,
) -> Result<halite::train::Report> {
    use halite::models::{Classify, Mlp};

    let pixels: Vec<u8> = (0..=255).collect();
    let labels: Vec<u8> = (0..=255).map(|pixel: u8| u8::from(pixel > 127)).collect();
    let data = InMemory::new([
        ("image", HostArray::from_slice(&pixels, [256, 1])?),
        ("label", HostArray::from_slice(&labels, [256])?),
    ])?;
    let client = Accelerator::cpu().open()?;
    let trainer = with(Trainer::builder(&client).epochs(100).batch_size(32)).build()?;
    let (task, model) = (Classify::<Mlp<()>>::new(), Mlp::new(&[1, 16, 2]));
    let fitted = trainer.fit(task, model, Adam::new(rate), data.clone(), data)?;
    println!("{} of 100 epochs", fitted.report.epochs);
    Ok(fitted.report)
}
