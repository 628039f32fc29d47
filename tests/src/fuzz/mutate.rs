//! Mutations of valid inputs, of their bytes and of their textual structure.

use std::ops::Range;

use serde_json::Value;

use crate::random::Random;

/// Longest input: parsers are linear, and short inputs find as much in less time.
const LONGEST: usize = 1 << 14;

/// Numbers at the borders of types.
const NUMBERS: [i128; 22] = [
    0,
    1,
    -1,
    2,
    7,
    8,
    63,
    64,
    127,
    128,
    255,
    256,
    65_535,
    65_536,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    i64::MAX as i128,
    i64::MIN as i128,
    u64::MAX as i128,
    u64::MAX as i128 + 1,
];

const WORDS: [&str; 12] = [
    "NaN",
    "inf",
    "-",
    "1e999",
    "null",
    "\"",
    "\\",
    "\n",
    "\0",
    "\u{fffd}",
    "\u{e9}",
    "18446744073709551616",
];

/// Applies one to eight mutations to one of the seeds; mostly few, so that much of the input stays
/// valid.
pub(super) fn mutated(seeds: &[Vec<u8>], dictionary: &[&str], random: &mut Random) -> Vec<u8> {
    let mut bytes = random.pick(seeds).clone();
    let most = if random.percent(60) { 2 } else { 8 };
    for _ in 0..=random.below(most) {
        mutate(&mut bytes, seeds, dictionary, random);
        bytes.truncate(LONGEST);
    }
    bytes
}

fn mutate(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], dictionary: &[&str], random: &mut Random) {
    let length = bytes.len();
    let at = random.below(length + 1);
    let upto = |random: &mut Random, most: usize| random.below(most.min(length - at) + 1);
    match random.below(17) {
        0 if at < length => bytes[at] ^= 1 << random.below(8),
        1 if at < length => bytes[at] = random.next_u64() as u8,
        2 => bytes.insert(at, random.next_u64() as u8),
        3 => {
            let count = upto(random, 16);
            bytes.drain(at..at + count);
        }
        4 => bytes.truncate(at),
        // Repeats a piece once or many times.
        5 => {
            let count = upto(random, 64);
            let times = if random.percent(10) {
                1 + random.below(200)
            } else {
                1
            };
            let piece = bytes[at..at + count].repeat(times);
            bytes.splice(at..at, piece);
        }
        // Inserts a piece of another input.
        6 | 7 => {
            let other = random.pick(seeds);
            let from = random.below(other.len() + 1);
            let count = random.below(64.min(other.len() - from) + 1);
            let replaced = upto(random, 16);
            bytes.splice(at..at + replaced, other[from..from + count].iter().copied());
        }
        8 => binary_number(bytes, at, random),
        9 => decimal_number(bytes, random),
        10 => swap_pieces(bytes, random),
        14..=16 => word(bytes, seeds, random),
        11 | 12 if !dictionary.is_empty() => {
            let word = *random.pick(dictionary);
            let replaced = if random.percent(50) {
                upto(random, word.len())
            } else {
                0
            };
            bytes.splice(at..at + replaced, word.bytes());
        }
        _ => {
            let word = *random.pick(&WORDS);
            bytes.splice(at..at, word.bytes());
        }
    }
}

/// Overwrites 1, 2, 4 or 8 bytes by a number in either byte order.
fn binary_number(bytes: &mut [u8], at: usize, random: &mut Random) {
    let width = *random.pick(&[1, 2, 4, 8]);
    let Some(place) = bytes.get_mut(at..at + width) else {
        return;
    };
    let mut number = (random
        .pick(&NUMBERS)
        .wrapping_add(random.below(3) as i128 - 1))
    .to_le_bytes();
    if random.percent(50) {
        number[..width].reverse();
    }
    place.copy_from_slice(&number[..width]);
}

