//! Exact permutation tests of two small samples, and the shift intervals of their order statistics.

use crate::stats;

/// Most arrangements that a test enumerates: 13 against 13 runs, or 24 pairs. Beyond it is refused.
pub const MAX_ARRANGEMENTS: u64 = 1 << 24;

/// Share of a sample's size by which two arrangements may differ and still be the same one: sums of
/// the same values in another order.
const SAME: f64 = 1e-9;

/// Result of an exact test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PermutationTest {
    /// Two-sided p: the share of arrangements at least as extreme as the observed one.
    pub p: f64,
    /// The smallest p that samples of these sizes can reach.
    pub smallest_p: f64,
    /// How many arrangements there are; all were looked at.
    pub arrangements: u64,
}

/// Exact two-sample permutation test of the difference of means (Fisher 1935, Pitman 1937), over all
/// `C(n + m, n)` ways to divide the pooled values; two-sided by |difference|.
///
/// Worked example: 1, 2, 3 against 11, 12, 13 → p = 2/20 = 0.1, the smallest possible.
///
/// # Errors
/// In one sentence, when a sample is empty or there are more than [`MAX_ARRANGEMENTS`].
pub fn permutation_unpaired(a: &[f64], b: &[f64]) -> Result<PermutationTest, String> {
    let (few, n) = (a.len().min(b.len()), a.len() + b.len());
    if few == 0 {
        return Err("one side has no run to compare".to_owned());
    }
    let arrangements = choose(n as u64, few as u64)
        .filter(|c| *c <= MAX_ARRANGEMENTS)
        .ok_or_else(|| too_many(&format!("{} and {} runs", a.len(), b.len())))?;
    // About the pooled mean, the sums of both groups are opposite numbers, and the difference of means
    // is a multiple of either: |sum| orders the arrangements.
    let pooled: Vec<f64> = a.iter().chain(b).copied().collect();
    let centre = stats::mean(&pooled).unwrap_or(0.0);
    let centred: Vec<f64> = pooled.iter().map(|x| x - centre).collect();
    let observed: f64 = centred[..a.len()].iter().sum();
    let bound = observed.abs() - tolerance(&pooled, &centred);
    let extreme = subsets(&centred, few, 0.0, bound);
    let of = arrangements as f64;
    let least = if a.len() == b.len() { 2.0 } else { 1.0 };
    Ok(PermutationTest {
        p: extreme as f64 / of,
        smallest_p: (least / of).min(1.0),
        arrangements,
    })
}

/// Exact permutation test of paired differences: all `2ⁿ` ways to exchange the sides of pairs;
/// two-sided by |sum of differences| (Fisher 1935).
///
/// Worked example: six differences of one sign → p = 2/64 = 0.031, the smallest possible.
///
/// # Errors
/// In one sentence, when there is no pair or there are more than [`MAX_ARRANGEMENTS`].
pub fn permutation_paired(differences: &[f64]) -> Result<PermutationTest, String> {
    let n = differences.len();
    if n == 0 {
        return Err("no pair has a value on both sides".to_owned());
    }
    let arrangements = u32::try_from(n)
        .ok()
        .and_then(|n| 1_u64.checked_shl(n))
        .filter(|c| *c <= MAX_ARRANGEMENTS)
        .ok_or_else(|| too_many(&format!("{n} pairs")))?;
    let observed: f64 = differences.iter().sum();
    let bound = observed.abs() - tolerance(differences, differences);
    let extreme = flips(differences, 0.0, bound);
    let of = arrangements as f64;
    Ok(PermutationTest {
        p: extreme as f64 / of,
        smallest_p: 2.0 / of,
        arrangements,
    })
}

fn too_many(what: &str) -> String {
    format!(
        "refused: {what} have more than the {MAX_ARRANGEMENTS} arrangements that are enumerated"
    )
}

fn tolerance(raw: &[f64], centred: &[f64]) -> f64 {
    let size: f64 = centred.iter().map(|x| x.abs()).sum();
    let rounding: f64 = raw.iter().map(|x| 8.0 * f64::EPSILON * x.abs()).sum();
    SAME * size + rounding
}

/// Subsets of `need` values whose sum with `sum` is at least `bound` in size.
fn subsets(values: &[f64], need: usize, sum: f64, bound: f64) -> u64 {
    if need == 0 {
        return u64::from(sum.abs() >= bound);
    }
    (0..values.len() + 1 - need)
        .map(|i| subsets(&values[i + 1..], need - 1, sum + values[i], bound))
        .sum()
}

/// Choices of signs whose sum with `sum` is at least `bound` in size.
fn flips(values: &[f64], sum: f64, bound: f64) -> u64 {
    match values.split_first() {
        None => u64::from(sum.abs() >= bound),
        Some((x, rest)) => flips(rest, sum + x, bound) + flips(rest, sum - x, bound),
    }
}

/// Binomial coefficient; `None` where it does not fit.
fn choose(n: u64, k: u64) -> Option<u64> {
    (0..k.min(n - k)).try_fold(1_u64, |c, i| Some(c.checked_mul(n - i)? / (i + 1)))
}

