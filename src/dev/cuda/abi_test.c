/* Compares our own declarations of the driver's interface with NVIDIA's header, cuda.h, where there
 * is one: values, sizes, and types of functions. The compiler does most of it. */
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

/* cuda.h renames some functions to their current versions, which the symbols name, too. */
#define X(result, field, symbol, parameters)                                                       \
    _Static_assert(_Generic(&(symbol), result(*) parameters                                        \
                            : true, default                                                        \
                            : false),                                                              \
                   #symbol " has other parameters or another result");
WD_CUDA_DRIVER_MAP(X)
#undef X

static void values_are_the_drivers(void **state)
{
    (void)state;
    assert_int_equal((size_t)CU_LAUNCH_PARAM_BUFFER_POINTER, WD_CU_LAUNCH_BUFFER_POINTER);
    assert_int_equal((size_t)CU_LAUNCH_PARAM_BUFFER_SIZE, WD_CU_LAUNCH_BUFFER_SIZE);
    assert_int_equal((size_t)CU_LAUNCH_PARAM_END, 0);
    assert_true(CUDA_VERSION >= 12000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(values_are_the_drivers)};
    return cmocka_run_group_tests_name("abi", tests, NULL, NULL);
}
