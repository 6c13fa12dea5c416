/* The grammar of --devices: see dev/device_list.h. Parts are cut out of the text as (start, length)
 * and never copied, so that an error can show exactly the part that it is about. */
#include "dev/device_list.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "core/text.h"
#include "dev/cuda.h"

/* A part of the text of `option`. */
typedef struct part {
    const char *option, *at;
    size_t length;
} part;

#define EXPECTED(part, what)                                                                       \
    wd_fail(err, WD_INVALID_ARGUMENT, "%s: expected %s, found \"%.*s\"", (part).option, what,      \
            (int)(part).length, (part).at)

static bool is(part p, const char *text)
{
    return p.length == strlen(text) && !memcmp(p.at, text, p.length);
}

/* Cuts *rest at its first `mark`: returns the part before it, and sets *rest to the part after it,
 * or to nothing (at NULL) if there is no mark. */
static part cut(part *rest, char mark)
{
    const char *end = memchr(rest->at, mark, rest->length);
    part before = *rest;
    if (!end) {
        rest->at = NULL;
        return before;
    }
    before.length = (size_t)(end - rest->at);
    rest->at = end + 1;
    rest->length -= before.length + 1;
    return before;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Cuts a number, with or without a fraction, off the front; false if there is none. */
static bool cut_number(double *out, part *p)
{
    char digits[32];
    size_t n = 0, points = 0;
    while (n < p->length && (is_digit(p->at[n]) || p->at[n] == '.')) points += p->at[n++] == '.';
    if (!n || n >= sizeof digits || points > 1 || !is_digit(p->at[0])) return false;
    memcpy(digits, p->at, n);
    digits[n] = 0;
    *out = strtod(digits, NULL);
    p->at += n;
    p->length -= n;
    return true;
}

typedef struct unit {
    const char *name;
    double factor;
} unit;

static const unit bytes_units[] = {{"B", 1},         {"kB", 1e3},      {"MB", 1e6},
                                   {"GB", 1e9},      {"TB", 1e12},     {"KiB", 1024},
                                   {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1099511627776.0},
                                   {NULL, 0}};
static const unit flops_units[] = {{"FLOP", 1},    {"kFLOP", 1e3},  {"MFLOP", 1e6},
                                   {"GFLOP", 1e9}, {"TFLOP", 1e12}, {NULL, 0}};

/* Reads all of `p` as a number with its unit. */
static bool read_quantity(double *out, part p, const unit *units)
{
    double number;
    if (!cut_number(&number, &p)) return false;
    for (const unit *u = units; u->name; u++) {
        if (!is(p, u->name)) continue;
        *out = number * u->factor;
        return true;
    }
    return false;
}

static wd_status read_bytes(size_t *out, part p, wd_err *err)
{
    double bytes;
    if (!read_quantity(&bytes, p, bytes_units) || bytes < 1 || bytes > (double)(SIZE_MAX / 4))
        return EXPECTED(p, "a size such as 24GiB, 500MB or 4096B");
    *out = (size_t)bytes;
    return WD_OK;
}

/* Reads a speed; `p` is the part after "name=". */
static wd_status read_speed(double *out, part p, const unit *units, const char *what, wd_err *err)
{
    part rest = p, quantity = cut(&rest, '/');
    if (!rest.at || !is(rest, "s") || !read_quantity(out, quantity, units) || *out <= 0)
        return EXPECTED(p, what);
    return WD_OK;
}

/* Whether it is "memory=22GiB", the size of a device, and not "memory=80GB/s". */
static bool is_size(part name, part value)
{
    return is(name, "memory") && value.at && !memchr(value.at, '/', value.length);
}

/* "link=25GB/s,compute=20GFLOP/s,fp32=5GFLOP/s,cpu=3TFLOP/s,memory=80GB/s,memory=22GiB": `speeds`
 * gets the first three and the size, the list the others. compute= also states the speed of fp32
 * where fp32= does not. */
static wd_status read_speeds(wd_device_spec *speeds, wd_device_list *list, part p, wd_err *err)
{
    double *flops_per_s = speeds->flops_per_s;
    while (p.at) {
        part one = cut(&p, ','), value = one, name = cut(&value, '=');
        if (is_size(name, value) && !speeds->bytes) {
            WD_TRY(read_bytes(&speeds->bytes, value, err));
            continue;
        }
        double *to = is(name, "link")      ? &speeds->link_bytes_per_s
                     : is(name, "compute") ? &flops_per_s[WD_16_BIT]
                     : is(name, "fp32")    ? &flops_per_s[WD_32_BIT]
                     : is(name, "cpu")     ? &list->processor_flops_per_s
                     : is(name, "memory")  ? &list->memory_bytes_per_s
                                           : NULL;
        if (!value.at || !to || *to > 0 || is_size(name, value))
            return EXPECTED(one, "link=25GB/s, compute=20GFLOP/s, fp32=5GFLOP/s, cpu=3TFLOP/s, "
                                 "memory=80GB/s or memory=22GiB, each once");
        if (to == &speeds->link_bytes_per_s || to == &list->memory_bytes_per_s)
            WD_TRY(read_speed(to, value, bytes_units,
                              "a speed such as 25GB/s behind link= and memory=", err));
        else
            WD_TRY(read_speed(to, value, flops_units,
                              "a speed such as 20GFLOP/s behind compute=, fp32= and cpu=", err));
    }
    if (!(flops_per_s[WD_32_BIT] > 0)) flops_per_s[WD_32_BIT] = flops_per_s[WD_16_BIT];
    return WD_OK;
}

/* "cpu", or "cpu@compute=3TFLOP/s". */
static wd_status read_cpu(wd_device_list *list, part speed, wd_err *err)
{
    wd_device_spec spec = {.type = WD_DEVICE_CPU};
    if (speed.at) {
        part value = speed, name = cut(&value, '=');
        if (!value.at || !is(name, "compute"))
            return EXPECTED(speed, "compute=3TFLOP/s behind cpu@");
        WD_TRY(read_speed(&spec.flops_per_s[WD_16_BIT], value, flops_units,
                          "a speed such as 3TFLOP/s behind compute=", err));
        spec.flops_per_s[WD_32_BIT] = spec.flops_per_s[WD_16_BIT];
    }
    list->device[list->count++] = spec;
    return WD_OK;
}

typedef struct card {
    const char *name;
    double gib, tflops[WD_PRECISIONS], link_gb_per_s;
} card;

/* NVIDIA's data sheets and whitepapers (GA102, Ada, RTX Blackwell): memory, of the last two what
 * the driver shows; bf16 products of dense matrices, summed in fp32, and fp32 products without
 * TF32, in TFLOP/s; PCIe one way, in GB/s: 16 lanes of version 4 or 5, of the 4060 Ti 8. Where a
 * data sheet has only products of sparse matrices, half of them. */
static const card cards[] = {
    {"rtx3060", 12, {25.5, 12.7}, 31.5},
    {"rtx3090", 24, {71, 35.6}, 31.5},
    {"rtx4060ti16", 16, {44.1, 22.1}, 15.8},
    {"rtx4070ti-super", 16, {88.2, 44.1}, 31.5},
    {"rtx4080", 16, {97.5, 48.7}, 31.5},
    {"rtx4090", 24, {165.2, 82.6}, 31.5},
    {"rtx5070ti", 16, {87.9, 43.9}, 63},
    {"rtx5080", 16, {112.6, 56.3}, 63},
    {"rtx5090", 32, {209.5, 104.8}, 63},
    {"a4000", 16, {76.7, 19.2}, 31.5},     /* RTX A4000 */
    {"a5000", 24, {111.1, 27.8}, 31.5},    /* RTX A5000 */
    {"a6000", 48, {154.8, 38.7}, 31.5},    /* RTX A6000 */
    {"6000-ada", 48, {364.2, 91.1}, 31.5}, /* RTX 6000 Ada Generation */
    {"pro6000", 96, {503.8, 126}, 63},     /* RTX PRO 6000 Blackwell */
    {"a10", 24, {125, 31.2}, 31.5},
    {"a30", 24, {165, 10.3}, 31.5},
    {"l4", 24, {121, 30.3}, 31.5},
    {"l40s", 48, {362, 91.6}, 31.5},
    {"a100-40", 40, {312, 19.5}, 31.5}, /* A100 40GB SXM */
    {"a100", 80, {312, 19.5}, 31.5},    /* A100 80GB SXM */
    {"h100", 80, {989, 67}, 63},        /* H100 SXM */
    {"h200", 140, {989, 67}, 63},       /* H200 SXM */
    {"b200", 179, {2250, 75}, 63},      /* HGX B200 */
};
#define CARDS                                                                                      \
    "rtx3060, rtx3090, rtx4060ti16, rtx4070ti-super, rtx4080, rtx4090, rtx5070ti, rtx5080, "       \
    "rtx5090, a4000, a5000, a6000, 6000-ada, pro6000, a10, a30, l4, l40s, a100-40, a100, h100, "   \
    "h200 and b200"

/* The share of these figures that programs reach over minutes. */
static const double PRODUCTS_SHARE = 0.5, LINK_SHARE = 0.8;

/* Whether `p` is the card's name; the rtx of a name may be left out or be given, so that 4090 and
 * rtx4090, a6000 and rtxa6000 are the same. */
static bool is_card(part p, const char *name)
{
    static const char rtx[] = "rtx";
    const size_t length = sizeof rtx - 1;
    if (p.length > length && !memcmp(p.at, rtx, length)) {
        p.at += length;
        p.length -= length;
    }
    return is(p, strncmp(name, rtx, length) ? name : name + length);
}

static bool find_card(wd_device_spec *out, part p)
{
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        const card *c = &cards[i];
        if (!is_card(p, c->name)) continue;
        out->bytes = (size_t)(c->gib * 1024 * 1024 * 1024);
        for (int k = 0; k < WD_PRECISIONS; k++)
            out->flops_per_s[k] = PRODUCTS_SHARE * c->tflops[k] * 1e12;
        out->link_bytes_per_s = LINK_SHARE * c->link_gb_per_s * 1e9;
        return true;
    }
    return false;
}

