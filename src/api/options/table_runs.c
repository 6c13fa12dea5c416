/* The options of the commands about runs: `report` and `tell`. */
#include <stddef.h>

#include "api/options/tables.h"

#define OPTIONS wd_report_options

static const wd_option report_table[] = {
    {.name = "runs",
     .offset = offsetof(OPTIONS, runs),
     .type = WD_OPTION_TEXTS,
     .default_text = "",
     .metavar = "RUN",
     .flags = WD_OPTION_REQUIRED | WD_OPTION_POSITIONAL | WD_OPTION_FILE,
     .help = "Output folders of `train`: of one run all is shown, of up to eight the curves lie "
             "over one another, and their figures, options and samples beside one another"},
    {WD_TEXT_LINE(out, "", "FILE"), .flags = WD_OPTION_FILE | WD_OPTION_WRITTEN,
     .help = "The page, one HTML file that needs no network; a page that is there is replaced; "
             "default: report.html in the folder of the only run"},
};

#undef OPTIONS
#define OPTIONS wd_tell_options

static const wd_option tell_table[] = {
    {WD_TEXT_LINE(run, "", "RUN"),
     .flags = WD_OPTION_REQUIRED | WD_OPTION_POSITIONAL | WD_OPTION_FILE,
     .help = "Output folder of a run that is under way"},
    {WD_CHOICE_LINE(request, "", "sample", "save", "stop"),
     .flags = WD_OPTION_REQUIRED | WD_OPTION_POSITIONAL,
     .help = "sample: draw a sheet of samples after the next step; save: write a checkpoint after "
             "it; stop: end as Ctrl-C ends the run, with a checkpoint. Never changes the student "
             "of that many steps"},
};

wd_option_table wd__table_tell(void)
{
    return (wd_option_table){tell_table, sizeof tell_table / sizeof *tell_table,
                             sizeof(wd_tell_options), offsetof(wd_tell_options, bytes)};
}

wd_option_table wd__table_report(void)
{
    return (wd_option_table){report_table, sizeof report_table / sizeof *report_table,
                             sizeof(wd_report_options), offsetof(wd_report_options, bytes)};
}
