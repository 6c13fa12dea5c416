/* The text cache on wan-tiny, against the embeddings of the reference's pipeline
 * (tests/fixtures/pipeline): when prompts are computed, and files that must not be trusted. */
#include "failing.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/log.h"
#include "core/stop.h"
#include "job/comm/comm.h"
#include "model/text_cache/text_cache.h"
#include "model/text_cache/text_file.h"

static const double tolerance = 2e-5;

/* Of tests/fixtures/pipeline/arguments.json. */
static const char *const prompts[] = {
    "red apple, blue background",
    "  Cr\u00e8me   br\u00fbl\u00e9e &amp; a \t\u201cfox\u201d, green background ",
    "penguin, white background", ""};
enum { PROMPTS = 4, NEGATIVE = 3, TOKENS = 24, DIM = 96, RANKS_MAX = 5 };
enum { WRITING = WD_SAFETENSORS_BUFFER_BYTES + (64 << 10) }; /* of a cache file */

static wd_pipeline tiny;
static wd_device *device;
static wd_queue *queue;

static int set_up(void **state)
{
    wd_err err;
    (void)state;
    wd_test_ok(wd_pipeline_open(&tiny, WD_SOURCE_DIR "/models/wan-tiny", &err), &err);
    wd_test_ok(wd_device_open_guard(&device, 0, &err), &err);
    wd_test_ok(wd_queue_open(&queue, device, &err), &err);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    wd_queue_close(queue);
    wd_device_close(device);
    return 0;
}

/* A new folder for each test. */
static const char *new_folder(void)
{
    static char path[128];
    static int serial;
    snprintf(path, sizeof path, "%s/cache-%d/made", wd_test_folder(), serial++);
    return path;
}

static wd_status open_and_encode(wd_text_cache **out, const char *folder,
                                 const wd_pipeline *pipeline, const char *const *texts,
                                 int64_t count, int64_t tokens, wd_dtype dtype, wd_queue *on,
                                 wd_err *err)
{
    const wd_text_place place = {.folder = folder};
    WD_TRY(wd__text_cache_open(out, &place, pipeline, texts, count, tokens, dtype, err));
    const wd_status status = wd_text_cache_encode(*out, on, err);
    if (status != WD_OK) wd__text_cache_close(*out);
    return status;
}

static wd_text_cache *open_cache(const char *folder, int64_t count, wd_dtype dtype)
{
    wd_text_cache *c;
    wd_err err;
    size_t before = wd_device_bytes(device);
    wd_test_ok(open_and_encode(&c, folder, &tiny, prompts, count, TOKENS, dtype, queue, &err),
               &err);
    /* The encoder's memory is freed; a queue's workspace may stay. */
    assert_true(wd_device_bytes(device) <= before + wd_queue_workspace_bytes(queue));
    return c;
}

/* Lists the paths of the files in the folder; returns their number; -1: there is no folder. */
static int list(char path[8][512], const char *folder)
{
    int count = 0;
    DIR *dir = opendir(folder);
    if (!dir) return -1;
    for (struct dirent *item; (item = readdir(dir));) {
        if (item->d_name[0] == '.') continue;
        assert_true(count < 8);
        snprintf(path[count++], 512, "%s/%s", folder, item->d_name);
    }
    closedir(dir);
    return count;
}

/* Warnings since the last call. */
static int warnings;
static char last_warning[2048];

static void count_warning(void *context, wd_log_level level, const char *message)
{
    (void)context;
    if (level != WD_LOG_WARNING) return;
    warnings++;
    snprintf(last_warning, sizeof last_warning, "%s", message);
}

static void check_reference(const wd_text_cache *c, double limit)
{
    const char *file = "tests/fixtures/pipeline/out.safetensors";
    wd_tensor embeds = wd_test_load(file, "prompt_embeds");
    wd_tensor negative = wd_test_load(file, "negative_prompt_embeds");
    wd_tensor ids = wd_test_load(file, "input_ids");
    float out[TOKENS * DIM];
    int32_t got_ids[TOKENS];
    for (int i = 0; i < 3; i++) {
        wd_text_cache_fill(out, c, i, TOKENS, WD_F32);
        double error =
            wd_test_rel_error(out, (float *)embeds.data + i * TOKENS * DIM, TOKENS * DIM);
        print_message("prompt %d: %.2g\n", i, error);
        assert_true(error <= limit);
        wd_text_cache_ids(got_ids, c, i);
        for (int k = 0; k < TOKENS; k++)
            assert_int_equal(got_ids[k], ((int64_t *)ids.data)[i * TOKENS + k]);
    }
    wd_text_cache_fill(out, c, NEGATIVE, TOKENS, WD_F32);
    assert_true(wd_test_rel_error(out, negative.data, TOKENS * DIM) <= limit);
    wd_free(embeds.data);
    wd_free(negative.data);
    wd_free(ids.data);
}

