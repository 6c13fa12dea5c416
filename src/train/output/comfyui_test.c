/* Forms of a student for ComfyUI: what --export names, that they are whole or not there, and that
 * those of an older student go. */
#include "teacher_copy.h"
#include "workflow_check.h"

#include <unistd.h>

#include "core/stop.h"
#include "train/output/comfyui.h"

static char folder[WD_PATH_MAX]; /* a pipeline, whose transformer stands for a student's */

static const char *const written[] = {"comfyui/student.safetensors", "comfyui/student.json",
                                      "gguf/student-Q8_0.gguf", "gguf/student.json"};

static bool has(const char *name)
{
    return wd_path_exists(wd_test_in(folder, name));
}

static void assert_none(void)
{
    for (int i = 0; i < 4; i++) assert_false(has(written[i]));
    assert_false(has(".tmp-comfyui") || has(".tmp-gguf"));
}

static wd_status write_both(wd_err *err)
{
    const wd_export_options options = wd_export_defaults();
    return wd_student_write_forms(folder, &(wd_student_forms){{true, true}}, &options, err);
}

static void names(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool comfyui, gguf;
    } good[] = {{NULL, 0, 0}, {"comfyui", 1, 0}, {"gguf", 0, 1}, {"gguf,comfyui", 1, 1}};
    static const char *const bad[] = {"",     "onnx",      "comfyui,",    ",gguf",
                                      "comf", "gguf,gguf", "comfyui gguf"};
    wd_err err;
    wd_student_forms forms;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        wd_test_ok(wd_student_forms_parse(&forms, good[i].text, &err), &err);
        assert_int_equal(forms.has[WD_STUDENT_COMFYUI], good[i].comfyui);
        assert_int_equal(forms.has[WD_STUDENT_GGUF], good[i].gguf);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        wd_test_refused(wd_student_forms_parse(&forms, bad[i], &err), &err, WD_INVALID_ARGUMENT,
                        "expected comfyui, gguf, or comfyui,gguf");
}

static void written_and_removed(void **state)
{
    (void)state;
    wd_err err;
    wd_test_ok(wd_folder_make(wd_test_in(folder, ".tmp-gguf/left"), &err), &err); /* by a kill */
    for (int time = 0; time < 2; time++) {
        wd_test_ok(write_both(&err), &err);
        for (int i = 0; i < 4; i++) assert_true(has(written[i]));
        assert_false(has(".tmp-comfyui") || has(".tmp-gguf"));
    }
    wd_test_ok(wd_file_write(wd_test_in(folder, "gguf/mine.txt"), "mine", 4, &err), &err);
    wd_test_ok(wd__student_remove_forms(folder, &err), &err);
    assert_none();
    assert_false(has("comfyui"));
    assert_true(has("gguf/mine.txt"));
    wd_test_ok(wd__student_remove_forms(folder, &err), &err);
}

/* Files of others, to which a link leads, are not the student's. */
static void links_are_not_followed(void **state)
{
    (void)state;
    wd_err err;
    const char *others = wd_test_in(wd_test_folder(), "others");
    wd_test_ok(wd_folder_make(others, &err), &err);
    wd_test_ok(wd_file_write(wd_test_in(others, "student.json"), "theirs", 6, &err), &err);
    assert_int_equal(symlink(others, wd_test_in(folder, "comfyui")), 0);
    wd_test_ok(wd__student_remove_forms(folder, &err), &err);
    assert_true(wd_path_exists(wd_test_in(others, "student.json")));
    const wd_student_forms forms = {{true, false}};
    wd_test_refused(wd_student_check_forms(folder, &forms, &err), &err, WD_INVALID_ARGUMENT,
                    "comfyui: is a link, expected the run's own folder");
    wd_test_refused(write_both(&err), &err, WD_INVALID_ARGUMENT, "comfyui: is a link");
    assert_false(wd_path_exists(wd_test_in(others, "student.safetensors")));
    assert_int_equal(unlink(wd_test_in(folder, "comfyui")), 0);
}

/* A stop, and a place that cannot be written, leave neither files nor parts of them. */
static void whole_or_not_there(void **state)
{
    (void)state;
    wd_err err;
    wd_request_stop();
    const wd_status status = write_both(&err);
    wd__stop_forget();
    wd_test_refused(status, &err, WD_INTERRUPTED, "stopped on request");
    assert_none();
    wd_test_ok(wd_folder_remove(wd_test_in(folder, "gguf"), &err), &err);
    wd_test_ok(wd_file_write(wd_test_in(folder, "gguf"), "a file", 6, &err), &err);
    wd_test_refused(write_both(&err), &err, WD_INVALID_ARGUMENT, "gguf: is a file, expected");
    assert_true(has(written[0]) && has(written[1]) && has("gguf") && !has(".tmp-gguf"));
}

/* The workflow's sampler is the one that comes nearest to the student's scheduler. */
static void samplers(void **state)
{
    (void)state;
    wd_err err;
    wd_pipeline p;
    wd_export_options o = wd_export_defaults();
    const char *path = wd_test_in(wd_test_folder(), "workflow.json");
    wd_test_ok(wd_pipeline_open(&p, WD_SOURCE_DIR "/models/wan-tiny", &err), &err);
    for (int i = 0; i < 3; i++) { /* UniPC; UniPC of few steps; Euler */
        if (i == 1) o.student_steps = o.sampling_steps = 4;
        if (i == 2) o.student_steps = 0;
        p.scheduler.kind = i == 2 ? WD_SCHEDULER_EULER : WD_SCHEDULER_UNIPC;
        wd_test_ok(wd_student_write_workflow(path, "x.gguf", true, &p, &o, &err), &err);
        json_t *json = json_load_file(path, 0, NULL);
        assert_string_equal(json_string_value(wd_test_widget(json, "KSampler", 4)),
                            i ? "euler" : "dpmpp_2m");
        json_decref(json);
    }
}

/* The workflow loads the text encoder that was read, if it is a file for ComfyUI, else the one that
 * takes least memory. */
static void text_encoders(void **state)
{
    (void)state;
    static const char *const files[][2] = {{NULL, "umt5_xxl_fp8_e4m3fn_scaled.safetensors"},
                                           {"models/my_umt5.safetensors", "my_umt5.safetensors"},
                                           {"a/folder", "umt5_xxl_fp8_e4m3fn_scaled.safetensors"}};
    wd_err err;
    wd_pipeline p;
    wd_export_options o = wd_export_defaults();
    const char *path = wd_test_in(wd_test_folder(), "encoder.json");
    wd_test_ok(wd_pipeline_open(&p, WD_SOURCE_DIR "/models/wan-tiny", &err), &err);
    for (int i = 0; i < 3; i++) {
        o.text_encoder_file = files[i][0];
        wd_test_ok(wd_student_write_workflow(path, "x.safetensors", false, &p, &o, &err), &err);
        json_t *json = json_load_file(path, 0, NULL);
        assert_string_equal(json_string_value(wd_test_widget(json, "CLIPLoader", 0)), files[i][1]);
        json_decref(json);
    }
}

static int set_up(void **state)
{
    (void)state;
    wd_test_copy_teacher(folder, "student");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(text_encoders),
        cmocka_unit_test(written_and_removed),
        cmocka_unit_test(links_are_not_followed),
        cmocka_unit_test(whole_or_not_there),
        cmocka_unit_test(samplers),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
