/* Help on the terminal, the manual page, and the completions of bash and zsh: all are made from the
 * option tables. */
#include <ctype.h>
#include <stdarg.h>
#include <string.h>

#include "cli/cli.h"

enum { COLUMNS = 92, HELP_COLUMN = 34 };

/* ---- help ---- */

void wd_cli_append(char *out, size_t out_bytes, const char *format, ...)
{
    const size_t used = strlen(out);
    va_list list;
    va_start(list, format);
    vsnprintf(out + used, out_bytes - used, format, list);
    va_end(list);
}

const char *wd_cli_value_text(char *out, size_t out_bytes, const wd_option *option)
{
    out[0] = 0;
    if (option->type == WD_OPTION_FLAG) return out;
    if (option->metavar) {
        snprintf(out, out_bytes, "%s%s", option->metavar,
                 option->type == WD_OPTION_TEXTS ? " ..." : "");
        return out;
    }
    for (const char *const *c = option->choices; *c; c++)
        wd_cli_append(out, out_bytes, "%s%s", c == option->choices ? "" : "|", *c);
    return out;
}

/* Prints `text` wrapped; its first line begins at column `at`, the others at `indent`. */
static void print_wrapped(FILE *to, const char *text, int at, int indent)
{
    bool first = true;
    while (*text) {
        const size_t n = strcspn(text, " ");
        if (!first && at + 1 + (int)n > COLUMNS) {
            fprintf(to, "\n%*s", indent, "");
            at = indent;
        } else if (!first) {
            fputc(' ', to);
            at++;
        }
        fprintf(to, "%.*s", (int)n, text);
        at += (int)n;
        text += n + (text[n] == ' ');
        first = false;
    }
    fputc('\n', to);
}

/* The help sentence, with the default, or that the option is required. */
static const char *full_help(char *out, size_t bytes, const wd_option *o)
{
    const char *note = o->flags & WD_OPTION_REQUIRED ? " (required)" : "";
    if (*o->default_text && o->type != WD_OPTION_FLAG)
        snprintf(out, bytes, "%s (default: %s)", o->help, o->default_text);
    else
        snprintf(out, bytes, "%s%s", o->help, note);
    return out;
}

/* Cuts the text at the end of its first sentence, or at the first semicolon. */
static void cut_to_first_clause(char *text)
{
    char *sentence = strstr(text, ". "), *part = strstr(text, "; ");
    if (sentence) *sentence = 0;
    if (part && (!sentence || part < sentence)) *part = 0;
}

static void print_option(FILE *to, const wd_option *o, bool brief)
{
    char left[256], value[200], text[1024];
    wd_cli_value_text(value, sizeof value, o);
    const char *format = !*value ? "  --%s%s" : o->bare ? "  --%s [%s]" : "  --%s %s";
    int n = snprintf(left, sizeof left, format, o->name, value);
    fputs(left, to);
    if (n > HELP_COLUMN - 2) {
        fprintf(to, "\n%*s", HELP_COLUMN, "");
    } else {
        fprintf(to, "%*s", HELP_COLUMN - n, "");
    }
    full_help(text, sizeof text, o);
    if (brief) cut_to_first_clause(text);
    print_wrapped(to, text, HELP_COLUMN, HELP_COLUMN);
}

static void print_synopsis(FILE *to, wd_job job)
{
    int64_t count;
    char value[200];
    const wd_option *table = wd_options_of(job, &count);
    fprintf(to, "wandistiller %s", wd_job_name(job));
    for (int64_t i = 0; i < count; i++) {
        if (!(table[i].flags & WD_OPTION_REQUIRED)) continue;
        wd_cli_value_text(value, sizeof value, &table[i]);
        if (table[i].flags & WD_OPTION_POSITIONAL)
            fprintf(to, " %s", value);
        else
            fprintf(to, " --%s %s", table[i].name, table[i].metavar ? value : "...");
    }
    fputs(" [options]", to);
}

/* The options of `train` and `plan` that most people need, which --help shows; --help all shows the
 * others, too. */
static const char *const often_needed[] = {"teacher_path",
                                           "transformer",
                                           "teacher_dtype",
                                           "data_path",
                                           "student_config",
                                           "student_steps",
                                           "height",
                                           "width",
                                           "batch_size",
                                           "num_steps",
                                           "gradient_checkpointing",
                                           "devices",
                                           "teacher_device_strategy",
                                           "host_memory",
                                           "json",
                                           "verbose"};

/* A preset is what `plan` takes in the place of a teacher; for `train` it only completes files. */
static bool is_often_needed(wd_job job, const char *name)
{
    static const char *const of_runs[] = {"output_dir", "resume"};
    if (!strcmp(name, "teacher_preset") || !strcmp(name, "largest_student"))
        return job == WD_JOB_PLAN;
    for (size_t i = 0; i < sizeof of_runs / sizeof *of_runs; i++)
        if (!strcmp(of_runs[i], name)) return job == WD_JOB_TRAIN;
    for (size_t i = 0; i < sizeof often_needed / sizeof *often_needed; i++)
        if (!strcmp(often_needed[i], name)) return true;
    return false;
}

