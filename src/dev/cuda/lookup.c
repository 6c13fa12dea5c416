/* See dev/cuda/lookup.h. */
#include "dev/cuda/lookup.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/append.h"

/* Folders: those that the pattern of glob(7) `below` names in the folder that the variable of the
 * environment names (NULL: in the root folder). Those of one variable stand together. PATH names
 * PREFIX where it has PREFIX/bin: so a Python that can be started is found without a variable of
 * its own, as in images with conda. */
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

/* Appends to what the search says of itself. */
__attribute__((format(printf, 2, 3))) static void note(wd_cuda_found *out, const char *format, ...)
{
    char text[PATH_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    wd_append(out->looked, sizeof out->looked, strlen(out->looked), "%s%s",
              out->looked[0] ? ", " : "", text);
}

/* Opens `file`, and notes why it cannot be opened if it is there. */
static void try_file(wd_cuda_found *out, const char *file)
{
    if (access(file, F_OK)) return;
    out->handle = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
    if (out->handle)
        snprintf(out->path, sizeof out->path, "%s", file);
    else
        note(out, "%s, which cannot be opened (%s)", file, dlerror());
}

static bool is_path(const place *p)
{
    return p->variable && !strcmp(p->variable, "PATH");
}

/* The absolute path that begins the place; NULL: its variable says none. */
static const char *root_of(const place *p)
{
    const char *root = p->variable ? getenv(p->variable) : "";
    return root && (!p->variable || root[0] == '/') ? root : NULL;
}

/* The files of this name in the folders that `below` names in the folder `root`. */
static void try_root(wd_cuda_found *out, const char *root, int root_length, const char *below,
                     const char *name)
{
    char pattern[PATH_MAX];
    glob_t files = {0};
    const int length = snprintf(pattern, PATH_MAX, "%.*s%s/%s", root_length, root, below, name);
    if (length <= 0 || length >= PATH_MAX) return;
    const int failed = glob(pattern, 0, NULL, &files);
    for (size_t i = 0; !failed && i < files.gl_pathc && !out->handle; i++)
        try_file(out, files.gl_pathv[i]);
    globfree(&files);
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
static void try_path(wd_cuda_found *out, const char *below, const char *name)
{
    static const char bin[] = "/bin";
    const int bin_length = (int)strlen(bin);
    const char *at = getenv("PATH");
    while (at && *at && !out->handle) {
        const int length = (int)strcspn(at, ":");
        int prefix = length;
        while (prefix > 1 && at[prefix - 1] == '/') prefix--;
        prefix -= bin_length;
        if (*at == '/' && prefix > 0 && !strncmp(at + prefix, bin, (size_t)bin_length) &&
            has_python(at, prefix))
            try_root(out, at, prefix, below, name);
        at += length + (at[length] == ':');
    }
}

/* The files of this name in the folders of a place. */
static void try_place(wd_cuda_found *out, const place *p, const char *name)
{
    const char *root = root_of(p);
    if (is_path(p))
        try_path(out, p->below, name);
    else if (root)
        try_root(out, root, (int)strlen(root), p->below, name);
}

static void try_name(wd_cuda_found *out, const place *p, const char *name)
{
    out->handle = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (out->handle) snprintf(out->path, sizeof out->path, "%s", name);
    for (; p->below && !out->handle; p++) try_place(out, p, name);
}

static void note_places(wd_cuda_found *out, const place *p)
{
    note(out, "the folders of LD_LIBRARY_PATH and of the system");
    for (; p->below; p++) {
        if (is_path(p))
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
    for (; *name && !out->handle; name++) try_name(out, p, *name);
}

void wd_cuda_lookup(wd_cuda_found *out, const char *const *name)
{
    look(out, places, name);
}

void wd_cuda_lookup_driver(wd_cuda_found *out, const char *const *name)
{
    look(out, driver_places, name);
}

int wd_cuda_lookup_beside(void *handle, const char *pattern)
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
