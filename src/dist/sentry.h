/* A sentry: a process beside a rank that sees it stopped while no other rank can.
 *
 * Before ranks know where one another's watches are, a rank that is alone on its machine has nobody
 * who could tell whether it was stopped (SIGSTOP, a scheduler) or its file system is slow. A child
 * of its own can: the system says it. Once the rank was stopped for four seconds, the sentry
 * reports that and kills it, for which mpirun ends the job; srun would go on. */
#ifndef WD_DIST_SENTRY_H
#define WD_DIST_SENTRY_H

/* `rank` is the calling process, which has no sentry yet; nothing happens where no process can be
 * started for it. */
void wd_sentry_post(int rank);

/* From now on others see it, or it ends: the sentry goes. Nothing where there is none. */
void wd_sentry_dismiss(void);

#endif
