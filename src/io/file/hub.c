/* Hub ids in the local Hub cache: see io/file/hub.h. The layout is that of huggingface_hub: the
 * file refs/<revision> contains a commit, and snapshots/<commit> has links to the files. */
#include "io/file/hub.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text.h"

enum { ID_MAX = 200, COMMIT_MAX = 128 };

/* The value of an environment variable; NULL: it is not set, or empty. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

/* The length of the name at the begin of `text`, which follows "$" or "${". */
static size_t name_length(const char *text)
{
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || text[n] == '_') n++;
    return n;
}

/* Replaces $NAME and ${NAME} as huggingface_hub does (os.path.expandvars): a variable that is not
 * set stays as it is written. */
static wd_status expand_variables(char out[WD_PATH_MAX], const char *text, wd_err *err)
{
    size_t used = 0;
    for (const char *at = text; *at;) {
        char name[ID_MAX];
        const bool braces = at[0] == '$' && at[1] == '{';
        const size_t length = *at == '$' ? name_length(at + 1 + braces) : 0;
        const bool closed = length && length < sizeof name && (!braces || at[2 + length] == '}');
        snprintf(name, sizeof name, "%.*s", closed ? (int)length : 0, at + 1 + braces);
        const char *value = closed ? getenv(name) : NULL;
        const size_t bytes = value ? strlen(value) : 1;
        if (bytes >= WD_PATH_MAX - used) return wd_path_join(out, text, "", err); /* too long */
        memcpy(out + used, value ? value : at, bytes);
        used += bytes;
        at += value ? 1 + length + 2 * (size_t)braces : 1;
    }
    out[used] = '\0';
    return WD_OK;
}

/* folder / rest, with a leading "~/" of the folder replaced by the home folder, and variables by
 * their values. */
static wd_status join_home(char out[WD_PATH_MAX], const char *folder, const char *rest, wd_err *err)
{
    char expanded[WD_PATH_MAX], whole[WD_PATH_MAX];
    WD_TRY(expand_variables(expanded, folder, err));
    const bool home = expanded[0] == '~' && (expanded[1] == '/' || !expanded[1]);
    if (!home) return wd_path_join(out, expanded, rest, err);
    const char *user = variable("HOME");
    WD_TRY(wd_path_join(whole, user ? user : "/", expanded + 1 + (expanded[1] == '/'), err));
    return wd_path_join(out, whole, rest, err);
}

static wd_status cache_folder(char out[WD_PATH_MAX], wd_err *err)
{
    static const struct {
        const char *name, *below;
    } places[] = {
        {"HF_HUB_CACHE", ""},
        {"HUGGINGFACE_HUB_CACHE", ""},
        {"HF_HOME", "hub"},
        {"XDG_CACHE_HOME", "huggingface/hub"},
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *folder = variable(places[i].name);
        if (folder) return join_home(out, folder, places[i].below, err);
    }
    return join_home(out, "~", ".cache/huggingface/hub", err);
}

/* Splits "org/name" or "org/name@revision"; false: it does not look like one. */
static bool split_id(char org[ID_MAX], char name[ID_MAX], const char **revision, const char *text)
{
    const char *slash = strchr(text, '/'), *at = strchr(text, '@');
    const char *end = at ? at : text + strlen(text);
    if (!slash || slash == text || slash > end || end - text >= ID_MAX) return false;
    if (end - slash < 2 || (at && !at[1]) || text[0] == '.') return false;
    for (const char *p = text; p < end; p++) {
        if (p != slash && !isalnum((unsigned char)*p) && !strchr("._-", *p)) return false;
    }
    snprintf(org, ID_MAX, "%.*s", (int)(slash - text), text);
    snprintf(name, ID_MAX, "%.*s", (int)(end - slash - 1), slash + 1);
    *revision = at ? at + 1 : "main";
    return !strstr(*revision, "..");
}

