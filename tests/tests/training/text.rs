//! A transformer learns a text, and writes it.

use halite::{
    data::text::{TokenWindows, Tokenizer, books},
    fetch::{Cache, Quiet},
    models::{LanguageModel, Sampling, generate},
    prelude::*,
};

use crate::support::{client, trainer};

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
    let [train, validation] =
        TokenWindows::split(&[tokenizer.encode(&text).unwrap()], 24, 0.1).unwrap();
    let trainer = trainer().epochs(25).batch_size(8).build().unwrap();
    let optimizer = AdamW::new(1e-2).decay(LanguageModel::decay());
    let fitted = trainer
        .fit(
            LanguageModel,
            Transformer::new(&config).unwrap(),
            optimizer,
            train,
            validation,
        )
        .unwrap();
    let report = &fitted.report;
    // Only the start of a window is unpredictable.
    assert!(
        report.metrics["loss"] < 0.5 && report.metrics["accuracy"] > 0.85,
        "{report}"
    );

    let greedy = Sampling {
        count: 100,
        temperature: 0.0,
        seed: 0,
    };
    let prompt = tokenizer.encode("Tyger Tyger, burning").unwrap();
    let written = generate(client(), &fitted.model, &prompt, greedy).unwrap();
    let written = tokenizer.decode(&written);
    assert_eq!(written.len(), 120);
    // By heart, beyond the 24 characters that it sees at once.
    assert!(written.starts_with(&text[..60]), "{written}");
    let drawn = |seed| {
        generate(
            client(),
            &fitted.model,
            &prompt,
            Sampling {
                temperature: 3.0,
                seed,
                ..greedy
            },
        )
        .unwrap()
    };
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));

    for (prompt, temperature, part) in [
        (&[][..], 1.0, "the prompt is empty"),
        (&[99], 1.0, "token 99"),
        (&[1], -1.0, "temperature -1"),
    ] {
        let error = generate(
            client(),
            &fitted.model,
            prompt,
            Sampling {
                temperature,
                ..greedy
            },
        )
        .unwrap_err()
        .to_string();
        assert!(error.contains(part), "{error}");
    }
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
    let [train, validation] = TokenWindows::split(&[tokens], 32, 0.1).unwrap();
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
    let optimizer = AdamW::new(5e-3).decay(LanguageModel::decay());
    let fitted = trainer
        .fit(
            LanguageModel,
            Transformer::new(&config).unwrap(),
            optimizer,
            train,
            validation,
        )
        .unwrap();
    let loss = fitted.report.metrics["loss"];
    // 256 tokens alike are 5.5 nats; letters by how frequent they are, about 3.
    assert!(loss < 2.8, "{}", fitted.report);
    assert_eq!(fitted.report.step_compiles, 1);
}
