"""Reference values for the estimators, by implementations that share no code with ours.

Run:  python -m venv v && v/bin/pip install scipy lifelines ruptures && v/bin/python make.py > values.json
"""

import itertools
import json
import random
import re
import statistics

import numpy as np
import scipy
import scipy.special
import scipy.stats
import lifelines
import ruptures
from lifelines import AalenJohansenFitter, KaplanMeierFitter


def competing(seed, n, censor_at):
    """A sample in whole milliseconds with many ties: 1 completed, 2 errored, 0 censored."""
    rng = random.Random(seed)
    rows = []
    for _ in range(n):
        kind = rng.choices([1, 2], [0.7, 0.3])[0]
        t = int(rng.expovariate(1 / 400.0)) + 1
        if t >= censor_at:
            rows.append((censor_at, 0))
        elif rng.random() < 0.1:
            rows.append((t, 0))
        else:
            rows.append((t, kind))
    return rows


def aalen_johansen(rows):
    times = [t for t, _ in rows]
    kinds = [k for _, k in rows]
    out = {}
    for event, name in ((1, "completed"), (2, "errored")):
        # lifelines' own fitter moves tied times apart at random, so with ties the estimate is summed by
        # its definition over lifelines' risk table; without ties (below) that fitter is used itself.
        out[name] = cumulative_incidence(times, kinds, event)
    survival = KaplanMeierFitter().fit(times, [k != 0 for k in kinds])
    out["survival"] = float(survival.survival_function_.iloc[-1, 0])
    return out


def cumulative_incidence(times, kinds, event):
    """Σ S(t−)·d/n with S from lifelines' Kaplan–Meier over any terminal event."""
    km = KaplanMeierFitter().fit(times, [k != 0 for k in kinds])
    before = 1.0
    total = 0.0
    table = km.event_table
    for t in sorted(set(times)):
        at_risk = float(table.loc[t, "at_risk"])
        d = sum(1 for u, k in zip(times, kinds) if u == t and k == event)
        total += before * d / at_risk
        before = float(km.survival_function_at_times(t).iloc[0])
    return total


def untied(seed, n):
    """Distinct times, where lifelines' own Aalen–Johansen fitter applies without jitter."""
    rng = random.Random(seed)
    times = rng.sample(range(1, 5000), n)
    kinds = rng.choices([0, 1, 2], [0.2, 0.5, 0.3], k=n)
    out = {}
    for event, name in ((1, "completed"), (2, "errored")):
        fit = AalenJohansenFitter(calculate_variance=False).fit(times, kinds, event_of_interest=event)
        out[name] = float(fit.cumulative_density_.iloc[-1, 0])
    return {"rows": list(zip(times, kinds)), **out}


def tails(seed, n, q):
    """Ranks by the normal approximation to the binomial, from scipy's normal quantile."""
    z = round(float(scipy.stats.norm.ppf(0.975)), 6)
    half = z * np.sqrt(n * q * (1 - q))
    return {"n": n, "q": q, "lo": int(np.ceil(n * q - half)), "hi": int(np.ceil(n * q + half))}


def summary(values):
    n = len(values)
    mean = statistics.fmean(values)
    sem = float(scipy.stats.sem(values))
    t = round(float(scipy.stats.t.ppf(0.975, n - 1)), 3)
    return {
        "values": values,
        "median": statistics.median(values),
        "mean": mean,
        "sample_sd": statistics.stdev(values),
        "sem": sem,
        "t_multiplier": t,
        "t_interval_lo": mean - t * sem,
        "t_interval_hi": mean + t * sem,
    }


