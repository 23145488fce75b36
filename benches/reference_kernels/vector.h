// Vectors of f32: LANES of them, with masked loads and stores, and n×n transposes in registers.
// AVX-512 has 16 lanes and 32 registers, AVX2 has 8 lanes and 16 registers. `VECTORS(a, b)` selects
// the first with AVX-512 and the second with AVX2; kernels use it for their register tiles.
#pragma once
#include <immintrin.h>

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define LANES 16
#define VECTORS(avx512, avx2) (avx512)
#elif defined(__AVX2__) && defined(__FMA__)
#define LANES 8
#define VECTORS(avx512, avx2) (avx2)
#else
#error "the reference kernels need AVX2 and FMA"
#endif

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef float vec_unaligned __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int ivec __attribute__((vector_size(4 * LANES)));

#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_2 _Pragma("clang loop unroll_count(2)")
#else
#define UNROLL _Pragma("GCC unroll 64")
#define UNROLL_2 _Pragma("GCC unroll 2")
#endif
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))

INLINE vec load(const float *p) { return *(const vec_unaligned *)p; }
INLINE void store(float *p, vec v) { *(vec_unaligned *)p = v; }
INLINE void prefetch(const float *p) { __builtin_prefetch(p, 0, 3); }

#if LANES == 16
typedef __mmask16 mask;
// The lanes below n.
INLINE mask first(long n) { return n >= 16 ? 0xffff : n <= 0 ? 0 : (mask)((1u << n) - 1); }
INLINE mask and_not(mask a, mask b) { return (mask)(~a & b); }
INLINE mask either(mask a, mask b) { return (mask)(a | b); }
INLINE mask equal(vec a, vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
INLINE mask greater(vec a, vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
INLINE vec blend(mask m, vec yes, vec no) { return _mm512_mask_blend_ps(m, no, yes); }
INLINE vec load_masked(const float *p, mask m) { return _mm512_maskz_loadu_ps(m, p); }
INLINE void store_masked(float *p, mask m, vec v) { _mm512_mask_storeu_ps(p, m, v); }
INLINE void store_nt(float *p, vec v) { _mm512_stream_ps(p, v); }
INLINE vec broadcast(float x) { return _mm512_set1_ps(x); }
INLINE vec maximum(vec a, vec b) { return _mm512_max_ps(a, b); }
INLINE vec minimum(vec a, vec b) { return _mm512_min_ps(a, b); }
INLINE vec multiply_add(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vec round_even(vec a) { return _mm512_roundscale_ps(a, 8); }
INLINE float sum_lanes(vec v) { return _mm512_reduce_add_ps(v); }
INLINE float max_lanes(vec v) { return _mm512_reduce_max_ps(v); }
// x·2ⁿ for a whole number n.
INLINE vec scale_by_power(vec x, vec n) { return _mm512_scalef_ps(x, n); }
// Lanes 0, 2, 4 … of the concatenation of two vectors, and lanes 1, 3, 5 ….
INLINE vec even_lanes(vec a, vec b) {
  const __m512i at = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  return _mm512_permutex2var_ps(a, at, b);
}
INLINE vec odd_lanes(vec a, vec b) {
  const __m512i at = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return _mm512_permutex2var_ps(a, at, b);
}
// The first and the second vector of the lanes of two vectors in turns: the inverse of the above.
INLINE vec interleave_low(vec a, vec b) {
  const __m512i at = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  return _mm512_permutex2var_ps(a, at, b);
}
INLINE vec interleave_high(vec a, vec b) {
  const __m512i at = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  return _mm512_permutex2var_ps(a, at, b);
}
// Transposes 16 vectors of 16 lanes by 64 two-source shuffles.
INLINE void transpose(vec r[16]) {
  vec a[16];
  UNROLL for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    a[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  UNROLL for (int i = 0; i < 16; i += 4) {
    UNROLL for (int j = 0; j < 2; j++) {
      __m512d x = _mm512_castps_pd(a[i + j]), y = _mm512_castps_pd(a[i + j + 2]);
      r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
      r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
    }
  }
  UNROLL for (int j = 0; j < 4; j++) {
    UNROLL for (int i = 0; i < 16; i += 8) {
      a[i + j] = _mm512_shuffle_f32x4(r[i + j], r[i + j + 4], 0x88);
      a[i + j + 4] = _mm512_shuffle_f32x4(r[i + j], r[i + j + 4], 0xdd);
    }
  }
  UNROLL for (int j = 0; j < 8; j++) {
    r[j] = _mm512_shuffle_f32x4(a[j], a[j + 8], 0x88);
    r[j + 8] = _mm512_shuffle_f32x4(a[j], a[j + 8], 0xdd);
  }
}
#else
typedef __m256i mask;
INLINE mask first(long n) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lanes);
}
INLINE mask and_not(mask a, mask b) { return _mm256_andnot_si256(a, b); }
INLINE mask either(mask a, mask b) { return _mm256_or_si256(a, b); }
INLINE mask equal(vec a, vec b) { return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)); }
INLINE mask greater(vec a, vec b) { return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_GT_OQ)); }
INLINE vec blend(mask m, vec yes, vec no) {
  return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(m));
}
INLINE vec load_masked(const float *p, mask m) { return _mm256_maskload_ps(p, m); }
INLINE void store_masked(float *p, mask m, vec v) { _mm256_maskstore_ps(p, m, v); }
INLINE void store_nt(float *p, vec v) { _mm256_stream_ps(p, v); }
INLINE vec broadcast(float x) { return _mm256_set1_ps(x); }
INLINE vec maximum(vec a, vec b) { return _mm256_max_ps(a, b); }
INLINE vec minimum(vec a, vec b) { return _mm256_min_ps(a, b); }
INLINE vec multiply_add(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vec round_even(vec a) { return _mm256_round_ps(a, 8); }
INLINE float sum_lanes(vec v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
INLINE float max_lanes(vec v) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
// The exponent of x is n larger; valid while the result is a normal number.
INLINE vec scale_by_power(vec x, vec n) {
  return (vec)((ivec)x + ((ivec)_mm256_cvtps_epi32(n) << 23));
}
INLINE vec quarters(vec v) {
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8));
}
INLINE vec even_lanes(vec a, vec b) { return quarters(_mm256_shuffle_ps(a, b, 0x88)); }
INLINE vec odd_lanes(vec a, vec b) { return quarters(_mm256_shuffle_ps(a, b, 0xdd)); }
INLINE vec interleave_low(vec a, vec b) {
  return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x20);
}
INLINE vec interleave_high(vec a, vec b) {
  return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x31);
}
// Transposes 8 vectors of 8 lanes by 24 two-source shuffles.
INLINE void transpose(vec r[8]) {
  vec a[8];
  UNROLL for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    a[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  UNROLL for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
    r[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
  }
  UNROLL for (int j = 0; j < 4; j++) {
    a[j] = _mm256_permute2f128_ps(r[j], r[j + 4], 0x20);
    a[j + 4] = _mm256_permute2f128_ps(r[j], r[j + 4], 0x31);
  }
  UNROLL for (int j = 0; j < 8; j++) r[j] = a[j];
}
#endif
INLINE vec zero(void) { return broadcast(0); }
