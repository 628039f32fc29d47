//! SmolLM2-135M-Instruct, from the package that ships it, against `transformers`
//! (`golden/smollm2.py`).

use halite_core::{
    Array, Tree,
    tree::{Empty, Leaf},
};
use halite_models::{GenerationOptions, Generator, Llama, Sampling};
use halite_nn::{Jit, Transformer};
use serde::Deserialize;

use crate::{
    common::{clients, golden},
    packages::smollm2,
};

#[derive(Deserialize)]
struct Golden {
    prompt: Vec<u32>,
    generated: Vec<u32>,
    step: usize,
    first_logits: Vec<f32>,
    last_logits: Vec<f32>,
}

/// 64 greedy tokens are equal, and logits within 1e-3.
#[test]
fn smollm2_matches_transformers() {
    let expected: Golden =
        serde_json::from_slice(&std::fs::read(golden("smollm2.json")).unwrap()).unwrap();
    let published = Llama::from_pretrained(smollm2()).unwrap();
    // As llama.cpp: `<|im_end|>`, and `<|endoftext|>` by its text.
    assert_eq!(published.source.stop_tokens().unwrap(), [0, 2]);
    for client in clients() {
        let model = published.load(client).unwrap();
        let mut generator = Generator::new(client, &model);
        let options = GenerationOptions {
            max_tokens: 64,
            sampling: Sampling::greedy(),
            ..Default::default()
        };
        let generation = generator.generate(&[&expected.prompt], &options).unwrap();
        println!("{client:?}: {}", generation.report);
        assert_eq!(generation.sequences[0].tokens, expected.generated);

        let logits = Jit::<Empty<()>, (Transformer<()>, Leaf<()>), Leaf<()>>::function(
            client,
            |cx, (model, Leaf(tokens))| {
                cx.set_mode(false, None);
                Leaf(model.forward(tokens))
            },
        );
        let tokens = [&expected.prompt[..], &expected.generated].concat();
        let given = Leaf(Array::from_slice(client, &tokens, [1, tokens.len()]).unwrap());
        let Leaf(logits) = logits
            .run_with((model.leaf_refs(), given.leaf_refs()))
            .unwrap();
        let logits = logits.to_vec::<f32>().unwrap();
        let vocabulary = published.model.config.vocab_size;
        let rows = [expected.prompt.len() - 1, tokens.len() - 1];
        for (row, theirs) in rows
            .into_iter()
            .zip([&expected.first_logits, &expected.last_logits])
        {
            let ours = logits[row * vocabulary..][..vocabulary]
                .iter()
                .step_by(expected.step);
            assert_eq!(ours.len(), theirs.len());
            let errors = ours.zip(theirs).map(|(ours, theirs)| (ours - theirs).abs());
            let error = errors.fold(0.0f32, f32::max);
            println!("largest difference of logits: {error:e}");
            assert!(error < 1e-3);
        }
    }
}
