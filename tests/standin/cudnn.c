/* cuDNN's descriptors for tests: see cudnn.h. A descriptor takes its attributes before it is
 * finalized and is read only afterwards, as cuDNN's are. */
#include "standin/cudnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MARK = 0x6375646e, HANDLE = 0x68616e64, ENGINE = 6, KNOB = 24, KNOB_VALUE = 7 };

static wd_standin_put_fn *put_on_stream;

typedef struct handle {
    uint64_t mark;
    wd_cu_stream stream;
} handle;

static const struct {
    wd_cudnn_type type;
    size_t bytes;
} sizes[] = {{WD_CUDNN_TYPE_HANDLE, sizeof(void *)},
             {WD_CUDNN_TYPE_DATA_TYPE, sizeof(unsigned)},
             {WD_CUDNN_TYPE_BOOLEAN, sizeof(bool)},
             {WD_CUDNN_TYPE_INT64, sizeof(int64_t)},
             {WD_CUDNN_TYPE_FLOAT, sizeof(float)},
             {WD_CUDNN_TYPE_VOID_PTR, sizeof(void *)},
             {WD_CUDNN_TYPE_CONVOLUTION_MODE, sizeof(unsigned)},
             {WD_CUDNN_TYPE_HEUR_MODE, sizeof(unsigned)},
             {WD_CUDNN_TYPE_KNOB_TYPE, sizeof(unsigned)},
             {WD_CUDNN_TYPE_POINTWISE_MODE, sizeof(unsigned)},
             {WD_CUDNN_TYPE_BACKEND_DESCRIPTOR, sizeof(void *)},
             {WD_CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, sizeof(unsigned)},
             {WD_CUDNN_TYPE_CHAR, 1}};

static size_t size_of(wd_cudnn_type type)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].type == type) return sizes[i].bytes;
    return 0;
}

static wd_standin_descriptor *descriptor(wd_cudnn_descriptor object)
{
    wd_standin_descriptor *d = object;
    return d && d->mark == MARK ? d : NULL;
}

const wd_standin_attribute *wd_standin_attribute_of(const wd_standin_descriptor *d,
                                                    wd_cudnn_attr name, wd_cudnn_type type)
{
    for (int i = 0; i < d->attributes; i++)
        if (d->attribute[i].name == name && d->attribute[i].type == type) return &d->attribute[i];
    return NULL;
}

const wd_standin_descriptor *wd_standin_descriptor_of(const wd_standin_descriptor *d,
                                                      wd_cudnn_attr name, wd_cudnn_backend kind)
{
    const wd_standin_attribute *a =
        wd_standin_attribute_of(d, name, WD_CUDNN_TYPE_BACKEND_DESCRIPTOR);
    if (!a || a->count != 1) return NULL;
    const wd_standin_descriptor *to = descriptor(*(void **)a->data);
    return to && to->finalized && to->kind == kind ? to : NULL;
}

bool wd_standin_number_of(int64_t *out, const wd_standin_descriptor *d, wd_cudnn_attr name,
                          wd_cudnn_type type)
{
    const wd_standin_attribute *a = wd_standin_attribute_of(d, name, type);
    unsigned small;
    if (!a || a->count != 1) return false;
    if (size_of(type) == sizeof *out) return memcpy(out, a->data, sizeof *out), true;
    if (size_of(type) != sizeof small) return false;
    memcpy(&small, a->data, sizeof small);
    *out = small;
    return true;
}

/* ---- the library ---- */

static size_t get_version(void)
{
    return wd_the_standin_faults.cudnn_version ? wd_the_standin_faults.cudnn_version : 91900;
}

static const char *error_string(wd_cudnn_status status)
{
#define X(name, value)                                                                             \
    if (status == (value)) return "CUDNN_STATUS_" #name;
    WD_CUDNN_STATUS_MAP(X)
#undef X
    return "CUDNN_STATUS_UNKNOWN";
}

/* What cudnnGetLastErrorString says, once. */
static const char *last_text = "";

