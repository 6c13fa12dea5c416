/* A report of the bytes that ranks have sent one another. */
#ifndef WD_API_JOBS_TRAIN_H
#define WD_API_JOBS_TRAIN_H

#include "job/comm/comm.h"

#endif
