//! The repository itself: documents, packages, parsers on mutated inputs, and what a run reports.

mod checks;
mod documents;
mod fuzz;
mod packaging;
mod reports;