static void reference(void **state)
{
    (void)state;
    const char *folder = new_folder();
    wd_text_cache *c = open_cache(folder, PROMPTS, WD_F32);
    assert_int_equal(wd__text_cache_computed(c), PROMPTS);
    check_reference(c, tolerance);
    wd__text_cache_close(c);
    c = open_cache(folder, PROMPTS, WD_F32);
    assert_int_equal(wd__text_cache_computed(c), 0);
    check_reference(c, tolerance);
    wd__text_cache_close(c);
}

/* In memory, without a folder; in bf16, whose rows are those of fp32 to bf16's precision. */
static void memory_and_bf16(void **state)
{
    (void)state;
    wd_text_cache *c = open_cache(NULL, PROMPTS, WD_F32);
    check_reference(c, tolerance);
    wd__text_cache_close(c);
    c = open_cache(NULL, PROMPTS, WD_BF16);
    assert_int_equal(wd__text_cache_dtype(c), WD_BF16);
    check_reference(c, 2e-2);
    int64_t rows;
    const uint16_t *row = wd__text_cache_rows(c, NEGATIVE, &rows);
    assert_int_equal(rows, 1); /* "" is </s> alone */
    uint16_t narrow[TOKENS * DIM];
    float wide[TOKENS * DIM];
    wd_text_cache_fill(narrow, c, NEGATIVE, TOKENS, WD_BF16);
    wd_text_cache_fill(wide, c, NEGATIVE, TOKENS, WD_F32);
    assert_memory_equal(narrow, row, DIM * sizeof *row);
    for (int i = 0; i < TOKENS * DIM; i++) {
        assert_true(wide[i] == wd_bf16_to_f32(narrow[i]));
        if (i >= DIM) assert_true(narrow[i] == 0);
    }
    wd__text_cache_close(c);
}

/* As many rows as the longest prompt has tokens, and one of padding. */
static void padding_left_out(void **state)
{
    (void)state;
    static const char *const list[] = {"red apple", "penguin, white background", ""};
    enum { COUNT = 3 };
    float all[TOKENS * DIM], out[TOKENS * DIM];
    int64_t most = 0, tokens;
    wd_text_cache *c;
    wd_err err;
    wd_test_ok(open_and_encode(&c, NULL, &tiny, list, COUNT, TOKENS, WD_F32, queue, &err), &err);
    const int64_t longest = wd__text_cache_longest(c), rows = longest + 1;
    assert_in_range(longest, 2, TOKENS - 2);
    for (int i = 0; i < COUNT; i++) {
        wd__text_cache_rows(c, i, &tokens);
        if (tokens > most) most = tokens;
        wd_text_cache_fill(all, c, i, TOKENS, WD_F32);
        memset(out, 0xff, sizeof out);
        wd_text_cache_fill(out, c, i, rows, WD_F32);
        assert_memory_equal(out, all, (size_t)(rows * DIM) * sizeof *out);
        assert_true(isnan(out[rows * DIM])); /* nothing behind them is written */
    }
    assert_int_equal(longest, most);
    wd__text_cache_close(c);
}

/* A temporary file in the folder, last written to so many hours ago. */
static void leave(char path[512], const char *folder, const char *name, int hours)
{
    const struct timespec then = {.tv_sec = time(NULL) - hours * 3600};
    wd_err err;
    snprintf(path, 512, "%s/%s", folder, name);
    wd_test_ok(wd_folder_make(folder, &err), &err);
    wd_test_ok(wd_file_write(path, "half", 4, &err), &err);
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){then, then}, 0), 0);
}

/* Killed writers leave temporary files, which other processes remove after a day. */
static void what_killed_writers_left_goes(void **state)
{
    (void)state;
    const char *folder = new_folder();
    char old[512], fresh[512], strange[512];
    leave(old, folder, "text-1-2.safetensors.123-0.tmp", 25);
    leave(fresh, folder, "text-1-3.safetensors.124-0.tmp", 23);
    leave(strange, folder, "notes.tmp", 25);
    wd__text_cache_close(open_cache(folder, 2, WD_F32));
    assert_false(wd_path_exists(old));
    assert_true(wd_path_exists(fresh));
    assert_true(wd_path_exists(strange));
}

