/* Contact sheets: rows and columns of pictures with their prompts. */
#ifndef WD_IO_PICTURE_SHEET_H
#define WD_IO_PICTURE_SHEET_H

#include "io/picture/png.h"

typedef struct wd_sheet {
    int64_t rows, columns;
    int64_t height, width; /* of every picture, in pixels */
    const uint8_t *const
        *pictures;             /* [rows * columns] of rgb [height, width, 3]; NULL: no picture */
    const char *const *labels; /* [rows * columns] UTF-8 of any script below the pictures, each may
                                  be NULL; NULL: none at all */
    const char *const *row_titles; /* [rows] at the left ("teacher"); NULL: none */
    const char *title;             /* on top; NULL: none */
} wd_sheet;

/* Draws the sheet on white. Pictures below 128 pixels are enlarged by a whole factor. A label is
 * wrapped to the width of its picture and cut after three lines, and so is a row title. A sheet
 * larger than wd__image_open allows is an error. The caller closes *out. */
wd_status wd_sheet_draw(wd_image *out, const wd_sheet *sheet, wd_err *err);

#endif
