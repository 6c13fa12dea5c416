/* Compares our own declarations of NCCL's interface with NVIDIA's header nccl.h where that is:
 * values, sizes, and types of functions. The compiler does all of it. */
#include "testing.h"

#include <nccl.h>

#include "dev/cuda/api_nccl.h"

#define X(name, nvidia_name, value) _Static_assert((value) == (int)(nvidia_name), #nvidia_name);
WD_NCCL_VALUE_MAP(X)
#undef X

_Static_assert(sizeof(wd_nccl_key) == sizeof(ncclUniqueId), "a key");
_Static_assert(offsetof(wd_nccl_config, size) == offsetof(ncclConfig_t, size) &&
                   offsetof(wd_nccl_config, magic) == offsetof(ncclConfig_t, magic) &&
                   offsetof(wd_nccl_config, version) == offsetof(ncclConfig_t, version) &&
                   offsetof(wd_nccl_config, blocking) == offsetof(ncclConfig_t, blocking) &&
                   offsetof(wd_nccl_config, cluster_size) == offsetof(ncclConfig_t, cgaClusterSize),
               "members of a configuration");
_Static_assert(WD_NCCL_CONFIG_VERSION == NCCL_VERSION(2, 14, 0), "a version");

/* The list once more, with NVIDIA's names for types. */
#define wd_cu_stream cudaStream_t
#define wd_nccl_comm ncclComm_t
#define wd_nccl_result ncclResult_t
#define wd_nccl_type ncclDataType_t
#define wd_nccl_key ncclUniqueId
#define wd_nccl_config ncclConfig_t

#define X(result, field, symbol, parameters)                                                       \
    _Static_assert(__builtin_types_compatible_p(__typeof__(symbol), result parameters),            \
                   #symbol " has other parameters or another result");
WD_CUDA_NCCL_MAP(X)
#undef X

static void declarations_are_nvidias(void **state)
{
    (void)state;
    const ncclConfig_t usual = NCCL_CONFIG_INITIALIZER;
    assert_true(usual.magic == WD_NCCL_MAGIC && usual.size >= 24);
    assert_int_equal(NCCL_MAJOR, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(declarations_are_nvidias)};
    return cmocka_run_group_tests_name("abi_nccl", tests, NULL, NULL);
}
