//! Strategies: partition specs of parameters, and errors.

use expect_test::expect;
use halite_core::{MeshShape, Tree};
use halite_nn::{Conv2d, Embedding, Init, Linear, Param, Stack, Transformer, TransformerConfig};
use halite_train::Strategy;

#[derive(Tree, Debug)]
struct Block<L> {
    attn: Attention<L>,
    mlp: Pair<L>,
}

#[derive(Tree, Debug)]
struct Attention<L> {
    q: Linear<L>,
    out: Linear<L>,
}

#[derive(Tree, Debug)]
struct Pair<L> {
    up: Linear<L>,
    down: Linear<L>,
}

#[derive(Tree, Debug)]
struct Model<L> {
    words: Embedding<L>,
    blocks: Vec<Block<L>>,
    conv1: Conv2d<L>,
    scale: L,
}

fn model() -> Model<Param> {
    let block = || Block {
        attn: Attention {
            q: Linear::new(64, 64),
            out: Linear::new(64, 64),
        },
        mlp: Pair {
            up: Linear::new(64, 256),
            down: Linear::new(256, 64),
        },
    };
    Model {
        words: Embedding::new(1001, 64),
        blocks: vec![block(), block()],
        conv1: Conv2d::new(3, 16, 5),
        scale: Param::new([], Init::Ones),
    }
}

fn mesh<const N: usize>(axes: [(&str, usize); N]) -> MeshShape {
    MeshShape::new(axes).unwrap()
}

/// `path spec` of each parameter that is split.
fn split(strategy: &Strategy, mesh: &MeshShape) -> Vec<String> {
    let specs = strategy.specs(mesh, &model()).unwrap();
    let split = specs
        .named()
        .into_iter()
        .filter(|(_, spec)| !spec.is_replicated());
    split
        .map(|(path, spec)| format!("{path} {spec}"))
        .filter(|line| !line.starts_with("blocks.1"))
        .collect()
}

#[test]
fn data_parallel_splits_the_batch_alone() {
    let mesh = mesh([("replica", 2), ("data", 4)]);
    let strategy = Strategy::default();
    assert_eq!(strategy.batch_spec(&mesh).to_string(), "((replica, data))");
    assert!(split(&strategy, &mesh).is_empty());
}

#[test]
fn fsdp_splits_the_largest_dimension_that_divides() {
    let data = mesh([("data", 8)]);
    let strategy = Strategy::fsdp();
    assert_eq!(strategy.batch_spec(&data).to_string(), "(data)");
    // 1001 words do not divide by 8, the width does.
    let expected = [
        "words.table (None, data)",
        "blocks.0.mlp.up.weight (None, data)",
        "blocks.0.mlp.down.weight (data, None)",
    ];
    assert_eq!(split(&strategy, &data), expected);
    let small = strategy
        .clone()
        .min_elements(64)
        .not_split("words.*")
        .unwrap()
        .not_split("conv1.**")
        .unwrap();
    let all = split(&small, &data);
    assert!(
        all.contains(&"blocks.0.attn.q.weight (data, None)".to_string()),
        "the first of equal ones: {all:?}"
    );
    assert!(
        all.contains(&"blocks.0.mlp.up.bias (data)".to_string()),
        "{all:?}"
    );
    assert!(
        !all.iter()
            .any(|line| line.contains("words") || line.contains("conv1")),
        "{all:?}"
    );
    // Over `fsdp` where the mesh has it; the batch over both.
    let both = mesh([("data", 2), ("fsdp", 4)]);
    assert_eq!(strategy.batch_spec(&both).to_string(), "((data, fsdp))");
    assert_eq!(split(&strategy, &both)[0], "words.table (None, fsdp)");
}

#[test]
fn tensor_parallel_splits_layers_by_columns_then_by_rows() {
    let model_axis = mesh([("model", 4)]);
    let expected = [
        "words.table (None, model)", // 1001 words do not divide by 4
        "blocks.0.attn.q.weight (None, model)",
        "blocks.0.attn.q.bias (model)",
        "blocks.0.attn.out.weight (model, None)",
        "blocks.0.mlp.up.weight (None, model)",
        "blocks.0.mlp.up.bias (model)",
        "blocks.0.mlp.down.weight (model, None)",
        "conv1.weight (None, None, None, model)",
        "conv1.bias (model)",
    ];
    assert_eq!(split(&Strategy::tensor_parallel(), &model_axis), expected);
    assert!(
        Strategy::tensor_parallel()
            .batch_spec(&model_axis)
            .is_replicated()
    );
    let words = split(&Strategy::tensor_parallel(), &mesh([("model", 7)]));
    assert_eq!(
        words,
        ["words.table (model, None)"],
        "1001 = 7 * 11 * 13, and 64 does not divide"
    );
}

