/* Opens devices of --devices (dev/device_list.h). */
#ifndef WD_DEV_DEVICE_OPEN_H
#define WD_DEV_DEVICE_OPEN_H

#include "dev/device.h"
#include "dev/device_list.h"

enum { WD_DEVICE_SHORT_NAME = 16 };

/* Opens one device of a list, and writes its short name, "cpu", "cuda:1", "sim:0". `index` is its
 * index in the list, by which simulated devices are numbered; `threads` are the processor's, 0:
 * OpenMP's number. The caller closes *out. */
wd_status wd_device_open_listed(wd_device **out, char name[WD_DEVICE_SHORT_NAME],
                                const wd_device_spec *spec, int index, int threads, wd_err *err);

/* Opens the device that `text` names, or the first of "auto". Where a GPU that "auto" found cannot
 * be used, such as without cuDNN, it warns and opens the processor. WD_INVALID_ARGUMENT: it names
 * several. */
wd_status wd_device_open_one(wd_device **out, const char *text, int threads, wd_err *err);

#endif
