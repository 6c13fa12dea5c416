/* Tests of prompt cleaning. The expected texts are those of diffusers 0.42.1's prompt_clean, with
 * ftfy 6.3.1 and Python 3.11. */
#include "failing.h"

#include "core/unicode.h"
#include "io/text/html.h"
#include "io/text/prompts.h"

static const struct {
    const char *text, *clean;
} cases[] = {
    {"red apple, blue background", "red apple, blue background"},
    {"  Cr\u00e8me   br\u00fbl\u00e9e &amp; a \t\u201cfox\u201d, green background ",
     "Cr\u00e8me br\u00fbl\u00e9e & a \"fox\", green background"},
    {"", ""},
    {"   ", ""},
    {"\u3000\u00a0\u2003", ""},
    {"a\u200bb", "a\u200bb"},
    {"a\tb\nc\r\nd\013e\014f", "a b c de f"},
    {"cafe\u0301", "caf\u00e9"},
    {"\u212bngstr\u00f6m", "\u00c5ngstr\u00f6m"},
    {"\uff21 \uff43\uff41\uff54\uff0c\uff52\uff45\uff44\u3000\uff48\uff41\uff54", "A cat,red hat"},
    {"\uff76\uff9e\uff77\uff9e", "\u30ac\u30ae"},
    {"\uffe3x\uffe5", "\u0304x\u00a5"},
    {"\u8272\u8c03\u8273\u4e3d\uff0c\u8fc7\u66dd\uff0c\u9759\u6001\u3002",
     "\u8272\u8c03\u8273\u4e3d,\u8fc7\u66dd,\u9759\u6001\u3002"},
    {"\ufb01ne \ufb02ower o\ufb03ce \ufb05op \ufb06", "fine flower office \u017ftop st"},
    {"\u0132sland \u0149 \u01c4 \u01c5 \u01f2 \u01ca", "IJsland 'n D\u017d D\u017e Dz NJ"},
    {"it\u2019s \u2018so\u2019 \u201cgood\u201d \u201edeep\u201d \u02bc \u201b \u2039x\u203a",
     "it's 'so' \"good\" \"deep\" ' ' \u2039x\u203a"},
    {"wait\u2026 \u2013 \u2014", "wait\u2026 \u2013 \u2014"},
    {"\302\223quoted\302\224 \302\205 \302\200", "\"quoted\" \u2026 \u20ac"},
    {"\302\201\302\235", "\302\201\302\235"},
    {"a\001b\007c\037d\177e", "abcde"},
    {"\033[31mred\033[0m apple", "red apple"},
    {"\033[1;4;31mA\033[Kb\033[9?c", "Ab[9?c"},
    {"\ufeffBOM \ufffc \ufff9", "BOM"},
    {"\u206aA\u200d\u202eB", "A\u200d\u202eB"},
    {"&lt;b&gt;", "<b>"},
    {"&amp;lt;b&amp;gt;", "<b>"},
    {"&amp;amp;amp;amp;lt;", "<"},
    {"<b> &amp; &eacute;", "<b> & \u00e9"},
    {"<b>&amp;amp;lt;", "<b>&lt;"},
    {"a < b\n&amp;amp; c", "a < b & c"},
    {"&amp;amp; c\na < b &amp;amp;amp; d", "& c a < b &amp; d"},
    {"&eacute; &EACUTE; &eACUTE; &SZLIG; &FILIG; &NTILDE;", "\u00e9 \u00c9 &eACUTE; SS FI \u00d1"},
    /* All names whose capitals ftfy does not decode, because HTML decodes their beginning. */
    {"&COPYSR; &GTCC; &GTCIR; &GTDOT; &GTQUEST; &GTRAPPROX; &GTRARR; &GTRDOT; &GTREQLESS; "
     "&GTREQQLESS; &GTRLESS; &GTRSIM; &LTCC; &LTCIR; &LTDOT; &LTHREE; &LTIMES; &LTLARR; "
     "&LTQUEST; &LTRI; &LTRIE; &LTRIF;",
     "\u00a9SR; >CC; >CIR; >DOT; >QUEST; >RAPPROX; >RARR; >RDOT; >REQLESS; >REQQLESS; >RLESS; "
     ">RSIM; <CC; <CIR; <DOT; <HREE; <IMES; <LARR; <QUEST; <RI; <RIE; <RIF;"},
    {"&REGX; &QUOTX; &GEQ; &NUM;", "\u00aeX; \"X; \u2265 #"},
    {"&copy 2024 &notit; &notin; &not", "\u00a9 2024 \u00acit; \u2209 \u00ac"},
    {"&ampamp; &ampx", "& &x"},
    {"&acE; &NotEqualTilde; &fjlig;", "\u223e\u0333 \u2242\u0338 fj"},
    {"&CounterClockwiseContourIntegral; &CounterClockwiseContourIntegra;",
     "\u2233 &CounterClockwiseContourIntegra;"},
    {"&nosuch; &; & &# &#; &#x; &#xg;", "&nosuch; &; & &# &#; &#x; &#xg;"},
    {"&#65; &#x42; &#X43; &#0068;", "A B C D"},
    {"&#65 &#x42g", "A Bg"},
    {"&#128; &#150; &#x91;", "\u20ac \u2013 '"},
    {"&#0; &#xD800; &#x110000; &#99999999999999999999;", "\ufffd \ufffd \ufffd \ufffd"},
    {"a&#1;b&#11;c&#xfdd0;d&#x1ffff;e", "abcde"},
    {"a&#13;b&#10;c&#9;d&#12;e", "a b c d e"},
    {"&#59;", ";"},
    {"&#38;lt; &#x26;amp;", "< &"},
    {"&num;65; &&num;66;", "#65; B"},
    {"&semi;", ";"},
    {"&nbsp;x&nbsp;", "x"},
    {"\u304b\u3099\u306f\u309a", "\u304c\u3071"},
    {"\u1100\u1161\u11a8", "\uac01"},
    {"a\u0323\u0307 a\u0307\u0323", "\u1ea1\u0307 \u1ea1\u0307"},
    {"\u0344 \u0958 \u2126 \u037e", "\u0308\u0301 \u0915\u093c \u03a9 ;"},
    {"\U0001f469\u200d\U0001f52c \U0001f600\ufe0f", "\U0001f469\u200d\U0001f52c \U0001f600\ufe0f"},
    {"1\ufe0f\u20e3", "1\ufe0f\u20e3"},
    {"\u2028a\u2029b\302\205c", "a b\u2026c"},
    {"a\u1680b\u205fc\u202fd", "a b c d"},
    {"&#xff21;&#x201c;", "A\""},
    {"&amp", "&"},
    {"&ltdiv&gt", "<div>"},
    {"\u00e9\u0301\u0301", "\u00e9\u0301\u0301"},
    {"\u65e5\u672c\u8a9e \u30c6\u30b9\u30c8", "\u65e5\u672c\u8a9e \u30c6\u30b9\u30c8"},
    {"\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440",
     "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440"},
    {"\ufffd?", "\ufffd?"},
    {"\u00e3\u00a0la mode", "\u00e3 la mode"},
};

