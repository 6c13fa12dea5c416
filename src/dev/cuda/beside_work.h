/* The shapes of the work that libraries do while their memory is measured (library_memory.c). cuDNN
 * has a plan for each of them: cudnn_plans_test.c asks it. */
#ifndef WD_DEV_CUDA_BESIDE_WORK_H
#define WD_DEV_CUDA_BESIDE_WORK_H

enum {
    WD_BESIDE_SIDE = 512,   /* rows and columns of products */
    WD_BESIDE_TOKENS = 512, /* queries, and keys, of attention */
    WD_BESIDE_HEADS = 2,    /* of 128, and of 64 */
    WD_BESIDE_PICTURE = 32, /* height and width of what is convolved, of one frame */
    WD_BESIDE_CHANNELS = 32,
    WD_BESIDE_TAPS = 3 /* of each axis; the last one of time takes part */
};

#endif
