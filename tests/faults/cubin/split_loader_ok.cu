// The twin of split_loader: weights before the wait, activations after it.
#include "split_loader.cuh"
