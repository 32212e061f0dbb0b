// Two loading roles: the weight warp issues its tensor copies without waiting, the activation warp waits first; the
// multiplying threads are ordered behind both by mbarriers. Here the roles are swapped by mistake, so activations are
// fetched before the wait.
#define MEGARTP_SWAP_ROLES
#include "split_loader.cuh"
