/* Compares our own declarations of the driver's interface with NVIDIA's header, cuda.h, where there
 * is one: values, sizes, and types of functions. The compiler does all of it. */
#include "testing.h"

#include <cuda.h>

#include "dev/cuda/api_driver.h"

#define X(name, driver_name, value) _Static_assert((value) == (driver_name), #driver_name);
WD_CU_RESULT_MAP(X)
WD_CU_VALUE_MAP(X)
#undef X

_Static_assert(sizeof(wd_cu_result) == sizeof(CUresult), "results are passed alike");
_Static_assert(_Generic((wd_cu_device)0, CUdevice : true), "devices");
_Static_assert(_Generic((wd_cu_address)0, CUdeviceptr : true), "addresses");

/* cuda.h renames functions to the versions that are current: cuCtxSynchronize and
 * cuCtxGetCurrent are older ones that all drivers export. */
#define X(result, field, symbol, parameters)                                                       \
    _Static_assert(_Generic(&(symbol), result(*) parameters                                        \
                            : true, default                                                        \
                            : false),                                                              \
                   #symbol " has other parameters or another result");
WD_CUDA_DRIVER_MAP(X)
#undef X

static void values_are_the_drivers(void **state)
{
    (void)state; /* it was compiled */
    assert_true(CUDA_VERSION >= 12000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(values_are_the_drivers)};
    return cmocka_run_group_tests_name("abi", tests, NULL, NULL);
}
