//! Operations that are never fused: each is a [`Direct`] in a module of its own, which computes the
//! memory of its results from that of its operands. Nothing else in the executor knows them, except
//! for `graph::known`, which recognizes them.

mod accumulator;
pub(super) mod complex;
pub(super) mod concatenate;
pub(super) mod convolution;
pub(super) mod fft;
pub(super) mod indices;
pub(super) mod matrix;
pub(super) mod random;
pub(super) mod reduce;
pub(super) mod slice;
pub(super) mod sliding;
pub(super) mod sort;
pub(super) mod window;

use std::{fmt::Debug, sync::Arc};

use halite_core::Result;
use halite_kernels::Threads;
use halite_stablehlo::RankedType;

use super::{place::Base, values::Values};
use crate::storage::Storage;

/// An operation on whole buffers.
pub(super) trait Direct: Debug + Send + Sync {
    /// Computes all results.
    fn run(&self, call: &mut Call<'_, '_>) -> Result<()>;

    /// The name of the type, without its modules and parameters.
    fn name(&self) -> &'static str {
        let path = std::any::type_name::<Self>();
        let path = path.split('<').next().unwrap_or(path);
        path.rsplit("::").next().unwrap_or(path)
    }

    /// Number of operands, from the first on, whose memory results may take.
    fn overwrites(&self) -> usize {
        0
    }

    /// Limits the work to the first `read[dim]` elements along each dimension of the results: no
    /// operation reads the others.
    fn limit(&mut self, _read: &[usize]) {}
}

/// What an operation on lines reads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Input {
    Operand(usize),
    /// The position of each element in its line, which is nowhere in memory.
    Counter,
}

/// The elements of a row-major tensor along one dimension, or along neighbors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines {
    pub(super) outer: usize,
    pub(super) length: usize,
    pub(super) inner: usize,
}

impl Lines {
    /// The lines along a dimension.
    pub(super) fn along(dims: &[usize], dim: usize) -> Self {
        Lines {
            outer: dims[..dim].iter().product(),
            length: dims[dim],
            inner: dims[dim + 1..].iter().product(),
        }
    }

    fn count(&self) -> usize {
        self.outer * self.inner
    }

    /// The first element of a line.
    fn first(&self, line: usize) -> usize {
        line / self.inner * self.length * self.inner + line % self.inner
    }
}

/// A run of an operation.
pub(super) struct Call<'c, 'p> {
    pub(super) values: &'c mut Values<'p>,
    pub(super) operands: &'c [Base],
    pub(super) results: &'c [Base],
    /// Whether results may be parts of the first operand's memory: nothing updates it.
    pub(super) can_share: bool,
    pub(super) threads: &'c Threads,
}

impl Call<'_, '_> {
    pub(super) fn ty(&self, operand: usize) -> &RankedType {
        &self.values.plan.types[self.operands[operand]]
    }

    pub(super) fn operand(&self, number: usize) -> Result<&Arc<Storage>> {
        self.values.get(self.operands[number])
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
