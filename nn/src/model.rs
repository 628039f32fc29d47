//! Descriptions of models: what code that is generic over models needs.

use std::panic::Location;

use halite_core::{
    Array, Client, Result,
    tree::{Empty, Family, Leaf, Of, Tree},
};

use crate::{Jit, Param, init, rng};

/// A description of a model: every [`Tree`] of [`Param`]s, with static fields that threads can
/// share. Code that is generic over models needs this bound and no other.
pub trait Model: Tree<Leaf = Param, Family: Family<Of<Param>: Send + Sync>> {
    /// A copy of this, for a function that is compiled.
    fn described(&self) -> Of<Self, Param> {
        Tree::leaf_refs(self).map_leaves(|_, param| param.clone())
    }

    /// Initializes the parameters on the client's first device, in one program. The same `seed`
    /// gives the same parameters as a run of the trainer.
    ///
    /// ```
    /// use halite_core::{Client, Null};
    /// use halite_nn::{Linear, Model};
    ///
    /// # fn main() -> halite_core::Result<()> {
    /// # let client = Client::new(Null::new(1));
    /// let layer = Linear::new(4, 2).initialize(&client, 42)?; // a `Linear<Array>`
    /// assert_eq!(layer.weight.ty().to_string(), "f32[4, 2]");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If a parameter cannot be initialized, or the device has too little memory.
    #[track_caller]
    fn initialize(&self, client: &Client, seed: u64) -> Result<Of<Self, Array>> {
        let model = self.described();
        let key = Array::from_slice(client, &rng::key(seed), [2])?;
        Jit::<Empty<()>, Leaf<()>, Self::Family>::function(client, move |cx, Leaf(key)| {
            init(cx, &model, rng::fold_in(key, 0))
        })
        .named("init")
        .runs_once()
        .of_line(Location::caller())
        .run_with(Leaf(&key))
    }
}

impl<M: Tree<Leaf = Param, Family: Family<Of<Param>: Send + Sync>>> Model for M {}
