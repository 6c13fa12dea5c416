/* Paints a prompt with a Wan pipeline, through the library: the whole of an own program.
 *
 *   cc sample.c $(pkg-config --cflags --libs wandistiller) -o sample
 *   ./sample path/to/pipeline "a red apple" apple.png
 */
#include <stdio.h>
#include <wandistiller.h>

static void say(void *context, wd_log_level level, const char *message)
{
    (void)context, (void)level;
    fprintf(stderr, "%s\n", message);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: %s PIPELINE PROMPT FILE.png\n", argv[0]);
        return WD_INVALID_ARGUMENT;
    }
    wd_log_to(say, NULL, WD_LOG_INFO);

    wd_sample_options options = wd_sample_defaults();
    options.model = argv[1];
    options.prompt = (wd_texts){.item = {argv[2]}, .count = 1};
    options.out = argv[3];
    options.steps = 20;

    wd_err err;
    if (wd_sample(&options, &err) != WD_OK) {
        fprintf(stderr, "%s: %s\n", wd_status_text(err.status), err.message);
        return (int)err.status;
    }
    return 0;
}
