//! Values where numbers are hard: NaN of both signs, both zeros, sums and intermediate results
//! beyond 16 bits, indices beyond 32 bits, points at which a factor is 0.

mod indices;
mod order;
mod points;
mod sixteen;
