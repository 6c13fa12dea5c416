/* Reading a tensor of the teacher from its file to where a device copies it from: whole pages, past
 * the page cache, straight into pinned memory (io/file_reader.h).
 *
 * Rooms follow one another in a staging, or in the ring that ranks of a host share; each is
 * wd_file_reader_room of the tensor's bytes, wherever the tensor lies in its file. */
#ifndef WD_TEACHER_STAGE_READ_H
#define WD_TEACHER_STAGE_READ_H

#include "io/file_reader.h"
#include "io/safetensors.h"

/* Where the tensor's bytes are in `room` once they are read: as far behind its start as they lie
 * behind a page of the file; at its start where they would not be aligned to their dtype so. */
void *wd_stage_read_place(void *room, const wd_safetensors_entry *entry);

/* Reads them there. `room` begins at a multiple of WD_READ_PAGE, or the page cache is used. */
wd_status wd_stage_read(void *room, wd_file_reader *reader, const wd_safetensors_entry *entry,
                        wd_err *err);

#endif
