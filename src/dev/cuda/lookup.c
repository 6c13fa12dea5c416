/* Looking for NVIDIA's libraries, and asking Python where its packages are: see dev/cuda/lookup.h.
 */
#include "dev/cuda/lookup.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/text.h"

/* ---- the packages of Python ---- */

extern char **environ;

enum { SECONDS_MOST = 5 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool was_asked;
static char sys_prefix[PATH_MAX];

/* The first python3 in the absolute folders of PATH. */
static bool find_python(char out[PATH_MAX])
{
    const char *at = getenv("PATH");
    while (at && *at) {
        const int length = (int)strcspn(at, ":");
        const int n = snprintf(out, PATH_MAX, "%.*s/python3", length, at);
        if (*at == '/' && n < PATH_MAX && !access(out, X_OK)) return true;
        at += length + (at[length] == ':');
    }
    return false;
}

/* Starts python3 with its output in a pipe, whose end to read is *out; 0: it cannot be started. */
static pid_t start(int *out, const char *python)
{
    char *const arguments[] = {"python3", "-I", "-c", "import sys; print(sys.prefix)", NULL};
    int ends[2];
    pid_t process = 0;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t own_group; /* which is killed as a whole */
    if (pipe2(ends, O_CLOEXEC)) return 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&own_group);
    posix_spawnattr_setflags(&own_group, POSIX_SPAWN_SETPGROUP);
    if (posix_spawn(&process, python, &actions, &own_group, arguments, environ)) process = 0;
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&own_group);
    close(ends[1]);
    if (!process) close(ends[0]);
    *out = ends[0];
    return process;
}

/* Reads what the process prints until its end, or until the time `end`. */
static size_t read_all(char *text, size_t bytes, int from, double end)
{
    size_t used = 0;
    while (used < bytes) {
        struct pollfd ready = {.fd = from, .events = POLLIN};
        const double left = end - wd_clock_s();
        if (left <= 0) return 0;
        if (poll(&ready, 1, (int)(left * 1000) + 1) <= 0) continue; /* a signal, or it is over */
        const ssize_t n = read(from, text + used, bytes - used);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return 0;
        if (n == 0) return used;
        used += (size_t)n;
    }
    return 0; /* more than a path */
}

/* Waits for the process until the time `end`, then kills its group. Whether it ended with 0. */
static bool ended_well(pid_t process, double end)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    int status = 1;
    pid_t ended = 0;
    while (!ended && wd_clock_s() < end) {
        ended = waitpid(process, &status, WNOHANG);
        if (!ended) nanosleep(&pause, NULL);
    }
    if (ended) return ended == process && status == 0;
    kill(-process, SIGKILL);
    waitpid(process, &status, 0);
    return false;
}

static void ask(void)
{
    char python[PATH_MAX], text[PATH_MAX];
    int from;
    const double end = wd_clock_s() + SECONDS_MOST;
    if (!find_python(python)) return;
    const pid_t process = start(&from, python);
    if (!process) return;
    const size_t n = read_all(text, sizeof text, from, end);
    close(from);
    if (!ended_well(process, n ? end : 0) || n < 2) return;
    /* one line, an absolute path, which glob(7) takes as it is */
    if (text[0] != '/' || memchr(text, '\n', n) != text + n - 1) return;
    text[n - 1] = 0;
    if (strlen(text) == n - 1 && strcspn(text, "*?[\\") == n - 1) memcpy(sys_prefix, text, n);
}

/* The absolute folder that the first python3 in PATH calls sys.prefix, "/opt/torch/.venv", or NULL:
 * there is no python3, or it said none within five seconds. Relative folders of PATH are passed
 * over. Python is started once per process, in isolated mode, and the answer is kept. Several
 * threads may call it. */
static const char *python_prefix(void)
{
    pthread_mutex_lock(&lock);
    if (!was_asked) ask();
    was_asked = true;
    pthread_mutex_unlock(&lock);
    return sys_prefix[0] ? sys_prefix : NULL;
}

/* ---- places ---- */

/* Folders: those that the pattern of glob(7) `below` names in the folder that the variable of the
 * environment names (NULL: in the root folder). Those of one variable stand together. PATH names
 * PREFIX where it has PREFIX/bin: so a Python that can be started is found without a variable of
 * its own, as in images with conda. "python3" is no variable: python3 itself is asked, which finds
 * an environment that PATH names by a link. */
