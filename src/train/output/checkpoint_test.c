/* Checkpoints come back bit for bit, say what does not agree, are damaged visibly, and survive a
 * kill, a full disk and a folder that cannot be written to. */
#include "train/output/checkpoint_list.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/log.h"
#include "failing.h"
#include "io/json/json.h"
#include "student_fixture.h"

enum { ALL = WD_PARAMS_TRAINED | WD_PARAMS_WITH_SLOW | WD_PARAMS_WITH_EMA };

static wd_params open_params(const bench *b, wd_dtype dtype, unsigned kinds)
{
    wd_err err;
    wd_params p;
    wd_dit_config config = small_config();
    wd_test_ok(wd_params_open(&p, &config, dtype, kinds, b->device, &err), &err);
    return p;
}

static void fill_all(const bench *b, wd_params *p, uint64_t seed)
{
    for (int i = 0; i < WD_PARAMS_BUFFERS; i++) {
        if (!p->buffer[i]) continue;
        fill_buffer(b, p, (wd_params_buffer)i, seed + (uint64_t)i, 1, 0);
    }
}

static json_t *run_json(int64_t step)
{
    return json_pack("{s:I, s:f, s:s}", "cursor", (json_int_t)(3 * step), "rate", 0.1, "options",
                     "a\n\"b\"");
}

static void write_step(const bench *b, const char *folder, wd_params *p, int64_t step)
{
    wd_err err;
    json_t *run = run_json(step);
    wd_test_ok(wd_checkpoint_write(folder, step, ONLY(p), run, b->queue, &err), &err);
    json_decref(run);
}

/* A new folder below the test's own. */
static const char *new_folder(void)
{
    static char path[128];
    static int n;
    snprintf(path, sizeof path, "%s/%d", wd_test_folder(), n++);
    return path;
}

/* What a checkpoint keeps is the same in both, bit for bit. */
static void assert_same(const bench *b, wd_params *p, wd_params *q)
{
    static const wd_params_buffer kept[] = {WD_PARAMS_P, WD_PARAMS_M, WD_PARAMS_V, WD_PARAMS_SLOW,
                                            WD_PARAMS_EMA};
    for (int i = 0; i < 5; i++) assert_true(same_buffer(b, p, q, kept[i]));
}

static void test_round_trip(void **state)
{
    (void)state;
    wd_err err;
    const char *folder = new_folder();
    bench b = bench_on(wd_device_open_guard, 1);
    wd_params p = open_params(&b, WD_BF16, ALL), q = open_params(&b, WD_F32, ALL);
    fill_all(&b, &p, 1);
    fill_all(&b, &q, 50);
    int64_t host_values[5] = {1, -2, 3, INT64_MIN, INT64_MAX}, host_back[5];
    float *latents, *back;
    wd_test_ok(wd_device_alloc((void **)&latents, b.device, 6 * 4, "latents", &err), &err);
    wd_test_ok(wd_device_alloc((void **)&back, b.device, 6 * 4, "latents", &err), &err);
    float values[6] = {1, -0.0f, NAN, INFINITY, 1e-42f, 7};
    wd_queue_copy_and_wait(b.queue, latents, values, sizeof values);
    wd_checkpoint_tensor extra[2] = {
        {"trajectory.latents", {latents, WD_F32, 2, {2, 3}, {0}}},
        {"trajectory.serial", {host_values, WD_I64, 1, {5}, {0}}},
    };
    json_t *run = run_json(20);
    wd_test_ok(wd_checkpoint_write(folder, 20, BOTH(&p, extra, 2), run, b.queue, &err), &err);

    wd_checkpoint c;
    wd_test_ok(wd_checkpoint_open_latest(&c, folder, &err), &err);
    assert_int_equal(c.step, 20);
    assert_true(json_equal(c.run, run));
    assert_non_null(strstr(c.path, "/step-00000020"));
    extra[0].tensor.data = back;
    extra[1].tensor.data = host_back;
    wd_test_ok(wd_checkpoint_load(&c, BOTH(&q, extra, 2), b.queue, &err), &err);
    wd_checkpoint_close(&c);
    json_decref(run);
    assert_same(&b, &p, &q);
    float *got = read_floats(&b, back, 6);
    assert_memory_equal(got, values, sizeof values);
    assert_memory_equal(host_back, host_values, sizeof host_values);
    wd_free(got);

    /* A student that is only sampled takes the weights; one with an EMA the file lacks, a copy. */
    wd_params r = open_params(&b, WD_BF16, WD_PARAMS_WITH_EMA);
    wd_params s = open_params(&b, WD_F32, 0);
    fill_all(&b, &s, 9);
    write_step(&b, folder, &s, 30);
    wd_test_ok(wd_checkpoint_open_latest(&c, folder, &err), &err);
    wd_test_ok(wd_checkpoint_load(&c, ONLY(&r), b.queue, &err), &err);
    assert_true(same_buffer(&b, &s, &r, WD_PARAMS_P));
    float *p_values = read_floats(&b, r.buffer[WD_PARAMS_P], r.count);
    float *ema_values = read_floats(&b, r.buffer[WD_PARAMS_EMA], r.count);
    uint16_t *copy = (uint16_t *)read_floats(&b, (float *)r.copy, r.count / 2);
    assert_memory_equal(p_values, ema_values, (size_t)r.count * sizeof *p_values);
    for (int64_t i = 0; i < r.count; i++) assert_int_equal(copy[i], wd_f32_to_bf16(p_values[i]));
    wd_free(p_values);
    wd_free(ema_values);
    wd_free(copy);
    wd_checkpoint_close(&c);
    wd_device_free(b.device, latents);
    wd_device_free(b.device, back);
    wd_params_close(&p);
    wd_params_close(&q);
    wd_params_close(&r);
    wd_params_close(&s);
    bench_close(&b);
}