static void last_error(char *message, size_t bytes)
{
    if (bytes) snprintf(message, bytes, "%s", last_text);
    last_text = "";
}

static wd_cudnn_status fail(wd_cudnn_status status, const char *text)
{
    last_text = text;
    return status;
}

static wd_cudnn_status create(wd_cudnn_handle *out)
{
    handle *h = calloc(1, sizeof *h);
    if (!h) return WD_CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    h->mark = HANDLE;
    wd_the_standin_asked.descriptors++;
    *out = h;
    return WD_CUDNN_STATUS_SUCCESS;
}

static bool is_handle(wd_cudnn_handle object)
{
    return object && ((const handle *)object)->mark == HANDLE;
}

static wd_cudnn_status destroy(wd_cudnn_handle object)
{
    if (!is_handle(object)) return WD_CUDNN_STATUS_BAD_PARAM;
    wd_the_standin_asked.descriptors--;
    free(object);
    return WD_CUDNN_STATUS_SUCCESS;
}

static wd_cudnn_status set_stream(wd_cudnn_handle object, wd_cu_stream stream)
{
    if (!is_handle(object)) return WD_CUDNN_STATUS_BAD_PARAM;
    ((handle *)object)->stream = stream;
    return WD_CUDNN_STATUS_SUCCESS;
}

/* ---- descriptors ---- */

static wd_cudnn_status descriptor_create(wd_cudnn_backend kind, wd_cudnn_descriptor *out)
{
    bool known = false;
#define X(name, value) known |= kind == (value);
    WD_CUDNN_BACKEND_MAP(X)
#undef X
    wd_standin_descriptor *d = known ? calloc(1, sizeof *d) : NULL;
    if (!known) return WD_CUDNN_STATUS_NOT_SUPPORTED;
    if (!d) return WD_CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    d->mark = MARK, d->kind = kind;
    wd_the_standin_asked.descriptors++;
    *out = d;
    return WD_CUDNN_STATUS_SUCCESS;
}

static wd_cudnn_status descriptor_destroy(wd_cudnn_descriptor object)
{
    wd_standin_descriptor *d = descriptor(object);
    if (!d) return WD_CUDNN_STATUS_BAD_PARAM;
    for (int i = 0; i < d->attributes; i++) free(d->attribute[i].data);
    free(d->program);
    for (int i = 0; i < 2; i++)
        if (d->inside[i]) descriptor_destroy(d->inside[i]);
    d->mark = 0;
    free(d);
    wd_the_standin_asked.descriptors--;
    return WD_CUDNN_STATUS_SUCCESS;
}

static wd_cudnn_status put(wd_standin_descriptor *d, wd_cudnn_attr name, wd_cudnn_type type,
                           int64_t count, const void *elements)
{
    size_t bytes = (size_t)count * size_of(type);
    if (!bytes || !elements) return WD_CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE;
    if (d->attributes == WD_STANDIN_ATTRIBUTES || wd_standin_attribute_of(d, name, type))
        return WD_CUDNN_STATUS_BAD_PARAM;
    void *data = malloc(bytes);
    if (!data) return WD_CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    memcpy(data, elements, bytes);
    d->attribute[d->attributes++] = (wd_standin_attribute){name, type, count, data};
    return WD_CUDNN_STATUS_SUCCESS;
}

static wd_cudnn_status set(wd_cudnn_descriptor object, wd_cudnn_attr name, wd_cudnn_type type,
                           int64_t count, const void *elements)
{
    wd_standin_descriptor *d = descriptor(object);
    if (!d || d->finalized || count < 1) return WD_CUDNN_STATUS_BAD_PARAM;
    if (type == WD_CUDNN_TYPE_BACKEND_DESCRIPTOR)
        for (int64_t i = 0; i < count; i++) {
            const wd_standin_descriptor *to = descriptor(((void *const *)elements)[i]);
            if (!to || !to->finalized) return WD_CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
        }
    return put(d, name, type, count, elements);
}