/// Scores of right-censored values (Gehan 1965, as Mantel 1967 wrote them): how many others are
/// certainly smaller, minus how many are certainly larger. `(value, true)` is exact, `(bound, false)`
/// is at least that.
pub(crate) fn gehan_scores(sample: &[(f64, bool)]) -> Vec<f64> {
    let below = |low: (f64, bool), high: (f64, bool)| {
        low.1 && (low.0 < high.0 || (low.0 == high.0 && !high.1))
    };
    sample
        .iter()
        .map(|x| {
            let smaller = sample.iter().filter(|y| below(**y, *x)).count();
            let larger = sample.iter().filter(|y| below(*x, **y)).count();
            smaller as f64 - larger as f64
        })
        .collect()
}

/// Interval of the shift from `a` to `b` with at least 95 % (`tail` 0.025) coverage where both have
/// one shape: order statistics of all pairwise differences, their ranks from the exact distribution of
/// the Mann–Whitney count (Hodges & Lehmann 1963, Moses 1953). `None` where the samples are too small
/// for any such rank, or too large to count.
///
/// Worked example: 5 against 5 runs at 0.025: the third smallest and third largest of 25 differences.
pub fn shift_unpaired(a: &[f64], b: &[f64], tail: f64) -> Option<(f64, f64)> {
    let (n, m) = (a.len(), b.len());
    choose((n + m) as u64, n as u64).filter(|c| *c <= MAX_ARRANGEMENTS)?;
    // Gaussian binomial coefficients: the number of arrangements with each count.
    let size = n * m + 1;
    let mut counts = vec![0_i64; size];
    *counts.first_mut()? = 1;
    for i in 1..=n {
        for u in (m + i..size).rev() {
            counts[u] -= counts[u - m - i];
        }
        for u in i..size {
            counts[u] += counts[u - i];
        }
    }
    let mut differences: Vec<f64> = b
        .iter()
        .flat_map(|y| a.iter().map(move |x| y - x))
        .collect();
    ends(&mut differences, &counts, tail)
}

/// The same for paired differences: order statistics of all Walsh averages, their ranks from the exact
/// distribution of the signed-rank sum (Hodges & Lehmann 1963, Tukey 1949).
pub fn shift_paired(differences: &[f64], tail: f64) -> Option<(f64, f64)> {
    let n = differences.len();
    u32::try_from(n)
        .ok()
        .and_then(|n| 1_u64.checked_shl(n))
        .filter(|c| *c <= MAX_ARRANGEMENTS)?;
    let size = n * (n + 1) / 2 + 1;
    let mut counts = vec![0_i64; size];
    *counts.first_mut()? = 1;
    for i in 1..=n {
        for u in (i..size).rev() {
            counts[u] += counts[u - i];
        }
    }
    let mut walsh: Vec<f64> = (0..n)
        .flat_map(|i| (i..n).map(move |j| (differences[i] + differences[j]) / 2.0))
        .collect();
    ends(&mut walsh, &counts, tail)
}

/// The k-th smallest and k-th largest value, with the largest k for which P(count < k) ≤ `tail`.
fn ends(values: &mut [f64], counts: &[i64], tail: f64) -> Option<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    let total: i64 = counts.iter().sum();
    let mut below = 0;
    let k = counts
        .iter()
        .take_while(|c| {
            below += **c;
            below as f64 <= tail * total as f64
        })
        .count();
    let low = *values.get(k.checked_sub(1)?)?;
    let high = *values.get(values.len().checked_sub(k)?)?;
    (low <= high).then_some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_examples() {
        let t = permutation_unpaired(&[1.0, 2.0, 3.0], &[11.0, 12.0, 13.0]).unwrap();
        assert_eq!((t.p, t.smallest_p, t.arrangements), (0.1, 0.1, 20));
        let t = permutation_paired(&[1.0, 2.0, 1.5, 3.0, 0.5, 1.0]).unwrap();
        assert_eq!((t.p, t.smallest_p), (0.031_25, 0.031_25));
        assert_eq!(permutation_unpaired(&[2.0; 5], &[2.0; 5]).unwrap().p, 1.0);
        assert!(permutation_unpaired(&[], &[1.0]).is_err());
        assert!(permutation_paired(&[1.0; 25]).is_err());
        assert!(permutation_unpaired(&[1.0; 40], &[1.0; 40]).is_err());
    }

    #[test]
    fn shifts_of_small_samples() {
        let a = [1.0, 2.0, 3.0, 4.0, 5.0];
        let b = [11.0, 12.0, 13.0, 14.0, 15.0];
        // Differences: 6, 7, 7, 8, … , 13, 13, 14.
        assert_eq!(shift_unpaired(&a, &b, 0.025), Some((7.0, 13.0)));
        assert_eq!(shift_unpaired(&a[..3], &b[..3], 0.025), None);
        assert_eq!(shift_paired(&a, 0.025), None);
        assert_eq!(
            shift_paired(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 0.025),
            Some((1.0, 6.0))
        );
    }

    #[test]
    fn censored_values_are_scored_by_what_is_certain() {
        let scores = gehan_scores(&[(1.0, true), (2.0, true), (1.5, false), (9.0, false)]);
        assert_eq!(scores, [-3.0, 0.0, 1.0, 2.0]);
    }
}