/* A run that goes on with AdEMAMix, where AdamW wrote the checkpoint, begins with slow moments of
 * zero. All else is as it was. */
static void test_slow_moments_may_be_new(void **state)
{
    (void)state;
    wd_err err;
    const char *folder = new_folder();
    bench b = bench_on(wd_device_open_guard, 1);
    wd_params p = open_params(&b, WD_F32, ALL & ~WD_PARAMS_WITH_SLOW);
    wd_params q = open_params(&b, WD_F32, ALL);
    wd_checkpoint c;
    fill_all(&b, &p, 1);
    write_step(&b, folder, &p, 5);
    wd_test_ok(wd_checkpoint_open_latest(&c, folder, &err), &err);
    wd_test_ok(wd_checkpoint_load(&c, ONLY(&q), b.queue, &err), &err);
    wd_checkpoint_close(&c);
    assert_true(same_buffer(&b, &p, &q, WD_PARAMS_P) && same_buffer(&b, &p, &q, WD_PARAMS_V));
    float *slow = read_floats(&b, q.buffer[WD_PARAMS_SLOW], q.count);
    for (int64_t i = 0; i < q.count; i++) assert_true(slow[i] == 0);
    wd_free(slow);
    wd_params_close(&p);
    wd_params_close(&q);
    bench_close(&b);
}

/* Whether moments in 8 bits of both are the same, bit for bit. */
static bool same_moments(const wd_params *p, const wd_params *q)
{
    const size_t bytes = wd_params_buffer_bytes(p, WD_PARAMS_M);
    return !memcmp(p->buffer[WD_PARAMS_M], q->buffer[WD_PARAMS_M], bytes) &&
           !memcmp(p->buffer[WD_PARAMS_V], q->buffer[WD_PARAMS_V], bytes);
}

/* Moments in 8 bits come back bit for bit; in fp32 they are what they were; and those in fp32 are
 * rounded once. */
static void test_moments_in_8_bits(void **state)
{
    (void)state;
    enum { IN_8_BITS = WD_PARAMS_TRAINED | WD_PARAMS_MOMENTS_IN_8_BITS };
    wd_err err;
    const char *folder = new_folder();
    bench b = bench_on(wd_device_open_cpu, 1);
    wd_params usual = open_params(&b, WD_F32, WD_PARAMS_TRAINED);
    wd_params p = open_params(&b, WD_F32, IN_8_BITS), q = open_params(&b, WD_F32, IN_8_BITS);
    wd_params *const each[] = {&p, &usual, &q};
    wd_checkpoint c;
    fill_all(&b, &usual, 1);
    float *v = usual.buffer[WD_PARAMS_V];
    for (int64_t i = 0; i < usual.count; i++) v[i] *= v[i];
    const float first = usual.buffer[WD_PARAMS_M][5];
    write_step(&b, folder, &usual, 1);
    for (int i = 0; i < 3; i++) {
        wd_test_ok(wd_checkpoint_open_latest(&c, folder, &err), &err);
        wd_test_ok(wd_checkpoint_load(&c, ONLY(each[i]), b.queue, &err), &err);
        wd_checkpoint_close(&c);
        write_step(&b, folder, each[i], 2 + i);
    }
    assert_true(same_moments(&p, &q)); /* by way of fp32 */
    const float second = usual.buffer[WD_PARAMS_M][5];
    assert_true(second != first && fabsf(second - first) < 0.02f * fabsf(first) + 0.02f);
    wd_params_collect(&p, WD_PARAMS_M, b.queue);
    assert_memory_equal(p.buffer[WD_PARAMS_G], usual.buffer[WD_PARAMS_M], (size_t)p.count * 4);
    wd_params_close(&usual);
    wd_params_close(&p);
    wd_params_close(&q);
    bench_close(&b);
}

