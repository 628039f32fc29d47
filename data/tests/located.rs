//! Tables, and the images that their rows name.

mod images;
mod tables;
mod transforms;
