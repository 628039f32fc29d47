//! Contact sheets: many images in one, for looking at a batch.

use halite_core::{Error, HostArray, Result};
use png::{BitDepth, ColorType, Encoder};

use super::{MAX_PIXELS, MAX_SIDE, View, glyphs};

const CONTEXT: &str = "contact sheet";

/// Distance between images, in pixels.
const GAP: usize = 4;

/// Height of a caption with its margin, and width of a character with its margin, in pixels.
const CAPTION: usize = 2 + glyphs::HEIGHT + 2;
const CHARACTER: usize = glyphs::WIDTH + 1;

const BACKGROUND: u8 = 24;
const TEXT: u8 = 230;

/// Draws images `u8[height, width, 3]` side by side, in rows of `columns`, with a caption below
/// each; returns a PNG file. Without captions `captions` is empty. A caption has digits, capital
/// letters and some signs; small letters are drawn as capitals, and what is wider than the image is
/// cut off.
///
/// # Errors
/// If there are no images or columns, an array is not an image, there is another number of
/// captions, or the sheet is larger than [`MAX_SIDE`] and [`MAX_PIXELS`] allow.
pub fn contact_sheet(images: &[HostArray], columns: usize, captions: &[String]) -> Result<Vec<u8>> {
    let views: Vec<View<'_>> =
        (images.iter().map(|image| View::of(image, CONTEXT))).collect::<Result<_>>()?;
    let invalid = |message: String| Error::invalid(CONTEXT, message);
    let count = views.len();
    if count == 0 || columns == 0 || !(captions.is_empty() || captions.len() == count) {
        return Err(invalid(format!(
            "{count} images, {columns} columns, {} captions; expected at least one image and column, and a caption for each image or none",
            captions.len()
        )));
    }
    let columns = columns.min(count);
    let rows = count.div_ceil(columns);
    let below = if captions.is_empty() { 0 } else { CAPTION };
    let largest = |side: fn(&View<'_>) -> usize| views.iter().map(side).max().unwrap_or(0);
    let cell = [
        largest(|view| view.height) + below,
        largest(|view| view.width),
    ];
    // Sides are at most 2^16, so that products fit.
    let side = |cell: usize, number: usize| number.checked_mul(cell + GAP).map(|side| side + GAP);
    let (height, width) = match (side(cell[0], rows), side(cell[1], columns)) {
        (Some(height), Some(width))
            if height <= MAX_SIDE && width <= MAX_SIDE && height * width <= MAX_PIXELS =>
        {
            (height, width)
        }
        _ => {
            return Err(invalid(format!(
                "{rows} rows of {columns} images of up to {}x{}; a sheet has at most {MAX_SIDE} pixels a side and {MAX_PIXELS} in all: take fewer",
                cell[1], cell[0]
            )));
        }
    };
    let mut sheet = Sheet {
        width,
        bytes: vec![BACKGROUND; height * width * 3],
    };
    for (index, view) in views.into_iter().enumerate() {
        let top = GAP + index / columns * (cell[0] + GAP);
        let left = GAP + index % columns * (cell[1] + GAP);
        sheet.draw(view, top, left);
        if let Some(caption) = captions.get(index) {
            sheet.write(caption, top + view.height + 2, left, cell[1]);
        }
    }
    sheet
        .into_png(height)
        .map_err(|error| invalid(error.to_string()))
}

struct Sheet {
    width: usize,
    bytes: Vec<u8>,
}

impl Sheet {
    fn draw(&mut self, view: View<'_>, top: usize, left: usize) {
        for (row, from) in view.bytes.chunks_exact(3 * view.width).enumerate() {
            let start = 3 * ((top + row) * self.width + left);
            self.bytes[start..start + from.len()].copy_from_slice(from);
        }
    }

    /// Writes a text into `space` columns.
    fn write(&mut self, text: &str, top: usize, left: usize, space: usize) {
        let characters = text.chars().take(space / CHARACTER);
        for (place, character) in characters.enumerate() {
            for (row, bits) in glyphs::rows_of(character).into_iter().enumerate() {
                for column in 0..glyphs::WIDTH {
                    if bits >> (glyphs::WIDTH - 1 - column) & 1 == 1 {
                        let x = left + place * CHARACTER + column;
                        let start = 3 * ((top + row) * self.width + x);
                        self.bytes[start..start + 3].fill(TEXT);
                    }
                }
            }
        }
    }

    fn into_png(self, height: usize) -> Result<Vec<u8>, png::EncodingError> {
        let mut file = Vec::new();
        // Sides of a sheet are below 2^16.
        let mut encoder = Encoder::new(&mut file, self.width as u32, height as u32);
        encoder.set_color(ColorType::Rgb);
        encoder.set_depth(BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.bytes)?;
        writer.finish()?;
        Ok(file)
    }
}