/* Cuts "4x" off the front of "4x24GiB" or "4xrtx4090"; a name may have an x of its own. */
static bool cut_count(double *out, part *p)
{
    part rest = *p, number = cut(&rest, 'x');
    if (!rest.at || !cut_number(out, &number) || number.length) return false;
    *p = rest;
    return true;
}

/* Reads "4x24GiB", "24GiB" or "4xrtx4090", and appends this number of devices. */
static wd_status read_group(wd_device_list *list, part p, wd_err *err)
{
    wd_device_spec spec = {.type = WD_DEVICE_SIM};
    part size = p;
    double count = 1;
    if (cut_count(&count, &size) && (count < 1 || count > WD_DEVICES_MAX || count != (int)count))
        return EXPECTED(p, "a number of devices from 1 to 64 and their size, such as 4x24GiB");
    if (!find_card(&spec, size) && read_bytes(&spec.bytes, size, NULL) != WD_OK)
        return EXPECTED(size, "a size such as 24GiB, 500MB or 4096B, or a card (" CARDS ")");
    if (list->count + (int)count > WD_DEVICES_MAX) return EXPECTED(p, "at most 64 devices in all");
    for (int i = 0; i < (int)count; i++) list->device[list->count++] = spec;
    return WD_OK;
}

/* Reads all of `p` as the number of a GPU. */
static bool read_number(int *out, part p)
{
    double number;
    if (memchr(p.at, '.', p.length) || !cut_number(&number, &p) || p.length || number > 999)
        return false;
    *out = (int)number;
    return true;
}

