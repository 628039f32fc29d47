//! Transforms beside torchvision (`golden/images/transforms.py`).

use std::fs;

use halite_core::HostArray;
use halite_data::{
    Key,
    images::{
        Affine, ColorFactors, Transforms, adjust_color, affine, contact_sheet, decode_image,
        gaussian_blur,
    },
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    image: Image,
    square: Image,
    flip: Image,
    flip_vertical: Image,
    affine: Vec<Mapped>,
    rotate: Vec<Rotated>,
    color: Vec<Colored>,
    blur: Vec<Blurred>,
}

#[derive(Deserialize)]
struct Image {
    dims: Vec<usize>,
    bytes: Vec<u8>,
}

#[derive(Deserialize)]
struct Mapped {
    degrees: f64,
    translate: [f64; 2],
    scale: f64,
    shear: [f64; 2],
    bytes: Vec<u8>,
}

#[derive(Deserialize)]
struct Rotated {
    degrees: f64,
    bytes: Vec<u8>,
}

#[derive(Deserialize)]
struct Colored {
    factors: [f64; 3],
    bytes: Vec<u8>,
}

#[derive(Deserialize)]
struct Blurred {
    sigma: f64,
    bytes: Vec<u8>,
}

fn golden() -> (Golden, HostArray) {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/golden/images/transforms.json"
    );
    let golden: Golden = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let image = HostArray::from_slice(&golden.image.bytes, &golden.image.dims).unwrap();
    (golden, image)
}

/// Compares bytes, of which at most `others` differ by more than 1.
#[track_caller]
fn close(what: &str, found: &HostArray, expected: &[u8], others: usize) {
    assert_eq!(found.bytes().len(), expected.len(), "{what}");
    let pairs = found.bytes().iter().zip(expected);
    let far = pairs.filter(|(a, b)| a.abs_diff(**b) > 1).count();
    assert!(far <= others, "{what}: {far} of {} differ", expected.len());
}

#[test]
fn affine_maps_are_those_of_torchvision() {
    let (golden, image) = golden();
    for case in golden.affine {
        let map = Affine {
            degrees: case.degrees,
            translate: case.translate,
            scale: case.scale,
            shear: case.shear,
        };
        close(
            &format!("{map:?}"),
            &affine(&image, map).unwrap(),
            &case.bytes,
            0,
        );
    }
    for case in golden.rotate {
        let degrees = case.degrees;
        let map = Affine {
            degrees,
            ..Affine::default()
        };
        close(
            &format!("{map:?}"),
            &affine(&image, map).unwrap(),
            &case.bytes,
            0,
        );
    }
}

#[test]
fn colors_are_those_of_torchvision() {
    let (golden, image) = golden();
    for case in golden.color {
        let [brightness, contrast, saturation] = case.factors;
        let factors = ColorFactors {
            brightness,
            contrast,
            saturation,
        };
        let found = adjust_color(&image, factors).unwrap();
        close(&format!("{factors:?}"), &found, &case.bytes, 0);
    }
}

#[test]
fn blur_is_that_of_torchvision() {
    let (golden, image) = golden();
    for case in golden.blur {
        let found = gaussian_blur(&image, case.sigma).unwrap();
        close(&format!("sigma {}", case.sigma), &found, &case.bytes, 0);
    }
}

#[test]
fn flips_are_those_of_torchvision() {
    let (golden, _) = golden();
    let square = HostArray::from_slice(&golden.square.bytes, &golden.square.dims).unwrap();
    for (transforms, expected) in [
        (Transforms::new(19).flip(1.0), golden.flip),
        (Transforms::new(19).flip_vertical(1.0), golden.flip_vertical),
    ] {
        let found = transforms.apply(&square, Key::default()).unwrap();
        assert_eq!(found.bytes(), expected.bytes, "{transforms}");
    }
}

