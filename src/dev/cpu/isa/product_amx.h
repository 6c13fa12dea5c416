/* The inner loop of bf16 products on the tile registers of AMX: see isa/product.h.
 *
 * A tile register holds 16 rows of 64 bytes. Two of rows and two of columns make four tiles of
 * sums, 32 x 32 floats. TDPBF16PS multiplies 16 units at a time, so packed operands are filled up
 * with zeros to whole steps of 16 units (units_of in isa/packing.h). */
#ifndef WD_DEV_CPU_ISA_PRODUCT_AMX_H
#define WD_DEV_CPU_ISA_PRODUCT_AMX_H

#include "dev/cpu/isa/packing.h"

#if defined(__AMX_BF16__)

enum { AMX_TILE = 16 }; /* rows of a tile register, and units in one of its rows */

/* The operand of LDTILECFG. */
typedef struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} amx_config;

/* Sets the tile registers of this thread up for products of `rows` rows, 1 to 32. Sums: 0 to 3,
 * rows: 4 and 5, columns: 6 and 7. amx_release must follow: until then the system saves 8 KiB
 * whenever it interrupts the thread. */
static inline void amx_configure(int64_t rows)
{
    amx_config config = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        bool lower = tile == 2 || tile == 3 || tile == 5;
        int64_t count = tile >= 6 ? AMX_TILE : lower ? rows - AMX_TILE : rows;
        if (count <= 0) continue; /* not used */
        config.row_bytes[tile] = 64;
        config.rows[tile] = (uint8_t)least(count, AMX_TILE);
    }
    __asm__ volatile("" ::: "memory"); /* LDTILECFG reads config; GCC 12 does not know that */
    _tile_loadconfig(&config);
}

static inline void amx_release(void)
{
    _tile_release();
}

/* c [rows, WIDE] (+)= a [rows, units], whose rows are a_bytes apart, times a panel b [units, WIDE].
 * tall: more than 16 rows; wide: more than 16 columns. */
ALWAYS_INLINE void multiply_tiles_as(unit *c, int64_t c_bytes, const char *a, int64_t a_bytes,
                                     const unit *b, int64_t units, bool add, bool tall, bool wide)
{
    unit *lower = c + AMX_TILE * (c_bytes / (int64_t)sizeof *c);
    __asm__ volatile("" ::: "memory"); /* the loads read memory; GCC 12 does not know that */
    if (add) {
        _tile_loadd(0, c, c_bytes);
        if (wide) _tile_loadd(1, c + AMX_TILE, c_bytes);
        if (tall) _tile_loadd(2, lower, c_bytes);
        if (tall && wide) _tile_loadd(3, lower + AMX_TILE, c_bytes);
    } else {
        _tile_zero(0);
        if (wide) _tile_zero(1);
        if (tall) _tile_zero(2);
        if (tall && wide) _tile_zero(3);
    }
    for (int64_t d = 0; d < units; d += AMX_TILE, a += 64, b += AMX_TILE * WIDE) {
        _tile_loadd(6, b, WIDE * 4);
        _tile_loadd(4, a, a_bytes);
        if (wide) _tile_loadd(7, b + AMX_TILE, WIDE * 4);
        if (tall) _tile_loadd(5, a + AMX_TILE * a_bytes, a_bytes);
        _tile_dpbf16ps(0, 4, 6);
        if (wide) _tile_dpbf16ps(1, 4, 7);
        if (tall) _tile_dpbf16ps(2, 5, 6);
        if (tall && wide) _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, c_bytes);
    if (wide) _tile_stored(1, c + AMX_TILE, c_bytes);
    if (tall) _tile_stored(2, lower, c_bytes);
    if (tall && wide) _tile_stored(3, lower + AMX_TILE, c_bytes);
}

/* c [rows, WIDE] (+)= a [rows, units] times a panel, for 1 to 32 rows, of which `columns` (1 to
 * WIDE) are wanted. The thread is configured for 32 rows before and after. */
static inline void multiply_tiles(unit *c, int64_t c_stride, const void *a, int64_t a_bytes,
                                  const unit *b, int64_t rows, int64_t columns, int64_t units,
                                  bool add)
{
    bool whole = rows % AMX_TILE == 0;
    if (!whole) amx_configure(rows);
    int64_t c_bytes = c_stride * (int64_t)sizeof *c;
    if (rows > AMX_TILE && columns > AMX_TILE)
        multiply_tiles_as(c, c_bytes, a, a_bytes, b, units, add, true, true);
    else if (rows > AMX_TILE)
        multiply_tiles_as(c, c_bytes, a, a_bytes, b, units, add, true, false);
    else if (columns > AMX_TILE)
        multiply_tiles_as(c, c_bytes, a, a_bytes, b, units, add, false, true);
    else
        multiply_tiles_as(c, c_bytes, a, a_bytes, b, units, add, false, false);
    if (!whole) amx_configure(2 * AMX_TILE);
}

#else

static inline void amx_configure(int64_t rows)
{
    (void)rows;
}
static inline void amx_release(void) {}
static inline void multiply_tiles(unit *c, int64_t c_stride, const void *a, int64_t a_bytes,
                                  const unit *b, int64_t rows, int64_t columns, int64_t units,
                                  bool add)
{
    (void)c, (void)c_stride, (void)a, (void)a_bytes, (void)b; /* never called */
    (void)rows, (void)columns, (void)units, (void)add;
}

#endif

#endif