static bool has_gpu(const wd_device_list *list, int number)
{
    for (int i = 0; i < list->count; i++)
        if (list->device[i].number == number) return true;
    return false;
}

/* Reads "0" or "4-7", and appends these GPUs; the driver shows `gpus` GPUs. */
static wd_status read_gpus(wd_device_list *list, part p, int gpus, wd_err *err)
{
    int from, to;
    part last = p, first = cut(&last, '-');
    if (!read_number(&from, first) || !read_number(&to, last.at ? last : first) || to < from)
        return EXPECTED(p, "the number of a GPU, such as cuda:0, or from one to another, cuda:4-7");
    for (int n = from; n <= to; n++) {
        const wd_status status = n < gpus ? WD_OK : wd_cuda_require(n, err);
        if (status != WD_OK) {
            wd_fail_in(err, "--devices");
            return status;
        }
        if (has_gpu(list, n)) return EXPECTED(p, "each GPU once");
        if (list->count == WD_DEVICES_MAX) return EXPECTED(p, "at most 64 devices in all");
        list->device[list->count++] = (wd_device_spec){.type = WD_DEVICE_CUDA, .number = n};
    }
    return WD_OK;
}

/* Appends all GPUs; there must be at least one. */
static wd_status take_all_gpus(wd_device_list *list, part p, int gpus, wd_err *err)
{
    const wd_status status = gpus ? WD_OK : wd_cuda_require(0, err);
    if (status != WD_OK) {
        wd_fail_in(err, "--devices %.*s", (int)p.length, p.at);
        return status;
    }
    for (; list->count < gpus && list->count < WD_DEVICES_MAX; list->count++)
        list->device[list->count] = (wd_device_spec){.type = WD_DEVICE_CUDA, .number = list->count};
    return WD_OK;
}

