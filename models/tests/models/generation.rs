//! Generation of small models: the cache against passes over the whole text, and sampling against
//! numpy (`golden/sampling.py`) and its own probabilities.

use std::ops::ControlFlow;

use halite_core::{
    Array, Client, DType, TensorType, Tree,
    tree::{Empty, Leaf},
};
use halite_models::{
    FinishReason, GenerationOptions, Generator, Gpt2, Llama, Sampling, most_likely,
};
use halite_nn::{Jit, Model, Tensor, Transformer, TransformerConfig};
use serde::Deserialize;

use crate::common::{clients, golden};

/// A model of [`golden`].
fn loaded(client: &Client, name: &str) -> Transformer<Array> {
    let published = match name {
        "gpt2" => Gpt2::from_pretrained(golden(name)),
        _ => Llama::from_pretrained(golden(name)),
    };
    published.unwrap().load(client).unwrap()
}

fn greedy(max_tokens: usize) -> GenerationOptions {
    GenerationOptions {
        max_tokens,
        sampling: Sampling::greedy(),
        ..Default::default()
    }
}

/// Program from a model and tokens to logits.
type Pass = Jit<Empty<()>, (Transformer<()>, Leaf<()>), Leaf<()>>;

/// Greedy tokens by passes over the whole text.
struct WholePasses<'m> {
    client: &'m Client,
    model: &'m Transformer<Array>,
    pass: Pass,
    penalty: f32,
}

impl<'m> WholePasses<'m> {
    fn new(client: &'m Client, model: &'m Transformer<Array>) -> Self {
        let pass = Jit::function(client, |cx, (model, Leaf(tokens))| {
            cx.set_mode(false, None);
            let model: Transformer<Tensor<'_>> = model;
            Leaf(model.forward(tokens))
        });
        WholePasses {
            client,
            model,
            pass,
            penalty: 1.0,
        }
    }

    /// The token after `tokens`, of which there are at most `length`.
    fn next(&self, tokens: &[u32], length: usize) -> u32 {
        // Attention is causal: what is behind has no effect.
        let mut padded = tokens.to_vec();
        padded.resize(length, 0);
        let padded = Leaf(Array::from_slice(self.client, &padded, [1, length]).unwrap());
        let inputs = (self.model.leaf_refs(), padded.leaf_refs());
        let Leaf(logits) = self.pass.run_with(inputs).unwrap();
        let logits = logits.to_vec::<f32>().unwrap();
        let vocabulary = self.model.config.vocab_size;
        let logits = &logits[(tokens.len() - 1) * vocabulary..][..vocabulary];
        let penalized = |token: u32| {
            let logit = logits[token as usize];
            match (tokens.contains(&token), logit < 0.0) {
                (false, _) => logit,
                (true, false) => logit / self.penalty,
                (true, true) => logit * self.penalty,
            }
        };
        let tokens = 0..vocabulary as u32;
        tokens
            .max_by(|&a, &b| penalized(a).total_cmp(&penalized(b)))
            .unwrap()
    }

    fn generate(&self, prompt: &[u32], count: usize) -> Vec<u32> {
        let mut tokens = prompt.to_vec();
        for _ in 0..count {
            tokens.push(self.next(&tokens, prompt.len() + count));
        }
        tokens.split_off(prompt.len())
    }
}

const NAMES: [&str; 3] = ["llama3", "gpt2", "qwen2"];
const PROMPTS: [&[u32]; 3] = [&[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], &[7], &[19, 0, 19, 8]];

#[test]
fn cached_tokens_equal_whole_passes() {
    for (client, names) in clients().into_iter().zip([&NAMES[..1], &NAMES]) {
        for name in names {
            let model = loaded(client, name);
            let expected =
                PROMPTS.map(|prompt| WholePasses::new(client, &model).generate(prompt, 20));
            let mut generator = Generator::new(client, &model);
            let together = generator.generate(&PROMPTS, &greedy(20)).unwrap();
            for ((prompt, expected), batched) in
                PROMPTS.iter().zip(&expected).zip(&together.sequences)
            {
                assert_eq!(&batched.tokens, expected, "{name}, batch");
                let alone = generator.generate(&[prompt], &greedy(20)).unwrap();
                assert_eq!(&alone.sequences[0].tokens, expected, "{name}, alone");
            }
        }
    }
}

