// Python binding of the native CPU kernels.
#include <nanobind/nanobind.h>

NB_MODULE(_cpu, m) { m.doc() = "Native CPU kernels."; }
