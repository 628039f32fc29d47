//! Rules of reductions, over dimensions and over windows.

use halite_core::TensorType;
use halite_ir::{Extreme, Op, Reduction, Window};

use super::{Back, Step, shape::inverse};
use crate::{
    Tensor,
    reduce::{highest, lowest},
    tensor::splat,
};

impl<'t> Step<'_, 't> {
    #[track_caller]
    pub(super) fn reduce(&self, kind: Reduction, dims: &[usize]) -> Back<'t> {
        let ty = self.ty(0);
        let kept: Vec<usize> = (0..ty.rank()).filter(|dim| !dims.contains(dim)).collect();
        let spread = |reduced: Tensor<'t>| reduced.broadcast_in_dim(ty.dims(), &kept);
        vec![match kind {
            Reduction::Sum => Some(spread(self.g())),
            Reduction::Product => Some(spread(self.g()) * self.product_of_others(dims, &kept)),
            // Equal extremes share it equally.
            Reduction::Min | Reduction::Max => {
                let chosen = self.x(0).eq(spread(self.y(0)));
                let share = spread(self.g() / chosen.convert(ty.dtype()).sum(dims));
                Some(chosen.select(share, share.zeros_like()))
            }
            // Of integers or bool.
            Reduction::And | Reduction::Or => None,
        }]
    }

    /// For each element, the product of all that it is multiplied with. Not the product divided by it, which is wrong
    /// where it is 0.
    #[track_caller]
    fn product_of_others(&self, dims: &[usize], kept: &[usize]) -> Tensor<'t> {
        let x = self.x(0);
        let order = [kept, dims].concat();
        let moved = x.transpose(&order);
        let rows = moved.flatten_from(kept.len());
        let last = kept.len();
        let mut padding = vec![(0, 0); rows.rank()];
        padding[last] = (1, -1);
        let before = |rows: Tensor<'t>| rows.pad(1.0, &padding).cumprod(last);
        let others = before(rows) * before(rows.reverse([last])).reverse([last]);
        others.reshape(moved.dims()).transpose(inverse(&order))
    }

    #[track_caller]
    pub(super) fn reduce_window(&self, kind: Reduction, window: &Window) -> Back<'t> {
        let extreme = match kind {
            Reduction::Sum => return vec![Some(self.sum_window(window))],
            Reduction::Product => return self.none("products over windows are not done; sum logarithms instead"),
            Reduction::Max => Extreme::Max,
            Reduction::Min => Extreme::Min,
            // Of integers or bool.
            Reduction::And | Reduction::Or => return self.nothing(),
        };
        if window.base_dilations.iter().chain(&window.window_dilations).any(|&dilation| dilation != 1) {
            return self.none("windows with dilations have no selection to go back through; slice with strides first");
        }
        vec![Some(self.trace.push_one(Op::SelectAndScatter { kind: extreme, window: window.clone() }, &[self.x(0), self.g()]))]
    }

    /// Sums over windows again, of the cotangent spread by the strides.
    #[track_caller]
    fn sum_window(&self, window: &Window) -> Tensor<'t> {
        let (g, ty) = (self.g(), self.ty(0));
        if ty.dims().contains(&0) || g.dims().contains(&0) {
            return self.x(0).zeros_like();
        }
        let dilated = |size: usize, by: usize| ((size - 1) * by + 1) as i64;
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for (dim, taken) in g.dims().into_iter().enumerate() {
            let reach = dilated(window.sizes[dim], window.window_dilations[dim]);
            let whole = dilated(ty.dims()[dim], window.base_dilations[dim]);
            let before = reach - 1 - window.padding[dim].0 as i64;
            low.push(before);
            high.push(whole + reach - 1 - dilated(taken, window.strides[dim]) - before);
        }
        let interior: Vec<usize> = window.strides.iter().map(|&stride| stride - 1).collect();
        let spread = g.pad_interior(0.0, low, high, interior);
        let back = Window {
            sizes: window.sizes.clone(),
            strides: window.base_dilations.clone(),
            base_dilations: vec![1; ty.rank()],
            window_dilations: window.window_dilations.clone(),
            padding: vec![(0, 0); ty.rank()],
        };
        spread.reduce_window(Reduction::Sum, back)
    }

    /// Reads from where it was added to. Which element is selected does not change when `x` does, almost everywhere.
    #[track_caller]
    pub(super) fn select_and_scatter(&self, kind: Extreme, window: &Window) -> Back<'t> {
        vec![None, self.if_wanted(1, || self.read_selected(kind, window))]
    }

    /// For each window, what is in the cotangent at the place of the first extreme of `x`: goes through the places of a
    /// window, keeping the best so far.
    #[track_caller]
    fn read_selected(&self, kind: Extreme, window: &Window) -> Tensor<'t> {
        let (x, g) = (self.x(0), self.g());
        if self.ty(1).dims().contains(&0) {
            return self.x(1).zeros_like();
        }
        let identity = match kind {
            Extreme::Max => lowest(x.dtype()),
            Extreme::Min => highest(x.dtype()),
        };
        let padding: Vec<(i64, i64)> = window.padding.iter().map(|&(low, high)| (low as i64, high as i64)).collect();
        let identity = self.trace.literal(splat(identity, &TensorType::scalar(x.dtype())));
        let (x, g) = (x.pad(identity, &padding), g.pad(0.0, &padding));
        let windows = self.ty(1);
        let mut place = vec![0; windows.rank()];
        let mut best: Option<(Tensor<'t>, Tensor<'t>)> = None;
        loop {
            let ends: Vec<usize> =
                (0..place.len()).map(|dim| place[dim] + (windows.dims()[dim] - 1) * window.strides[dim] + 1).collect();
            let here = |from: Tensor<'t>| from.slice_strided(&place, &ends, &window.strides);
            let (candidate, value) = (here(x), here(g));
            best = Some(match best {
                None => (candidate, value),
                Some((so_far, picked)) => {
                    let better = match kind {
                        Extreme::Max => candidate.gt(so_far),
                        Extreme::Min => candidate.lt(so_far),
                    };
                    (better.select(candidate, so_far), better.select(value, picked))
                }
            });
            if !advance(&mut place, &window.sizes) {
                break;
            }
        }
        best.expect("a window has at least one place").1
    }
}

/// The next place in row-major order; false after the last.
fn advance(place: &mut [usize], sizes: &[usize]) -> bool {
    for dim in (0..place.len()).rev() {
        place[dim] += 1;
        if place[dim] < sizes[dim] {
            return true;
        }
        place[dim] = 0;
    }
    false
}