/* Elements of a tensor of a checkpoint. */
static int64_t count_of(const wd_checkpoint *c, const char *name)
{
    const wd_safetensors_entry *e = wd_safetensors_find(c->set, name);
    assert_non_null(e);
    return wd_tensor_count(&e->tensor);
}

/* Moves the tensors of the checkpoint in `folder`/step-00000003 by a byte: its header gets a space
 * more, and the list of hashes follows. */
static void move_tensors(const char *folder)
{
    static const char *const names[] = {"state.safetensors", "state.json"};
    wd_err err;
    char path[256], sums[256], hash[33], *data;
    size_t bytes, used = 0;
    uint64_t header;
    snprintf(path, sizeof path, "%s/step-00000003/%s", folder, names[0]);
    wd_test_ok(wd_file_read(&data, &bytes, path, 1 << 24, &err), &err);
    char *moved = malloc(bytes + 1);
    memcpy(&header, data, sizeof header);
    memcpy(moved, data, sizeof header + header);
    moved[sizeof header + header] = ' ';
    memcpy(moved + sizeof header + header + 1, data + sizeof header + header,
           bytes - sizeof header - header);
    header++;
    memcpy(moved, &header, sizeof header);
    wd_test_ok(wd_file_write(path, moved, bytes + 1, &err), &err);
    free(moved);
    wd_free(data);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/step-00000003/%s", folder, names[i]);
        wd_test_ok(wd_file_hash(hash, path, &err), &err);
        used += (size_t)snprintf(sums + used, sizeof sums - used, "%s  %s\n", hash, names[i]);
    }
    snprintf(path, sizeof path, "%s/step-00000003/checksums.xxh128", folder);
    wd_test_ok(wd_file_write(path, sums, used, &err), &err);
}

/* A network that has its weights only as passes take them. Checkpoints once had them in F32
 * whatever the dtype of the student, from which the same weights come. */
static void test_weights_as_computed(void **state)
{
    (void)state;
    wd_err err;
    bench b = bench_on(wd_device_open_guard, 1);
    wd_params p = open_params(&b, WD_BF16, 0),
              had = open_params(&b, WD_BF16, WD_PARAMS_AS_COMPUTED);
    fill_all(&b, &p, 1);
    wd_params_copy_computed(&had, &p, WD_PARAMS_P, b.queue);
    for (int older = 0; older < 3; older++) {
        wd_checkpoint c;
        const char *folder = new_folder();
        wd_params q = open_params(&b, WD_BF16, WD_PARAMS_AS_COMPUTED);
        write_step(&b, folder, older ? &p : &had, 3);
        if (older == 2) move_tensors(folder);
        wd_test_ok(wd_checkpoint_open_latest(&c, folder, &err), &err);
        wd_test_ok(wd_checkpoint_load(&c, ONLY(&q), b.queue, &err), &err);
        wd_checkpoint_close(&c);
        for (int64_t line = 0; line < p.table.count; line++) {
            const wd_tensor x = wd_params_weight(&had, line), y = wd_params_weight(&q, line);
            const int64_t floats = ((int64_t)wd_tensor_bytes(&x) + 3) / 4;
            if (!floats) continue;
            float *from = read_floats(&b, x.data, floats), *to = read_floats(&b, y.data, floats);
            assert_memory_equal(from, to, wd_tensor_bytes(&x));
            wd_free(from);
            wd_free(to);
        }
        wd_params_close(&q);
    }
    wd_params_close(&had);
    wd_params_close(&p);
    bench_close(&b);
}

