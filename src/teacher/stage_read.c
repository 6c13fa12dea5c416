/* See teacher/stage_read.h. */
#include "teacher/stage_read.h"

void *wd_stage_read_place(void *room, const wd_safetensors_entry *entry)
{
    return entry->unaligned ? room : wd_file_reader_place(room, entry->file_offset);
}

wd_status wd_stage_read(void *room, wd_file_reader *reader, const wd_safetensors_entry *entry,
                        wd_err *err)
{
    const size_t bytes = wd_tensor_bytes(&entry->tensor);
    if (entry->unaligned)
        return wd_file_reader_read(reader, room, entry->file, entry->file_offset, bytes, err);
    return wd_file_reader_read_pages(reader, room, entry->file, entry->file_offset, bytes, err);
}
