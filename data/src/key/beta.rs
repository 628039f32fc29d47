//! Beta distribution.

use super::{Random, ln};

impl Random {
    /// A number of the beta distribution with parameters `a` and `b`, each at least 1e-3 and at most
    /// 1e6; others are moved to the nearer bound. From two numbers of the gamma distribution
    /// (Marsaglia, Tsang 2000), as logarithms, so that small parameters do not underflow.
    ///
    /// ```
    /// use halite_data::Key;
    ///
    /// let mut random = Key::default().random("mixup");
    /// let lambda = random.beta(0.2, 0.2);
    /// assert!((0.0..=1.0).contains(&lambda));
    /// ```
    pub fn beta(&mut self, a: f64, b: f64) -> f64 {
        let (first, second) = (self.ln_gamma_variate(a), self.ln_gamma_variate(b));
        1.0 / (1.0 + exp(second - first))
    }

    /// Logarithm of a number of the gamma distribution of this shape and scale 1.
    fn ln_gamma_variate(&mut self, shape: f64) -> f64 {
        // NaN becomes the lower bound.
        let shape = shape.max(1e-3).clamp(1e-3, 1e6);
        // A shape below 1: that of shape + 1, times u^(1 / shape).
        let raised = if shape < 1.0 { shape + 1.0 } else { shape };
        let d = raised - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        let value = loop {
            let x = self.normal();
            let root = 1.0 + c * x;
            if root <= 0.0 {
                continue;
            }
            let ln_v = 3.0 * ln(root);
            let v = root * root * root;
            if ln(1.0 - self.f64()) < 0.5 * x * x + d - d * v + d * ln_v {
                break ln(d) + ln_v;
            }
        };
        if shape < 1.0 {
            value + ln(1.0 - self.f64()) / shape
        } else {
            value
        }
    }
}

/// Exponential function, from operations that IEEE 754 rounds correctly, as [`ln`]; 0 and infinity
/// beyond 700.
fn exp(value: f64) -> f64 {
    if value.abs() > 700.0 {
        return if value > 0.0 { f64::INFINITY } else { 0.0 };
    }
    let doublings = (value / std::f64::consts::LN_2).round();
    // ln 2 in two parts, the first of few bits, so that its product is exact.
    let rest = value - doublings * 0.693_145_751_953_125 - doublings * 1.428_606_820_309_417_3e-6;
    // At most 0.35, so terms of higher order are below 2^-60.
    let series = (1..=16)
        .rev()
        .fold(1.0, |sum, term| 1.0 + sum * rest / f64::from(term));
    series * f64::from_bits(((1023 + doublings as i64) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::exp;
    use crate::Key;

    #[test]
    fn exp_is_close_to_that_of_the_platform() {
        for value in [-699.0, -20.5, -1.0, -1e-9, 0.0, 0.3, 1.0, 33.3, 699.0] {
            let (ours, platform) = (exp(value), f64::exp(value));
            let most = 4e-16 * platform.abs();
            assert!(
                (ours - platform).abs() <= most,
                "{value}: {ours} {platform}"
            );
        }
        assert_eq!((exp(-800.0), exp(800.0)), (0.0, f64::INFINITY));
    }

    /// Distance of Kolmogorov and Smirnov between 10,000 draws and a distribution function.
    fn distance(a: f64, b: f64, cumulative: impl Fn(f64) -> f64) -> f64 {
        let mut random = Key::default().random("beta");
        let mut draws: Vec<f64> = (0..10_000).map(|_| random.beta(a, b)).collect();
        draws.sort_by(f64::total_cmp);
        let distances = draws.iter().enumerate().map(|(rank, &draw)| {
            let share = (rank as f64 + 0.5) / draws.len() as f64;
            (cumulative(draw) - share).abs()
        });
        distances.fold(0.0, f64::max)
    }

    /// Compares samples with distribution functions that are known in closed form.
    #[test]
    fn beta_has_its_distribution() {
        // Exceeded once in 10,000 times by chance.
        let most = 0.0225;
        let arcsine = |x: f64| 2.0 / std::f64::consts::PI * x.sqrt().asin();
        for (name, found) in [
            ("1, 1", distance(1.0, 1.0, |x| x)),
            ("2, 2", distance(2.0, 2.0, |x| x * x * (3.0 - 2.0 * x))),
            ("0.5, 0.5", distance(0.5, 0.5, arcsine)),
            ("0.2, 1", distance(0.2, 1.0, |x| x.powf(0.2))),
            ("1, 3", distance(1.0, 3.0, |x| 1.0 - (1.0 - x).powi(3))),
        ] {
            assert!(found < most, "beta({name}): {found}");
        }
    }

    #[test]
    fn extreme_parameters_have_draws() {
        let mut random = Key::default().random("beta");
        for a in [f64::NAN, -1.0, 0.0, 1e-3, 1e6, f64::INFINITY] {
            for b in [1e-300, 1.0, 1e300] {
                let draw = random.beta(a, b);
                assert!((0.0..=1.0).contains(&draw), "{a} {b}: {draw}");
            }
        }
    }
}
