/* Where the user's Python keeps its packages. */
#ifndef WD_DEV_CUDA_PYTHON_PREFIX_H
#define WD_DEV_CUDA_PYTHON_PREFIX_H

/* The absolute folder that the first python3 in PATH calls sys.prefix, "/opt/torch/.venv", or NULL:
 * there is no python3, or it said none within five seconds. Relative folders of PATH are passed
 * over. Python is started once per process, in isolated mode, and the answer is kept. Several
 * threads may call it. */
const char *wd_python_prefix(void);

#endif