static void test_disagreement(void **state)
{
    (void)state;
    wd_err err;
    const char *folder = new_folder();
    bench b = bench_on(wd_device_open_cpu, 1);
    wd_params p = open_params(&b, WD_F32, 0), trained = open_params(&b, WD_F32, ALL), wide;
    write_step(&b, folder, &p, 1);
    wd_checkpoint c;
    wd_test_ok(wd_checkpoint_open_latest(&c, folder, &err), &err);

    wd_test_refused(wd_checkpoint_load(&c, ONLY(&trained), b.queue, &err), &err, WD_MISMATCH,
                    "\"m.patch_embedding.weight\"");
    wd_dit_config config = small_config();
    config.ffn_dim = 48;
    wd_test_ok(wd_params_open(&wide, &config, WD_F32, 0, b.device, &err), &err);
    wd_test_refused(wd_checkpoint_load(&c, ONLY(&wide), b.queue, &err), &err, WD_MISMATCH,
                    "\"p.blocks.0.ffn.net.0.proj.weight\" is F32 [40, 24], but this run needs "
                    "F32 [48, 24]");
    int32_t serial;
    wd_checkpoint_tensor extra = {"serial", {&serial, WD_I32, 1, {1}, {0}}};
    wd_test_refused(wd_checkpoint_load(&c, BOTH(&p, &extra, 1), b.queue, &err), &err, WD_MISMATCH,
                    "\"serial\"");
    int32_t whole[64];
    const int64_t count = count_of(&c, "p.proj_out.bias");
    assert_in_range(count, 1, 64);
    extra = (wd_checkpoint_tensor){"p.proj_out.bias", {whole, WD_I32, 1, {count}, {0}}};
    wd_test_refused(wd_checkpoint_load(&c, BOTH(&p, &extra, 1), b.queue, &err), &err, WD_MISMATCH,
                    "but this run needs I32");
    wd_checkpoint_close(&c);
    wd_params_close(&p);
    wd_params_close(&trained);
    wd_params_close(&wide);
    bench_close(&b);
}

/* ---- damage ---- */

static int warnings;

static void count_warnings(void *context, wd_log_level level, const char *message)
{
    (void)context, (void)message;
    warnings += level == WD_LOG_WARNING;
}

static void flip_byte(const char *folder, const char *name, off_t at)
{
    char path[256];
    unsigned char byte = 0;
    snprintf(path, sizeof path, "%s/step-00000002/%s", folder, name);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static int64_t latest(const char *folder)
{
    wd_err err;
    wd_checkpoint c;
    wd_test_ok(wd_checkpoint_open_latest(&c, folder, &err), &err);
    int64_t step = c.step;
    wd_checkpoint_close(&c);
    return step;
}

static void test_damage(void **state)
{
    (void)state;
    wd_err err;
    wd_checkpoint c;
    char path[256], hidden[256];
    const char *folder = new_folder();
    bench b = bench_on(wd_device_open_cpu, 1);
    wd_params p = open_params(&b, WD_F32, ALL);
    wd_test_refused(wd_checkpoint_open_latest(&c, folder, &err), &err, WD_NOT_FOUND, folder);
    write_step(&b, folder, &p, 1);
    write_step(&b, folder, &p, 2);
    assert_int_equal(latest(folder), 2);

    const struct {
        const char *name;
        off_t at;
    } place[] = {
        {"state.safetensors", 2}, {"state.safetensors", 40}, {"state.safetensors", 9999},
        {"state.json", 30},       {"state.json", 1},         {"checksums.xxh128", 5},
        {"checksums.xxh128", 33}, {"checksums.xxh128", 36},
    };
    warnings = 0;
    wd_log_to(count_warnings, NULL, WD_LOG_WARNING);
    for (size_t i = 0; i < sizeof place / sizeof *place; i++) {
        flip_byte(folder, place[i].name, place[i].at);
        assert_int_equal(latest(folder), 1);
        assert_int_equal(warnings, (int)i + 1);
        flip_byte(folder, place[i].name, place[i].at);
    }
    assert_int_equal(latest(folder), 2);
    const char *const names[] = {"state.safetensors", "state.json", "checksums.xxh128"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/step-00000002/%s", folder, names[i]);
        snprintf(hidden, sizeof hidden, "%s/hidden", folder);
        assert_int_equal(rename(path, hidden), 0);
        assert_int_equal(latest(folder), 1);
        assert_int_equal(rename(hidden, path), 0);
    }
    snprintf(path, sizeof path, "%s/step-00000002/state.safetensors", folder);
    assert_int_equal(truncate(path, 5000), 0);
    snprintf(path, sizeof path, "%s/step-00000002", folder);
    wd_test_refused(wd_checkpoint_open(&c, path, &err), &err, WD_BAD_FORMAT, "state.safetensors");
    wd_log_to(NULL, NULL, WD_LOG_WARNING);
    /* names without hashes, which would stand before the text's begin */
    static const char no_hashes[] = "  state.safetensors\n  state.json\n";
    snprintf(hidden, sizeof hidden, "%s/checksums.xxh128", path);
    wd_test_ok(wd_file_write(hidden, no_hashes, sizeof no_hashes - 1, &err), &err);
    wd_test_refused(wd_checkpoint_open(&c, path, &err), &err, WD_BAD_FORMAT,
                    "damaged: has no line for state.safetensors");
    write_step(&b, folder, &p, 2); /* takes the damaged one's place */
    assert_int_equal(latest(folder), 2);
    wd_params_close(&p);
    bench_close(&b);
}

/* ---- a hostile world ---- */

static int entries_of(const char *folder, const char *prefix)
{
    char command[256];
    snprintf(command, sizeof command, "ls -A %s | grep -c '^%s'", folder, prefix);
    FILE *pipe = popen(command, "r");
    int n = -1;
    assert_int_equal(fscanf(pipe, "%d", &n), 1);
    pclose(pipe);
    return n;
}

static void test_full_disk(void **state)
{
    (void)state;
    wd_err err;
    const char *folder = new_folder();
    bench b = bench_on(wd_device_open_cpu, 1);
    wd_params p = open_params(&b, WD_F32, ALL);
    json_t *run = run_json(2);
    write_step(&b, folder, &p, 1);
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t bytes = 10; bytes < 1000000; bytes = bytes * 5 / 2) {
        small = (struct rlimit){bytes, old.rlim_max};
        setrlimit(RLIMIT_FSIZE, &small);
        wd_status status = wd_checkpoint_write(folder, 2, ONLY(&p), run, b.queue, &err);
        setrlimit(RLIMIT_FSIZE, &old);
        if (status == WD_OK) {
            assert_true(bytes > 100000);
            break;
        }
        wd_test_refused(status, &err, WD_IO, "step 2");
        assert_int_equal(latest(folder), 1);
        assert_int_equal(entries_of(folder, "\\.tmp"), 0);
    }
    assert_int_equal(latest(folder), 2);
    json_decref(run);
    wd_params_close(&p);
    bench_close(&b);
}

