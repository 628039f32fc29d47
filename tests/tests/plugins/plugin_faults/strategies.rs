//! Steps of the trainer's strategies: lowering around faults costs them no collectives on meshes of
//! one axis, and few bytes on others.

use halite::{
    data::Labeled,
    prelude::*,
    train::{LowerOptions, Strategy, lower_step},
};
use halite_backends::{OpenOptions, Target};
use halite_core::{CompileOptions, Faults, MeshShape, TensorType};
use halite_fetch::Quiet;
use halite_nn::Conv2d;
use halite_pjrt::CollectiveUse;

use crate::plugin_faults::support::{plugin, with_faults};

/// Convolutions with pools between them.
#[derive(Tree)]
struct Net<L = Param> {
    first: Conv2d<L>,
    second: Conv2d<L>,
    last: Linear<L>,
}

struct Fit;

impl Task for Fit {
    type Model = Net<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        _cx: &'t Trace,
        model: &Net<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let x = model.first.forward(batch.input).relu();
        let x = x.max_pool([2, 2], [], Padding::Valid);
        let x = model.second.forward(x).relu();
        let x = x.avg_pool([3, 3], [2, 2], Padding::Same);
        let y = model.last.forward(x.flatten_from(1));
        Mean::weighted((y - batch.target).square().sum([1]), batch.weight)
    }
}

/// The collectives of a compiled step, by kind and size. The second convolution is in `groups`.
fn collectives(
    axes: &[(&str, usize)],
    strategy: &Strategy,
    groups: usize,
    faults: Faults,
) -> Vec<CollectiveUse> {
    let mesh = MeshShape::new(axes.iter().copied()).unwrap();
    let net = Net {
        first: Conv2d::new(4, 16, 3),
        second: Conv2d::new(16, 16, 3).groups(groups),
        last: Linear::new(3 * 3 * 16, 8),
    };
    let batch = [vec![16, 16, 16, 4], vec![16, 8]].map(|dims| TensorType::new(DType::F32, dims));
    let options = LowerOptions {
        capabilities: with_faults(plugin(), faults).capabilities(),
        ..LowerOptions::new(&mesh, strategy.clone())
    };
    let step = lower_step(Fit, net, Adam::new(1e-3), &batch, &options).unwrap();
    let target: Target = format!("cpu:{}", mesh.size()).parse().unwrap();
    let target = target.open(&OpenOptions::default(), &mut Quiet).unwrap();
    let compiled = target.compile(&step.program, &CompileOptions::default());
    let mut uses = compiled.unwrap().collectives().unwrap().uses;
    uses.sort_by_key(|one| format!("{one:?}"));
    uses
}

#[test]
fn lowering_around_faults_costs_few_collectives() {
    let mut trusted = Faults::ALL;
    trusted.split_windows = false;
    trusted.split_products = false;
    let two: &[(&str, usize)] = &[("data", 2), ("model", 2)];
    let wide = Strategy::data_parallel()
        .rule("**.weight", "(None, model)")
        .unwrap();
    let sharded = Strategy::fsdp().min_elements(1);
    let sharded = sharded.rule("last.weight", "(model, None)").unwrap();
    for (name, axes, strategy, groups) in [
        ("dp", &[("data", 4)][..], Strategy::data_parallel(), 1),
        ("dp, groups", &[("data", 4)], Strategy::data_parallel(), 4),
        ("fsdp", &[("data", 4)], Strategy::fsdp().min_elements(1), 1),
        ("wide", two, wide, 1),
        ("fsdp, two axes", two, sharded, 1),
    ] {
        let with = collectives(axes, &strategy, groups, Faults::ALL);
        let without = collectives(axes, &strategy, groups, trusted);
        if axes.len() == 1 {
            assert_eq!(with, without, "{name}");
        }
        // A product that is not summed into slices is summed whole.
        let sent = |uses: &[CollectiveUse]| uses.iter().map(CollectiveUse::sent).sum::<f64>();
        assert!(
            sent(&with) <= 1.1 * sent(&without),
            "{name}: {with:?}, not {without:?}"
        );
    }
}
