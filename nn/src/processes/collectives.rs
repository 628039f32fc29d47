//! Collectives between processes as operations on tensors: those between devices, over the axis
//! [`PROCESS_AXIS`](crate::PROCESS_AXIS).

use halite_core::DType;
use halite_ir::Reduction;

use super::Kind;
use crate::{
    Tensor,
    check::{Checked, check},
    dim::Dim,
    process_group::Reduce,
};

impl<'t> Tensor<'t> {
    /// The values of process `root`, in every process.
    ///
    /// Its gradient is that of the sum of the losses of all processes: the operand of `root` has the
    /// sum of all cotangents, and those of other processes have none.
    #[track_caller]
    pub fn process_broadcast(self, root: usize) -> Tensor<'t> {
        let Some(processes) = self.trace.processes() else {
            return self;
        };
        if root >= processes.size() {
            return self.mistake("process_broadcast", || {
                format!("there is no process {root} among {}", processes.size())
            });
        }
        let kind = Kind::Broadcast { root };
        self.over_processes("process_broadcast", |x| {
            let dims = x.dims();
            let y = super::exchange(x.trace, &processes, kind, "broadcast", x.flatten());
            y.reshape(dims)
        })
    }

    /// [`all_reduce`](Self::all_reduce) over the axis of the processes.
    #[track_caller]
    pub(crate) fn process_all_reduce(self, kind: Reduction) -> Tensor<'t> {
        let reduce = match kind {
            Reduction::Sum => Reduce::Sum,
            Reduction::Product => Reduce::Product,
            Reduction::Min => Reduce::Min,
            Reduction::Max => Reduce::Max,
            Reduction::And | Reduction::Or => {
                return self.mistake("all_reduce", || {
                    format!("{kind:?} is not there between processes; use `min` or `max`")
                });
            }
        };
        let Some(processes) = self.trace.processes() else {
            return self;
        };
        self.over_processes("all_reduce", |x| {
            let kind = Kind::AllReduce(reduce);
            let dims = x.dims();
            let y = super::exchange(x.trace, &processes, kind, "all_reduce", x.flatten());
            y.reshape(dims)
        })
    }

    /// [`reduce_scatter`](Self::reduce_scatter) of a sum over the axis of the processes.
    #[track_caller]
    pub(crate) fn process_reduce_scatter(self, kind: Reduction, dim: impl Dim) -> Tensor<'t> {
        const OP: &str = "reduce_scatter";
        let dim = check!(self.known_dim(OP, dim));
        if kind != Reduction::Sum {
            return self.mistake(OP, || {
                format!("{kind:?} is not there between processes; sums are")
            });
        }
        let Some(processes) = self.trace.processes() else {
            return self;
        };
        let (size, count) = (self.dims()[dim], processes.size());
        if !size.is_multiple_of(count) {
            return self.mistake(OP, || {
                format!(
                    "dimension {dim} of {} is not divisible by {count} processes",
                    self.ty()
                )
            });
        }
        self.over_processes(OP, |x| {
            let first = x.move_dim(dim, 0);
            let mut dims = first.dims();
            dims[0] /= count;
            let rows = first.reshape([count, dims.iter().product()]);
            let kind = Kind::ReduceScatter;
            let part = super::exchange(x.trace, &processes, kind, OP, rows);
            part.reshape(dims).move_dim(0, dim)
        })
    }

    /// [`all_gather`](Self::all_gather) over the axis of the processes.
    #[track_caller]
    pub(crate) fn process_all_gather(self, dim: impl Dim) -> Tensor<'t> {
        const OP: &str = "all_gather";
        let dim = check!(self.known_dim(OP, dim));
        let Some(processes) = self.trace.processes() else {
            return self;
        };
        self.over_processes(OP, |x| {
            let first = x.move_dim(dim, 0);
            let mut dims = first.dims();
            dims[0] *= processes.size();
            let kind = Kind::AllGather;
            let rows = super::exchange(x.trace, &processes, kind, OP, first.flatten());
            rows.reshape(dims).move_dim(0, dim)
        })
    }

    /// Exchanges this tensor by `exchange`, as a type that can be sent.
    #[track_caller]
    fn over_processes(
        self,
        op: &str,
        exchange: impl FnOnce(Tensor<'t>) -> Tensor<'t>,
    ) -> Tensor<'t> {
        let x = check!(self.sendable(op));
        let y = exchange(x);
        y.convert(self.dtype())
    }

    #[track_caller]
    fn sendable(self, op: &str) -> Checked<'t, Tensor<'t>> {
        if self.is_error() {
            return Err(self);
        }
        match self.dtype() {
            DType::F16 | DType::Bf16 => Ok(self.convert(DType::F32)),
            dtype if dtype.is_integer() || matches!(dtype, DType::F32 | DType::F64) => Ok(self),
            dtype => Err(self.mistake(op, || {
                format!("elements of type {dtype} are not sent between processes; convert them")
            })),
        }
    }
}
