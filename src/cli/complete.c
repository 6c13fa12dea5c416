/* Completions for bash and zsh, written from the option tables. */
#include <string.h>

#include "cli/cli.h"

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
