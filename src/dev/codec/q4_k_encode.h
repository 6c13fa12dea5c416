/* Quantisation to Q4_K: the inverse of codec/k_quants.h, as far as 4 bits go. */
#ifndef WD_DEV_CODEC_Q4_K_ENCODE_H
#define WD_DEV_CODEC_Q4_K_ENCODE_H

#include <stdint.h>

/* The block (Q4_K_BYTES) of 256 finite values of magnitudes up to 65504. Factors and offsets are
 * chosen for a small sum of squared errors; the bits depend on the values alone. */
void q4_k_encode(uint8_t *block, const float *values);

#endif