/* Only new prompts are computed, each once; other dtypes and lengths need rows of their own. */
static void grows(void **state)
{
    (void)state;
    const char *folder = new_folder();
    char path[8][512];
    wd_text_cache *c = open_cache(folder, 2, WD_F32);
    assert_int_equal(wd__text_cache_computed(c), 2);
    wd__text_cache_close(c);
    c = open_cache(folder, PROMPTS, WD_F32);
    assert_int_equal(wd__text_cache_computed(c), 2);
    check_reference(c, tolerance);
    wd__text_cache_close(c);
    assert_int_equal(list(path, folder), 2);
    c = open_cache(folder, PROMPTS, WD_BF16);
    assert_int_equal(wd__text_cache_computed(c), PROMPTS);
    wd__text_cache_close(c);
    const char *const twice[] = {prompts[0], "a new one", prompts[0], "  a new   one "};
    wd_err err;
    wd_test_ok(open_and_encode(&c, folder, &tiny, twice, 4, TOKENS, WD_F32, queue, &err), &err);
    assert_int_equal(wd__text_cache_computed(c), 1);
    int64_t rows[2];
    assert_ptr_equal(wd__text_cache_rows(c, 1, &rows[0]), wd__text_cache_rows(c, 3, &rows[1]));
    wd__text_cache_close(c);
    /* Shorter cuts give other ids, unless the prompt fits, as "" does. */
    wd_test_ok(open_and_encode(&c, folder, &tiny, prompts, PROMPTS, 5, WD_F32, queue, &err), &err);
    assert_int_equal(wd__text_cache_computed(c), PROMPTS - 1);
    wd__text_cache_close(c);
}

