"""Reference values for the estimators, by implementations that share no code with ours.

Run:  python -m venv v && v/bin/pip install scipy lifelines && v/bin/python make.py > values.json
"""

import json
import random
import statistics

import numpy as np
import scipy
import scipy.stats
import lifelines
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
            "made_with": {"scipy": scipy.__version__, "lifelines": lifelines.__version__},
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
        },
    ))


main()
