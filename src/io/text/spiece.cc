/* The C interface to SentencePiece: see io/text/spiece.h. */
#include "io/text/spiece.h"

#include <sentencepiece_processor.h>

#include <exception>
#include <new>
#include <string>
#include <vector>

struct wd_spiece {
    sentencepiece::SentencePieceProcessor processor;
};

/* Turns the exception of the surrounding catch (...) into an error. */
static wd_status refuse_exception(wd_err *err)
{
    try {
        throw;
    } catch (const std::bad_alloc &) {
        return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for the tokenizer");
    } catch (const std::exception &e) {
        return wd_fail(err, WD_INTERNAL, "SentencePiece: %s", e.what());
    } catch (...) {
        return wd_fail(err, WD_INTERNAL, "SentencePiece threw something unknown");
    }
}

wd_status wd__spiece_open(wd_spiece **out, const void *model, size_t bytes, const char *path,
                          wd_err *err)
{
    wd_spiece *spiece = nullptr;
    try {
        spiece = new wd_spiece;
        auto status =
            spiece->processor.LoadFromSerializedProto({static_cast<const char *>(model), bytes});
        if (status.ok() && spiece->processor.GetPieceSize() > 0) {
            *out = spiece;
            return WD_OK;
        }
        delete spiece;
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: expected a SentencePiece model, found %zu bytes that are none: %s",
                       path, bytes, status.ok() ? "no pieces" : status.ToString().c_str());
    } catch (...) {
        delete spiece;
        return refuse_exception(err);
    }
}

void wd__spiece_close(wd_spiece *spiece)
{
    delete spiece;
}

int32_t wd__spiece_count(const wd_spiece *spiece)
{
    return spiece->processor.GetPieceSize();
}

int32_t wd__spiece_find(const wd_spiece *spiece, const char *piece)
{
    try {
        int id = spiece->processor.PieceToId(piece);
        bool found = id >= 0 && id < spiece->processor.GetPieceSize();
        return found && spiece->processor.IdToPiece(id) == piece ? id : -1;
    } catch (...) {
        return -1;
    }
}

/* How many of the first ids an undivided text, which has `before` there, would not have: the mark
 * of a word's beginning, and an unknown token behind another one. */
static size_t count_left_out(const wd_spiece *spiece, const std::vector<int> &ids, int32_t before)
{
    static const char mark[] = "\xe2\x96\x81";
    const int unknown = spiece->processor.unk_id();
    size_t n = 0;
    if (ids.size() > n && ids[n] == wd__spiece_find(spiece, mark)) n++;
    if (ids.size() > n && ids[n] == unknown && before == unknown) n++;
    return n;
}

wd_status wd__spiece_encode(int32_t *ids, int64_t *count, int64_t capacity, const wd_spiece *spiece,
                            const char *text, size_t bytes, int32_t before, wd_err *err)
{
    try {
        std::vector<int> found;
        auto status = spiece->processor.Encode({text, bytes}, &found);
        if (!status.ok())
            return wd_fail(err, WD_INTERNAL, "SentencePiece: %s", status.ToString().c_str());
        const size_t first = before < 0 ? 0 : count_left_out(spiece, found, before);
        *count = static_cast<int64_t>(found.size() - first);
        for (int64_t i = 0; i < *count && i < capacity; i++)
            ids[i] = found[first + static_cast<size_t>(i)];
        return WD_OK;
    } catch (...) {
        return refuse_exception(err);
    }
}