#[test]
fn blur_of_an_image_of_one_pixel_is_the_pixel() {
    let pixel = HostArray::from_slice(&[7u8, 80, 200], [1, 1, 3]).unwrap();
    assert_eq!(gaussian_blur(&pixel, 100.0).unwrap(), pixel);
    let column = HostArray::from_slice(&[50u8; 2 * 3], [2, 1, 3]).unwrap();
    assert_eq!(gaussian_blur(&column, 7.3).unwrap(), column);
    assert!(gaussian_blur(&pixel, f64::NAN).is_err());
}

/// Each crop is of the area and ratio that are asked for, and all places occur.
#[test]
fn random_crops_are_parts_of_the_image() {
    let value = |row: usize, column: usize| [row as u8 * 4, column as u8 * 4, 0];
    let pixels: Vec<u8> = (0..60 * 40)
        .flat_map(|index| value(index / 40, index % 40))
        .collect();
    let image = HostArray::from_slice(&pixels, [60, 40, 3]).unwrap();
    let transforms = Transforms::new(16).random_resized_crop(0.25..=0.5);
    let mut tops = Vec::new();
    for index in 0..300 {
        let key = Key {
            seed: 3,
            epoch: 0,
            index,
        };
        let crop = transforms.apply(&image, key).unwrap();
        let (first, last) = (&crop.bytes()[..3], &crop.bytes()[16 * 16 * 3 - 3..]);
        // Centers of the outermost pixels are 15/16 of a side apart.
        let side = |channel: usize| f64::from(last[channel] - first[channel]) / 4.0 * 16.0 / 15.0;
        let (height, width) = (side(0), side(1));
        let (area, ratio) = (height * width / 2400.0, width / height);
        assert!((0.22..0.55).contains(&area), "{area}");
        assert!((0.68..1.48).contains(&ratio), "{ratio}");
        tops.push(first[0]);
    }
    assert!(tops.iter().min() < Some(&10) && tops.iter().max() > Some(&110));
}

/// An image whose ratio no crop has: the largest central part.
#[test]
fn crop_of_a_thin_image_is_central() {
    let pixels: Vec<u8> = (0..40 * 400)
        .flat_map(|index| [(index % 400 / 2) as u8; 3])
        .collect();
    let image = HostArray::from_slice(&pixels, [40, 400, 3]).unwrap();
    let transforms = Transforms::new(4).random_resized_crop(1.0..=1.0);
    let crop = transforms.apply(&image, Key::default()).unwrap();
    // Columns 173 to 226 of 400.
    let row: Vec<u8> = crop.bytes().iter().step_by(3).take(4).copied().collect();
    assert!(
        row[0].abs_diff(90) < 4 && row[3].abs_diff(109) < 4,
        "{row:?}"
    );
}

#[test]
fn steps_have_random_numbers_of_their_own() {
    let (_, image) = golden();
    let key = Key {
        seed: 1,
        epoch: 2,
        index: 3,
    };
    let crop = Transforms::new(16).random_resized_crop(0.3..=0.9);
    let plain = crop.apply(&image, key).unwrap();
    assert_eq!(
        crop.clone()
            .flip(0.0)
            .blur(0.1..=2.0, 0.0)
            .apply(&image, key)
            .unwrap(),
        plain
    );
    let flipped = crop.flip(1.0).apply(&image, key).unwrap();
    let mirrored: Vec<u8> = (plain.bytes().chunks(48))
        .flat_map(|row| row.chunks(3).rev().flatten().copied().collect::<Vec<u8>>())
        .collect();
    assert_eq!(flipped.bytes(), mirrored);
}

#[test]
fn erased_part_is_black() {
    let image = HostArray::from_slice(&[200u8; 32 * 32 * 3], [32, 32, 3]).unwrap();
    let transforms = Transforms::new(32).erase(1.0);
    for index in 0..50 {
        let key = Key {
            seed: 9,
            epoch: 0,
            index,
        };
        let erased = transforms.apply(&image, key).unwrap();
        let black = erased.bytes().iter().filter(|&&byte| byte == 0).count() / 3;
        assert!((10..=360).contains(&black), "{black}");
    }
    let never = Transforms::new(32)
        .erase(0.0)
        .apply(&image, Key::default())
        .unwrap();
    assert_eq!(never, image);
}

