/* The names and shapes that `convert --to comfyui` gives a transformer are those that ComfyUI asks
 * for, all of them and no others: tests/fixtures/comfyui has its list. */
#include "test_preset.h"

#include "model/convert/convert.h"
#include "model/tables/dit_table.h"
#include "model/tables/names.h"

enum { KEYS_MAX = 64 };

/* A line of the list: "blocks.N.ffn.0.weight E D". */
typedef struct key {
    char name[WD_TENSOR_NAME_MAX], dim[5][8];
    int ndim;
} key;

static key keys[KEYS_MAX];
static int key_count;

static int read_list(void **state)
{
    (void)state;
    char line[256];
    FILE *file = fopen(WD_SOURCE_DIR "/tests/fixtures/comfyui/wan-t2v-keys.txt", "r");
    if (!file) return -1;
    while (fgets(line, sizeof line, file)) {
        if (line[0] == '#') continue;
        key *k = &keys[key_count++];
        char *rest, *word = strtok_r(line, " \n", &rest);
        snprintf(k->name, sizeof k->name, "%s", word);
        while ((word = strtok_r(NULL, " \n", &rest)))
            snprintf(k->dim[k->ndim++], sizeof k->dim[0], "%s", word);
    }
    fclose(file);
    return key_count == 42 ? 0 : -1;
}

/* "4C" is four times the latent channels. */
static int64_t extent_of(const char *text, const wd_dit_config *c)
{
    char *letter;
    int64_t n = strtoll(text, &letter, 10);
    if (letter == text) n = 1;
    switch (*letter) {
    case 'D':
        return n * c->heads * c->head_dim;
    case 'E':
        return n * c->ffn_dim;
    case 'C':
        return n * c->in_channels;
    case 'T':
        return n * c->text_dim;
    case 'F':
        return n * c->freq_dim;
    case '\0':
        return n;
    }
    fail_msg("\"%s\" is no extent", text);
    return 0;
}

/* The key's name in block `block`, or its name if it belongs to no block. */
static bool name_in(char out[WD_TENSOR_NAME_MAX], const key *k, int64_t block)
{
    const char *n = strstr(k->name, ".N.");
    if (n)
        snprintf(out, WD_TENSOR_NAME_MAX, "blocks.%d.%s", (int)block, n + 3);
    else
        snprintf(out, WD_TENSOR_NAME_MAX, "%s", k->name);
    return n || block == 0;
}

static void check_shape(const char *name, const int64_t *dim, int ndim, const key *k,
                        const wd_dit_config *config)
{
    if (ndim != k->ndim) fail_msg("%s has %d dimensions, expected %d", name, ndim, k->ndim);
    for (int d = 0; d < ndim; d++)
        if (dim[d] != extent_of(k->dim[d], config))
            fail_msg("%s: dimension %d is %lld, expected %s", name, d, (long long)dim[d],
                     k->dim[d]);
}

/* The files that are written for ComfyUI have these keys at published sizes. */
static void published_models_have_these_keys(void **state)
{
    (void)state;
    for (int p = 0; wd_preset_names[p]; p++) {
        wd_err err;
        wd_tensor_table table;
        const wd_pipeline pipeline = wd_test_preset(wd_preset_names[p]);
        const wd_dit_config *config = &pipeline.dit;
        wd_test_ok(wd_dit_table_open(&table, config, &err), &err);
        int64_t expected = 0;
        for (int64_t block = 0; block < config->layers; block++)
            for (int i = 0; i < key_count; i++) {
                char name[WD_TENSOR_NAME_MAX], original[WD_TENSOR_NAME_MAX];
                if (!name_in(name, &keys[i], block)) continue;
                int64_t line = 0;
                while (line < table.count &&
                       (!wd_names_to_original(original, sizeof original, table.spec[line].name) ||
                        strcmp(original, name)))
                    line++;
                if (line == table.count) fail_msg("%s: no %s", wd_preset_names[p], name);
                check_shape(name, table.spec[line].dim, table.spec[line].ndim, &keys[i], config);
                expected++;
            }
        assert_int_equal(table.count, expected);
        wd_dit_table_close(&table);
    }
}

/* A file that was really converted has these keys. */
static void a_converted_file_has_these_keys(void **state)
{
    (void)state;
    wd_err err;
    wd_pipeline p;
    wd_safetensors *set;
    char path[WD_PATH_MAX];
    wd_test_ok(wd_pipeline_open(&p, WD_SOURCE_DIR "/models/wan-tiny", &err), &err);
    wd_test_ok(wd_path_join(path, wd_test_folder(), "comfyui.safetensors", &err), &err);
    wd_test_ok(wd_convert_to_original(path, &p, WD_COMPONENT_TRANSFORMER, NULL, &err), &err);
    wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
    int64_t expected = 0;
    for (int64_t block = 0; block < p.dit.layers; block++)
        for (int i = 0; i < key_count; i++) {
            char name[WD_TENSOR_NAME_MAX];
            if (!name_in(name, &keys[i], block)) continue;
            const wd_safetensors_entry *entry = wd_safetensors_find(set, name);
            if (!entry) fail_msg("the file has no %s", name);
            check_shape(name, entry->tensor.dim, entry->tensor.ndim, &keys[i], &p.dit);
            expected++;
        }
    assert_int_equal(wd_safetensors_count(set), expected);
    wd_safetensors_close(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_models_have_these_keys),
        cmocka_unit_test(a_converted_file_has_these_keys),
    };
    return cmocka_run_group_tests(tests, read_list, NULL);
}
