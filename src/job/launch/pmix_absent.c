/* A build without PMIx: see job/launch/pmix.h. */
#include "job/launch/pmix.h"

wd_pmix wd_pmix_open(void)
{
    return (wd_pmix){0};
}

wd_status wd_pmix_exchange(const wd_pmix *pmix, void *all, size_t bytes, wd_deadline *deadline,
                           wd_err *err)
{
    (void)pmix, (void)all, (void)bytes, (void)deadline;
    return wd_fail(err, WD_UNSUPPORTED, "this program was built without PMIx");
}

void wd_pmix_close(const wd_pmix *pmix)
{
    (void)pmix;
}
