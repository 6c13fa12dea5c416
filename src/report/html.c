/* Writing a page: see report/html.h. */
#include "report/html.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/text.h"

enum { TEXT_MAX = 4096, SAY_MAX = 1024 };

wd_status wd__html_open(wd_html *html, const char *path, wd_err *err)
{
    *html = (wd_html){.fd = -1, .err = err};
    WD_TRY(wd_path_join(html->path, "", path, err));
    return wd_file_temporary(&html->fd, html->temporary, path, err);
}

static void fail(wd_html *h, wd_status status, const char *why)
{
    if (h->status == WD_OK) h->status = wd_fail(h->err, status, "%s: %s", h->path, why);
}

static void flush(wd_html *h)
{
    for (size_t done = 0; done < h->used && h->status == WD_OK;) {
        const ssize_t n = write(h->fd, h->buffer + done, h->used - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail(h, WD_IO, strerror(errno));
        if (n > 0) done += (size_t)n;
    }
    h->used = 0;
}

wd_status wd__html_close(wd_html *html)
{
    if (html->fd < 0) return html->status;
    flush(html);
    if (close(html->fd)) fail(html, WD_IO, strerror(errno));
    html->fd = -1;
    if (html->status == WD_OK) return wd_file_commit(html->temporary, html->path, html->err);
    wd_file_abandon(html->temporary);
    return html->status;
}

static void put_bytes(wd_html *h, const char *data, size_t bytes)
{
    if (h->status == WD_OK && bytes > WD_HTML_BYTES_MAX - h->bytes)
        fail(h, WD_UNSUPPORTED, "the page would be larger than 32 MiB");
    while (bytes && h->status == WD_OK) {
        if (h->used == WD_HTML_BUFFER) flush(h);
        const size_t room = WD_HTML_BUFFER - h->used, n = bytes < room ? bytes : room;
        memcpy(h->buffer + h->used, data, n);
        h->used += n;
        h->bytes += n;
        data += n;
        bytes -= n;
    }
}

void wd__html_put(wd_html *html, const char *text)
{
    put_bytes(html, text, strlen(text));
}

void wd__html_say(wd_html *html, const char *format, ...)
{
    char text[SAY_MAX];
    va_list list;
    va_start(list, format);
    const int n = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (n < 0 || (size_t)n >= sizeof text)
        fail(html, WD_INTERNAL, "a piece of the page is too long");
    else
        put_bytes(html, text, (size_t)n);
}

static void put_escaped(wd_html *h, char c)
{
    static const struct {
        char c;
        const char *text;
    } escaped[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
    for (size_t i = 0; i < sizeof escaped / sizeof *escaped; i++)
        if (c == escaped[i].c) {
            wd__html_put(h, escaped[i].text);
            return;
        }
    put_bytes(h, &c, 1);
}

/* The number of bytes up to `most` after which a text may be cut: not inside a character. */
static size_t whole_characters(const char *text, size_t most)
{
    while (most && ((unsigned char)text[most] & 0xc0) == 0x80) most--;
    return most;
}

void wd__html_text(wd_html *html, const char *text)
{
    char copy[TEXT_MAX + 1];
    const size_t all = strnlen(text, TEXT_MAX + 1);
    const bool is_cut = all > TEXT_MAX;
    const size_t bytes = is_cut ? whole_characters(text, TEXT_MAX) : all;
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    wd_make_terminal_safe(copy);
    for (const char *c = copy; *c; c++) put_escaped(html, *c);
    if (is_cut) wd__html_put(html, "...");
}

void wd__html_path(wd_html *html, const char *path)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-~";
    for (; *path; path++) {
        const size_t n = strspn(path, plain);
        put_bytes(html, path, n);
        path += n;
        if (!*path) return;
        wd__html_say(html, "%%%02X", (unsigned)(unsigned char)*path);
    }
}

/* ---- base64 ---- */

static bool read_all(int fd, void *data, size_t bytes, int64_t offset)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = pread(fd, (char *)data + done, bytes - done, (off_t)offset + (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

static void put_group(wd_html *h, const unsigned char *data, size_t bytes)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned b = bytes > 1 ? data[1] : 0, c = bytes > 2 ? data[2] : 0;
    const unsigned all = (unsigned)data[0] << 16 | b << 8 | c;
    const char text[4] = {digit[all >> 18], digit[all >> 12 & 63],
                          bytes > 1 ? digit[all >> 6 & 63] : '=',
                          bytes > 2 ? digit[all & 63] : '='};
    put_bytes(h, text, sizeof text);
}

void wd__html_base64(wd_html *html, int fd, int64_t offset, size_t bytes)
{
    enum { PART = 3 << 10 };
    unsigned char part[PART];
    for (size_t at = 0; at < bytes && html->status == WD_OK; at += PART) {
        const size_t n = bytes - at < PART ? bytes - at : PART;
        if (!read_all(fd, part, n, offset + (int64_t)at)) {
            fail(html, WD_IO, "a picture became shorter while it was read");
            return;
        }
        for (size_t i = 0; i < n; i += 3) put_group(html, part + i, n - i < 3 ? n - i : 3);
    }
}
