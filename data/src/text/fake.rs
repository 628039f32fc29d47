//! Generated text, for trying a program without data.

use crate::{Key, Random};

/// Different words.
const WORDS: usize = 400;

/// Words that may follow a word.
const FOLLOWERS: usize = 4;

/// Generated text of at least `length` bytes, all of them ASCII: sentences of invented words, of which
/// each is followed by one of four others, so that a model can learn more than the frequencies of
/// letters. The same arguments give the same text.
///
/// ```
/// use halite_data::text::fake_text;
///
/// let text = fake_text(1000, 7);
/// assert!(text.len() >= 1000 && text.ends_with(".\n"));
/// assert_eq!(text, fake_text(1000, 7));
/// ```
pub fn fake_text(length: usize, seed: u64) -> String {
    let key = Key {
        seed,
        ..Key::default()
    };
    let mut spelling = key.random("words");
    let words: Vec<String> = (0..WORDS).map(|_| word(&mut spelling)).collect();
    let mut links = key.random("followers");
    let follower = |_| links.below(WORDS);
    let followers: Vec<usize> = (0..WORDS * FOLLOWERS).map(follower).collect();
    let mut random = key.random("text");
    let (mut text, mut current) = (String::new(), 0);
    while text.len() < length {
        let count = 4 + random.below(9);
        for place in 0..count {
            current = followers[current * FOLLOWERS + random.below(FOLLOWERS)];
            let word = &words[current];
            match place {
                0 => text.push_str(&capitalized(word)),
                _ => text.push_str(&format!(" {word}")),
            }
        }
        text.push_str(".\n");
    }
    text
}

/// A word of one to three syllables.
fn word(random: &mut Random) -> String {
    const STARTS: &[u8] = b"bdfghklmnprstvw";
    const VOWELS: &[u8] = b"aeiou";
    let letter =
        |letters: &[u8], random: &mut Random| char::from(letters[random.below(letters.len())]);
    let mut word = String::new();
    for _ in 0..=random.below(3) {
        word.push(letter(STARTS, random));
        word.push(letter(VOWELS, random));
    }
    if random.chance(0.5) {
        word.push(letter(b"lnrst", random));
    }
    word
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
