// A macro takes the wait out of the binary, as architecture gates do; the launch still carries the programmatic
// attribute.
#define MEGARTP_NO_GRID_DEPENDENCY
#include "accumulate.cuh"
