//! Tables of measurements.

use halite_benches::ConvShape;

use super::measure::{Measured, Seconds, Times};

const PASSES: [&str; 3] = ["result", "input gradient", "kernel gradient"];
type Of = fn(&Seconds) -> f64;
/// Kinds of seconds.
const KINDS: [(&str, Of); 2] = [
    ("processor time", |it| it.processor),
    ("the time that passes", |it| it.wall),
];
/// Where a choice is reported as wrong, and where halite is behind.
const MARGIN: f64 = 1.1;

pub(crate) fn print_head() {
    println!(
        "milliseconds of processor time: XLA's code / halite's kernel / PyTorch, * where programs \
         call the kernel"
    );
}

pub(crate) fn print_line(shape: &ConvShape, Measured(passes): &Measured) {
    let cell = |times: &Times| {
        let torch = times.torch.map_or("-".to_owned(), |torch| {
            format!("{:.3}", 1e3 * torch.processor)
        });
        let mark = if times.is_called { "*" } else { "" };
        let [compiler, kernel] = [times.compiler, times.kernel].map(|it| 1e3 * it.processor);
        format!(
            "{compiler:8.3} / {:>8} / {torch:>7}",
            format!("{kernel:.3}{mark}")
        )
    };
    let cells = passes.each_ref().map(cell);
    println!("{:44} {}", shape.to_string(), cells.join("  "));
}

pub(crate) fn print_summary(all: &[(ConvShape, Measured)]) {
    let passes = || {
        let each = |(shape, Measured(passes)): &'_ (ConvShape, Measured)| {
            let shape = shape.clone();
            let named = std::iter::zip(PASSES, *passes);
            named.map(move |(pass, times)| (format!("{shape}: {pass}"), times))
        };
        all.iter().flat_map(each)
    };
    let wrong = passes().map(|(name, times)| (name, times.chosen().processor / times.best()));
    print_worst("the choice was wrong", wrong, MARGIN);
    for (kind, seconds) in KINDS {
        let beside = |times: &Times| Some(seconds(&times.chosen()) / seconds(&times.torch?));
        let behind = passes().filter_map(|(name, times)| Some((name, beside(&times)?)));
        print_worst(&format!("behind PyTorch in {kind}"), behind, 1.0);
    }
    println!("\nratios of processor time, over all shapes");
    for (number, pass) in PASSES.into_iter().enumerate() {
        let times = || all.iter().map(|(_, Measured(passes))| passes[number]);
        let of_compiler = times().map(|it| it.compiler.processor / it.chosen().processor);
        print_quantiles(&format!("{pass}: XLA / chosen"), of_compiler);
        let of_best = times().map(|it| it.best() / it.chosen().processor);
        print_quantiles(&format!("{pass}: best / chosen"), of_best);
    }
    for (kind, seconds) in KINDS {
        println!("\nhalite as chosen / PyTorch in {kind}");
        let ratio = |it: &Times| Some(seconds(&it.chosen()) / seconds(&it.torch?));
        for (number, pass) in PASSES.into_iter().enumerate() {
            let times = all.iter().map(|(_, Measured(passes))| &passes[number]);
            print_quantiles(pass, times.filter_map(ratio));
        }
        print_quantiles("all", passes().filter_map(|(_, it)| ratio(&it)));
        let whole = all.iter().filter_map(|(_, Measured(passes))| {
            let torch: Option<f64> = passes.iter().map(|it| Some(seconds(&it.torch?))).sum();
            Some(passes.iter().map(|it| seconds(&it.chosen())).sum::<f64>() / torch?)
        });
        print_quantiles("sums of the three passes", whole);
    }
}

/// Prints ratios above a limit, the largest first.
fn print_worst(what: &str, ratios: impl Iterator<Item = (String, f64)>, limit: f64) {
    let mut count = 0;
    let mut worst: Vec<_> = ratios
        .inspect(|_| count += 1)
        .filter(|it| it.1 > limit)
        .collect();
    worst.sort_by(|a, b| b.1.total_cmp(&a.1));
    println!("\n{what}: {} of {count}", worst.len());
    for (name, ratio) in worst {
        println!("  {ratio:6.2}  {name}");
    }
}

fn print_quantiles(what: &str, ratios: impl Iterator<Item = f64>) {
    let mut ratios: Vec<f64> = ratios.collect();
    if ratios.is_empty() {
        return;
    }
    ratios.sort_by(f64::total_cmp);
    let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
    let at = |part: f64| ratios[(part * (ratios.len() - 1) as f64).round() as usize];
    println!(
        "{what:32} geometric mean {mean:5.2}, quantiles 0 {:.2}, 0.1 {:.2}, 0.5 {:.2}, 0.9 {:.2}, 1 {:.2}",
        at(0.0),
        at(0.1),
        at(0.5),
        at(0.9),
        at(1.0)
    );
}
