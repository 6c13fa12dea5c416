/* Tiles of products: for the kernels and for who launches them. C, C++ and CUDA. */
#ifndef WD_DEV_CUDA_KERNELS_PRODUCT_SHAPE_H
#define WD_DEV_CUDA_KERNELS_PRODUCT_SHAPE_H

enum {
    TILE = 64,             /* rows and columns */
    TILE_DEPTH = 16,       /* units of k at a time */
    TILE_BLOCK = 256,      /* units of k whose sum is taken by itself, for its accuracy */
    TILE_PITCH = TILE + 4, /* floats in shared memory from one k to the next */
    TILE_THREADS = 256,    /* 16 x 16 */
    TILE_SHARED = 2 * TILE_DEPTH * TILE_PITCH * 4 /* bytes */
};

#endif
