/* Tests: a shared library that has the functions of one list, named by WD_LIBRARY_LIST, each of
 * which does nothing and returns 0. WD_LIBRARY_LIST is a header, WD_LIBRARY_MAP its X-macro. */
#include WD_LIBRARY_LIST

#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define X(result, field, symbol, parameters)                                                       \
    result symbol parameters                                                                       \
    {                                                                                              \
        return (result)0;                                                                          \
    }
WD_LIBRARY_MAP(X)