static void spoil(const char *path, off_t at, int from_end)
{
    struct stat s;
    char byte;
    assert_int_equal(stat(path, &s), 0);
    int fd = open(path, O_RDWR);
    off_t offset = from_end ? s.st_size - at : at;
    assert_int_equal(pread(fd, &byte, 1, offset), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
    close(fd);
}

/* Fills a folder, applies `damage` to its file, and opens it again: all prompts are computed again,
 * with a warning that contains `text`, and the cache is complete after that. */
static void check_damage(void (*damage)(const char *path), const char *text)
{
    const char *folder = new_folder();
    char path[8][512];
    wd__text_cache_close(open_cache(folder, PROMPTS, WD_F32));
    assert_int_equal(list(path, folder), 1);
    damage(path[0]);
    warnings = 0;
    wd_log_to(count_warning, NULL, WD_LOG_WARNING);
    wd_text_cache *c = open_cache(folder, PROMPTS, WD_F32);
    wd_log_to(NULL, NULL, WD_LOG_ERROR);
    assert_int_equal(warnings, 1);
    if (!strstr(last_warning, text)) fail_msg("\"%s\" does not name %s", last_warning, text);
    assert_int_equal(wd__text_cache_computed(c), PROMPTS);
    check_reference(c, tolerance);
    wd__text_cache_close(c);
    c = open_cache(folder, PROMPTS, WD_F32);
    assert_int_equal(wd__text_cache_computed(c), 0);
    wd__text_cache_close(c);
}

static void flip_value(const char *path)
{
    spoil(path, 2000, 1);
}
static void flip_hash(const char *path)
{
    spoil(path, 20, 1);
}
static void flip_header(const char *path)
{
    spoil(path, 8, 0);
}
static void cut_short(const char *path)
{
    assert_int_equal(truncate(path, 3000), 0);
}
static void empty(const char *path)
{
    assert_int_equal(truncate(path, 0), 0);
}

static void foreign(const char *path)
{
    wd_err err;
    wd_test_ok(wd_file_copy(path, WD_SOURCE_DIR "/tests/fixtures/umt5/in.safetensors", &err), &err);
}

static void damaged(void **state)
{
    (void)state;
    check_damage(flip_value, "checksum");
    check_damage(flip_hash, "checksum");
    check_damage(flip_header, "text-");
    check_damage(cut_short, "text-");
    check_damage(empty, "text-");
    check_damage(foreign, "is not \"wandistiller text cache");
}

/* An undamaged file that states one row for each prompt: a prompt with more tokens would read
 * beyond the rows. */
static void rows_are_as_many_as_tokens(void **state)
{
    (void)state;
    static const int64_t first[PROMPTS + 1] = {0, 1, 2, 3, 4};
    static const float row[PROMPTS * DIM];
    const char *folder = new_folder();
    char path[8][512], written[WD_PATH_MAX];
    wd_text_rows rows = {.dtype = WD_F32, .text_dim = DIM};
    wd_safetensors *set;
    wd_err err;
    wd_text_cache *c = open_cache(folder, PROMPTS, WD_F32);
    const char *key = wd_text_cache_key(c);
    assert_int_equal(list(path, folder), 1);
    wd_test_ok(wd__text_file_open(&set, &rows, path[0], key, &err), &err);
    assert_int_equal(rows.count, PROMPTS);
    const wd_text_rows hostile = {rows.hash, first, (const char *)row, PROMPTS, DIM, WD_F32, NULL};
    assert_int_equal(unlink(path[0]), 0);
    wd_test_ok(wd__text_file_write(written, folder, key, &hostile, &err), &err);
    wd_free(rows.index);
    wd_safetensors_close(set);
    wd__text_cache_close(c);
    c = open_cache(folder, PROMPTS, WD_F32);
    assert_int_equal(wd__text_cache_computed(c), PROMPTS - 1); /* "" is a token alone: </s> */
    wd__text_cache_close(c);
}

/* Files of another encoder are skipped without a warning. */
static void other_encoder(void **state)
{
    (void)state;
    const char *folder = new_folder();
    wd__text_cache_close(open_cache(folder, PROMPTS, WD_F32));
    wd_pipeline other = tiny;
    wd_text_cache *c;
    wd_err err;
    other.umt5.eps = 1e-5;
    wd_test_ok(open_and_encode(&c, folder, &other, prompts, PROMPTS, TOKENS, WD_F32, queue, &err),
               &err);
    assert_int_equal(wd__text_cache_computed(c), PROMPTS);
    wd__text_cache_close(c);
}

/* The key changes with any value of a small encoder, with its configuration, the dtype, and the
 * device that is no processor. */
static void keys(void **state)
{
    (void)state;
    const char *original = WD_SOURCE_DIR "/models/wan-tiny/text_encoder/model.safetensors";
    char path[512], key[6][WD_TEXT_KEY_MAX];
    wd_safetensors *set;
    wd_umt5_config config = tiny.umt5;
    wd_err err;
    wd_test_ok(wd_safetensors_open(&set, original, &err), &err);
    wd__text_key_of(key[0], &config, set, WD_F32, NULL);
    wd__text_key_of(key[1], &config, set, WD_BF16, NULL);
    wd__text_key_of(key[4], &config, set, WD_F32, "a GPU");
    wd__text_key_of(key[5], &config, set, WD_F32, "another GPU");
    config.max_distance++;
    wd__text_key_of(key[2], &config, set, WD_F32, NULL);
    wd_safetensors_close(set);
    snprintf(path, sizeof path, "%s/encoder.safetensors", wd_test_folder());
    wd_test_ok(wd_file_copy(path, original, &err), &err);
    spoil(path, 12345, 1);
    wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
    wd__text_key_of(key[3], &tiny.umt5, set, WD_F32, NULL);
    wd_safetensors_close(set);
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < i; j++) assert_string_not_equal(key[i], key[j]);
}

/* A cache that is encoded into an empty folder at each attempt. */
typedef struct encoding {
    const char *folder;
    size_t device_bytes;
} encoding;

static wd_status encode_and_close(void *context, wd_err *err)
{
    const encoding *e = context;
    wd_text_cache *c;
    WD_TRY(open_and_encode(&c, e->folder, &tiny, prompts, PROMPTS, TOKENS, WD_F32, queue, err));
    wd__text_cache_close(c);
    return WD_OK;
}

/* A file in the folder is complete, even if memory ran out when it was read. */
static void check_folder(void *context, wd_status status)
{
    const encoding *e = context;
    char path[8][512];
    assert_true(wd_device_bytes(device) <= e->device_bytes + wd_queue_workspace_bytes(queue));
    if (list(path, e->folder) <= 0) {
        assert_int_not_equal(status, WD_OK);
        return;
    }
    wd_text_cache *c = open_cache(e->folder, PROMPTS, WD_F32);
    assert_int_equal(wd__text_cache_computed(c), 0);
    check_reference(c, tolerance);
    wd__text_cache_close(c);
    assert_int_equal(list(path, e->folder), 1);
    assert_int_equal(unlink(path[0]), 0);
}

