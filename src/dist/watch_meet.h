/* How the ranks' watches find one another: every rank listens, says where, and connects to those
 * of lower numbers. Both sides prove that they know the job's secret (dist/watch_word.h), so that
 * whatever else comes to the port is turned away; the port is closed as soon as all are there. */
#ifndef WD_DIST_WATCH_MEET_H
#define WD_DIST_WATCH_MEET_H

#include "dist/watch.h"

typedef struct wd_meet wd_meet;

/* Listens; *mine is what the other ranks must be told. `one_machine`: none is elsewhere, and nobody
 * from elsewhere can connect. */
wd_status wd_meet_listen(wd_meet **out, int rank, int ranks, bool one_machine,
                         wd_watch_address *mine, wd_err *err);

/* `all`: [ranks], borrowed. */
void wd_meet_begin(wd_meet *meet, const wd_watch_address *all);

/* Looks at all that is under way, without waiting: a rank that is connected now, with its socket in
 * *fd (the caller's from then on); -1: none. */
int wd_meet_step(wd_meet *meet, int *fd, double now_s);

void wd_meet_close(wd_meet *meet); /* NULL is allowed */

#endif
