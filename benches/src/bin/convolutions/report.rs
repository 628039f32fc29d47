//! Tables of measurements.

use halite_benches::ConvShape;

use super::measure::{Measured, Times};

const PASSES: [&str; 3] = ["result", "input gradient", "kernel gradient"];
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
        let torch = times
            .torch
            .map_or("-".to_owned(), |torch| format!("{:.3}", 1e3 * torch));
        let mark = if times.is_called { "*" } else { "" };
        let (compiler, kernel) = (1e3 * times.compiler, 1e3 * times.kernel);
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
    let wrong = passes().map(|(name, times)| (name, times.chosen() / times.best()));
    print_worst("the choice was wrong", wrong, MARGIN);
    let behind = passes().filter_map(|(name, times)| Some((name, times.chosen() / times.torch?)));
    print_worst("behind PyTorch", behind, 1.0);
    println!("\nratios of processor time, over all shapes");
    for (number, pass) in PASSES.into_iter().enumerate() {
        let times = || all.iter().map(|(_, Measured(passes))| passes[number]);
        print_quantiles(
            &format!("{pass}: XLA / chosen"),
            times().map(|it| it.compiler / it.chosen()),
        );
        print_quantiles(
            &format!("{pass}: best / chosen"),
            times().map(|it| it.best() / it.chosen()),
        );
        let of_torch = times().filter_map(|it| Some(it.chosen() / it.torch?));
        print_quantiles(&format!("{pass}: chosen / PyTorch"), of_torch);
    }
    let of_torch = passes().filter_map(|(_, it)| Some(it.chosen() / it.torch?));
    print_quantiles("all: chosen / PyTorch", of_torch);
    let whole = all.iter().filter_map(|(_, Measured(passes))| {
        let torch: Option<f64> = passes.iter().map(|it| it.torch).sum();
        Some(passes.iter().map(Times::chosen).sum::<f64>() / torch?)
    });
    print_quantiles("sums of the three passes: chosen / PyTorch", whole);
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
        "{what:44} geometric mean {mean:5.2}, quantiles 0 {:.2}, 0.1 {:.2}, 0.5 {:.2}, 0.9 {:.2}, 1 {:.2}",
        at(0.0),
        at(0.1),
        at(0.5),
        at(0.9),
        at(1.0)
    );
}
