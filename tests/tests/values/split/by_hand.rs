//! Regions that are written for one device, and what they compute on the whole.

use halite_core::{DType, MeshShape, PartitionSpec};
use halite_ir::Reduction;
use halite_nn::{Manual, Tensor, Trace};
use halite_tests::random::Random;

use crate::split::operations::Drawn;

/// A dimension in equal parts on the devices along an axis, and another that can be.
struct Parts {
    axis: String,
    count: usize,
    dim: usize,
    other: Option<usize>,
}

/// Collectives in a `shard_map` over the axes of a mesh; without one, the same on whole tensors.
pub(crate) fn by_hand<'t>(
    random: &mut Random,
    cx: &'t Trace,
    x: Tensor<'t>,
    (shape, is_split): (&MeshShape, bool),
) -> Drawn<'t> {
    let axes: Vec<_> = shape.axes().collect();
    let (axis, count) = *random.pick(&axes);
    let dims = x.dims();
    let fits = |dim: &usize| dims[*dim].is_multiple_of(count);
    let dim = Some(random.below(x.rank().max(1))).filter(|dim| *dim < x.rank() && fits(dim))?;
    let parts = Parts {
        axis: axis.to_owned(),
        count,
        dim,
        other: (0..x.rank()).filter(|&other| other != dim).find(fits),
    };
    let (kind, only) = (random.below(6), random.percent(30));
    let names = ["softmax", "sum", "mean", "cumsum", "shift", "scale"];
    let name = format!("by hand over {axis}: {}({dim})", names[kind]);
    if kind == 3 && parts.other.is_none() {
        return None;
    }
    // XLA has no number of a partition where other axes are its own.
    let only = only && kind != 5;
    if !is_split {
        return Some((name, parts.whole(cx, x, kind)));
    }
    let split = |dim: usize| {
        let mut dims = vec![Vec::new(); x.rank()];
        dims[dim].push(axis.to_owned());
        PartitionSpec::new(dims)
    };
    let result = match kind {
        1 | 2 => PartitionSpec::replicated(),
        _ => split(dim),
    };
    let over = Manual::over(shape);
    let over = if only { over.only([axis]) } else { over };
    let results = cx.shard_map(over, &[x], &[split(dim)], &[result], |x| {
        vec![parts.of_one_device(cx, x[0], kind)]
    });
    Some((name, results[0]))
}

impl Parts {
    fn of_one_device<'t>(&self, cx: &'t Trace, x: Tensor<'t>, kind: usize) -> Tensor<'t> {
        let (axis, dim) = (&*self.axis, self.dim);
        match kind {
            0 => (x.all_gather(dim, axis).softmax(dim)).reduce_scatter_mean(dim, axis),
            1 => x.sum_keep([dim]).all_reduce(Reduction::Sum, axis),
            2 => x.mean_keep([dim]).all_reduce_mean(axis),
            3 => {
                let other = self.other.expect("a dimension that can be split");
                let whole = x.all_to_all(other, dim, axis).cumsum(dim);
                whole.all_to_all(dim, other, axis)
            }
            4 => {
                let next = |from| (from, (from + 1) % self.count);
                let ring: Vec<_> = (0..self.count).map(next).collect();
                x.collective_permute(ring, axis)
            }
            _ => {
                let number = cx.axis_index(axis).convert(x.dtype()) + 1.0;
                let sum =
                    (x * number)
                        .all_gather(dim, axis)
                        .reduce_scatter(Reduction::Sum, dim, axis);
                sum / self.count as f64
            }
        }
    }

    fn whole<'t>(&self, cx: &'t Trace, x: Tensor<'t>, kind: usize) -> Tensor<'t> {
        let (dim, part) = (self.dim, x.dims()[self.dim] / self.count);
        match kind {
            0 => x.softmax(dim),
            1 => x.sum_keep([dim]),
            2 => x.mean_keep([dim]),
            3 => x.cumsum(dim),
            4 => {
                let last = x.dims()[dim] - part;
                cx.concat(&[x.slice_dim(dim, last..), x.slice_dim(dim, ..last)], dim)
            }
            _ => {
                let numbers = cx.iota(&x.ty().with_dtype(DType::S32), dim) / part as f64;
                x * (numbers.convert(x.dtype()) + 1.0)
            }
        }
    }
}