typedef struct place {
    const char *variable;
    const char *below;
} place;

#define PYTHON "/python3*/site-packages/nvidia/*/lib"

static const place places[] = {
    {"CUDA_HOME", "/lib64"},
    {"CUDA_HOME", "/lib"},
    {"CUDA_PATH", "/lib64"},
    {"CUDA_PATH", "/lib"},
    {"VIRTUAL_ENV", "/lib" PYTHON},
    {"CONDA_PREFIX", "/lib" PYTHON},
    {"CONDA_PREFIX", "/lib"},
    {"PATH", "/lib" PYTHON},
    {"python3", "/lib" PYTHON},
    {"HOME", "/.local/lib" PYTHON},
    {NULL, "/usr/local/lib" PYTHON},
    {NULL, "/usr/local/lib/python3*/dist-packages/nvidia/*/lib"},
    {NULL, "/usr/lib" PYTHON},
    {NULL, "/usr/lib64" PYTHON},
    {NULL, "/usr/lib/python3/dist-packages/nvidia/*/lib"},
    {NULL, "/usr/local/cuda/lib64"},
    {NULL, "/usr/local/cuda/lib"},
    {NULL, NULL},
};

static const place driver_places[] = {
    {NULL, "/usr/lib/wsl/lib"},
    {NULL, "/usr/local/nvidia/lib64"},
    {NULL, "/usr/lib/x86_64-linux-gnu/nvidia/current"},
    {NULL, NULL},
};

/* ---- files in a place ---- */