static bool has_brief_help(wd_job job)
{
    return job == WD_JOB_TRAIN || job == WD_JOB_PLAN;
}

static void print_table(FILE *to, wd_job job, const char *title, bool brief)
{
    int64_t count;
    const wd_option *table = wd_options_of(job, &count);
    const char *group = NULL;
    if (title) fprintf(to, "\n%s:\n", title);
    for (int64_t i = 0; i < count; i++) {
        const wd_option *o = &table[i];
        if (o->flags & WD_OPTION_LEGACY || (brief && !is_often_needed(job, o->name))) continue;
        if (!title && !brief && o->group && (!group || strcmp(group, o->group)))
            fprintf(to, "\n%s:\n", group = o->group);
        print_option(to, o, brief);
    }
}

/* Options of the Python version that are other names, or not needed any more. */
static void print_old_names(FILE *to, wd_job job)
{
    int64_t count;
    bool any = false;
    const wd_option *table = wd_options_of(job, &count);
    for (int64_t i = 0; i < count; i++) {
        if (!(table[i].flags & WD_OPTION_LEGACY)) continue;
        if (!any) fputs("\nOptions of the Python version:\n", to);
        any = true;
        fprintf(to, "  --%-*s%s\n", HELP_COLUMN - 4, table[i].name, table[i].help);
    }
}

void wd_cli_print_help(FILE *to, wd_job job, bool all)
{
    int64_t count;
    const wd_option *table = wd_options_of(job, &count);
    const bool brief = has_brief_help(job) && !all;
    fputs("usage: ", to);
    print_synopsis(to, job);
    fprintf(to, "\n\n%c%s.\n", toupper(wd_job_summary(job)[0]), wd_job_summary(job) + 1);
    print_table(to, job, count && table[0].group && !brief ? NULL : "Options", brief);
    if (brief) {
        fprintf(to, "\n`wandistiller %s --help all` lists all options, and says more of these.\n",
                wd_job_name(job));
        return;
    }
    print_table(to, WD_JOB_COMMON, "Every command", false);
    fputs("  --help                          This text\n", to);
    print_old_names(to, job);
}

void wd_cli_print_usage(FILE *to)
{
    fputs("usage: wandistiller COMMAND [options]\n\n"
          "Distils Wan video diffusion transformers into small text-to-image students.\n\n",
          to);
    for (int i = 0; i < WD_JOB_COUNT; i++)
        fprintf(to, "  %-10s %s\n", wd_job_name((wd_job)i), wd_job_summary((wd_job)i));
    fputs(
        "\n`wandistiller COMMAND --help` lists the options of a command; `wandistiller --version`\n"
        "says which version this is.\n",
        to);
}

/* ---- manual page ---- */

/* Text for troff: '-' would become a hyphen, '\\' and a leading '.' or '\'' are commands. */
static void print_roff(FILE *to, const char *text)
{
    if (*text == '.' || *text == '\'') fputs("\\&", to);
    for (; *text; text++) {
        if (*text == '-' || *text == '\\') fputc('\\', to);
        fputc(*text, to);
    }
}

static void print_man_options(FILE *to, wd_job job)
{
    int64_t count;
    char text[1024];
    const wd_option *table = wd_options_of(job, &count);
    for (int64_t i = 0; i < count; i++) {
        const wd_option *o = &table[i];
        if (o->flags & WD_OPTION_LEGACY) continue;
        fputs(".TP\n\\fB\\-\\-", to);
        print_roff(to, o->name);
        fputs("\\fR", to);
        wd_cli_value_text(text, sizeof text, o);
        if (*text) {
            fputs(o->bare ? " [\\fI" : " \\fI", to);
            print_roff(to, text);
            fputs(o->bare ? "\\fR]" : "\\fR", to);
        }
        fputc('\n', to);
        print_roff(to, full_help(text, sizeof text, o));
        fputs(".\n", to);
    }
}

void wd_cli_print_man(FILE *to)
{
    fprintf(to, ".TH WANDISTILLER 1 \"\" \"wandistiller %s\" \"User Commands\"\n", wd_version());
    fputs(".SH NAME\nwandistiller \\- distil Wan video diffusion transformers into small "
          "text\\-to\\-image students\n.SH SYNOPSIS\n",
          to);
    for (int i = 0; i < WD_JOB_COUNT; i++) {
        if (i) fputs(".br\n", to);
        print_synopsis(to, (wd_job)i);
        fputc('\n', to);
    }
    fputs(".SH DESCRIPTION\nOption names may be written with _ or with \\-. Results go to standard "
          "output, errors and progress to standard error.\n",
          to);
    for (int i = 0; i < WD_JOB_COUNT; i++) {
        const char *name = wd_job_name((wd_job)i), *summary = wd_job_summary((wd_job)i);
        fputs(".SH ", to);
        for (const char *c = name; *c; c++) fputc(toupper(*c), to);
        fprintf(to, "\n%c%s.\n", toupper(summary[0]), summary + 1);
        print_man_options(to, (wd_job)i);
    }
    fputs(".SH EVERY COMMAND\n", to);
    print_man_options(to, WD_JOB_COMMON);
    fputs(".SH EXIT STATUS\n", to);
#define X(name, code, text) fprintf(to, ".TP\n%d\n%s\n", code, text);
    WD_STATUS_MAP(X)
#undef X
    fputs(".SH ENVIRONMENT\n.TP\nHF_HUB_CACHE, HF_HOME\nWhere Hub ids are looked up; default: "
          "~/.cache/huggingface/hub.\n.TP\nWD_CPU_ISA\ngeneric, avx2, avx512, avx512_bf16 or amx: "
          "instructions to use at most.\n",
          to);
}

