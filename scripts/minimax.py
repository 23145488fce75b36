#!/usr/bin/env python3
"""Computes every polynomial coefficient of src/math. Needs mpmath, numpy and scipy.

A weighted minimax fit on a dense Chebyshev grid is a linear program: the least t with
|weight * (f - p)| <= t at each point. Its optimum is the Remez solution, also where a zero of the
weight or a fixed coefficient keeps an exchange algorithm from converging. The coefficients are
rounded to float32 one after another from the lowest power up, and the remaining ones are fitted
again after each rounding, so that they absorb the rounding errors. `python3 scripts/minimax.py
[name...]` prints the coefficients, lowest power first, and the remaining weighted error in units of
2^-24.
"""

import sys

import numpy as np
from mpmath import mp, mpf
from scipy.optimize import linprog

mp.dps = 50


def fit(name, func, powers, lo, hi, weight=None, fixed=(), points=300):
    """Fits func ~ sum c_k x^powers[k]. Default weight: 1/|func|. `fixed` has the first c_k."""
    lo, hi = mpf(lo), mpf(hi)
    xs = [
        lo + (hi - lo) * (1 - mp.cos(mp.pi * (k + mpf(1) / 2) / points)) / 2 for k in range(points)
    ]
    f = [func(x) for x in xs]
    w = [2**24 * (1 / abs(v) if weight is None else weight(x)) for x, v in zip(xs, f)]
    powers, scale = list(powers), max(abs(lo), abs(hi))
    done = [mpf(v) for v in fixed]
    while True:
        left = powers[len(done) :]
        rest = [v - sum(d * x**p for d, p in zip(done, powers)) for v, x in zip(f, xs)]
        b = np.array([float(v * r) for v, r in zip(w, rest)])
        if not left:
            break
        a = np.array([[float(v * (x / scale) ** p) for p in left] for v, x in zip(w, xs)])
        # The least-squares fit is close, so that the linear program finds a small, well-scaled
        # correction.
        near = np.linalg.lstsq(a, b, rcond=None)[0]
        b = b - a @ near
        ones = -np.ones((points, 1))
        res = linprog(
            [0] * len(left) + [1],
            np.block([[a, ones], [-a, ones]]),
            np.concatenate([b, -b]),
            bounds=(None, None),
        )
        done.append(mpf(float(np.float32(float((near[0] + res.x[0]) / scale ** left[0])))))
    print(f"{name}: error {np.abs(b).max():.4f} * 2^-24")
    for p, c in zip(powers, done):
        print(f"    x^{p}: {np.float32(float(c))!s} (0x{np.float32(float(c)).view(np.uint32):08x})")


LN2, C = mp.log(2), 2 / mp.log(2)
# The interval of m - 1, where m is the mantissa in log and log2.
M = mp.sqrt(0.5) - 1, mp.sqrt(2) - 1
FITS = {
    "exp": lambda: fit("exp", mp.exp, range(7), -0.34658, 0.34658, fixed=[1, 1]),
    "exp2": lambda: fit("exp2", lambda r: mpf(2) ** r, range(7), -0.5, 0.5, fixed=[1]),
    "log": lambda: fit("log", mp.log1p, range(1, 11), *M, fixed=[1]),
    "log2": lambda: fit(
        "log2",
        lambda f: mp.log1p(f) / LN2 / f - 1,
        range(10),
        *M,
        weight=lambda f: abs(f * LN2 / mp.log1p(f)),
    ),
    "sin": lambda: fit("sin", mp.sin, range(1, 10, 2), 0, 1, fixed=[1]),
    "cos": lambda: fit("cos", mp.cos, range(0, 9, 2), 0, 1, fixed=[1]),
    "tanh": lambda: fit("tanh", mp.tanh, range(1, 10, 2), 0, 0.55, fixed=[1]),
    # An error of the fitted rate changes erf by a * erfc(a) * ln 2 times that error.
    "erf": lambda: fit(
        "erf",
        lambda a: -mp.log(mp.erfc(a)) / LN2 / a,
        range(9),
        0,
        4,
        weight=lambda a: a * mp.erfc(a) * LN2 / mp.erf(a),
    ),
    "pow": lambda: fit(
        "pow",
        lambda s: C * (mp.atanh(s) - s) / s**3,
        range(0, 5, 2),
        0,
        0.0745,
        weight=lambda s: s**2 / C,
    ),
}

if __name__ == "__main__":
    for name in sys.argv[1:] or FITS:
        FITS[name]()