static void cleans_as_diffusers(void **state)
{
    (void)state;
    wd_err err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *clean = NULL;
        wd_test_ok(wd_prompt_clean(&clean, cases[i].text, &err), &err);
        assert_string_equal(clean, cases[i].clean);
        wd_free(clean);
    }
}

/* Binary search needs them sorted. */
static void entities_are_sorted(void **state)
{
    (void)state;
    assert_int_equal(wd_html_entity_count, 2125);
    for (int i = 1; i < wd_html_entity_count; i++)
        assert_true(strcmp(wd_html_entities[i - 1].name, wd_html_entities[i].name) < 0);
}

/* A mebibyte of text for which simple algorithms take quadratic time: nested escapes, and accents
 * to be sorted. */
static void long_prompts_take_linear_time(void **state)
{
    (void)state;
    wd_err err;
    char *text, *clean;
    void *block;
    const clock_t begun = clock();
    wd_test_ok(wd_alloc(&block, WD_PROMPT_BYTES_MAX + 2, 1, "a prompt", &err), &err);
    text = block;
    text[0] = '&';
    for (int i = 1; i < 900000; i += 4) memcpy(text + i, "amp;", 4);
    wd_test_ok(wd_prompt_clean(&clean, text, &err), &err);
    assert_string_equal(clean, "&");
    wd_free(clean);
    for (int i = 0; i < WD_PROMPT_BYTES_MAX; i += 2)
        memcpy(text + i, i % 4 ? "\u0307" : "\u0323", 2);
    wd_test_ok(wd_prompt_clean(&clean, text, &err), &err);
    assert_int_equal(strlen(clean), WD_PROMPT_BYTES_MAX);
    assert_memory_equal(clean, "\u0323\u0323\u0323", 6);
    assert_memory_equal(clean + WD_PROMPT_BYTES_MAX - 6, "\u0307\u0307\u0307", 6);
    wd_free(clean);
    wd_test_processor_time(begun, 20);
    memset(text, 'x', WD_PROMPT_BYTES_MAX + 1);
    wd_test_refused(wd_prompt_clean(&clean, text, &err), &err, WD_UNSUPPORTED, "1048577 bytes");
    wd_free(block);
}

/* The digit 5 as "&#53;", its 3 as "&#51;", its 1 as "&#49;", and so on, `depth` (times five) deep:
 * each round undoes one. */
static void deep_escapes_are_refused(void **state)
{
    (void)state;
    wd_err err;
    char text[2048], *clean = NULL;
    for (int depth = 95; depth <= 200; depth += 105) {
        char *p = text;
        for (int i = 0; i < depth; i++) p = stpcpy(p, i % 5 == 2 ? "&#4" : "&#5");
        *p++ = '5';
        memset(p, ';', (size_t)depth);
        p[depth] = '\0';
        wd_status status = wd_prompt_clean(&clean, text, &err);
        if (depth > 100)
            wd_test_refused(status, &err, WD_UNSUPPORTED, "100 times");
        else
            wd_test_ok(status, &err);
    }
    assert_string_equal(clean, "5");
    wd_free(clean);
}

static void refuses_what_is_not_utf8(void **state)
{
    (void)state;
    wd_err err;
    char *clean = NULL;
    static const char *const bad[] = {"caf\351", "\300\200",     "\355\240\275\355\262\251",
                                      "a\377",   "\360\237\230", "\364\220\200\200"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        wd_test_refused(wd_prompt_clean(&clean, bad[i], &err), &err, WD_BAD_FORMAT, "not UTF-8");
}

static wd_status clean_one(void *context, wd_err *err)
{
    (void)context;
    char *clean;
    WD_TRY(wd_prompt_clean(&clean, "e\u0301 &amp;amp; \ufb01\n\u201cx\u201d", err));
    assert_string_equal(clean, "\u00e9 & fi \"x\"");
    wd_free(clean);
    return WD_OK;
}

static void nth_allocation_fails(void **state)
{
    (void)state;
    wd_test_failing_allocations(clean_one, NULL, NULL, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cleans_as_diffusers),           cmocka_unit_test(entities_are_sorted),
        cmocka_unit_test(long_prompts_take_linear_time), cmocka_unit_test(deep_escapes_are_refused),
        cmocka_unit_test(refuses_what_is_not_utf8),      cmocka_unit_test(nth_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