/* The knob of the only engine there is must be what the heuristic said. */
static bool is_choice(const wd_standin_descriptor *config)
{
    const wd_standin_attribute *a = wd_standin_attribute_of(
        config, WD_CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, WD_CUDNN_TYPE_BACKEND_DESCRIPTOR);
    int64_t type = 0, value = 0;
    if (!a || a->count != 1) return false;
    const wd_standin_descriptor *knob = descriptor(*(void **)a->data);
    return wd_standin_number_of(&type, knob, WD_CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                WD_CUDNN_TYPE_KNOB_TYPE) &&
           wd_standin_number_of(&value, knob, WD_CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
                                WD_CUDNN_TYPE_INT64) &&
           type == KNOB && value == KNOB_VALUE;
}

static wd_cudnn_status finalize_plan(wd_standin_descriptor *d)
{
    const wd_standin_descriptor *config, *engine, *graph;
    config = wd_standin_descriptor_of(d, WD_CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                      WD_CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (!config ||
        !wd_standin_attribute_of(d, WD_CUDNN_ATTR_EXECUTION_PLAN_HANDLE, WD_CUDNN_TYPE_HANDLE))
        return WD_CUDNN_STATUS_BAD_PARAM;
    engine = wd_standin_descriptor_of(config, WD_CUDNN_ATTR_ENGINECFG_ENGINE,
                                      WD_CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    graph = engine ? wd_standin_descriptor_of(engine, WD_CUDNN_ATTR_ENGINE_OPERATION_GRAPH,
                                              WD_CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
                   : NULL;
    if (!graph || !is_choice(config)) return WD_CUDNN_STATUS_BAD_PARAM;
    d->program = calloc(1, sizeof *d->program);
    if (!d->program) return WD_CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    wd_the_standin_asked.plans++;
    /* such as an engine that is compiled when it is planned, where NVRTC is missing */
    if (wd_the_standin_faults.cudnn_plan_status)
        return fail(wd_the_standin_faults.cudnn_plan_status, "the run-time compiler is missing");
    return wd_standin_program_read(d->program, graph);
}

static wd_cudnn_status finalize(wd_cudnn_descriptor object)
{
    wd_standin_descriptor *d = descriptor(object);
    wd_cudnn_status status = WD_CUDNN_STATUS_SUCCESS;
    if (!d || d->finalized) return WD_CUDNN_STATUS_BAD_PARAM;
    if (d->kind == WD_CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) status = finalize_plan(d);
    d->finalized = status == WD_CUDNN_STATUS_SUCCESS;
    return status;
}

/* ---- what is asked of finalized descriptors ---- */

/* Fills an empty descriptor as the library does, and finalizes it. */
static wd_cudnn_status fill(wd_cudnn_descriptor object, wd_cudnn_backend kind,
                            const wd_standin_attribute *attribute, int count)
{
    wd_standin_descriptor *d = descriptor(object);
    if (!d || d->kind != kind || d->finalized || d->attributes) return WD_CUDNN_STATUS_BAD_PARAM;
    for (int i = 0; i < count; i++) {
        wd_cudnn_status status =
            put(d, attribute[i].name, attribute[i].type, attribute[i].count, attribute[i].data);
        if (status) return status;
    }
    d->finalized = true;
    return WD_CUDNN_STATUS_SUCCESS;
}

/* A configuration is told what it is of; who asks gets its engine and its knob from that. */
static wd_cudnn_status get_results(const wd_standin_descriptor *d, int64_t requested,
                                   int64_t *count, wd_cudnn_descriptor *config)
{
    const wd_standin_attribute *graph = wd_standin_attribute_of(
        d, WD_CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, WD_CUDNN_TYPE_BACKEND_DESCRIPTOR);
    int64_t results = wd_the_standin_faults.cudnn_random ? 2 : 1;
    *count = 0;
    if (!graph) return WD_CUDNN_STATUS_BAD_PARAM;
    if (wd_the_standin_faults.cudnn_none) return WD_CUDNN_STATUS_SUCCESS;
    for (int64_t i = 0; i < results && i < requested; i++) {
        int64_t index = ENGINE - (results - 1 - i);
        const wd_standin_attribute a[] = {
            {WD_CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph->type, 1, graph->data},
            {WD_CUDNN_ATTR_ENGINE_GLOBAL_INDEX, WD_CUDNN_TYPE_INT64, 1, &index}};
        wd_cudnn_descriptor engine, knob;
        const unsigned type = KNOB;
        const int64_t value = KNOB_VALUE;
        const wd_standin_attribute k[] = {
            {WD_CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, WD_CUDNN_TYPE_KNOB_TYPE, 1, (void *)&type},
            {WD_CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, WD_CUDNN_TYPE_INT64, 1, (void *)&value}};
        const wd_standin_attribute c[] = {
            {WD_CUDNN_ATTR_ENGINECFG_ENGINE, WD_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine},
            {WD_CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, WD_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &knob}};
        if (descriptor_create(WD_CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) ||
            descriptor_create(WD_CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knob) ||
            fill(engine, WD_CUDNN_BACKEND_ENGINE_DESCRIPTOR, a, 2) ||
            fill(knob, WD_CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, k, 2) ||
            fill(config[i], WD_CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, c, 2))
            return WD_CUDNN_STATUS_BAD_PARAM;
        descriptor(config[i])->inside[0] = engine;
        descriptor(config[i])->inside[1] = knob;
        ++*count;
    }
    return WD_CUDNN_STATUS_SUCCESS;
}

/* Copies the descriptor that an attribute names into an empty one. */
static wd_cudnn_status get_copy(const wd_standin_descriptor *d, wd_cudnn_attr name, int64_t *count,
                                wd_cudnn_descriptor to)
{
    const wd_standin_attribute *a =
        wd_standin_attribute_of(d, name, WD_CUDNN_TYPE_BACKEND_DESCRIPTOR);
    const wd_standin_descriptor *from = a ? descriptor(*(void **)a->data) : NULL;
    if (!from) return WD_CUDNN_STATUS_BAD_PARAM;
    *count = 1;
    return fill(to, from->kind, from->attribute, from->attributes);
}

static wd_cudnn_status get(wd_cudnn_descriptor object, wd_cudnn_attr name, wd_cudnn_type type,
                           int64_t requested, int64_t *count, void *elements)
{
    const wd_standin_descriptor *d = descriptor(object);
    int64_t number;
    if (!d || !d->finalized || requested < 1) return WD_CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    switch (name) {
    case WD_CUDNN_ATTR_ENGINEHEUR_RESULTS:
        return get_results(d, requested, count, elements);
    case WD_CUDNN_ATTR_ENGINECFG_ENGINE:
    case WD_CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
        return get_copy(d, name, count, *(void **)elements);
    case WD_CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        if (!wd_standin_number_of(&number, d, WD_CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
                                  WD_CUDNN_TYPE_INT64))
            return WD_CUDNN_STATUS_BAD_PARAM;
        *count = number != ENGINE;
        if (*count) *(unsigned *)elements = WD_CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
        return WD_CUDNN_STATUS_SUCCESS;
    case WD_CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        *count = 1;
        *(int64_t *)elements = d->program ? d->program->workspace_bytes : 0;
        return WD_CUDNN_STATUS_SUCCESS;
    default:
        break;
    }
    const wd_standin_attribute *a = wd_standin_attribute_of(d, name, type);
    if (!a || a->count > requested) return WD_CUDNN_STATUS_BAD_PARAM;
    *count = a->count;
    memcpy(elements, a->data, (size_t)a->count * size_of(type));
    return WD_CUDNN_STATUS_SUCCESS;
}

/* ---- runs ---- */

static wd_cudnn_status read_pack(wd_standin_run_args *run, const wd_standin_descriptor *pack)
{
    const wd_standin_attribute *id, *address, *space;
    id = wd_standin_attribute_of(pack, WD_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, WD_CUDNN_TYPE_INT64);
    address = wd_standin_attribute_of(pack, WD_CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                      WD_CUDNN_TYPE_VOID_PTR);
    space =
        wd_standin_attribute_of(pack, WD_CUDNN_ATTR_VARIANT_PACK_WORKSPACE, WD_CUDNN_TYPE_VOID_PTR);
    if (!id || !address || !space || id->count != address->count ||
        id->count > WD_STANDIN_ADDRESSES)
        return WD_CUDNN_STATUS_BAD_PARAM;
    run->count = (int)id->count;
    for (int64_t i = 0; i < id->count; i++)
        for (int64_t j = 0; j < i; j++)
            if (((const int64_t *)id->data)[i] == ((const int64_t *)id->data)[j])
                return fail(WD_CUDNN_STATUS_BAD_PARAM, "a number of a tensor is given twice");
    memcpy(run->id, id->data, (size_t)id->count * sizeof *run->id);
    memcpy(run->address, address->data, (size_t)id->count * sizeof *run->address);
    memcpy(&run->workspace, space->data, sizeof run->workspace);
    if (run->program->workspace_bytes && (!run->workspace || (uintptr_t)run->workspace % 256))
        return WD_CUDNN_STATUS_BAD_PARAM;
    int found = 0;
    for (int t = 0; t < run->program->tensors; t++) {
        const wd_standin_tensor *tensor = &run->program->tensor[t];
        int i = 0;
        if (tensor->is_virtual) continue;
        while (i < run->count && run->id[i] != tensor->id) i++;
        if (i == run->count || !run->address[i]) return WD_CUDNN_STATUS_BAD_PARAM;
        found++;
        if (tensor->by_value)
            memcpy(&run->value[i], run->address[i], sizeof run->value[i]);
        else if ((uintptr_t)run->address[i] % (uint64_t)tensor->align)
            return fail(WD_CUDNN_STATUS_BAD_PARAM, "a tensor is not aligned as it was said to be");
    }
    return found == run->count
               ? WD_CUDNN_STATUS_SUCCESS
               : fail(WD_CUDNN_STATUS_BAD_PARAM, "a tensor is given that the graph does not have");
}

static wd_cudnn_status execute(wd_cudnn_handle object, wd_cudnn_descriptor plan,
                               wd_cudnn_descriptor pack)
{
    const wd_standin_descriptor *p = descriptor(plan), *v = descriptor(pack);
    if (!is_handle(object) || !p || !p->finalized || !p->program || !v || !v->finalized)
        return WD_CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    wd_standin_run_args run = {.program = p->program};
    wd_cudnn_status status = read_pack(&run, v);
    if (status) return status;
    if (wd_the_standin_faults.cudnn_fail_run && !--wd_the_standin_faults.cudnn_fail_run)
        return wd_the_standin_faults.cudnn_run_status
                   ? fail(wd_the_standin_faults.cudnn_run_status, "the launch is refused")
                   : WD_CUDNN_STATUS_EXECUTION_FAILED;
    wd_the_standin_asked.runs++;
    if (!put_on_stream)
        wd_standin_program_run(&run);
    else if (put_on_stream(((handle *)object)->stream, wd_standin_program_run, &run, sizeof run))
        return WD_CUDNN_STATUS_EXECUTION_FAILED;
    return WD_CUDNN_STATUS_SUCCESS;
}

void wd_standin_cudnn_fill(wd_cuda_cudnn *cudnn, wd_standin_put_fn *put_fn)
{
    put_on_stream = put_fn;
    *cudnn = (wd_cuda_cudnn){.get_version = get_version,
                             .error_string = error_string,
                             .last_error = last_error,
                             .create = create,
                             .destroy = destroy,
                             .set_stream = set_stream,
                             .descriptor_create = descriptor_create,
                             .descriptor_destroy = descriptor_destroy,
                             .finalize = finalize,
                             .set = set,
                             .get = get,
                             .execute = execute};
}