/* Whichever allocation fails, the result is an error, without incomplete files or memory left on
 * the device. */
static void allocation_failures(void **state)
{
    (void)state;
    encoding e = {new_folder(), wd_device_bytes(device)};
    wd_test_failing_allocations(encode_and_close, check_folder, &e, 50);
}

static void interrupted(void **state)
{
    (void)state;
    const char *folder = new_folder();
    const wd_text_place place = {.folder = folder};
    char path[8][512];
    wd_text_cache *c;
    wd_err err;
    wd_test_ok(wd__text_cache_open(&c, &place, &tiny, prompts, PROMPTS, TOKENS, WD_F32, &err),
               &err);
    wd_request_stop();
    wd_test_refused(wd_text_cache_encode(c, queue, &err), &err, WD_INTERRUPTED, "0 of 4");
    wd__text_cache_close(c);
    const wd_status status =
        wd__text_cache_open(&c, &place, &tiny, prompts, PROMPTS, TOKENS, WD_F32, &err);
    wd__stop_forget();
    wd_test_refused(status, &err, WD_INTERRUPTED, "after 0 of 4 prompts were tokenized");
    assert_int_equal(list(path, folder), 0);
}

static void count_prompts(void *context, const wd_progress *p)
{
    if (!strcmp(p->what, "tokenizing prompts") && p->done == p->total)
        *(int64_t *)context = p->total;
}

/* Many prompts, or long ones, take a while: it is shown how far that is. */
static void tokenizing_shows_progress(void **state)
{
    (void)state;
    const wd_text_place place = {0};
    int64_t seen = 0;
    wd_text_cache *c;
    wd_err err;
    wd_progress_to(count_prompts, &seen);
    wd_test_ok(wd__text_cache_open(&c, &place, &tiny, prompts, PROMPTS, TOKENS, WD_F32, &err),
               &err);
    wd_progress_to(NULL, NULL);
    wd__text_cache_close(c);
    assert_int_equal(seen, PROMPTS);
}

/* A rank's part of encoding together. */
typedef struct rank_part {
    pthread_t thread;
    wd_comm *comm;
    const char *folder;
    bool writes;
    int64_t computed;
    char *rows[PROMPTS]; /* copies */
    int64_t count[PROMPTS];
} rank_part;

static void gather(void *comm, void *data, const size_t *at)
{
    wd_comm_wait(comm, wd_comm_gather_all(comm, WD_LANE_CONTROL, data, at, NULL));
}

/* In a thread, where assertions of cmocka must not be used. */
static void *encode_together(void *context)
{
    rank_part *p = context;
    wd_device *cpu;
    wd_queue *own;
    wd_text_cache *c;
    const wd_text_share share = {.part = p->comm->rank,
                                 .parts = p->comm->ranks,
                                 .writes = p->writes,
                                 .gather = gather,
                                 .context = p->comm};
    if (wd_device_open_cpu(&cpu, 1, NULL) || wd_queue_open(&own, cpu, NULL)) abort();
    const wd_text_place place = {.folder = p->folder};
    if (wd__text_cache_open(&c, &place, &tiny, prompts, PROMPTS, TOKENS, WD_F32, NULL)) abort();
    if (wd_text_cache_share(c, &share, NULL) || wd_text_cache_encode(c, own, NULL)) abort();
    p->computed = wd__text_cache_computed(c);
    for (int64_t i = 0; i < PROMPTS; i++) {
        const void *rows = wd__text_cache_rows(c, i, &p->count[i]);
        const size_t bytes = (size_t)(p->count[i] * tiny.umt5.d_model) * sizeof(float);
        p->rows[i] = malloc(bytes);
        if (!p->rows[i]) abort();
        memcpy(p->rows[i], rows, bytes);
    }
    wd__text_cache_close(c);
    wd_queue_close(own);
    wd_device_close(cpu);
    wd_comm_close(p->comm);
    return NULL;
}

