//! The planted course of service without the chance of single requests: what share of the requests
//! meant for an instant is good, and how far chance can move a window's share.

use blackstart_plan::Plan;

use crate::Settings;
use crate::planning::TOKENS;
use crate::planning::{MS, S};
use crate::planted::{GAP_NS, Phase, Planted, State, TTFT_NS, middle};

/// Width of a step of the curve.
const STEP_NS: i64 = 20 * MS;

/// Sums over the steps before each step.
pub(crate) struct Curve {
    bad: Vec<f64>,
    bad_square: Vec<f64>,
    variance: Vec<f64>,
    rate_per_s: f64,
}

/// A window's share of good requests, and the standard deviation of what is observed of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Share {
    pub(crate) good: f64,
    pub(crate) deviation: f64,
}

impl Curve {
    /// The curve of a run.
    pub(crate) fn of(plan: &Plan, planted: &Planted, settings: Settings) -> Self {
        let steps = (plan.phases.load_end_ns() / STEP_NS) as usize;
        let mut curve = Self {
            bad: Vec::with_capacity(steps + 1),
            bad_square: Vec::with_capacity(steps + 1),
            variance: Vec::with_capacity(steps + 1),
            rate_per_s: settings.rate_per_s,
        };
        let (mut bad, mut bad_square, mut variance) = (0.0, 0.0, 0.0);
        let replicas = planted.phases.len() as f64;
        for step in 0..=steps {
            curve.bad.push(bad);
            curve.bad_square.push(bad_square);
            curve.variance.push(variance);
            let at_ns = step as i64 * STEP_NS + STEP_NS / 2;
            // Requests go to the replicas in turn: their shares are fixed, only what each does with
            // its own is chance.
            let (mut here, mut spread) = (0.0, 0.0);
            for phases in &planted.phases {
                let one = bad_share(phases, at_ns, plan, settings.noise);
                here += one / replicas;
                spread += one * (1.0 - one) / replicas;
            }
            bad += here;
            bad_square += here * here;
            variance += spread;
        }
        curve
    }

    /// The share of good requests among those meant for [from, to).
    ///
    /// With arrivals of a Poisson process the observed share of bad ones, B/N, deviates from ρ by
    /// about (B − ρN)/E N, whose variance is λ∫(f − ρ)² + v over the window, by (λT)².
    pub(crate) fn share(&self, from_ns: i64, to_ns: i64) -> Share {
        let (i, k) = ((from_ns / STEP_NS) as usize, (to_ns / STEP_NS) as usize);
        let steps = (k - i) as f64;
        let mean = (self.bad[k] - self.bad[i]) / steps;
        let square = (self.bad_square[k] - self.bad_square[i]) / steps;
        let own = (self.variance[k] - self.variance[i]) / steps;
        let requests = self.rate_per_s * (to_ns - from_ns) as f64 / 1e9;
        Share {
            good: 1.0 - mean,
            deviation: ((square - mean * mean).max(0.0) + own).sqrt() / requests.sqrt(),
        }
    }
}

/// Share of bad requests among those meant for an instant and one replica.
fn bad_share(phases: &[Phase], at_ns: i64, plan: &Plan, noise: f64) -> f64 {
    let now = crate::service::at(phases, at_ns);
    let ttft_ns = middle(TTFT_NS);
    let e2e_ns = ttft_ns + i64::from(TOKENS - 1) * middle(GAP_NS);
    let threshold_ns = i64::from(plan.method.slo.ttft_ms) * MS;
    let next = phases.get(now + 1);
    // What is still under way when the replica goes is lost with it.
    if let Some(next) = next
        && !next.state.answers()
        && next.from_ns - at_ns < e2e_ns
    {
        return 1.0;
    }
    match phases[now].state {
        State::Up => noise,
        State::Refusing | State::Hanging => 1.0,
        State::Frozen => {
            let thaw_ns = next.map_or(i64::MAX, |p| p.from_ns);
            if thaw_ns - at_ns <= threshold_ns - ttft_ns {
                noise
            } else {
                1.0
            }
        }
        State::Degraded { miss } => miss + (1.0 - miss) * noise,
        State::Creeping { ns_per_s } => {
            let grown_ns = ns_per_s * (at_ns - phases[now].from_ns) as f64 / S as f64;
            if ttft_ns as f64 + grown_ns <= threshold_ns as f64 {
                noise
            } else {
                1.0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planted::plant;
    use crate::{plan, scenario};

    fn curve_of(name: &str, noise: f64) -> (Curve, Planted) {
        let scenario = scenario(name).unwrap();
        let settings = Settings {
            rate_per_s: 100.0,
            noise,
        };
        let plan = plan(scenario, settings, &[1]).unwrap();
        let planted = plant(scenario, &plan, 1);
        (Curve::of(&plan, &planted, settings), planted)
    }

    #[test]
    fn a_window_half_away_is_half_good() {
        let (curve, planted) = curve_of("crash", 0.0);
        let back_ns = planted.service_return_ns.unwrap() / STEP_NS * STEP_NS;
        let half = curve.share(back_ns - 2 * S, back_ns + 2 * S);
        assert!((half.good - 0.5).abs() < 0.01, "{half:?}");
        // 400 requests, half of them bad, each where chance puts it: √(¼/400).
        assert!((half.deviation - 0.025).abs() < 0.001, "{half:?}");
        let whole = curve.share(back_ns + S, back_ns + 11 * S);
        assert_eq!((whole.good, whole.deviation), (1.0, 0.0));
    }

    #[test]
    fn replicas_in_turn_leave_less_to_chance() {
        let (curve, planted) = curve_of("crash-of-two", 0.0);
        let fire_ns = planted.fire_ns / STEP_NS * STEP_NS;
        let away = curve.share(fire_ns + S, fire_ns + 3 * S);
        assert!((away.good - 0.5).abs() < 1e-9, "{away:?}");
        assert!(away.deviation < 1e-6, "every second one is bad: {away:?}");
        let (noisy, _) = curve_of("no-fault", 0.1);
        let share = noisy.share(10 * S, 20 * S);
        assert!((share.good - 0.9).abs() < 1e-9, "{share:?}");
        // √(0.9 · 0.1 / 1000).
        assert!((share.deviation - 0.009_487).abs() < 1e-5, "{share:?}");
    }
}