static void test_read_only(void **state)
{
    (void)state;
    wd_err err;
    const char *folder = new_folder();
    bench b = bench_on(wd_device_open_cpu, 1);
    wd_params p = open_params(&b, WD_F32, 0);
    json_t *run = run_json(2);
    write_step(&b, folder, &p, 1);
    assert_int_equal(chmod(wd_test_folder(), 0755), 0);
    assert_int_equal(chmod(folder, 0555), 0);
    bool root = geteuid() == 0; /* may write anywhere: become nobody for a moment */
    if (root) assert_int_equal(seteuid(65534), 0);
    wd_status status = wd_checkpoint_write(folder, 2, ONLY(&p), run, b.queue, &err);
    if (root) assert_int_equal(seteuid(0), 0);
    wd_test_refused(status, &err, WD_IO, folder);
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(latest(folder), 1);
    status = wd_checkpoint_write("/dev/null/run", 2, ONLY(&p), run, b.queue, &err);
    assert_int_not_equal(status, WD_OK);
    assert_non_null(strstr(err.message, "/dev/null"));
    json_decref(run);
    wd_params_close(&p);
    bench_close(&b);
}

/* Numbers of a state are bounded before anything is computed of them. */
static void test_hostile_state(void **state)
{
    (void)state;
    static const char *const hostile[] = {"-1", "1099511627777", "9223372036854775807", "1e300"};
    wd_err err;
    json_t *run;
    char path[256], text[256];
    const char *folder = new_folder();
    snprintf(path, sizeof path, "%s/state.json", folder);
    wd_test_ok(wd_folder_make(folder, &err), &err);
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        snprintf(text, sizeof text,
                 "{\"format\": \"wandistiller checkpoint 1\", \"step\": %s, \"run\": {}}",
                 hostile[i]);
        wd_test_ok(wd_file_write(path, text, strlen(text), &err), &err);
        wd_test_refused(wd_checkpoint_read_run(&run, NULL, folder, &err), &err, WD_BAD_FORMAT,
                        "\"step\": expected an integer from 0 to 1099511627776");
    }
}

/* ---- kill ---- */

static const int64_t kill_step_max = 1000000;

/* The victim: writes step after step, each filled from its number, keeping two; every third step is
 * written twice. */