def paired_or_not(seed, n, m, paired):
    """Two samples: t-interval of the difference, exact permutation p, interval of the shift."""
    rng = random.Random(seed)
    a = [round(rng.lognormvariate(1.5, 0.3), 3) for _ in range(n)]
    b = [round(rng.lognormvariate(1.8, 0.3), 3) for _ in range(m)]
    x, y = np.array(a), np.array(b)
    if paired:
        d = y - x
        df, se = n - 1, float(scipy.stats.sem(d))
        own = scipy.stats.ttest_rel(y, x)
        test = scipy.stats.permutation_test(
            (y, x), lambda u, v, axis: np.abs(np.mean(u - v, axis=axis)), vectorized=True,
            permutation_type="samples", alternative="greater", n_resamples=np.inf)
        null = [sum(r for r, keep in zip(range(1, n + 1), signs) if keep)
                for signs in itertools.product([0, 1], repeat=n)]
        pool = sorted((d[i] + d[j]) / 2 for i in range(n) for j in range(i, n))
    else:
        own = scipy.stats.ttest_ind(y, x, equal_var=False)
        df = float(own.df)
        se = float(np.sqrt(np.var(x, ddof=1) / n + np.var(y, ddof=1) / m))
        test = scipy.stats.permutation_test(
            (y, x), lambda u, v, axis: np.abs(np.mean(u, axis=axis) - np.mean(v, axis=axis)), vectorized=True,
            permutation_type="independent", alternative="greater", n_resamples=np.inf)
        null = [sum(ranks) - m * (m + 1) // 2 for ranks in itertools.combinations(range(1, n + m + 1), m)]
        pool = sorted(v - u for u in a for v in b)
    # scipy's own interval, before the multiplier is rounded to three decimals as the method has it.
    whole = own.confidence_interval(0.95)
    mean = float(np.mean(y) - np.mean(x))
    assert abs(mean + scipy.stats.t.ppf(0.975, df) * se - whole.high) < 1e-9
    t = round(float(scipy.stats.t.ppf(0.975, df)), 3)
    k = sum(1 for u in range(max(null) + 1) if sum(v <= u for v in null) / len(null) <= 0.025)
    return {
        "paired": paired, "a": a, "b": b, "df": df,
        "mean_difference": mean, "mean_lo": mean - t * se, "mean_hi": mean + t * se,
        "p": float(test.pvalue), "arrangements": len(null),
        "shift_lo": float(pool[k - 1]) if k else None, "shift_hi": float(pool[-k]) if k else None,
    }


def gehan(seed, n, m):
    """Exact permutation p of Gehan's scores; some values are censored."""
    rng = random.Random(seed)
    rows = [(round(rng.uniform(1, 40) + (10 if i >= n else 0), 1), rng.random() < 0.7) for i in range(n + m)]
    known = lambda low, high: low[1] and (low[0] < high[0] or (low[0] == high[0] and not high[1]))
    scores = np.array([sum(known(o, r) for o in rows) - sum(known(r, o) for o in rows) for r in rows], float)
    test = scipy.stats.permutation_test(
        (scores[:n], scores[n:]), lambda u, v, axis: np.abs(np.mean(u, axis=axis) - np.mean(v, axis=axis)),
        vectorized=True, permutation_type="independent", alternative="greater", n_resamples=np.inf)
    return {"n": n, "sample": rows, "scores": list(scores), "p": float(test.pvalue)}


class BinomialCost(ruptures.base.BaseCost):
    """Twice the smallest negative log-likelihood of good/scheduled counts."""

    model = "binomial"
    min_size = 1

    def fit(self, signal):
        self.signal = signal
        self.sums = np.vstack([[0, 0], np.cumsum(signal, axis=0)])
        return self

    def error(self, start, end):
        good, all_ = self.sums[end] - self.sums[start]
        p = good / all_
        return float(-2 * (scipy.special.xlogy(good, p) + scipy.special.xlogy(all_ - good, 1 - p)))


def change_points(seed, n, rate, levels):
    """A step series; its cheapest segmentation by ruptures' PELT, and that cost by a search without pruning."""
    rng = np.random.default_rng(seed)
    edges = sorted(rng.choice(np.arange(1, n), size=len(levels) - 1, replace=False)) + [n]
    level = np.concatenate([[p] * (b - a) for p, a, b in zip(levels, [0] + edges[:-1], edges)])
    scheduled = 1 + rng.poisson(rate - 1, n)
    good = rng.binomial(scheduled, level)
    signal = np.column_stack([good, scheduled])
    penalty = float(3 * np.log(n))
    found = ruptures.Pelt(custom_cost=BinomialCost(), min_size=1, jump=1).fit(signal).predict(pen=penalty)
    cost = BinomialCost().fit(signal)
    best = [-penalty]
    for t in range(1, n + 1):
        best.append(min(best[s] + cost.error(s, t) + penalty for s in range(t)))
    total = sum(cost.error(a, b) for a, b in zip([0] + found[:-1], found)) + penalty * (len(found) - 1)
    assert abs(total - best[n]) < 1e-6, (total, best[n])
    return {"good": good.tolist(), "scheduled": scheduled.tolist(), "penalty": penalty,
            "starts": [0] + found[:-1], "cost": best[n]}


def detector(seed, n, rate, levels, span, hold):
    """The recovery detector by its definition: runs of windows at the threshold, and a pattern for what falls again."""
    rng = np.random.default_rng(1000 + seed)
    anchor, timeout, entry, exit_ = n // 4, n * 3 // 4, 90, 85
    edges = sorted(rng.choice(np.arange(anchor + 1, n), size=len(levels) - 2, replace=False))
    edges = [0, anchor] + edges + [n]
    scheduled = rng.poisson(rate, n)
    good = np.concatenate([rng.binomial(scheduled[a:b], p) for a, b, p in zip(edges, edges[1:], levels)])
    base = (int(good[:anchor].sum()), int(scheduled[:anchor].sum()))
    windows = [(int(good[t:t + span].sum()), int(scheduled[t:t + span].sum())) for t in range(n - span + 1)]
    reaches = lambda w, percent: w[1] > 0 and w[0] * base[1] * 100 >= w[1] * base[0] * percent
    letters = "".join(
        "h" if reaches(w, entry) else "m" if reaches(w, exit_) else "l" for w in windows)
    runs = [m.span() for m in re.finditer("h+", letters[anchor:])]
    runs = [(a + anchor, b + anchor) for a, b in runs if a + anchor < timeout]
    held = [a for a, b in runs if b - a > hold]
    out = {"good": good.tolist(), "scheduled": scheduled.tolist(), "window": span, "hold": hold, "anchor": anchor,
           "timeout": timeout, "base": base, "entry": None, "candidate": None, "redegradations": 0}
    before = [r for r in runs if not held or r[0] < held[0]]
    if held:
        out["entry"] = held[0]
        out["redegradations"] = len(re.findall("l[lm]*h", letters[held[0]:]))
        out["outage"] = set(letters[anchor:]) != {"h"}
    elif before and before[-1][1] == len(letters):
        out["candidate"] = before.pop()[0]
    out["dips"] = len(before)
    return out


def main():
    rng = random.Random(7)
    tied = []
    for seed in range(5):
        rows = competing(seed, 200 + 50 * seed, 1500)
        tied.append({"rows": rows, **aalen_johansen(rows)})
    censored = [(round(rng.uniform(5, 60), 3), rng.random() < 0.7) for _ in range(15)]
    km = KaplanMeierFitter().fit([t for t, _ in censored], [e for _, e in censored])
    p = [round(rng.random() * 0.2, 6) for _ in range(8)]
    order = np.argsort(p)
    m = len(p)
    holm = np.minimum(1, np.maximum.accumulate([(m - i) * p[j] for i, j in enumerate(order)]))
    adjusted = [0.0] * m
    for i, j in enumerate(order):
        adjusted[j] = float(holm[i])
    print(json.dumps(
        {
            "made_with": {"scipy": scipy.__version__, "lifelines": lifelines.__version__,
                          "ruptures": ruptures.__version__},
            "t_quantile": [
                {"p": q, "df": df, "t": float(scipy.stats.t.ppf(q, df))}
                for df in [1, 2, 3, 4, 5, 7, 10, 20, 29, 60, 120, 1000]
                for q in [0.6, 0.9, 0.975, 0.995]
            ],
            "t_multiplier": [
                {"df": df, "t": round(float(scipy.stats.t.ppf(0.975, df)), 3)} for df in range(1, 61)
            ],
            "aalen_johansen_tied": tied,
            "aalen_johansen_untied": [untied(seed, 120) for seed in (11, 12, 13)],
            "kaplan_meier": {
                "sample": censored,
                "median": float(km.median_survival_time_),
                "final": float(km.survival_function_.iloc[-1, 0]),
            },
            "tails": [tails(0, n, q) for n in (100, 500, 879, 1771, 20000) for q in (0.95, 0.99)],
            "summaries": [
                summary([round(rng.lognormvariate(3.5, 0.2), 6) for _ in range(n)]) for n in (2, 3, 5, 8, 20)
            ],
            "holm": {"p": p, "adjusted": adjusted},
            "two_samples": [
                paired_or_not(seed, n, m, paired)
                for seed, (n, m, paired) in enumerate(
                    [(5, 5, False), (3, 6, False), (4, 4, False), (7, 5, False), (8, 8, False), (3, 3, False),
                     (5, 5, True), (6, 6, True), (9, 9, True)]
                )
            ],
            "change_points": [
                change_points(seed, n, rate, levels)
                for seed, (n, rate, levels) in enumerate(
                    [(120, 10, [1, 0, 1]), (120, 10, [0.995, 0.5, 0.99]), (150, 3, [0.99, 0.2, 0.8, 0.99]),
                     (200, 20, [0.99]), (90, 2, [0.98, 0, 0.98, 0, 0.98]), (160, 8, [0.97, 0.6, 0.7, 0.8, 0.9, 0.97])]
                )
            ],
            "detector": [
                detector(seed, n, rate, levels, span, hold)
                for seed, (n, rate, levels, span, hold) in enumerate(
                    [(160, 10, [1, 0, 1], 10, 30), (160, 3, [0.99, 0, 0.95], 10, 20), (200, 5, [1, 0, 1, 0, 1], 4, 8),
                     (200, 5, [0.99, 0.3, 0.95, 0.5, 0.99, 0.2, 0.97], 5, 10), (120, 2, [0.95, 0, 0.8, 0.9], 10, 15),
                     (120, 8, [1, 0, 0], 5, 10), (120, 8, [1, 1, 1], 5, 10), (100, 4, [1, 0, 0, 0.98], 3, 40),
                     (240, 6, [0.98, 0.88, 0.92, 0.86, 0.97], 6, 12)]
                )
            ],
            "gehan": [gehan(seed, n, m) for seed, (n, m) in enumerate([(5, 5), (4, 7), (8, 8)])],
        },
    ))


main()
