/* Plain C versions of all operations, which define them. They are simple; sums are taken in double
 * or in the obvious order. They are the fallback in the cpu device's table, and tests compare every
 * other version with them. Dimension letters and formulas are those of dev/ops.h. */
#ifndef WD_DEV_CPU_REFERENCE_H
#define WD_DEV_CPU_REFERENCE_H

#include "dev/cpu/cpu.h"

#define X(op, name) void wd_ref_##name(const void *args, wd_cpu_context *context);
WD_OP_MAP(X)
#undef X

size_t wd_ref_attention_workspace(const void *args);
size_t wd_ref_attention_backward_workspace(const void *args);

/* Element `i` of an array of `type` (F32, BF16, F16, I8, U8, and I16 for 16 bits without a
 * sign). */
static inline float wd__load(const void *data, wd_dtype type, int64_t i)
{
    switch (type) {
    case WD_BF16:
        return wd_bf16_to_f32(((const uint16_t *)data)[i]);
    case WD_F16:
        return wd_f16_to_f32(((const uint16_t *)data)[i]);
    case WD_I8:
        return ((const int8_t *)data)[i];
    case WD_U8:
        return ((const uint8_t *)data)[i];
    case WD_I16:
        return ((const uint16_t *)data)[i];
    default:
        return ((const float *)data)[i];
    }
}

static inline void wd__store(void *data, wd_dtype type, int64_t i, float value)
{
    switch (type) {
    case WD_BF16:
        ((uint16_t *)data)[i] = wd_f32_to_bf16(value);
        break;
    case WD_F16:
        ((uint16_t *)data)[i] = wd_f32_to_f16(value);
        break;
    case WD_I8:
        ((int8_t *)data)[i] = (int8_t)value;
        break;
    case WD_U8:
        ((uint8_t *)data)[i] = (uint8_t)value;
        break;
    case WD_I16:
        ((uint16_t *)data)[i] = (uint16_t)(int32_t)value;
        break;
    default:
        ((float *)data)[i] = value;
    }
}

/* `value` rounded to `type`. */
static inline float wd__round_to(wd_dtype type, float value)
{
    return type == WD_BF16 ? wd_bf16_to_f32(wd_f32_to_bf16(value)) : value;
}

/* act(x); fp32 in and out. */
float wd_ref_act(wd_act act, float x);

#endif
