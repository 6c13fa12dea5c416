/* A network of its own for the ranks of one machine, in which there is nothing but the loopback.
 *
 * mpirun (Open MPI 4.1) listens on a port of every network interface, whatever it is told. In a
 * network namespace whose only interface is the loopback nobody else can reach that port. */
#ifndef WD_JOB_LAUNCH_LAUNCH_NETWORK_H
#define WD_JOB_LAUNCH_LAUNCH_NETWORK_H

#include <stdbool.h>

/* Moves the calling process, which has one thread and starts mpirun next, into such a namespace.
 * It tries this in a child first, so that false means that nothing has changed: the kernel or the
 * container allows neither a network namespace nor a user namespace that may have one. Clears the
 * signal that the process gets when its parent ends (PR_SET_PDEATHSIG). */
bool wd_launch_network_enter(void);

#endif
