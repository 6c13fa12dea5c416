/* Device maps as accelerate and diffusers users write them, and every way to be refused. */
#include "api/setup/device_map.h"

#include "testing.h"

#include "io/json/json.h"

enum { STAGES = 8 }; /* six blocks */

static const char *const names[] = {"sim:0", "sim:1"};
static const wd_map_devices devices = {names, 2, 0};

static wd_status read_map(wd_device_map *out, const char *text, int experts, wd_err *err)
{
    json_t *json;
    wd_test_ok(wd_json_parse(&json, text, strlen(text), "map.json", err), err);
    wd_status status = wd_device_map_read(out, json, "map.json", experts, STAGES, &devices, err);
    json_decref(json);
    return status;
}

static wd_device_map taken(const char *text, int experts)
{
    wd_err err = {0};
    wd_device_map map;
    wd_test_ok(read_map(&map, text, experts, &err), &err);
    return map;
}

static void refused(const char *text, const char *because)
{
    wd_err err = {0};
    wd_device_map map;
    wd_test_refused(read_map(&map, text, 2, &err), &err, WD_INVALID_ARGUMENT, because);
    assert_non_null(strstr(err.message, "map.json"));
}

static void assert_place(wd_stage_placement place, wd_home home, int device)
{
    assert_int_equal(place.home, home);
    assert_int_equal(place.device, device);
}

static void everything(void **state)
{
    (void)state;
    const wd_device_map map = taken("{\"\": 1}", 2);
    for (int e = 0; e < 2; e++)
        for (int s = 0; s < STAGES; s++) assert_place(map.placement.place[e][s], WD_HOME_DEVICE, 1);
    assert_place(map.text_encoder, WD_HOME_DEVICE, 1);
    assert_place(map.vae, WD_HOME_DEVICE, 1);
}

static void components(void **state)
{
    (void)state;
    const wd_device_map map = taken("{\"text_encoder\": \"cpu\", \"vae\": 0, \"transformer\": 1, "
                                    "\"transformer_2\": \"disk\"}",
                                    2);
    assert_place(map.text_encoder, WD_HOME_HOST, 0);
    assert_place(map.placement.place[0][0], WD_HOME_DEVICE, 1);
    assert_place(map.placement.place[1][STAGES - 1], WD_HOME_DISK, 0);
}

/* A number in quotes is that number. */
static void numbers_may_be_texts(void **state)
{
    (void)state;
    const wd_device_map map = taken("{\"\": \"1\"}", 1);
    assert_place(map.vae, WD_HOME_DEVICE, 1);
    assert_place(map.placement.place[0][0], WD_HOME_DEVICE, 1);
    refused("{\"\": \"2\"}", "no such place: \"\": \"2\". Expected");
    refused("{\"\": \"4294967296\"}", "no such place");
    refused("{\"\": \"18446744073709551616\"}", "no such place");
    refused("{\"\": \"-1\"}", "no such place");
    refused("{\"\": \" 1\"}", "no such place");
    refused("{\"\": \"1.0\"}", "no such place");
    refused("{\"\": \"\"}", "no such place");
}

/* What accelerate's infer_auto_device_map gives, and nested, with ranges and names. */
static void blocks(void **state)
{
    (void)state;
    const char *const flat =
        "{\"text_encoder\": 0, \"vae\": 0, \"rope\": 0, \"patch_embedding\": 0, "
        "\"condition_embedder\": 0, \"blocks.0\": 0, \"blocks.1\": 0, \"blocks.2\": 0, "
        "\"layer.3\": \"sim:1\", \"blocks.4\": \"cpu\", \"blocks.5\": 1, \"norm_out\": 1, "
        "\"proj_out\": 1, \"scale_shift_table\": 1}";
    const char *const nested =
        "{\"text_encoder\": 0, \"vae\": 0, \"transformer\": {\"rope\": 0, \"patch_embedding\": 0, "
        "\"condition_embedder\": 0, \"blocks\": {\"0-2\": 0, \"3\": 1, \"4\": \"cpu\", \"5\": 1}, "
        "\"norm_out\": 1, \"proj_out\": 1, \"scale_shift_table\": 1}}";
    const wd_device_map a = taken(flat, 2), b = taken(nested, 1);
    for (int s = 0; s < STAGES; s++) {
        int device = s < 4 ? 0 : 1;
        wd_home home = s == 5 ? WD_HOME_HOST : WD_HOME_DEVICE;
        if (s == 5) device = 0;
        assert_place(a.placement.place[0][s], home, device);
        assert_place(a.placement.place[1][s], home, device);
        assert_place(b.placement.place[0][s], home, device);
    }
}

static void refusals(void **state)
{
    (void)state;
    refused("[]", "expected a JSON object");
    refused("{\"unet\": 0}", "\"unet\" (here it is \"transformer\")");
    refused("{\"\": 0, \"transformer.blocks.6\": 0}", "\"transformer.blocks.6\"");
    refused("{\"\": 0, \"transformer.blocks.3-2\": 0}", "blocks.3-2");
    refused("{\"\": 0, \"vae.decoder\": 0}", "vae.decoder");
    refused("{\"condition_embedder.time_embedder.linear_1\": 0}",
            "time_embedder.linear_1\" (\"condition_embedder\" goes as a whole)");
    refused("{\"transformer\": {\"blocks.5.attn1\": 0}}",
            "\"transformer.blocks.5.attn1\" (\"transformer.blocks.5\" goes as a whole)");
    refused("{\"vae.decoder\": 0}", "\"vae.decoder\" (\"vae\" goes as a whole)");
    refused("{\"transformer.blocks.6\": 0}", "unknown: \"transformer.blocks.6\". Expected");
    refused("{\"\": 2}", "\"\": 2");
    refused("{\"\": \"cuda:7\"}", "cuda:7");
    refused("{\"\": 0.5}", "no such place");
    refused("{\"\": -1}", "no such place: \"\": -1");
    refused("{\"\": 9223372036854775807}", "no such place");
    char key[300], text[400];
    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = 0;
    snprintf(text, sizeof text, "{\"%s\": 0}", key);
    refused(text, "kkkk...\""); /* it does not fit, and is not another one by what does */
    refused("{\"\": 0, \"transformer\": {\"blocks.1-3\": 1}}",
            "placed more than once: transformer.blocks.1-3.");
    refused("{\"text_encoder\": 0, \"transformer\": 0, \"transformer_2\": {\"blocks.0-3\": 1}}",
            "placed nowhere: vae, transformer_2.patch_embedding, "
            "transformer_2.condition_embedder, transformer_2.rope, transformer_2.blocks.4-5, "
            "transformer_2.norm_out");
    refused(
        "{\"text_encoder\": 0, \"vae\": 0, \"blocks\": 0, \"rope\": 0, \"patch_embedding\": 1, "
        "\"condition_embedder\": 0, \"norm_out\": 0, \"proj_out\": 0, \"scale_shift_table\": 0}",
        "transformer.patch_embedding and transformer.condition_embedder");
    wd_err err = {0};
    wd_device_map map;
    wd_test_refused(read_map(&map, "{\"\": 0, \"transformer_2\": 0}", 1, &err), &err,
                    WD_INVALID_ARGUMENT, "this teacher has no transformer_2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything),
        cmocka_unit_test(components),
        cmocka_unit_test(numbers_may_be_texts),
        cmocka_unit_test(blocks),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
