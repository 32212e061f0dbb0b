// The twin of attr_without_wait_in_binary: the same source with the wait compiled in.
#include "accumulate.cuh"
