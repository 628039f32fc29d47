//! A transformer that learns a text and generates it.

use std::sync::OnceLock;

use halite::{
    data::text::{TokenWindows, Tokenizer, books},
    fetch::{Cache, Quiet},
    models::{GenerationOptions, Generator, LanguageModel, Sampling, TokenBatch},
    prelude::*,
    train::{Fitted, TrainerBuilder},
};
use halite_tests::eval::open;

/// Generating text reads each token, and runs of other tests count the blocking reads of their
/// client: these tests have their own.
fn client() -> &'static Client {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    CLIENT.get_or_init(open)
}

fn trainer() -> TrainerBuilder {
    let first = client().local_devices().into_iter().take(1);
    Trainer::builder(client()).quiet(true).devices(first)
}

fn fitted(
    trainer: &Trainer,
    config: &TransformerConfig,
    learning_rate: f64,
    [train, validation]: [TokenWindows; 2],
) -> Fitted<LanguageModel> {
    let optimizer = AdamW::new(learning_rate).decay(LanguageModel::decay());
    let model = Transformer::new(config).unwrap();
    trainer
        .fit(LanguageModel, model, optimizer, train, validation)
        .unwrap()
}

#[test]
fn small_transformer_memorizes_a_poem() {
    let poem =
        "Tyger Tyger, burning bright,\nIn the forests of the night;\nWhat immortal hand or eye,\n";
    let text = poem.repeat(30);
    let tokenizer = Tokenizer::characters_of([&text]).unwrap();
    let config = TransformerConfig::tiny()
        .vocab_size(tokenizer.vocabulary())
        .context_length(24);
    let config = TransformerConfig {
        hidden_size: 32,
        mlp_size: 64,
        ..config
    };
    let windows = TokenWindows::split(&[tokenizer.encode(&text).unwrap()], 24, 0.1).unwrap();
    let trainer = trainer().epochs(40).batch_size(8).build().unwrap();
    let fitted = fitted(&trainer, &config, 1e-2, windows);
    let report = &fitted.report;
    // Only the start of a window is unpredictable.
    assert!(
        report.metrics["loss"] < 0.5 && report.metrics["accuracy"] > 0.85,
        "{report}"
    );
    let written = |seed, temperature| {
        let sampling = Sampling {
            temperature,
            seed,
            ..Sampling::default()
        };
        let prompt = tokenizer.encode("Tyger Tyger, burning").unwrap();
        let generated = generated(&fitted.model, &prompt, 100, sampling);
        tokenizer.decode(&[prompt, generated].concat())
    };
    let greedy = written(0, 0.0);
    assert_eq!(greedy.len(), 120);
    // More than the 24 characters that it sees at once.
    assert!(greedy.starts_with(&text[..60]), "{greedy}");
    assert_eq!(written(1, 3.0), written(1, 3.0));
    assert_ne!(written(1, 3.0), written(2, 3.0));
}

/// Llama 3 has 128,256 tokens.
#[test]
fn ids_beyond_16_bits_are_learned() {
    const FIRST: u32 = 69_000;
    let config = TransformerConfig {
        hidden_size: 16,
        mlp_size: 16,
        layers: 1,
        ..TransformerConfig::tiny()
            .vocab_size(70_000)
            .context_length(8)
    };
    let cycle: Vec<u32> = (0..8 * 20).map(|place| FIRST + place % 5).collect();
    let windows = TokenWindows::split(&[cycle], 8, 0.2).unwrap();
    let trainer = trainer().epochs(40).batch_size(4).build().unwrap();
    let fitted = fitted(&trainer, &config, 3e-2, windows);
    let prompt = [FIRST, FIRST + 1];
    let tokens = generated(&fitted.model, &prompt, 6, Sampling::greedy());
    assert_eq!(
        tokens,
        [2, 3, 4, 0, 1, 2].map(|place| FIRST + place),
        "{}",
        fitted.report
    );
}

/// An id beyond the vocabulary counts as the largest one where it is looked up, and never as a
/// negative number.
#[test]
fn ids_beyond_31_bits_are_not_negative() {
    let config = TransformerConfig::tiny().context_length(4);
    let cycle: Vec<u32> = (0..200).map(|place| place % 64).collect();
    let windows = TokenWindows::split(&[cycle], 4, 0.2).unwrap();
    let trainer = trainer().epochs(1).batch_size(4).build().unwrap();
    let model = fitted(&trainer, &config, 1e-2, windows).model;
    let loss = Jit::<Empty<()>, (Transformer<()>, Leaf<()>), Leaf<()>>::function(
        client(),
        |cx, (model, Leaf(tokens))| {
            cx.set_mode(false, None);
            let weight = cx.scalar(1.0, DType::F32).broadcast_to([1]);
            let batch = TokenBatch { tokens, weight };
            Leaf(LanguageModel.loss(cx, &model, &batch).value())
        },
    );
    let loss = |first: u32| -> f32 {
        let tokens = Leaf(Array::from_slice(client(), &[first, 1, 2, 3, 4], [1, 5]).unwrap());
        let Leaf(loss) = loss
            .run_with((model.leaf_refs(), tokens.leaf_refs()))
            .unwrap();
        loss.item().unwrap()
    };
    assert_ne!(loss(0), loss(63));
    for id in [64, 1 << 31, u32::MAX - 99, u32::MAX] {
        assert_eq!(loss(id), loss(63), "{id}");
    }
}

/// Generates `max_tokens` tokens after a prompt.
fn generated(
    model: &Transformer<Array>,
    prompt: &[u32],
    max_tokens: usize,
    sampling: Sampling,
) -> Vec<u32> {
    let options = GenerationOptions {
        max_tokens,
        sampling,
        ..GenerationOptions::default()
    };
    let generation = Generator::new(client(), model).generate(&[prompt], &options);
    generation.unwrap().sequences.remove(0).tokens
}

#[test]
fn loss_on_a_book_falls_below_guessing() {
    let books = books(&Cache::open(None).unwrap(), &mut Quiet).unwrap();
    let alice = &books
        .iter()
        .find(|book| book.name == "carroll-alice")
        .unwrap()
        .text;
    let tokens = Tokenizer::Bytes.encode(&alice[..40_000]).unwrap();
    let windows = TokenWindows::split(&[tokens], 32, 0.1).unwrap();
    let config = TransformerConfig {
        layers: 2,
        hidden_size: 32,
        mlp_size: 64,
        ..TransformerConfig::small().context_length(32)
    };
    let trainer = trainer()
        .epochs(6)
        .batch_size(16)
        .clip_norm(1.0)
        .build()
        .unwrap();
    let fitted = fitted(&trainer, &config, 5e-3, windows);
    let loss = fitted.report.metrics["loss"];
    // Guessing all 256 tokens alike is a loss of 5.5 nats; by their frequency, about 3.
    assert!(loss < 2.8, "{}", fitted.report);
    assert_eq!(fitted.report.step_compiles, 1);
}