#[test]
fn text_is_read_back() {
    for text in [
        "224",
        "224,crop=0.875,filter=bicubic",
        "64,random-resized-crop=0.08..1,crop-ratio=0.5..2,flip=0.5,flip-vertical=0.25",
        "8,rotate=10,translate=0.1,zoom=0.9..1.1,shear=5",
        "8,brightness=0.2,contrast=0.3,saturation=0.4",
        "8,blur=0.1..2,blur-probability=0.3,erase=0.25,erase-area=0.1..0.2",
    ] {
        let parsed: Transforms = text.parse().unwrap();
        assert_eq!(parsed.to_string(), text);
        assert_eq!(parsed.to_string().parse::<Transforms>().unwrap(), parsed);
    }
    let all = Transforms::new(8)
        .blur(1.0..=1.0, 0.5)
        .random_resized_crop(1.0..=1.0);
    assert_eq!(all.to_string().parse::<Transforms>().unwrap(), all);
}

#[test]
fn text_that_means_nothing_is_refused() {
    for (text, part) in [
        ("", "`` is not a side"),
        ("flip=0.5", "`flip=0.5` is not a side"),
        ("8,flip", "`flip` has no value"),
        ("8,flop=1", "unknown step `flop`; expected one of crop, "),
        ("8,flip=much", "`much` of `flip` is not a number"),
        ("8,flip=0..1", "`flip` has one value, not a range"),
        ("8,flip=0.5,flip=1", "`flip` is given twice"),
        (
            "8,filter=best",
            "expected one of bilinear, bicubic, box, lanczos",
        ),
        ("8,flip=2", "flip 2; expected a value or a range in 0..1"),
        ("8,flip=nan", "flip NaN"),
        ("8,zoom=2..1", "zoom 2..1"),
        ("0", "side 0"),
        ("8,blur=0", "blur 0; expected"),
    ] {
        let error = text.parse::<Transforms>().unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn sheet_is_the_images_in_rows() {
    let image = |value: u8| HostArray::from_slice(&[value; 6 * 20 * 3], [6, 20, 3]).unwrap();
    let images = [image(40), image(80), image(120)];
    let png = contact_sheet(&images, 2, &[]).unwrap();
    let sheet = decode_image(&png).unwrap();
    // Images, and 4 pixels around each.
    assert_eq!(sheet.ty().to_string(), "u8[24, 52, 3]");
    let at = |row: usize, column: usize| sheet.bytes()[3 * (row * 52 + column)];
    assert_eq!(
        [at(4, 4), at(9, 47), at(14, 4), at(14, 30)],
        [40, 80, 120, 24]
    );
    let captions = ["7", "1", ""].map(str::to_owned);
    let captioned = decode_image(&contact_sheet(&images, 2, &captions).unwrap()).unwrap();
    assert_eq!(captioned.ty().to_string(), "u8[42, 52, 3]");
    let at = |row: usize, column: usize| captioned.bytes()[3 * (row * 52 + column)];
    // A seven, three by five.
    let seven: Vec<bool> = (12..17)
        .flat_map(|row| (4..7).map(move |column| (row, column)))
        .map(|(row, column)| at(row, column) == 230)
        .collect();
    let expected = [1, 1, 1, 0, 0, 1, 0, 0, 1, 0, 1, 0, 0, 1, 0].map(|bit| bit == 1);
    assert_eq!(seven, expected);
}

#[test]
fn sheets_that_do_not_fit_are_refused() {
    let image = HostArray::from_slice(&[0u8; 2 * 30_000 * 3], [2, 30_000, 3]).unwrap();
    let images = [image.clone(), image.clone(), image];
    let error = contact_sheet(&images, 3, &[]).unwrap_err().to_string();
    assert!(error.contains("at most 65535 pixels a side"), "{error}");
    assert!(contact_sheet(&images, 1, &[]).is_ok());
    assert!(contact_sheet(&images, 0, &[]).is_err());
    assert!(contact_sheet(&[], 1, &[]).is_err());
    assert!(contact_sheet(&images, 1, &["one".to_owned()]).is_err());
}
