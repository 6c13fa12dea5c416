/* See job/launch/launch_network.h. Linux only, as network namespaces are (namespaces(7)). */
#include "job/launch/launch_network.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static bool write_file(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const bool whole = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    return close(fd) == 0 && whole;
}

/* Makes a user namespace in which this user and group have the numbers that they have outside, and
 * a network namespace that belongs to it (user_namespaces(7)). */
static bool unshare_as_user(void)
{
    char users[64], groups[64];
    snprintf(users, sizeof users, "%u %u 1\n", geteuid(), geteuid());
    snprintf(groups, sizeof groups, "%u %u 1\n", getegid(), getegid());
    return unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 && write_file("/proc/self/uid_map", users) &&
           write_file("/proc/self/setgroups", "deny\n") && write_file("/proc/self/gid_map", groups);
}

/* A new namespace has the loopback, but switched off (netdevice(7)). */
static bool switch_loopback_on(void)
{
    struct ifreq request = {.ifr_name = "lo"};
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    bool on = ioctl(fd, SIOCGIFFLAGS, &request) == 0;
    request.ifr_flags |= IFF_UP;
    on = on && ioctl(fd, SIOCSIFFLAGS, &request) == 0;
    close(fd);
    return on;
}

static bool enter(void)
{
    return (unshare(CLONE_NEWNET) == 0 || unshare_as_user()) && switch_loopback_on();
}

bool wd_launch_network_enter(void)
{
    int status;
    const pid_t trial = fork();
    if (trial == 0) _exit(enter() ? 0 : 1);
    if (trial < 0 || waitpid(trial, &status, 0) != trial) return false;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 && enter();
}
