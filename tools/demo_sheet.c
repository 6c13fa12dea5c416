/* Draws one contact sheet of the pictures that several runs of `wandistiller sample` have written:
 * a row for each folder, with a title at its left, and the prompts below the last row.
 *
 * Usage: demo_sheet OUT PROMPTS COLUMNS TITLE FOLDER [TITLE FOLDER]... */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "io/file/file.h"
#include "io/picture/sheet.h"
#include "io/text/prompts.h"

enum { ROWS_MAX = 8, COLUMNS_MAX = 16, FIRST = 4 }; /* FIRST: the argument with the first title */

/* What the sheet is drawn of. */
typedef struct rows {
    int64_t rows, columns;
    wd_image image[ROWS_MAX * COLUMNS_MAX];
    const uint8_t *picture[ROWS_MAX * COLUMNS_MAX];
    const char *label[ROWS_MAX * COLUMNS_MAX];
    const char *title[ROWS_MAX];
} rows;

/* Reads picture `column` of `folder` into row `row`: all have the size of the first one. */
static wd_status read_picture(rows *r, int64_t row, int64_t column, const char *folder, wd_err *err)
{
    char path[WD_PATH_MAX], name[32];
    const int64_t i = row * r->columns + column;
    wd_image *image = &r->image[i];
    snprintf(name, sizeof name, "%04" PRId64 ".png", column);
    WD_TRY(wd_path_join(path, folder, name, err));
    WD_TRY(wd_png_read(image, path, err));
    r->picture[i] = image->rgb;
    if (image->height == r->image[0].height && image->width == r->image[0].width) return WD_OK;
    return wd_fail(err, WD_MISMATCH,
                   "%s: expected %" PRId64 "x%" PRId64 " pixels, as the first picture has, found "
                   "%" PRId64 "x%" PRId64,
                   path, r->image[0].width, r->image[0].height, image->width, image->height);
}

static wd_status draw(rows *r, char **argv, const wd_prompts *prompts, wd_err *err)
{
    wd_image sheet;
    if (prompts->count < r->columns)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "%s: expected a prompt for each of %" PRId64 " columns, found %" PRId64,
                       argv[2], r->columns, prompts->count);
    for (int64_t row = 0; row < r->rows; row++) {
        r->title[row] = argv[FIRST + 2 * row];
        for (int64_t c = 0; c < r->columns; c++) {
            WD_TRY(read_picture(r, row, c, argv[FIRST + 2 * row + 1], err));
            if (row == r->rows - 1) r->label[row * r->columns + c] = prompts->text[c];
        }
    }
    WD_TRY(wd_sheet_draw(&sheet,
                         &(wd_sheet){.rows = r->rows,
                                     .columns = r->columns,
                                     .height = r->image[0].height,
                                     .width = r->image[0].width,
                                     .pictures = r->picture,
                                     .labels = r->label,
                                     .row_titles = r->title},
                         err));
    const wd_status status = wd_png_write(argv[1], sheet.rgb, sheet.height, sheet.width, err);
    wd_image_close(&sheet);
    return status;
}

int main(int argc, char **argv)
{
    static rows r;
    wd_err err;
    wd_prompts prompts = {0};
    r.columns = argc > 3 ? strtol(argv[3], NULL, 10) : 0;
    r.rows = (argc - FIRST) / 2;
    if (r.columns < 1 || r.columns > COLUMNS_MAX || r.rows < 1 || r.rows > ROWS_MAX || argc % 2) {
        fprintf(stderr,
                "usage: demo_sheet OUT PROMPTS COLUMNS TITLE FOLDER [TITLE FOLDER]...: 1 to %d "
                "columns and 1 to %d folders\n",
                COLUMNS_MAX, ROWS_MAX);
        return 2;
    }
    wd_status status = wd_prompts_open(&prompts, argv[2], NULL, &err);
    if (status == WD_OK) status = draw(&r, argv, &prompts, &err);
    if (status != WD_OK) fprintf(stderr, "demo_sheet: %s\n", err.message);
    for (int i = 0; i < ROWS_MAX * COLUMNS_MAX; i++) wd_image_close(&r.image[i]);
    wd_prompts_close(&prompts);
    return status != WD_OK;
}
