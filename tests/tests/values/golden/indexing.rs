//! Gather, scatter, sort, and what is made of them.

use halite_ir::{GatherAttributes, Reduction, ScatterAttributes};
use halite_nn::Tensor;
use halite_tests::{functions, golden::Given};

functions! {
    gather(g) {
        let indices = g.input("indices");
        g.x().gather(indices, GatherAttributes {
            offset_dims: g.list("offset"),
            collapsed_slice_dims: g.list("collapsed"),
            operand_batching_dims: g.list("operand_batching"),
            start_indices_batching_dims: g.list("indices_batching"),
            start_index_map: g.list("map"),
            index_vector_dim: indices.rank() - 1,
            slice_sizes: g.list("sizes"),
            indices_are_sorted: false,
        })
    };
    one_hot(g) g.x().one_hot(g.size("classes"), g.dtype("dtype"));
    scatter_add(g) g.x().scatter_add(g.input("indices"), g.input("updates"), g.size("dim"));
    scatter_and(g) scatter(g, Some(Reduction::And));
    scatter_max(g) scatter(g, Some(Reduction::Max));
    scatter_min(g) scatter(g, Some(Reduction::Min));
    scatter_or(g) scatter(g, Some(Reduction::Or));
    scatter_product(g) scatter(g, Some(Reduction::Product));
    scatter_replace(g) scatter(g, None);
    scatter_set(g) g.x().scatter_set(g.input("indices"), g.input("updates"), g.size("dim"));
    scatter_sum(g) scatter(g, Some(Reduction::Sum));
    take(g) g.x().take(g.input("indices"), g.size("dim"));
    take_along(g) g.x().take_along(g.input("indices"), g.size("dim"));

    argsort(g) g.x().argsort(g.size("dim"), g.get("descending"));
    sort(g) match g.inputs() {
        [x] => vec![x.sort(g.size("dim"), g.get("descending"))],
        many => g.cx.sort_by(many, g.size("dim"), g.get("descending")),
    };
    top_k(g) g.x().top_k(g.size("k"), g.x().rank() - 1);
}

fn scatter<'t>(g: &Given<'t>, combine: Option<Reduction>) -> Tensor<'t> {
    let indices = g.input("indices");
    let scatter = ScatterAttributes {
        update_window_dims: g.list("window"),
        inserted_window_dims: g.list("inserted"),
        input_batching_dims: g.list("operand_batching"),
        scatter_indices_batching_dims: g.list("indices_batching"),
        scatter_dims_to_operand_dims: g.list("map"),
        index_vector_dim: indices.rank() - 1,
        unique_indices: g.get("unique"),
        indices_are_sorted: false,
    };
    g.x().scatter(indices, g.input("updates"), scatter, combine)
}