#[test]
fn tokens_do_not_depend_on_launches() {
    let client = clients()[1];
    let model = loaded(client, "mistral");
    let mut all = Vec::new();
    for tokens in [1, 3, 64] {
        let mut generator = Generator::new(client, &model).tokens_per_launch(tokens);
        for (sampling, max_tokens) in [(Sampling::greedy(), 10), (Sampling::default(), 9)] {
            let options = GenerationOptions {
                max_tokens,
                sampling,
                ..Default::default()
            };
            let generation = generator.generate(&PROMPTS, &options).unwrap();
            assert!(
                generation
                    .sequences
                    .iter()
                    .all(|sequence| sequence.tokens.len() == max_tokens)
            );
            all.push(generation.sequences);
        }
    }
    assert!(all[0] == all[2] && all[0] == all[4]);
    assert!(all[1] == all[3] && all[1] == all[5]);
}

/// When the context of 16 positions is full, generation continues from the last 8 tokens.
#[test]
fn full_context_continues_from_its_half() {
    for client in clients() {
        let model = Transformer::new(&TransformerConfig::tiny()).unwrap();
        let model = model.initialize(client, 3).unwrap();
        let passes = WholePasses::new(client, &model);
        let (mut tokens, mut first): (Vec<u32>, usize) = ((0..10).collect(), 0);
        while tokens.len() < 45 {
            if tokens.len() - first > 16 {
                first = tokens.len() - 8;
            }
            tokens.push(passes.next(&tokens[first..], 16));
        }
        let mut generator = Generator::new(client, &model);
        let generation = generator.generate(&[&tokens[..10]], &greedy(35)).unwrap();
        assert_eq!(generation.sequences[0].tokens, tokens[10..]);
        // A prompt that does not fit is cut as well.
        let generation = generator.generate(&[&tokens[..17]], &greedy(28)).unwrap();
        assert_eq!(generation.sequences[0].tokens, tokens[17..]);
    }
}

#[test]
fn stop_tokens_end_their_sequence() {
    let client = clients()[1];
    let model = loaded(client, "llama3");
    let mut generator = Generator::new(client, &model);
    let free = generator.generate(&PROMPTS, &greedy(20)).unwrap().sequences;
    let stop = free[0].tokens[4];
    let options = GenerationOptions {
        stop: vec![stop],
        ..greedy(20)
    };
    let stopped = generator.generate(&PROMPTS, &options).unwrap().sequences;
    for (free, stopped) in free.iter().zip(&stopped) {
        let until = free.tokens.iter().position(|&token| token == stop);
        assert_eq!(stopped.tokens, free.tokens[..until.unwrap_or(20)]);
        let finish = until.map_or(FinishReason::MaxTokens, |_| FinishReason::Stop(stop));
        assert_eq!(stopped.finish, finish);
    }
}

