//! Fields that cannot hold leaves; all of a struct are reported at once.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use halite_core::Tree;

#[derive(Tree)]
struct Mlp<L> {
    weight: L,
    by_name: HashMap<String, L>,
    sorted: BTreeMap<String, Vec<L>>,
    queue: VecDeque<L>,
    pointer: *const L,
    activation: fn(L) -> L,
    boxed: Box<dyn Fn(L) -> L>,
    shared: Vec<Arc<L>>,
    cell: (f32, Option<RefCell<L>>),
    slice: Box<[L]>,
}

#[derive(Tree)]
enum Pool<L> {
    Max,
    Learned { weights: HashMap<u32, L> },
    Shared(Arc<L>),
}

fn main() {}