/* Every rank ends with the rows that a single process computes. */
static void run_together(rank_part *all, int ranks, int64_t computed)
{
    wd_comm *comm[RANKS_MAX];
    wd_err err = {0};
    wd_text_cache *alone = open_cache(NULL, PROMPTS, WD_F32);
    wd_test_ok(wd_comm_open_threads(comm, ranks, &err), &err);
    for (int r = 0; r < ranks; r++) {
        all[r].comm = comm[r];
        assert_int_equal(pthread_create(&all[r].thread, NULL, encode_together, &all[r]), 0);
    }
    for (int r = 0; r < ranks; r++) {
        pthread_join(all[r].thread, NULL);
        assert_int_equal(all[r].computed, computed);
        for (int64_t i = 0; i < PROMPTS; i++) {
            int64_t count;
            const void *rows = wd__text_cache_rows(alone, i, &count);
            assert_int_equal(all[r].count[i], count);
            assert_memory_equal(all[r].rows[i], rows,
                                (size_t)(count * tiny.umt5.d_model) * sizeof(float));
            free(all[r].rows[i]);
        }
    }
    wd__text_cache_close(alone);
}

/* More ranks than prompts: some have nothing to do. */
static void ranks_encode_together(void **state)
{
    (void)state;
    char path[8][512], folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    for (int ranks = 2; ranks <= RANKS_MAX; ranks += 3) {
        rank_part all[RANKS_MAX] = {0};
        for (int r = 0; r < ranks; r++) all[r].folder = folder;
        all[0].writes = true;
        run_together(all, ranks, PROMPTS);
        assert_int_equal(list(path, folder), 1);
        run_together(all, ranks, 0);
        assert_int_equal(list(path, folder), 1);
        assert_int_equal(unlink(path[0]), 0);
    }
}

/* Two machines with separate folders: both compute the prompts that one lacks, and each writes
 * them. */
static void machines_have_folders_of_their_own(void **state)
{
    (void)state;
    char path[8][512], folder[2][128];
    for (int i = 0; i < 2; i++) snprintf(folder[i], sizeof folder[i], "%s", new_folder());
    wd__text_cache_close(open_cache(folder[0], 3, WD_F32));
    assert_int_equal(list(path, folder[0]), 1);
    rank_part all[RANKS_MAX] = {{.folder = folder[0], .writes = true},
                                {.folder = folder[0]},
                                {.folder = folder[1], .writes = true}};
    run_together(all, 3, PROMPTS);
    assert_int_equal(list(path, folder[0]), 2);
    assert_int_equal(list(path, folder[1]), 1);
}

/* A dry device and the memory counters show the peak of a real call. */
static void dry(void **state)
{
    (void)state;
    const char *folder = new_folder();
    char path[8][512];
    wd_device *real, *plan;
    wd_queue *real_queue, *plan_queue;
    wd_text_cache *c;
    int64_t host[2];
    wd_err err;
    wd_test_ok(wd_device_open_cpu(&real, 0, &err), &err);
    wd_test_ok(wd_queue_open(&real_queue, real, &err), &err);
    wd_test_ok(wd_device_open_dry(&plan, real, &err), &err);
    wd_test_ok(wd_queue_open(&plan_queue, plan, &err), &err);
    const wd_text_place place = {.folder = folder};
    wd_test_ok(wd__text_cache_open(&c, &place, &tiny, prompts, PROMPTS, TOKENS, WD_F32, &err),
               &err);
    wd_request_stop(); /* a plan encodes nothing */
    wd_test_refused(wd_text_cache_encode(c, plan_queue, &err), &err, WD_INTERRUPTED, "before");
    wd__stop_forget();
    for (int i = 0; i < 2; i++) {
        const int64_t before = wd_memory_held();
        wd_memory_restart_peak();
        wd_test_ok(wd_text_cache_encode(c, i ? real_queue : plan_queue, &err), &err);
        host[i] = wd_memory_peak() - before;
        assert_int_equal(list(path, folder), i ? 1 : -1); /* a plan writes no file */
        assert_int_equal(wd__text_cache_computed(c), i ? PROMPTS : 0);
    }
    check_reference(c, tolerance);
    wd__text_cache_close(c);
    assert_int_equal(wd_device_bytes_peak(real),
                     wd_device_bytes_peak(plan) + wd_queue_workspace_bytes(plan_queue));
    assert_in_range(host[1], host[0], host[0] + WRITING);
    wd_queue_close(plan_queue);
    wd_device_close(plan);
    wd_queue_close(real_queue);
    wd_device_close(real);
}

/* Embeddings of a device with other bits are not taken for a processor's, nor for another such
 * device's; which encoder they are of is the same. */
