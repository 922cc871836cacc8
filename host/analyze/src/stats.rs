//! Small-sample statistics: order statistics, moments, Student's t, Holm.

/// Value of nearest rank `⌈q·n⌉` in an ascending sample; `None` when it is empty.
pub(crate) fn nearest_rank<T: Copy>(sorted: &[T], q: f64) -> Option<T> {
    let last = sorted.len().checked_sub(1)?;
    let rank = (q * sorted.len() as f64 - 1e-9).ceil().max(1.0) as usize;
    sorted.get((rank - 1).min(last)).copied()
}

/// Arithmetic mean; `None` when there are no values.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Sample standard deviation, `√(Σ(x − x̄)² / (n − 1))`; `None` below two values.
pub(crate) fn sample_sd(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let centre = mean(values)?;
    let squares: f64 = values.iter().map(|x| (x - centre) * (x - centre)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// Median: the middle value, or the mean of the two middle ones.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    if n == 0 {
        None
    } else if n % 2 == 1 {
        Some(sorted[n / 2])
    } else {
        Some((sorted[n / 2 - 1] + sorted[n / 2]) / 2.0)
    }
}

/// ln Γ(x) for x > 0 (Lanczos, g = 7, nine terms; relative error below 1e-14).
fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let t = x + 7.5;
    let mut sum = TERMS[0];
    for (i, term) in TERMS.iter().enumerate().skip(1) {
        sum += term / (x + i as f64);
    }
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

/// Most terms of the continued fraction; it converges in far fewer for the arguments used here.
const MAX_FRACTION_TERMS: u32 = 500;

/// Regularised incomplete beta function I_x(a, b), by Lentz's continued fraction
/// (Abramowitz & Stegun 26.5.8).
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction converges fast only below the mean; above it the symmetry is used.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let front =
        (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    let tiny = 1e-300;
    let guard = |v: f64| if v.abs() < tiny { tiny } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / guard(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for m in 1..=MAX_FRACTION_TERMS {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / guard(1.0 + even * d);
        c = guard(1.0 + even / c);
        fraction *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / guard(1.0 + odd * d);
        c = guard(1.0 + odd / c);
        let step = d * c;
        fraction *= step;
        if (step - 1.0).abs() < 1e-15 {
            break;
        }
    }
    front * fraction
}

/// P(T ≤ t) of Student's t with `df` degrees of freedom, for t ≥ 0.
fn t_cdf_upper_half(t: f64, df: f64) -> f64 {
    1.0 - 0.5 * incomplete_beta(df / 2.0, 0.5, df / (df + t * t))
}

/// Quantile of Student's t: the `t` with P(T ≤ t) = `p`, for 0.5 ≤ p < 1 and df ≥ 1, by bisection on
/// the regularised incomplete beta function. `None` outside that domain.
///
/// Worked example: p = 0.975, df = 4 → 2.776445.
pub fn t_quantile(p: f64, df: u64) -> Option<f64> {
    t_quantile_real(p, df as f64)
}

/// The same for degrees of freedom that are no whole number, as Welch's are; df > 0.
pub(crate) fn t_quantile_real(p: f64, df: f64) -> Option<f64> {
    if !(df > 0.0 && df.is_finite() && (0.5..1.0).contains(&p)) {
        return None;
    }
    let (mut lo, mut hi) = (0.0_f64, 1.0_f64);
    // 2^60 covers df = 1 up to p = 1 − 1e-18, which f64 cannot even express.
    for _ in 0..60 {
        if t_cdf_upper_half(hi, df) >= p {
            break;
        }
        hi *= 2.0;
    }
    // Halving ends at the resolution of f64, after about 50 steps.
    for _ in 0..200 {
        if hi - lo <= 1e-15 * hi {
            break;
        }
        let middle = lo + (hi - lo) / 2.0;
        if t_cdf_upper_half(middle, df) < p {
            lo = middle;
        } else {
            hi = middle;
        }
    }
    Some(lo + (hi - lo) / 2.0)
}

/// Multiplier of the two-sided 95 % t-interval, as published: to three decimals (2.776 at df 4).
/// `None` at df 0: one run has no interval.
pub fn t_multiplier(df: u64) -> Option<f64> {
    t_quantile(0.975, df).map(|t| (t * 1000.0).round() / 1000.0)
}

/// Holm's step-down adjustment of a family of p-values (Holm 1979): sorted ascending, the i-th of m
/// (from 0) becomes `max over j ≤ i of min(1, (m − j)·p_j)`. The order of the input is kept.
///
/// Worked example: [0.01, 0.04, 0.03] → [0.03, 0.06, 0.06].
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut adjusted = vec![0.0; p.len()];
    let mut running = 0.0_f64;
    for (rank, i) in order.into_iter().enumerate() {
        running = running.max(((p.len() - rank) as f64 * p[i]).min(1.0));
        adjusted[i] = running;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_ranks() {
        let sorted: Vec<u32> = (1..=100).collect();
        assert_eq!(nearest_rank(&sorted, 0.5), Some(50));
        assert_eq!(nearest_rank(&sorted, 0.99), Some(99));
        assert_eq!(nearest_rank(&sorted, 1.0), Some(100));
        assert_eq!(nearest_rank(&sorted, 0.0), Some(1));
        assert_eq!(nearest_rank::<u32>(&[], 0.5), None);
        assert_eq!(nearest_rank(&[7], 0.99), Some(7));
    }

    #[test]
    fn moments_of_a_worked_sample() {
        let values = [41.0, 41.0, 43.0, 41.0, 42.0];
        assert_eq!(median(&values), Some(41.0));
        assert!((mean(&values).unwrap() - 41.6).abs() < 1e-12);
        assert!((sample_sd(&values).unwrap() - 0.8_f64.sqrt()).abs() < 1e-12);
        assert_eq!(sample_sd(&[1.0]), None);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
    }

    #[test]
    fn published_multipliers() {
        for (df, t) in [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (30, 2.042)] {
            assert_eq!(t_multiplier(df), Some(t), "df {df}");
        }
        assert_eq!(t_multiplier(0), None);
        assert_eq!(t_quantile(1.0, 4), None);
    }

    #[test]
    fn holm_worked_example() {
        let adjusted = holm(&[0.01, 0.04, 0.03]);
        for (got, want) in adjusted.iter().zip([0.03, 0.06, 0.06]) {
            assert!((got - want).abs() < 1e-12, "{adjusted:?}");
        }
        assert!(holm(&[]).is_empty());
    }
}