#[test]
fn fsdp_prefers_a_dimension_that_tp_left_whole() {
    let both = mesh([("data", 4), ("model", 2)]);
    let strategy: Strategy = "fsdp+tp".parse().unwrap();
    let all = split(&strategy, &both);
    assert!(
        all.contains(&"blocks.0.mlp.up.weight (data, model)".to_string()),
        "{all:?}"
    );
    assert!(
        all.contains(&"blocks.0.mlp.down.weight (model, data)".to_string()),
        "{all:?}"
    );
    assert_eq!(
        all[0], "words.table (None, (model, data))",
        "1001 does not divide by 2 or 4"
    );
}

#[test]
fn dimension_of_stacked_layers_is_not_split() {
    let layer = || Pair {
        up: Linear::new(16, 64),
        down: Linear::new(64, 16),
    };
    let stack = Stack::new(1024, layer());
    let lines = |strategy: &Strategy, mesh: MeshShape| {
        strategy
            .specs(&mesh, &stack)
            .unwrap()
            .leaves()
            .into_iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    let fsdp = Strategy::fsdp().min_elements(1);
    let expected = [
        "(None, None, data)",
        "(None, data)",
        "(None, data, None)",
        "(None, data)",
    ];
    assert_eq!(lines(&fsdp, mesh([("data", 8)])), expected);
    let product = fsdp.and(Strategy::tensor_parallel());
    let expected = [
        "(None, data, model)",
        "(None, (model, data))",
        "(None, model, data)",
        "(None, data)",
    ];
    assert_eq!(lines(&product, mesh([("data", 4), ("model", 4)])), expected);
}

#[test]
fn transformer_is_split_by_heads_tokens_hidden() {
    let config = TransformerConfig {
        vocab_size: 1001,
        heads: 4,
        kv_heads: 2,
        layers: 4,
        ..TransformerConfig::tiny()
    };
    let model = Transformer::new(&config).unwrap();
    let strategy: Strategy = "fsdp+tp".parse().unwrap();
    let lines: Vec<String> = strategy
        .min_elements(2048)
        .describe(&mesh([("data", 2), ("model", 4)]), &model)
        .unwrap()
        .lines()
        .map(|line| {
            line.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .collect::<Vec<_>>()
                .join(" | ")
        })
        .collect();
    let expected = expect![[r#"
        fsdp+tp on mesh(data=2, model=4): 8 devices, batch sharded as (data)
        parameter | type | spec | shard | bytes | why
        tokens.table | f32[1001, 16] | (None, (model, data)) | f32[1001, 2] | 8,008 | tp: columns, fsdp
        positions.table | f32[16, 16] | () | f32[16, 16] | 1,024 | tp: positions are whole, under 2,048 elements
        blocks.attention_norm.scale | f32[4, 16] | () | f32[4, 16] | 256 | under 2,048 elements
        blocks.attention_norm.bias | f32[4, 16] | () | f32[4, 16] | 256 | under 2,048 elements
        blocks.attention.q.weight | f32[4, 16, 4, 4] | (None, None, model, None) | f32[4, 16, 1, 4] | 1,024 | tp: heads, under 2,048 elements
        blocks.attention.q.bias | f32[4, 4, 4] | (None, model, None) | f32[4, 1, 4] | 64 | tp: heads, under 2,048 elements
        blocks.attention.k.weight | f32[4, 16, 2, 4] | () | f32[4, 16, 2, 4] | 2,048 | tp: heads do not divide, under 2,048 elements
        blocks.attention.k.bias | f32[4, 2, 4] | () | f32[4, 2, 4] | 128 | tp: heads do not divide, under 2,048 elements
        blocks.attention.v.weight | f32[4, 16, 2, 4] | () | f32[4, 16, 2, 4] | 2,048 | tp: heads do not divide, under 2,048 elements
        blocks.attention.v.bias | f32[4, 2, 4] | () | f32[4, 2, 4] | 128 | tp: heads do not divide, under 2,048 elements
        blocks.attention.o.weight | f32[4, 4, 4, 16] | (None, model, None, None) | f32[4, 1, 4, 16] | 1,024 | tp: heads, under 2,048 elements
        blocks.attention.o.bias | f32[4, 16] | () | f32[4, 16] | 256 | under 2,048 elements
        blocks.mlp_norm.scale | f32[4, 16] | () | f32[4, 16] | 256 | under 2,048 elements
        blocks.mlp_norm.bias | f32[4, 16] | () | f32[4, 16] | 256 | under 2,048 elements
        blocks.mlp.up.weight | f32[4, 16, 64] | (None, data, model) | f32[4, 8, 16] | 2,048 | tp: columns, fsdp
        blocks.mlp.up.bias | f32[4, 64] | (None, model) | f32[4, 16] | 256 | tp: columns, under 2,048 elements
        blocks.mlp.down.weight | f32[4, 64, 16] | (None, model, data) | f32[4, 16, 8] | 2,048 | tp: rows, fsdp
        blocks.mlp.down.bias | f32[4, 16] | () | f32[4, 16] | 256 | under 2,048 elements
        norm.scale | f32[16] | () | f32[16] | 64 | under 2,048 elements
        norm.bias | f32[16] | () | f32[16] | 64 | under 2,048 elements
        110.69 KiB of parameters, 21.01 KiB on each device"#]];
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn rules_apply_to_the_last_dimensions() {
    let both = mesh([("data", 2), ("expert", 4)]);
    let strategy = Strategy::fsdp()
        .rule("blocks.<even>.mlp.up.weight", "expert")
        .unwrap()
        .rule("**.up|down.weight", "()")
        .unwrap();
    let all = split(&strategy, &both);
    assert!(
        all.contains(&"blocks.0.mlp.up.weight (None, expert)".to_string()),
        "{all:?}"
    );
    assert!(!all.iter().any(|line| line.contains("down")), "{all:?}");
}

/// Text of the error of a strategy on a mesh.
fn error(strategy: Strategy, mesh: &MeshShape) -> String {
    strategy.specs(mesh, &model()).unwrap_err().to_string()
}

#[test]
fn invalid_rules_are_errors_with_paths() {
    let eight = mesh([("data", 2), ("model", 4)]);
    let dp_tp: Strategy = "dp+tp".parse().unwrap();
    let cases = [
        (
            dp_tp.clone().rule("words.table", "model, None").unwrap(),
            "strategy: `dp+tp` on mesh(data=2, model=4): `words.table` (f32[1001, 64]): rule `words.table`: dimension 0 of \
             f32[1001, 64] is split 4 ways by (model, None) on mesh(data=2, model=4), and 1001 is not a multiple of 4",
        ),
        (
            dp_tp.clone().rule("words.tabel", "model, None").unwrap(),
            "strategy: `dp+tp` on mesh(data=2, model=4): `words.tabel` matches no parameter; did you mean `words.table`? The parameters are `words.table`, \
             `blocks.0.attn.q.weight`, `blocks.0.attn.q.bias`, `blocks.0.attn.out.weight`, `blocks.0.attn.out.bias`, \
             `blocks.0.mlp.up.weight` and 14 more",
        ),
        (
            dp_tp.clone().rule("**.weight", "None, modle").unwrap(),
            "strategy: rule `**.weight`: (None, modle) names axis `modle`, which mesh(data=2, model=4) does not have",
        ),
        (
            dp_tp.clone().rule("**.weight", "model, model").unwrap(),
            "strategy: rule `**.weight`: (model, model) uses axis `model` twice; an axis can split one dimension",
        ),
        (
            dp_tp
                .rule("**.bias", "None, model")
                .unwrap()
                .rule("scale", "data")
                .unwrap(),
            "strategy: `dp+tp` on mesh(data=2, model=4): 10 mistakes:\n  `blocks.0.attn.q.bias` (f32[64]): rule `**.bias`: \
             (None, model) has 2 dimensions, but f32[64] has 1",
        ),
    ];
    for (strategy, expected) in cases {
        let text = error(strategy, &eight);
        assert!(text.starts_with(expected), "{text}\nwant\n{expected}");
    }
}

#[test]
fn unused_axis_is_an_error() {
    let eight = mesh([("data", 2), ("model", 4)]);
    let cases = [
        (
            Strategy::tensor_parallel(),
            "strategy: `tp` splits nothing over the axis `data` of mesh(data=2, model=4): \
             each part of the parameters would be on 2 of its 8 devices, which compute the same; \
             `dp` and `fsdp` split the batch over it",
        ),
        (
            Strategy::fsdp(),
            "strategy: `fsdp` splits nothing over the axis `model` of mesh(data=2, model=4): \
             each part of the batch would be on 4 of its 8 devices, which compute the same; `tp` \
             splits parameters over it",
        ),
    ];
    for (strategy, expected) in cases {
        assert_eq!(error(strategy, &eight), expected);
    }
}

#[test]
fn missing_axis_is_an_error() {
    for (strategy, axis, expected) in [
        (
            Strategy::data_parallel(),
            "model",
            "over the axis `replica`, or `data`, or `fsdp`, which mesh(model=4) does not have",
        ),
        (
            Strategy::tensor_parallel(),
            "data",
            "over the axis `model`, which mesh(data=4) does not have",
        ),
    ] {
        let text = error(strategy, &mesh([(axis, 4)]));
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn model_without_matching_rule_is_an_error() {
    let text = Strategy::tensor_parallel()
        .specs(&mesh([("model", 4)]), &Linear::new(8, 8))
        .unwrap_err()
        .to_string();
    let expected = "no built-in rule of `tp` splits any parameter over the 4 devices of the axis \
                    `model`; add rules for `weight`, `bias`";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn unknown_strategy_lists_the_known_ones() {
    let text = "dp+pp".parse::<Strategy>().unwrap_err().to_string();
    assert_eq!(
        text,
        "strategy: unknown strategy `pp` in `dp+pp`; expected one of dp, zero1, fsdp, tp, dp+tp, zero1+tp, \
         fsdp+tp"
    );
}

#[test]
fn one_device_replicates_under_every_strategy() {
    let one = MeshShape::single();
    for name in ["dp", "fsdp", "tp", "dp+tp", "fsdp+tp"] {
        let strategy: Strategy = name.parse().unwrap();
        assert_eq!(strategy.to_string(), name);
        assert!(strategy.batch_spec(&one).is_replicated());
        assert!(split(&strategy, &one).is_empty());
    }
}

#[test]
fn table_lists_spec_shard_reason_per_parameter() {
    let strategy: Strategy = "fsdp+tp".parse().unwrap();
    let model = Pair {
        up: Linear::new(64, 256),
        down: Linear::new(256, 63).without_bias(),
    };
    let table = strategy
        .describe(&mesh([("data", 2), ("model", 4)]), &model)
        .unwrap();
    assert_eq!(
        table,
        "\
fsdp+tp on mesh(data=2, model=4): 8 devices, batch sharded as (data)
parameter    type          spec           shard         bytes  why
up.weight    f32[64, 256]  (data, model)  f32[32, 64]   8,192  tp: columns, fsdp
up.bias      f32[256]      (model)        f32[64]         256  tp: columns, under 16,384 elements
down.weight  f32[256, 63]  (model, None)  f32[64, 63]  16,128  tp: rows, under 16,384 elements
128.00 KiB of parameters, 24.00 KiB on each device
"
    );
}

#[test]
fn axis_roles_name_axes_of_the_mesh() {
    let roles = |strategy: &str, mesh: &MeshShape| {
        let roles = strategy.parse::<Strategy>().unwrap().axis_roles(mesh);
        [roles.batch, roles.model].map(|axes| axes.join("+"))
    };
    let both = mesh([("fsdp", 2), ("data", 2), ("model", 2)]);
    assert_eq!(roles("fsdp+tp", &both), ["fsdp+data", "model"]);
    assert_eq!(roles("fsdp", &both), ["fsdp+data", ""]);
    assert_eq!(roles("tp", &both), ["", "model"]);
    assert_eq!(roles("dp+tp", &MeshShape::single()), ["", ""]);
}