/* The commit in refs/<revision>, or `revision` itself if there is no such file. */
static wd_status read_commit(char commit[COMMIT_MAX], const char *repository, const char *revision,
                             wd_err *err)
{
    char folder[WD_PATH_MAX], path[WD_PATH_MAX], *text;
    size_t bytes;
    WD_TRY(wd_path_join(folder, repository, "refs", err));
    WD_TRY(wd_path_join(path, folder, revision, err));
    if (!wd_path_exists(path)) {
        snprintf(commit, COMMIT_MAX, "%s", revision);
        return WD_OK;
    }
    WD_TRY(wd_file_read(&text, &bytes, path, COMMIT_MAX - 1, err));
    snprintf(commit, COMMIT_MAX, "%.*s", (int)strcspn(text, " \r\n"), text);
    wd_free(text);
    if (commit[0] && !strchr(commit, '/') && commit[0] != '.') return WD_OK;
    return wd_fail(err, WD_BAD_FORMAT, "%s: expected the name of a commit", path);
}

/* Whether this is one of Wan's repositories in the original format, which this program does not
 * read; they exist in diffusers' format, too. */
static bool is_original(const char *org, const char *model)
{
    return !strcmp(org, "Wan-AI") && !strstr(model, "-Diffusers");
}

const char *wd_hub_advice(char *out, size_t bytes, const char *path, const char *file)
{
    static const char models[] = "models--", snapshots[] = "/snapshots/";
    const char *org = strstr(path, models);
    *out = '\0';
    if (!org || (org > path && org[-1] != '/')) return out;
    org += sizeof models - 1;
    const char *end = strstr(org, snapshots), *name = strstr(org, "--");
    if (!end || !name || name > end) return out;
    const char *commit = end + sizeof snapshots - 1;
    const size_t length = strcspn(commit, "/");
    const char *rest = commit + length + (commit[length] == '/');
    if (!length || (!file && !*rest)) return out;
    snprintf(out, bytes, "; to download it: hf download %.*s/%.*s %s --revision %.*s",
             (int)(name - org), org, (int)(end - name - 2), name + 2, file ? file : rest,
             (int)length, commit);
    return out;
}

/* The teacher that commands of the Python version name. */
#define FORMER_DEFAULT "timbrooks/instruct-wan"

wd_status wd_hub_find(char out[WD_PATH_MAX], const char *name, wd_err *err)
{
    char org[ID_MAX], model[ID_MAX], below[2 * ID_MAX + 16], commit[COMMIT_MAX];
    char cache[WD_PATH_MAX], repository[WD_PATH_MAX], snapshots[WD_PATH_MAX], path[WD_PATH_MAX];
    const char *revision;
    if (wd_path_is_folder(name)) return wd_path_join(out, "", name, err);
    if (wd_path_exists(name))
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "%s: is a file, expected a model folder; single files are given as "
                       "--transformer FILE --text_encoder FILE --vae FILE",
                       name);
    if (!split_id(org, model, &revision, name))
        return wd_fail(err, WD_NOT_FOUND,
                       "%s: there is no such folder (and it is not a Hub id such as "
                       "Wan-AI/Wan2.1-T2V-1.3B-Diffusers)",
                       name);
    WD_TRY(cache_folder(cache, err));
    snprintf(below, sizeof below, "models--%s--%s", org, model);
    WD_TRY(wd_path_join(repository, cache, below, err));
    WD_TRY(read_commit(commit, repository, revision, err));
    WD_TRY(wd_path_join(snapshots, repository, "snapshots", err));
    WD_TRY(wd_path_join(path, snapshots, commit, err));
    if (wd_path_is_folder(path)) return wd_path_join(out, "", path, err);
    if (!strcmp(name, FORMER_DEFAULT))
        return wd_fail(err, WD_NOT_FOUND,
                       "%s: the Hub has no such model, though commands of the Python version name "
                       "it. Wan's published models are Wan-AI/Wan2.1-T2V-1.3B-Diffusers, "
                       "Wan-AI/Wan2.1-T2V-14B-Diffusers, Wan-AI/Wan2.2-TI2V-5B-Diffusers and "
                       "Wan-AI/Wan2.2-T2V-A14B-Diffusers: `hf download` of one of these names gets "
                       "it",
                       name);
    const bool is_main = !strcmp(revision, "main");
    char word[WD_SHELL_WORD_BYTES(WD_PATH_MAX)];
    return wd_fail(
        err, WD_NOT_FOUND,
        "%s: neither a folder here nor in the Hub cache (looked for %s). To download it: "
        "hf download %s/%s%s%s%s",
        name, path, org, model, is_original(org, model) ? "-Diffusers" : "",
        is_main ? "" : " --revision ", is_main ? "" : wd_shell_word(word, sizeof word, revision));
}
