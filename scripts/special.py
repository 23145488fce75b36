#!/usr/bin/env python3
"""Computes the polynomial coefficients of src/tensor/ops/special.rs. Needs mpmath.

Each function is interpolated at the Chebyshev nodes of its interval with 60 digits. Prints powers
of the distance from the middle of the interval, lowest power first, and the largest relative error.
"""

from mpmath import mp, mpf

mp.dps = 60


def fit(name, f, low, high, degree):
    n, low, high = degree + 1, mpf(low), mpf(high)
    middle, half = (low + high) / 2, (high - low) / 2
    nodes = [mp.cos(mp.pi * (2 * k + 1) / (2 * n)) * half for k in range(n)]
    c = [f(middle + x) for x in nodes]
    for j in range(1, n):
        for i in range(n - 1, j - 1, -1):
            c[i] = (c[i] - c[i - 1]) / (nodes[i] - nodes[i - j])
    p = [mpf(0)]
    for i in range(n - 1, -1, -1):
        q = [mpf(0)] * (len(p) + 1)
        for k, v in enumerate(p):
            q[k + 1] += v
            q[k] -= v * nodes[i]
        q[0] += c[i]
        p = q
    p = p[:n]
    points = [half * (mpf(k) / 200 - 1) for k in range(401)]
    error = max(abs(mp.polyval(p[::-1], x) / f(middle + x) - 1) for x in points)
    print(f"/// Relative error {mp.nstr(error, 2)}, around {float(middle)!r}.")
    print(f"const {name}: [f64; {n}] = [{', '.join(repr(float(v)) for v in p)}];")


def erfinv(w):
    """erfinv(x)/x for w = -log(1 - x²), from erfc, which does not cancel near 1."""
    x = mp.sqrt(-mp.expm1(-w))
    if w < mpf(10) ** -40:
        return mp.sqrt(mp.pi) / 2
    rest = mp.exp(-w) / (1 + x)
    y = mp.erfinv(x) if rest > 0.1 else mp.sqrt(-mp.log(rest * mp.sqrt(mp.pi) * mp.sqrt(w)))
    for _ in range(60):
        step = (mp.erfc(y) - rest) * mp.sqrt(mp.pi) / 2 * mp.exp(y * y)
        y += step
        if abs(step) < mpf(10) ** -50 * abs(y):
            break
    return y / x


def near(zero, slope):
    """log Γ(x) over the distance from one of its zeros."""
    return lambda x: mp.loggamma(x) / (x - zero) if abs(x - zero) > mpf(10) ** -25 else slope


if __name__ == "__main__":
    fit("ERFINV_F32", erfinv, 0, 5, 9)
    fit("ERFINV_ROOT_F32", lambda s: erfinv(s * s), mp.sqrt(5), 4.2, 9)
    fit("ERFINV_F64", erfinv, 0, 6, 24)
    fit("ERFINV_ROOT_F64", lambda s: erfinv(s * s), mp.sqrt(6), 4, 22)
    fit("ERFINV_TAIL_F64", lambda s: erfinv(s * s), 4, mpf("6.1"), 18)
    fit("LGAMMA_1_F32", near(1, -mp.euler), 0.75, 1.5, 10)
    fit("LGAMMA_2_F32", near(2, 1 - mp.euler), 1.5, 2.5, 9)
    fit("LGAMMA_1_F64", near(1, -mp.euler), 0.75, 1.5, 21)
    fit("LGAMMA_2_F64", near(2, 1 - mp.euler), 1.5, 2.5, 19)
