/* The options of `plan`: those of `train`, of which none is required, and its own. */
#include <assert.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "api/options/tables.h"

#define OPTIONS wd_plan_options

static const wd_option own[] = {
    {WD_CHOICE_LINE(teacher_preset, "", "wan2.1-1.3b", "wan2.1-14b", "wan2.2-a14b", "wan2.2-5b"),
     .group = "Teacher",
     .help = "A published model instead of TEACHER_PATH: no file is needed. One of the two is "
             "required; beside single files, what train's option of that name means"},
    {WD_FLAG_LINE(largest_student), .group = "Student",
     .help = "Print the largest students that fit, not a plan. A few shapes, each with its "
             "STUDENT_CONFIG, the seconds of a step, the days of a million samples, and what "
             "stops a larger one; GRADIENT_CHECKPOINTING and smaller micro-batches are tried, too"},
    {WD_INT_LINE(ranks, "0", 0, 512), .group = "Machine",
     .help = "Number of ranks to plan for; 0: those of other options, or one per host. The ranks "
             "of a host share its DEVICES and HOST_MEMORY"},
    {WD_INT_LINE(hosts, "1", 1, 512), .group = "Machine",
     .help = "Number of hosts; each has the same number of ranks"},
    {WD_FLAG_LINE(json), .group = "Output", .help = "Print JSON instead of tables"},
    {WD_FLAG_LINE(verbose), .group = "Output",
     .help =
         "Print more. What each strategy copies in a step, strategies that these devices cannot "
         "serve, every device, and items of less than a MiB"},
    {WD_TEXT_LINE(svg, "", "FILE"), .group = "Output", .flags = WD_OPTION_FILE | WD_OPTION_WRITTEN,
     .help = "Draw the recommended plan, or that of TEACHER_DEVICE_STRATEGY: the memory of every "
             "device, and one sweep over the teacher"},
};

enum { OWN = sizeof own / sizeof *own };

static wd_option table[WD_OPTIONS_MAX];
static int64_t rows;

static bool is_own(const char *name)
{
    for (int k = 0; k < OWN; k++)
        if (!strcmp(own[k].name, name)) return true;
    return false;
}

/* The struct of `train` is the first part of that of `plan`, so its lines serve as they are. Own
 * lines stand behind the first of train's in their group. */
static void make_table(void)
{
    static_assert(offsetof(wd_plan_options, train) == 0, "offsets of train's lines");
    const wd_option_table train = wd__table_train();
    const char *group = "";
    assert(train.count + OWN <= WD_OPTIONS_MAX);
    for (int64_t i = 0; i < train.count; i++) {
        const wd_option *line = &train.option[i];
        if (is_own(line->name)) continue;
        const bool begins = strcmp(line->group, group) && !(line->flags & WD_OPTION_LEGACY);
        table[rows] = *line;
        table[rows++].flags &= ~(unsigned)WD_OPTION_REQUIRED;
        if (!begins) continue;
        group = line->group;
        for (int k = 0; k < OWN; k++)
            if (!strcmp(own[k].group, group)) table[rows++] = own[k];
    }
    assert(rows == train.count + OWN - 1); /* both have teacher_preset */
}

wd_option_table wd__table_plan(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_table);
    return (wd_option_table){table, rows, sizeof(OPTIONS), offsetof(OPTIONS, bytes)};
}