static void kernels_are_never_mixed(void **state)
{
    (void)state;
    const char *folder = new_folder();
    static const char *const kernels[] = {NULL, "a GPU", "another GPU"};
    char path[8][512], key[WD_TEXT_KEY_MAX] = "";
    for (int again = 0; again < 2; again++)
        for (int i = 0; i < 3; i++) {
            wd_text_cache *c;
            wd_err err;
            const wd_text_place place = {folder, kernels[i]};
            wd_test_ok(
                wd__text_cache_open(&c, &place, &tiny, prompts, PROMPTS, TOKENS, WD_F32, &err),
                &err);
            if (!*key) snprintf(key, sizeof key, "%s", wd_text_cache_key(c));
            assert_string_equal(wd_text_cache_key(c), key);
            wd_test_ok(wd_text_cache_encode(c, queue, &err), &err);
            assert_int_equal(wd__text_cache_computed(c), again ? 0 : PROMPTS);
            wd__text_cache_close(c);
            assert_int_equal(list(path, folder), again ? 3 : i + 1);
        }
}

/* The bytes of a dry device after a call, with those of its queue and of host memory. */
typedef struct needed {
    size_t device, host;
} needed;

static needed plan_of(wd_text_cache *c, int64_t tokens)
{
    wd_device *plan;
    wd_queue *plan_queue;
    wd_err err;
    needed n;
    wd_test_ok(wd_device_open_dry(&plan, device, &err), &err);
    const int64_t before = wd_memory_held();
    wd_memory_restart_peak();
    wd_test_ok(wd_queue_open(&plan_queue, plan, &err), &err);
    if (c)
        wd_test_ok(wd_text_cache_encode(c, plan_queue, &err), &err);
    else
        wd_test_ok(wd_text_cache_rehearse(&tiny, tokens, WD_F32, plan_queue, &err), &err);
    n.device = wd_device_bytes_peak(plan) + wd_queue_workspace_bytes(plan_queue);
    n.host = (size_t)(wd_memory_peak() - before);
    wd_queue_close(plan_queue);
    wd_device_close(plan);
    return n;
}

/* Whatever the prompts are, few or many, short or cut, they take no more than a rehearsal says, and
 * the longest take all of that but little. */
static void a_rehearsal_has_the_most(void **state)
{
    (void)state;
    enum { MANY = 600, LENGTH = 160 };
    static char text[MANY][LENGTH];
    const char *list_of[MANY];
    wd_err err;
    for (int64_t tokens = 2; tokens <= 2 * TOKENS; tokens += 23) {
        const needed most = plan_of(NULL, tokens);
        for (int shape = 0; shape < 4; shape++) {
            const int count = shape % 2 ? MANY : 3;
            for (int i = 0; i < count; i++) {
                const int length = shape < 2 ? LENGTH - 1 : 4 + i * 37 % (LENGTH - 5);
                for (int k = 0; k < length; k++) text[i][k] = k % 3 ? (char)('a' + i % 26) : ' ';
                text[i][length] = 0;
                for (int k = 0, n = i + 1; n; n /= 10) text[i][k++] = (char)('0' + n % 10);
                list_of[i] = text[i];
            }
            wd_text_cache *c;
            wd_test_ok(wd__text_cache_open(&c, NULL, &tiny, list_of, count, tokens, WD_F32, &err),
                       &err);
            const needed n = plan_of(c, tokens);
            wd__text_cache_close(c);
            assert_true(n.device <= most.device);
            if (shape == 1 && tokens > 2) assert_true(4 * n.device > 3 * most.device);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_are_never_mixed),
        cmocka_unit_test(a_rehearsal_has_the_most),
        cmocka_unit_test(reference),
        cmocka_unit_test(memory_and_bf16),
        cmocka_unit_test(padding_left_out),
        cmocka_unit_test(what_killed_writers_left_goes),
        cmocka_unit_test(grows),
        cmocka_unit_test(damaged),
        cmocka_unit_test(rows_are_as_many_as_tokens),
        cmocka_unit_test(other_encoder),
        cmocka_unit_test(keys),
        cmocka_unit_test(allocation_failures),
        cmocka_unit_test(interrupted),
        cmocka_unit_test(tokenizing_shows_progress),
        cmocka_unit_test(ranks_encode_together),
        cmocka_unit_test(machines_have_folders_of_their_own),
        cmocka_unit_test(dry),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