static int write_until_killed(const char *folder)
{
    bench b = bench_on(wd_device_open_cpu, 1);
    wd_params p = open_params(&b, WD_F32, ALL);
    wd_err err;
    int64_t step = 0;
    wd_checkpoint c;
    if (wd_checkpoint_open_latest(&c, folder, &err) == WD_OK) {
        step = c.step;
        wd_checkpoint_close(&c);
    }
    while (++step < kill_step_max) {
        fill_all(&b, &p, (uint64_t)step * 16);
        write_step(&b, folder, &p, step);
        if (step % 3 == 0) write_step(&b, folder, &p, step);
        wd_test_ok(wd_checkpoint_prune(folder, 2, 0, &err), &err);
        if (write(STDOUT_FILENO, &step, sizeof step) != sizeof step) return 1;
    }
    return 0;
}

/* Starts the victim, waits for its first checkpoint, kills it `us` microseconds later; returns the
 * last step that it reported as written. */
static int64_t kill_one(const char *folder, long us)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        execl("/proc/self/exe", "checkpoint_test", "--write", folder, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    int64_t step = 0, last = 0;
    assert_int_equal(read(ends[0], &last, sizeof last), sizeof last);
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
    kill(child, SIGKILL);
    while (read(ends[0], &step, sizeof step) == sizeof step) last = step;
    close(ends[0]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    return last;
}

static void test_kill(void **state)
{
    (void)state;
    wd_err err;
    const char *folder = new_folder();
    bench b = bench_on(wd_device_open_cpu, 1);
    wd_params p = open_params(&b, WD_F32, ALL), expected = open_params(&b, WD_F32, ALL);
    int cut_short = 0;
    for (int i = 0; i < 40; i++) {
        uint64_t us = wd_random_below((wd_random){7, WD_RANDOM_TEST, 0}, (uint64_t)i, 12000);
        int64_t reported = kill_one(folder, (long)us);
        wd_checkpoint c;
        wd_test_ok(wd_checkpoint_open_latest(&c, folder, &err), &err);
        assert_true(c.step == reported || c.step == reported + 1);
        wd_test_ok(wd_checkpoint_load(&c, ONLY(&p), b.queue, &err), &err);
        fill_all(&b, &expected, (uint64_t)c.step * 16);
        assert_same(&b, &p, &expected);
        wd_checkpoint_close(&c);
        cut_short += entries_of(folder, "\\.tmp") > 0;
    }
    assert_true(cut_short > 0); /* some were killed while they wrote */
    wd_params_close(&p);
    wd_params_close(&expected);
    bench_close(&b);
}

typedef struct saving {
    const bench *b;
    wd_params params, expected;
    json_t *run;
    const char *folder;
} saving;

static wd_status write_again(void *context, wd_err *err)
{
    saving *s = context;
    return wd_checkpoint_write(s->folder, 1, ONLY(&s->params), s->run, s->b->queue, err);
}

static wd_status load_again(void *context, wd_err *err)
{
    saving *s = context;
    wd_checkpoint c = {0};
    wd_status status = wd_checkpoint_open_latest(&c, s->folder, err);
    if (status == WD_OK) status = wd_checkpoint_load(&c, ONLY(&s->params), s->b->queue, err);
    wd_checkpoint_close(&c);
    return status;
}

/* Whichever allocation fails: an error, and what was written before is still whole. */
static void test_allocation_fails(void **state)
{
    (void)state;
    bench b = bench_on(wd_device_open_cpu, 1);
    saving s = {.b = &b, .folder = new_folder(), .run = run_json(1)};
    s.params = open_params(&b, WD_F32, ALL);
    s.expected = open_params(&b, WD_F32, ALL);
    fill_all(&b, &s.params, 16);
    fill_all(&b, &s.expected, 16);
    write_step(&b, s.folder, &s.params, 1);
    wd_test_failing_allocations(write_again, NULL, &s, 10);
    fill_all(&b, &s.params, 32);
    wd_test_failing_allocations(load_again, NULL, &s, 10);
    assert_same(&b, &s.params, &s.expected);
    json_decref(s.run);
    wd_params_close(&s.params);
    wd_params_close(&s.expected);
    bench_close(&b);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--write")) return write_until_killed(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_slow_moments_may_be_new),
        cmocka_unit_test(test_disagreement),
        cmocka_unit_test(test_weights_as_computed),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_read_only),
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_allocation_fails),
        cmocka_unit_test(test_hostile_state),
        cmocka_unit_test(test_moments_in_8_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
