/* The disk space of a run as text and as JSON: see api/plan/disk_plan.h. */
#include <stdio.h>

#include "api/options/json_text.h"
#include "api/plan/disk_plan.h"
#include "api/setup/memory_report.h"

static const char *bytes_of(char out[32], uint64_t bytes)
{
    if (bytes == UINT64_MAX)
        snprintf(out, 32, "unknown");
    else
        wd_bytes_text(out, 32, (size_t)bytes);
    return out;
}

static const char *while_text(const wd_disk_item *item)
{
    if (item->phase == WD_DISK_AT_THE_END) return ", at the end";
    return "";
}

static void say_disk(wd_page *page, const wd_disk_plan *p, int disk)
{
    char need[32], free[32], bytes[32];
    const wd_disk *k = &p->disk[disk];
    wd_page_say(page, "  %s: up to %s, %s free%s\n", k->space.path, bytes_of(need, k->need),
                bytes_of(free, k->space.bytes_free),
                k->least > k->space.bytes_free  ? ": it does not fit"
                : k->need > k->space.bytes_free ? ": it may not fit"
                                                : "");
    for (int i = 0; i < p->items; i++)
        if (p->item[i].disk == disk)
            wd_page_say(page, "    %-48s %s%9s%s\n", p->item[i].name,
                        p->item[i].is_bound ? "at most " : "        ",
                        bytes_of(bytes, p->item[i].bytes), while_text(&p->item[i]));
}

void wd_disk_plan_say(wd_page *page, const wd_disk_plan *p)
{
    char part[5][32];
    const wd_checkpoint_space *c = &p->checkpoint;
    wd_page_say(page, "\ndisk, by file system: what the run writes\n");
    for (int d = 0; d < p->disks; d++)
        if (p->disk[d].need) say_disk(page, p, d);
    wd_page_say(page,
                "  a checkpoint: %s of weights, %s of the optimiser's moments, %s of EMA,\n"
                "    %s of targets and states%s%s\n",
                bytes_of(part[0], c->weights), bytes_of(part[1], c->moments),
                bytes_of(part[2], c->ema), bytes_of(part[3], c->other),
                c->snapshot ? ", a snapshot of " : "",
                c->snapshot ? bytes_of(part[4], c->snapshot) : "");
}

static json_t *integer(uint64_t bytes)
{
    return bytes == UINT64_MAX ? json_null() : json_integer((json_int_t)bytes);
}

static json_t *disk_json(const wd_disk_plan *p, int disk)
{
    static const char *const phase[] = {[WD_DISK_TO_THE_END] = "to the end",
                                        [WD_DISK_WHILE_SAVING] = "saving",
                                        [WD_DISK_AT_THE_END] = "at the end"};
    const wd_disk *k = &p->disk[disk];
    json_t *items = json_array();
    for (int i = 0; i < p->items; i++)
        if (p->item[i].disk == disk)
            json_array_append_new(items, json_pack("{s:s, s:I, s:b, s:s}", "name", p->item[i].name,
                                                   "bytes", (json_int_t)p->item[i].bytes,
                                                   "is_upper_bound", (int)p->item[i].is_bound,
                                                   "while", phase[p->item[i].phase]));
    return json_pack("{s:o, s:o, s:I, s:I, s:o}", "path", wd_json_string(k->space.path),
                     "bytes_free", integer(k->space.bytes_free), "bytes_needed",
                     (json_int_t)k->need, "bytes_known", (json_int_t)k->least, "items", items);
}

json_t *wd_disk_plan_json(const wd_disk_plan *p)
{
    const wd_checkpoint_space *c = &p->checkpoint;
    json_t *disks = json_array();
    for (int d = 0; d < p->disks; d++) json_array_append_new(disks, disk_json(p, d));
    return json_pack("{s:o, s:i, s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I}}", "file_systems", disks,
                     "checkpoints_kept", p->kept, "checkpoint", "weights", (json_int_t)c->weights,
                     "moments", (json_int_t)c->moments, "ema", (json_int_t)c->ema, "snapshot",
                     (json_int_t)c->snapshot, "targets_and_states", (json_int_t)c->other,
                     "state_bytes", (json_int_t)c->file, "bytes", (json_int_t)p->checkpoint_bytes);
}