#[test]
fn callback_streams_until_it_breaks() {
    let client = clients()[1];
    let model = loaded(client, "llama3");
    let mut generator = Generator::new(client, &model);
    let whole = generator.generate(&PROMPTS[..1], &greedy(20)).unwrap();
    let mut seen = Vec::new();
    let broken = generator.stream(&PROMPTS[..1], &greedy(20), |event| {
        seen.push(event.token);
        match seen.len() {
            11 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    });
    let broken = &broken.unwrap().sequences[0];
    assert_eq!(seen, whole.sequences[0].tokens[..11]);
    assert_eq!(
        (&broken.tokens, broken.finish),
        (&seen, FinishReason::Interrupted)
    );
}

#[test]
fn report_counts_tokens() {
    let client = clients()[1];
    let model = loaded(client, "qwen2");
    let mut generator = Generator::new(client, &model);
    let report = generator.generate(&PROMPTS, &greedy(20)).unwrap().report;
    assert_eq!((report.prefill.tokens, report.decode.tokens), (16, 57));
    assert!(report.decode.per_second() > 0.0 && !report.compile.is_zero());
    let again = generator.generate(&PROMPTS, &greedy(20)).unwrap().report;
    assert!(again.compile.is_zero(), "{again}");
    assert_eq!(
        generator
            .generate(&PROMPTS, &greedy(0))
            .unwrap()
            .report
            .prefill
            .tokens,
        0
    );
}

#[test]
fn invalid_prompts_are_refused() {
    let client = clients()[1];
    let model = loaded(client, "qwen2");
    let mut generator = Generator::new(client, &model);
    let with = |change: fn(&mut Sampling)| {
        let mut options = greedy(3);
        change(&mut options.sampling);
        options
    };
    for (prompts, options, part) in [
        (&[][..], greedy(3), "there are no prompts"),
        (&[&[][..]], greedy(3), "the prompt is empty"),
        (
            &[&[1], &[20]],
            greedy(3),
            "prompt 1 has token 20, and the vocabulary size of the model is 20",
        ),
        (
            &[&[1]],
            with(|it| it.temperature = f64::NAN),
            "temperature NaN",
        ),
        (
            &[&[1]],
            with(|it| it.top_k = Some(21)),
            "top-k 21; expected 1 to 20",
        ),
        (&[&[1]], with(|it| it.top_p = Some(0.0)), "top-p 0"),
        (
            &[&[1]],
            with(|it| it.repetition_penalty = 0.0),
            "repetition penalty 0",
        ),
    ] {
        let error = generator
            .generate(prompts, &options)
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn nan_logits_are_an_error() {
    for client in clients() {
        for value in [f32::NAN, f32::INFINITY] {
            let mut model = loaded(client, "qwen2");
            model.norm.scale = Array::from_slice(client, &[value; 16], [16]).unwrap();
            for sampling in [Sampling::greedy(), Sampling::default()] {
                let options = GenerationOptions {
                    sampling,
                    ..Default::default()
                };
                let mut generator = Generator::new(client, &model);
                let error = generator
                    .generate(&PROMPTS, &options)
                    .unwrap_err()
                    .to_string();
                let part = "the logits of sequence 0 for generated token 0 are NaN or infinite";
                assert!(error.contains(part), "{error}");
            }
        }
    }
}

#[test]
fn penalty_is_that_of_the_definition() {
    let client = clients()[1];
    let model = loaded(client, "gpt2");
    let mut passes = WholePasses::new(client, &model);
    let plain = passes.generate(PROMPTS[0], 20);
    passes.penalty = 1.7;
    let expected = PROMPTS.map(|prompt| passes.generate(prompt, 20));
    let sampling = Sampling {
        repetition_penalty: 1.7,
        ..Sampling::greedy()
    };
    let options = GenerationOptions {
        max_tokens: 20,
        sampling,
        ..Default::default()
    };
    let generation = Generator::new(client, &model).generate(&PROMPTS, &options);
    for (sequence, expected) in generation.unwrap().sequences.iter().zip(&expected) {
        assert_eq!(&sequence.tokens, expected);
    }
    assert_ne!(plain, expected[0]);
}

#[derive(Deserialize)]
struct Case {
    logits: Vec<Option<f32>>,
    top_k: Option<usize>,
    top_p: Option<f64>,
    kept: Vec<bool>,
}

#[test]
fn kept_tokens_are_those_of_numpy() {
    let text = std::fs::read(golden("sampling.json")).unwrap();
    let cases: Vec<Case> = serde_json::from_slice(&text).unwrap();
    for client in clients() {
        for forms in cases.chunk_by(|a, b| (a.top_k, a.top_p) == (b.top_k, b.top_p)) {
            let (top_k, top_p) = (forms[0].top_k, forms[0].top_p);
            let filter = halite_nn::jit(client, move |cx, [logits]| {
                [most_likely(
                    logits,
                    top_k,
                    top_p.map(|p| cx.scalar(p, DType::F32)),
                )]
            });
            let logits = |case: &Case| -> Vec<f32> {
                case.logits
                    .iter()
                    .map(|logit| logit.unwrap_or(f32::NEG_INFINITY))
                    .collect()
            };
            let rows: Vec<f32> = forms.iter().flat_map(logits).collect();
            let given = Array::from_slice(client, &rows, [forms.len(), 12]).unwrap();
            let [kept] = filter.run([&given]).unwrap();
            let kept = kept.to_vec::<f32>().unwrap();
            for (case, (kept, given)) in forms.iter().zip(kept.chunks(12).zip(rows.chunks(12))) {
                for (place, &expected) in case.kept.iter().enumerate() {
                    // A token of probability 0 is never drawn.
                    let expected = if expected {
                        given[place]
                    } else {
                        f32::NEG_INFINITY
                    };
                    assert_eq!(
                        kept[place], expected,
                        "{top_k:?} {top_p:?} {given:?} at {place}"
                    );
                }
            }
        }
    }
}

/// A chi-square test of first tokens against their probabilities, 0.001 significance.
#[test]
fn draws_follow_the_distribution() {
    const BATCH: usize = 4000;
    for client in clients() {
        let mut model = loaded(client, "qwen2");
        let small = model.norm.scale.to_vec::<f32>().unwrap();
        let small: Vec<f32> = small.iter().map(|scale| scale / 2.0).collect();
        model.norm.scale = Array::from_slice(client, &small, [16]).unwrap();
        let pass = Jit::<Empty<()>, (Transformer<()>, Leaf<()>), Leaf<()>>::function(
            client,
            |cx, (model, Leaf(tokens))| {
                cx.set_mode(false, None);
                Leaf((model.forward(tokens) / 0.7).softmax(2))
            },
        );
        let prompt = Leaf(Array::from_slice(client, &[1u32, 2], [1, 2]).unwrap());
        let Leaf(probabilities) = pass
            .run_with((model.leaf_refs(), prompt.leaf_refs()))
            .unwrap();
        let probabilities = probabilities.to_vec::<f32>().unwrap().split_off(20);
        let sampling = Sampling {
            temperature: 0.7,
            seed: 5,
            ..Default::default()
        };
        let options = GenerationOptions {
            max_tokens: 1,
            sampling,
            ..Default::default()
        };
        let mut generator = Generator::new(client, &model);
        let generation = generator
            .generate(&vec![[1u32, 2]; BATCH], &options)
            .unwrap();
        let mut counts = [0.0f64; 20];
        for sequence in &generation.sequences {
            counts[sequence.tokens[0] as usize] += 1.0;
        }
        let statistic = |(count, &p): (&f64, &f32)| {
            let expected = BATCH as f64 * f64::from(p);
            (count - expected).powi(2) / expected
        };
        let chi_square: f64 = counts.iter().zip(&probabilities).map(statistic).sum();
        // The 0.999 quantile for 19 degrees of freedom.
        assert!(
            chi_square < 43.8,
            "{chi_square}: {counts:?} {probabilities:?}"
        );
    }
}

#[test]
fn mistakes_of_cached_passes_name_types() {
    let cx = halite_nn::Trace::new();
    let model = Transformer::new(&TransformerConfig::tiny()).unwrap();
    let model = model.map_leaves(|path, param| cx.input(param.ty, path.to_string()));
    let tokens = cx.input(TensorType::new(DType::U32, [2, 3]), "tokens");
    let (_, cache) = model.prefill(tokens, None, 8);
    assert_eq!(cache.keys.ty(), model.config.cache_type(DType::F32, 2, 8));
    assert!(cx.mistakes().is_empty());
    let _ = model.prefill(tokens, None, 2);
    let zero = cx.scalar(0.0, DType::S32);
    let _ = model.decode(tokens.slice_dim(0, ..1), cache, zero, None);
    let _ = model.decode(tokens, cache, zero.broadcast_to([2]), None);
    let error = cx.check().unwrap_err().to_string();
    for part in [
        "3 tokens for a cache of 2 positions",
        "a cache of keys f32[2, 2, 2, 8, 8]",
        "start s32[2]",
    ] {
        assert!(error.contains(part), "{error}");
    }
}