/// Replaces a run of digits by another number.
fn decimal_number(bytes: &mut Vec<u8>, random: &mut Random) {
    let is_start =
        |at: usize| bytes[at].is_ascii_digit() && (at == 0 || !bytes[at - 1].is_ascii_digit());
    let starts: Vec<usize> = (0..bytes.len()).filter(|at| is_start(*at)).collect();
    if starts.is_empty() {
        return;
    }
    let start = *random.pick(&starts);
    let digits = bytes[start..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    bytes.splice(
        start..start + digits,
        random.pick(&NUMBERS).to_string().into_bytes(),
    );
}

/// Fields of configurations that change results, and values for them.
const FIELDS: [&str; 24] = [
    "hidden_act",
    "activation_function",
    "rms_norm_eps",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "tie_word_embeddings",
    "attention_bias",
    "mlp_bias",
    "head_dim",
    "num_key_value_heads",
    "sliding_window",
    "is_causal",
    "position_embedding_type",
    "fan_in_fan_out",
    "use_dora",
    "use_rslora",
    "rank_pattern",
    "alpha_pattern",
    "layers_to_transform",
    "bias",
    "init_lora_weights",
];
const VALUES: &str = r#"[null, true, false, 0, 1, 2, 3, 4, 8, -1, 0.5, 100.0, 1e-2, "", "relu", "gelu", "silu", "linear",
    "none", [], {}, [1], "2", 1e300, {"rope_type": "linear", "factor": 2.0}, {"rope_theta": 50.0, "rope_type": "default"},
    {"type": "linear", "factor": 4.0}, {"query": 1}, {"value": 8}, "pissa", "absolute"]"#;

/// Changes one to three fields of an object of JSON.
pub(super) fn fields(object: &[u8], random: &mut Random) -> Vec<u8> {
    let Ok(Value::Object(mut object)) = serde_json::from_slice(object) else {
        return object.to_vec();
    };
    let values: Vec<Value> = serde_json::from_str(VALUES).expect("a list of JSON");
    for _ in 0..=random.below(3) {
        let mut known: Vec<String> = object.keys().cloned().collect();
        known.extend(FIELDS.map(str::to_owned));
        let name = random.pick(&known).clone();
        // A field inside of an object, in half of the cases.
        let inner = object.get_mut(&name).and_then(Value::as_object_mut);
        let (object, name) = match inner.filter(|inner| !inner.is_empty()) {
            Some(inner) if random.percent(50) => {
                let names: Vec<String> = inner.keys().cloned().collect();
                let name = random.pick(&names).clone();
                (inner, name)
            }
            _ => (&mut object, name),
        };
        match random.percent(20) {
            true => drop(object.remove(&name)),
            false => drop(object.insert(name, random.pick(&values).clone())),
        }
    }
    Value::Object(object).to_string().into_bytes()
}

/// Replaces a word by a word of one of the inputs, so that much of a language stays valid.
fn word(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    let other = random.pick(seeds);
    let (Some(old), Some(new)) = (any_word(bytes, random), any_word(other, random)) else {
        return;
    };
    bytes.splice(old, other[new].iter().copied());
}

/// The letters, digits and points around a random place.
fn any_word(bytes: &[u8], random: &mut Random) -> Option<Range<usize>> {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.%".contains(byte);
    let from = random.below(bytes.len() + 1);
    let start = from + bytes[from..].iter().position(is_part)?;
    let before = bytes[..start].iter().rev().take_while(|byte| is_part(byte));
    let start = start - before.count();
    let length = bytes[start..]
        .iter()
        .take_while(|byte| is_part(byte))
        .count();
    Some(start..start + length)
}

/// Swaps two of the pieces between separators.
fn swap_pieces(bytes: &mut Vec<u8>, random: &mut Random) {
    let separator = *random.pick(b",:.\n x=+ ");
    let mut pieces: Vec<Vec<u8>> = bytes
        .split(|byte| *byte == separator)
        .map(<[u8]>::to_vec)
        .collect();
    let (one, other) = (random.below(pieces.len()), random.below(pieces.len()));
    pieces.swap(one, other);
    *bytes = pieces.join(&separator);
}