/* ---- completions ---- */

static void print_names(FILE *to, wd_job job)
{
    int64_t count;
    const wd_option *table = wd_options_of(job, &count);
    for (int64_t i = 0; i < count; i++)
        if (!(table[i].flags & WD_OPTION_LEGACY)) fprintf(to, "--%s ", table[i].name);
}

/* Prints the branches of a shell `case`: for each option with choices, the list of them. */
static void print_bash_choices(FILE *to, wd_job job)
{
    int64_t count;
    const wd_option *table = wd_options_of(job, &count);
    for (int64_t i = 0; i < count; i++) {
        if (!table[i].choices || table[i].flags & WD_OPTION_LEGACY) continue;
        fprintf(to, "        %s:--%s) words=\"", job == WD_JOB_COMMON ? "*" : wd_job_name(job),
                table[i].name);
        for (const char *const *c = table[i].choices; *c; c++)
            fprintf(to, "%s%s", c == table[i].choices ? "" : " ", *c);
        fputs("\" ;;\n", to);
    }
}

void wd_cli_print_bash(FILE *to)
{
    fputs("# bash completion for wandistiller\n"
          "_wandistiller()\n{\n"
          "    local word=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
          "    local command=\"${COMP_WORDS[1]}\" words=\"\"\n"
          "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        words=\"",
          to);
    for (int i = 0; i < WD_JOB_COUNT; i++) fprintf(to, "%s ", wd_job_name((wd_job)i));
    fputs("--help --version\"\n        COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
          "        return\n    fi\n    case \"$command:$before\" in\n",
          to);
    for (int i = 0; i <= WD_JOB_COMMON; i++) print_bash_choices(to, (wd_job)i);
    fputs("    esac\n    if [ -z \"$words\" ] && [ \"${word#-}\" != \"$word\" ]; then\n"
          "        case \"$command\" in\n",
          to);
    for (int i = 0; i < WD_JOB_COUNT; i++) {
        fprintf(to, "        %s) words=\"", wd_job_name((wd_job)i));
        print_names(to, (wd_job)i);
        print_names(to, WD_JOB_COMMON);
        fputs("--help\" ;;\n", to);
    }
    fputs("        esac\n    fi\n"
          "    if [ -n \"$words\" ]; then\n"
          "        COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
          "    else\n        COMPREPLY=($(compgen -f -- \"$word\"))\n    fi\n}\n"
          "complete -o filenames -F _wandistiller wandistiller\n",
          to);
}

/* Prints a help sentence, quoted for '--name[...]' of zsh's _arguments. */
static void print_zsh_text(FILE *to, const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", to);
        else if (strchr("[]:\\", *text))
            fprintf(to, "\\%c", *text);
        else
            fputc(*text, to);
    }
}

static void print_zsh_options(FILE *to, wd_job job)
{
    int64_t count;
    const wd_option *table = wd_options_of(job, &count);
    for (int64_t i = 0; i < count; i++) {
        const wd_option *o = &table[i];
        if (o->flags & WD_OPTION_LEGACY) continue;
        fprintf(to, "            '--%s[", o->name);
        print_zsh_text(to, o->help);
        fputc(']', to);
        if (o->choices) {
            fputs(":value:(", to);
            for (const char *const *c = o->choices; *c; c++)
                fprintf(to, "%s%s", c == o->choices ? "" : " ", *c);
            fputc(')', to);
        } else if (o->type != WD_OPTION_FLAG) {
            fprintf(to, ":%s:%s", o->metavar, o->flags & WD_OPTION_FILE ? "_files" : "");
        }
        fputs("' \\\n", to);
    }
}

void wd_cli_print_zsh(FILE *to)
{
    fputs("#compdef wandistiller\n_wandistiller()\n{\n    local -a commands\n    commands=(\n", to);
    for (int i = 0; i < WD_JOB_COUNT; i++)
        fprintf(to, "        '%s:%s'\n", wd_job_name((wd_job)i), wd_job_summary((wd_job)i));
    fputs("    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n"
          "        return\n    fi\n    local command=$words[2]\n    shift words\n"
          "    (( CURRENT-- ))\n    case $command in\n",
          to);
    for (int i = 0; i < WD_JOB_COUNT; i++) {
        fprintf(to, "        %s)\n            _arguments \\\n", wd_job_name((wd_job)i));
        print_zsh_options(to, (wd_job)i);
        print_zsh_options(to, WD_JOB_COMMON);
        fputs("            '--help[list the options]' '*:file:_files' ;;\n", to);
    }
    fputs("    esac\n}\n_wandistiller \"$@\"\n", to);
}