/* Sets the speeds of all devices of the list, and their memory. */
static void set_speeds(wd_device_list *list, const wd_device_spec *all)
{
    for (int i = 0; i < list->count; i++) {
        wd_device_spec *d = &list->device[i];
        if (all->bytes) d->bytes = all->bytes;
        if (all->link_bytes_per_s > 0) d->link_bytes_per_s = all->link_bytes_per_s;
        for (int k = 0; k < WD_PRECISIONS; k++)
            if (all->flops_per_s[k] > 0) d->flops_per_s[k] = all->flops_per_s[k];
    }
}

/* "cuda", or "cuda:0,4-7", followed by "@link=25GB/s": `text` is the whole, `numbers` the part
 * after the colon, at NULL if there is none. */
static wd_status read_cuda(wd_device_list *list, part text, part numbers, wd_err *err)
{
    int gpus;
    part speeds = text, plain = cut(&speeds, '@');
    wd_device_spec all = {0};
    if (speeds.at) WD_TRY(read_speeds(&all, list, speeds, err));
    if (all.bytes)
        return EXPECTED(speeds, "speeds alone, since a GPU's memory is as large as it is");
    const wd_status status = wd_cuda_count(&gpus, err);
    if (status != WD_OK) return wd_fail_in(err, "--devices %.*s", (int)text.length, text.at);
    if (!numbers.at) WD_TRY(take_all_gpus(list, plain, gpus, err));
    part groups = numbers.at ? cut(&numbers, '@') : numbers;
    while (groups.at) {
        part group = cut(&groups, ',');
        WD_TRY(read_gpus(list, group, gpus, err));
    }
    set_speeds(list, &all);
    return WD_OK;
}

/* The file that NVIDIA's kernel module makes, and that containers get with their GPUs. */
#define NVIDIA_FILE "/dev/nvidiactl"

/* Appends all GPUs that can be used, or the processor if there is none. A machine without a driver
 * is no reason for a note. */
static wd_status read_auto(wd_device_list *list, wd_err *err)
{
    wd_cuda_usable gpus;
    const part no_speed = {0};
    wd_cuda_find_usable(&gpus);
    for (int i = 0; i < gpus.count && i < WD_DEVICES_MAX; i++)
        list->device[list->count++] =
            (wd_device_spec){.type = WD_DEVICE_CUDA, .number = gpus.number[i]};
    if (gpus.why[0] && (gpus.has_driver || !access(NVIDIA_FILE, F_OK)))
        wd_append_text(list->note, sizeof list->note, 0, "auto takes %s: %s",
                       list->count ? "other GPUs" : "the processor instead of a GPU", gpus.why);
    return list->count ? WD_OK : read_cpu(list, no_speed, err);
}

