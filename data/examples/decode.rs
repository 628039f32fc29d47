//! Decodes images for another program, such as `data/tests/golden/images/compare.py`: reads a path
//! from each line of the standard input, and writes height and width as `u32`, little-endian, and
//! the pixels `u8[height, width, 3]`; of an image that cannot be read two zeros, and the error as a
//! line.
use std::io::{self, BufRead, Write};

use halite_data::read_image;

fn main() -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for path in io::stdin().lock().lines() {
        match read_image(path?) {
            Ok(image) => {
                for &side in &image.ty().dims()[..2] {
                    out.write_all(&(side as u32).to_le_bytes())?;
                }
                out.write_all(image.bytes())?;
            }
            Err(error) => {
                out.write_all(&[0; 8])?;
                writeln!(out, "{}", error.to_string().replace('\n', " "))?;
            }
        }
        out.flush()?;
    }
    Ok(())
}
