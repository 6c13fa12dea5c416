/* Weights as bytes with a scale for each row. */
#ifndef WD_DEV_CODEC_BY_ROW_H
#define WD_DEV_CODEC_BY_ROW_H

#include "core/dtype.h"

/* q [rows, columns] = values [rows, columns] as WD_F8_E4M3 or WD_I8, scale [rows] in fp32: a row's
 * scale is its largest magnitude over the largest value of the dtype (448, 127), and q what is
 * nearest to value / scale, to even. A row of magnitudes so small that this scale is no normal
 * float has the scale 1. `values` are finite and in host memory; several threads work, and the bits
 * do not depend on their number. */
void wd_quantise_rows(uint8_t *q, float *scale, const float *values, int64_t rows, int64_t columns,
                      wd_dtype dtype);

#endif