/* Appends to what the search says of itself. */
__attribute__((format(printf, 2, 3))) static void note(wd_cuda_found *out, const char *format, ...)
{
    char text[PATH_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    wd_append_text(out->looked, sizeof out->looked, strlen(out->looked), "%s%s",
                   out->looked[0] ? ", " : "", text);
}

/* What is done with a file that is there. True: the search ends. */
typedef bool visit_fn(wd_cuda_found *out, const char *file);

/* Opens `file`, or notes why it cannot be opened. */
static bool open_file(wd_cuda_found *out, const char *file)
{
    out->handle = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
    if (out->handle)
        snprintf(out->path, sizeof out->path, "%s", file);
    else
        note(out, "%s, which cannot be opened (%s)", file, dlerror());
    return out->handle;
}

static bool is_there(wd_cuda_found *out, const char *file)
{
    return (void)out, (void)file, true;
}

static bool is_path(const place *p)
{
    return p->variable && !strcmp(p->variable, "PATH");
}

/* The place that python3 names. It is asked only where earlier places have not what is wanted. */
static bool is_python(const place *p)
{
    return p->variable && !strcmp(p->variable, "python3");
}

/* The absolute path that begins the place; NULL: its variable says none. */
static const char *root_of(const place *p)
{
    if (is_python(p)) return python_prefix();
    const char *root = p->variable ? getenv(p->variable) : "";
    return root && (!p->variable || root[0] == '/') ? root : NULL;
}

/* The files of this name in the folders that `below` names in the folder `root`. */
static bool try_root(wd_cuda_found *out, const char *root, int root_length, const char *below,
                     const char *name, visit_fn *visit)
{
    char pattern[PATH_MAX];
    glob_t files = {0};
    bool found = false;
    const int length = snprintf(pattern, PATH_MAX, "%.*s%s/%s", root_length, root, below, name);
    if (length <= 0 || length >= PATH_MAX) return false;
    const int failed = glob(pattern, 0, NULL, &files);
    for (size_t i = 0; !failed && i < files.gl_pathc && !found; i++)
        found = !access(files.gl_pathv[i], F_OK) && visit(out, files.gl_pathv[i]);
    globfree(&files);
    return found;
}

/* Whether a Python is installed below the first `length` bytes of a path, in folders to which not
 * everybody may write. */
static bool has_python(const char *prefix, int length)
{
    static const char *const folders[] = {"", "/bin", "/lib"};
    char path[PATH_MAX];
    struct stat is;
    for (int i = 0; i < 3; i++) {
        const int n = snprintf(path, sizeof path, "%.*s%s", length, prefix, folders[i]);
        if (n >= (int)sizeof path || stat(path, &is) || is.st_mode & S_IWOTH) return false;
    }
    snprintf(path, sizeof path, "%.*s/bin/python3", length, prefix);
    return strcspn(path, "*?[\\") == strlen(path) && !access(path, X_OK);
}

/* Every absolute PREFIX/bin of PATH that has a Python. */
static bool try_path(wd_cuda_found *out, const char *below, const char *name, visit_fn *visit)
{
    static const char bin[] = "/bin";
    const int bin_length = (int)strlen(bin);
    const char *at = getenv("PATH");
    bool found = false;
    while (at && *at && !found) {
        const int length = (int)strcspn(at, ":");
        int prefix = length;
        while (prefix > 1 && at[prefix - 1] == '/') prefix--;
        prefix -= bin_length;
        if (*at == '/' && prefix > 0 && !strncmp(at + prefix, bin, (size_t)bin_length) &&
            has_python(at, prefix))
            found = try_root(out, at, prefix, below, name, visit);
        at += length + (at[length] == ':');
    }
    return found;
}

/* The files of this name in the folders of a place. */
static bool try_place(wd_cuda_found *out, const place *p, const char *name, visit_fn *visit)
{
    if (is_path(p)) return try_path(out, p->below, name, visit);
    const char *root = root_of(p);
    return root && try_root(out, root, (int)strlen(root), p->below, name, visit);
}

/* ---- the search ---- */

static const place *preferred; /* of `places`; NULL: what the loader finds comes first */

static void try_name(wd_cuda_found *out, const place *p, const char *name)
{
    out->handle = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (out->handle) snprintf(out->path, sizeof out->path, "%s", name);
    for (; p->below && !out->handle; p++) try_place(out, p, name, open_file);
}

static void note_places(wd_cuda_found *out, const place *p)
{
    note(out, "the folders of LD_LIBRARY_PATH and of the system");
    for (; p->below; p++) {
        if (is_python(p))
            note(out, "PREFIX%s of the python3 in PATH", p->below);
        else if (is_path(p))
            note(out, "PREFIX%s for every PREFIX/bin in PATH", p->below);
        else if (root_of(p))
            note(out, "%s%s", root_of(p), p->below);
        else if (p == places || strcmp(p->variable, p[-1].variable ? p[-1].variable : ""))
            note(out, "%s (not set)", p->variable);
    }
}

static void look(wd_cuda_found *out, const place *p, const char *const *name)
{
    memset(out, 0, sizeof *out);
    note_places(out, p);
    if (p == places && preferred)
        for (int i = 0; name[i] && !out->handle; i++) try_place(out, preferred, name[i], open_file);
    for (; *name && !out->handle; name++) try_name(out, p, *name);
}

/* Whether the loader finds one of the names; it stays closed. */
static bool loader_has(const char *const *name)
{
    void *handle = NULL;
    for (; *name && !handle; name++) handle = dlopen(*name, RTLD_LAZY | RTLD_LOCAL);
    if (handle) dlclose(handle);
    return handle;
}

static bool place_has(const place *p, const char *const *name)
{
    while (*name && !try_place(NULL, p, *name, is_there)) name++;
    return *name;
}

void wd__cuda_lookup_prefer(const char *const *const *lists, int count)
{
    int have = 0;
    preferred = NULL;
    while (have < count && loader_has(lists[have])) have++;
    for (const place *p = places; have < count && p->below; p++) {
        have = 0;
        while (have < count && place_has(p, lists[have])) have++;
        if (have == count) preferred = p;
    }
}

void wd__cuda_lookup(wd_cuda_found *out, const char *const *name)
{
    look(out, places, name);
}

void wd__cuda_lookup_driver(wd_cuda_found *out, const char *const *name)
{
    look(out, driver_places, name);
}

int wd__cuda_lookup_beside(void *handle, const char *pattern)
{
    char path[PATH_MAX];
    glob_t files = {0};
    int opened = 0;
    struct link_map *map = NULL;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) || !strrchr(map->l_name, '/')) return 0;
    const int length = (int)(strrchr(map->l_name, '/') - map->l_name);
    const int n = snprintf(path, sizeof path, "%.*s/%s", length, map->l_name, pattern);
    if (n >= (int)sizeof path || glob(path, 0, NULL, &files)) return 0;
    for (size_t i = 0; i < files.gl_pathc; i++)
        opened += dlopen(files.gl_pathv[i], RTLD_NOW | RTLD_GLOBAL) != NULL;
    globfree(&files);
    return opened;
}