/* "4x24GiB,48GiB@link=25GB/s". */
static wd_status read_sim(wd_device_list *list, part p, wd_err *err)
{
    part speeds = p, groups = cut(&speeds, '@');
    wd_device_spec all = {0};
    if (speeds.at) WD_TRY(read_speeds(&all, list, speeds, err));
    while (groups.at) {
        part group = cut(&groups, ',');
        WD_TRY(read_group(list, group, err));
    }
    set_speeds(list, &all);
    return WD_OK;
}

wd_status wd_device_list_parse(wd_device_list *out, const char *text, wd_err *err)
{
    wd_device_list list = {0};
    part rest = {"--devices", text, strlen(text)}, all = rest, speed = rest;
    const part kind = cut(&rest, ':'), plain = cut(&speed, '@');
    if (is(kind, "cuda") || is(plain, "cuda")) {
        WD_TRY(read_cuda(&list, all, rest, err));
    } else if (is(kind, "sim") && rest.at) {
        WD_TRY(read_sim(&list, rest, err));
    } else if (is(plain, "cpu")) {
        WD_TRY(read_cpu(&list, speed, err));
    } else if (is(all, "auto")) {
        WD_TRY(read_auto(&list, err));
    } else {
        return EXPECTED(all, "auto, cpu, cuda: with numbers of GPUs such as cuda:0, or sim: with "
                             "numbers and sizes such as sim:4x24GiB");
    }
    *out = list;
    return WD_OK;
}

wd_status wd_device_list_need_speeds(const wd_device_list *list, const char *text, wd_err *err)
{
    for (int i = 0; i < list->count; i++) {
        const wd_device_spec *d = &list->device[i];
        if (d->type == WD_DEVICE_SIM && !(d->link_bytes_per_s > 0 && d->flops_per_s[WD_16_BIT] > 0))
            return wd_fail(err, WD_INVALID_ARGUMENT,
                           "--devices %s: a plan needs to know what a simulated device can do: "
                           "state both speeds, such as sim:4x24GiB@link=25GB/s,compute=80TFLOP/s, "
                           "or name a card, such as sim:4xrtx4090 (there are " CARDS ")",
                           text);
    }
    return WD_OK;
}

void wd_device_list_take_processor(wd_device_list *list, const wd_err *why)
{
    *list = (wd_device_list){.count = 1, .device = {{.type = WD_DEVICE_CPU}}};
    wd_append_text(list->note, sizeof list->note, 0,
                   "auto takes the processor instead of a GPU: %s", why->message);
}

bool wd_device_list_has_gpus(const wd_device_list *list)
{
    return list->device[0].type != WD_DEVICE_CPU;
}

void wd_device_list_warn(const wd_device_list *list)
{
    if (list->note[0]) wd_log(WD_LOG_WARNING, "%s", list->note);
}

wd_status wd_device_list_share(wd_device_list *list, int rank, int ranks, wd_err *err)
{
    if (ranks == 1 || list->device[0].type == WD_DEVICE_CPU) return WD_OK;
    if (list->count % ranks)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--devices: expected a number of devices that the %d ranks of a host can "
                       "share equally, found %d",
                       ranks, list->count);
    list->count /= ranks;
    memmove(list->device, list->device + rank * list->count,
            (size_t)list->count * sizeof *list->device);
    return WD_OK;
}

wd_status wd_bytes_parse(size_t *out, const char *option, const char *text, wd_err *err)
{
    return read_bytes(out, (part){option, text, strlen(text)}, err);
}

wd_status wd_bandwidth_parse(double *bytes_per_s, const char *option, const char *text, wd_err *err)
{
    return read_speed(bytes_per_s, (part){option, text, strlen(text)}, bytes_units,
                      "a speed such as 12.5GB/s", err);
}
