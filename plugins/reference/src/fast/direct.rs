//! Operations that are never fused: each is a [`Direct`] in a module of its own, which computes the
//! memory of its results from that of its operands. Nothing else in the executor knows them, except
//! for `graph::known`, which recognizes them.

pub(super) mod concatenate;
pub(super) mod rows;
pub(super) mod slice;

use std::{fmt::Debug, sync::Arc};

use bytemuck::Pod;
use halite_core::Result;
use halite_kernels::Threads;
use halite_stablehlo::RankedType;

use super::{place::Base, values::Values};
use crate::storage::Storage;

/// An operation on whole buffers.
pub(super) trait Direct: Debug + Send + Sync {
    /// Computes all results.
    fn run(&self, call: &mut Call<'_, '_>) -> Result<()>;

    /// Number of operands, from the first on, whose memory results may take.
    fn overwrites(&self) -> usize {
        0
    }
}

/// A run of an operation.
pub(super) struct Call<'c, 'p> {
    pub(super) values: &'c mut Values<'p>,
    pub(super) operands: &'c [Base],
    pub(super) results: &'c [Base],
    /// Whether results may be parts of the first operand's memory: nothing updates it.
    pub(super) can_share: bool,
    #[expect(dead_code, reason = "for operations that run on several threads")]
    pub(super) threads: &'c Threads,
}

impl Call<'_, '_> {
    pub(super) fn ty(&self, operand: usize) -> &RankedType {
        &self.values.plan.types[self.operands[operand]]
    }

    pub(super) fn operand(&self, number: usize) -> Result<&Arc<Storage>> {
        self.values.get(self.operands[number])
    }

    /// The operand's elements, each of the size of its type.
    pub(super) fn elements<T: Pod>(&self, number: usize) -> Result<&[T]> {
        self.values.elements(self.operands[number])
    }

    pub(super) fn result_ty(&self, number: usize) -> &RankedType {
        &self.values.plan.types[self.results[number]]
    }

    /// Memory for a result, of unspecified contents.
    pub(super) fn take(&mut self, number: usize) -> Result<Storage> {
        self.values.take(self.results[number])
    }

    /// The elements of an operand of the same type as the result, in memory for the result: the
    /// operand's own where nothing else reads it.
    pub(super) fn owned(&mut self, number: usize) -> Result<Storage> {
        let base = self.operands[number];
        let uses = self.operands.iter().filter(|&&operand| operand == base);
        if uses.count() > 1 {
            self.values.copy(base)
        } else {
            self.values.owned(base)
        }
    }

    pub(super) fn set(&mut self, number: usize, storage: Storage) {
        self.values.set(self.results[number], storage);
    }
}
